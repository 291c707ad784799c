"""Ctrl-C waits for a moment when it does no harm."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator

import pytest

from pykclient.consumer.interrupt_shield import InterruptShield
from pykclient.types import TopicPartition
from tests.consumer.fake_broker import FakeCluster

T0 = TopicPartition("t", 0)


@pytest.fixture
def woken() -> list[str]:
    return []


@pytest.fixture
def shield(woken: list[str]) -> Iterator[InterruptShield]:
    before = signal.getsignal(signal.SIGINT)
    yield InterruptShield(lambda: woken.append("woken"))
    assert signal.getsignal(signal.SIGINT) is before


def press_ctrl_c() -> None:
    signal.raise_signal(signal.SIGINT)


def test_it_is_raised_on_the_way_out(shield: InterruptShield, woken: list[str]) -> None:
    done: list[str] = []

    def work() -> None:
        with shield:
            press_ctrl_c()
            done.append("all of it")

    with pytest.raises(KeyboardInterrupt):
        work()
    assert done == ["all of it"]
    assert woken == ["woken"]
    with shield:
        pass


def test_a_check_raises_it_earlier(shield: InterruptShield) -> None:
    def work() -> None:
        with shield:
            with shield:
                press_ctrl_c()
            shield.check()
            raise AssertionError

    with pytest.raises(KeyboardInterrupt):
        work()


def test_the_second_one_does_not_wait(shield: InterruptShield) -> None:
    def work() -> None:
        with shield:
            press_ctrl_c()
            press_ctrl_c()
            raise AssertionError

    with pytest.raises(KeyboardInterrupt):
        work()


def test_a_program_with_a_handler_of_its_own_keeps_it(shield: InterruptShield) -> None:
    heard: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, _frame: heard.append(number))
    try:
        with shield:
            press_ctrl_c()
            assert heard == [signal.SIGINT]
    finally:
        signal.signal(signal.SIGINT, before)


def test_other_threads_pay_nothing(shield: InterruptShield) -> None:
    handlers: list[object] = []

    def work() -> None:
        with shield:
            handlers.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert handlers == [signal.default_int_handler]


@pytest.mark.parametrize("loop", [True, False])
def test_records_of_an_interrupted_poll_come_again(loop: bool) -> None:
    """Ctrl-C arrives when the records are taken and the position is behind them."""
    cluster = FakeCluster({T0: [b"%d" % number for number in range(10)]})
    with cluster.consumer(group_id="g") as consumer:
        consumer.assign([T0])
        pressed: list[bool] = []
        record_poll_end = consumer._components.consumer_metrics.record_poll_end

        class Metrics:
            def record_poll_start(self, now_ms: int) -> None:
                pass

            def record_poll_end(self, now_ms: int) -> None:
                record_poll_end(now_ms)
                position = consumer._subscriptions.position_or_none(T0)
                if position is not None and position.offset == 10 and not pressed:
                    pressed.append(True)
                    press_ctrl_c()

        consumer._consumer._metrics = Metrics()  # type: ignore[assignment]

        def read() -> list[int]:
            if loop:
                return [next(consumer).offset for _ in range(10)]
            return [record.offset for record in consumer.poll(5_000)[T0]]

        with pytest.raises(KeyboardInterrupt):
            read()
        assert pressed
        assert consumer.position(T0) == 0
        assert read() == list(range(10))
