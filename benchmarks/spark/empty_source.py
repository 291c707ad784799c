"""What Spark's Python data sources cost by themselves: a source of constant rows, and a sink that drops its rows.

No Python data source can cost less, as both do nothing but cross from Spark to Python and back.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceStreamReader,
    InputPartition,
    WriterCommitMessage,
)
from pyspark.sql.streaming.datasource import ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from pykclient.spark.schema import COLUMNS, ddl

_PLACE = "topic", "0"


class EmptySource(DataSource):
    """Reads ``rows`` equal rows of 100 bytes in micro-batches of ``maxOffsetsPerTrigger``. Writes nothing."""

    @classmethod
    def name(cls) -> str:
        return "empty"

    def schema(self) -> str:
        return ddl([name for name in COLUMNS if name != "headers"])

    def streamReader(self, schema: StructType) -> _Reader:  # noqa: ARG002
        return _Reader(int(self.options["rows"]), int(self.options["maxoffsetspertrigger"]))

    def writer(self, schema: StructType, overwrite: bool) -> _Writer:  # noqa: ARG002
        return _Writer()


def _offsets(row: int) -> dict[str, dict[str, int]]:
    topic, partition = _PLACE
    return {topic: {partition: row}}


def _row(offsets: Mapping[str, Any]) -> int:
    topic, partition = _PLACE
    return int(offsets[topic][partition])


class _Part(InputPartition):
    def __init__(self, rows: int) -> None:
        self.rows = rows


class _Reader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """One task for each micro-batch, like our source with so few rows. Thread: owner."""

    def __init__(self, rows: int, per_trigger: int) -> None:
        self._rows = rows
        self._per_trigger = per_trigger

    def initialOffset(self) -> dict[str, Any]:
        return _offsets(0)

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadMaxRows(self._per_trigger)

    def prepareForTriggerAvailableNow(self) -> None: ...

    def latestOffset(self, start: Mapping[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: ARG002
        return _offsets(min(self._rows, _row(start) + self._per_trigger))

    def reportLatestOffset(self) -> dict[str, Any]:
        return _offsets(self._rows)

    def partitions(self, start: Mapping[str, Any], end: Mapping[str, Any]) -> Sequence[InputPartition]:
        return [_Part(_row(end) - _row(start))]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, _Part)
        yield _batch(partition.rows)


@cache
def _batch(rows: int) -> pa.RecordBatch:
    columns = {
        "key": pa.nulls(rows, pa.binary()),
        "value": pa.array([bytes(100)] * rows),
        "topic": pa.array(["topic"] * rows),
        "partition": pa.array([0] * rows, pa.int32()),
        "offset": pa.array(range(rows), pa.int64()),
        "timestamp": pa.array([0] * rows, pa.timestamp("us", tz="UTC")),
        "timestampType": pa.array([0] * rows, pa.int32()),
    }
    gc.freeze()  # as our tasks do
    return pa.record_batch(columns)


class _Writer(DataSourceArrowWriter):
    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        for _ in iterator:
            pass
        gc.freeze()  # as our tasks do
        return WriterCommitMessage()

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None: ...

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None: ...
