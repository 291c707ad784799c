"""Offsets of consumer groups: commit, also in a transaction, fetch and delete."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from functools import partial
from typing import Any, Final, cast
from uuid import UUID

from pykclient import errors
from pykclient.protocol.api_keys import ApiKeys
from pykclient.protocol.messages.offset_commit import OffsetCommitRequest
from pykclient.protocol.messages.offset_delete import OffsetDeleteRequest
from pykclient.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchResponse
from pykclient.protocol.messages.txn_offset_commit import TxnOffsetCommitRequest
from pykclient.protocol.wire import ZERO_UUID
from pykclient.testing import acls
from pykclient.testing.broker import Broker
from pykclient.testing.group.group_coordinator import CommitCallback
from pykclient.testing.group.group_metadata import CommittedOffset
from pykclient.testing.handlers import answer_each, answer_partitions, serves
from pykclient.testing.inter_broker_requests import grouped
from pykclient.testing.request_channel import Request
from pykclient.testing.transaction.add_partitions_to_txn_manager import TransactionSupportedOperation
from pykclient.types import TopicPartition

# --- OffsetCommit, TxnOffsetCommit -----------------------------------------------------------------------------------

#: From this version on, topics are named by their ids (KIP-848).
_TOPIC_IDS = 10

_NO_PARTITION: Final = errors.UnknownTopicOrPartitionError.code

_Offsets = dict[TopicPartition, CommittedOffset]


def _commit(
    broker: Broker,
    request: Request,
    body: OffsetCommitRequest | TxnOffsetCommitRequest,
    expire_ms: int,
    start: Callable[[_Offsets, CommitCallback], None],
) -> None:
    """Commit the offsets of a request by ``start``, and respond. Other partitions get an error."""
    cache, wall_ms = broker.metadata_cache, broker.loop.wall_ms
    names: dict[UUID, str | None] | None = None
    if isinstance(body, OffsetCommitRequest) and request.api_version >= _TOPIC_IDS:
        names = {topic.topic_id: cache.topic_name(topic.topic_id) for topic in body.topics}
    asked = (topic.name for topic in body.topics) if names is None else filter(None, names.values())
    authorized = broker.auth.filter(request, acls.READ, acls.TOPIC, asked)

    def name_of(topic: Any) -> str:
        name: str | None = topic.name if names is None else names[topic.topic_id]
        if name is None:
            raise errors.UnknownTopicIdError
        if name not in authorized:
            raise errors.TopicAuthorizationError
        return name

    offsets: _Offsets = {}
    for topic in body.topics:
        with suppress(errors.BrokerError):
            name = name_of(topic)
            for one in topic.partitions:
                tp = TopicPartition(name, one.partition_index)
                if cache.partition_info(tp) is not None:
                    offsets[tp] = CommittedOffset(
                        one.committed_offset,
                        one.committed_leader_epoch,
                        one.committed_metadata or "",
                        wall_ms,
                        expire_ms,
                        cache.topic_id(name),
                    )

    def respond(codes: Mapping[TopicPartition, int]) -> None:
        def answer(topic: Any, one: Any) -> Mapping[str, object]:
            return {"error_code": codes.get(TopicPartition(name_of(topic), one.partition_index), _NO_PARTITION)}

        answer_partitions(request, body, answer)

    try:
        start(offsets, respond)
    except errors.BrokerError as error:
        respond(dict.fromkeys(offsets, error.code))


@serves(ApiKeys.OFFSET_COMMIT, (0, 10))
def handle_offset_commit(broker: Broker, request: Request, body: OffsetCommitRequest) -> None:
    """Respond when the offsets are on all in-sync replicas."""
    broker.auth.check_group(request, acls.READ, body.group_id)
    expire_ms = broker.loop.wall_ms + body.retention_time_ms if body.retention_time_ms >= 0 else -1
    _commit(
        broker, request, body, expire_ms, partial(broker.group_coordinator.commit_offsets, body, request.api_version)
    )


#: From this version on, clients know COORDINATOR_LOAD_IN_PROGRESS.
_TELLS_LOADING: Final = 2

_FIRST_VERSION_WITH_ABORTABLE_ERRORS: Final = 4

_FIRST_VERSION_WITH_ADDING: Final = 5


@serves(ApiKeys.TXN_OFFSET_COMMIT, (0, 5))
def handle_txn_offset_commit(broker: Broker, request: Request, body: TxnOffsetCommitRequest) -> None:
    """Respond when the offsets are on all in-sync replicas. They can be read when the transaction is committed."""
    broker.auth.check_transactional_id(request, acls.WRITE, body.transactional_id)
    broker.auth.check_group(request, acls.READ, body.group_id)
    version = request.api_version
    operation = TransactionSupportedOperation.DEFAULT_ERROR
    if version >= _FIRST_VERSION_WITH_ADDING:
        operation = TransactionSupportedOperation.ADD_PARTITION
    elif version >= _FIRST_VERSION_WITH_ABORTABLE_ERRORS:
        operation = TransactionSupportedOperation.GENERIC_ERROR_SUPPORTED

    def told(code: int) -> int:
        is_unknown = code == errors.CoordinatorLoadInProgressError.code and version < _TELLS_LOADING
        return errors.CoordinatorNotAvailableError.code if is_unknown else code

    def start(offsets: _Offsets, respond: CommitCallback) -> None:
        def committed(codes: Mapping[TopicPartition, int]) -> None:
            respond({tp: told(code) for tp, code in codes.items()})

        if not offsets:
            respond({})
            return
        try:
            broker.group_coordinator.commit_transactional_offsets(body, operation, offsets, committed)
        except errors.BrokerError as error:
            committed(dict.fromkeys(offsets, error.code))

    _commit(broker, request, body, -1, start)


# --- OffsetFetch -----------------------------------------------------------------------------------------------------

#: From these versions on: an error for the group as a whole, several groups, topics by their ids.
_GROUP_ERROR = 2

_BATCHED = 8

_NO_OFFSET = -1

Group = OffsetFetchResponse.OffsetFetchResponseGroup

Topics = OffsetFetchResponse.OffsetFetchResponseTopics

Partitions = OffsetFetchResponse.OffsetFetchResponsePartitions

RequestGroup = OffsetFetchRequest.OffsetFetchRequestGroup

RequestTopics = OffsetFetchRequest.OffsetFetchRequestTopics


def refuse_offset_fetch(body: OffsetFetchRequest, code: int, message: str | None = None) -> OffsetFetchResponse:
    """Return the error for each group or, before version 8, for the only group and each of its partitions."""
    if body.groups:
        return OffsetFetchResponse(groups=[Group(group_id=group.group_id, error_code=code) for group in body.groups])
    return _as_response(code, [_failed_topic(topic, code) for topic in _as_group(body).topics or ()])


@serves(ApiKeys.OFFSET_FETCH, (0, 10), refuse=refuse_offset_fetch)
def handle_offset_fetch(broker: Broker, request: Request, body: OffsetFetchRequest) -> None:
    """Respond immediately, unless stable offsets are requested and commits are pending."""
    version = request.api_version
    if version < _BATCHED:
        _fetch(broker, request, body.require_stable, _as_group(body), lambda group: _respond_one(request, group))
        return
    answer_each(
        body.groups,
        partial(_fetch, broker, request, body.require_stable),
        lambda groups: request.respond(OffsetFetchResponse(groups=groups)),
    )


def _as_group(body: OffsetFetchRequest) -> RequestGroup:
    topics = body.topics
    return RequestGroup(
        group_id=body.group_id,
        topics=None
        if topics is None
        else [RequestTopics(name=topic.name, partition_indexes=topic.partition_indexes) for topic in topics],
    )


def _respond_one(request: Request, group: Group) -> None:
    topics = group.topics
    if group.error_code and request.api_version < _GROUP_ERROR:
        asked = _as_group(cast(OffsetFetchRequest, request.body)).topics or ()
        topics = [_failed_topic(topic, group.error_code) for topic in asked]
    request.respond(_as_response(group.error_code, topics))


def _as_response(error_code: int, topics: Iterable[Topics]) -> OffsetFetchResponse:
    """Return a group's response as versions before 8 have it."""
    partition_class = OffsetFetchResponse.OffsetFetchResponsePartition
    return OffsetFetchResponse(
        error_code=error_code,
        topics=[
            OffsetFetchResponse.OffsetFetchResponseTopic(
                name=topic.name,
                partitions=[
                    partition_class(**{name: getattr(one, name) for name in one.__slots__}) for one in topic.partitions
                ],
            )
            for topic in topics
        ],
    )


