"""A metric that can be read (Java: KafkaMetric)."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from pykclient.clock import SYSTEM_CLOCK, Clock
from pykclient.metrics.metric_config import MetricConfig
from pykclient.metrics.metric_name import MetricName
from pykclient.reentry import HERE


class KafkaMetric:
    """A name and a way to compute its value. Thread: any.

    ``provider(config, now_ms)`` returns the value. ``lock`` is the lock of the sensor that the value is computed from.
    Gauges have none, so their providers are called without a lock. ``before_read`` is called with the time, before the
    lock is taken.
    """

    __slots__ = ("_before_read", "_clock", "_lock", "_provider", "config", "metric_name")

    def __init__(
        self,
        metric_name: MetricName,
        provider: Callable[[MetricConfig, int], Any],
        config: MetricConfig | None = None,
        clock: Clock = SYSTEM_CLOCK,
        lock: threading.Lock | None = None,
        before_read: Callable[[int], object] | None = None,
    ) -> None:
        self.metric_name = metric_name
        self.config = MetricConfig() if config is None else config
        self._provider = provider
        self._clock = clock
        self._lock = lock
        self._before_read = before_read

    def metric_value(self) -> Any:
        """Return the current value: a float for a stat, anything for a gauge."""
        now_ms = self._clock.now_ms()
        if self._lock is None:
            return self._provider(self.config, now_ms)
        if self._before_read is not None:
            self._before_read(now_ms)
        with HERE.mark, self._lock:
            return self._provider(self.config, now_ms)

    value = metric_value  # kafka-python's name

    def __repr__(self) -> str:
        return f"KafkaMetric({self.metric_name!r})"
