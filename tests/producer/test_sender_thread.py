"""The sender's thread never waits for itself, and never ends without an error in the log."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from pykclient.errors import BufferExhaustedError, KafkaError, KafkaTimeoutError
from pykclient.producer.kafka_producer import KafkaProducer
from pykclient.types import TopicPartition
from tests.producer.harness import TOPIC, metadata_response
from tests.producer.test_kafka_producer import Make, make
from tests.support.wait import eventually

__all__ = ["make"]

WAIT_S = 20


def outcome_in_callback(producer: KafkaProducer[Any, Any], call: Callable[[], object]) -> BaseException | None:
    """Return the exception that ``call`` raises in a delivery callback, None if it returns."""
    outcomes: list[BaseException | None] = []

    def on_delivery(_error: Exception | None, _metadata: object) -> None:
        try:
            call()
        except BaseException as error:  # noqa: BLE001 - the test judges it
            outcomes.append(error)
        else:
            outcomes.append(None)

    producer.send(TOPIC, b"with a callback", partition=0, on_delivery=on_delivery)
    eventually(lambda: outcomes, WAIT_S)
    return outcomes[0]


@pytest.mark.parametrize("wait", ["get", "batch"])
def test_waiting_for_a_record_in_a_callback_is_refused(make: Make, wait: str) -> None:
    producer, brokers = make()

    def call() -> None:
        if wait == "get":
            producer.send(TOPIC, b"another", partition=0).get(None)
        else:
            producer.send_batch(TOPIC, [b"another"], partition=0).get(None)

    error = outcome_in_callback(producer, call)
    assert type(error) is KafkaError
    assert "Add a callback" in str(error)
    producer.flush(WAIT_S)
    assert [record.value for _, record in brokers.received] == [b"with a callback", b"another"]


def test_get_without_waiting_is_allowed_in_callback(make: Make) -> None:
    producer, _ = make()
    error = outcome_in_callback(producer, lambda: producer.send(TOPIC, b"another", partition=0).get(0))
    assert isinstance(error, KafkaTimeoutError)


def test_get_of_done_future_is_allowed_in_callback(make: Make) -> None:
    producer, _ = make()
    done = producer.send(TOPIC, b"first", partition=0)
    done.get(WAIT_S)
    assert outcome_in_callback(producer, lambda: done.get(WAIT_S)) is None


def test_callback_may_wait_for_future_of_other_producer(make: Make) -> None:
    producer, _ = make()
    other, _ = make()
    assert outcome_in_callback(producer, lambda: other.send(TOPIC, b"there", partition=0).get(WAIT_S)) is None


def test_a_callback_does_not_wait_for_metadata(make: Make) -> None:
    producer, brokers = make(max_block_ms=60_000)
    error = outcome_in_callback(producer, lambda: producer.send("new", b"value"))
    assert isinstance(error, KafkaTimeoutError)
    assert "cannot wait for metadata" in str(error)
    brokers.update_metadata(metadata_response({TopicPartition(topic, 0): 0 for topic in ("new", TOPIC)}))
    assert outcome_in_callback(producer, lambda: producer.send("new", b"value")) is None


def test_a_callback_does_not_wait_for_memory(make: Make) -> None:
    producer, brokers = make(buffer_memory=1024, batch_size=1024, max_block_ms=60_000)

    def fill() -> None:
        brokers.answering = False
        producer.send(TOPIC, bytes(600), partition=0)
        producer.send(TOPIC, bytes(600), partition=0)

    error = outcome_in_callback(producer, fill)
    assert isinstance(error, BufferExhaustedError)
    assert "from another thread" in str(error)
    brokers.answering = True
    brokers.wakeup()
    producer.flush(WAIT_S)


def test_a_producer_whose_polls_all_fail_can_be_closed(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """Steps go on between failed polls, and a step closes the sender."""
    producer, brokers = make(retry_backoff_ms=200)
    failed = threading.Event()

    def poll(*_: Any) -> Any:
        failed.set()
        raise ValueError("always")

    monkeypatch.setattr(brokers, "is_idle", bool)  # as while it connects
    monkeypatch.setattr(brokers, "poll", poll)
    producer._sender.wakeup()
    assert failed.wait(WAIT_S)
    closing = threading.Thread(target=producer.close, daemon=True)
    closing.start()
    closing.join(WAIT_S)
    assert not closing.is_alive()
    assert not producer._io_thread.is_alive()


@pytest.mark.parametrize("raised", [SystemExit(3), KeyboardInterrupt()], ids=repr)
def test_an_exception_that_ends_the_thread_fails_all_records(
    make: Make, monkeypatch: pytest.MonkeyPatch, raised: BaseException, caplog: pytest.LogCaptureFixture
) -> None:
    """Records that wait fail with its cause, and later ones are refused at once."""
    producer, brokers = make(max_block_ms=60_000, linger_ms=60_000)
    waiting = producer.send(TOPIC, b"waiting", partition=0)
    heard: list[Exception] = []
    waiting.add_errback(heard.append)

    def poll(*_: Any) -> Any:
        raise raised

    monkeypatch.setattr(brokers, "begin_poll", poll)  # which both a thread that polls and one that parks call
    producer._sender.wakeup()
    eventually(lambda: not producer._io_thread.is_alive(), WAIT_S)
    with pytest.raises(KafkaError, match=type(raised).__name__) as caught:
        waiting.get(WAIT_S)
    assert caught.value.__cause__ is raised
    assert heard == [caught.value]
    for topic in (TOPIC, "new"):
        with pytest.raises(KafkaError, match=type(raised).__name__):
            producer.send(topic, b"later")
        with pytest.raises(KafkaError, match=type(raised).__name__):
            producer.send_batch(topic, [b"later"])
    producer.flush(WAIT_S)
    producer.close(WAIT_S)
    assert producer._accumulator._pool.available_memory == producer._accumulator._pool.total_memory
    assert "I/O thread ends" in caplog.text
