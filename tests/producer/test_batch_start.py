"""The compiled ``send`` starts batches as the Python code does."""

from __future__ import annotations

from functools import partial
from typing import Any
from unittest.mock import Mock

import pytest

from pykclient import KafkaProducer, implementation
from pykclient.clock import FOREVER_MS, HERE
from pykclient.implementation import python_form
from pykclient.producer.send import SendState
from pykclient.record import CompressionType
from pykclient.record.compression import CompressionRatioEstimator
from tests.producer.harness import TOPIC
from tests.producer.test_batch_twins import states_of
from tests.producer.test_kafka_producer import Make, make
from tests.support.wait import eventually

__all__ = ["make"]

#: Nothing is sent while these tests look at the queues.
LINGERING = {"linger.ms": 60_000}

SETTINGS: list[dict[str, Any]] = [
    {},
    {"batch.size": 0},
    {"batch.size": 150},
    {"batch.size": 1000},
    {"batch.size": 4096, "buffer.memory": 8000},
    {"batch.size": 4096, "buffer.memory": 9000},
    {"compression.type": "gzip"},
]

#: One has no time: the distance of two such records would depend on how fast the machine is, and with it their sizes.
RECORDS: list[dict[str, Any]] = [
    {"key": b"key", "value": b"value", "partition": 0},
    {"key": b"key", "value": bytes(300), "timestamp_ms": 6},
    {"value": bytes(90), "partition": 1, "timestamp_ms": 5},
    {"value": None, "partition": 0, "headers": [("name", b"value"), ("null", None)], "timestamp_ms": 0},
    {"key": bytes(50), "value": bytes(1200), "partition": 0, "timestamp_ms": 7},
    {"key": b"", "value": bytes(100), "partition": 1, "timestamp_ms": 9, "on_delivery": lambda _error, _metadata: None},
]

#: No thread has this identifier.
NOBODY = -1

TIMES = ("created_ms", "last_attempt_ms", "_max_timestamp", "_base_timestamp", "bytes", "_buffer", "_records", "loan")


def seen_after(producer: KafkaProducer[Any, Any], form: Any) -> list[Any]:
    """Send the records while nothing drives the sender, and return the state of all queues and of the memory."""
    eventually(lambda: producer._components.sender_thread.take(NOBODY))
    producer.send(TOPIC, b"first", partition=0, timestamp_ms=7)  # from now on the compiled send() knows the topic
    producer._max_block_ms = 100  # where memory is short
    futures = [form(producer, TOPIC, **record) for record in RECORDS]
    accumulator = producer._accumulator
    pool = accumulator._pool
    seen: list[Any] = [pool.available_memory, pool.unallocated_memory, len(accumulator.register.incomplete)]
    seen += [(future.index, future._key_size, future._value_size, type(future)) for future in futures]
    for queue in accumulator._all_queues():
        for batch in queue.batches:
            assert batch in accumulator.register.incomplete
            assert batch.loan is not None
            loan = (batch.loan.size, batch.loan.belongs_to_batch, batch.loan.queued, len(batch.loan.buffer or b""))
            states = [{name: value for name, value in state.items() if name not in TIMES} for state in states_of(batch)]
            result = batch.produce_future
            listeners = [(future.index, function, kind) for future, function, kind in result.listeners]
            seen.append((queue.topic_partition, loan, *states, listeners, result.sender_thread is not None))
            seen.append([batch.split(1 << 20)[0].record_count, batch.is_full])
            for state in seen[-2][2:4]:
                state.pop("_lender", None)
                state.pop("compression", None)
                memory = state.pop("memory", None)
                state["borrowed"] = memory and memory.size
    del producer._components.sender_thread.holder
    return seen


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_python_and_c_start_batches_alike(make: Make, settings: dict[str, Any]) -> None:
    """Batches, results and memory are the same; also where memory is short, or a batch holds one record."""
    seen = []
    for form in (python_form(SendState).send, KafkaProducer.send):
        producer, _ = make(**{**LINGERING, "max.block.ms": 5000, **settings})
        seen.append(seen_after(producer, form))
    assert seen[0] == seen[1]


@pytest.mark.parametrize("ratio", [1.2, 0.5, 0.1])
@pytest.mark.parametrize(
    "settings",
    [{"batch.size": 150}, {"batch.size": 1000}, {"batch.size": 4096, "buffer.memory": 9000}, {"buffer.memory": 40_000}],
    ids=str,
)
def test_python_and_c_start_compressed_batches_alike(
    make: Make, monkeypatch: Any, settings: dict[str, Any], ratio: float
) -> None:
    """They also borrow as much ahead, which depends on the ratio of earlier batches."""
    monkeypatch.setattr(CompressionRatioEstimator, "update_estimation", Mock())  # by the first producer's sender
    seen = []
    for form in (python_form(KafkaProducer.send), KafkaProducer.send):
        CompressionRatioEstimator.set_estimation(TOPIC, CompressionType.LZ4, ratio)
        producer, _ = make(**{**LINGERING, "max.block.ms": 5000, "compression.type": "lz4", **settings})
        seen.append(seen_after(producer, form))
    CompressionRatioEstimator.reset_estimation(TOPIC)
    assert seen[0] == seen[1]


