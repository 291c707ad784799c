"""Compression and decompression of record batches (Java: CompressionType, Compression, CompressionRatioEstimator).

A codec library is imported when the first batch needs it. If it is missing, UnsupportedCompressionTypeError names the
package to install. A codec library's errors about bad input become CorruptRecordError.

Every installation has cramjam (which python-snappy brings) for lz4, and for zstd ``compression.zstd``, or its backport
for Python before 3.14. The packages lz4 and zstandard take less CPU for small batches, as they need no new context for
each, and are used where they are installed.

**Decompression bombs.** The broker bounds a batch's compressed size (``message.max.bytes``) but not its decompressed
size: 1 MiB of zstd can hold tens of GiB. Every decompression here runs in steps and stops once its output exceeds a
limit. The default limit of 256 MiB is 256 times the broker's default bound for a batch. That leaves room for the best
ratios of real records and for batches that are large on purpose, and it still fits a container of ordinary size. The
consumer's ``max.decompressed.batch.bytes`` sets the limit.

Thread: any. Compressors that are worth keeping (zstd: 10 times faster for small batches) are lent to one call at a
time; ``list.pop`` and ``list.append`` act as the lock.
"""
# ruff: noqa: ARG002 - the codecs share one signature, and few need all of it

from __future__ import annotations

import functools
import sys
import threading
import zlib
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from pykclient.clock import HERE
from pykclient.errors import CorruptRecordError, IllegalArgumentError, UnsupportedCompressionTypeError

if TYPE_CHECKING:
    from pykclient.serialization import Buffer


class CompressionType:
    """A codec: its ``id`` on the wire, its ``name`` in configurations, and its levels (KIP-390).

    There is one instance per codec, so compare with ``is``. Levels are None for codecs without levels.
    """

    __slots__ = ("default_level", "id", "max_level", "min_level", "name", "rate")

    NONE: ClassVar[CompressionType]
    GZIP: ClassVar[CompressionType]
    SNAPPY: ClassVar[CompressionType]
    LZ4: ClassVar[CompressionType]
    ZSTD: ClassVar[CompressionType]

    def __init__(
        self,
        id: int,
        name: str,
        min_level: int | None = None,
        max_level: int | None = None,
        default_level: int | None = None,
    ) -> None:
        self.id = id
        self.name = name
        self.min_level = min_level
        self.max_level = max_level
        self.default_level = default_level
        #: The initial estimate of the compression ratio.
        self.rate = 1.0

    @staticmethod
    def for_id(id: int) -> CompressionType:
        """Return the codec of a batch.

        Raises:
            CorruptRecordError: no version of Kafka defines ``id``.
        """
        if 0 <= id < len(COMPRESSION_TYPES):
            return COMPRESSION_TYPES[id]
        raise CorruptRecordError(
            f"compression type id {id} is not defined; known are 0 to {len(COMPRESSION_TYPES) - 1}"
        )

    @staticmethod
    def for_name(name: str) -> CompressionType:
        """Return the codec with this name in configurations.

        Raises:
            IllegalArgumentError: there is none.
        """
        for compression_type in COMPRESSION_TYPES:
            if compression_type.name == name:
                return compression_type
        names = ", ".join(known.name for known in COMPRESSION_TYPES)
        raise IllegalArgumentError(f"compression type {name!r} is not one of {names}")

    def ensure_level(self, level: int) -> int:
        """``level``, if the codec takes it; gzip's -1 means zlib's own default.

        Raises:
            IllegalArgumentError: it does not.
        """
        if self.min_level is None or self.max_level is None:
            raise IllegalArgumentError(f"compression type {self.name} has no levels")
        if not self.min_level <= level <= self.max_level and level != self.default_level:
            extra = "" if self.default_level is None or self.default_level >= self.min_level else " or -1"
            raise IllegalArgumentError(
                f"compression level {level} is outside {self.min_level} to {self.max_level}{extra} for {self.name}"
            )
        return level

    def __repr__(self) -> str:
        return f"CompressionType.{self.name.upper()}"

    def __str__(self) -> str:
        return self.name

    def __reduce__(self) -> str:
        return repr(self)


COMPRESSION_TYPES = (
    CompressionType(0, "none"),
    CompressionType(1, "gzip", 1, 9, -1),
    CompressionType(2, "snappy"),
    CompressionType(3, "lz4", 1, 17, 9),
    CompressionType(4, "zstd", -131072, 22, 3),
)
for _type in COMPRESSION_TYPES:
    setattr(CompressionType, _type.name.upper(), _type)


