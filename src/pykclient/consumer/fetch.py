"""Records on their way from the fetcher to the application, and the positions that may be committed meanwhile.

A poll moves the fetch positions past everything that it takes, so the next fetches can be sent while the application
works. Two kinds of records are before a position without having reached the application:

- The records of a *fetch* that was not returned yet. ``KafkaConsumer.poll`` sets ``fetch.returned`` in its last step,
  after which nothing can raise until the caller has the records. If a signal handler raises before that, the fetch
  stays unreturned, and the next call on the consumer rewinds to ``fetch.first_positions``.
- The records that wait for a ``for`` loop. They are kept here in chunks, one per partition.

``next_positions`` holds commits back to the first record of either kind.

A loop needs no bookkeeping per record: it runs over list iterators, which know how many records they have left.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping
from operator import length_hint
from typing import TYPE_CHECKING, Any

from pykclient.record.record_batch import MAX_INT64
from pykclient.types import ConsumerRecord, TopicPartition

if TYPE_CHECKING:
    from pykclient.consumer.subscription_state import FetchPosition
    from pykclient.record.columns import Columns

#: The end offsets of a fetch without any. Nothing changes them.
_NOWHERE: Mapping[TopicPartition, int] = {}


class AnyFetch:
    """The data taken by one poll, as records or columns.

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


Records = dict[TopicPartition, list[ConsumerRecord[Any, Any]]]


class _Chunk:
    """Records of one partition, and the position after them. The iterator counts the records it has returned."""

    __slots__ = ("iterator", "position", "records", "tp")

    def __init__(
        self, tp: TopicPartition, records: list[ConsumerRecord[Any, Any]], position: FetchPosition, next_index: int = 0
    ) -> None:
        self.tp = tp
        self.records = records
        self.position = position
        self.iterator: Any = iter(records)
        if next_index:
            self.skip_to(next_index)

    @property
    def left(self) -> int:
        """Return the number of records that are left."""
        return length_hint(self.iterator)

    @property
    def next_index(self) -> int:
        return len(self.records) - self.left

    @property
    def next_position(self) -> FetchPosition:
        """Return the position of the first record that is left."""
        record = self.records[self.next_index]
        return self.position._replace(offset=record.offset, offset_epoch=record.leader_epoch)

    def skip_to(self, index: int) -> None:
        """Continue at ``index``, also in a loop over the iterator."""
        self.iterator.__setstate__(index)


