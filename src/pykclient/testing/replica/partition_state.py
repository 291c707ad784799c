"""The leader's view of the in-sync replicas, including a requested change (KIP-497).

Java: PartitionState, CommittedPartitionState, PendingExpandIsr, PendingShrinkIsr.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from pykclient.errors import IllegalStateError

COMMITTED: Final = "CommittedPartitionState"
PENDING_EXPAND: Final = "PendingExpandIsr"
PENDING_SHRINK: Final = "PendingShrinkIsr"

#: The transitions of a leader's ISR; only one change is requested at a time.
_MOVES: Final = {
    COMMITTED: (COMMITTED, PENDING_EXPAND, PENDING_SHRINK),
    PENDING_EXPAND: (COMMITTED,),
    PENDING_SHRINK: (COMMITTED,),
}


class LeaderAndIsr(NamedTuple):
    """The leader, its epoch, the ISR, and the epoch of the partition's state, which rises with each change."""

    leader: int
    leader_epoch: int
    isr: tuple[int, ...]
    partition_epoch: int


class PartitionState:
    """The state of a partition's ISR.

    ``isr`` is what the controller has confirmed, ``maximal_isr`` the largest one that it may have confirmed. A record
    is committed when all of ``maximal_isr`` have it: a replica that is being added counts immediately, one that is
    being removed counts until it is removed. So whichever of them is the next leader has the record. ``sent`` is the
    requested change. Thread: loop.
    """

    __slots__ = ("isr", "kind", "last_committed", "maximal_isr", "sent")

    def __init__(
        self,
        kind: str,
        isr: frozenset[int],
        maximal_isr: frozenset[int],
        sent: LeaderAndIsr | None = None,
        last_committed: PartitionState | None = None,
    ) -> None:
        self.kind = kind
        self.isr = isr
        self.maximal_isr = maximal_isr
        self.sent = sent
        self.last_committed = last_committed or self

    @staticmethod
    def committed(isr: frozenset[int]) -> PartitionState:
        return PartitionState(COMMITTED, isr, isr)

    def move(self, kind: str) -> None:
        """Change the state.

        Raises:
            IllegalStateError: ``kind`` must not follow the current state.
        """
        if kind not in _MOVES[self.kind]:
            raise IllegalStateError(f"{kind} cannot follow {self}: a change of the ISR is in flight")

    def expand(self, broker_id: int, sent: LeaderAndIsr) -> PartitionState:
        """Return the state after asking to add ``broker_id``."""
        self.move(PENDING_EXPAND)
        return PartitionState(PENDING_EXPAND, self.isr, self.isr | {broker_id}, sent, self)

    def shrink(self, sent: LeaderAndIsr) -> PartitionState:
        """Return the state after asking to remove all replicas that are not in ``sent``."""
        self.move(PENDING_SHRINK)
        return PartitionState(PENDING_SHRINK, self.isr, self.isr, sent, self)

    def commit(self, isr: frozenset[int]) -> PartitionState:
        """Return the state after the controller's confirmation."""
        self.move(COMMITTED)
        return PartitionState.committed(isr)

    @property
    def is_inflight(self) -> bool:
        """True if a request to the controller is in flight."""
        return self.kind != COMMITTED

    def __repr__(self) -> str:
        wanted = "" if self.sent is None else f", wanted {sorted(self.sent.isr)}"
        return f"{self.kind}(isr={sorted(self.isr)}{wanted})"