def not_installed(codec: str, package: str, error: ImportError) -> UnsupportedCompressionTypeError:
    return UnsupportedCompressionTypeError(
        f"{codec} needs a package that cannot be imported ({error}); install it: pip install {package}"
    )


def too_large(codec: str, size: int, limit: int) -> CorruptRecordError:
    return CorruptRecordError(
        f"{size} bytes of {codec} decompress to more than {limit} bytes; "
        "if that is intended, raise max.decompressed.batch.bytes"
    )


def unreadable(codec: str, error: Exception | str) -> CorruptRecordError:
    return CorruptRecordError(f"unreadable {codec} data: {error}")


COMPRESSION_RATIO_IMPROVING_STEP = 0.005
COMPRESSION_RATIO_DETERIORATE_STEP = 0.05


class CompressionRatioEstimator:
    """The ratio of compressed to uncompressed size, per topic and codec, for all producers of the process.

    Thread: any.
    """

    _lock: ClassVar = threading.Lock()  # guards: _ratios, except for reading a single number
    _ratios: ClassVar[dict[str, list[float]]] = {}

    @classmethod
    def estimation(cls, topic: str, compression_type: CompressionType) -> float:
        """Return the expected ratio; 1.0 for a topic without batches."""
        ratios = cls._ratios.get(topic)
        return compression_type.rate if ratios is None else ratios[compression_type.id]

    @classmethod
    def update_estimation(cls, topic: str, compression_type: CompressionType, observed_ratio: float) -> float:
        """Update the estimate with a batch's ratio, and return it."""
        with HERE.mark, cls._lock:
            ratios = cls._ratios.get(topic) or cls._of_topic(topic)
            current = ratios[compression_type.id]
            if observed_ratio > current:
                current = max(current + COMPRESSION_RATIO_DETERIORATE_STEP, observed_ratio)
            elif observed_ratio < current:
                current = max(current - COMPRESSION_RATIO_IMPROVING_STEP, observed_ratio)
            ratios[compression_type.id] = current
            return current

    @classmethod
    def set_estimation(cls, topic: str, compression_type: CompressionType, ratio: float) -> None:
        """Set the estimate, for example after the broker rejected a batch as too large."""
        with HERE.mark, cls._lock:
            cls._of_topic(topic)[compression_type.id] = ratio

    @classmethod
    def reset_estimation(cls, topic: str) -> None:
        """Reset the estimates of ``topic``."""
        with HERE.mark, cls._lock:
            cls._ratios.pop(topic, None)

    @classmethod
    def _of_topic(cls, topic: str) -> list[float]:
        ratios = cls._ratios.get(topic)
        if ratios is None:
            ratios = cls._ratios[topic] = [compression_type.rate for compression_type in COMPRESSION_TYPES]
        return ratios


DEFAULT_MAX_DECOMPRESSED_BYTES = 256 * 1024 * 1024


class Compression:
    """A codec (``type``) with its compression ``level`` (Java: Compression).

    Thread: any.
    """

    __slots__ = ("level", "type")

    def __init__(self, type: CompressionType, level: int | None) -> None:
        self.type = type
        self.level = level

    @staticmethod
    def of(compression_type: CompressionType | str, level: int | None = None) -> Compression:
        """Return the codec of a type or name.

        ``level`` defaults to Java's default for the codec.

        Raises:
            IllegalArgumentError: the name is unknown, or the codec does not support the level.
        """
        if isinstance(compression_type, str):
            compression_type = CompressionType.for_name(compression_type)
        if level is None:
            return default_compression(compression_type)
        return _CLASSES[compression_type.id](compression_type, compression_type.ensure_level(level))

    def compress(self, data: Buffer, magic: int = 2) -> bytes:
        """Return ``data`` compressed for a batch of format version ``magic``.

        Raises:
            UnsupportedCompressionTypeError: the codec's package is not installed.
        """
        raise NotImplementedError

    def decompress(self, data: Buffer, magic: int = 2, limit: int = DEFAULT_MAX_DECOMPRESSED_BYTES) -> bytes:
        """Return the decompressed bytes of ``data``, which comes from a batch of format version ``magic``.

        Raises:
            CorruptRecordError: ``data`` cannot be read, or its output is larger than ``limit`` bytes.
            UnsupportedCompressionTypeError: the codec's package is not installed.
        """
        raise NotImplementedError

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Compression) and (self.type, self.level) == (other.type, other.level)

    def __hash__(self) -> int:
        return hash((self.type.id, self.level))

    def __repr__(self) -> str:
        return (
            f"Compression({self.type.name})" if self.level is None else f"Compression({self.type.name}, {self.level})"
        )


