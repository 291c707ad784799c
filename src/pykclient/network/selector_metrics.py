"""Metrics of connections and traffic, counted cheaply and published when read (Java: Selector.SelectorMetrics)."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Final

from pykclient.metrics import MetricConfig, MetricName, Metrics, Sensor
from pykclient.metrics.stats import Avg, CumulativeSum, Max, Meter, Rate, SampledStat, Tally
from pykclient.reentry import HERE, is_interrupting

#: Polls publish the counts this often. Each second, this would be a quarter of an idle client's work. Whoever reads a
#: metric publishes, too.
FLUSH_INTERVAL_MS: Final = 3_000


class Traffic:
    """The traffic of one connection in total, as plain integers for the hot path.

    ``request_max`` is the largest request since the last publication. Thread: io; any thread may read it.
    """

    __slots__ = ("bytes_received", "bytes_sent", "io_count", "request_bytes", "request_max", "requests", "responses")

    def __init__(self) -> None:
        self.bytes_sent = self.bytes_received = self.io_count = 0
        self.requests = self.request_bytes = self.request_max = self.responses = 0

    def add(self, other: Traffic) -> None:
        self.bytes_sent += other.bytes_sent
        self.bytes_received += other.bytes_received
        self.io_count += other.io_count
        self.requests += other.requests
        self.request_bytes += other.request_bytes
        self.request_max = max(self.request_max, other.request_max)
        self.responses += other.responses

    def take_since(self, published: Traffic) -> Traffic | None:
        """Return the traffic since ``published``, which becomes the current total; None if there is none.

        The caller holds the lock of publications. The I/O thread may count meanwhile: the next call returns the rest.
        """
        if self.io_count == published.io_count and self.requests == published.requests:
            return None
        since = Traffic()
        for name in _TOTALS:
            total = getattr(self, name)
            setattr(since, name, total - getattr(published, name))
            setattr(published, name, total)
        since.request_max, self.request_max = self.request_max, 0
        return since


_TOTALS = ("bytes_received", "bytes_sent", "io_count", "request_bytes", "requests", "responses")


class _TotalNs(CumulativeSum):
    """A sum of milliseconds, in nanoseconds. Thread: owner."""

    __slots__ = ()

    def measure(self, config: MetricConfig, now_ms: int) -> float:
        return super().measure(config, now_ms) * 1e6


class _TrafficSensors:
    """The sensors of one connection, or of all connections together."""

    __slots__ = ("_bytes_received", "_bytes_sent", "_io", "_request_size", "_requests", "_responses")

    def __init__(self, owner: SelectorMetrics, prefix: str, suffix: str, group: str, tags: Mapping[str, str]) -> None:
        def meter(sensor: str, base: str, what: str) -> Sensor:
            return owner.meter(f"{prefix}{sensor}{suffix}", base, what, group, tags)

        self._requests = meter("requests-sent", "request", "requests sent")
        self._bytes_sent = meter("bytes-sent", "outgoing-byte", "bytes sent")
        self._responses = meter("responses-received", "response", "responses received")
        self._bytes_received = meter("bytes-received", "incoming-byte", "bytes received")
        self._io = None
        if not prefix:
            self._io = meter("bytes-sent-received", "network-io", "reads and writes on all connections")
        self._request_size = owner.sensor(f"{prefix}request-size{suffix}")
        average = owner.metric_name("request-size-avg", "Mean size of the requests sent, in bytes", group, tags)
        largest = owner.metric_name("request-size-max", "Size of the largest request sent, in bytes", group, tags)
        self._request_size.add(average, Avg())
        self._request_size.add(largest, Max())

    def publish(self, traffic: Traffic, now_ms: int) -> None:
        if traffic.requests:
            self._requests.record(traffic.requests, now_ms)
            sizes = Tally()
            sizes.count, sizes.total, sizes.largest = traffic.requests, traffic.request_bytes, traffic.request_max
            self._request_size.record_all(sizes, now_ms)
        if traffic.bytes_sent:
            self._bytes_sent.record(traffic.bytes_sent, now_ms)
        if traffic.responses:
            self._responses.record(traffic.responses, now_ms)
        if traffic.bytes_received:
            self._bytes_received.record(traffic.bytes_received, now_ms)
        if traffic.io_count and self._io is not None:
            self._io.record(traffic.io_count, now_ms)


class SelectorMetrics:
    """Java's metric names in the groups ``<prefix>-metrics`` and ``<prefix>-node-metrics`` (tag ``node-id``).

    A request costs a few additions. Polls publish them to the sensors, every 3 seconds at most, and so does
    whoever reads a metric. Thread: io; ``flush``: any.
    """

    def __init__(
        self,
        metrics: Metrics,
        group_prefix: str,
        tags: Mapping[str, str],
        per_connection: bool,
        connection_count: Callable[[], int],
    ) -> None:
        self._metrics = metrics
        self._tags = dict(tags)
        self._group = f"{group_prefix}-metrics"
        self._node_group = f"{group_prefix}-node-metrics"
        self._per_connection = per_connection
        self._sensor_names: list[str] = []
        self._suffix = ":" + "".join(f"{key}-{value}" for key, value in tags.items())
        self._lock = threading.Lock()  # guards: publications; taken before the locks of sensors
        self._traffic: dict[str, Traffic] = {}
        self._published: dict[str, Traffic] = {}
        self._node_sensors: dict[str, _TrafficSensors] = {}
        self._of_closed = Traffic()  # unpublished traffic of connections that are gone
        self._total_sensors = _TrafficSensors(self, "", self._suffix, self._group, self._tags)
        self._next_flush_ms = 0
        self._polls = self._wait_ms = self._io_ms = 0  # in total
        self._published_polls = (0, 0, 0)

        self.connection_created = self._meter("connections-created", "connection-creation", "connections established")
        self.connection_closed = self._meter("connections-closed", "connection-close", "connections closed")
        self.authentication_succeeded = self._meter(
            "successful-authentication", "successful-authentication", "connections that authenticated"
        )
        self.authentication_failed = self._meter(
            "failed-authentication", "failed-authentication", "connections that failed to authenticate"
        )
        self.reauthentication_succeeded = self._meter(
            "successful-reauthentication", "successful-reauthentication", "authentications of connections in use"
        )
        self.reauthentication_failed = self._meter(
            "failed-reauthentication", "failed-reauthentication", "failed authentications of connections in use"
        )
        self.reauthentication_latency = self.sensor(f"reauthentication-latency{self._suffix}")
        for name, word, stat in (("avg", "Mean", Avg()), ("max", "Largest", Max())):
            self.reauthentication_latency.add(
                self.metric_name(
                    f"reauthentication-latency-{name}",
                    f"{word} time to authenticate a connection in use again, in milliseconds",
                    self._group,
                    self._tags,
                ),
                stat,
            )
        self._select = self._meter("select-time", "select", "times that the I/O layer looked for something to do")
        self._io_wait, self._io_wait_total = self._time_sensors("io-wait", "waiting for sockets")
        self._io, self._io_total = self._time_sensors("io", "reading and writing")
        self._connection_count = metrics.metric_name("connection-count", self._group, "Open connections", self._tags)
        metrics.add_metric(self._connection_count, lambda _config, _now_ms: connection_count())

    # --- counting --------------------------------------------------------------------------------------------------

    def traffic(self, connection_id: str) -> Traffic:
        """Return the counters of a connection. They outlive it, because it may be re-established."""
        traffic = self._traffic.get(connection_id)
        if traffic is None:
            traffic = Traffic()
            with HERE.mark, self._lock:
                self._published[connection_id] = Traffic()
                self._traffic[connection_id] = traffic
            if self._per_connection:
                self._register_connection(connection_id)
        return traffic

    def closed(self, connection_id: str) -> None:
        """Record that a connection was closed.

        Its counters are kept, unless connections have no metrics of their own.
        """
        self.connection_closed.record()
        if not self._per_connection:
            with HERE.mark, self._lock:
                traffic = self._traffic.pop(connection_id, None)
                rest = None if traffic is None else traffic.take_since(self._published.pop(connection_id))
                if rest is not None:
                    self._of_closed.add(rest)

    def polled(self, wait_ms: int, io_ms: int, now_ms: int) -> None:
        """Count a poll, with its wait and I/O times; publish if that is due."""
        self._polls += 1
        self._wait_ms += wait_ms
        self._io_ms += io_ms
        if now_ms >= self._next_flush_ms:
            self.flush(now_ms)

    def flush(self, now_ms: int) -> None:
        """Publish what was counted since the last publication."""
        if is_interrupting():  # a signal handler reads a metric: this thread may hold the lock
            return
        with HERE.mark, self._lock:
            self._next_flush_ms = now_ms + FLUSH_INTERVAL_MS
            total, self._of_closed = self._of_closed, Traffic()
            for connection_id, traffic in self._traffic.items():
                since = traffic.take_since(self._published[connection_id])
                if since is None:
                    continue
                total.add(since)
                sensors = self._node_sensors.get(connection_id)
                if sensors is not None:
                    sensors.publish(since, now_ms)
            self._total_sensors.publish(total, now_ms)
            self._publish_polls(now_ms)

    def _publish_polls(self, now_ms: int) -> None:
        before = self._published_polls
        self._published_polls = polls, wait_ms, io_ms = self._polls, self._wait_ms, self._io_ms
        polls, wait_ms, io_ms = polls - before[0], wait_ms - before[1], io_ms - before[2]
        if polls:
            self._select.record(polls, now_ms)
            self._io_wait.record(wait_ms * 1e6 / polls, now_ms)
            self._io_wait_total.record(wait_ms, now_ms)
            self._io.record(io_ms * 1e6 / polls, now_ms)
            self._io_total.record(io_ms, now_ms)

    # --- sensors ---------------------------------------------------------------------------------------------------

    def sensor(self, name: str) -> Sensor:
        self._sensor_names.append(name)
        return self._metrics.sensor(name, before_read=self.flush)

    def metric_name(self, name: str, description: str, group: str, tags: Mapping[str, str]) -> MetricName:
        return self._metrics.metric_name(name, group, description, tags)

    def meter(self, sensor_name: str, base: str, what: str, group: str, tags: Mapping[str, str]) -> Sensor:
        """Return a sensor with ``<base>-rate`` and ``<base>-total``, to be recorded with counts."""
        sensor = self.sensor(sensor_name)
        rate = self.metric_name(f"{base}-rate", f"{what.capitalize()} per second", group, tags)
        total = self.metric_name(f"{base}-total", f"{what.capitalize()} in all", group, tags)
        sensor.add(Meter(rate, total))
        return sensor

    def _meter(self, sensor_name: str, base: str, what: str) -> Sensor:
        return self.meter(f"{sensor_name}{self._suffix}", base, what, self._group, self._tags)

    def _time_sensors(self, base: str, what: str) -> tuple[Sensor, Sensor]:
        """Return a sensor for nanoseconds per poll, and one for total milliseconds."""

        def name(metric: str, description: str) -> MetricName:
            return self.metric_name(f"{base}-{metric}", description, self._group, self._tags)

        average = self.sensor(f"{base}-time{self._suffix}")
        average.add(name("time-ns-avg", f"Mean nanoseconds per poll spent {what}"), Avg())
        total = self.sensor(f"{base}-time-total{self._suffix}")
        total.add(name("ratio", f"Fraction of the time spent {what}"), Rate(unit_ms=1))
        total.add(name("time-ns-total", f"Nanoseconds spent {what}"), _TotalNs())
        return average, total

    def _register_connection(self, connection_id: str) -> None:
        tags = {**self._tags, "node-id": f"node-{connection_id}"}
        prefix = f"node-{connection_id}."
        self._node_sensors[connection_id] = _TrafficSensors(self, prefix, "", self._node_group, tags)
        latency = self.sensor(f"{prefix}latency")  # recorded by the senders of requests
        stats: tuple[tuple[str, str, SampledStat], ...] = (("avg", "Mean", Avg()), ("max", "Largest", Max()))
        for name, word, stat in stats:
            what = f"{word} time from sending a request to its response, in milliseconds"
            latency.add(self.metric_name(f"request-latency-{name}", what, self._node_group, tags), stat)

    def close(self) -> None:
        """Remove all metrics."""
        self._metrics.remove_metric(self._connection_count)
        for name in self._sensor_names:
            self._metrics.remove_sensor(name)
