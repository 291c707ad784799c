"""The objects that all parts of fetching share, and its metrics.

Java: FetchUtils, FetchMetricsManager, FetchMetricsAggregator, FetchMetricsRegistry.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from struct import Struct
from typing import TYPE_CHECKING, Final

from pykclient.metrics import Metrics, Sensor
from pykclient.metrics.kafka_metric import MetricName
from pykclient.metrics.stats import Avg, Max, MeasurableStat, Meter, Min, Tally, WindowedCount
from pykclient.types import TopicPartition

if TYPE_CHECKING:
    from pykclient.clock import Clock
    from pykclient.consumer.consumer_metadata import ConsumerMetadata
    from pykclient.consumer.network_client_delegate import NetworkClientDelegate
    from pykclient.consumer.subscription_state import SubscriptionState
    from pykclient.log_context import LogContext
    from pykclient.network.api_versions import ApiVersions
    from pykclient.network.metadata import Metadata


class FetchContext:
    """The shared objects, passed to each constructor together. Thread: application."""

    __slots__ = ("api_versions", "client", "clock", "log_context", "metadata", "subscriptions")

    def __init__(
        self,
        log_context: LogContext,
        client: NetworkClientDelegate,
        metadata: ConsumerMetadata,
        subscriptions: SubscriptionState,
        clock: Clock,
        api_versions: ApiVersions,
    ) -> None:
        self.log_context = log_context
        self.client = client
        self.metadata = metadata
        self.subscriptions = subscriptions
        self.clock = clock
        self.api_versions = api_versions


#: The size of a record, as long as nothing of its topic was fetched, and the least size of such a fetch.
_GUESSED_RECORD_BYTES = 1024
_LEAST_GUESSED_BYTES = 64 * 1024
#: The headers of batches: base offset and length; the length does not count these two; then the format's number, and
#: the last offset's distance from the base offset (from format 2 on).
_BATCH = Struct(">qi")
_LAST_OFFSET_DELTA = Struct(">i")
_MAGIC_AT: Final = 16
_LAST_OFFSET_DELTA_AT: Final = 23
_HEADER_BYTES: Final = 61
#: The most batches of a response of one partition that are looked at. Those of a topic are much alike.
_MOST_BATCHES = 64


class FetchSizes:
    """Limits fetch sizes of partitions that are read up to an end offset, to fetch little beyond it.

    They are estimates, from the batches of the same topic that were fetched last. If one was too small, the rest is
    fetched in another request. Thread: application.
    """

    __slots__ = ("_boundaries", "_limit", "_topics", "ends", "outdated")

    def __init__(self, limit: int) -> None:
        #: ``max.partition.fetch.bytes``
        self._limit = limit
        #: The end offsets.
        self.ends: Mapping[TopicPartition, int] = {}
        #: By topic, the bytes of an offset and of a batch.
        self._topics: dict[str, tuple[float, float]] = {}
        #: Offsets at which a batch is known to begin.
        self._boundaries: dict[TopicPartition, int] = {}
        #: Partitions for which the sizes in the last requests are too small by now.
        self.outdated: set[TopicPartition] = set()

    def of(self, tp: TopicPartition, offset: int) -> int:
        """Return the size of a fetch from ``offset`` on."""
        left = self.ends.get(tp, 0) - offset
        if left <= 0:
            return self._limit
        found = self._topics.get(tp.topic)
        if found is None:
            return min(max(left * _GUESSED_RECORD_BYTES, _LEAST_GUESSED_BYTES), self._limit)
        offset_bytes, batch_bytes = found
        # Brokers send batches from their beginning, and a last one that is cut off is of no use.
        batches = 1 if self._boundaries.get(tp) == offset else 2
        return min(int(left * offset_bytes * 1.02 + batches * batch_bytes), self._limit)

    def learn(self, tp: TopicPartition, records: bytes | bytearray | memoryview) -> None:
        """Measure the batches of a response, if the partition has an end offset."""
        if tp not in self.ends:
            return
        at = count = offsets = 0
        following = -1
        while count < _MOST_BATCHES and at + _HEADER_BYTES <= len(records) and records[at + _MAGIC_AT] >= 2:
            base, length = _BATCH.unpack_from(records, at)
            (delta,) = _LAST_OFFSET_DELTA.unpack_from(records, at + _LAST_OFFSET_DELTA_AT)
            size = _BATCH.size + length
            # No checksum was checked yet.
            if delta < 0 or size < _HEADER_BYTES or at + size > len(records):
                break
            offsets += max(1, base + 1 + delta - following if count else 1 + delta)
            following = base + 1 + delta
            at += size
            count += 1
        if not count:
            return
        previous = self._topics.get(tp.topic)
        self._topics[tp.topic] = at / offsets, at / count
        self._boundaries.pop(tp, None)
        if count < _MOST_BATCHES and following < self.ends[tp]:
            self._boundaries[tp] = following
        if previous is None or previous[1] < at / count:
            self.outdated.update(each for each in self.ends if each.topic == tp.topic)


def request_metadata_update(metadata: Metadata, subscriptions: SubscriptionState, tp: TopicPartition) -> None:
    """Request the current leader, and fetch from it instead of the preferred read replica."""
    metadata.request_update(False)
    subscriptions.clear_preferred_read_replica(tp)


_GROUP_SUFFIX = "-fetch-manager-metrics"
_DESCRIPTIONS = {
    "fetch-size-avg": "Average number of bytes consumed per fetch request",
    "fetch-size-max": "Largest number of bytes consumed per fetch request",
    "bytes-consumed-rate": "Bytes consumed per second",
    "bytes-consumed-total": "Bytes consumed",
    "records-per-request-avg": "Average number of records per fetch request",
    "records-consumed-rate": "Records consumed per second",
    "records-consumed-total": "Records consumed",
    "fetch-latency-avg": "Average time of a fetch request in ms",
    "fetch-latency-max": "Longest time of a fetch request in ms",
    "fetch-rate": "Fetch requests per second",
    "fetch-total": "Fetch requests",
    "records-lag-max": "Largest lag of any partition, in records",
    "records-lead-min": "Smallest lead of any partition, in records",
    "fetch-throttle-time-avg": "Average time in ms that a broker throttled a fetch",
    "fetch-throttle-time-max": "Longest time in ms that a broker throttled a fetch",
    "records-lag": "Lag of the partition: records between the position and the end",
    "records-lag-avg": "Average lag of the partition, in records",
    "records-lead": "Lead of the partition: records between the start of the log and the position",
    "records-lead-avg": "Average lead of the partition, in records",
    "preferred-read-replica": "Id of the replica that the partition is fetched from, or -1 for its leader",
}
_PARTITION_METRICS = (
    "records-lag",
    "records-lag-max",
    "records-lag-avg",
    "records-lead",
    "records-lead-min",
    "records-lead-avg",
    "preferred-read-replica",
)


class _PartitionMetrics:
    """The name of a partition's first metric, and its sensors once there are samples. Thread: application."""

    __slots__ = ("lag_sensor", "lead_sensor", "name")

    def __init__(self, name: MetricName) -> None:
        self.name = name
        self.lag_sensor: Sensor | None = None
        self.lead_sensor: Sensor | None = None


