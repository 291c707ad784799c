"""Subscriptions of a consumer that has no group: it gets every partition (kafka-python; Java raises here)."""

from __future__ import annotations

from pykclient.consumer.consumer_metadata import ConsumerMetadata
from pykclient.consumer.subscription_state import SubscriptionState
from pykclient.network.cluster import Cluster
from pykclient.types import TopicPartition


class SoleReader:
    """Assigns all partitions of the topics subscribed to, and later those that are added.

    A topic that metadata does not show keeps its partitions: it may be missing for a moment only, as while its leader
    changes, and its positions, which nobody has committed, would be lost. A rebalance listener is not told: there is no
    rebalance. Thread: application.
    """

    def __init__(self, metadata: ConsumerMetadata, subscriptions: SubscriptionState) -> None:
        self._metadata = metadata
        self._subscriptions = subscriptions
        #: What the assignment was made from.
        self._made_from: tuple[int, frozenset[str], int] | None = None

    def poll(self) -> None:
        """Bring the assignment up to date with what is known of the cluster. Cheap when nothing has changed."""
        subscriptions = self._subscriptions
        if not subscriptions.has_auto_assigned_partitions():
            return
        source = self._metadata.update_version, subscriptions.subscription(), subscriptions.assignment_id
        if source == self._made_from:
            return
        cluster = self._metadata.fetch()
        if subscriptions.has_pattern_subscription():
            self._match_pattern(cluster)
        topics = subscriptions.subscription()
        held = {tp for tp in subscriptions.assigned_partitions() if tp.topic in topics}
        found = {TopicPartition(t, info.partition) for t in topics for info in cluster.partitions_for_topic(t)}
        if held | found != subscriptions.assigned_partitions():
            subscriptions.assign_from_subscribed(sorted(held | found))
        self._made_from = source[0], topics, subscriptions.assignment_id

    def _match_pattern(self, cluster: Cluster) -> None:
        subscriptions = self._subscriptions
        matches = {topic for topic in cluster.topics if subscriptions.matches_subscribed_pattern(topic)}
        if subscriptions.subscribe_from_pattern(matches | subscriptions.subscription()):
            self._metadata.request_update_for_new_topics()
