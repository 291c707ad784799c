"""The primitive types of Kafka's protocol: ``Reader`` decodes them from a buffer, ``Writer`` encodes them.

A *flexible* version of a message writes lengths as unsigned varints, increased by one so that zero means null, and ends
every struct with a section of tagged fields (KIP-482). Older versions write lengths as int16 or int32, and null as -1.

Input is never trusted: reading returns values or raises ``RemoteProtocolError``. A value that cannot be written is the
caller's mistake, and raises ``LocalProtocolError``.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any
from uuid import UUID

from pykclient.errors import LocalProtocolError, RemoteProtocolError
from pykclient.implementation import use_compiled

BytesLike = bytes | bytearray | memoryview
Tags = dict[int, bytes]

ZERO_UUID = UUID(int=0)

_BOOL = struct.Struct(">?")
_INT8 = struct.Struct(">b")
_INT16 = struct.Struct(">h")
_UINT16 = struct.Struct(">H")
_INT32 = struct.Struct(">i")
_UINT32 = struct.Struct(">I")
_INT64 = struct.Struct(">q")
_FLOAT64 = struct.Struct(">d")

_MAX_UINT32 = 0xFFFFFFFF
_MAX_UINT64 = 0xFFFFFFFFFFFFFFFF
_MAX_INT16 = 0x7FFF

#: A cache of UUIDs by their bytes. Topic ids occur in every response, and creating a UUID takes a microsecond.
_uuids: dict[bytes, UUID] = {bytes(16): ZERO_UUID}
_MOST_UUIDS = 10_000

# Shorter records are copied into the writer's buffer: an additional segment for the kernel costs about as much.
_COPY_BELOW = 1024


class Reader:
    """Reads values from ``buffer``, one after the other, from ``pos`` on.

    The buffer is neither copied nor changed. Views returned by ``records`` keep it alive, and the caller must not write
    to it while they are in use.

    Thread: owner
    """

    __slots__ = ("_buf", "end", "pos")

    def __init__(self, buffer: BytesLike, pos: int = 0) -> None:
        self._buf: bytes | memoryview = buffer if isinstance(buffer, bytes) else memoryview(buffer)
        self.pos = pos
        self.end = len(self._buf)

    @property
    def remaining(self) -> int:
        """Return the number of unread bytes."""
        return self.end - self.pos

    def _truncated(self, needed: int) -> RemoteProtocolError:
        return RemoteProtocolError(
            f"the message is truncated: {needed} more bytes are needed at byte {self.pos}, it has {self.end} in all"
        )

    # --- fixed size ------------------------------------------------------------------------------------------------

    def unpack(self, layout: struct.Struct) -> tuple[Any, ...]:
        """Read adjacent fields of fixed size at once."""
        pos = self.pos
        try:
            values = layout.unpack_from(self._buf, pos)
        except struct.error:
            raise self._truncated(layout.size) from None
        self.pos = pos + layout.size
        return values

    def boolean(self) -> bool:
        value: bool = self.unpack(_BOOL)[0]
        return value

    def int8(self) -> int:
        value: int = self.unpack(_INT8)[0]
        return value

    def int16(self) -> int:
        pos = self.pos
        try:
            value: int = _INT16.unpack_from(self._buf, pos)[0]
        except struct.error:
            raise self._truncated(2) from None
        self.pos = pos + 2
        return value

    def uint16(self) -> int:
        value: int = self.unpack(_UINT16)[0]
        return value

    def int32(self) -> int:
        pos = self.pos
        try:
            value: int = _INT32.unpack_from(self._buf, pos)[0]
        except struct.error:
            raise self._truncated(4) from None
        self.pos = pos + 4
        return value

    def uint32(self) -> int:
        value: int = self.unpack(_UINT32)[0]
        return value

    def int64(self) -> int:
        value: int = self.unpack(_INT64)[0]
        return value

    def float64(self) -> float:
        value: float = self.unpack(_FLOAT64)[0]
        return value

    def uuid(self) -> UUID:
        data = bytes(self._take(16))
        value = _uuids.get(data)
        if value is None:
            if len(_uuids) >= _MOST_UUIDS:
                _uuids.clear()
            value = _uuids[data] = UUID(int=int.from_bytes(data, "big")) if any(data) else ZERO_UUID
        return value

    # --- varints ---------------------------------------------------------------------------------------------------

    def uvarint(self) -> int:
        """Read an unsigned 32-bit integer of one to five bytes."""
        try:
            value = self._buf[self.pos]
        except IndexError:
            raise self._truncated(1) from None
        if value < 0x80:
            self.pos += 1
            return value
        return self._long_uvarint(5, _MAX_UINT32)

    def varint(self) -> int:
        """Read a signed 32-bit integer in zigzag encoding."""
        value = self.uvarint()
        return (value >> 1) ^ -(value & 1)

    def varlong(self) -> int:
        """Read a signed 64-bit integer in zigzag encoding, of one to ten bytes."""
        value = self._long_uvarint(10, _MAX_UINT64)
        return (value >> 1) ^ -(value & 1)

    def _long_uvarint(self, max_bytes: int, max_value: int) -> int:
        buf = self._buf
        pos = self.pos
        value = 0
        for shift in range(0, 7 * max_bytes, 7):
            try:
                byte = buf[pos]
            except IndexError:
                raise self._truncated(pos - self.pos + 1) from None
            pos += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                if value > max_value:
                    break
                self.pos = pos
                return value
        raise RemoteProtocolError(f"the varint at byte {self.pos} is too long")

    # --- strings and bytes -----------------------------------------------------------------------------------------

    def nullable_string(self, flexible: bool) -> str | None:
        buf = self._buf
        pos = self.pos
        try:
            if flexible:
                length = buf[pos]
                if length < 0x80:
                    pos += 1
                else:
                    length = self._long_uvarint(5, _MAX_UINT32)
                    pos = self.pos
                length -= 1
            else:
                (length,) = _INT16.unpack_from(buf, pos)
                pos += 2
            if 0 <= length <= _MAX_INT16:
                stop = pos + length
                if stop > self.end:
                    raise self._truncated(length)
                self.pos = stop
                return str(buf[pos:stop], "utf-8")
        except (IndexError, struct.error):
            raise self._truncated(1 if flexible else 2) from None
        except UnicodeDecodeError as error:
            raise RemoteProtocolError(f"the string at byte {pos} is not UTF-8: {error.reason}") from None
        if length != -1:
            raise RemoteProtocolError(f"a string's length is {length} at byte {self.pos}")
        self.pos = pos
        return None

    def string(self, flexible: bool) -> str:
        value = self.nullable_string(flexible)
        if value is None:
            raise RemoteProtocolError(f"a string that may not be null is null, before byte {self.pos}")
        return value

    def nullable_bytes(self, flexible: bool) -> bytes | None:
        """Read bytes as a copy, independent of the buffer."""
        length = self.uvarint() - 1 if flexible else self.int32()
        return None if length == -1 else bytes(self._take(length))

    def bytes_(self, flexible: bool) -> bytes:
        value = self.nullable_bytes(flexible)
        if value is None:
            raise RemoteProtocolError(f"bytes that may not be null are null, before byte {self.pos}")
        return value

    def nullable_records(self, flexible: bool) -> memoryview | None:
        """Read records as a view of the buffer, or null."""
        length = self.uvarint() - 1 if flexible else self.int32()
        return None if length == -1 else memoryview(self._take(length, memoryview(self._buf)))

    def records(self, flexible: bool) -> memoryview:
        """Read records as a view of the buffer."""
        value = self.nullable_records(flexible)
        if value is None:
            raise RemoteProtocolError(f"records that may not be null are null, before byte {self.pos}")
        return value

    def _take(self, length: int, source: memoryview | None = None) -> bytes | memoryview:
        pos = self.pos
        stop = pos + length
        if length < 0:
            raise RemoteProtocolError(f"a length is {length} at byte {pos}")
        if stop > self.end:
            raise self._truncated(length)
        self.pos = stop
        return self._buf[pos:stop] if source is None else source[pos:stop]

    # --- arrays ----------------------------------------------------------------------------------------------------

    def nullable_array_length(self, flexible: bool) -> int:
        """Read the number of elements that follow, -1 if the array is null.

        Each element has at least one byte, so a number above the remaining bytes is rejected before anything is
        allocated.
        """
        length = self.uvarint() - 1 if flexible else self.int32()
        if length > self.end - self.pos or length < -1:
            raise RemoteProtocolError(
                f"an array of {length} elements cannot be in the {self.remaining} bytes after byte {self.pos}"
            )
        return length

    def array_length(self, flexible: bool) -> int:
        """Read the number of elements that follow."""
        length = self.nullable_array_length(flexible)
        if length < 0:
            raise RemoteProtocolError(f"an array that may not be null is null, before byte {self.pos}")
        return length

    def nullable_int32_array(self, flexible: bool) -> list[int] | None:
        length = self.nullable_array_length(flexible)
        return None if length < 0 else self._int32s(length)

    def int32_array(self, flexible: bool) -> list[int]:
        return self._int32s(self.array_length(flexible))

    def _int32s(self, length: int) -> list[int]:
        pos = self.pos
        stop = pos + 4 * length
        if stop > self.end:
            raise self._truncated(4 * length)
        self.pos = stop
        return list(struct.unpack_from(f">{length}i", self._buf, pos))

    # --- tagged fields ---------------------------------------------------------------------------------------------

    def tags(self) -> Tags | None:
        """Read a section of unknown tagged fields; return their bytes by tag, or None if there are none."""
        count = self.uvarint()
        if not count:
            return None
        tags: Tags = {}
        for _ in range(count):
            tag, end = self.tag()
            tags[tag] = self.raw(end)
        return tags

    def tag(self) -> tuple[int, int]:
        """Read the head of a tagged field; return its tag and end position."""
        tag = self.uvarint()
        size = self.uvarint()
        end = self.pos + size
        if end > self.end:
            raise self._truncated(size)
        return tag, end

    def end_tag(self, tag: int, end: int) -> None:
        """Check that a tagged field had its declared size."""
        if self.pos != end:
            raise RemoteProtocolError(f"the field with tag {tag} ends at byte {self.pos} and claims to end at {end}")

    def raw(self, end: int) -> bytes:
        """Read a copy of the bytes up to position ``end``."""
        return bytes(self._take(end - self.pos))


class Writer:
    """Collects the buffers of one message. Large records are kept as separate segments and not copied.

    Thread: owner
    """

    __slots__ = ("_buf", "_sealed", "_sealed_size")

    def __init__(self) -> None:
        self._buf = bytearray()
        self._sealed: list[BytesLike] = []
        self._sealed_size = 0

    @property
    def size(self) -> int:
        """Return the number of bytes written so far, in all segments."""
        return self._sealed_size + len(self._buf)

    def buffers(self) -> list[BytesLike]:
        """Return the message's buffers, to be sent in this order.

        The writer owns them, so write nothing more after this.
        """
        return [*self._sealed, self._buf] if self._buf else self._sealed

    def getvalue(self) -> bytes:
        """Return the message as one copy."""
        return b"".join(self.buffers()) if self._sealed else bytes(self._buf)

    def patch_int32(self, position: int, value: int) -> None:
        """Overwrite an int32 that was written earlier, before any records."""
        first = self._sealed[0] if self._sealed else self._buf
        _INT32.pack_into(first, position, value)

    # --- fixed size ------------------------------------------------------------------------------------------------

    def pack(self, layout: struct.Struct, *values: Any) -> None:
        """Write adjacent fields of fixed size at once."""
        try:
            self._buf += layout.pack(*values)
        except struct.error as error:
            raise _unfit(layout, values, error) from None

    def boolean(self, value: bool) -> None:
        self._buf.append(1 if value else 0)

    def int8(self, value: int) -> None:
        self.pack(_INT8, value)

    def int16(self, value: int) -> None:
        try:
            self._buf += _INT16.pack(value)
        except struct.error as error:
            raise _unfit(_INT16, (value,), error) from None

    def uint16(self, value: int) -> None:
        self.pack(_UINT16, value)

    def int32(self, value: int) -> None:
        try:
            self._buf += _INT32.pack(value)
        except struct.error as error:
            raise _unfit(_INT32, (value,), error) from None

    def uint32(self, value: int) -> None:
        self.pack(_UINT32, value)

    def int64(self, value: int) -> None:
        self.pack(_INT64, value)

    def float64(self, value: float) -> None:
        self.pack(_FLOAT64, value)

    def uuid(self, value: UUID) -> None:
        self._buf += value.int.to_bytes(16, "big")  # ``value.bytes`` is a call more

    # --- varints ---------------------------------------------------------------------------------------------------

    def uvarint(self, value: int) -> None:
        """Write an unsigned 32-bit integer in one to five bytes."""
        if 0 <= value < 0x80:
            self._buf.append(value)
        else:
            self._long_uvarint(value, _MAX_UINT32)

    def varint(self, value: int) -> None:
        """Write a signed 32-bit integer in zigzag encoding."""
        self._long_uvarint((value << 1) ^ (value >> 31), _MAX_UINT32)

    def varlong(self, value: int) -> None:
        """Write a signed 64-bit integer in zigzag encoding, in one to ten bytes."""
        self._long_uvarint((value << 1) ^ (value >> 63), _MAX_UINT64)

    def _long_uvarint(self, value: int, max_value: int) -> None:
        if not 0 <= value <= max_value:
            raise LocalProtocolError(f"a number is out of the range of its varint: {value} of {max_value}")
        append = self._buf.append
        while value >= 0x80:
            append(value & 0x7F | 0x80)
            value >>= 7
        append(value)

    # --- strings and bytes -----------------------------------------------------------------------------------------

    def string(self, value: str, flexible: bool) -> None:
        try:
            data = value.encode()
        except AttributeError:
            raise LocalProtocolError(f"a string is needed here, not {value!r}") from None
        except UnicodeEncodeError as error:
            raise LocalProtocolError(f"a string cannot be written as UTF-8: {error.reason}") from None
        length = len(data)
        if length > _MAX_INT16:
            raise LocalProtocolError(f"a string of {length} bytes is too long, the limit is {_MAX_INT16}")
        if flexible:
            self.uvarint(length + 1)
        else:
            self._buf += _INT16.pack(length)
        self._buf += data

    def nullable_string(self, value: str | None, flexible: bool) -> None:
        if value is not None:
            self.string(value, flexible)
        elif flexible:
            self._buf.append(0)
        else:
            self._buf += b"\xff\xff"

    def bytes_(self, value: BytesLike, flexible: bool) -> None:
        try:
            self.array_length(len(value), flexible)
            self._buf += value
        except TypeError:
            raise LocalProtocolError(f"bytes are needed here, not a {type(value).__name__}") from None

    def nullable_bytes(self, value: BytesLike | None, flexible: bool) -> None:
        if value is None:
            self.array_length(-1, flexible)
        else:
            self.bytes_(value, flexible)

    def records(self, value: BytesLike | Sequence[BytesLike], flexible: bool) -> None:
        """Write records from one buffer or several.

        Large ones are not copied, so they must not change until they are sent.
        """
        segments = value if isinstance(value, (list, tuple)) else (value,)
        self.array_length(sum(map(len, segments)), flexible)
        for segment in segments:
            length = len(segment)
            if length < _COPY_BELOW:
                self._buf += segment
                continue
            if self._buf:
                self._sealed.append(self._buf)
            self._sealed.append(segment)
            self._sealed_size += len(self._buf) + length
            self._buf = bytearray()

    def nullable_records(self, value: BytesLike | Sequence[BytesLike] | None, flexible: bool) -> None:
        if value is None:
            self.array_length(-1, flexible)
        else:
            self.records(value, flexible)

    # --- arrays ----------------------------------------------------------------------------------------------------

    def array_length(self, length: int, flexible: bool) -> None:
        """Write the number of elements that follow; -1 is a null array."""
        if flexible:
            self.uvarint(length + 1)
        else:
            self._buf += _INT32.pack(length)

    def int32_array(self, values: Sequence[int], flexible: bool) -> None:
        length = len(values)
        self.array_length(length, flexible)
        try:
            self._buf += struct.pack(f">{length}i", *values)
        except struct.error as error:
            raise LocalProtocolError(f"an array cannot be written as int32: {error}") from None

    def nullable_int32_array(self, values: Sequence[int] | None, flexible: bool) -> None:
        if values is None:
            self.array_length(-1, flexible)
        else:
            self.int32_array(values, flexible)

    # --- tagged fields ---------------------------------------------------------------------------------------------

    def tags(self, tags: Tags | None) -> None:
        """Write a section of tagged fields from their bytes by tag, in the order of their tags."""
        if not tags:
            self._buf.append(0)
            return
        self.uvarint(len(tags))
        for tag in sorted(tags):
            data = tags[tag]
            self.uvarint(tag)
            self.uvarint(len(data))
            self._buf += data


def _unfit(layout: struct.Struct, values: tuple[Any, ...], error: struct.error) -> LocalProtocolError:
    return LocalProtocolError(f"{values!r} cannot be written as {layout.format!r}: {error}")


use_compiled(__name__)
