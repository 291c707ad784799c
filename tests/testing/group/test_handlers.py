"""The group APIs in every served version, encoded and decoded in both directions."""

from __future__ import annotations

from typing import Any, TypeVar, cast
from uuid import UUID

import pytest

from pykclient.errors import BrokerError
from pykclient.protocol.message import Request, Response
from pykclient.protocol.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from pykclient.protocol.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from pykclient.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from pykclient.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from pykclient.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from pykclient.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from pykclient.protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse
from pykclient.protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from pykclient.protocol.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from pykclient.protocol.messages.offset_delete import OffsetDeleteRequest, OffsetDeleteResponse
from pykclient.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchResponse
from pykclient.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from pykclient.protocol.wire import Reader, Writer
from pykclient.testing.handlers import handler
from pykclient.testing.transaction.transaction_coordinator import TransactionCoordinator
from pykclient.types import Node
from tests.testing.group.harness import GROUP, Groups

R = TypeVar("R", bound=Response)

TOPIC_ID, OTHER_ID, UNKNOWN_ID = UUID(int=7), UUID(int=8), UUID(int=9)

UNKNOWN_TOPIC, UNKNOWN_TOPIC_ID = 3, 100
COORDINATOR_NOT_AVAILABLE = 15
NOT_COORDINATOR = 16
INVALID_REQUEST = 42
GROUP_ID_NOT_FOUND = 69
NON_EMPTY_GROUP = 68


class FakeRequest:
    """A request of this version, and the response that was sent."""

    def __init__(self, body: Request, version: int) -> None:
        self.body = through_bytes(body, version)
        self.api_version = version
        self.client_id = "client"
        self.client_host = "127.0.0.1"
        self._response: Response | None = None

    def advertised(self, node: Node) -> Node:
        return node

    def respond(self, response: Response) -> None:
        assert self._response is None
        self._response = through_bytes(response, self.api_version)

    @property
    def response(self) -> Any:
        assert self._response is not None, "the request waits"
        return self._response


M = TypeVar("M", Request, Response)


def through_bytes(message: M, version: int) -> M:
    w = Writer()
    message.write(w, version)
    r = Reader(w.getvalue())
    read = type(message).read(r, version)
    assert r.remaining == 0
    return read


class Apis:
    """A broker with groups, called through its handlers."""

    def __init__(self) -> None:
        self.groups = Groups()
        broker: Any = self.groups.broker
        broker.group_coordinator = broker.coordinator
        broker.auto_topic_creation = self
        broker.transaction_coordinator = TransactionCoordinator(
            broker, broker.replica_manager, broker.metadata_cache, cast(Any, self)
        )
        broker.transaction_coordinator.startup()
        broker.share_coordinator = None
        cache = broker.metadata_cache
        cache.topic_id = lambda name: cache.topics.get(name, UUID(int=0))
        cache.topic_name = {id: name for name, id in cache.topics.items()}.get
        cache.snapshot = self
        cache.partition_info = lambda tp: tp if tp.topic in cache.topics and tp.partition < 4 else None
        self.broker = broker
        self.node: Node | None = Node(1, "host", 9092)
        self.created: list[str] = []
        self.producer_id: tuple[int, int] | None = (0, 4000)

    def create_topics(self, names: list[str]) -> None:
        self.created += names

    def leader(self, _: object) -> Node | None:
        return self.node

    def generate_producer_id(self, respond: Any) -> None:
        if self.producer_id is not None:
            respond(*self.producer_id)

    def send(self, body: Request, version: int) -> FakeRequest:
        api = handler(body.API_KEY)
        assert api is not None
        assert api.versions[0] <= version <= api.versions[1]
        request = FakeRequest(body, version)
        try:
            api.handle(self.broker, cast("Any", request), body)
        except BrokerError as error:
            response = api.error_response(request.body, error.code, str(error))
            assert response is not None
            request.respond(response)
        return request

    def ask(self, body: Request, version: int) -> Any:
        return self.send(body, version).response


