"""Leaving the group (Java: AbstractCoordinator.maybeLeaveGroup; KIP-1092)."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from pykclient import errors
from pykclient.consumer.coordinator.group_requests import LeaveGroupBuilder
from pykclient.consumer.coordinator.member_state import COMPLETING_REBALANCE, PREPARING_REBALANCE
from pykclient.consumer.coordinator.membership_operation import DEFAULT, REMAIN_IN_GROUP
from pykclient.consumer.request_future import RequestFuture
from pykclient.consumer.request_manager import NOTHING, PollResult, UnsentRequest
from pykclient.errors import DisconnectError, UnknownMemberIdError

if TYPE_CHECKING:
    from pykclient.clock import Clock
    from pykclient.consumer.coordinator.coordinator_request_manager import CoordinatorRequestManager
    from pykclient.consumer.coordinator.group_membership import GroupMembership
    from pykclient.consumer.coordinator.group_rebalance_config import GroupRebalanceConfig
    from pykclient.log_context import LogContext
    from pykclient.network.client_request import ClientResponse
    from pykclient.network.exponential_backoff import ExponentialBackoff
    from pykclient.types import Node


#: LeaveGroup makes a coordinator answer JoinGroup of that member; this is for the way of the response. Brokers before
#: Kafka 2.2 did not.
_OVERTAKEN_JOIN_MS = 1000


class _Leaving:
    """A LeaveGroup request, from the call to its outcome. Thread: the holder of the I/O lease."""

    __slots__ = (
        "builder",
        "failures",
        "future",
        "in_flight",
        "is_closing",
        "is_confirmed",
        "is_repeated",
        "next_ms",
        "reason",
        "waits_for_others",
    )

    def __init__(self, builder: LeaveGroupBuilder, reason: str, *, waits_for_others: bool, is_closing: bool) -> None:
        self.builder = builder
        self.reason = reason
        self.future: RequestFuture[None] = RequestFuture()
        self.waits_for_others = waits_for_others  # the coordinator's own connection
        self.is_closing = is_closing
        self.in_flight = False
        self.is_confirmed = False  # and may have overtaken JoinGroup
        self.is_repeated = False  # as JoinGroup succeeded
        self.failures = 0
        self.next_ms = 0


class LeaveGroupRequestManager:
    """Ends memberships, and tells the coordinator.

    A broker answers the requests of a connection in order. While JoinGroup or SyncGroup waits there for members that
    have not joined yet, LeaveGroup goes over another connection, the one that fetches use. If only that one is lost,
    LeaveGroup is sent again: the member would stay until its session expires. So it would if LeaveGroup overtook
    JoinGroup, which adds a member to a group of the consumer protocol under any id: LeaveGroup is repeated if JoinGroup
    succeeds. Once this member has left, SyncGroup may never be answered, and all else would wait behind it, so its
    connection is dropped. ``is_joining`` returns whether JoinGroup or SyncGroup is in flight, ``is_join_in_flight``
    whether it is JoinGroup. Thread: the holder of the I/O lease.
    """

    runs_in_background = True

    def __init__(
        self,
        config: GroupRebalanceConfig,
        log_context: LogContext,
        membership: GroupMembership,
        coordinator: CoordinatorRequestManager,
        clock: Clock,
        retry_backoff: ExponentialBackoff,
        is_joining: Callable[[], bool],
        is_join_in_flight: Callable[[], bool],
    ) -> None:
        self._config = config
        self._log = log_context.logger(__name__)
        self._membership = membership
        self._coordinator = coordinator
        self._clock = clock
        self._retry_backoff = retry_backoff
        self._is_joining = is_joining
        self._is_join_in_flight = is_join_in_flight
        self.pending: _Leaving | None = None

    @property
    def waits_for_others(self) -> bool:
        """True while the coordinator's own connection may be held up for minutes."""
        state = self._membership.state
        return (state is PREPARING_REBALANCE or state is COMPLETING_REBALANCE) and self._is_joining()

    def leave(
        self, operation: str, reason: str, *, lost_because: str | None = None, is_closing: bool = False
    ) -> RequestFuture[None] | None:
        """End the membership; send LeaveGroup, unless there is nothing to leave or ``operation`` says to stay.

        A member whose generation was refused (ILLEGAL_GENERATION) is still in the group: it leaves as well, unlike in
        Java, where its partitions would rest until its session expires. Return the future of the request, or None
        without one. With ``is_closing``, JoinGroup's connection will not stay open, so that LeaveGroup cannot wait
        behind that.
        """
        sent = self._membership.generation
        stays = operation == REMAIN_IN_GROUP or (operation == DEFAULT and self._config.group_instance_id is not None)
        leaving = None
        if sent.has_member_id and not (self._coordinator.unknown or stays):
            self._log.info("Leaving the group as member %s: %s", sent.member_id, reason)
            builder = LeaveGroupBuilder(self._config.group_id, sent.member_id, reason)
            leaving = _Leaving(builder, reason, waits_for_others=self.waits_for_others, is_closing=is_closing)
        self.pending = leaving
        self._membership.reset_and_rejoin(
            "consumer pro-actively leaving the group", reset_member_id=True, lost_because=lost_because
        )
        if leaving is None:
            if stays or not self._is_join_in_flight():
                self._drop_rebalance()
            return None
        return leaving.future

    def poll(self, now_ms: int) -> PollResult:
        """Return LeaveGroup if it is due."""
        leaving = self.pending
        if leaving is None:
            return NOTHING
        if leaving.in_flight:
            return PollResult(self._config.retry_backoff_ms)  # when the heartbeat thread looks for the response
        if leaving.is_confirmed:
            return self._await_join(leaving, now_ms)
        if now_ms < leaving.next_ms:
            return PollResult(leaving.next_ms - now_ms)
        node, broker = self._coordinator.check_and_get(), self._coordinator.broker
        if node is None:
            self._end(leaving, DisconnectError("the connection to the group coordinator is lost"))
            return NOTHING
        if leaving.failures:
            leaving.waits_for_others = self._is_joining()
        if leaving.waits_for_others and broker is not None:
            return self._request(leaving, broker, is_own=False)
        return self._request(leaving, node, is_own=True)

    def joined_after_leaving(self, member_id: str) -> None:
        """Send LeaveGroup again if it may have been processed before JoinGroup, which has succeeded."""
        leaving = self.pending
        if leaving is not None and leaving.waits_for_others and (leaving.in_flight or leaving.is_confirmed):
            self._log.info("JoinGroup of member %s was answered after LeaveGroup was sent; leaving again", member_id)
            leaving.builder = LeaveGroupBuilder(self._config.group_id, member_id, leaving.reason)
            leaving.is_repeated = True
            leaving.is_confirmed = leaving.waits_for_others = False
            leaving.next_ms = 0

    def _await_join(self, leaving: _Leaving, now_ms: int) -> PollResult:
        if not self._is_join_in_flight():
            self._end(leaving, None)
        elif now_ms < leaving.next_ms:
            return PollResult(leaving.next_ms - now_ms)
        elif not leaving.is_closing:
            self._end(leaving, None)
            self._drop_rebalance(leaving)
        elif not leaving.future.is_done:
            leaving.future.settle(None)
        return NOTHING

    def reset(self) -> None:
        """Send LeaveGroup again, if it was in flight."""
        if self.pending is not None:
            self.pending.in_flight = False

    def _request(self, leaving: _Leaving, node: Node, *, is_own: bool) -> PollResult:
        request = UnsentRequest(leaving.builder, node)
        answered = partial(self._answered, leaving, leaving.builder)
        request.future.add_listener(answered, partial(self._failed, leaving, is_own))
        leaving.in_flight = True
        return PollResult(self._config.retry_backoff_ms, (request,))

    def _answered(self, leaving: _Leaving, builder: LeaveGroupBuilder, answer: ClientResponse) -> None:
        leaving.in_flight = False
        if builder is not leaving.builder:
            return  # it is to be sent again
        response = answer.response_body
        codes = [response.error_code, *(member.error_code for member in response.members)]
        error = errors.for_code(next((code for code in codes if code), 0))
        if leaving.is_repeated and isinstance(error, UnknownMemberIdError):
            error = None  # it was not overtaken
        if error is None:
            self._log.debug("The coordinator confirmed that this member left the group")
            if leaving.waits_for_others and self.pending is leaving and self._is_join_in_flight():
                leaving.is_confirmed = True
                leaving.next_ms = self._clock.now_ms() + _OVERTAKEN_JOIN_MS
                return
        else:
            self._log.error("LeaveGroup failed: %s", error)
        self._end(leaving, error)
        self._drop_rebalance(leaving)

    def _drop_rebalance(self, leaving: _Leaving | None = None) -> None:
        """Drop the connection on which a request of the rebalance waits that this member has left."""
        if leaving is not None and leaving.is_closing:
            return  # all connections are about to be closed
        if self._is_joining():
            self._coordinator.mark_unknown("its connection waits for a rebalance that this member has left")

    def _failed(self, leaving: _Leaving, is_own: bool, error: Exception) -> None:
        leaving.in_flight = False
        if is_own and isinstance(error, DisconnectError):
            self._coordinator.mark_unknown(str(error), is_disconnected=True)
        if is_own or not isinstance(error, DisconnectError) or self._coordinator.unknown:
            self._end(leaving, error)
        elif leaving.is_closing:
            leaving.next_ms = self._clock.now_ms() + self._retry_backoff.backoff(leaving.failures)
            leaving.failures += 1
        else:
            leaving.waits_for_others = False  # the first connection stays open, and better late than not at all

    def _end(self, leaving: _Leaving, error: Exception | None) -> None:
        if self.pending is leaving:
            self.pending = None
        if not leaving.future.is_done:
            leaving.future.settle(error)