class NoCompression(Compression):
    """The codec that leaves bytes unchanged."""

    __slots__ = ()

    def compress(self, data: Buffer, magic: int = 2) -> bytes:
        return bytes(data)

    def decompress(self, data: Buffer, magic: int = 2, limit: int = DEFAULT_MAX_DECOMPRESSED_BYTES) -> bytes:
        return bytes(data)


#: The libraries copy the bytes that follow a member, so thousands of empty members would take quadratic time.
_MAX_MEMBERS = 64


def _joined_members(
    codec: str, data: Buffer, limit: int, new_decompressor: Callable[[], Any], error_type: type[Exception]
) -> bytes:
    """Decompress the members, or frames, that follow each other in ``data``.

    Raises:
        CorruptRecordError: they cannot be decompressed, are too many, or are more than ``limit`` bytes.
    """
    chunks: list[bytes] = []
    total = 0
    rest: Buffer = data
    while len(rest) or not chunks:
        if len(chunks) == _MAX_MEMBERS:
            raise unreadable(codec, f"more than {_MAX_MEMBERS} members or frames")
        member = new_decompressor()
        try:
            chunk = member.decompress(rest, limit - total + 1)
        except error_type as error:
            raise unreadable(codec, error) from error
        total += len(chunk)
        if total > limit:
            raise too_large(codec, len(data), limit)
        if not member.eof:
            raise unreadable(codec, "it ends early")
        chunks.append(chunk)
        rest = member.unused_data
    return chunks[0] if len(chunks) == 1 else b"".join(chunks)


class GzipCompression(Compression):
    """zlib with gzip's header; concatenated members are read as one."""

    __slots__ = ()

    def compress(self, data: Buffer, magic: int = 2) -> bytes:
        level = -1 if self.level is None else self.level
        compressor = zlib.compressobj(level, zlib.DEFLATED, zlib.MAX_WBITS | 16)
        return compressor.compress(data) + compressor.flush()

    def decompress(self, data: Buffer, magic: int = 2, limit: int = DEFAULT_MAX_DECOMPRESSED_BYTES) -> bytes:
        return _joined_members("gzip", data, limit, lambda: zlib.decompressobj(zlib.MAX_WBITS | 16), zlib.error)


class SnappyCompression(Compression):
    """Raw snappy blocks in the framing of Java's snappy library (Xerial); a single raw block can be read too."""

    __slots__ = ()

    _HEADER = b"\x82SNAPPY\x00"
    _HEADER_SIZE = 16
    _BLOCK_SIZE = 32 * 1024

    def compress(self, data: Buffer, magic: int = 2) -> bytes:
        snappy = self._library()
        view = memoryview(data)
        # Version 1, compatible with all readers since version 1.
        parts = [self._HEADER + b"\x00\x00\x00\x01\x00\x00\x00\x01"]
        for start in range(0, len(view), self._BLOCK_SIZE):
            block = bytes(snappy.compress(bytes(view[start : start + self._BLOCK_SIZE])))
            parts += (len(block).to_bytes(4, "big"), block)
        return b"".join(parts)

    def decompress(self, data: Buffer, magic: int = 2, limit: int = DEFAULT_MAX_DECOMPRESSED_BYTES) -> bytes:
        snappy = self._library()
        data = bytes(data)
        chunks = []
        total = 0
        for block in self._blocks(data):
            total += self._declared_size(block)
            if total > limit:
                raise too_large("snappy", len(data), limit)
            try:
                chunks.append(bytes(snappy.uncompress(block)))
            except snappy.UncompressError as error:
                raise unreadable("snappy", error) from error
        return chunks[0] if len(chunks) == 1 else b"".join(chunks)

    @staticmethod
    def _library() -> Any:
        try:
            import snappy  # type: ignore[import-untyped]
        except ImportError as error:
            raise not_installed("snappy", "python-snappy", error) from error
        return snappy

    def _blocks(self, data: bytes) -> Iterator[bytes]:
        if not data.startswith(self._HEADER):
            yield data
            return
        pos = 0
        end = len(data)
        while pos + 4 <= end:
            if data.startswith(self._HEADER, pos):
                # The header is at the start, and again wherever streams were concatenated.
                pos += self._HEADER_SIZE
                continue
            size = int.from_bytes(data[pos : pos + 4], "big")
            pos += 4
            if size > end - pos:
                raise unreadable("snappy", f"a block of {size} bytes where {end - pos} are left")
            yield data[pos : pos + size]
            pos += size

    @staticmethod
    def _declared_size(block: bytes) -> int:
        """Return the decompressed size that a block declares.

        The size is an unsigned varint at the start of the block, so it is known before memory is allocated for it.
        """
        declared = 0
        for index in range(5):
            if index == len(block):
                raise unreadable("snappy", "it ends early")
            declared |= (block[index] & 0x7F) << 7 * index
            if block[index] < 0x80:
                break
        else:
            raise unreadable("snappy", "a block's size has more than 5 bytes")
        # The densest element encodes 64 bytes in 3; no real data comes near 32 to 1.
        if declared > 32 * len(block):
            raise unreadable("snappy", f"{len(block)} bytes cannot hold the {declared} that they declare")
        return declared


