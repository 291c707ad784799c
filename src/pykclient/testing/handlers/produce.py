"""Produce: records for partitions that this broker leads."""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, Final, cast

from pykclient.errors import (
    BrokerError,
    InvalidRecordError,
    NotLeaderOrFollowerError,
    TransactionalIdAuthorizationError,
    UnknownTopicIdError,
    UnsupportedCompressionTypeError,
)
from pykclient.protocol.api_keys import ApiKeys
from pykclient.protocol.messages.produce import ProduceRequest, ProduceResponse
from pykclient.record.compression_type import CompressionType
from pykclient.record.record_batch import LOG_OVERHEAD, MAGIC_OFFSET, MAGIC_VALUE_V2, RECORD_BATCH_OVERHEAD
from pykclient.testing import acls
from pykclient.testing.transaction.add_partitions_to_txn_manager import (
    FirstBatch,
    TransactionSupportedOperation,
    append_error,
)
from pykclient.testing.transaction.transaction_metadata import ProducerIdAndEpoch
from pykclient.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pykclient.record.record_batch import Buffer
    from pykclient.testing.broker import Broker
    from pykclient.testing.log.producer_state_entry import VerificationState
    from pykclient.testing.server.request_channel import Request

    PartitionResponse = ProduceResponse.PartitionProduceResponse

API_KEY = ApiKeys.PRODUCE
VERSIONS = (0, 13)

_FIRST_VERSION_WITH_V2: Final = 3
_FIRST_VERSION_WITH_ZSTD: Final = 7
_FIRST_VERSION_WITH_LEADERS: Final = 10
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


def handle(broker: Broker, request: Request) -> None:
    """Append the records, and respond when as many replicas have them as ``acks`` requires; never with acks=0.

    If an append with acks=0 fails, the connection is closed, which is the only way to report it.
    """
    body = cast(ProduceRequest, request.body)
    version = request.api_version
    auth = broker.auth
    entries: dict[TopicPartition, Buffer] = {}
    transactional: dict[TopicPartition, FirstBatch] = {}
    refused: dict[TopicPartition, PartitionResponse] = {}
    names = [_topic_name(broker, topic, version) for topic in body.topic_data]
    for name, topic in zip(names, body.topic_data, strict=True):
        for data in topic.partition_data:
            # Unknown topics are distinguished by their ids.
            topic_partition = TopicPartition(name or str(topic.topic_id), data.index)
            try:
                if name is None:
                    raise UnknownTopicIdError(f"broker {broker.id} knows of no topic with id {topic.topic_id}")
                auth.check_topic(request, acls.WRITE, name)
                entries[topic_partition] = records = _validated(data.records, version)
                if version >= _FIRST_VERSION_WITH_V2 and _is_transactional(records):
                    transactional[topic_partition] = _first_batch(records)
            except BrokerError as error:
                refused[topic_partition] = _partition_error(data.index, error.code, str(error))

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
        if version >= _FIRST_VERSION_WITH_LEADERS:
            _name_leaders(broker, request, responses, answer)
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
        raise TransactionalIdAuthorizationError("a produce request with transactional records needs a transactional id")
    operation = TransactionSupportedOperation.DEFAULT_ERROR
    if version >= _FIRST_VERSION_WITH_ADDING:
        operation = TransactionSupportedOperation.ADD_PARTITION
    elif version >= _FIRST_VERSION_WITH_ABORTABLE_ERRORS:
        operation = TransactionSupportedOperation.GENERIC_ERROR_SUPPORTED

    def verified(
        error_codes: Mapping[TopicPartition, int], tokens: Mapping[TopicPartition, VerificationState | None]
    ) -> None:
        failed = {}
        for tp, code in error_codes.items():
            error = append_error(code, tp, operation)
            failed[tp] = _partition_error(tp.partition, error.code, str(error))
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
    return FirstBatch(ProducerIdAndEpoch(producer_id, epoch), sequence)


def _topic_name(broker: Broker, topic: ProduceRequest.TopicProduceData, version: int) -> str | None:
    if version < _FIRST_VERSION_WITH_TOPIC_IDS:
        return topic.name
    return broker.replica_manager.topic_name(topic.topic_id)


def _validated(records: Buffer | None, version: int) -> Buffer:
    """Return the records if this version may contain them (Java: ProduceRequest.validateRecords).

    Raises:
        InvalidRecordError: they are not exactly one batch, or one of an old format.
        UnsupportedCompressionTypeError: zstd, which readers of that age do not know.
    """
    if records is None:
        raise InvalidRecordError(f"a produce request of version {version} must have records for each partition")
    if version < _FIRST_VERSION_WITH_V2:
        return records
    size = len(records)
    batch_size = LOG_OVERHEAD + int.from_bytes(records[_SIZE], "big", signed=True)
    if size <= MAGIC_OFFSET or batch_size > size:
        raise InvalidRecordError(f"a produce request of version {version} must have a whole batch for each partition")
    if records[MAGIC_OFFSET] != MAGIC_VALUE_V2:
        raise InvalidRecordError(
            f"a produce request of version {version} may have batches of format v2 only, not v{records[MAGIC_OFFSET]}"
        )
    if batch_size < size:
        raise InvalidRecordError(f"a produce request of version {version} may have one batch only for each partition")
    if size >= RECORD_BATCH_OVERHEAD:
        attributes = records[_ATTRIBUTES]
        if version < _FIRST_VERSION_WITH_ZSTD and attributes & _CODEC == CompressionType.ZSTD.id:
            raise UnsupportedCompressionTypeError(
                f"a produce request of version {version} may not be compressed with zstd, version "
                f"{_FIRST_VERSION_WITH_ZSTD} may"
            )
    return records


def _name_leaders(
    broker: Broker, request: Request, responses: dict[TopicPartition, PartitionResponse], answer: ProduceResponse
) -> None:
    """Add the leaders of partitions that this broker does not lead. So clients need no metadata request (KIP-951)."""
    nodes = {}
    for topic_partition, response in responses.items():
        if response.error_code == NotLeaderOrFollowerError.code:
            leader_id, leader_epoch = broker.replica_manager.current_leader(topic_partition)
            response.current_leader = ProduceResponse.LeaderIdAndEpoch(leader_id=leader_id, leader_epoch=leader_epoch)
            node = broker.metadata_cache.alive_broker(leader_id)
            if node is not None:
                nodes[leader_id] = node
    answer.node_endpoints = [
        ProduceResponse.NodeEndpoint(node_id=node.id, host=node.host, port=node.port, rack=node.rack)
        for node in map(request.advertised, nodes.values())
    ]


def _partition_error(index: int, code: int, message: str | None) -> PartitionResponse:
    return ProduceResponse.PartitionProduceResponse(index=index, error_code=code, base_offset=-1, error_message=message)


def error_response(body: ProduceRequest, code: int, message: str | None = None) -> ProduceResponse | None:
    if body.acks == 0:
        return None
    return ProduceResponse(
        responses=[
            ProduceResponse.TopicProduceResponse(
                name=topic.name,
                topic_id=topic.topic_id,
                partition_responses=[_partition_error(data.index, code, message) for data in topic.partition_data],
            )
            for topic in body.topic_data
        ]
    )
