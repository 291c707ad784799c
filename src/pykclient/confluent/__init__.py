"""The clients in confluent-kafka's shape: ``import pykclient.confluent as confluent_kafka``.

Names, arguments, configuration, defaults and errors are those of confluent-kafka 2.16; see docs/from-confluent.md.
Names are loaded on first use.

- ``producer``, ``consumer``, ``share_consumer``, ``admin``, ``aio``: the clients; ``client``: what they have in common
- ``configuration``, ``statistics``, ``partitioners``: librdkafka's settings, statistics and partitioners
- ``message``, ``topic_partition``, ``cluster_metadata``, ``admin_types``, ``model``: values
- ``kafka_error``, ``error_codes``, ``error``: errors
- ``serializing``, ``serialization``: clients that convert keys and values
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pykclient.confluent.constants import (
        OFFSET_BEGINNING,
        OFFSET_END,
        OFFSET_INVALID,
        OFFSET_STORED,
        TIMESTAMP_CREATE_TIME,
        TIMESTAMP_LOG_APPEND_TIME,
        TIMESTAMP_NOT_AVAILABLE,
        libversion,
        version,
    )
    from pykclient.confluent.consumer import Consumer
    from pykclient.confluent.kafka_error import (
        ConcurrentModificationException,
        IllegalStateException,
        KafkaError,
        KafkaException,
    )
    from pykclient.confluent.message import Message
    from pykclient.confluent.model import (
        AcknowledgeType,
        ConsumerGroupState,
        ConsumerGroupTopicPartitions,
        ConsumerGroupType,
        ElectionType,
        IsolationLevel,
        Messages,
        Node,
        ThrottleEvent,
        TopicCollection,
        TopicPartitionInfo,
    )
    from pykclient.confluent.partitioners import consistent, fnv1a, murmur2
    from pykclient.confluent.producer import Producer
    from pykclient.confluent.serializing import DeserializingConsumer, SerializingProducer
    from pykclient.confluent.share_consumer import DeserializingShareConsumer, ShareConsumer
    from pykclient.confluent.topic_partition import TopicPartition, Uuid

#: Public names and their modules.
_HOME = {
    "AcknowledgeType": "model",
    "ConcurrentModificationException": "kafka_error",
    "Consumer": "consumer",
    "ConsumerGroupState": "model",
    "ConsumerGroupTopicPartitions": "model",
    "ConsumerGroupType": "model",
    "DeserializingConsumer": "serializing",
    "DeserializingShareConsumer": "share_consumer",
    "ElectionType": "model",
    "IllegalStateException": "kafka_error",
    "IsolationLevel": "model",
    "KafkaError": "kafka_error",
    "KafkaException": "kafka_error",
    "Message": "message",
    "Messages": "model",
    "Node": "model",
    "OFFSET_BEGINNING": "constants",
    "OFFSET_END": "constants",
    "OFFSET_INVALID": "constants",
    "OFFSET_STORED": "constants",
    "Producer": "producer",
    "SerializingProducer": "serializing",
    "ShareConsumer": "share_consumer",
    "TIMESTAMP_CREATE_TIME": "constants",
    "TIMESTAMP_LOG_APPEND_TIME": "constants",
    "TIMESTAMP_NOT_AVAILABLE": "constants",
    "ThrottleEvent": "model",
    "TopicCollection": "model",
    "TopicPartition": "topic_partition",
    "TopicPartitionInfo": "model",
    "Uuid": "topic_partition",
    "consistent": "partitioners",
    "fnv1a": "partitioners",
    "libversion": "constants",
    "murmur2": "partitioners",
    "version": "constants",
}

#: Modules below this one that confluent-kafka loads with its package, so programs use them without an import.
_MODULES = {
    "_model": "model",
    "cimpl": "cimpl",
    "deserializing_consumer": "deserializing_consumer",
    "deserializing_share_consumer": "deserializing_share_consumer",
    "error": "error",
    "serialization": "serialization",
    "serializing_producer": "serializing_producer",
}

__all__ = [
    "AcknowledgeType",
    "ConcurrentModificationException",
    "Consumer",
    "ConsumerGroupState",
    "ConsumerGroupTopicPartitions",
    "ConsumerGroupType",
    "DeserializingConsumer",
    "DeserializingShareConsumer",
    "ElectionType",
    "IllegalStateException",
    "IsolationLevel",
    "KafkaError",
    "KafkaException",
    "Message",
    "Messages",
    "Node",
    "OFFSET_BEGINNING",
    "OFFSET_END",
    "OFFSET_INVALID",
    "OFFSET_STORED",
    "Producer",
    "SerializingProducer",
    "ShareConsumer",
    "TIMESTAMP_CREATE_TIME",
    "TIMESTAMP_LOG_APPEND_TIME",
    "TIMESTAMP_NOT_AVAILABLE",
    "ThrottleEvent",
    "TopicCollection",
    "TopicPartition",
    "TopicPartitionInfo",
    "Uuid",
    "consistent",
    "fnv1a",
    "libversion",
    "murmur2",
    "version",
]

if not TYPE_CHECKING:  # otherwise type checkers would accept any name

    def __getattr__(name):
        import importlib

        if name in _HOME:
            value = getattr(importlib.import_module(f"{__name__}.{_HOME[name]}"), name)
            globals()[name] = value
            return value
        if name in _MODULES:
            return importlib.import_module(f"{__name__}.{_MODULES[name]}")
        if name == "__version__":
            return importlib.import_module(f"{__name__}.constants").version()
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
