"""What one poll hands over (Java: Fetch)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from pykclient.record.record_batch import MAX_INT64
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

    def has_reached_end(self, tp: TopicPartition, offset: int) -> bool:  # noqa: ARG002
        """Whether it takes nothing of the partition from ``offset`` on."""
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
    """Records in columns, those of each partition in front of the offset in ``until``, if it has one.

    ``first_offsets`` has for each partition the position before them. Thread: owner.
    """

    __slots__ = ("columns", "first_offsets", "until")

    def __init__(self, columns: Columns, until: Mapping[TopicPartition, int] | None = None) -> None:
        super().__init__()
        self.columns = columns
        self.until: Mapping[TopicPartition, int] = until or {}
        self.first_offsets: dict[TopicPartition, OffsetAndMetadata] = {}

    @property
    def is_full(self) -> bool:
        return self.columns.is_full

    def end_offset(self, tp: TopicPartition) -> int:
        """The offset from which on records are left."""
        return self.until.get(tp, MAX_INT64)

    def has_reached_end(self, tp: TopicPartition, offset: int) -> bool:
        return offset >= self.end_offset(tp)

    def add(self, tp: TopicPartition, count: int, first_offset: int) -> None:
        """Note that ``count`` records of the partition, from ``first_offset`` on, are in the columns."""
        if count:
            self.first_offsets.setdefault(tp, OffsetAndMetadata(first_offset))
            self.num_records += count
