"""Membership state that two threads share: steps are atomic, and no signal is missed."""

from __future__ import annotations

import threading

import pytest

from pykclient.clock import SYSTEM_CLOCK
from pykclient.consumer.coordinator.classic_membership import (
    BEAT,
    POLL_EXPIRED,
    REST,
    SESSION_EXPIRED,
    ClassicMembership,
)
from pykclient.consumer.coordinator.membership import (
    PREPARING_REBALANCE,
    STABLE,
    UNJOINED,
    Generation,
    GroupRebalanceConfig,
)
from pykclient.errors import ConfigError, IllegalGenerationError, UnknownMemberIdError
from pykclient.log_context import LogContext
from pykclient.network.exponential_backoff import ExponentialBackoff
from tests.support.mock_clock import MockClock

GENERATION = Generation(1, "m", "range")


@pytest.fixture
def clock() -> MockClock:
    return MockClock()


@pytest.fixture
def membership(clock: MockClock) -> ClassicMembership:
    config = GroupRebalanceConfig("g", session_timeout_ms=300, rebalance_timeout_ms=1_000, heartbeat_interval_ms=100)
    return ClassicMembership(config, LogContext(), clock, ExponentialBackoff(10, 40, jitter=0.0))


def join(membership: ClassicMembership, generation: Generation = GENERATION) -> None:
    membership.begin_rebalance()
    assert membership.joined(generation)
    complete, _ = membership.synced(generation)
    assert complete


def test_rebalance_begins_and_ends_with_a_generation(membership: ClassicMembership, clock: MockClock) -> None:
    membership.request_rejoin("because")
    assert membership.begin_rebalance() == (Generation(-1, "", None), "because")
    assert membership.rebalance_in_progress
    assert membership.generation_if_stable() is None
    clock.advance(70)
    membership.begin_rebalance()  # retry after a failed attempt; the rebalance time counts from the first
    clock.advance(30)
    assert membership.joined(GENERATION)
    assert membership.synced(GENERATION) == (True, 100)
    assert membership.snapshot() == (GENERATION, STABLE)
    assert not membership.rejoin_needed
    assert membership.rejoin_reason == ""


def test_left_before_the_answer_to_join(membership: ClassicMembership) -> None:
    membership.begin_rebalance()
    membership.reset_and_rejoin("left")
    assert not membership.joined(GENERATION)
    assert membership.state is UNJOINED


def test_another_generation_before_the_answer_to_sync(membership: ClassicMembership) -> None:
    membership.begin_rebalance()
    membership.joined(GENERATION)
    membership.begin_rebalance()
    assert membership.synced(GENERATION) == (False, 0)
    membership.joined(Generation(2, "m", "range"))
    assert membership.synced(GENERATION) == (False, 0)


def test_only_the_present_generation_can_be_ended(membership: ClassicMembership) -> None:
    join(membership)
    old = Generation(0, "m", "range")
    assert not membership.reset_if_unchanged(old, UnknownMemberIdError(), "x")
    assert membership.state is STABLE
    assert membership.reset_if_unchanged(GENERATION, IllegalGenerationError(), "x", lost_because="why")
    assert membership.generation == Generation(-1, "m", None)
    assert membership.lost_because == "why"
    assert membership.take_join_prepare()
    assert not membership.take_join_prepare()


def test_a_commit_of_an_old_generation_ends_nothing_during_a_rebalance(membership: ClassicMembership) -> None:
    join(membership, Generation(2, "m", "range"))
    membership.begin_rebalance()
    assert not membership.reset_unless_rebalancing_anew(GENERATION, UnknownMemberIdError(), "x")
    assert membership.state is PREPARING_REBALANCE


def test_next_action_follows_heartbeat_session_and_poll_times(membership: ClassicMembership, clock: MockClock) -> None:
    join(membership)
    assert membership.next_action(clock.now_ms()) == (REST, 100)
    clock.advance(100)
    assert membership.next_action(clock.now_ms()) == (BEAT, 100)
    assert membership.heartbeat_in_flight
    clock.advance(200)
    assert membership.next_action(clock.now_ms()) == (SESSION_EXPIRED, 0)
    clock.advance(299)
    for _ in range(3):
        membership.receive_heartbeat()
        clock.advance(200)
        membership.next_action(clock.now_ms())
    assert membership.next_action(clock.now_ms())[0] == POLL_EXPIRED
    membership.poll_heartbeat(clock.now_ms())
    assert membership.next_action(clock.now_ms())[0] != POLL_EXPIRED


def test_a_failed_heartbeat_is_repeated_after_a_growing_backoff(
    membership: ClassicMembership, clock: MockClock
) -> None:
    join(membership)
    waits: list[int] = []
    clock.advance(100)
    for _ in range(4):
        assert membership.next_action(clock.now_ms())[0] == BEAT
        membership.fail_heartbeat()
        assert not membership.heartbeat_in_flight
        waits.append(membership.time_to_next_event(clock.now_ms()))
        clock.advance(waits[-1])
    assert waits == [10, 20, 40, 40]
    membership.receive_heartbeat()
    membership.fail_heartbeat()
    assert membership.time_to_next_event(clock.now_ms()) == 10


def test_the_interval_must_be_shorter_than_the_session(clock: MockClock) -> None:
    config = GroupRebalanceConfig("g", session_timeout_ms=100, heartbeat_interval_ms=100)
    with pytest.raises(ConfigError, match="must be lower than"):
        ClassicMembership(config, LogContext(), clock, ExponentialBackoff(10, 40, jitter=0.0))


def test_no_signal_is_slept_through(membership: ClassicMembership) -> None:
    seen = membership.signals
    membership.signal()
    membership.wait_for_signal(seen, 10**9)  # returns at once, because the signal came before the wait


def test_a_signal_ends_the_wait() -> None:
    config = GroupRebalanceConfig("g")
    membership = ClassicMembership(config, LogContext(), SYSTEM_CLOCK, ExponentialBackoff(10, 40, jitter=0.0))
    woken = threading.Event()

    def wait() -> None:
        membership.wait_for_signal(membership.signals, 60_000)
        woken.set()

    thread = threading.Thread(target=wait, daemon=True)
    thread.start()
    while not woken.wait(0.01):
        membership.signal()
    thread.join(30)
    assert not thread.is_alive()
