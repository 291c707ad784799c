"""One controller at a time: failover to another, and fencing of old ones (Java: ControllerFailoverTest)."""

from __future__ import annotations

import pytest

from pykclient.errors import ControllerMovedError, StaleBrokerEpochError
from pykclient.protocol.messages.create_topics import CreateTopicsRequest
from pykclient.protocol.messages.leader_and_isr import LeaderAndIsrRequest, LeaderAndIsrResponse
from pykclient.protocol.messages.update_metadata import UpdateMetadataRequest, UpdateMetadataResponse
from pykclient.testing.coordination import znodes
from tests.testing.controller.harness import A_WHILE_MS, ClusterHarness


@pytest.fixture
def cluster() -> ClusterHarness:
    return ClusterHarness()


def test_idle_cluster_is_ready_and_does_nothing(cluster: ClusterHarness) -> None:
    active = [broker.id for broker in cluster.cluster.alive_brokers() if broker.controller.is_active]
    assert active == [cluster.controller_id]
    assert {broker.controller.active_controller_id for broker in cluster.cluster.alive_brokers()} == set(active)
    assert cluster.controller.epoch == 1
    assert cluster.loop.steps < 200, "starting is cheap"
    cluster.run_for()
    before = cluster.loop.steps
    cluster.run_for(A_WHILE_MS)
    assert cluster.loop.steps - before < 40, "nobody polls"


def test_another_broker_becomes_controller_after_a_kill(cluster: ClusterHarness) -> None:
    cluster.create_topic("t", 3)
    first = cluster.controller_id
    cluster.cluster.kill_broker(first)
    cluster.run_until_controller_not(first)
    cluster.settle()
    assert cluster.controller.epoch == 2
    for partition in range(3):
        state = cluster.state("t", partition)
        assert state.leader != first
        assert first not in state.isr  # also in partitions that it did not lead, whose leaders do not remove it
        for id in (broker.id for broker in cluster.cluster.alive_brokers()):
            assert cluster.known_leader(id, "t", partition) == state.leader
    for broker in cluster.cluster.alive_brokers():
        assert broker.metadata_cache.controller_id == cluster.controller_id
        assert first not in broker.metadata_cache.snapshot.alive_brokers


def test_stopping_controller_hands_over_at_once(cluster: ClusterHarness) -> None:
    cluster.create_topic("t", 3)
    first, began_ms = cluster.controller_id, cluster.clock.now_ms()
    cluster.cluster.stop_broker(first)
    cluster.run_until_controller_not(first)
    assert cluster.clock.now_ms() - began_ms < 100, "no session had to expire"
    assert all(cluster.state("t", partition).leader != first for partition in range(3))
    assert all(
        cluster.state("t", partition).isr and first not in cluster.state("t", partition).isr for partition in range(3)
    )


def test_paused_controller_is_replaced_and_resigns_on_resume(cluster: ClusterHarness) -> None:
    cluster.create_topic("t", 3)
    first = cluster.controller_id
    old = cluster.broker(first)
    epoch = old.epoch
    cluster.cluster.pause_broker(first)
    cluster.run_until_controller_not(first)
    cluster.settle()
    assert old.controller.is_active, "it cannot know"
    cluster.cluster.resume_broker(first)
    assert not old.controller.is_active, "it knows before it does anything"
    cluster.run_until(cluster.cluster.is_ready, "it is back")
    assert old.epoch > epoch
    assert old.controller.active_controller_id == cluster.controller_id
    cluster.settle()
    cluster.run_until(lambda: all(len(cluster.state("t", p).isr) == 3 for p in range(3)), "it has caught up")


def test_controller_without_coordination_service_is_replaced(
    cluster: ClusterHarness,
) -> None:
    first = cluster.controller_id
    old = cluster.broker(first)
    cluster.cluster.faults.links.set(old.party, "coordination", cut=True)
    answer = cluster.send(
        CreateTopicsRequest(
            topics=[CreateTopicsRequest.CreatableTopic(name="t", num_partitions=1, replication_factor=1)]
        ),
        first,
    )
    cluster.run_for(100)
    assert not answer.done, "it waits for contact"

    def another() -> bool:
        return any(broker.controller.is_active for broker in cluster.cluster.alive_brokers() if broker is not old)

    cluster.run_until(another, "another controller")
    cluster.cluster.faults.links.heal()
    cluster.run_until(lambda: answer.done, "an answer")
    assert answer.response is not None
    assert answer.response.topics[0].error_code == 41, "NOT_CONTROLLER, not a topic that nobody knows"  # type: ignore[attr-defined]
    cluster.run_until(cluster.cluster.is_ready, "it is back")
    assert cluster.controller.epoch == 2


