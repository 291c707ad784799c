"""Topics created, extended, moved and deleted by the admin APIs, with every way in which requests are refused."""

from __future__ import annotations

import random
import uuid
from collections import Counter
from typing import cast

import pytest

from pykclient.errors import InvalidReplicationFactorError
from pykclient.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
)
from pykclient.protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsResponse
from pykclient.protocol.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse
from pykclient.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from pykclient.protocol.messages.elect_leaders import ElectLeadersRequest, ElectLeadersResponse
from pykclient.protocol.messages.leader_and_isr import LeaderAndIsrRequest
from pykclient.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)
from pykclient.protocol.messages.stop_replica import StopReplicaRequest
from pykclient.protocol.messages.update_metadata import UpdateMetadataRequest
from pykclient.protocol.wire import ZERO_UUID
from pykclient.testing.controller.admin_manager import assign_replicas_to_brokers, rack_alternated_broker_list
from pykclient.testing.request_channel import Request
from pykclient.types import Node, TopicPartition
from tests.testing.controller.harness import A_WHILE_MS, ClusterHarness

Topic = CreateTopicsRequest.CreatableTopic
Assignment = CreateTopicsRequest.CreatableReplicaAssignment
Config = CreateTopicsRequest.CreatableTopicConfig

TOPIC_EXISTS, NOT_CONTROLLER, REQUEST_TIMED_OUT, UNKNOWN_TOPIC = 36, 41, 7, 3


@pytest.fixture
def cluster() -> ClusterHarness:
    return ClusterHarness(4)


def _deletes_replicas(request: Request) -> bool:
    body = cast(StopReplicaRequest, request.body)
    return any(state.delete_partition for topic in body.topic_states for state in topic.partition_states)


def automatic(
    name: str = "t", partitions: int = 1, replicas: int = 1, config: tuple[str, str | None] | None = None
) -> Topic:
    configs = [] if config is None else [Config(name=config[0], value=config[1])]
    return Topic(name=name, num_partitions=partitions, replication_factor=replicas, configs=configs)


def manual(
    assignment: dict[int, list[int]], num_partitions: int = -1, replication_factor: int = -1, twice: bool = False
) -> Topic:
    assignments = [Assignment(partition_index=index, broker_ids=ids) for index, ids in assignment.items()]
    return Topic(
        name="t",
        num_partitions=num_partitions,
        replication_factor=replication_factor,
        assignments=assignments * (2 if twice else 1),
    )


def create(
    cluster: ClusterHarness, *topics: Topic, version: int = 7, validate_only: bool = False, timeout_ms: int = 5000
) -> list[CreateTopicsResponse.CreatableTopicResult]:
    request = CreateTopicsRequest(topics=topics, timeout_ms=timeout_ms, validate_only=validate_only)
    return cluster.ask(request, CreateTopicsResponse, version=version).topics


