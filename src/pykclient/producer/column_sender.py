"""Appending columns of rows to batches, in runs (for single records: ``KafkaProducer.send``)."""

from __future__ import annotations

import struct
from array import array
from bisect import bisect_right
from collections.abc import Callable, Generator, Iterable, Iterator
from typing import TYPE_CHECKING, NamedTuple

from pykclient.errors import AuthenticationError, BrokerError, RecordTooLargeError
from pykclient.producer.batch_future import RefusedRows, SentRows
from pykclient.producer.buffer_pool import MustWait
from pykclient.producer.interceptors import UNKNOWN_PARTITION
from pykclient.producer.partitioner.columns import hash_partitions
from pykclient.record.row_columns import UNCHOSEN, RowRun, Rows, group_rows, oversized, upper_bound

if TYPE_CHECKING:
    from pykclient.network.cluster import Cluster
    from pykclient.producer.batch_input import Part
    from pykclient.producer.record_accumulator import RecordAccumulator

#: The largest number of rows in a window. Within a window, each partition's rows are appended together.
_WINDOW_ROWS = 65_536
#: The same for a partitioner that is asked again for each new batch.
_WINDOW_ROWS_ASKING = 500

#: The sender is woken after this many new batches: waking its thread costs more than filling a batch.
_BATCHES_TO_WAKE = 8

#: The partition number that marks rows too large for any batch.
_TOO_LARGE = -2

_INT32 = struct.Struct("=i")


class Route(NamedTuple):
    """The topic's metadata, and the time to wait for memory."""

    cluster: Cluster
    partition_count: int
    max_block_ms: int


class ColumnSenderContext(NamedTuple):
    """The components of a producer that a ColumnSender uses."""

    accumulator: RecordAccumulator
    #: Waits until the metadata has a partition or, given None, the topic.
    route: Callable[[int | None], Route]
    #: Returns a partitioner's choice for a key and a value; None stands for the built-in partitioner.
    choose: Callable[[bytes | None, bytes | None, Route], int | None] | None
    #: Tells a partitioner that chooses again for each batch that a partition's batch is full.
    on_new_batch: Callable[[Route, int], object] | None
    ensure_usable: Callable[[], None]
    wake_sender: Callable[[], None]
    max_record_size: int
    #: The largest size of a window's keys, and of its values.
    window_bytes: int
    ignores_keys: bool


