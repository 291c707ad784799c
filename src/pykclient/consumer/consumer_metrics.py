"""The metrics of a consumer: its calls, its requests and events, and what it fetches.

Java: KafkaConsumerMetrics, AsyncConsumerMetrics, FetchMetricsManager, FetchMetricsAggregator, FetchMetricsRegistry.

Those of requests, polls and events exist with ``group.protocol=consumer`` (KIP-1068). Java's consumer has a background
thread that polls the network, and queues of events between it and the application's thread. Here the thread that holds
the I/O lease polls, and "background events" are the steps that wait for that thread: calls of the rebalance
listener, of commit callbacks and of interceptors. There are no application events: calls of the application reach the
request managers at once.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from pykclient.clock import HERE
from pykclient.consumer.values import READ_UNCOMMITTED
from pykclient.metrics import (
    Avg,
    CumulativeSum,
    KafkaMetric,
    Max,
    Meter,
    MetricConfig,
    MetricName,
    Metrics,
    Min,
    SampledTally,
    Sensor,
    Tally,
    WindowedCount,
)
from pykclient.types import TopicPartition

if TYPE_CHECKING:
    from pykclient.clock import Clock
    from pykclient.consumer.subscription_state import SubscriptionState

_GROUP = "consumer-metrics"
_NS_PER_MS = 1_000_000


class PollMetrics:
    """Records how often and how long the application polls. Thread: application."""

    def __init__(self, metrics: Metrics, group: str) -> None:
        self._last_poll_ms: int | None = None
        self._poll_start_ms = self._since_last_ms = 0

        def name(name: str, description: str) -> MetricName:
            return metrics.metric_name(name, group, description)

        metrics.add_metric(
            name("last-poll-seconds-ago", "Seconds since the last call of poll(); -1 before the first"),
            lambda _config, now_ms: -1 if self._last_poll_ms is None else (now_ms - self._last_poll_ms) // 1000,
        )
        self._between = metrics.sensor("time-between-poll")
        self._between.add(name("time-between-poll-avg", "Average time in ms between calls of poll()"), Avg())
        self._between.add(name("time-between-poll-max", "Longest time in ms between calls of poll()"), Max())
        self._idle = metrics.sensor("poll-idle-ratio-avg")
        self._idle.add(name("poll-idle-ratio-avg", "Average fraction of the time spent in poll()"), Avg())

    def record_poll_start(self, now_ms: int) -> None:
        self._poll_start_ms = now_ms
        self._since_last_ms = 0 if self._last_poll_ms is None else now_ms - self._last_poll_ms
        self._between.record(self._since_last_ms, now_ms)
        self._last_poll_ms = now_ms

    def record_poll_end(self, now_ms: int) -> None:
        inside_ms = now_ms - self._poll_start_ms
        whole_ms = inside_ms + self._since_last_ms
        if whole_ms:
            self._idle.record(inside_ms / whole_ms, now_ms)


class KafkaConsumerMetrics(PollMetrics):
    """Records how often and how long the application polls and commits. Thread: application."""

    def __init__(self, metrics: Metrics) -> None:
        super().__init__(metrics, _GROUP)
        self._commit_sync = self._total(metrics, "commit-sync-time-ns-total", "spent in synchronous commits")
        self._committed = self._total(metrics, "committed-time-ns-total", "spent in committed()")

    @staticmethod
    def _total(metrics: Metrics, name: str, what: str) -> Sensor:
        sensor = metrics.sensor(name)
        sensor.add(metrics.metric_name(name, _GROUP, f"Nanoseconds {what}"), CumulativeSum())
        return sensor

    def record_commit_sync(self, duration_ms: int) -> None:
        self._commit_sync.record(duration_ms * _NS_PER_MS)

    def record_committed(self, duration_ms: int) -> None:
        self._committed.record(duration_ms * _NS_PER_MS)


class AsyncConsumerMetrics:
    """Records how long requests and events wait. Times are in milliseconds. Thread: the holder of the I/O lease."""

    def __init__(self, metrics: Metrics, clock: Clock) -> None:
        self._metrics = metrics
        self._clock = clock
        self._last_poll_ms: int | None = None
        self._between_polls = self._times("time-between-network-thread-poll", "between polls of the network")
        self._unsent = self._times("unsent-requests-queue-time", "until a request was sent")
        self._event_queue = self._times("background-event-queue-time", "until the application's thread took an event")
        self._event_processing = self._times("background-event-queue-processing-time", "to process an event")

    def _times(self, name: str, what: str) -> Sensor:
        sensor = self._metrics.sensor(name)
        sensor.add(self._metrics.metric_name(f"{name}-avg", _GROUP, f"The average time taken {what}"), Avg())
        sensor.add(self._metrics.metric_name(f"{name}-max", _GROUP, f"The longest time taken {what}"), Max())
        return sensor

    def measure_queues(self, unsent_requests: Callable[[], int], events: Callable[[], int]) -> None:
        """Add the metrics of queue sizes, which call these functions."""
        self._measure("unsent-requests-queue-size", "requests that are not sent yet", unsent_requests)
        self._measure("background-event-queue-size", "events that wait for the application's thread", events)

    def _measure(self, name: str, what: str, size: Callable[[], int]) -> None:
        metric = self._metrics.metric_name(name, _GROUP, f"The current number of {what}")
        self._metrics.add_metric(metric, lambda _config, _now_ms: size())

    def record_poll(self, now_ms: int) -> None:
        """Record that the network is about to be polled."""
        if self._last_poll_ms is not None:
            self._between_polls.record(now_ms - self._last_poll_ms, now_ms)
        self._last_poll_ms = now_ms

    def record_sent(self, waited_ms: int, now_ms: int) -> None:
        """Record that a request was sent after it had waited for ``waited_ms``."""
        self._unsent.record(waited_ms, now_ms)

    def measured(self, steps: Generator[Any, Any, None]) -> Generator[Any, Any, None]:
        """Return an event that records its waiting time from now on, and its duration."""
        return self._run(steps, self._clock.now_ms())

    def _run(self, steps: Generator[Any, Any, None], added_ms: int) -> Generator[Any, Any, None]:
        begun_ms = self._clock.now_ms()
        self._event_queue.record(begun_ms - added_ms, begun_ms)
        try:
            yield from steps
        finally:
            now_ms = self._clock.now_ms()
            self._event_processing.record(now_ms - begun_ms, now_ms)


_GROUP_SUFFIX = "-fetch-manager-metrics"
_DESCRIPTIONS = {
    "fetch-size-avg": "Average number of bytes consumed per fetch request",
    "fetch-size-max": "Largest number of bytes consumed per fetch request",
    "bytes-consumed-rate": "Bytes consumed per second",
    "bytes-consumed-total": "Bytes consumed",
    "records-per-request-avg": "Average number of records per fetch request",
    "records-per-request-max": "Largest number of records per fetch request",
    "records-consumed-rate": "Records consumed per second",
    "records-consumed-total": "Records consumed",
    "acknowledgements-send-rate": "Acknowledged records sent to brokers per second",
    "acknowledgements-send-total": "Acknowledged records sent to brokers",
    "acknowledgements-error-rate": "Acknowledged records per second whose acknowledgement failed",
    "acknowledgements-error-total": "Acknowledged records whose acknowledgement failed",
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
_NAN: Final = float("nan")


class _PartitionSamples:
    """The samples of a partition's lag and lead; None before the first one. Thread: owner."""

    __slots__ = ("lag", "lead")

    def __init__(self) -> None:
        self.lag: SampledTally | None = None
        self.lead: SampledTally | None = None


