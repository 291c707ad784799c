"""The consumer behind the public class, with either group protocol (Java: ConsumerDelegate)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from pykclient.clock import FOREVER_MS, Timer
from pykclient.consumer.application_driver import (
    RequestFuture,
    Round,
    Steps,
    Wait,
    ends_with,
    metadata_update,
    result_of,
    timeout_error,
)
from pykclient.consumer.consumer_components import Closing, ConsumerComponents
from pykclient.consumer.consumer_metadata import SoleReader
from pykclient.consumer.fetch_collector import AnyFetch, ColumnsFetch, Fetch
from pykclient.consumer.subscription_state import FetchPosition
from pykclient.consumer.values import AutoOffsetResetStrategy, GroupMembershipOperation
from pykclient.errors import IllegalArgumentError, IllegalStateError, InvalidGroupIdError, KafkaError
from pykclient.record.columns import ColumnMemory
from pykclient.record.record_batch import MAX_INT64
from pykclient.types import (
    ConsumerGroupMetadata,
    ConsumerRecord,
    OffsetAndMetadata,
    OffsetAndTimestamp,
    PartitionInfo,
    TopicDescription,
    TopicPartition,
)

if TYPE_CHECKING:
    from uuid import UUID

    from pykclient.consumer.coordinator.commit_request_manager import OffsetCommitCallback
    from pykclient.consumer.coordinator.consumer_coordinator import ConsumerCoordinator
    from pykclient.consumer.coordinator.group_member import Offsets
    from pykclient.consumer.subscription_state import TopicPattern
    from pykclient.consumer.values import SubscriptionPattern

F = TypeVar("F", bound=AnyFetch)

#: The longest wait of ``close`` for brokers to end fetch sessions, which they would otherwise keep for minutes.
_SESSIONS_END_MS = 1_000

DEFAULT_REBALANCE_REASON = "rebalance enforced by user"


class ConsumerDelegate:
    """The implementation of the public methods, after their checks.

    Methods that call the application's code or wait return ``Steps`` for a driver to run; no method waits itself.

    Thread: application, one call at a time.
    """

    def __init__(self, components: ConsumerComponents) -> None:
        self.components = components
        self._clock = components.clock
        self._log = components.log_context.logger(__name__)
        self._client = components.client
        self._driver = components.driver
        self._coordinator = components.coordinator
        self._fetch_buffer = components.fetch_buffer
        self._fetch_collector = components.fetch_collector
        self._fetches = components.fetches
        self._undelivered = components.undelivered
        #: Return whether the last call took records that did not reach the application.
        self.has_leftovers = components.undelivered.has_unreturned
        self.is_intercepted = not components.interceptors.is_empty
        self.fetch_max_bytes: int = components.config["fetch.max.bytes"]
        self._metadata = components.metadata
        self._consumer_metrics = components.consumer_metrics
        self._offsets = components.offsets
        self._subscriptions = components.subscriptions
        self._sole_reader = SoleReader(components.metadata, components.subscriptions)
        self._max_poll_records: int = components.config["max.poll.records"]
        self._retry_backoff_ms: int = components.config["retry.backoff.ms"]
        self._request_timeout_ms: int = components.config["request.timeout.ms"]
        self._has_all_fetch_positions = False
        self._no_wait = Timer(components.clock, 0)
        self.is_closing = False
        self.column_memory = ColumnMemory()
        self._closing = Closing(self._log)

    # --- subscription ------------------------------------------------------------------------------------------------

    def subscribe(self, topics: Collection[str], listener: Any) -> None:
        self._require_assignors()
        wanted = set(topics)
        kept = {tp for tp in self._subscriptions.assigned_partitions() if tp.topic in wanted}
        # Until the rebalance the consumer still owns the other partitions, and the rebalance commits their positions.
        self.give_back(kept)
        self._drop_fetched_except(kept)
        self._log.info("Subscribed to %s", ", ".join(sorted(wanted)))
        if self._subscriptions.subscribe(wanted, listener):
            self._metadata.request_update_for_new_topics()

    def subscribe_pattern(self, pattern: TopicPattern, listener: Any) -> None:
        self._require_assignors()
        kept = {tp for tp in self._subscriptions.assigned_partitions() if pattern.fullmatch(tp.topic)}
        # Until the rebalance the consumer still owns the other partitions, and the rebalance commits their positions.
        self.give_back(kept)
        self._drop_fetched_except(kept)
        self._log.info("Subscribed to topics that match %r", pattern.pattern)
        self._subscriptions.subscribe_pattern(pattern, listener)
        if self._coordinator is not None:
            self._coordinator.member.update_pattern_subscription(self._metadata.fetch())
        self._metadata.request_update_for_new_topics()

    def subscribe_broker_pattern(self, pattern: SubscriptionPattern, listener: Any) -> None:
        self.group().member.check_broker_pattern()
        # Only the brokers know which partitions will stay.
        self.give_back(self._subscriptions.assigned_partitions())
        self._log.info("Subscribed to topics that the brokers find to match %r", pattern.pattern)
        self._subscriptions.subscribe_broker_pattern(pattern, listener)

    def unsubscribe(self) -> Steps[None]:
        self._drop_fetched_except(())
        try:
            if self._coordinator is not None:
                # Whatever is raised here, leave the group and drop the subscription: with a membership that has no
                # subscription, no later subscribe() would join.
                try:
                    try:
                        yield from self._coordinator.auto_commit_now()
                    finally:
                        yield from self._coordinator.revoke_all()
                finally:
                    yield from self._coordinator.leave_group(
                        GroupMembershipOperation.DEFAULT, "the consumer unsubscribed from all topics"
                    )
        finally:
            self._undelivered.clear()
            self._subscriptions.unsubscribe()
        self._log.info("Unsubscribed from all topics")

    def assign(self, partitions: Collection[TopicPartition]) -> Steps[None]:
        assigned = list(dict.fromkeys(partitions))
        self.give_back(assigned)
        self._drop_fetched_except(assigned)
        if self._coordinator is not None:
            # No rebalance will follow to commit what is given up now.
            yield from self._coordinator.auto_commit_now()
        self._log.info("Assigned by the application: %s", ", ".join(map(str, sorted(assigned))))
        if self._subscriptions.assign_from_user(assigned):
            self._metadata.request_update_for_new_topics()

    def assigned_partitions(self) -> set[TopicPartition]:
        """Return the assigned partitions. Thread: any."""
        return self._subscriptions.assigned_partitions()

    def assignment(self) -> list[TopicPartition]:
        """Return the assigned partitions in the order of their assignment."""
        return self._subscriptions.assigned_partitions_list()

    def _drop_fetched_except(self, partitions: Collection[TopicPartition]) -> None:
        self._fetch_buffer.retain_all(frozenset(partitions))

    def _require_assignors(self) -> None:
        if self._coordinator is not None:
            self._coordinator.member.check_subscription()

    def group(self) -> ConsumerCoordinator:
        """Return the coordinator.

        Raises:
            InvalidGroupIdError: the consumer has no ``group.id``.
        """
        if self._coordinator is None:
            raise InvalidGroupIdError("this call needs a group.id, and this consumer has none")
        return self._coordinator

    # --- poll --------------------------------------------------------------------------------------------------------

    def poll(self, timer: Timer, max_records: int | None = None) -> Steps[Fetch]:
        """Return records as soon as there are some, or an empty fetch when the timer expires.

        Records that wait for a loop come first. The caller sets ``returned`` on the fetch once nothing can keep the
        records from the application. Until then, commits are held back to where the fetch starts.
        """
        steps = self._poll(timer, partial(self.collect, max_records))
        return self._intercepted(steps) if self.is_intercepted else steps

    def _intercepted(self, steps: Steps[Fetch]) -> Steps[Fetch]:
        return self.intercept((yield from steps))

    def collect(self, max_records: int | None = None, partitions: Collection[TopicPartition] | None = None) -> Fetch:
        """Take records that wait for a loop, or else records from the buffer; only of ``partitions`` if given.

        Raises:
            KafkaError: a broker returned an error, or bytes are unreadable, and no record comes before that.
        """
        fetch = Fetch()
        if self._undelivered.begin(fetch):
            self.rewind_invalid_waiting()
            self._undelivered.take(fetch, max_records or self._max_poll_records, partitions)
            if fetch.num_records:
                return fetch
        if self._fetches.unsupported is not None:
            self._fetches.raise_unsupported()
        line = self._fetch_buffer.next_in_line_fetch
        if not self._fetch_buffer.completed and (line is None or line.is_consumed):
            return fetch
        return self._fetch_collector.collect_fetch(self._fetch_buffer, fetch, max_records, partitions)

    def collect_more(
        self, fetch: Fetch, max_records: int | None, partitions: Collection[TopicPartition] | None = None
    ) -> Fetch:
        """Add buffered records to ``fetch`` until it has ``max_records``."""
        return self._fetch_collector.collect_fetch(self._fetch_buffer, fetch, max_records, partitions)

    def intercept(self, fetch: Fetch) -> Fetch:
        """Pass the records to the interceptors, unless they waited for a loop and so have been passed before."""
        interceptors = self.components.interceptors
        if not interceptors.is_empty and fetch.records and not fetch.has_waited:
            fetch.records = interceptors.on_consume(fetch.records)
        return fetch

    def poll_columns(self, timer: Timer, fetch: ColumnsFetch, max_rows: int) -> Steps[None]:
        """Poll into the columns of ``fetch``, without interceptors.

        A partition is paused once its position reaches its end offset in ``fetch.until``.
        """
        self.begin_columns(fetch)
        yield from self._poll(timer, partial(self.collect_columns, fetch, max_rows))

    def begin_columns(self, fetch: ColumnsFetch) -> None:
        """Prepare for ``collect_columns``: rewind to records that wait for a loop, pause partitions at their end."""
        self.give_back()
        self._fetches.sizes.ends = fetch.until
        for tp in fetch.until:
            position = self._subscriptions.position_or_none(tp)
            if position is not None and position.offset >= fetch.end_offset(tp):
                self._subscriptions.pause(tp)

    def collect_columns(self, fetch: ColumnsFetch, max_rows: int) -> ColumnsFetch:
        """Take buffered records into the columns of ``fetch``."""
        self._undelivered.begin(fetch)
        return self._fetch_collector.collect_columns(self._fetch_buffer, fetch, max_rows)

    def take_back(self, fetch: AnyFetch) -> None:
        """Undo the changes of ``fetch`` to positions and to partitions that it paused at their end offset."""
        self.rewind(fetch.first_positions)
        if isinstance(fetch, ColumnsFetch):
            for tp, position in fetch.first_positions.items():
                if self._subscriptions.is_assigned(tp) and position.offset < fetch.end_offset(tp) < MAX_INT64:
                    self._subscriptions.resume(tp)

    def recover(self, in_middle: bool) -> None:
        """Restore a consistent state after an exception ended the last call.

        ``in_middle`` means that a signal handler raised it, or something else that may strike between any two
        instructions. Then no work in progress can be trusted, unless the exception struck in the wait for the network,
        as it nearly always does. So connections, requests and buffers are dropped, and the indexes of partitions are
        rebuilt.
        """
        if in_middle and not self._client.end_interrupted_wait():
            self._log.info("An exception interrupted the last call; reconnecting")
            self._subscriptions.refile()
            self._client.reset()
        fetch = self._undelivered.unreturned
        if fetch is not None:
            self.take_back(fetch)
            self._undelivered.end()

    def keep_for_loop(self, fetch: Fetch) -> None:
        """Keep the records of ``fetch`` for a loop to take."""
        self._undelivered.fill(fetch, self._subscriptions.position_or_none)

    @property
    def has_waiting_records(self) -> bool:
        """True if records wait for a loop."""
        return not self._undelivered.is_empty

    def next_records(self, *, singly: bool = False) -> Iterator[ConsumerRecord[Any, Any]] | None:
        """Return an iterator over records that wait for a loop, ``singly`` over one; None if there are none."""
        return self._undelivered.next_single() if singly else self._undelivered.next_iterator()

    def has_available_fetches(self, partitions: Collection[TopicPartition] | None = None) -> bool:
        """Return whether there are buffered records or errors to return; of ``partitions`` if given."""
        return self._fetches.has_available_fetches(partitions)

    def finish(self) -> None:
        """Forget the last fetch, which was empty."""
        self._undelivered.end()

    def hold_back_last(self) -> None:
        """Do not commit the last records that were returned if an exception is propagating."""
        self._undelivered.hold_back_last()

    def release_column_memory(self) -> None:
        """Release the memory for columns, which is large and perhaps not needed again."""
        self.column_memory = ColumnMemory()

    def prefetch(self) -> None:
        """Send the fetches that are due, without waiting."""
        self.create_fetch_requests()
        self._driver.transmit()

    def _poll(self, timer: Timer, collect: Callable[[], F]) -> Steps[F]:
        """Return ``collect()``'s result once it is not empty, or when the timer expires."""
        if self._subscriptions.has_no_subscription_or_user_assignment():
            raise IllegalStateError("nothing to poll: subscribe() to topics or assign() partitions first")
        self._consumer_metrics.record_poll_start(timer.now_ms)
        try:
            while True:
                if self._driver.is_woken:
                    self._driver.maybe_trigger_wakeup()
                # With records, it will not wait.
                has_news = self._fetch_buffer.completed or self._fetches.unsupported is not None
                call_ms = 0 if has_news else max(0, timer.deadline_ms - timer.now_ms)
                yield from self.update_assignment_metadata_if_needed(timer.now_ms, call_ms)
                fetch = collect()
                is_empty = not fetch.num_records and not fetch.position_advanced  # as Fetch.is_empty
                if is_empty:
                    self.create_fetch_requests()
                    due_ms, remaining_ms = self.time_to_next_poll(), max(0, timer.deadline_ms - timer.now_ms)
                    wait = timer if ends_with(due_ms, remaining_ms) else Timer(self._clock, due_ms)
                    self._client.awaits_partitions = not self._subscriptions.num_assigned_partitions()
                    yield Round(wait, self._fetches.has_available_fetches, for_records=True)
                    if wait is not timer:
                        timer.update(wait.now_ms)
                    if self._fetch_buffer.completed or self._fetches.unsupported is not None:
                        fetch = collect()
                        is_empty = fetch.is_empty
                if not is_empty:
                    # Let the brokers work while the application processes records. There are records to return, so this
                    # raises neither wakeups nor errors of other requests.
                    try:
                        self.create_fetch_requests()
                        self._driver.transmit(if_any=True)
                    except KafkaError as error:
                        # For example another broker's failed authentication. A poll without records will raise it.
                        self._log.debug("No more fetches for now, as records are returned first: %s", error)
                    return fetch
                self._undelivered.end()
                if timer.now_ms >= timer.deadline_ms:
                    return fetch
        finally:
            self._client.awaits_partitions = False
            self._consumer_metrics.record_poll_end(self._clock.now_ms())

    def update_assignment_metadata_if_needed(
        self, now_ms: int, call_ms: int = 0, *, is_called: bool = True
    ) -> Steps[None]:
        """Advance group membership and position lookups, without waiting for either: the first half of each poll.

        Partitions that have a position are fetched meanwhile. The poll's next round does this again before
        ``max.poll.interval.ms`` expires, also while there is no coordinator. The call of the application will wait for
        ``call_ms`` at most. ``is_called`` is False if no call waits for records, so that this does not show that the
        application is alive.
        """
        has_assignment = True
        if self._coordinator is None:
            self._sole_reader.poll()
        else:
            self._no_wait.now_ms = now_ms
            has_assignment = yield from self._coordinator.poll(self._no_wait, is_called=is_called, call_ms=call_ms)
        self.update_fetch_positions(initialize=has_assignment)

    def update_between_calls(self) -> None:
        """Advance position lookups, and commit automatically, while the application works on records.

        No rebalance begins: the partitions that would be revoked include those of these records.
        """
        is_stable = self._coordinator is None or self._coordinator.auto_commit_between_calls(self._clock.now_ms())
        self.update_fetch_positions(initialize=is_stable)

    def time_to_next_poll(self) -> int:
        """Return the milliseconds that a wait for records may take before the next round of a poll is due."""
        timeout_ms = FOREVER_MS if self._coordinator is None else self._coordinator.time_to_next_poll()
        if not self._has_all_fetch_positions or self._fetches.resting_nodes:
            # A position lookup or a fetch may be in backoff, which no response would end.
            timeout_ms = min(timeout_ms, self._retry_backoff_ms)
        return timeout_ms

    def create_fetch_requests(self) -> None:
        """Create the fetch requests that are due, for the next round.

        Raises:
            AuthenticationError: a broker refused the credentials.
        """
        offsets = self._offsets
        if offsets.recreated or offsets.metadata_version != self._metadata.update_version:
            offsets.validate_positions_on_metadata_change()
            self._drop_deleted_records()
        self._fetches.create_fetch_requests()

    def _drop_deleted_records(self) -> None:
        """Drop waiting records of topics that were created again: their offsets do not belong to the new topic."""
        recreated = self._offsets.take_recreated()
        if recreated:
            self._undelivered.drop(recreated)

    # --- positions ---------------------------------------------------------------------------------------------------

    def update_fetch_positions(self, *, initialize: bool = True) -> bool:
        """Look up positions: first the committed ones, then by ``auto.offset.reset``.

        Return False while committed offsets are not known. Validations, and resets that do not
        depend on committed offsets, are sent anyway and need no coordinator. With ``initialize=False``, committed
        offsets are not looked up, because the partitions may be about to be revoked.
        """
        if self._offsets.can_skip_update_fetch_positions():
            self._has_all_fetch_positions = True
            return True
        self._offsets.validate_positions_if_needed()
        self._drop_deleted_records()
        self._has_all_fetch_positions = not self._subscriptions.without_position
        if self._has_all_fetch_positions:
            return True
        initialized = initialize and (
            # Checked only now: if no partition lacks a position, a consumer needs no coordinator for its positions.
            self._coordinator is None or self._coordinator.start_new_partitions()
        )
        if initialized:
            self._subscriptions.reset_initializing_positions()
        self._offsets.reset_positions_if_needed()
        return initialized

    def position(self, tp: TopicPartition, timer: Timer) -> Steps[int]:
        """Return the offset of the next record for the application; look it up if it is unknown.

        Raises:
            IllegalStateError: ``tp`` is not assigned.
            KafkaTimeoutError: the timer expired.
            NoOffsetForPartitionError: there is no committed offset, and ``auto.offset.reset`` is ``none``.
        """
        self._subscriptions.check_assigned(tp)
        waiting = self._undelivered.next_positions().get(tp)
        if waiting is not None:
            return waiting.offset
        while True:
            position = self._subscriptions.valid_position(tp)
            if position is not None:
                return position.offset
            # Does not wait for other partitions. Whatever must be asked again is asked after a backoff.
            self.update_fetch_positions()
            self._subscriptions.missing.raise_for((tp,))
            yield Round(self.backoff(timer))
            timer.update()
            if timer.expired and self._subscriptions.valid_position(tp) is None:
                raise timeout_error(self._client, f"the position of {tp}", timer.timeout_ms, self._why_no_position(tp))

    def backoff(self, timer: Timer) -> Timer:
        """Return the time until the next check of ``timer``'s condition: never 0, even without backoff."""
        return Timer(self._clock, min(timer.remaining_ms, max(1, self._retry_backoff_ms)))

    def _why_no_position(self, tp: TopicPartition) -> Exception | str | None:
        error = None if self._coordinator is None else self._coordinator.last_error
        return error or self._metadata.why_leader_is_unknown(tp)

    def seek(
        self, tp: TopicPartition, offset: int, leader_epoch: int | None = None, topic_id: UUID | None = None
    ) -> None:
        """Set the position of ``tp`` in the topic with this id, by default the current topic of the name.

        Raises:
            IllegalArgumentError: ``offset`` is negative.
            IllegalStateError: ``tp`` is not assigned.
        """
        if offset < 0:
            raise IllegalArgumentError(f"cannot seek to offset {offset} of {tp}: it is negative")
        self._log.info("Seeking to offset %d of %s", offset, tp)
        if leader_epoch is not None:
            self._metadata.update_last_seen_epoch_if_newer(tp, leader_epoch)
        # Without an epoch the position is not validated.
        if topic_id is None:
            topic_id = self._metadata.topic_ids.get(tp.topic)
        position = FetchPosition(offset, leader_epoch, self._metadata.current_leader(tp), topic_id)
        self._subscriptions.seek_unvalidated(tp, position)
        self._undelivered.drop((tp,))

    def reset(self, partitions: Collection[TopicPartition], strategy: AutoOffsetResetStrategy) -> None:
        """Reset positions to the beginning or the end with the next poll."""
        self._subscriptions.request_offset_reset(partitions, strategy)
        self._undelivered.drop(partitions)

    def give_back(self, kept: Collection[TopicPartition] = ()) -> None:
        """Rewind to the records that wait for a loop, for all partitions except ``kept``.

        Call this before anything that may commit or revoke partitions: it could drop the records while the positions
        stay past them.
        """
        if not self._undelivered.is_empty:
            waiting = self._undelivered.waiting_positions()
            self.rewind({tp: position for tp, position in waiting.items() if tp not in kept})

    def rewind_invalid_waiting(self) -> None:
        """Rewind to waiting records that may not be returned now: their partition was revoked, or its leader changed.

        After a leader change the log may have been truncated. It must be validated from the loop's position.
        """
        if self._undelivered.is_empty:
            return
        waiting = self._undelivered.waiting_positions()
        for tp, behind in self._undelivered.positions_behind().items():
            position = self._subscriptions.fetchable_position(tp)
            if position is None or position.offset != behind.offset or position.current_leader != behind.current_leader:
                self.rewind({tp: waiting[tp]})

    def rewind(self, positions: Mapping[TopicPartition, FetchPosition]) -> None:
        """Rewind to ``positions`` to fetch records that were not returned again."""
        for tp, wanted in positions.items():
            if not self._subscriptions.is_assigned(tp):
                continue
            position = self._subscriptions.valid_position(tp)
            if wanted.is_of_another_topic(self._metadata.topic_ids.get(tp.topic)):
                continue  # deleted and created again: the position is reset
            if position is None:
                # The leader has changed, or the position is being reset: validate from the rewound position.
                target = wanted._replace(current_leader=self._metadata.current_leader(tp))
                self._subscriptions.seek_unvalidated(tp, target)
            elif position.offset != wanted.offset:
                target = position._replace(offset=wanted.offset, offset_epoch=wanted.offset_epoch)
                self._subscriptions.set_position(tp, target)
        self._undelivered.drop(positions.keys())

    def pause(self, partitions: Collection[TopicPartition]) -> None:
        for tp in partitions:
            self._subscriptions.pause(tp)
        waiting = self._undelivered.waiting_positions()
        self.rewind({tp: waiting[tp] for tp in partitions if tp in waiting})

    def resume(self, partitions: Collection[TopicPartition]) -> None:
        for tp in partitions:
            self._subscriptions.resume(tp)

    def paused(self) -> set[TopicPartition]:
        return self._subscriptions.paused_partitions()

    # --- offsets -----------------------------------------------------------------------------------------------------

    def commit_sync(self, offsets: Offsets | None, timer: Timer) -> Steps[None]:
        coordinator = self.group()
        start_ms = self._clock.now_ms()
        try:
            offsets = self._to_commit(offsets)
            if self._undelivered.unreturned is None:
                self._undelivered.end()  # the application says that it is done with the records of the last poll
            yield from coordinator.commit_sync(offsets, timer)
        finally:
            self._consumer_metrics.record_commit_sync(self._clock.now_ms() - start_ms)

    def commit_async(
        self, offsets: Offsets | None, callback: OffsetCommitCallback | None
    ) -> Steps[RequestFuture[None]]:
        future = yield from self.group().commit_async(self._to_commit(offsets), callback)
        self._undelivered.split()  # a loop then checks for the response after each record
        return future

    def has_pending_async_commits(self) -> bool:
        """Return whether the callback of an asynchronous commit may become due."""
        return self._coordinator is not None and self._coordinator.has_pending_async_commits

    def run_commit_callbacks(self) -> Steps[None]:
        """Run the callbacks of completed asynchronous commits, without waiting."""
        yield from self.group().run_commit_callbacks()

    def _to_commit(self, offsets: Offsets | None) -> Offsets:
        if offsets is None:
            return self.components.consumed()
        for tp, offset in offsets.items():
            if offset.leader_epoch >= 0:
                self._metadata.update_last_seen_epoch_if_newer(tp, offset.leader_epoch)
        return dict(offsets)

    def committed(
        self, partitions: Collection[TopicPartition], timer: Timer
    ) -> Steps[dict[TopicPartition, OffsetAndMetadata | None]]:
        coordinator = self.group()
        start_ms = self._clock.now_ms()
        try:
            offsets = yield from coordinator.committed(partitions, timer)
        finally:
            self._consumer_metrics.record_committed(self._clock.now_ms() - start_ms)
        for tp, offset in offsets.items():
            if offset is not None and offset.leader_epoch >= 0:
                self._metadata.update_last_seen_epoch_if_newer(tp, offset.leader_epoch)
        return {tp: offsets.get(tp) for tp in partitions}

    def high_watermark(self, tp: TopicPartition) -> int | None:
        return self._subscriptions.partition_end_offset(tp, 0)

    def current_lag(self, tp: TopicPartition) -> int | None:
        """Return the number of records between the last one received and the end of ``tp``, or None if unknown."""
        lag = self._offsets.current_lag(tp)
        waiting = self._undelivered.next_positions().get(tp)
        position = self._subscriptions.position_or_none(tp)
        if lag is None or waiting is None or position is None:
            return lag
        return lag + position.offset - waiting.offset

    def offsets_for_times(
        self, timestamps: Mapping[TopicPartition, int], timeout_ms: int
    ) -> Steps[dict[TopicPartition, OffsetAndTimestamp | None]]:
        return result_of(self._offsets.offsets_for_times(timestamps, timeout_ms), self._clock)

    def beginning_offsets(
        self, partitions: Collection[TopicPartition], timeout_ms: int
    ) -> Steps[dict[TopicPartition, int]]:
        return result_of(self._offsets.beginning_offsets(partitions, timeout_ms), self._clock)

    def end_offsets(self, partitions: Collection[TopicPartition], timeout_ms: int) -> Steps[dict[TopicPartition, int]]:
        return result_of(self._offsets.end_offsets(partitions, timeout_ms), self._clock)

    def partitions_for(self, topic: str, timeout_ms: int) -> Steps[list[PartitionInfo]]:
        """Return the partitions of ``topic``, from the metadata or else from a broker; empty if it does not exist."""
        known = self._metadata.fetch().partitions_for_topic(topic)
        if known:
            return list(known)
        lookup = self.components.topic_metadata.describe_topics(
            (topic,), timeout_ms, allow_auto_topic_creation=self._metadata.allow_auto_topic_creation
        )
        found = (yield from result_of(lookup, self._clock)).get(topic)
        return [] if found is None else found.partitions

    def describe_topics(self, topics: Collection[str] | None, timeout_ms: int) -> Steps[dict[str, TopicDescription]]:
        return result_of(self.components.topic_metadata.describe_topics(topics, timeout_ms), self._clock)

    @property
    def is_bootstrapped(self) -> bool:
        return not self._metadata.fetch().is_bootstrap_configured

    def bootstrap(self, timer: Timer) -> Steps[bool]:
        """Wait for new metadata of the cluster; return False if the timer expires first."""
        # Rebootstrapping also counts as a metadata update.
        while (yield from metadata_update(self._metadata, timer)):
            if self.is_bootstrapped:
                return True
        return False

    def group_metadata(self) -> ConsumerGroupMetadata:
        if self._coordinator is None:
            return ConsumerGroupMetadata()
        state = self._coordinator.membership.state.reported
        return self._coordinator.group_metadata._replace(state=state)

    # --- closing -----------------------------------------------------------------------------------------------------

    def close(self, timeout_ms: int, operation: str, *, auto_commit: bool) -> Steps[KafkaError | None]:
        """Close everything within ``timeout_ms`` and return the first error.

        An exception of a signal handler ends this immediately; another call does the rest.
        """
        self.is_closing = True
        self._driver.disable_wakeups()
        timer = Timer(self._clock, min(timeout_ms, self._request_timeout_ms))
        closing, coordinator = self._closing, self._coordinator
        if coordinator is not None:
            steps = coordinator.close(timer, operation, auto_commit=auto_commit)
            yield from closing.attempt_steps("the coordinator", steps)
        timer.update()
        timer.reset(max(0, min(timeout_ms, self._request_timeout_ms) - timer.elapsed_ms))
        yield from closing.attempt_steps("the fetcher", self._close_fetch_sessions(timer))
        closing.attempt("the interceptors", self.components.interceptors.close)
        closing.attempt_rest(self.components)
        self._undelivered.clear()
        self._log.debug("Closed")
        return closing.failure

    def _close_fetch_sessions(self, timer: Timer) -> Steps[None]:
        """End the sessions, as far as the timer allows, and drop buffered data."""
        futures = self._fetches.close_sessions()

        def is_done() -> bool:
            return all(future.is_done for future in futures)

        if timer.not_expired:
            yield Wait(Timer(self._clock, min(timer.remaining_ms, _SESSIONS_END_MS)), is_done, wakeup=False)
        if not is_done():
            self._log.debug("Not all brokers have answered that fetch sessions end; they expire them")
        self._fetch_buffer.retain_all(frozenset())

    def abandon(self) -> None:
        """Release the thread and sockets of a consumer that was never closed. Takes no locks."""
        if self._coordinator is None or not self._coordinator.abandon():
            self._client.close()
