"""The interface to the state of a membership, by either group protocol."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from pykclient.consumer.coordinator.member_state import Generation, MemberState


class Membership(Protocol):
    """The state of a membership that the managers of a group and the heartbeat thread share. Thread: any."""

    @property
    def state(self) -> MemberState:
        """The state of the member."""

    @property
    def generation(self) -> Generation:
        """The current generation, which may belong to an unfinished rebalance."""

    @property
    def rebalance_in_progress(self) -> bool:
        """True if commits must wait for the end of a rebalance."""

    @property
    def lost_because(self) -> str | None:
        """The reason why the last membership ended, unless the application ended it."""

    @property
    def lost_generation(self) -> int | None:
        """The generation, or member epoch, in which the last membership ended, unless the application ended it."""

    @property
    def last_rebalance_end_ms(self) -> int | None:
        """The time of the last successful rebalance."""

    @property
    def last_poll_ms(self) -> int:
        """The time of the application's last poll."""

    @property
    def last_send_ms(self) -> int | None:
        """The time when the last heartbeat was sent."""

    @property
    def heartbeat_in_flight(self) -> bool:
        """True while the coordinator has not answered a heartbeat."""

    @property
    def signals(self) -> int:
        """A counter that rises with every change that the heartbeat thread must see."""

    def signal(self) -> None:
        """Make the heartbeat thread check again."""

    def wait_for_signal(self, seen: int, timeout_ms: int) -> None:
        """Wait until ``signals`` is not ``seen``, or for ``timeout_ms``."""

    def time_to_next_event(self, now_ms: int) -> int:
        """Return the milliseconds until a heartbeat is due or a timer of the membership expires."""

    def coordinator_found(self) -> None:
        """Note that the coordinator can be asked again."""

    def poll_heartbeat(self, now_ms: int, call_ms: int = 0) -> bool:
        """Record that the application is alive, in a call that waits for ``call_ms`` at most.

        Return True if a heartbeat is due earlier than before: now, instead of in the middle of the call.
        """

    def generation_if_stable(self) -> Generation | None:
        """Return the generation to commit in, or None if this member cannot commit now."""

    def generation_for_fetches(self) -> Generation | None:
        """Return the generation to name in lookups of committed offsets, or None if they name none."""

    def snapshot(self) -> tuple[Generation, MemberState]:
        """Return generation and state of the same moment."""

    def request_rejoin(self, short_reason: str, full_reason: str | None = None) -> None:
        """Rebalance the group with the next poll, where members decide about that."""

    def reset_unless_rebalancing_anew(
        self, sent: Generation, reason: str, *, reset_member_id: bool, lost_because: str
    ) -> bool:
        """End the membership, and join again in the next poll. Return False if it has changed since ``sent``."""
