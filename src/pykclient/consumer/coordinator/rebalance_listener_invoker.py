"""Calls of the application's rebalance listener (Java: ConsumerRebalanceListenerInvoker)."""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import partial
from typing import Any

from pykclient.clock import Clock
from pykclient.consumer.application_events import ApplicationCall, Steps
from pykclient.consumer.coordinator.coordinator_metrics import RebalanceCallbackMetrics
from pykclient.consumer.subscription_state import SubscriptionState
from pykclient.errors import WakeupError
from pykclient.log_context import LogContext
from pykclient.metrics.sensor import Sensor
from pykclient.types import TopicPartition


class RebalanceListenerInvoker:
    """Has the listener called. Each method's steps return the listener's exception, so that the rebalance can continue
    first.

    WakeupError is raised. Thread: application.
    """

    def __init__(
        self,
        log_context: LogContext,
        subscriptions: SubscriptionState,
        clock: Clock,
        metrics: RebalanceCallbackMetrics,
    ) -> None:
        self._log = log_context.logger(__name__)
        self._subscriptions = subscriptions
        self._clock = clock
        self._metrics = metrics

    def invoke_partitions_assigned(self, partitions: Collection[TopicPartition]) -> Steps[Exception | None]:
        self._log.info("Partitions assigned: %s", names(partitions))
        return self._invoke("on_partitions_assigned", partitions, self._metrics.assigned)

    def invoke_partitions_revoked(self, partitions: Collection[TopicPartition]) -> Steps[Exception | None]:
        self._log.info("Partitions revoked: %s", names(partitions))
        self._tell_paused(partitions)
        return self._invoke("on_partitions_revoked", partitions, self._metrics.revoked)

    def invoke_partitions_lost(self, partitions: Collection[TopicPartition]) -> Steps[Exception | None]:
        self._log.info("Partitions lost: %s", names(partitions))
        self._tell_paused(partitions)
        return self._invoke("on_partitions_lost", partitions, self._metrics.lost)

    def _tell_paused(self, partitions: Collection[TopicPartition]) -> None:
        paused = self._subscriptions.paused_partitions().intersection(partitions)
        if paused:
            self._log.info("No longer paused, also if they are assigned again: %s", names(paused))

    def _invoke(self, method: str, partitions: Collection[TopicPartition], sensor: Sensor) -> Steps[Exception | None]:
        listener: Any = self._subscriptions.rebalance_listener()
        if listener is None:
            return None
        callback: Callable[[set[TopicPartition]], object] | None = getattr(listener, method, None)
        if callback is None:
            if method != "on_partitions_lost":
                return None
            callback = listener.on_partitions_revoked
        start_ms = self._clock.now_ms()
        try:
            yield ApplicationCall(partial(callback, set(partitions)))
        except WakeupError:
            raise
        except Exception as error:  # noqa: BLE001 - the application's code; poll() raises it
            self._log.exception("%s.%s failed for %s", type(listener).__name__, method, names(partitions))
            return error
        sensor.record(self._clock.now_ms() - start_ms)
        return None


def names(partitions: Collection[TopicPartition]) -> str:
    """Format partitions for the log."""
    return ", ".join(map(str, sorted(partitions))) or "none"


#: So many partitions are named in a line of the log about a rebalance.
_NAMED = 10


def moved(partitions: Collection[TopicPartition]) -> str:
    """Return the number of partitions that a rebalance has moved, and the names of the first ones."""
    if not partitions:
        return "none"
    left = len(partitions) - _NAMED
    shown = ", ".join(map(str, sorted(partitions)[:_NAMED]))
    return f"{len(partitions)} ({shown}{f' and {left} more' if left > 0 else ''})"
