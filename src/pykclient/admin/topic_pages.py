"""Describing topics in pages, with the eligible leader replicas of their partitions (KIP-966)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple
from uuid import UUID

from pykclient.admin.api import AdminApiHandler, to_any_broker
from pykclient.admin.handlers import QuestionHandler
from pykclient.admin.operation import CallContext, Operation
from pykclient.admin.results import Results
from pykclient.admin.topics import TopicKey, describe_topics, topic_error
from pykclient.errors import KafkaError, RemoteProtocolError, UnsupportedVersionError
from pykclient.protocol.messages.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
)

#: The number of partitions in a response, as in Java; brokers have a limit of their own.
_PAGE_SIZE: Final = 2000


class Cursor(NamedTuple):
    """The first partition of a page."""

    topic: str
    partition: int


def _page_request(topics: Sequence[str], limit: int, cursor: Cursor | None) -> DescribeTopicPartitionsRequest:
    return DescribeTopicPartitionsRequest(
        topics=[DescribeTopicPartitionsRequest.TopicRequest(name=name) for name in sorted(topics)],
        response_partition_limit=limit,
        cursor=None
        if cursor is None
        else DescribeTopicPartitionsRequest.Cursor(topic_name=cursor.topic, partition_index=cursor.partition),
    )


def describe_topic_partitions(
    context: CallContext, topics: Sequence[str], limit: int, cursor: Cursor | None
) -> Operation[DescribeTopicPartitionsResponse]:
    """Return one page of the partitions of topics."""
    request = _page_request(topics, limit, cursor)

    def read(response: DescribeTopicPartitionsResponse) -> DescribeTopicPartitionsResponse:
        return response

    return (
        yield from context.ask(
            QuestionHandler("describe_topic_partitions", to_any_broker(), lambda _timeout_ms: request, read)
        )
    )


class _PageHandler(AdminApiHandler[str, Any]):
    """Asks for the page at ``cursor``. A topic that comes after the page has None as its result."""

    __slots__ = ("_cursor", "next_cursor")

    def __init__(self, cursor: Cursor | None) -> None:
        super().__init__("describe_topics", to_any_broker())
        self._cursor = cursor
        self.next_cursor: Cursor | None = None

    def request(self, keys: Sequence[str], timeout_ms: int) -> DescribeTopicPartitionsRequest:
        return _page_request(keys, _PAGE_SIZE, self._cursor)

    def answers(
        self, keys: Sequence[str], response: DescribeTopicPartitionsResponse
    ) -> Iterator[tuple[str, KafkaError | None, Any]]:
        place = response.next_cursor
        self.next_cursor = None if place is None else Cursor(place.topic_name, place.partition_index)
        told = set()
        for topic in response.topics:
            if topic.name is not None:
                told.add(topic.name)
                yield topic.name, topic_error(topic, topic.name), topic
        if place is not None:
            for key in keys:
                if key not in told:
                    yield key, None, None


def describe_topics_in_pages(context: CallContext, topics: Sequence[TopicKey]) -> Operation[Results[TopicKey, Any]]:
    """Describe topics as any broker knows them.

    Topics given by name are described in pages and, as in Java, only they have eligible leader replicas. Topics given
    by id, and all topics where the brokers are older than Kafka 3.8, are described by one response with metadata.
    """
    results: Results[TopicKey, Any] = Results()
    remaining = [topic for topic in topics if isinstance(topic, str)]
    others: Sequence[TopicKey] = [topic for topic in topics if isinstance(topic, UUID)]
    cursor: Cursor | None = None
    while remaining:
        handler = _PageHandler(cursor)
        page = yield from context.run(handler, remaining)
        if isinstance(page.error_of_all, UnsupportedVersionError):
            others = topics
            break
        _add(results, page)
        if handler.next_cursor is None:
            break
        if handler.next_cursor == cursor:
            raise RemoteProtocolError(f"describe_topics: the broker's response ends where it began, at {cursor}")
        cursor = handler.next_cursor
        remaining = [name for name in remaining if name >= cursor.topic]
    described = yield from describe_topics(context, others)
    _add(results, described)
    return results


def _add(results: Results[TopicKey, Any], page: Results[Any, Any]) -> None:
    """Add a page to the results. A topic may begin on one page and end on another."""
    for name, topic in page.succeeded.items():
        if name in results.succeeded and topic is not None:
            results.succeeded[name].partitions.extend(topic.partitions)
        elif topic is not None:
            results.succeeded[name] = topic
    for name, error in page.failed.items():
        results.succeeded.pop(name, None)
        results.failed[name] = error
    results.error_of_all = results.error_of_all or page.error_of_all