def _fetch(
    broker: Broker, request: Request, require_stable: bool, asked: RequestGroup, respond: Callable[[Group], None]
) -> None:
    auth = broker.auth
    cache = broker.metadata_cache
    use_topic_ids = request.api_version >= _TOPIC_IDS
    partitions: Collection[TopicPartition] | None = None
    names: list[str | None] = []
    authorized: set[str] = set()
    if asked.topics is not None:
        names = [cache.topic_name(topic.topic_id) if use_topic_ids else topic.name for topic in asked.topics]
        authorized = auth.filter(request, acls.DESCRIBE, acls.TOPIC, (name for name in names if name is not None))
        partitions = [
            TopicPartition(name, index)
            for topic, name in zip(asked.topics, names, strict=True)
            if name in authorized
            for index in topic.partition_indexes
        ]

    def fetched(
        error_code: int, offsets: Mapping[TopicPartition, CommittedOffset | None], unstable: Collection[TopicPartition]
    ) -> None:
        group = Group(group_id=asked.group_id, error_code=error_code)
        if error_code:
            pass
        elif asked.topics is None:
            may_see = auth.filter(request, acls.DESCRIBE, acls.TOPIC, {tp.topic for tp in offsets})
            visible = {tp: offset for tp, offset in offsets.items() if tp.topic in may_see}
            group.topics = _all_topics(visible, cache.topic_id, use_topic_ids)
        else:
            group.topics = [
                _topic(topic, name, offsets)
                if name is None or name in authorized
                else _failed_topic(topic, errors.TopicAuthorizationError.code)
                for topic, name in zip(asked.topics, names, strict=True)
            ]
        if unstable:
            _mark_unstable(
                group, names if asked.topics is not None else [topic.name for topic in group.topics], unstable
            )
        respond(group)

    try:
        auth.check_group(request, acls.DESCRIBE, asked.group_id)
        broker.group_coordinator.fetch_offsets(
            asked.group_id,
            partitions,
            require_stable,
            fetched,
            member_id=asked.member_id,
            member_epoch=asked.member_epoch,
        )
    except errors.BrokerError as error:
        fetched(error.code, {}, ())