class TestCreate:
    @pytest.mark.parametrize("version", range(2, 8))
    def test_every_version(self, cluster: ClusterHarness, version: int) -> None:
        (result,) = create(cluster, Topic(name="t", num_partitions=2, replication_factor=3), version=version)
        assert (result.name, result.error_code, result.error_message) == ("t", 0, None)
        if version >= 5:
            assert (result.num_partitions, result.replication_factor) == (2, 3)
            assert result.configs is not None
            assert {config.name: config.value for config in result.configs}["min.insync.replicas"] == "1"
        assert result.topic_id == (cluster.controller.context.topic_id("t") if version >= 7 else ZERO_UUID)
        cluster.settle()
        for broker in cluster.cluster.alive_brokers():
            assert broker.metadata_cache.num_partitions("t") == 2
            assert broker.metadata_cache.topic_id("t") == cluster.controller.context.topic_id("t")

    def test_defaults_are_the_brokers(self) -> None:
        cluster = ClusterHarness(4, num_partitions=3)
        (result,) = create(cluster, Topic(name="t", num_partitions=-1, replication_factor=-1))
        assert (result.num_partitions, result.replication_factor) == (3, 3)
        small = ClusterHarness(1)
        (result,) = create(small, Topic(name="t", num_partitions=-1, replication_factor=-1))
        assert (result.num_partitions, result.replication_factor) == (1, 1)

    def test_validate_only_creates_no_topic(self, cluster: ClusterHarness) -> None:
        (result,) = create(cluster, Topic(name="t", num_partitions=2, replication_factor=3), validate_only=True)
        assert (result.error_code, result.num_partitions, result.topic_id) == (0, 2, ZERO_UUID)
        (result,) = create(cluster, Topic(name="t", num_partitions=2, replication_factor=9), validate_only=True)
        assert result.error_code == InvalidReplicationFactorError.code
        assert not cluster.controller.store.topic_exists("t")

    def test_a_request_makes_ten_thousand_partitions_at_most(self, cluster: ClusterHarness) -> None:
        def outcomes(*topics: Topic) -> list[int]:
            return [result.error_code for result in create(cluster, *topics, validate_only=True)]

        cluster.create_topic("old")
        # In all topics of a request, whether they can be created or not.
        assert outcomes(automatic("a", partitions=6_000), automatic("b", partitions=6_000)) == [44, 44]
        assert outcomes(automatic("old", partitions=10_001), automatic("b")) == [44, 44]
        # Of the topics that can be created, a record for each topic and partition.
        assert outcomes(automatic("a", partitions=5_000), automatic("b", partitions=5_000)) == [44, 44]
        assert outcomes(automatic("a", partitions=9_999), automatic("old")) == [0, TOPIC_EXISTS]
        assert create(cluster, automatic("a", partitions=2**31 - 1), automatic("b"))[1].error_code == 44
        assert not {"a", "b"} & {*cluster.controller.store.all_topics()}

    def test_default_partition_count_may_be_too_large(self) -> None:
        cluster = ClusterHarness(1, num_partitions=2**31 - 1)
        (result,) = create(cluster, Topic(name="t", num_partitions=-1, replication_factor=-1))
        assert (result.error_code, result.error_message) == (44, "Excessively large number of partitions per request.")

    def test_manual_assignment_is_used(self, cluster: ClusterHarness) -> None:
        cluster.create_topic("t", assignment=[[3, 1], [4, 2]])
        assert [cluster.state("t", partition).leader for partition in (0, 1)] == [3, 4]

    @pytest.mark.parametrize(
        ("topic", "code", "words"),
        [
            (automatic(""), 17, "the empty string is not allowed"),
            (automatic(".."), 17, "'..' is not allowed"),
            (automatic("x" * 250), 17, "longer than the max allowed length 249"),
            (automatic("a b"), 17, "other than ASCII alphanumerics"),
            (automatic("old.name"), 17, "collides with existing topic: old_name"),
            (automatic("old_name"), TOPIC_EXISTS, "'old_name' already exists."),
            (automatic("__cluster_metadata"), 42, "prohibited"),
            (automatic(partitions=0), 37, "invalid non-positive value"),
            (automatic(partitions=10_001), 44, "Excessively large number of partitions"),
            (automatic("a b", partitions=10_001), 44, "Excessively large number of partitions"),
            (automatic(partitions=2**31 - 1), 44, "Excessively large number of partitions"),
            (automatic(partitions=10_000), 44, "Unable to perform excessively large batch operation"),
            (automatic(partitions=9_999, config=("retention.ms", "5")), 44, "excessively large batch operation"),
            (automatic(replicas=0), 38, "must be larger than 0"),
            (automatic(replicas=5), 38, "only 4 broker(s) are registered"),
            (automatic(config=("no.such", "1")), 40, "Unknown topic config name: no.such"),
            (automatic(config=("retention.ms", "soon")), 40, "retention.ms"),
            (automatic(config=("retention.ms", None)), 40, "Null value not supported"),
            (manual({0: [1]}, num_partitions=1), 42, "numPartitions"),
            (manual({0: [1]}, replication_factor=1), 42, "replication factor"),
            (manual({0: []}), 39, "empty replica list"),
            (manual({0: [1, 1]}), 39, "more than once"),
            (manual({0: [9]}), 39, "broker 9, but no such"),
            (manual({1: [1]}), 39, "consecutive 0-based"),
            (manual({0: [1, 2], 1: [2]}), 39, "not consistent with previous partitions"),
            (manual({0: [1]}, twice=True), 39, "multiple manual partition assignments for partition 0"),
        ],
    )
    def test_invalid_topics_are_not_created(self, cluster: ClusterHarness, topic: Topic, code: int, words: str) -> None:
        cluster.create_topic("old_name")
        (result,) = create(cluster, topic)
        assert result.error_code == code, result
        assert words in (result.error_message or "")
        assert cluster.controller.store.all_topics() == ["old_name"]

    def test_invalid_topic_does_not_stop_valid_ones(self, cluster: ClusterHarness) -> None:
        good = Topic(name="good", num_partitions=1, replication_factor=1)
        twice = Topic(name="twice", num_partitions=1, replication_factor=1)
        results = {result.name: result for result in create(cluster, good, twice, twice)}
        assert results["good"].error_code == 0
        assert (results["twice"].error_code, results["twice"].error_message) == (42, "Duplicate topic name.")

    def test_only_the_controller_creates_topics(self, cluster: ClusterHarness) -> None:
        request = CreateTopicsRequest(topics=[Topic(name="t", num_partitions=1, replication_factor=1)])
        (result,) = cluster.ask(request, CreateTopicsResponse, cluster.others()[0]).topics
        assert result.error_code == NOT_CONTROLLER

    def test_topic_without_leader_in_time_times_out_but_exists(self, cluster: ClusterHarness) -> None:
        cluster.broker(cluster.controller_id).metadata_cache.freeze()
        (result,) = create(cluster, Topic(name="t", num_partitions=1, replication_factor=3), timeout_ms=300)
        assert result.error_code == REQUEST_TIMED_OUT
        cluster.broker(cluster.controller_id).metadata_cache.thaw()
        assert cluster.broker(cluster.controller_id).metadata_cache.contains("t")
        (result,) = create(cluster, Topic(name="u", num_partitions=1, replication_factor=3), timeout_ms=0)
        assert result.error_code == REQUEST_TIMED_OUT
        cluster.settle()
        assert cluster.state("u").leader

    @pytest.mark.parametrize("events", range(0, 40, 4))
    def test_dying_controller_leaves_no_partial_topic(self, events: int) -> None:
        """Either nothing was written, or the next controller continues from what was written."""
        cluster = ClusterHarness(4)
        first = cluster.controller_id
        cluster.send(CreateTopicsRequest(topics=[Topic(name="t", num_partitions=3, replication_factor=3)]), first)
        before = cluster.loop.steps
        while cluster.loop.steps - before < events and cluster.loop.next_due_ms() == 0:
            _one_event(cluster)
        cluster.cluster.kill_broker(first)
        cluster.run_until_controller_not(first)
        cluster.settle()
        cluster.run_for(A_WHILE_MS)
        if not cluster.controller.store.topic_exists("t"):
            assert events < 4
            return
        for partition in range(3):
            state = cluster.state("t", partition)
            assert state.leader not in (first, -1)
            for broker in cluster.cluster.alive_brokers():
                assert cluster.known_leader(broker.id, "t", partition) == state.leader


