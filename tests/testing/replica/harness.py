"""Brokers with everything that replication needs, on virtual time; the test is their controller."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any, TypeVar, cast
from uuid import UUID

from pykclient.network.client_request import ClientResponse, RequestBuilder
from pykclient.protocol.message import Request, Response
from pykclient.protocol.messages.alter_partition import AlterPartitionRequest, AlterPartitionResponse
from pykclient.protocol.messages.fetch import FetchRequest, FetchResponse
from pykclient.protocol.messages.leader_and_isr import LeaderAndIsrRequest, LeaderAndIsrResponse
from pykclient.protocol.messages.produce import ProduceRequest, ProduceResponse
from pykclient.protocol.messages.stop_replica import StopReplicaRequest, StopReplicaResponse
from pykclient.protocol.messages.update_metadata import UpdateMetadataRequest
from pykclient.record import MemoryRecords, MemoryRecordsBuilder, Record
from pykclient.testing.broker import Broker
from pykclient.testing.cluster import Cluster
from pykclient.testing.config import ClusterConfig
from pykclient.testing.event_loop import EventLoop
from pykclient.testing.log.unified_log import UnifiedLog
from pykclient.testing.replica.partition import Partition
from pykclient.testing.server.kafka_apis import LocalRequest
from pykclient.types import TopicPartition
from tests.support.mock_clock import MockClock

TP = TopicPartition("topic", 0)
TOPIC_ID = UUID(int=7)

R = TypeVar("R", bound=Response)


class Reply:
    """The response to a request, once there is one. ``closed``: the broker closed the connection instead."""

    def __init__(self) -> None:
        self.answered = False
        self.response: Response | None = None

    def __call__(self, response: Response | None) -> None:
        assert not self.answered, "a request was answered twice"
        self.answered = True
        self.response = response

    def produced(self, index: int = 0) -> ProduceResponse.PartitionProduceResponse:
        """Return one partition of a produce response."""
        assert isinstance(self.response, ProduceResponse), self.response
        return next(
            answer for topic in self.response.responses for answer in topic.partition_responses if answer.index == index
        )

    @property
    def fetched(self) -> FetchResponse:
        assert isinstance(self.response, FetchResponse), self.response
        return self.response

    def data(self, index: int = 0) -> FetchResponse.PartitionData:
        """Return one partition of a fetch response."""
        return next(
            data for topic in self.fetched.responses for data in topic.partitions if data.partition_index == index
        )


class PartitionRegistration:
    """The controller's state of a partition."""

    def __init__(self, replicas: Sequence[int]) -> None:
        self.replicas = list(replicas)
        self.isr = list(replicas)
        self.leader = replicas[0]
        self.leader_epoch = 0
        self.partition_epoch = 0


