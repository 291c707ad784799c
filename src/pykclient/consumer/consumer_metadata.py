"""The metadata of the topics that a consumer reads, subscriptions that follow it, and lookups of other topics.

Java: ConsumerMetadata, TopicMetadataRequestManager. Patterns that the client matches follow the metadata, and so does a
consumer without a group, which reads every partition (as in kafka-python; Java raises).
"""

from __future__ import annotations

import random
import uuid
from collections.abc import Collection, Iterable
from functools import partial
from typing import TYPE_CHECKING, ClassVar

from pykclient import errors
from pykclient.clock import FOREVER_MS
from pykclient.consumer.application_driver import NOTHING, PollResult, RequestFuture, TimedOperation, UnsentRequest
from pykclient.consumer.subscription_state import SubscriptionState
from pykclient.errors import InvalidTopicError, KafkaError, RetriableError, TopicAuthorizationError
from pykclient.network.exponential_backoff import ExponentialBackoff
from pykclient.network.failures import topics_denied
from pykclient.network.metadata import (
    Cluster,
    Metadata,
    MetadataRequestBuilder,
)
from pykclient.protocol.wire import ZERO_UUID
from pykclient.types import Node, PartitionInfo, TopicDescription, TopicPartition

if TYPE_CHECKING:
    from pykclient.config.abstract_config import AbstractConfig
    from pykclient.consumer.application_driver import NetworkClientDelegate
    from pykclient.log_context import LogContext
    from pykclient.network.client_request import ClientResponse
    from pykclient.network.metadata import ClusterResourceListeners
    from pykclient.protocol.messages.metadata import MetadataResponse


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
        if subscriptions.is_auto_assigned:
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


Descriptions = dict[str, TopicDescription]


class _Lookup(TimedOperation[Descriptions]):
    """A request of the application, from its first attempt to its result. Thread: application."""

    def __init__(self, builder: MetadataRequestBuilder, what: str, timeout_ms: int) -> None:
        super().__init__(timeout_ms)
        self.builder = builder
        self.what = what
        self.attempts = 0
        self.backoff_ms = 0  # of a failure, to begin with the next poll
        self.next_ms = 0  # the earliest time of the next attempt