def _one_event(cluster: ClusterHarness) -> None:
    callback, arguments = cluster.loop._ready.popleft()
    cluster.loop.steps += 1
    callback(*arguments)


class TestPlacement:
    def test_leaders_and_replicas_are_spread_evenly(self) -> None:
        brokers = [Node(id, "h", 1) for id in range(5)]
        assignment = assign_replicas_to_brokers(brokers, 20, 3, random.Random(3))
        assert set(Counter(replicas[0] for replicas in assignment.values()).values()) == {4}
        assert all(len(set(replicas)) == 3 for replicas in assignment.values())
        assert set(Counter(id for replicas in assignment.values() for id in replicas).values()) == {12}

    def test_replica_placement_equals_javas(self) -> None:
        """Replicas are placed as in AdminUtils' own example, from the same start broker."""
        brokers = [Node(id, "h", 1) for id in range(5)]
        assignment = assign_replicas_to_brokers(brokers, 10, 3, random.Random(0), start_index=0)
        assert assignment == {
            0: (0, 1, 2), 1: (1, 2, 3), 2: (2, 3, 4), 3: (3, 4, 0), 4: (4, 0, 1),
            5: (0, 2, 3), 6: (1, 3, 4), 7: (2, 4, 0), 8: (3, 0, 1), 9: (4, 1, 2),
        }  # fmt: skip

    def test_replicas_are_spread_over_racks(self) -> None:
        racks = {0: "rack1", 1: "rack3", 2: "rack3", 3: "rack2", 4: "rack2", 5: "rack1"}
        brokers = [Node(id, "h", 1, rack) for id, rack in racks.items()]
        assert rack_alternated_broker_list(brokers) == [0, 3, 1, 5, 4, 2]
        assignment = assign_replicas_to_brokers(brokers, 7, 3, random.Random(0), start_index=0)
        assert assignment == {
            0: (0, 3, 1), 1: (3, 1, 5), 2: (1, 5, 4), 3: (5, 4, 2), 4: (4, 2, 0), 5: (2, 0, 3), 6: (0, 4, 2),
        }  # fmt: skip
        for replication_factor in (1, 2, 3, 4, 6):
            for replicas in assign_replicas_to_brokers(brokers, 12, replication_factor, random.Random(5)).values():
                assert len(set(replicas)) == replication_factor
                assert len({racks[id] for id in replicas}) == min(3, replication_factor)

    def test_new_topics_are_spread_over_racks(self) -> None:
        cluster = ClusterHarness(4, racks={1: "a", 2: "a", 3: "b", 4: "b"})
        cluster.create_topic("t", 8, 2)
        for partition in range(8):
            assert len({id in (1, 2) for id in cluster.state("t", partition).isr}) == 2


