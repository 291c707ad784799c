"""Signal handlers may raise or call the producer at any point in it: no record or memory is lost, and nothing hangs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import pytest

from pykclient.clock import SYSTEM_CLOCK
from pykclient.config.producer_config import ProducerConfig
from pykclient.errors import IllegalStateError, KafkaError, OutOfOrderSequenceError
from pykclient.log_context import LogContext
from pykclient.network.client_request import ClientResponse
from pykclient.network.environment import SYSTEM_ENVIRONMENT
from pykclient.producer.interceptors import ProducerInterceptor
from pykclient.producer.kafka_producer import KafkaProducer
from pykclient.producer.partitioner import Partitioner
from pykclient.producer.producer_components import ProducerComponents
from pykclient.producer.producer_metadata import ProducerMetadata
from pykclient.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from pykclient.protocol.messages.produce import ProduceResponse
from pykclient.record import MemoryRecords
from tests.producer.harness import TOPIC, metadata_response
from tests.producer.test_kafka_producer import Brokers
from tests.support.interrupts import one_place_in, places
from tests.support.wait import eventually

BATCH_SIZE = 1024
WAIT_S = 20


class PatientBrokers(Brokers):
    """Brokers that let the sender sleep until its poll timeout or a wakeup."""

    def poll(self, timeout_ms: int, now_ms: int) -> list[ClientResponse]:
        if not self.responses and not self.requests and not (self.metadata and self.metadata.update_requested):
            self.woken.wait(min(timeout_ms, 60_000) / 1000)
        return super().poll(0, now_ms)


class NumberingBrokers(PatientBrokers):
    """Brokers that check sequence numbers and recognise duplicates, as real ones do for idempotent producers."""

    def __init__(self, metadata: ProducerMetadata) -> None:
        super().__init__(metadata)
        #: By producer id, epoch and partition: the offset of each batch by its first sequence, and the next sequence.
        self.written: dict[tuple[int, int, int], tuple[dict[int, int], int]] = {}
        self.gaps: list[tuple[int, int]] = []

    def _answer(self, request: Any) -> None:
        message = request.request_builder.message
        if isinstance(message, InitProducerIdRequest):
            self.respond_to_request(request, InitProducerIdResponse(producer_id=7, producer_epoch=0))
            return
        topics = []
        for topic in message.topic_data:
            answer = ProduceResponse.TopicProduceResponse(name=topic.name, topic_id=topic.topic_id)
            for part in topic.partition_data:
                (batch,) = MemoryRecords(bytes(part.records)).batches()
                code, offset = self._write(part.index, batch)
                answer.partition_responses.append(
                    ProduceResponse.PartitionProduceResponse(index=part.index, error_code=code, base_offset=offset)
                )
            topics.append(answer)
        self.respond_to_request(request, ProduceResponse(responses=topics))

    def _write(self, partition: int, batch: Any) -> tuple[int, int]:
        """Return the error code and the offset for a batch."""
        batch.ensure_valid()
        key = batch.producer_id, batch.producer_epoch, partition
        records, sequence = batch.records(), batch.base_sequence  # first: code of ours may be interrupted
        offsets, expected = self.written.setdefault(key, ({}, 0))
        if sequence in offsets:
            return 0, offsets[sequence]
        if sequence != expected:
            self.gaps.append((sequence, expected))
            return OutOfOrderSequenceError.code, -1
        offsets[sequence] = len(self.received)
        self.written[key] = offsets, expected + len(records)
        self.received += [(partition, record) for record in records]
        return 0, offsets[sequence]


def copied(value: bytes) -> bytes:
    """Serialize in Python."""
    return bytes(value)


class Choosing(Partitioner):
    """A partitioner that alternates between partitions 0 and 1 with each new batch."""

    def __init__(self) -> None:
        self.number = 0

    def partition(self, *_record: Any) -> int:
        return self.number

    def on_new_batch(self, _topic: str, _cluster: Any, _previous: int) -> None:
        self.number = 1 - self.number


class Client:
    """A producer over mock brokers, with its checks."""

    def __init__(self, *, known: bool = True, brokers: type[PatientBrokers] = PatientBrokers, **settings: Any) -> None:
        config = ProducerConfig(
            {
                "bootstrap.servers": "127.0.0.1:1",
                "enable.idempotence": False,
                "linger.ms": 0,
                "batch.size": BATCH_SIZE,
                "max.block.ms": WAIT_S * 1000,
            },
            **settings,
        )
        metadata = ProducerMetadata(10, 10, 300_000, 300_000, LogContext(), SYSTEM_CLOCK)
        self.brokers = brokers(metadata)
        metadata.add(TOPIC, SYSTEM_CLOCK.now_ms())
        self.brokers.update_metadata(metadata_response() if known else metadata_response({}))
        if not known:
            self.brokers.prepare_metadata_update(metadata_response())
        self.producer: KafkaProducer[Any, Any] = KafkaProducer.of_components(
            config, ProducerComponents(config, SYSTEM_ENVIRONMENT, self.brokers, metadata)
        )
        self.accumulator = self.producer._accumulator
        self.pool = self.accumulator._pool

    def values(self) -> list[bytes]:
        return [bytes(record.value or b"") for _, record in self.brokers.received]

    def check(self, once: set[bytes]) -> None:
        """Check that the sender sends all records without another call, no memory leaks, and the producer works.

        Each record of ``once`` was sent before and arrives once; every other record arrives at most once.
        """
        producer, pool = self.producer, self.pool
        eventually(lambda: not self.accumulator.has_incomplete, WAIT_S, "a batch that nobody completes", 0.001)
        eventually(lambda: pool.available_memory == pool.total_memory, WAIT_S, "memory leaks", 0.001)
        assert not self.accumulator._flushes
        backlog = self.accumulator.backlog
        assert backlog is not None
        assert (backlog.size, backlog.is_awaited) == (0, False)
        for partition in (0, 1):
            producer.send(TOPIC, b"after %d" % partition, partition=partition)
        producer.flush(WAIT_S)
        received = self.values()
        assert len(received) == len(set(received))
        assert {b"after 0", b"after 1"} | once <= set(received)
        self.check_closed()

    def check_closed(self) -> None:
        self.producer.close(WAIT_S)
        assert not self.producer._io_thread.is_alive()
        assert self.pool.available_memory == self.pool.total_memory
        assert not self.accumulator.has_incomplete


def send(partition: int | None = 0, size: int = 0, **record: Any) -> Callable[[Client], object]:
    """Return a call that sends one record of at least ``size`` bytes."""
    return lambda client: client.producer.send(TOPIC, b"interrupted".ljust(size, b"."), partition=partition, **record)


def send_batch(partition: int | None = 0) -> Callable[[Client], object]:
    rows = [b"row %d" % number for number in range(5)]
    return lambda client: client.producer.send_batch(TOPIC, rows, partition=partition)


class Case(NamedTuple):
    """A call to interrupt, and its producer's settings."""

    call: Callable[[Client], object]
    settings: Mapping[str, Any] = MappingProxyType({})
    #: The value sent to partition 0 before the call.
    before: bytes = b""


