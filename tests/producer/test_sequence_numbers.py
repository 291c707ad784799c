"""After sequence number 2^31 - 1 the epoch is bumped, and numbering restarts from 0."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from pykclient import KafkaProducer, TopicPartition
from pykclient.errors import (
    NotEnoughReplicasError,
    NotLeaderOrFollowerError,
    OutOfOrderSequenceError,
    RecordTooLargeError,
)
from pykclient.producer.transactions.producer_id_manager import ProducerIdManager, TxnPartitionEntry
from pykclient.record import Compression
from pykclient.testing import EmbeddedCluster
from tests.producer.harness import RETRY_BACKOFF_MS, TP0, TP1, SenderHarness
from tests.simulation.schedule import make
from tests.simulation.world import failure

END = 1 << 31
TP = TopicPartition("t", 0)


def leave_numbers(manager: ProducerIdManager | None, tp: TopicPartition, left: int) -> TxnPartitionEntry:
    """Leave a partition only ``left`` sequence numbers of the epoch."""
    assert manager is not None
    entry = manager._partitions[tp]
    entry.producer_id_and_epoch = manager.producer_id_and_epoch
    entry.next_sequence = END - left
    entry.last_acked_sequence = END - left - 1
    return entry


def start_near_the_end(h: SenderHarness, left: int) -> TxnPartitionEntry:
    """Get a producer id with a record for another partition, and leave TP0 only ``left`` sequence numbers."""
    h.append(TP1)
    h.get_producer_id()
    h.run_once()
    h.respond(0, 0, TP1)
    h.run_once()
    return leave_numbers(h.manager, TP0, left)


def go_to(producer: KafkaProducer[Any, Any], left: int) -> None:
    """Leave partition 0 only ``left`` sequence numbers, and send its first record with one of them."""
    producer.send(TP.topic, b"", partition=1).get(10)
    leave_numbers(producer._id_manager, TP, left)
    producer.send(TP.topic, b"00", partition=0).get(10)


FAULTS: dict[str, Callable[[EmbeddedCluster], object]] = {
    "none": lambda cluster: None,
    "lost answers": lambda cluster: cluster.faults.drop_responses("Produce", times=2, disconnect=True),
    "refused": lambda cluster: cluster.faults.answer("Produce", NotEnoughReplicasError, times=5),
}


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("left", [1, 2, 3, 6, 8])
@pytest.mark.parametrize("batch_size", [1, 150])
def test_records_are_written_once_and_in_order_across_epochs(fault: str, left: int, batch_size: int) -> None:
    with EmbeddedCluster() as cluster:
        cluster.create_topic(TP.topic, partitions=2)
        with KafkaProducer(
            bootstrap_servers=cluster.bootstrap_servers,
            batch_size=batch_size,
            linger_ms=0,
            request_timeout_ms=1000,
            retry_backoff_ms=10,
        ) as producer:
            go_to(producer, left)
            FAULTS[fault](cluster)
            futures = [producer.send(TP.topic, b"%02d" % number, partition=0) for number in range(1, 21)]
            for future in futures:
                future.get(30)
            other = producer.send(TP.topic, b"", partition=1).get(10)
            manager = producer._id_manager
            assert manager is not None
            assert manager.producer_id_and_epoch.epoch == 1
        assert [record.value for record in cluster.log(TP)] == [b"%02d" % number for number in range(21)]
        assert other.offset == 1


def test_epoch_bump_waits_for_batches_in_flight() -> None:
    h = SenderHarness()
    entry = start_near_the_end(h, 3)
    h.append()
    h.run_once()
    h.respond(0, 0)  # the first one is sent alone
    h.run_once()
    first = h.append()
    h.run_once()
    second = h.append()
    h.run_once()
    third = h.append()
    h.run_once(3)
    assert h.sent_batches() == [(13, 0, END - 2, 1), (13, 0, END - 1, 1)]
    # A retry keeps its number, and the third batch waits for it.
    h.respond(NotLeaderOrFollowerError.code, -1)
    h.respond(0, 1)
    h.run_once()
    h.clock.advance(RETRY_BACKOFF_MS)
    h.run_once()
    assert h.sent_batches() == [(13, 0, END - 2, 1)]
    h.respond(0, 0)
    h.run_once(3)
    assert h.sent_batches() == [(13, 1, 0, 1)]
    h.respond(0, 2)
    h.run_once()
    assert [future.get(0).offset for future in (first, second, third)] == [0, 1, 2]
    assert (entry.next_sequence, entry.last_acked_sequence) == (1, 0)


def test_parts_of_split_batch_share_last_sequence_numbers() -> None:
    h = SenderHarness(compression=Compression.of("gzip"), batch_size=16 * 1024)
    start_near_the_end(h, 4)
    futures = [h.append(value=b"v" * 10) for _ in range(4)]
    h.run_once()
    h.respond(RecordTooLargeError.code, -1)
    h.run_once()
    sent = []
    offset = 0
    for _ in range(10):
        for request in h.requests():
            batches = h.sent_batches()
            sent += batches
            h.respond_to(request, 0, offset)
            offset += batches[0][3]
        h.run_once()
    assert all(future.get(0) for future in futures)
    assert sent == [(13, 0, END - 4, 2), (13, 0, END - 2, 2)]
    last = h.append()
    h.run_once(3)
    assert h.sent_batches() == [(13, 1, 0, 1)]
    h.respond(0, offset)
    h.run_once()
    assert last.get(0)


def test_out_of_order_retry_keeps_its_number() -> None:
    """A retry that is out of order keeps its number, because the first attempt may be in the log.

    A broker remembers only five batches.
    """
    h = SenderHarness(retries=1)
    h.append()
    h.get_producer_id()
    h.run_once()
    h.respond(0, 0)
    h.run_once()
    first = h.append()
    h.run_once()
    h.respond(NotLeaderOrFollowerError.code, -1)
    h.run_once()
    h.clock.advance(RETRY_BACKOFF_MS)
    h.run_once()
    second = h.append()
    h.run_once()
    assert h.sent_batches() == [(13, 0, 1, 1), (13, 0, 2, 1)]
    h.respond(OutOfOrderSequenceError.code, -1)
    h.run_once(2)
    assert isinstance(first.exception, OutOfOrderSequenceError)
    assert h.sent_batches() == [(13, 0, 2, 1)]
    h.respond(0, 9)
    h.run_once(2)
    assert second.get(0).offset == 9
    assert h.manager is not None
    assert h.manager.producer_id_and_epoch.epoch == 0


@pytest.mark.parametrize(("numbers", "first_seed"), [(3, 50_000), (12, 500_700), (40, 600_000)])
def test_order_holds_with_few_sequence_numbers(monkeypatch: pytest.MonkeyPatch, numbers: int, first_seed: int) -> None:
    """Random schedules of faults preserve order when an epoch has few sequence numbers."""

    def has_sequences_for(entry: TxnPartitionEntry, batch: Any) -> bool:
        return entry.next_sequence == 0 or entry.next_sequence + batch.record_count <= numbers + 1

    monkeypatch.setattr(TxnPartitionEntry, "has_sequences_for", has_sequences_for)
    for seed in range(first_seed, first_seed + 20):
        assert failure(make(seed)) is None, seed
