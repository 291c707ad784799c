"""Records on their way from a poll to a ``for`` loop, and what that means for positions.

A poll moves the fetch positions past everything it took, so that the next fetches can go out while the loop runs. What
the loop has not seen yet must not be committed, though. So the records wait here, and whoever asks for the consumed
positions gets, for their partitions, the offset of the first record that was not handed out.

A poll while records wait here, and whatever else may take partitions away, goes back to them first: they are fetched
again. That is rare, and leaves no state in between.

There is no bookkeeping per record: the loop runs over list iterators, which know how much they have left.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterator
from operator import length_hint
from typing import Any

from pykclient.types import UNKNOWN_EPOCH, ConsumerRecord, OffsetAndMetadata, TopicPartition

Records = dict[TopicPartition, list[ConsumerRecord[Any, Any]]]


class _Chunk:
    """Records of one partition, the first of them handed out."""

    __slots__ = ("iterator", "records", "tp")

    def __init__(self, tp: TopicPartition, records: list[ConsumerRecord[Any, Any]]) -> None:
        self.tp = tp
        self.records = records
        self.iterator: Any = iter(records)

    @property
    def left(self) -> int:
        return length_hint(self.iterator)

    def next_record(self) -> ConsumerRecord[Any, Any]:
        """The first that was not handed out."""
        return self.records[len(self.records) - self.left]

    def exhaust(self) -> None:
        """Let a loop that is in the middle go on with something else."""
        self.iterator.__setstate__(len(self.records))


class Handout:
    """A queue of chunks; the first one is being handed out. Thread: application."""

    __slots__ = ("_chunks",)

    def __init__(self) -> None:
        self._chunks: deque[_Chunk] = deque()

    def fill(self, records: Records) -> None:
        """Take what a poll returned."""
        self._chunks.extend(_Chunk(tp, list_) for tp, list_ in records.items() if list_)

    def next_iterator(self) -> Iterator[ConsumerRecord[Any, Any]] | None:
        """What to iterate over now; None when everything is handed out. A loop that was left is gone on with."""
        chunks = self._chunks
        while chunks:
            if chunks[0].left:
                iterator: Iterator[ConsumerRecord[Any, Any]] = chunks[0].iterator
                return iterator
            chunks.popleft()
        return None

    def _pending(self) -> list[_Chunk]:
        return [chunk for chunk in self._chunks if chunk.left] if self._chunks else []

    @property
    def is_empty(self) -> bool:
        return not self._chunks or not self._pending()

    def next_offsets(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """Where each partition with waiting records stands for the application."""
        offsets: dict[TopicPartition, OffsetAndMetadata] = {}
        for chunk in self._pending():
            record = chunk.next_record()
            epoch = UNKNOWN_EPOCH if record.leader_epoch is None else record.leader_epoch
            offsets.setdefault(chunk.tp, OffsetAndMetadata(record.offset, "", epoch))
        return offsets

    def drop(self, partitions: Collection[TopicPartition]) -> None:
        """Forget what waits of these."""
        for chunk in self._chunks:
            if chunk.tp in partitions:
                chunk.exhaust()

    def retain(self, partitions: Collection[TopicPartition]) -> None:
        """Forget what waits of all others."""
        for chunk in self._chunks:
            if chunk.tp not in partitions:
                chunk.exhaust()
