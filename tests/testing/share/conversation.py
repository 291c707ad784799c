"""A conversation of a share consumer with a broker: requests and responses as text.

``python -m tests.testing.share.conversation`` records the responses of a real broker.
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pykclient.errors import CoordinatorLoadInProgressError, CoordinatorNotAvailableError, NotCoordinatorError
from pykclient.protocol.messages.alter_share_group_offsets import AlterShareGroupOffsetsRequest
from pykclient.protocol.messages.delete_groups import DeleteGroupsRequest
from pykclient.protocol.messages.delete_records import DeleteRecordsRequest, DeleteRecordsResponse
from pykclient.protocol.messages.delete_share_group_offsets import DeleteShareGroupOffsetsRequest
from pykclient.protocol.messages.describe_share_group_offsets import DescribeShareGroupOffsetsRequest
from pykclient.protocol.messages.incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from pykclient.protocol.messages.list_groups import ListGroupsRequest
from pykclient.protocol.messages.offset_commit import OffsetCommitRequest
from pykclient.protocol.messages.produce import ProduceRequest, ProduceResponse
from pykclient.protocol.messages.share_acknowledge import ShareAcknowledgeRequest
from pykclient.protocol.messages.share_fetch import ShareFetchRequest
from pykclient.protocol.messages.share_group_describe import ShareGroupDescribeRequest
from pykclient.protocol.messages.share_group_heartbeat import ShareGroupHeartbeatRequest
from pykclient.record.memory_records import MemoryRecords
from pykclient.record.memory_records_builder import MemoryRecordsBuilder
from tests.support.any_kafka import AnyKafka
from tests.testing.group.conversation import Conversation

#: The bound of a fetch's wait for records that are about to be available: a broker first writes down that they were
#: released, and reads a partition for one fetch at a time.
_AVAILABLE_MS = 5_000
ANSWERS = Path(__file__).with_name("answers_of_kafka.json")

_EPOCHS = ("member_epoch", "group_epoch", "assignment_epoch")
_GROUP_RESOURCE = 32
_SET = 0
_WAIT_S = 20

GAP, ACCEPT, RELEASE, REJECT, RENEW = 0, 1, 2, 3, 4
#: First offset, last offset, and one type for all or one for each.
Ack = tuple[int, int, Sequence[int]]


class ShareConversation(Conversation):
    """A conversation about one share group, which reads its topic from the beginning."""

    left_out = (
        *Conversation.left_out,
        "error_message",
        "acknowledge_error_message",
        "authorized_operations",
        "heartbeat_interval_ms",
        "client_host",
    )
    sets = (*Conversation.sets, "responses", "partitions")

    def __init__(self, kafka: AnyKafka, **settings: str) -> None:
        super().__init__(kafka)
        self.configure(**{"share.auto.offset.reset": "earliest", **settings})
        self._first_epoch = 0

    def _text(self, value: Any, field: str = "") -> str:
        if field == "records":
            records = [record for batch in MemoryRecords(value or b"").batches() for record in batch.records()]
            return str([(record.offset, (record.value or b"").decode("utf-8", "replace")) for record in records])
        if field in _EPOCHS and value > 0:
            # How many epochs it took until the first assignment depends on the moment.
            value -= self._first_epoch
        return super()._text(value, field)

    # --- what is not written down

    def configure(self, **settings: str) -> None:
        request = IncrementalAlterConfigsRequest
        configs = [
            request.AlterableConfig(name=name, config_operation=_SET, value=value) for name, value in settings.items()
        ]
        resource = request.AlterConfigsResource(
            resource_type=_GROUP_RESOURCE, resource_name=self.group, configs=configs
        )
        answer = self.client.ask(request(resources=[resource]), 1, IncrementalAlterConfigsResponse)
        assert not answer.responses[0].error_code, answer

    def produce(self, *values: str, partition: int = 0) -> None:
        builder = MemoryRecordsBuilder()
        for value in values:
            builder.append(1, None, value.encode())
        data = ProduceRequest.PartitionProduceData(index=partition, records=builder.build())
        topic = ProduceRequest.TopicProduceData(name=self.topic, partition_data=[data])
        answer = self.client.ask(ProduceRequest(acks=-1, timeout_ms=10_000, topic_data=[topic]), 9, ProduceResponse)
        assert not answer.responses[0].partition_responses[0].error_code, answer

    def delete_records(self, offset: int) -> None:
        partition = DeleteRecordsRequest.DeleteRecordsPartition(partition_index=0, offset=offset)
        topic = DeleteRecordsRequest.DeleteRecordsTopic(name=self.topic, partitions=[partition])
        answer = self.client.ask(DeleteRecordsRequest(topics=[topic], timeout_ms=10_000), 2, DeleteRecordsResponse)
        assert not answer.topics[0].partitions[0].error_code, answer

    def joined(self, member: str = "one") -> None:
        """Join, and send heartbeats until the member has an assignment."""
        deadline = time.monotonic() + _WAIT_S
        epoch = 0
        while time.monotonic() < deadline:
            self.client.send(self.share_beat(epoch, member), 1)
            answer: Any = self.client.receive(ShareGroupHeartbeatRequest.API_KEY, 1)
            if answer.error_code in (
                CoordinatorNotAvailableError.code,
                CoordinatorLoadInProgressError.code,
                NotCoordinatorError.code,
            ):
                time.sleep(0.05)
                continue
            assert not answer.error_code, answer
            self._first_epoch = epoch = answer.member_epoch
            if answer.assignment is not None and answer.assignment.topic_partitions:
                return
            time.sleep(0.02)
        raise AssertionError("the member has no assignment")

    # --- requests

    def share_beat(
        self, epoch: int, member: str = "one", *, topics: Sequence[str] | None = None, group: str | None = None
    ) -> ShareGroupHeartbeatRequest:
        names = [self.topic] if epoch == 0 and topics is None else topics
        return ShareGroupHeartbeatRequest(
            group_id=self.group if group is None else group,
            member_id=member,
            member_epoch=epoch,
            subscribed_topic_names=None if names is None else list(names),
        )

    def fetch_request(
        self, epoch: int, *acks: Ack, member: str = "one", partitions: Sequence[int] = (0,), **given: Any
    ) -> ShareFetchRequest:
        request = ShareFetchRequest
        batches = [
            request.AcknowledgementBatch(first_offset=first, last_offset=last, acknowledge_types=list(types))
            for first, last, types in acks
        ]
        asked = [
            request.FetchPartition(partition_index=index, acknowledgement_batches=batches if index == 0 else [])
            for index in partitions
        ]
        topics = [request.FetchTopic(topic_id=self.topic_id, partitions=asked)]
        limits = {
            "max_wait_ms": 0,
            "min_bytes": 1,
            "max_bytes": 1 << 20,
            "max_records": 500,
            "batch_size": 500,
            **given,
        }
        return request(
            group_id=self.group,
            member_id=member,
            share_session_epoch=epoch,
            topics=topics if epoch == 0 or acks else [],
            **limits,
        )

    def share_fetch(self, question: str, epoch: int, *acks: Ack, version: int = 2, **given: Any) -> Any:
        return self.ask(question, self.fetch_request(epoch, *acks, **given), version)

    def share_fetch_first(self, question: str, *, member: str = "one", **given: Any) -> Any:
        """Open a session and fetch, again until the broker has loaded the share partition."""
        deadline = time.monotonic() + _WAIT_S
        while True:
            self.client.send(self.fetch_request(0, member=member, **{"max_wait_ms": 500, **given}), 2)
            answer: Any = self.client.receive(ShareFetchRequest.API_KEY, 2)
            parts = [partition for topic in answer.responses for partition in topic.partitions]
            if any(partition.acquired_records for partition in parts) or time.monotonic() > deadline:
                self.note(question, answer)
                return answer

    def acknowledge(
        self, question: str, epoch: int, *acks: Ack, member: str = "one", version: int = 2, renew: bool = False
    ) -> Any:
        request = ShareAcknowledgeRequest
        batches = [
            request.AcknowledgementBatch(first_offset=first, last_offset=last, acknowledge_types=list(types))
            for first, last, types in acks
        ]
        partition = request.AcknowledgePartition(partition_index=0, acknowledgement_batches=batches)
        topics = [request.AcknowledgeTopic(topic_id=self.topic_id, partitions=[partition])] if acks else []
        message = request(
            group_id=self.group, member_id=member, share_session_epoch=epoch, is_renew_ack=renew, topics=topics
        )
        return self.ask(question, message, version)

    # --- rounds

    def heartbeats(self) -> None:
        self.joined()
        self.ask("a strange member", self.share_beat(1, "nobody"), 1)
        self.ask("no such group", self.share_beat(1, group="no-such-group"), 1)
        self.ask("no member id", self.share_beat(1, ""), 1)
        self.ask("no topics", self.share_beat(0, topics=[]), 1)
        self.ask("an epoch below -1", self.share_beat(-2), 1)
        self.ask("an epoch too high", self.share_beat(99), 1)
        joined = self.ask("joins again", self.share_beat(0), 1)
        self.ask("repeats", self.share_beat(joined.member_epoch), 1)
        self.ask("repeats its topics", self.share_beat(joined.member_epoch, topics=[self.topic]), 1)
        self.ask("describe", ShareGroupDescribeRequest(group_ids=[self.group, "no-such-group"]), 1)
        self.ask("list", ListGroupsRequest(types_filter=["share"], states_filter=["Stable"]), 5)
        commit = OffsetCommitRequest(group_id=self.group, generation_id_or_member_epoch=-1, member_id="one")
        commit.topics = [
            OffsetCommitRequest.OffsetCommitRequestTopic(
                topic_id=self.topic_id,
                name=self.topic,
                partitions=[OffsetCommitRequest.OffsetCommitRequestPartition(committed_offset=1)],
            )
        ]
        self.ask("commits offsets", commit, 9)
        self.ask("leaves", self.share_beat(-1), 1)
        self.ask("leaves again", self.share_beat(-1), 1)
        self.ask("describe", ShareGroupDescribeRequest(group_ids=[self.group]), 1)

    def sessions(self) -> None:
        self.joined()
        self.produce("a", "b", "c")
        self.share_fetch("no session", 1)
        self.share_fetch("no session to close", -1)
        self.share_fetch("acknowledges first", 0, (0, 0, [ACCEPT]))
        self.acknowledge("acknowledges first", 0, (0, 0, [ACCEPT]))
        self.acknowledge("no session", 1, (0, 0, [ACCEPT]))
        self.share_fetch("no member", 0, member="")
        self.share_fetch_first("opens")
        self.share_fetch("wrong epoch", 7)
        self.acknowledge("wrong epoch", 7, (0, 0, [ACCEPT]))
        self.share_fetch("nothing more", 1)
        self.share_fetch("adds a partition and renews", 2, (0, 0, [RENEW]), partitions=(0, 1), max_wait_ms=500)
        self.acknowledge("of a partition", 3, (0, 0, [ACCEPT]))
        self.share_fetch("closes", -1)
        self.share_fetch("is closed", 4)

    def deliveries(self) -> None:
        self.joined()
        self.produce(*"abcdefghij")
        self.share_fetch_first("all ten")
        self.acknowledge("accepts, releases and rejects", 1, (0, 3, [ACCEPT]), (4, 6, [RELEASE, REJECT, ACCEPT]))
        self.share_fetch("the released one", 2, max_wait_ms=_AVAILABLE_MS)
        self.acknowledge("twice", 3, (0, 0, [ACCEPT]))
        self.acknowledge("one that is accepted", 4, (6, 6, [ACCEPT]))
        self.acknowledge("of the future", 5, (10, 12, [ACCEPT]))
        self.acknowledge("partly of the future", 6, (9, 12, [ACCEPT]))
        self.acknowledge("no types", 7, (7, 8, []))
        self.acknowledge("too many types", 8, (7, 8, [ACCEPT] * 3))
        self.acknowledge("an unknown type", 9, (7, 8, [9]))
        self.acknowledge("backwards", 10, (8, 7, [ACCEPT]))
        self.acknowledge("overlapping", 11, (7, 8, [ACCEPT]), (7, 9, [ACCEPT]))
        self.acknowledge("nothing", 12)
        self.acknowledge("a gap", 13, (7, 8, [ACCEPT, GAP]))
        self.acknowledge("all or none", 14, (4, 9, [ACCEPT]))
        self.acknowledge("version 1", 15, (9, 9, [RELEASE]), version=1)
        self.share_fetch("again", 16, version=1, max_wait_ms=_AVAILABLE_MS)
        self.acknowledge("closes and accepts", -1, (9, 9, [ACCEPT]))
        self.share_fetch_first("the rest")

    def members(self) -> None:
        self.joined()
        self.joined("two")
        self.produce(*"abcd")
        self.produce(*"ef")
        self.share_fetch_first("the first takes all")
        self.share_fetch("nothing for the second", 0, member="two")
        self.acknowledge("not its own", 1, (0, 1, [ACCEPT]), member="two")
        self.acknowledge("some back", 1, (1, 2, [RELEASE]))
        self.share_fetch("for the second", 2, member="two", max_wait_ms=_AVAILABLE_MS)
        self.acknowledge("not its own any more", 2, (0, 3, [ACCEPT]))
        self.share_fetch("closes", -1)
        self.share_fetch("what it had", 3, member="two", max_wait_ms=_AVAILABLE_MS)
        self.acknowledge("closes", -1, (0, 5, [ACCEPT]), member="two")

    def limits(self) -> None:
        self.joined()
        self.produce(*"abcd")
        self.produce(*"efgh")
        self.share_fetch_first("whole batches", max_records=3)
        self.share_fetch("the other", 1, max_records=1, max_wait_ms=_AVAILABLE_MS)
        # Released records are available once the broker has written that: only a fetch that waits is sure to get them.
        self.share_fetch(
            "releases", 2, (0, 7, [RELEASE]), max_records=2, share_acquire_mode=1, max_wait_ms=_AVAILABLE_MS
        )
        self.share_fetch("strictly three", 3, max_records=3, share_acquire_mode=1, max_wait_ms=_AVAILABLE_MS)
        self.share_fetch("the rest", 4, max_wait_ms=_AVAILABLE_MS)
        self.share_fetch("no records", 5, max_records=0)
        self.share_fetch("no bytes", 6, max_bytes=0)

    def renewals(self) -> None:
        self.joined()
        self.produce(*"abc")
        self.share_fetch_first("all")
        self.share_fetch("renews in a fetch", 1, (0, 1, [RENEW]), is_renew_ack=True)
        none = {"max_wait_ms": 0, "min_bytes": 0, "max_bytes": 0, "max_records": 0}
        self.share_fetch("renews", 1, (0, 1, [RENEW]), is_renew_ack=True, **none)
        self.acknowledge("renews", 2, (0, 1, [RENEW]), renew=True)
        self.acknowledge("renews without saying so", 3, (0, 1, [RENEW]))
        self.acknowledge("renews and accepts", 4, (0, 2, [RENEW, ACCEPT, RENEW]), renew=True)
        self.acknowledge("renews what is accepted", 5, (1, 1, [RENEW]), renew=True)
        self.configure(**{"share.renew.acknowledge.enable": "false"})
        self.acknowledge("accepts the others", 6, (0, 0, [ACCEPT]), (2, 2, [ACCEPT]))

    def poison(self) -> None:
        """A record is released until it was delivered as often as allowed."""
        self.joined()
        self.produce(*"abcdefgh")
        self.share_fetch_first("first delivery")
        acks: list[Ack] = [(0, 7, [RELEASE])]
        epoch = 1
        while acks:
            self.acknowledge(f"releases, epoch {epoch}", epoch, *acks)
            answer = self.share_fetch(f"fetches, epoch {epoch + 1}", epoch + 1, max_wait_ms=_AVAILABLE_MS)
            epoch += 2
            acks = [
                (acquired.first_offset, acquired.last_offset, [RELEASE])
                for topic in answer.responses
                for partition in topic.partitions
                for acquired in partition.acquired_records
            ]
        self.share_fetch("closes", -1)

    def administration(self) -> None:
        self.describe_share_offsets("no such group", group="no-such-group")
        self.joined()
        self.produce(*"abcdef")
        self.describe_share_offsets("nothing was read")
        self.share_fetch_first("all")
        self.acknowledge("accepts some", 1, (0, 2, [ACCEPT]), (4, 4, [ACCEPT]))
        self.describe_share_offsets("some")
        self.describe_share_offsets("some of all topics", [])
        self.describe_share_offsets("strange partitions", [(self.topic, [1]), ("no-such-topic", [0])])
        self.alter_share_offsets("has members", [(self.topic, 0, 1)])
        self.delete_share_offsets("has members", self.topic)
        self.ask("has members", DeleteGroupsRequest(groups_names=[self.group]), 2)
        self.acknowledge("closes", -1)
        self.ask("leaves", self.share_beat(-1), 1)
        self.alter_share_offsets("back to 1", [(self.topic, 0, 1), (self.topic, 9, 1), ("no-such-topic", 0, 1)])
        self.describe_share_offsets("back")
        self.delete_share_offsets("deletes", self.topic, "no-such-topic")
        self.describe_share_offsets("deleted")
        self.ask("deletes the group", DeleteGroupsRequest(groups_names=[self.group]), 2)
        self.describe_share_offsets("is gone")
        self.delete_share_offsets("is gone", self.topic)

    def describe_share_offsets(
        self, question: str, topics: Sequence[tuple[str, list[int]]] | None = None, group: str | None = None
    ) -> None:
        request = DescribeShareGroupOffsetsRequest
        asked = None
        if topics is None:
            topics = [(self.topic, [0])]
        if topics:
            asked = [
                request.DescribeShareGroupOffsetsRequestTopic(topic_name=name, partitions=numbers)
                for name, numbers in topics
            ]
        one = request.DescribeShareGroupOffsetsRequestGroup(group_id=group or self.group, topics=asked)
        self.ask(f"describes offsets: {question}", request(groups=[one]), 1)

    def alter_share_offsets(self, question: str, offsets: Sequence[tuple[str, int, int]]) -> None:
        request = AlterShareGroupOffsetsRequest
        topics: dict[str, list[AlterShareGroupOffsetsRequest.AlterShareGroupOffsetsRequestPartition]] = {}
        for name, number, offset in offsets:
            partition = request.AlterShareGroupOffsetsRequestPartition(partition_index=number, start_offset=offset)
            topics.setdefault(name, []).append(partition)
        named = [
            request.AlterShareGroupOffsetsRequestTopic(topic_name=name, partitions=asked)
            for name, asked in topics.items()
        ]
        self.ask(f"alters offsets: {question}", request(group_id=self.group, topics=named), 0)

    def delete_share_offsets(self, question: str, *names: str) -> None:
        request = DeleteShareGroupOffsetsRequest
        topics = [request.DeleteShareGroupOffsetsRequestTopic(topic_name=name) for name in names]
        self.ask(f"deletes offsets: {question}", request(group_id=self.group, topics=topics), 0)

    def deletions(self) -> None:
        self.joined()
        self.produce(*"abcd")
        self.produce(*"efgh")
        self.share_fetch_first("all")
        self.share_fetch("releases some", 1, (0, 0, [ACCEPT]), (1, 5, [RELEASE]), max_records=0)
        self.delete_records(3)
        self.share_fetch("after the deletion", 2)
        self.share_fetch("what is left", 3, max_wait_ms=_AVAILABLE_MS)
        self.acknowledge("accepts", 4, (3, 7, [ACCEPT]))
        self.produce("i")
        self.share_fetch("goes on", 5, max_wait_ms=_AVAILABLE_MS)


ROUNDS = (
    "heartbeats",
    "sessions",
    "deliveries",
    "members",
    "limits",
    "renewals",
    "poison",
    "deletions",
    "administration",
)


def converse(kafka: AnyKafka, name: str) -> list[str]:
    """Run one conversation and return its requests and responses."""
    conversation = ShareConversation(kafka)
    try:
        getattr(conversation, name)()
    finally:
        conversation.close()
    return conversation.said


def main() -> None:
    from tests.kafka.cluster import KafkaCluster

    with KafkaCluster(1, {"group.share.assignment.interval.ms": 0}) as kafka:
        answers = {name: converse(kafka, name) for name in ROUNDS}
    ANSWERS.write_text(json.dumps(answers, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
