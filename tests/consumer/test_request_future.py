"""RequestFuture: values, errors, listeners."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial

import pytest

from pykclient.consumer.application_driver import RequestFuture
from pykclient.errors import DisconnectError, IllegalStateError, KafkaError


def test_completed_future_has_a_value() -> None:
    future: RequestFuture[int] = RequestFuture()
    assert not future.is_done
    future.complete(1)
    assert future.is_done
    assert future.succeeded
    assert not future.failed
    assert future.value == 1
    with pytest.raises(IllegalStateError):
        _ = future.exception


def test_none_is_a_value() -> None:
    future = RequestFuture.success(None)
    assert future.succeeded
    assert future.value is None


def test_failed_future_has_an_exception() -> None:
    error = DisconnectError("gone")
    future: RequestFuture[int] = RequestFuture.failure(error)
    assert future.failed
    assert not future.succeeded
    assert future.exception is error
    assert future.is_retriable
    with pytest.raises(IllegalStateError):
        _ = future.value


def test_future_completes_once() -> None:
    future = RequestFuture.success(1)
    with pytest.raises(IllegalStateError):
        future.complete(2)
    with pytest.raises(IllegalStateError):
        future.raise_error(KafkaError("late"))
    assert future.value == 1


@pytest.mark.parametrize("before", [True, False])
def test_listeners_run_in_order_once(before: bool) -> None:
    heard: list[str] = []
    future: RequestFuture[int] = RequestFuture()
    if not before:
        future.complete(5)
    future.add_listener(lambda value: heard.append(f"first {value}"), lambda _: heard.append("wrong"))
    future.add_listener(lambda value: heard.append(f"second {value}"))
    future.add_listener(None, lambda _: heard.append("wrong"))
    if before:
        future.complete(5)
    assert heard == ["first 5", "second 5"]


def test_a_listener_may_add_another() -> None:
    heard: list[str] = []
    future: RequestFuture[int] = RequestFuture()
    future.add_listener(lambda _: future.add_listener(lambda _: heard.append("inner")))
    future.complete(1)
    assert heard == ["inner"]


def test_compose_converts_values_and_passes_errors() -> None:
    def double(value: int, composed: RequestFuture[str]) -> None:
        composed.complete(str(value * 2))

    future: RequestFuture[int] = RequestFuture()
    composed = future.compose(double)
    future.complete(21)
    assert composed.value == "42"
    error = KafkaError("no")
    assert RequestFuture[int].failure(error).compose(double).exception is error


def test_compose_can_turn_an_error_into_a_value() -> None:
    def rescue(error: Exception, composed: RequestFuture[str]) -> None:
        composed.complete(f"rescued from {error}")

    future: RequestFuture[int] = RequestFuture.failure(KafkaError("x"))
    composed: RequestFuture[str] = future.compose(lambda _value, _composed: None, rescue)
    assert composed.value == "rescued from x"


@pytest.mark.parametrize("finish", [lambda f: f.complete(1), lambda f: f.raise_error(KafkaError("x"))])
def test_chained_future_gets_the_same_result(finish: Callable[[RequestFuture[int]], None]) -> None:
    first: RequestFuture[int] = RequestFuture()
    second: RequestFuture[int] = RequestFuture()
    first.chain(second)
    finish(first)
    assert second.is_done
    assert second.failed == first.failed


def test_no_listener_is_lost_or_doubled_when_another_thread_completes() -> None:
    for _ in range(200):
        future: RequestFuture[int] = RequestFuture()
        heard: list[int] = []
        completer = threading.Thread(target=future.complete, args=(1,))
        completer.start()
        for number in range(20):
            future.add_listener(partial(_note, heard, number))
        completer.join()
        assert sorted(heard) == list(range(20))


def _note(heard: list[int], number: int, _value: int) -> None:
    heard.append(number)
