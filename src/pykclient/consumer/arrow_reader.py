"""Polls that return Arrow columns, for ``poll_arrow`` and ``iter_arrow``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from pykclient.argument_values import checked_flag
from pykclient.consumer import consumer_arguments
from pykclient.consumer.fetch import ColumnsFetch
from pykclient.errors import IllegalStateError
from pykclient.record.columns import Columns, checked_names
from pykclient.record.record_batch import MAX_INT32
from pykclient.types import TopicPartition

if TYPE_CHECKING:
    import pyarrow as pa

    from pykclient.clock import Timer
    from pykclient.consumer.application_events import Steps
    from pykclient.consumer.classic_consumer import ClassicConsumer


class ArrowReader:
    """The checked arguments of ``KafkaConsumer.poll_arrow``. Thread: application.

    Raises:
        ImportError: pyarrow is not installed.
        IllegalStateError: the consumer has interceptors.
        IllegalArgumentError: an argument is invalid.
    """

    __slots__ = ("_arrow", "_consumer", "_ends", "_max_bytes", "_max_records", "_names", "_views")

    def __init__(
        self,
        consumer: ClassicConsumer,
        max_records: int | None,
        max_bytes: int | None,
        names: Sequence[str] | None,
        views: bool,
        until: Mapping[TopicPartition, int] | None = None,
    ) -> None:
        from pykclient.record import arrow

        arrow.pyarrow()  # raises ImportError before any records are taken
        if consumer.is_intercepted:
            raise IllegalStateError("interceptors do not see columns: read with poll(), or without interceptor.classes")
        self._arrow = arrow
        self._consumer = consumer
        self._max_records = consumer_arguments.max_records(max_records) or MAX_INT32
        self._max_bytes = consumer_arguments.max_bytes(max_bytes) or max(1, consumer.fetch_max_bytes)
        self._names = checked_names(consumer_arguments.columns(names))  # before anything is read
        self._views = checked_flag(views, "binary_view")
        self._ends = consumer_arguments.ends(until)

    def take(self, timer: Timer) -> Steps[tuple[pa.RecordBatch, ColumnsFetch]]:
        """Poll once. The caller marks the fetch as returned when the batch is certain to reach the application."""
        fetch = self._new_fetch()
        yield from self._consumer.poll_columns(timer, fetch, self._max_records)
        return self._arrow.record_batch(fetch.columns), fetch

    def take_buffered(self) -> ColumnsFetch:
        """Take rows that are buffered, without polling; the fetch may be empty."""
        fetch = self._new_fetch()
        self._consumer.begin_columns(fetch)
        return self._consumer.collect_columns(fetch, self._max_records)

    def batch(self, fetch: ColumnsFetch | None) -> pa.RecordBatch:
        """Return the rows of ``fetch``; None means no rows."""
        return self._arrow.record_batch((fetch or self._new_fetch()).columns)

    def _new_fetch(self) -> ColumnsFetch:
        columns = Columns(self._names, self._max_bytes, self._views, self._consumer.column_memory)
        return ColumnsFetch(columns, self._ends)