class Lz4Compression(Compression):
    """LZ4 frames as Java writes them: independent blocks of 64 KiB, no checksums, no content size.

    In format v0, the checksum of the frame header covers four bytes too many (KAFKA-3160). This codec writes that
    checksum and ignores it on reading. Java's level 9, the default, is the fast compressor here. All other levels are
    the high compressor, whose levels here are 3 to 12.
    """

    __slots__ = ("_compress",)

    _FRAME_MAGIC = b"\x04\x22\x4d\x18"
    _CONTENT_SIZE_FLAG = 0x08

    def __init__(self, type: CompressionType, level: int | None) -> None:
        super().__init__(type, level)
        self._compress: Callable[[Buffer], bytes] | None = None

    def compress(self, data: Buffer, magic: int = 2) -> bytes:
        compress = self._compress
        if compress is None:
            level = None if self.level in (9, None) else min(max(self.level, 3), 12)
            compress = self._compress = lz4_engine().compressor(level)
        compressed = compress(data)
        if magic == 0:
            return compressed[:6] + bytes((_frame_checksum(compressed[:6]),)) + compressed[7:]
        return compressed

    def decompress(self, data: Buffer, magic: int = 2, limit: int = DEFAULT_MAX_DECOMPRESSED_BYTES) -> bytes:
        engine = lz4_engine()
        if magic == 0:
            data = self._with_right_checksum(bytes(data))
        return engine.decompress(data, limit)

    def _with_right_checksum(self, data: bytes) -> bytes:
        if len(data) < 7 or not data.startswith(self._FRAME_MAGIC):
            raise unreadable("lz4", "no frame header")
        end = 14 if data[4] & self._CONTENT_SIZE_FLAG else 6
        return data[:end] + bytes((_frame_checksum(data[4:end]),)) + data[end + 1 :]


def _frame_checksum(header: bytes) -> int:
    """Return the checksum byte of an LZ4 frame header: the second byte of its xxHash32.

    xxHash32 is this short for inputs below 16 bytes.
    """
    mask = 0xFFFFFFFF
    digest = 374761393 + len(header) & mask
    whole = len(header) & ~3
    for pos in range(0, whole, 4):
        digest = digest + int.from_bytes(header[pos : pos + 4], "little") * 3266489917 & mask
        digest = (digest << 17 | digest >> 15) * 668265263 & mask
    for byte in header[whole:]:
        digest = digest + byte * 374761393 & mask
        digest = (digest << 11 | digest >> 21 & 0x7FF) * 2654435761 & mask
    digest = (digest ^ digest >> 15) * 2246822519 & mask
    digest = (digest ^ digest >> 13) * 3266489917 & mask
    return (digest ^ digest >> 16) >> 8 & 0xFF


