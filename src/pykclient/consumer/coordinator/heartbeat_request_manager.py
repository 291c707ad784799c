"""Heartbeats, which keep a member in its group (Java: AbstractHeartbeatRequestManager, AbstractCoordinator)."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from pykclient import errors
from pykclient.consumer.coordinator import group_requests
from pykclient.consumer.coordinator.group_errors import fenced_error
from pykclient.consumer.coordinator.group_membership import POLL_EXPIRED, REST, SESSION_EXPIRED
from pykclient.consumer.coordinator.membership_operation import DEFAULT
from pykclient.consumer.request_manager import NOTHING, PollResult, UnsentRequest
from pykclient.errors import DisconnectError, FencedInstanceIdError, KafkaError, RetriableError
from pykclient.network.authorization_errors import group_denied

if TYPE_CHECKING:
    from pykclient.consumer.coordinator.coordinator_request_manager import CoordinatorRequestManager
    from pykclient.consumer.coordinator.group_membership import GroupMembership
    from pykclient.consumer.coordinator.group_rebalance_config import GroupRebalanceConfig
    from pykclient.consumer.coordinator.leave_group_request_manager import LeaveGroupRequestManager
    from pykclient.consumer.coordinator.member_state import Generation
    from pykclient.consumer.coordinator.usual_answer import UsualAnswer
    from pykclient.log_context import LogContext
    from pykclient.metrics.sensor import Sensor
    from pykclient.network.client_request import ClientRequest, ClientResponse
    from pykclient.network.network_receive import Frame


class HeartbeatRequestManager:
    """Sends heartbeats, and watches how long the coordinator and the application have been silent.

    When the application has not polled for ``max.poll.interval.ms``, the member leaves the group. Thread: the holder
    of the I/O lease.
    """

    runs_in_background = True
    pending = True

    def __init__(
        self,
        config: GroupRebalanceConfig,
        log_context: LogContext,
        membership: GroupMembership,
        coordinator: CoordinatorRequestManager,
        sensor: Sensor,
        leaving: LeaveGroupRequestManager,
        usual_answer: UsualAnswer,
    ) -> None:
        self._config = config
        self._log = log_context.logger(__name__)
        self._membership = membership
        self._coordinator = coordinator
        self._sensor = sensor
        self._leaving = leaving
        self._usual_answer = usual_answer
        # No timer ends before this time, unless there is a signal.
        self._next_event_ms = 0
        self._seen_signals = -1
        self._rest = PollResult()  # the result until that time
        self._refused_with: tuple[type[errors.BrokerError], ...] = ()  # the error of the last answer, if it was one
        #: The error that ended the membership and that no retry will mend, for the application's next poll.
        self.failure: KafkaError | None = None

    def poll(self, now_ms: int) -> PollResult:
        """Return a heartbeat if it is due and the coordinator is known, whose manager looks for it otherwise."""
        membership = self._membership
        if not membership.state.sends_heartbeats:
            return NOTHING
        signals = membership.signals
        if now_ms < self._next_event_ms and signals == self._seen_signals:
            self._rest.wait_ms = self._next_event_ms - now_ms
            return self._rest
        node = self._coordinator.check_and_get()
        if node is None:
            return NOTHING
        action, rest_ms = membership.next_action(now_ms)
        if action is SESSION_EXPIRED:
            self._coordinator.mark_unknown("no answer to heartbeats within session.timeout.ms")
            return NOTHING
        if action is POLL_EXPIRED:
            self._leave(now_ms)
            return NOTHING
        self._next_event_ms = now_ms + rest_ms
        self._seen_signals = signals
        if action is REST:
            return PollResult(rest_ms)
        sent = membership.generation
        settle = partial(self._settle, self._next_event_ms)
        request = UnsentRequest(group_requests.heartbeat(self._config, sent, settle), node)
        request.future.add_listener(partial(self._answered, sent), self._failed)
        return PollResult(rest_ms, (request,))

    def _leave(self, now_ms: int) -> None:
        config = self._config
        idle_s = (now_ms - self._membership.last_poll_ms) / 1000
        cause = (
            f"poll() was not called for {idle_s:.1f} s, longer than max.poll.interval.ms="
            f"{config.rebalance_timeout_ms}, so it left the group"
        )
        self._log.warning(
            "%s. Processing what a poll returns takes too long: raise max.poll.interval.ms, or lower max.poll.records "
            "(now %d)",
            cause,
            config.max_poll_records,
        )
        self._leaving.leave(DEFAULT, "consumer poll timeout has expired", lost_because=cause)

    def check_soon(self) -> None:
        """Make the next poll look at the membership, because a heartbeat is due earlier. Thread: application."""
        self._next_event_ms = 0

    def reset(self) -> None:
        """Send another heartbeat soon, instead of the one in flight."""
        if self._membership.heartbeat_in_flight:
            self._membership.fail_heartbeat()

    def _settle(self, until_ms: int, request: ClientRequest, version: int, response: Frame, now_ms: int) -> bool:
        """Handle the usual response, if it comes before ``until_ms``: until then the application may wait."""
        if now_ms >= until_ms or not self._usual_answer.matches(request, version, response):
            return False
        self._sensor.record(now_ms - request.created_ms, now_ms)
        self._membership.receive_heartbeat()
        return True

    def _answered(self, sent: Generation, response: ClientResponse) -> None:
        self._sensor.record(response.request_latency_ms)
        error = errors.for_code(response.response_body.error_code)
        membership = self._membership
        if isinstance(error, errors.RebalanceInProgressError):
            # Ignored if the heartbeat was sent before this member joined the rebalance. It keeps sending heartbeats
            # while the group rebalances: it has the rebalance timeout to join, but without heartbeats the session would
            # expire.
            membership.request_rejoin_if_stable("group is already rebalancing")
        elif isinstance(
            error, (errors.IllegalGenerationError, errors.UnknownMemberIdError, errors.FencedInstanceIdError)
        ):
            if self._membership_ended(sent, error):
                membership.fail_heartbeat()
                return
        elif error is not None:
            if isinstance(error, (errors.CoordinatorNotAvailableError, errors.NotCoordinatorError)):
                self._coordinator.mark_unknown(f"Heartbeat: {error}")
            elif not isinstance(error, (RetriableError, *self._refused_with)):
                self._log.warning(
                    "The coordinator refuses heartbeats. If that lasts for session.timeout.ms=%d, this member loses "
                    "its partitions: %s",
                    self._config.session_timeout_ms,
                    self._translated(error),
                )
            self._refused_with = (type(error),)
            membership.fail_heartbeat()
            return
        if error is None:
            self._usual_answer.confirm(response)
        self._refused_with = ()
        membership.receive_heartbeat()

    def _translated(self, error: errors.BrokerError) -> KafkaError:
        """Return an error that says what to do."""
        if isinstance(error, errors.GroupAuthorizationError):
            return group_denied(self._log.principal, self._config.group_id)
        return error

    def _membership_ended(self, sent: Generation, error: errors.BrokerError) -> bool:
        """End the membership, and return True unless it has ended before."""
        # After ILLEGAL_GENERATION the coordinator still knows the member id.
        reset_member_id = not isinstance(error, errors.IllegalGenerationError)
        if isinstance(error, FencedInstanceIdError):
            error = fenced_error(self._config)
        reason = f"the coordinator answered a heartbeat with {error}"
        if not self._membership.reset_if_unchanged(
            sent, reason, reset_member_id=reset_member_id, lost_because=self._lost_because(error)
        ):
            self._log.info("Ignoring a failed heartbeat of %s, which has ended: %s", sent, error)
            return False
        if isinstance(error, FencedInstanceIdError):
            self._log.error("Fenced: %s", error)
            self.failure = error
        return True

    def _lost_because(self, error: errors.BrokerError) -> str:
        if isinstance(error, errors.UnknownMemberIdError):
            return (
                f"the coordinator had removed it, most likely as it heard no heartbeat for session.timeout.ms="
                f"{self._config.session_timeout_ms} (the process was paused, starved of CPU or of the GIL, or cut off)"
            )
        return str(error)

    def _failed(self, error: Exception) -> None:
        if isinstance(error, DisconnectError):
            self._coordinator.mark_unknown(str(error), is_disconnected=True)
        self._membership.fail_heartbeat()
