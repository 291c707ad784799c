"""aiokafka's module of this name."""

from __future__ import annotations

from pykclient.aio.aio_kafka_producer import AIOKafkaProducer as AIOKafkaProducer

#: aiokafka's value of ``acks`` for its default, which frameworks pass on. Here the default is all.
_missing = "all"
