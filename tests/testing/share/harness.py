"""A share group on an embedded cluster, on a clock that only the test moves."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from uuid import UUID

from pykclient.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from pykclient.protocol.messages.incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from pykclient.protocol.messages.produce import ProduceRequest, ProduceResponse
from pykclient.protocol.messages.read_share_group_state import ReadShareGroupStateRequest
from pykclient.protocol.messages.share_acknowledge import ShareAcknowledgeRequest, ShareAcknowledgeResponse
from pykclient.protocol.messages.share_fetch import ShareFetchRequest, ShareFetchResponse
from pykclient.protocol.messages.share_group_heartbeat import ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse
from pykclient.record.memory_records_builder import MemoryRecordsBuilder
from pykclient.testing.share.in_flight_records import SharePartitionKey, ShareState
from pykclient.testing.share.share_partition import SharePartition
from tests.testing.controller.harness import Answer, ClusterHarness

TOPIC = "jobs"
GROUP = "workers"
GAP, ACCEPT, RELEASE, REJECT, RENEW = 0, 1, 2, 3, 4
#: First offset, last offset, delivery count.
Acquired = tuple[int, int, int]
#: First offset, last offset, and one type for all or one for each.
Ack = tuple[int, int, Sequence[int]]


class ShareHarness(ClusterHarness):
    """Brokers, a topic of one partition, and a group that reads it from the beginning."""

    def __init__(self, brokers: int = 3, **settings: Any) -> None:
        super().__init__(brokers, **settings)
        self.create_topic(TOPIC, replicas=brokers)
        self.topic_id: UUID = self.broker(self.leader).metadata_cache.topic_id(TOPIC)
        self.configure(**{"share.auto.offset.reset": "earliest"})
        self.epochs: dict[str, int] = {}

        def found() -> bool:
            answer = self.ask(FindCoordinatorRequest(key=GROUP), FindCoordinatorResponse, 1, 3)
            self.group_coordinator = answer.node_id
            return answer.error_code == 0

        self.run_until(found, "the group has a coordinator")
        self.settle()

    # --- places

    @property
    def leader(self) -> int:
        """The broker that leads the partition."""
        return self.state(TOPIC).leader

    @property
    def key(self) -> SharePartitionKey:
        return SharePartitionKey(GROUP, self.topic_id, 0)

    @property
    def share_coordinator(self) -> int:
        """The broker that has the share partition's state."""
        number = self.broker(self.leader).share_coordinator.storage.partition_for(self.key.coordinator_key)
        return self.state("__share_group_state", number).leader

    @property
    def share_partition(self) -> SharePartition:
        return self.broker(self.leader).share_partition_manager._share_partitions[self.key]

    def stored(self) -> ShareState:
        """Return the share partition's state in its share coordinator."""
        found: list[ShareState | None] = []
        coordinator = self.broker(self.share_coordinator).share_coordinator
        asked = ReadShareGroupStateRequest.PartitionData(leader_epoch=-1)
        coordinator.read_state(self.key, asked, lambda error, state: found.append(state))
        self.run_until(lambda: found, "the state was read")
        assert found[0] is not None
        return found[0]

    # --- requests

    def configure(self, **settings: str) -> None:
        request = IncrementalAlterConfigsRequest
        configs = [request.AlterableConfig(name=name, value=value) for name, value in settings.items()]
        resource = request.AlterConfigsResource(resource_type=32, resource_name=GROUP, configs=configs)
        answer = self.ask(request(resources=[resource]), IncrementalAlterConfigsResponse)
        assert not answer.responses[0].error_code, answer
        self.run_for()

    def produce(self, *values: str, producer: tuple[int, int] | None = None, sequence: int = 0) -> None:
        builder = MemoryRecordsBuilder()
        if producer is not None:
            builder.set_producer_state(*producer, sequence, True)
        for value in values:
            builder.append(self.clock.wall_ms(), None, value.encode())
        data = ProduceRequest.PartitionProduceData(index=0, records=builder.build())
        topic = ProduceRequest.TopicProduceData(name=TOPIC, partition_data=[data])
        transactional_id = None if producer is None else "a transaction"
        request = ProduceRequest(transactional_id=transactional_id, acks=-1, timeout_ms=10_000, topic_data=[topic])
        answer = self.ask(request, ProduceResponse, self.leader, 9)
        assert not answer.responses[0].partition_responses[0].error_code, answer

    def beat(self, member: str, epoch: int, broker_id: int | None = None) -> ShareGroupHeartbeatResponse:
        request = ShareGroupHeartbeatRequest(
            group_id=GROUP,
            member_id=member,
            member_epoch=epoch,
            subscribed_topic_names=[TOPIC] if epoch == 0 else None,
        )
        return self.ask(request, ShareGroupHeartbeatResponse, broker_id or self.group_coordinator)

    def join(self, member: str = "one") -> None:
        """Join, and send heartbeats until the member has its assignment."""
        epoch = 0
        assigned: list[object] = []

        def has_assignment() -> bool:
            nonlocal epoch
            answer = self.beat(member, epoch)
            if not answer.error_code:
                epoch = answer.member_epoch
                if answer.assignment is not None:
                    assigned[:] = answer.assignment.topic_partitions
            return bool(assigned)

        self.run_until(has_assignment, f"{member} has an assignment")

    def fetch_request(self, member: str, epoch: int, acks: Sequence[Ack], **given: Any) -> ShareFetchRequest:
        request = ShareFetchRequest
        batches = [
            request.AcknowledgementBatch(first_offset=first, last_offset=last, acknowledge_types=list(types))
            for first, last, types in acks
        ]
        partition = request.FetchPartition(partition_index=0, acknowledgement_batches=batches)
        topics = [request.FetchTopic(topic_id=self.topic_id, partitions=[partition])] if acks or epoch == 0 else []
        limits = {
            "max_wait_ms": 0,
            "min_bytes": 1,
            "max_bytes": 1 << 20,
            "max_records": 500,
            "batch_size": 500,
            **given,
        }
        return request(group_id=GROUP, member_id=member, share_session_epoch=epoch, topics=topics, **limits)

    def send_fetch(self, *acks: Ack, member: str = "one", **given: Any) -> Answer:
        epoch = self.epochs.get(member, 0)
        self.epochs[member] = epoch + 1
        return self.send(self.fetch_request(member, epoch, acks, **given), self.leader)

    def answer(self, sent: Answer) -> ShareFetchResponse:
        self.run_until(lambda: sent.done, "an answer to a share fetch")
        assert isinstance(sent.response, ShareFetchResponse)
        assert sent.response.error_code == 0, sent.response
        return sent.response

    def fetch(self, *acks: Ack, member: str = "one", **given: Any) -> list[Acquired]:
        """Fetch in the member's session, and return what it has acquired."""
        return acquired(self.answer(self.send_fetch(*acks, member=member, **given)))

    def fetch_some(self, member: str = "one", **given: Any) -> list[Acquired]:
        """Open a session, and fetch until there are records: the leader loads the share partition first."""
        self.epochs.pop(member, None)
        found: list[Acquired] = []

        def fetched() -> bool:
            found.extend(self.fetch(member=member, **{"max_wait_ms": 200, **given}))
            return bool(found)

        self.run_until(fetched, "records to deliver")
        return found

    def acknowledge(self, *acks: Ack, member: str = "one", renew: bool = False, close: bool = False) -> int:
        """Acknowledge in the member's session; return the error code of the partition, or of the request."""
        request = ShareAcknowledgeRequest
        batches = [
            request.AcknowledgementBatch(first_offset=first, last_offset=last, acknowledge_types=list(types))
            for first, last, types in acks
        ]
        partition = request.AcknowledgePartition(partition_index=0, acknowledgement_batches=batches)
        topics = [request.AcknowledgeTopic(topic_id=self.topic_id, partitions=[partition])] if acks else []
        epoch = -1 if close else self.epochs[member]
        self.epochs[member] = epoch + 1
        message = request(
            group_id=GROUP, member_id=member, share_session_epoch=epoch, is_renew_ack=renew, topics=topics
        )
        answer = self.ask(message, ShareAcknowledgeResponse, self.leader)
        codes = [part.error_code for topic in answer.responses for part in topic.partitions]
        return answer.error_code or next(iter(codes), 0)


def acquired(response: ShareFetchResponse) -> list[Acquired]:
    return [
        (each.first_offset, each.last_offset, each.delivery_count)
        for topic in response.responses
        for partition in topic.partitions
        for each in partition.acquired_records
    ]
