"""Reading from Kafka: subscriptions, groups, fetching."""

from __future__ import annotations

TYPE_CHECKING = False  # typing's own costs more to import than all of this module
if TYPE_CHECKING:
    from pykclient.consumer.kafka_consumer import KafkaConsumer

__all__ = ["KafkaConsumer"]

if not TYPE_CHECKING:  # or type checkers would take any name

    def __getattr__(name):
        """Load KafkaConsumer on first use; kafka-python's programs import it from here."""
        if name == "KafkaConsumer":
            from pykclient.consumer.kafka_consumer import KafkaConsumer

            return KafkaConsumer
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
