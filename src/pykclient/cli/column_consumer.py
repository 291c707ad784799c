"""A consumer that returns columns of bytes as plain buffers, so that plain output needs no pyarrow."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pykclient.consumer.fetch_collector import ColumnsFetch
from pykclient.consumer.kafka_consumer import KafkaConsumer
from pykclient.errors import IllegalStateError
from pykclient.record.columns import Columns
from pykclient.record.lines import LineBuffer
from pykclient.types import TopicPartition


class ColumnConsumer(KafkaConsumer[bytes, bytes]):
    """A KafkaConsumer whose polls may return columns. Thread: application."""

    def poll_columns(
        self,
        timeout_ms: float,
        names: Sequence[str],
        *,
        max_records: int,
        max_bytes: int,
        until: Mapping[TopicPartition, int] | None = None,
        lines: LineBuffer | None = None,
    ) -> Columns:
        """Poll as ``poll_arrow`` does, with the same arguments and errors, and return the columns ``names``.

        Give their memory back with ``give_back`` once they have been used. With ``lines``, there are no columns; the
        text of the polled records replaces that of ``lines``.
        """
        if self._consumer.is_intercepted:
            raise IllegalStateError(
                "interceptors do not see columns: choose another --format, or no interceptor.classes"
            )
        if lines is not None:
            lines.clear()
        columns = Columns(names, max_bytes, False, self._consumer.column_memory, lines)
        fetch = ColumnsFetch(columns, until)
        with self._guard:
            self._guard.require_outermost()
            self._run(self._consumer.poll_columns(self._timer(timeout_ms), fetch, max_records))
        fetch.returned = True  # last, as in poll()
        return columns
