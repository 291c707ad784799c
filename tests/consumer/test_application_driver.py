"""The waits of the application's thread: they end when a manager is done, when time is over, or with a wakeup."""

from __future__ import annotations

import contextlib
import random
from typing import TypeVar

import pytest

from pykclient.consumer.application_driver import PollResult, RequestFuture, metadata_update, result_of
from pykclient.consumer.consumer_metadata import TopicMetadataRequestManager
from pykclient.errors import InvalidTopicError, KafkaTimeoutError, TopicAuthorizationError, WakeupError
from pykclient.network.client_request import ClientResponse
from tests.consumer.harness import TOPIC, Harness
from tests.consumer.responses import metadata_response

T = TypeVar("T")


class Driven:
    """A driver, and a manager that it drives."""

    def __init__(self) -> None:
        self.harness = Harness()
        self.harness.update_metadata()
        self.driver = self.harness.driver
        self.topics = TopicMetadataRequestManager(self.harness.network, 100, 1000, random.Random(1))
        self.harness.network.managers.add(self.topics)

    def result(self, future: RequestFuture[T]) -> T:
        return self.driver.run(result_of(future, self.harness.clock))


@pytest.fixture
def driven() -> Driven:
    return Driven()


def test_result_returns_the_value_of_a_future(driven: Driven) -> None:
    driven.harness.client.prepare_response(metadata_response({TOPIC: 2}))
    found = driven.result(driven.topics.describe_topics([TOPIC], 1000))
    assert list(found) == [TOPIC]
    assert not driven.harness.client.has_pending_responses


def test_a_future_that_is_done_needs_no_poll(driven: Driven) -> None:
    driven.driver.wakeup()
    assert driven.result(driven.topics.describe_topics([], 1000)) == {}


def test_result_raises_the_error_of_a_future(driven: Driven) -> None:
    driven.harness.client.prepare_response(metadata_response({}, errors={"x": InvalidTopicError.code}))
    with pytest.raises(InvalidTopicError, match="'x'"):
        driven.result(driven.topics.describe_topics(["x"], 1000))


def test_result_times_out(driven: Driven) -> None:
    driven.harness.clock.auto_tick_ms = 10
    with pytest.raises(KafkaTimeoutError, match="no metadata of topic 'test' within 50 ms"):
        driven.result(driven.topics.describe_topics([TOPIC], 50))


def test_wakeup_ends_the_wait_and_its_future(driven: Driven) -> None:
    future = driven.topics.describe_topics([TOPIC], 1000)
    driven.driver.wakeup()
    with pytest.raises(WakeupError):
        driven.result(future)
    assert future.failed
    [request] = driven.harness.client.requests
    driven.harness.client.respond(None, disconnected=True)
    driven.harness.clock.advance(500)
    for _ in range(2):
        driven.harness.poll()
    assert request not in driven.harness.client.requests
    assert not driven.harness.client.requests


def test_run_until_returns_whether_the_condition_holds(driven: Driven) -> None:
    timer = driven.harness.timer(50)
    seen: list[int] = []

    def is_done() -> bool:
        seen.append(driven.harness.clock.now_ms())
        return len(seen) > 3

    assert driven.driver.run_until(is_done, timer)
    assert driven.driver.run_until(lambda: True, timer)
    driven.harness.clock.auto_tick_ms = 10
    assert not driven.driver.run_until(lambda: False, timer)
    assert timer.expired


def test_run_until_can_ignore_a_wakeup(driven: Driven) -> None:
    driven.harness.clock.auto_tick_ms = 10
    driven.driver.wakeup()
    assert not driven.driver.run_until(lambda: False, driven.harness.timer(50), wakeup=False)
    with pytest.raises(WakeupError):
        driven.driver.run_until(lambda: False, driven.harness.timer(50))


def test_a_wakeup_ends_one_step(driven: Driven) -> None:
    driven.driver.wakeup()
    with pytest.raises(WakeupError):
        driven.driver.step(driven.harness.timer(0))
    driven.driver.step(driven.harness.timer(0))


