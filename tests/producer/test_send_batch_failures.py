"""Results of rows when brokers refuse or do not respond, memory runs out, or the program ends."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

from pykclient.clock import LockSignal
from pykclient.errors import (
    BufferExhaustedError,
    InvalidRecordError,
    KafkaError,
    KafkaTimeoutError,
    TopicAuthorizationError,
)
from pykclient.producer.columns import BatchFuture
from pykclient.protocol.messages.produce import ProduceResponse
from pykclient.types import TopicPartition
from tests.producer.harness import TOPIC, metadata_response
from tests.producer.test_kafka_producer import Brokers, Make, make
from tests.producer.test_lifecycle import finish, read_all, start
from tests.support.any_kafka import AnyKafka
from tests.support.wait import eventually

__all__ = ["make"]

Answer = ProduceResponse.PartitionProduceResponse


def answer_with(brokers: Brokers, monkeypatch: pytest.MonkeyPatch, answers: dict[int, Answer]) -> None:
    """Replace the brokers' responses for these partitions."""
    respond = brokers.respond_to_request

    def respond_otherwise(request: Any, response: Any) -> Any:
        for topic in response.responses:
            topic.partition_responses = [answers.get(each.index, each) for each in topic.partition_responses]
        return respond(request, response)

    monkeypatch.setattr(brokers, "respond_to_request", respond_otherwise)


def rows_of(future: BatchFuture) -> list[int]:
    return sorted(row for each in future.slices for row in each.rows)


