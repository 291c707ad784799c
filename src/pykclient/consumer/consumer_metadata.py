"""The metadata of the topics that a consumer reads, and subscriptions that follow it.

Java: ConsumerMetadata. Patterns that the client matches follow it, and so does a consumer without a group, which reads
every partition (as in kafka-python; Java raises).
"""

from __future__ import annotations

import random
import uuid
from collections.abc import Iterable
from typing import TYPE_CHECKING, ClassVar

from pykclient.consumer.subscription_state import SubscriptionState
from pykclient.network.cluster import Cluster
from pykclient.network.metadata import Metadata, MetadataRequestBuilder
from pykclient.types import TopicPartition

if TYPE_CHECKING:
    from pykclient.config.abstract_config import AbstractConfig
    from pykclient.log_context import LogContext
    from pykclient.network.cluster import ClusterResourceListeners


class ConsumerMetadata(Metadata):
    """Metadata of the subscribed topics, or of all topics while a pattern must be matched.

    With a pattern that the brokers match, it is that of assigned topics, which are requested by id. While there are
    transient topics as well, only these are requested, because a request has either names or ids.

    Transient topics are those that a lookup such as ``offsets_for_times`` needs while it runs. Thread: any.
    """

    needed_operation: ClassVar[str] = "READ"

    def __init__(
        self,
        config: AbstractConfig,
        subscription: SubscriptionState,
        log_context: LogContext,
        cluster_resource_listeners: ClusterResourceListeners | None = None,
        rng: random.Random | None = None,
    ) -> None:
        super().__init__(
            config.get_int("retry.backoff.ms"),
            config.get_int("retry.backoff.max.ms"),
            config.get_int("metadata.max.age.ms"),
            log_context,
            cluster_resource_listeners,
            rng,
        )
        self._subscription = subscription
        self._include_internal_topics = not config.get_bool("exclude.internal.topics")
        self.allow_auto_topic_creation = config.get_bool("allow.auto.create.topics")
        self._transient_topics: frozenset[str] = frozenset()  # never changed, only replaced

    def new_metadata_request_builder(self) -> MetadataRequestBuilder:
        if self._subscription.has_pattern_subscription():
            return MetadataRequestBuilder.all_topics()
        topic_ids = self._subscription.assigned_topic_ids()
        if topic_ids and not self._transient_topics:
            return MetadataRequestBuilder.for_topic_ids(sorted(topic_ids))
        topics = sorted(self._subscription.metadata_topics() | self._transient_topics)
        return MetadataRequestBuilder.for_topic_names(topics, self.allow_auto_topic_creation)

    def add_transient_topics(self, topics: Iterable[str]) -> None:
        """Keep ``topics`` in the metadata until ``clear_transient_topics``. Request metadata if any is unknown."""
        self._transient_topics |= frozenset(topics)
        if not self._transient_topics <= self.fetch().topics:
            self.request_update_for_new_topics()

    def clear_transient_topics(self) -> None:
        self._transient_topics = frozenset()

    def retain_topic_id(self, topic: str, topic_id: uuid.UUID | None, is_internal: bool, now_ms: int) -> bool:
        """Return whether to keep a topic: one that is subscribed, looked up, or assigned by its id."""
        return topic_id in self._subscription.assigned_topic_ids() or self.retain_topic(topic, is_internal, now_ms)

    def retain_topic(self, topic: str, is_internal: bool, now_ms: int) -> bool:  # noqa: ARG002 - Metadata's signature
        if topic in self._transient_topics or self._subscription.needs_metadata(topic):
            return True
        if is_internal and not self._include_internal_topics:
            return False
        return self._subscription.matches_subscribed_pattern(topic)


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
