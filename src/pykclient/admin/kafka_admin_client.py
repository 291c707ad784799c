"""The admin client with the methods of kafka-python's."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pykclient.admin.kafka_cluster import AccessCalls, ClusterCalls, ConfigCalls
from pykclient.admin.kafka_groups import GroupCalls, TransactionCalls
from pykclient.admin.kafka_topics import PartitionCalls, TopicCalls

if TYPE_CHECKING:
    from pykclient.admin.admin import Admin


class KafkaAdminClient(
    TopicCalls, PartitionCalls, ConfigCalls, ClusterCalls, GroupCalls, AccessCalls, TransactionCalls
):
    """A client that administers a Kafka cluster: topics, configurations, groups, access and more.

    Settings are keyword arguments, or a mapping of Kafka's dotted keys::

        with KafkaAdminClient(bootstrap_servers="localhost:9092") as admin:
            admin.create_topics({"flights": {"num_partitions": 6, "replication_factor": 3}})

    The methods take and return what those of kafka-python do. ``typed`` has the same calls with typed results, and an
    error for each item. Creating a client does not wait for the cluster; its calls do.

    Calls go to the broker that is responsible, and are retried until their deadline: ``timeout_ms`` where a method has
    it, else ``default.api.timeout.ms`` (60 s). KafkaTimeoutError tells what was tried.

    A client does not survive ``fork``: in the child every call raises UseAfterForkError. Once it is closed, calls raise
    IllegalStateError.

    Thread: any. The client has no thread of its own; one of the threads that wait drives the calls of all.
    """

    @property
    def typed(self) -> Admin:
        """The same client with typed results. Closing either closes both."""
        from pykclient.admin.admin import Admin

        typed = Admin.__new__(Admin)
        typed._share(self)
        return typed
