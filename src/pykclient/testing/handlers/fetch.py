"""Fetch: records for consumers and followers."""

from __future__ import annotations

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from typing import TYPE_CHECKING, Final, cast

from pykclient.errors import (
    BrokerError,
    FencedLeaderEpochError,
    NotLeaderOrFollowerError,
    TopicAuthorizationError,
    UnknownTopicIdError,
    UnknownTopicOrPartitionError,
    UnsupportedCompressionTypeError,
)
from pykclient.protocol.api_keys import ApiKeys
from pykclient.protocol.messages.fetch import FetchRequest, FetchResponse
from pykclient.record.compression_type import CompressionType
from pykclient.record.record_batch import MAGIC_VALUE_V0, MAGIC_VALUE_V1
from pykclient.record.records_util import down_convert
from pykclient.testing import acls
from pykclient.testing.replica.fetch_params import (
    ClientMetadata,
    FetchParams,
    FetchPartitionData,
    PartitionFetch,
    isolation_of,
)
from pykclient.types import TopicPartition

if TYPE_CHECKING:
    from uuid import UUID

    from pykclient.protocol.wire import BytesLike
    from pykclient.testing.broker import Broker
    from pykclient.testing.replica.fetch_session import FetchContext
    from pykclient.testing.server.request_channel import Request
    from pykclient.types import Node

    Key = tuple[UUID | str, int]

API_KEY = ApiKeys.FETCH
VERSIONS = (0, 18)

#: Up to this version, ``max_bytes`` applies even to the first batch, which is then cut off.
_LAST_VERSION_WITH_HARD_LIMIT: Final = 2
_FIRST_VERSION_WITH_V1: Final = 2
_FIRST_VERSION_WITH_V2: Final = 4
_FIRST_VERSION_WITH_ZSTD: Final = 10
_FIRST_VERSION_WITH_RACKS: Final = 11
_FIRST_VERSION_WITH_TOPIC_IDS: Final = 13
_FIRST_VERSION_WITH_REPLICA_STATE: Final = 15
_FIRST_VERSION_WITH_LEADERS: Final = 16

# The value of these in most responses, created once.
_NO_DIVERGING_EPOCH: Final = FetchResponse.EpochEndOffset()
_NO_LEADER: Final = FetchResponse.LeaderIdAndEpoch()
_NO_SNAPSHOT: Final = FetchResponse.SnapshotId()


def handle(broker: Broker, request: Request) -> None:
    """Read the session's partitions, and respond when there is enough data or time is up."""
    body = cast(FetchRequest, request.body)
    version = request.api_version
    manager = broker.replica_manager
    if version < _FIRST_VERSION_WITH_REPLICA_STATE:
        replica_id, replica_epoch = body.replica_id, -1
    else:
        replica_id, replica_epoch = body.replica_state.replica_id, body.replica_state.replica_epoch
    context = manager.fetch_manager.new_context(
        version,
        body.session_id,
        body.session_epoch,
        _fetches(broker, body, version),
        _forgotten(body, version),
        broker.replica_manager.topic_name,
        is_from_follower=replica_id >= 0,
    )
    max_bytes = min(body.max_bytes, broker.config.get_int("fetch.max.bytes"))
    if broker.quotas.active:
        max_bytes = min(max_bytes, broker.quotas.max_fetched_bytes(request) or max_bytes)
    params = FetchParams(
        replica_id,
        replica_epoch,
        body.max_wait_ms,
        min(body.min_bytes, max_bytes),
        max_bytes,
        isolation_of(replica_id, body.isolation_level),
        _client_metadata(body, request) if replica_id < 0 and version >= _FIRST_VERSION_WITH_RACKS else None,
        version <= _LAST_VERSION_WITH_HARD_LIMIT,
    )
    known: list[PartitionFetch] = []
    refused: list[tuple[PartitionFetch, FetchPartitionData]] = []
    authorized = _authorized_topics(broker, request, context, is_from_follower=replica_id >= 0)
    for fetch in context.partitions:
        error_code = _error_before_reading(broker, fetch, version, authorized)
        if error_code:
            refused.append((fetch, FetchPartitionData(error_code)))
        else:
            known.append(fetch)

    def respond(results: list[tuple[PartitionFetch, FetchPartitionData]]) -> None:
        _respond(broker, request, context, refused + results if refused else results)

    if known:
        manager.fetch_messages(params, known, respond)
    else:
        respond([])


def _fetches(broker: Broker, body: FetchRequest, version: int) -> list[PartitionFetch]:
    by_id = version >= _FIRST_VERSION_WITH_TOPIC_IDS
    fetches = []
    for topic in body.topics:
        name = (broker.replica_manager.topic_name(topic.topic_id) or "") if by_id else topic.topic
        topic_id = topic.topic_id
        fetches += [
            PartitionFetch(
                TopicPartition(name, asked.partition),
                asked.fetch_offset,
                asked.partition_max_bytes,
                topic_id=topic_id,
                log_start_offset=asked.log_start_offset,
                current_leader_epoch=asked.current_leader_epoch,
                last_fetched_epoch=asked.last_fetched_epoch,
            )
            for asked in topic.partitions
        ]
    return fetches


def _forgotten(body: FetchRequest, version: int) -> list[Key]:
    by_id = version >= _FIRST_VERSION_WITH_TOPIC_IDS
    return [
        (topic.topic_id if by_id else topic.topic, index)
        for topic in body.forgotten_topics_data
        for index in topic.partitions
    ]


def _client_metadata(body: FetchRequest, request: Request) -> ClientMetadata:
    return ClientMetadata(body.rack_id, request.client_id or "", request.client_host)


