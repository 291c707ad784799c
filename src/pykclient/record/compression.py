"""Compression and decompression of record batches (Java: common.compress).

A codec library is imported when the first batch needs it (``codec_engines``). If it is missing,
UnsupportedCompressionTypeError names the package to install. A codec library's errors about bad input become
CorruptRecordError.

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
import zlib
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from pykclient.record.compression_type import CompressionType, not_installed, too_large, unreadable

if TYPE_CHECKING:
    from pykclient.record.record_batch import Buffer

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


class GzipCompression(Compression):
    """zlib with gzip's header; concatenated members are read as one."""

    __slots__ = ()

    #: zlib copies the bytes that follow a member, so thousands of empty members would take quadratic time.
    _MAX_MEMBERS = 64

    def compress(self, data: Buffer, magic: int = 2) -> bytes:
        level = -1 if self.level is None else self.level
        compressor = zlib.compressobj(level, zlib.DEFLATED, zlib.MAX_WBITS | 16)
        return compressor.compress(data) + compressor.flush()

    def decompress(self, data: Buffer, magic: int = 2, limit: int = DEFAULT_MAX_DECOMPRESSED_BYTES) -> bytes:
        chunks: list[bytes] = []
        total = 0
        rest: Buffer = data
        while len(rest) or not chunks:
            if len(chunks) == self._MAX_MEMBERS:
                raise unreadable("gzip", f"more than {self._MAX_MEMBERS} members")
            member = zlib.decompressobj(zlib.MAX_WBITS | 16)
            try:
                chunk = member.decompress(rest, limit - total + 1)
            except zlib.error as error:
                raise unreadable("gzip", error) from error
            total += len(chunk)
            if total > limit:
                raise too_large("gzip", len(data), limit)
            if not member.eof:
                raise unreadable("gzip", "it ends early")
            chunks.append(chunk)
            rest = member.unused_data
        return chunks[0] if len(chunks) == 1 else b"".join(chunks)


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
            from pykclient.record.codec_engines import lz4_engine

            level = None if self.level in (9, None) else min(max(self.level, 3), 12)
            compress = self._compress = lz4_engine().compressor(level)
        compressed = compress(data)
        if magic == 0:
            return compressed[:6] + bytes((_frame_checksum(compressed[:6]),)) + compressed[7:]
        return compressed

    def decompress(self, data: Buffer, magic: int = 2, limit: int = DEFAULT_MAX_DECOMPRESSED_BYTES) -> bytes:
        from pykclient.record.codec_engines import lz4_engine

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
            from pykclient.record.codec_engines import zstd_engine

            level = self.type.default_level if self.level is None else self.level
            assert level is not None
            compress = zstd_engine().compressor(level)
        compressed = compress(data)
        self._idle.append(compress)
        return compressed

    def decompress(self, data: Buffer, magic: int = 2, limit: int = DEFAULT_MAX_DECOMPRESSED_BYTES) -> bytes:
        from pykclient.record.codec_engines import zstd_engine

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
