"""The producer: batches records, and delivers those of a partition in order and once.

- ``kafka_producer``, ``producer_components``: the public class with the steps of ``send``, and the making of its parts
- ``send``, ``record_arguments``, ``interceptors``, ``partitioner``: what ``send`` begins with, and asks on its way
- ``outbox``, ``record_accumulator``, ``buffer_pool``: records on their way into batches
- ``batch_register``: where each batch is, and when it is due
- ``sender``, ``produce_requests``: requests, and what becomes of batches
- ``sender_thread``: the threads that run the sender
- ``transactions``: producer ids and transactions; ``future``: batches and their results; ``columns``: sends by columns
"""

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
