"""Reading records for ``pykclient consume``: where to begin and to end, and how they get to the output."""

from __future__ import annotations

import fnmatch
import signal
import sys
import threading
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from types import FrameType
from typing import TYPE_CHECKING, Any

from pykclient.cli.output import FilteredOutput, Filters, LinesOutput, Output, Schemas, Wanted, pieces_of
from pykclient.cli.problems import Interrupted, UsageError
from pykclient.cli.session import Session
from pykclient.cli.values import Position
from pykclient.errors import IllegalArgumentError, UnknownTopicOrPartitionError, WakeupError
from pykclient.types import TopicPartition

if TYPE_CHECKING:
    from pykclient.cli.column_consumer import ColumnConsumer
    from pykclient.cli.formats import Reader

#: The longest single poll. Ctrl-C ends it at once.
_POLL_MS = 1000
_MAX_INT32 = (1 << 31) - 1
#: The most bytes that a broker returns of a partition at once. A tool reads much of few partitions.
_FETCH_BYTES = 4 << 20


def consume(session: Session, *, is_until_end: bool, is_json: bool, **options: Any) -> None:
    """Run ``pykclient consume`` with the values of its parameters."""
    if is_until_end:
        options["stop"] = Position("end")
    if is_json or session.is_json:
        options["form"] = "json"
    read(session, Wanted(**options))


def read(session: Session, wanted: Wanted) -> None:
    """Read until the requested end.

    Raises:
        Interrupted: the user pressed Ctrl-C. What was written is committed, if there is a group.
        KafkaError: an error of the consumer.
        UsageError: options contradict each other.
    """
    _check(wanted)
    schemas = Schemas(wanted.key_format, wanted.value_format, wanted.registry, wanted.registry_config)
    schemas.check(wanted.dead_letters)
    reader = None
    if not schemas.is_empty:
        from pykclient.cli import formats

        reader = formats.Reader(session, schemas, wanted.dead_letters)
    filters = Filters(
        wanted.grep, wanted.key_pattern, wanted.header_patterns, _time_of(wanted.start), _time_of(wanted.stop)
    )
    output = _new_output(wanted, filters, bool(session.settings().get("interceptor.classes")))
    overrides: dict[str, Any] = {"group_id": wanted.group, "allow_auto_create_topics": False}
    if "max.partition.fetch.bytes" not in session.settings():
        overrides["max_partition_fetch_bytes"] = _FETCH_BYTES
    if wanted.group is None:
        overrides |= {"enable_auto_commit": False, "auto_offset_reset": "earliest"}
        overrides["partition_assignment_strategy"] = "range"  # unused; the import of the others would take longer
    elif wanted.start is not None:
        overrides["auto_offset_reset"] = "earliest" if wanted.start.kind == "beginning" else "latest"
    elif "auto.offset.reset" not in session.settings():
        overrides["auto_offset_reset"] = "earliest"
    consumer = session.consumer(**overrides)
    with output, consumer, _ended_by_ctrl_c(consumer) as interrupted, closing(reader or consumer):
        try:
            _Reader(consumer, wanted, output, reader).run()
        except WakeupError:
            output.flush()
            if not interrupted.is_set():
                raise
    if interrupted.is_set():
        raise Interrupted


def _time_of(place: Position | None) -> int | None:
    return place.number if place is not None and place.kind == "time" else None


def _check(wanted: Wanted) -> None:
    if wanted.group is not None:
        if wanted.partitions:
            raise UsageError("--partition is for reading without a group, which assigns partitions itself")
        if wanted.start is not None and wanted.start.kind not in {"beginning", "end"}:
            raise UsageError(
                "with --group, --from takes beginning or end, for partitions without a committed offset; "
                "`pykclient offsets reset` moves the group to another place"
            )
    if wanted.stop is not None and wanted.stop.kind not in {"end", "offset", "time"}:
        raise UsageError("--until takes end, an offset or @TIME")


_USE_COLUMNS = "use .jsonl, .parquet or .arrow"
_USE_GZIP = "only .gz is compressed; for other codecs write to stdout, and into the codec's own program"
#: The endings of files whose contents would be of another kind, with what to do.
_REFUSED_ENDINGS = {
    "json": "use .jsonl for one JSON object per line",
    **dict.fromkeys(("csv", "tsv"), f"{_USE_COLUMNS}, or --format with columns such as '%k,%o\\n'"),
    **dict.fromkeys(("avro", "orc", "xlsx", "xls", "xml", "yaml", "yml", "html", "db", "sqlite"), _USE_COLUMNS),
    **dict.fromkeys(("zst", "zstd", "bz2", "xz", "lz4", "zip", "7z", "snappy"), _USE_GZIP),
}


