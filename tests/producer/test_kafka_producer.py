"""KafkaProducer over mock brokers: accepted and refused arguments, and their effects (Java: KafkaProducerTest)."""

from __future__ import annotations

import copy
import gc
import logging
import pickle
import threading
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from pykclient import errors
from pykclient.clock import SYSTEM_CLOCK
from pykclient.config.producer_config import ProducerConfig
from pykclient.errors import (
    AuthenticationError,
    BufferExhaustedError,
    ConfigError,
    IllegalArgumentError,
    IllegalStateError,
    InvalidTopicError,
    KafkaError,
    KafkaTimeoutError,
    RecordTooLargeError,
    SerializationError,
    TopicAuthorizationError,
)
from pykclient.log_context import LogContext
from pykclient.network.client_request import ClientResponse
from pykclient.network.environment import SYSTEM_ENVIRONMENT
from pykclient.producer.interceptors import ProducerInterceptor
from pykclient.producer.kafka_producer import KafkaProducer
from pykclient.producer.partitioner import Partitioner
from pykclient.producer.producer_components import ProducerComponents
from pykclient.producer.producer_metadata import ProducerMetadata
from pykclient.protocol.messages.produce import ProduceRequest, ProduceResponse
from pykclient.record import MemoryRecords, Record
from pykclient.types import Headers, ProducerRecord, RecordMetadata
from tests.producer.harness import TOPIC, TP1, metadata_response
from tests.support.mock_client import MockClient
from tests.support.wait import eventually


class Brokers(MockClient):
    """Brokers that respond to every produce request, keep its records, and wait in ``poll`` as sockets do."""

    def __init__(self, metadata: ProducerMetadata) -> None:
        super().__init__(SYSTEM_CLOCK, metadata)
        self.woken = threading.Event()
        self.received: list[tuple[int, Record]] = []
        self.answering = True
        self.report = ""

    def poll(self, timeout_ms: int, now_ms: int) -> list[ClientResponse]:
        if not self.responses and not self.requests:
            self.woken.wait(min(timeout_ms, 50) / 1000)
        self.woken.clear()
        if self.answering:
            for request in list(self.requests):
                self._answer(request)
        elif self.requests:
            self.woken.wait(min(timeout_ms, 5) / 1000)
        return super().poll(timeout_ms, now_ms)

    def _answer(self, request: Any) -> None:
        message = request.request_builder.message
        assert isinstance(message, ProduceRequest)
        topics = []
        for topic in message.topic_data:
            answer = ProduceResponse.TopicProduceResponse(name=topic.name, topic_id=topic.topic_id)
            for part in topic.partition_data:
                assert part.records is not None
                offset = len(self.received)
                self.received += [
                    (part.index, record)
                    for batch in MemoryRecords(bytes(part.records)).batches()
                    for record in batch.records()
                ]
                answer.partition_responses.append(
                    ProduceResponse.PartitionProduceResponse(index=part.index, base_offset=offset)
                )
            topics.append(answer)
        self.respond_to_request(request, ProduceResponse(responses=topics))

    def wakeup(self) -> None:
        self.woken.set()

    def connection_report(self) -> str:
        return self.report


Make = Callable[..., tuple[KafkaProducer[Any, Any], Brokers]]


@pytest.fixture
def make() -> Iterator[Make]:
    made: list[KafkaProducer[Any, Any]] = []

    def make_one(*, known: bool = True, **settings: Any) -> tuple[KafkaProducer[Any, Any], Brokers]:
        config = ProducerConfig(
            {"bootstrap.servers": "127.0.0.1:1", "enable.idempotence": False, "linger.ms": 0}, **settings
        )
        metadata = ProducerMetadata(10, 10, 300_000, 300_000, LogContext(), SYSTEM_CLOCK)
        brokers = Brokers(metadata)
        metadata.add(TOPIC, SYSTEM_CLOCK.now_ms())
        brokers.update_metadata(metadata_response() if known else metadata_response({}))
        producer: KafkaProducer[Any, Any] = KafkaProducer.of_components(
            config, ProducerComponents(config, SYSTEM_ENVIRONMENT, brokers, metadata)
        )
        made.append(producer)
        return producer, brokers

    yield make_one
    for producer in made:
        producer.close(0)


