"""A conversation of a client with a group coordinator: requests and responses as text.

``python -m tests.testing.group.conversation`` records the responses of a real broker.
"""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any
from uuid import UUID

from pykclient.errors import (
    CoordinatorLoadInProgressError,
    CoordinatorNotAvailableError,
    GroupIdNotFoundError,
    RebalanceInProgressError,
)
from pykclient.protocol.message import Message, Request, Response
from pykclient.protocol.messages.delete_groups import DeleteGroupsRequest
from pykclient.protocol.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from pykclient.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from pykclient.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from pykclient.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from pykclient.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from pykclient.protocol.messages.leave_group import LeaveGroupRequest
from pykclient.protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from pykclient.protocol.messages.metadata import MetadataRequest, MetadataResponse
from pykclient.protocol.messages.offset_commit import OffsetCommitRequest
from pykclient.protocol.messages.offset_delete import OffsetDeleteRequest
from pykclient.protocol.messages.offset_fetch import OffsetFetchRequest
from pykclient.protocol.messages.sync_group import SyncGroupRequest
from pykclient.protocol.wire import ZERO_UUID
from tests.support.any_kafka import AnyKafka
from tests.support.wait import eventually
from tests.testing.handlers.raw_client import RawClient

ANSWERS = Path(__file__).with_name("answers_of_kafka.json")

_UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")

#: Fields that depend on the moment, the machine, or the broker's wording.
_LEFT_OUT = ("throttle_time_ms", "port", "producer_id")
#: Lists whose order has no meaning.
_SETS = ("groups", "results", "members", "topics")

_LAST_COMMIT, _LAST_FETCH = 10, 10

Identity = LeaveGroupRequest.MemberIdentity