def _authorized_topics(
    broker: Broker, request: Request, context: FetchContext, *, is_from_follower: bool
) -> set[str] | None:
    """Return the topics that may be read; None if all may be."""
    auth = broker.auth
    if auth.authorizer is None or request.is_privileged:
        return None
    if is_from_follower:
        return None if auth.authorize(request, acls.CLUSTER_ACTION, acls.CLUSTER, acls.CLUSTER_NAME) else set()
    topics = {fetch.topic_partition.topic for fetch in context.partitions}
    return auth.filter(request, acls.READ, acls.TOPIC, topics)


def _error_before_reading(
    broker: Broker, fetch: PartitionFetch, version: int, authorized: AbstractSet[str] | None
) -> int:
    """Return the code of an error that does not depend on the log.

    The response still waits for the other partitions.
    """
    topic_partition = fetch.topic_partition
    if not topic_partition.topic:
        return UnknownTopicIdError.code
    if authorized is not None and topic_partition.topic not in authorized:
        return TopicAuthorizationError.code
    partition = broker.replica_manager.partition(topic_partition)
    if partition is None and broker.metadata_cache.partition_info(topic_partition) is None:
        return UnknownTopicOrPartitionError.code
    if version < _FIRST_VERSION_WITH_ZSTD:
        log = None if partition is None else partition.log
        if log is not None and log.config.compression_type == CompressionType.ZSTD.name:
            return UnsupportedCompressionTypeError.code
    return 0


def _respond(
    broker: Broker,
    request: Request,
    context: FetchContext,
    results: Sequence[tuple[PartitionFetch, FetchPartitionData]],
) -> None:
    version = request.api_version
    if broker.quotas.active:
        throttle_ms = broker.quotas.fetch_throttle_time_ms(request, sum(data.size_in_bytes for _, data in results))
        if throttle_ms:
            session_id, error_code = context.throttled_response()
            request.respond(FetchResponse(error_code=error_code, session_id=session_id), throttle_ms)
            return
    session_id, error_code, news = context.update_and_generate_response(results)
    response = FetchResponse(error_code=error_code, session_id=session_id)
    topic: FetchResponse.FetchableTopicResponse | None = None
    topic_name: str | None = None
    topic_id: UUID | None = None
    nodes: dict[int, Node] = {}
    for fetch, data in news:
        name, index = fetch.topic_partition
        if topic is None or name != topic_name or fetch.topic_id != topic_id:
            topic_name, topic_id = name, fetch.topic_id
            topic = FetchResponse.FetchableTopicResponse(topic=name, topic_id=topic_id)
            response.responses.append(topic)
        if version < _FIRST_VERSION_WITH_V2:
            _down_convert(data, fetch, version)
        answer = _partition_data(index, data)
        if version >= _FIRST_VERSION_WITH_LEADERS and data.error_code in (
            NotLeaderOrFollowerError.code,
            FencedLeaderEpochError.code,
        ):
            leader_id, leader_epoch = broker.replica_manager.current_leader(fetch.topic_partition)
            answer.current_leader = FetchResponse.LeaderIdAndEpoch(leader_id=leader_id, leader_epoch=leader_epoch)
            node = broker.metadata_cache.alive_broker(leader_id)
            if node is not None:
                nodes[leader_id] = node
        topic.partitions.append(answer)
    response.node_endpoints = [
        FetchResponse.NodeEndpoint(node_id=node.id, host=node.host, port=node.port, rack=node.rack)
        for node in map(request.advertised, nodes.values())
    ]
    request.respond(response)


def _partition_data(index: int, data: FetchPartitionData) -> FetchResponse.PartitionData:
    aborted = data.aborted_transactions
    diverging = data.diverging_epoch
    return FetchResponse.PartitionData(
        partition_index=index,
        error_code=data.error_code,
        high_watermark=data.high_watermark,
        last_stable_offset=data.last_stable_offset,
        log_start_offset=data.log_start_offset,
        diverging_epoch=_NO_DIVERGING_EPOCH
        if diverging is None
        else FetchResponse.EpochEndOffset(epoch=diverging.leader_epoch, end_offset=diverging.offset),
        current_leader=_NO_LEADER,
        snapshot_id=_NO_SNAPSHOT,
        aborted_transactions=None
        if aborted is None
        else [
            FetchResponse.AbortedTransaction(producer_id=txn.producer_id, first_offset=txn.first_offset)
            for txn in aborted
        ],
        preferred_read_replica=-1 if data.preferred_read_replica is None else data.preferred_read_replica,
        records=cast("BytesLike", data.records),  # the writer accepts several pieces
    )


def _down_convert(data: FetchPartitionData, fetch: PartitionFetch, version: int) -> None:
    """Convert the records to a format that the reader knows.

    The result is at most as large as the reader wants, but has at least one batch (KIP-74).
    """
    magic = MAGIC_VALUE_V1 if version >= _FIRST_VERSION_WITH_V1 else MAGIC_VALUE_V0
    try:
        data.records = down_convert(data.records, magic, fetch.fetch_offset, fetch.max_bytes).records
    except BrokerError as error:
        data.error_code = error.code
        data.records = ()


def error_response(body: FetchRequest, code: int, message: str | None = None) -> FetchResponse:  # noqa: ARG001
    return FetchResponse(
        error_code=code,
        session_id=body.session_id,
        responses=[
            FetchResponse.FetchableTopicResponse(
                topic=topic.topic,
                topic_id=topic.topic_id,
                partitions=[
                    FetchResponse.PartitionData(
                        partition_index=asked.partition, error_code=code, high_watermark=-1, records=b""
                    )
                    for asked in topic.partitions
                ],
            )
            for topic in body.topics
        ],
    )