# --- sending ---------------------------------------------------------------------------------------------------------


def test_send_passes_its_arguments_to_broker(make: Make) -> None:
    producer, brokers = make()
    heard: list[tuple[Exception | None, RecordMetadata]] = []
    future = producer.send(
        TOPIC,
        b"value",
        b"key",
        [("a", b"1"), ("b", None)],
        1,
        1234,
        lambda error, metadata: heard.append((error, metadata)),
    )
    metadata = future.get(10)
    assert (metadata.topic_partition, metadata.timestamp) == (TP1, 1234)
    assert heard == [(None, metadata)]
    (received,) = brokers.received
    assert received[0] == 1
    assert received[1] == Record(0, 1234, b"key", b"value", (("a", b"1"), ("b", None)))


def test_send_accepts_producer_record(make: Make) -> None:
    producer, brokers = make()
    producer.send(ProducerRecord(TOPIC, b"value", b"key", [("h", b"x")], 0, 99)).get(10)
    assert brokers.received == [(0, Record(0, 99, b"key", b"value", (("h", b"x"),)))]


def test_null_keys_and_values_are_sent(make: Make) -> None:
    producer, brokers = make()
    producer.send(TOPIC).get(10)
    assert brokers.received[0][1][2:] == (None, None, ())


def test_timestamp_defaults_to_now(make: Make) -> None:
    producer, _ = make()
    before_ms = SYSTEM_CLOCK.wall_ms()
    timestamp = producer.send(TOPIC, b"v").get(10).timestamp
    assert before_ms <= timestamp <= SYSTEM_CLOCK.wall_ms()


def test_bytes_like_values_are_copied(make: Make) -> None:
    producer, brokers = make()
    value = bytearray(b"before")
    future = producer.send(TOPIC, value, memoryview(b"key"))
    value[:] = b"after!"
    future.get(10)
    assert brokers.received[0][1][2:4] == (b"key", b"before")


def test_equal_keys_go_to_same_partition(make: Make) -> None:
    producer, brokers = make()
    for index in range(200):
        producer.send(TOPIC, b"%d" % index, b"key-%d" % (index % 7))
    producer.flush(10)
    partitions: dict[bytes | None, set[int]] = {}
    for partition, record in brokers.received:
        partitions.setdefault(record.key, set()).add(partition)
    assert all(len(of_key) == 1 for of_key in partitions.values())
    assert {partition for partition, _ in brokers.received} == {0, 1}


def test_keys_can_be_ignored(make: Make) -> None:
    producer, brokers = make(partitioner_ignore_keys=True, batch_size=100)
    for _ in range(200):
        producer.send(TOPIC, bytes(50), b"same").get(10)
    assert {partition for partition, _ in brokers.received} == {0, 1}


def test_flush_waits_for_callbacks(make: Make) -> None:
    producer, _ = make(linger_ms=60_000, delivery_timeout_ms=120_000)
    heard: list[int] = []
    for _ in range(100):
        producer.send(TOPIC, b"v", on_delivery=lambda _error, metadata: heard.append(metadata.offset))
    producer.flush(10)
    assert len(heard) == 100


def test_flush_times_out(make: Make) -> None:
    producer, brokers = make()
    brokers.answering = False
    producer.send(TOPIC, b"v")
    with pytest.raises(KafkaTimeoutError, match=r"0\.05 s of flush"):
        producer.flush(0.05)


def test_flush_inside_a_callback_is_refused(make: Make) -> None:
    producer, _ = make()
    heard: list[str] = []

    def flush(_error: object, _metadata: object) -> None:
        try:
            producer.flush()
        except KafkaError as error:
            heard.append(str(error))

    producer.send(TOPIC, b"v", on_delivery=flush).get(10)
    producer.flush(10)
    assert "wait for itself" in heard[0]


# --- what is refused -------------------------------------------------------------------------------------------------


