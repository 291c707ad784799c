"""Text with one record per line, converted to columns, and made of fetched records, without an object per record.

The compiled form of the columns also fills a ``LineBuffer``.
"""

from __future__ import annotations

import binascii
import struct
from itertools import starmap
from typing import TYPE_CHECKING, ClassVar, Final, NamedTuple

from pykclient.implementation import use_compiled
from pykclient.record.row_columns import Gathered, gather

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pykclient.record.record_batch import Span
    from pykclient.types import Headers

#: How a piece of text is written.
PLAIN: Final = "p"
HEX: Final = "x"
BASE64: Final = "b"
JSON: Final = "j"


def split_lines(
    data: bytes | memoryview, delimiter: bytes, key_delimiter: bytes | None, empty_is_null: bool
) -> tuple[Gathered | None, Gathered]:
    """Return the columns of keys and values in ``data``, whose records end with ``delimiter``.

    The last record may lack it. With a ``key_delimiter``, the key of a record is what is before the first one; a record
    without one has no key. Otherwise there is no column of keys. With ``empty_is_null``, empty keys and values are
    null.

    Raises:
        ValueError: a delimiter is empty.
    """
    values: list[bytes | None] = [*bytes(data).split(delimiter)]
    if not values[-1]:
        values.pop()
    keys: list[bytes | None] | None = None
    if key_delimiter is not None:
        if not key_delimiter:
            raise ValueError("empty separator")
        parts = [line.partition(key_delimiter) for line in values if line is not None]
        keys = [key if found else None for key, found, _ in parts]
        values = [value if found else key for key, found, value in parts]
    if empty_is_null:
        values = [value or None for value in values]
        keys = None if keys is None else [key or None for key in keys]
    return None if keys is None else gather(keys), gather(values)


class JsonText(bytes):
    """Bytes that are already JSON, and must not be quoted."""


class Piece(NamedTuple):
    """A part of a record's text: one of its fields or, without ``field``, ``text`` itself."""

    #: t topic, p partition, o offset, T timestamp, k key, s value, K and S their sizes, h headers.
    field: str = ""
    #: How topics, timestamps, keys, values and headers are written: PLAIN, HEX, BASE64 (keys and values only) or JSON.
    encoding: str = PLAIN
    #: What stands for a missing key or value; with JSON, the name of the member that holds the key or value.
    text: bytes = b""


def delimited(delimiter: bytes, key_delimiter: bytes | None, null: bytes, encoding: str = PLAIN) -> list[Piece]:
    """Return the pieces for a value, followed by ``delimiter``.

    With a ``key_delimiter``, the key and ``key_delimiter`` are before each value. ``null`` stands for missing keys and
    values.
    """
    value = [Piece("s", encoding, null), Piece(text=delimiter)]
    return value if key_delimiter is None else [Piece("k", encoding, null), Piece(text=key_delimiter), *value]


def json_object(delimiter: bytes) -> list[Piece]:
    """Return the pieces for a JSON object, followed by ``delimiter``.

    It is the text of ``json.dumps(..., ensure_ascii=False)``. Keys and values that are not UTF-8 have names that end
    with ``_base64``. A timestamp that the record does not have is null.
    """
    return [
        Piece(text=b'{"topic": '),
        Piece("t", JSON),
        Piece(text=b', "partition": '),
        Piece("p"),
        Piece(text=b', "offset": '),
        Piece("o"),
        Piece(text=b', "timestamp": '),
        Piece("T", JSON),
        Piece(text=b", "),
        Piece("k", JSON, b"key"),
        Piece(text=b", "),
        Piece("s", JSON, b"value"),
        Piece(text=b', "headers": ['),
        Piece("h", JSON),
        Piece(text=b"]}" + delimiter),
    ]


def _base64(data: bytes) -> bytes:
    return binascii.b2a_base64(data, newline=False)


def _quoted(text: str) -> bytes:
    from json.encoder import encode_basestring

    return encode_basestring(text).encode()


def _member(name: bytes, data: bytes | None) -> bytes:
    if data is None:
        return b'"%b": null' % name
    if isinstance(data, JsonText):
        return b'"%b": %b' % (name, data)
    try:
        return b'"%b": %b' % (name, _quoted(data.decode()))
    except UnicodeDecodeError:
        return b'"%b_base64": "%b"' % (name, _base64(data))