class ZstdCompression(Compression):
    """Zstandard frames, for format v2 only."""

    __slots__ = ("_idle",)

    def __init__(self, type: CompressionType, level: int | None) -> None:
        super().__init__(type, level)
        self._idle: list[Callable[[Buffer], bytes]] = []

    def compress(self, data: Buffer, magic: int = 2) -> bytes:
        try:
            compress = self._idle.pop()
        except IndexError:
            level = self.type.default_level if self.level is None else self.level
            assert level is not None
            compress = zstd_engine().compressor(level)
        compressed = compress(data)
        self._idle.append(compress)
        return compressed

    def decompress(self, data: Buffer, magic: int = 2, limit: int = DEFAULT_MAX_DECOMPRESSED_BYTES) -> bytes:
        return zstd_engine().decompress(data, limit)


_CLASSES: tuple[type[Compression], ...] = (
    NoCompression,
    GzipCompression,
    SnappyCompression,
    Lz4Compression,
    ZstdCompression,
)
_DEFAULTS = (
    NoCompression(CompressionType.NONE, None),
    GzipCompression(CompressionType.GZIP, CompressionType.GZIP.default_level),
    SnappyCompression(CompressionType.SNAPPY, None),
    Lz4Compression(CompressionType.LZ4, CompressionType.LZ4.default_level),
    ZstdCompression(CompressionType.ZSTD, CompressionType.ZSTD.default_level),
)
NO_COMPRESSION: Compression = _DEFAULTS[0]


def default_compression(compression_type: CompressionType) -> Compression:
    """Return the codec of that type with Java's default level; enough for decompression, which ignores the level."""
    return _DEFAULTS[compression_type.id]


@functools.cache
def _keep_freed_memory() -> None:
    """Make the C library keep the memory of decompressed batches for reuse. Called once per process.

    glibc returns blocks above a threshold, initially 128 KiB, to the kernel when they are freed, and then raises the
    threshold to the size of such a block. Without this call each batch causes page faults, which are a third of the
    time to read lz4.
    """
    bytearray(4 << 20)


def decompressed(codec: int, data: Buffer, limit: int = DEFAULT_MAX_DECOMPRESSED_BYTES) -> bytes:
    """Return the records of a batch of format 2, from which ``data`` was compressed with the codec of this id.

    Raises:
        CorruptRecordError: no version of Kafka defines the id, the records cannot be decompressed, or they are more
            than ``limit`` bytes.
        UnsupportedCompressionTypeError: the codec's package is not installed.
    """
    if codec:
        _keep_freed_memory()
    return default_compression(CompressionType.for_id(codec)).decompress(data, limit=limit)


_MIN_STEP = 64 * 1024


def _first_step(size: int) -> int:
    """Return how many bytes of output to request first; most batches decompress in one step."""
    return max(_MIN_STEP, 4 * size)


class Lz4Engine(Protocol):
    """A library for lz4. ``decompress`` stops before it has allocated much more than ``limit`` bytes."""

    def compressor(self, level: int | None) -> Callable[[Buffer], bytes]:
        """Return a function for any thread that compresses data to a frame of independent blocks of 64 KiB.

        ``level`` is 3 to 12, or None for the fast compressor.
        """

    def decompress(self, data: Buffer, limit: int) -> bytes: ...


class Lz4Package:
    """The package lz4."""

    def __init__(self) -> None:
        import lz4.frame  # type: ignore[import-untyped]

        self._frame: Any = lz4.frame

    def compressor(self, level: int | None) -> Callable[[Buffer], bytes]:
        return partial(
            self._frame.compress,
            compression_level=level or 0,
            block_size=self._frame.BLOCKSIZE_MAX64KB,
            block_linked=False,
            store_size=False,
        )

    def decompress(self, data: Buffer, limit: int) -> bytes:
        decompressor = self._frame.LZ4FrameDecompressor()
        chunks: list[bytes] = []
        total = 0
        step = _first_step(len(data))
        pending: Buffer = data
        try:
            while not decompressor.eof:
                chunk = decompressor.decompress(pending, min(step, limit - total + 1))
                total += len(chunk)
                if total > limit:
                    raise too_large("lz4", len(data), limit)
                chunks.append(chunk)
                if not chunk and decompressor.needs_input and not decompressor.eof:
                    raise unreadable("lz4", "it ends early")
                pending = b""
                step *= 4
        except (RuntimeError, EOFError) as error:
            raise unreadable("lz4", error) from error
        return chunks[0] if len(chunks) == 1 else b"".join(chunks)


