"""Synchronous, asynchronous and automatic commits, and lookups of committed offsets.

Java: CommitRequestManager with its OffsetFetchRequestState, ConsumerCoordinator.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Final

from pykclient import errors
from pykclient.clock import FOREVER_MS
from pykclient.consumer.application_driver import (
    NOTHING,
    ApplicationCall,
    PollResult,
    RequestFuture,
    TimedOperation,
    UnsentRequest,
    begins_with,
    timeout_error,
)
from pykclient.consumer.coordinator import group_requests
from pykclient.consumer.coordinator.coordinator_request_manager import handled, unexpected
from pykclient.consumer.coordinator.group_member import MemberManager, Offsets
from pykclient.consumer.coordinator.membership import (
    CONSUMER,
    NO_GENERATION,
    PREPARING_REBALANCE,
    Generation,
    StaleMemberError,
    fenced_error,
)
from pykclient.consumer.subscription_state import FetchPosition
from pykclient.metrics import Sensor
from pykclient.network.client_request import Shortcut, UsualResponse
from pykclient.network.failures import topics_denied
from pykclient.protocol.messages.offset_commit import OffsetCommitResponse
from pykclient.protocol.messages.offset_fetch import OffsetFetchResponse
from pykclient.types import Node, OffsetAndMetadata, TopicPartition

if TYPE_CHECKING:
    from pykclient.consumer.application_driver import ApplicationEvents, Steps
    from pykclient.consumer.coordinator.group_member import MemberContext
    from pykclient.consumer.coordinator.membership import GroupRebalanceConfig
    from pykclient.log_context import PrefixLogger
    from pykclient.network.client_request import ClientRequest, ClientResponse


#: The responses to commits of more partitions are all parsed, so that they need not be kept in memory.
_MOST_USUAL: Final = 500
#: The coordinator's errors for partitions that it does not know, by name or by topic id.
_UNKNOWN_TOPIC = (errors.UnknownTopicOrPartitionError, errors.UnknownTopicIdError)

#: Errors that the application gets as they are.
_UNDERSTOOD = (
    errors.RetriableError,
    errors.GroupAuthorizationError,
    errors.OffsetMetadataTooLargeError,
    errors.InvalidCommitOffsetSizeError,
)

TopicIds = Mapping[TopicPartition, uuid.UUID]

#: Called with the offsets and None, or with the offsets and the error.
OffsetCommitCallback = Callable[[Offsets, Exception | None], object]


class _Commit(TimedOperation[None]):
    """A commit, from the call to its outcome. Thread: application."""

    def __init__(self, offsets: Offsets, topic_ids: TopicIds, lookup_failures: int, timeout_ms: int | None) -> None:
        super().__init__(FOREVER_MS if timeout_ms is None else timeout_ms)
        self.offsets = offsets
        self.topic_ids = topic_ids
        self.is_async = timeout_ms is None  # an asynchronous commit is not retried
        self.lookup_failures = lookup_failures  # when the commit was made
        self.callback: OffsetCommitCallback | None = None  # the application's
        self.is_done = False
        self.is_periodic = False  # an automatic commit that nothing waits for
        self.attempts = 0
        self.next_ms = 0  # the earliest time of the next attempt
        self.refused: Exception | None = None  # while newer metadata must show whether partitions exist
        self.intercepted = self.told = False  # an event that an exception made come twice is skipped


class CommitBeforeRevoke:
    """The automatic commit before partitions are given up, of either group protocol. Thread: application.

    It is repeated while its errors may pass. The member gives up its partitions in any case once the rebalance timeout
    is over, because the coordinator gives them to others then. It also does so at once if the commit fails for good or
    the member is fenced; then the next poll raises FencedInstanceIdError. Java's classic consumer raises that error
    first and keeps the partitions, its consumer of KIP-848 does as this one.
    """

    def __init__(
        self, commits: CommitRequestManager, config: GroupRebalanceConfig, log: PrefixLogger, now_ms: int
    ) -> None:
        self._commits = commits
        self._log = log
        self._next_ms = now_ms
        self._deadline_ms = now_ms + config.rebalance_timeout_ms
        self._backoff_ms = config.retry_backoff_ms
        self._future: RequestFuture[None] | None = None
        self._is_over = False

    @property
    def is_done(self) -> bool:
        """True if the offsets are committed, or the member goes on without that."""
        return self._is_over or (self._future is not None and self._future.succeeded)

    def poll(self, now_ms: int) -> int:
        """Send the commit when that is due; return in how many milliseconds to poll again."""
        if self.is_done:
            return 0
        if now_ms >= self._deadline_ms:
            return self._go_on("took longer than max.poll.interval.ms")
        if self._future is None and now_ms >= self._next_ms:
            try:
                self._future = self._commits.auto_commit_async()
            except errors.KafkaError as error:
                return self._go_on(f"failed: {error}")
            return 0
        if self._future is not None and self._future.failed:
            if not self._future.is_retriable:
                return self._go_on(f"failed: {self._future.exception}")
            self._future = None
            self._next_ms = now_ms + self._backoff_ms
        if self._future is None:
            return self._next_ms - now_ms
        return self._deadline_ms - now_ms

    def _go_on(self, why: str) -> int:
        self._log.error("Giving up partitions without a commit, which %s", why)
        self._is_over = True
        return 0


class CommitRequestManager(MemberManager):
    """Sends commits in the order of the calls, and retries synchronous ones.

    With ``enable.auto.commit``, offsets are committed without a call of the application:

    - in ``poll()`` once ``auto.commit.interval.ms`` has passed (``maybe_auto_commit_async``), on an event loop also
      between the calls; after a failure that may pass, already ``retry.backoff.ms`` later
    - before a rebalance takes partitions away, and ``poll()`` waits for that (``commit_before_revoke``)
    - in ``assign()`` and ``unsubscribe()`` (``auto_commit_async``), which do not wait for the answer
    - in ``close()``, which waits for it (``ConsumerCoordinator.close``), unless a ``with`` block ends by an exception

    Callbacks and interceptors are events, in the order of the responses. Thread: application.
    """

    def __init__(self, context: MemberContext, events: ApplicationEvents, commit_sensor: Sensor) -> None:
        super().__init__(context)
        self._membership = context.membership
        self._events = events
        self._commit_sensor = commit_sensor
        interval_ms = self._consumer.auto_commit_interval_ms
        self.auto_commit_enabled = interval_ms is not None
        self._auto_commit_interval_ms = interval_ms or 0
        self.reschedule_auto_commit()
        #: The commits without an outcome, in the order of the calls.
        self.pending: list[_Commit] = []
        #: True once another consumer has taken over this member's instance id.
        self.is_fenced = False
        # Partitions that the coordinator did not know, and the metadata's version at that time. Only newer metadata can
        # show whether they were deleted, or the coordinator does not know them yet.
        self._refused: dict[TopicPartition, int] = {}
        self._deleted: set[TopicPartition] = set()  # partitions that the last automatic commit omitted
        self._usual = UsualResponse()
        self._is_intercepted = not self._consumer.interceptors.is_empty

    # --- commits of the application ------------------------------------------------------------------------------

    def commit_async(self, offsets: Offsets, callback: OffsetCommitCallback | None = None) -> RequestFuture[None]:
        """Commit without retries, which could overtake a later commit.

        An event completes the future and calls ``callback`` (by default, errors are logged). A commit waits for the
        coordinator until a lookup fails.

        Raises:
            FencedInstanceIdError: an earlier commit was fenced.
            KafkaError: the coordinator cannot be looked up, and no retry will help.
        """
        self.raise_if_fenced()
        if offsets and self._coordinator.unknown:
            self._coordinator.raise_fatal_error()
        commit = self._add(offsets, None)
        commit.callback = self._log_failure if callback is None else callback
        return commit.future

    def commit_sync(self, offsets: Offsets, timeout_ms: int) -> RequestFuture[None]:
        """Commit, and retry retriable errors until ``timeout_ms`` after the next poll. Abandon the future to cancel.

        The future fails with KafkaTimeoutError, with an error that is not retriable, or with
        UnknownTopicOrPartitionError as soon as the metadata confirms that partitions do not exist; all other offsets
        are committed then. Without offsets, it waits for the asynchronous commits only.
        """
        self.raise_if_fenced()
        return self._add(offsets, timeout_ms).future

    def _add(self, offsets: Offsets, timeout_ms: int | None) -> _Commit:
        commit = _Commit(offsets, self._topic_ids(offsets), self._coordinator.failures, timeout_ms)
        self.pending.append(commit)
        self._client.managers.poll_soon()
        return commit

    def raise_if_fenced(self) -> None:
        """Raise FencedInstanceIdError if another consumer has taken over this member's instance id."""
        if self.is_fenced:
            raise fenced_error(self._config)

    @property
    def awaits_answers(self) -> bool:
        """True while an asynchronous commit is in flight or waits for the coordinator."""
        return any(commit.is_async and not commit.is_done for commit in self.pending)

    @property
    def awaits_coordinator(self) -> bool:
        """True while an asynchronous commit is not sent yet."""
        return any(commit.is_async and not (commit.is_done or commit.in_flight) for commit in self.pending)

    # --- automatic commits ---------------------------------------------------------------------------------------

    def time_to_next_auto_commit(self) -> int:
        """Return how long a wait for records may take.

        An interval of 0 means a commit with every poll, but no additional polls.
        """
        if not self._auto_commit_interval_ms:
            return FOREVER_MS
        return max(0, self._next_auto_commit_ms - self._clock.now_ms())

    def reschedule_auto_commit(self) -> None:
        """Restart the interval."""
        self._next_auto_commit_ms = self._clock.now_ms() + self._auto_commit_interval_ms

    def maybe_auto_commit_async(self, now_ms: int, call_ms: int = 0) -> bool:
        """Commit the consumed offsets if the interval has passed; return whether it has.

        Also do so if the interval would end in the middle of a call that waits for ``call_ms``.
        """
        if self.auto_commit_enabled:
            wait_ms, interval_ms = self._next_auto_commit_ms - now_ms, self._auto_commit_interval_ms
            if wait_ms <= 0 or begins_with(wait_ms, call_ms, interval_ms):
                self._next_auto_commit_ms = now_ms + interval_ms
                self.raise_if_fenced()
                self._add(self.consumed(), None).is_periodic = True
                return True
        return False

    def auto_commit_async(self) -> RequestFuture[None]:
        """Commit the consumed offsets now, without retries.

        Raises:
            FencedInstanceIdError: an earlier commit was fenced.
        """
        self.raise_if_fenced()
        return self._add(self.consumed(), None).future

    def commit_before_revoke(self, now_ms: int) -> CommitBeforeRevoke | None:
        """Begin to commit the consumed offsets before partitions are given up; None without automatic commits.

        The caller returns no more records of these partitions: they would be after the committed position.
        """
        if not self.auto_commit_enabled:
            return None
        return CommitBeforeRevoke(self, self._config, self._log, now_ms)

    def consumed(self) -> Offsets:
        """Return the offsets to commit automatically, without those of deleted topics."""
        offsets = self._consumer.auto_commit_offsets()
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
        elif isinstance(error, errors.RetriableCommitFailedError):
            self._log.debug("Automatic commit failed for now: %s", error)
            self._next_auto_commit_ms = self._clock.now_ms() + self._config.retry_backoff_ms
        else:
            self._log.warning("Automatic commit of %s failed: %s", shown(offsets), error)

    # --- the states of a commit ----------------------------------------------------------------------------------

    def poll(self, now_ms: int) -> PollResult:
        """Return the commits to send now, and fail those that have timed out."""
        if not self.pending:
            return NOTHING
        requests: list[UnsentRequest] = []
        wait_ms = min([self._advance(commit, now_ms, requests) for commit in self.pending])
        self.pending = [commit for commit in self.pending if not commit.is_done]
        return PollResult(wait_ms, requests)

    def reset(self) -> None:
        """Fail the requests in flight. The calls that waited for synchronous commits have ended."""
        for commit in self.pending:
            if not commit.is_async:
                commit.is_done = True
            elif commit.in_flight and not commit.is_done:
                self._end(
                    commit, errors.DisconnectError("an exception interrupted the call that was using the connection")
                )
        self.pending = [commit for commit in self.pending if not commit.is_done]

    def _advance(self, commit: _Commit, now_ms: int, requests: list[UnsentRequest]) -> int:
        """Add the commit's next attempt to ``requests`` if it is due; return the milliseconds until it must go on."""
        left_ms = FOREVER_MS
        if not commit.is_async:
            if commit.is_over(now_ms):
                self._end(commit, self._timeout_error(commit))
            left_ms = commit.left_ms(now_ms)
        if commit.is_done or commit.future.is_done:  # or given up by the call that waited for it
            commit.is_done = True
            return FOREVER_MS
        if commit.in_flight:
            return left_ms
        if not (commit.offsets or commit.is_async):
            if not self.awaits_answers:
                self._end(commit, None)
            return left_ms
        node = self._coordinator.check_and_get()
        if commit.offsets and node is None:
            self._await_coordinator(commit)
            return left_ms
        if commit.refused is not None and not self._is_confirmed(commit, commit.refused):
            return left_ms
        if now_ms < commit.next_ms:
            return min(left_ms, commit.next_ms - now_ms)
        try:
            request = self._request(commit, node)
        except errors.KafkaError as error:
            self._attempt_failed(commit, error)
            return 0  # which may be retried
        if request is not None:
            commit.in_flight = True
            requests.append(request)
        return left_ms

    def _await_coordinator(self, commit: _Commit) -> None:
        coordinator = self._coordinator
        coordinator.look_up()
        if commit.is_async:
            if coordinator.failures != commit.lookup_failures:
                self._end(commit, coordinator.last_error or _coordinator_unknown())
        else:
            error = coordinator.take_fatal_error()
            if error is not None:
                self._end(commit, error)

    def _is_confirmed(self, commit: _Commit, refused: Exception) -> bool:
        """Compare with metadata that is newer than the coordinator's response; return False until there is one.

        If it lacks the partitions, too, the commit has failed.
        """
        if self._metadata.update_version <= max(self._refused.values(), default=-1):
            return False
        commit.refused = None
        deleted = [tp for tp in commit.offsets if self._is_deleted(tp, commit.topic_ids.get(tp))]
        if not deleted:
            return True
        error = _unknown_partitions(deleted)
        error.__cause__ = refused
        self._end(commit, error)
        return False

    def _attempt_failed(self, commit: _Commit, error: Exception) -> None:
        commit.last_error = error
        if commit.is_async or not isinstance(error, errors.RetriableError):
            self._end(commit, error)
            return
        if isinstance(error, _UNKNOWN_TOPIC):
            commit.refused = error
        commit.next_ms = self._clock.now_ms() + self._retry_backoff.backoff(commit.attempts)
        commit.attempts += 1
        commit.in_flight = False

    def _end(self, commit: _Commit, error: Exception | None) -> None:
        """Complete a commit: the application's by an event, others at once."""
        if commit.is_done:
            return
        if error is None and self._is_intercepted and commit.offsets:
            self._events.add(self._intercept(commit))
        if commit.is_async and isinstance(error, errors.RetriableError):
            error = _retriable(error)
        if isinstance(error, errors.FencedInstanceIdError) and commit.is_async:
            self.is_fenced = True
        if commit.callback is not None:
            self._events.add(self._tell(commit, error))
        else:
            if not commit.future.is_done:
                commit.future.settle(error)
            if commit.is_async:
                self._auto_committed(commit.offsets, error)
        # Last: if an exception strikes before, ``reset`` ends the commit again, so that nobody waits in vain.
        commit.is_done = True

    def _timeout_error(self, commit: _Commit) -> errors.KafkaError:
        coordinator = self._coordinator
        reason = (coordinator.last_error if coordinator.unknown else None) or commit.last_error
        return timeout_error(self._client, "the commit", commit.timeout_ms, reason or coordinator.last_error)

    # --- events --------------------------------------------------------------------------------------------------

    def _intercept(self, commit: _Commit) -> Steps[None]:
        if not commit.intercepted:
            commit.intercepted = True
            yield ApplicationCall(partial(self._consumer.interceptors.on_commit, commit.offsets), uses_consumer=False)

    def _tell(self, commit: _Commit, error: Exception | None) -> Steps[None]:
        if commit.told or commit.callback is None:
            return
        commit.told = True
        try:
            yield ApplicationCall(partial(commit.future.settle, error))
            yield ApplicationCall(partial(commit.callback, commit.offsets, error))
        except errors.WakeupError:
            raise
        except Exception:  # noqa: BLE001 - the application's code, which must not make the poll fail
            self._log.exception("The callback of a commit of %s failed", shown(commit.offsets))

    def _log_failure(self, offsets: Offsets, error: Exception | None) -> None:
        if error is not None:
            self._log.error("Commit of %s failed: %s", shown(offsets), error)

    # --- partitions that do not exist ----------------------------------------------------------------------------

    def _topic_ids(self, offsets: Iterable[TopicPartition]) -> dict[TopicPartition, uuid.UUID]:
        """Return the topic id of each offset, if it is known.

        It is the id that came with the position. The id in the metadata may belong to a newer topic of the same name,
        in which the offset must not be committed.
        """
        known = self._metadata.topic_ids
        topic_ids = {}
        for tp in offsets:
            position = self._subscriptions.position_or_none(tp)
            topic_id = None if position is None else position.topic_id
            topic_id = topic_id or known.get(tp.topic)
            if topic_id is not None:
                topic_ids[tp] = topic_id
        return topic_ids

    def _is_deleted(self, tp: TopicPartition, topic_id: uuid.UUID | None) -> bool:
        """Return whether the partition is known not to exist, or only in a topic with another id."""
        metadata = self._metadata
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
        known = self._metadata.topic_ids.get(tp.topic)
        # Comparing UUIDs is slow, and nearly always they are one.
        return known is not topic_id and topic_id is not None and known is not None and known != topic_id

    def _refuse(self, partitions: Iterable[TopicPartition]) -> errors.UnknownTopicOrPartitionError:
        """Record that the coordinator does not know these partitions; return the error to raise.

        This also requests metadata.
        """
        version = self._metadata.request_update(False)
        is_assigned = self._subscriptions.is_assigned
        self._refused = {tp: at for tp, at in self._refused.items() if is_assigned(tp)}
        self._refused.update(dict.fromkeys(partitions, version))
        error = _unknown_partitions(partitions)
        self._log.debug("%s", error)
        return error

    # --- the request ---------------------------------------------------------------------------------------------

    def _request(self, commit: _Commit, node: Node | None) -> UnsentRequest | None:
        """Return the request of one attempt; None if there is nothing to commit, which ends the commit.

        Raises:
            CommitFailedError: this consumer is not a member of the group any more.
            RebalanceInProgressError: the group rebalances.
            UnknownTopicOrPartitionError: the partitions' topics were created again.
        """
        offsets, topic_ids = commit.offsets, commit.topic_ids
        recreated = [tp for tp in offsets if self._is_recreated(tp, topic_ids.get(tp))]
        if recreated:
            # Coordinators without topic ids would commit these in the new topic.
            offsets = {tp: offset for tp, offset in offsets.items() if tp not in recreated}
            if not offsets:
                raise self._refuse(recreated)
        if not offsets:
            self._end(commit, None)
            return None
        for tp, offset in offsets.items():
            if offset.offset < 0:
                raise errors.IllegalArgumentError(f"offset {offset.offset} of {tp} cannot be committed: it is negative")
        sent = NO_GENERATION
        instance_id: str | None = None
        if self._subscriptions.is_auto_assigned:
            generation = self._membership.generation_if_stable()
            if generation is None:
                raise self._not_a_member()
            sent = generation
            instance_id = self._config.group_instance_id
        is_told = recreated or self._is_intercepted
        is_usual = commit.is_periodic and not is_told and len(offsets) <= _MOST_USUAL
        shortcut = Shortcut(self._usual, partial(self._is_handled, commit)) if is_usual else None
        builder = group_requests.offset_commit(self._config, sent, instance_id, offsets, topic_ids, shortcut)
        topic_names = {topic_id: tp.topic for tp, topic_id in topic_ids.items()}
        request = UnsentRequest(builder, node)
        answer: RequestFuture[None] = handled(
            self._coordinator,
            request.future,
            lambda response, future: self._handle(response, future, sent, topic_names, recreated),
            self._commit_sensor.record,
        )
        answer.add_listener(lambda _: self._end(commit, None), partial(self._attempt_failed, commit))
        if is_usual:
            request.future.add_listener(partial(self._handled, commit))
        return request

    def _is_handled(self, commit: _Commit, request: ClientRequest, now_ms: int) -> bool:
        """Handle the usual response, by which all offsets were committed, unless something waits for that."""
        if self._refused or not self._client.awaits_records:
            return False
        self._commit_sensor.record(now_ms - request.created_ms, now_ms)
        self._end(commit, None)
        return True

    def _handled(self, commit: _Commit, response: ClientResponse) -> None:
        if commit.future.succeeded:
            self._usual.expect(response.response_body, response.api_version)

    def _not_a_member(self) -> errors.KafkaError:
        if self._membership.rebalance_in_progress:
            return errors.RebalanceInProgressError(
                f"offsets cannot be committed while group {self._config.group_id!r} rebalances; call poll() to "
                f"complete the rebalance, then commit again what is still assigned"
            )
        fenced = fenced_error(self._config)
        # Another rebalance would take the instance id back from the consumer that has it now.
        return fenced if self._membership.lost_because == str(fenced) else self.commit_failed_error()

    def commit_failed_error(self, cause: str | None = None, sent: Generation | None = None) -> errors.CommitFailedError:
        """Return an error that explains why the membership ended, with the relevant times and settings.

        ``sent`` is the generation of a commit that the coordinator refused.
        """
        config, membership = self._config, self._membership
        idle_s = (self._clock.now_ms() - membership.last_poll_ms) / 1000
        why = membership.lost_because or cause or "it has not joined yet, or the application has left the group"
        why = why.rstrip(".")
        before = membership.lost_generation if sent is None else sent.generation_id
        now = membership.generation.generation_id
        timeout = f"session.timeout.ms (now {config.session_timeout_ms})"
        if config.group_protocol == CONSUMER:  # which refuses that setting
            timeout = "the group's consumer.session.timeout.ms, a setting on the brokers"
        return errors.CommitFailedError(
            f"offsets were not committed: this consumer is not a member of group {config.group_id!r} any more, and its "
            f"partitions may belong to others. Why: {why}. Its generation was {_shown_generation(before)}, and is "
            f"{_shown_generation(now)} now. The last poll() was {idle_s:.1f} s ago "
            f"(max.poll.interval.ms={config.rebalance_timeout_ms}). What to do: call poll() to join again; records "
            f"since the last commit come again, here or elsewhere. If this repeats, process less per poll() "
            f"(max.poll.records, now {config.max_poll_records}) or allow more time for it (max.poll.interval.ms); for "
            f"pauses of the whole process raise {timeout}"
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
            future.raise_error(topics_denied(self._log.principal, unauthorized, "READ", "to commit offsets"))
        elif unknown:
            future.raise_error(self._refuse(unknown))
        else:
            future.complete(None)

    def _translate(self, error: errors.BrokerError, tp: TopicPartition, sent: Generation) -> errors.KafkaError:
        """Return the error for the application, after applying the broker's error to the membership."""
        membership = self._membership
        error = self._coordinator.judged("OffsetCommit", error)
        if isinstance(error, errors.RequestTimedOutError):
            self._coordinator.mark_unknown(f"OffsetCommit: {error}")
        if isinstance(error, errors.FencedInstanceIdError):
            generation, state = membership.snapshot()
            if generation == sent:
                return error
            if state is PREPARING_REBALANCE:
                return self._stale(sent)
            return self.commit_failed_error(f"{error}", sent)
        if isinstance(error, errors.RebalanceInProgressError):
            # No member can commit between JoinGroup and SyncGroup. The generation is valid, and poll() completes the
            # rebalance.
            membership.request_rejoin("offset commit failed since group is already rebalancing")
            return errors.RebalanceInProgressError(
                f"group {self._config.group_id!r} is rebalancing; call poll() to complete the rebalance, then commit "
                f"again what is still assigned"
            )
        if isinstance(error, errors.StaleMemberEpochError):
            return StaleMemberError(f"the commit of {tp} had the member epoch {sent.generation_id}: {error}")
        if isinstance(error, (errors.UnknownMemberIdError, errors.IllegalGenerationError)):
            cause = f"the coordinator answered a commit of {sent} with {error}"
            if not membership.reset_unless_rebalancing_anew(sent, error, cause):
                return self._stale(sent)
            return self.commit_failed_error(cause, sent)
        return error if isinstance(error, _UNDERSTOOD) else unexpected(f"the commit of {tp}", error)

    def _stale(self, sent: Generation) -> errors.RebalanceInProgressError:
        return errors.RebalanceInProgressError(
            f"offsets were not committed: they were sent in {sent}, and a rebalance has begun since; call poll() to "
            f"complete it, then commit again what is still assigned"
        )


def _unknown_partitions(partitions: Iterable[TopicPartition]) -> errors.UnknownTopicOrPartitionError:
    return errors.UnknownTopicOrPartitionError(
        f"offsets of {', '.join(map(str, sorted(partitions)))} were not committed: the cluster does not have these "
        f"partitions. Their topic was deleted, or deleted and created again. Other partitions are not affected"
    )


def _coordinator_unknown() -> errors.CoordinatorNotAvailableError:
    return errors.CoordinatorNotAvailableError("the group coordinator is not known")


def _shown_generation(generation_id: int | None) -> str:
    return "none" if generation_id is None or generation_id < 0 else str(generation_id)


def _retriable(error: Exception) -> errors.RetriableCommitFailedError:
    failure = errors.RetriableCommitFailedError(f"the commit failed, but may be tried again: {error}")
    failure.__cause__ = error
    return failure


def shown(offsets: Offsets) -> str:
    """Format offsets for the log."""
    return ", ".join(f"{tp}: {offset.offset}" for tp, offset in sorted(offsets.items())) or "nothing"


#: None: the group has not committed an offset for the partition.
CommittedOffsets = dict[TopicPartition, OffsetAndMetadata | None]

_Question = tuple[frozenset[TopicPartition], Generation | None]


class _Lookup:
    """A lookup for some partitions, from the first attempt to the result. Thread: application."""

    def __init__(self, question: _Question) -> None:
        self.question = question
        self.future: RequestFuture[CommittedOffsets] = RequestFuture()
        self.waiting: list[TimedOperation[CommittedOffsets]] = []  # calls of the application
        self.is_wanted = True  # asked for since the last attempt
        self.is_outdated = False  # a commit came after it
        self.in_flight = False
        self.attempts = 0
        self.next_ms = 0  # the earliest time of the next attempt
        self.stable: CommittedOffsets = {}  # of the last attempt, if some of its offsets were not stable
        self.topic_ids: Mapping[str, uuid.UUID] = {}  # the ids in the last request
        self.last_error: Exception | None = None


class CommittedOffsetsRequestManager(MemberManager):
    """Fetches committed offsets, for calls of the application and for partitions without a position.

    A lookup that is not done when a call times out serves the next one for the same partitions, with its backoff.
    Thread: application.
    """

    def __init__(self, context: MemberContext) -> None:
        super().__init__(context)
        self._membership = context.membership
        self.pending: list[_Lookup] = []

    def fetch(self, partitions: Collection[TopicPartition], timeout_ms: int) -> RequestFuture[CommittedOffsets]:
        """Look up the committed offset of each partition. Abandon the future to cancel.

        The future fails with KafkaTimeoutError ``timeout_ms`` after the next poll, or with an error that is not
        retriable.
        """
        if not partitions:
            return RequestFuture.success({})
        waiting: TimedOperation[CommittedOffsets] = TimedOperation(timeout_ms)
        lookup = self._ask(partitions)
        if lookup.future.is_done:
            self._drop(lookup)
            lookup.future.chain(waiting.future)
        else:
            lookup.waiting.append(waiting)
        return waiting.future

    def start_new_partitions(self) -> bool:
        """Start partitions without a position at their committed offset, if they have one; else look it up.

        Return False while the offsets of some are not known. Partitions whose offset is stable do not wait for others
        whose offset is not, as a transaction that commits it is open. Raises errors that are not retriable.
        """
        subscriptions = self._subscriptions
        partitions = subscriptions.initializing_partitions()
        if not partitions:
            return True
        if self._coordinator.unknown:
            self._coordinator.raise_fatal_error()
        lookup = self._ask(partitions)
        if lookup.future.is_done:
            self._drop(lookup)
            if lookup.future.failed:
                raise lookup.future.exception
            return self._start_at(lookup.future.value, lookup.topic_ids)
        stable, lookup.stable = lookup.stable, {}
        if stable:
            self._start_at(stable, lookup.topic_ids)
            # The caller resets these only once all offsets are known.
            subscriptions.reset_initializing_positions(lambda tp: tp in stable and stable[tp] is None)
        return False

    def forget(self) -> None:
        """Do not reuse lookups in progress for later calls: their responses may predate a later commit."""
        self.pending = [lookup for lookup in self.pending if lookup.waiting]
        for lookup in self.pending:
            lookup.is_outdated = True

    @property
    def last_error(self) -> Exception | None:
        """The error of a lookup in progress."""
        return next((lookup.last_error for lookup in self.pending if lookup.last_error is not None), None)

    def _ask(self, partitions: Collection[TopicPartition]) -> _Lookup:
        question = frozenset(partitions), self._membership.generation_if_stable()
        found = (lookup for lookup in self.pending if lookup.question == question and not lookup.is_outdated)
        lookup = next(found, None)
        if lookup is None:
            lookup = _Lookup(question)
            # The others have become pointless, unless tasks of an event loop wait for them.
            self.pending = [other for other in self.pending if other.waiting]
            self.pending.append(lookup)
        lookup.is_wanted = True
        if not lookup.in_flight:
            self._client.managers.poll_soon()
        return lookup

    # --- the states of a lookup --------------------------------------------------------------------------------------

    def poll(self, now_ms: int) -> PollResult:
        """Return the attempts that are due, and fail calls that have timed out."""
        if not self.pending:
            return NOTHING
        requests: list[UnsentRequest] = []
        wait_ms = min([self._advance(lookup, now_ms, requests) for lookup in self.pending.copy()])
        return PollResult(wait_ms, requests) if requests or wait_ms < FOREVER_MS else NOTHING

    def reset(self) -> None:
        """Forget the lookups in progress. The calls that waited for them have ended."""
        self.pending = []

    def _advance(self, lookup: _Lookup, now_ms: int, requests: list[UnsentRequest]) -> int:
        """Add the lookup's next attempt to ``requests`` if it is due; return the milliseconds until it must go on."""
        if lookup.future.is_done:
            return FOREVER_MS
        left_ms = self._time_left_ms(lookup, now_ms)
        if lookup.in_flight or not lookup.is_wanted:
            return left_ms
        node = self._coordinator.check_and_get()
        if node is None:
            self._coordinator.look_up()
            error = self._coordinator.take_fatal_error() if lookup.waiting else None
            if error is not None:
                self._end(lookup, error)
            return left_ms
        if now_ms < lookup.next_ms:
            return min(left_ms, lookup.next_ms - now_ms)
        requests.append(self._request(lookup, node))
        return left_ms

    def _time_left_ms(self, lookup: _Lookup, now_ms: int) -> int:
        if not lookup.waiting:
            return FOREVER_MS
        for waiting in lookup.waiting:
            if waiting.is_over(now_ms):
                waiting.fail(self._timeout_error(lookup, waiting.timeout_ms))
        # Some are done, or given up by the calls that waited for them.
        lookup.waiting = [waiting for waiting in lookup.waiting if not waiting.future.is_done]
        lookup.is_wanted = bool(lookup.waiting)
        return min([waiting.left_ms(now_ms) for waiting in lookup.waiting], default=FOREVER_MS)

    def _timeout_error(self, lookup: _Lookup, timeout_ms: int) -> errors.KafkaError:
        coordinator = self._coordinator
        reason = (coordinator.last_error if coordinator.unknown else None) or lookup.last_error
        what = "the lookup of committed offsets"
        return timeout_error(self._client, what, timeout_ms, reason or coordinator.last_error)

    def _request(self, lookup: _Lookup, node: Node) -> UnsentRequest:
        partitions, _ = lookup.question
        self._log.debug("Asking for the committed offsets of %d partitions", len(partitions))
        topic_ids = lookup.topic_ids = self._metadata.topic_ids
        topic_names = {topic_ids[tp.topic]: tp.topic for tp in partitions if tp.topic in topic_ids}
        is_member = self._subscriptions.is_auto_assigned
        member = self._membership.generation_for_fetches() if is_member else None
        builder = group_requests.OffsetFetchBuilder(self._config.group_id, partitions, topic_ids, member)
        request = UnsentRequest(builder, node)
        lookup.in_flight = True
        lookup.is_wanted = False
        answer: RequestFuture[CommittedOffsets] = handled(
            self._coordinator,
            request.future,
            lambda response, future: self._handle(response, future, lookup, topic_names),
        )
        answer.add_listener(partial(self._succeeded, lookup), partial(self._attempt_failed, lookup))
        return request

    def _succeeded(self, lookup: _Lookup, offsets: CommittedOffsets) -> None:
        if lookup.waiting:
            self._drop(lookup)
            for waiting in lookup.waiting:
                waiting.complete(offsets)
        lookup.future.complete(offsets)

    def _attempt_failed(self, lookup: _Lookup, error: Exception) -> None:
        lookup.in_flight = False
        lookup.last_error = error
        if not isinstance(error, errors.RetriableError):
            self._end(lookup, error)
            return
        lookup.next_ms = self._clock.now_ms() + self._retry_backoff.backoff(lookup.attempts)
        lookup.attempts += 1

    def _end(self, lookup: _Lookup, error: Exception) -> None:
        if lookup.waiting:
            self._drop(lookup)
            for waiting in lookup.waiting:
                waiting.fail(error)
        lookup.future.raise_error(error)

    def _drop(self, lookup: _Lookup) -> None:
        if lookup in self.pending:
            self.pending.remove(lookup)

    # --- offsets -----------------------------------------------------------------------------------------------------

    def _start_at(self, offsets: CommittedOffsets, topic_ids: Mapping[str, uuid.UUID]) -> bool:
        """Start at these offsets; return False if some must be fetched again, for a topic that was recreated."""
        subscriptions, metadata = self._subscriptions, self._metadata
        present_ids = metadata.topic_ids
        complete = True
        for tp, committed in offsets.items():
            topic_id = topic_ids.get(tp.topic)
            if topic_id != present_ids.get(tp.topic):
                complete = False
                continue
            if committed is None:
                continue
            epoch = committed.leader_epoch if committed.leader_epoch >= 0 else None
            if epoch is not None:
                metadata.update_last_seen_epoch_if_newer(tp, epoch)
            if not subscriptions.is_assigned(tp):
                self._log.info("Ignoring the committed offset of %s, which is no longer assigned", tp)
                continue
            position = FetchPosition(committed.offset, epoch, metadata.current_leader(tp), topic_id)
            subscriptions.seek_unvalidated(tp, position)
            self._log.info("Starting %s at the committed offset %s", tp, position)
        return complete

    def _handle(
        self,
        response: OffsetFetchResponse,
        future: RequestFuture[CommittedOffsets],
        lookup: _Lookup,
        topic_names: Mapping[uuid.UUID, str],
    ) -> None:
        code, fetched = group_requests.offsets_of(response, self._config.group_id, topic_names)
        error = errors.for_code(code)
        if error is not None:
            future.raise_error(self._group_failed(error))
            return
        offsets: CommittedOffsets = {}
        unauthorized: set[str] = set()
        unstable: set[TopicPartition] = set()
        for one in fetched:
            error = errors.for_code(one.error_code)
            tp = TopicPartition(one.topic or "?", one.partition)
            if error is None:
                committed = OffsetAndMetadata(one.offset, one.metadata or "", one.leader_epoch)
                offsets[tp] = committed if one.offset >= 0 else None
                continue
            self._log.debug("No committed offset of %s: %s", tp, error)
            if isinstance(error, errors.TopicAuthorizationError):
                unauthorized.add(tp.topic)
            elif isinstance(error, errors.UnstableOffsetCommitError):
                unstable.add(tp)
            elif isinstance(error, errors.UnknownTopicIdError):
                # Deleted or recreated since the metadata was fetched.
                self._metadata.request_update(False)
                future.raise_error(error)
                return
            elif isinstance(error, errors.UnknownTopicOrPartitionError):
                future.raise_error(errors.KafkaError(f"{tp} does not exist, so it has no committed offset"))
                return
            else:
                future.raise_error(unexpected(f"the lookup of the committed offset of {tp}", error))
                return
        if unauthorized:
            future.raise_error(topics_denied(self._log.principal, unauthorized, "READ", "to get committed offsets"))
        elif unstable:
            self._log.info(
                "Offsets are not stable yet for %s: a transaction that commits them is open, or their replication is "
                "under way",
                ", ".join(map(str, sorted(unstable))),
            )
            lookup.stable = offsets
            future.raise_error(errors.UnstableOffsetCommitError("the committed offsets are about to change"))
        else:
            future.complete(offsets)

    def _group_failed(self, error: errors.BrokerError) -> errors.KafkaError:
        error = self._coordinator.judged("OffsetFetch", error)
        if isinstance(error, _UNDERSTOOD):
            return error
        if isinstance(error, (errors.StaleMemberEpochError, errors.UnknownMemberIdError)):
            return StaleMemberError(str(error))  # a heartbeat brings the new epoch, or the end of the membership
        return unexpected(f"the lookup of committed offsets of {self._config.group_id!r}", error)
