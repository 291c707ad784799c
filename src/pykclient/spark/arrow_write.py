"""Writing to Kafka from ``DataFrame.mapInArrow``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from pykclient.config.producer_config import ProducerConfig
from pykclient.network.client_utils import parse_addresses
from pykclient.spark.producers import bulk_config, fingerprint_of
from pykclient.spark.worker import task_context
from pykclient.spark.write_task import KafkaWriteTask

if TYPE_CHECKING:
    import pyarrow as pa


class ArrowWrite:
    """The result of ``write_arrow``. Pickles. Its ``repr`` shows no settings. Thread: any."""

    #: The schema of a task's result, for ``mapInArrow``.
    schema = "partition_id int, records long"

    def __init__(self, config: Mapping[str, Any], topic: str | None, fingerprint: str | None = None) -> None:
        self._config = config
        self._topic = topic
        self._fingerprint = fingerprint

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        records = KafkaWriteTask(self._config, self._topic, fingerprint=self._fingerprint).execute(batches)
        counts = [pa.array([task_context()[0]], pa.int32()), pa.array([records], pa.int64())]
        yield pa.record_batch(counts, names=["partition_id", "records"])

    def __reduce__(self) -> tuple[type[ArrowWrite], tuple[Mapping[str, Any], str | None, str]]:
        return type(self), (self._config, self._topic, fingerprint_of(self._config))

    def __repr__(self) -> str:
        return f"<ArrowWrite to {self._topic or 'the topics of each row'}>"


def write_arrow(config: Mapping[str, Any], topic: str | None = None) -> ArrowWrite:
    """Return a function for ``DataFrame.mapInArrow`` that writes all rows to Kafka; a task returns one row of counts::

        write = write_arrow({"bootstrap.servers": "broker:9092"}, topic="orders")
        df.select("key", "value").mapInArrow(write, write.schema).collect()

    Columns are those of the sink: ``value``, and optionally ``key``, ``headers``, ``partition`` and ``topic``, which
    the argument ``topic`` overrides. Others are ignored. ``config`` is the producer's; its defaults are set for bulk
    writes, as in the sink. Guarantees and errors are the sink's, too. Use it where ``df.write`` does not fit, for
    instance instead of ``foreachPartition``, which is several times slower.

    Raises:
        ConfigError: A setting is wrong. Raised at once, on the driver.
        KafkaError: Rows were not written. Raised in tasks.
    """
    settings = bulk_config(config)
    parse_addresses(ProducerConfig(settings)["bootstrap.servers"])
    return ArrowWrite(settings, topic)