def versions(request: type[Request]) -> list[int]:
    api = handler(request.API_KEY)
    assert api is not None
    return list(range(api.versions[0], api.versions[1] + 1))


def join_request(member_id: str = "") -> JoinGroupRequest:
    return JoinGroupRequest(
        group_id=GROUP,
        session_timeout_ms=10_000,
        member_id=member_id,
        protocol_type="consumer",
        protocols=[JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=b"meta")],
    )


def stable(apis: Apis) -> tuple[int, str]:
    generation, (member,) = apis.groups.stable(1)
    return generation, member


@pytest.mark.parametrize("version", versions(JoinGroupRequest))
def test_join_group_works_in_every_version(version: int) -> None:
    apis = Apis()
    first = apis.send(join_request(), version)
    if version >= 4:
        assert first.response.error_code == 79
        first = apis.send(join_request(first.response.member_id), version)
    apis.groups.settle()
    joined: JoinGroupResponse = first.response
    assert (joined.error_code, joined.generation_id, joined.protocol_name) == (0, 1, "range")
    assert joined.leader == joined.member_id
    assert [one.metadata for one in joined.members] == [b"meta"]
    assert apis.groups.group().members[joined.member_id].client_host == "/127.0.0.1"
    unknown: JoinGroupResponse = apis.ask(join_request("nobody"), version)
    assert (unknown.error_code, unknown.member_id, unknown.members) == (25, "nobody", [])


@pytest.mark.parametrize("version", versions(SyncGroupRequest))
def test_sync_group_works_in_every_version(version: int) -> None:
    apis = Apis()
    generation, member = stable(apis)
    sync = SyncGroupRequest(
        group_id=GROUP, generation_id=generation, member_id=member, protocol_type="consumer", protocol_name="range"
    )
    synced: SyncGroupResponse = apis.ask(sync, version)
    assert (synced.error_code, synced.assignment) == (0, b"part-0")
    sync.generation_id += 1
    assert apis.ask(sync, version).error_code == 22
    sync.protocol_name = None
    assert apis.ask(sync, version).error_code == (23 if version >= 5 else 22)


@pytest.mark.parametrize("version", versions(HeartbeatRequest))
def test_heartbeat_works_in_every_version(version: int) -> None:
    apis = Apis()
    generation, member = stable(apis)
    beat = HeartbeatRequest(group_id=GROUP, generation_id=generation, member_id=member)
    answer: HeartbeatResponse = apis.ask(beat, version)
    assert answer.error_code == 0
    beat.member_id = "nobody"
    assert apis.ask(beat, version).error_code == 25


@pytest.mark.parametrize("version", versions(LeaveGroupRequest))
def test_leave_group_works_in_every_version(version: int) -> None:
    apis = Apis()
    _, member = stable(apis)
    if version < 3:
        leave = LeaveGroupRequest(group_id=GROUP, member_id=member)
        assert apis.ask(leave, version).error_code == 0
        assert apis.ask(leave, version).error_code == 25
        return
    identity = LeaveGroupRequest.MemberIdentity
    answer: LeaveGroupResponse = apis.ask(
        LeaveGroupRequest(group_id=GROUP, members=[identity(member_id=member), identity(member_id="nobody")]), version
    )
    assert answer.error_code == 0
    assert [(one.member_id, one.error_code) for one in answer.members] == [(member, 0), ("nobody", 25)]
    assert apis.ask(LeaveGroupRequest(group_id=""), version).error_code == 24


def commit_request(generation: int, member: str, version: int) -> OffsetCommitRequest:
    def topic(name: str, id: UUID) -> OffsetCommitRequest.OffsetCommitRequestTopic:
        return OffsetCommitRequest.OffsetCommitRequestTopic(
            name=name,
            topic_id=id if version >= 10 else UUID(int=0),
            partitions=[
                OffsetCommitRequest.OffsetCommitRequestPartition(
                    partition_index=index, committed_offset=10 + index, committed_metadata="note" if index else None
                )
                for index in (0, 1)
            ],
        )

    return OffsetCommitRequest(
        group_id=GROUP,
        generation_id_or_member_epoch=generation,
        member_id=member,
        topics=[topic("topic", TOPIC_ID), topic("unknown", UNKNOWN_ID)],
    )


