"""ShareFetch: acknowledge and acquire records in a share session (KIP-932, KIP-1206, KIP-1222)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, cast

from pykclient.errors import (
    BrokerError,
    FencedLeaderEpochError,
    InvalidRequestError,
    NotLeaderOrFollowerError,
    ShareSessionLimitReachedError,
)
from pykclient.protocol.api_keys import ApiKeys
from pykclient.protocol.messages.share_fetch import ShareFetchRequest, ShareFetchResponse
from pykclient.testing import acls
from pykclient.testing.share.acknowledgements import (
    acknowledge,
    check_enabled,
    check_member,
    leader_of,
    node_endpoints,
    readable_partition,
)
from pykclient.testing.share.delayed_share_fetch import isolation_of
from pykclient.testing.share.record_acquirer import AcquireRequest
from pykclient.testing.share.share_partition_manager import FetchLimits, check_epoch
from pykclient.testing.share.share_session import FINAL_EPOCH, INITIAL_EPOCH, ShareSession, ShareSessionKey

if TYPE_CHECKING:
    from uuid import UUID

    from pykclient.testing.broker import Broker
    from pykclient.testing.server.request_channel import Request
    from pykclient.types import Node, TopicPartition

API_KEY = ApiKeys.SHARE_FETCH
VERSIONS = (1, 2)

_FIRST_VERSION_WITH_RENEWALS: Final = 2
#: The value of ``share_acquire_mode`` for a strict limit of records.
_RECORD_LIMIT: Final = 1

PartitionData = ShareFetchResponse.PartitionData
_Key = tuple["UUID", int]


def handle(broker: Broker, request: Request) -> None:
    """Respond when the acknowledgements are written, and records were acquired or time is up."""
    body = cast(ShareFetchRequest, request.body)
    check_enabled(broker)
    group_id, member_id = check_member(body.group_id, body.member_id)
    broker.auth.check_group(request, acls.READ, group_id)
    with_renewals = request.api_version >= _FIRST_VERSION_WITH_RENEWALS
    if (
        with_renewals
        and body.is_renew_ack
        and (body.max_bytes or body.min_bytes or body.max_records or body.max_wait_ms)
    ):
        raise InvalidRequestError("a request that renews locks cannot fetch, so its limits must be 0")
    acknowledgements = {
        (topic.topic_id, partition.partition_index): partition.acknowledgement_batches
        for topic in body.topics
        for partition in topic.partitions
        if partition.acknowledgement_batches
    }
    try:
        session = _session(broker, request, ShareSessionKey(group_id, member_id), bool(acknowledgements))
    except ShareSessionLimitReachedError as error:
        # At once, the client would try again at once.
        broker.call_later(body.max_wait_ms, broker.apis.respond_error, request, error)
        return
    is_final = body.share_session_epoch == FINAL_EPOCH
    answer = _Answer(broker, request, session, group_id)

    def acknowledged(errors: dict[_Key, BrokerError | None]) -> None:
        answer.acknowledged(errors)
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
    check_epoch(epoch, has_acknowledgements=has_acknowledgements)
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
    limits = FetchLimits(
        body.max_wait_ms,
        min(body.min_bytes, max_bytes),
        max_bytes,
        isolation_of(read_committed=config.read_committed),
    )
    acquire = AcquireRequest(
        session.key.member_id, body.max_records, body.batch_size, body.share_acquire_mode == _RECORD_LIMIT
    )
    known: list[tuple[_Key, TopicPartition]] = []
    for topic_id, index in session.partitions:
        try:
            known.append(((topic_id, index), readable_partition(broker, request, topic_id, index)))
        except BrokerError as error:
            answer.errors[topic_id, index] = PartitionData(partition_index=index, error_code=error.code, records=b"")
    broker.share_partition_manager.fetch(answer.group_id, limits, acquire, known, answer.fetched)


class _Answer:
    """The response of a share fetch, whose two parts become ready one after the other. Thread: loop."""

    def __init__(self, broker: Broker, request: Request, session: ShareSession, group_id: str) -> None:
        self._broker = broker
        self._request = request
        self._session = session
        self.group_id = group_id
        self.errors: dict[_Key, PartitionData] = {}
        self._acknowledged: dict[_Key, BrokerError | None] | None = None
        self._fetched: dict[_Key, PartitionData] | None = None

    def acknowledged(self, errors: dict[_Key, BrokerError | None]) -> None:
        """Take the results of the acknowledgements."""
        self._acknowledged = errors
        self._maybe_respond()

    def fetched(self, results: dict[_Key, PartitionData]) -> None:
        """Take the results of the fetch."""
        self._fetched = {**results, **self.errors}
        self._maybe_respond()

    def _maybe_respond(self) -> None:
        if self._acknowledged is None or self._fetched is None:
            return
        is_new = cast(ShareFetchRequest, self._request.body).share_session_epoch == INITIAL_EPOCH
        config = self._broker.group_configs.get(self.group_id)
        response = ShareFetchResponse(acquisition_lock_timeout_ms=config.record_lock_duration_ms)
        partitions = {
            key: data
            for key, data in self._fetched.items()
            if is_new
            or self._session.must_respond(key, has_records=bool(data.records), has_error=bool(data.error_code))
        }
        for key, error in self._acknowledged.items():
            data = partitions.setdefault(key, PartitionData(partition_index=key[1], records=b""))
            data.acknowledge_error_code = 0 if error is None else error.code
        nodes: dict[int, Node] = {}
        topics: dict[UUID, ShareFetchResponse.ShareFetchableTopicResponse] = {}
        for (topic_id, _), data in partitions.items():
            topic = topics.get(topic_id)
            if topic is None:
                topic = topics[topic_id] = ShareFetchResponse.ShareFetchableTopicResponse(topic_id=topic_id)
            if data.error_code in (NotLeaderOrFollowerError.code, FencedLeaderEpochError.code):
                leader_id, leader_epoch = leader_of(self._broker, topic_id, data.partition_index, nodes)
                data.current_leader = ShareFetchResponse.LeaderIdAndEpoch(
                    leader_id=leader_id, leader_epoch=leader_epoch
                )
            topic.partitions.append(data)
        response.responses = list(topics.values())
        response.node_endpoints = node_endpoints(self._request, nodes, ShareFetchResponse.NodeEndpoint)
        self._request.respond(response)


def error_response(body: ShareFetchRequest, code: int, message: str | None = None) -> ShareFetchResponse:  # noqa: ARG001
    return ShareFetchResponse(error_code=code, error_message=message)
