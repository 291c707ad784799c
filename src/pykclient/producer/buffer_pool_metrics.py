"""Metrics of the memory for records, with Java's names (Java: BufferPool, KafkaProducer)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from pykclient.clock import Clock
from pykclient.metrics.stats import CumulativeSum, Meter, Rate

if TYPE_CHECKING:
    from pykclient.metrics.metrics import Metrics

GROUP = "producer-metrics"

_NS_PER_MS = 1_000_000


class MeasuredPool(Protocol):
    """The numbers of a BufferPool that gauges show. Sizes are in bytes."""

    @property
    def total_memory(self) -> int: ...
    @property
    def available_memory(self) -> int: ...
    @property
    def queued(self) -> int: ...


class BufferPoolMetrics:
    """Metrics of waiting for memory. Thread: any."""

    def __init__(self, metrics: Metrics, clock: Clock) -> None:
        self._clock = clock
        name = metrics.metric_name
        self._wait = metrics.sensor("bufferpool-wait-time")
        self._wait.add(
            name("bufferpool-wait-ratio", GROUP, "The fraction of time that threads wait for memory"), Rate(unit_ms=1)
        )
        self._wait_total = metrics.sensor("bufferpool-wait-time-total")
        self._wait_total.add(
            name("bufferpool-wait-time-ns-total", GROUP, "Nanoseconds that threads waited for memory"), CumulativeSum()
        )
        self._exhausted = metrics.sensor("buffer-exhausted-records")
        self._exhausted.add(
            Meter(
                name("buffer-exhausted-rate", GROUP, "Records dropped for lack of memory per second"),
                name("buffer-exhausted-total", GROUP, "Records dropped for lack of memory in total"),
            )
        )

    def record_wait(self, waited_ms: int) -> None:
        """Record that a thread has waited for ``waited_ms``."""
        now_ms = self._clock.now_ms()
        self._wait.record(waited_ms, now_ms)
        self._wait_total.record(waited_ms * _NS_PER_MS, now_ms)

    def record_exhausted(self) -> None:
        """Record that no memory became free in time."""
        self._exhausted.record(1, self._clock.now_ms())


def register_buffer_pool_gauges(metrics: Metrics, pool: MeasuredPool) -> None:
    """Register gauges for the pool's current state."""
    name = metrics.metric_name
    metrics.add_metric(
        name("waiting-threads", GROUP, "The number of threads that wait for memory"),
        lambda _config, _now_ms: pool.queued,
    )
    metrics.add_metric(
        name("buffer-total-bytes", GROUP, "The bytes of memory for records (buffer.memory)"),
        lambda _config, _now_ms: pool.total_memory,
    )
    metrics.add_metric(
        name("buffer-available-bytes", GROUP, "The bytes of this memory that are free"),
        lambda _config, _now_ms: pool.available_memory,
    )
