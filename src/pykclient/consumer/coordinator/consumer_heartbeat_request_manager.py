"""Heartbeats of the consumer group protocol (KIP-848), which join, keep and leave the group.

Java: AbstractHeartbeatRequestManager, ConsumerHeartbeatRequestManager.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from pykclient import errors
from pykclient.consumer.coordinator import group_requests
from pykclient.consumer.coordinator.consumer_membership import LocalAssignment
from pykclient.consumer.coordinator.membership import fenced_error
from pykclient.consumer.request_manager import NOTHING, PollResult, RequestFuture, UnsentRequest
from pykclient.errors import DisconnectError, KafkaError, RetriableError, UnsupportedVersionError
from pykclient.network.client_request import Shortcut, UsualResponse
from pykclient.network.failures import group_denied, topics_denied

if TYPE_CHECKING:
    from collections.abc import Mapping
    from uuid import UUID

    from pykclient.consumer.coordinator.consumer_membership import Beat, ConsumerMembership
    from pykclient.consumer.coordinator.coordinator_request_manager import CoordinatorRequestManager
    from pykclient.consumer.coordinator.membership import GroupRebalanceConfig
    from pykclient.consumer.network_client_delegate import NetworkClientDelegate
    from pykclient.consumer.subscription_state import SubscriptionState
    from pykclient.consumer.values import SubscriptionPattern
    from pykclient.log_context import LogContext
    from pykclient.metrics.sensor import Sensor
    from pykclient.network.client_request import ClientRequest, ClientResponse, RequestBuilder
    from pykclient.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatResponse
    from pykclient.protocol.messages.share_group_heartbeat import ShareGroupHeartbeatResponse


class SentFields:
    """The fields of the last heartbeat. The next one has only those that have changed since. Thread: lease holder."""

    __slots__ = ("owned", "pattern", "subscription")

    def __init__(self) -> None:
        self.subscription: frozenset[str] | None = None
        self.owned: LocalAssignment | None = None
        self.pattern: SubscriptionPattern | None = None


class ConsumerHeartbeatRequestManager:
    """Sends heartbeats, and tracks the time since the application last polled.

    A heartbeat is due at the interval that the coordinator names, and at once to join, to report partitions that the
    member has given up or taken over, to leave, and when the subscription has changed. Thread: the holder of the I/O
    lease.
    """

    runs_in_background = True
    pending = True

    #: The name of the request in logs.
    request_name = "ConsumerGroupHeartbeat"

    def __init__(
        self,
        config: GroupRebalanceConfig,
        log_context: LogContext,
        membership: ConsumerMembership,
        lookup: CoordinatorRequestManager,
        subscriptions: SubscriptionState,
        latency: Sensor,
        client: NetworkClientDelegate | None = None,
    ) -> None:
        self._config = config
        self._log = log_context.logger(__name__)
        self._membership = membership
        self._coordinator = lookup
        self._subscriptions = subscriptions
        self._latency = latency
        self._client = client  # None: every response is parsed
        self._usual = UsualResponse()
        self._usual_epoch = self._usual_interval_ms = 0
        self._sent = SentFields()
        self._leaving: RequestFuture[None] | None = None
        # No timer ends before this time, unless there is a signal.
        self._next_event_ms = 0
        self._seen_signals = -1
        self._rest = PollResult()  # the result until that time
        #: An error for the application's next poll that does not end the membership.
        self.failure: KafkaError | None = None

    def raise_failure(self) -> None:
        """Raise, once, a heartbeat's error that the application must handle.

        Raises:
            TopicAuthorizationError: the consumer may not describe a topic of its subscription. It remains a member,
                and heartbeats go on, so it recovers as soon as the ACL exists.
        """
        failure, self.failure = self.failure, None
        if failure is not None:
            raise failure

    def leave(self, operation: str, reason: str) -> RequestFuture[None] | None:
        """Leave the group with the next poll. Return a future of the answer, or None if nothing is sent."""
        self.failure = None
        if not self._membership.leave(operation) or self._coordinator.unknown:
            return None
        self._log.info("Leaving the group as member %s: %s", self._membership.member_id, reason)
        self._leaving = RequestFuture()
        return self._leaving

    def poll(self, now_ms: int) -> PollResult:
        """Return a heartbeat if one is due and the coordinator is known."""
        membership = self._membership
        state = membership.state
        if not state.sends_heartbeats:
            return NOTHING
        node = self._coordinator.check_and_get()
        if node is None:
            if membership.skip_beat():
                self._log.warning("Left the group without telling the coordinator, which is not known at the moment")
                self._end_leaving(errors.CoordinatorNotAvailableError("the group coordinator is not known"))
            return NOTHING
        subscriptions, sent = self._subscriptions, self._sent
        is_changed = subscriptions.subscription() != sent.subscription or subscriptions.broker_pattern() != sent.pattern
        signals = membership.signals
        if now_ms < self._next_event_ms and signals == self._seen_signals and not is_changed:
            self._rest.wait_ms = self._next_event_ms - now_ms
            return self._rest
        self._leave_if_late(now_ms)
        beat, rest_ms = membership.next_beat(now_ms, is_due=is_changed)
        self._next_event_ms = now_ms + rest_ms
        self._seen_signals = signals
        if beat is None:
            return PollResult(rest_ms)
        request = UnsentRequest(self._builder(beat), node)
        request.future.add_listener(partial(self._answered, beat), partial(self._failed, beat))
        return PollResult(rest_ms, (request,))

    def check_soon(self) -> None:
        """Make the next poll check the membership, because a heartbeat is due earlier. Thread: application."""
        self._next_event_ms = 0

    def reset(self) -> None:
        """Send another heartbeat soon, instead of the one in flight."""
        self._sent = SentFields()
        self._membership.interrupted()
        self._next_event_ms = 0

    def _leave_if_late(self, now_ms: int) -> None:
        config = self._config
        idle_s = (now_ms - self._membership.last_poll_ms) / 1000
        cause = (
            f"poll() was not called for {idle_s:.1f} s, longer than max.poll.interval.ms="
            f"{config.rebalance_timeout_ms}, so it left the group"
        )
        if self._membership.is_late(now_ms, cause):
            self._log.warning(
                "%s. Processing what a poll returns takes too long: raise max.poll.interval.ms, or lower "
                "max.poll.records (now %d)",
                cause,
                config.max_poll_records,
            )

    def _builder(self, beat: Beat) -> RequestBuilder:
        """Return a request with the fields that have changed since the last one; with all, if the member joins."""
        config, sent = self._config, self._sent
        if beat.is_joining:
            self._sent = sent = SentFields()
        fields: dict[str, Any] = {}
        if not beat.is_leaving:
            subscription = self._subscriptions.subscription()
            if sent.subscription is None:
                fields["rebalance_timeout_ms"] = config.rebalance_timeout_ms
                fields["rack_id"] = config.rack_id
                fields["server_assignor"] = config.group_remote_assignor
            if subscription != sent.subscription:
                fields["subscribed_topic_names"] = sorted(subscription)
                sent.subscription = subscription
            pattern = self._subscriptions.broker_pattern()
            if pattern != sent.pattern:
                # An empty expression ends the subscription by pattern.
                fields["subscribed_topic_regex"] = "" if pattern is None else pattern.pattern
                sent.pattern = pattern
            if beat.owned != sent.owned:
                fields["topic_partitions"] = beat.owned.partitions
                sent.owned = beat.owned
        shortcut = Shortcut(self._usual, partial(self._is_handled, beat, self._next_event_ms))
        return group_requests.ConsumerGroupHeartbeatBuilder(
            config, beat.member_id, beat.member_epoch, shortcut=shortcut, **fields
        )

    # --- answers -----------------------------------------------------------------------------------------------------

    def _is_handled(self, beat: Beat, until_ms: int, request: ClientRequest, now_ms: int) -> bool:
        """Handle the usual response, if it comes before ``until_ms``: until then the application may wait."""
        if now_ms >= until_ms or self.failure is not None or beat.is_leaving:
            return False
        if self._client is None or not self._client.awaits_records:
            return False
        if not self._membership.confirmed(beat, self._usual_epoch, self._usual_interval_ms):
            return False
        self._latency.record(now_ms - request.created_ms, now_ms)
        return True

    def _answered(self, beat: Beat, response: ClientResponse) -> None:
        self._latency.record(response.request_latency_ms)
        body: ConsumerGroupHeartbeatResponse | ShareGroupHeartbeatResponse = response.response_body
        error = errors.for_code(body.error_code, body.error_message or None)
        if beat.is_leaving:
            self._left(error)
            return
        if error is not None:
            self._refused(beat, error)
            return
        self.failure = None
        assignment = None if body.assignment is None else _partitions(body.assignment)
        if assignment is None and self._client is not None and self._usual.expect(body, response.api_version):
            self._usual_epoch, self._usual_interval_ms = body.member_epoch, body.heartbeat_interval_ms
        self._membership.answered(beat, body.member_epoch, body.heartbeat_interval_ms, assignment)

    def _left(self, error: errors.BrokerError | None) -> None:
        if error is None:
            self._log.debug("The coordinator confirmed that this member left the group")
        elif isinstance(error, (errors.UnknownMemberIdError, errors.GroupIdNotFoundError)):
            self._log.debug("The coordinator had removed this member, or the group, before it left")
            error = None
        else:
            self._log.warning("Leaving the group failed: %s", error)
        self._end_leaving(error)

    def _end_leaving(self, error: KafkaError | None) -> None:
        leaving, self._leaving = self._leaving, None
        if leaving is None:
            return
        if error is None:
            leaving.complete(None)
        else:
            leaving.raise_error(error)

    def _failed(self, beat: Beat, error: Exception) -> None:
        """Handle a request that got no answer."""
        self._sent = SentFields()
        if isinstance(error, DisconnectError):
            self._coordinator.mark_unknown(str(error), is_disconnected=True)
        if beat.is_leaving:
            self._end_leaving(error if isinstance(error, KafkaError) else KafkaError(str(error)))
        elif isinstance(error, UnsupportedVersionError):
            self._fail_for_good(beat, error)
        else:
            self._membership.failed(beat)

    def _refused(self, beat: Beat, error: errors.BrokerError) -> None:
        self._sent = SentFields()
        if isinstance(error, (errors.NotCoordinatorError, errors.CoordinatorNotAvailableError)):
            self._coordinator.mark_unknown(f"{self.request_name}: {error}")
            self._membership.failed(beat, back_off=False)  # the lookup backs off
        elif isinstance(error, (errors.FencedMemberEpochError, errors.UnknownMemberIdError)) or (
            # To a member that joins, it says that the group is of another type.
            isinstance(error, errors.GroupIdNotFoundError) and beat.member_epoch > 0
        ):
            if self._membership.fenced(beat, self._lost_because(beat, error)):
                self._log.info(
                    "Fenced: the coordinator answered a heartbeat of member %s in epoch %d with %s; joining again",
                    beat.member_id,
                    beat.member_epoch,
                    error,
                )
        elif isinstance(error, errors.TopicAuthorizationError):
            # The coordinator does not say which topics.
            topics = self._subscriptions.subscription()
            self.failure = topics_denied(self._log.principal, topics, "DESCRIBE", "to subscribe to them in a group")
            self._membership.failed(beat)
        elif isinstance(error, RetriableError):
            self._log.debug("A heartbeat failed, and is sent again: %s", error)
            self._membership.failed(beat)
        else:
            self._fail_for_good(beat, self._translated(error))

    def _fail_for_good(self, beat: Beat, error: KafkaError) -> None:
        if self._membership.failed_for_good(beat, error):
            self._log.error("The membership has ended, and is not retried: %s", error)

    def _lost_because(self, beat: Beat, error: errors.BrokerError) -> str:
        if isinstance(error, errors.UnknownMemberIdError):
            return (
                "the coordinator had removed it, most likely as it heard no heartbeat for the group's session timeout "
                "(consumer.session.timeout.ms; the process was paused, starved of CPU or of the GIL, or cut off), or "
                "as it did not give up partitions within max.poll.interval.ms="
                f"{self._config.rebalance_timeout_ms}"
            )
        if isinstance(error, errors.GroupIdNotFoundError):
            return (
                f"the coordinator no longer knows group {self._config.group_id!r}: it was deleted, or the coordinator "
                "has lost the group's records"
            )
        return f"the coordinator knows it in another epoch than {beat.member_epoch}: {error}"

    def _translated(self, error: errors.BrokerError) -> KafkaError:
        """Return an error that says what to do."""
        config = self._config
        if isinstance(error, errors.GroupAuthorizationError):
            return group_denied(self._log.principal, config.group_id)
        if isinstance(error, errors.FencedInstanceIdError):
            return fenced_error(config)
        if isinstance(error, errors.UnreleasedInstanceIdError):
            return errors.UnreleasedInstanceIdError(
                f"group.instance.id={config.group_instance_id!r} of group {config.group_id!r} is in use by another "
                "member, or by one that crashed and whose session has not expired yet. Make sure that no other process "
                "uses it, and join again (unsubscribe() and subscribe(), or a new consumer) after the group's session "
                "timeout"
            )
        if isinstance(error, errors.UnsupportedAssignorError):
            return errors.UnsupportedAssignorError(
                f"the brokers do not have the assignor group.remote.assignor={config.group_remote_assignor!r}: {error}"
            )
        if isinstance(error, errors.InvalidRegularExpressionError):
            why = str(error).rstrip(".")
            return errors.InvalidRegularExpressionError(
                f"the brokers cannot match {self._subscriptions.broker_pattern()}: {why}. Its syntax is that of RE2/J"
            )
        if isinstance(error, errors.GroupMaxSizeReachedError):
            return errors.GroupMaxSizeReachedError(
                f"group {config.group_id!r} has as many members as the brokers allow (group.consumer.max.size)"
            )
        if isinstance(error, errors.UnsupportedVersionError):
            return UnsupportedVersionError(
                f"the brokers do not serve group.protocol=consumer: {error}. They need Kafka 4.0 or later with the "
                "feature group.version at 1; set group.protocol=classic until then"
            )
        return error


def _partitions(
    assignment: ConsumerGroupHeartbeatResponse.Assignment | ShareGroupHeartbeatResponse.Assignment,
) -> Mapping[UUID, frozenset[int]]:
    return {topic.topic_id: frozenset(topic.partitions) for topic in assignment.topic_partitions if topic.partitions}
