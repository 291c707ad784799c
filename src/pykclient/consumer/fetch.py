"""What one poll hands over (Java: Fetch)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pykclient.types import ConsumerRecord, OffsetAndMetadata, TopicPartition

if TYPE_CHECKING:
    from pykclient.record.columns import Columns


class AnyFetch:
    """Whether there is anything: positions can go on without records, over aborted ones. Thread: owner."""

    __slots__ = ("num_records", "position_advanced")

    def __init__(self) -> None:
        self.num_records = 0
        self.position_advanced = False

    @property
    def is_empty(self) -> bool:
        return not self.num_records and not self.position_advanced

    @property
    def is_full(self) -> bool:
        """Whether it takes no more, however few records it has."""
        return False


class Fetch(AnyFetch):
    """Records by partition. Thread: owner."""

    __slots__ = ("records",)

    def __init__(self) -> None:
        super().__init__()
        self.records: dict[TopicPartition, list[ConsumerRecord[Any, Any]]] = {}

    def add(self, tp: TopicPartition, records: list[ConsumerRecord[Any, Any]]) -> None:
        """Take ``records``, which belong to this object from now on, after those that it has of the partition."""
        if records:
            present = self.records.get(tp)
            if present is None:
                self.records[tp] = records
            else:
                present.extend(records)
            self.num_records += len(records)


class ColumnsFetch(AnyFetch):
    """Records in columns. ``first_offsets`` has for each partition the position before them. Thread: owner."""

    __slots__ = ("columns", "first_offsets")

    def __init__(self, columns: Columns) -> None:
        super().__init__()
        self.columns = columns
        self.first_offsets: dict[TopicPartition, OffsetAndMetadata] = {}

    @property
    def is_full(self) -> bool:
        return self.columns.is_full

    def add(self, tp: TopicPartition, count: int, first_offset: int) -> None:
        """Note that ``count`` records of the partition, from ``first_offset`` on, are in the columns."""
        if count:
            self.first_offsets.setdefault(tp, OffsetAndMetadata(first_offset))
            self.num_records += count
