"""The driver's requests: their results on a cluster, and their handling of given answers."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Iterable, Mapping
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import pytest

from pykclient.errors import (
    ConfigError,
    IllegalStateError,
    InvalidTopicError,
    KafkaError,
    KafkaTimeoutError,
    SaslAuthenticationError,
    TopicAuthorizationError,
    UnknownTopicOrPartitionError,
    UnsupportedVersionError,
)
from pykclient.spark.filters import Bounds
from pykclient.spark.offset_reader import KafkaOffsetReader
from pykclient.spark.offsets import Offsets
from pykclient.spark.options import ReadOptions
from pykclient.spark.ranges import OffsetRange
from pykclient.types import OffsetAndTimestamp, PartitionInfo, TopicDescription, TopicPartition
from tests.support.any_kafka import AnyKafka, StartKafka
from tests.support.mock_clock import MockClock

T0, T1, T2 = (TopicPartition("t", partition) for partition in range(3))


def options(streaming: bool = False, servers: str = "127.0.0.1:1", /, **given: str) -> ReadOptions:
    given = {name.replace("__", "."): value for name, value in given.items()}
    if not {"subscribe", "subscribePattern", "assign"} & given.keys():
        given["subscribe"] = "t"
    return ReadOptions.parse({"kafka.bootstrap.servers": servers, **given}, streaming=streaming)


# --- on a cluster ----------------------------------------------------------------------------------------------------


class Topic:
    """A topic on a cluster, and its readers."""

    def __init__(self, kafka: AnyKafka, name: str, partitions: int) -> None:
        self.kafka = kafka
        self.name = kafka.create_topic(name, partitions)

    def __getitem__(self, partition: int) -> TopicPartition:
        return TopicPartition(self.name, partition)

    def produce(self, partition: int, timestamps_ms: Iterable[int]) -> None:
        from confluent_kafka import Producer

        failed: list[object] = []
        producer = Producer({"bootstrap.servers": self.kafka.bootstrap_servers, "log_level": 0})
        for timestamp_ms in timestamps_ms:
            producer.produce(
                self.name,
                b"value",
                partition=partition,
                timestamp=timestamp_ms,
                on_delivery=lambda error, _: failed.append(error),
            )
        assert producer.flush(30.0) == 0
        assert not any(failed)

    def delete_before(self, partition: int, offset: int) -> None:
        from confluent_kafka import TopicPartition as Partition
        from confluent_kafka.admin import AdminClient

        admin = AdminClient({"bootstrap.servers": self.kafka.bootstrap_servers, "log_level": 0})
        for future in admin.delete_records([Partition(self.name, partition, offset)]).values():
            future.result(30.0)

    def reader(self, streaming: bool = False, /, **given: str) -> KafkaOffsetReader:
        given = (
            {"subscribe": self.name, **given} if "assign" not in given and "subscribePattern" not in given else given
        )
        return KafkaOffsetReader(options(streaming, self.kafka.bootstrap_servers, **given))

    def batch(self, bounds: Bounds | None = None, /, **given: str) -> list[tuple[int, int, int]]:
        """Return partition, start and end of each range of a batch."""
        reader = self.reader(**given)
        try:
            return [(each.topic_partition.partition, each.start, each.end) for each in reader.batch_ranges(bounds)]
        finally:
            reader.close()

    def start(self, **given: str) -> dict[int, int]:
        """Return the offsets at which a stream starts, by partition."""
        reader = self.reader(True, **given)
        try:
            return {tp.partition: offset for tp, offset in reader.initial_offsets().items()}
        finally:
            reader.close()

    def json(self, partitions: Mapping[int, int]) -> str:
        return f'{{"{self.name}":{{{",".join(f"{chr(34)}{p}{chr(34)}:{n}" for p, n in partitions.items())}}}}}'


@pytest.fixture
def filled(any_kafka: AnyKafka, topic: str) -> Topic:
    """Three partitions: 2 records deleted and 8 left, a second apart; 4 records out of order; none."""
    made = Topic(any_kafka, topic, 3)
    made.produce(0, [1_000 * second for second in range(1, 11)])
    made.delete_before(0, 2)
    made.produce(1, [1_000, 5_000, 2_000, 9_000])
    return made


class TestOnCluster:
    def test_batch_reads_everything_by_default(self, filled: Topic) -> None:
        assert filled.batch() == [(0, 2, 10), (1, 0, 4)]

    def test_batch_reads_between_offset_limits(self, filled: Topic) -> None:
        assert filled.batch(startingOffsets=filled.json({0: 5, 1: -2, 2: 0})) == [(0, 5, 10), (1, 0, 4)]
        ends = filled.json({0: 7, 1: -1, 2: -1})
        assert filled.batch(endingOffsets=ends) == [(0, 2, 7), (1, 0, 4)]
        assert filled.batch(startingOffsets=filled.json({0: 5, 1: 4, 2: 0}), endingOffsets=ends) == [(0, 5, 7)]
        # Tasks detect offsets before the first record: only they know if these are lost.
        assert filled.batch(startingOffsets=filled.json({0: 1, 1: 0, 2: 0})) == [(0, 1, 10), (1, 0, 4)]

    def test_batch_reads_between_time_limits(self, filled: Topic) -> None:
        assert filled.batch(startingTimestamp="5000", startingOffsetsByTimestampStrategy="latest") == [
            (0, 4, 10),
            (1, 1, 4),
        ]
        assert filled.batch(endingTimestamp="5000") == [(0, 2, 4), (1, 0, 1)]
        assert filled.batch(endingTimestamp="10001") == [(0, 2, 10), (1, 0, 4)]
        by_partition = filled.json({0: 9_000, 1: 1, 2: 7})
        assert filled.batch(startingOffsetsByTimestamp=by_partition, startingOffsetsByTimestampStrategy="latest") == [
            (0, 8, 10),
            (1, 0, 4),
        ]
        with pytest.raises(IllegalStateError, match=rf"{filled.name}-2 \(5000\).*startingOffsetsByTimestampStrategy"):
            filled.batch(startingTimestamp="5000")

    def test_start_after_the_end_is_refused(self, filled: Topic) -> None:
        with pytest.raises(IllegalStateError, match=rf"after its end in {filled.name}-0 \[11, 10\)"):
            filled.batch(startingOffsets=filled.json({0: 11, 1: 0, 2: 0}))

    @pytest.mark.parametrize("side", ["starting", "ending"])
    @pytest.mark.parametrize("by", ["Offsets", "OffsetsByTimestamp"])
    def test_limits_must_name_all_partitions(self, filled: Topic, side: str, by: str) -> None:
        with pytest.raises(
            IllegalStateError, match=rf"^Option {side}{by} .*{filled.name}-2 missing; {filled.name}-5 unknown"
        ):
            filled.batch(**{f"{side}{by}": filled.json({0: 3, 1: 3, 5: 3})})

    def test_bounds_narrow_the_ranges_of_a_batch(self, filled: Topic) -> None:
        bounds = Bounds(partition_rules=(("EqualTo", False, 0),), first_offset=3, last_offset=8)
        assert filled.batch(bounds) == [(0, 3, 9)]
        # Timestamps move the start, and exclude partitions with older records only. They never move the end.
        assert filled.batch(Bounds(first_timestamp_ms=5_000, last_timestamp_ms=6_000)) == [(0, 4, 10), (1, 1, 4)]
        assert filled.batch(Bounds(first_timestamp_ms=9_500)) == [(0, 9, 10)]
        assert filled.batch(Bounds(first_timestamp_ms=9_000, last_offset=8)) == [(0, 8, 9), (1, 3, 4)]
        starts = filled.json({0: 6, 1: 0, 2: 0})
        assert filled.batch(Bounds(first_timestamp_ms=5_000), startingOffsets=starts) == [(0, 6, 10), (1, 1, 4)]
        assert filled.batch(Bounds(first_timestamp_ms=-5)) == [(0, 2, 10), (1, 0, 4)]
        assert filled.batch(Bounds(topic_rules=(("StringStartsWith", True, filled.name),))) == []

    def test_stream_starts_at_the_configured_offsets(self, filled: Topic) -> None:
        assert filled.start() == {0: 10, 1: 4, 2: 0}
        assert filled.start(startingOffsets="earliest") == {0: 2, 1: 0, 2: 0}
        assert filled.start(startingOffsets=filled.json({0: -1, 1: -2, 2: 0})) == {0: 10, 1: 0, 2: 0}
        late = {"startingTimestamp": "9001", "startingOffsetsByTimestampStrategy": "LATEST"}
        assert filled.start(**late) == {0: 9, 1: 4, 2: 0}
        with pytest.raises(IllegalStateError, match="No record is as late"):
            filled.start(startingTimestamp="9001")

    def test_new_partitions_and_topics_are_noticed(self, filled: Topic, any_kafka: AnyKafka) -> None:
        from confluent_kafka.admin import AdminClient, NewPartitions  # type: ignore[attr-defined]

        reader = filled.reader(True, subscribePattern=f"{filled.name}.*")
        before = reader.latest_offsets()
        assert before == {filled[0]: 10, filled[1]: 4, filled[2]: 0}
        admin = AdminClient({"bootstrap.servers": any_kafka.bootstrap_servers, "log_level": 0})
        admin.create_partitions([NewPartitions(filled.name, 4)])[filled.name].result(30.0)
        other = any_kafka.create_topic(f"{filled.name}-other", 1)
        any_kafka._await_topic(filled.name, 4)
        filled.produce(3, [1_000, 2_000])
        after = reader.latest_offsets(before)
        assert after == {**before, filled[3]: 2, TopicPartition(other, 0): 0}
        assert reader.earliest_offsets([filled[3], TopicPartition("gone", 0)]) == {filled[3]: 0}
        (new,) = reader.stream_ranges(before, after)
        assert new[:3] == (filled[3], 0, 2)
        assert new.topic_id is not None
        any_kafka.delete_topic(other)
        assert reader.latest_offsets(after).keys() == after.keys() - {TopicPartition(other, 0)}
        reader.close()

    def test_assign_skips_missing_ones(self, filled: Topic, caplog: pytest.LogCaptureFixture) -> None:
        assigned = f'{{"{filled.name}":[1,2,9]}}'
        assert filled.batch(assign=assigned) == [(1, 0, 4)]
        reader = filled.reader(True, assign=assigned)
        caplog.clear()
        for _ in range(2):
            assert reader.latest_offsets() == {filled[1]: 4, filled[2]: 0}
        assert caplog.messages == [f"Option assign names partitions that do not exist: {filled.name}-9"]
        reader.close()

    def test_missing_topic_is_an_error_after_retries(self, filled: Topic) -> None:
        retries = {"fetchOffset__numRetries": "2", "fetchOffset__retryIntervalMs": "1"}
        expected = (
            rf"latest offsets of topics {filled.name}, {filled.name}-x from Kafka, tried 2 times in .*"
            rf"topic {filled.name}-x does not exist"
        )
        reader = filled.reader(subscribe=f"{filled.name},{filled.name}-x", **retries)
        with pytest.raises(KafkaError, match=expected):
            reader.latest_offsets()
        assert filled.batch(subscribePattern=f"^{filled.name}-x") == []

    def test_kafkas_own_topics_are_not_read(self, filled: Topic, any_kafka: AnyKafka) -> None:
        from confluent_kafka import Consumer, TopicPartition as Partition

        consumer = Consumer({"bootstrap.servers": any_kafka.bootstrap_servers, "group.id": filled.name})
        consumer.commit(offsets=[Partition(filled.name, 0, 1)], asynchronous=False)  # creates __consumer_offsets
        consumer.close()
        reader = filled.reader(True, subscribePattern=f"__consumer_offsets|^{filled.name}$")
        assert {tp.topic for tp in reader.latest_offsets()} == {filled.name}
        reader.close()


def test_offsets_are_retried_while_the_cluster_is_down(start_kafka: StartKafka, topic: str) -> None:
    """A query retries until it gets an answer, or says what it tried."""
    with start_kafka({}) as kafka:
        filled = Topic(kafka, topic, 1)
        filled.produce(0, [1, 2, 3])
        timeouts = {"default.api.timeout.ms": "500", "request.timeout.ms": "400", "fetch.max.wait.ms": "300"}
        impatient = {"kafka__" + key.replace(".", "__"): value for key, value in timeouts.items()}
        reader = filled.reader(True, fetchOffset__retryIntervalMs="100", fetchOffset__numRetries="3", **impatient)
        assert reader.latest_offsets() == {filled[0]: 3}
        (broker,) = kafka.brokers.values()
        broker.kill()
        expected = rf"latest offsets of topic {topic} from Kafka, tried 3 times in \d+ ms: .*{broker.port}.*refused"
        with pytest.raises(KafkaError, match=expected):
            reader.latest_offsets()
        starting = threading.Thread(target=broker.start)
        starting.start()
        patient = filled.reader(True, fetchOffset__retryIntervalMs="100", fetchOffset__numRetries="200", **impatient)
        assert patient.latest_offsets() == {filled[0]: 3}
        starting.join()
        assert reader.latest_offsets() == {filled[0]: 3}
        reader.close()
        patient.close()


def test_offsets_survive_the_death_of_a_broker(any_cluster: AnyKafka, topic: str) -> None:
    filled = Topic(any_cluster, topic, 3)
    for partition in range(3):
        filled.produce(partition, [1, 2, 3])
    reader = filled.reader(True, startingOffsets="earliest")
    latest = reader.latest_offsets()
    assert sorted(latest.values()) == [3, 3, 3]
    any_cluster.brokers[any_cluster.leader_of(topic, 0)].kill()
    assert reader.latest_offsets(latest) == latest
    assert reader.initial_offsets() == dict.fromkeys(latest, 0)
    reader.close()


# --- on answers ------------------------------------------------------------------------------------------------------

Ends = list[Offsets | Exception]


class Answers:
    """A consumer with given answers. Exceptions among them are raised."""

    #: Of every topic; None as with old brokers.
    topic_id: UUID | None = None

    def __init__(self, ends: Ends, begins: Offsets | None = None, times: Mapping[TopicPartition, int] | None = None):
        self.ends = ends
        self.begins = begins or {}
        self.times = times or {}
        self.closed = False

    def describe_topics(self, *, topics: Collection[str] | None = None) -> dict[str, TopicDescription]:
        known = {T0: 0, **self.begins, **{tp: 0 for end in self.ends if isinstance(end, dict) for tp in end}}
        found: dict[str, TopicDescription] = {}
        for tp in known:
            topic = found.setdefault(tp.topic, TopicDescription(tp.topic, self.topic_id, False, []))
            topic.partitions.append(PartitionInfo(tp.topic, tp.partition, None, (), ()))
        return found

    def end_offsets(self, partitions: Collection[TopicPartition]) -> Offsets:
        answer = self.ends.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return {tp: answer[tp] for tp in partitions}

    def beginning_offsets(self, partitions: Collection[TopicPartition]) -> Offsets:
        return {tp: self.begins[tp] for tp in partitions}

    def offsets_for_times(self, times: Mapping[TopicPartition, int]) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        return {tp: OffsetAndTimestamp(self.times[tp], 0) if tp in self.times else None for tp in times}

    def close(self, timeout_ms: int) -> None:
        self.closed = True


def answering(
    ends: Ends, begins: Offsets | None = None, **given: str
) -> tuple[KafkaOffsetReader, list[Answers], MockClock]:
    """Return a stream's reader whose consumers share ``ends``, these consumers, and its clock."""
    made: list[Answers] = []
    clock = MockClock()

    def new(config: Mapping[str, object]) -> Any:
        made.append(Answers(ends, begins))
        return made[-1]

    return KafkaOffsetReader(options(True, **given), clock, new), made, clock


