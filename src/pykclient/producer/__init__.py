"""The producer: batches records and delivers each partition's in order, once."""

from __future__ import annotations

TYPE_CHECKING = False  # typing's own costs more to import than all of this module
if TYPE_CHECKING:
    from pykclient.producer.kafka_producer import KafkaProducer

__all__ = ["KafkaProducer"]

if not TYPE_CHECKING:  # or type checkers would take any name

    def __getattr__(name):
        """Load KafkaProducer on first use; kafka-python's programs import it from here."""
        if name == "KafkaProducer":
            from pykclient.producer.kafka_producer import KafkaProducer

            return KafkaProducer
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