def test_a_record_too_large_names_both_sizes(make: Make) -> None:
    producer, brokers = make(max_request_size=1000)
    heard: list[Exception | None] = []
    future = producer.send(TOPIC, bytes(1000), on_delivery=lambda error, _metadata: heard.append(error))
    assert future.failed()
    with pytest.raises(
        RecordTooLargeError, match=r"a record for topic 'orders' takes 10\d\d bytes .* max\.request\.size = 1000"
    ):
        future.get(0)
    assert heard == [future.exception]
    assert producer.send(TOPIC, bytes(800)).get(10)
    assert len(brokers.received) == 1


def test_a_record_larger_than_buffer_memory_is_refused(make: Make) -> None:
    producer, _ = make(buffer_memory=2000, batch_size=100)
    with pytest.raises(RecordTooLargeError, match=r"buffer\.memory = 2000"):
        producer.send(TOPIC, bytes(2000)).get(0)


def test_headers_count_towards_the_record_size(make: Make) -> None:
    producer, _ = make(max_request_size=1000)
    with pytest.raises(RecordTooLargeError):
        producer.send(TOPIC, b"v", headers=[("h", bytes(1000))]).get(0)


@pytest.mark.parametrize(
    "headers", [[("a",)], [("a", b"1", 2)], [(b"a", b"1")], [("a", "1")], [("a", 1)], 7, ["ab", "c"]]
)
def test_invalid_headers_are_refused(make: Make, headers: Any) -> None:
    producer, brokers = make()
    with pytest.raises(IllegalArgumentError, match="header"):
        producer.send(TOPIC, b"v", headers=headers)
    producer.flush(10)
    assert not brokers.received


@pytest.mark.parametrize(("settings", "text"), [({"partition": -1}, "partition = -1"), ({"timestamp_ms": -1}, "-1")])
def test_negative_numbers_are_refused(make: Make, settings: dict[str, Any], text: str) -> None:
    producer, _ = make()
    with pytest.raises(IllegalArgumentError, match=text):
        producer.send(TOPIC, b"v", **settings)


@pytest.mark.parametrize("topic", [None, 5, b"bytes"])
def test_invalid_topics_are_refused(make: Make, topic: Any) -> None:
    producer, _ = make()
    with pytest.raises(IllegalArgumentError, match="a topic is a str"):
        producer.send(topic, b"v")


def test_text_without_serializer_is_refused(make: Make) -> None:
    producer, _ = make()
    with pytest.raises(SerializationError, match="value_serializer"):
        producer.send(TOPIC, "text")


def test_a_serializer_that_raises_sends_nothing(make: Make) -> None:
    def bad(_value: object) -> bytes:
        raise ZeroDivisionError("application's")

    producer, brokers = make(value_serializer=bad)
    heard: list[object] = []
    with pytest.raises(SerializationError, match="value of a record for topic 'orders'") as caught:
        producer.send(TOPIC, 1, on_delivery=lambda *args: heard.append(args))
    assert isinstance(caught.value.__cause__, ZeroDivisionError)
    producer.flush(10)
    assert not brokers.received
    assert not heard


def test_serializer_must_return_bytes(make: Make) -> None:
    producer, _ = make(key_serializer=lambda _key: "text")
    with pytest.raises(SerializationError, match="returned str instead of bytes"):
        producer.send(TOPIC, b"v", key=1)


def test_producer_cannot_be_pickled(make: Make) -> None:
    """Pickling a producer, as for a function in another process, fails with an error that says what to do."""
    producer, brokers = make()
    for what in (producer, producer.send):
        with pytest.raises(TypeError, match=r"<KafkaProducer .*> cannot be pickled.* make it in the function"):
            pickle.dumps(what)
    with pytest.raises(TypeError, match="cannot be pickled"):
        copy.copy(producer)
    producer.send(TOPIC, b"goes on").get(10)
    assert len(brokers.received) == 1


def test_serializers_convert_keys_and_values(make: Make) -> None:
    producer, brokers = make(
        key_serializer="pykclient.serialization.StringSerializer", value_serializer=lambda value: repr(value).encode()
    )
    producer.send(TOPIC, {"a": 1}, key="k").get(10)
    assert brokers.received[0][1][2:4] == (b"k", b"{'a': 1}")


