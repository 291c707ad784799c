"""The consumer: subscriptions, groups and fetching."""

from __future__ import annotations

TYPE_CHECKING = False  # importing typing takes longer than the rest of this module
if TYPE_CHECKING:
    from pykclient.consumer.kafka_consumer import KafkaConsumer

__all__ = ["KafkaConsumer"]

if not TYPE_CHECKING:  # otherwise type checkers would accept any name

    def __getattr__(name):
        """Load KafkaConsumer on first use. Programs written for kafka-python import it from here."""
        if name == "KafkaConsumer":
            from pykclient.consumer.kafka_consumer import KafkaConsumer

            return KafkaConsumer
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
