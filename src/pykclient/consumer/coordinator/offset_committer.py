"""Synchronous, asynchronous and automatic commits (Java: the commit half of ConsumerCoordinator)."""

from __future__ import annotations

import logging
import uuid
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, NamedTuple

from pykclient import errors
from pykclient.clock import FOREVER_MS, Timer
from pykclient.consumer.coordinator import group_requests
from pykclient.consumer.coordinator.consumer_parts import ConsumerParts, Offsets
from pykclient.consumer.coordinator.coordinator_request_manager import group_authorization_error
from pykclient.consumer.coordinator.group_joiner import fenced_error
from pykclient.consumer.coordinator.member_state import NO_GENERATION, PREPARING_REBALANCE, Generation
from pykclient.consumer.coordinator.response_handler import handled
from pykclient.consumer.request_future import RequestFuture
from pykclient.errors import (
    CommitFailedError,
    FencedInstanceIdError,
    KafkaError,
    RebalanceInProgressError,
    RetriableCommitFailedError,
    RetriableError,
    WakeupError,
)
from pykclient.metrics.sensor import Sensor
from pykclient.protocol.messages.offset_commit import OffsetCommitResponse
from pykclient.types import TopicPartition

if TYPE_CHECKING:
    from pykclient.consumer.coordinator.abstract_coordinator import AbstractCoordinator

#: The coordinator's errors for partitions that it does not know, by name or by topic id.
_UNKNOWN_TOPIC = (errors.UnknownTopicOrPartitionError, errors.UnknownTopicIdError)

TopicIds = Mapping[TopicPartition, uuid.UUID]

#: Called with the offsets and None, or with the offsets and the error.
OffsetCommitCallback = Callable[[Offsets, Exception | None], object]