def test_a_full_buffer_blocks_and_then_raises(make: Make) -> None:
    producer, brokers = make(buffer_memory=2048, batch_size=1024, max_block_ms=100)
    brokers.answering = False
    before_ms = SYSTEM_CLOCK.now_ms()
    producer.send(TOPIC, bytes(600), partition=0)
    producer.send(TOPIC, bytes(600), partition=1)
    with pytest.raises(BufferExhaustedError, match=r"0\.1 s \(max\.block\.ms\)"):
        producer.send(TOPIC, bytes(600), partition=0)
    assert SYSTEM_CLOCK.now_ms() - before_ms >= 100
    assert producer.metrics()["producer-metrics"]["buffer-exhausted-total"] == 1
    brokers.answering = True
    brokers.wakeup()
    producer.flush(10)
    assert producer.send(TOPIC, b"v").get(10)


def test_send_resumes_once_buffer_has_room(make: Make) -> None:
    producer, brokers = make(buffer_memory=4096, batch_size=1024, max_block_ms=10_000)
    for _ in range(300):
        producer.send(TOPIC, bytes(600))
    producer.flush(10)
    assert len(brokers.received) == 300


# --- metadata --------------------------------------------------------------------------------------------------------


def test_metadata_timeout_names_cause(make: Make) -> None:
    producer, brokers = make(known=False, max_block_ms=80)
    brokers.report = "2 of 3 bootstrap servers refused the connection (10.0.0.5:9092: refused)"
    with pytest.raises(KafkaTimeoutError) as caught:
        producer.send(TOPIC, b"v")
    assert str(caught.value) == (
        "topic 'orders' not in metadata after 0.08 s: "
        "2 of 3 bootstrap servers refused the connection (10.0.0.5:9092: refused)"
    )


def test_timeout_names_the_brokers_error_for_the_topic(make: Make) -> None:
    producer, brokers = make(known=False, max_block_ms=1000)
    code = errors.UnknownTopicOrPartitionError.code
    brokers.prepare_metadata_update(metadata_response({}, errors={"new": code}))
    with pytest.raises(KafkaTimeoutError, match="UnknownTopicOrPartitionError") as caught:
        producer.send("new", b"v")
    assert isinstance(caught.value.__cause__, errors.UnknownTopicOrPartitionError)


def test_unknown_partition_times_out(make: Make) -> None:
    producer, _ = make(max_block_ms=50)
    with pytest.raises(
        KafkaTimeoutError, match=r"partition 7 of topic 'orders' not in metadata after 0\.05 s: it has 2"
    ):
        producer.send(TOPIC, b"v", partition=7)


def test_send_resumes_once_metadata_arrives(make: Make) -> None:
    producer, brokers = make(known=False)
    brokers.prepare_metadata_update(metadata_response())
    assert producer.partitions_for(TOPIC) == {0, 1}
    assert producer.send(TOPIC, b"v").get(10)
    assert producer.metrics()["producer-metrics"]["metadata-wait-time-ns-total"] >= 0


@pytest.mark.parametrize(
    ("error", "code"),
    [(TopicAuthorizationError, TopicAuthorizationError.code), (InvalidTopicError, InvalidTopicError.code)],
)
def test_a_broker_that_refuses_the_topic_fails_the_future(make: Make, error: type[KafkaError], code: int) -> None:
    producer, brokers = make(known=False)
    brokers.prepare_metadata_update(metadata_response({}, errors={"secret": code}))
    heard: list[Exception | None] = []
    future = producer.send("secret", b"v", on_delivery=lambda error, _metadata: heard.append(error))
    with pytest.raises(error):
        future.get(0)
    assert type(heard[0]) is error


def test_failed_authentication_fails_the_future(make: Make) -> None:
    producer, brokers = make(known=False)
    assert brokers.metadata is not None
    brokers.metadata.fatal_error(AuthenticationError("wrong password"))
    with pytest.raises(AuthenticationError, match="wrong password"):
        producer.send("other", b"v").get(0)