FULL = b"before".ljust(700, b".")

CASES = {
    "send": Case(send()),
    "send with everything": Case(send(key=b"k", headers=[("h", b"v")], on_delivery=lambda _error, _metadata: None)),
    "send to an open batch": Case(send(), {"linger_ms": 100}, b"before"),
    "send behind a full batch": Case(send(size=700), {"linger_ms": 100}, FULL),
    "send a sticky record": Case(send(None), {"batch_size": 16}),
    "send with a serializer": Case(send(), {"value_serializer": copied}),
    "send with a partitioner": Case(send(None, 700), {"partitioner_class": Choosing, "linger_ms": 100}, FULL),
    "send with interceptors": Case(send(), {"interceptor_classes": [ProducerInterceptor]}),
    "send with a codec": Case(send(), {"compression_type": "gzip"}),
    "send before there is metadata": Case(send(), {"known": False}),
    "send that waits for memory": Case(send(), {"buffer_memory": BATCH_SIZE, "linger_ms": 100}, FULL),
    "send_batch": Case(send_batch(), {"batch_size": 90}),
    "send_batch of sticky rows": Case(send_batch(None), {"batch_size": 64}, b"before"),
    "send_batch that waits for memory": Case(send_batch(), {"buffer_memory": 180, "batch_size": 90}, b"before"),
    "send_batch that waits for rows": Case(
        send_batch(), {"max_request_size": 100, "max_in_flight_requests_per_connection": 1, "batch_size": 64}
    ),
}

#: The interrupted thread drives the sender. Without idempotence, what is in flight may then be written twice.
FLUSH = Case(
    lambda client: client.producer.flush(WAIT_S),
    {"linger_ms": 100, "brokers": NumberingBrokers, "enable_idempotence": True},
    b"before",
)


def waiting(client: Client) -> Client:
    """Let this thread wait for a record, so that it drives the sender for the next one."""
    client.producer.send(TOPIC, b"waited for", partition=1).get(WAIT_S)
    eventually(lambda: client.producer._driver._is_parked, WAIT_S, "the sender's thread is not parked", 0.001)
    return client


