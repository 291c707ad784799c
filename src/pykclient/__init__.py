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

from pykclient.version import __version__

TYPE_CHECKING = False  # importing typing's costs more than all of this module
if TYPE_CHECKING:
    from pykclient import errors
    from pykclient.admin.kafka_admin_client import KafkaAdminClient
    from pykclient.consumer.kafka_consumer import KafkaConsumer
    from pykclient.consumer.share.acknowledgements import AcknowledgeType
    from pykclient.consumer.share.kafka_share_consumer import KafkaShareConsumer
    from pykclient.consumer.values import ConsumerInterceptor, ConsumerRebalanceListener, SubscriptionPattern
    from pykclient.errors import KafkaError
    from pykclient.explanation import explain_clients, explain_on_signal
    from pykclient.producer.future import FutureRecordMetadata
    from pykclient.producer.interceptors import AcknowledgedBatch, ProducerInterceptor
    from pykclient.producer.kafka_producer import KafkaProducer
    from pykclient.producer.partitioner import Partitioner
    from pykclient.producer.transactions.transactional_calls import PreparedTxnState
    from pykclient.serialization import (
        DefaultSerializer,
        Deserializer,
        JsonDeserializer,
        JsonSerializer,
        Serializer,
        StringDeserializer,
        StringSerializer,
    )
    from pykclient.types import (
        ConsumerGroupMetadata,
        ConsumerRecord,
        OffsetAndMetadata,
        OffsetAndTimestamp,
        PartitionInfo,
        ProducerRecord,
        RecordMetadata,
        TopicIdPartition,
        TopicPartition,
    )

#: Public names and their modules.
_HOME = {
    "AcknowledgedBatch": "producer.interceptors",
    "AcknowledgeType": "consumer.share.acknowledgements",
    "ConsumerGroupMetadata": "types",
    "ConsumerInterceptor": "consumer.values",
    "ConsumerRebalanceListener": "consumer.values",
    "ConsumerRecord": "types",
    "DefaultSerializer": "serialization",
    "Deserializer": "serialization",
    "FutureRecordMetadata": "producer.future",
    "JsonDeserializer": "serialization",
    "JsonSerializer": "serialization",
    "KafkaAdminClient": "admin.kafka_admin_client",
    "KafkaConsumer": "consumer.kafka_consumer",
    "KafkaError": "errors",
    "KafkaProducer": "producer.kafka_producer",
    "KafkaShareConsumer": "consumer.share.kafka_share_consumer",
    "OffsetAndMetadata": "types",
    "OffsetAndTimestamp": "types",
    "PartitionInfo": "types",
    "Partitioner": "producer.partitioner",
    "PreparedTxnState": "producer.transactions.transactional_calls",
    "ProducerInterceptor": "producer.interceptors",
    "ProducerRecord": "types",
    "RecordMetadata": "types",
    "Serializer": "serialization",
    "StringDeserializer": "serialization",
    "StringSerializer": "serialization",
    "SubscriptionPattern": "consumer.values",
    "TopicIdPartition": "types",
    "TopicPartition": "types",
    "explain_clients": "explanation",
    "explain_on_signal": "explanation",
}
_MODULES = frozenset({"errors"})

__all__ = [
    "AcknowledgeType",
    "AcknowledgedBatch",
    "ConsumerGroupMetadata",
    "ConsumerInterceptor",
    "ConsumerRebalanceListener",
    "ConsumerRecord",
    "DefaultSerializer",
    "Deserializer",
    "FutureRecordMetadata",
    "JsonDeserializer",
    "JsonSerializer",
    "KafkaAdminClient",
    "KafkaConsumer",
    "KafkaError",
    "KafkaProducer",
    "KafkaShareConsumer",
    "OffsetAndMetadata",
    "OffsetAndTimestamp",
    "PartitionInfo",
    "Partitioner",
    "PreparedTxnState",
    "ProducerInterceptor",
    "ProducerRecord",
    "RecordMetadata",
    "Serializer",
    "StringDeserializer",
    "StringSerializer",
    "SubscriptionPattern",
    "TopicIdPartition",
    "TopicPartition",
    "__version__",
    "errors",
    "explain_clients",
    "explain_on_signal",
]

if not TYPE_CHECKING:  # otherwise type checkers would accept any name

    def __getattr__(name):
        import importlib

        if name in _MODULES:
            return importlib.import_module(f"{__name__}.{name}")
        if name in _HOME:
            value = getattr(importlib.import_module(f"{__name__}.{_HOME[name]}"), name)
            globals()[name] = value
            return value
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