class ReplicaCluster:
    """Brokers whose replicas are led as the test says. Time advances only in ``run``."""

    def __init__(
        self, brokers: int = 3, *, racks: dict[int, str] | None = None, release: str | None = None, **settings: Any
    ) -> None:
        self.clock = MockClock()
        self.loop = EventLoop(self.clock)
        self.cluster = Cluster(
            ClusterConfig(brokers, racks=racks, release=release, config=settings), self.loop, random.Random(1)
        )
        self.registrations: dict[TopicPartition, PartitionRegistration] = {}
        self.topic_ids: dict[str, UUID] = {"topic": TOPIC_ID}
        self.controller_epoch = 1
        self.alter_partition_requests: list[AlterPartitionRequest] = []
        #: The error with which the controller refuses AlterPartition; None: no response.
        self.alter_partition_error: int | None = 0
        for id in self.cluster.nodes:
            self.start(id)

    # --- brokers -----------------------------------------------------------------------------------------------------

    def start(self, id: int) -> Broker:
        cluster = self.cluster
        broker = Broker(cluster, cluster.nodes[id], cluster.disks[id], cluster._new_apis)
        cluster.brokers[id] = broker
        broker.controller = cast(Any, SimpleNamespace(startup=lambda: None, shutdown=lambda: None, is_active=False))
        broker.replica_manager.coordinators = {"__consumer_offsets": _Coordinator()}
        channel, to_controller = _Channel(self, broker), cast(Any, broker.node_to_controller)
        to_controller.startup, to_controller.send_request = channel.startup, channel.send_request
        broker.startup()
        self.run()
        return broker

    def broker(self, id: int) -> Broker:
        return self.cluster.brokers[id]

    def kill(self, id: int) -> None:
        self.cluster.kill_broker(id)

    def coordinator_events(self, id: int) -> list[tuple[str, int, int]]:
        return cast(_Coordinator, self.broker(id).replica_manager.coordinators["__consumer_offsets"]).events

    def partition(self, id: int, tp: TopicPartition = TP) -> Partition:
        partition = self.broker(id).replica_manager.partition(tp)
        assert partition is not None
        return partition

    def log(self, id: int, tp: TopicPartition = TP) -> UnifiedLog:
        return self.partition(id, tp).local_log_or_raise()

    def values(self, id: int, tp: TopicPartition = TP) -> list[bytes | None]:
        """Return all values in a broker's log, including uncommitted ones."""
        log = self.log(id, tp)
        return [record.value for batch in log.batches(log.log_start_offset, log.log_end_offset) for record in batch]

    # --- time --------------------------------------------------------------------------------------------------------

    def settle(self) -> None:
        """Run all events that are due now."""
        while self.loop.run_due() == 0:
            pass
        if self.loop.failure is not None:
            raise self.loop.failure

    def run(self, duration_ms: int = 0) -> None:
        """Advance the time, event by event."""
        end_ms = self.clock.now_ms() + duration_ms
        self.settle()
        while (step_ms := self.loop.next_due_ms()) <= end_ms - self.clock.now_ms():
            self.clock.advance(step_ms)
            self.settle()
        self.clock.advance(end_ms - self.clock.now_ms())

    def run_until(self, condition: Callable[[], object], limit_ms: int = 60_000) -> None:
        """Advance the time until the condition holds."""
        end_ms = self.clock.now_ms() + limit_ms
        self.settle()
        while not condition():
            step_ms = self.loop.next_due_ms()
            assert self.clock.now_ms() + step_ms <= end_ms, f"not within {limit_ms} ms"
            self.clock.advance(step_ms)
            self.settle()

    # --- the controller ----------------------------------------------------------------------------------------------

    def create(self, replicas: Sequence[int] = (1, 2, 3), partitions: int = 1, topic: str = "topic") -> None:
        """Create a topic; the first replica leads."""
        self.topic_ids.setdefault(topic, UUID(int=100 + len(self.topic_ids)))
        for index in range(partitions):
            self.registrations[TopicPartition(topic, index)] = PartitionRegistration(replicas)
        self.send_leader_and_isr([TopicPartition(topic, index) for index in range(partitions)])
        self.run()

    def elect(
        self,
        leader: int,
        isr: Sequence[int] | None = None,
        tp: TopicPartition = TP,
        to: Sequence[int] | None = None,
    ) -> None:
        """Make a broker leader in a new epoch, and tell the brokers ``to``."""
        registration = self.registrations[tp]
        registration.leader = leader
        registration.leader_epoch += 1
        registration.partition_epoch += 1
        if isr is not None:
            registration.isr = list(isr)
        self.send_leader_and_isr([tp], to)

    def send_leader_and_isr(self, partitions: Sequence[TopicPartition], to: Sequence[int] | None = None) -> None:
        self.update_metadata()
        for id, broker in self.cluster.brokers.items():
            mine = [tp for tp in partitions if id in self.registrations[tp].replicas]
            if mine and broker.alive and (to is None or id in to):
                response = self.leader_and_isr(id, mine)
                codes = [error.error_code for topic in response.topics for error in topic.partition_errors]
                assert not any(codes), codes

    def leader_and_isr(self, id: int, partitions: Sequence[TopicPartition]) -> LeaderAndIsrResponse:
        topics: dict[str, LeaderAndIsrRequest.LeaderAndIsrTopicState] = {}
        for topic, index in partitions:
            known = self.registrations[TopicPartition(topic, index)]
            topics.setdefault(
                topic, LeaderAndIsrRequest.LeaderAndIsrTopicState(topic_name=topic, topic_id=self.topic_ids[topic])
            ).partition_states.append(
                LeaderAndIsrRequest.LeaderAndIsrPartitionState(
                    partition_index=index,
                    controller_epoch=self.controller_epoch,
                    leader=known.leader,
                    leader_epoch=known.leader_epoch,
                    isr=known.isr,
                    partition_epoch=known.partition_epoch,
                    replicas=known.replicas,
                )
            )
        nodes = self.cluster.nodes.values()
        request = LeaderAndIsrRequest(
            controller_id=1,
            controller_epoch=self.controller_epoch,
            broker_epoch=self.broker(id).epoch,
            topic_states=topics.values(),
            live_leaders=[
                LeaderAndIsrRequest.LeaderAndIsrLiveLeader(broker_id=node.id, host_name=node.host, port=node.port)
                for node in nodes
            ],
        )
        return self.broker(id).replica_manager.state_changes.become_leader_or_follower(request)

    def stop_replica(
        self, id: int, tp: TopicPartition = TP, *, leader_epoch: int = -1, delete: bool = True
    ) -> StopReplicaResponse:
        state = StopReplicaRequest.StopReplicaPartitionState(
            partition_index=tp.partition, leader_epoch=leader_epoch, delete_partition=delete
        )
        return self.broker(id).replica_manager.state_changes.stop_replicas(
            StopReplicaRequest(
                controller_epoch=self.controller_epoch,
                broker_epoch=self.broker(id).epoch,
                topic_states=[StopReplicaRequest.StopReplicaTopicState(topic_name=tp.topic, partition_states=[state])],
            )
        )

    def update_metadata(self, to: Sequence[int] | None = None) -> None:
        topics: dict[str, UpdateMetadataRequest.UpdateMetadataTopicState] = {}
        for (topic, index), known in self.registrations.items():
            topics.setdefault(
                topic, UpdateMetadataRequest.UpdateMetadataTopicState(topic_name=topic, topic_id=self.topic_ids[topic])
            ).partition_states.append(
                UpdateMetadataRequest.UpdateMetadataPartitionState(
                    partition_index=index,
                    controller_epoch=self.controller_epoch,
                    leader=known.leader,
                    leader_epoch=known.leader_epoch,
                    isr=known.isr,
                    zk_version=known.partition_epoch,
                    replicas=known.replicas,
                )
            )
        brokers = [
            UpdateMetadataRequest.UpdateMetadataBroker(
                id=id,
                endpoints=[
                    UpdateMetadataRequest.UpdateMetadataEndpoint(
                        host=broker.node.host, port=broker.node.port, listener="PLAINTEXT"
                    )
                ],
                rack=broker.node.rack,
            )
            for id, broker in self.cluster.brokers.items()
            if broker.alive
        ]
        for id, broker in self.cluster.brokers.items():
            if broker.alive and (to is None or id in to):
                broker.metadata_cache.update_metadata(
                    UpdateMetadataRequest(
                        controller_id=1,
                        controller_epoch=self.controller_epoch,
                        broker_epoch=broker.epoch,
                        topic_states=topics.values(),
                        live_brokers=brokers,
                    )
                )

    def alter_partition(self, request: AlterPartitionRequest) -> AlterPartitionResponse:
        """Respond as the controller does, or with ``alter_partition_error``."""
        names = {id: name for name, id in self.topic_ids.items()}
        response = AlterPartitionResponse()
        for topic in request.topics:
            answers = AlterPartitionResponse.TopicData(topic_id=topic.topic_id)
            response.topics.append(answers)
            for asked in topic.partitions:
                known = self.registrations[TopicPartition(names[topic.topic_id], asked.partition_index)]
                answer = AlterPartitionResponse.PartitionData(partition_index=asked.partition_index)
                answers.partitions.append(answer)
                isr = [member.broker_id for member in asked.new_isr_with_epochs]
                if self.alter_partition_error:
                    answer.error_code = self.alter_partition_error
                    continue
                if asked.leader_epoch != known.leader_epoch:
                    answer.error_code = 74
                    continue
                if asked.partition_epoch != known.partition_epoch and isr != known.isr:
                    answer.error_code = 95
                    continue
                if isr != known.isr:
                    known.isr = isr
                    known.partition_epoch += 1
                answer.leader_id = known.leader
                answer.leader_epoch = known.leader_epoch
                answer.isr = known.isr
                answer.partition_epoch = known.partition_epoch
        return response

    # --- clients -----------------------------------------------------------------------------------------------------

    def send(self, id: int, message: Request) -> Reply:
        """Send a request to a broker, as a client does."""
        reply = Reply()
        LocalRequest(self.broker(id), message, reply)
        return reply

    def produce(
        self,
        id: int,
        *values: bytes,
        acks: int = -1,
        timeout_ms: int = 30_000,
        tp: TopicPartition = TP,
        topic_id: UUID | None = None,
    ) -> Reply:
        return self.send(
            id, self.produce_request({tp.partition: batch(*values)}, acks, timeout_ms, tp.topic, topic_id=topic_id)
        )

    def produce_request(
        self,
        records: dict[int, Any],
        acks: int = -1,
        timeout_ms: int = 30_000,
        topic: str = "topic",
        *,
        topic_id: UUID | None = None,
    ) -> ProduceRequest:
        return ProduceRequest(
            acks=acks,
            timeout_ms=timeout_ms,
            topic_data=[
                ProduceRequest.TopicProduceData(
                    topic_id=topic_id or self.topic_ids[topic],
                    partition_data=[
                        ProduceRequest.PartitionProduceData(index=index, records=data)
                        for index, data in records.items()
                    ],
                )
            ],
        )

    def fetch(
        self,
        id: int,
        offset: int = 0,
        *,
        max_wait_ms: int = 0,
        min_bytes: int = 1,
        max_bytes: int = 1 << 20,
        partition_max_bytes: int = 1 << 20,
        isolation_level: int = 0,
        partitions: Sequence[int] = (0,),
        rack: str = "",
        leader_epoch: int = -1,
        last_fetched_epoch: int = -1,
        session: tuple[int, int] = (0, -1),
        topic_id: UUID = TOPIC_ID,
    ) -> Reply:
        request = FetchRequest(
            max_wait_ms=max_wait_ms,
            min_bytes=min_bytes,
            max_bytes=max_bytes,
            isolation_level=isolation_level,
            session_id=session[0],
            session_epoch=session[1],
            rack_id=rack,
            topics=[
                FetchRequest.FetchTopic(
                    topic_id=topic_id,
                    partitions=[
                        FetchRequest.FetchPartition(
                            partition=index,
                            fetch_offset=offset,
                            partition_max_bytes=partition_max_bytes,
                            current_leader_epoch=leader_epoch,
                            last_fetched_epoch=last_fetched_epoch,
                        )
                        for index in partitions
                    ],
                )
            ]
            if partitions
            else [],
        )
        return self.send(id, request)