def send_and_get(**record: Any) -> Callable[[Client], object]:
    return lambda client: client.producer.send(TOPIC, b"interrupted", partition=0, **record).get(WAIT_S)


def send_all(client: Client) -> None:
    for number in range(3):
        client.producer.send(TOPIC, b"row %d" % number, partition=number % 2)
    client.producer.flush(WAIT_S)


DRIVING = {
    "get": Case(send_and_get()),
    "get with a callback": Case(send_and_get(on_delivery=lambda _error, _metadata: None)),
    "get with a codec": Case(send_and_get(), {"compression_type": "gzip"}),
    "get in order": Case(send_and_get(), {"max_in_flight_requests_per_connection": 1}),
    "flush": Case(send_all, {"linger_ms": 100}),
    "flush of what lingers": FLUSH,
    "flush with a codec": Case(send_all, {"linger_ms": 100, "compression_type": "gzip"}),
}


@one_place_in(41)
@pytest.mark.parametrize("name", DRIVING)
def test_an_exception_at_any_place_of_a_call_that_drives(name: str, every: int) -> None:
    """The sender goes on with everything that the interrupted thread was doing: nothing is lost or written twice."""
    case = DRIVING[name]
    clients = []
    for place in places(every=every):
        with place:
            client = waiting(Client(**{"brokers": NumberingBrokers, "enable_idempotence": True, **case.settings}))
            clients.append(client)
            if case.before:
                client.producer.send(TOPIC, case.before, partition=0)
            place.interrupt(lambda client=client: case.call(client))  # type: ignore[misc]
            client.check({b"waited for"})
            assert not client.brokers.gaps  # type: ignore[attr-defined]


@one_place_in(5)
@pytest.mark.parametrize("name", CASES)
def test_exception_anywhere_in_call_leaves_producer_usable(name: str, every: int) -> None:
    case = CASES[name]
    clients = []  # kept, so no old producer is collected during a call
    for place in places(every=every):
        with place:
            client = Client(**case.settings)
            clients.append(client)
            once = set()
            if case.before:
                client.producer.send(TOPIC, case.before, partition=0)
                once.add(case.before)
            place.interrupt(lambda client=client: case.call(client))  # type: ignore[misc]
            client.check(once)


def test_exception_anywhere_in_close_allows_closing_again() -> None:
    for place in places():
        with place:
            client = Client(linger_ms=60_000)
            client.producer.send(TOPIC, b"before", partition=0)
            place.interrupt(lambda client=client: client.producer.close(WAIT_S))  # type: ignore[misc]
            client.check_closed()
            assert client.values() == [b"before"]


NESTED: dict[str, Callable[[Client], object]] = {
    "close": lambda client: client.producer.close(WAIT_S),
    "flush": lambda client: client.producer.flush(WAIT_S),
    "send": lambda client: client.producer.send(TOPIC, b"from the handler", partition=0),
    "send and wait": lambda client: client.producer.send(TOPIC, b"from the handler", partition=0).get(WAIT_S),
    "metrics": lambda client: client.producer.metrics(),
}


@one_place_in(4)
@pytest.mark.parametrize("nested", NESTED)
@pytest.mark.parametrize("name", ["send", "send behind a full batch", "send that waits for memory", "flush"])
def test_signal_handler_may_call_producer_anywhere(name: str, nested: str, every: int) -> None:
    """The handler's call works, or raises at once because the interrupted code holds a lock."""
    case = FLUSH if name == "flush" else CASES[name]
    if name == "flush":
        every *= 7
    clients: list[Client] = []  # kept, so no old producer is collected during a call
    outcomes: list[BaseException | None] = []

    def handle() -> None:
        try:
            NESTED[nested](clients[-1])
        except (IllegalStateError, KafkaError) as error:
            outcomes.append(error)
        else:
            outcomes.append(None)

    for place in places(run=handle, every=every):
        with place:
            client = Client(**case.settings)
            clients.append(client)
            if case.before:
                client.producer.send(TOPIC, case.before, partition=0)
            outcomes.clear()
            error = place.interrupt(lambda client=client: case.call(client))  # type: ignore[misc]
            if nested == "close":
                assert error is None or isinstance(error, KafkaError)
                if outcomes == [None]:
                    assert not client.producer._io_thread.is_alive()
            else:
                assert error is None
            for outcome in outcomes:
                assert outcome is None or "signal handler" in str(outcome) or "is closed" in str(outcome)
            client.check_closed()
            received = client.values()
            assert len(received) == len(set(received))
            if error is None and name != "flush":
                assert any(value.startswith(b"interrupted") for value in received)
            if outcomes == [None] and nested.startswith("send"):
                assert b"from the handler" in received
