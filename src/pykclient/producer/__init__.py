"""The producer: batches records, and delivers those of a partition in order and once."""

from __future__ import annotations

TYPE_CHECKING = False  # not imported from typing, which takes longer than the rest of this module
if TYPE_CHECKING:
    from pykclient.producer.kafka_producer import KafkaProducer

__all__ = ["KafkaProducer"]

if not TYPE_CHECKING:  # hidden from type checkers, which would otherwise accept any name

    def __getattr__(name):
        """Load KafkaProducer on first use; programs written for kafka-python import it from here."""
        if name == "KafkaProducer":
            from pykclient.producer.kafka_producer import KafkaProducer

            return KafkaProducer
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
