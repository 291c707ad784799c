"""The future that ``send_batch`` returns: it reports on slices of records that succeed or fail together."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Generator, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from pykclient.argument_values import check_callable
from pykclient.clock import Clock
from pykclient.errors import KafkaTimeoutError
from pykclient.producer.future import (
    NO_OFFSET,
    FutureRecordMetadata,
    ProduceRequestResult,
    run_listeners,
)
from pykclient.producer.interceptors import UNKNOWN_PARTITION
from pykclient.producer.record_arguments import signed_milliseconds
from pykclient.types import TopicPartition

if TYPE_CHECKING:
    import pyarrow as pa

#: Row numbers in the order in which the rows were sent: a range if they are adjacent.
RowNumbers = Sequence[int]


class SliceMetadata(NamedTuple):
    """Rows that were written to one batch of a partition, in order, or that failed together.

    ``base_offset`` is the offset of the first row, and the other rows have the offsets that follow; it is -1 with
    ``acks=0`` and after an error. ``partition`` is -1 for rows that failed before a partition was chosen.
    """

    topic: str
    partition: int
    rows: RowNumbers
    base_offset: int
    error: Exception | None


class BatchMetadata(NamedTuple):
    """The number of rows, and the first offset in each partition (-1 with ``acks=0``)."""

    topic: str
    num_rows: int
    base_offsets: dict[TopicPartition, int]
    slices: list[SliceMetadata]


class SentRows:
    """Adjacent rows of a batch, starting at the place of the first.

    ``rows`` count from ``first_row``. Thread: owner, then any.
    """

    __slots__ = ("first_row", "place", "result", "rows")

    def __init__(self, rows: RowNumbers, first_row: int, result: ProduceRequestResult, place: int) -> None:
        self.rows = rows
        self.first_row = first_row
        self.result = result
        self.place = place

    def numbers(self, start: int = 0, stop: int | None = None) -> RowNumbers:
        """Return the numbers of these rows among all rows of the call."""
        base = self.first_row
        rows = self.rows[start:stop]
        if isinstance(rows, range):
            return range(base + rows.start, base + rows.stop)
        return array("q", [base + row for row in rows])

    def parts(self) -> Iterator[SentRows]:
        """Yield the rows with the batch that holds them now: in several pieces if their batch was split."""
        rows, place = self.rows, self.place
        while len(rows):
            result, at = self.result.locate(place)
            count = len(rows)
            if result is not self.result:
                # The rows are adjacent in the batch, so search for the last of them that this part holds.
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
    """Rows that did not reach a batch, and their error."""

    partition: int
    rows: RowNumbers
    error: Exception


class BatchFuture:
    """A future for all records of a ``send_batch``.

    Wait with ``get`` or ``result``, ``await`` it in asyncio, or add a callback. Callbacks run where those of a
    FutureRecordMetadata do, once the last row is acknowledged or has failed. Some rows may fail while others are
    written: ``slices`` describes all rows, ``errors`` those that failed.

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
        self._known = 0  # this many of _sent are done

    def _first_unknown(self) -> ProduceRequestResult | None:
        """Return the first result that is not set, or None."""
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
        """Return True once all rows are acknowledged or have failed."""
        return self._first_unknown() is None

    @property
    def is_done(self) -> bool:
        """Return ``done()``, under kafka-python's name."""
        return self.done()

    def succeeded(self) -> bool:
        """Return True if all rows were written; with ``acks=0``, if all were sent."""
        return self.done() and not self.errors

    def failed(self) -> bool:
        """Return True if the future is done and some rows failed."""
        return self.done() and bool(self.errors)

    @property
    def slices(self) -> list[SliceMetadata]:
        """Return all rows that are acknowledged or have failed, in the order in which they were sent."""
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
        # Usually all rows have one error, but a broker may name the invalid rows.
        start = 0
        for row in range(1, len(part.rows) + 1):
            error = result.error_for(part.place + start)
            if row == len(part.rows) or not _is_same(result.error_for(part.place + row), error):
                yield SliceMetadata(self.topic, partition, part.numbers(start, row), NO_OFFSET, error)
                start = row

    @property
    def errors(self) -> list[SliceMetadata]:
        """Return the slices that failed."""
        failed = [SliceMetadata(self.topic, each.partition, each.rows, NO_OFFSET, each.error) for each in self._refused]
        for sent in self._sent:
            # Skip batches that were written, usually all of them, without looking at their rows.
            if sent.result.error_for is not None or sent.result.parts is not None:
                failed += [each for part in sent.parts() for each in self._slices_of(part) if each.error is not None]
        return failed

    @property
    def exception(self) -> Exception | None:
        """The first error; None before the future is done, and if all rows were written."""
        if not self.done():
            return None
        errors = self.errors
        return errors[0].error if errors else None

    @property
    def base_offsets(self) -> dict[TopicPartition, int]:
        """Return the first offset in each partition, of the rows that are known to be written."""
        offsets: dict[TopicPartition, int] = {}
        for each in self.slices:
            if each.error is None:
                tp = TopicPartition(each.topic, each.partition)
                offsets[tp] = min(each.base_offset, offsets.get(tp, each.base_offset))
        return offsets

    def offsets(self) -> pa.Array:
        """Return each row's offset as a pyarrow.Array of int64.

        It is null for rows that failed or are in flight, and with ``acks=0``.
        """
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
        """Wait up to ``timeout`` seconds until all rows are acknowledged or have failed; return True if they are.

        None waits without a limit; a negative timeout does not wait.

        Raises:
            IllegalArgumentError: ``timeout`` is not a number.
        """
        deadline_ms = self._clock.now_ms() + signed_milliseconds(timeout)
        while (unknown := self._first_unknown()) is not None:
            if not unknown.await_(max(0, deadline_ms - self._clock.now_ms())):
                return False
        return True

    def get(self, timeout: float | None = None) -> BatchMetadata:
        """Wait up to ``timeout`` seconds for all rows, and return their metadata.

        None waits without a limit; a negative timeout does not wait.

        Raises:
            KafkaTimeoutError: ``timeout`` seconds have passed. The rows may still be delivered.
            IllegalArgumentError: ``timeout`` is not a number.
            Exception: the first of the errors that rows failed with.
        """
        if not self.wait(timeout):
            raise KafkaTimeoutError(
                f"not all of the {self.num_rows} rows for {self.topic} were acknowledged within {timeout} s; "
                "they are still on their way (delivery.timeout.ms bounds that)"
            )
        error = self.exception
        if error is not None:
            # Rows share the error: without this, each raise would lengthen its traceback.
            raise error.with_traceback(None)
        return BatchMetadata(self.topic, self.num_rows, self.base_offsets, self.slices)

    def result(self, timeout: float | None = None) -> BatchMetadata:
        """Return ``get(timeout)``, under the name of ``concurrent.futures``."""
        return self.get(timeout)

    def __await__(self) -> Generator[Any, None, BatchMetadata]:
        if not self.done():
            import asyncio  # imported late: only programs that await need it

            loop = asyncio.get_running_loop()
            waiter: asyncio.Future[None] = loop.create_future()

            def settle() -> None:
                if not waiter.done():
                    waiter.set_result(None)

            def wake(_future: BatchFuture) -> None:
                try:
                    loop.call_soon_threadsafe(settle)
                except RuntimeError:  # the loop is closed, so nobody waits
                    return

            self.add_done_callback(wake)
            yield from waiter
        return self.get(0)

    # --- callbacks ---------------------------------------------------------------------------------------------

    def add_callback(self, function: Callable[..., object], *args: Any, **kwargs: Any) -> BatchFuture:
        """Call ``function(*args, metadata, **kwargs)`` if all rows succeed."""
        check_callable(function, "function")

        def on_success(future: BatchFuture) -> None:
            if future.exception is None:
                function(*args, future.get(0), **kwargs)

        return self.add_done_callback(on_success)

    def add_errback(self, function: Callable[..., object], *args: Any, **kwargs: Any) -> BatchFuture:
        """Call ``function(*args, error, **kwargs)`` with the first error if some rows fail."""
        check_callable(function, "function")

        def on_failure(future: BatchFuture) -> None:
            error = future.exception
            if error is not None:
                function(*args, error, **kwargs)

        return self.add_done_callback(on_failure)

    def add_done_callback(self, function: Callable[[BatchFuture], object]) -> BatchFuture:
        """Call ``function(future)`` once all rows are acknowledged or have failed; immediately if they already are."""
        check_callable(function, "function")

        def go_on(_anchor: FutureRecordMetadata | None = None) -> None:
            # Listens to one result at a time: the first that is not set.
            while (unknown := self._first_unknown()) is not None:
                if FutureRecordMetadata(unknown, 0, NO_OFFSET, -1, -1).add_listener(go_on):
                    return
            function(self)

        # Errors of the callback are logged and otherwise ignored, as on the sender's thread.
        nowhere = ProduceRequestResult(TopicPartition(self.topic, UNKNOWN_PARTITION))
        run_listeners([(FutureRecordMetadata(nowhere, 0, NO_OFFSET, -1, -1), go_on, False)])
        return self

    def __repr__(self) -> str:
        state = "pending" if not self.done() else "succeeded" if not self.errors else "failed"
        return f"<BatchFuture of {self.num_rows} rows for {self.topic}: {state}>"


def _is_same(one: Exception, other: Exception) -> bool:
    return one is other or (type(one) is type(other) and one.args == other.args)