class FetchMetricsManager:
    """The fetch sensors of the client, its topics, and its assigned partitions.

    Thread: application.
    """

    def __init__(self, metrics: Metrics, group_prefix: str = "consumer") -> None:
        self._metrics = metrics
        self._group = group_prefix + _GROUP_SUFFIX
        #: The assignment of which there are metrics; see ``SubscriptionState.assignment_id``.
        self.assignment_id = 0
        self._assigned: frozenset[TopicPartition] = frozenset()
        self.throttle_time_sensor = metrics.sensor("fetch-throttle-time")
        self.throttle_time_sensor.add(self._name("fetch-throttle-time-avg"), Avg())
        self.throttle_time_sensor.add(self._name("fetch-throttle-time-max"), Max())
        self._bytes = self._add_bytes(metrics.sensor("bytes-fetched"))
        self._records = self._add_records(metrics.sensor("records-fetched"))
        self._latency = metrics.sensor("fetch-latency")
        self._latency.add(self._name("fetch-latency-avg"), Avg())
        self._latency.add(self._name("fetch-latency-max"), Max())
        self._latency.add(Meter(self._name("fetch-rate"), self._name("fetch-total"), WindowedCount()))
        self._lag = metrics.sensor("records-lag")
        self._lag.add(self._name("records-lag-max"), Max())
        self._lead = metrics.sensor("records-lead")
        self._lead.add(self._name("records-lead-min"), Min())
        self._lag_max: int | None = None
        self._lead_min: int | None = None
        self._partitions: dict[TopicPartition, _PartitionMetrics] = {}
        self._topics: dict[str, tuple[Sensor, Sensor]] = {}  # of bytes and records

    def _name(self, name: str, tags: Mapping[str, str] | None = None) -> MetricName:
        return self._metrics.metric_name(name, self._group, _DESCRIPTIONS.get(name, ""), tags)

    def _add_bytes(self, sensor: Sensor, tags: Mapping[str, str] | None = None) -> Sensor:
        sensor.add(self._name("fetch-size-avg", tags), Avg())
        sensor.add(self._name("fetch-size-max", tags), Max())
        sensor.add(Meter(self._name("bytes-consumed-rate", tags), self._name("bytes-consumed-total", tags)))
        return sensor

    def _add_records(self, sensor: Sensor, tags: Mapping[str, str] | None = None) -> Sensor:
        sensor.add(self._name("records-per-request-avg", tags), Avg())
        sensor.add(Meter(self._name("records-consumed-rate", tags), self._name("records-consumed-total", tags)))
        return sensor

    def record_latency(self, node_id: str, latency_ms: int, now_ms: int) -> None:
        self._latency.record(latency_ms, now_ms)
        node_latency = self._metrics.get_sensor(f"node-{node_id}.latency")
        if node_latency is not None:
            node_latency.record(latency_ms, now_ms)

    def record_latencies(self, node_id: str, latencies_ms: Tally, now_ms: int) -> None:
        """Record the latencies of several requests, the last of which was answered last."""
        self._latency.record_all(latencies_ms, now_ms)
        node_latency = self._metrics.get_sensor(f"node-{node_id}.latency")
        if node_latency is not None:
            node_latency.record_all(latencies_ms, now_ms)

    def record_response(self, by_topic: Mapping[str, tuple[int, int]]) -> None:
        """Record the total size in bytes and the record count of each topic in one response."""
        now_ms = self._metrics.clock.now_ms()
        size_bytes = count = 0
        for topic, (topic_bytes, topic_count) in by_topic.items():
            sensors = self._topics.get(topic)
            if sensors is None:
                sensors = self._topics[topic] = self._topic_sensors(topic)
            sensors[0].record(topic_bytes, now_ms)
            sensors[1].record(topic_count, now_ms)
            size_bytes += topic_bytes
            count += topic_count
        self._bytes.record(size_bytes, now_ms)
        self._records.record(count, now_ms)

    def _topic_sensors(self, topic: str) -> tuple[Sensor, Sensor]:
        tags = {"topic": topic}
        return (
            self._add_bytes(self._metrics.sensor(f"topic.{topic}.bytes-fetched"), tags),
            self._add_records(self._metrics.sensor(f"topic.{topic}.records-fetched"), tags),
        )

    def record_partition(
        self, tp: TopicPartition, lag_and_lead: Callable[[], tuple[int | None, int | None]], now_ms: int
    ) -> None:
        """Record a sample of a partition's lag and lead, as far as they are known.

        Maximum, minimum and average are those of the samples. The present values are asked for when they are read, by
        any thread.
        """
        partition = self._partition(tp)
        lag, lead = lag_and_lead()
        if lag is not None:
            if self._lag_max is None or lag > self._lag_max:
                self._lag_max = lag
            if partition.lag_sensor is None:
                present = partial(_present, lag_and_lead, 0)
                partition.lag_sensor = self._add_sensor(tp, "records-lag", present, "max", Max())
            partition.lag_sensor.record(lag, now_ms)
        if lead is not None:
            if self._lead_min is None or lead < self._lead_min:
                self._lead_min = lead
            if partition.lead_sensor is None:
                present = partial(_present, lag_and_lead, 1)
                partition.lead_sensor = self._add_sensor(tp, "records-lead", present, "min", Min())
            partition.lead_sensor.record(lead, now_ms)

    def _partition(self, tp: TopicPartition) -> _PartitionMetrics:
        partition = self._partitions.get(tp)
        if partition is None:
            partition = self._partitions[tp] = _PartitionMetrics(self._name("preferred-read-replica", _tags(tp)))
        return partition

    def _add_sensor(
        self, tp: TopicPartition, name: str, present: Callable[..., float], extreme: str, stat: MeasurableStat
    ) -> Sensor:
        first = self._partition(tp).name  # all of a partition's names share its tags
        # A previous attempt may have been interrupted here by an exception of a signal handler.
        self._metrics.add_metric_if_absent(first.sibling(name, _DESCRIPTIONS[name]), present)
        sensor = self._metrics.sensor(f"{tp}.{name}")
        for derived, computed_by in ((f"{name}-{extreme}", stat), (f"{name}-avg", Avg())):
            sensor.add(first.sibling(derived, _DESCRIPTIONS[derived]), computed_by)
        return sensor

    def _remove_partition(self, tp: TopicPartition) -> None:
        # Remove all by name, present or not: if a signal handler raises in here, the next call repeats it.
        for name in ("records-lag", "records-lead"):
            self._metrics.remove_sensor(f"{tp}.{name}")
        tags = _tags(tp)
        for name in _PARTITION_METRICS:
            self._metrics.remove_metric(self._name(name, tags))
        self._partitions.pop(tp, None)

    def record_extremes(self, now_ms: int) -> None:
        """Record the largest lag and the smallest lead since the last call.

        Only the client's metrics use these, and a poll may return records of a thousand partitions.
        """
        if self._lag_max is not None:
            self._lag.record(self._lag_max, now_ms)
            self._lag_max = None
        if self._lead_min is not None:
            self._lead.record(self._lead_min, now_ms)
            self._lead_min = None

    def update_assignment(self, subscriptions: SubscriptionState) -> None:
        """Remove the metrics of revoked partitions, and add those of new ones."""
        assignment_id = subscriptions.assignment_id
        assigned = frozenset(subscriptions.assigned_partitions())
        for tp in self._assigned - assigned:
            self._remove_partition(tp)
        for tp in assigned - self._assigned:
            preferred = partial(_preferred_read_replica, subscriptions, tp)
            self._metrics.add_metric_if_absent(self._partition(tp).name, preferred)
        self._assigned = assigned
        self.assignment_id = assignment_id