@pytest.mark.parametrize("version", versions(OffsetCommitRequest))
def test_offset_commit_works_in_every_version(version: int) -> None:
    apis = Apis()
    # Version 0 does not name the member, and is for groups without members.
    generation, member = stable(apis) if version else (-1, "")
    answer: OffsetCommitResponse = apis.ask(commit_request(generation, member, version), version)
    known, unknown = answer.topics
    assert [one.error_code for one in known.partitions] == [0, 0]
    expected = UNKNOWN_TOPIC_ID if version >= 10 else UNKNOWN_TOPIC
    assert [one.error_code for one in unknown.partitions] == [expected, expected]
    assert (known.topic_id == TOPIC_ID) is (version >= 10)
    if not version:
        return
    answer = apis.ask(commit_request(generation - 1, member, version), version)
    assert [[one.error_code for one in topic.partitions] for topic in answer.topics] == [[22, 22], [expected, expected]]


def test_commit_of_a_missing_partition_has_an_error() -> None:
    apis = Apis()
    request = commit_request(-1, "", 10)
    request.topics[0].partitions[0].partition_index = 77
    answer: OffsetCommitResponse = apis.ask(request, 10)
    assert [one.error_code for one in answer.topics[0].partitions] == [UNKNOWN_TOPIC, 0]


def test_retention_time_of_old_clients_is_applied() -> None:
    apis = Apis()
    request = commit_request(-1, "", 4)
    request.retention_time_ms = 5_000
    apis.ask(request, 4)
    offset = next(iter(apis.groups.group().offsets.committed.values()))
    assert offset.expire_timestamp_ms == apis.groups.loop.wall_ms + 5_000


def fetch_request(version: int, *, everything: bool) -> OffsetFetchRequest:
    if version < 8:
        topic = OffsetFetchRequest.OffsetFetchRequestTopic
        topics = None if everything else [topic(name="topic", partition_indexes=[0, 1, 2])]
        return OffsetFetchRequest(group_id=GROUP, topics=topics)
    by_id = OffsetFetchRequest.OffsetFetchRequestTopics

    def asked(name: str, id: UUID) -> OffsetFetchRequest.OffsetFetchRequestTopics:
        return by_id(name=name, topic_id=id if version >= 10 else UUID(int=0), partition_indexes=[0, 1, 2])

    one_topic = [asked("topic", TOPIC_ID)]
    groups = [
        OffsetFetchRequest.OffsetFetchRequestGroup(group_id=name, topics=None if everything else one_topic)
        for name in (GROUP, "no-group")
    ]
    return OffsetFetchRequest(groups=groups, require_stable=True)


def offsets_in(answer: OffsetFetchResponse, version: int) -> dict[int, tuple[int, str | None]]:
    topics: list[Any] = answer.topics if version < 8 else list(answer.groups[0].topics)
    assert answer.error_code == 0
    (topic,) = topics
    assert not any(one.error_code for one in topic.partitions)
    return {one.partition_index: (one.committed_offset, one.metadata) for one in topic.partitions}


@pytest.mark.parametrize(
    ("version", "everything"),
    [(version, False) for version in versions(OffsetFetchRequest)]
    # Since version 2 a request can ask for all offsets.
    + [(version, True) for version in versions(OffsetFetchRequest) if version >= 2],
)
def test_offset_fetch_works_in_every_version(version: int, everything: bool) -> None:
    apis = Apis()
    apis.ask(commit_request(-1, "", 9), 9)
    answer: OffsetFetchResponse = apis.ask(fetch_request(version, everything=everything), version)
    expected = {0: (10, ""), 1: (11, "note")} | ({} if everything else {2: (-1, "")})
    assert offsets_in(answer, version) == expected
    if version >= 8:
        other = answer.groups[1]
        assert other.error_code == 0
        assert [one.committed_offset for topic in other.topics for one in topic.partitions] == [-1] * (
            3 - 3 * everything
        )


