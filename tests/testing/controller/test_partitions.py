"""Leaders and in-sync replicas while brokers stop and start (Java: ControllerIntegrationTest)."""

from __future__ import annotations

import pytest

from pykclient.errors import (
    BrokerIdNotRegisteredError,
    FencedLeaderEpochError,
    IneligibleReplicaError,
    InvalidUpdateVersionError,
    NotControllerError,
    StaleBrokerEpochError,
    UnknownTopicIdError,
)
from pykclient.protocol.messages.allocate_producer_ids import AllocateProducerIdsRequest, AllocateProducerIdsResponse
from pykclient.protocol.messages.alter_partition import AlterPartitionRequest, AlterPartitionResponse
from pykclient.protocol.messages.controlled_shutdown import ControlledShutdownRequest, ControlledShutdownResponse
from pykclient.protocol.messages.incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from pykclient.testing.coordination.znodes import NO_LEADER, RECOVERING
from pykclient.types import TopicPartition
from tests.testing.controller.harness import A_WHILE_MS, ClusterHarness

T0 = TopicPartition("t", 0)


@pytest.fixture
def cluster() -> ClusterHarness:
    """A cluster whose controller, broker 1, has no replica in these tests, so that the others can die."""
    cluster = ClusterHarness(4)
    assert cluster.controller_id == 1
    return cluster


def kill(cluster: ClusterHarness, id: int) -> None:
    cluster.cluster.kill_broker(id)
    cluster.run_until(lambda: id not in cluster.controller.context.live_brokers, f"the controller misses {id}")
    cluster.settle()


def restart(cluster: ClusterHarness, id: int) -> None:
    cluster.cluster.start_broker(id)
    cluster.run_until(lambda: id in cluster.controller.context.live_brokers, f"the controller sees {id}")
    cluster.settle()


def test_isr_shrinks_to_the_last_replica_before_the_partition_goes_offline(cluster: ClusterHarness) -> None:
    cluster.create_topic("t", assignment=[[2, 3, 4]])
    assert cluster.state("t").leader == 2
    kill(cluster, 2)
    assert (cluster.state("t").leader, cluster.state("t").isr, cluster.state("t").leader_epoch) == (3, (3, 4), 1)
    kill(cluster, 3)
    assert (cluster.state("t").leader, cluster.state("t").isr) == (4, (4,))
    kill(cluster, 4)
    assert (cluster.state("t").leader, cluster.state("t").isr) == (NO_LEADER, (4,)), "the last one has everything"
    assert cluster.known_leader(1, "t") == NO_LEADER
    restart(cluster, 2)
    assert cluster.state("t").leader == NO_LEADER, "it lacks what 3 and 4 have"
    restart(cluster, 4)
    assert cluster.state("t").leader == 4
    cluster.run_until(lambda: set(cluster.state("t").isr) == {2, 4}, "2 has caught up")
    assert cluster.state("t").leader_epoch > 1


def test_unclean_election_needs_topic_permission(cluster: ClusterHarness) -> None:
    cluster.create_topic("t", assignment=[[2, 3]])
    cluster.create_topic("loose", assignment=[[2, 3]], unclean_leader_election_enable="true")
    kill(cluster, 3)
    kill(cluster, 2)
    restart(cluster, 3)
    assert cluster.state("t").leader == NO_LEADER
    assert (cluster.state("loose").leader, cluster.state("loose").isr) == (3, (3,))
    assert cluster.state("loose").leader_recovery_state == RECOVERING
    # Enabling the setting later triggers the unclean election.
    request = IncrementalAlterConfigsRequest(
        resources=[
            IncrementalAlterConfigsRequest.AlterConfigsResource(
                resource_type=2,
                resource_name="t",
                configs=[
                    IncrementalAlterConfigsRequest.AlterableConfig(name="unclean.leader.election.enable", value="true")
                ],
            )
        ]
    )
    assert cluster.ask(request, IncrementalAlterConfigsResponse).responses[0].error_code == 0
    cluster.run_until(lambda: cluster.state("t").leader == 3, "an unclean election")