def _new_output(wanted: Wanted, filters: Filters, has_interceptors: bool) -> Output:
    """Return the output for the options.

    Raises:
        UsageError: the format is unknown, or options contradict each other.
        OSError: the file cannot be written.
    """
    path, form = wanted.output, wanted.form
    has_formats = wanted.key_format is not None or wanted.value_format is not None
    ending = "" if path is None else path.lower().removesuffix(".gz").rpartition(".")[2]
    # With a format string, the user says what a file has.
    if (remedy := _REFUSED_ENDINGS.get(ending)) and (remedy is _USE_GZIP or "%" not in form):
        raise UsageError(f"--output: {path} would not be what its name says: {remedy}")
    if ending in {"parquet", "arrow", "feather"}:
        from pykclient.cli.arrow_output import ArrowOutput

        assert path is not None
        if has_formats:
            raise UsageError(f"a file {path} has the bytes of keys and values; with a format, use .jsonl")
        if form != "plain" or wanted.key_delimiter is not None:
            raise UsageError(f"a file {path} has columns; --format and --key-delimiter are for text")
        return ArrowOutput(path, ending == "parquet", filters)
    if ending in {"jsonl", "ndjson"}:
        if form not in {"plain", "json"} or wanted.key_delimiter is not None:
            raise UsageError(f"a file {path} has JSON; --format and --key-delimiter are for text")
        form = "json"
    pieces = pieces_of(form, wanted)
    if filters.is_empty and not has_interceptors and not has_formats:
        return LinesOutput(path, pieces)
    return FilteredOutput(path, filters, pieces)  # conditions, interceptors and formats are for records


@contextmanager
def _ended_by_ctrl_c(consumer: ColumnConsumer) -> Iterator[threading.Event]:
    """Let Ctrl-C wake the consumer; the second one interrupts at once. Only the main thread gets signals."""
    interrupted = threading.Event()

    def on_signal(number: int, _frame: FrameType | None) -> None:
        interrupted.set()
        signal.signal(number, signal.default_int_handler)
        consumer.wakeup()

    if threading.current_thread() is not threading.main_thread():
        yield interrupted
        return
    before = signal.signal(signal.SIGINT, on_signal)
    try:
        yield interrupted
    finally:
        signal.signal(signal.SIGINT, before)


def _is_pattern(topic: str) -> bool:
    return not {*"*?["}.isdisjoint(topic)


