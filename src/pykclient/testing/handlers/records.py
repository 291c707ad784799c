"""Records: Produce, Fetch, ListOffsets, OffsetForLeaderEpoch, DeleteRecords and DescribeProducers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence, Set as AbstractSet
from struct import Struct
from typing import Any, Final, cast
from uuid import UUID

from pykclient import errors
from pykclient.protocol.api_keys import ApiKeys
from pykclient.protocol.message import Response
from pykclient.protocol.messages.delete_records import DeleteRecordsRequest
from pykclient.protocol.messages.describe_producers import DescribeProducersRequest, DescribeProducersResponse
from pykclient.protocol.messages.fetch import FetchRequest, FetchResponse
from pykclient.protocol.messages.list_offsets import ListOffsetsRequest
from pykclient.protocol.messages.offset_for_leader_epoch import OffsetForLeaderEpochRequest
from pykclient.protocol.messages.produce import ProduceRequest, ProduceResponse
from pykclient.protocol.wire import BytesLike
from pykclient.record.compression import DEFAULT_MAX_DECOMPRESSED_BYTES, CompressionType, default_compression
from pykclient.record.memory_records import AnyRecordBatch, MemoryRecords
from pykclient.record.memory_records_builder import MemoryRecordsBuilder
from pykclient.record.record_batch import (
    LOG_OVERHEAD,
    MAGIC_OFFSET,
    MAGIC_VALUE_V0,
    MAGIC_VALUE_V1,
    MAGIC_VALUE_V2,
    MAX_INT32,
    NO_TIMESTAMP,
    RECORD_BATCH_OVERHEAD,
    Buffer,
)
from pykclient.testing import acls
from pykclient.testing.broker import Broker
from pykclient.testing.handlers import answer_partitions, error_response, serves
from pykclient.testing.log import log_types
from pykclient.testing.log.producer_state_manager import VerificationState
from pykclient.testing.replica.fetch_session import (
    FetchContext,
    FetchParams,
    FetchPartitionData,
    PartitionFetch,
    isolation_of,
)
from pykclient.testing.replica.replica_manager import DeleteRecordsResult, PartitionResponse, failed_partition
from pykclient.testing.request_channel import Request
from pykclient.testing.transaction.add_partitions_to_txn_manager import (
    FirstBatch,
    TransactionSupportedOperation,
    append_error,
)
from pykclient.types import LOG_APPEND_TIME, Node, TopicPartition


def down_convert(
    records: Iterable[Buffer], to_magic: int, first_offset: int, max_bytes: int = MAX_INT32
) -> list[Buffer]:
    """Convert ``records``, buffers of whole batches, to format ``to_magic`` or older; return the batches in order.

    Offsets are kept; headers are lost.

    Batches that are old enough are passed through unchanged. Control batches are omitted, because old formats have
    none. As uncompressed messages of old formats are independent, those below ``first_offset`` are omitted, which some
    old clients rely on. The conversion ends before the batch with which the total would exceed ``max_bytes``; the first
    one is always converted.

    Raises:
        UnsupportedCompressionTypeError: a batch is compressed with zstd, or the codec's package is not installed.
        CorruptRecordError: a batch cannot be decoded.
    """
    converted: list[Buffer] = []
    size = 0
    for buffer in records:
        for batch in MemoryRecords(buffer).batches():
            if to_magic < MAGIC_VALUE_V2:
                if batch.is_control_batch:
                    continue
                if batch.compression_type is CompressionType.ZSTD:
                    raise errors.UnsupportedCompressionTypeError(
                        f"a batch at offset {batch.base_offset} is compressed with zstd, which format v{to_magic} "
                        "does not have; readers need fetch version 10 or newer"
                    )
            data: Buffer = batch.buffer
            if batch.magic > to_magic:
                data = _convert(batch, to_magic, first_offset)
            if converted and size + len(data) > max_bytes:
                return converted
            if len(data):
                converted.append(data)
                size += len(data)
    return converted


def _convert(batch: AnyRecordBatch, to_magic: int, first_offset: int) -> Buffer:
    """Return the batch in an older format; nothing if no record is requested."""
    compression = default_compression(batch.compression_type)
    builder: MemoryRecordsBuilder | None = None
    for offset, timestamp, key, value, _ in batch.stream(DEFAULT_MAX_DECOMPRESSED_BYTES):
        if offset < first_offset and not batch.is_compressed:
            continue
        if builder is None:
            builder = MemoryRecordsBuilder(
                magic=to_magic,
                compression=compression,
                timestamp_type=batch.timestamp_type,
                base_offset=offset,
                log_append_time=batch.max_timestamp if batch.timestamp_type == LOG_APPEND_TIME else NO_TIMESTAMP,
            )
        builder.append_with_offset(offset, timestamp, key, value)
    return b"" if builder is None else builder.build()


_PRODUCE_WITH_V2: Final = 3
_PRODUCE_WITH_ZSTD: Final = 7
_PRODUCE_WITH_LEADERS: Final = 10
_FIRST_VERSION_WITH_ABORTABLE_ERRORS: Final = 11
_FIRST_VERSION_WITH_ADDING: Final = 12
_FIRST_VERSION_WITH_TOPIC_IDS: Final = 13
# Positions in a batch of format 2: its size, the lower half of its attributes; the producer's id, epoch and sequence.
_SIZE: Final = slice(8, 12)
_ATTRIBUTES: Final = 22
_PRODUCER_ID: Final = 43
_PRODUCER: Final = Struct(">qhi")
# Bits of the attributes.
_CODEC: Final = 0x07
_TRANSACTIONAL: Final = 0x10


def refuse_produce(body: ProduceRequest, code: int, message: str | None = None) -> Response | None:
    return None if body.acks == 0 else error_response(ProduceResponse, body, code, message, base_offset=-1)


@serves(ApiKeys.PRODUCE, (0, 13), refuse=refuse_produce)
def handle_produce(broker: Broker, request: Request, body: ProduceRequest) -> None:
    """Append the records, and respond when as many replicas have them as ``acks`` requires; never with acks=0.

    If an append with acks=0 fails, the connection is closed, which is the only way to report it.
    """
    version = request.api_version
    auth = broker.auth
    entries: dict[TopicPartition, Buffer] = {}
    transactional: dict[TopicPartition, FirstBatch] = {}
    refused: dict[TopicPartition, PartitionResponse] = {}
    names: list[str | None] = [topic.name for topic in body.topic_data]
    if version >= _FIRST_VERSION_WITH_TOPIC_IDS:
        names = [broker.replica_manager.topic_name(topic.topic_id) for topic in body.topic_data]
    for name, topic in zip(names, body.topic_data, strict=True):
        for data in topic.partition_data:
            # Unknown topics are distinguished by their ids.
            topic_partition = TopicPartition(name or str(topic.topic_id), data.index)
            try:
                if name is None:
                    raise errors.UnknownTopicIdError(f"broker {broker.id} knows of no topic with id {topic.topic_id}")
                auth.check_topic(request, acls.WRITE, name)
                entries[topic_partition] = records = _validated(data.records, version)
                if version >= _PRODUCE_WITH_V2 and _is_transactional(records):
                    transactional[topic_partition] = _first_batch(records)
            except errors.BrokerError as error:
                refused[topic_partition] = failed_partition(topic_partition, error)

    def respond(responses: dict[TopicPartition, PartitionResponse]) -> None:
        responses |= refused
        if body.acks == 0:
            if any(response.error_code for response in responses.values()):
                request.close_connection()
            else:
                request.respond(None)
            return
        answer = ProduceResponse(
            responses=[
                ProduceResponse.TopicProduceResponse(
                    name=topic.name,
                    topic_id=topic.topic_id,
                    partition_responses=[
                        responses[TopicPartition(name or str(topic.topic_id), data.index)]
                        for data in topic.partition_data
                    ],
                )
                for name, topic in zip(names, body.topic_data, strict=True)
            ]
        )
        if version >= _PRODUCE_WITH_LEADERS:
            nodes: dict[int, Node] = {}
            for tp, response in responses.items():
                if response.error_code == errors.NotLeaderOrFollowerError.code:
                    response.current_leader = leader_of(broker, tp, nodes, ProduceResponse.LeaderIdAndEpoch)
            answer.node_endpoints = node_endpoints(request, nodes, ProduceResponse.NodeEndpoint)
        request.respond(answer)

    if not entries:
        respond({})
    elif transactional:
        if body.transactional_id is not None:
            auth.check_transactional_id(request, acls.WRITE, body.transactional_id)
        _append_transactional(broker, body, version, entries, transactional, respond)
    else:
        broker.replica_manager.append_records(body.timeout_ms, body.acks, entries, respond)


def _append_transactional(
    broker: Broker,
    body: ProduceRequest,
    version: int,
    entries: dict[TopicPartition, Buffer],
    transactional: Mapping[TopicPartition, FirstBatch],
    respond: Callable[[dict[TopicPartition, PartitionResponse]], None],
) -> None:
    """Append after the transaction's coordinator has agreed (KIP-890).

    Raises:
        TransactionalIdAuthorizationError: the request does not say which transaction it is about.
    """
    if body.transactional_id is None:
        raise errors.TransactionalIdAuthorizationError(
            "a produce request with transactional records needs a transactional id"
        )
    operation = TransactionSupportedOperation.DEFAULT_ERROR
    if version >= _FIRST_VERSION_WITH_ADDING:
        operation = TransactionSupportedOperation.ADD_PARTITION
    elif version >= _FIRST_VERSION_WITH_ABORTABLE_ERRORS:
        operation = TransactionSupportedOperation.GENERIC_ERROR_SUPPORTED

    def verified(
        error_codes: Mapping[TopicPartition, int], tokens: Mapping[TopicPartition, VerificationState | None]
    ) -> None:
        failed = {tp: failed_partition(tp, append_error(code, tp, operation)) for tp, code in error_codes.items()}
        rest = {tp: records for tp, records in entries.items() if tp not in failed}
        if rest:
            broker.replica_manager.append_records(
                body.timeout_ms, body.acks, rest, lambda done: respond(done | failed), verifications=tokens
            )
        else:
            respond(failed)

    broker.add_partitions_to_txn_manager.verify(body.transactional_id, transactional, operation, verified)


def _is_transactional(records: Buffer) -> bool:
    return len(records) >= RECORD_BATCH_OVERHEAD and bool(records[_ATTRIBUTES] & _TRANSACTIONAL)


def _first_batch(records: Buffer) -> FirstBatch:
    producer_id, epoch, sequence = _PRODUCER.unpack_from(records, _PRODUCER_ID)
    return FirstBatch(log_types.ProducerIdAndEpoch(producer_id, epoch), sequence)


def _validated(records: Buffer | None, version: int) -> Buffer:
    """Return the records if this version may contain them (Java: ProduceRequest.validateRecords).

    Raises:
        InvalidRecordError: they are not exactly one batch, or one of an old format.
        UnsupportedCompressionTypeError: zstd, which readers of that age do not know.
    """
    if records is None:
        raise errors.InvalidRecordError(f"a produce request of version {version} must have records for each partition")
    if version < _PRODUCE_WITH_V2:
        return records
    size = len(records)
    batch_size = LOG_OVERHEAD + int.from_bytes(records[_SIZE], "big", signed=True)
    if size <= MAGIC_OFFSET or batch_size > size:
        raise errors.InvalidRecordError(
            f"a produce request of version {version} must have a whole batch for each partition"
        )
    if records[MAGIC_OFFSET] != MAGIC_VALUE_V2:
        raise errors.InvalidRecordError(
            f"a produce request of version {version} may have batches of format v2 only, not v{records[MAGIC_OFFSET]}"
        )
    if batch_size < size:
        raise errors.InvalidRecordError(
            f"a produce request of version {version} may have one batch only for each partition"
        )
    if size >= RECORD_BATCH_OVERHEAD:
        attributes = records[_ATTRIBUTES]
        if version < _PRODUCE_WITH_ZSTD and attributes & _CODEC == CompressionType.ZSTD.id:
            raise errors.UnsupportedCompressionTypeError(
                f"a produce request of version {version} may not be compressed with zstd, version "
                f"{_PRODUCE_WITH_ZSTD} may"
            )
    return records


def leader_of(broker: Broker, topic_partition: TopicPartition, nodes: dict[int, Node], leader_class: Any) -> Any:
    """Return the leader of a partition, and add its address to ``nodes``.

    With both, clients need no metadata request (KIP-951).
    """
    leader_id, leader_epoch = broker.replica_manager.current_leader(topic_partition)
    node = broker.metadata_cache.alive_broker(leader_id)
    if node is not None:
        nodes[leader_id] = node
    return leader_class(leader_id=leader_id, leader_epoch=leader_epoch)


def node_endpoints(request: Request, nodes: Mapping[int, Node], endpoint_class: Any) -> list[Any]:
    """Return the addresses of brokers for the requester."""
    return [
        endpoint_class(node_id=node.id, host=node.host, port=node.port, rack=node.rack)
        for node in map(request.advertised, nodes.values())
    ]


Key = tuple[UUID | str, int]
#: Up to this version, ``max_bytes`` applies even to the first batch, which is then cut off.
_LAST_VERSION_WITH_HARD_LIMIT: Final = 2
_FIRST_VERSION_WITH_V1: Final = 2
_FETCH_WITH_V2: Final = 4
_FETCH_WITH_ZSTD: Final = 10
_FIRST_VERSION_WITH_RACKS: Final = 11
_FIRST_VERSION_WITH_REPLICA_STATE: Final = 15
_FETCH_WITH_LEADERS: Final = 16
# The value of these in most responses, created once.
_NO_DIVERGING_EPOCH: Final = FetchResponse.EpochEndOffset()
_NO_LEADER: Final = FetchResponse.LeaderIdAndEpoch()
_NO_SNAPSHOT: Final = FetchResponse.SnapshotId()


@serves(ApiKeys.FETCH, (0, 18), everywhere=True, high_watermark=-1, records=b"")
def handle_fetch(broker: Broker, request: Request, body: FetchRequest) -> None:
    """Read the session's partitions, and respond when there is enough data or time is up."""
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
        body.rack_id if replica_id < 0 and version >= _FIRST_VERSION_WITH_RACKS else None,
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
        return errors.UnknownTopicIdError.code
    if authorized is not None and topic_partition.topic not in authorized:
        return errors.TopicAuthorizationError.code
    partition = broker.replica_manager.partition(topic_partition)
    if partition is None and broker.metadata_cache.partition_info(topic_partition) is None:
        return errors.UnknownTopicOrPartitionError.code
    if version < _FETCH_WITH_ZSTD:
        log = None if partition is None else partition.log
        if log is not None and log.config.compression_type == CompressionType.ZSTD.name:
            return errors.UnsupportedCompressionTypeError.code
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
        if version < _FETCH_WITH_V2:
            _down_convert(data, fetch, version)
        answer = _partition_data(index, data)
        if version >= _FETCH_WITH_LEADERS and data.error_code in (
            errors.NotLeaderOrFollowerError.code,
            errors.FencedLeaderEpochError.code,
        ):
            answer.current_leader = leader_of(broker, fetch.topic_partition, nodes, FetchResponse.LeaderIdAndEpoch)
        topic.partitions.append(answer)
    response.node_endpoints = node_endpoints(request, nodes, FetchResponse.NodeEndpoint)
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
        data.records = down_convert(data.records, magic, fetch.fetch_offset, fetch.max_bytes)
    except errors.BrokerError as error:
        data.error_code = error.code
        data.records = ()


