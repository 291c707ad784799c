"""Apache Kafka clients for asyncio, native on the running event loop.

    from pykclient.aio import AIOKafkaConsumer, AIOKafkaProducer

The surface is aiokafka's: changing the import is nearly all that a program for aiokafka needs. Names are loaded on
first use.

- ``producer``, ``consumer``, ``share_consumer``, ``admin``: the public classes
- ``threadless_producer``, ``threadless_consumer``: the clients below them, without threads
- ``loop_driver``: sockets and waits of a client on an event loop
- ``awaited_records``, ``batch_builder``, ``client_view``: results of sends, batches of an application, the cluster
- ``aiokafka_arguments``, ``structs``, ``errors``, ``abc``, ``helpers``, ``coordinator``: aiokafka's arguments and names
"""

from __future__ import annotations

TYPE_CHECKING = False  # importing typing's costs more than all of this module
if TYPE_CHECKING:
    from pykclient.aio import errors
    from pykclient.aio.abc import ConsumerRebalanceListener
    from pykclient.aio.admin import AIOKafkaAdminClient
    from pykclient.aio.batch_builder import BatchBuilder
    from pykclient.aio.consumer import AIOKafkaConsumer, AIOKafkaConsumer as AsyncConsumer
    from pykclient.aio.errors import ConsumerStoppedError
    from pykclient.aio.producer import AIOKafkaProducer, AIOKafkaProducer as AsyncProducer
    from pykclient.aio.share_consumer import AIOKafkaShareConsumer, AIOKafkaShareConsumer as AsyncShareConsumer
    from pykclient.aio.structs import ConsumerRecord, OffsetAndTimestamp, RecordMetadata
    from pykclient.consumer.share.acknowledgements import AcknowledgeType
    from pykclient.errors import IllegalStateError as IllegalOperation
    from pykclient.types import OffsetAndMetadata, TopicPartition

#: Of aiokafka, whose interface this is: programs compare it.
__version__ = "0.14.0"

#: Public names: their modules, and their names there.
_HOME = {
    "AIOKafkaAdminClient": ("pykclient.aio.admin", "AIOKafkaAdminClient"),
    "AIOKafkaConsumer": ("pykclient.aio.consumer", "AIOKafkaConsumer"),
    "AIOKafkaProducer": ("pykclient.aio.producer", "AIOKafkaProducer"),
    "AIOKafkaShareConsumer": ("pykclient.aio.share_consumer", "AIOKafkaShareConsumer"),
    "AcknowledgeType": ("pykclient.consumer.share.acknowledgements", "AcknowledgeType"),
    "AsyncConsumer": ("pykclient.aio.consumer", "AIOKafkaConsumer"),
    "AsyncProducer": ("pykclient.aio.producer", "AIOKafkaProducer"),
    "AsyncShareConsumer": ("pykclient.aio.share_consumer", "AIOKafkaShareConsumer"),
    "BatchBuilder": ("pykclient.aio.batch_builder", "BatchBuilder"),
    "ConsumerRebalanceListener": ("pykclient.aio.abc", "ConsumerRebalanceListener"),
    "ConsumerStoppedError": ("pykclient.aio.errors", "ConsumerStoppedError"),
    "ConsumerRecord": ("pykclient.aio.structs", "ConsumerRecord"),
    "IllegalOperation": ("pykclient.errors", "IllegalStateError"),
    "OffsetAndMetadata": ("pykclient.types", "OffsetAndMetadata"),
    "OffsetAndTimestamp": ("pykclient.aio.structs", "OffsetAndTimestamp"),
    "RecordMetadata": ("pykclient.aio.structs", "RecordMetadata"),
    "TopicPartition": ("pykclient.types", "TopicPartition"),
}
#: The modules that are attributes once this package is imported, as in aiokafka.
_MODULES = frozenset({"abc", "admin", "consumer", "coordinator", "errors", "helpers", "producer", "structs"})

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