def test_quickly_restarted_broker_is_noticed(cluster: ClusterHarness) -> None:
    cluster.create_topic("t", assignment=[[2, 3, 4]])
    epoch = cluster.broker(2).epoch
    cluster.cluster.kill_broker(2)
    cluster.cluster.start_broker(2)
    cluster.run_until(cluster.cluster.is_ready, "it is back")
    cluster.settle()
    assert cluster.broker(2).epoch > epoch
    assert cluster.controller.context.live_broker_epochs[2] == cluster.broker(2).epoch
    assert cluster.state("t").leader != 2, "its log may have lost something, so it follows first"
    cluster.run_until(lambda: set(cluster.state("t").isr) == {2, 3, 4}, "it has caught up")
    partition = cluster.broker(2).replica_manager.partition(T0)
    assert partition is not None
    assert partition.leader_epoch == cluster.state("t").leader_epoch


def test_stopping_broker_hands_over_leaders_and_leaves_every_isr(cluster: ClusterHarness) -> None:
    cluster.create_topic("t", assignment=[[2, 3], [3, 2]])
    cluster.create_topic("alone", assignment=[[2]])
    broker = cluster.broker(2)
    cluster.cluster.stop_broker(2)
    cluster.run_until(lambda: not broker.alive, "it has stopped")
    cluster.settle()
    assert [(cluster.state("t", p).leader, cluster.state("t", p).isr) for p in (0, 1)] == [(3, (3,)), (3, (3,))]
    assert (cluster.state("alone").leader, cluster.state("alone").isr) == (NO_LEADER, (2,)), "nobody else has it"


def test_controlled_shutdown_needs_a_registered_broker(cluster: ClusterHarness) -> None:
    def ask(id: int, epoch: int, to: int = 1) -> int:
        request = ControlledShutdownRequest(broker_id=id, broker_epoch=epoch)
        return cluster.ask_as_broker(request, ControlledShutdownResponse, to, id).error_code

    assert ask(2, cluster.broker(2).epoch - 1) == StaleBrokerEpochError.code
    assert ask(9, 1) == 8
    assert ask(2, cluster.broker(2).epoch, to=3) == NotControllerError.code
    assert cluster.controller.context.is_live_broker(2)


def test_leader_can_be_moved(cluster: ClusterHarness) -> None:
    cluster.create_topic("t", assignment=[[2, 3]])
    assert cluster.controller.elector.move_leader(T0, 3)
    cluster.settle()
    assert cluster.state("t").leader == 3
    partition = cluster.broker(3).replica_manager.partition(T0)
    assert partition is not None
    assert partition.is_leader
    assert not cluster.controller.elector.move_leader(T0, 4), "it is no replica"
    assert cluster.controller.elector.move_leader(T0, 3), "it leads already"
    assert not cluster.broker(2).controller.elector.move_leader(T0, 2), "it is not the controller"


