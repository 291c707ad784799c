"""Batches of records: every format and codec, by every method, compiled and in Python."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from itertools import pairwise, zip_longest
from random import Random
from typing import Any

from pykclient.errors import CorruptRecordError
from pykclient.record import Compression, CursorOwner, MemoryRecords, MemoryRecordsBuilder
from pykclient.record.columns import Columns
from pykclient.record.memory_records import OFFSET_OF_ATTRIBUTES, DefaultRecordBatch
from pykclient.record.record_batch import MAX_INT64, RECORD_BATCH_OVERHEAD, crc32c
from pykclient.types import CREATE_TIME, LOG_APPEND_TIME
from tests.fuzz.protocol_targets import outcome
from tests.fuzz.target import Input, Target, number
from tests.record.column_state import state
from tests.record.test_hostile import batch_around
from tests.support.twins import both_forms

_OWNER = CursorOwner("t", 0)
_CODECS = ("none", "gzip", "snappy", "lz4", "zstd")

#: The most bytes to decompress. A client's limit is its configuration.
LIMIT = 1 << 16


_RECORD_CURSORS = both_forms("pykclient.record.default_record", "RecordCursor")
_COLUMN_CURSORS = both_forms("pykclient.record.columns", "ColumnCursor")


def _history(cursor: Any, step: int) -> Iterator[Any]:
    """Yield the results of a cursor, step by step, until it has failed."""
    while not cursor.exhausted:
        found = outcome(lambda: cursor.next_records(step), CorruptRecordError)
        yield found, cursor.next_offset, cursor.records_read, cursor.bytes_read, cursor.exhausted
        assert 0 <= cursor.next_offset <= MAX_INT64
        if isinstance(found, tuple):
            break


def _column_history(batch: Any, twin: Any, step: int, *, views: bool) -> Iterator[Any]:
    target = Columns(None, LIMIT, views)
    cursor = twin(batch, "t", 0, 0, LIMIT)
    while not cursor.exhausted:
        added = outcome(partial(cursor.read_into, target, step), CorruptRecordError)
        yield added, cursor.next_offset, cursor.bytes_read, cursor.records_read, state(target)
        if isinstance(added, tuple):
            break
        if target.is_full:
            target = Columns(None, LIMIT, views)


def _equal(one: Iterator[Any], other: Iterator[Any]) -> Iterator[Any]:
    """Yield the steps of two histories, which must be equal, and keep none of them."""
    for ours, theirs in zip_longest(one, other):
        assert ours == theirs
        yield ours


def _read_batch(batch: Any, step: int) -> None:
    repr(batch)
    outcome(batch.ensure_valid, CorruptRecordError)
    if outcome(batch.ensure_offsets_valid, CorruptRecordError) is not None:
        return  # consumers refuse the batch
    outcome(batch.first_record, CorruptRecordError)
    records = outcome(lambda: batch.records(LIMIT), CorruptRecordError)
    offsets = None
    if isinstance(records, list) and all(a.offset < b.offset for a, b in pairwise(records)):
        # Consumers do not get records at negative offsets.
        offsets = [record.offset for record in records if record.offset >= 0]
    del records
    if isinstance(batch, DefaultRecordBatch):
        one, other = (_history(kind(batch, _OWNER, 0, LIMIT), step) for kind in _RECORD_CURSORS)
        steps = _equal(one, other)
    else:
        steps = _history(batch.cursor(_OWNER, 0, LIMIT), step)
    found = [each.offset for found, *_ in steps if isinstance(found, list) for each in found]
    assert offsets in (None, found)
    for views in (False, True):
        one, other = (_column_history(batch, twin, step, views=views) for twin in _COLUMN_CURSORS)
        for _ in _equal(one, other):
            pass


def run_batches(data: bytes) -> None:
    """Read batches as they arrive. Flags make the CRC of a first batch in format 2 right."""
    given = Input(data)
    flags = given.byte()
    content = bytearray(given.rest())
    if flags & 1 and len(content) >= RECORD_BATCH_OVERHEAD:
        content[17:21] = crc32c(bytes(content[OFFSET_OF_ATTRIBUTES:])).to_bytes(4, "big")
    try:
        for batch in MemoryRecords(content).batches():
            _read_batch(batch, 1 + (flags >> 1))
    except CorruptRecordError:
        pass


def run_payloads(data: bytes) -> None:
    """Read a valid batch in format 2 with any bytes for its records, after compressing them."""
    given = Input(data)
    codec = _CODECS[given.byte() % len(_CODECS)]
    count, step = given.number(2), 1 + given.byte() % 8
    for batch in MemoryRecords(batch_around(given.rest(), count, codec)).batches():
        _read_batch(batch, step)


def run_codecs(data: bytes) -> None:
    """Decompress any bytes with each codec."""
    given = Input(data)
    flags = given.byte()
    codec, magic = _CODECS[1 + flags % (len(_CODECS) - 1)], flags >> 2 & 3
    found = outcome(lambda: Compression.of(codec).decompress(given.rest(), magic, LIMIT), CorruptRecordError)
    assert isinstance(found, tuple) or len(found) <= LIMIT


def _batch(rng: Random, magic: int, codec: str, timestamp_type: int = CREATE_TIME) -> bytes:
    builder = MemoryRecordsBuilder(
        magic=magic,
        compression=Compression.of(codec),
        timestamp_type=timestamp_type if magic else -1,
        log_append_time=5 if timestamp_type == LOG_APPEND_TIME else -1,
        base_offset=rng.choice((0, 1000)),
    )
    for position in range(rng.randrange(1, 9)):
        headers = [("h", b"1"), ("ü", None)] if magic == 2 and position % 3 == 1 else []
        builder.append(position, rng.choice((None, b"k", b"key" * 30)), rng.choice((None, b"", b"v" * 200)), headers)
    return bytes(builder.build())


def batch_seeds(rng: Random) -> Iterator[bytes]:
    for magic in (0, 1, 2):
        for codec in _CODECS[: 5 if magic == 2 else 4]:
            for timestamp_type in (CREATE_TIME, LOG_APPEND_TIME) if magic else (CREATE_TIME,):
                batch = _batch(rng, magic, codec, timestamp_type)
                yield number(1 if magic == 2 else 0) + batch
                yield number(12) + batch + _batch(rng, 2, codec)


def payload_seeds(rng: Random) -> Iterator[bytes]:
    for codec in range(len(_CODECS)):
        batch = _batch(rng, 2, "none")
        count = int.from_bytes(batch[57:61], "big")
        yield number(codec) + number(count, 2) + number(rng.randrange(8)) + batch[RECORD_BATCH_OVERHEAD:]


def codec_seeds(rng: Random) -> Iterator[bytes]:
    for index, name in enumerate(_CODECS[1:]):
        for plain in (b"", b"text " * 40, rng.randbytes(100), bytes(LIMIT + 1)):
            for magic in (0, 1, 2):
                yield number(index + 4 * magic) + Compression.of(name).compress(plain, magic)


#: The smallest record has 7 bytes and becomes an object.
_RECORDS = 80

TARGETS = [
    Target("batches", run_batches, batch_seeds, _RECORDS),
    Target("payloads", run_payloads, payload_seeds, _RECORDS),
    Target("codecs", run_codecs, codec_seeds),
]
