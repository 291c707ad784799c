"""ShareAcknowledge: acknowledge records in a share session without a fetch (KIP-932, KIP-1222)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, cast

from pykclient.errors import (
    BrokerError,
    FencedLeaderEpochError,
    InvalidShareSessionEpochError,
    NotLeaderOrFollowerError,
)
from pykclient.protocol.api_keys import ApiKeys
from pykclient.protocol.messages.share_acknowledge import ShareAcknowledgeRequest, ShareAcknowledgeResponse
from pykclient.testing import acls
from pykclient.testing.share.acknowledgements import (
    acknowledge,
    check_enabled,
    check_member,
    leader_of,
    node_endpoints,
)
from pykclient.testing.share.share_session import FINAL_EPOCH, INITIAL_EPOCH, ShareSessionKey

if TYPE_CHECKING:
    from uuid import UUID

    from pykclient.testing.broker import Broker
    from pykclient.testing.server.request_channel import Request
    from pykclient.types import Node

API_KEY = ApiKeys.SHARE_ACKNOWLEDGE
VERSIONS = (1, 2)

_FIRST_VERSION_WITH_RENEWALS: Final = 2

_Key = tuple["UUID", int]


def handle(broker: Broker, request: Request) -> None:
    """Respond when the acknowledgements are written."""
    body = cast(ShareAcknowledgeRequest, request.body)
    check_enabled(broker)
    group_id, member_id = check_member(body.group_id, body.member_id)
    broker.auth.check_group(request, acls.READ, group_id)
    epoch = body.share_session_epoch
    if epoch == INITIAL_EPOCH:
        raise InvalidShareSessionEpochError("acknowledgements cannot begin a share session")
    manager = broker.share_partition_manager
    session = manager.session(ShareSessionKey(group_id, member_id), epoch)
    acknowledgements = {
        (topic.topic_id, partition.partition_index): partition.acknowledgement_batches
        for topic in body.topics
        for partition in topic.partitions
    }

    def acknowledged(errors: dict[_Key, BrokerError | None]) -> None:
        if epoch == FINAL_EPOCH:
            manager.release_session(session, lambda _: None)
        request.respond(_response(broker, request, group_id, errors))

    acknowledge(
        broker,
        request,
        group_id,
        member_id,
        acknowledgements,
        acknowledged,
        may_renew=request.api_version >= _FIRST_VERSION_WITH_RENEWALS and body.is_renew_ack,
    )


def _response(
    broker: Broker, request: Request, group_id: str, errors: dict[_Key, BrokerError | None]
) -> ShareAcknowledgeResponse:
    nodes: dict[int, Node] = {}
    topics: dict[UUID, ShareAcknowledgeResponse.ShareAcknowledgeTopicResponse] = {}
    for (topic_id, index), error in errors.items():
        result = ShareAcknowledgeResponse.PartitionData(partition_index=index)
        if error is not None:
            result.error_code, result.error_message = error.code, str(error)
        if isinstance(error, (NotLeaderOrFollowerError, FencedLeaderEpochError)):
            leader_id, leader_epoch = leader_of(broker, topic_id, index, nodes)
            result.current_leader = ShareAcknowledgeResponse.LeaderIdAndEpoch(
                leader_id=leader_id, leader_epoch=leader_epoch
            )
        topic = topics.get(topic_id)
        if topic is None:
            topic = topics[topic_id] = ShareAcknowledgeResponse.ShareAcknowledgeTopicResponse(topic_id=topic_id)
        topic.partitions.append(result)
    return ShareAcknowledgeResponse(
        acquisition_lock_timeout_ms=broker.group_configs.get(group_id).record_lock_duration_ms,
        responses=topics.values(),
        node_endpoints=node_endpoints(request, nodes, ShareAcknowledgeResponse.NodeEndpoint),
    )


def error_response(
    body: ShareAcknowledgeRequest,  # noqa: ARG001 - as all handlers
    code: int,
    message: str | None = None,
) -> ShareAcknowledgeResponse:
    return ShareAcknowledgeResponse(error_code=code, error_message=message)