def _bytes_text(piece: Piece, data: bytes | None) -> bytes:
    if piece.encoding == JSON:
        return _member(piece.text, data)
    if data is None:
        return piece.text
    if piece.encoding == HEX:
        return data.hex().encode()
    return _base64(data) if piece.encoding == BASE64 else data


def _headers_text(piece: Piece, headers: Headers) -> bytes:
    if piece.encoding == JSON:
        return b", ".join([b'{"key": %b, %b}' % (_quoted(name), _member(b"value", data)) for name, data in headers])
    return b",".join([name.encode() + b"=" + (piece.text if data is None else data) for name, data in headers])


def _size(data: bytes | None) -> bytes:
    return b"%d" % (-1 if data is None else len(data))


class RecordText:
    """The text of records of one partition at a time. Thread: owner."""

    __slots__ = ("_partition", "_pieces", "_pieces_here", "program")

    _PIECE: ClassVar = struct.Struct("=ccxxi")

    def __init__(self, pieces: Iterable[Piece]) -> None:
        self._pieces = tuple(pieces)
        self._pieces_here: list[Piece] = []
        self._partition: tuple[str, int] | None = None
        #: The pieces for the partition in one string, for the compiled form.
        self.program = b""

    def set_partition(self, topic: str, partition: int) -> None:
        """Set the partition of the records that follow."""
        if self._partition == (topic, partition):
            return
        self._partition = topic, partition
        here = self._pieces_here = []
        for piece in self._pieces:
            if piece.field == "t":
                text = _quoted(topic) if piece.encoding == JSON else topic.encode()
            elif piece.field == "p":
                text = b"%d" % partition
            elif piece.field:
                here.append(piece)
                continue
            else:
                text = piece.text
            if here and not here[-1].field:
                text = here.pop().text + text
            here.append(Piece(text=text))
        self.program = b"".join(
            [
                self._PIECE.pack((piece.field or " ").encode(), piece.encoding.encode(), len(piece.text)) + piece.text
                for piece in here
            ]
        )

    def of(self, offset: int, timestamp: int, key: bytes | None, value: bytes | None, headers: Headers) -> bytes:
        """Return the text of a record of the partition."""
        parts: list[bytes] = []
        for piece in self._pieces_here:
            field = piece.field
            if not field:
                parts.append(piece.text)
            elif field == "s":
                parts.append(_bytes_text(piece, value))
            elif field == "k":
                parts.append(_bytes_text(piece, key))
            elif field == "o":
                parts.append(b"%d" % offset)
            elif field == "T":
                parts.append(b"null" if piece.encoding == JSON and timestamp < 0 else b"%d" % timestamp)
            elif field == "h":
                parts.append(_headers_text(piece, headers))
            else:
                parts.append(_size(key if field == "K" else value))
        return b"".join(parts)


class LineBuffer:
    """Records as text, usually one per line. Thread: owner.

    ``Columns`` adds the records while it decodes them; so their bytes are copied once, out of the batch.
    """

    __slots__ = ("data", "record_text", "size_bytes")

    def __init__(self, pieces: Iterable[Piece]) -> None:
        #: Whoever adds records sets their partition there.
        self.record_text = RecordText(pieces)
        #: The text is in the first ``size_bytes`` bytes; the rest is spare room.
        self.data = bytearray()
        self.size_bytes = 0

    def clear(self) -> None:
        """Remove the text, and keep its memory for the next one."""
        self.size_bytes = 0

    def text(self) -> memoryview:
        """Return a view of the text. Release it before adding records."""
        return memoryview(self.data)[: self.size_bytes]

    def extend_spans(
        self,
        data: bytes,
        offsets: Sequence[int],
        timestamps: Sequence[int],
        keys: Sequence[Span],
        values: Sequence[Span],
        headers: Sequence[Headers],
    ) -> None:
        """Add records whose keys and values are these spans of ``data``."""

        def of(span: Span) -> bytes | None:
            return None if span is None else data[span[0] : span[1]]

        rows = zip(offsets, timestamps, map(of, keys), map(of, values), headers, strict=True)
        text = b"".join(starmap(self.record_text.of, rows))
        self.data[self.size_bytes : self.size_bytes + len(text)] = text
        self.size_bytes += len(text)


use_compiled(__name__)
