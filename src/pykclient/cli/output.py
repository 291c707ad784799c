"""The output of ``pykclient consume``: the fields and filters of records, and records as text."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import TYPE_CHECKING, Any, BinaryIO, Final, NamedTuple, Self, cast

from pykclient.cli.problems import BadInputError, UsageError
from pykclient.cli.values import Position, unescaped
from pykclient.record.lines import BASE64, HEX, PLAIN, LineBuffer, Piece, RecordText, delimited, json_object

if TYPE_CHECKING:
    from pykclient.record.columns import Columns
    from pykclient.types import ConsumerRecord, Header


class Record(NamedTuple):
    """A record for an output. Its key and value may already be JSON."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Any


class Schemas(NamedTuple):
    """The options that name the formats of keys and values, and the registry that has their schemas."""

    key: str | None
    value: str | None
    url: str | None
    file: str | None

    @property
    def is_empty(self) -> bool:
        """True if neither keys nor values have a format."""
        return self.key is None and self.value is None

    def check(self, dead_letters: str | None = None) -> None:
        """Check that other options are not given without a format.

        Raises:
            UsageError: they are.
        """
        given = {"--schema-registry": self.url, "--registry-config": self.file, "--dead-letters": dead_letters}
        for option, value in given.items():
            if self.is_empty and value is not None:
                raise UsageError(f"{option} is for --key-format and --value-format")


class Wanted(NamedTuple):
    """The options of ``consume``."""

    topics: tuple[str, ...]
    group: str | None
    start: Position | None
    stop: Position | None
    most: int | None
    partitions: tuple[int, ...]
    form: str
    key_delimiter: bytes | None
    delimiter: bytes
    null: str
    grep: str | None
    key_pattern: str | None
    header_patterns: tuple[str, ...]
    output: str | None
    key_format: str | None
    value_format: str | None
    registry: str | None
    registry_config: str | None
    dead_letters: str | None


class Filters:
    """The conditions that a record must fulfil.

    Raises:
        UsageError: a pattern is no regular expression.
    """

    def __init__(
        self,
        value: str | None,
        key: str | None,
        headers: Sequence[str],
        from_ms: int | None = None,
        until_ms: int | None = None,
    ) -> None:
        self._value = None if value is None else _pattern(value, "--grep")
        self._key = None if key is None else _pattern(key, "--key")
        pairs = [text.partition("=") for text in headers]
        self._headers = [(name, _pattern(pattern, "--header")) for name, _, pattern in pairs]
        # Producers set timestamps, so they need not be in order within a partition.
        self._from_ms = from_ms
        self._until_ms = until_ms
        self.is_empty = value is None and key is None and not headers and from_ms is None and until_ms is None

    def match(
        self, key: bytes | None, value: bytes | None, headers: Iterable[Header], timestamp_ms: int | None
    ) -> bool:
        """Return True if a record with these fields fulfils all conditions."""
        if self._from_ms is not None and (timestamp_ms is None or timestamp_ms < self._from_ms):
            return False
        if self._until_ms is not None and timestamp_ms is not None and timestamp_ms >= self._until_ms:
            return False
        if self._value is not None and (value is None or not self._value.search(value)):
            return False
        if self._key is not None and (key is None or not self._key.search(key)):
            return False
        if not self._headers:
            return True
        given = list(headers)
        return all(
            any(name == wanted and pattern.search(data or b"") for name, data in given)
            for wanted, pattern in self._headers
        )


def _pattern(text: str, option: str) -> re.Pattern[bytes]:
    try:
        return re.compile(text.encode())
    except re.error as error:
        raise UsageError(f"{option}: {text!r} is no regular expression: {error}") from error


