"""Compressing and decompressing what batches hold (Java: common.compress).

Codec libraries are imported by the first batch that needs them; a missing one raises UnsupportedCompressionTypeError
that names the package to install. What a codec library says about bad input becomes CorruptRecordError.

**Bombs.** A batch's compressed size is bounded by the broker (``message.max.bytes``), its real size by nobody: 1 MiB of
zstd can stand for tens of GiB. Every decompression here goes on in steps and stops past ``max_decompressed_bytes``.
The default of 256 MiB is 256 times the broker's default bound for a batch, which leaves room for the best ratios that
real records reach and for batches that were made large on purpose, and it still fits a container of ordinary size.
The consumer's ``max.decompressed.batch.bytes`` sets it.

Thread: any. Compressors and decompressors that are worth keeping (zstd: 10 times faster for small batches) are lent out
to one call at a time; ``list.pop`` and ``list.append`` are the lock.
"""
# ruff: noqa: ARG002 - the codecs share one signature, and few need all of it

from __future__ import annotations

import zlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from pykclient.errors import CorruptRecordError, UnsupportedCompressionTypeError
from pykclient.record.compression_type import CompressionType

if TYPE_CHECKING:
    from pykclient.record.record_batch import Buffer

DEFAULT_MAX_DECOMPRESSED_BYTES = 256 * 1024 * 1024

_MIN_STEP = 64 * 1024


def _not_installed(codec: str, package: str, error: ImportError) -> UnsupportedCompressionTypeError:
    return UnsupportedCompressionTypeError(
        f"{codec} needs a package that cannot be imported ({error}); install it: pip install {package}"
    )


def _too_large(codec: str, size: int, limit: int) -> CorruptRecordError:
    return CorruptRecordError(
        f"{size} bytes of {codec} hold more than {limit}; if they are meant to, raise max.decompressed.batch.bytes"
    )


def _unreadable(codec: str, error: Exception | str) -> CorruptRecordError:
    return CorruptRecordError(f"unreadable {codec} data: {error}")


def _first_step(size: int) -> int:
    """How much output to ask for at first: most batches come out in one piece."""
    return max(_MIN_STEP, 4 * size)


class Compression:
    """A codec with its level (Java: Compression). ``type`` and ``level`` tell which. Thread: any."""

    __slots__ = ("level", "type")

    def __init__(self, type: CompressionType, level: int | None) -> None:
        self.type = type
        self.level = level

    @staticmethod
    def of(compression_type: CompressionType | str, level: int | None = None) -> Compression:
        """The codec of that type or name; ``level`` None is Java's default for it.

        Raises:
            IllegalArgumentError: an unknown name, or a level that the codec does not take.
        """
        if isinstance(compression_type, str):
            compression_type = CompressionType.for_name(compression_type)
        if level is None:
            return default_compression(compression_type)
        return _CLASSES[compression_type.id](compression_type, compression_type.ensure_level(level))

    def compress(self, data: Buffer, magic: int = 2) -> bytes:
        """``data`` compressed for a batch of format ``magic``.

        Raises:
            UnsupportedCompressionTypeError: the codec's package is not installed.
        """
        raise NotImplementedError

    def decompress(self, data: Buffer, magic: int = 2, limit: int = DEFAULT_MAX_DECOMPRESSED_BYTES) -> bytes:
        """What ``data``, from a batch of format ``magic``, stands for.

        Raises:
            CorruptRecordError: it cannot be read, or it holds more than ``limit`` bytes.
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
    """Bytes as they are."""

    __slots__ = ()

    def compress(self, data: Buffer, magic: int = 2) -> bytes:
        return bytes(data)

    def decompress(self, data: Buffer, magic: int = 2, limit: int = DEFAULT_MAX_DECOMPRESSED_BYTES) -> bytes:
        return bytes(data)


class GzipCompression(Compression):
    """zlib with gzip's header. Several members in a row are read as one."""

    __slots__ = ()

    #: zlib copies what follows a member, so that thousands of empty ones would take forever.
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
                raise _unreadable("gzip", f"more than {self._MAX_MEMBERS} members")
            member = zlib.decompressobj(zlib.MAX_WBITS | 16)
            try:
                chunk = member.decompress(rest, limit - total + 1)
            except zlib.error as error:
                raise _unreadable("gzip", error) from error
            total += len(chunk)
            if total > limit:
                raise _too_large("gzip", len(data), limit)
            if not member.eof:
                raise _unreadable("gzip", "it ends early")
            chunks.append(chunk)
            rest = member.unused_data
        return chunks[0] if len(chunks) == 1 else b"".join(chunks)


class SnappyCompression(Compression):
    """Raw snappy blocks in the frame of Java's snappy library (Xerial); a single raw block is read too."""

    __slots__ = ()

    _HEADER = b"\x82SNAPPY\x00"
    _HEADER_SIZE = 16
    _BLOCK_SIZE = 32 * 1024

    def compress(self, data: Buffer, magic: int = 2) -> bytes:
        snappy = self._library()
        view = memoryview(data)
        # Version 1, readable by all from version 1 on.
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
                raise _too_large("snappy", len(data), limit)
            try:
                chunks.append(bytes(snappy.uncompress(block)))
            except snappy.UncompressError as error:
                raise _unreadable("snappy", error) from error
        return chunks[0] if len(chunks) == 1 else b"".join(chunks)

    @staticmethod
    def _library() -> Any:
        try:
            import snappy  # type: ignore[import-untyped]
        except ImportError as error:
            raise _not_installed("snappy", "python-snappy", error) from error
        return snappy

    def _blocks(self, data: bytes) -> Iterator[bytes]:
        if not data.startswith(self._HEADER):
            yield data
            return
        pos = 0
        end = len(data)
        while pos + 4 <= end:
            if data.startswith(self._HEADER, pos):
                # At the start, and where streams are put one after the other.
                pos += self._HEADER_SIZE
                continue
            size = int.from_bytes(data[pos : pos + 4], "big")
            pos += 4
            if size > end - pos:
                raise _unreadable("snappy", f"a block of {size} bytes where {end - pos} are left")
            yield data[pos : pos + size]
            pos += size

    @staticmethod
    def _declared_size(block: bytes) -> int:
        """What a block says it holds, in an unsigned varint at its start: known before memory is taken for it."""
        declared = 0
        for index in range(5):
            if index == len(block):
                raise _unreadable("snappy", "it ends early")
            declared |= (block[index] & 0x7F) << 7 * index
            if block[index] < 0x80:
                break
        else:
            raise _unreadable("snappy", "a block's size has more than 5 bytes")
        # The densest element copies 64 bytes and takes 3; nothing real comes near 32 to 1.
        if declared > 32 * len(block):
            raise _unreadable("snappy", f"{len(block)} bytes cannot hold the {declared} that they declare")
        return declared