class TestPartitions:
    def add(self, cluster: ClusterHarness, count: int, *assignments: list[int], **options: bool) -> tuple[int, str]:
        topic = CreatePartitionsRequest.CreatePartitionsTopic(
            name="t",
            count=count,
            assignments=[CreatePartitionsRequest.CreatePartitionsAssignment(broker_ids=ids) for ids in assignments]
            or None,
        )
        request = CreatePartitionsRequest(topics=[topic], timeout_ms=5000, **options)
        (result,) = cluster.ask(request, CreatePartitionsResponse).results
        return result.error_code, result.error_message or ""

    def test_partitions_can_be_added(self, cluster: ClusterHarness) -> None:
        cluster.create_topic("t", 2, 2)
        topic_id = cluster.controller.context.topic_id("t")
        assert self.add(cluster, 5, validate_only=True) == (0, "")
        assert self.add(cluster, 4) == (0, "")
        assert self.add(cluster, 5, [4, 3]) == (0, "")
        cluster.settle()
        assert cluster.state("t", 4).leader == 4
        assert all(broker.metadata_cache.num_partitions("t") == 5 for broker in cluster.cluster.alive_brokers())
        assert cluster.controller.context.topic_id("t") == topic_id

    def test_a_request_makes_ten_thousand_partitions_at_most(self, cluster: ClusterHarness) -> None:
        for name in ("a", "b", "c"):
            cluster.create_topic(name)
        counts = {"a": 10_000, "b": 3, "c": 2}
        topics = [CreatePartitionsRequest.CreatePartitionsTopic(name=name, count=n) for name, n in counts.items()]
        request = CreatePartitionsRequest(topics=topics, timeout_ms=5000, validate_only=True)
        results = cluster.ask(request, CreatePartitionsResponse).results
        assert [result.error_code for result in results] == [0, 44, 0]

    def test_invalid_partition_counts_are_refused(self, cluster: ClusterHarness) -> None:
        assert self.add(cluster, 2)[0] == UNKNOWN_TOPIC
        cluster.create_topic("t", 2, 2)
        assert self.add(cluster, 2) == (37, "Topic already has 2 partition(s).")
        assert self.add(cluster, 2**31 - 1) == (44, "Excessively large number of partitions per request.")
        assert self.add(cluster, 1) == (
            37,
            "The topic t currently has 2 partition(s); 1 would not be an increase.",
        )
        assert self.add(cluster, 4, [1, 2]) == (
            39,
            "Attempted to add 2 additional partition(s), but only 1 assignment(s) were specified.",
        )
        assert self.add(cluster, 3, [1, 9])[0] == 39
        assert self.add(cluster, 3, [1])[0] == 39
        assert cluster.broker(1).metadata_cache.num_partitions("t") == 2