class TopicMetadataRequestManager:
    """Sends metadata requests to any broker, and retries transient errors with backoff. Thread: application."""

    runs_in_background = False

    def __init__(
        self,
        client: NetworkClientDelegate,
        retry_backoff_ms: int,
        retry_backoff_max_ms: int,
        rng: random.Random | None = None,
        principal: str | None = None,
    ) -> None:
        self._client = client
        self._principal = principal  # for messages
        self.pending: list[_Lookup] = []
        self._backoff = ExponentialBackoff(retry_backoff_ms, retry_backoff_max_ms, rng)

    def describe_topics(
        self, topics: Collection[str] | None, timeout_ms: int, *, allow_auto_topic_creation: bool = False
    ) -> RequestFuture[Descriptions]:
        """Look up the given topics (None: all visible topics), and return a future with those that exist, by name.

        The future fails with KafkaTimeoutError if no broker responds within ``timeout_ms`` from the next poll on, and
        with another KafkaError if a topic cannot be described. A future that is given up ends its lookup.
        """
        if topics is None:
            lookup = _Lookup(MetadataRequestBuilder.all_topics(), "all topics", timeout_ms)
        elif not topics:
            return RequestFuture.success({})
        else:
            names = sorted(topics)
            what = f"topic {names[0]!r}" if len(names) == 1 else f"topics {', '.join(names)}"
            builder = MetadataRequestBuilder.for_topic_names(topics, allow_auto_topic_creation)
            lookup = _Lookup(builder, what, timeout_ms)
        self.pending.append(lookup)
        self._client.managers.poll_soon()
        lookup.future.add_listener(lambda _: self._end(lookup), lambda _: self._end(lookup))
        return lookup.future

    def _end(self, lookup: _Lookup) -> None:
        if lookup in self.pending:
            self.pending.remove(lookup)

    def poll(self, now_ms: int) -> PollResult:
        """Return the lookups to send now, and fail those that have timed out."""
        if not self.pending:
            return NOTHING
        requests: list[UnsentRequest] = []
        wait_ms = min(self._advance(lookup, now_ms, requests) for lookup in self.pending.copy())
        return PollResult(wait_ms, requests)

    def reset(self) -> None:
        """Forget all lookups: an exception has ended the call that waited for them."""
        self.pending = []

    def _advance(self, lookup: _Lookup, now_ms: int, requests: list[UnsentRequest]) -> int:
        """Add the lookup's next attempt to ``requests`` if it is due; return the milliseconds until it must go on."""
        if lookup.is_over(now_ms):
            reason = self._client.connection_report() or lookup.last_error or "no broker answered"
            lookup.time_out(f"no metadata of {lookup.what}", reason)
            return FOREVER_MS
        if lookup.backoff_ms:
            lookup.next_ms = now_ms + lookup.backoff_ms
            lookup.backoff_ms = 0
        if not lookup.in_flight and now_ms >= lookup.next_ms:
            request = UnsentRequest(lookup.builder)
            request.future.add_listener(partial(self._on_response, lookup), partial(self._on_failure, lookup))
            lookup.in_flight = True
            requests.append(request)
        left_ms = lookup.left_ms(now_ms)
        return left_ms if lookup.in_flight else min(left_ms, lookup.next_ms - now_ms)

    def _on_response(self, lookup: _Lookup, response: ClientResponse) -> None:
        error = _error_of(response.response_body, self._principal)
        if error is not None:
            self._on_failure(lookup, error)
        else:
            lookup.complete(_descriptions(response.response_body))

    def _on_failure(self, lookup: _Lookup, error: Exception) -> None:
        lookup.in_flight = False
        lookup.last_error = error
        if not isinstance(error, RetriableError):
            lookup.fail(error)
        lookup.backoff_ms = self._backoff.backoff(lookup.attempts)
        lookup.attempts += 1


def _error_of(response: MetadataResponse, principal: str | None) -> Exception | None:
    """Return the first error that is not retriable, or else a retriable one. Unknown topics are no error."""
    unauthorized = [
        topic.name for topic in response.topics if topic.error_code == TopicAuthorizationError.code and topic.name
    ]
    if unauthorized:
        return topics_denied(principal, unauthorized, "DESCRIBE")
    retriable: Exception | None = None
    for topic in response.topics:
        error = errors.for_code(topic.error_code)
        if error is None or isinstance(error, errors.UnknownTopicOrPartitionError):
            continue
        if isinstance(error, InvalidTopicError):
            return InvalidTopicError(f"topic name {topic.name!r} is invalid")
        if not isinstance(error, RetriableError):
            unexpected = KafkaError(f"unexpected error in the metadata of topic {topic.name!r}: {error!r}")
            unexpected.__cause__ = error
            return unexpected
        retriable = error
    return retriable


def _descriptions(response: MetadataResponse) -> dict[str, TopicDescription]:
    nodes = {broker.node_id: Node(broker.node_id, broker.host, broker.port, broker.rack) for broker in response.brokers}

    def find(ids: list[int]) -> tuple[Node, ...]:
        return tuple(nodes.get(id) or Node(id, "", -1) for id in ids)

    return {
        topic.name: TopicDescription(
            topic.name,
            None if topic.topic_id == ZERO_UUID else topic.topic_id,
            topic.is_internal,
            [
                PartitionInfo(
                    topic.name,
                    partition.partition_index,
                    nodes.get(partition.leader_id),
                    find(partition.replica_nodes),
                    find(partition.isr_nodes),
                    find(partition.offline_replicas),
                )
                for partition in topic.partitions
            ],
        )
        for topic in response.topics
        if topic.name is not None and not topic.error_code
    }