def test_error_of_one_partition_fails_only_its_rows(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    producer, brokers = make(batch_size=1000)
    answer_with(brokers, monkeypatch, {0: Answer(index=0, error_code=29)})
    heard: list[Any] = []
    future = producer.send_batch(TOPIC, [bytes(100)] * 100, partition=[row % 2 for row in range(100)])
    future.add_errback(heard.append)
    with pytest.raises(TopicAuthorizationError):
        future.get(10)
    assert future.failed()
    assert sorted(row for each in future.errors for row in each.rows) == list(range(0, 100, 2))
    assert {each.partition for each in future.errors} == {0}
    assert list(future.base_offsets) == [TopicPartition(TOPIC, 1)]
    assert [offset is None for offset in future.offsets().to_pylist()] == [True, False] * 50
    assert rows_of(future) == list(range(100))
    eventually(lambda: len(heard) == 1, 30)


def test_rows_named_by_broker_have_own_error(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """The broker names the invalid records of a batch; the others were not written either (KIP-467)."""
    producer, brokers = make()
    named = ProduceResponse.BatchIndexAndErrorMessage(batch_index=2, batch_index_error_message="no key")
    answer_with(brokers, monkeypatch, {1: Answer(index=1, error_code=87, record_errors=[named])})
    future = producer.send_batch(TOPIC, [b"a", b"b", b"c", b"d"], partition=1)
    assert future.wait(10)
    assert rows_of(future) == [0, 1, 2, 3]
    (bad,) = [each for each in future.errors if isinstance(each.error, InvalidRecordError)]
    assert (list(bad.rows), "no key" in str(bad.error)) == ([2], True)
    assert {row for each in future.errors for row in each.rows} == {0, 1, 2, 3}


def test_unanswered_rows_expire(make: Make) -> None:
    producer, brokers = make(request_timeout_ms=50, delivery_timeout_ms=150, batch_size=1000)
    brokers.answering = False
    future = producer.send_batch(TOPIC, [bytes(100)] * 100)
    with pytest.raises(KafkaTimeoutError, match="expired"):
        future.get(10)
    assert {type(each.error) for each in future.slices} == {KafkaTimeoutError}
    assert rows_of(future) == list(range(100))
    assert future.offsets().null_count == 100


def test_close_while_it_waits_for_memory(make: Make) -> None:
    producer, brokers = make(buffer_memory=8192, batch_size=1024, max_block_ms=60_000)
    brokers.answering = False
    futures: list[BatchFuture] = []
    thread = threading.Thread(
        target=lambda: futures.append(producer.send_batch(TOPIC, [bytes(200)] * 1000, partition=0)), daemon=True
    )
    thread.start()
    eventually(lambda: producer._accumulator._pool.queued == 1, 30)
    producer.close(0)
    thread.join(10)
    (future,) = futures
    assert future.wait(10)
    assert rows_of(future) == list(range(1000))
    assert all(isinstance(each.error, KafkaError) and "closed" in str(each.error) for each in future.slices)


class Sleeper(threading.Event):
    """An event whose waiters sleep until it is set, or until the test has failed."""

    is_asleep = False

    def wait(self, timeout: float | None = None) -> bool:
        self.is_asleep = bool(timeout)
        return super().wait(30 if timeout else 0)


def test_large_row_waits_for_memory_of_others(make: Make) -> None:
    """A large row waits for memory in batches that the sender has not been notified of yet."""
    producer, brokers = make(buffer_memory=8000, batch_size=1000, linger_ms=30_000, max_block_ms=3000)
    brokers.update_metadata(metadata_response({TopicPartition(TOPIC, number): 0 for number in range(8)}))
    producer.send_batch(TOPIC, [b"first"], partition=7)
    producer.flush(10)
    brokers.woken = sleeper = Sleeper()
    eventually(lambda: sleeper.is_asleep or producer._driver._is_parked, 30)
    future = producer.send_batch(TOPIC, [b"small"] * 7 + [bytes(1500)], partition=list(range(8)))
    producer.flush(10)
    assert future.get(10).num_rows == 8


def test_few_rows_for_many_partitions_fit_little_memory(make: Make) -> None:
    """A few rows do not allocate a whole batch when memory is short."""
    producer, brokers = make(buffer_memory=64 * 1024, batch_size=16 * 1024, max_block_ms=100)
    brokers.update_metadata(metadata_response({TopicPartition(TOPIC, number): 0 for number in range(7)}))
    brokers.answering = False
    future = producer.send_batch(TOPIC, [b"small"] * 7, partition=list(range(7)))
    brokers.answering = True
    assert future.get(10).num_rows == 7


class Interrupting:
    """A stream that raises after its first batch, for example KeyboardInterrupt."""

    def __init__(self, error: BaseException) -> None:
        self._error = error

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        def batches() -> Iterator[pa.RecordBatch]:
            yield pa.record_batch({"value": [bytes(100)] * 50})
            raise self._error

        schema = pa.schema({"value": pa.binary()})
        return pa.RecordBatchReader.from_batches(schema, batches()).__arrow_c_stream__(requested_schema)


def test_a_stream_that_breaks_off(make: Make) -> None:
    """Rows before the failure are sent."""
    producer, brokers = make()
    with pytest.raises(OSError, match="the disk is gone"):
        producer.send_batch(TOPIC, Interrupting(OSError("the disk is gone")))
    producer.flush(10)
    assert len(brokers.received) == 50


def test_ctrl_c_while_it_waits_for_memory(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C ends the call; rows in a batch are sent, no memory is lost, and the producer still works."""
    producer, brokers = make(buffer_memory=8192, batch_size=1024, max_block_ms=60_000)
    brokers.answering = False
    pool = producer._accumulator._pool

    def interrupted(*_: Any) -> Any:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(LockSignal, "wait", interrupted)
        with pytest.raises(KeyboardInterrupt):
            producer.send_batch(TOPIC, [bytes(200)] * 1000, partition=0)
    brokers.answering = True
    assert producer.send_batch(TOPIC, [b"after"], partition=0).get(10).num_rows == 1
    producer.flush(10)
    eventually(lambda: pool.available_memory == 8192, 30)
    assert 0 < len(brokers.received) < 100


def test_call_raises_without_memory_for_first_row(make: Make) -> None:
    """The call raises if no row was sent."""
    producer, brokers = make(buffer_memory=1024, batch_size=1024, max_block_ms=50)
    brokers.answering = False
    producer.send_batch(TOPIC, [b"a"], partition=0)
    with pytest.raises(BufferExhaustedError):
        producer.send_batch(TOPIC, [b"b"], partition=1)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
def test_forked_child_cannot_send_or_wait(any_kafka: AnyKafka, topic: str) -> None:
    program = """
from pykclient.errors import UseAfterForkError
producer = KafkaProducer(bootstrap_servers=bootstrap_servers, linger_ms=60_000)
pending = producer.send_batch(topic, [b"pending"] * 10)
child = os.fork()
if child == 0:
    for call in (lambda: producer.send_batch(topic, [b"child"]), lambda: pending.get(20)):
        try:
            call()
        except UseAfterForkError as error:
            print(error, flush=True)
    sys.exit(0)
_, status = os.waitpid(child, 0)
producer.flush(20)
print(pending.get(0).num_rows)
producer.close()
sys.exit(os.waitstatus_to_exitcode(status))
"""
    code, out, err = finish(start(program, any_kafka.bootstrap_servers, topic))
    assert code == 0, err
    assert out.count("made before fork()") == 2
    assert out.splitlines()[-1] == "10"
    assert read_all(any_kafka.bootstrap_servers, topic, 10) == [b"pending"] * 10
