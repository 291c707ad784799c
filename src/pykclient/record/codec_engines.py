"""The libraries behind the codecs lz4 and zstd: for each codec the first that can be imported.

Every installation has cramjam (which python-snappy brings) for lz4, and for zstd ``compression.zstd``, or its backport
for Python before 3.14. The packages lz4 and zstandard take less CPU for small batches, as they need no new context for
each, and are used where they are installed.

An engine's ``decompress(data, limit)`` raises CorruptRecordError for bad data, and for more than ``limit`` bytes of
output, before it has allocated much more than that.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from pykclient.record.compression_type import not_installed, too_large, unreadable

if TYPE_CHECKING:
    from pykclient.record.record_batch import Buffer

_MIN_STEP = 64 * 1024


def _first_step(size: int) -> int:
    """Return how many bytes of output to request first; most batches decompress in one step."""
    return max(_MIN_STEP, 4 * size)


class Lz4Engine(Protocol):
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
        compressor.compress(data)
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

    #: The rest is copied after each frame, so thousands of empty frames would take quadratic time.
    _MAX_FRAMES = 64

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
        chunks: list[bytes] = []
        total = 0
        rest: Buffer = data
        while len(rest) or not chunks:
            if len(chunks) == self._MAX_FRAMES:
                raise unreadable("zstd", f"more than {self._MAX_FRAMES} frames")
            frame = self._library.ZstdDecompressor()
            try:
                chunk = frame.decompress(rest, limit - total + 1)
            except self._library.ZstdError as error:
                raise unreadable("zstd", error) from error
            total += len(chunk)
            if total > limit:
                raise too_large("zstd", len(data), limit)
            if not frame.eof:
                raise unreadable("zstd", "it ends early")
            chunks.append(chunk)
            rest = frame.unused_data
        return chunks[0] if len(chunks) == 1 else b"".join(chunks)


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