class TestDelete:
    def delete(
        self, cluster: ClusterHarness, *states: DeleteTopicsRequest.DeleteTopicState
    ) -> list[tuple[int, str | None]]:
        response = cluster.ask(DeleteTopicsRequest(topics=states, timeout_ms=5000), DeleteTopicsResponse)
        return [(result.error_code, result.error_message) for result in response.responses]

    @pytest.mark.parametrize("version", range(1, 7))
    def test_every_version(self, cluster: ClusterHarness, version: int) -> None:
        cluster.create_topic("t", 3)
        if version >= 6:
            request = DeleteTopicsRequest(topics=[DeleteTopicsRequest.DeleteTopicState(name="t")], timeout_ms=5000)
        else:
            request = DeleteTopicsRequest(topic_names=["t"], timeout_ms=5000)
        (result,) = cluster.ask(request, DeleteTopicsResponse, version=version).responses
        assert (result.name, result.error_code) == ("t", 0)
        cluster.settle()
        for broker in cluster.cluster.alive_brokers():
            assert not broker.metadata_cache.contains("t")
            assert broker.replica_manager.partition(TopicPartition("t", 0)) is None
            assert broker.log_manager.get_log(TopicPartition("t", 0)) is None

    def test_delete_by_id(self, cluster: ClusterHarness) -> None:
        cluster.create_topic("t")
        topic_id = cluster.controller.context.topic_id("t")
        assert self.delete(cluster, DeleteTopicsRequest.DeleteTopicState(topic_id=topic_id)) == [(0, None)]
        assert self.delete(cluster, DeleteTopicsRequest.DeleteTopicState(topic_id=topic_id))[0][0] == 100

    def test_invalid_deletions_are_refused(self, cluster: ClusterHarness) -> None:
        state = DeleteTopicsRequest.DeleteTopicState
        cluster.create_topic("t")
        assert self.delete(cluster, state(name="no"))[0][0] == UNKNOWN_TOPIC
        assert self.delete(cluster, state())[0] == (42, "Neither topic name nor id were specified.")
        both = state(name="t", topic_id=uuid.UUID(int=5))
        assert self.delete(cluster, both)[0] == (42, "You may not specify both topic name and topic id.")
        assert self.delete(cluster, state(name="t"), state(name="t"))[0] == (42, "Duplicate topic name.")
        assert cluster.controller.store.topic_exists("t")
        closed = ClusterHarness(1, delete_topic_enable=False)
        closed.create_topic("t", 1, 1)
        assert self.delete(closed, state(name="t"))[0][0] == 73
        old = closed.ask(DeleteTopicsRequest(topic_names=["t"], timeout_ms=5), DeleteTopicsResponse, version=2)
        assert old.responses[0].error_code == 42

    def test_deleted_name_can_be_reused_at_once(self, cluster: ClusterHarness) -> None:
        cluster.create_topic("t", 3)
        first = cluster.controller.context.topic_id("t")
        assert self.delete(cluster, DeleteTopicsRequest.DeleteTopicState(name="t")) == [(0, None)]
        cluster.create_topic("t", 2)
        assert cluster.controller.context.topic_id("t") != first
        assert all(broker.metadata_cache.num_partitions("t") == 2 for broker in cluster.cluster.alive_brokers())

    def test_late_delete_request_deletes_no_replica_of_the_next_topic(self) -> None:
        cluster = ClusterHarness(2, controller_socket_timeout_ms=200)
        cluster.create_topic("t", assignment=[[2]])
        late = cluster.cluster.faults.hold("StopReplica", times=1, broker=2, party="broker-*", when=_deletes_replicas)
        # The controller gets no response, and sends the request again over another connection.
        assert self.delete(cluster, DeleteTopicsRequest.DeleteTopicState(name="t")) == [(0, None)]
        cluster.create_topic("t", assignment=[[2]])
        assert late.release() == 1
        cluster.run_for()
        assert cluster.cluster.leader(TopicPartition("t", 0)) == 2

    def test_deletion_waits_for_a_stopped_broker(self, cluster: ClusterHarness) -> None:
        cluster.create_topic("t", assignment=[[1, 4]])
        cluster.cluster.kill_broker(4)
        cluster.run_for(A_WHILE_MS)
        assert self.delete(cluster, DeleteTopicsRequest.DeleteTopicState(name="t")) == [(0, None)]
        assert not cluster.broker(2).metadata_cache.contains("t")
        assert cluster.controller.store.topic_exists("t")
        cluster.cluster.start_broker(4)
        cluster.run_until(lambda: not cluster.controller.store.topic_exists("t"), "nothing is left of it")
        assert cluster.broker(4).log_manager.get_log(TopicPartition("t", 0)) is None

    def test_restarting_brokers_do_not_block_deletion(self, cluster: ClusterHarness) -> None:
        cluster.create_topic("t", assignment=[[2, 3, 4]])
        cluster.cluster.kill_broker(3)
        cluster.run_for(A_WHILE_MS)
        first = cluster.controller_id
        self.delete(cluster, DeleteTopicsRequest.DeleteTopicState(name="t"))
        cluster.cluster.kill_broker(first)
        cluster.run_until_controller_not(first)
        restarted = 4 if cluster.controller_id == 2 else 2
        # The new controller notices both at the same time: a broker that is back, and one with another epoch.
        cluster.cluster.kill_broker(restarted)
        cluster.cluster.start_broker(restarted)
        cluster.cluster.start_broker(3)
        cluster.run_until(lambda: not cluster.controller.store.topic_exists("t"), "nothing is left of it")

    def test_deletion_survives_a_controller_change(self, cluster: ClusterHarness) -> None:
        cluster.create_topic("t", assignment=[[2, 4]])
        cluster.cluster.kill_broker(4)
        cluster.run_for(A_WHILE_MS)
        self.delete(cluster, DeleteTopicsRequest.DeleteTopicState(name="t"))
        cluster.cluster.kill_broker(cluster.controller_id)
        cluster.run_until_controller_not(1)
        cluster.cluster.start_broker(4)
        cluster.run_until(lambda: not cluster.controller.store.topic_exists("t"), "nothing is left of it")


