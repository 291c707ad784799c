"""The sequence numbers and numbered batches in flight of each partition.

Java: TxnPartitionMap, TxnPartitionEntry.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterable
from typing import NamedTuple

from pykclient.errors import IllegalStateError
from pykclient.producer.future import NO_OFFSET
from pykclient.producer.producer_batch import ProducerBatch
from pykclient.producer.record_fields import TxnPartitionState
from pykclient.record.record_batch import MAX_INT32, NO_PRODUCER_EPOCH, NO_PRODUCER_ID
from pykclient.types import TopicPartition

NO_LAST_ACKED_SEQUENCE_NUMBER = -1


class ProducerIdAndEpoch(NamedTuple):
    """The producer's id, assigned by the cluster, and the epoch that fences earlier users of the id."""

    producer_id: int
    epoch: int

    @property
    def is_valid(self) -> bool:
        return self.producer_id != NO_PRODUCER_ID


NO_PRODUCER_ID_AND_EPOCH = ProducerIdAndEpoch(NO_PRODUCER_ID, NO_PRODUCER_EPOCH)


def _order(batch: ProducerBatch) -> tuple[int, int, int]:
    return batch.producer_id, batch.producer_epoch, batch.base_sequence


class TxnPartitionEntry(TxnPartitionState):
    """The sequence numbers of one partition. Thread: io."""

    __slots__ = ()
    in_flight: list[ProducerBatch]
    producer_id_and_epoch: ProducerIdAndEpoch

    def __init__(self, topic_partition: TopicPartition) -> None:
        self.topic_partition = topic_partition
        self.producer_id_and_epoch = NO_PRODUCER_ID_AND_EPOCH
        #: The base sequence of the next batch; 2^31 if all are used up. It never wraps around within an epoch.
        self.next_sequence = 0
        #: The sequence of the last acknowledged record; ``next_sequence - 1`` if nothing is in flight.
        self.last_acked_sequence = NO_LAST_ACKED_SEQUENCE_NUMBER
        #: The last acknowledged offset. It tells records lost by the broker from records removed by retention.
        self.last_acked_offset = NO_OFFSET
        #: True if the broker acknowledged a batch of this epoch recently, and so detects missing sequence numbers.
        self.is_known_to_broker = False
        self.last_numbered_ms = 0
        #: Batches drained but not completed, by sequence: responses may arrive in another order.
        self.in_flight = []

    def has_sequences_for(self, batch: ProducerBatch) -> bool:
        """Return whether the epoch has enough sequence numbers left for the records of ``batch``.

        Numbers that wrapped around to 0 would compare wrongly with those of earlier batches in flight. If one of these
        is a retry, Java fails records that were written.
        """
        return self.next_sequence + batch.record_count - 1 <= MAX_INT32

    def add_in_flight_batch(self, batch: ProducerBatch) -> None:
        insort(self.in_flight, batch, key=_order)

    def remove_in_flight_batch(self, batch: ProducerBatch) -> None:
        if batch in self.in_flight:
            self.in_flight.remove(batch)

    def has_in_flight_before(self, batch: ProducerBatch) -> bool:
        """Return whether a batch with a lower sequence than ``batch`` is in flight."""
        return bool(self.in_flight) and _order(self.in_flight[0]) < _order(batch)

    def start_sequences_at_beginning(self, producer_id_and_epoch: ProducerIdAndEpoch) -> None:
        """Renumber the batches in flight from 0, with the new id and epoch."""
        sequence = 0
        for batch in self.in_flight:
            batch.reset_producer_state(*producer_id_and_epoch, sequence)
            sequence += batch.record_count
        self.in_flight.sort(key=_order)
        self.producer_id_and_epoch = producer_id_and_epoch
        self.next_sequence = sequence
        self.last_acked_sequence = NO_LAST_ACKED_SEQUENCE_NUMBER
        self.is_known_to_broker = False


class _Entries(dict[TopicPartition, TxnPartitionEntry]):
    """Creates the entry of a partition that has none."""

    __slots__ = ()

    def __missing__(self, topic_partition: TopicPartition) -> TxnPartitionEntry:
        entry = self[topic_partition] = TxnPartitionEntry(topic_partition)
        return entry


class TxnPartitionMap:
    """The partitions written to with the current producer id. Thread: io."""

    __slots__ = ("entries",)

    def __init__(self) -> None:
        #: The entry of each partition. ``entries[topic_partition]`` creates one if there is none.
        self.entries = _Entries()

    def get(self, topic_partition: TopicPartition) -> TxnPartitionEntry:
        entry = self.entries.get(topic_partition)
        if entry is None:
            raise IllegalStateError(f"no sequence numbers were assigned for {topic_partition}")
        return entry

    def track(self, numbered: Iterable[ProducerBatch]) -> None:
        """Make ``numbered`` the batches in flight, and let no number that one of them has be given out again."""
        for entry in self.entries.values():
            entry.in_flight = []
        for batch in numbered:
            entry = self.entries[batch.topic_partition]
            entry.add_in_flight_batch(batch)
            if entry.producer_id_and_epoch == (batch.producer_id, batch.producer_epoch):
                entry.next_sequence = max(entry.next_sequence, batch.last_sequence + 1)

    def find(self, topic_partition: TopicPartition) -> TxnPartitionEntry | None:
        return self.entries.get(topic_partition)

    def remove(self, topic_partition: TopicPartition) -> None:
        self.entries.pop(topic_partition, None)

    def reset(self) -> None:
        self.entries.clear()