def test_a_wakeup_waits_for_a_step_that_allows_it(driven: Driven) -> None:
    driven.driver.wakeup()
    driven.driver.step(driven.harness.timer(0), wakeup=False)
    with pytest.raises(WakeupError):
        driven.driver.maybe_trigger_wakeup()
    driven.driver.wakeup()
    driven.driver.disable_wakeups()
    driven.driver.step(driven.harness.timer(0))


def test_step_waits_for_backoff_manager_or_timer(driven: Driven) -> None:
    timeouts: list[int] = []
    client = driven.harness.client
    poll = client.poll

    def note(timeout_ms: int, now_ms: int) -> object:
        timeouts.append(timeout_ms)
        return poll(timeout_ms, now_ms)

    client.poll = note  # type: ignore[assignment, method-assign]
    client.ready(driven.harness.node(), driven.harness.clock.now_ms())
    driven.driver.step(driven.harness.timer(), lambda: True)
    driven.driver.step(driven.harness.timer(), lambda: False)
    driven.topics.describe_topics([TOPIC], 700)
    driven.driver.step(driven.harness.timer())
    driven.driver.step(driven.harness.timer(400))
    # With nothing in flight, the retry backoff; with a request in flight, the manager's time, or the timer's.
    assert (timeouts[0], timeouts[1], timeouts[3]) == (0, 100, 400)


def test_step_raises_metadata_errors(driven: Driven) -> None:
    driven.harness.subscriptions.subscribe({"secret"})
    driven.harness.client.update_metadata(metadata_response({}, errors={"secret": 29}))
    with pytest.raises(TopicAuthorizationError, match="secret"):
        driven.driver.step(driven.harness.timer(0))
    driven.driver.step(driven.harness.timer(0))


def test_metadata_can_be_awaited(driven: Driven) -> None:
    driven.harness.client.prepare_metadata_update(metadata_response({"test": 3}))
    assert driven.driver.run(metadata_update(driven.harness.metadata, driven.harness.timer()))
    driven.harness.clock.auto_tick_ms = 1
    driven.harness.client.set_unreachable(driven.harness.node(), 10_000)
    assert not driven.driver.run(metadata_update(driven.harness.metadata, driven.harness.timer(50)))


def test_work_due_shortly_before_a_call_ends_is_left_to_the_next_call(
    driven: Driven, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So the process wakes up once. This is for calls that wait for records, as these follow each other."""
    network, waits = driven.harness.network, []
    due_ms = 960

    class Due:
        runs_in_background = False
        pending = True

        def poll(self, _now_ms: int) -> PollResult:
            return PollResult(due_ms)

        def reset(self) -> None: ...

    def polled(timeout_ms: int, now_ms: int) -> int:
        waits.append(timeout_ms)
        return now_ms

    network.managers.add(Due())
    monkeypatch.setattr(network, "poll", polled)
    for call_ms in (900, 960, 1_000, 1_020, 1_021, 2_000):
        driven.driver.step(driven.harness.timer(call_ms), for_records=True)
    assert waits == [900, 960, 1_000, 1_020, 960, 960]
    waits.clear()
    driven.driver.step(driven.harness.timer(1_000))
    assert waits == [960]


@pytest.mark.parametrize("woken", ["never", "before", "meanwhile"])
def test_fetches_continue_only_while_a_call_waits_for_records(driven: Driven, woken: str) -> None:
    network, driver = driven.harness.network, driven.driver
    seen: list[bool] = []
    poll = driven.harness.client.poll

    def polled(timeout_ms: int, now_ms: int) -> list[ClientResponse]:
        if woken == "meanwhile":
            driver.wakeup()
        seen.append(network.awaits_records)
        return poll(timeout_ms, now_ms)

    driven.harness.client.poll = polled  # type: ignore[method-assign]
    if woken == "before":
        driver.wakeup()
    with contextlib.nullcontext() if woken == "never" else pytest.raises(WakeupError):
        driver.step(driven.harness.timer(10), for_records=True)
    assert seen == [woken == "never"]
    assert not network.awaits_records
    seen.clear()
    woken = "never"
    driver.step(driven.harness.timer(10))
    assert seen == [False], "a call that waits for something else does not fetch"
