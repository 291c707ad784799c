"""Apache Kafka clients for asyncio, native on the running event loop.

    from pykclient.aio import AIOKafkaConsumer, AIOKafkaProducer

The surface is aiokafka's: changing the import is nearly all that a program for aiokafka needs. Names are loaded on
first use.
"""

from __future__ import annotations

TYPE_CHECKING = False  # importing typing's costs more than all of this module
if TYPE_CHECKING:
    from pykclient.aio import errors
    from pykclient.aio.abc import ConsumerRebalanceListener
    from pykclient.aio.aio_kafka_admin_client import AIOKafkaAdminClient
    from pykclient.aio.aio_kafka_consumer import AIOKafkaConsumer
    from pykclient.aio.aio_kafka_consumer import AIOKafkaConsumer as AsyncConsumer
    from pykclient.aio.aio_kafka_producer import AIOKafkaProducer
    from pykclient.aio.aio_kafka_producer import AIOKafkaProducer as AsyncProducer
    from pykclient.aio.aio_kafka_share_consumer import AIOKafkaShareConsumer
    from pykclient.aio.aio_kafka_share_consumer import AIOKafkaShareConsumer as AsyncShareConsumer
    from pykclient.aio.batch_builder import BatchBuilder
    from pykclient.aio.errors import ConsumerStoppedError
    from pykclient.aio.structs import RecordMetadata
    from pykclient.consumer.share.acknowledge_type import AcknowledgeType
    from pykclient.errors import IllegalStateError as IllegalOperation
    from pykclient.types import ConsumerRecord, OffsetAndMetadata, OffsetAndTimestamp, TopicPartition

#: Public names: their modules, and their names there.
_HOME = {
    "AIOKafkaAdminClient": ("pykclient.aio.aio_kafka_admin_client", "AIOKafkaAdminClient"),
    "AIOKafkaConsumer": ("pykclient.aio.aio_kafka_consumer", "AIOKafkaConsumer"),
    "AIOKafkaProducer": ("pykclient.aio.aio_kafka_producer", "AIOKafkaProducer"),
    "AIOKafkaShareConsumer": ("pykclient.aio.aio_kafka_share_consumer", "AIOKafkaShareConsumer"),
    "AcknowledgeType": ("pykclient.consumer.share.acknowledge_type", "AcknowledgeType"),
    "AsyncConsumer": ("pykclient.aio.aio_kafka_consumer", "AIOKafkaConsumer"),
    "AsyncProducer": ("pykclient.aio.aio_kafka_producer", "AIOKafkaProducer"),
    "AsyncShareConsumer": ("pykclient.aio.aio_kafka_share_consumer", "AIOKafkaShareConsumer"),
    "BatchBuilder": ("pykclient.aio.batch_builder", "BatchBuilder"),
    "ConsumerRebalanceListener": ("pykclient.aio.abc", "ConsumerRebalanceListener"),
    "ConsumerStoppedError": ("pykclient.aio.errors", "ConsumerStoppedError"),
    "ConsumerRecord": ("pykclient.types", "ConsumerRecord"),
    "IllegalOperation": ("pykclient.errors", "IllegalStateError"),
    "OffsetAndMetadata": ("pykclient.types", "OffsetAndMetadata"),
    "OffsetAndTimestamp": ("pykclient.types", "OffsetAndTimestamp"),
    "RecordMetadata": ("pykclient.aio.structs", "RecordMetadata"),
    "TopicPartition": ("pykclient.types", "TopicPartition"),
}
_MODULES = frozenset({"errors"})

__all__ = [
    "AIOKafkaAdminClient",
    "AIOKafkaConsumer",
    "AIOKafkaProducer",
    "AIOKafkaShareConsumer",
    "AcknowledgeType",
    "AsyncConsumer",
    "AsyncProducer",
    "AsyncShareConsumer",
    "BatchBuilder",
    "ConsumerRebalanceListener",
    "ConsumerRecord",
    "ConsumerStoppedError",
    "IllegalOperation",
    "OffsetAndMetadata",
    "OffsetAndTimestamp",
    "RecordMetadata",
    "TopicPartition",
    "errors",
]

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
