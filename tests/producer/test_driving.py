"""Threads that wait for a record drive the sender, and the sender's thread does everything that they leave."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest

from pykclient import KafkaProducer
from pykclient.errors import IllegalStateError, KafkaError
from pykclient.metrics import MetricsReporter
from pykclient.producer.sender_thread import _STALE_MS
from pykclient.testing import EmbeddedCluster
from pykclient.types import TopicPartition
from tests.producer.harness import TOPIC
from tests.producer.test_kafka_producer import Brokers, Make, make
from tests.support.wait import eventually

__all__ = ["make"]

WAIT_S = 20
#: On a busy machine, a thread may be held up between ``send`` and ``get``. Then the sender's thread takes over.
ATTEMPTS = 20


def polling_threads(brokers: Brokers) -> set[int]:
    """Note from now on which threads poll the network with a request in flight."""
    seen: set[int] = set()
    poll = brokers.poll

    def noting(timeout_ms: int, now_ms: int) -> Any:
        if brokers.requests:
            seen.add(threading.get_ident())
        return poll(timeout_ms, now_ms)

    brokers.poll = noting  # type: ignore[method-assign]
    return seen


def warm_up(producer: KafkaProducer[Any, Any]) -> None:
    """Wait for a record, and until the sender's thread is parked."""
    producer.send(TOPIC, b"first", partition=0).get(WAIT_S)
    eventually(lambda: producer._driver._is_parked, WAIT_S)


@pytest.mark.parametrize("wait", ["get", "flush", "batch"])
def test_waiting_thread_drives_sender(make: Make, wait: str) -> None:
    producer, brokers = make()
    seen = polling_threads(brokers)
    for _ in range(ATTEMPTS):
        warm_up(producer)
        seen.clear()
        if wait == "get":
            producer.send(TOPIC, b"v", partition=0).get(WAIT_S)
        elif wait == "flush":
            producer.send(TOPIC, b"v", partition=0)
            producer.flush(WAIT_S)
        else:
            producer.send_batch(TOPIC, [b"v"], partition=0).get(WAIT_S)
        if threading.get_ident() in seen:
            return
    raise AssertionError("the sender's thread was first in all attempts")


def test_record_is_sent_without_waiting_caller(make: Make) -> None:
    """Its request leaves in ``send``, and the sender's thread takes the response."""
    producer, brokers = make()
    for _ in range(3):
        warm_up(producer)
        seen = polling_threads(brokers)
        future = producer.send(TOPIC, b"v", partition=0)
        eventually(future.done, WAIT_S)
        assert seen == {producer._io_thread.ident}


def test_callbacks_run_on_the_senders_thread(make: Make) -> None:
    producer, _ = make()
    warm_up(producer)
    told: list[int] = []
    future = producer.send(TOPIC, b"v", partition=0, on_delivery=lambda *_: told.append(threading.get_ident()))
    future.add_callback(lambda _: told.append(threading.get_ident()))
    future.get(WAIT_S)
    assert told == [producer._io_thread.ident] * 2
    producer.send(TOPIC, b"v", partition=0, on_delivery=lambda *_: told.append(threading.get_ident()))
    producer.flush(WAIT_S)
    assert told == [producer._io_thread.ident] * 3


def test_callbacks_keep_order_if_caller_overtakes_sender_thread(make: Make) -> None:
    """That thread has seen that there are no results, and is about to take the lease, when a caller takes it."""
    producer, _ = make()
    thread = producer._driver._thread
    take, told = thread.take, list[int]()
    is_about_to, go_on = threading.Event(), threading.Event()

    def slow_take(ident: int) -> bool:
        if ident == thread.ident and not is_about_to.is_set():
            is_about_to.set()
            assert go_on.wait(WAIT_S)
        return take(ident)

    for _ in range(ATTEMPTS):
        warm_up(producer)
        told.clear()
        go_on.clear()
        is_about_to.clear()
        thread.take = slow_take  # type: ignore[method-assign]
        thread.wakeup()
        assert is_about_to.wait(WAIT_S)
        first = producer.send(TOPIC, b"v", partition=0, on_delivery=lambda *_: told.append(1))
        caller = threading.Thread(target=first.get, args=(WAIT_S,))
        caller.start()
        eventually(lambda: len(thread.results) == 1, WAIT_S)
        second = producer.send(TOPIC, b"v", partition=0, on_delivery=lambda *_: told.append(2))
        go_on.set()
        caller.join()
        second.get(WAIT_S)
        assert told == [1, 2]


