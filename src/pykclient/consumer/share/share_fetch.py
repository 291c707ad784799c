"""The records that one poll of a share consumer returns, and their acknowledgements (Java: ShareFetch)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pykclient.consumer.share.acknowledge_type import AcknowledgeType
from pykclient.consumer.share.acknowledgements import GAP, Acknowledgements, NodeAcknowledgements
from pykclient.errors import IllegalStateError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Set

    from pykclient.errors import KafkaError
    from pykclient.types import ConsumerRecord, TopicIdPartition, TopicPartition


class ShareInFlightBatch:
    """The records of one partition that are locked for this consumer (Java: ShareInFlightBatch).

    ``in_flight`` are the records to be acknowledged, by offset. Thread: application.
    """

    __slots__ = (
        "_acknowledged",
        "_renewed",
        "_renewing",
        "acknowledgements",
        "failed_offsets",
        "in_flight",
        "node_id",
        "partition",
    )

    def __init__(self, node_id: int, partition: TopicIdPartition) -> None:
        self.node_id = node_id
        self.partition = partition
        self.in_flight: dict[int, ConsumerRecord[Any, Any]] = {}
        self.acknowledgements = Acknowledgements()  # not on their way yet
        #: Offsets of records that could not be delivered. The application may change their acknowledgement.
        self.failed_offsets: frozenset[int] = frozenset()
        self._acknowledged: set[int] = set()  # offsets in in_flight
        self._renewing: dict[int, ConsumerRecord[Any, Any]] = {}
        self._renewed: dict[int, ConsumerRecord[Any, Any]] = {}

    @property
    def is_empty(self) -> bool:
        """True if there is nothing to process and nothing to acknowledge."""
        return not self.in_flight and not self.acknowledgements

    @property
    def has_renewals(self) -> bool:
        """True if locks of records are being renewed, or were since the last poll."""
        return bool(self._renewing) or bool(self._renewed)

    @property
    def unacknowledged(self) -> int:
        """The number of records in flight that are not acknowledged."""
        return len(self.in_flight) - len(self._acknowledged)

    def add(self, record: ConsumerRecord[Any, Any]) -> None:
        self.in_flight[record.offset] = record

    def add_gap(self, offset: int) -> None:
        """Acknowledge an offset that has no record, for instance as compaction has removed it."""
        self.acknowledgements.types[offset] = GAP

    def fail(self, offsets: frozenset[int], kind: AcknowledgeType) -> None:
        """Acknowledge records that could not be delivered."""
        self.failed_offsets = offsets
        self.acknowledgements.types.update(dict.fromkeys(offsets, int(kind)))

    def acknowledge(self, offset: int, kind: AcknowledgeType) -> None:
        """Acknowledge a record in flight."""
        self.acknowledgements.types[offset] = int(kind)
        self._acknowledged.add(offset)

    def acknowledge_failed(self, offset: int, kind: AcknowledgeType) -> bool:
        """Change the acknowledgement of a record that could not be delivered; return False if it is not one."""
        if offset not in self.failed_offsets:
            return False
        self.acknowledgements.types[offset] = int(kind)
        return True

    def acknowledge_rest(self, kind: AcknowledgeType, except_offsets: Set[int] = frozenset()) -> None:
        """Acknowledge all records in flight that are not acknowledged yet, without ``except_offsets``."""
        types = self.acknowledgements.types
        for offset in self.in_flight:
            if offset not in types and offset not in except_offsets:
                types[offset] = int(kind)
                self._acknowledged.add(offset)

    def merge(self, other: ShareInFlightBatch) -> None:
        """Add the records of another response."""
        self.in_flight.update(other.in_flight)
        self.acknowledgements.merge(other.acknowledgements)
        self.failed_offsets |= other.failed_offsets

    def take_acknowledged(self) -> Acknowledgements:
        """Return the acknowledgements, which are about to be sent, and drop their records."""
        taken, self.acknowledgements = self.acknowledgements, Acknowledgements()
        for offset in self._acknowledged:
            record = self.in_flight.pop(offset)
            if taken.types[offset] == AcknowledgeType.RENEW:
                self._renewing[offset] = record
        self._acknowledged = set()
        self.failed_offsets = frozenset()
        return taken

    def renewed(self, acknowledgements: Acknowledgements) -> None:
        """Note the broker's answer to acknowledgements of which some may be renewals."""
        for offset, kind in acknowledgements.types.items():
            record = self._renewing.pop(offset, None)
            if record is not None and kind == AcknowledgeType.RENEW and acknowledgements.error is None:
                self._renewed[offset] = record

    def take_renewed(self) -> None:
        """Put records with renewed locks back in flight."""
        if self._renewed:
            self.in_flight = dict(sorted({**self.in_flight, **self._renewed}.items()))
            self._renewed = {}