class PartitionMetrics:
    """The metrics of each assigned partition: its lag, its lead, and the replica that it is fetched from.

    Thread: application to record, any to read.
    """

    def __init__(self, metrics: Metrics, group: str, isolation_level: int) -> None:
        self._metrics = metrics
        self._group = group
        self._isolation_level = isolation_level
        self._subscriptions: SubscriptionState | None = None
        # guards: _partitions, and the samples in it
        self._lock = threading.Lock()
        self._partitions: dict[TopicPartition, _PartitionSamples] = {}
        metrics.add_source(self)

    def __len__(self) -> int:
        return sum(map(len, self._names().values()))

    def metrics(self) -> Iterator[KafkaMetric]:
        """Yield the metrics of all partitions."""
        for tp, names in self._names().items():
            yield from self._metrics_of(tp, names)

    def metric(self, metric_name: MetricName) -> KafkaMetric | None:
        """Return the metric of this name, if it is a partition's."""
        tags = metric_name.tags
        if metric_name.group != self._group or "topic" not in tags or not tags.get("partition", "").isdecimal():
            return None
        tp = TopicPartition(tags["topic"], int(tags["partition"]))
        with HERE.mark, self._lock:
            samples = self._partitions.get(tp)
            names = [] if samples is None else _names_of(samples)
        return next((metric for metric in self._metrics_of(tp, names) if metric.metric_name == metric_name), None)

    def _names(self) -> dict[TopicPartition, list[str]]:
        with HERE.mark, self._lock:
            return {tp: _names_of(samples) for tp, samples in self._partitions.items()}

    def _metrics_of(self, tp: TopicPartition, names: Iterable[str]) -> Iterator[KafkaMetric]:
        metrics = self._metrics
        first = metrics.metric_name("", self._group, "", {"topic": tp.topic, "partition": str(tp.partition)})
        for name in names:
            metric_name = first.sibling(name, _DESCRIPTIONS[name])
            yield KafkaMetric(metric_name, partial(self._measure, tp, name), metrics.config, metrics.clock)

    def _measure(self, tp: TopicPartition, name: str, config: MetricConfig, now_ms: int) -> float:
        """Return the present value of a metric; NaN if it is unknown."""
        subscriptions = self._subscriptions
        if subscriptions is None:
            return _NAN
        if name == "preferred-read-replica":
            node_id = subscriptions.preferred_read_replica(tp)
            return -1 if node_id is None else node_id
        if name in ("records-lag", "records-lead"):
            lag, lead = subscriptions.lag_and_lead(tp, self._isolation_level)
            present = lag if name == "records-lag" else lead
            return _NAN if present is None else present
        with HERE.mark, self._lock:
            samples = self._partitions.get(tp)
            sampled = None if samples is None else samples.lag if name.startswith("records-lag") else samples.lead
            tally = Tally() if sampled is None else sampled.tally(config, now_ms)
        if not tally.count:
            return _NAN
        if name.endswith("-avg"):
            return tally.total / tally.count
        return tally.largest if name.endswith("-max") else tally.smallest

    def record(self, tp: TopicPartition, lag: int | None, lead: int | None, now_ms: int) -> None:
        """Record a sample of a partition, as far as it is known."""
        config = self._metrics.config
        new: list[str] = []
        with HERE.mark, self._lock:
            samples = self._partitions.get(tp)
            if samples is None:
                samples = self._partitions[tp] = _PartitionSamples()
                new += _names_of(samples)
            if lag is not None:
                if samples.lag is None:
                    samples.lag = SampledTally()
                    new += _LAG_METRICS
                samples.lag.record(config, lag, now_ms)
            if lead is not None:
                if samples.lead is None:
                    samples.lead = SampledTally()
                    new += _LEAD_METRICS
                samples.lead.record(config, lead, now_ms)
        if new and self._metrics.has_reporters:
            self._metrics.announce(added=self._metrics_of(tp, new))

    def update_assignment(self, subscriptions: SubscriptionState) -> None:
        """Remove the metrics of revoked partitions, and add those of new ones."""
        self._subscriptions = subscriptions
        assigned = frozenset(subscriptions.assigned_partitions())
        with HERE.mark, self._lock:
            removed = {tp: samples for tp, samples in self._partitions.items() if tp not in assigned}
            added = [tp for tp in assigned if tp not in self._partitions]
            self._partitions = {tp: samples for tp, samples in self._partitions.items() if tp in assigned} | {
                tp: _PartitionSamples() for tp in added
            }
        if self._metrics.has_reporters:
            for tp, samples in removed.items():
                self._metrics.announce(removed=self._metrics_of(tp, _names_of(samples)))
            for tp in added:
                self._metrics.announce(added=self._metrics_of(tp, ["preferred-read-replica"]))


