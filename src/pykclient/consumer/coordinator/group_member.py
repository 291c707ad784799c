"""The interface between a consumer's coordinator and its membership, by either group protocol."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pykclient.consumer.application_events import ApplicationEvents, Steps
    from pykclient.consumer.coordinator.membership import Membership
    from pykclient.consumer.request_future import RequestFuture
    from pykclient.consumer.request_manager import RequestManager
    from pykclient.network.cluster import Cluster
    from pykclient.types import ConsumerGroupMetadata


class GroupMember(Protocol):
    """A consumer's membership, as its coordinator drives it. Thread: application."""

    @property
    def membership(self) -> Membership:
        """The state that is shared with the heartbeat thread."""

    @property
    def events(self) -> ApplicationEvents:
        """The application's steps of the current rebalance."""

    @property
    def managers(self) -> Sequence[RequestManager]:
        """The managers that send the requests of the protocol."""

    @property
    def group_metadata(self) -> ConsumerGroupMetadata:
        """This member's place in the group."""

    def check_subscription(self) -> None:
        """Raise IllegalStateError if the configuration does not allow subscriptions."""

    def check_broker_pattern(self) -> None:
        """Raise IllegalArgumentError if the brokers match no patterns in this protocol."""

    def metadata_updated(self) -> None:
        """Process metadata that arrived since the last call."""

    def update_pattern_subscription(self, cluster: Cluster) -> None:
        """Subscribe to the topics that match the pattern now."""

    # --- each poll ---------------------------------------------------------------------------------------------------

    def raise_failure(self) -> None:
        """Raise an error that ended the heartbeats, once."""

    def polled(self, now_ms: int, call_ms: int) -> None:
        """Record that the application is alive, in a call that waits for ``call_ms`` at most."""

    def heartbeat_thread_failed(self, failure: Exception) -> None:
        """Note that heartbeats have stopped because of a bug."""

    @property
    def needs_coordinator(self) -> bool:
        """True if a rebalance cannot go on without the coordinator."""

    @property
    def is_rebalancing(self) -> bool:
        """True if the application must call ``advance``, or wait until it must."""

    @property
    def needs_application(self) -> bool:
        """True if the application must call ``advance``."""

    def advance(self, now_ms: int) -> None:
        """Begin a rebalance, or queue the steps of the application that are next.

        Raises the error of an attempt that no retry will mend.
        """

    def request_rejoin(self, short_reason: str, full_reason: str | None = None) -> None:
        """Rebalance the group with the next poll, where members decide about that."""

    # --- leaving -----------------------------------------------------------------------------------------------------

    def stop(self) -> None:
        """End the rebalance, as the application leaves the group."""

    def revoke_all(self) -> Steps[None]:
        """Give up all partitions, as this member is about to leave."""

    @property
    def waits_for_others(self) -> bool:
        """True while the coordinator's own connection may be held up for minutes."""

    def leave(self, operation: str, reason: str, *, is_closing: bool = False) -> RequestFuture[None] | None:
        """End the membership; tell the coordinator, unless there is nothing to leave or ``operation`` says to stay.

        Return the future of the request, or None without one. Thread: the holder of the I/O lease.
        """
