"""The names of confluent-kafka's extension module.

As ``confluent_kafka.cimpl`` it runs confluent-kafka's own Python files: ``pykclient.alias`` puts it there for
``confluent_kafka.cimpl``.
"""

from __future__ import annotations

import sys
from contextvars import ContextVar
from typing import Any

from pykclient.confluent.admin_impl import AdminClientImpl
from pykclient.confluent.admin_types import NewPartitions as NewPartitions, NewTopic as NewTopic
from pykclient.confluent.constants import *  # noqa: F403 - the same names
from pykclient.confluent.consumer import Consumer as Consumer
from pykclient.confluent.kafka_error import (
    ConcurrentModificationException as ConcurrentModificationException,
    IllegalStateException as IllegalStateException,
    KafkaError as KafkaError,
    KafkaException as KafkaException,
)
from pykclient.confluent.message import Message as Message
from pykclient.confluent.partitioners import consistent as consistent, fnv1a as fnv1a, murmur2 as murmur2
from pykclient.confluent.producer import Producer as Producer
from pykclient.confluent.share_consumer import ShareConsumer as _ShareConsumer
from pykclient.confluent.topic_partition import TopicPartition as TopicPartition, Uuid as Uuid

#: The class below confluent-kafka's own AdminClient.
_AdminClientImpl = AdminClientImpl


class ShareConsumer(_ShareConsumer):
    __doc__ = _ShareConsumer.__doc__

    def poll(self, timeout: float = -1) -> Any:
        """Return messages as ``Messages`` of confluent_kafka's own files, if this module is below them."""
        messages = super().poll(timeout)
        own_files: Any = sys.modules.get("confluent_kafka._model")
        return messages if own_files is None else own_files.Messages(messages)


#: The identity of an asyncio call, which confluent-kafka's AIOConsumer sets.
_reentry_identity_var: ContextVar[int] = ContextVar("_reentry_identity_var", default=0)