class ColumnSender:
    """One call of ``send_batch``: sends rows in windows, and appends each partition's rows of a window in runs.

    Thread: owner.
    """

    def __init__(self, topic: str, context: ColumnSenderContext) -> None:
        self._topic = topic
        self._context = context
        self._append = context.accumulator.append_rows
        self._first_row = 0  # of the current part
        self._numbers = memoryview(b"")  # int32: the partitions of the current part's rows
        self._largest = 0  # upper bound of a window's row sizes, alone in a batch
        self._failure: Exception | None = None
        self._new_batches = 0  # since the sender was woken
        self.num_rows = 0
        self.sent: list[SentRows] = []
        self.refused: list[RefusedRows] = []

    def send(self, parts: Iterable[Part]) -> None:
        """Append all rows, and wait for memory and metadata where needed.

        An error before the first row is in a batch is raised. A later one becomes the error of all remaining rows, and
        no more rows are sent.
        """
        for _ in self.steps(parts):
            pass  # the pool has waited for memory itself

    def steps(self, parts: Iterable[Part]) -> Generator[int, None, None]:
        """Do what ``send`` does, in steps between which the caller may do other work.

        Yield the number of bytes that must become free before the next step, where the pool does not wait for them
        itself; 0 after each window.
        """
        for part in parts:
            self._first_row = self.num_rows
            self.num_rows += part.rows.count
            self._numbers = memoryview(b"")
            start = 0
            while start < part.rows.count:
                stop = self._end_of_window(part.rows, start)
                yield from self._send_or_refuse(part, start, stop)
                self._wake_sender()
                start = stop
                yield 0

    def _end_of_window(self, rows: Rows, start: int) -> int:
        stop = min(rows.count, start + (_WINDOW_ROWS if self._context.on_new_batch is None else _WINDOW_ROWS_ASKING))
        for column in (rows.values, rows.keys):
            if column is not None:
                bound = column.offsets[start] + self._context.window_bytes
                stop = max(start + 1, bisect_right(column.offsets, bound, start + 1, stop + 1) - 1)
        return stop

    def _send_or_refuse(self, part: Part, start: int, stop: int) -> Iterator[int]:
        if self._failure is not None:
            self._refuse(range(start, stop), self._failure)
            return
        sent, refused = len(self.sent), len(self.refused)
        try:
            yield from self._send_window(part, start, stop)
        except Exception as error:  # becomes the error of the remaining rows
            if not self.sent and not isinstance(error, (BrokerError, AuthenticationError)):
                raise
            self._failure = error
            handled = {row for rows in self.sent[sent:] for row in rows.numbers()}
            handled.update(row for rows in self.refused[refused:] for row in rows.rows)
            base = self._first_row
            self._refuse((row for row in range(start, stop) if base + row not in handled), error)

    # --- a window ----------------------------------------------------------------------------------------------

    def _send_window(self, part: Part, start: int, stop: int) -> Iterator[int]:
        rows, context = part.rows, self._context
        context.ensure_usable()
        route = context.route(part.highest_partition)
        self._largest = upper_bound(rows, start, stop)
        too_large: list[int] = []
        if self._largest > context.max_record_size:
            too_large = oversized(rows, start, stop, context.max_record_size)
        chosen = part.partition
        has_keys = rows.keys is not None and not context.ignores_keys
        if part.partitions is None and chosen is None and context.choose is None and not has_keys:
            chosen = UNCHOSEN
        if chosen is not None and not too_large:
            yield from self._send_run(RowRun(rows, None, start, stop, self._largest), chosen, route)
            return
        numbers = self._numbers
        if not numbers:
            numbers = self._numbers = memoryview(bytearray(4 * rows.count)).cast("i")
        if part.partitions is not None:
            numbers[start:stop] = part.partitions[start:stop]
        else:
            blank = _INT32.pack(UNCHOSEN if chosen is None else chosen)
            numbers[start:stop] = memoryview(blank * (stop - start)).cast("i")
        for row in too_large:
            numbers[row] = _TOO_LARGE
            error = RecordTooLargeError(
                f"row {self._first_row + row} for topic {self._topic!r} takes up to {rows.upper_bound(row)} bytes in a "
                f"batch, more than max.request.size or buffer.memory allows: {context.max_record_size}"
            )
            self._refuse((row,), error)
        if chosen is None and context.choose is not None:
            yield from self._choose_and_send(rows, start, stop, route)
            return
        if chosen is None and has_keys:
            hash_partitions(rows.keys, start, stop, route.partition_count, numbers)
        for number, indices in group_rows(numbers, start, stop):
            if number != _TOO_LARGE:
                yield from self._send_run(RowRun(rows, indices, 0, len(indices), self._largest), number, route)

    def _choose_and_send(self, rows: Rows, start: int, stop: int, route: Route) -> Iterator[int]:
        """Send rows without a partition, asking the application's partitioner for each row."""
        choose, numbers = self._context.choose, self._numbers
        assert choose is not None
        if self._context.on_new_batch is not None:
            yield from self._send_asking_again(rows, start, stop, route)
            return
        for row in range(start, stop):
            if numbers[row] == UNCHOSEN:
                number = choose(rows.key(row), rows.value(row), route)
                numbers[row] = UNCHOSEN if number is None else number
        for number, indices in group_rows(numbers, start, stop):
            if number != _TOO_LARGE:
                yield from self._send_run(RowRun(rows, indices, 0, len(indices), self._largest), number, route)

    def _send_asking_again(self, rows: Rows, start: int, stop: int, route: Route) -> Iterator[int]:
        """Send rows in order, with a partitioner that chooses again before each new batch (KIP-480)."""
        choose, on_new_batch, given = self._context.choose, self._context.on_new_batch, self._numbers
        assert choose is not None
        assert on_new_batch is not None

        def number_of(row: int) -> int:
            if given[row] != UNCHOSEN:
                return given[row]
            number = choose(rows.key(row), rows.value(row), route)
            return UNCHOSEN if number is None else number

        row = start
        has_asked = False  # for the next row, which may need a new batch
        while row < stop:
            number = number_of(row)
            if number == _TOO_LARGE:
                row += 1
                continue
            end = row + 1
            while not has_asked and end < stop and number_of(end) == number:
                end += 1
            may_ask = not has_asked and given[row] == UNCHOSEN and number != UNCHOSEN
            run = RowRun(rows, None, row, end, self._largest)
            try:
                has_asked = not self._append_once(run, number, route, may_ask)
            except MustWait as wait:
                yield wait.size
            row = run.first
            if has_asked:
                on_new_batch(route, number)

    # --- runs --------------------------------------------------------------------------------------------------

    def _send_run(self, run: RowRun, number: int, route: Route) -> Iterator[int]:
        """Append rows to one partition, or to the sticky partition."""
        while run.first < run.stop:
            try:
                self._append_once(run, number, route)
            except MustWait as wait:
                self._wake_sender()
                yield wait.size

    def _append_once(self, run: RowRun, number: int, route: Route, may_ask: bool = False) -> bool:
        """Append as many rows as one batch takes.

        With ``may_ask``, return False and append nothing where that would need a new batch.
        """
        first = run.first
        partition = None if number == UNCHOSEN else number
        taken, is_new, _ = self._append(self._topic, partition, run, route.max_block_ms, route.cluster, may_ask)
        if taken is None:
            return False
        rows = range(first, run.first) if run.indices is None else run.indices[first : run.first]
        self.sent.append(SentRows(rows, self._first_row, taken.result, taken.place))
        if is_new:
            self._new_batches += 1
            if self._new_batches == _BATCHES_TO_WAKE:
                self._wake_sender()
        return True

    def _wake_sender(self) -> None:
        if self._new_batches:
            self._new_batches = 0
            self._context.wake_sender()

    def _refuse(self, rows: Iterable[int], error: Exception) -> None:
        numbers = array("q", (self._first_row + row for row in rows))
        if numbers:
            self.refused.append(RefusedRows(UNKNOWN_PARTITION, numbers, error))
