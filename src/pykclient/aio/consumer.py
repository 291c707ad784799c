"""aiokafka's module of this name."""

from __future__ import annotations

from pykclient.aio.aio_kafka_consumer import AIOKafkaConsumer as AIOKafkaConsumer