# --- ListOffsets -----------------------------------------------------------------------------------------------------

_CONSUMER: Final = -1
_DEBUGGING_REPLICA: Final = -2
#: The first versions that allow these values instead of a timestamp.
_SINCE: Final = {
    log_types.LATEST_TIMESTAMP: 0,
    log_types.EARLIEST_TIMESTAMP: 0,
    log_types.MAX_TIMESTAMP: 7,
    log_types.EARLIEST_LOCAL_TIMESTAMP: 8,
    log_types.LATEST_TIERED_TIMESTAMP: 9,
    log_types.EARLIEST_PENDING_UPLOAD_TIMESTAMP: 11,
}


@serves(ApiKeys.LIST_OFFSETS, (0, 11))
def handle_list_offsets(broker: Broker, request: Request, body: ListOffsetsRequest) -> None:
    """Respond to consumers within the high watermark or the last stable offset, and to followers without a bound."""
    version = request.api_version
    asked = Counter((topic.name, one.partition_index) for topic in body.topics for one in topic.partitions)

    def answer(
        topic: ListOffsetsRequest.ListOffsetsTopic, one: ListOffsetsRequest.ListOffsetsPartition
    ) -> Mapping[str, object]:
        topic_partition = TopicPartition(topic.name, one.partition_index)
        broker.auth.check_topic(request, acls.DESCRIBE, topic.name)
        if asked[topic_partition] > 1:
            raise errors.InvalidRequestError(f"{topic_partition} is in the request twice")
        if one.timestamp < 0 and version < _SINCE.get(one.timestamp, version + 1):
            raise errors.UnsupportedVersionError(f"version {version} does not have timestamp {one.timestamp}")
        if version == 0:
            return {"old_style_offsets": _legacy_offsets(broker, body.replica_id, topic_partition, one)}
        try:
            found = broker.replica_manager.get_partition_or_raise(topic_partition).fetch_offset_for_timestamp(
                one.timestamp,
                body.isolation_level if body.replica_id == _CONSUMER else None,
                one.current_leader_epoch,
                fetch_only_from_leader=body.replica_id != _DEBUGGING_REPLICA,
            )
        except errors.OffsetNotAvailableError:
            if version < 5:  # older clients do not know this error (KIP-207)
                raise errors.LeaderNotAvailableError from None
            raise
        if found is None:
            return {}
        epoch = -1 if version < 4 or found.leader_epoch is None else found.leader_epoch
        return {"timestamp": found.timestamp, "offset": found.offset, "leader_epoch": epoch}

    answer_partitions(request, body, answer)


