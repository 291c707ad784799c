"""Metadata requests outside the subscription (Java: TopicMetadataFetcher)."""

from __future__ import annotations

import random
from collections.abc import Collection
from typing import TYPE_CHECKING

from pykclient import errors
from pykclient.errors import InvalidTopicError, KafkaError, KafkaTimeoutError, RetriableError, TopicAuthorizationError
from pykclient.network.cluster import ZERO_UUID
from pykclient.network.exponential_backoff import ExponentialBackoff
from pykclient.network.metadata import RETRY_BACKOFF_EXP_BASE, RETRY_BACKOFF_JITTER
from pykclient.network.metadata_request import MetadataRequestBuilder
from pykclient.types import Node, PartitionInfo, TopicDescription

if TYPE_CHECKING:
    from pykclient.clock import Timer
    from pykclient.consumer.consumer_network_client import ConsumerNetworkClient
    from pykclient.log_context import LogContext
    from pykclient.protocol.messages.metadata import MetadataResponse


class TopicMetadataFetcher:
    """Sends metadata requests to any broker, and retries transient errors with backoff. Thread: application."""

    def __init__(
        self,
        log_context: LogContext,
        client: ConsumerNetworkClient,
        retry_backoff_ms: int,
        retry_backoff_max_ms: int,
        rng: random.Random | None = None,
    ) -> None:
        self._log = log_context.logger(__name__)
        self._client = client
        self._backoff = ExponentialBackoff(
            retry_backoff_ms, RETRY_BACKOFF_EXP_BASE, retry_backoff_max_ms, RETRY_BACKOFF_JITTER, rng
        )

    def get_topic_metadata(
        self, topic: str, allow_auto_topic_creation: bool, timer: Timer
    ) -> list[PartitionInfo] | None:
        """Return the partitions of ``topic``, or None if it does not exist.

        Raises:
            KafkaTimeoutError: no broker responded in time.
            KafkaError: the topic cannot be described.
        """
        builder = MetadataRequestBuilder.for_topic_names([topic], allow_auto_topic_creation)
        found = self._fetch(builder, f"topic {topic!r}", timer).get(topic)
        return None if found is None else found.partitions

    def describe_topics(self, topics: Collection[str] | None, timer: Timer) -> dict[str, TopicDescription]:
        """Return the given topics that exist (default: all visible topics). Never creates one.

        Raises:
            KafkaTimeoutError: no broker responded in time.
            KafkaError: a topic cannot be described.
        """
        if topics is None:
            return self._fetch(MetadataRequestBuilder.all_topics(), "all topics", timer)
        if not topics:
            return {}
        builder = MetadataRequestBuilder.for_topic_names(topics, False)
        return self._fetch(builder, f"topics {', '.join(sorted(topics))}", timer)

    def _fetch(self, builder: MetadataRequestBuilder, what: str, timer: Timer) -> dict[str, TopicDescription]:
        attempts = 0
        last_error: Exception | None = None
        while True:
            node = self._client.least_loaded_node()
            if node is not None:
                future = self._client.send(node, builder)
                self._client.poll_future(future, timer)
                if future.succeeded:
                    response: MetadataResponse = future.value.response_body
                    last_error = _retriable_error(response)
                    if last_error is None:
                        return _descriptions(response)
                elif future.failed:
                    last_error = future.exception
                    if not future.is_retriable:
                        raise last_error
            else:
                # Without a poll, no connection would be made.
                self._client.poll(timer, lambda: False)
            timer.update()
            if timer.expired:
                break
            timer.sleep_ms(self._backoff.backoff(attempts))
            attempts += 1
        reason = self._client.connection_report() or last_error or "no broker answered"
        raise KafkaTimeoutError(f"no metadata of {what} within {timer.timeout_ms} ms: {reason}") from last_error


def _retriable_error(response: MetadataResponse) -> Exception | None:
    """Return a retriable error of the response, or None. Raises non-retriable errors."""
    unauthorized = [
        topic.name for topic in response.topics if topic.error_code == TopicAuthorizationError.code and topic.name
    ]
    if unauthorized:
        raise TopicAuthorizationError(f"not authorized to describe topics: {', '.join(sorted(unauthorized))}")
    retriable: Exception | None = None
    for topic in response.topics:
        error = errors.for_code(topic.error_code)
        if error is None or isinstance(error, errors.UnknownTopicOrPartitionError):
            continue  # unknown topics are left out of the result
        if isinstance(error, InvalidTopicError):
            raise InvalidTopicError(f"topic name {topic.name!r} is invalid")
        if not isinstance(error, RetriableError):
            raise KafkaError(f"unexpected error in the metadata of topic {topic.name!r}: {error!r}") from error
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