class _Coordinator:
    """Records which broker leads __consumer_offsets."""

    def __init__(self) -> None:
        self.events: list[tuple[str, int, int]] = []

    def startup(self) -> None:
        """Do nothing: there is nothing to start."""

    def on_election(self, partition: int, epoch: int) -> None:
        self.events.append(("elected", partition, epoch))

    def on_resignation(self, partition: int, epoch: int) -> None:
        self.events.append(("resigned", partition, epoch))


class _Channel:
    """The channel from a broker to the controller."""

    def __init__(self, cluster: ReplicaCluster, broker: Broker) -> None:
        self._cluster = cluster
        self._broker = broker

    def startup(self) -> None:
        """Do nothing: there is nothing to open."""

    def send_request(
        self, builder: RequestBuilder, on_complete: Callable[[ClientResponse], None], on_timeout: Callable[[], None]
    ) -> None:
        message = builder.build(builder.latest_allowed_version)
        assert isinstance(message, AlterPartitionRequest)
        self._cluster.alter_partition_requests.append(message)
        if self._cluster.alter_partition_error is None:
            self._broker.call_later(1_000, on_timeout)
            return

        def answer() -> None:
            body = self._cluster.alter_partition(message)
            now_ms = self._cluster.clock.now_ms()
            on_complete(ClientResponse(message.API_KEY, 3, 0, None, "1", now_ms, now_ms, response_body=body))

        self._broker.call_later(1, answer)


def batch(*values: bytes, **state: Any) -> bytes:
    """Return a batch with one record for each value."""
    builder = MemoryRecordsBuilder(**state)
    for value in values:
        builder.append(1_700_000_000_000, None, value)
    return bytes(builder.build())


def records(data: Any) -> list[Record]:
    """Return the records of a partition in a fetch response."""
    pieces = data if isinstance(data, (list, tuple)) else [data]
    return [record for piece in pieces for part in MemoryRecords(piece).batches() for record in part]


def values(data: Any) -> list[bytes | None]:
    return [record.value for record in records(data)]