class CramjamLz4:
    """LZ4 by cramjam's block compressor, with the frame parameters of Java."""

    #: The magic number; version 1 with independent blocks; blocks of 64 KiB; the header's checksum.
    _HEADER = b"\x04\x22\x4d\x18\x60\x40\x82"
    _BLOCK_SIZE = 64 * 1024
    _END = b"\x00\x00\x00\x00"
    #: The bit in a block's size that says that it is not compressed.
    _STORED = 1 << 31
    _BLOCK_CHECKSUM, _CONTENT_SIZE, _CONTENT_CHECKSUM, _DICTIONARY = 0x10, 0x08, 0x04, 0x01

    def __init__(self) -> None:
        import cramjam

        self._library: Any = cramjam.lz4
        self._error = cramjam.DecompressionError

    def compressor(self, level: int | None) -> Callable[[Buffer], bytes]:
        return self._compress if level is None else partial(self._compress_better, level)

    def _compress(self, data: Buffer) -> bytes:
        view = memoryview(data)
        parts: list[Any] = [self._HEADER]
        for start in range(0, len(view), self._BLOCK_SIZE):
            block = view[start : start + self._BLOCK_SIZE]
            compressed = self._library.compress_block(block, store_size=False)
            if len(compressed) < len(block):
                parts += (len(compressed).to_bytes(4, "little"), compressed)
            else:
                parts += ((len(block) | self._STORED).to_bytes(4, "little"), block)
        parts.append(self._END)
        return b"".join(parts)

    def _compress_better(self, level: int, data: Buffer) -> bytes:
        """Compress with cramjam's own frames, as its blocks know no levels, and leave out the checksums of blocks."""
        compressor = self._library.Compressor(level=level, content_checksum=False, block_linked=False)
        compressor.compress(bytes(data))  # it takes no other buffer
        frame = bytes(compressor.finish())
        checksum_size = 4 if frame[4] & self._BLOCK_CHECKSUM else 0
        parts = [self._HEADER]
        pos = len(self._HEADER)
        while size := int.from_bytes(frame[pos : pos + 4], "little"):
            end = pos + 4 + (size & ~self._STORED)
            parts.append(frame[pos:end])
            pos = end + checksum_size
        parts.append(self._END)
        return b"".join(parts)

    def decompress(self, data: Buffer, limit: int) -> bytes:
        size, most = self._measure(data)
        output = bytearray(min(most, limit + 1))
        try:
            written = self._library.decompress_into(memoryview(data)[:size], output) if output else 0
        except self._error as error:
            if len(output) > limit and "whole buffer" in str(error):
                raise too_large("lz4", len(data), limit) from None
            raise unreadable("lz4", error) from error
        if written > limit:
            raise too_large("lz4", len(data), limit)
        return bytes(memoryview(output)[:written])

    def _measure(self, data: Buffer) -> tuple[int, int]:
        """Return the size of the frame with which ``data`` begins, and the most bytes that it can decompress to."""
        if len(data) < 7 or data[:4] != self._HEADER[:4]:
            raise unreadable("lz4", "no frame header")
        flags = data[4]
        block_size = 1 << 8 + 2 * (data[5] >> 4 & 7)
        pos = 7 + (8 if flags & self._CONTENT_SIZE else 0) + (4 if flags & self._DICTIONARY else 0)
        checksum_size = 4 if flags & self._BLOCK_CHECKSUM else 0
        most = 0
        while pos + 4 <= len(data):
            size = int.from_bytes(data[pos : pos + 4], "little")
            pos += 4
            if not size:
                pos += 4 if flags & self._CONTENT_CHECKSUM else 0
                if pos > len(data):
                    break
                return pos, most
            most += min(size ^ self._STORED, block_size) if size & self._STORED else block_size
            pos += (size & ~self._STORED) + checksum_size
        raise unreadable("lz4", "it ends early")


class ZstdEngine(Protocol):
    def compressor(self, level: int) -> Callable[[Buffer], bytes]:
        """Return a compressing function for one thread at a time. It must not be reused after an error."""

    def decompress(self, data: Buffer, limit: int) -> bytes: ...


#: Zstd chooses its parameters by level and size. At level 3, Kafka's default, it searches for matches of 4 bytes in
#: data of 128 to 256 KiB, and of 5 bytes in smaller and larger data. Those of 4 bytes take up to 1.4 times the CPU, and
#: most records become larger.
_LEVEL_3 = 3
_SMALL_BYTES = 128 * 1024
_LARGE_DATA = {"compression_level": _LEVEL_3, "min_match": 5, "hash_log": 17}


