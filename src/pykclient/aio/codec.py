"""aiokafka's and kafka-python's module of this name. Every codec is always there."""

from __future__ import annotations

from functools import partial

from pykclient.record.compression import Compression


def has_gzip() -> bool:
    """Return True."""
    return True


has_lz4 = has_snappy = has_zstd = has_gzip


def _encode(codec: str, payload: bytes, level: int | None = None) -> bytes:
    return Compression.of(codec, level).compress(payload)


def _decode(codec: str, payload: bytes) -> bytes:
    return Compression.of(codec).decompress(payload)


gzip_encode, gzip_decode = partial(_encode, "gzip"), partial(_decode, "gzip")
lz4_encode, lz4_decode = partial(_encode, "lz4"), partial(_decode, "lz4")
snappy_encode, snappy_decode = partial(_encode, "snappy"), partial(_decode, "snappy")
zstd_encode, zstd_decode = partial(_encode, "zstd"), partial(_decode, "zstd")
