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
        OFFSET_BEGINNING as OFFSET_BEGINNING,
        OFFSET_END as OFFSET_END,
        OFFSET_INVALID as OFFSET_INVALID,
        OFFSET_STORED as OFFSET_STORED,
        TIMESTAMP_CREATE_TIME as TIMESTAMP_CREATE_TIME,
        TIMESTAMP_LOG_APPEND_TIME as TIMESTAMP_LOG_APPEND_TIME,
        TIMESTAMP_NOT_AVAILABLE as TIMESTAMP_NOT_AVAILABLE,
        libversion as libversion,
        version as version,
    )
    from pykclient.confluent.consumer import Consumer as Consumer
    from pykclient.confluent.kafka_error import (
        ConcurrentModificationException as ConcurrentModificationException,
        IllegalStateException as IllegalStateException,
        KafkaError as KafkaError,
        KafkaException as KafkaException,
    )
    from pykclient.confluent.message import Message as Message
    from pykclient.confluent.model import (
        AcknowledgeType as AcknowledgeType,
        ConsumerGroupState as ConsumerGroupState,
        ConsumerGroupTopicPartitions as ConsumerGroupTopicPartitions,
        ConsumerGroupType as ConsumerGroupType,
        ElectionType as ElectionType,
        IsolationLevel as IsolationLevel,
        Messages as Messages,
        Node as Node,
        ThrottleEvent as ThrottleEvent,
        TopicCollection as TopicCollection,
        TopicPartitionInfo as TopicPartitionInfo,
    )
    from pykclient.confluent.partitioners import consistent as consistent, fnv1a as fnv1a, murmur2 as murmur2
    from pykclient.confluent.producer import Producer as Producer
    from pykclient.confluent.serializing import (
        DeserializingConsumer as DeserializingConsumer,
        SerializingProducer as SerializingProducer,
    )
    from pykclient.confluent.share_consumer import (
        DeserializingShareConsumer as DeserializingShareConsumer,
        ShareConsumer as ShareConsumer,
    )
    from pykclient.confluent.topic_partition import TopicPartition as TopicPartition, Uuid as Uuid

#: Public names, by the modules that they live in.
_NAMES = {
    "constants": "OFFSET_BEGINNING OFFSET_END OFFSET_INVALID OFFSET_STORED TIMESTAMP_CREATE_TIME "
    "TIMESTAMP_LOG_APPEND_TIME TIMESTAMP_NOT_AVAILABLE libversion version",
    "consumer": "Consumer",
    "kafka_error": "ConcurrentModificationException IllegalStateException KafkaError KafkaException",
    "message": "Message",
    "model": "AcknowledgeType ConsumerGroupState ConsumerGroupTopicPartitions ConsumerGroupType ElectionType "
    "IsolationLevel Messages Node ThrottleEvent TopicCollection TopicPartitionInfo",
    "partitioners": "consistent fnv1a murmur2",
    "producer": "Producer",
    "serializing": "DeserializingConsumer SerializingProducer",
    "share_consumer": "DeserializingShareConsumer ShareConsumer",
    "topic_partition": "TopicPartition Uuid",
}
_HOME = {name: module for module, names in _NAMES.items() for name in names.split()}

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

if not TYPE_CHECKING:  # otherwise type checkers would accept any name, and import none by a star
    __all__ = sorted(_HOME)  # noqa: PLE0605

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

    def __dir__():
        return sorted({*globals(), *__all__})
