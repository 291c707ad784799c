"""An oracle for conversions: Kafka 3.9, the last release that knows the old formats."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from pykclient.record import MemoryRecords, Record
from pykclient.record.record_batch import Buffer
from tests.support.java import run_java

JAVA = Path(__file__).parent / "java" / "ConversionOracle.java"
KAFKA_VERSION = "3.9.1"


def ask_java(tasks: Sequence[str]) -> list[str]:
    """Return the outcome of each line of ``tasks``; see ConversionOracle.java."""
    output = run_java(JAVA, stdin="\n".join(tasks).encode(), kafka_version=KAFKA_VERSION).decode().splitlines()
    assert len(output) == len(tasks)
    return output


def content(buffers: Sequence[Buffer]) -> list[tuple[object, ...]]:
    """Return the content of batches as readers see it.

    Compressed bytes are left out, as codec libraries differ in them.
    """
    found: list[tuple[object, ...]] = []
    for batch in MemoryRecords(b"".join(buffers)).batches():
        batch.ensure_valid()
        records: list[Record] = batch.records()
        found.append(
            (
                *(batch.magic, batch.compression_type.name, batch.timestamp_type, batch.max_timestamp),
                *(batch.base_offset, batch.last_offset, batch.partition_leader_epoch, batch.is_control_batch),
                *(batch.producer_id, batch.producer_epoch, batch.base_sequence, batch.is_transactional),
                records,
            )
        )
    return found