class TestAskingAgain:
    def test_retries_use_new_connections_after_a_pause(self) -> None:
        reader, made, clock = answering([KafkaTimeoutError("no answer"), {T0: 5}])
        start_ms = clock.now_ms()
        assert reader.latest_offsets() == {T0: 5}
        assert [consumer.closed for consumer in made] == [True, False]
        assert clock.now_ms() - start_ms == 1_000

    def test_num_retries_bounds_attempts_and_the_error_says_so(self) -> None:
        ends: Ends = [KafkaTimeoutError(f"no answer {n}") for n in range(4)]
        reader, made, _ = answering([*ends, {T0: 1}], fetchOffset__numRetries="4", fetchOffset__retryIntervalMs="10ms")
        with pytest.raises(
            KafkaError, match=r"latest offsets of topic t from Kafka, tried 4 times in 30 ms: no answer 3"
        ):
            reader.latest_offsets()
        assert len(made) == 4
        assert all(consumer.closed for consumer in made)
        assert reader.latest_offsets() == {T0: 1}  # the next request starts again

    @pytest.mark.parametrize(
        ("error", "advice"),
        [
            (TopicAuthorizationError("not allowed"), "ACLs DESCRIBE and READ"),
            (InvalidTopicError("bad name"), "topic names consist of"),
            (UnsupportedVersionError("too old"), "newer brokers"),
            (SaslAuthenticationError("who are you"), "kafka.sasl"),
        ],
    )
    def test_permanent_errors_are_not_retried(self, error: KafkaError, advice: str) -> None:
        reader, made, _ = answering([error, {T0: 1}])
        expected = (
            rf"^Could not get the latest offsets of topic t from Kafka: {type(error).__name__}: {error} \(.*{advice}"
        )
        with pytest.raises(KafkaError, match=expected) as caught:
            reader.latest_offsets()
        assert caught.value.__cause__ is error
        assert len(made) == 1
        assert made[0].closed

    def test_unresolved_bootstrap_names_are_retried(self) -> None:
        """Brokers may be starting, or the name service may be unavailable for a moment."""
        answers: list[Any] = [ConfigError("no such name"), Answers([{T0: 5}, KafkaTimeoutError("no answer")])]
        answers += [ConfigError("no such name"), Answers([{T0: 6}])]

        def new(_: Mapping[str, object]) -> Any:
            answer = answers.pop(0)
            if isinstance(answer, Exception):
                raise answer
            return answer

        reader = KafkaOffsetReader(options(True), MockClock(), new)
        assert reader.latest_offsets() == {T0: 5}
        assert reader.latest_offsets() == {T0: 6}

    def test_failure_to_create_the_consumer_is_reported(self) -> None:
        def new(_: Mapping[str, object]) -> Any:
            raise KafkaError("no such host")

        reader = KafkaOffsetReader(options(fetchOffset__numRetries="1"), MockClock(), new)
        with pytest.raises(KafkaError, match=r"offsets to read .* tried once in 0 ms: no such host"):
            reader.batch_ranges()

    def test_programming_errors_are_not_hidden(self) -> None:
        reader, made, _ = answering([ZeroDivisionError()])
        with pytest.raises(ZeroDivisionError):
            reader.latest_offsets()
        assert len(made) == 1

    def test_closed_reader_can_be_used_again(self) -> None:
        reader, made, _ = answering([{T0: 1}, {T0: 2}])
        reader.close()
        assert reader.latest_offsets() == {T0: 1}
        reader.close()
        assert made[0].closed
        assert reader.latest_offsets() == {T0: 2}
        assert len(made) == 2