@pytest.mark.parametrize("codec", ["none", "gzip", "lz4", "snappy", "zstd"])
def test_compiled_send_starts_batches_of_all_codecs(make: Make, monkeypatch: Any, codec: str) -> None:
    producer, _ = make(**{**LINGERING, "max.block.ms": 5000, "compression.type": codec, "batch.size": 150})
    eventually(lambda: producer._components.sender_thread.take(NOBODY))
    producer.send(TOPIC, bytes(300), partition=0)
    start = Mock(wraps=producer._accumulator.append_with_new_batch)
    monkeypatch.setattr(producer._accumulator, "append_with_new_batch", start)
    producer.send(TOPIC, bytes(300), partition=0)
    assert start.call_count == (0 if implementation.NAME == "c" else 1)
    (queue,) = producer._accumulator._all_queues()
    assert [batch.record_count for batch in queue.batches] == [1, 1]
    del producer._components.sender_thread.holder


@pytest.mark.parametrize("ratio", [1.0, 0.6, 0.3])
@pytest.mark.parametrize("codec", ["none", "lz4"])
@pytest.mark.parametrize("size", [60, 290, 1100])
def test_python_and_c_switch_partitions_alike(
    make: Make, monkeypatch: Any, codec: str, ratio: float, size: int
) -> None:
    """After a batch's worth of bytes, the next batch is another partition's; compiled code starts that batch, too."""
    monkeypatch.setattr(CompressionRatioEstimator, "update_estimation", Mock())  # by the first producer's sender
    seen = []
    for form in (python_form(SendState).send, KafkaProducer.send):
        CompressionRatioEstimator.set_estimation(TOPIC, CompressionType.LZ4, ratio)
        producer, _ = make(**{**LINGERING, "max.block.ms": 5000, "compression.type": codec, "batch.size": 1000})
        eventually(partial(producer._components.sender_thread.take, NOBODY))
        accumulator = producer._accumulator
        for partition in range(2):
            producer.send(TOPIC, b"first", partition=partition)
        accumulator._rng.seed(1)
        start = Mock(wraps=accumulator.append_with_new_batch)
        monkeypatch.setattr(accumulator, "append_with_new_batch", start)
        sticky = []
        for _ in range(200):
            form(producer, TOPIC, bytes(size), timestamp_ms=7)
            current = accumulator._topics[TOPIC].partitioner.sticky
            assert current is not None
            sticky.append((current.partition, current.produced_bytes))
        queues = [[batch.record_count for batch in queue.batches] for queue in accumulator._all_queues()]
        seen.append((sticky, queues, set(accumulator.waiting.changed_queues) == set(accumulator._all_queues())))
        del producer._components.sender_thread.holder
        assert len({partition for partition, _ in sticky}) == 2
        assert min(map(len, queues)) > 1
    CompressionRatioEstimator.reset_estimation(TOPIC)
    assert seen[0] == seen[1]
    if implementation.NAME == "c":
        assert start.call_count < 5  # the topic's first record, and records that find an open batch after a switch


@pytest.mark.parametrize("next_look_ms", [0, FOREVER_MS, 2 * FOREVER_MS])
def test_new_batch_wakes_sender_that_would_check_too_late(make: Make, next_look_ms: int) -> None:
    """The sender's next look may be further away than 64 bits can tell."""
    producer, _ = make(**{**LINGERING, "max.block.ms": 5000})
    eventually(lambda: producer._components.sender_thread.take(NOBODY))
    producer.send(TOPIC, b"first", partition=0)
    producer._driver._news = False
    producer._accumulator.waiting.next_look_ms = next_look_ms
    producer.send(TOPIC, b"second", partition=1)
    assert producer._driver._news is (next_look_ms > 0)
    del producer._components.sender_thread.holder


def test_reentrant_call_starts_no_batch(make: Make) -> None:
    producer, _ = make(**{**LINGERING, "max.block.ms": 5000})
    producer.send(TOPIC, b"first", partition=0)
    incomplete = len(producer._accumulator.register.incomplete)
    with HERE.mark, pytest.raises(RuntimeError, match="send"):
        producer.send(TOPIC, b"second", partition=1)
    assert len(producer._accumulator.register.incomplete) == incomplete
    pool = producer._accumulator._pool
    assert pool.total_memory - pool.available_memory == sum(
        batch.loan.size for batch in producer._accumulator.register.incomplete if batch.loan
    )