class Lz4Compression(Compression):
    """LZ4 frames as Java writes them: independent blocks of 64 KiB, no checksums, no content size.

    Format v0 has a frame header whose checksum covers four bytes too many (KAFKA-3160): written so, and on reading
    not looked at. Java's level 9, the default, is the fast compressor; all others are the high compressor, whose scale
    goes from 3 to 12 here.
    """

    __slots__ = ()

    _FRAME_MAGIC = b"\x04\x22\x4d\x18"
    _CONTENT_SIZE_FLAG = 0x08

    def compress(self, data: Buffer, magic: int = 2) -> bytes:
        frame = self._library()
        compressed: bytes = frame.compress(
            data,
            compression_level=0 if self.level in (9, None) else min(max(self.level, 3), 12),
            block_size=frame.BLOCKSIZE_MAX64KB,
            block_linked=False,
            store_size=False,
        )
        if magic == 0:
            return compressed[:6] + bytes((_frame_checksum(compressed[:6]),)) + compressed[7:]
        return compressed

    def decompress(self, data: Buffer, magic: int = 2, limit: int = DEFAULT_MAX_DECOMPRESSED_BYTES) -> bytes:
        frame = self._library()
        if magic == 0:
            data = self._with_right_checksum(bytes(data))
        decompressor = frame.LZ4FrameDecompressor()
        chunks: list[bytes] = []
        total = 0
        step = _first_step(len(data))
        pending: Buffer = data
        try:
            while not decompressor.eof:
                chunk = decompressor.decompress(pending, min(step, limit - total + 1))
                total += len(chunk)
                if total > limit:
                    raise _too_large("lz4", len(data), limit)
                chunks.append(chunk)
                if not chunk and decompressor.needs_input and not decompressor.eof:
                    raise _unreadable("lz4", "it ends early")
                pending = b""
                step *= 4
        except (RuntimeError, EOFError) as error:
            raise _unreadable("lz4", error) from error
        return chunks[0] if len(chunks) == 1 else b"".join(chunks)

    @staticmethod
    def _library() -> Any:
        try:
            import lz4.frame  # type: ignore[import-untyped]
        except ImportError as error:
            raise _not_installed("lz4", "lz4", error) from error
        return lz4.frame

    def _with_right_checksum(self, data: bytes) -> bytes:
        if len(data) < 7 or not data.startswith(self._FRAME_MAGIC):
            raise _unreadable("lz4", "no frame header")
        end = 14 if data[4] & self._CONTENT_SIZE_FLAG else 6
        return data[:end] + bytes((_frame_checksum(data[4:end]),)) + data[end + 1 :]


def _frame_checksum(header: bytes) -> int:
    """The checksum byte of an LZ4 frame header: the second byte of xxHash32, which for < 16 bytes is this short."""
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
    """Zstandard frames. Not for v0 and v1."""

    __slots__ = ("_idle",)

    def __init__(self, type: CompressionType, level: int | None) -> None:
        super().__init__(type, level)
        self._idle: list[Any] = []

    def compress(self, data: Buffer, magic: int = 2) -> bytes:
        zstandard = self._library()
        try:
            compressor = self._idle.pop()
        except IndexError:
            level = self.type.default_level if self.level is None else self.level
            compressor = zstandard.ZstdCompressor(level=level)
        compressed: bytes = compressor.compress(data)
        self._idle.append(compressor)
        return compressed

    def decompress(self, data: Buffer, magic: int = 2, limit: int = DEFAULT_MAX_DECOMPRESSED_BYTES) -> bytes:
        zstandard = self._library()
        try:
            decompressor = _IDLE_ZSTD_DECOMPRESSORS.pop()
        except IndexError:
            decompressor = zstandard.ZstdDecompressor()
        chunks: list[bytes] = []
        total = 0
        step = _first_step(len(data))
        try:
            reader = decompressor.stream_reader(data, read_across_frames=True)
            while chunk := reader.read(min(step, limit - total + 1)):
                total += len(chunk)
                if total > limit:
                    raise _too_large("zstd", len(data), limit)
                chunks.append(chunk)
                step *= 4
        except zstandard.ZstdError as error:
            raise _unreadable("zstd", error) from error
        _IDLE_ZSTD_DECOMPRESSORS.append(decompressor)
        return chunks[0] if len(chunks) == 1 else b"".join(chunks)

    @staticmethod
    def _library() -> Any:
        try:
            import zstandard
        except ImportError as error:
            raise _not_installed("zstd", "zstandard", error) from error
        return zstandard


_IDLE_ZSTD_DECOMPRESSORS: list[Any] = []

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
    """The codec of that type with Java's default level; all that reading needs."""
    return _DEFAULTS[compression_type.id]