class TestOffsetsThatGoBack:
    def test_lower_offsets_are_requested_again(self) -> None:
        reader, made, clock = answering([{T0: 5, T1: 9}, {T0: 8, T1: 9}], fetchOffset__retryIntervalMs="7")
        start_ms = clock.now_ms()
        assert reader.latest_offsets({T0: 8, T1: 9}) == {T0: 8, T1: 9}
        assert clock.now_ms() - start_ms == 7
        assert len(made) == 1  # a new client would be more likely to meet the stale broker again

    def test_lower_offsets_are_accepted_after_all_attempts(self, caplog: pytest.LogCaptureFixture) -> None:
        reader, _, clock = answering([{T0: 5}, {T0: 5}, {T0: 5}, {T0: 8}])
        start_ms = clock.now_ms()
        with caplog.at_level(logging.WARNING):
            assert reader.latest_offsets({T0: 8}) == {T0: 5}
        assert clock.now_ms() - start_ms == 2_000
        assert "Offsets went back: t-0 from 8 to 5 (attempt 3)" in caplog.text

    def test_new_partitions_do_not_count_as_going_back(self) -> None:
        reader, _, clock = answering([{T0: 5, T1: 0}])
        start_ms = clock.now_ms()
        assert reader.latest_offsets({T0: 5, T2: 3}) == {T0: 5, T1: 0}
        assert clock.now_ms() == start_ms


