"""The producer's metrics, with Java's names.

Java: SenderMetricsRegistry, Sender.SenderMetrics, KafkaProducerMetrics. No sensor records per record: the sender
collects numbers per batch, and publishes them ten times a second. Reading a metric publishes them first.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, TypeVar

from pykclient.clock import FOREVER_MS, HERE, Clock, is_interrupting
from pykclient.metrics import Avg, CumulativeSum, Max, Meter, Tally

if TYPE_CHECKING:
    from pykclient.metrics import Metrics, Sensor
    from pykclient.network.kafka_client import KafkaClient
    from pykclient.network.metadata import Metadata
    from pykclient.producer.producer_batch import ProducerBatch

T = TypeVar("T")

GROUP = "producer-metrics"
TOPIC_GROUP = "producer-topic-metrics"

_NS_PER_MS = 1_000_000

#: How often the sender publishes what nobody has read meanwhile.
PUBLISH_INTERVAL_MS = 100


#: The numbers that metrics need of a batch that was sent: topic, number of records, size in bytes, compression ratio,
#: time in the queue in ms, and the size of the largest record. A plain tuple, because one is created per batch.
SentBatch = tuple[str, int, int, float, int, int]


class _Registry:
    """Creates the sensors of a group. ``before_read`` is called before one of their metrics is read."""

    def __init__(self, metrics: Metrics, before_read: Callable[[int], None]) -> None:
        self._metrics = metrics
        self._before_read = before_read

    def sensor(self, name: str) -> Sensor:
        return self._metrics.sensor(name, before_read=self._before_read)

    def avg_max(self, sensor_name: str, name: str, what: str) -> Sensor:
        sensor = self.sensor(sensor_name)
        sensor.add(self._metrics.metric_name(f"{name}-avg", GROUP, f"The average {what}"), Avg())
        sensor.add(self._metrics.metric_name(f"{name}-max", GROUP, f"The largest {what}"), Max())
        return sensor

    def meter(self, sensor_name: str, name: str, what: str) -> Sensor:
        sensor = self.sensor(sensor_name)
        sensor.add(self._meter(name, GROUP, what))
        return sensor

    def topic_meter(self, topic: str, sensor_name: str, name: str, what: str) -> Sensor:
        sensor = self.sensor(f"topic.{topic}.{sensor_name}")
        sensor.add(self._meter(name, TOPIC_GROUP, f"{what} for this topic", {"topic": topic}))
        return sensor

    def _meter(self, name: str, group: str, what: str, tags: Mapping[str, str] | None = None) -> Meter:
        metric_name = self._metrics.metric_name
        return Meter(
            metric_name(f"{name}-rate", group, f"{what} per second", tags),
            metric_name(f"{name}-total", group, f"{what} in total", tags),
        )


class TopicMetrics:
    """The sensors of one topic."""

    def __init__(self, metrics: Metrics, topic: str, before_read: Callable[[int], None]) -> None:
        registry = _Registry(metrics, before_read)
        self.records = registry.topic_meter(topic, "records-per-batch", "record-send", "Records sent")
        self.bytes = registry.topic_meter(topic, "bytes", "byte", "Bytes sent")
        self.retries = registry.topic_meter(topic, "record-retries", "record-retry", "Records retried")
        self.errors = registry.topic_meter(topic, "record-errors", "record-error", "Records failed")
        self.compression_rate = registry.sensor(f"topic.{topic}.compression-rate")
        self.compression_rate.add(
            metrics.metric_name(
                "compression-rate",
                TOPIC_GROUP,
                "The average ratio of compressed to uncompressed size of this topic's batches",
                {"topic": topic},
            ),
            Avg(),
        )

    def publish(self, batches: Sequence[SentBatch], now_ms: int) -> None:
        _, records, sizes, compression_ratios, _, _ = zip(*batches, strict=True)
        self.records.record(sum(records), now_ms)
        self.bytes.record(sum(sizes), now_ms)
        self.compression_rate.record_all(Tally.of(*compression_ratios), now_ms)


class SenderMetrics:
    """The sender's metrics. Thread: io, but for ``publish``, which any thread may call."""

    def __init__(self, metrics: Metrics, metadata: Metadata, client: KafkaClient, clock: Clock) -> None:
        self._metrics = metrics
        self._clock = clock
        self._topics: dict[str, TopicMetrics] = {}
        # guards: publications; taken before the locks of sensors
        self._lock = threading.Lock()
        # Each is filled by the sender, and emptied by whoever publishes.
        self._unpublished: deque[SentBatch] = deque()
        self._unpublished_requests: deque[int] = deque()  # the record count of each request
        #: The node and the latency in ms of each response, for ``publish`` to record. The sender adds them.
        self.latencies: deque[tuple[str, int]] = deque()
        self._next_publication_ms = 0
        registry = _Registry(metrics, self.publish)
        self._batch_size = registry.avg_max("batch-size", "batch-size", "number of bytes per batch sent")
        self._queue_time = registry.avg_max(
            "queue-time", "record-queue-time", "time in ms that batches waited to be sent"
        )
        self._request_time = registry.avg_max("request-time", "request-latency", "request latency in ms")
        self._record_size = registry.avg_max(
            "record-size", "record-size", "size in bytes of the largest record of a batch"
        )
        self._retries = registry.meter("record-retries", "record-retry", "Records retried")
        self._errors = registry.meter("errors", "record-error", "Records failed")
        self._batch_splits = registry.meter("batch-split-rate", "batch-split", "Batches split")
        self._records_per_request = registry.meter("records-per-request", "record-send", "Records sent")
        name = metrics.metric_name
        self._records_per_request.add(
            name("records-per-request-avg", GROUP, "The average number of records per request"), Avg()
        )
        self._compression_rate = registry.sensor("compression-rate")
        self._compression_rate.add(
            name("compression-rate-avg", GROUP, "The average ratio of compressed to uncompressed size of batches"),
            Avg(),
        )
        metrics.add_metric(
            name("requests-in-flight", GROUP, "Requests in flight"),
            lambda _config, _now_ms: client.in_flight_request_count(),
        )
        metrics.add_metric(
            name("metadata-age", GROUP, "The age of the metadata in seconds"),
            lambda _config, now_ms: (now_ms - metadata.last_successful_update) / 1000,
        )

    def _topic(self, topic: str) -> TopicMetrics:
        metrics = self._topics.get(topic)
        if metrics is None:
            metrics = self._topics[topic] = TopicMetrics(self._metrics, topic, self.publish)
        return metrics

    def collect_request(self, batches: Iterable[ProducerBatch]) -> None:
        """Collect the numbers of a request with these closed batches; ``publish`` records them."""
        unpublished = self._unpublished
        records = 0
        for batch in batches:
            topic = batch.topic_partition.topic
            if topic not in self._topics:
                self._topic(topic)  # not by publish(), under whose lock no reporter may be told of new metrics
            count = batch.record_count
            unpublished.append(
                (
                    topic,
                    count,
                    batch.size_in_bytes,
                    batch.compression_ratio,
                    batch.drained_ms - batch.created_ms,
                    batch.max_record_size,
                )
            )
            records += count
        self._unpublished_requests.append(records)

    def publish_if_due(self, now_ms: int) -> int:
        """Publish the collected numbers if the interval has passed; return the ms until the next call."""
        if not self._unpublished and not self.latencies:
            return FOREVER_MS
        if now_ms < self._next_publication_ms:
            return self._next_publication_ms - now_ms
        self.publish(now_ms)
        return FOREVER_MS

    def publish(self, now_ms: int) -> None:
        """Record all collected numbers, so that the metrics include all batches sent so far."""
        if is_interrupting():  # a signal handler reads a metric: this thread may hold the lock
            return
        with HERE.mark, self._lock:
            self._next_publication_ms = now_ms + PUBLISH_INTERVAL_MS
            if self.latencies:
                self._publish_latencies(now_ms)
            requests = _taken(self._unpublished_requests)
            if requests:
                self._records_per_request.record_all(Tally.of(*requests), now_ms)
            batches = _taken(self._unpublished)
            if not batches:
                return
            by_topic: dict[str, list[SentBatch]] = {}
            for batch in batches:
                by_topic.setdefault(batch[0], []).append(batch)
            for topic, of_topic in by_topic.items():
                self._topics[topic].publish(of_topic, now_ms)
            _, _, sizes, compression_ratios, queue_times_ms, largest_records = zip(*batches, strict=True)
            self._batch_size.record_all(Tally.of(*sizes), now_ms)
            self._queue_time.record_all(Tally.of(*queue_times_ms), now_ms)
            self._record_size.record_all(Tally.of(*largest_records), now_ms)
            self._compression_rate.record_all(Tally.of(*compression_ratios), now_ms)

    def record_retries(self, topic: str, count: int) -> None:
        now_ms = self._clock.now_ms()
        self._retries.record(count, now_ms)
        self._topic(topic).retries.record(count, now_ms)

    def record_errors(self, topic: str, count: int) -> None:
        now_ms = self._clock.now_ms()
        self._errors.record(count, now_ms)
        self._topic(topic).errors.record(count, now_ms)

    def _publish_latencies(self, now_ms: int) -> None:
        latencies = _taken(self.latencies)
        by_node: dict[str, list[int]] = {}
        for node_id, latency_ms in latencies:
            by_node.setdefault(node_id, []).append(latency_ms)
        self._request_time.record_all(Tally.of(*[latency_ms for _, latency_ms in latencies]), now_ms)
        for node_id, of_node in by_node.items():
            node_sensor = self._metrics.get_sensor(f"node-{node_id}.latency")
            if node_sensor is not None:
                node_sensor.record_all(Tally.of(*of_node), now_ms)

    def record_batch_split(self) -> None:
        self._batch_splits.record(1, self._clock.now_ms())