def _legacy_offsets(
    broker: Broker, replica_id: int, topic_partition: TopicPartition, one: ListOffsetsRequest.ListOffsetsPartition
) -> list[int]:
    """Return base offsets of segments, latest first, as before version 1."""
    partition = broker.replica_manager.get_partition_or_raise(topic_partition)
    log = partition.local_log_with_epoch_or_raise(-1, require_leader=replica_id != _DEBUGGING_REPLICA)
    offsets = log.legacy_fetch_offsets_before(one.timestamp, one.max_num_offsets)
    if replica_id == _CONSUMER and offsets and offsets[0] > log.high_watermark:
        offsets = [log.high_watermark, *(offset for offset in offsets if offset <= log.high_watermark)]
    return offsets


# --- OffsetForLeaderEpoch --------------------------------------------------------------------------------------------


@serves(ApiKeys.OFFSET_FOR_LEADER_EPOCH, (0, 4))
def handle_offset_for_leader_epoch(broker: Broker, request: Request, body: OffsetForLeaderEpochRequest) -> None:
    """Respond if this broker leads. A request without a current epoch is not fenced."""
    auth = broker.auth
    names = {topic.topic for topic in body.topics}
    authorized = names
    if not auth.authorize(request, acls.CLUSTER_ACTION, acls.CLUSTER, acls.CLUSTER_NAME):
        authorized = auth.filter(request, acls.DESCRIBE, acls.TOPIC, names)

    def answer(
        topic: OffsetForLeaderEpochRequest.OffsetForLeaderTopic,
        one: OffsetForLeaderEpochRequest.OffsetForLeaderPartition,
    ) -> Mapping[str, object]:
        if topic.topic not in authorized:
            raise errors.TopicAuthorizationError
        partition = broker.replica_manager.get_partition_or_raise(TopicPartition(topic.topic, one.partition))
        log = partition.local_log_with_epoch_or_raise(one.current_leader_epoch, require_leader=True)
        found = log.end_offset_for_epoch(one.leader_epoch)
        return {} if found is None else {"leader_epoch": found.leader_epoch, "end_offset": found.offset}

    answer_partitions(request, body, answer)


