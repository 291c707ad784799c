"""KafkaConsumer under kafka-python's module name, for programs written for kafka-python."""

from __future__ import annotations

from pykclient.consumer.kafka_consumer import KafkaConsumer

__all__ = ["KafkaConsumer"]
