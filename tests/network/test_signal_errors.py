"""Exceptions of signal handlers, which must not be taken for the end of a connection."""

from __future__ import annotations

import functools
import signal
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from pykclient import KafkaConsumer, KafkaProducer, TopicPartition
from pykclient.admin import Admin
from pykclient.network.failures import SuppressOSErrors, raise_if_of_signal_handler
from pykclient.network.kafka_channel import KafkaChannel
from pykclient.network.network_client import NetworkClient
from pykclient.network.selector import Selector
from pykclient.producer.sender import Sender
from pykclient.testing import EmbeddedCluster


class AlarmError(TimeoutError):
    """The exception of a signal handler."""


class Handlers:
    """Signal handlers of each kind."""

    def method(self, *_: Any) -> None:
        raise AlarmError("now")

    @staticmethod
    def static(*_: Any) -> None:
        raise AlarmError("now")

    def __call__(self, *_: Any) -> None:
        self.method()


def function(*_: Any) -> None:
    raise AlarmError("now")


@pytest.fixture
def install() -> Iterator[Callable[[Any], object]]:
    before = signal.getsignal(signal.SIGUSR1)
    yield lambda handler: signal.signal(signal.SIGUSR1, handler)
    signal.signal(signal.SIGUSR1, before)


def error_of(work: Callable[[], object]) -> BaseException:
    try:
        work()
    except OSError as error:
        return error
    raise AssertionError("there was no error")


def strike() -> None:
    signal.raise_signal(signal.SIGUSR1)


@pytest.mark.parametrize(
    "handler",
    [function, Handlers().method, Handlers.static, Handlers(), functools.partial(function, 1)],
    ids=["function", "method", "static", "object", "partial"],
)
def test_errors_of_each_kind_of_handler_are_recognized(install: Callable[[Any], object], handler: Any) -> None:
    install(handler)
    error = error_of(strike)
    with pytest.raises(AlarmError):
        raise_if_of_signal_handler(error)
    wrapped = ConnectionError("the handshake failed")
    wrapped.__cause__ = error
    with pytest.raises(AlarmError):
        raise_if_of_signal_handler(wrapped)
    with pytest.raises(AlarmError), SuppressOSErrors():
        strike()


def test_other_errors_are_not_taken_for_handler_errors(install: Callable[[Any], object]) -> None:
    """Errors of connections, an alarm that has been handled before, and other threads' errors."""
    install(function)

    def fail() -> None:
        raise ConnectionResetError("by the peer")

    def fail_after_an_alarm() -> None:
        try:
            strike()
        except AlarmError:
            fail()

    for work in (fail, fail_after_an_alarm):
        raise_if_of_signal_handler(error_of(work))
        with SuppressOSErrors():
            work()
    with pytest.raises(ValueError, match="no OSError"), SuppressOSErrors():
        raise ValueError("no OSError")
    error = error_of(strike)
    thread = threading.Thread(target=raise_if_of_signal_handler, args=(error,))
    thread.start()  # its exception would be a warning, which is an error in the tests
    thread.join()


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster() as made:
        made.create_topic("t")
        with KafkaProducer(bootstrap_servers=made.bootstrap_servers) as producer:
            for number in range(10):
                producer.send("t", b"%d" % number)
        yield made


@pytest.mark.parametrize(
    ("owner", "name"),
    [
        (KafkaChannel, "finish_connect"),
        (Selector, "_write"),
        (Selector, "_read"),
        (Selector, "connect"),
        (NetworkClient, "_transmit"),
    ],
    ids=lambda value: value if isinstance(value, str) else value.__name__,
)
def test_alarm_interrupts_call_anywhere(
    cluster: EmbeddedCluster, install: Callable[[Any], object], monkeypatch: pytest.MonkeyPatch, owner: Any, name: str
) -> None:
    """The call that it interrupts raises it, and the next one goes on."""
    install(function)
    partition = TopicPartition("t", 0)
    original = getattr(owner, name)
    rung: list[int] = []

    def interrupted(*args: Any, **named: Any) -> Any:
        returned = original(*args, **named)
        if threading.current_thread() is threading.main_thread() and not rung:
            rung.append(1)
            strike()
        return returned

    monkeypatch.setattr(owner, name, interrupted)
    with KafkaConsumer[Any, Any](
        bootstrap_servers=cluster.bootstrap_servers,
        auto_offset_reset="earliest",
        max_poll_records=1,
        reconnect_backoff_ms=1,
    ) as consumer:
        consumer.assign([partition])
        values: list[bytes | None] = []
        alarms = 0
        for _ in range(200):
            try:
                values += [record.value for records in consumer.poll(500).values() for record in records]
            except AlarmError:
                alarms += 1
            if len(values) == 10:
                break
        assert alarms == len(rung) == 1
        assert values == [b"%d" % number for number in range(10)]


@pytest.mark.parametrize("name", ["_produce_request", "_handle_produce_response", "_send_produce_request"])
def test_alarm_interrupts_caller_that_drives_sender(
    cluster: EmbeddedCluster, install: Callable[[Any], object], monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """``get`` raises it, and the record is sent once all the same."""
    install(function)
    original = getattr(Sender, name)
    rung: list[int] = []

    def interrupted(*args: Any, **named: Any) -> Any:
        returned = original(*args, **named)
        if threading.current_thread() is threading.main_thread() and not rung:
            rung.append(1)
            strike()
        return returned

    cluster.create_topic(name)
    monkeypatch.setattr(Sender, name, interrupted)
    with KafkaProducer(bootstrap_servers=cluster.bootstrap_servers, reconnect_backoff_ms=1) as producer:
        alarms = sent = 0
        while not rung:  # the sender's thread may be the one that drives
            future = producer.send(name, b"%d" % sent)
            sent += 1
            try:
                future.get(30)
            except AlarmError:
                alarms += 1
        producer.flush(30)
        assert future.get(30).offset == sent - 1
        assert alarms == 1
    assert len(cluster.log(TopicPartition(name, 0))) == sent


def test_alarm_interrupts_admin_call(
    cluster: EmbeddedCluster, install: Callable[[Any], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    install(function)
    original = Selector._write
    rung: list[int] = []

    def interrupted(*args: Any) -> Any:
        original(*args)
        if threading.current_thread() is threading.main_thread() and not rung:
            rung.append(1)
            strike()

    monkeypatch.setattr(Selector, "_write", interrupted)
    with Admin(bootstrap_servers=cluster.bootstrap_servers, reconnect_backoff_ms=1) as admin:
        with pytest.raises(AlarmError):
            admin.list_topics()
        assert "t" in {topic.name for topic in admin.list_topics()}
