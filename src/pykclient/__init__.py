"""The Apache Kafka clients for Python.

    from pykclient import KafkaConsumer, KafkaProducer

Names are loaded on first use, so ``import pykclient`` alone takes about 10 ms.

- ``producer``, ``consumer``, ``admin``: the three clients; ``aio``: the same clients on an event loop
- ``confluent``, ``alias``: confluent-kafka's shape of the clients, and programs of other clients that run unchanged
- ``spark``, ``schema_registry``, ``exporters``, ``cli``: PySpark, serializers by schemas, metrics, the command line
- ``testing``: the embedded cluster and the simulation
- ``network``, ``record``, ``protocol``, ``config``, ``metrics``: the layers below the clients, from the top down
- ``types``, ``errors``, ``serialization``: the values, the errors and the serializers of applications
"""

from __future__ import annotations

from pykclient.version import __version__ as __version__

TYPE_CHECKING = False  # importing typing's costs more than all of this module
if TYPE_CHECKING:
    from pykclient import errors as errors
    from pykclient.admin.kafka_admin_client import KafkaAdminClient as KafkaAdminClient
    from pykclient.consumer.kafka_consumer import KafkaConsumer as KafkaConsumer
    from pykclient.consumer.share.acknowledgements import AcknowledgeType as AcknowledgeType
    from pykclient.consumer.share.kafka_share_consumer import KafkaShareConsumer as KafkaShareConsumer
    from pykclient.consumer.values import (
        ConsumerInterceptor as ConsumerInterceptor,
        ConsumerRebalanceListener as ConsumerRebalanceListener,
        SubscriptionPattern as SubscriptionPattern,
    )
    from pykclient.errors import KafkaError as KafkaError
    from pykclient.explanation import explain_clients as explain_clients, explain_on_signal as explain_on_signal
    from pykclient.producer.future import FutureRecordMetadata as FutureRecordMetadata
    from pykclient.producer.interceptors import (
        AcknowledgedBatch as AcknowledgedBatch,
        ProducerInterceptor as ProducerInterceptor,
    )
    from pykclient.producer.kafka_producer import KafkaProducer as KafkaProducer
    from pykclient.producer.partitioner import Partitioner as Partitioner
    from pykclient.producer.transactions.transactional_calls import PreparedTxnState as PreparedTxnState
    from pykclient.serialization import (
        DefaultSerializer as DefaultSerializer,
        Deserializer as Deserializer,
        JsonDeserializer as JsonDeserializer,
        JsonSerializer as JsonSerializer,
        Serializer as Serializer,
        StringDeserializer as StringDeserializer,
        StringSerializer as StringSerializer,
    )
    from pykclient.types import (
        ConsumerGroupMetadata as ConsumerGroupMetadata,
        ConsumerRecord as ConsumerRecord,
        OffsetAndMetadata as OffsetAndMetadata,
        OffsetAndTimestamp as OffsetAndTimestamp,
        PartitionInfo as PartitionInfo,
        ProducerRecord as ProducerRecord,
        RecordMetadata as RecordMetadata,
        TopicIdPartition as TopicIdPartition,
        TopicPartition as TopicPartition,
    )

#: Public names, by the modules that they live in.
_NAMES = {
    "admin.kafka_admin_client": "KafkaAdminClient",
    "consumer.kafka_consumer": "KafkaConsumer",
    "consumer.share.acknowledgements": "AcknowledgeType",
    "consumer.share.kafka_share_consumer": "KafkaShareConsumer",
    "consumer.values": "ConsumerInterceptor ConsumerRebalanceListener SubscriptionPattern",
    "errors": "KafkaError",
    "explanation": "explain_clients explain_on_signal",
    "producer.future": "FutureRecordMetadata",
    "producer.interceptors": "AcknowledgedBatch ProducerInterceptor",
    "producer.kafka_producer": "KafkaProducer",
    "producer.partitioner": "Partitioner",
    "producer.transactions.transactional_calls": "PreparedTxnState",
    "serialization": "DefaultSerializer Deserializer JsonDeserializer JsonSerializer Serializer StringDeserializer "
    "StringSerializer",
    "types": "ConsumerGroupMetadata ConsumerRecord OffsetAndMetadata OffsetAndTimestamp PartitionInfo ProducerRecord "
    "RecordMetadata TopicIdPartition TopicPartition",
}
_HOME = {name: module for module, names in _NAMES.items() for name in names.split()}
_MODULES = frozenset({"errors"})

if not TYPE_CHECKING:  # otherwise type checkers would accept any name, and import none by a star
    __all__ = sorted({*_HOME, *_MODULES, "__version__"})  # noqa: PLE0605

    def __getattr__(name):
        import importlib

        if name in _MODULES:
            return importlib.import_module(f"{__name__}.{name}")
        if name in _HOME:
            value = getattr(importlib.import_module(f"{__name__}.{_HOME[name]}"), name)
            globals()[name] = value
            return value
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

    def __dir__():
        return sorted({*globals(), *__all__})