def test_callers_do_not_drive_polls_with_application_code(make: Make) -> None:
    producer, brokers = make(metric_reporters=[MetricsReporter()])
    warm_up(producer)
    seen = polling_threads(brokers)
    producer.send(TOPIC, b"v", partition=0).get(WAIT_S)
    assert seen == {producer._io_thread.ident}


def test_get_times_out(make: Make) -> None:
    producer, brokers = make()
    warm_up(producer)
    brokers.answering = False
    future = producer.send(TOPIC, b"v", partition=0)
    with pytest.raises(KafkaError, match=r"not acknowledged within 0\.05 s"):
        future.get(0.05)
    brokers.answering = True
    eventually(future.done, WAIT_S)  # the sender's thread has taken over


def test_signal_handler_error_during_response_reaches_caller(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is that of a signal handler, such as the time limit of a task queue. The record is acknowledged later."""
    producer, _ = make()
    responses = producer._components.sender._responses
    handle = responses.handle
    struck: list[int] = []
    is_aimed = threading.Event()

    def interrupted(*args: Any) -> None:
        if threading.get_ident() == producer._io_thread.ident or struck or not is_aimed.is_set():
            handle(*args)
        else:
            struck.append(1)
            raise TimeoutError("the soft limit")

    monkeypatch.setattr(responses, "handle", interrupted)
    for _ in range(ATTEMPTS):
        warm_up(producer)
        is_aimed.set()
        future = producer.send(TOPIC, b"v", partition=0)
        errors: list[Exception] = []
        try:
            future.get(WAIT_S)
        except TimeoutError as error:
            errors.append(error)
        assert future.get(WAIT_S).offset >= 0
        if struck:
            assert [str(error) for error in errors] == ["the soft limit"]
            return
        is_aimed.clear()
    raise AssertionError("the sender's thread was first in all attempts")


def test_replaced_interruption_does_not_reach_next_driver(
    make: Make, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Two signals strike in one poll: the caller gets the second, and the next driver knows nothing of the first."""
    producer, brokers = make()
    responses = producer._components.sender._responses
    handle, poll = responses.handle, brokers.poll
    struck: list[int] = []
    is_aimed = threading.Event()

    def interrupted(*args: Any) -> None:
        if threading.get_ident() == producer._io_thread.ident or struck or not is_aimed.is_set():
            handle(*args)
        else:
            struck.append(1)
            raise TimeoutError("the soft limit")

    def overtaken(timeout_ms: int, now_ms: int) -> Any:
        result = poll(timeout_ms, now_ms)
        if len(struck) == 1 and threading.get_ident() != producer._io_thread.ident:
            struck.append(2)
            raise KeyboardInterrupt
        return result

    monkeypatch.setattr(responses, "handle", interrupted)
    brokers.poll = overtaken  # type: ignore[method-assign]
    for _ in range(ATTEMPTS):
        warm_up(producer)
        is_aimed.set()
        future = producer.send(TOPIC, b"v", partition=0)
        try:
            future.get(WAIT_S)
        except KeyboardInterrupt:
            assert future.get(WAIT_S).offset >= 0
            assert producer.send(TOPIC, b"w", partition=0).get(WAIT_S).offset >= 0
            assert not [record for record in caplog.records if record.levelname == "ERROR"]
            return
        is_aimed.clear()
    raise AssertionError("the sender's thread was first in all attempts")


def test_driving_thread_serves_other_threads(make: Make) -> None:
    producer, _ = make()
    warm_up(producer)
    failed: list[BaseException] = []

    def work(number: int) -> None:
        try:
            for index in range(50):
                producer.send(TOPIC, b"%d-%d" % (number, index), partition=number % 2).get(WAIT_S)
        except BaseException as error:  # noqa: BLE001 - the test judges it
            failed.append(error)

    threads = [threading.Thread(target=work, args=(number,), daemon=True) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()
    assert not failed


def test_close_works_while_other_thread_drives(make: Make) -> None:
    producer, brokers = make()
    caught: list[BaseException] = []

    def wait() -> None:
        warm_up(producer)
        brokers.answering = False
        try:
            producer.send(TOPIC, b"v", partition=0).get(WAIT_S)
        except KafkaError as error:
            caught.append(error)

    thread = threading.Thread(target=wait, daemon=True)
    thread.start()
    eventually(lambda: not brokers.answering and brokers.requests, WAIT_S)
    producer.close(0.1)
    thread.join(WAIT_S)
    assert "closed by force" in str(caught[0])
    assert not producer._io_thread.is_alive()


def test_signal_handler_of_driving_thread_may_not_wait(make: Make) -> None:
    """It may send; calls that wait raise at once; ``close`` raises, and begins to close."""
    producer, brokers = make()
    told: list[object] = []
    poll, this_thread = brokers.poll, threading.get_ident()

    def handle(timeout_ms: int, now_ms: int) -> Any:
        if not told and brokers.requests and threading.get_ident() == this_thread:
            told.append(None)
            sent = producer.send(TOPIC, b"from the handler", partition=1)
            for call in (sent.get, producer.flush, producer.close):
                try:
                    call()
                except (KafkaError, IllegalStateError) as error:
                    told.append(error)
        return poll(timeout_ms, now_ms)

    brokers.poll = handle  # type: ignore[method-assign]
    for _ in range(ATTEMPTS):
        if not told:
            producer.send(TOPIC, b"v", partition=0).get(WAIT_S)
    assert len(told) == 4
    eventually(lambda: not producer._io_thread.is_alive(), WAIT_S)
    assert {bytes(record.value or b"") for _, record in brokers.received} == {b"v", b"from the handler"}


def test_lost_connections_are_noticed_after_idle_time() -> None:
    """The parked thread polls nothing, so the next driver polls before it sends: with acks=0 nothing would be retried.

    The connection to the broker is lost with the broker, which is back before the record is sent.
    """
    with (
        EmbeddedCluster(brokers=1) as cluster,
        KafkaProducer[Any, Any](bootstrap_servers=cluster.bootstrap_servers, linger_ms=0, acks=0) as producer,
    ):
        cluster.create_topic("t", partitions=1)
        producer.send("t", b"first").get(WAIT_S)
        eventually(lambda: producer._driver._is_parked, WAIT_S)
        cluster.stop(1)
        cluster.restart(1)
        parked_ms = producer._driver._last_poll_ms
        eventually(lambda: producer._clock.now_ms() - parked_ms > _STALE_MS, WAIT_S)
        producer.send("t", b"second").get(WAIT_S)
        eventually(lambda: len(cluster.log(TopicPartition("t", 0))) == 2, WAIT_S)


def test_response_received_during_blocking_callback_counts() -> None:
    """A callback takes longer than all timeouts, and the broker answers another request meanwhile."""
    limits: dict[str, Any] = {"request_timeout_ms": 2_000, "delivery_timeout_ms": 2_500, "retries": 0, "linger_ms": 0}
    with EmbeddedCluster(brokers=1) as cluster:
        cluster.create_topic("t", partitions=2)
        with KafkaProducer[Any, Any](bootstrap_servers=cluster.bootstrap_servers, **limits) as producer:
            for partition in (0, 1):
                producer.send("t", b"0", partition=partition).get(WAIT_S)
            hold = cluster.faults.hold("Produce")

            def block(_: object) -> None:
                eventually(lambda: hold.held, WAIT_S)
                hold.remove()
                hold.release()
                eventually(lambda: cluster.requests_of("Produce")[-1].answered_ms is not None, WAIT_S)
                time.sleep(2.7)

            first = producer.send("t", b"1", partition=0)
            first.add_callback(block)
            eventually(lambda: hold.held, WAIT_S)
            second = producer.send("t", b"1", partition=1)
            eventually(lambda: producer._driver._client.in_flight_request_count() == 2, WAIT_S)
            hold.release(1)
            assert second.get(WAIT_S).offset == 1


def test_abort_in_callback_during_commit_is_refused() -> None:
    refused: list[str] = []
    with (
        EmbeddedCluster(brokers=1) as cluster,
        KafkaProducer[Any, Any](
            bootstrap_servers=cluster.bootstrap_servers, transactional_id="x", linger_ms=60_000
        ) as producer,
    ):
        cluster.create_topic("t", partitions=1)

        def abort(_: object) -> None:
            with pytest.raises(IllegalStateError) as caught:
                producer.abort_transaction()
            refused.append(str(caught.value))

        producer.init_transactions()
        with producer.transaction():  # only its commit sends the record
            producer.send("t", b"1").add_callback(abort)
        eventually(lambda: refused, WAIT_S)
    (text,) = refused
    assert "abort_transaction() must wait: commit_transaction() has begun" in text