def _by_size(
    level: int, compress: Callable[[Buffer], bytes], of_large: Callable[[], Callable[[Buffer], bytes]]
) -> Callable[[Buffer], bytes]:
    """Return a function that compresses data of more than 128 KiB with ``of_large()`` if the level is 3."""
    if level != _LEVEL_3:
        return compress
    compress_large: Callable[[Buffer], bytes] | None = None

    def compress_either(data: Buffer) -> bytes:
        nonlocal compress_large
        if len(data) <= _SMALL_BYTES:
            return compress(data)
        if compress_large is None:
            compress_large = of_large()
        return compress_large(data)

    return compress_either


class ZstandardPackage:
    """zstd by the package zstandard, with reusable decompressors, each for one call at a time."""

    def __init__(self) -> None:
        import zstandard

        self._library = zstandard
        self._idle: list[Any] = []

    def compressor(self, level: int) -> Callable[[Buffer], bytes]:
        library = self._library

        def of_large() -> Callable[[Buffer], bytes]:
            parameters = library.ZstdCompressionParameters(**_LARGE_DATA)
            compress: Callable[[Buffer], bytes] = library.ZstdCompressor(compression_params=parameters).compress
            return compress

        return _by_size(level, library.ZstdCompressor(level=level).compress, of_large)

    def decompress(self, data: Buffer, limit: int) -> bytes:
        try:
            decompressor = self._idle.pop()
        except IndexError:
            decompressor = self._library.ZstdDecompressor()
        chunks: list[bytes] = []
        total = 0
        step = _first_step(len(data))
        try:
            reader = decompressor.stream_reader(data, read_across_frames=True)
            while chunk := reader.read(min(step, limit - total + 1)):
                total += len(chunk)
                if total > limit:
                    raise too_large("zstd", len(data), limit)
                chunks.append(chunk)
                step *= 4
        except self._library.ZstdError as error:
            raise unreadable("zstd", error) from error
        self._idle.append(decompressor)
        return chunks[0] if len(chunks) == 1 else b"".join(chunks)


class StandardZstd:
    """``compression.zstd`` of Python 3.14, or backports.zstd."""

    def __init__(self) -> None:
        if sys.version_info >= (3, 14):
            from compression import zstd
        else:
            from backports import zstd
        self._library: Any = zstd

    def compressor(self, level: int) -> Callable[[Buffer], bytes]:
        parameter = self._library.CompressionParameter

        def of_large() -> Callable[[Buffer], bytes]:
            return self._compress({getattr(parameter, name): value for name, value in _LARGE_DATA.items()})

        return _by_size(level, self._compress({parameter.compression_level: level}), of_large)

    def _compress(self, options: dict[Any, int]) -> Callable[[Buffer], bytes]:
        compressor = self._library.ZstdCompressor(options=options)
        flush = compressor.FLUSH_FRAME

        def compress(data: Buffer) -> bytes:
            compressed: bytes = compressor.compress(data, flush)
            return compressed

        return compress

    def decompress(self, data: Buffer, limit: int) -> bytes:
        library = self._library
        return _joined_members("zstd", data, limit, library.ZstdDecompressor, library.ZstdError)


_engines: dict[str, Any] = {}


def _first(codec: str, package: str, engines: tuple[Callable[[], Any], ...]) -> Any:
    if codec not in _engines:
        missing: ImportError | None = None
        for engine in engines:
            try:
                _engines[codec] = engine()
                break
            except ImportError as error:
                missing = error
        else:
            assert missing is not None
            raise not_installed(codec, package, missing) from missing
    return _engines[codec]


def lz4_engine() -> Lz4Engine:
    """Return the library for lz4.

    Raises:
        UnsupportedCompressionTypeError: there is none.
    """
    engine: Lz4Engine = _first("lz4", "cramjam", (Lz4Package, CramjamLz4))
    return engine


def zstd_engine() -> ZstdEngine:
    """Return the library for zstd.

    Raises:
        UnsupportedCompressionTypeError: there is none.
    """
    package = "zstandard" if sys.version_info >= (3, 14) else "backports.zstd"
    engine: ZstdEngine = _first("zstd", package, (ZstandardPackage, StandardZstd))
    return engine