class FetchMetricsAggregator:
    """Adds up the data of one response until all of its partitions are read. Thread: application."""

    __slots__ = ("_by_topic", "_manager", "_unrecorded")

    def __init__(self, manager: FetchMetricsManager, partitions: Iterable[TopicPartition]) -> None:
        self._manager = manager
        self._unrecorded = set(partitions)
        self._by_topic: dict[str, tuple[int, int]] = {}

    def record(self, tp: TopicPartition, size_bytes: int, count: int) -> None:
        """Add the totals of one partition once it is drained."""
        total_bytes, total_count = self._by_topic.get(tp.topic, (0, 0))
        self._by_topic[tp.topic] = total_bytes + size_bytes, total_count + count
        self._unrecorded.discard(tp)
        if not self._unrecorded:
            self._manager.record_response(self._by_topic)


def _tags(tp: TopicPartition) -> dict[str, str]:
    return {"topic": tp.topic, "partition": str(tp.partition)}


def _present(lag_and_lead: Callable[[], tuple[int | None, int | None]], index: int, *_: object) -> float:
    value = lag_and_lead()[index]
    return float("nan") if value is None else value


def _preferred_read_replica(subscriptions: SubscriptionState, tp: TopicPartition, *_: object) -> int:
    node_id = subscriptions.preferred_read_replica(tp)
    return -1 if node_id is None else node_id
