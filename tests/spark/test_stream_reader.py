"""The ends and ranges of micro-batches, for given offsets of a cluster."""

from __future__ import annotations

import json
import logging
import pickle
from collections.abc import Callable, Collection, Mapping
from typing import Any

import pytest
from hypothesis import given, strategies as st
from pyspark.sql.types import BinaryType, StructField, StructType

from pykclient import KafkaProducer
from pykclient.admin import Admin
from pykclient.errors import ConfigError, IllegalStateError
from pykclient.protocol.api_keys import ApiKeys
from pykclient.spark import stream_reader
from pykclient.spark.batch_reader import KafkaInputPartition
from pykclient.spark.ranges import OffsetRange
from pykclient.spark.stream_reader import KafkaStreamReader
from pykclient.testing import EmbeddedCluster
from pykclient.types import TopicPartition
from tests.support.mock_clock import MockClock

pytest.importorskip(
    "pyspark.sql.streaming.datasource", reason="Spark 4.1 lets no Python data source limit a micro-batch"
)
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, ReadMinRows

VALUE = StructType([StructField("value", BinaryType())])
A0, A1, A2 = (TopicPartition("a", partition) for partition in range(3))
ALL = ReadAllAvailable()


class Cluster:
    """Stands in for a KafkaOffsetReader, and records its calls."""

    def __init__(self, latest: Mapping[TopicPartition, int]) -> None:
        self.latest = dict(latest)
        self.earliest = dict.fromkeys(latest, 0)
        self.initial: Callable[[], dict[TopicPartition, int]] = lambda: dict(self.latest)
        self.calls: list[str] = []
        self.closed = False

    def initial_offsets(self) -> dict[TopicPartition, int]:
        self.calls.append("initial")
        return self.initial()

    def latest_offsets(self, known: Mapping[TopicPartition, int] | None) -> dict[TopicPartition, int]:
        self.calls.append("latest")
        return dict(self.latest)

    def earliest_offsets(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        self.calls.append("earliest")
        return {tp: self.earliest[tp] for tp in partitions}

    def stream_ranges(
        self, start: Mapping[TopicPartition, int], end: Mapping[TopicPartition, int]
    ) -> list[OffsetRange]:
        self.calls.append("ranges")
        assert start.keys() <= end.keys()
        ranges = [OffsetRange(tp, start.get(tp, self.earliest[tp]), offset) for tp, offset in end.items()]
        assert all(each.start <= each.end for each in ranges)
        return ranges

    def close(self) -> None:
        self.closed = True


NewReader = Callable[..., KafkaStreamReader]


@pytest.fixture
def cluster() -> Cluster:
    return Cluster({A0: 10, A1: 100})


@pytest.fixture
def new_reader(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> NewReader:
    return maker(cluster, monkeypatch)


def maker(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> NewReader:
    monkeypatch.setattr("pykclient.spark.offset_reader.KafkaOffsetReader", lambda options: cluster)

    def new(clock: MockClock | None = None, **options: object) -> KafkaStreamReader:
        given = {"kafka.bootstrap.servers": "127.0.0.1:1", "subscribe": "a", **options}
        return KafkaStreamReader({name: str(value) for name, value in given.items()}, VALUE, clock or MockClock())

    return new


def next_batch(reader: KafkaStreamReader, start: Mapping[str, Any], limit: ReadLimit = ALL) -> dict[str, Any]:
    """Return the end of the next micro-batch, after conversion to JSON as for Spark."""
    return dict(json.loads(json.dumps(reader.latestOffset(start, limit))))


def ranges(reader: KafkaStreamReader, start: Mapping[str, Any], end: Mapping[str, Any]) -> list[OffsetRange]:
    planned = reader.partitions(start, end)
    assert all(isinstance(partition, KafkaInputPartition) for partition in planned)
    return [each for partition in planned if isinstance(partition, KafkaInputPartition) for each in partition.ranges]


# --- the start


def test_initial_offset_is_requested_once(cluster: Cluster, new_reader: NewReader) -> None:
    reader = new_reader(startingOffsets="latest")
    first = reader.initialOffset()
    cluster.latest[A0] += 5
    assert reader.initialOffset() == first == {"a": {"0": 10, "1": 100}}
    assert cluster.calls == ["initial"]


def test_stream_from_latest_has_an_empty_first_batch(cluster: Cluster, new_reader: NewReader) -> None:
    reader = new_reader(startingOffsets="latest")
    start = reader.initialOffset()
    cluster.latest[A0] += 5
    end = next_batch(reader, start)
    assert end == start
    assert ranges(reader, reader.initialOffset(), end) == []
    assert ranges(reader, end, next_batch(reader, end)) == [OffsetRange(A0, 10, 15)]


@pytest.mark.parametrize("new_records", [0, 7])
def test_query_that_died_in_its_first_batch_restarts_there(
    cluster: Cluster, new_reader: NewReader, new_records: int
) -> None:
    """Spark has stored the end of the first micro-batch, and asks for the initial offset again later."""
    before = new_reader(startingOffsets="latest")
    end = next_batch(before, before.initialOffset())
    cluster.latest[A0] += new_records
    reader = new_reader(startingOffsets="latest")
    assert ranges(reader, reader.initialOffset(), end) == []
    cluster.latest[A1] += 1
    assert next_batch(reader, end) == {"a": {"0": 10 + new_records, "1": 101}}


@pytest.mark.parametrize("starting", ["earliest", "latest"])
def test_partition_added_after_a_failed_first_batch_is_new(
    cluster: Cluster, new_reader: NewReader, starting: str
) -> None:
    """The initial offset has it by now, and the stored end does not. That is not data loss."""
    if starting == "earliest":
        cluster.initial = lambda: dict.fromkeys(cluster.latest, 0)
    before = new_reader(startingOffsets=starting)
    end = next_batch(before, before.initialOffset())
    cluster.latest[A2], cluster.earliest[A2] = 3, 0
    reader = new_reader(startingOffsets=starting)
    first = [] if starting == "latest" else [OffsetRange(A0, 0, 10), OffsetRange(A1, 0, 100)]
    for _ in range(2):
        assert ranges(reader, reader.initialOffset(), end) == first
    assert OffsetRange(A2, 0, 3) in ranges(reader, end, next_batch(reader, end))


def test_partitions_given_offsets_are_read_in_the_first_batch(cluster: Cluster, new_reader: NewReader) -> None:
    cluster.initial = lambda: {A0: cluster.latest[A0], A1: 40}
    reader = new_reader(startingOffsets='{"a":{"0":-1,"1":40}}')
    start = reader.initialOffset()
    cluster.latest = {A0: 12, A1: 101}
    assert next_batch(reader, start) == {"a": {"0": 10, "1": 101}}


def test_partitions_without_later_records_are_empty_at_first(cluster: Cluster, new_reader: NewReader) -> None:
    cluster.initial = lambda: {A0: cluster.latest[A0], A1: 40}
    options = {"startingTimestamp": 5, "startingOffsetsByTimestampStrategy": "latest"}
    reader = new_reader(**options)
    start = reader.initialOffset()
    cluster.latest = {A0: 12, A1: 101}
    end = next_batch(reader, start)
    assert end == {"a": {"0": 10, "1": 101}}
    again = new_reader(**options)
    assert ranges(again, again.initialOffset(), end) == [OffsetRange(A1, 40, 101)]


def test_first_batch_from_earliest_reads_everything(cluster: Cluster, new_reader: NewReader) -> None:
    cluster.initial = lambda: dict(cluster.earliest)
    reader = new_reader(startingOffsets="earliest")
    start = reader.initialOffset()
    end = next_batch(reader, start)
    assert ranges(reader, start, end) == [OffsetRange(A0, 0, 10), OffsetRange(A1, 0, 100)]


def test_spark_4_1_may_request_the_end_before_the_start(cluster: Cluster, new_reader: NewReader) -> None:
    reader = new_reader(startingOffsets="latest")
    end = reader.latestOffset()
    cluster.latest[A0] += 5
    start = reader.initialOffset()
    assert ranges(reader, start, end) == []
    assert ranges(reader, end, reader.latestOffset()) == [OffsetRange(A0, 10, 15)]


def test_limit_options_are_refused_without_read_limits(new_reader: NewReader, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream_reader, "HAS_READ_LIMITS", False)
    with pytest.raises(ConfigError, match=r"^options maxOffsetsPerTrigger and minOffsetsPerTrigger need Spark 4\.2"):
        new_reader(maxOffsetsPerTrigger=5).latestOffset()


# --- limits


@pytest.mark.parametrize(
    ("options", "limit"),
    [
        ({}, ReadAllAvailable()),
        ({"maxOffsetsPerTrigger": 7}, ReadMaxRows(7)),
        ({"minOffsetsPerTrigger": 3}, ReadMinRows(3)),
        ({"minOffsetsPerTrigger": 3, "maxOffsetsPerTrigger": 7}, ReadMaxRows(7)),
    ],
)
def test_spark_gets_one_limit(new_reader: NewReader, options: dict[str, object], limit: ReadLimit) -> None:
    assert new_reader(**options).getDefaultReadLimit() == limit


def test_maximum_is_divided_in_proportion(cluster: Cluster, new_reader: NewReader) -> None:
    cluster.initial = lambda: dict(cluster.earliest)
    reader = new_reader(startingOffsets="earliest", maxOffsetsPerTrigger=11)
    start = reader.initialOffset()
    first = next_batch(reader, start, ReadMaxRows(11))
    assert first == {"a": {"0": 1, "1": 10}}
    cluster.latest[A2] = 50
    cluster.earliest[A2] = 39
    assert next_batch(reader, first, ReadMaxRows(11)) == {"a": {"0": 2, "1": 19, "2": 40}}
    assert cluster.calls == ["initial", "latest", "latest", "earliest"]
    assert next_batch(reader, first, ALL) == {"a": {"0": 10, "1": 100, "2": 50}}


def test_too_few_records_wait_for_a_limited_time(cluster: Cluster, new_reader: NewReader) -> None:
    clock = MockClock()
    limits = {"minOffsetsPerTrigger": 20, "maxOffsetsPerTrigger": 100, "maxTriggerDelay": "10s"}
    reader = new_reader(clock, **limits)
    limit = reader.getDefaultReadLimit()
    start = {"a": {"0": 9, "1": 100}}
    first = next_batch(reader, start, limit)
    assert first == {"a": {"0": 10, "1": 100}}, "the first is not kept waiting"
    cluster.latest[A0] += 19
    clock.advance(9_999)
    assert next_batch(reader, first, limit) == first
    clock.advance(1)
    second = next_batch(reader, first, limit)
    assert second == {"a": {"0": 29, "1": 100}}
    cluster.latest[A1] += 120
    assert next_batch(reader, second, limit) == {"a": {"0": 29, "1": 200}}, "at once, and no more than the most"


def test_lag_is_logged(cluster: Cluster, new_reader: NewReader, caplog: pytest.LogCaptureFixture) -> None:
    reader = new_reader(maxOffsetsPerTrigger=11)
    start = {"a": {"0": 0, "1": 0}}
    with caplog.at_level(logging.INFO, logger="pykclient.spark"):
        end = next_batch(reader, start, ReadMaxRows(11))
        assert caplog.messages == ["Offsets behind latest: min 9, max 90, avg 49.5"]
        assert reader.reportLatestOffset() == {"a": {"0": 10, "1": 100}}
        caplog.clear()
        cluster.latest = {A0: 1, A1: 10}
        next_batch(reader, end, ReadMaxRows(11))
        assert not caplog.messages


def test_nothing_is_reported_before_the_first_offsets(new_reader: NewReader) -> None:
    assert new_reader().reportLatestOffset() is None


@given(
    st.lists(st.tuples(st.integers(0, 300), st.integers(0, 300)), min_size=1, max_size=6),
    st.integers(1, 200),
)
def test_limited_batches_reach_the_end_and_read_every_offset_once(sizes: list[tuple[int, int]], most: int) -> None:
    tps = [TopicPartition("a", partition) for partition in range(len(sizes))]
    earliest = {tp: low for tp, (low, _) in zip(tps, sizes, strict=True)}
    cluster = Cluster({tp: low + size for tp, (low, size) in zip(tps, sizes, strict=True)})
    cluster.earliest = earliest
    cluster.initial = lambda: dict(earliest)
    with pytest.MonkeyPatch.context() as patched:
        reader = maker(cluster, patched)(startingOffsets="earliest", maxOffsetsPerTrigger=most)
        reader.prepareForTriggerAvailableNow()
        start: Mapping[str, Any] = reader.initialOffset()
        read = dict.fromkeys(tps, 0)
        position = dict(earliest)
        for _ in range(10_000):
            cluster.latest = {tp: offset + 1 for tp, offset in cluster.latest.items()}  # must not be seen
            end = next_batch(reader, start, ReadMaxRows(most))
            if end == start:
                break
            batch = ranges(reader, start, end)
            assert sum(each.size for each in batch) <= most + len(tps)
            for each in batch:
                assert each.start == position[each.topic_partition]
                position[each.topic_partition] = each.end
                read[each.topic_partition] += each.size
            start = end
        assert end == start
    assert read == {tp: size + 1 for tp, (_, size) in zip(tps, sizes, strict=True)}


# --- Trigger.AvailableNow


def test_available_now_ends_at_the_offsets_of_its_start(cluster: Cluster, new_reader: NewReader) -> None:
    reader = new_reader(maxOffsetsPerTrigger=60)
    reader.prepareForTriggerAvailableNow()
    start = {"a": {"0": 0, "1": 0}}
    first = next_batch(reader, start, ReadMaxRows(60))
    cluster.latest = {A0: 1000, A1: 1000, A2: 5}
    assert ranges(reader, start, first)
    second = next_batch(reader, first, ReadMaxRows(60))
    assert second == {"a": {"0": 10, "1": 100}} == reader.reportLatestOffset()
    assert next_batch(reader, second, ReadMaxRows(60)) == second


def test_available_now_without_topics_does_not_wait(cluster: Cluster, new_reader: NewReader) -> None:
    reader = new_reader()
    reader.prepareForTriggerAvailableNow()
    cluster.latest = {}
    assert next_batch(reader, {}) == {}
    cluster.latest = {A0: 1}
    assert next_batch(reader, {}) == {}


def test_available_now_ignores_the_minimum(cluster: Cluster, new_reader: NewReader) -> None:
    reader = new_reader(minOffsetsPerTrigger=100, maxOffsetsPerTrigger=100)
    reader.prepareForTriggerAvailableNow()
    first = next_batch(reader, {"a": {"0": 0, "1": 0}}, ReadMaxRows(100))
    assert next_batch(reader, first, ReadMaxRows(100)) == {"a": {"0": 10, "1": 100}}


@pytest.mark.parametrize(
    ("latest", "end", "problem"),
    [
        ({A0: 10}, {"a": {"0": 5, "1": 50}}, "partitions were deleted while it was running: a-1"),
        ({A0: 10, A1: 40}, {"a": {"0": 5, "1": 50}}, "end before its micro-batch does: a-1 50 instead of 40"),
        (
            {A0: 10, A1: 100},
            {"a": {"0": 5}},
            "its micro-batch are not those of the query's start: a-1",
        ),
        ({A0: 11, A1: 100}, {"a": {"0": 11, "1": 100}}, "ends after the query's end: a-0 11 instead of 10"),
    ],
)
def test_available_now_fails_if_it_cannot_end(
    cluster: Cluster, new_reader: NewReader, latest: dict[TopicPartition, int], end: dict[str, Any], problem: str
) -> None:
    reader = new_reader()
    reader.prepareForTriggerAvailableNow()
    next_batch(reader, {"a": {"0": 0, "1": 0}})
    cluster.latest = latest
    with pytest.raises(IllegalStateError, match=problem):
        reader.partitions({"a": {"0": 0, "1": 0}}, end)


def test_batch_of_the_previous_run_is_read_before_the_end_is_known(cluster: Cluster, new_reader: NewReader) -> None:
    reader = new_reader()
    reader.prepareForTriggerAvailableNow()
    assert ranges(reader, {"a": {"0": 0, "1": 0}}, {"a": {"0": 5, "1": 5}})


# --- tasks


def test_empty_batch_sends_no_requests(cluster: Cluster, new_reader: NewReader) -> None:
    assert new_reader().partitions({"a": {"0": 5}}, {"a": {"0": 5}}) == []
    assert cluster.calls == []


def test_small_ranges_share_a_task(new_reader: NewReader) -> None:
    start, end = {"a": {"0": 0, "1": 0}}, {"a": {"0": 10, "1": 100}}
    assert len(new_reader().partitions(start, end)) == 1
    assert len(new_reader(minRecordsPerTask=0).partitions(start, end)) == 2
    assert len(new_reader(maxRecordsPerPartition=10).partitions(start, end)) == 11
    assert len(new_reader(minPartitions=4).partitions(start, end)) == 4


def test_tasks_contain_no_connection_and_no_options(cluster: Cluster, new_reader: NewReader) -> None:
    reader = new_reader()
    reader.initialOffset()
    pickled = pickle.dumps(reader)
    assert b"subscribe" not in pickled
    there = pickle.loads(pickled)
    assert list(there.read(KafkaInputPartition(()))) == []
    assert pickle.loads(pickle.dumps(there)).task.columns == ("value",)
    assert there.task.consumer_config["auto.offset.reset"] == "none"


def test_each_run_of_a_query_has_its_own_name(new_reader: NewReader) -> None:
    """Tasks of a later run must not use what those of an earlier one have fetched."""

    def runs(reader: KafkaStreamReader) -> set[str | None]:
        reader.initialOffset()
        planned = reader.partitions({"a": {"0": 0, "1": 0}}, {"a": {"0": 10, "1": 100}})
        copies = pickle.loads(pickle.dumps([*planned, *reader.partitions({"a": {"0": 0}}, {"a": {"0": 10}})]))
        return {partition.run for partition in copies}

    (first,), (second,) = runs(new_reader()), runs(new_reader())
    assert first
    assert second
    assert first != second


# --- errors and ends


def test_constructor_never_fails(new_reader: NewReader) -> None:
    """Spark would hide the error. The first call raises it."""
    reader = KafkaStreamReader({"subscribed": "a"}, VALUE)
    with pytest.raises(ConfigError, match="'subscribe'"):
        reader.getDefaultReadLimit()
    with pytest.raises(ConfigError, match="endingOffsets"):
        new_reader(endingOffsets="latest").initialOffset()


def test_foreign_schema_is_refused_when_tasks_are_planned() -> None:
    options = {"kafka.bootstrap.servers": "127.0.0.1:1", "subscribe": "a"}
    reader = KafkaStreamReader(options, StructType([StructField("valu", BinaryType())]))
    with pytest.raises(ConfigError, match="pykclient has no column 'valu', which the schema names"):
        pickle.dumps(reader)


def test_stop_closes_everything_opened(cluster: Cluster, new_reader: NewReader) -> None:
    reader = new_reader()
    reader.stop()
    assert not cluster.closed
    reader.commit(reader.initialOffset())
    reader.stop()
    assert cluster.closed


def test_tasks_read_ahead_unless_there_is_a_backlog(cluster: Cluster, new_reader: NewReader) -> None:
    cluster.latest = {A0: 100, A1: 10_000}

    def ahead(reader: KafkaStreamReader, start: Mapping[str, Any], end: Mapping[str, Any]) -> list[bool]:
        return [each.ahead for each in reader.partitions(start, end) if isinstance(each, KafkaInputPartition)]

    reader = new_reader(startingOffsets="earliest", minRecordsPerTask=0)
    start = {"a": {"0": 0, "1": 0}}
    reader.latestOffset(start, ALL)
    assert ahead(reader, start, {"a": {"0": 100, "1": 500}}) == [True, False]  # a backlog in one
    assert ahead(reader, start, {"a": {"0": 50, "1": 2000}}) == [False, False]
    assert ahead(reader, {"a": {"0": 50, "1": 9_500}}, {"a": {"0": 100, "1": 10_000}}) == [True, True]  # caught up


# --- many partitions -------------------------------------------------------------------------------------------------


def test_ten_thousand_partitions_are_planned_with_few_requests() -> None:
    """A micro-batch needs one look-up of all ends, whatever the number of partitions, and little else."""
    count = 10_000
    with EmbeddedCluster() as cluster:
        cluster.create_topic("wide", count // 2)
        with Admin(bootstrap_servers=cluster.bootstrap_servers) as admin:
            admin.create_partitions({"wide": count}).all()
        with KafkaProducer[Any, Any](bootstrap_servers=cluster.bootstrap_servers) as producer:
            producer.send("wide", b"x", partition=count - 1).get(30)
        options = {"kafka.bootstrap.servers": cluster.bootstrap_servers, "subscribe": "wide"}
        reader = KafkaStreamReader({**options, "startingOffsets": "earliest"}, VALUE)
        start = reader.initialOffset()
        assert len(start["wide"]) == count
        planned: dict[str, dict[str, int]] = reader.latestOffset(start, ALL)
        reader.partitions(start, planned)  # the first micro-batch also looks up the topic's id
        last = cluster.requests[-1].number
        for _ in range(3):
            end = reader.latestOffset(planned, ALL)
            assert reader.partitions(planned, end) == []
            planned = end
        kinds = [record.api_key for record in cluster.requests_of(after=last)]
        assert kinds.count(ApiKeys.LIST_OFFSETS) == 3, kinds
        assert len(kinds) <= 9, kinds
        more = {"wide": {partition: offset + 5 for partition, offset in planned["wide"].items()}}
        tasks = reader.partitions(planned, more)
        ranges = [each for task in tasks if isinstance(task, KafkaInputPartition) for each in task.ranges]
        assert len({each.topic_partition for each in ranges}) == count
        assert len(tasks) <= 13  # 4,000 records each
        reader.stop()