class TestStreamRanges:
    def test_ranges_lie_between_two_offsets(self) -> None:
        reader, made, _ = answering([])
        ranges = reader.stream_ranges({T1: 3, T0: 1, T2: 4}, {T1: 5, T0: 9, T2: 4})
        assert ranges == [OffsetRange(T0, 1, 9), OffsetRange(T1, 3, 5)]
        assert len(made) == 1  # for the ids of the topics, and once
        assert reader.stream_ranges({T0: 9}, {T0: 12}) == [OffsetRange(T0, 9, 12)]

    def test_new_partitions_start_at_their_beginning(self) -> None:
        reader, _, _ = answering([], {T0: 0, T1: 0})
        assert reader.stream_ranges({T0: 2}, {T0: 2, T1: 7}) == [OffsetRange(T1, 0, 7)]

    LOSSES: tuple[tuple[Offsets, Offsets, Offsets, str, list[OffsetRange]], ...] = (
        ({T0: 1}, {T0: 2, T1: 9}, {T1: 4}, "the new partition t-1 starts at 4 instead of 0", [
            OffsetRange(T0, 1, 2), OffsetRange(T1, 4, 9)]),
        ({T0: 1}, {T0: 2, T1: 9}, {T0: 0}, "the first offset of t-1 is unknown", [OffsetRange(T0, 1, 2)]),
        ({T0: 1, T2: 3, T1: 4}, {T0: 2}, {}, "t-1, t-2 do not exist any more", [OffsetRange(T0, 1, 2)]),
        ({T0: 1, T1: 9}, {T0: 2, T1: 5}, {}, "t-1 ends at 5 but was read up to 9", [OffsetRange(T0, 1, 2)]),
    )  # fmt: skip

    @pytest.mark.parametrize(("start", "end", "begins", "loss", "_"), LOSSES)
    def test_data_loss_fails_the_query(self, start: Offsets, end: Offsets, begins: Offsets, loss: str, _: Any) -> None:
        reader, _, _ = answering([], begins)
        with pytest.raises(IllegalStateError, match=rf"^Records may be lost: {loss}.*failOnDataLoss to false"):
            reader.stream_ranges(start, end)

    @pytest.mark.parametrize(("start", "end", "begins", "loss", "left"), LOSSES)
    def test_allowed_data_loss_is_logged_as_a_warning(
        self,
        start: Offsets,
        end: Offsets,
        begins: Offsets,
        loss: str,
        left: list[OffsetRange],
        caplog: pytest.LogCaptureFixture,
    ) -> None:
        reader, _, _ = answering([], begins, failOnDataLoss="false")
        with caplog.at_level(logging.WARNING):
            assert reader.stream_ranges(start, end) == left
        assert f"Records may be lost: {loss}" in caplog.text


