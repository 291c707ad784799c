"""Subscriptions by pattern that the client matches with its metadata."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pykclient.consumer.consumer_metadata import ConsumerMetadata
    from pykclient.consumer.subscription_state import SubscriptionState
    from pykclient.network.cluster import Cluster


class PatternSubscription:
    """Keeps the subscription equal to the topics that match its pattern. Thread: application."""

    def __init__(self, metadata: ConsumerMetadata, subscriptions: SubscriptionState) -> None:
        self._metadata = metadata
        self._subscriptions = subscriptions
        self._seen_version = -1

    def metadata_updated(self) -> None:
        """Match metadata that arrived since the last call."""
        version = self._metadata.update_version
        if version <= self._seen_version:
            return
        cluster = self._metadata.fetch()
        # A client that starts again from the bootstrap servers (KIP-899) knows no topics: nothing would match.
        if not cluster.is_bootstrap_configured and self._subscriptions.has_pattern_subscription():
            self.match(cluster)
        self._seen_version = version

    def match(self, cluster: Cluster) -> None:
        """Subscribe to the topics that match the pattern now."""
        matches = [topic for topic in cluster.topics if self._subscriptions.matches_subscribed_pattern(topic)]
        if self._subscriptions.subscribe_from_pattern(matches):
            self._metadata.request_update_for_new_topics()
