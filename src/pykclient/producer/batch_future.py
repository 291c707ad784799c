"""What ``send_batch`` returns: the fate of many records, by slices that share theirs."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Generator, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from pykclient.clock import Clock
from pykclient.errors import KafkaTimeoutError
from pykclient.producer.arguments import check_callable, signed_milliseconds
from pykclient.producer.future import (
    NO_OFFSET,
    FutureRecordMetadata,
    ProduceRequestResult,
    run_listeners,
)
from pykclient.producer.interceptors import UNKNOWN_PARTITION
from pykclient.types import TopicPartition

if TYPE_CHECKING:
    import pyarrow as pa

#: Rows by number, in the order in which they were sent: a range where they are neighbours.
RowNumbers = Sequence[int]


class SliceMetadata(NamedTuple):
    """Rows that went into one batch of a partition, one after the other, or failed together.

    ``base_offset`` is that of the first row, those of the others follow; -1 with ``acks=0`` and after an error.
    ``partition`` is -1 for rows that failed before one was chosen.
    """

    topic: str
    partition: int
    rows: RowNumbers
    base_offset: int
    error: Exception | None


class BatchMetadata(NamedTuple):
    """Where the rows went. ``base_offsets`` has the first offset in each partition (-1 with ``acks=0``)."""

    topic: str
    num_rows: int
    base_offsets: dict[TopicPartition, int]
    slices: list[SliceMetadata]


class SentRows:
    """Rows on their way: some neighbours in a batch, from the place of the first on.

    ``rows`` count from ``first_row``. Thread: owner, then any.
    """

    __slots__ = ("first_row", "place", "result", "rows")

    def __init__(self, rows: RowNumbers, first_row: int, result: ProduceRequestResult, place: int) -> None:
        self.rows = rows
        self.first_row = first_row
        self.result = result
        self.place = place

    def numbers(self, start: int = 0, stop: int | None = None) -> RowNumbers:
        """Those of the rows, counted from the first of all."""
        base = self.first_row
        rows = self.rows[start:stop]
        if isinstance(rows, range):
            return range(base + rows.start, base + rows.stop)
        return array("q", [base + row for row in rows])

    def parts(self) -> Iterator[SentRows]:
        """Where they are now: as they are, or, after their batch was split, in pieces."""
        rows, place = self.rows, self.place
        while len(rows):
            result, at = self.result.locate(place)
            count = len(rows)
            if result is not self.result:
                # As many as are there: they are neighbours in it.
                low = 1
                while low < count:
                    middle = (low + count + 1) // 2
                    if self.result.locate(place + middle - 1)[0] is result:
                        low = middle
                    else:
                        count = middle - 1
            yield SentRows(rows[:count], self.first_row, result, at)
            rows = rows[count:]
            place += count


class RefusedRows(NamedTuple):
    """Rows that did not get into a batch."""

    partition: int
    rows: RowNumbers
    error: Exception


class BatchFuture:
    """The fate of all records of a ``send_batch``.

    Wait with ``get`` or ``result``, ``await`` it in asyncio, or add a callback; these run where those of a
    FutureRecordMetadata do, once the last row's fate is known. Some rows may fail while others are written: ``slices``
    tells which, ``errors`` has those alone.

    Thread: any.
    """

    __slots__ = ("_clock", "_known", "_refused", "_sent", "num_rows", "topic")

    def __init__(
        self, topic: str, num_rows: int, sent: Sequence[SentRows], refused: Sequence[RefusedRows], clock: Clock
    ) -> None:
        self.topic = topic
        self.num_rows = num_rows
        self._sent = sent
        self._refused = refused
        self._clock = clock
        self._known = 0  # so many of _sent have ended

    def _first_unknown(self) -> ProduceRequestResult | None:
        """The first result that is not set; None when all are."""
        for index in range(self._known, len(self._sent)):
            sent = self._sent[index]
            if not sent.result.completed:
                return sent.result
            if sent.result.parts is not None:
                for part in sent.parts():
                    if not part.result.completed:
                        return part.result
            self._known = index + 1
        return None

    # --- questions ---------------------------------------------------------------------------------------------

    def done(self) -> bool:
        """Whether the fate of all rows is known."""
        return self._first_unknown() is None

    @property
    def is_done(self) -> bool:
        """``done()`` under kafka-python's name."""
        return self.done()

    def succeeded(self) -> bool:
        """Whether all rows were written; with ``acks=0``, whether they were sent."""
        return self.done() and not self.errors

    def failed(self) -> bool:
        """Whether the fate of all is known, and some failed."""
        return self.done() and bool(self.errors)

    @property
    def slices(self) -> list[SliceMetadata]:
        """All rows whose fate is known, in the order of their sending."""
        known = [SliceMetadata(self.topic, each.partition, each.rows, NO_OFFSET, each.error) for each in self._refused]
        for sent in self._sent:
            for part in sent.parts():
                known += self._slices_of(part)
        return known

    def _slices_of(self, part: SentRows) -> Iterator[SliceMetadata]:
        result = part.result
        if not result.completed:
            return
        partition = result.topic_partition.partition
        if result.error_for is None:
            offset = NO_OFFSET if result.base_offset < 0 else result.base_offset + part.place
            yield SliceMetadata(self.topic, partition, part.numbers(), offset, None)
            return
        # Mostly one error for all; but a broker may name the bad ones.
        start = 0
        for row in range(1, len(part.rows) + 1):
            error = result.error_for(part.place + start)
            if row == len(part.rows) or not _is_same(result.error_for(part.place + row), error):
                yield SliceMetadata(self.topic, partition, part.numbers(start, row), NO_OFFSET, error)
                start = row

    @property
    def errors(self) -> list[SliceMetadata]:
        """Those of ``slices`` that failed."""
        failed = [SliceMetadata(self.topic, each.partition, each.rows, NO_OFFSET, each.error) for each in self._refused]
        for sent in self._sent:
            # Of what was written, which is mostly all, no row is looked at.
            if sent.result.error_for is not None or sent.result.parts is not None:
                failed += [each for part in sent.parts() for each in self._slices_of(part) if each.error is not None]
        return failed

    @property
    def exception(self) -> Exception | None:
        """The first error, or None while the fate of some is unknown and after success."""
        if not self.done():
            return None
        errors = self.errors
        return errors[0].error if errors else None

    @property
    def base_offsets(self) -> dict[TopicPartition, int]:
        """The first offset in each partition, of the rows that are known to be written."""
        offsets: dict[TopicPartition, int] = {}
        for each in self.slices:
            if each.error is None:
                tp = TopicPartition(each.topic, each.partition)
                offsets[tp] = min(each.base_offset, offsets.get(tp, each.base_offset))
        return offsets

    def offsets(self) -> pa.Array:
        """Each row's offset as a pyarrow.Array of int64, null where it failed, is unknown, or ``acks`` is 0."""
        from pykclient.record.arrow import nullable_int64

        offsets = array("q", (NO_OFFSET,)) * self.num_rows
        for each in self.slices:
            if each.base_offset >= 0:
                of_slice = range(each.base_offset, each.base_offset + len(each.rows))
                if isinstance(each.rows, range):
                    offsets[each.rows.start : each.rows.stop] = array("q", of_slice)
                else:
                    for row, offset in zip(each.rows, of_slice, strict=True):
                        offsets[row] = offset
        return nullable_int64(offsets)

    # --- waiting -----------------------------------------------------------------------------------------------

    def wait(self, timeout: float | None = None) -> bool:
        """Wait at most ``timeout`` seconds until all rows are acknowledged or failed; return whether they are.

        None waits without bound, and a negative timeout not at all.

        Raises:
            IllegalArgumentError: ``timeout`` is no number.
        """
        deadline_ms = self._clock.now_ms() + signed_milliseconds(timeout)
        while (unknown := self._first_unknown()) is not None:
            if not unknown.await_(max(0, deadline_ms - self._clock.now_ms())):
                return False
        return True

    def get(self, timeout: float | None = None) -> BatchMetadata:
        """Wait at most ``timeout`` seconds for all rows, and return where they are.

        None waits without bound, and a negative timeout not at all.

        Raises:
            KafkaTimeoutError: the time is up. The rows may still be delivered.
            IllegalArgumentError: ``timeout`` is no number.
            Exception: the first of the errors that rows failed with.
        """
        if not self.wait(timeout):
            raise KafkaTimeoutError(
                f"not all of the {self.num_rows} rows for {self.topic} were acknowledged within {timeout} s; "
                "they are still on their way (delivery.timeout.ms bounds that)"
            )
        error = self.exception
        if error is not None:
            # It is shared: without this, each raise would lengthen its traceback.
            raise error.with_traceback(None)
        return BatchMetadata(self.topic, self.num_rows, self.base_offsets, self.slices)

    def result(self, timeout: float | None = None) -> BatchMetadata:
        """``get`` under the name of ``concurrent.futures``."""
        return self.get(timeout)

    def __await__(self) -> Generator[Any, None, BatchMetadata]:
        if not self.done():
            import asyncio  # a program that does not await does without it

            loop = asyncio.get_running_loop()
            waiter: asyncio.Future[None] = loop.create_future()

            def settle() -> None:
                if not waiter.done():
                    waiter.set_result(None)

            def wake(_future: BatchFuture) -> None:
                try:
                    loop.call_soon_threadsafe(settle)
                except RuntimeError:  # the loop closed, so nobody waits any more
                    return

            self.add_done_callback(wake)
            yield from waiter
        return self.get(0)

    # --- callbacks ---------------------------------------------------------------------------------------------

    def add_callback(self, function: Callable[..., object], *args: Any, **kwargs: Any) -> BatchFuture:
        """Call ``function(*args, metadata, **kwargs)`` when all rows succeeded."""
        check_callable(function, "function")

        def on_success(future: BatchFuture) -> None:
            if future.exception is None:
                function(*args, future.get(0), **kwargs)

        return self.add_done_callback(on_success)

    def add_errback(self, function: Callable[..., object], *args: Any, **kwargs: Any) -> BatchFuture:
        """Call ``function(*args, error, **kwargs)`` with the first error when some rows failed."""
        check_callable(function, "function")

        def on_failure(future: BatchFuture) -> None:
            error = future.exception
            if error is not None:
                function(*args, error, **kwargs)

        return self.add_done_callback(on_failure)

    def add_done_callback(self, function: Callable[[BatchFuture], object]) -> BatchFuture:
        """Call ``function(future)`` once all rows are acknowledged or failed; at once if they are already."""
        check_callable(function, "function")

        def go_on(_anchor: FutureRecordMetadata | None = None) -> None:
            # One result is listened to at a time: the first that is unknown.
            while (unknown := self._first_unknown()) is not None:
                if FutureRecordMetadata(unknown, 0, NO_OFFSET, -1, -1).add_listener(go_on):
                    return
            function(self)

        # What it raises is logged and goes no further, here as on the sender's thread.
        nowhere = ProduceRequestResult(TopicPartition(self.topic, UNKNOWN_PARTITION))
        run_listeners([(FutureRecordMetadata(nowhere, 0, NO_OFFSET, -1, -1), go_on, False)])
        return self

    def __repr__(self) -> str:
        state = "pending" if not self.done() else "succeeded" if not self.errors else "failed"
        return f"<BatchFuture of {self.num_rows} rows for {self.topic}: {state}>"


def _is_same(one: Exception, other: Exception) -> bool:
    return one is other or (type(one) is type(other) and one.args == other.args)
