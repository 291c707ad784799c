"""The consumer: subscriptions, groups and fetching.

- ``kafka_consumer``, ``consumer_face``: the public class; ``thread_guard`` admits its callers, ``consumer_delegate`` is
  behind it
- ``iteration``: Arrow columns
- ``consumer_components``: the creation of all parts from a configuration
- ``subscription_state``: assigned partitions, their positions and their states
- ``fetch_request_manager``, ``fetch_collector``: from request to application
- ``offsets_request_manager``: offsets and positions
- ``application_driver``: request managers, the client that sends for them, and the driver that waits
- ``coordinator``: groups; ``share``: share groups; ``partition_assignors``, ``sticky_assignor``: assignors
"""

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
