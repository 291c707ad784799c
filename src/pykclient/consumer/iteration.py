"""Polls that return Arrow columns, and the decoders of these."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Protocol

from pykclient.argument_values import checked_flag, shown
from pykclient.clock import Timer
from pykclient.consumer import consumer_arguments
from pykclient.consumer.fetch_collector import ColumnsFetch
from pykclient.errors import IllegalArgumentError, IllegalStateError, KafkaError, RecordDeserializationError
from pykclient.record.columns import COLUMN_NAMES, Columns, checked_names
from pykclient.record.record_batch import MAX_INT32
from pykclient.types import TopicPartition

if TYPE_CHECKING:
    import pyarrow as pa

    from pykclient.consumer.application_driver import Steps
    from pykclient.consumer.consumer_delegate import ConsumerDelegate


class ColumnDecoder(Protocol):
    """Decodes a column of bytes, such as ``pykclient.schema_registry.avro_columns``. Thread: application."""

    def into(self, batch: pa.RecordBatch, name: str) -> pa.RecordBatch:
        """Return the batch with the column ``name`` decoded. It has the column offset.

        An error that does not name the place of its row is raised again from a batch with topic and partition as well.
        """


class NotLoadedError(KafkaError):
    """A decoder needs an answer that would block the event loop. Await ``load()``, then retry."""

    def __init__(self, load: Callable[[], Awaitable[None]]) -> None:
        super().__init__("the decoder of a column has not loaded what it needs")
        self.load = load


class ColumnDecoders:
    """The decoders of ``key`` and ``value``, and the columns that are built for them. Thread: application.

    Raises:
        IllegalArgumentError: a decoder is none, or its column is not among those that are wanted.
    """

    def __init__(
        self,
        key: ColumnDecoder | None,
        value: ColumnDecoder | None,
        wanted: tuple[str, ...],
        known: tuple[str, ...] = COLUMN_NAMES,
        needed: Iterable[str] = ("offset",),
    ) -> None:
        """``wanted`` are the application's columns, out of ``known``; ``needed`` those that decoders need."""
        self._decoders = decoders = {
            name: decoder for name, decoder in (("key", key), ("value", value)) if decoder is not None
        }
        for name, decoder in decoders.items():
            if not hasattr(decoder, "into"):
                raise IllegalArgumentError(f"{name} must decode columns, as avro_columns() does, not {shown(decoder)}")
            if name not in wanted:
                raise IllegalArgumentError(f"columns: {name!r} is to be decoded, but is not among them")
        self._wanted = wanted
        self.built = tuple(name for name in known if name in {*wanted, *needed}) if decoders else wanted
        #: Decoders are given views where nothing else needs a copy of the bytes.
        self.read_views = all(
            getattr(decoders.get(name), "reads_views", False) for name in {"key", "value"}.intersection(wanted)
        )

    def __bool__(self) -> bool:
        return bool(self._decoders)

    def into(
        self, batch: pa.RecordBatch, with_places: Callable[[pa.RecordBatch], pa.RecordBatch] | None = None
    ) -> pa.RecordBatch:
        """Return the batch with its columns decoded; ``with_places`` adds the columns topic and partition."""
        if not self._decoders:
            return batch
        before = frozenset(batch.schema.names)
        try:
            batch = self._decoded(batch)
        except RecordDeserializationError as error:
            if error.topic_partition is not None or with_places is None:
                raise
            # Only an error needs the place of its row, and two columns cost more than to decode twice then.
            batch = with_places(batch)
            before = frozenset(batch.schema.names)
            batch = self._decoded(batch)
        return batch.select([*self._wanted, *(name for name in batch.schema.names if name not in before)])

    def _decoded(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        for name, decoder in self._decoders.items():
            batch = decoder.into(batch, name)
        return batch

    def unloaded(self, batch: pa.RecordBatch) -> Callable[[], Awaitable[None]] | None:
        """Return what to await before ``into``, which would block to wait for a schema registry; None: nothing.

        Ask again after it: another column may have to load something, too.
        """
        for name, decoder in self._decoders.items():
            unloaded = getattr(decoder, "unloaded", None)
            load: Callable[[], Awaitable[None]] | None = None if unloaded is None else unloaded(batch, name)
            if load is not None:
                return load
        return None


class ArrowReader:
    """The checked arguments of ``KafkaConsumer.poll_arrow``. Thread: application.

    Raises:
        ImportError: pyarrow is not installed.
        IllegalStateError: the consumer has interceptors.
        IllegalArgumentError: an argument is invalid.
    """

    def __init__(
        self,
        consumer: ConsumerDelegate,
        max_records: int | None,
        max_bytes: int | None,
        names: Sequence[str] | None,
        views: bool,
        until: Mapping[TopicPartition, int] | None = None,
        key: ColumnDecoder | None = None,
        value: ColumnDecoder | None = None,
    ) -> None:
        from pykclient.record import arrow

        arrow.pyarrow()  # raises ImportError before any records are taken
        if consumer.is_intercepted:
            raise IllegalStateError("interceptors do not see columns: read with poll(), or without interceptor.classes")
        self._arrow = arrow
        #: The decoded rows of the last fetch of buffered rows.
        self._batch: pa.RecordBatch | None = None
        self._consumer = consumer
        self._max_records = consumer_arguments.max_records(max_records) or MAX_INT32
        self._max_bytes = consumer_arguments.max_bytes(max_bytes) or max(1, consumer.fetch_max_bytes)
        self._names = checked_names(consumer_arguments.columns(names))  # before anything is read
        self._decoders = ColumnDecoders(key, value, self._names)
        self._names = self._decoders.built
        self._views = checked_flag(views, "binary_view") or self._decoders.read_views
        self._ends = consumer_arguments.ends(until)

    def take(self, timer: Timer) -> Steps[tuple[pa.RecordBatch, ColumnsFetch]]:
        """Poll once. The caller must mark the fetch as returned once the application has the batch."""
        fetch = self._new_fetch()
        yield from self._consumer.poll_columns(timer, fetch, self._max_records)
        return self._decoded(fetch.columns), fetch

    def take_buffered(self) -> ColumnsFetch:
        """Take buffered rows without polling; the fetch may be empty. ``batch`` is the decoded rows.

        Raises:
            NotLoadedError: rows cannot be decoded before ``load()`` of the error.
            RecordDeserializationError: a row cannot be decoded.
        """
        fetch = self._new_fetch()
        self._consumer.begin_columns(fetch)
        self._consumer.collect_columns(fetch, self._max_records)
        self._batch = None
        if self._decoders and fetch.num_records:
            try:
                self._batch = self._decoded(fetch.columns, is_blocking=False)
            except BaseException:
                self._consumer.take_back(fetch)
                fetch.returned = True
                raise
        return fetch

    def batch(self, fetch: ColumnsFetch | None) -> pa.RecordBatch:
        """Return the rows of ``fetch``, which ``take_buffered`` has returned; None means no rows.

        Raises:
            NotLoadedError: the columns are not known before ``load()`` of the error.
        """
        if self._batch is not None:
            return self._batch
        return self._decoded((fetch or self._new_fetch()).columns, is_blocking=False)

    def _decoded(self, columns: Columns, is_blocking: bool = True) -> pa.RecordBatch:
        batch = self._arrow.record_batch(columns)
        if not is_blocking and (load := self._decoders.unloaded(batch)) is not None:
            raise NotLoadedError(load)
        return self._decoders.into(batch, partial(self._with_places, columns))

    def _with_places(self, columns: Columns, batch: pa.RecordBatch) -> pa.RecordBatch:
        for name in ("topic", "partition"):
            if name not in self._names:
                array = self._arrow.array_of(columns, name, self._arrow.schema((name,)).field(0).type)
                batch = batch.append_column(name, array)
        return batch

    def _new_fetch(self) -> ColumnsFetch:
        columns = Columns(self._names, self._max_bytes, self._views, self._consumer.column_memory)
        return ColumnsFetch(columns, self._ends)
