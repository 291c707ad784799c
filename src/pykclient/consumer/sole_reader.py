"""Subscriptions of a consumer without a group, which reads every partition (as in kafka-python; Java raises)."""

from __future__ import annotations

from pykclient.consumer.consumer_metadata import ConsumerMetadata
from pykclient.consumer.subscription_state import SubscriptionState
from pykclient.network.cluster import Cluster
from pykclient.types import TopicPartition


class SoleReader:
    """Assigns all partitions of the subscribed topics, including partitions added later.

    A topic that is missing from the metadata keeps its partitions: it may be missing only while its leader changes, and
    its positions, which are not committed anywhere, would be lost. A topic that was deleted and created again with
    fewer partitions loses the others. Rebalance listeners are not called, because there is no rebalance. Thread:
    application.
    """

    def __init__(self, metadata: ConsumerMetadata, subscriptions: SubscriptionState) -> None:
        self._metadata = metadata
        self._subscriptions = subscriptions
        #: The metadata version and the subscription's number at the last assignment.
        self._made_from: tuple[int, int] | None = None

    def poll(self) -> None:
        """Update the assignment if metadata or the subscription has changed."""
        subscriptions = self._subscriptions
        version = self._metadata.update_version
        if (version, subscriptions.request_id) == self._made_from:
            return
        if subscriptions.has_auto_assigned_partitions():
            self._assign()
        # A version that arrived meanwhile is handled by the next poll.
        self._made_from = version, subscriptions.request_id

    def _assign(self) -> None:
        subscriptions = self._subscriptions
        cluster = self._metadata.fetch()
        if subscriptions.has_pattern_subscription():
            self._match_pattern(cluster)
        topics = subscriptions.subscription()
        held = {tp for tp in subscriptions.assigned_partitions() if tp.topic in topics and not self._is_deleted(tp)}
        found = {TopicPartition(t, info.partition) for t in topics for info in cluster.partitions_for_topic(t)}
        if held | found != subscriptions.assigned_partitions():
            subscriptions.assign_from_subscribed(sorted(held | found))

    def _is_deleted(self, tp: TopicPartition) -> bool:
        position = self._subscriptions.position_or_none(tp)
        return position is not None and position.is_of_another_topic(self._metadata.topic_ids.get(tp.topic))

    def _match_pattern(self, cluster: Cluster) -> None:
        subscriptions = self._subscriptions
        # Drop topics of an earlier pattern, unless they match this one as well.
        topics = cluster.topics | subscriptions.subscription()
        if subscriptions.subscribe_from_pattern(filter(subscriptions.matches_subscribed_pattern, topics)):
            self._metadata.request_update_for_new_topics()