class Output:
    """A destination of records. Thread: owner."""

    #: True if it takes columns, False if it takes records.
    is_columnar = False
    #: The names of the columns that it takes, unless it takes lines.
    columns: Sequence[str] = ()
    #: Where polls put the text of records, if it takes lines.
    lines: LineBuffer | None = None
    #: The largest result of a poll for columns: for text, little enough to stay in the processor's cache.
    max_bytes = 1 << 20

    def write_columns(self, columns: Columns) -> int:
        """Write the rows, and release the columns' memory. Return the number of rows that passed the filters."""
        raise NotImplementedError

    def write(self, record: ConsumerRecord[Any, Any] | Record) -> bool:
        """Write a record; return False if the filters leave it out."""
        raise NotImplementedError

    def flush(self) -> None:
        """Write the buffered data."""

    def close(self) -> None:
        """Write the buffered data, and close the file."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, error_type: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


#: Text is collected to this size before it is written.
_BUFFER_BYTES = 1 << 18


class _TextOutput(Output):
    """Text for stdout or a file."""

    def __init__(self, path: str | None) -> None:
        self._path = path
        self._file: BinaryIO = sys.stdout.buffer if path is None else _opened(path)

    def flush(self) -> None:
        self._file.flush()

    def close(self) -> None:
        self.flush()
        if self._path is not None:
            self._file.close()


@contextmanager
def opening(path: str) -> Iterator[None]:
    """Explain that the file of ``--output`` cannot be written.

    Raises:
        BadInputError: it cannot.
    """
    try:
        yield
    except OSError as error:
        why = os.strerror(error.errno) if error.errno else str(error)
        raise BadInputError(f"--output: {path} cannot be written: {why}") from error


def _opened(path: str) -> BinaryIO:
    """Open a file for writing, compressed if its name ends with .gz."""
    with opening(path):
        if path.lower().endswith(".gz"):
            import gzip

            return cast("BinaryIO", gzip.open(path, "wb"))
        return open(path, "wb", buffering=0)


class LinesOutput(_TextOutput):
    """The text of all records: no Python code runs per record."""

    is_columnar = True

    def __init__(self, path: str | None, pieces: Iterable[Piece]) -> None:
        super().__init__(path)
        self.lines = self._lines = LineBuffer(pieces)

    def write_columns(self, columns: Columns) -> int:
        with self._lines.text() as text:
            _write_all(self._file, text)
        return columns.rows


def _write_all(file: BinaryIO, text: bytes | memoryview) -> None:
    """Write to a raw or a buffered file; a raw one may take a part only."""
    written = file.write(text)
    while written < len(text):
        with memoryview(text)[written:] as rest:
            written += file.write(rest)


class FilteredOutput(_TextOutput):
    """The text of the records that pass the filters."""

    def __init__(self, path: str | None, filters: Filters, pieces: Iterable[Piece]) -> None:
        super().__init__(path)
        self._filters = filters
        self._record_text = RecordText(pieces)
        self._texts: list[bytes] = []
        self._size = 0

    def write(self, record: ConsumerRecord[Any, Any] | Record) -> bool:
        if not self._filters.match(record.key, record.value, record.headers, record.timestamp):
            return False
        time = -1 if record.timestamp is None else record.timestamp
        self._record_text.set_partition(record.topic, record.partition)
        text = self._record_text.of(record.offset, time, record.key, record.value, record.headers)
        self._texts.append(text)
        self._size += len(text)
        if self._size >= _BUFFER_BYTES:
            self._write_buffered()
        return True

    def _write_buffered(self) -> None:
        texts, self._texts, self._size = self._texts, [], 0
        _write_all(self._file, b"".join(texts))

    def flush(self) -> None:
        self._write_buffered()
        super().flush()


_ENCODINGS: Final = {"plain": PLAIN, "hex": HEX, "base64": BASE64}
#: The letters of format strings, as in kcat.
_FIELDS: Final = "tpoksKSTh"
_FIELD = re.compile(r"%(.|$)", re.DOTALL)


def pieces_of(form: str, wanted: Wanted) -> list[Piece]:
    """Return the pieces of a record's text.

    Raises:
        UsageError: there is no such format.
    """
    null = wanted.null.encode()
    if form == "json":
        return json_object(wanted.delimiter)
    if form in _ENCODINGS:
        return delimited(wanted.delimiter, wanted.key_delimiter, null, _ENCODINGS[form])
    if "%" not in form:
        raise UsageError(
            f"--format: {form!r} is none of plain, json, hex and base64, nor a text with %s for the value and the like"
        )
    return _of_format_string(form, null)


def _of_format_string(form: str, null: bytes) -> list[Piece]:
    """Return the pieces of a text with ``%`` and letters.

    Raises:
        UsageError: there is no such letter, or an escape is wrong.
    """
    pieces: list[Piece] = []
    end = 0
    try:
        for found in _FIELD.finditer(form):
            pieces.append(Piece(text=unescaped(form[end : found.start()])))
            end = found.end()
            if found[1] == "%":
                pieces.append(Piece(text=b"%"))
            elif found[1] and found[1] in _FIELDS:
                pieces.append(Piece(found[1], PLAIN, null))
            else:
                raise UsageError(f"--format: there is no %{found[1]}; there are %{', %'.join(_FIELDS)} and %%")
        pieces.append(Piece(text=unescaped(form[end:])))
    except ValueError as error:
        raise UsageError(f"--format: {error}") from error
    return pieces
