"""Apache Kafka clients for asyncio, native on the running event loop.

    from pykclient.aio import AIOKafkaProducer

The surface is aiokafka's: changing the import is nearly all that a program for aiokafka needs. Names are loaded on
first use.
"""

from __future__ import annotations

TYPE_CHECKING = False  # importing typing's costs more than all of this module
if TYPE_CHECKING:
    from pykclient.aio import errors
    from pykclient.aio.aio_kafka_producer import AIOKafkaProducer
    from pykclient.aio.aio_kafka_producer import AIOKafkaProducer as AsyncProducer
    from pykclient.aio.batch_builder import BatchBuilder
    from pykclient.aio.structs import RecordMetadata
    from pykclient.types import TopicPartition

#: Public names: their modules, and their names there.
_HOME = {
    "AIOKafkaProducer": ("pykclient.aio.aio_kafka_producer", "AIOKafkaProducer"),
    "AsyncProducer": ("pykclient.aio.aio_kafka_producer", "AIOKafkaProducer"),
    "BatchBuilder": ("pykclient.aio.batch_builder", "BatchBuilder"),
    "RecordMetadata": ("pykclient.aio.structs", "RecordMetadata"),
    "TopicPartition": ("pykclient.types", "TopicPartition"),
}
_MODULES = frozenset({"errors"})

__all__ = ["AIOKafkaProducer", "AsyncProducer", "BatchBuilder", "RecordMetadata", "TopicPartition", "errors"]

if not TYPE_CHECKING:  # otherwise type checkers would accept any name

    def __getattr__(name):
        import importlib

        if name in _MODULES:
            return importlib.import_module(f"{__name__}.{name}")
        if name in _HOME:
            module, found = _HOME[name]
            value = getattr(importlib.import_module(module), found)
            globals()[name] = value
            return value
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
