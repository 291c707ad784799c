"""Metadata requests outside the subscription (Java: TopicMetadataRequestManager)."""

from __future__ import annotations

import random
from collections.abc import Collection
from functools import partial
from typing import TYPE_CHECKING

from pykclient import errors
from pykclient.clock import FOREVER_MS
from pykclient.consumer.request_manager import NOTHING, PollResult, RequestFuture, TimedOperation, UnsentRequest
from pykclient.errors import InvalidTopicError, KafkaError, RetriableError, TopicAuthorizationError
from pykclient.network.cluster import ZERO_UUID
from pykclient.network.exponential_backoff import ExponentialBackoff
from pykclient.network.failures import topics_denied
from pykclient.network.metadata import RETRY_BACKOFF_EXP_BASE, RETRY_BACKOFF_JITTER, MetadataRequestBuilder
from pykclient.types import Node, PartitionInfo, TopicDescription

if TYPE_CHECKING:
    from pykclient.consumer.network_client_delegate import NetworkClientDelegate
    from pykclient.network.client_request import ClientResponse
    from pykclient.protocol.messages.metadata import MetadataResponse

Descriptions = dict[str, TopicDescription]


class _Lookup(TimedOperation[Descriptions]):
    """A request of the application, from its first attempt to its result. Thread: application."""

    __slots__ = ("attempts", "backoff_ms", "builder", "next_ms", "what")

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
        self._backoff = ExponentialBackoff(
            retry_backoff_ms, RETRY_BACKOFF_EXP_BASE, retry_backoff_max_ms, RETRY_BACKOFF_JITTER, rng
        )

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