class UndeliveredRecords:
    """A queue of chunks, the first of which is being iterated, and the fetch that is being returned.

    Thread: application.
    """

    __slots__ = ("_chunks", "_fetch", "_handled", "_held_back")

    def __init__(self) -> None:
        self._chunks: deque[_Chunk] = deque()
        self._fetch: AnyFetch | None = None
        self._handled: int | None = None  # id of the exception that was being handled when the fetch began
        self._held_back: dict[TopicPartition, FetchPosition] = {}

    # --- the fetch that is being returned ----------------------------------------------------------------------------

    def begin(self, fetch: AnyFetch) -> bool:
        """Commit only up to the start of ``fetch`` until it is marked as returned.

        Return whether records wait for a loop.
        """
        while self._chunks and not self._chunks[0].left:
            self._chunks.popleft()
        fetch.first_positions.clear()  # from an earlier attempt that found nothing
        error = sys.exc_info()[1]
        self._handled = None if error is None else id(error)
        self._fetch = fetch
        return bool(self._chunks)

    def hold_back_last(self) -> None:
        """Exclude the records that the application got last from commits if an exception is being handled.

        The exception interrupted their processing. They are the last record of a loop, or the records of the last poll,
        unless the application has called ``commit`` since then. An exception that the application was already handling
        when it got them does not count.
        """
        error = sys.exc_info()[1]
        if error is None or isinstance(error, GeneratorExit) or id(error) == self._handled:
            return
        if self._fetch is not None:
            self._fetch.returned = False
        else:
            self._held_back = self.positions_at_hand()

    @property
    def unreturned(self) -> AnyFetch | None:
        """The fetch whose records did not reach the application, or None."""
        fetch = self._fetch
        return None if fetch is None or fetch.returned else fetch

    def has_unreturned(self) -> bool:
        """Return whether the records of the last fetch did not reach the application."""
        fetch = self._fetch
        return fetch is not None and not fetch.returned

    def end(self) -> None:
        """Forget the fetch: its positions were rewound, it was empty, or the application has committed."""
        self._fetch = None

    # --- records that wait for a loop --------------------------------------------------------------------------------

    def fill(self, fetch: Fetch, position_of: Callable[[TopicPartition], FetchPosition | None]) -> None:
        """Queue the records of ``fetch`` for a loop. From then on the queue limits commits, not the fetch."""
        chunks = [
            _Chunk(tp, records, position)
            for tp, records in fetch.records.items()
            if records and (position := position_of(tp)) is not None
        ]
        self._chunks.extend(chunks)
        fetch.returned = True
        self._fetch = None

    def next_iterator(self) -> Iterator[ConsumerRecord[Any, Any]] | None:
        """Return an iterator over the next records, or None if no record waits. An abandoned loop resumes."""
        chunks = self._chunks
        while chunks:
            first = chunks[0]
            if first.left:
                iterator: Iterator[ConsumerRecord[Any, Any]] = first.iterator
                return iterator
            if chunks and chunks[0] is first:  # unless a signal handler has polled in between
                chunks.popleft()
        return None

    def split(self) -> None:
        """End the current iterator after the loop's current record, so that the loop asks for another iterator."""
        if self._chunks and self._chunks[0].left:
            first = self._chunks[0]
            self._replace_first(_Chunk(first.tp, first.records, first.position, first.next_index))

    def next_single(self) -> Iterator[ConsumerRecord[Any, Any]] | None:
        """Return an iterator over one record, or None if no record waits."""
        iterator = self.next_iterator()
        if iterator is None or length_hint(iterator) == 1:
            return iterator
        first = self._chunks[0]
        index = first.next_index
        begin = max(0, index - 1)  # with the record before it, which may have to be held back
        single = _Chunk(first.tp, first.records[begin : index + 1], first.position, index - begin)
        self._replace_first(single, _Chunk(first.tp, first.records, first.position, index + 1))
        return single.iterator  # type: ignore[no-any-return]

    def _replace_first(self, *chunks: _Chunk) -> None:
        first, *others = self._chunks
        # In one step: no record is there twice, or not at all, wherever a signal handler raises.
        self._chunks = deque((*chunks, *others))
        first.skip_to(len(first.records))

    def take(self, fetch: Fetch, limit: int, partitions: Collection[TopicPartition] | None = None) -> None:
        """Move up to ``limit`` waiting records, only of ``partitions`` if given, into ``fetch``, which has begun."""
        for chunk in self._pending():
            if partitions is not None and chunk.tp not in partitions:
                continue
            wanted = limit - fetch.num_records
            if wanted <= 0:
                break
            index = chunk.next_index
            records = chunk.records[index : index + wanted]
            # The fetch holds commits back before the queue releases the records.
            fetch.first_positions.setdefault(chunk.tp, chunk.next_position)
            fetch.add(chunk.tp, records)
            fetch.has_waited = True
            chunk.skip_to(index + len(records))

    def _pending(self) -> list[_Chunk]:
        return [chunk for chunk in self._chunks if chunk.left] if self._chunks else []

    @property
    def is_empty(self) -> bool:
        """True if no record waits for a loop."""
        return not self._chunks or not self._pending()

    def positions_behind(self) -> dict[TopicPartition, FetchPosition]:
        """Return the position after the waiting records, for each partition that has some."""
        return {chunk.tp: chunk.position for chunk in self._pending()}

    def waiting_positions(self) -> dict[TopicPartition, FetchPosition]:
        """Return the position of the first waiting record, for each partition that has some."""
        positions: dict[TopicPartition, FetchPosition] = {}
        for chunk in self._pending():
            if chunk.tp not in positions:
                positions[chunk.tp] = chunk.next_position
        return positions

    def drop(self, partitions: Collection[TopicPartition]) -> None:
        """Drop the waiting records of ``partitions``; a loop over them continues with others."""
        for chunk in self._chunks:
            if chunk.tp in partitions:
                chunk.skip_to(len(chunk.records))

    def clear(self) -> None:
        """Drop all waiting records."""
        for chunk in self._chunks:
            chunk.skip_to(len(chunk.records))

    # --- offsets to commit -------------------------------------------------------------------------------------------

    def positions_at_hand(self) -> dict[TopicPartition, FetchPosition]:
        """Return the position of the first record of each partition that the application got last.

        These are the records of the last poll, or the last record of a loop.
        """
        if self._fetch is not None:
            return self._fetch.first_positions
        if self._chunks and (index := self._chunks[0].next_index):
            first = self._chunks[0]
            record = first.records[index - 1]
            return {first.tp: first.position._replace(offset=record.offset, offset_epoch=record.leader_epoch)}
        return {}

    def next_positions(self) -> dict[TopicPartition, FetchPosition]:
        """Return the position of the application's next record, for partitions whose position is past it."""
        positions = self.waiting_positions()
        fetch = self.unreturned
        if fetch is not None:
            positions.update(fetch.first_positions)
        positions.update(self._held_back)
        return positions
