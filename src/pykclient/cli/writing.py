"""Writing records for ``pykclient produce``: from input to the acknowledgements of the brokers."""

from __future__ import annotations

import binascii
import io
import os
import select
import sys
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from types import TracebackType
from typing import TYPE_CHECKING, Any, BinaryIO, Final, NamedTuple, Self, cast

from pykclient.cli.output import Schemas
from pykclient.cli.problems import BadInputError, CommandError, UsageError
from pykclient.cli.session import Session
from pykclient.producer.columns import BatchFuture  # now, so that Ctrl-C after the first line interrupts no import
from pykclient.record.lines import split_lines
from pykclient.record.row_columns import BytesColumn

if TYPE_CHECKING:
    from pykclient.cli.formats import Writer
    from pykclient.producer.future import FutureRecordMetadata
    from pykclient.producer.kafka_producer import KafkaProducer
    from pykclient.types import Header


class Progress:
    """A progress line on stderr, if enabled. ``total_bytes`` is None if unknown.

    Thread: owner.
    """

    def __init__(self, is_shown: bool, total_bytes: int | None) -> None:
        self._is_shown = is_shown
        self._total_bytes = total_bytes
        self._records = 0
        self._bar: Any = None
        self._task: Any = None

    def __enter__(self) -> Self:
        if self._is_shown:
            from rich.console import Console
            from rich.progress import BarColumn, DownloadColumn, Progress as Bar, TextColumn, TransferSpeedColumn

            columns = (BarColumn(), DownloadColumn(), TransferSpeedColumn(), TextColumn("{task.description}"))
            self._bar = Bar(*columns, console=Console(stderr=True))
            self._task = self._bar.add_task("", total=self._total_bytes)
            self._bar.start()
        return self

    def advance(self, records: int, size_bytes: int) -> None:
        """Count records that were handed to the producer."""
        if self._bar is not None:
            self._records += records
            self._bar.update(self._task, advance=size_bytes, description=f"{self._records:,} records")

    def __exit__(
        self, error_type: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()


#: The number of bytes read at once from a file. This fits the processor's cache.
_CHUNK_BYTES = 1 << 18

#: The longest wait for input, in seconds, before the interpreter looks for signals.
_SIGNALS_S: Final = 0.25

#: Settings for throughput, unless the user has others: a batch nearly fills a request, as librdkafka's do, and buffers
#: are soon used again.
_SETTINGS: Final = {"batch.size": 1_000_000, "buffer.memory": 8 << 20}
#: Settings with which the user sizes records and batches, so that _SETTINGS do not apply.
_SIZES: Final = frozenset({*_SETTINGS, "max.request.size"})
#: The calls whose results are not known yet, before the oldest one is waited for.
_MOST_WAITING = 50_000


class Wanted(NamedTuple):
    """The options of ``produce``."""

    topic: str
    files: tuple[str, ...]
    form: str
    key: str | None
    key_delimiter: bytes | None
    delimiter: bytes
    empty_is_null: bool
    partition: int | None
    headers: tuple[str, ...]
    timestamp: int | None
    compression: str | None
    acks: str | None
    progress: bool | None
    key_format: str | None
    value_format: str | None
    registry: str | None
    registry_config: str | None


def produce(session: Session, *, is_json_lines: bool, **options: Any) -> None:
    """Run ``pykclient produce`` with the values of its parameters."""
    if is_json_lines:
        options["form"] = "json"
    write(session, Wanted(**options))


def write(session: Session, wanted: Wanted) -> None:
    """Send all input, and wait until it is acknowledged.

    Raises:
        UsageError: options contradict each other.
        BadInputError: a line is no JSON, or has a wrong field.
        CommandError: records were not written.
        KafkaError: an error of the producer.
    """
    if wanted.key is not None and wanted.key_delimiter is not None:
        raise UsageError("--key is for all records, --key-delimiter for a key in each line: choose one")
    if wanted.form != "lines" and wanted.key_delimiter is not None:
        raise UsageError("--key-delimiter is for lines")
    schemas = Schemas(wanted.key_format, wanted.value_format, wanted.registry, wanted.registry_config)
    schemas.check()
    headers = _headers(wanted.headers)
    encoder = None
    if not schemas.is_empty:
        from pykclient.cli import formats

        encoder = formats.Writer(session, schemas, wanted.topic)
    overrides: dict[str, Any] = {} if _SIZES & session.settings().keys() else dict(_SETTINGS)
    if wanted.compression is not None:
        overrides["compression.type"] = wanted.compression
    if wanted.acks is not None:
        overrides["acks"] = wanted.acks
    names = wanted.files or ("-",)
    is_shown = sys.stderr.isatty() and names != ("-",) if wanted.progress is None else wanted.progress
    sizes = [os.stat(name).st_size for name in names if name != "-"]
    with (
        Progress(is_shown, None if "-" in names else sum(sizes)) as progress,
        session.producer(**overrides) as producer,
        closing(encoder or producer),
    ):
        sending = _Sending(producer, wanted, headers, progress, encoder)
        for name in names:
            with _opened(name) as file:
                sending.send_all(file, "stdin" if name == "-" else name)
        sending.finish()
    if session.is_json:
        from pykclient.cli.console import emit

        emit(session, [{"topic": wanted.topic, "records": sending.records, "bytes": sending.size_bytes}], ())


def _headers(texts: tuple[str, ...]) -> list[Header]:
    found: list[Header] = []
    for text in texts:
        name, equals, value = text.partition("=")
        if not name:
            raise UsageError(f"--header: {text!r} is not NAME=VALUE")
        found.append((name, value.encode() if equals else None))
    return found


@contextmanager
def _opened(name: str) -> Iterator[BinaryIO]:
    if name == "-":
        yield getattr(sys.stdin.buffer, "raw", sys.stdin.buffer)
        return
    with open(name, "rb", buffering=0) as file:
        yield cast("BinaryIO", file)  # a raw file, which can do all that is used here


class _Sending:
    """Sends records and collects their results. Thread: owner."""

    def __init__(
        self,
        producer: KafkaProducer[bytes, bytes],
        wanted: Wanted,
        headers: list[Header],
        progress: Progress,
        encoder: Writer | None,
    ) -> None:
        self._producer = producer
        self._encoder = encoder
        self._wanted = wanted
        self._headers = headers
        self._key = None if wanted.key is None else self._part("key", wanted.key.encode(), "--key")
        self._progress = progress
        self._waiting: deque[BatchFuture | FutureRecordMetadata] = deque()
        self.records = 0
        self.size_bytes = 0

    def send_all(self, file: BinaryIO, name: str) -> None:
        if self._wanted.form == "file":
            self._send_file(file)
        elif self._wanted.form == "json":
            for number, line in enumerate(_pieces(file, self._wanted.delimiter), 1):
                for part in bytes(line).split(self._wanted.delimiter):
                    if part.strip():
                        self._send_json(part, f"{name}, near line {number}")
        elif self._encoder is not None:
            number = 0
            for chunk in _pieces(file, self._wanted.delimiter):
                for part in bytes(chunk).removesuffix(self._wanted.delimiter).split(self._wanted.delimiter):
                    number += 1
                    self._send_line(part, f"{name}, line {number}")
        else:
            for chunk in _pieces(file, self._wanted.delimiter):
                self._send_lines(chunk)

    def _part(self, name: str, text: bytes, where: str) -> bytes | None:
        """Return the bytes of a key or value of a line."""
        if self._wanted.empty_is_null and not text:
            return None
        if self._encoder is None or not self._encoder.has(name):
            return text
        return self._encoder.parsed(name, text, self._headers, where)

    def _send_line(self, line: bytes, where: str) -> None:
        key, wanted, value = self._key, self._wanted, line
        if wanted.key_delimiter is not None:
            before, found, after = line.partition(wanted.key_delimiter)
            if found:
                key, value = self._part("key", before, where), after
        data = self._part("value", value, where)
        self._send(data, key, self._headers, wanted.partition, wanted.timestamp, len(line))

    def _json_part(self, record: dict[str, Any], name: str, where: str) -> bytes | None:
        if self._encoder is None or not self._encoder.has(name) or f"{name}_base64" in record:
            return _bytes(record, name, where)
        return self._encoder.encoded(name, record.get(name), self._headers, where)

    def _send_lines(self, chunk: memoryview) -> None:
        wanted = self._wanted
        keys, values = split_lines(chunk, wanted.delimiter, wanted.key_delimiter, wanted.empty_is_null)
        count = len(values[0]) - 1
        key: Any = None if keys is None else BytesColumn(count, *keys)
        if self._key is not None:
            key = [self._key] * count
        future = self._producer.send_batch(
            wanted.topic,
            BytesColumn(count, *values),
            key=key,
            headers=self._headers or None,
            timestamp=wanted.timestamp,
            partition=wanted.partition,
        )
        self._sent(future, count, len(chunk))

    def _send_file(self, file: BinaryIO) -> None:
        wait = _input_wait(file)
        pieces: list[bytes] = []
        while wait() and (piece := file.read(_CHUNK_BYTES)):
            pieces.append(piece)
        data = b"".join(pieces)
        size = len(data)
        value = self._part("value", data, "the file")
        self._send(value, self._key, self._headers, self._wanted.partition, self._wanted.timestamp, size)

    def _send_json(self, line: bytes, where: str) -> None:
        record = _parsed(line, where)
        wanted = self._wanted
        self._send(
            self._json_part(record, "value", where),
            self._json_part(record, "key", where) if {"key", "key_base64"} & record.keys() else self._key,
            [*self._headers, *_headers_of(record.get("headers") or (), where)],
            _number(record, "partition", where) if wanted.partition is None else wanted.partition,
            _number(record, "timestamp", where) if wanted.timestamp is None else wanted.timestamp,
            len(line),
        )

    def _send(
        self,
        value: bytes | None,
        key: bytes | None,
        headers: list[Header],
        partition: int | None,
        timestamp: int | None,
        size: int,
    ) -> None:
        future = self._producer.send(
            self._wanted.topic, value, key=key, headers=headers, partition=partition, timestamp_ms=timestamp
        )
        self._sent(future, 1, size)

    def _sent(self, future: BatchFuture | FutureRecordMetadata, count: int, size: int) -> None:
        self.records += count
        self.size_bytes += size
        self._progress.advance(count, size)
        self._waiting.append(future)
        while self._waiting and (self._waiting[0].done() or len(self._waiting) > _MOST_WAITING):
            self._settle(self._waiting.popleft())

    def _settle(self, future: BatchFuture | FutureRecordMetadata) -> None:
        """Wait for a result.

        Raises:
            CommandError: records were not written.
        """
        if not future.done():
            self._producer.flush()
        if (error := future.exception) is not None:
            raise CommandError(f"not all records were written to {self._wanted.topic!r}: {error}") from error

    def finish(self) -> None:
        """Wait for all results.

        Raises:
            CommandError: records were not written.
        """
        self._producer.flush()
        while self._waiting:
            self._settle(self._waiting.popleft())


def _pieces(file: BinaryIO, delimiter: bytes) -> Iterator[memoryview]:
    """Yield the contents in pieces that end with a delimiter, except the last one. Each is valid until the next one.

    A pipe or a terminal is read as data arrives, so that nobody waits for a piece to fill.
    """
    read: Callable[[memoryview], int] = file.readinto  # type: ignore[attr-defined]
    wait = _input_wait(file)
    buffer = bytearray(_CHUNK_BYTES)
    kept = 0
    while wait() and (count := read(memoryview(buffer)[kept:])):
        size = kept + count
        end = buffer.rfind(delimiter, max(0, kept - len(delimiter) + 1), size) + len(delimiter)
        if end < len(delimiter):
            kept = size
        else:
            yield memoryview(buffer)[:end]
            kept = size - end
            buffer[:kept] = buffer[end:size]
        if kept == len(buffer):
            buffer += bytes(len(buffer))
    if kept:
        yield memoryview(buffer)[:kept]


def _input_wait(file: BinaryIO) -> Callable[[], bool]:
    """Return a function that waits until a read of ``file`` would not block, and returns True.

    A read of a pipe or a terminal has no bound. A signal that comes after the interpreter's last look for signals and
    before such a read is acted on after the next data only: Ctrl-C would seem to do nothing.
    """
    try:
        descriptor = file.fileno()
    except io.UnsupportedOperation:  # it is in memory
        return lambda: True
    if os.name != "posix":  # where only sockets can be waited for
        return lambda: True

    def wait() -> bool:
        while not select.select([descriptor], [], [], _SIGNALS_S)[0]:
            pass
        return True

    return wait


# --- JSON ------------------------------------------------------------------------------------------------------------


def _parsed(line: bytes, where: str) -> dict[str, Any]:
    import json

    try:
        record = json.loads(line)
    except ValueError as error:
        raise BadInputError(f"{where}: this is no JSON: {error}") from error
    if not isinstance(record, dict):
        raise BadInputError(f"{where}: a record is an object with a value, not {type(record).__name__}")
    if not {"value", "value_base64"} & record.keys():
        raise BadInputError(f'{where}: there is no "value"; write null for a tombstone')
    return record


def _bytes(record: dict[str, Any], name: str, where: str) -> bytes | None:
    """Return a field as bytes: text as UTF-8, ``..._base64`` decoded, any other JSON as JSON."""
    if (encoded := record.get(f"{name}_base64")) is not None:
        try:
            import base64

            return base64.b64decode(encoded, validate=True)
        except (binascii.Error, ValueError, TypeError) as error:
            raise BadInputError(f"{where}: {name}_base64 is not base64: {error}") from error
    value = record.get(name)
    if value is None:
        return None
    if isinstance(value, str):
        return value.encode("utf-8", "surrogatepass")
    import json

    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "surrogatepass")


def _headers_of(given: Any, where: str) -> list[Header]:
    """Return headers, given as an object, or as a list of objects with key and value."""
    if isinstance(given, dict):
        given = [{"key": name, "value": value} for name, value in given.items()]
    if not isinstance(given, (list, tuple)):
        raise BadInputError(f"{where}: headers are an object, or a list of objects with key and value")
    found: list[Header] = []
    for header in given:
        if not isinstance(header, dict) or not isinstance(header.get("key"), str):
            raise BadInputError(f"{where}: a header is an object with a key, which is text, and a value")
        found.append((header["key"], _bytes(header, "value", where)))
    return found


def _number(record: dict[str, Any], name: str, where: str) -> int | None:
    number = record.get(name)
    if number is not None and (not isinstance(number, int) or isinstance(number, bool) or number < 0):
        raise BadInputError(f"{where}: {name} is {number!r}; it must be a whole number from 0 on")
    return number