# --- DeleteRecords ---------------------------------------------------------------------------------------------------


@serves(ApiKeys.DELETE_RECORDS, (0, 2), low_watermark=-1)
def handle_delete_records(broker: Broker, request: Request, body: DeleteRecordsRequest) -> None:
    """Respond once all live replicas have deleted the records, or the request's time is up."""
    cache = broker.metadata_cache
    authorized = broker.auth.filter(request, acls.DELETE, acls.TOPIC, (topic.name for topic in body.topics))
    offsets = {
        topic_partition: one.offset
        for topic in body.topics
        if topic.name in authorized
        for one in topic.partitions
        if cache.partition_info(topic_partition := TopicPartition(topic.name, one.partition_index)) is not None
    }

    def respond(results: Mapping[TopicPartition, DeleteRecordsResult]) -> None:
        def answer(
            topic: DeleteRecordsRequest.DeleteRecordsTopic, one: DeleteRecordsRequest.DeleteRecordsPartition
        ) -> Mapping[str, object]:
            if topic.name not in authorized:
                raise errors.TopicAuthorizationError
            result = results.get(TopicPartition(topic.name, one.partition_index))
            if result is None:
                raise errors.UnknownTopicOrPartitionError
            return {"low_watermark": result.low_watermark, "error_code": result.error_code}

        answer_partitions(request, body, answer, low_watermark=-1)

    if offsets:
        broker.replica_manager.delete_records(body.timeout_ms, offsets, respond)
    else:
        respond({})


