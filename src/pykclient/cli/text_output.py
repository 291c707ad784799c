"""Text formats of ``pykclient consume``: lines, JSON, format strings."""

from __future__ import annotations

import binascii
import re
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, BinaryIO, Final, cast

from pykclient.cli.output import Filters, Output, Wanted
from pykclient.cli.problems import UsageError
from pykclient.cli.values import unescaped
from pykclient.record.lines import LineBuffer

if TYPE_CHECKING:
    from pykclient.record.columns import Columns
    from pykclient.types import ConsumerRecord

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


def _opened(path: str) -> BinaryIO:
    """Open a file for writing, compressed if its name ends with .gz."""
    if path.lower().endswith(".gz"):
        import gzip

        return cast("BinaryIO", gzip.open(path, "wb"))
    return open(path, "wb", buffering=0)


class LinesOutput(_TextOutput):
    """Values, or keys and values, one record per line: no Python code runs per record."""

    is_columnar = True

    def __init__(self, path: str | None, wanted: Wanted) -> None:
        super().__init__(path)
        self.lines = self._lines = LineBuffer(wanted.delimiter, wanted.key_delimiter, wanted.null.encode())

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


class TextsOutput(_TextOutput):
    """A text for each record."""

    def __init__(self, path: str | None, filters: Filters, formatter: Callable[[Any], bytes]) -> None:
        super().__init__(path)
        self._filters = filters
        self._formatter = formatter
        self._texts: list[bytes] = []
        self._size = 0

    def write(self, record: ConsumerRecord[Any, Any]) -> bool:
        if not self._filters.match(record.key, record.value, record.headers, record.timestamp):
            return False
        text = self._formatter(record)
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


def _base64(data: bytes) -> bytes:
    return binascii.b2a_base64(data, newline=False)


_ENCODINGS: Final[dict[str, Callable[[bytes], bytes]]] = {
    "plain": bytes,
    "hex": lambda data: data.hex().encode(),
    "base64": _base64,
}


def formatter(form: str, wanted: Wanted) -> Callable[[Any], bytes]:
    """Return the function from a record to its text.

    Raises:
        UsageError: there is no such format.
    """
    null = wanted.null.encode()
    if form == "json":
        return json_formatter(wanted.delimiter)
    if form in _ENCODINGS:
        return _delimited(_ENCODINGS[form], null, wanted)
    if "%" not in form:
        raise UsageError(
            f"--format: {form!r} is none of plain, json, hex and base64, nor a text with %s for the value and the like"
        )
    return _format_string(form, null)


def _delimited(encode: Callable[[bytes], bytes], null: bytes, wanted: Wanted) -> Callable[[Any], bytes]:
    between, after = wanted.key_delimiter, wanted.delimiter

    def text(data: bytes | None) -> bytes:
        return null if data is None else encode(data)

    if between is None:
        return lambda record: text(record.value) + after
    return lambda record: text(record.key) + between + text(record.value) + after


_FIELDS: Final[dict[str, Callable[[Any, bytes], bytes]]] = {
    "t": lambda record, _: record.topic.encode(),
    "p": lambda record, _: b"%d" % record.partition,
    "o": lambda record, _: b"%d" % record.offset,
    "k": lambda record, null: null if record.key is None else record.key,
    "s": lambda record, null: null if record.value is None else record.value,
    "K": lambda record, _: b"%d" % (-1 if record.key is None else len(record.key)),
    "S": lambda record, _: b"%d" % (-1 if record.value is None else len(record.value)),
    "T": lambda record, _: b"%d" % record.timestamp,
    "h": lambda record, null: b",".join(
        [name.encode() + b"=" + (null if value is None else value) for name, value in record.headers]
    ),
}
_FIELD = re.compile(r"%(.|$)", re.DOTALL)


def _format_string(form: str, null: bytes) -> Callable[[Any], bytes]:
    """Return the function for a text with ``%`` and letters.

    Raises:
        UsageError: there is no such letter, or an escape is wrong.
    """
    parts: list[Callable[[Any, bytes], bytes]] = []

    def literal(text: str) -> None:
        if text:
            data = unescaped(text)
            parts.append(lambda _record, _null: data)

    end = 0
    try:
        for found in _FIELD.finditer(form):
            literal(form[end : found.start()])
            end = found.end()
            if found[1] == "%":
                literal("%")
            elif found[1] in _FIELDS:
                parts.append(_FIELDS[found[1]])
            else:
                raise UsageError(f"--format: there is no %{found[1]}; there are %{', %'.join(_FIELDS)} and %%")
        literal(form[end:])
    except ValueError as error:
        raise UsageError(f"--format: {error}") from error
    return lambda record: b"".join([part(record, null) for part in parts])


def json_formatter(delimiter: bytes) -> Callable[[Any], bytes]:
    """Return the function from a record to a JSON object. Bytes that are not UTF-8 get names that end with ``_base64``.

    The text is what ``json.dumps(..., ensure_ascii=False)`` makes, which would create an encoder for each record.
    """
    from json.encoder import encode_basestring as quoted

    def field(name: str, data: bytes | None) -> str:
        if data is None:
            return f'"{name}": null'
        try:
            return f'"{name}": {quoted(data.decode())}'
        except UnicodeDecodeError:
            return f'"{name}_base64": "{_base64(data).decode()}"'

    def line(record: ConsumerRecord[Any, Any]) -> bytes:
        timestamp = record.timestamp
        time = "null" if timestamp is None or timestamp < 0 else timestamp
        headers = ", ".join([f'{{"key": {quoted(name)}, {field("value", value)}}}' for name, value in record.headers])
        text = (
            f'{{"topic": {quoted(record.topic)}, "partition": {record.partition}, "offset": {record.offset}, '
            f'"timestamp": {time}, {field("key", record.key)}, {field("value", record.value)}, "headers": [{headers}]}}'
        )
        return text.encode() + delimiter

    return line
