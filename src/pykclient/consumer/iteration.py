"""Loops over the records and batches of a consumer."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from pykclient.clock import Timer
from pykclient.types import ConsumerRecord

if TYPE_CHECKING:
    import pyarrow as pa

    from pykclient.clock import Clock
    from pykclient.consumer.arrow_reader import ArrowReader
    from pykclient.consumer.classic_consumer import ClassicConsumer
    from pykclient.consumer.handout import Handout
    from pykclient.consumer.thread_guard import ThreadGuard


class Iteration:
    """Polls for loops, which end after ``timeout_ms`` without records or on ``close``. Thread: application."""

    __slots__ = ("_clock", "_consumer", "_guard", "_handout", "_timeout_ms")

    def __init__(
        self, consumer: ClassicConsumer, handout: Handout, guard: ThreadGuard, clock: Clock, timeout_ms: int
    ) -> None:
        self._consumer = consumer
        self._clock = clock
        self._guard = guard
        self._handout = handout
        self._timeout_ms = timeout_ms

    def lists(self) -> Iterator[Iterator[ConsumerRecord[Any, Any]]]:
        """Yield list iterators, so that advancing within a batch runs no Python code.

        While an asynchronous commit is in flight, each has one record, because callbacks run between records.
        """
        handout, consumer = self._handout, self._consumer
        while self.iterate():
            while not self._guard.closed:
                if consumer.has_pending_async_commits():
                    with self._guard:
                        consumer.run_commit_callbacks()
                    records = handout.next_single()
                else:
                    records = handout.next_iterator()
                if records is None:
                    break
                yield records
            if self._guard.closed:
                return

    def iterate(self) -> bool:
        """Poll until records wait for the loop. Return False if none arrived in time."""
        with self._guard:
            self._guard.require_outermost()
            if not self._handout.is_empty:
                return True
            timer = Timer(self._clock, self._timeout_ms)
            while True:
                fetch = self._consumer.poll(timer)
                if fetch.records:
                    self._consumer.keep_for_loop(fetch)
                    return True
                fetch.returned = True  # positions may have moved over aborted records only
                timer.update()
                if timer.expired:
                    return False

    def batches(self, reader: ArrowReader) -> Iterator[pa.RecordBatch]:
        """Yield batches of rows."""
        while not self._guard.closed:
            timer = Timer(self._clock, self._timeout_ms)
            with self._guard:
                self._guard.require_outermost()
                while True:
                    batch, fetch = reader.take(timer)
                    if batch.num_rows:
                        break
                    fetch.returned = True  # positions may have moved over aborted records only
                    timer.update()
                    if timer.expired:
                        return
            fetch.returned = True  # last, as in poll()
            yield batch