def _mark_unstable(group: Group, names: list[str | None] | list[str], unstable: Collection[TopicPartition]) -> None:
    """Replace the offsets that open transactions may change by an error, after which the consumer asks again."""
    for topic, name in zip(group.topics, names, strict=True):
        topic.partitions = [
            _no_offset(one.partition_index, errors.UnstableOffsetCommitError.code)
            if name is not None and TopicPartition(name, one.partition_index) in unstable
            else one
            for one in topic.partitions
        ]


def _topic(asked: RequestTopics, name: str | None, offsets: Mapping[TopicPartition, CommittedOffset | None]) -> Topics:
    if name is None:
        return _failed_topic(asked, errors.UnknownTopicIdError.code)
    return Topics(
        name=asked.name,
        topic_id=asked.topic_id,
        partitions=[
            _partition(index, offsets[TopicPartition(name, index)], asked.topic_id) for index in asked.partition_indexes
        ],
    )


def _failed_topic(asked: RequestTopics, error_code: int) -> Topics:
    return Topics(
        name=asked.name,
        topic_id=asked.topic_id,
        partitions=[_no_offset(index, error_code) for index in asked.partition_indexes],
    )


def _all_topics(
    offsets: Mapping[TopicPartition, CommittedOffset | None], topic_id: Callable[[str], UUID], use_topic_ids: bool
) -> list[Topics]:
    topics = []
    for name, found in grouped((tp.topic, (tp.partition, offset)) for tp, offset in offsets.items()).items():
        id = topic_id(name)
        # A request by ids cannot get a topic without an id, because that topic was deleted.
        if not use_topic_ids or id != ZERO_UUID:
            partitions = [_partition(index, offset, id) for index, offset in found]
            topics.append(Topics(name=name, topic_id=id, partitions=partitions))
    return topics


def _partition(index: int, offset: CommittedOffset | None, topic_id: UUID) -> Partitions:
    if offset is None or (ZERO_UUID not in (topic_id, offset.topic_id) and topic_id != offset.topic_id):
        return _no_offset(index)
    return Partitions(
        partition_index=index,
        committed_offset=offset.offset,
        committed_leader_epoch=offset.leader_epoch,
        metadata=offset.metadata,
    )


def _no_offset(index: int, error_code: int = 0) -> Partitions:
    return Partitions(partition_index=index, committed_offset=_NO_OFFSET, metadata="", error_code=error_code)


# --- OffsetDelete ----------------------------------------------------------------------------------------------------


@serves(ApiKeys.OFFSET_DELETE, (0, 0))
def handle_offset_delete(broker: Broker, request: Request, body: OffsetDeleteRequest) -> None:
    """Respond once the tombstones are on all in-sync replicas."""
    broker.auth.check_group(request, acls.DELETE, body.group_id)
    authorized = broker.auth.filter(request, acls.READ, acls.TOPIC, (topic.name for topic in body.topics))
    partition_info = broker.metadata_cache.partition_info
    asked = [TopicPartition(topic.name, one.partition_index) for topic in body.topics for one in topic.partitions]
    known = [tp for tp in asked if tp.topic in authorized and partition_info(tp) is not None]

    def respond(error_codes: Mapping[TopicPartition, int]) -> None:
        def answer(
            topic: OffsetDeleteRequest.OffsetDeleteRequestTopic, one: OffsetDeleteRequest.OffsetDeleteRequestPartition
        ) -> Mapping[str, object]:
            if topic.name not in authorized:
                raise errors.TopicAuthorizationError
            return {"error_code": error_codes.get(TopicPartition(topic.name, one.partition_index), _NO_PARTITION)}

        answer_partitions(request, body, answer)

    broker.group_coordinator.delete_offsets(body.group_id, known, respond)
