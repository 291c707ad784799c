"""Loops over the records and batches of a consumer."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from pykclient.clock import Timer
from pykclient.types import ConsumerRecord

if TYPE_CHECKING:
    import pyarrow as pa

    from pykclient.clock import Clock
    from pykclient.consumer.application_events import Steps
    from pykclient.consumer.arrow_reader import ArrowReader
    from pykclient.consumer.classic_consumer import ClassicConsumer
    from pykclient.consumer.thread_guard import ThreadGuard


class Iteration:
    """Polls for loops, which end after ``timeout_ms`` without records or on ``close``. Thread: application.

    ``run`` runs the consumer's steps.
    """

    __slots__ = ("_clock", "_consumer", "_guard", "_run", "_timeout_ms")

    def __init__(
        self,
        consumer: ClassicConsumer,
        run: Callable[[Steps[Any]], Any],
        guard: ThreadGuard,
        clock: Clock,
        timeout_ms: int,
    ) -> None:
        self._consumer = consumer
        self._run = run
        self._clock = clock
        self._guard = guard
        self._timeout_ms = timeout_ms

    def lists(self) -> Iterator[Iterator[ConsumerRecord[Any, Any]]]:
        """Yield list iterators, so that advancing within a batch runs no Python code."""
        consumer = self._consumer
        while self.iterate():
            while not self._guard.closed:
                # While an asynchronous commit is in flight, callbacks run between records.
                singly = consumer.has_pending_async_commits()
                if singly:
                    with self._guard:
                        self._run(consumer.run_commit_callbacks())
                records = consumer.next_records(singly=singly)
                if records is None:
                    break
                yield records
            if self._guard.closed:
                return

    def iterate(self) -> bool:
        """Poll until records wait for the loop. Return False if none arrived in time."""
        with self._guard:
            self._guard.require_outermost()
            if self._consumer.has_waiting_records:
                return True
            timer = Timer(self._clock, self._timeout_ms)
            while True:
                fetch = self._run(self._consumer.poll(timer))
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
                    batch, fetch = self._run(reader.take(timer))
                    if batch.num_rows:
                        break
                    fetch.returned = True  # positions may have moved over aborted records only
                    timer.update()
                    if timer.expired:
                        return
            fetch.returned = True  # last, as in poll()
            yield batch
