"""Kafka for PySpark: a data source (format ``pykclient``) that reads and writes, and producers for code in tasks.

    from pykclient.spark import KafkaDataSource

    spark.dataSource.register(KafkaDataSource)
    spark.read.format("pykclient").option("kafka.bootstrap.servers", "broker:9092").option("subscribe", "orders").load()

Options and columns are those of Spark's own source, format ``kafka``. Names are loaded on first use, because each of
Spark's Python workers imports this package, and none needs all of it.

- ``data_source``: the class that Spark loads; ``options``, ``subscription``, ``offsets``, ``filters``: the request
- ``batch_reader``, ``stream_reader``, ``ranges``, ``offset_reader``: the driver's side of reading
- ``range_reader``, ``consumer_pool``, ``schema``, ``formats``: a task's side of reading
- ``writer``, ``write_task``, ``producers``, ``arrow_write``, ``deliveries``: writing
- ``transactional_writer``, ``transactional_task``, ``transactions``, ``sink_driver``, ``compacted_topic``, ``plan``:
  writing exactly once
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from pykclient.spark.arrow_write import write_arrow
    from pykclient.spark.data_source import KafkaDataSource
    from pykclient.spark.plan import has_shuffle
    from pykclient.spark.producers import shared_producer

#: Public names and their modules.
_HOME = {
    "KafkaDataSource": "data_source",
    "has_shuffle": "plan",
    "shared_producer": "producers",
    "write_arrow": "arrow_write",
}

__all__ = ["KafkaDataSource", "has_shuffle", "shared_producer", "write_arrow"]


def __getattr__(name: str) -> Any:
    import importlib

    if name in _HOME:
        value = getattr(importlib.import_module(f"{__name__}.{_HOME[name]}"), name)
        globals()[name] = value
        return value
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
