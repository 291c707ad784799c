"""The in-sync replicas of a partition as its leader sees them, while it asks for a change too (KIP-497).

Java: PartitionState, CommittedPartitionState, PendingExpandIsr, PendingShrinkIsr.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from pykclient.errors import IllegalStateError

COMMITTED: Final = "CommittedPartitionState"
PENDING_EXPAND: Final = "PendingExpandIsr"
PENDING_SHRINK: Final = "PendingShrinkIsr"

#: What a leader does next about its ISR; only one change is asked for at a time.
_MOVES: Final = {
    COMMITTED: (COMMITTED, PENDING_EXPAND, PENDING_SHRINK),
    PENDING_EXPAND: (COMMITTED,),
    PENDING_SHRINK: (COMMITTED,),
}


class LeaderAndIsr(NamedTuple):
    """Leader, its epoch, the ISR, and the epoch of the partition's state, which rises with each change."""

    leader: int
    leader_epoch: int
    isr: tuple[int, ...]
    partition_epoch: int


class PartitionState:
    """``isr`` is what the controller has agreed to; ``maximal_isr`` is what it may have agreed to already.

    A record counts as committed when all of ``maximal_isr`` have it: a replica that is being added counts at once, one
    that is being removed counts until it is removed. Whichever of them the next leader is, it has the record.
    ``sent`` is the change that was asked for. Thread: loop.
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
        """Raises IllegalStateError unless ``kind`` may follow."""
        if kind not in _MOVES[self.kind]:
            raise IllegalStateError(f"{kind} cannot follow {self}: a change of the ISR is in flight")

    def expand(self, broker_id: int, sent: LeaderAndIsr) -> PartitionState:
        """Ask for ``broker_id`` to be added."""
        self.move(PENDING_EXPAND)
        return PartitionState(PENDING_EXPAND, self.isr, self.isr | {broker_id}, sent, self)

    def shrink(self, sent: LeaderAndIsr) -> PartitionState:
        """Ask for all to be removed who are not in ``sent``."""
        self.move(PENDING_SHRINK)
        return PartitionState(PENDING_SHRINK, self.isr, self.isr, sent, self)

    def commit(self, isr: frozenset[int]) -> PartitionState:
        """What the controller says is the case."""
        self.move(COMMITTED)
        return PartitionState.committed(isr)

    @property
    def is_inflight(self) -> bool:
        """Whether the controller has been asked for a change."""
        return self.kind != COMMITTED

    def __repr__(self) -> str:
        wanted = "" if self.sent is None else f", wanted {sorted(self.sent.isr)}"
        return f"{self.kind}(isr={sorted(self.isr)}{wanted})"
