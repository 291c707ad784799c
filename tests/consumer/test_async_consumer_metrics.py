"""The metrics of consumers with group.protocol=consumer: requests, polls, and events for the application (KIP-1068)."""

from __future__ import annotations

from typing import Any

import pytest

from pykclient.consumer.application_driver import ApplicationEvents, NetworkClientDelegate, Steps, UnsentRequest
from pykclient.consumer.consumer_metrics import AsyncConsumerMetrics
from pykclient.consumer.coordinator.group_requests import FindCoordinatorBuilder
from pykclient.metrics import Metrics
from tests.consumer.coordinator.harness import GROUP, GroupHarness
from tests.support.mock_clock import MockClock


def values(metrics: Metrics) -> dict[str, Any]:
    return {name.name: metric.metric_value() for name, metric in metrics.metrics.items()}


def test_events_are_measured_from_their_arrival_to_their_end() -> None:
    clock = MockClock()
    metrics = Metrics(clock=clock)
    events = ApplicationEvents()
    events.metrics = AsyncConsumerMetrics(metrics, clock)
    events.metrics.measure_queues(lambda: 0, lambda: len(events))

    def takes(duration_ms: int, error: Exception | None = None) -> Steps[None]:
        yield from ()
        clock.advance(duration_ms)
        if error is not None:
            raise error

    events.add(takes(30))
    clock.advance(50)
    events.add(takes(10, KeyError("of the application")))
    assert values(metrics)["background-event-queue-size"] == 2
    clock.advance(100)
    with pytest.raises(KeyError):
        list(events.steps())
    found = values(metrics)
    assert found["background-event-queue-size"] == 0
    assert (found["background-event-queue-time-avg"], found["background-event-queue-time-max"]) == (140, 150)
    assert found["background-event-queue-processing-time-avg"] == 20, "also if it fails"
    assert found["background-event-queue-processing-time-max"] == 30


def test_requests_are_measured_until_they_are_sent() -> None:
    group = GroupHarness()
    clock = MockClock()
    network = NetworkClientDelegate(group.client, clock, 100, 5_000, 3_000)
    metrics = Metrics(clock=clock)
    network.metrics = AsyncConsumerMetrics(metrics, clock)
    network.metrics.measure_queues(network.unsent_request_count, lambda: 0)
    network.poll(0, clock.now_ms())
    network.add(UnsentRequest(FindCoordinatorBuilder(GROUP), group.node), False)
    network.add(UnsentRequest(FindCoordinatorBuilder(GROUP), None), False)
    assert values(metrics)["unsent-requests-queue-size"] == 2
    clock.advance(40)
    network.poll(0, clock.now_ms())
    found = values(metrics)
    assert found["unsent-requests-queue-size"] == 0
    assert (found["unsent-requests-queue-time-avg"], found["unsent-requests-queue-time-max"]) == (40, 40)
    assert found["time-between-network-thread-poll-max"] == 40