class _Reader:
    """Reads from the wanted place to the wanted end. Thread: owner."""

    def __init__(self, consumer: ColumnConsumer, wanted: Wanted, output: Output, reader: Reader | None) -> None:
        self._consumer = consumer
        self._reader = reader
        self._wanted = wanted
        self._output = output
        self._left = wanted.most
        self._ends: dict[TopicPartition, int] = {}

    def run(self) -> None:
        consumer, wanted = self._consumer, self._wanted
        partitions = self._partitions()
        if wanted.group is None:
            consumer.assign(partitions)
            self._seek(partitions)
        else:
            if wanted.start is not None:
                self._tell_of_committed(partitions)
            if any(map(_is_pattern, wanted.topics)):
                # New topics that match are read as well.
                consumer.subscribe(pattern="|".join(map(fnmatch.translate, wanted.topics)))
            else:
                consumer.subscribe(list(wanted.topics))
        if wanted.stop is not None:
            self._ends = self._offsets(partitions, wanted.stop)
        poll = self._poll_columns if self._output.is_columnar else self._poll_records
        while self._left != 0 and not self._is_at_end():
            if not poll():
                self._output.flush()
        self._output.flush()

    def _partitions(self) -> list[TopicPartition]:
        """Return the partitions of the topics.

        Raises:
            UnknownTopicOrPartitionError: a topic does not exist.
            IllegalArgumentError: a topic does not have a wanted partition.
        """
        found = []
        for topic in self._topics():
            numbers = {info.partition for info in self._consumer.partitions_for(topic)}
            if not numbers:
                raise UnknownTopicOrPartitionError(f"topic {topic!r} does not exist{self._similar(topic)}")
            if missing := set(self._wanted.partitions) - numbers:
                raise IllegalArgumentError(
                    f"topic {topic!r} has no partition {min(missing)}; it has 0 to {max(numbers)}"
                )
            found += [
                TopicPartition(topic, number) for number in sorted(numbers & set(self._wanted.partitions or numbers))
            ]
        return found

    def _topics(self) -> Iterable[str]:
        """Return the topics, those that match patterns among them.

        Raises:
            UnknownTopicOrPartitionError: no topic matches a pattern.
        """
        found: dict[str, None] = {}
        for topic in self._wanted.topics:
            names = [topic]
            if _is_pattern(topic):
                names = [name for name in sorted(self._consumer.topics()) if fnmatch.fnmatchcase(name, topic)]
                if not topic.startswith("_"):
                    names = [name for name in names if not name.startswith("__")]  # Kafka's own
                if not names:
                    raise UnknownTopicOrPartitionError(f"no topic matches {topic!r}")
            found.update(dict.fromkeys(names))
        return found

    def _tell_of_committed(self, partitions: list[TopicPartition]) -> None:
        committed = [tp for tp, at in self._consumer.committed(partitions).items() if at is not None]
        if committed:
            number = "all" if len(committed) == len(partitions) else f"{len(committed)} of {len(partitions)}"
            sys.stderr.write(
                f"pykclient: the group {self._wanted.group!r} goes on from its committed offsets, which win over "
                f"--from, in {number} partitions; `pykclient offsets reset` moves them\n"
            )

    def _similar(self, topic: str) -> str:
        import difflib

        near = difflib.get_close_matches(topic, self._consumer.topics(), n=1)
        return f"; did you mean {near[0]!r}?" if near else ""

    def _seek(self, partitions: list[TopicPartition]) -> None:
        start = self._wanted.start or Position("beginning")
        if start.kind == "beginning":
            self._consumer.seek_to_beginning(*partitions)
            return
        for partition, offset in self._offsets(partitions, start).items():
            self._consumer.seek(partition, offset)

    def _offsets(self, partitions: list[TopicPartition], place: Position) -> dict[TopicPartition, int]:
        """Return the offset of a place in each partition, within what the partition has."""
        consumer = self._consumer
        ends = consumer.end_offsets(partitions)
        if place.kind == "end" or (place is self._wanted.stop and place.kind == "time"):
            return ends  # records of an earlier time may come after others; the filters leave those out
        if place.kind == "time":
            found = consumer.offsets_for_times(dict.fromkeys(partitions, place.number))
            return {tp: end if (at := found.get(tp)) is None else at.offset for tp, end in ends.items()}
        starts = consumer.beginning_offsets(partitions)
        if place.kind == "last":
            return {tp: max(starts[tp], end - place.number) for tp, end in ends.items()}
        return {tp: min(max(starts[tp], place.number), end) for tp, end in ends.items()}

    def _is_at_end(self) -> bool:
        if self._wanted.stop is None:
            return False
        assigned = self._consumer.assignment()
        return bool(assigned) and all(
            self._consumer.position(tp) >= self._ends[tp] for tp in assigned if tp in self._ends
        )

    def _poll_columns(self) -> int:
        columns = self._consumer.poll_columns(
            _POLL_MS,
            self._output.columns,
            max_records=_MAX_INT32 if self._left is None else self._left,
            max_bytes=self._output.max_bytes,
            until=self._ends,
            lines=self._output.lines,
        )
        rows: int = columns.rows
        if rows:
            written = self._output.write_columns(columns)
            if self._left is not None:
                self._left -= written
        return rows

    def _poll_records(self) -> int:
        """Poll, and write the records that pass the filters; go back to those that are not wanted any more."""
        polled = self._consumer.poll(_POLL_MS)
        written = 0
        for partition, records in polled.items():
            end = self._ends.get(partition)
            for record in records:
                if self._left == 0 or (end is not None and record.offset >= end):
                    self._consumer.seek(partition, record.offset)
                    if end is not None and record.offset >= end:
                        self._consumer.pause(partition)
                    break
                shown = record if self._reader is None else self._reader.read(record)
                if shown is not None and self._output.write(shown):
                    written += 1
                    if self._left is not None:
                        self._left -= 1
        return written