def test_broker_registers_after_a_start_without_contact(cluster: ClusterHarness) -> None:
    target = cluster.others()[0]
    cluster.cluster.kill_broker(target)
    cluster.run_for(A_WHILE_MS)
    cluster.cluster.faults.links.set(f"broker-{target}", "coordination", cut=True)
    cluster.cluster.start_broker(target)
    cluster.run_for(A_WHILE_MS)
    assert cluster.broker(target).epoch == -1
    cluster.cluster.faults.links.heal()
    cluster.run_until(cluster.cluster.is_ready, "all are there")
    assert cluster.broker(target).epoch == cluster.controller.context.live_broker_epochs[target]


def test_contact_lost_within_the_session_has_no_effect(cluster: ClusterHarness) -> None:
    first, epoch = cluster.controller_id, cluster.broker(1).epoch
    links = cluster.cluster.faults.links
    for broker in cluster.cluster.alive_brokers():
        links.set(broker.party, "coordination", cut=True)
    cluster.run_for(200)
    links.heal()
    cluster.run_for(A_WHILE_MS)
    assert (cluster.controller_id, cluster.controller.epoch, cluster.broker(1).epoch) == (first, 1, epoch)


def test_expired_session_makes_the_broker_register_again(cluster: ClusterHarness) -> None:
    cluster.create_topic("t", 3)
    for id in (cluster.others()[0], cluster.controller_id):
        broker = cluster.broker(id)
        epoch = broker.epoch
        broker.coordination.expire()
        cluster.run_until(lambda: broker.epoch > epoch, "a new epoch")  # noqa: B023
        cluster.run_until(cluster.cluster.is_ready, "the cluster is ready")
        cluster.settle()
    cluster.run_until(lambda: all(len(cluster.state("t", p).isr) == 3 for p in range(3)), "all are in sync")


def test_requests_of_a_former_controller_are_refused(cluster: ClusterHarness) -> None:
    cluster.controller.resign()
    cluster.run_until(
        lambda: cluster.cluster.active_controller() is not None and cluster.controller.epoch == 2, "epoch 2"
    )
    cluster.run_until(cluster.cluster.is_ready, "all know")
    target = cluster.others()[0]
    epoch = cluster.broker(target).epoch
    update = UpdateMetadataRequest(controller_id=1, controller_epoch=1, broker_epoch=epoch)
    assert cluster.ask_as_broker(update, UpdateMetadataResponse, target).error_code == ControllerMovedError.code
    change = LeaderAndIsrRequest(controller_id=1, controller_epoch=1, broker_epoch=epoch)
    assert cluster.ask_as_broker(change, LeaderAndIsrResponse, target).error_code == ControllerMovedError.code
    assert cluster.broker(target).metadata_cache.snapshot.alive_brokers, "nothing of it was taken"


def test_requests_with_a_stale_broker_epoch_are_refused(cluster: ClusterHarness) -> None:
    target = cluster.others()[0]
    update = UpdateMetadataRequest(controller_id=1, controller_epoch=1, broker_epoch=cluster.broker(target).epoch - 1)
    assert cluster.ask_as_broker(update, UpdateMetadataResponse, target).error_code == StaleBrokerEpochError.code


def test_deposed_controller_cannot_write(cluster: ClusterHarness) -> None:
    cluster.create_topic("t")
    old = cluster.controller
    service = cluster.cluster.coordination
    # As if another controller had been elected without this one's knowledge.
    service.set_data(znodes.CONTROLLER_EPOCH, 9)
    state = cluster.state("t")
    with pytest.raises(ControllerMovedError):
        old.store.update_leader_and_isr(
            {next(iter(old.context.leadership)): state.new_leader(2)}, old.epoch, old.context.epoch_version
        )
    stored, _ = service.get_data(f"{znodes.BROKER_TOPICS}/t/partitions/0/state")
    assert stored.leader_and_isr == state


def test_state_survives_when_the_last_broker_returns() -> None:
    cluster = ClusterHarness(2)
    cluster.create_topic("t", 2, 2)
    for id in (1, 2):
        cluster.cluster.kill_broker(id)
        cluster.run_for(A_WHILE_MS)
    assert cluster.cluster.active_controller() is None
    cluster.cluster.start_broker(1)
    cluster.run_until(cluster.cluster.is_ready, "broker 1 is the controller")
    cluster.settle()
    # Broker 2 was the last in the ISR, so only it has all records.
    assert cluster.state("t").isr == (2,)
    assert cluster.known_leader(1, "t") == -1 or cluster.known_leader(1, "t") == 2
    cluster.cluster.start_broker(2)
    cluster.run_until(cluster.cluster.is_ready, "both are there")
    cluster.settle()
    assert cluster.state("t").leader == 2