def test_an_unreachable_bootstrap_server_is_named() -> None:
    with KafkaProducer[Any, Any](bootstrap_servers="127.0.0.1:1", max_block_ms=300) as producer:

        def is_named() -> bool:
            with pytest.raises(KafkaTimeoutError, match=r"topic 'orders' not in metadata after 0\.3 s: ") as caught:
                producer.send(TOPIC, b"v")
            return "127.0.0.1:1" in str(caught.value)

        eventually(is_named, 30, every_s=0)  # under load, the time may be over before the first connection attempt


def test_a_misspelt_bootstrap_server_is_named() -> None:
    with pytest.raises(ConfigError, match=r"no-such-host\.invalid:9092"):
        KafkaProducer(bootstrap_servers="no-such-host.invalid:9092")


def test_invalid_settings_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"linger"):
        KafkaProducer(lingr_ms=5)  # type: ignore[call-overload]
    with pytest.raises(ConfigError, match=r"transactional\.id needs acks=all"):
        KafkaProducer(bootstrap_servers="127.0.0.1:1", transactional_id="t", acks=1)


# --- partitioners ----------------------------------------------------------------------------------------------------


class ByBatch(Partitioner):
    """A partitioner that moves to the next partition with each new batch."""

    def __init__(self) -> None:
        self.current = 0
        self.left: list[int] = []

    def partition(self, *_: Any) -> int:
        return self.current

    def on_new_batch(self, _topic: str, _cluster: Any, prev_partition: int) -> None:
        self.left.append(prev_partition)
        self.current = 1 - self.current


def test_custom_partitioner_is_told_of_new_batches(make: Make) -> None:
    partitioner = ByBatch()
    producer, brokers = make(partitioner=partitioner, linger_ms=60_000, delivery_timeout_ms=120_000, batch_size=1000)
    for _ in range(20):
        producer.send(TOPIC, bytes(200))
    assert partitioner.left[:4] == [0, 1, 0, 1]
    producer.flush(10)
    assert {partition for partition, _ in brokers.received} == {0, 1}


def test_a_partition_out_of_range_is_refused(make: Make) -> None:
    producer, _ = make(partitioner=lambda _key, _all, _available: 2)
    with pytest.raises(IllegalArgumentError, match="partition 2 of topic 'orders', which has 2"):
        producer.send(TOPIC, b"v")


def test_partitioner_exception_reaches_the_caller(make: Make) -> None:
    def bad(*_: Any) -> int:
        raise LookupError("application's")

    producer, _ = make(partitioner=bad)
    with pytest.raises(LookupError):
        producer.send(TOPIC, b"v")


# --- interceptors ----------------------------------------------------------------------------------------------------


class Recorder(ProducerInterceptor):
    def __init__(self) -> None:
        self.acknowledged: list[tuple[RecordMetadata, Exception | None, Headers]] = []
        self.closed = 0

    def on_send(self, record: ProducerRecord[Any, Any]) -> ProducerRecord[Any, Any]:
        return ProducerRecord(record.topic, (record.value or b"") + b"!", record.key, [*record.headers, ("i", b"1")])

    def on_acknowledgement(self, metadata: RecordMetadata, error: Exception | None, headers: Headers) -> None:
        self.acknowledged.append((metadata, error, headers))

    def close(self) -> None:
        self.closed += 1


class Bad(ProducerInterceptor):
    def on_send(self, record: ProducerRecord[Any, Any]) -> ProducerRecord[Any, Any]:
        raise ValueError("application's")

    def on_acknowledgement(self, metadata: RecordMetadata, error: Exception | None, headers: Headers) -> None:
        raise ValueError("application's")


def test_interceptors_change_records_and_see_acknowledgements(make: Make) -> None:
    first, second = Recorder(), Recorder()
    producer, brokers = make(interceptor_classes=[first, second])
    order: list[int] = []
    future = producer.send(TOPIC, b"v", on_delivery=lambda _error, _metadata: order.append(len(second.acknowledged)))
    metadata = future.get(10)
    producer.flush(10)
    assert brokers.received[0][1].value == b"v!!"
    assert first.acknowledged == second.acknowledged == [(metadata, None, (("i", b"1"), ("i", b"1")))]
    assert order == [1]  # interceptors run first
    producer.close()
    assert (first.closed, second.closed) == (1, 1)


