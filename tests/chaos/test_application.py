"""Application code that raises inside the client, or asks too much, gets an error, and the client continues."""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from typing import Any

import pytest

from pykclient import ConsumerRebalanceListener, KafkaConsumer, KafkaProducer, ProducerInterceptor
from pykclient.errors import (
    BufferExhaustedError,
    ConcurrentModificationError,
    IllegalStateError,
    KafkaError,
    KafkaTimeoutError,
    RecordDeserializationError,
    RecordTooLargeError,
    SerializationError,
    WakeupError,
)
from pykclient.types import ProducerRecord, RecordMetadata, TopicPartition
from tests.chaos.verifier import delivered, is_full, read_back
from tests.support.any_kafka import AnyKafka
from tests.support.wait import eventually

#: Calls with a timeout under one second must end within this bound; by default they take a minute.
PROMPT_S = 20.0


class ChaosError(Exception):
    """Raised by these tests' code inside a client."""


def fail(*_: object) -> Any:
    raise ChaosError("chaos: on purpose")


def producer(any_kafka: AnyKafka, **settings: Any) -> KafkaProducer[Any, Any]:
    return KafkaProducer(bootstrap_servers=any_kafka.bootstrap_servers, **settings)


def consumer(any_kafka: AnyKafka, *topics: str, **settings: Any) -> KafkaConsumer[Any, Any]:
    return KafkaConsumer(
        *topics, **{"bootstrap_servers": any_kafka.bootstrap_servers, "auto_offset_reset": "earliest", **settings}
    )


def tracebacks(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.exc_info and record.name.startswith("pykclient")]


# --- producer ---------------------------------------------------------------------------------------------------------


def test_raising_callback_stops_nothing(any_kafka: AnyKafka, topic: str, caplog: pytest.LogCaptureFixture) -> None:
    heard: list[int] = []
    with producer(any_kafka) as p:
        for number in range(50):
            p.send(topic, b"x", on_delivery=fail)
            p.send(topic, b"x").add_callback(fail)
            p.send(topic, b"x").add_callback(lambda metadata, number=number: heard.append(number))
        p.flush(20)
        assert heard == list(range(50))
        assert p.send(topic, b"last").get(20).offset == 150
        assert is_full(p)
    assert 1 <= len(tracebacks(caplog)) <= 100


def test_system_exit_in_a_callback_does_not_end_the_sender(any_kafka: AnyKafka, topic: str) -> None:
    """SystemExit in a callback does not end the sender's thread, so later records still get a result."""

    def leave(*_: object) -> None:
        raise SystemExit("chaos: on purpose")

    with producer(any_kafka) as p:
        p.send(topic, b"x", on_delivery=leave)
        assert p.send(topic, b"last").get(20).offset == 1


class RaisingInterceptor(ProducerInterceptor):
    def on_send(self, record: ProducerRecord[Any, Any]) -> ProducerRecord[Any, Any]:
        return fail()  # type: ignore[no-any-return]

    def on_acknowledgement(self, metadata: RecordMetadata, error: Exception | None, headers: Any) -> None:
        fail()

    def close(self) -> None:
        fail()


def test_raising_interceptor_stops_no_send(any_kafka: AnyKafka, topic: str, caplog: pytest.LogCaptureFixture) -> None:
    with producer(any_kafka, interceptor_classes=[RaisingInterceptor]) as p:
        for _ in range(20):
            p.send(topic, b"x")
        assert p.send(topic, b"last").get(20).offset == 20
    assert len(tracebacks(caplog)) <= 3, "once for each method"
    assert tracebacks(caplog)


def test_raising_serializer_fails_only_its_record(any_kafka: AnyKafka, topic: str) -> None:
    def serialize(value: int) -> bytes:
        return b"%d" % value if value != 7 else fail()

    with producer(any_kafka, value_serializer=serialize) as p:
        for number in range(10):
            if number == 7:
                with pytest.raises(SerializationError, match=f"value.*{topic}") as failed:
                    p.send(topic, number)
                assert isinstance(failed.value.__cause__, ChaosError)
            else:
                p.send(topic, number)
        p.flush(20)
        assert is_full(p)
    assert [record.value for record in read_back(any_kafka.bootstrap_servers, topic)[0]] == [
        b"%d" % n for n in (*range(7), 8, 9)
    ]


def test_raising_partitioner_fails_only_its_send(any_kafka: AnyKafka, topic: str) -> None:
    with producer(any_kafka, partitioner=fail) as p:
        with pytest.raises(ChaosError):
            p.send(topic, b"x", key=b"k")
        assert p.send(topic, b"x", partition=0).get(20).offset == 0
        assert is_full(p)