class Conversation:
    """One conversation, with its own groups and its own topic of two partitions."""

    left_out: tuple[str, ...] = _LEFT_OUT
    sets: tuple[str, ...] = _SETS

    def __init__(self, kafka: AnyKafka) -> None:
        self._kafka = kafka
        self._names: dict[str, str] = {}
        self._clients: list[RawClient] = []
        self.said: list[str] = []
        self.client = self.another_client()
        self.topic = self._call(kafka.create_topic(f"topic-{uuid.uuid4().hex[:8]}", partitions=2), "TOPIC")
        self.group = self._call(f"group-{uuid.uuid4().hex[:8]}", "GROUP")
        metadata = MetadataRequest(topics=[MetadataRequest.MetadataRequestTopic(name=self.topic)])
        self.topic_id = self.client.ask(metadata, 12, MetadataResponse).topics[0].topic_id
        self._call(str(self.topic_id), "TOPIC-ID")

        def coordinator_is_there() -> bool:
            found = self.client.ask(FindCoordinatorRequest(key=self.group), 3, FindCoordinatorResponse)
            assert found.error_code in (0, CoordinatorNotAvailableError.code)
            return not found.error_code

        def has_loaded() -> bool:
            listed = self.client.ask(ListGroupsRequest(), 4, ListGroupsResponse)
            return listed.error_code != CoordinatorLoadInProgressError.code

        eventually(coordinator_is_there, 30)
        eventually(has_loaded, 30)

    def close(self) -> None:
        for client in self._clients:
            client.__exit__()

    def another_client(self) -> RawClient:
        client = RawClient(self._kafka.bootstrap_servers)
        self._clients.append(client)
        return client

    # --- writing down

    def _call(self, value: str, name: str) -> str:
        self._names[value] = name
        return value

    def note(self, question: str, answer: Response) -> None:
        self.said.append(f"{question}: {self._text(answer)}")

    def _text(self, value: Any, field: str = "") -> str:
        if isinstance(value, Message):
            default = type(value)()
            parts = [
                f"{name}={self._text(given, name)}"
                for name in type(value).__slots__
                if name not in self.left_out and (given := getattr(value, name)) != getattr(default, name)
            ]
            return f"({' '.join(parts)})"
        if isinstance(value, list):
            texts = [self._text(one) for one in value]
            return f"[{', '.join(sorted(texts) if field in self.sets else texts)}]"
        text = value.decode() if isinstance(value, bytes) else str(value)
        for known, name in self._names.items():
            text = text.replace(known, name)
        for unknown in _UUID.findall(text):
            if unknown != str(ZERO_UUID):
                text = text.replace(unknown, self._names.setdefault(unknown, f"ID{len(self._names)}"))
        return repr(text) if isinstance(value, (str, bytes)) else text

    def ask(self, question: str, request: Request, version: int, client: RawClient | None = None) -> Any:
        """Send a request and record the response."""
        client = client or self.client
        client.send(request, version)
        answer = client.receive(request.API_KEY, version)
        self.note(f"{question} v{version}", answer)
        return answer

    def ask_all(self, question: str, make: Callable[[int], Request], versions: Sequence[int]) -> None:
        for version in versions:
            self.ask(question, make(version), version)

    # --- questions

    def join(
        self,
        member: str = "",
        *,
        group: str | None = None,
        instance: str | None = None,
        protocols: Sequence[tuple[str, bytes]] = (("range", b"said"),),
        protocol_type: str = "consumer",
        session_ms: int = 10_000,
    ) -> JoinGroupRequest:
        return JoinGroupRequest(
            group_id=self.group if group is None else group,
            session_timeout_ms=session_ms,
            rebalance_timeout_ms=20_000,
            member_id=member,
            group_instance_id=instance,
            protocol_type=protocol_type,
            protocols=[JoinGroupRequest.JoinGroupRequestProtocol(name=name, metadata=data) for name, data in protocols],
        )

    def sync(
        self,
        generation: int,
        member: str,
        parts: Sequence[tuple[str, bytes]] = (),
        *,
        group: str | None = None,
        instance: str | None = None,
        protocol_type: str | None = "consumer",
        protocol: str | None = "range",
    ) -> SyncGroupRequest:
        return SyncGroupRequest(
            group_id=self.group if group is None else group,
            generation_id=generation,
            member_id=member,
            group_instance_id=instance,
            protocol_type=protocol_type,
            protocol_name=protocol,
            assignments=[
                SyncGroupRequest.SyncGroupRequestAssignment(member_id=one, assignment=part) for one, part in parts
            ],
        )

    def beat(
        self, generation: int, member: str, *, group: str | None = None, instance: str | None = None
    ) -> HeartbeatRequest:
        return HeartbeatRequest(
            group_id=self.group if group is None else group,
            generation_id=generation,
            member_id=member,
            group_instance_id=instance,
        )

    def commit(
        self,
        version: int,
        generation: int = -1,
        member: str = "",
        *,
        group: str | None = None,
        instance: str | None = None,
        offset: int = 5,
        topic: str | None = None,
        topic_id: UUID | None = None,
        partition: int = 0,
        metadata: str | None = None,
        retention_ms: int = -1,
    ) -> OffsetCommitRequest:
        return OffsetCommitRequest(
            group_id=self.group if group is None else group,
            generation_id_or_member_epoch=generation,
            member_id=member,
            group_instance_id=instance,
            retention_time_ms=retention_ms,
            topics=[
                OffsetCommitRequest.OffsetCommitRequestTopic(
                    name="" if version >= 10 else topic or self.topic,
                    topic_id=(self.topic_id if topic_id is None else topic_id) if version >= 10 else ZERO_UUID,
                    partitions=[
                        OffsetCommitRequest.OffsetCommitRequestPartition(
                            partition_index=partition, committed_offset=offset, committed_metadata=metadata
                        )
                    ],
                )
            ],
        )

    def fetch(
        self,
        version: int,
        *,
        group: str | None = None,
        everything: bool = False,
        topic: str | None = None,
        topic_id: UUID | None = None,
        stable: bool = False,
    ) -> OffsetFetchRequest:
        group = self.group if group is None else group
        name, indexes = topic or self.topic, [0, 1, 7]
        if version < 8:
            named = OffsetFetchRequest.OffsetFetchRequestTopic(name=name, partition_indexes=indexes)
            return OffsetFetchRequest(
                group_id=group, topics=None if everything else [named], require_stable=stable and version >= 7
            )
        asked = OffsetFetchRequest.OffsetFetchRequestTopics(
            name="" if version >= 10 else name,
            topic_id=(self.topic_id if topic_id is None else topic_id) if version >= 10 else ZERO_UUID,
            partition_indexes=indexes,
        )
        groups = [OffsetFetchRequest.OffsetFetchRequestGroup(group_id=group, topics=None if everything else [asked])]
        return OffsetFetchRequest(groups=groups, require_stable=stable)

    @staticmethod
    def delete_offsets(group: str, *topics: tuple[str, Sequence[int]]) -> OffsetDeleteRequest:
        partition = OffsetDeleteRequest.OffsetDeleteRequestPartition
        return OffsetDeleteRequest(
            group_id=group,
            topics=[
                OffsetDeleteRequest.OffsetDeleteRequestTopic(
                    name=name, partitions=[partition(partition_index=index) for index in indexes]
                )
                for name, indexes in topics
            ],
        )

    @staticmethod
    def describe(*groups: str) -> Callable[[int], DescribeGroupsRequest]:
        return lambda version: DescribeGroupsRequest(groups=list(groups), include_authorized_operations=version >= 3)

    def list_groups(self, version: int, **filters: Any) -> None:
        answer = self.client.ask(ListGroupsRequest(**filters), version, ListGroupsResponse)
        answer.groups = [group for group in answer.groups if group.group_id.startswith(self.group)]
        self.note(f"list {filters} v{version}", answer)

    def await_group(self, group: str) -> None:
        """Wait until the coordinator's log has the group that a JoinGroup created.

        A member without an id gets its response earlier, and requests that describe a group read what has been written.
        """

        def is_there() -> bool:
            answer = self.client.ask(self.describe(group)(6), 6, DescribeGroupsResponse)
            return answer.groups[0].error_code != GroupIdNotFoundError.code

        eventually(is_there, 30)

    # --- rounds

    def coordinators(self) -> None:
        find = FindCoordinatorRequest
        self.ask_all("find", lambda _: find(key=self.group), range(4))
        self.ask("find a group without a name", find(key=""), 3)
        self.ask_all("find", lambda _: find(coordinator_keys=[self.group, ""]), range(4, 7))
        self.ask("find nothing", find(), 6)

    def strangers(self) -> None:
        """Ask about groups and members that do not exist yet."""
        ask, ask_all, nowhere = self.ask, self.ask_all, f"{self.group}-nowhere"
        ask_all("join without a group", lambda _: self.join(group=""), (5, 9))
        ask_all("join with an id", lambda _: self.join("nobody"), range(10))
        ask_all("join without protocols", lambda _: self.join(protocols=()), (5, 9))
        ask_all("join without a type", lambda _: self.join(protocol_type=""), (5, 9))
        ask_all("join for a moment", lambda _: self.join(session_ms=1), (5, 9))
        ask_all("beat", lambda _: self.beat(1, "nobody", group=nowhere), range(5))
        ask("beat without a group", self.beat(1, "nobody", group=""), 4)
        ask_all("sync", lambda _: self.sync(1, "nobody", group=nowhere), range(6))
        ask("sync without a protocol", self.sync(1, "nobody", group=nowhere, protocol=None), 5)
        ask("sync without a group", self.sync(1, "nobody", group=""), 5)
        ask_all("leave", lambda _: LeaveGroupRequest(group_id=nowhere, member_id="nobody"), range(3))
        leaving = [Identity(member_id="nobody"), Identity(group_instance_id="nothing")]
        ask_all("leave", lambda _: LeaveGroupRequest(group_id=nowhere, members=leaving), range(3, 6))
        ask("leave without a group", LeaveGroupRequest(group_id="", members=leaving), 5)
        ask("nobody leaves", LeaveGroupRequest(group_id=nowhere), 5)
        ask_all("describe", self.describe(nowhere, ""), range(7))
        ask("describe nothing", DescribeGroupsRequest(), 6)
        ask_all("delete", lambda _: DeleteGroupsRequest(groups_names=[nowhere, ""]), range(3))
        ask("delete nothing", DeleteGroupsRequest(), 2)
        ask_all("commit", lambda v: self.commit(v, 1, "nobody", group=nowhere), range(2, _LAST_COMMIT + 1))
        ask_all("fetch", lambda v: self.fetch(v, group=nowhere), range(1, _LAST_FETCH + 1))
        ask_all("fetch all", lambda v: self.fetch(v, group=nowhere, everything=True), range(2, _LAST_FETCH + 1))
        ask("fetch of an unknown topic", self.fetch(9, topic="no-such-topic"), 9)
        ask("fetch of an unknown topic", self.fetch(10, topic_id=UUID(int=99)), 10)
        ask("fetch of no topic", self.fetch(10, topic_id=ZERO_UUID), 10)
        ask("fetch of nothing", OffsetFetchRequest(), 9)
        ask("delete offsets", self.delete_offsets(nowhere, (self.topic, [0])), 0)
        ask("delete offsets without a group", self.delete_offsets("", (self.topic, [0])), 0)
        ask("delete unknown offsets", self.delete_offsets(nowhere, ("no-such-topic", [0])), 0)

    def offsets_without_members(self) -> None:
        ask, ask_all, group = self.ask, self.ask_all, self.group
        for version in range(2, _LAST_COMMIT + 1):
            ask("commit", self.commit(version, offset=version, metadata=f"note {version}"), version)
        ask_all("fetch", self.fetch, range(1, _LAST_FETCH + 1))
        ask_all("fetch all", lambda v: self.fetch(v, everything=True), range(2, _LAST_FETCH + 1))
        ask_all("fetch stable", lambda v: self.fetch(v, stable=True), range(7, _LAST_FETCH + 1))
        ask("commit to an unknown topic", self.commit(9, topic="no-such-topic"), 9)
        ask("commit to an unknown topic", self.commit(10, topic_id=UUID(int=99)), 10)
        ask("commit to no topic", self.commit(10, topic_id=ZERO_UUID), 10)
        ask_all("commit to an unknown partition", lambda v: self.commit(v, partition=77), (9, 10))
        ask("commit with a long note", self.commit(9, metadata="x" * 5_000), 9)
        ask("commit of a negative offset", self.commit(9, offset=-7), 9)
        ask("commit with a retention time", self.commit(4, retention_ms=100_000), 4)
        ask("commit of nothing", OffsetCommitRequest(group_id=group), 9)
        ask("commit with a member id", self.commit(9, -1, "nobody"), 9)
        ask("commit with a generation", self.commit(9, 3, "nobody"), 9)
        ask("commit with an instance", self.commit(9, -1, "", instance="a"), 9)
        ask_all("fetch", self.fetch, (8, 9))
        groups = [
            OffsetFetchRequest.OffsetFetchRequestGroup(group_id=group, topics=None),
            OffsetFetchRequest.OffsetFetchRequestGroup(group_id=group, topics=[]),
            OffsetFetchRequest.OffsetFetchRequestGroup(group_id=group, member_id="m", member_epoch=3, topics=None),
        ]
        ask("fetch of several", OffsetFetchRequest(groups=groups), 9)
        ask_all("describe", self.describe(group), range(7))
        for version in range(6):
            self.list_groups(version)
        for states in (["Empty"], ["empty", "STABLE"], ["Dead"], ["nonsense"]):
            self.list_groups(5, states_filter=states)
        for types in (["classic"], ["Classic", "consumer"], ["consumer"], ["nonsense"]):
            self.list_groups(5, types_filter=types)
        ask("join with an id", self.join("nobody"), 9)
        ask("beat", self.beat(0, ""), 4)
        ask("sync", self.sync(0, ""), 5)
        ask("delete unknown offsets", self.delete_offsets(group, (self.topic, [77]), ("no-such-topic", [0])), 0)
        ask("delete offsets", self.delete_offsets(group, (self.topic, [0, 1])), 0)
        ask("fetch all", self.fetch(9, everything=True), 9)
        ask("delete", DeleteGroupsRequest(groups_names=[group, group]), 2)
        self.list_groups(5)

    def one_member(self) -> None:
        ask, ask_all, group = self.ask, self.ask_all, self.group
        me = ask("join", self.join(), 9).member_id
        self.await_group(group)
        ask("describe", self.describe(group)(6), 6)
        ask("join with the id", self.join(me), 9)
        ask("describe", self.describe(group)(6), 6)
        ask("commit before syncing", self.commit(9, 1, me), 9)
        ask("beat before syncing", self.beat(1, me), 4)
        ask("join once more", self.join(me), 9)
        ask("sync with another type", self.sync(1, me, protocol_type="other"), 5)
        ask("sync with another protocol", self.sync(1, me, protocol="other"), 5)
        ask("sync with another generation", self.sync(2, me), 5)
        ask("sync as a stranger", self.sync(1, "nobody"), 5)
        ask("sync as an instance", self.sync(1, me, instance="a"), 5)
        ask("sync", self.sync(1, me, [(me, b"mine"), ("nobody", b"not mine")]), 5)
        ask_all("sync again", lambda _: self.sync(1, me), range(6))
        ask_all("describe", self.describe(group), range(7))
        self.list_groups(5)
        for version in range(2, _LAST_COMMIT + 1):
            ask("commit", self.commit(version, 1, me, offset=version), version)
        for question, request in (
            ("the last generation", self.commit(9, 0, me)),
            ("the next generation", self.commit(9, 2, me)),
            ("somebody", self.commit(9)),
            ("a stranger", self.commit(9, 1, "nobody")),
            ("an instance", self.commit(9, 1, me, instance="a")),
        ):
            ask(f"commit of {question}", request, 9)
        ask("fetch", self.fetch(9), 9)
        ask("delete offsets", self.delete_offsets(group, (self.topic, [0])), 0)
        ask("delete", DeleteGroupsRequest(groups_names=[group]), 2)
        ask("join with another type", self.join(protocol_type="connect"), 9)
        ask("join with another protocol", self.join(protocols=[("other", b"")]), 9)
        ask("join with only another protocol", self.join(me, protocols=[("other", b"")]), 9)
        ask("join as an instance", self.join(me, instance="a"), 9)
        ask("beat of the last generation", self.beat(0, me), 4)
        ask("leave", LeaveGroupRequest(group_id=group, member_id=me), 2)
        ask("describe", self.describe(group)(6), 6)
        ask("leave again", LeaveGroupRequest(group_id=group, member_id=me), 2)
        ask("beat after leaving", self.beat(2, me), 4)
        ask("join after leaving", self.join(me), 9)
        ask("commit after leaving", self.commit(9, 1, me), 9)
        ask("commit of somebody", self.commit(9, offset=99), 9)
        self.list_groups(5)

    def two_members(self) -> None:
        ask, group = self.ask, self.group
        me = ask("join", self.join(), 9).member_id
        ask("join with the id", self.join(me), 9)
        ask("sync", self.sync(1, me, [(me, b"all")]), 5)
        other = self.another_client()
        them = ask("another joins", self.join(), 9, other).member_id
        other.send(self.join(them), 9)

        def is_rebalancing() -> bool:
            answer = self.client.ask(self.beat(1, me), 4, HeartbeatResponse)
            return answer.error_code == RebalanceInProgressError.code

        eventually(is_rebalancing, 30)
        ask("describe", self.describe(group)(6), 6)
        ask("sync while others join", self.sync(1, me), 5)
        ask("commit while others join", self.commit(9, 1, me), 9)
        ask("join again", self.join(me), 9)
        self.note("the other has joined", other.receive(JoinGroupRequest.API_KEY, 9))
        other.send(self.sync(2, them), 5)
        ask("sync", self.sync(2, me, [(me, b"half"), (them, b"the other half")]), 5)
        self.note("the other has synced", other.receive(SyncGroupRequest.API_KEY, 5))
        for version in range(5, 10):
            ask("the other joins, unchanged", self.join(them), version, other)
        leaving = [Identity(member_id=them, reason="why not"), Identity(member_id="nobody")]
        ask("some leave", LeaveGroupRequest(group_id=group, members=leaving), 5)
        ask("beat", self.beat(2, me), 4)
        ask(
            "leave as an instance",
            LeaveGroupRequest(group_id=group, members=[Identity(member_id=me, group_instance_id="a")]),
            5,
        )
        ask("leave", LeaveGroupRequest(group_id=group, members=[Identity(member_id=me)]), 5)

    def static_members(self) -> None:
        ask, group = self.ask, self.group
        me = ask("join", self.join(instance="a"), 9).member_id
        ask("sync", self.sync(1, me, [(me, b"mine")], instance="a"), 5)
        ask("describe", self.describe(group)(6), 6)
        for version in range(5, 10):
            former = me
            me = ask("join without an id", self.join(instance="a"), version).member_id
            ask("beat as before", self.beat(1, former, instance="a"), 4)
            ask("sync as before", self.sync(1, former, instance="a"), 5)
            ask("join as before", self.join(former, instance="a"), 9)
            ask("commit as before", self.commit(9, 1, former, instance="a"), 9)
            ask("beat as before, without instance", self.beat(1, former), 4)
            ask("sync", self.sync(1, me, instance="a"), 5)
        other = self.another_client()
        other.send(self.join(instance="b"), 9)

        def has_joined() -> bool:
            answer = self.client.ask(self.beat(1, me, instance="a"), 4, HeartbeatResponse)
            return answer.error_code == RebalanceInProgressError.code

        eventually(has_joined, 30)
        ask("join again", self.join(me, instance="a"), 9)
        joined = other.receive(JoinGroupRequest.API_KEY, 9)
        self.note("the other has joined", joined)
        assert isinstance(joined, JoinGroupResponse)
        them = joined.member_id
        wrong = [Identity(member_id=them, group_instance_id="a")]
        ask("leave as somebody else", LeaveGroupRequest(group_id=group, members=wrong), 5)
        ask("sync", self.sync(2, me, [(me, b"half"), (them, b"the other half")], instance="a"), 5)
        ask("the other syncs", self.sync(2, them, instance="b"), 5, other)
        for version in (6, 9):
            them = ask("the other joins without an id", self.join(instance="b"), version, other).member_id
            ask("the other syncs", self.sync(2, them, instance="b"), 5, other)
        changed = self.join(instance="b", protocols=[("range", b"something else")])
        ask("the other joins with something else", changed, 9, other)
        ask("describe", self.describe(group)(6), 6)
        leaving = [Identity(group_instance_id=name) for name in ("nothing", "a", "b")]
        ask("all leave", LeaveGroupRequest(group_id=group, members=leaving), 5)
        ask("describe", self.describe(group)(6), 6)

    def other_kinds(self) -> None:
        """Ask about members that are not consumers, members that die, and producer ids."""
        ask, group = self.ask, self.group
        worker = self.join(protocol_type="connect", protocols=[("default", b"said")])
        me = ask("join of a worker", worker, 3).member_id
        ask("sync of a worker", self.sync(1, me, [(me, b"work")]), 3)
        ask("describe", self.describe(group)(6), 6)
        ask("delete offsets", self.delete_offsets(group, (self.topic, [0])), 0)
        mortal = f"{group}-mortal"
        me = ask("join", self.join(group=mortal, session_ms=500), 3).member_id
        self.await_group(mortal)

        def is_gone() -> bool:
            # This request does not extend the session; a heartbeat would.
            answer = self.client.ask(self.describe(mortal)(6), 6, DescribeGroupsResponse)
            return not answer.groups[0].members

        eventually(is_gone, 30)
        ask("beat when the session is over", self.beat(1, me, group=mortal), 4)
        ask("describe", self.describe(mortal)(6), 6)
        producer = InitProducerIdRequest

        def has_ids() -> bool:
            answer = self.client.ask(producer(transactional_id=None), 0, InitProducerIdResponse)
            return not answer.error_code

        eventually(has_ids, 30)
        self.ask_all("a producer's id", lambda _: producer(transactional_id=None), range(6))
        ask("an epoch is missing", producer(transactional_id=None, producer_id=5), 5)
        ask("a producer with an id", producer(transactional_id=None, producer_id=5, producer_epoch=3), 5)
        ask("a transactional id without a name", producer(transactional_id=""), 5)


ROUNDS = (
    "coordinators",
    "strangers",
    "offsets_without_members",
    "one_member",
    "two_members",
    "static_members",
    "other_kinds",
)


def converse(kafka: AnyKafka, name: str) -> list[str]:
    """Run one conversation and return its requests and responses."""
    conversation = Conversation(kafka)
    try:
        getattr(conversation, name)()
    finally:
        conversation.close()
    return conversation.said


def main() -> None:
    from tests.kafka.cluster import KafkaCluster

    with KafkaCluster(brokers=1) as kafka:
        answers = {name: converse(kafka, name) for name in ROUNDS}
    ANSWERS.write_text(json.dumps(answers, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