def test_interceptors_see_errors_of_unsent_records(make: Make) -> None:
    recorder = Recorder()
    producer, _ = make(interceptor_classes=[recorder], max_request_size=500)
    heard: list[Exception | None] = []
    future = producer.send(TOPIC, bytes(1000), on_delivery=lambda error, _metadata: heard.append(error))
    with pytest.raises(SerializationError):
        producer.send(TOPIC, b"v", key="text")
    assert [type(error).__name__ for _, error, _ in recorder.acknowledged] == [
        "RecordTooLargeError",
        "SerializationError",
    ]
    assert [metadata.offset for metadata, _, _ in recorder.acknowledged] == [-1, -1]
    assert heard == [future.exception]


def test_interceptor_exceptions_are_logged_once_and_producer_goes_on(
    make: Make, caplog: pytest.LogCaptureFixture
) -> None:
    recorder = Recorder()
    producer, brokers = make(interceptor_classes=[Bad(), recorder])
    with caplog.at_level(logging.ERROR):
        for _ in range(5):
            producer.send(TOPIC, b"v").get(10)
        producer.flush(10)
    assert len(brokers.received) == 5
    assert len(recorder.acknowledged) == 5
    assert [record.getMessage().split(" ")[-9] for record in caplog.records if record.exc_info] != []
    assert len(caplog.records) == 2  # one from on_send and one from on_acknowledgement


def test_callback_exceptions_are_logged_and_ignored(make: Make, caplog: pytest.LogCaptureFixture) -> None:
    producer, _ = make()

    def bad(_error: object, _metadata: object) -> None:
        raise ValueError("application's")

    with caplog.at_level(logging.ERROR):
        assert producer.send(TOPIC, b"v", on_delivery=bad).get(10)
        producer.flush(10)
    assert len(caplog.records) == 1
    assert producer.send(TOPIC, b"v").get(10)


# --- closing ---------------------------------------------------------------------------------------------------------


def test_close_sends_what_is_left(make: Make) -> None:
    producer, brokers = make(linger_ms=60_000, delivery_timeout_ms=120_000)
    futures = [producer.send(TOPIC, b"v") for _ in range(10)]
    producer.close()
    assert all(future.succeeded() for future in futures)
    assert len(brokers.received) == 10
    producer.close()  # a second close does nothing


def test_close_gives_up_in_time(make: Make) -> None:
    producer, brokers = make()
    brokers.answering = False
    future = producer.send(TOPIC, b"v")
    before_ms = SYSTEM_CLOCK.now_ms()
    producer.close(0.1)
    assert SYSTEM_CLOCK.now_ms() - before_ms < 20_000, "the request would take half a minute"
    with pytest.raises(KafkaError, match="closed by force"):
        future.get(0)


