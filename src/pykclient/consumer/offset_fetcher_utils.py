"""ListOffsets requests and the handling of their responses (Java: OffsetFetcherUtils, ListOffsetsRequest)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, NamedTuple

from pykclient import errors
from pykclient.consumer.fetch_config import READ_COMMITTED
from pykclient.errors import TopicAuthorizationError
from pykclient.network.authorization_errors import topics_denied
from pykclient.network.client_request import RequestBuilder
from pykclient.protocol.messages.list_offsets import ListOffsetsRequest
from pykclient.types import UNKNOWN_EPOCH, UNKNOWN_OFFSET, OffsetAndTimestamp, TopicPartition

if TYPE_CHECKING:
    from pykclient.log_context import PrefixLogger
    from pykclient.protocol.messages.list_offsets import ListOffsetsResponse

#: After these errors a retry, or another leader, may succeed.
RETRIED = frozenset(
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
    """The offset, timestamp and epoch that were found for one partition."""

    offset: int
    timestamp: int
    leader_epoch: int | None


class ListOffsetResult(NamedTuple):
    """The offsets that were found, and the partitions to retry. Partitions in neither have no such offset."""

    fetched_offsets: dict[TopicPartition, ListOffsetData]
    partitions_to_retry: set[TopicPartition]


def list_offsets_builder(
    partitions: Mapping[TopicPartition, ListOffsetsRequest.ListOffsetsPartition],
    isolation_level: int,
    require_timestamps: bool,
    timeout_ms: int,
) -> RequestBuilder:
    """Return a request for one node, in versions that support what it asks for."""
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
    """Sort a response's partitions into found and to be retried.

    Raises:
        TopicAuthorizationError: the consumer may not describe a topic.
    """
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
                # Messages from before Kafka 0.10 have no timestamps, so none matches.
                log.debug("Cannot search %s by timestamp: its messages have none", tp)
            elif code == TopicAuthorizationError.code:
                unauthorized.add(topic.name)
            else:
                tell = log.debug if code in RETRIED else log.warning
                tell("The offset lookup of %s will be retried: %s", tp, errors.for_code(code))
                result.partitions_to_retry.add(tp)
    if unauthorized:
        raise topics_denied(log.principal, unauthorized, "DESCRIBE", "to look up offsets")
    return result


def offsets_for_times_result(
    searched: Iterable[TopicPartition], found: Mapping[TopicPartition, ListOffsetData]
) -> dict[TopicPartition, OffsetAndTimestamp | None]:
    """Return an entry for each partition; None if no record is late enough."""
    result: dict[TopicPartition, OffsetAndTimestamp | None] = dict.fromkeys(searched)
    for tp, data in found.items():
        epoch = UNKNOWN_EPOCH if data.leader_epoch is None else data.leader_epoch
        result[tp] = OffsetAndTimestamp(data.offset, data.timestamp, epoch)
    return result
