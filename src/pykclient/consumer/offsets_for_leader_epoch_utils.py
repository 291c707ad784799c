"""Validation of positions with their leader's log (KIP-320; Java: OffsetsForLeaderEpochUtils)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

from pykclient import errors
from pykclient.consumer.offset_fetcher_utils import RETRIED
from pykclient.errors import TopicAuthorizationError
from pykclient.network.authorization_errors import topics_denied
from pykclient.network.client_request import RequestBuilder
from pykclient.protocol.messages.offset_for_leader_epoch import OffsetForLeaderEpochRequest
from pykclient.types import TopicPartition

if TYPE_CHECKING:
    from pykclient.consumer.fetch_state import FetchPosition
    from pykclient.log_context import PrefixLogger
    from pykclient.network.api_versions import ApiVersions
    from pykclient.protocol.messages.offset_for_leader_epoch import OffsetForLeaderEpochResponse
    from pykclient.types import Node

#: From this version on (Kafka 2.3), permission to read a topic is enough. Before, a consumer could not use it.
_MIN_VERSION = 3
_NO_EPOCH = -1


def can_validate(api_versions: ApiVersions, node: Node | None) -> bool:
    """Return whether ``node`` supports the request. It is assumed to if its API versions are unknown."""
    versions = None if node is None else api_versions.get(node.id_string)
    if versions is None:
        return True
    supported = versions.api_version(OffsetForLeaderEpochRequest.API_KEY)
    return supported is not None and supported.max_version >= _MIN_VERSION


class OffsetForEpochResult(NamedTuple):
    """The end offset and epoch by partition, and the partitions to retry."""

    end_offsets: dict[TopicPartition, tuple[int, int]]
    partitions_to_retry: set[TopicPartition]


def handle_response(
    log: PrefixLogger, positions: Mapping[TopicPartition, FetchPosition], response: OffsetForLeaderEpochResponse
) -> OffsetForEpochResult:
    """Sort a response's partitions into found and to be retried.

    Raises:
        TopicAuthorizationError: the consumer may not read a topic.
    """
    result = OffsetForEpochResult({}, set(positions))
    unauthorized: set[str] = set()
    for topic in response.topics:
        for partition in topic.partitions:
            tp = TopicPartition(topic.topic, partition.partition)
            if tp not in positions:
                log.warning("Ignoring the end of a leader epoch of %s, which was not requested", tp)
            elif not partition.error_code:
                result.end_offsets[tp] = partition.end_offset, partition.leader_epoch
                result.partitions_to_retry.discard(tp)
            elif partition.error_code == TopicAuthorizationError.code:
                unauthorized.add(tp.topic)
            else:
                tell = log.debug if partition.error_code in RETRIED else log.warning
                tell("The validation of %s will be retried: %s", tp, errors.for_code(partition.error_code))
    if unauthorized:
        raise topics_denied(log.principal, unauthorized, "READ")
    return result


def prepare_request(positions: Mapping[TopicPartition, FetchPosition]) -> RequestBuilder:
    """Return the request for all positions that have an epoch."""
    topics: dict[str, OffsetForLeaderEpochRequest.OffsetForLeaderTopic] = {}
    for tp, position in positions.items():
        if position.offset_epoch is None:
            continue
        topic = topics.get(tp.topic)
        if topic is None:
            topic = topics[tp.topic] = OffsetForLeaderEpochRequest.OffsetForLeaderTopic(topic=tp.topic)
        current = position.current_leader.epoch
        topic.partitions.append(
            OffsetForLeaderEpochRequest.OffsetForLeaderPartition(
                partition=tp.partition,
                current_leader_epoch=_NO_EPOCH if current is None else current,
                leader_epoch=position.offset_epoch,
            )
        )
    # -1 is an ordinary consumer; the schema's default, -2, is a debugging one.
    return RequestBuilder(OffsetForLeaderEpochRequest(replica_id=-1, topics=topics.values()), min_version=_MIN_VERSION)
