"""What one poll hands over (Java: Fetch)."""

from __future__ import annotations

from typing import Any

from pykclient.types import ConsumerRecord, OffsetAndMetadata, TopicPartition


class Fetch:
    """Records by partition, and how far the positions went; they can go on without records, over aborted ones.

    Thread: owner.
    """

    __slots__ = ("next_offsets", "num_records", "position_advanced", "records")

    def __init__(self) -> None:
        self.records: dict[TopicPartition, list[ConsumerRecord[Any, Any]]] = {}
        self.next_offsets: dict[TopicPartition, OffsetAndMetadata] = {}
        self.num_records = 0
        self.position_advanced = False

    @property
    def is_empty(self) -> bool:
        return not self.num_records and not self.position_advanced

    def add(
        self,
        tp: TopicPartition,
        records: list[ConsumerRecord[Any, Any]],
        position_advanced: bool,
        next_offset: OffsetAndMetadata,
    ) -> None:
        """Take ``records``, which belong to this object from now on, after those that it has of the partition."""
        if records:
            present = self.records.get(tp)
            if present is None:
                self.records[tp] = records
            else:
                present.extend(records)
            self.num_records += len(records)
        self.position_advanced |= position_advanced
        self.next_offsets[tp] = next_offset