def test_record_over_max_request_size_fails_alone(any_kafka: AnyKafka, topic: str) -> None:
    with producer(any_kafka, max_request_size=1000) as p:
        error = p.send(topic, b"x" * 5000).exception
        assert isinstance(error, RecordTooLargeError)
        assert "max.request.size = 1000" in str(error)
        assert "50" in str(error)
        assert p.send(topic, b"x").get(20).offset == 0
        assert is_full(p)


def test_record_over_the_topic_limit_fails_alone(any_kafka: AnyKafka, topic: str) -> None:
    """The broker refuses the batch, and the producer splits it until only the one record fails."""
    any_kafka.create_topic(topic, config={"max.message.bytes": 1000})
    with producer(any_kafka, linger_ms=100) as p:
        futures = [p.send(topic, b"x" * size) for size in (100, 200, 5000, 300, 400)]
        p.flush(20)
        assert [future.succeeded() for future in futures] == [True, True, False, True, True]
        assert isinstance(futures[2].exception, RecordTooLargeError)
        assert is_full(p)
    assert [len(record.value) for record in read_back(any_kafka.bootstrap_servers, topic)[0]] == [100, 200, 300, 400]


def test_full_buffer_raises_and_frees_itself(any_kafka: AnyKafka, topic: str) -> None:
    any_kafka.create_topic(topic)
    with any_kafka.proxies() as proxies:
        p: KafkaProducer[bytes, bytes] = KafkaProducer(
            bootstrap_servers=proxies[1].address, buffer_memory=50_000, batch_size=10_000, max_block_ms=500
        )
        with p:
            delivered(p, topic, b"first")
            proxies[1].blackhole()
            start = time.monotonic()
            sent: list[Any] = []
            with pytest.raises(BufferExhaustedError, match=r"max\.block\.ms"):
                fill(p, topic, sent)
            assert 0.4 < time.monotonic() - start < PROMPT_S
            proxies[1].restore()
            assert delivered(p, topic, b"last").offset == len(sent) + 1
            assert all(future.succeeded() for future in sent)
            eventually(lambda: is_full(p), 30.0, "all memory is back")


def test_unknown_topic_is_not_created(any_kafka: AnyKafka, topic: str) -> None:
    """Clients do not create topics unless allowed to, and a partition that does not exist is never created."""
    with producer(any_kafka, max_block_ms=700) as p:
        start = time.monotonic()
        with pytest.raises(KafkaTimeoutError) as failed:
            p.send(topic, b"x", partition=5)
        assert time.monotonic() - start < PROMPT_S
        assert topic in str(failed.value)
        assert "0.7 s" in str(failed.value)
    with consumer(any_kafka, allow_auto_create_topics=False) as c:
        nowhere = f"{topic}-nowhere"
        c.assign([TopicPartition(nowhere, 0)])
        assert c.poll(timeout_ms=300) == {}
        assert c.partitions_for_topic(nowhere) == set()
        start = time.monotonic()
        with pytest.raises(KafkaTimeoutError) as failed:
            c.position(TopicPartition(nowhere, 0), timeout_ms=700)
        assert time.monotonic() - start < PROMPT_S
        assert nowhere in str(failed.value)
        with pytest.raises(KafkaTimeoutError) as failed:
            c.end_offsets([TopicPartition(nowhere, 0)], timeout_ms=700)
        assert nowhere in str(failed.value)


def test_use_after_close_is_refused(any_kafka: AnyKafka, topic: str) -> None:
    p = producer(any_kafka)
    p.send(topic, b"x").get(20)
    p.close()
    p.close()
    for call in (lambda: p.send(topic, b"x"), p.flush, lambda: p.partitions_for(topic)):
        with pytest.raises(IllegalStateError, match="closed"):
            call()
    c = consumer(any_kafka, topic, group_id=topic)
    c.close()
    c.close()
    for use in (c.poll, c.commit, c.assignment, lambda: next(c), lambda: c.subscribe([topic])):
        with pytest.raises(IllegalStateError, match="closed"):
            use()


# --- consumer ---------------------------------------------------------------------------------------------------------