def _taken(collected: deque[T]) -> list[T]:
    """Take out what was collected so far; more may be added meanwhile."""
    return [collected.popleft() for _ in range(len(collected))]


class KafkaProducerMetrics:
    """Metrics of the application's waits. Thread: any."""

    def __init__(self, metrics: Metrics, clock: Clock) -> None:
        self._metrics = metrics
        self._clock = clock
        self._flush = self._latency("flush", "flush()")
        self._metadata_wait = self._latency("metadata-wait", "waiting for metadata")
        self._transactional: dict[str, Sensor] = {}
        #: Sends that raised or failed before their record reached a batch; the sender counts the others.
        self.errors = metrics.sensor("errors")

    def _latency(self, name: str, where: str) -> Sensor:
        sensor = self._metrics.sensor(f"{name}-time-ns-total")
        sensor.add(
            self._metrics.metric_name(f"{name}-time-ns-total", GROUP, f"Nanoseconds spent in {where}"), CumulativeSum()
        )
        return sensor

    def measure_transactions(self, names: Mapping[str, str]) -> None:
        """Measure the transactional calls: ``names`` maps each call to its name in the metrics."""
        self._transactional = {call: self._latency(f"txn-{name}", call) for call, name in names.items()}

    def record_transactional(self, call: str, duration_ms: int, now_ms: int) -> None:
        """Record the duration of a transactional call that has ended."""
        self._transactional[call].record(duration_ms * _NS_PER_MS, now_ms)

    def record_flush(self, duration_ms: int) -> None:
        self._flush.record(duration_ms * _NS_PER_MS, self._clock.now_ms())

    def record_metadata_wait(self, duration_ms: int) -> None:
        self._metadata_wait.record(duration_ms * _NS_PER_MS, self._clock.now_ms())

    def record_error(self, count: int = 1) -> None:
        self.errors.record(count, self._clock.now_ms())