_LAG_METRICS = ("records-lag", "records-lag-max", "records-lag-avg")
_LEAD_METRICS = ("records-lead", "records-lead-min", "records-lead-avg")


def _names_of(samples: _PartitionSamples) -> list[str]:
    """Return the names of the metrics that a partition has by now."""
    return [
        "preferred-read-replica",
        *(_LAG_METRICS if samples.lag is not None else ()),
        *(_LEAD_METRICS if samples.lead is not None else ()),
    ]


class FetchMetrics:
    """The sensors of fetches, by a consumer or a share consumer. Thread: application."""

    def __init__(self, metrics: Metrics, group_prefix: str) -> None:
        self._metrics = metrics
        self._group = group_prefix + _GROUP_SUFFIX
        self.throttle_time_sensor = metrics.sensor("fetch-throttle-time")
        self.throttle_time_sensor.add(self._name("fetch-throttle-time-avg"), Avg())
        self.throttle_time_sensor.add(self._name("fetch-throttle-time-max"), Max())
        self._bytes = self._add_bytes(metrics.sensor("bytes-fetched"))
        self._records = self._add_records(metrics.sensor("records-fetched"))
        self._latency = metrics.sensor("fetch-latency")
        self._latency.add(self._name("fetch-latency-avg"), Avg())
        self._latency.add(self._name("fetch-latency-max"), Max())
        self._latency.add(self._meter("fetch", rate_stat=WindowedCount()))

    def _name(self, name: str, tags: Mapping[str, str] | None = None) -> MetricName:
        return self._metrics.metric_name(name, self._group, _DESCRIPTIONS.get(name, ""), tags)

    def _meter(self, name: str, tags: Mapping[str, str] | None = None, rate_stat: WindowedCount | None = None) -> Meter:
        return Meter(self._name(f"{name}-rate", tags), self._name(f"{name}-total", tags), rate_stat)

    def _add_bytes(self, sensor: Sensor, tags: Mapping[str, str] | None = None) -> Sensor:
        sensor.add(self._name("fetch-size-avg", tags), Avg())
        sensor.add(self._name("fetch-size-max", tags), Max())
        sensor.add(self._meter("bytes-consumed", tags))
        return sensor

    def _add_records(self, sensor: Sensor, tags: Mapping[str, str] | None = None) -> Sensor:
        sensor.add(self._name("records-per-request-avg", tags), Avg())
        sensor.add(self._meter("records-consumed", tags))
        return sensor

    def record_latency(self, node_id: str, latency_ms: int, now_ms: int) -> None:
        self._latency.record(latency_ms, now_ms)
        node_latency = self._metrics.get_sensor(f"node-{node_id}.latency")
        if node_latency is not None:
            node_latency.record(latency_ms, now_ms)

    def record_response(self, by_topic: Mapping[str, tuple[int, int]]) -> None:
        """Record the total size in bytes and the record count of each topic in one response."""
        now_ms = self._metrics.clock.now_ms()
        size_bytes = count = 0
        for topic_bytes, topic_count in by_topic.values():
            size_bytes += topic_bytes
            count += topic_count
        self._bytes.record(size_bytes, now_ms)
        self._records.record(count, now_ms)