class TestMoves:
    """Reassignments and elections requested by an administrator."""

    def reassign(self, cluster: ClusterHarness, replicas: list[int] | None, **options: bool) -> tuple[int, str | None]:
        topic = AlterPartitionReassignmentsRequest.ReassignableTopic(
            name="t",
            partitions=[AlterPartitionReassignmentsRequest.ReassignablePartition(partition_index=0, replicas=replicas)],
        )
        request = AlterPartitionReassignmentsRequest(topics=[topic], **options)
        result = cluster.ask(request, AlterPartitionReassignmentsResponse).responses[0].partitions[0]
        return result.error_code, result.error_message

    def in_progress(self, cluster: ClusterHarness) -> list[tuple[list[int], list[int], list[int]]]:
        request = ListPartitionReassignmentsRequest(topics=None)
        response = cluster.ask(request, ListPartitionReassignmentsResponse)
        return [
            (partition.replicas, partition.adding_replicas, partition.removing_replicas)
            for topic in response.topics
            for partition in topic.partitions
        ]

    def test_partition_moves_with_its_leader(self, cluster: ClusterHarness) -> None:
        cluster.create_topic("t", assignment=[[1, 2]])
        assert self.reassign(cluster, [3, 4]) == (0, None)
        assert self.in_progress(cluster) == [([3, 4, 1, 2], [3, 4], [1, 2])]
        cluster.run_until(lambda: not self.in_progress(cluster), "it has moved")
        cluster.settle()
        assert (cluster.state("t").leader, sorted(cluster.state("t").isr)) == (3, [3, 4])
        assert cluster.controller.context.replicas(TopicPartition("t", 0)) == (3, 4)
        for id in (1, 2):
            assert cluster.broker(id).replica_manager.partition(TopicPartition("t", 0)) is None
            assert cluster.broker(id).log_manager.get_log(TopicPartition("t", 0)) is None
        info = cluster.broker(1).metadata_cache.partition_info(TopicPartition("t", 0))
        assert info is not None
        assert info.replicas == [3, 4]

    def test_reassignment_can_be_cancelled(self, cluster: ClusterHarness) -> None:
        cluster.create_topic("t", assignment=[[1, 2]])
        cluster.cluster.pause_broker(4)
        assert self.reassign(cluster, [1, 4]) == (0, None)
        assert self.reassign(cluster, None) == (0, None)
        assert self.in_progress(cluster) == []
        assert cluster.controller.context.replicas(TopicPartition("t", 0)) == (1, 2)
        assert self.reassign(cluster, None) == (85, None)

    def test_broker_with_remains_of_a_deleted_topic_takes_the_new_one(self, cluster: ClusterHarness) -> None:
        cluster.create_topic("t", assignment=[[1, 4]])
        cluster.cluster.kill_broker(4)
        cluster.run_for(A_WHILE_MS)
        self.reassign(cluster, [1, 3])
        cluster.run_until(lambda: not self.in_progress(cluster), "it has moved")
        TestDelete().delete(cluster, DeleteTopicsRequest.DeleteTopicState(name="t"))
        cluster.create_topic("t", assignment=[[1, 2]])
        cluster.cluster.start_broker(4)
        cluster.run_until(cluster.cluster.is_ready, "broker 4 is back")
        self.reassign(cluster, [1, 4])
        cluster.run_until(lambda: sorted(cluster.state("t").isr) == [1, 4], "it has moved there")
        log = cluster.broker(4).log_manager.get_log(TopicPartition("t", 0))
        assert log is not None
        assert log.topic_id == cluster.controller.context.topic_id("t")

    def test_reassignment_continues_under_another_controller(self, cluster: ClusterHarness) -> None:
        cluster.create_topic("t", assignment=[[2, 3]])
        cluster.cluster.faults.links.set("broker-4", "broker-2", cut=True)
        assert self.reassign(cluster, [2, 4]) == (0, None)
        cluster.run_for(100)
        cluster.cluster.kill_broker(cluster.controller_id)
        cluster.run_until_controller_not(1)
        assert self.in_progress(cluster) == [([2, 4, 3], [4], [3])]
        cluster.cluster.faults.links.heal()
        cluster.run_until(lambda: not self.in_progress(cluster), "it has moved")
        assert sorted(cluster.state("t").isr) == [2, 4]

    def test_invalid_reassignments_are_refused(self, cluster: ClusterHarness) -> None:
        assert self.reassign(cluster, [1])[0] == UNKNOWN_TOPIC
        cluster.create_topic("t", assignment=[[1, 2]])
        assert self.reassign(cluster, [])[0] == 39
        assert self.reassign(cluster, [1, 1])[0] == 39
        assert self.reassign(cluster, [-1])[0] == 39
        assert self.reassign(cluster, [1, 9])[0] == 39
        code, message = self.reassign(cluster, [1, 2, 3], allow_replication_factor_change=False)
        assert (code, message) == (38, "The replication factor is changed from 2 to 3")
        request = AlterPartitionReassignmentsRequest()
        assert cluster.ask(request, AlterPartitionReassignmentsResponse, 2).error_code == NOT_CONTROLLER
        listing = ListPartitionReassignmentsRequest(topics=None)
        assert cluster.ask(listing, ListPartitionReassignmentsResponse, 2).error_code == NOT_CONTROLLER

    def elect(
        self, cluster: ClusterHarness, election_type: int = 0, *, version: int = 2, **options: bool
    ) -> dict[str, int]:
        partitions = (
            None if options.get("all_of_them") else [ElectLeadersRequest.TopicPartitions(topic="t", partitions=[0])]
        )
        request = ElectLeadersRequest(election_type=election_type, topic_partitions=partitions)
        response = cluster.ask(request, ElectLeadersResponse, version=version)
        assert response.error_code == 0
        return {
            f"{topic.topic}-{partition.partition_id}": partition.error_code
            for topic in response.replica_election_results
            for partition in topic.partition_result
        }

    @pytest.mark.parametrize("version", range(3))
    def test_leadership_returns_to_the_preferred_replica(self, cluster: ClusterHarness, version: int) -> None:
        cluster.create_topic("t", assignment=[[1, 2]])
        assert self.elect(cluster, version=version) == {"t-0": 84}
        assert self.elect(cluster, all_of_them=True) == {}, "those that need none are not told of"
        cluster.controller.elector.move_leader(TopicPartition("t", 0), 2)
        assert self.elect(cluster, version=version) == {"t-0": 0}
        assert cluster.state("t").leader == 1

    @pytest.mark.parametrize("version", range(3))
    def test_only_the_controller_runs_elections(self, cluster: ClusterHarness, version: int) -> None:
        request = ElectLeadersRequest(topic_partitions=[ElectLeadersRequest.TopicPartitions(topic="t", partitions=[0])])
        response = cluster.ask(request, ElectLeadersResponse, cluster.others()[0], version)
        assert response.error_code == (NOT_CONTROLLER if version >= 1 else 0)
        assert response.replica_election_results[0].partition_result[0].error_code == NOT_CONTROLLER
        everywhere = ElectLeadersRequest(topic_partitions=None)
        response = cluster.ask(everywhere, ElectLeadersResponse, cluster.others()[0], version)
        assert response.error_code == (NOT_CONTROLLER if version >= 1 else 0), "version 0 has no field for it, as Kafka"
        assert response.replica_election_results == []

    def test_impossible_elections_are_refused(self, cluster: ClusterHarness) -> None:
        assert self.elect(cluster) == {"t-0": UNKNOWN_TOPIC}
        cluster.create_topic("t", assignment=[[4, 2]])
        cluster.cluster.kill_broker(4)
        cluster.run_for(A_WHILE_MS)
        assert self.elect(cluster) == {"t-0": 80}
        assert self.elect(cluster, 1) == {"t-0": 84}
        cluster.cluster.kill_broker(2)
        cluster.run_for(A_WHILE_MS)
        assert self.elect(cluster, 1) == {"t-0": 83}
        cluster.cluster.start_broker(4)
        cluster.run_for(A_WHILE_MS)
        assert cluster.state("t").leader == -1
        assert self.elect(cluster, 1) == {"t-0": 0}
        assert cluster.state("t").leader == 4

    def test_automatic_rebalance_restores_preferred_leaders(self) -> None:
        cluster = ClusterHarness(3, auto_leader_rebalance_enable=True, leader_imbalance_check_interval_seconds=5)
        cluster.create_topic("t", assignment=[[1, 2]])
        cluster.controller.elector.move_leader(TopicPartition("t", 0), 2)
        cluster.run_for(5_000)
        assert cluster.state("t").leader == 1


def test_metadata_updates_list_each_broker_once(cluster: ClusterHarness) -> None:
    """The controller sends one request to each broker, no matter how many partitions changed."""
    cluster.settle()
    cluster.cluster.history.clear()
    cluster.create_topic("t", 10)
    party = cluster.broker(cluster.controller_id).party
    for api in (UpdateMetadataRequest, LeaderAndIsrRequest):
        assert len(cluster.cluster.history.matching(api=api.API_KEY, party=party)) == 4
