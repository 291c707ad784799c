"""The driver's requests to the cluster: partitions, their offsets, and the ranges in between.

The results are those of Spark's ``KafkaOffsetReaderAdmin``, which sends the same requests with Kafka's admin client.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from pykclient.clock import SYSTEM_CLOCK, Clock
from pykclient.errors import (
    AuthenticationError,
    AuthorizationError,
    IllegalStateError,
    InvalidTopicError,
    KafkaError,
    UnknownTopicOrPartitionError,
    UnsupportedVersionError,
)
from pykclient.spark.offsets import (
    EARLIEST,
    EARLIEST_OFFSET,
    LATEST,
    LATEST_OFFSET,
    GlobalTimestamp,
    OffsetLimit,
    Offsets,
    SpecificOffsets,
    SpecificTimestamps,
    WhenNone,
)
from pykclient.spark.ranges import OffsetRange
from pykclient.spark.subscription import Assign, Subscribe, SubscribePattern
from pykclient.types import TopicPartition

if TYPE_CHECKING:
    from uuid import UUID

    from pykclient.consumer.kafka_consumer import KafkaConsumer
    from pykclient.spark.filters import Bounds
    from pykclient.spark.options import ReadOptions
    from pykclient.types import TopicDescription

    Consumer = KafkaConsumer[Any, Any]

_logger = logging.getLogger(__name__)

_T = TypeVar("_T")

#: Errors that asking again does not change, and what to do about them. The first class that fits decides.
_LASTING: tuple[tuple[type[KafkaError], str], ...] = (
    (AuthenticationError, "check the options that begin with kafka.sasl. and kafka.ssl."),
    (AuthorizationError, "the principal needs the ACLs DESCRIBE and READ for each topic"),
    (InvalidTopicError, "topic names consist of at most 249 letters, digits, dots, dashes and underscores"),
    (UnsupportedVersionError, "the query needs newer brokers"),
)

_CLOSE_TIMEOUT_MS = 1_000


def new_consumer(config: Mapping[str, object]) -> Consumer:
    """Create a consumer that only looks up partitions and offsets."""
    from pykclient.consumer.kafka_consumer import KafkaConsumer

    return KafkaConsumer(config)


class KafkaOffsetReader:
    """Looks up offsets with a consumer of its own, which is created on first use.

    Each request is tried ``fetchOffset.numRetries`` times, ``fetchOffset.retryIntervalMs`` apart, each time with new
    connections. Then KafkaError says what was tried. Errors that a retry does not change are raised at once.

    The reader remembers the ids of the topics. A topic that was deleted and created again under its name has another
    id: that is data loss, whatever its offsets are. Spark's own source cannot tell the two apart.

    Thread: owner.
    """

    def __init__(
        self,
        options: ReadOptions,
        clock: Clock = SYSTEM_CLOCK,
        consumer_factory: Callable[[Mapping[str, object]], Consumer] = new_consumer,
    ) -> None:
        self._options = options
        self._clock = clock
        self._new_consumer = consumer_factory
        self._consumer: Consumer | None = None
        self._reported_missing: set[TopicPartition] = set()
        self._topic_ids: dict[str, UUID] = {}
        self._former_topic_ids: set[UUID] = set()
        self._topic_ids_requested = False
        #: Topics that were created again, and the micro-batch (start, end) that reads them from their beginning, once
        #: it was planned.
        self._created_again: dict[str, tuple[Offsets, Offsets] | None] = {}

    def close(self) -> None:
        """Close the connections. The next request opens new ones."""
        consumer, self._consumer = self._consumer, None
        if consumer is not None:
            consumer.close(timeout_ms=_CLOSE_TIMEOUT_MS)

    # --- batch queries

    def batch_ranges(self, bounds: Bounds | None = None) -> list[OffsetRange]:
        """Return the non-empty ranges of a batch as of now, within ``bounds``, in order of partitions.

        All offsets are decided here, so that repeated tasks read the same records. With Spark's own source the
        executors look up "latest" when they read it.

        Raises:
            IllegalStateError: The given offsets do not fit the partitions, or each other.
            KafkaError: The cluster does not respond.
        """
        return self._with_retries("the offsets to read", lambda consumer: self._batch_ranges(consumer, bounds))

    def _batch_ranges(self, consumer: Consumer, bounds: Bounds | None) -> list[OffsetRange]:
        partitions = self._partitions(consumer)
        starting, ending = self._options.starting, self._options.ending
        _check_named(starting, partitions, "starting")
        _check_named(ending, partitions, "ending")
        if bounds is not None:
            partitions = {tp for tp in partitions if bounds.allows(tp)}
        # Ends come first. Records that are appended between the two look-ups then are after the end.
        asked = self._asked(consumer, ending, partitions)
        ends = self._resolved(consumer, asked)
        starts = self._resolved(consumer, self._asked(consumer, starting, partitions))
        if not isinstance(starting, SpecificOffsets):
            # A start that was looked up at the end of the log may be later than the end. Then there is nothing to read.
            starts = {tp: min(start, ends[tp]) if asked[tp] == LATEST_OFFSET else start for tp, start in starts.items()}
        ranges = [OffsetRange(tp, starts[tp], ends[tp], self._topic_ids.get(tp.topic)) for tp in sorted(partitions)]
        if backwards := [each for each in ranges if each.start > each.end]:
            raise IllegalStateError(
                f"The batch would start after its end in {', '.join(map(str, backwards))}: the starting offsets or "
                "timestamps are later than the ending ones or than the last record, or the topic was deleted and "
                "created again; compare the starting and ending options with the offsets of the topic"
            )
        if bounds is not None:
            ranges = self._narrowed(consumer, ranges, bounds)
        return [each for each in ranges if each.size > 0]

    def _narrowed(self, consumer: Consumer, ranges: list[OffsetRange], bounds: Bounds) -> list[OffsetRange]:
        """Return ``ranges`` without offsets that the filters of the query exclude."""
        ranges = [each for each in bounds.apply(ranges) if each.size > 0]
        earliest_ms = bounds.first_timestamp_ms
        # Negative timestamps have special meanings in Kafka, such as "latest".
        if earliest_ms is None or earliest_ms <= 0 or not ranges:
            return ranges
        found = consumer.offsets_for_times(dict.fromkeys((each.topic_partition for each in ranges), earliest_ms))
        narrowed = []
        for each in ranges:
            first = found.get(each.topic_partition)
            if first is not None:  # otherwise all records of the partition are older
                narrowed.append(each._replace(start=max(each.start, first.offset)))
        return narrowed

    # --- streaming queries

    def initial_offsets(self) -> Offsets:
        """Return the offsets at which a new query starts.

        Raises:
            IllegalStateError: The starting option names other partitions than there are. Or no record is as late as a
                timestamp, and ``startingOffsetsByTimestampStrategy`` is error.
            KafkaError: The cluster does not respond.
        """

        def ask(consumer: Consumer) -> Offsets:
            partitions = self._partitions(consumer)
            _check_named(self._options.starting, partitions, "starting")
            return self._resolved(consumer, self._asked(consumer, self._options.starting, partitions))

        return self._with_retries("the offsets to start at", ask)

    def latest_offsets(self, known: Mapping[TopicPartition, int] | None = None) -> Offsets:
        """Return the offsets after the last record of each partition.

        A new leader may not know its high watermark yet. An offset lower than the one in ``known`` is therefore
        requested again, up to ``fetchOffset.numRetries`` times, before it is believed (KAFKA-7703).

        Raises:
            IllegalStateError: A topic was deleted and created again, and ``failOnDataLoss`` is on.
            KafkaError: The cluster does not respond.
        """
        return self._with_retries("the latest offsets", lambda consumer: self._latest_offsets(consumer, known or {}))

    def _latest_offsets(self, consumer: Consumer, known: Mapping[TopicPartition, int]) -> Offsets:
        partitions = self._partitions(consumer)
        comparable = {tp: offset for tp, offset in known.items() if tp.topic not in self._created_again}
        for attempt in range(1, self._options.num_retries + 1):
            latest = consumer.end_offsets(partitions)
            back = sorted(tp for tp, offset in latest.items() if offset < comparable.get(tp, 0))
            if not back:
                break
            listed = ", ".join(f"{tp} from {known[tp]} to {latest[tp]}" for tp in back)
            _logger.warning("Offsets went back: %s (attempt %d)", listed, attempt)
            if attempt < self._options.num_retries:
                self._clock.sleep_ms(self._options.retry_interval_ms)
        return latest

    def earliest_offsets(self, partitions: Collection[TopicPartition]) -> Offsets:
        """Return the first offset of each of ``partitions`` that exists.

        Raises:
            IllegalStateError: A topic was deleted and created again, and ``failOnDataLoss`` is on.
            KafkaError: The cluster does not respond.
        """
        if not partitions:
            return {}

        def ask(consumer: Consumer) -> Offsets:
            there = self._partitions(consumer)
            return consumer.beginning_offsets([tp for tp in partitions if tp in there])

        return self._with_retries("the earliest offsets", ask)

    def stream_ranges(
        self, start: Mapping[TopicPartition, int], end: Mapping[TopicPartition, int]
    ) -> list[OffsetRange]:
        """Return the non-empty ranges of a micro-batch, in order of partitions.

        Partitions that only ``end`` has are new, and read from their beginning. So are topics that were created again.
        Records are lost if partitions of ``start`` do not exist any more, begin or end at offsets at which they cannot,
        or belong to a topic that was created again. Without ``failOnDataLoss`` a warning is logged then.

        Raises:
            IllegalStateError: Records are lost, and ``failOnDataLoss`` is on.
            KafkaError: The cluster does not respond.
        """
        if not self._topic_ids_requested:
            # The first micro-batch after a restart on a checkpoint.
            self._with_retries("the topic ids", lambda consumer: self._request_topic_ids(consumer, end))
        new = end.keys() - start.keys()
        again = self._partitions_created_again(start, end)
        first = self.earliest_offsets(new | again)
        if first:
            _logger.info("New partitions: %s", ", ".join(f"{tp} from {first[tp]}" for tp in sorted(first)))
        if lost := new - first.keys():
            self._report_data_loss(f"the first offset of {_names(lost)} is unknown; the topic may have been deleted")
        for tp in sorted(first.keys() - again):
            if first[tp] != 0:
                self._report_data_loss(f"the new partition {tp} starts at {first[tp]} instead of 0")
        if gone := start.keys() - end.keys():
            self._report_data_loss(f"{_names(gone)} {'does' if len(gone) == 1 else 'do'} not exist any more")
            self._forget_topics({tp.topic for tp in gone} - {tp.topic for tp in end})
        ranges = []
        for tp in sorted(end):
            begin = first.get(tp, start.get(tp))
            if begin is None:
                continue
            if end[tp] < begin:
                self._report_data_loss(
                    f"{tp} ends at {end[tp]} but was read up to {begin}; its topic was deleted and created again, or "
                    "the query was started after the end of the partition"
                )
            ranges.append(OffsetRange(tp, begin, end[tp], self._topic_ids.get(tp.topic)))
        return [each for each in ranges if each.size > 0]

    def _report_data_loss(self, what: str) -> None:
        if self._options.fail_on_data_loss:
            raise IllegalStateError(
                f"Records may be lost: {what}. They were deleted by retention, or with their topic, before the query "
                "read them. To continue with the records that are left, set the option failOnDataLoss to false"
            )
        _logger.warning("Records may be lost: %s. The query continues, as failOnDataLoss is false", what)

    # --- topic ids

    def _request_topic_ids(self, consumer: Consumer, partitions: Iterable[TopicPartition]) -> None:
        self._note_topic_ids(consumer.describe_topics(topics={tp.topic for tp in partitions}))

    def _note_topic_ids(self, topics: Mapping[str, TopicDescription]) -> None:
        """Remember the ids. Report data loss for topics that have another one than before."""
        self._topic_ids_requested = True
        for name, topic in topics.items():
            known, found = self._topic_ids.get(name), topic.topic_id
            # A broker whose metadata lags behind may still return the id of the deleted topic.
            if found is None or found == known or found in self._former_topic_ids:
                continue
            if known is not None:
                self._report_data_loss(
                    f"topic {name} was deleted and created again (its topic id was {known} and is {found} now)"
                )
                self._former_topic_ids.add(known)
                self._created_again[name] = None
            self._topic_ids[name] = found

    def _partitions_created_again(
        self, start: Mapping[TopicPartition, int], end: Mapping[TopicPartition, int]
    ) -> set[TopicPartition]:
        """Return the partitions that this micro-batch reads from their beginning, as their topics were created again.

        Only the first micro-batch after that does so. If Spark plans it twice, both plans are the same.
        """
        batch = (dict(start), dict(end))
        for name, planned in list(self._created_again.items()):
            if planned is None:
                self._created_again[name] = batch
            elif planned != batch:
                del self._created_again[name]
        return {tp for tp in end if tp.topic in self._created_again}

    def _forget_topics(self, names: Iterable[str]) -> None:
        """A topic that comes back is a new one, and read from its beginning."""
        for name in names:
            self._topic_ids.pop(name, None)
            self._created_again.pop(name, None)

    # --- partitions and offsets

    def _partitions(self, consumer: Consumer) -> set[TopicPartition]:
        """Return the partitions that the query reads, as the cluster knows them now; never those of internal topics."""
        from pykclient.consumer.kafka_consumer import INTERNAL_TOPICS

        topics = self._options.topics
        if isinstance(topics, SubscribePattern):
            found = {name: topic for name, topic in consumer.describe_topics().items() if topics.matches(name)}
        else:
            assert isinstance(topics, (Subscribe, Assign))
            found = consumer.describe_topics(topics=topics.names)
            if unknown := [name for name in topics.names if name not in found]:
                raise UnknownTopicOrPartitionError(
                    f"topic {_names(unknown)} does not exist, or the principal may not describe it"
                )
        found = {name: topic for name, topic in found.items() if name not in INTERNAL_TOPICS}
        self._note_topic_ids(found)
        there = {TopicPartition(info.topic, info.partition) for topic in found.values() for info in topic.partitions}
        if not isinstance(topics, Assign):
            return there
        # As in Spark they may be created later. This warning is the only sign of them until then.
        if missing := {*topics.topic_partitions} - there - self._reported_missing:
            _logger.warning("Option assign names partitions that do not exist: %s", _names(missing))
            self._reported_missing |= missing
        return there.intersection(topics.topic_partitions)

    def _asked(self, consumer: Consumer, limit: OffsetLimit, partitions: Collection[TopicPartition]) -> Offsets:
        """Return what ``limit`` says for each partition: an offset, ``EARLIEST_OFFSET`` or ``LATEST_OFFSET``."""
        if limit is EARLIEST:
            return dict.fromkeys(partitions, EARLIEST_OFFSET)
        if limit is LATEST:
            return dict.fromkeys(partitions, LATEST_OFFSET)
        if isinstance(limit, SpecificOffsets):
            return {tp: limit.offsets[tp] for tp in partitions}
        if isinstance(limit, SpecificTimestamps):
            times = {tp: limit.timestamps_ms[tp] for tp in partitions}
            return _offsets_at(consumer, times, limit.when_none)
        assert isinstance(limit, GlobalTimestamp)
        return _offsets_at(consumer, dict.fromkeys(partitions, limit.timestamp_ms), limit.when_none)

    def _resolved(self, consumer: Consumer, asked: Offsets) -> Offsets:
        """Replace ``EARLIEST_OFFSET`` and ``LATEST_OFFSET`` by the offsets of the partitions."""
        offsets = dict(asked)
        if earliest := [tp for tp, offset in asked.items() if offset == EARLIEST_OFFSET]:
            offsets |= consumer.beginning_offsets(earliest)
        if latest := [tp for tp, offset in asked.items() if offset == LATEST_OFFSET]:
            offsets |= consumer.end_offsets(latest)
        return offsets

    # --- retries

    def _with_retries(self, what: str, ask: Callable[[Consumer], _T]) -> _T:
        start_ms = self._clock.now_ms()
        attempt = 1
        while True:
            try:
                if self._consumer is None:
                    self._consumer = self._new_consumer(self._options.driver_config())
                return ask(self._consumer)
            except IllegalStateError:  # about the responses, which a retry does not change
                self.close()
                raise
            except KafkaError as error:
                # A client may keep wrong metadata. A new one starts without any.
                self.close()
                took_ms = self._clock.now_ms() - start_ms
                described = f"Could not get {what} of {self._options.topics.description} from Kafka"
                advice = next((advice for kind, advice in _LASTING if isinstance(error, kind)), None)
                if advice is not None:
                    raise KafkaError(f"{described}: {type(error).__name__}: {error} ({advice})") from error
                if attempt >= self._options.num_retries:
                    tried = "once" if attempt == 1 else f"{attempt} times"
                    raise KafkaError(
                        f"{described}, tried {tried} in {took_ms} ms: {error}. Check kafka.bootstrap.servers and the "
                        "topics. Options fetchOffset.numRetries and fetchOffset.retryIntervalMs set the number of "
                        "tries and the pause between them, kafka.default.api.timeout.ms how long one may take"
                    ) from error
                _logger.warning("Attempt %d to get %s failed after %d ms: %s", attempt, what, took_ms, error)
            attempt += 1
            self._clock.sleep_ms(self._options.retry_interval_ms)


def _offsets_at(consumer: Consumer, times: Mapping[TopicPartition, int], when_none: WhenNone) -> Offsets:
    """Return the offset of the first record at or after each of ``times``, else ``LATEST_OFFSET``.

    Raises:
        IllegalStateError: There is none in some partition, and ``when_none`` is error.
    """
    found = consumer.offsets_for_times(times) if times else {}
    offsets = {tp: LATEST_OFFSET if at is None else at.offset for tp, at in found.items()}
    late = sorted(tp for tp, offset in offsets.items() if offset == LATEST_OFFSET)
    if late and when_none == "error":
        raise IllegalStateError(
            f"No record is as late as the starting timestamp in {', '.join(f'{tp} ({times[tp]})' for tp in late)}. To "
            "start at the end of such partitions, set the option startingOffsetsByTimestampStrategy to latest"
        )
    return offsets


def _check_named(limit: OffsetLimit, partitions: set[TopicPartition], side: str) -> None:
    """Raise IllegalStateError unless a limit with partitions names exactly those that exist."""
    if isinstance(limit, SpecificOffsets):
        named, option = limit.offsets.keys(), f"{side}Offsets"
        advice = "-1 is the latest offset, -2 the earliest"
    elif isinstance(limit, SpecificTimestamps):
        named, option = limit.timestamps_ms.keys(), f"{side}OffsetsByTimestamp"
        advice = "each partition needs a timestamp"
    else:
        return
    problems = []
    if missing := partitions - named:
        problems.append(f"{_names(missing)} missing")
    if extra := named - partitions:
        problems.append(f"{_names(extra)} unknown, or not subscribed to")
    if problems:
        raise IllegalStateError(
            f"Option {option} must name all partitions that the query reads, and no others: "
            f"{'; '.join(problems)}. Partitions may have been added or deleted in the meantime. ({advice})"
        )


def _names(named: Iterable[object]) -> str:
    return ", ".join(sorted(map(str, named)))
