"""Subscriptions of a consumer without a group, which reads every partition (as in kafka-python; Java raises)."""

from __future__ import annotations

from pykclient.consumer.consumer_metadata import ConsumerMetadata
from pykclient.consumer.subscription_state import SubscriptionState, TopicPattern
from pykclient.network.cluster import Cluster
from pykclient.types import TopicPartition

#: Metadata version, pattern, topics and assignment id.
_Source = tuple[int, TopicPattern | None, frozenset[str], int]


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
        #: The input of the last assignment.
        self._made_from: _Source | None = None

    def poll(self) -> None:
        """Update the assignment if metadata or the subscription has changed."""
        subscriptions = self._subscriptions
        if not subscriptions.has_auto_assigned_partitions():
            return
        if self._source() == self._made_from:
            return
        version = self._metadata.update_version
        cluster = self._metadata.fetch()
        if subscriptions.has_pattern_subscription():
            self._match_pattern(cluster)
        topics = subscriptions.subscription()
        held = {tp for tp in subscriptions.assigned_partitions() if tp.topic in topics and not self._is_deleted(tp)}
        found = {TopicPartition(t, info.partition) for t in topics for info in cluster.partitions_for_topic(t)}
        if held | found != subscriptions.assigned_partitions():
            subscriptions.assign_from_subscribed(sorted(held | found))
        # A version that arrived meanwhile is handled by the next poll.
        self._made_from = version, *self._source()[1:]

    def _source(self) -> _Source:
        subscriptions = self._subscriptions
        return (
            self._metadata.update_version,
            subscriptions.subscribed_pattern(),
            subscriptions.subscription(),
            subscriptions.assignment_id,
        )

    def _is_deleted(self, tp: TopicPartition) -> bool:
        position = self._subscriptions.position_or_none(tp)
        return position is not None and position.is_of_another_topic(self._metadata.topic_ids.get(tp.topic))

    def _match_pattern(self, cluster: Cluster) -> None:
        subscriptions = self._subscriptions
        # Drop topics of an earlier pattern, unless they match this one as well.
        topics = cluster.topics | subscriptions.subscription()
        if subscriptions.subscribe_from_pattern(filter(subscriptions.matches_subscribed_pattern, topics)):
            self._metadata.request_update_for_new_topics()