def test_undeserializable_record_raises_error_and_can_be_skipped(any_kafka: AnyKafka, topic: str) -> None:
    def deserialize(data: bytes) -> int:
        return int(data)

    with producer(any_kafka) as p:
        for value in (b"0", b"1", b"two", b"3", b"four", b"5"):
            p.send(topic, value)
        p.flush(20)
    tp = TopicPartition(topic, 0)
    values: list[int | None] = []
    errors: list[RecordDeserializationError] = []
    positions: list[int] = []
    with consumer(any_kafka, value_deserializer=deserialize) as c:
        c.assign([tp])

        def all_read() -> bool:
            try:
                values.extend(record.value for records in c.poll(timeout_ms=500).values() for record in records)
            except RecordDeserializationError as error:
                errors.append(error)
                positions.append(c.position(tp))
                if len(errors) > 1:  # after the first error, check that it is raised again
                    c.seek(tp, error.offset + 1)
            return values == [0, 1, 3, 5]

        eventually(all_read, 30.0, "all that can be read", every_s=0)
    assert positions == [2, 2, 4]
    for error, offset in zip(errors, positions, strict=True):
        assert (error.topic_partition, error.offset) == (tp, offset)
        assert topic in str(error)
        assert f"offset {offset}" in str(error)
        assert isinstance(error.__cause__, ValueError)


class RaisingListener(ConsumerRebalanceListener):
    def __init__(self, *methods: str) -> None:
        self.methods = set(methods)

    def on_partitions_revoked(self, revoked: set[TopicPartition]) -> None:
        if "revoked" in self.methods:
            self.methods.remove("revoked")
            fail()

    def on_partitions_assigned(self, assigned: set[TopicPartition]) -> None:
        if "assigned" in self.methods:
            self.methods.remove("assigned")
            fail()


def test_raising_rebalance_listener_does_not_stop_the_consumer(any_kafka: AnyKafka, topic: str, group_id: str) -> None:
    with producer(any_kafka) as p:
        p.send(topic, b"0").get(20)
    listener = RaisingListener("assigned", "revoked")
    raised: list[KafkaError] = []
    read: list[int] = []
    with consumer(any_kafka, group_id=group_id) as c:
        c.subscribe([topic], listener=listener)

        def read_first() -> bool:
            try:
                read.extend(record.offset for records in c.poll(timeout_ms=200).values() for record in records)
            except KafkaError as error:
                raised.append(error)
            return read == [0]

        eventually(read_first, 20.0, "the record in spite of the listener", every_s=0)
        assert len(raised) == 1
        c.enforce_rebalance()
        eventually(lambda: read_first() and len(raised) == 2, 20.0, "the second error", every_s=0)
        eventually(lambda: read_first() and bool(c.assignment()), 20.0, "a member again", every_s=0)
        c.commit()
    assert all(isinstance(error.__cause__, ChaosError) for error in raised)


class RaisingConsumerInterceptor:
    def on_consume(self, records: Any) -> Any:
        return fail()

    def on_commit(self, offsets: Any) -> None:
        fail()

    def close(self) -> None:
        fail()


def test_raising_consumer_interceptors_and_commit_callbacks_lose_no_records(
    any_kafka: AnyKafka, topic: str, group_id: str, caplog: pytest.LogCaptureFixture
) -> None:
    with producer(any_kafka) as p:
        for _ in range(100):
            p.send(topic, b"x")
    read: list[int] = []
    with consumer(
        any_kafka, topic, group_id=group_id, interceptor_classes=[RaisingConsumerInterceptor], max_poll_records=10
    ) as c:

        def all_read() -> bool:
            read.extend(record.offset for records in c.poll(timeout_ms=200).values() for record in records)
            c.commit()
            return len(read) >= 100

        eventually(all_read, 20.0, "all records", every_s=0)
        assert read == list(range(100))
        c.commit_async(callback=fail)
        errors: list[BaseException] = []

        def callback_ran() -> bool:
            try:
                c.poll(timeout_ms=50)
            except (KafkaError, ChaosError) as error:
                errors.append(error)
            return bool(errors) or any("callback" in text.lower() for text in tracebacks(caplog) + texts(caplog))

        eventually(callback_ran, 30.0, "the callback's error is told", every_s=0)
        c.poll(timeout_ms=50)
        assert c.committed(TopicPartition(topic, 0)) == 100


def fill(p: KafkaProducer[Any, Any], topic: str, sent: list[Any]) -> None:
    while True:
        sent.append(p.send(topic, b"x" * 5000))


def texts(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]


def test_second_thread_in_a_consumer_is_refused(any_kafka: AnyKafka, topic: str) -> None:
    with consumer(any_kafka) as c:
        c.assign([TopicPartition(topic, 0)])

        def stay_inside() -> None:
            with contextlib.suppress(WakeupError):
                c.poll(timeout_ms=60_000)

        inside = threading.Thread(target=stay_inside, name="the-first")
        inside.start()
        raised: list[str] = []

        def second() -> bool:
            try:
                c.poll(timeout_ms=0)
            except ConcurrentModificationError as error:
                raised.append(str(error))
            return bool(raised)

        eventually(second, 30.0)
        c.wakeup()
        inside.join()
        assert "the-first" in raised[0]
        assert "MainThread" in raised[0]
        assert c.poll(timeout_ms=0) == {}