@pytest.mark.parametrize("version", versions(OffsetFetchRequest))
def test_offset_fetch_elsewhere_returns_not_coordinator(version: int) -> None:
    apis = Apis()
    apis.groups.coordinator.on_resignation(0, 5)
    answer: OffsetFetchResponse = apis.ask(fetch_request(version, everything=False), version)
    if version >= 8:
        assert [group.error_code for group in answer.groups] == [16, 16]
    elif version >= 2:
        assert answer.error_code == 16
    else:
        assert {one.error_code for one in answer.topics[0].partitions} == {16}


def test_recreated_topic_does_not_return_old_offsets() -> None:
    apis = Apis()
    apis.ask(commit_request(-1, "", 10), 10)
    apis.broker.metadata_cache.topics["topic"] = OTHER_ID
    apis.broker.metadata_cache.topic_name = {OTHER_ID: "topic"}.get
    request = fetch_request(10, everything=False)
    assert request.groups[0].topics is not None
    request.groups[0].topics[0].topic_id = OTHER_ID
    assert {offset for offset, _ in offsets_in(apis.ask(request, 10), 10).values()} == {-1}


def test_unknown_topic_id_is_an_error() -> None:
    apis = Apis()
    request = fetch_request(10, everything=False)
    assert request.groups[0].topics is not None
    request.groups[0].topics[0].topic_id = UNKNOWN_ID
    answer: OffsetFetchResponse = apis.ask(request, 10)
    assert {one.error_code for one in answer.groups[0].topics[0].partitions} == {UNKNOWN_TOPIC_ID}


def test_offset_delete_reports_each_partition() -> None:
    apis = Apis()
    apis.ask(commit_request(-1, "", 9), 9)
    topic, partition = OffsetDeleteRequest.OffsetDeleteRequestTopic, OffsetDeleteRequest.OffsetDeleteRequestPartition
    request = OffsetDeleteRequest(
        group_id=GROUP, topics=[topic(name=name, partitions=[partition()]) for name in ("topic", "unknown")]
    )
    answer: OffsetDeleteResponse = apis.ask(request, 0)
    assert [one.error_code for topic in answer.topics for one in topic.partitions] == [0, UNKNOWN_TOPIC]
    request.group_id = "no-group"
    assert apis.ask(request, 0).error_code == GROUP_ID_NOT_FOUND


@pytest.mark.parametrize("version", versions(DescribeGroupsRequest))
def test_describe_groups_works_in_every_version(version: int) -> None:
    apis = Apis()
    _, member = stable(apis)
    request = DescribeGroupsRequest(groups=[GROUP, "no-group"], include_authorized_operations=version >= 3)
    answer: DescribeGroupsResponse = apis.ask(request, version)
    group, missing = answer.groups
    assert (group.error_code, group.group_state, group.protocol_data) == (0, "Stable", "range")
    assert [(one.member_id, one.member_assignment) for one in group.members] == [(member, b"part-0")]
    assert (group.authorized_operations > 0) is (version >= 3)
    assert missing.group_state == "Dead"
    if version >= 6:
        assert (missing.error_code, missing.error_message) == (GROUP_ID_NOT_FOUND, "Group no-group not found.")
    else:
        assert missing.error_code == 0
    apis.groups.join_twice()
    group = apis.ask(request, version).groups[0]
    assert (group.group_state, group.protocol_data) == ("PreparingRebalance", "")
    assert (group.members[0].member_metadata, group.members[0].member_assignment) == (b"", b"part-0")


@pytest.mark.parametrize("version", versions(ListGroupsRequest))
def test_list_groups_works_in_every_version(version: int) -> None:
    apis = Apis()
    stable(apis)
    apis.groups.commit(1, group_id="offsets-only")
    answer: ListGroupsResponse = apis.ask(ListGroupsRequest(), version)
    assert [(one.group_id, one.protocol_type) for one in answer.groups] == [(GROUP, "consumer"), ("offsets-only", "")]
    if version >= 4:
        filtered: ListGroupsResponse = apis.ask(ListGroupsRequest(states_filter=["EMPTY", "dead"]), version)
        assert [(one.group_id, one.group_state) for one in filtered.groups] == [("offsets-only", "Empty")]
    if version >= 5:
        assert len(apis.ask(ListGroupsRequest(types_filter=["Classic"]), version).groups) == 2
        assert apis.ask(ListGroupsRequest(types_filter=["consumer"]), version).groups == []


