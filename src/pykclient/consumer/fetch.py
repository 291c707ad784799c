"""The result of one poll (Java: Fetch)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from pykclient.record.record_batch import MAX_INT64
from pykclient.types import ConsumerRecord, TopicPartition

if TYPE_CHECKING:
    from pykclient.consumer.fetch_state import FetchPosition
    from pykclient.record.columns import Columns


#: The end offsets of a fetch without any. Nothing changes them.
_NOWHERE: Mapping[TopicPartition, int] = {}


class AnyFetch:
    """The data that one poll takes, as records or columns.

    ``first_positions`` has the position of each partition before the fetch moved it. While ``returned`` is False, the
    records have not reached the application, so commits are held back to these positions. Thread: owner.
    """

    __slots__ = ("first_positions", "is_full", "num_records", "position_advanced", "returned", "until")

    def __init__(self, until: Mapping[TopicPartition, int] | None = None) -> None:
        self.first_positions: dict[TopicPartition, FetchPosition] = {}
        self.num_records = 0
        #: True if there is no room for more, however few records there are.
        self.is_full = False
        self.position_advanced = False
        self.returned = False
        #: For some partitions, the offset of the first record that is not taken.
        self.until: Mapping[TopicPartition, int] = until or _NOWHERE

    @property
    def is_empty(self) -> bool:
        """True if there are no records and no position moved; aborted transactions can move one without records."""
        return not self.num_records and not self.position_advanced

    def end_offset(self, tp: TopicPartition) -> int:
        """Return the offset of the first record that is not taken."""
        return self.until.get(tp, MAX_INT64)


class Fetch(AnyFetch):
    """Records by partition. ``has_waited`` is True for records that waited for a loop. Thread: owner."""

    __slots__ = ("has_waited", "records")

    def __init__(self) -> None:
        # As AnyFetch.__init__, without its call.
        self.first_positions = {}
        self.num_records = 0
        self.is_full = self.position_advanced = self.returned = False
        self.until = _NOWHERE
        self.records: dict[TopicPartition, list[ConsumerRecord[Any, Any]]] = {}
        self.has_waited = False

    def add(self, tp: TopicPartition, records: list[ConsumerRecord[Any, Any]]) -> None:
        """Append ``records`` to those of the partition. Takes ownership of the list."""
        if records:
            present = self.records.get(tp)
            if present is None:
                self.records[tp] = records
            else:
                present.extend(records)
            self.num_records += len(records)


class ColumnsFetch(AnyFetch):
    """Records in columns. For a partition in ``until``, only records before that offset are taken. Thread: owner."""

    __slots__ = ("columns",)

    def __init__(self, columns: Columns, until: Mapping[TopicPartition, int] | None = None) -> None:
        super().__init__(until)
        self.columns = columns
