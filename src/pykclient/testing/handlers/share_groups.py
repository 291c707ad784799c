"""Share groups (KIP-932): members, records, acknowledgements, and start offsets."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set as AbstractSet
from dataclasses import dataclass, field
from typing import Any, Final, cast
from uuid import UUID

from pykclient import errors
from pykclient.protocol.api_keys import ApiKeys
from pykclient.protocol.messages.alter_share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsResponse,
)
from pykclient.protocol.messages.delete_share_group_offsets import (
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsResponse,
)
from pykclient.protocol.messages.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsResponse,
)
from pykclient.protocol.messages.share_acknowledge import ShareAcknowledgeRequest, ShareAcknowledgeResponse
from pykclient.protocol.messages.share_fetch import ShareFetchRequest, ShareFetchResponse
from pykclient.protocol.messages.share_group_describe import ShareGroupDescribeRequest, ShareGroupDescribeResponse
from pykclient.protocol.wire import ZERO_UUID
from pykclient.testing import acls
from pykclient.testing.broker import Broker
from pykclient.testing.group import server_assignors as simple_assignor
from pykclient.testing.group.modern_groups import ShareGroup, ShareGroupMember
from pykclient.testing.group.share_group_manager import SharePartitionOffset
from pykclient.testing.handlers import answer_each, by_topic, serves
from pykclient.testing.handlers.groups import assignment_of, respond_with_groups
from pykclient.testing.handlers.records import leader_of, node_endpoints
from pykclient.testing.inter_broker_requests import grouped
from pykclient.testing.log.log_types import FetchIsolation
from pykclient.testing.replica.fetch_session import CONSUMER_REPLICA_ID, FetchParams
from pykclient.testing.request_channel import Request
from pykclient.testing.share.share_partition import ACKNOWLEDGE_TYPES, AcknowledgementBatch, AcquireRequest
from pykclient.testing.share.share_partition_manager import FINAL_EPOCH, INITIAL_EPOCH, ShareSession, ShareSessionKey
from pykclient.types import Node, TopicPartition

# --- ShareGroupDescribe ----------------------------------------------------------------------------------------------


@serves(ApiKeys.SHARE_GROUP_DESCRIBE, (1, 1))
def handle_share_group_describe(broker: Broker, request: Request, body: ShareGroupDescribeRequest) -> None:
    """Respond immediately."""

    def describe(group_id: str) -> tuple[ShareGroupDescribeResponse.DescribedGroup, AbstractSet[str]]:
        group = broker.group_coordinator.describe_group(ShareGroup, group_id)
        described = ShareGroupDescribeResponse.DescribedGroup(
            group_id=group_id,
            group_state=group.state.name,
            group_epoch=group.group_epoch,
            assignment_epoch=group.assignment_epoch,
            assignor_name=simple_assignor.NAME,
            members=[_member(broker, member) for member in group.members.values()],
        )
        return described, group.subscribed_topics

    respond_with_groups(broker, request, body, describe)


def _member(broker: Broker, member: ShareGroupMember) -> ShareGroupDescribeResponse.Member:
    return ShareGroupDescribeResponse.Member(
        member_id=member.member_id,
        rack_id=member.rack_id,
        member_epoch=member.current.epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=sorted(member.topic_names),
        assignment=assignment_of(broker, ShareGroupDescribeResponse, member.current.assigned),
    )


# --- reading and acknowledging -----------------------------------------------------------------------------------

_RENEW: Final = 4

#: The length of a UUID in text.
_MAX_MEMBER_ID_LENGTH: Final = 36

_Key = tuple["UUID", int]


def check_enabled(broker: Broker) -> None:
    """Check that the cluster has share groups.

    Raises:
        UnsupportedVersionError: it has not.
    """
    if not broker.features.share_version:
        raise errors.UnsupportedVersionError("the feature share.version is at level 0, which has no share groups")


def check_member(group_id: str | None, member_id: str | None) -> tuple[str, str]:
    """Return the group and the member of a request.

    Raises:
        InvalidRequestError: one of them is missing or not valid.
    """
    if group_id is None:
        raise errors.InvalidRequestError("Invalid group id in the request.")
    if not member_id or len(member_id) > _MAX_MEMBER_ID_LENGTH:
        raise errors.InvalidRequestError("Invalid member id in the request.")
    return group_id, member_id


def acknowledge(
    broker: Broker,
    request: Request,
    group_id: str,
    member_id: str,
    acknowledgements: Mapping[_Key, Sequence[AcknowledgementBatch]],
    then: Callable[[dict[_Key, errors.BrokerError | None]], None],
    *,
    may_renew: bool,
) -> None:
    """Check and apply the acknowledgements of a request; ``then`` gets the error of each partition, or None."""
    results: dict[_Key, errors.BrokerError | None] = {}
    valid: dict[_Key, Sequence[AcknowledgementBatch]] = {}
    for (topic_id, index), batches in acknowledgements.items():
        try:
            readable_partition(broker, request, topic_id, index)
            _check(batches, may_renew=may_renew)
        except errors.BrokerError as error:
            results[topic_id, index] = error
            continue
        if batches:
            valid[topic_id, index] = batches
        else:
            results[topic_id, index] = None

    def acknowledged(outcomes: dict[_Key, errors.BrokerError | None]) -> None:
        then({**outcomes, **results})

    if valid:
        broker.share_partition_manager.acknowledge(group_id, member_id, valid, acknowledged)
    else:
        then(results)


def readable_partition(broker: Broker, request: Request, topic_id: UUID, index: int) -> TopicPartition:
    """Return a partition of a request.

    Raises:
        UnknownTopicIdError, UnknownTopicOrPartitionError: it does not exist.
        TopicAuthorizationError: the requester may not read the topic.
    """
    name = broker.replica_manager.topic_name(topic_id)
    if name is None:
        raise errors.UnknownTopicIdError("This server does not host this topic ID.")
    broker.auth.check_topic(request, acls.READ, name)
    topic_partition = TopicPartition(name, index)
    if broker.metadata_cache.partition_info(topic_partition) is None:
        raise errors.UnknownTopicOrPartitionError("This server does not host this topic-partition.")
    return topic_partition


def _check(batches: Sequence[AcknowledgementBatch], *, may_renew: bool) -> None:
    """Check that the batches are valid and in order.

    Raises:
        InvalidRequestError: they are not.
    """
    end = -1
    for batch in batches:
        types = batch.acknowledge_types
        count = batch.last_offset - batch.first_offset + 1
        if count <= 0 or batch.first_offset < end or len(types) not in (1, count):
            raise errors.InvalidRequestError(
                "The request is malformed: acknowledgements overlap, or lack types or offsets."
            )
        if not ACKNOWLEDGE_TYPES.issuperset(types) or (_RENEW in types and not may_renew):
            raise errors.InvalidRequestError(
                "The request is malformed: it has an acknowledge type that is not allowed."
            )
        end = batch.last_offset


def _respond(
    broker: Broker,
    request: Request,
    group_id: str,
    topic_class: Callable[..., Any],
    partitions: Mapping[_Key, ShareFetchResponse.PartitionData | ShareAcknowledgeResponse.PartitionData],
) -> None:
    """Respond with these partitions, and with the leaders of those that this broker does not lead."""
    response_class: Any = ApiKeys.message_class(request.body.API_KEY, request=False)
    nodes: dict[int, Node] = {}
    for (topic_id, index), data in partitions.items():
        if data.error_code in (errors.NotLeaderOrFollowerError.code, errors.FencedLeaderEpochError.code):
            tp = TopicPartition(broker.replica_manager.topic_name(topic_id) or "", index)
            data.current_leader = leader_of(broker, tp, nodes, response_class.LeaderIdAndEpoch)
    request.respond(
        response_class(
            acquisition_lock_timeout_ms=broker.group_configs.get(group_id).record_lock_duration_ms,
            responses=by_topic(topic_class, ((key[0], data) for key, data in partitions.items()), "topic_id"),
            node_endpoints=node_endpoints(request, nodes, response_class.NodeEndpoint),
        )
    )


# --- ShareFetch ------------------------------------------------------------------------------------------------------

_FIRST_VERSION_WITH_RENEWALS: Final = 2

#: The value of ``share_acquire_mode`` for a strict limit of records.
_RECORD_LIMIT: Final = 1

PartitionData = ShareFetchResponse.PartitionData


@serves(ApiKeys.SHARE_FETCH, (1, 2))
def handle_share_fetch(broker: Broker, request: Request, body: ShareFetchRequest) -> None:
    """Respond when the acknowledgements are written, and records were acquired or time is up."""
    check_enabled(broker)
    group_id, member_id = check_member(body.group_id, body.member_id)
    broker.auth.check_group(request, acls.READ, group_id)
    with_renewals = request.api_version >= _FIRST_VERSION_WITH_RENEWALS
    if (
        with_renewals
        and body.is_renew_ack
        and (body.max_bytes or body.min_bytes or body.max_records or body.max_wait_ms)
    ):
        raise errors.InvalidRequestError("a request that renews locks cannot fetch, so its limits must be 0")
    acknowledgements = {
        (topic.topic_id, partition.partition_index): partition.acknowledgement_batches
        for topic in body.topics
        for partition in topic.partitions
        if partition.acknowledgement_batches
    }
    try:
        session = _session(broker, request, ShareSessionKey(group_id, member_id), bool(acknowledgements))
    except errors.ShareSessionLimitReachedError as error:
        # At once, the client would try again at once.
        broker.call_later(body.max_wait_ms, request.respond_error, error)
        return
    is_final = body.share_session_epoch == FINAL_EPOCH
    answer = _Answer(broker, request, session, group_id)

    def acknowledged(outcomes: dict[_Key, errors.BrokerError | None]) -> None:
        answer.acknowledged(outcomes)
        if is_final:
            broker.share_partition_manager.release_session(session, lambda _: None)
            answer.fetched({})

    acknowledge(
        broker,
        request,
        group_id,
        member_id,
        acknowledgements,
        acknowledged,
        may_renew=with_renewals and body.is_renew_ack,
    )
    if not is_final:
        _fetch(broker, request, session, answer)


def _session(broker: Broker, request: Request, key: ShareSessionKey, has_acknowledgements: bool) -> ShareSession:
    body = cast(ShareFetchRequest, request.body)
    epoch = body.share_session_epoch
    if epoch == INITIAL_EPOCH and has_acknowledgements:
        raise errors.InvalidRequestError("the first request of a share session cannot have acknowledgements")
    asked = [(topic.topic_id, each.partition_index) for topic in body.topics for each in topic.partitions]
    manager = broker.share_partition_manager
    if epoch == INITIAL_EPOCH:
        return manager.open_session(key, asked, request.connection_id)
    session = manager.session(key, epoch)
    if epoch != FINAL_EPOCH:
        forgotten = [(topic.topic_id, index) for topic in body.forgotten_topics_data for index in topic.partitions]
        session.update(asked, forgotten)
    return session


def _fetch(broker: Broker, request: Request, session: ShareSession, answer: _Answer) -> None:
    body = cast(ShareFetchRequest, request.body)
    config = broker.group_configs.get(answer.group_id)
    max_bytes = min(body.max_bytes, broker.config.get_int("fetch.max.bytes"))
    params = FetchParams(
        CONSUMER_REPLICA_ID,
        -1,
        body.max_wait_ms,
        min(body.min_bytes, max_bytes),
        max_bytes,
        FetchIsolation.TXN_COMMITTED if config.read_committed else FetchIsolation.HIGH_WATERMARK,
    )
    acquire = AcquireRequest(
        session.key.member_id, body.max_records, body.batch_size, body.share_acquire_mode == _RECORD_LIMIT
    )
    known: list[tuple[_Key, TopicPartition]] = []
    for topic_id, index in session.partitions:
        try:
            known.append(((topic_id, index), readable_partition(broker, request, topic_id, index)))
        except errors.BrokerError as error:
            answer.failed[topic_id, index] = PartitionData(partition_index=index, error_code=error.code, records=b"")
    broker.share_partition_manager.fetch(answer.group_id, params, acquire, known, answer.fetched)


@dataclass(eq=False, repr=False)
class _Answer:
    """The response of a share fetch, whose two parts become ready one after the other. Thread: loop."""

    _broker: Broker
    _request: Request
    _session: ShareSession
    group_id: str
    failed: dict[_Key, PartitionData] = field(default_factory=dict)
    _acknowledged: dict[_Key, errors.BrokerError | None] | None = None
    _fetched: dict[_Key, PartitionData] | None = None

    def acknowledged(self, outcomes: dict[_Key, errors.BrokerError | None]) -> None:
        """Take the results of the acknowledgements."""
        self._acknowledged = outcomes
        self._maybe_respond()

    def fetched(self, results: dict[_Key, PartitionData]) -> None:
        """Take the results of the fetch."""
        self._fetched = {**results, **self.failed}
        self._maybe_respond()

    def _maybe_respond(self) -> None:
        if self._acknowledged is None or self._fetched is None:
            return
        is_new = cast(ShareFetchRequest, self._request.body).share_session_epoch == INITIAL_EPOCH
        partitions = {
            key: data
            for key, data in self._fetched.items()
            if is_new
            or self._session.must_respond(key, has_records=bool(data.records), has_error=bool(data.error_code))
        }
        for key, error in self._acknowledged.items():
            data = partitions.setdefault(key, PartitionData(partition_index=key[1], records=b""))
            data.acknowledge_error_code = 0 if error is None else error.code
        topic_class = ShareFetchResponse.ShareFetchableTopicResponse
        _respond(self._broker, self._request, self.group_id, topic_class, partitions)


# --- ShareAcknowledge ------------------------------------------------------------------------------------------------


@serves(ApiKeys.SHARE_ACKNOWLEDGE, (1, 2))
def handle_share_acknowledge(broker: Broker, request: Request, body: ShareAcknowledgeRequest) -> None:
    """Respond when the acknowledgements are written."""
    check_enabled(broker)
    group_id, member_id = check_member(body.group_id, body.member_id)
    broker.auth.check_group(request, acls.READ, group_id)
    epoch = body.share_session_epoch
    if epoch == INITIAL_EPOCH:
        raise errors.InvalidShareSessionEpochError("acknowledgements cannot begin a share session")
    manager = broker.share_partition_manager
    session = manager.session(ShareSessionKey(group_id, member_id), epoch)
    acknowledgements = {
        (topic.topic_id, partition.partition_index): partition.acknowledgement_batches
        for topic in body.topics
        for partition in topic.partitions
    }

    def acknowledged(outcomes: dict[_Key, errors.BrokerError | None]) -> None:
        if epoch == FINAL_EPOCH:
            manager.release_session(session, lambda _: None)
        results = {}
        for key, error in outcomes.items():
            results[key] = result = ShareAcknowledgeResponse.PartitionData(partition_index=key[1])
            if error is not None:
                result.error_code, result.error_message = error.code, str(error)
        _respond(broker, request, group_id, ShareAcknowledgeResponse.ShareAcknowledgeTopicResponse, results)

    acknowledge(
        broker,
        request,
        group_id,
        member_id,
        acknowledgements,
        acknowledged,
        may_renew=request.api_version >= _FIRST_VERSION_WITH_RENEWALS and body.is_renew_ack,
    )


# --- DescribeShareGroupOffsets ---------------------------------------------------------------------------------------

_AskedGroup = DescribeShareGroupOffsetsRequest.DescribeShareGroupOffsetsRequestGroup

_Group = DescribeShareGroupOffsetsResponse.DescribeShareGroupOffsetsResponseGroup

_DescribeShareGroupOffsetsTopic = DescribeShareGroupOffsetsResponse.DescribeShareGroupOffsetsResponseTopic

_DescribeShareGroupOffsetsPartition = DescribeShareGroupOffsetsResponse.DescribeShareGroupOffsetsResponsePartition


@serves(ApiKeys.DESCRIBE_SHARE_GROUP_OFFSETS, (0, 1))
def handle_describe_share_group_offsets(
    broker: Broker, request: Request, body: DescribeShareGroupOffsetsRequest
) -> None:
    """Respond when the share coordinators and the leaders of the partitions have answered."""

    def describe(asked: _AskedGroup, described: Callable[[_Group], None]) -> None:
        try:
            _describe_offsets(broker, request, asked, described)
        except errors.BrokerError as error:
            described(_Group(group_id=asked.group_id, error_code=error.code, error_message=str(error)))

    answer_each(body.groups, describe, lambda groups: request.respond(DescribeShareGroupOffsetsResponse(groups=groups)))


def _describe_offsets(broker: Broker, request: Request, asked: _AskedGroup, then: Callable[[_Group], None]) -> None:
    check_enabled(broker)
    broker.auth.check_group(request, acls.DESCRIBE, asked.group_id)
    denied: list[_DescribeShareGroupOffsetsTopic] = []
    partitions: list[TopicPartition] | None = None
    if asked.topics is not None:
        names = {topic.topic_name for topic in asked.topics}
        allowed = broker.auth.filter(request, acls.DESCRIBE, acls.TOPIC, names)
        partitions = []
        for topic in asked.topics:
            if topic.topic_name in allowed:
                partitions += [TopicPartition(topic.topic_name, number) for number in topic.partitions]
            else:
                code = errors.TopicAuthorizationError.code
                failed = [
                    _DescribeShareGroupOffsetsPartition(partition_index=number, error_code=code)
                    for number in topic.partitions
                ]
                denied.append(_DescribeShareGroupOffsetsTopic(topic_name=topic.topic_name, partitions=failed))

    def answered(offsets: Mapping[TopicPartition, SharePartitionOffset]) -> None:
        allowed = broker.auth.filter(request, acls.DESCRIBE, acls.TOPIC, {tp.topic for tp in offsets})
        found = grouped(
            (
                tp.topic,
                _DescribeShareGroupOffsetsPartition(
                    partition_index=tp.partition,
                    start_offset=offset.start_offset,
                    leader_epoch=offset.leader_epoch,
                    lag=offset.lag,
                    error_code=offset.error_code,
                ),
            )
            for tp, offset in offsets.items()
            if tp.topic in allowed
        )
        topics = [
            _DescribeShareGroupOffsetsTopic(
                topic_name=name, topic_id=broker.metadata_cache.topic_id(name), partitions=of_topic
            )
            for name, of_topic in found.items()
        ]
        then(_Group(group_id=asked.group_id, topics=[*topics, *denied]))

    broker.group_coordinator.share_groups.describe_offsets(asked.group_id, partitions, answered)


# --- AlterShareGroupOffsets ------------------------------------------------------------------------------------------


@serves(ApiKeys.ALTER_SHARE_GROUP_OFFSETS, (0, 0))
def handle_alter_share_group_offsets(broker: Broker, request: Request, body: AlterShareGroupOffsetsRequest) -> None:
    """Respond when the share coordinators have reset the state."""
    check_enabled(broker)
    broker.auth.check_group(request, acls.READ, body.group_id)
    allowed = broker.auth.filter(request, acls.READ, acls.TOPIC, {topic.topic_name for topic in body.topics})
    offsets = {
        TopicPartition(topic.topic_name, partition.partition_index): partition.start_offset
        for topic in body.topics
        if topic.topic_name in allowed
        for partition in topic.partitions
    }

    def altered(codes: Mapping[TopicPartition, int]) -> None:
        denied = errors.TopicAuthorizationError.code
        responses = [
            AlterShareGroupOffsetsResponse.AlterShareGroupOffsetsResponseTopic(
                topic_name=topic.topic_name,
                topic_id=broker.metadata_cache.topic_id(topic.topic_name),
                partitions=[
                    AlterShareGroupOffsetsResponse.AlterShareGroupOffsetsResponsePartition(
                        partition_index=each.partition_index,
                        error_code=codes.get(TopicPartition(topic.topic_name, each.partition_index), denied),
                    )
                    for each in topic.partitions
                ],
            )
            for topic in body.topics
        ]
        request.respond(AlterShareGroupOffsetsResponse(responses=responses))

    broker.group_coordinator.share_groups.alter_offsets(body.group_id, offsets, altered)


# --- DeleteShareGroupOffsets -----------------------------------------------------------------------------------------

_DeleteShareGroupOffsetsTopic = DeleteShareGroupOffsetsResponse.DeleteShareGroupOffsetsResponseTopic


@serves(ApiKeys.DELETE_SHARE_GROUP_OFFSETS, (0, 0))
def handle_delete_share_group_offsets(broker: Broker, request: Request, body: DeleteShareGroupOffsetsRequest) -> None:
    """Respond when the share coordinators have deleted the state."""
    check_enabled(broker)
    broker.auth.check_group(request, acls.DELETE, body.group_id)
    names = [topic.topic_name for topic in body.topics]
    allowed = broker.auth.filter(request, acls.READ, acls.TOPIC, names)

    def deleted(codes: Mapping[str, int]) -> None:
        responses = []
        for name in names:
            code = codes.get(name, errors.TopicAuthorizationError.code)
            topic_id = ZERO_UUID if code else broker.metadata_cache.topic_id(name)
            responses.append(_DeleteShareGroupOffsetsTopic(topic_name=name, topic_id=topic_id, error_code=code))
        request.respond(DeleteShareGroupOffsetsResponse(responses=responses))

    wanted = [name for name in names if name in allowed]
    broker.group_coordinator.share_groups.delete_offsets(body.group_id, wanted, deleted)