class TestTopicsThatAreCreatedAgain:
    """A topic that has another id under its name."""

    OLD, NEW = UUID(int=1), UUID(int=2)

    def lost(self, monkeypatch: pytest.MonkeyPatch, ends: Ends, **given: str) -> KafkaOffsetReader:
        """Return a stream's reader that has seen the old topic, with records up to 100."""
        monkeypatch.setattr(Answers, "topic_id", self.OLD)
        reader, _, _ = answering([{T0: 100}, *ends], {T0: 0}, **given)
        assert reader.latest_offsets() == {T0: 100}
        monkeypatch.setattr(Answers, "topic_id", self.NEW)
        return reader

    def test_ranges_contain_topic_ids(self, monkeypatch: pytest.MonkeyPatch) -> None:
        reader = self.lost(monkeypatch, [])
        assert reader.stream_ranges({T0: 5}, {T0: 100}) == [OffsetRange(T0, 5, 100, self.OLD)]
        consumer: Any = Answers([{T0: 9}], {T0: 2})
        make: Callable[[Mapping[str, object]], Any] = lambda _: consumer  # noqa: E731
        assert KafkaOffsetReader(options(), MockClock(), make).batch_ranges() == [OffsetRange(T0, 2, 9, self.NEW)]

    @pytest.mark.parametrize("end", [30, 100, 150], ids=["smaller", "of the same size", "larger"])
    def test_recreated_topics_fail_the_query(self, monkeypatch: pytest.MonkeyPatch, end: int) -> None:
        """Spark's own source notices the smaller one only."""
        reader = self.lost(monkeypatch, [{T0: end}] * 3)
        for _ in range(2):
            with pytest.raises(IllegalStateError, match=rf"topic t was deleted and created again .*{self.NEW} now\)"):
                reader.latest_offsets({T0: 100})

    @pytest.mark.parametrize("end", [30, 100, 150], ids=["smaller", "of the same size", "larger"])
    def test_recreated_topics_are_read_from_their_beginning(
        self, monkeypatch: pytest.MonkeyPatch, end: int, caplog: pytest.LogCaptureFixture
    ) -> None:
        reader = self.lost(monkeypatch, [{T0: end}, {T0: end + 5}], failOnDataLoss="false")
        with caplog.at_level(logging.WARNING):
            assert reader.latest_offsets({T0: 100}) == {T0: end}
            assert caplog.text.count("Records may be lost: topic t was deleted and created again") == 1
            for _ in range(2):  # a micro-batch that is planned twice has the same ranges
                ranges = reader.stream_ranges({T0: 100, T1: 7}, {T0: end, T1: 7})
                assert ranges[0] == OffsetRange(T0, 0, end, self.NEW)
            assert reader.latest_offsets({T0: end}) == {T0: end + 5}
            assert reader.stream_ranges({T0: end}, {T0: end + 5}) == [OffsetRange(T0, end, end + 5, self.NEW)]
        assert caplog.text.count("Records may be lost") == 1

    def test_lagging_broker_changes_nothing(
        self, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        reader = self.lost(monkeypatch, [{T0: 30}, {T0: 31}, {T0: 32}], failOnDataLoss="false")
        with caplog.at_level(logging.WARNING):
            for offset, topic_id in ((30, self.NEW), (31, self.OLD), (32, self.NEW)):
                monkeypatch.setattr(Answers, "topic_id", topic_id)
                assert reader.latest_offsets() == {T0: offset}
        assert caplog.text.count("Records may be lost") == 1

    def test_returning_partitions_count_as_new(
        self, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        """The query has continued without the topic, after a warning."""
        reader = self.lost(monkeypatch, [{T0: 30}], failOnDataLoss="false")
        with caplog.at_level(logging.WARNING):
            assert reader.stream_ranges({T0: 100}, {}) == []
            assert "t-0 does not exist any more" in caplog.text
            caplog.clear()
            assert reader.latest_offsets({}) == {T0: 30}
            assert reader.stream_ranges({}, {T0: 30}) == [OffsetRange(T0, 0, 30, self.NEW)]
        assert not caplog.records


def test_ends_are_requested_before_times() -> None:
    """A record appended in between is after the end, so its timestamp does not matter."""
    order: list[str] = []

    class Ordered(Answers):
        def end_offsets(self, partitions: Collection[TopicPartition]) -> Offsets:
            order.append("end")
            return super().end_offsets(partitions)

        def offsets_for_times(self, times: Mapping[TopicPartition, int]) -> Any:
            order.append("times")
            return super().offsets_for_times(times)

    consumer: Any = Ordered([{T0: 9, T1: 9}], {T0: 0, T1: 0}, {T0: 6})
    make: Callable[[Mapping[str, object]], Any] = lambda _: consumer  # noqa: E731
    bounds = Bounds(first_timestamp_ms=int(datetime(2026, 1, 1, tzinfo=UTC).timestamp()) * 1_000)
    assert KafkaOffsetReader(options(), MockClock(), make).batch_ranges(bounds) == [OffsetRange(T0, 6, 9)]
    assert order == ["end", "times"]


@pytest.mark.parametrize("found", [{}, {T0: 12}])
def test_batch_excludes_records_that_arrive_during_planning(found: Offsets) -> None:
    """And it does not move the start behind the end, whether or not its timestamp is late enough."""
    consumer: Any = Answers([{T0: 10}, {T0: 13}], times=found)
    make: Callable[[Mapping[str, object]], Any] = lambda _: consumer  # noqa: E731
    given = options(startingTimestamp="5000", startingOffsetsByTimestampStrategy="latest")
    assert KafkaOffsetReader(given, MockClock(), make).batch_ranges() == []


def test_start_time_after_end_time_is_refused() -> None:
    class Times(Answers):
        def offsets_for_times(self, times: Mapping[TopicPartition, int]) -> dict[TopicPartition, Any]:
            return {tp: OffsetAndTimestamp(time, time) for tp, time in times.items()}

    make: Callable[[Mapping[str, object]], Any] = lambda _: Times([{T0: 10}])  # noqa: E731
    with pytest.raises(IllegalStateError, match=r"after its end in t-0 \[8, 3\)"):
        KafkaOffsetReader(options(startingTimestamp="8", endingTimestamp="3"), MockClock(), make).batch_ranges()


def test_missing_topic_error_names_the_topic() -> None:
    reader, _, _ = answering([{T0: 1}], subscribe="t,u", fetchOffset__numRetries="1")
    with pytest.raises(KafkaError, match="topic u does not exist") as caught:
        reader.latest_offsets()
    assert isinstance(caught.value.__cause__, UnknownTopicOrPartitionError)
