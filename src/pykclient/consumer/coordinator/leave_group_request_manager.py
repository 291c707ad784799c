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
from pykclient.errors import DisconnectError

if TYPE_CHECKING:
    from pykclient.clock import Clock
    from pykclient.consumer.coordinator.coordinator_request_manager import CoordinatorRequestManager
    from pykclient.consumer.coordinator.group_membership import GroupMembership
    from pykclient.consumer.coordinator.group_rebalance_config import GroupRebalanceConfig
    from pykclient.log_context import LogContext
    from pykclient.network.client_request import ClientResponse
    from pykclient.network.exponential_backoff import ExponentialBackoff
    from pykclient.types import Node


class _Leaving:
    """A LeaveGroup request, from the call to its outcome. Thread: the holder of the I/O lease."""

    __slots__ = ("builder", "failures", "future", "in_flight", "is_closing", "next_ms", "waits_for_others")

    def __init__(self, builder: LeaveGroupBuilder, *, waits_for_others: bool, is_closing: bool) -> None:
        self.builder = builder
        self.future: RequestFuture[None] = RequestFuture()
        self.waits_for_others = waits_for_others  # the coordinator's own connection
        self.is_closing = is_closing
        self.in_flight = False
        self.failures = 0
        self.next_ms = 0


class LeaveGroupRequestManager:
    """Ends memberships, and tells the coordinator.

    A broker answers the requests of a connection in order. While JoinGroup or SyncGroup waits there for members that
    have not joined yet, LeaveGroup goes over another connection, the one that fetches use. If only that one is lost,
    LeaveGroup is sent again: the member would stay until its session expires. ``is_joining`` returns whether such a
    request is in flight. Thread: the holder of the I/O lease.
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
    ) -> None:
        self._config = config
        self._log = log_context.logger(__name__)
        self._membership = membership
        self._coordinator = coordinator
        self._clock = clock
        self._retry_backoff = retry_backoff
        self._is_joining = is_joining
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
            leaving = _Leaving(builder, waits_for_others=self.waits_for_others, is_closing=is_closing)
        self.pending = leaving
        self._membership.reset_and_rejoin(
            "consumer pro-actively leaving the group", reset_member_id=True, lost_because=lost_because
        )
        return None if leaving is None else leaving.future

    def poll(self, now_ms: int) -> PollResult:
        """Return LeaveGroup if it is due."""
        leaving = self.pending
        if leaving is None:
            return NOTHING
        if leaving.in_flight:
            return PollResult(self._config.retry_backoff_ms)  # when the heartbeat thread looks for the response
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

    def reset(self) -> None:
        """Send LeaveGroup again, if it was in flight."""
        if self.pending is not None:
            self.pending.in_flight = False

    def _request(self, leaving: _Leaving, node: Node, *, is_own: bool) -> PollResult:
        request = UnsentRequest(leaving.builder, node)
        request.future.add_listener(partial(self._answered, leaving), partial(self._failed, leaving, is_own))
        leaving.in_flight = True
        return PollResult(self._config.retry_backoff_ms, (request,))

    def _answered(self, leaving: _Leaving, answer: ClientResponse) -> None:
        response = answer.response_body
        codes = [response.error_code, *(member.error_code for member in response.members)]
        error = errors.for_code(next((code for code in codes if code), 0))
        if error is None:
            self._log.debug("The coordinator confirmed that this member left the group")
        else:
            self._log.error("LeaveGroup failed: %s", error)
        self._end(leaving, error)

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
        leaving.future.settle(error)