class ShareFetch:
    """The records in flight of all partitions (Java: ShareFetch).

    While ``returned`` is False, the records have not reached the application, so they are not acknowledged. ``error``
    is to be raised instead of returning records. Thread: application.
    """

    __slots__ = ("_batches", "error", "lock_timeout_ms", "returned")

    def __init__(self) -> None:
        self._batches: dict[TopicPartition, ShareInFlightBatch] = {}
        #: The period of the records' locks in milliseconds, if the broker has told it.
        self.lock_timeout_ms: int | None = None
        self.error: KafkaError | None = None
        self.returned = False

    def can_add(self, node_id: int, partition: TopicIdPartition) -> bool:
        """Return False for records of another broker, or of another topic, than those of the partition so far.

        Their acknowledgements go to the broker that has delivered them.
        """
        present = self._batches.get(partition.topic_partition)
        return present is None or (present.node_id, present.partition) == (node_id, partition)

    def add(self, batch: ShareInFlightBatch, lock_timeout_ms: int | None) -> None:
        """Add the records of one response."""
        present = self._batches.get(batch.partition.topic_partition)
        if present is None:
            self._batches[batch.partition.topic_partition] = batch
        else:
            present.merge(batch)
        if lock_timeout_ms is not None:
            self.lock_timeout_ms = lock_timeout_ms

    def records(self) -> dict[TopicPartition, list[ConsumerRecord[Any, Any]]]:
        """Return the records in flight by partition."""
        return {tp: list(batch.in_flight.values()) for tp, batch in self._batches.items() if batch.in_flight}

    @property
    def num_records(self) -> int:
        """The number of records in flight."""
        return sum(len(batch.in_flight) for batch in self._batches.values())

    @property
    def is_empty(self) -> bool:
        """True if there is nothing to process, to acknowledge or to renew."""
        return all(batch.is_empty and not batch.has_renewals for batch in self._batches.values())

    @property
    def unacknowledged(self) -> int:
        """The number of records in flight that are not acknowledged."""
        return sum(batch.unacknowledged for batch in self._batches.values())

    def acknowledge(self, places: Iterable[tuple[TopicPartition, int]], kind: AcknowledgeType) -> None:
        """Acknowledge records in flight, given by partition and offset: all of them, or none if that fails.

        Raises:
            IllegalStateError: a record is not in flight.
        """
        found: list[tuple[ShareInFlightBatch, int]] = []
        for tp, offset in places:
            batch = self._batches.get(tp)
            if batch is None or offset not in batch.in_flight:
                raise IllegalStateError(
                    f"the record at offset {offset} of {tp} cannot be acknowledged: it is not one of those that the "
                    "last poll() returned, its acknowledgement has been sent, or an exception of a signal handler has "
                    "interrupted a call, which released its lock. Acknowledge each record before the next poll() or "
                    "commit"
                )
            found.append((batch, offset))
        for batch, offset in found:
            batch.acknowledge(offset, kind)

    def acknowledge_failed(self, tp: TopicPartition, offset: int, kind: AcknowledgeType) -> None:
        """Acknowledge a record that the last poll could not deliver.

        Raises:
            IllegalStateError: the last poll has not raised an error for this record.
        """
        batch = self._batches.get(tp)
        if batch is None or not batch.acknowledge_failed(offset, kind):
            raise IllegalStateError(
                f"the record at offset {offset} of {tp} cannot be acknowledged by its offset: that is for records for "
                "which the last poll() has raised an error, such as RecordDeserializationError. Pass other records "
                "as acknowledge(record, type)"
            )

    def acknowledge_rest(self, kind: AcknowledgeType, waiting: Mapping[TopicPartition, Set[int]]) -> None:
        """Acknowledge all records that are not acknowledged yet, except those that wait for a loop."""
        for tp, batch in self._batches.items():
            batch.acknowledge_rest(kind, waiting.get(tp, frozenset()))

    def take_acknowledged(self) -> list[NodeAcknowledgements]:
        """Return the acknowledgements, which are about to be sent, and drop their records."""
        taken = []
        for batch in self._batches.values():
            acknowledgements = batch.take_acknowledged()
            if acknowledgements:
                taken.append(NodeAcknowledgements(batch.node_id, batch.partition, acknowledgements))
        return taken

    def renewed(
        self, partition: TopicIdPartition, acknowledgements: Acknowledgements, lock_timeout_ms: int | None
    ) -> None:
        """Note the broker's answer to acknowledgements of which some may be renewals."""
        batch = self._batches.get(partition.topic_partition)
        if batch is not None and batch.partition == partition and batch.has_renewals:
            batch.renewed(acknowledgements)
            if lock_timeout_ms is not None:
                self.lock_timeout_ms = lock_timeout_ms

    def take_renewed(self) -> None:
        """Put records with renewed locks back in flight."""
        for batch in self._batches.values():
            batch.take_renewed()

    @property
    def has_renewals(self) -> bool:
        """True if locks of records are being renewed, or were since the last poll."""
        return any(batch.has_renewals for batch in self._batches.values())
