"""Expiry of the heartbeat, session and poll timers."""

from __future__ import annotations

import pytest

from pykclient.consumer.coordinator.classic_membership import Heartbeat
from pykclient.consumer.coordinator.membership import GroupRebalanceConfig
from pykclient.errors import ConfigError
from pykclient.network.exponential_backoff import ExponentialBackoff
from tests.support.mock_clock import MockClock


@pytest.fixture
def clock() -> MockClock:
    return MockClock()


@pytest.fixture
def heartbeat(clock: MockClock) -> Heartbeat:
    config = GroupRebalanceConfig(
        "g", session_timeout_ms=300, rebalance_timeout_ms=900, heartbeat_interval_ms=100, retry_backoff_ms=10
    )
    return Heartbeat(config, clock, ExponentialBackoff(10, 40, jitter=0.0))


def test_a_heartbeat_is_due_after_the_interval(heartbeat: Heartbeat, clock: MockClock) -> None:
    heartbeat.sent_heartbeat(clock.now_ms())
    clock.advance(99)
    assert not heartbeat.should_heartbeat(clock.now_ms())
    assert heartbeat.time_to_next_event(clock.now_ms()) == 1
    clock.advance(1)
    assert heartbeat.should_heartbeat(clock.now_ms())


def test_a_failed_heartbeat_is_repeated_after_a_growing_backoff(heartbeat: Heartbeat, clock: MockClock) -> None:
    waits: list[int] = []
    for _ in range(4):
        heartbeat.sent_heartbeat(clock.now_ms())
        assert heartbeat.in_flight
        heartbeat.fail_heartbeat()
        assert not heartbeat.in_flight
        waits.append(heartbeat.time_to_next_event(clock.now_ms()))
    assert waits == [10, 20, 40, 40]
    heartbeat.sent_heartbeat(clock.now_ms())
    heartbeat.receive_heartbeat()
    heartbeat.fail_heartbeat()
    assert heartbeat.time_to_next_event(clock.now_ms()) == 10


def test_session_expires_without_responses(heartbeat: Heartbeat, clock: MockClock) -> None:
    clock.advance(299)
    heartbeat.sent_heartbeat(clock.now_ms())
    assert not heartbeat.session_timeout_expired(clock.now_ms())
    heartbeat.receive_heartbeat()
    clock.advance(299)
    assert not heartbeat.session_timeout_expired(clock.now_ms())
    clock.advance(1)
    assert heartbeat.session_timeout_expired(clock.now_ms())
    heartbeat.reset_session_timeout()
    assert not heartbeat.session_timeout_expired(clock.now_ms())


def test_poll_timeout_expires_without_polls(heartbeat: Heartbeat, clock: MockClock) -> None:
    clock.advance(899)
    heartbeat.poll(clock.now_ms())
    clock.advance(899)
    assert not heartbeat.poll_timeout_expired(clock.now_ms())
    assert heartbeat.last_poll_ms == clock.now_ms() - 899
    clock.advance(1)
    assert heartbeat.poll_timeout_expired(clock.now_ms())
    heartbeat.reset_timeouts()
    assert not heartbeat.poll_timeout_expired(clock.now_ms())


def test_next_event_is_the_earliest_of_three_deadlines(heartbeat: Heartbeat, clock: MockClock) -> None:
    heartbeat.reset_timeouts()
    assert heartbeat.time_to_next_event(clock.now_ms()) == 100
    clock.advance(250)
    heartbeat.sent_heartbeat(clock.now_ms())
    assert heartbeat.time_to_next_event(clock.now_ms()) == 50


def test_the_interval_must_be_shorter_than_the_session() -> None:
    config = GroupRebalanceConfig("g", session_timeout_ms=100, heartbeat_interval_ms=100)
    with pytest.raises(ConfigError, match="must be lower than"):
        Heartbeat(config, MockClock(), ExponentialBackoff(10, 40, jitter=0.0))
