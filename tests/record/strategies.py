"""Hypothesis strategies for records and batches."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from pykclient.record import Compression, MemoryRecordsBuilder, Record
from pykclient.types import CREATE_TIME, LOG_APPEND_TIME

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")

nullable_bytes = st.none() | st.binary(max_size=300)
header_names = st.text(st.characters(exclude_categories=["Cs"]), max_size=70)
headers = st.lists(st.tuples(header_names, nullable_bytes), max_size=4).map(tuple)
timestamps = st.integers(0, 1 << 42) | st.integers(0, (1 << 63) - 2) | st.just(-1)


@st.composite
def record_lists(draw: st.DrawFn, has_headers: bool = True) -> list[Record]:
    offset = draw(st.integers(0, 1 << 40))
    records = []
    for gap in draw(st.lists(st.sampled_from((0, 0, 0, 1, 62, 63, 8192, 1 << 20)), min_size=1, max_size=30)):
        fields = draw(st.tuples(timestamps, nullable_bytes, nullable_bytes, headers if has_headers else st.just(())))
        records.append(Record(offset + gap, *fields))
        offset += gap + 1
    return records


def build(records: list[Record], **config: Any) -> bytes:
    builder = MemoryRecordsBuilder(base_offset=records[0].offset, **config)
    for record in records:
        builder.append_with_offset(*record)
    return bytes(builder.build())


@st.composite
def v2_batches(draw: st.DrawFn) -> tuple[list[Record], bytes]:
    """Records as a reader must return them, and their batch."""
    records = draw(record_lists())
    log_append_time = draw(st.none() | st.integers(0, 1 << 42))
    data = build(
        records,
        compression=Compression.of(draw(st.sampled_from(CODECS))),
        timestamp_type=CREATE_TIME if log_append_time is None else LOG_APPEND_TIME,
        log_append_time=-1 if log_append_time is None else log_append_time,
    )
    if log_append_time is not None:
        records = [record._replace(timestamp=log_append_time) for record in records]
    return records, data


@st.composite
def legacy_batches(draw: st.DrawFn) -> tuple[list[Record], bytes]:
    records = draw(record_lists(has_headers=False))
    magic = draw(st.sampled_from((0, 1)))
    data = build(records, magic=magic, compression=Compression.of(draw(st.sampled_from(CODECS[:-1]))))
    return ([record._replace(timestamp=-1) for record in records] if magic == 0 else records), data
