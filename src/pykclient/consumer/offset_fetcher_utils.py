"""Requests for offsets and what their answers mean (Java: OffsetFetcherUtils, ListOffsetsRequest)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, NamedTuple

from pykclient import errors
from pykclient.consumer.fetch_config import READ_COMMITTED
from pykclient.errors import TopicAuthorizationError
from pykclient.network.client_request import RequestBuilder
from pykclient.protocol.messages.list_offsets import ListOffsetsRequest
from pykclient.types import UNKNOWN_EPOCH, UNKNOWN_OFFSET, OffsetAndTimestamp, TopicPartition

if TYPE_CHECKING:
    from pykclient.log_context import PrefixLogger
    from pykclient.protocol.messages.list_offsets import ListOffsetsResponse

#: Another leader or another moment will do.
_RETRY = frozenset(
    error.code
    for error in (
        errors.NotLeaderOrFollowerError,
        errors.ReplicaNotAvailableError,
        errors.KafkaStorageError,
        errors.OffsetNotAvailableError,
        errors.LeaderNotAvailableError,
        errors.FencedLeaderEpochError,
        errors.UnknownLeaderEpochError,
    )
)
_CONSUMER_REPLICA_ID = -1


class ListOffsetData(NamedTuple):
    """What was found for one partition."""

    offset: int
    timestamp: int
    leader_epoch: int | None


class ListOffsetResult(NamedTuple):
    """What was found, and the partitions to ask for again. Those in neither have no such offset."""

    fetched_offsets: dict[TopicPartition, ListOffsetData]
    partitions_to_retry: set[TopicPartition]


def list_offsets_builder(
    partitions: Mapping[TopicPartition, ListOffsetsRequest.ListOffsetsPartition],
    isolation_level: int,
    require_timestamps: bool,
    timeout_ms: int,
) -> RequestBuilder:
    """A request for one node, in no version that is too old for what is asked."""
    topics: dict[str, ListOffsetsRequest.ListOffsetsTopic] = {}
    for tp, partition in partitions.items():
        topic = topics.get(tp.topic)
        if topic is None:
            topic = topics[tp.topic] = ListOffsetsRequest.ListOffsetsTopic(name=tp.topic)
        topic.partitions.append(partition)
    oldest = ListOffsetsRequest.VERSIONS[0]
    if isolation_level == READ_COMMITTED:
        oldest = max(oldest, 2)
    elif require_timestamps:
        oldest = max(oldest, 1)
    request = ListOffsetsRequest(
        replica_id=_CONSUMER_REPLICA_ID,
        isolation_level=isolation_level,
        topics=topics.values(),
        timeout_ms=timeout_ms,
    )
    return RequestBuilder(request, min_version=oldest)


def handle_list_offset_response(log: PrefixLogger, response: ListOffsetsResponse) -> ListOffsetResult:
    """Sort an answer into found and to be tried again. Raises TopicAuthorizationError."""
    result = ListOffsetResult({}, set())
    unauthorized: set[str] = set()
    for topic in response.topics:
        for partition in topic.partitions:
            tp = TopicPartition(topic.name, partition.partition_index)
            code = partition.error_code
            if not code:
                if partition.offset != UNKNOWN_OFFSET:
                    epoch = partition.leader_epoch if partition.leader_epoch != UNKNOWN_EPOCH else None
                    result.fetched_offsets[tp] = ListOffsetData(partition.offset, partition.timestamp, epoch)
            elif code == errors.UnsupportedForMessageFormatError.code:
                # Messages from before 0.10 have no timestamps, so none is late enough.
                log.debug("Cannot search %s by timestamp: its messages have none", tp)
            elif code == TopicAuthorizationError.code:
                unauthorized.add(topic.name)
            else:
                tell = log.debug if code in _RETRY else log.warning
                tell("Asking for offsets of %s will be tried again: %s", tp, errors.for_code(code))
                result.partitions_to_retry.add(tp)
    if unauthorized:
        raise TopicAuthorizationError(f"not authorized to describe topics: {', '.join(sorted(unauthorized))}")
    return result


def offsets_for_times_result(
    searched: Iterable[TopicPartition], found: Mapping[TopicPartition, ListOffsetData]
) -> dict[TopicPartition, OffsetAndTimestamp | None]:
    """An entry for each partition; None where no record is late enough."""
    result: dict[TopicPartition, OffsetAndTimestamp | None] = dict.fromkeys(searched)
    for tp, data in found.items():
        epoch = UNKNOWN_EPOCH if data.leader_epoch is None else data.leader_epoch
        result[tp] = OffsetAndTimestamp(data.offset, data.timestamp, epoch)
    return result