class ShareFetchMetricsManager(FetchMetrics):
    """The sensors of a share consumer's fetches and acknowledgements. Thread: any."""

    def __init__(self, metrics: Metrics) -> None:
        super().__init__(metrics, "consumer-share")
        self._records.add(self._name("records-per-request-max"), Max())
        self._sent = metrics.sensor("sent-acknowledgements")
        self._sent.add(self._meter("acknowledgements-send"))
        self._failed = metrics.sensor("failed-acknowledgements")
        self._failed.add(self._meter("acknowledgements-error"))

    def record_sent(self, count: int) -> None:
        """Record that acknowledgements of ``count`` records are about to be sent."""
        self._sent.record(count)

    def record_failed(self, count: int) -> None:
        """Record that acknowledgements of ``count`` records failed."""
        self._failed.record(count)


class FetchMetricsManager(FetchMetrics):
    """The fetch sensors of a consumer, its topics, and its assigned partitions. Thread: application."""

    def __init__(
        self, metrics: Metrics, group_prefix: str = "consumer", isolation_level: int = READ_UNCOMMITTED
    ) -> None:
        super().__init__(metrics, group_prefix)
        #: The assignment of which there are metrics; see ``SubscriptionState.assignment_id``.
        self.assignment_id = 0
        self._lag = metrics.sensor("records-lag")
        self._lag.add(self._name("records-lag-max"), Max())
        self._lead = metrics.sensor("records-lead")
        self._lead.add(self._name("records-lead-min"), Min())
        self._lag_max: int | None = None
        self._lead_min: int | None = None
        self._partitions = PartitionMetrics(metrics, self._group, isolation_level)
        self._topics: dict[str, tuple[Sensor, Sensor]] = {}  # of bytes and records

    def record_latencies(self, node_id: str, latencies_ms: Tally, now_ms: int) -> None:
        """Record the latencies of several requests, the last of which was answered last."""
        self._latency.record_all(latencies_ms, now_ms)
        node_latency = self._metrics.get_sensor(f"node-{node_id}.latency")
        if node_latency is not None:
            node_latency.record_all(latencies_ms, now_ms)

    def record_response(self, by_topic: Mapping[str, tuple[int, int]]) -> None:
        super().record_response(by_topic)
        now_ms = self._metrics.clock.now_ms()
        for topic, (size_bytes, count) in by_topic.items():
            sensors = self._topics.get(topic)
            if sensors is None:
                sensors = self._topics[topic] = self._topic_sensors(topic)
            sensors[0].record(size_bytes, now_ms)
            sensors[1].record(count, now_ms)

    def _topic_sensors(self, topic: str) -> tuple[Sensor, Sensor]:
        tags = {"topic": topic}
        return (
            self._add_bytes(self._metrics.sensor(f"topic.{topic}.bytes-fetched"), tags),
            self._add_records(self._metrics.sensor(f"topic.{topic}.records-fetched"), tags),
        )

    def record_partition(self, tp: TopicPartition, lag: int | None, lead: int | None, now_ms: int) -> None:
        """Record a sample of a partition's lag and lead, as far as they are known.

        Maximum, minimum and average are those of the samples. The present values are looked up when they are read.
        """
        if lag is not None and (self._lag_max is None or lag > self._lag_max):
            self._lag_max = lag
        if lead is not None and (self._lead_min is None or lead < self._lead_min):
            self._lead_min = lead
        self._partitions.record(tp, lag, lead, now_ms)

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
        self._partitions.update_assignment(subscriptions)
        self.assignment_id = assignment_id


class FetchMetricsAggregator:
    """Adds up the data of one response until all of its partitions are read. Thread: application."""

    __slots__ = ("_by_topic", "_manager", "_unrecorded")

    def __init__(self, manager: FetchMetrics, partitions: Iterable[TopicPartition]) -> None:
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
