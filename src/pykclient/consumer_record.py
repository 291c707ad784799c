"""A record read from Kafka: the fields of the class in ``consumer_record_base``."""

from __future__ import annotations

from pykclient.consumer_record_base import RECORD_SLOTS, ConsumerRecordBase, K, V
from pykclient.implementation import use_compiled


class ConsumerRecord(ConsumerRecordBase[K, V]):
    __doc__ = ConsumerRecordBase.__doc__
    __slots__ = (*RECORD_SLOTS, "__dict__")


use_compiled(__name__)
