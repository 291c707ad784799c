"""The driver's questions to the cluster: which partitions there are, where they begin and end, and what lies between.

Answers are those of Spark's ``KafkaOffsetReaderAdmin``, which sends the same requests with Kafka's admin client.
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
    from pykclient.consumer.kafka_consumer import KafkaConsumer
    from pykclient.spark.filters import Bounds
    from pykclient.spark.options import ReadOptions

    Consumer = KafkaConsumer[Any, Any]

_logger = logging.getLogger(__name__)

_T = TypeVar("_T")

#: Errors that stay the same however often one asks, and what to do about them. The first class that fits decides.
_LASTING: tuple[tuple[type[KafkaError], str], ...] = (
    (AuthenticationError, "check the options that begin with kafka.sasl. and kafka.ssl."),
    (AuthorizationError, "the principal needs the ACLs DESCRIBE and READ for each topic"),
    (InvalidTopicError, "names of topics have letters, digits, dots, dashes and underscores, 249 at most"),
    (UnsupportedVersionError, "the brokers are too old for what the query needs of them"),
)

_CLOSE_TIMEOUT_MS = 1_000


def new_consumer(config: Mapping[str, object]) -> Consumer:
    """A consumer that is asked for offsets, and reads nothing."""
    from pykclient.consumer.kafka_consumer import KafkaConsumer

    return KafkaConsumer(config)


class KafkaOffsetReader:
    """Asks for offsets with a consumer of its own, made when it is first needed.

    Each question is asked ``fetchOffset.numRetries`` times, ``fetchOffset.retryIntervalMs`` apart, each time with new
    connections; then KafkaError says what was tried. It comes at once for what asking again does not change.

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

    def close(self) -> None:
        """Close the connections. The next question opens new ones."""
        consumer, self._consumer = self._consumer, None
        if consumer is not None:
            consumer.close(timeout_ms=_CLOSE_TIMEOUT_MS)

    # --- batch queries

    def batch_ranges(self, bounds: Bounds | None = None) -> list[OffsetRange]:
        """What a batch reads, in order of partitions, empty ranges left out; as of now, and within ``bounds``.

        Unlike Spark's own source, whose executors look up "latest" when they come to read it, all of a batch is decided
        here, so that tasks that are repeated read the same.

        Raises IllegalStateError for offsets that do not fit to the partitions that there are, or to each other,
        KafkaError where the cluster does not answer.
        """
        return self._with_retries("the offsets to read", lambda consumer: self._batch_ranges(consumer, bounds))

    def _batch_ranges(self, consumer: Consumer, bounds: Bounds | None) -> list[OffsetRange]:
        partitions = self._partitions(consumer)
        starting, ending = self._options.starting, self._options.ending
        _check_named(starting, partitions, "starting")
        _check_named(ending, partitions, "ending")
        if bounds is not None:
            partitions = {tp for tp in partitions if bounds.allows(tp)}
        # Ends come first: a record that a later look-up of times finds, or misses, then is behind them.
        asked = self._asked(consumer, ending, partitions)
        ends = self._resolved(consumer, asked)
        starts = self._resolved(consumer, self._asked(consumer, starting, partitions))
        if not isinstance(starting, SpecificOffsets):
            # So is a start that was found there. That is no contradiction but a partition with nothing to read yet.
            starts = {tp: min(start, ends[tp]) if asked[tp] == LATEST_OFFSET else start for tp, start in starts.items()}
        ranges = [OffsetRange(tp, starts[tp], ends[tp]) for tp in sorted(partitions)]
        if backwards := [each for each in ranges if each.start > each.end]:
            raise IllegalStateError(
                f"The batch would start behind its end in {', '.join(map(str, backwards))}: the starting offsets or "
                "timestamps are later than the ending ones or than the last record, or the topic was deleted and made "
                "anew; compare the starting and ending options with the offsets of the topic"
            )
        if bounds is not None:
            ranges = self._narrowed(consumer, ranges, bounds)
        return [each for each in ranges if each.size > 0]

    def _narrowed(self, consumer: Consumer, ranges: list[OffsetRange], bounds: Bounds) -> list[OffsetRange]:
        """``ranges`` without what filters of the query would drop anyway."""
        ranges = [each for each in bounds.apply(ranges) if each.size > 0]
        earliest_ms = bounds.first_timestamp_ms
        # Kafka takes negative times for words such as "latest".
        if earliest_ms is None or earliest_ms <= 0 or not ranges:
            return ranges
        found = consumer.offsets_for_times(dict.fromkeys((each.topic_partition for each in ranges), earliest_ms))
        narrowed = []
        for each in ranges:
            first = found.get(each.topic_partition)
            if first is not None:  # else all records of the partition are older
                narrowed.append(each._replace(start=max(each.start, first.offset)))
        return narrowed

    # --- streaming queries

    def initial_offsets(self) -> Offsets:
        """Where a new query starts.

        Raises IllegalStateError where the starting option names other partitions than there are, or where no record is
        as late as a timestamp and ``startingOffsetsByTimestampStrategy`` is error; KafkaError where the cluster does
        not answer.
        """

        def ask(consumer: Consumer) -> Offsets:
            partitions = self._partitions(consumer)
            _check_named(self._options.starting, partitions, "starting")
            return self._resolved(consumer, self._asked(consumer, self._options.starting, partitions))

        return self._with_retries("the offsets to start at", ask)

    def latest_offsets(self, known: Mapping[TopicPartition, int] | None = None) -> Offsets:
        """Where the partitions end now.

        A broker that has just become the leader may not know yet how far its log is readable. An offset before the one
        in ``known`` is so asked for again, up to ``fetchOffset.numRetries`` times, and believed then (KAFKA-7703).
        """
        return self._with_retries("the latest offsets", lambda consumer: self._latest_offsets(consumer, known or {}))

    def _latest_offsets(self, consumer: Consumer, known: Mapping[TopicPartition, int]) -> Offsets:
        partitions = self._partitions(consumer)
        for attempt in range(1, self._options.num_retries + 1):
            latest = consumer.end_offsets(partitions)
            back = sorted(tp for tp, offset in latest.items() if offset < known.get(tp, 0))
            if not back:
                break
            listed = ", ".join(f"{tp} from {known[tp]} to {latest[tp]}" for tp in back)
            _logger.warning("Offsets went back: %s (attempt %d)", listed, attempt)
            if attempt < self._options.num_retries:
                self._clock.sleep_ms(self._options.retry_interval_ms)
        return latest

    def earliest_offsets(self, partitions: Collection[TopicPartition]) -> Offsets:
        """Where those of ``partitions`` begin that there still are."""
        if not partitions:
            return {}

        def ask(consumer: Consumer) -> Offsets:
            there = self._partitions(consumer)
            return consumer.beginning_offsets([tp for tp in partitions if tp in there])

        return self._with_retries("the earliest offsets", ask)

    def stream_ranges(
        self, start: Mapping[TopicPartition, int], end: Mapping[TopicPartition, int]
    ) -> list[OffsetRange]:
        """What a micro-batch reads, in order of partitions, empty ranges left out.

        Partitions that only ``end`` has are new, and read from their beginning. Where records are lost (partitions of
        ``start`` that are gone, partitions that begin or end where they cannot) IllegalStateError is raised, or with
        ``failOnDataLoss`` off a warning logged.
        """
        new = end.keys() - start.keys()
        first = self.earliest_offsets(new)
        if first:
            _logger.info("New partitions: %s", ", ".join(f"{tp} from {first[tp]}" for tp in sorted(first)))
        if lost := new - first.keys():
            self._report_data_loss(f"the beginning of {_names(lost)} is not known, which may have been deleted")
        for tp in sorted(first):
            if first[tp] != 0:
                self._report_data_loss(f"the new partition {tp} starts at {first[tp]} instead of 0")
        if gone := start.keys() - end.keys():
            self._report_data_loss(f"{_names(gone)} {'is' if len(gone) == 1 else 'are'} gone")
        ranges = []
        for tp in sorted(end):
            begin = start.get(tp, first.get(tp))
            if begin is None:
                continue
            if end[tp] < begin:
                self._report_data_loss(
                    f"{tp} ends at {end[tp]} but was read up to {begin}; it was deleted and made anew, or the query "
                    "was started behind its end"
                )
            ranges.append(OffsetRange(tp, begin, end[tp]))
        return [each for each in ranges if each.size > 0]

    def _report_data_loss(self, what: str) -> None:
        if self._options.fail_on_data_loss:
            raise IllegalStateError(
                f"Records may be lost: {what}. They were aged out, or their topic was deleted or made anew, before the "
                "query read them. If it is to go on with what there is, set the option failOnDataLoss to false"
            )
        _logger.warning("Records may be lost: %s. The query goes on, as failOnDataLoss is false", what)

    # --- partitions and offsets

    def _partitions(self, consumer: Consumer) -> set[TopicPartition]:
        """The partitions that the query reads, as the cluster knows them now; never those of Kafka's own topics."""
        from pykclient.consumer.kafka_consumer import INTERNAL_TOPICS

        topics = self._options.topics
        if isinstance(topics, SubscribePattern):
            found = {name: infos for name, infos in consumer.list_topics().items() if topics.matches(name)}
        else:
            assert isinstance(topics, (Subscribe, Assign))
            found = consumer.list_topics(topics=topics.names)
            if unknown := [name for name in topics.names if name not in found]:
                raise UnknownTopicOrPartitionError(f"there is no topic {_names(unknown)}, or it must not be described")
        there = {
            TopicPartition(info.topic, info.partition)
            for name, infos in found.items()
            if name not in INTERNAL_TOPICS
            for info in infos
        }
        if not isinstance(topics, Assign):
            return there
        # As in Spark they may come later; until then nothing tells but this.
        if missing := {*topics.topic_partitions} - there - self._reported_missing:
            _logger.warning("option assign names partitions that are not there: %s", _names(missing))
            self._reported_missing |= missing
        return there.intersection(topics.topic_partitions)

    def _asked(self, consumer: Consumer, limit: OffsetLimit, partitions: Collection[TopicPartition]) -> Offsets:
        """What ``limit`` says of each of ``partitions``: an offset, or one of those that stand for begin and end."""
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
        """The offset that this is in each partition."""
        offsets = dict(asked)
        if earliest := [tp for tp, offset in asked.items() if offset == EARLIEST_OFFSET]:
            offsets |= consumer.beginning_offsets(earliest)
        if latest := [tp for tp, offset in asked.items() if offset == LATEST_OFFSET]:
            offsets |= consumer.end_offsets(latest)
        return offsets

    # --- asking again

    def _with_retries(self, what: str, ask: Callable[[Consumer], _T]) -> _T:
        start_ms = self._clock.now_ms()
        attempt = 1
        while True:
            try:
                if self._consumer is None:
                    self._consumer = self._new_consumer(self._options.driver_config())
                return ask(self._consumer)
            except IllegalStateError:  # of what was found, not of the asking
                self.close()
                raise
            except KafkaError as error:
                # A client whose picture of the cluster is wrong may keep it; a new one has none.
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
                        "topics; more tries are made with the options fetchOffset.numRetries and "
                        "fetchOffset.retryIntervalMs"
                    ) from error
                _logger.warning("Attempt %d to get %s failed after %d ms: %s", attempt, what, took_ms, error)
            attempt += 1
            self._clock.sleep_ms(self._options.retry_interval_ms)


def _offsets_at(consumer: Consumer, times: Mapping[TopicPartition, int], when_none: WhenNone) -> Offsets:
    """The first record at or after each of ``times``."""
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
    """Raise IllegalStateError unless a limit that has partitions has all that there are, and no others."""
    if isinstance(limit, SpecificOffsets):
        named, option = limit.offsets.keys(), f"{side}Offsets"
        advice = "-1 stands for the latest offset, -2 for the earliest"
    elif isinstance(limit, SpecificTimestamps):
        named, option = limit.timestamps_ms.keys(), f"{side}OffsetsByTimestamp"
        advice = "each partition needs a timestamp"
    else:
        return
    problems = []
    if missing := partitions - named:
        problems.append(f"{_names(missing)} missing")
    if extra := named - partitions:
        problems.append(f"{_names(extra)} not there, or not subscribed to")
    if problems:
        raise IllegalStateError(
            f"Option {option} must name all partitions that the query reads, and no others: "
            f"{'; '.join(problems)}. Partitions may also have been added or deleted meanwhile. ({advice})"
        )


def _names(named: Iterable[object]) -> str:
    return ", ".join(sorted(map(str, named)))
