"""TxnOffsetCommit: store a group's positions with a transaction (KIP-98, KIP-447, KIP-890)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, cast

from pykclient.errors import (
    BrokerError,
    CoordinatorLoadInProgressError,
    CoordinatorNotAvailableError,
    TopicAuthorizationError,
    UnknownTopicOrPartitionError,
)
from pykclient.protocol.api_keys import ApiKeys
from pykclient.protocol.messages.txn_offset_commit import TxnOffsetCommitRequest, TxnOffsetCommitResponse
from pykclient.testing import acls
from pykclient.testing.group.group_offsets import CommittedOffset
from pykclient.testing.transaction.add_partitions_to_txn_manager import TransactionSupportedOperation
from pykclient.types import TopicPartition

if TYPE_CHECKING:
    from pykclient.testing.broker import Broker
    from pykclient.testing.server.request_channel import Request

API_KEY: Final = ApiKeys.TXN_OFFSET_COMMIT
VERSIONS: Final = (0, 5)

#: From this version on, clients know COORDINATOR_LOAD_IN_PROGRESS.
_TELLS_LOADING: Final = 2
_FIRST_VERSION_WITH_ABORTABLE_ERRORS: Final = 4
_FIRST_VERSION_WITH_ADDING: Final = 5

ResponseTopic = TxnOffsetCommitResponse.TxnOffsetCommitResponseTopic
ResponsePartition = TxnOffsetCommitResponse.TxnOffsetCommitResponsePartition


def handle(broker: Broker, request: Request) -> None:
    """Respond when the offsets are on all in-sync replicas. They can be read when the transaction is committed."""
    body = cast(TxnOffsetCommitRequest, request.body)
    auth = broker.auth
    auth.check_transactional_id(request, acls.WRITE, body.transactional_id)
    auth.check_group(request, acls.READ, body.group_id)
    authorized = auth.filter(request, acls.READ, acls.TOPIC, (topic.name for topic in body.topics))
    denied = {
        TopicPartition(topic.name, one.partition_index): TopicAuthorizationError.code
        for topic in body.topics
        if topic.name not in authorized
        for one in topic.partitions
    }
    version = request.api_version
    cache = broker.metadata_cache
    wall_ms = broker.loop.wall_ms
    offsets = {
        tp: CommittedOffset(
            one.committed_offset,
            one.committed_leader_epoch,
            one.committed_metadata or "",
            wall_ms,
            topic_id=cache.topic_id(topic.name),
        )
        for topic in body.topics
        for one in topic.partitions
        if (tp := TopicPartition(topic.name, one.partition_index)) not in denied
        and cache.partition_info(tp) is not None
    }

    def respond(error_codes: Mapping[TopicPartition, int]) -> None:
        request.respond(_response(body, {**error_codes, **denied}, version))

    operation = TransactionSupportedOperation.DEFAULT_ERROR
    if version >= _FIRST_VERSION_WITH_ADDING:
        operation = TransactionSupportedOperation.ADD_PARTITION
    elif version >= _FIRST_VERSION_WITH_ABORTABLE_ERRORS:
        operation = TransactionSupportedOperation.GENERIC_ERROR_SUPPORTED
    if not offsets:
        respond({})
        return
    try:
        broker.group_coordinator.commit_transactional_offsets(body, operation, offsets, respond)
    except BrokerError as error:
        respond(dict.fromkeys(offsets, error.code))


def _response(
    body: TxnOffsetCommitRequest, error_codes: Mapping[TopicPartition, int], version: int
) -> TxnOffsetCommitResponse:
    def code(tp: TopicPartition) -> int:
        error_code = error_codes.get(tp, UnknownTopicOrPartitionError.code)
        if error_code == CoordinatorLoadInProgressError.code and version < _TELLS_LOADING:
            return CoordinatorNotAvailableError.code
        return error_code

    return TxnOffsetCommitResponse(
        topics=[
            ResponseTopic(
                name=topic.name,
                partitions=[
                    ResponsePartition(
                        partition_index=one.partition_index,
                        error_code=code(TopicPartition(topic.name, one.partition_index)),
                    )
                    for one in topic.partitions
                ],
            )
            for topic in body.topics
        ]
    )


def error_response(body: TxnOffsetCommitRequest, code: int, message: str | None = None) -> TxnOffsetCommitResponse:  # noqa: ARG001
    errors = {
        TopicPartition(topic.name, one.partition_index): code for topic in body.topics for one in topic.partitions
    }
    return _response(body, errors, _TELLS_LOADING)
