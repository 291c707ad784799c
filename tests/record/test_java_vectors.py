"""Batches that Java built once (``python -m tests.record.oracle``), for runs without Java."""

from __future__ import annotations

import pytest

from pykclient.record import MemoryRecords
from pykclient.record.record_batch import LOG_OVERHEAD, RECORD_BATCH_OVERHEAD, RECORD_OVERHEAD_V0
from tests.record.oracle import BatchSpec, codec_of, read_vectors, to_text

VECTORS = read_vectors()


@pytest.mark.parametrize(("spec", "data"), VECTORS, ids=[repr(spec) for spec, _ in VECTORS])
def test_stored_java_batch_is_read(spec: BatchSpec, data: bytes) -> None:
    (batch,) = MemoryRecords(data).batches()
    batch.ensure_valid()
    assert batch.records() == spec.expected()
    assert batch.compression_type is codec_of(spec)
    assert (batch.producer_id, batch.producer_epoch, batch.base_sequence) == spec.producer
    assert (batch.is_transactional, batch.is_control_batch) == (spec.is_transactional, spec.is_control)
    assert batch.delete_horizon_ms == (None if spec.delete_horizon_ms < 0 else spec.delete_horizon_ms)
    if spec.last_offset is not None:
        assert batch.last_offset == spec.last_offset
    ours = bytes(spec.builder().build())
    if spec.codec == "none":
        assert to_text(ours) == to_text(data)
    elif spec.codec in ("lz4", "snappy"):
        # Compare the frame; in v0 it has the wrong checksum that brokers and clients of the time expect (KAFKA-3160).
        start = RECORD_BATCH_OVERHEAD if spec.magic == 2 else LOG_OVERHEAD + RECORD_OVERHEAD_V0 + 8 * spec.magic
        size = 7 if spec.codec == "lz4" else 16
        assert ours[start : start + size] == data[start : start + size]


def test_vectors_cover_every_format_and_codec() -> None:
    seen = {(spec.magic, spec.codec) for spec, _ in VECTORS}
    codecs = ("none", "gzip", "snappy", "lz4", "zstd")
    assert seen == {(magic, codec) for magic in (0, 1, 2) for codec in codecs if magic == 2 or codec != "zstd"}