def test_second_close_waits_after_interrupted_close(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """After Ctrl-C interrupts close, a second close, such as that at exit, waits."""
    recorder = Recorder()
    producer, brokers = make(interceptor_classes=[recorder])
    brokers.answering = False
    answered = producer.send(TOPIC, b"v")
    join = producer._io_thread.join

    def interrupted(_timeout: float) -> None:
        raise KeyboardInterrupt

    def answer_and_join(timeout: float) -> None:
        brokers.answering = True
        join(timeout)

    monkeypatch.setattr(producer._io_thread, "join", interrupted)
    with pytest.raises(KeyboardInterrupt):
        producer.close()
    assert recorder.closed == 0
    monkeypatch.setattr(producer._io_thread, "join", answer_and_join)
    producer.close(10)
    producer.close()
    assert answered.succeeded()
    assert not producer._io_thread.is_alive()
    assert recorder.closed == 1


def test_concurrent_close_has_its_own_timeout(make: Make) -> None:
    recorder = Recorder()
    producer, brokers = make(interceptor_classes=[recorder])
    brokers.answering = False
    future = producer.send(TOPIC, b"v")
    thread = threading.Thread(target=producer.close, daemon=True)
    thread.start()
    eventually(lambda: not producer._sender.is_running)
    producer.close(0.1)
    with pytest.raises(KafkaError, match="closed by force"):
        future.get(0)
    thread.join(30)
    assert not thread.is_alive()
    assert recorder.closed == 1


def test_close_inside_a_callback_does_not_wait(make: Make) -> None:
    producer, _ = make()
    producer.send(TOPIC, b"v", on_delivery=lambda _error, _metadata: producer.close(10)).get(10)
    eventually(lambda: not producer._io_thread.is_alive())


def test_close_wakes_waiting_calls(make: Make) -> None:
    producer, _ = make(known=False, max_block_ms=60_000)
    caught: list[Exception] = []

    def send() -> None:
        try:
            producer.send("new", b"v")
        except KafkaError as error:
            caught.append(error)

    thread = threading.Thread(target=send, daemon=True)
    thread.start()
    eventually(lambda: "new" in producer._metadata.topics)
    producer.close()
    thread.join(30)
    assert "closed" in str(caught[0])


def test_every_call_after_close_says_so(make: Make) -> None:
    producer, _ = make()
    producer.close()
    calls: list[Callable[[], object]] = [
        lambda: producer.send(TOPIC, b"v"),
        producer.flush,
        lambda: producer.partitions_for(TOPIC),
        producer.metrics,
        producer.bootstrap_connected,
        producer.__enter__,
    ]
    for call in calls:
        with pytest.raises(IllegalStateError, match="the producer is closed"):
            call()


def test_a_timeout_cannot_be_negative(make: Make) -> None:
    producer, _ = make()
    with pytest.raises(IllegalArgumentError):
        producer.close(-1)
    assert producer.send(TOPIC, b"v").get(10)


def test_transaction_calls_need_transactional_id(make: Make) -> None:
    producer, _ = make()
    for method in ("init_transactions", "begin_transaction", "commit_transaction", "abort_transaction"):
        with pytest.raises(IllegalStateError, match=r"transactional\.id"):
            getattr(producer, method)()
    with pytest.raises(IllegalStateError, match=r"transactional\.id"):
        producer.send_offsets_to_transaction({}, "group")
    with pytest.raises(IllegalStateError, match=r"transactional\.id"), producer.transaction():
        raise AssertionError("the block must not run")


def test_unclosed_producer_warns_and_sends_remaining_records(make: Make) -> None:
    config = ProducerConfig({"bootstrap.servers": "127.0.0.1:1", "enable.idempotence": False, "linger.ms": 50})
    metadata = ProducerMetadata(10, 10, 300_000, 300_000, LogContext(), SYSTEM_CLOCK)
    brokers = Brokers(metadata)
    metadata.add(TOPIC, SYSTEM_CLOCK.now_ms())
    brokers.update_metadata(metadata_response())
    producer: KafkaProducer[Any, Any] = KafkaProducer.of_components(
        config, ProducerComponents(config, SYSTEM_ENVIRONMENT, brokers, metadata)
    )
    thread = producer._io_thread
    future = producer.send(TOPIC, b"v")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        del producer
        gc.collect()
    assert [warning.category for warning in caught] == [ResourceWarning]
    assert future.get(10)
    thread.join(30)
    assert not thread.is_alive()


def test_sender_thread_has_javas_name(make: Make) -> None:
    producer, _ = make(client_id="orders-writer")
    assert producer._io_thread.name == "kafka-producer-network-thread | orders-writer"
    assert producer._io_thread.daemon


def test_producer_exposes_config_and_metrics(make: Make) -> None:
    producer, _ = make(client_id="me")
    assert producer.config["max.block.ms"] == 60_000
    producer.send(TOPIC, b"v").get(10)
    assert producer.metrics()["producer-metrics"]["record-send-total"] == 1
    names = {name.name for name in producer.metrics(raw=True) if name.tags.get("client-id") == "me"}
    assert {"batch-size-avg", "request-latency-max", "metadata-age", "waiting-threads", "record-error-rate"} <= names
    assert producer.bootstrap_connected()