@pytest.mark.parametrize("version", versions(DeleteGroupsRequest))
def test_delete_groups_works_in_every_version(version: int) -> None:
    apis = Apis()
    stable(apis)
    apis.groups.commit(1, group_id="offsets-only")
    request = DeleteGroupsRequest(groups_names=[GROUP, "offsets-only", "no-group", "offsets-only"])
    answer: DeleteGroupsResponse = apis.ask(request, version)
    assert {one.group_id: one.error_code for one in answer.results} == {
        GROUP: NON_EMPTY_GROUP,
        "offsets-only": 0,
        "no-group": GROUP_ID_NOT_FOUND,
    }
    assert apis.ask(DeleteGroupsRequest(), version).results == []


@pytest.mark.parametrize("version", versions(FindCoordinatorRequest))
def test_find_coordinator_works_in_every_version(version: int) -> None:
    apis = Apis()

    def ask(key: str, key_type: int = 0) -> Any:
        if version >= 4:
            request = FindCoordinatorRequest(key_type=key_type, coordinator_keys=[key])
            answer: FindCoordinatorResponse = apis.ask(request, version)
            return answer.coordinators[0]
        return apis.ask(FindCoordinatorRequest(key=key, key_type=key_type), version)

    missing = ask(GROUP)
    assert (missing.error_code, missing.node_id) == (COORDINATOR_NOT_AVAILABLE, -1)
    assert apis.created == ["__consumer_offsets"]
    apis.broker.metadata_cache.topics["__consumer_offsets"] = UUID(int=1)
    found = ask(GROUP)
    assert (found.error_code, found.node_id, found.host, found.port) == (0, 1, "host", 9092)
    apis.node = None
    assert ask(GROUP).error_code == COORDINATOR_NOT_AVAILABLE
    assert ask("").error_code == COORDINATOR_NOT_AVAILABLE
    if version >= 1:
        apis.node = Node(1, "host", 9092)
        assert ask("txn", 1).error_code == COORDINATOR_NOT_AVAILABLE
        assert apis.created[1:] == ["__transaction_state"]
        apis.broker.metadata_cache.topics["__transaction_state"] = UUID(int=2)
        found = ask("txn", 1)
        assert (found.error_code, found.node_id, found.host, found.port) == (0, 1, "host", 9092)
        assert ask("x", 9).error_code == INVALID_REQUEST


@pytest.mark.parametrize("version", versions(InitProducerIdRequest))
def test_init_producer_id_works_in_every_version(version: int) -> None:
    apis = Apis()
    answer: InitProducerIdResponse = apis.ask(InitProducerIdRequest(transactional_id=None), version)
    assert (answer.error_code, answer.producer_id, answer.producer_epoch) == (0, 4000, 0)
    apis.producer_id = (14, -1)
    answer = apis.ask(InitProducerIdRequest(transactional_id=None), version)
    assert (answer.error_code, answer.producer_id, answer.producer_epoch) == (14, -1, -1)
    named = InitProducerIdRequest(transactional_id="txn", transaction_timeout_ms=1_000)
    assert apis.ask(named, version).error_code == NOT_COORDINATOR
    assert apis.ask(InitProducerIdRequest(transactional_id=""), version).error_code == INVALID_REQUEST
    if version >= 3:
        assert (
            apis.ask(InitProducerIdRequest(transactional_id=None, producer_id=5), version).error_code == INVALID_REQUEST
        )
        apis.producer_id = (0, 4001)
        assert (
            apis.ask(InitProducerIdRequest(transactional_id=None, producer_id=5, producer_epoch=1), version).producer_id
            == 4001
        )
