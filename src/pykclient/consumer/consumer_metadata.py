"""The metadata of the topics that a consumer reads (Java: ConsumerMetadata)."""

from __future__ import annotations

import random
import uuid
from collections.abc import Iterable
from typing import TYPE_CHECKING, ClassVar

from pykclient.network.metadata import Metadata, MetadataRequestBuilder

if TYPE_CHECKING:
    from pykclient.config.abstract_config import AbstractConfig
    from pykclient.consumer.subscription_state import SubscriptionState
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
