"""Collecting buffered records for one poll, and advancing the positions (Java: FetchCollector)."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING

from pykclient import errors
from pykclient.consumer.fetch_context import request_metadata_update
from pykclient.errors import IllegalStateError, KafkaError, OffsetOutOfRangeError
from pykclient.network.failures import topics_denied
from pykclient.record.record_batch import MAX_INT64

if TYPE_CHECKING:
    from pykclient.consumer.completed_fetch import CompletedFetch, Deserializers, FetchBuffer
    from pykclient.consumer.fetch import AnyFetch, ColumnsFetch, Fetch
    from pykclient.consumer.fetch_config import FetchConfig
    from pykclient.consumer.fetch_context import FetchContext, FetchMetricsManager
    from pykclient.consumer.fetch_state import FetchPosition
    from pykclient.types import TopicPartition

#: After these errors a new leader or fresh metadata is enough.
_REFRESH = frozenset(
    error.code
    for error in (
        errors.NotLeaderOrFollowerError,
        errors.ReplicaNotAvailableError,
        errors.KafkaStorageError,
        errors.FencedLeaderEpochError,
        errors.OffsetNotAvailableError,
    )
)
#: The same, but the topic may have been deleted for good, so this is logged as a warning.
_REFRESH_AND_WARN = frozenset(
    error.code
    for error in (
        errors.UnknownTopicOrPartitionError,
        errors.UnknownTopicIdError,
        errors.InconsistentTopicIdError,
    )
)


class FetchCollector:
    """Takes buffered records and advances the positions past them. Thread: application."""

    def __init__(
        self,
        context: FetchContext,
        fetch_config: FetchConfig,
        deserializers: Deserializers,
        metrics_manager: FetchMetricsManager,
    ) -> None:
        self._log = context.log_context.logger(__name__)
        self._metadata = context.metadata
        self._subscriptions = context.subscriptions
        self._clock = context.clock
        self._config = fetch_config
        self._last_taken: CompletedFetch | None = None
        self._sampled_ms: int | None = None  # when the present call has recorded lag and lead
        self._wall_ms: int | None = None  # when the present call has first stored offsets, since the epoch
        self._unknown: set[TopicPartition] = set()  # partitions that brokers did not know at their last fetch
        self._deserializers = deserializers
        self._metrics_manager = metrics_manager

    def collect_fetch(
        self,
        fetch_buffer: FetchBuffer,
        fetch: Fetch,
        max_records: int | None = None,
        partitions: Collection[TopicPartition] | None = None,
    ) -> Fetch:
        """Move records into ``fetch`` until it has ``max_records`` (``max.poll.records``), and the positions past them.

        Only records and errors of ``partitions`` are taken, if they are given; the others stay in the buffer.

        Errors are raised only if there is no record before them to return.

        Raises:
            KafkaError: a broker returned an error, or bytes are unreadable.
        """
        config, deserializers = self._config, self._deserializers

        def take(completed: CompletedFetch, wanted: int) -> None:
            records = completed.fetch_records(config, deserializers, wanted)
            if fetch.records:
                fetch.add(completed.partition, records)
            elif records:  # the same, without the call
                fetch.records[completed.partition] = records
                fetch.num_records = len(records)

        limit = config.max_poll_records if max_records is None else max_records
        self._collect(fetch_buffer, fetch, limit, take, partitions)
        return fetch

    def collect_columns(self, fetch_buffer: FetchBuffer, fetch: ColumnsFetch, max_rows: int) -> ColumnsFetch:
        """Move up to ``max_rows`` rows into the columns of ``fetch``, or until they are full.

        A partition that has reached its end in ``fetch.until`` is paused.
        """

        def take(completed: CompletedFetch, wanted: int) -> None:
            end_offset = fetch.end_offset(completed.partition) if fetch.until else MAX_INT64
            fetch.num_records += completed.fetch_columns(self._config, fetch.columns, wanted, end_offset)
            fetch.is_full = fetch.columns.is_full

        self._collect(fetch_buffer, fetch, max_rows, take)
        return fetch

    def _collect(
        self,
        fetch_buffer: FetchBuffer,
        fetch: AnyFetch,
        limit: int,
        take: Callable[[CompletedFetch, int], None],
        partitions: Collection[TopicPartition] | None = None,
    ) -> None:
        set_aside: list[CompletedFetch] = []
        try:
            while (remaining := limit - fetch.num_records) > 0 and not fetch.is_full:
                next_in_line = fetch_buffer.next_in_line_fetch
                if next_in_line is None or next_in_line.is_consumed:
                    completed = fetch_buffer.peek()
                    if completed is None:
                        break
                    if partitions is not None and completed.partition not in partitions:
                        # Its error, if it has one, is for the calls that ask for this partition.
                        fetch_buffer.poll()
                        set_aside.append(completed)
                    elif not self._next_in_line(fetch_buffer, completed, fetch):
                        break
                    continue
                tp = next_in_line.partition
                position = self._subscriptions.fetchable_position(tp)
                if (position is None and self._subscriptions.is_paused(tp)) or (
                    partitions is not None and tp not in partitions
                ):
                    # Back into the buffer, because the partition may be resumed or asked for before the next poll.
                    set_aside.append(next_in_line)
                    fetch_buffer.next_in_line_fetch = None
                elif not self._take(next_in_line, position, remaining, fetch, take):
                    break
        finally:
            if set_aside:
                fetch_buffer.add_all(set_aside)
            self._wall_ms = None
            if self._sampled_ms is not None:
                self._metrics_manager.record_extremes(self._sampled_ms)
                self._sampled_ms = None

    def _next_in_line(self, fetch_buffer: FetchBuffer, completed: CompletedFetch, fetch: AnyFetch) -> bool:
        """Make ``completed`` the next in line. Return False for an error that must wait, as records come first."""
        if completed.is_initialized:
            fetch_buffer.next_in_line_fetch = completed
        else:
            try:
                fetch_buffer.next_in_line_fetch = self.initialize(completed)
            except KafkaError:
                # An error without records is raised once. An error that comes after records is kept for the next poll.
                # A partition with unreadable records raises its error until the position moves past them.
                if not fetch.is_empty:
                    return False
                if not completed.size_in_bytes:
                    fetch_buffer.poll()
                raise
        fetch_buffer.poll()
        return True

    def _take(
        self,
        completed: CompletedFetch,
        position: FetchPosition | None,
        wanted: int,
        fetch: AnyFetch,
        take: Callable[[CompletedFetch, int], None],
    ) -> bool:
        """Take records of ``completed`` and move the position past them; None: it is not fetchable.

        Return False for an error that must wait for the next poll, because there are records to return before it.
        """
        tp = completed.partition
        subscriptions = self._subscriptions
        if position is None:
            # A rebalance, a reset or a new subscription came between the response and this poll.
            self._log.debug("Not returning fetched records of %s, which is no longer fetchable", tp)
            completed.drain()
            return True
        if completed.next_fetch_offset != position.offset:
            self._log.debug(
                "Not returning %s from %d, the position is now %s", tp, completed.next_fetch_offset, position
            )
            completed.drain()
            return True
        if position.topic_id is not completed.topic_id and position.is_of_another_topic(completed.topic_id):
            self._log.debug("Not returning %s from %d of a topic that was deleted", tp, completed.next_fetch_offset)
            completed.drain()
            return True
        # Before anything moves: if a signal handler raises below, the next call rewinds to this position.
        fetch.first_positions.setdefault(tp, position)
        try:
            take(completed, wanted)
        except IllegalStateError:
            # A signal handler called the consumer, maybe after records were added and before the position moves.
            raise
        except KafkaError:
            if fetch.is_empty:
                raise
            return False
        if completed.next_fetch_offset > position.offset:
            subscriptions.advance(tp, completed.next_fetch_offset, completed.last_epoch)
            fetch.position_advanced = True
        if fetch.until and max(completed.next_fetch_offset, position.offset) >= fetch.end_offset(tp):
            subscriptions.pause(tp)
        if completed is not self._last_taken or completed.is_consumed:
            # Lag and lead change evenly between the first and the last poll of the data of one response.
            self._last_taken = completed
            if self._sampled_ms is None:
                self._sampled_ms = self._clock.now_ms()
            lag, lead = subscriptions.lag_and_lead(tp, self._config.isolation_level)
            self._metrics_manager.record_partition(tp, lag, lead, self._sampled_ms)
        return True

    def initialize(self, completed: CompletedFetch) -> CompletedFetch | None:
        """Apply the metadata of a response. Return None if the response does not fit the current position."""
        tp = completed.partition
        code = completed.partition_data.error_code
        usable = False
        try:
            position = self._subscriptions.valid_position_or_none(tp)
            if position is None:
                self._log.debug("Dropping fetched records of %s, which no longer has a valid position", tp)
            elif position.topic_id is not completed.topic_id and position.is_of_another_topic(completed.topic_id):
                self._log.debug("Dropping data of %s that was fetched before the topic was deleted", tp)
            elif code:
                self._handle_error(completed, code)
            else:
                usable = self._handle_success(completed, position)
        finally:
            if not usable:
                completed.record_aggregated_metrics(0, 0)
            if code:
                self._subscriptions.move_partition_to_end(tp)
        completed.is_initialized = usable
        return completed if usable else None

    def _handle_success(self, completed: CompletedFetch, position: FetchPosition) -> bool:
        """Store the offsets of a response. Return False if its records are not those of the current position."""
        tp = completed.partition
        self._unknown.discard(tp)
        if position.offset != completed.next_fetch_offset:
            self._log.debug("Dropping %s from %d, the position is now %s", tp, completed.next_fetch_offset, position)
            return False
        if completed.size_in_bytes and not completed.has_batches():
            # Since KIP-74 a broker sends at least one whole batch, however large.
            raise KafkaError(
                f"no progress in {tp} at offset {completed.next_fetch_offset}: the broker sent "
                f"{completed.size_in_bytes} bytes without a complete batch"
            )
        data = completed.partition_data
        if self._wall_ms is None:
            self._wall_ms = self._clock.wall_ms()
        assigned = self._subscriptions.try_updating_offsets(
            tp,
            high_watermark=data.high_watermark,
            log_start_offset=data.log_start_offset,
            last_stable_offset=data.last_stable_offset,
            wall_ms=self._wall_ms,
        )
        if assigned and data.preferred_read_replica >= 0:
            expires_ms = self._clock.now_ms() + self._metadata.metadata_expire_ms
            assigned = self._subscriptions.try_updating_preferred_read_replica(
                tp, data.preferred_read_replica, expires_ms
            )
            self._log.debug("Reading %s from replica %d", tp, data.preferred_read_replica)
        return assigned

    def _handle_error(self, completed: CompletedFetch, code: int) -> None:
        """Handle a partition's error: find the leader, reset the position, or raise it to the application."""
        tp, offset = completed.partition, completed.next_fetch_offset
        error = errors.for_code(code)
        if code in _REFRESH:
            self._log.debug("Fetch of %s at %d: %s", tp, offset, error)
            request_metadata_update(self._metadata, self._subscriptions, tp)
        elif code in _REFRESH_AND_WARN:
            # Warn once, and not for each retry, until the partition is back.
            level = logging.DEBUG if tp in self._unknown else logging.WARNING
            self._unknown.add(tp)
            self._log.log(level, "Fetch of %s at %d: %s", tp, offset, error)
            request_metadata_update(self._metadata, self._subscriptions, tp)
        elif code == errors.OffsetOutOfRangeError.code:
            self._handle_offset_out_of_range(tp, offset)
        elif code == errors.TopicAuthorizationError.code:
            self._log.warning("Not authorized to read %s", tp)
            raise topics_denied(self._log.principal, [tp.topic], "READ")
        elif code == errors.UnknownLeaderEpochError.code:
            self._log.debug("The leader of %s does not know its epoch yet", tp)
        elif code == errors.UnknownServerError.code:
            self._log.warning("Fetch of %s at offset %d failed: the broker had an unexpected error", tp, offset)
        elif code == errors.CorruptRecordError.code:
            raise KafkaError(f"the broker reports that its log of {tp} is corrupt at offset {offset}")
        else:
            raise IllegalStateError(f"unexpected error in the fetch of {tp} at offset {offset}: {error!r}")

    def _handle_offset_out_of_range(self, tp: TopicPartition, offset: int) -> None:
        replica = self._subscriptions.clear_preferred_read_replica(tp)
        if replica is not None:
            # A follower may lag behind; the leader decides.
            self._log.debug("Offset %d of %s is out of range at replica %d, asking the leader", offset, tp, replica)
            return
        position = self._subscriptions.position_or_none(tp)
        if position is None or position.offset != offset:
            self._log.debug("Dropping %s from %d, the position is now %s", tp, offset, position)
        elif self._subscriptions.has_default_offset_reset_policy():
            self._log.info("Position %s of %s is out of range; resetting it", position, tp)
            self._subscriptions.request_offset_reset_if_partition_assigned(tp)
        else:
            raise OffsetOutOfRangeError(
                f"position {offset} of {tp} is out of range and auto.offset.reset is 'none'; "
                f"seek() to the offset to continue at",
                {tp: offset},
            )