# --- DescribeProducers -----------------------------------------------------------------------------------------------


@serves(ApiKeys.DESCRIBE_PRODUCERS, (0, 0))
def handle_describe_producers(broker: Broker, request: Request, body: DescribeProducersRequest) -> None:
    """Respond for this broker's own log; any replica may be asked."""

    def answer(topic: DescribeProducersRequest.TopicRequest, index: int) -> Mapping[str, object]:
        broker.auth.check_topic(request, acls.READ, topic.name)
        if not broker.metadata_cache.contains(topic.name):
            raise errors.UnknownTopicOrPartitionError(f"there is no topic {topic.name!r}")
        partition = broker.replica_manager.get_partition_or_raise(TopicPartition(topic.name, index))
        producers = [
            DescribeProducersResponse.ProducerState(
                producer_id=entry.producer_id,
                producer_epoch=entry.producer_epoch,
                last_sequence=entry.last_sequence,
                last_timestamp=entry.last_timestamp,
                coordinator_epoch=entry.coordinator_epoch,
                current_txn_start_offset=-1
                if entry.current_txn_first_offset is None
                else entry.current_txn_first_offset,
            )
            for entry in partition.local_log_or_raise().active_producers
        ]
        return {"active_producers": producers}

    answer_partitions(request, body, answer)
