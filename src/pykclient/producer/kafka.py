"""KafkaProducer under kafka-python's module name, for programs written for that client."""

from __future__ import annotations

from pykclient.producer.kafka_producer import KafkaProducer

__all__ = ["KafkaProducer"]