class TestAlterPartition:
    """The controller accepts a leader's AlterPartition if it is based on the current state (KIP-497)."""

    @pytest.fixture
    def cluster(self) -> ClusterHarness:
        cluster = ClusterHarness(4)
        cluster.create_topic("t", assignment=[[2, 3, 4]])
        return cluster

    def alter(
        self,
        cluster: ClusterHarness,
        *,
        isr: tuple[int, ...] = (2, 3),
        leader_epoch: int | None = None,
        partition_epoch: int | None = None,
        broker_epoch: int | None = None,
        epochs: dict[int, int] | None = None,
        to: int = 1,
        recovery_state: int = 0,
    ) -> AlterPartitionResponse:
        state = cluster.state("t")
        epochs = epochs or {}
        request = AlterPartitionRequest(
            broker_id=2,
            broker_epoch=cluster.broker(2).epoch if broker_epoch is None else broker_epoch,
            topics=[
                AlterPartitionRequest.TopicData(
                    topic_id=cluster.controller.context.topic_id("t"),
                    partitions=[
                        AlterPartitionRequest.PartitionData(
                            partition_index=0,
                            leader_epoch=state.leader_epoch if leader_epoch is None else leader_epoch,
                            partition_epoch=state.partition_epoch if partition_epoch is None else partition_epoch,
                            leader_recovery_state=recovery_state,
                            new_isr_with_epochs=[
                                AlterPartitionRequest.BrokerState(broker_id=id, broker_epoch=epochs.get(id, -1))
                                for id in isr
                            ],
                        )
                    ],
                )
            ],
        )
        return cluster.ask_as_broker(request, AlterPartitionResponse, to, 2)

    def code(self, response: AlterPartitionResponse) -> int:
        assert response.error_code == 0
        return response.topics[0].partitions[0].error_code

    def test_valid_isr_change_is_stored_and_propagated(self, cluster: ClusterHarness) -> None:
        before = cluster.state("t")
        partition = self.alter(cluster).topics[0].partitions[0]
        assert (partition.error_code, partition.isr) == (0, [2, 3])
        assert (partition.leader_epoch, partition.partition_epoch) == (before.leader_epoch, before.partition_epoch + 1)
        cluster.settle()
        for id in (1, 2, 3, 4):
            info = cluster.broker(id).metadata_cache.partition_info(T0)
            assert info is not None
            assert info.isr == [2, 3]

    def test_unchanged_isr_is_granted_again(self, cluster: ClusterHarness) -> None:
        before = cluster.state("t")
        self.alter(cluster)
        again = self.alter(cluster, partition_epoch=before.partition_epoch)
        assert self.code(again) == 0
        assert again.topics[0].partitions[0].partition_epoch == before.partition_epoch + 1

    def test_isr_change_with_stale_epoch_is_refused(self, cluster: ClusterHarness) -> None:
        before = cluster.state("t")
        self.alter(cluster)
        stale = self.alter(cluster, isr=(2, 4), partition_epoch=before.partition_epoch)
        assert self.code(stale) == InvalidUpdateVersionError.code
        cluster.controller.elector.move_leader(T0, 3)
        assert self.code(self.alter(cluster, leader_epoch=before.leader_epoch)) == FencedLeaderEpochError.code

    def test_leader_with_newer_epoch_gets_not_controller(self, cluster: ClusterHarness) -> None:
        assert self.code(self.alter(cluster, partition_epoch=99)) == NotControllerError.code
        assert self.code(self.alter(cluster, leader_epoch=99)) == NotControllerError.code

    def test_dead_and_restarted_brokers_are_not_added_to_the_isr(self, cluster: ClusterHarness) -> None:
        assert self.code(self.alter(cluster, isr=(2, 9))) == IneligibleReplicaError.code
        assert self.code(self.alter(cluster, epochs={3: 1})) == IneligibleReplicaError.code
        assert self.code(self.alter(cluster, epochs={3: cluster.broker(3).epoch})) == 0

    def test_leader_cannot_return_to_recovering(self, cluster: ClusterHarness) -> None:
        assert self.code(self.alter(cluster, isr=(2,), recovery_state=RECOVERING)) == 42

    def test_stale_epochs_and_unknown_topics_are_refused(self, cluster: ClusterHarness) -> None:
        assert self.alter(cluster, broker_epoch=1).error_code == StaleBrokerEpochError.code
        assert self.alter(cluster, to=2).error_code == NotControllerError.code
        request = AlterPartitionRequest(
            broker_id=2,
            broker_epoch=cluster.broker(2).epoch,
            topics=[AlterPartitionRequest.TopicData(partitions=[AlterPartitionRequest.PartitionData()])],
        )
        response = cluster.ask_as_broker(request, AlterPartitionResponse, 1, 2)
        assert self.code(response) == UnknownTopicIdError.code


def test_producer_id_blocks_never_overlap(cluster: ClusterHarness) -> None:
    def ask(id: int, epoch: int, to: int) -> AllocateProducerIdsResponse:
        request = AllocateProducerIdsRequest(broker_id=id, broker_epoch=epoch)
        return cluster.ask_as_broker(request, AllocateProducerIdsResponse, to, id)

    first = ask(2, cluster.broker(2).epoch, 1)
    second = ask(3, cluster.broker(3).epoch, 1)
    assert first.producer_id_start + first.producer_id_len == second.producer_id_start
    assert ask(2, 1, 1).error_code == StaleBrokerEpochError.code
    assert ask(9, 1, 1).error_code == BrokerIdNotRegisteredError.code
    assert ask(2, cluster.broker(2).epoch, 2).error_code == NotControllerError.code
    kill(cluster, 4)
    cluster.cluster.kill_broker(1)
    cluster.run_until_controller_not(1)
    third = ask(2, cluster.broker(2).epoch, cluster.controller_id)
    assert third.producer_id_start == second.producer_id_start + second.producer_id_len


def test_new_broker_gets_the_complete_metadata() -> None:
    cluster = ClusterHarness(3)
    cluster.cluster.kill_broker(3)
    cluster.run_for(A_WHILE_MS)
    cluster.create_topic("t", 4, 2)
    cluster.cluster.start_broker(3)
    cluster.run_until(cluster.cluster.is_ready, "broker 3 is there")
    cluster.settle()
    assert [cluster.known_leader(3, "t", p) for p in range(4)] == [cluster.state("t", p).leader for p in range(4)]
