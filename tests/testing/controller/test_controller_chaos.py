"""Brokers die, stop, hang and lose contact while topics are created, extended, moved and deleted.

All recovers in the end.
"""

from __future__ import annotations

from hypothesis import settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from pykclient.protocol.message import Request
from pykclient.protocol.messages.alter_partition_reassignments import AlterPartitionReassignmentsRequest
from pykclient.protocol.messages.create_partitions import CreatePartitionsRequest
from pykclient.protocol.messages.create_topics import CreateTopicsRequest
from pykclient.protocol.messages.delete_topics import DeleteTopicsRequest
from pykclient.protocol.messages.elect_leaders import ElectLeadersRequest
from pykclient.testing.coordination import znodes
from pykclient.types import TopicPartition
from tests.testing.controller.harness import A_WHILE_MS, ClusterHarness

BROKERS = (1, 2, 3, 4)
TOPICS = ("a", "b", "c")

brokers = st.sampled_from(BROKERS)
topics = st.sampled_from(TOPICS)


class ControllerMachine(RuleBasedStateMachine):
    """A random sequence of faults and topic changes in which no event of the controller may fail.

    An illegal transition of a state machine would fail.
    """

    @initialize(seed=st.integers(0, 1000))
    def start(self, seed: int) -> None:
        self.harness = ClusterHarness(len(BROKERS), seed=seed)
        self.cluster = self.harness.cluster

    def alive(self, id: int) -> bool:
        return self.cluster.brokers[id].alive

    # --- brokers -----------------------------------------------------------------------------------------------------

    @rule(id=brokers)
    def kill(self, id: int) -> None:
        if self.alive(id):
            self.cluster.kill_broker(id)

    @rule(id=brokers)
    def stop(self, id: int) -> None:
        broker = self.cluster.brokers[id]
        if self.alive(id) and not broker.paused and broker.state == "RUNNING":
            self.cluster.stop_broker(id)

    @rule(id=brokers)
    def start_again(self, id: int) -> None:
        if not self.alive(id):
            self.cluster.start_broker(id)

    @rule(id=brokers)
    def pause(self, id: int) -> None:
        if self.alive(id):
            self.cluster.pause_broker(id)

    @rule(id=brokers)
    def resume(self, id: int) -> None:
        if self.alive(id):
            self.cluster.resume_broker(id)

    @rule(id=brokers)
    def expire(self, id: int) -> None:
        if self.alive(id):
            self.cluster.brokers[id].coordination.expire()

    @rule(id=brokers, other=st.sampled_from(["coordination", "broker-1", "broker-2", "broker-3"]))
    def cut(self, id: int, other: str) -> None:
        if other != f"broker-{id}":
            self.cluster.faults.links.set(f"broker-{id}", other, cut=True)

    @rule()
    def heal(self) -> None:
        self.cluster.faults.links.heal()

    @rule()
    def controller_resigns(self) -> None:
        active = self.cluster.active_controller()
        if active is not None:
            active.controller.resign()

    # --- topics ------------------------------------------------------------------------------------------------------

    def ask(self, message: Request) -> None:
        active = self.cluster.active_controller()
        if active is not None:
            self.harness.send(message, active.id)

    @rule(name=topics, partitions=st.integers(1, 3), replicas=st.integers(1, 3))
    def create_topic(self, name: str, partitions: int, replicas: int) -> None:
        topic = CreateTopicsRequest.CreatableTopic(name=name, num_partitions=partitions, replication_factor=replicas)
        self.ask(CreateTopicsRequest(topics=[topic]))

    @rule(name=topics)
    def delete_topic(self, name: str) -> None:
        self.ask(DeleteTopicsRequest(topics=[DeleteTopicsRequest.DeleteTopicState(name=name)], timeout_ms=1000))

    @rule(name=topics, count=st.integers(2, 5))
    def create_partitions(self, name: str, count: int) -> None:
        topic = CreatePartitionsRequest.CreatePartitionsTopic(name=name, count=count, assignments=None)
        self.ask(CreatePartitionsRequest(topics=[topic], timeout_ms=1000))

    @rule(name=topics, wanted=st.one_of(st.none(), st.permutations(BROKERS)), count=st.integers(1, 3))
    def reassign(self, name: str, wanted: list[int] | None, count: int) -> None:
        partition = AlterPartitionReassignmentsRequest.ReassignablePartition(
            partition_index=0, replicas=None if wanted is None else wanted[:count]
        )
        topic = AlterPartitionReassignmentsRequest.ReassignableTopic(name=name, partitions=[partition])
        self.ask(AlterPartitionReassignmentsRequest(topics=[topic]))

    @rule(election_type=st.sampled_from([0, 1]))
    def elect_leaders(self, election_type: int) -> None:
        self.ask(ElectLeadersRequest(election_type=election_type, topic_partitions=None))

    @rule(name=topics, id=brokers)
    def move_leader(self, name: str, id: int) -> None:
        active = self.cluster.active_controller()
        topic_partition = TopicPartition(name, 0)
        if active is not None and topic_partition in active.controller.context.leadership:
            active.controller.elector.move_leader(topic_partition, id)

    # --- time --------------------------------------------------------------------------------------------------------

    @rule(duration_ms=st.sampled_from([0, 1, 50, 500, 1000]))
    def let_time_pass(self, duration_ms: int) -> None:
        self.harness.run_for(duration_ms)

    def teardown(self) -> None:
        if not hasattr(self, "harness"):
            return
        self.cluster.faults.links.heal()
        for id in BROKERS:
            if self.alive(id):
                self.cluster.resume_broker(id)
        self.harness.run_for(60_000)
        for id in BROKERS:
            if not self.alive(id):
                self.cluster.start_broker(id)
        self.harness.run_until(self.cluster.is_ready, "the cluster is ready again")
        self.harness.run_for(60_000 + A_WHILE_MS)
        self.judge()

    def judge(self) -> None:
        """Check that all brokers agree with the coordination service, and every partition has a leader."""
        controller = self.harness.controller
        assert controller.channel_manager.idle
        assert not controller.context.topics_to_be_deleted
        assert not self.cluster.coordination.get_children(znodes.DELETE_TOPICS)
        names = self.cluster.coordination.get_children(znodes.BROKER_TOPICS)
        assert sorted(controller.context.all_topics) == names
        assert len([broker for broker in self.cluster.alive_brokers() if broker.controller.is_active]) == 1
        for name in names:
            stored, _ = self.cluster.coordination.get_data(znodes.topic_path(name))
            assert stored == controller.context.topic_assignment(name)
            for index, assignment in stored.partitions.items():
                self.judge_partition(TopicPartition(name, index), assignment)
        for broker in self.cluster.alive_brokers():
            assert sorted(broker.metadata_cache.all_topics()) == names
            assert {name: broker.metadata_cache.topic_id(name) for name in names} == dict(controller.context.topic_ids)

    def judge_partition(self, topic_partition: TopicPartition, assignment: znodes.ReplicaAssignment) -> None:
        service = self.cluster.coordination
        stored, stat = service.get_data(znodes.topic_partition_state_path(topic_partition))
        state = stored.leader_and_isr
        assert state.partition_epoch == stat.version
        assert self.harness.controller.context.leadership[topic_partition].leader_and_isr == state
        assert not assignment.is_being_reassigned, f"{topic_partition} still moves: {assignment}, {state}"
        assert state.leader in state.isr, f"{topic_partition}: {state}"
        assert sorted(state.isr) == sorted(assignment.replicas), f"{topic_partition}: {state}, {assignment}"
        for broker in self.cluster.alive_brokers():
            info = broker.metadata_cache.partition_info(topic_partition)
            assert info is not None
            assert (info.leader, info.leader_epoch, tuple(info.replicas)) == (
                state.leader,
                state.leader_epoch,
                assignment.replicas,
            )
            partition = broker.replica_manager.partition(topic_partition)
            assert (partition is not None) == (broker.id in assignment.replicas), f"{topic_partition} on {broker.id}"
            if partition is not None:
                assert partition.leader_epoch == state.leader_epoch
                assert partition.is_leader == (broker.id == state.leader)


TestControllerMachine = ControllerMachine.TestCase
TestControllerMachine.settings = settings(max_examples=30, stateful_step_count=25, deadline=None)