class OffsetCommitter:
    """Sends commits in the order of the calls, and runs callbacks in the order of the responses.

    Callbacks run on the application thread, in the next call of ``poll``, of a commit or of ``close``. Thread:
    application.
    """

    def __init__(self, coordinator: AbstractCoordinator, parts: ConsumerParts, commit_sensor: Sensor) -> None:
        self._coordinator = coordinator
        self._client = coordinator.client
        self._membership = coordinator.membership
        self._config = coordinator.config
        self._log = coordinator.log_context.logger(__name__)
        self._parts = parts
        self._commit_sensor = commit_sensor
        self._next_auto_commit = Timer(coordinator.clock, parts.auto_commit_interval_ms)
        self._completed: deque[tuple[OffsetCommitCallback, Offsets, Exception | None]] = deque()
        self._fenced = False
        self.in_flight_async_commits = 0
        # Asynchronous commits that wait for the coordinator, each with the lookup it waits for.
        self._waiting: deque[_WaitingCommit] = deque()
        # Partitions that the coordinator did not know, and the metadata's version at that time. Only newer metadata can
        # show whether they were deleted, or the coordinator does not know them yet.
        self._refused: dict[TopicPartition, int] = {}
        self._deleted: set[TopicPartition] = set()  # partitions that the last automatic commit omitted
        #: The error of the last attempt of a synchronous commit, for timeout errors.
        self.last_error: Exception | None = None

    # --- callbacks -------------------------------------------------------------------------------------------------

    def invoke_completed_offset_commit_callbacks(self) -> None:
        """Run the callbacks of completed commits.

        Raises:
            FencedInstanceIdError: an asynchronous commit was fenced.
        """
        if self._fenced:
            raise fenced_error(self._config)
        while self._completed:
            callback, offsets, error = self._completed.popleft()
            try:
                with self._parts.application_code:
                    callback(offsets, error)
            except WakeupError:
                raise
            except Exception:  # noqa: BLE001 - the application's code, which must not make the poll fail
                self._log.exception("The callback of a commit of %s failed", shown(offsets))

    @property
    def awaits_answers(self) -> bool:
        """True while an asynchronous commit is in flight or waits for the coordinator."""
        return self.in_flight_async_commits > 0 or bool(self._waiting)

    @property
    def has_pending_async_commits(self) -> bool:
        """True while an asynchronous commit is in flight, or its callback has not run."""
        return self.awaits_answers or bool(self._completed)

    def _default_callback(self, offsets: Offsets, error: Exception | None) -> None:
        if error is not None:
            self._log.error("Commit of %s failed: %s", shown(offsets), error)

    # --- asynchronous ----------------------------------------------------------------------------------------------

    def commit_offsets_async(
        self, offsets: Offsets, callback: OffsetCommitCallback | None = None
    ) -> RequestFuture[None]:
        """Commit without waiting and without retries, which could overtake a later commit."""
        self.invoke_completed_offset_commit_callbacks()
        chosen = self._default_callback if callback is None else callback
        topic_ids = self._topic_ids(offsets)
        coordinator = self._coordinator
        if not offsets or not coordinator.coordinator_unknown or coordinator.ensure_coordinator_ready_async():
            self.commit_waiting()
            future = self._do_commit_offsets_async(offsets, topic_ids, chosen)
        else:
            future = self._commit_when_coordinator_is_found(offsets, topic_ids, chosen)
        # Give it a chance to be sent: the application may not poll for a while.
        self._client.poll_no_wakeup()
        return future

    def _commit_when_coordinator_is_found(
        self, offsets: Offsets, topic_ids: TopicIds, callback: OffsetCommitCallback
    ) -> RequestFuture[None]:
        future: RequestFuture[None] = RequestFuture()
        finder = self._coordinator.finder
        finder.look_up()
        self._waiting.append(_WaitingCommit(finder.failures, offsets, topic_ids, callback, future))
        return future

    def commit_waiting(self) -> None:
        """Send the commits that wait for the coordinator if it is found; otherwise fail them.

        They are sent in order and before any later commit, because an older commit must not overwrite a later one.
        """
        sent = False
        while self._waiting:
            failures, offsets, topic_ids, callback, future = self._waiting[0]
            finder = self._coordinator.finder
            unknown = finder.unknown
            if unknown and finder.failures == failures:
                break
            self._waiting.popleft()
            if unknown:
                failure = _retriable(finder.last_error or _coordinator_unknown())
                self._completed.append((callback, offsets, failure))
                future.raise_error(failure)
            else:
                self._do_commit_offsets_async(offsets, topic_ids, callback).chain(future)
                sent = True
        if sent:
            self._client.transmit_sends()

    def _do_commit_offsets_async(
        self, offsets: Offsets, topic_ids: TopicIds, callback: OffsetCommitCallback
    ) -> RequestFuture[None]:
        future = self.send_offset_commit_request(offsets, topic_ids)
        self.in_flight_async_commits += 1

        def on_success(_: None) -> None:
            self.in_flight_async_commits -= 1
            self._intercept(offsets)
            self._completed.append((callback, offsets, None))

        def on_failure(error: Exception) -> None:
            self.in_flight_async_commits -= 1
            failure = _retriable(error) if isinstance(error, RetriableError) else error
            self._completed.append((callback, offsets, failure))
            if isinstance(error, FencedInstanceIdError):
                self._fenced = True

        future.add_listener(on_success, on_failure)
        return future

    def _intercept(self, offsets: Offsets) -> None:
        if self._parts.interceptors is not None:
            self._parts.interceptors.on_commit(offsets)

    # --- synchronous -----------------------------------------------------------------------------------------------

    def commit_offsets_sync(self, offsets: Offsets, timer: Timer) -> bool:
        """Commit, and retry retriable errors; return False if the timer expires first. Raises other errors.

        Raises UnknownTopicOrPartitionError as soon as the metadata confirms that partitions do not exist; all other
        offsets are committed then. Callbacks of earlier asynchronous commits have run when this returns.
        """
        self.invoke_completed_offset_commit_callbacks()
        if not offsets:
            return self._invoke_pending_async_commits(timer)
        topic_ids = self._topic_ids(offsets)
        attempts = 0
        self.last_error = None
        while True:
            if self._coordinator.coordinator_unknown and not self._coordinator.ensure_coordinator_ready(timer):
                self.last_error = self._coordinator.finder.last_error or self.last_error
                return False
            self.commit_waiting()
            future = self.send_offset_commit_request(offsets, topic_ids)
            self._client.poll_future(future, timer)
            # Earlier commits are reported first.
            self.invoke_completed_offset_commit_callbacks()
            if future.succeeded:
                self._intercept(offsets)
                return True
            if future.failed:
                self.last_error = future.exception
                if not future.is_retriable:
                    raise future.exception
                if isinstance(future.exception, _UNKNOWN_TOPIC):
                    self._raise_if_deleted(offsets, topic_ids, future.exception, timer)
            timer.sleep_ms(self._coordinator.retry_backoff.backoff(attempts))
            attempts += 1
            if timer.expired:
                return False

    # --- partitions that do not exist ------------------------------------------------------------------------------

    def _topic_ids(self, offsets: Iterable[TopicPartition]) -> dict[TopicPartition, uuid.UUID]:
        """Return the topic id of each offset, if it is known.

        It is the id that came with the position. The id in the metadata may belong to a newer topic of the same name,
        in which the offset must not be committed.
        """
        known = self._parts.metadata.topic_ids
        topic_ids = {}
        for tp in offsets:
            position = self._parts.subscriptions.position_or_none(tp)
            topic_id = None if position is None else position.topic_id
            topic_id = topic_id or known.get(tp.topic)
            if topic_id is not None:
                topic_ids[tp] = topic_id
        return topic_ids

    def _is_deleted(self, tp: TopicPartition, topic_id: uuid.UUID | None) -> bool:
        """Return whether the partition is known not to exist, or only in a topic with another id."""
        metadata = self._parts.metadata
        if self._is_recreated(tp, topic_id):
            return True
        refused_at = self._refused.get(tp)
        if refused_at is None or metadata.update_version <= refused_at:
            return False
        if metadata.fetch_metadata_snapshot().partition_metadata(tp) is None:
            return True
        del self._refused[tp]  # the coordinator does not know the partition yet
        return False

    def _is_recreated(self, tp: TopicPartition, topic_id: uuid.UUID | None) -> bool:
        known = self._parts.metadata.topic_ids.get(tp.topic)
        return topic_id is not None and known is not None and known != topic_id

    def _raise_if_deleted(
        self, partitions: Iterable[TopicPartition], topic_ids: TopicIds, refused: Exception, timer: Timer
    ) -> None:
        """Wait for metadata that is newer than the coordinator's response; raise if it also lacks the partitions."""
        refused_at = max(self._refused.values(), default=-1)
        if self._parts.metadata.update_version <= refused_at and not self._client.await_metadata_update(timer):
            return
        deleted = [tp for tp in partitions if self._is_deleted(tp, topic_ids.get(tp))]
        if deleted:
            raise _unknown_partitions(deleted) from refused

    def _invoke_pending_async_commits(self, timer: Timer) -> bool:
        attempts = 0
        self.commit_waiting()
        while self.in_flight_async_commits:
            self._coordinator.ensure_coordinator_ready(timer)
            self._client.poll(timer)
            self.invoke_completed_offset_commit_callbacks()
            if not self.in_flight_async_commits:
                break
            timer.sleep_ms(self._coordinator.retry_backoff.backoff(attempts))
            attempts += 1
            if timer.expired:
                return False
        return True

    def await_pending_async_commits(self, timer: Timer) -> None:
        """Let the commits that wait for the coordinator be sent, before closing."""
        self.commit_waiting()
        while self._waiting and timer.not_expired:
            self._coordinator.ensure_coordinator_ready(timer)
            self.commit_waiting()
            self._client.poll(timer)
            self.invoke_completed_offset_commit_callbacks()

    # --- automatic -------------------------------------------------------------------------------------------------

    @property
    def auto_commit_enabled(self) -> bool:
        return self._parts.auto_commit_enabled

    def time_to_next_auto_commit(self) -> int:
        """Return how long a wait for records may take.

        An interval of 0 means a commit with every poll, but no additional polls.
        """
        return self._next_auto_commit.remaining_ms if self._parts.auto_commit_interval_ms else FOREVER_MS

    def reschedule_auto_commit(self) -> None:
        """Restart the interval."""
        self._next_auto_commit.update_and_reset(self._parts.auto_commit_interval_ms)

    def maybe_auto_commit_offsets_async(self, now_ms: int) -> None:
        """Commit the consumed offsets if the interval has passed."""
        if self.auto_commit_enabled:
            self._next_auto_commit.update(now_ms)
            if self._next_auto_commit.expired:
                self._next_auto_commit.reset(self._parts.auto_commit_interval_ms)
                self.auto_commit_offsets_async()

    def auto_commit_offsets_async(self) -> RequestFuture[None]:
        """Commit the consumed offsets now."""
        return self.commit_offsets_async(self._consumed(), self._auto_committed)

    def _consumed(self) -> Offsets:
        """Return the offsets to commit automatically, without those of deleted topics."""
        offsets = self._parts.consumed()
        topic_ids = self._topic_ids(offsets)
        deleted = {tp for tp in offsets if self._is_deleted(tp, topic_ids.get(tp))}
        if not deleted <= self._deleted:
            self._log.info(
                "No longer committing %s: the cluster does not have these partitions",
                shown({tp: offset for tp, offset in offsets.items() if tp in deleted}),
            )
        self._deleted = deleted
        return {tp: offset for tp, offset in offsets.items() if tp not in deleted}

    def _auto_committed(self, offsets: Offsets, error: Exception | None) -> None:
        if error is None:
            if self._log.isEnabledFor(logging.DEBUG):
                self._log.debug("Committed automatically: %s", shown(offsets))
        elif isinstance(error, RetriableCommitFailedError):
            self._log.debug("Automatic commit failed for now: %s", error)
            self._next_auto_commit.update_and_reset(self._config.retry_backoff_ms)
        else:
            self._log.warning("Automatic commit of %s failed: %s", shown(offsets), error)

    def maybe_auto_commit_offsets_sync(self, timer: Timer) -> None:
        """Commit the consumed offsets and wait, before closing. Raises nothing but WakeupError."""
        if not self.auto_commit_enabled:
            return
        offsets = self._consumed()
        try:
            if not self.commit_offsets_sync(offsets, timer):
                self._log.warning(
                    "Not committed in the time there was: %s (%s)", shown(offsets), self.last_error or "no answer"
                )
        except WakeupError:
            raise
        except KafkaError as error:
            self._log.warning("The last automatic commit of %s failed: %s", shown(offsets), error)

    # --- the request -----------------------------------------------------------------------------------------------

    def send_offset_commit_request(self, offsets: Offsets, topic_ids: TopicIds) -> RequestFuture[None]:
        """Send one request, with the topic ids of the offsets.

        The future fails with CommitFailedError if the group has rebalanced without this member. It fails with an error
        of _UNKNOWN_TOPIC if partitions do not exist; the others are committed then.
        """
        recreated = [tp for tp in offsets if self._is_recreated(tp, topic_ids.get(tp))]
        if recreated:
            # Coordinators without topic ids would commit these in the new topic.
            offsets = {tp: offset for tp, offset in offsets.items() if tp not in recreated}
            if not offsets:
                return RequestFuture.failure(self._refuse(recreated))
        if not offsets:
            return RequestFuture.success(None)
        node = self._coordinator.check_and_get_coordinator()
        if node is None:
            return RequestFuture.failure(_coordinator_unknown())
        for tp, offset in offsets.items():
            if offset.offset < 0:
                return RequestFuture.failure(
                    errors.IllegalArgumentError(f"offset {offset.offset} of {tp} cannot be committed: it is negative")
                )
        sent = NO_GENERATION
        instance_id: str | None = None
        if self._parts.subscriptions.has_auto_assigned_partitions():
            generation = self._membership.generation_if_stable()
            if generation is None:
                return RequestFuture.failure(self._not_a_member())
            sent = generation
            instance_id = self._config.group_instance_id
        builder = group_requests.offset_commit(self._config, sent, instance_id, offsets, topic_ids)
        topic_names = {topic_id: tp.topic for tp, topic_id in topic_ids.items()}
        return handled(
            self._coordinator.finder,
            self._client.send(node, builder),
            lambda response, future: self._handle(response, future, sent, topic_names, recreated),
            self._commit_sensor.record,
        )

    def _not_a_member(self) -> KafkaError:
        if self._membership.rebalance_in_progress:
            return RebalanceInProgressError(
                f"offsets cannot be committed while group {self._config.group_id!r} rebalances; call poll() to "
                f"complete the rebalance, then commit again what is still assigned"
            )
        return self.commit_failed_error()

    def commit_failed_error(self, cause: str | None = None) -> CommitFailedError:
        """Return an error that says why the membership ended, and which settings are involved."""
        config = self._config
        idle_s = (self._coordinator.clock.now_ms() - self._membership.heartbeat.last_poll_ms) / 1000
        why = self._membership.lost_because or cause or "it has not joined yet, or the application has left the group"
        return CommitFailedError(
            f"offsets were not committed: this consumer is not a member of group {config.group_id!r} any more, and its "
            f"partitions may belong to others. Why: {why}. The last poll() was {idle_s:.1f} s ago. What to do: call "
            f"poll() to join again; records since the last commit come again, here or elsewhere. If this repeats, "
            f"process less per poll() (max.poll.records, now {config.max_poll_records}) or allow more time for it "
            f"(max.poll.interval.ms, now {config.rebalance_timeout_ms}); for pauses of the whole process raise "
            f"session.timeout.ms (now {config.session_timeout_ms})"
        )

    def _handle(
        self,
        response: OffsetCommitResponse,
        future: RequestFuture[None],
        sent: Generation,
        topic_names: Mapping[uuid.UUID, str],
        recreated: Iterable[TopicPartition],
    ) -> None:
        unauthorized: set[str] = set()
        unknown = list(recreated)
        for topic in response.topics:
            name = topic.name or topic_names.get(topic.topic_id) or str(topic.topic_id)
            for partition in topic.partitions:
                error = errors.for_code(partition.error_code)
                tp = TopicPartition(name, partition.partition_index)
                if error is None:
                    self._refused.pop(tp, None)
                    continue
                if isinstance(error, errors.TopicAuthorizationError):
                    unauthorized.add(name)
                    continue
                if isinstance(error, _UNKNOWN_TOPIC):
                    unknown.append(tp)
                    continue
                self._log.info("Commit of %s failed: %s", tp, error)
                future.raise_error(self._translate(error, tp, sent))
                return
        if unauthorized:
            names = ", ".join(sorted(unauthorized))
            future.raise_error(errors.TopicAuthorizationError(f"not authorized to commit offsets of topics: {names}"))
        elif unknown:
            future.raise_error(self._refuse(unknown))
        else:
            future.complete(None)

    def _refuse(self, partitions: Iterable[TopicPartition]) -> errors.UnknownTopicOrPartitionError:
        """Record that the coordinator does not know these partitions; return the error to raise.

        This also requests metadata.
        """
        version = self._parts.metadata.request_update(False)
        is_assigned = self._parts.subscriptions.is_assigned
        self._refused = {tp: at for tp, at in self._refused.items() if is_assigned(tp)}
        self._refused.update(dict.fromkeys(partitions, version))
        error = _unknown_partitions(partitions)
        self._log.debug("%s", error)
        return error

    def _translate(self, error: errors.BrokerError, tp: TopicPartition, sent: Generation) -> KafkaError:
        """Return the error for the application, after applying the broker's error to the membership."""
        membership = self._membership
        if isinstance(error, errors.GroupAuthorizationError):
            return group_authorization_error(self._config.group_id)
        if isinstance(
            error,
            (
                errors.OffsetMetadataTooLargeError,
                errors.InvalidCommitOffsetSizeError,
                errors.CoordinatorLoadInProgressError,
            ),
        ):
            return error
        if isinstance(
            error, (errors.CoordinatorNotAvailableError, errors.NotCoordinatorError, errors.RequestTimedOutError)
        ):
            self._coordinator.finder.mark_unknown(f"OffsetCommit: {error}")
            return error
        if isinstance(error, FencedInstanceIdError):
            generation, state = membership.snapshot()
            if generation == sent:
                return fenced_error(self._config)
            if state is PREPARING_REBALANCE:
                return self._stale(sent)
            return self.commit_failed_error(f"{error}")
        if isinstance(error, RebalanceInProgressError):
            # No member can commit between JoinGroup and SyncGroup. The generation is valid, and poll() completes the
            # rebalance.
            membership.request_rejoin("offset commit failed since group is already rebalancing")
            return RebalanceInProgressError(
                f"group {self._config.group_id!r} is rebalancing; call poll() to complete the rebalance, then commit "
                f"again what is still assigned"
            )
        if isinstance(error, (errors.UnknownMemberIdError, errors.IllegalGenerationError)):
            # After ILLEGAL_GENERATION the coordinator may still know the member id.
            reset_member_id = isinstance(error, errors.UnknownMemberIdError)
            cause = f"the coordinator answered a commit of {sent} with {error}"
            if not membership.reset_unless_rebalancing_anew(
                sent, cause, reset_member_id=reset_member_id, lost_because=cause
            ):
                return self._stale(sent)
            return self.commit_failed_error(cause)
        wrapped = KafkaError(f"unexpected error in the commit of {tp}: {error}")
        wrapped.__cause__ = error
        return wrapped

    def _stale(self, sent: Generation) -> RebalanceInProgressError:
        return RebalanceInProgressError(
            f"offsets were not committed: they were sent in {sent}, and a rebalance has begun since; call poll() to "
            f"complete it, then commit again what is still assigned"
        )


class _WaitingCommit(NamedTuple):
    """An asynchronous commit to send once the coordinator is found, or to fail if the next lookup fails."""

    failures: int  # of lookups when the commit was made
    offsets: Offsets
    topic_ids: TopicIds
    callback: OffsetCommitCallback
    future: RequestFuture[None]


def _unknown_partitions(partitions: Iterable[TopicPartition]) -> errors.UnknownTopicOrPartitionError:
    return errors.UnknownTopicOrPartitionError(
        f"offsets of {', '.join(map(str, sorted(partitions)))} were not committed: the cluster does not have these "
        f"partitions. Their topic was deleted, or deleted and created again. Other partitions are not affected"
    )


def _coordinator_unknown() -> errors.CoordinatorNotAvailableError:
    return errors.CoordinatorNotAvailableError("the group coordinator is not known")


def _retriable(error: Exception) -> RetriableCommitFailedError:
    failure = RetriableCommitFailedError(f"the commit failed, but may be tried again: {error}")
    failure.__cause__ = error
    return failure


def shown(offsets: Offsets) -> str:
    """Format offsets for the log."""
    return ", ".join(f"{tp}: {offset.offset}" for tp, offset in sorted(offsets.items())) or "nothing"
