"""Logs of three replicas: records are deleted on all of them, and epochs end at the same offsets."""

from __future__ import annotations

from pykclient.protocol.messages.describe_log_dirs import DescribeLogDirsRequest, DescribeLogDirsResponse
from tests.support.any_kafka import AnyKafka
from tests.support.wait import eventually
from tests.testing.handlers.raw_client import RawClient
from tests.testing.log.support import batch, values
from tests.testing.log.test_as_kafka import Partition

_NOT_LEADER, _FENCED = 6, 74
_DEBUGGING = -2


def _sizes(cluster: AnyKafka, topic: str) -> list[int]:
    """Return the size of partition 0 on each broker."""
    request = DescribeLogDirsRequest(
        topics=[DescribeLogDirsRequest.DescribableLogDirTopic(topic=topic, partitions=[0])]
    )
    found = []
    for broker in cluster.brokers.values():
        with RawClient(broker.address) as client:
            answer = client.ask(request, 4, DescribeLogDirsResponse)
        assert answer.error_code == 0
        for result in answer.results:
            assert (result.error_code, result.total_bytes > 0, result.usable_bytes > 0) == (0, True, True)
            found += [
                partition.partition_size
                for described in result.topics
                if described.name == topic
                for partition in described.partitions
                if partition.partition_index == 0 and not partition.is_future_key
            ]
    return found


def test_records_are_deleted_on_all_replicas(any_cluster: AnyKafka, topic: str) -> None:
    any_cluster.create_topic(topic, assignment=[[2, 3, 1]])
    with RawClient(any_cluster.brokers[2].address) as client:
        leader = Partition(client, topic)
        data = batch(values(4))
        for _ in range(3):
            leader.append(data)
        eventually(lambda: _sizes(any_cluster, topic) == [3 * len(data)] * 3, 30.0, "replicas of the same size")
        assert leader.delete_records(6) == (0, 6)
        assert leader.list_offset(-2) == (0, -1, 6, 0)
    for follower in (1, 3):
        with RawClient(any_cluster.brokers[follower].address) as client:
            partition = Partition(client, topic)
            assert partition.list_offset(-2)[0] == _NOT_LEADER
            assert partition.delete_records(7)[0] == _NOT_LEADER
            assert partition.end_of_epoch(0)[0] == _NOT_LEADER
            # The follower deleted its records before the leader responded.
            assert partition.list_offset(-2, replica_id=_DEBUGGING)[:3] == (0, -1, 6)


def test_epoch_ends_are_known_after_leader_changes(any_cluster: AnyKafka, topic: str) -> None:
    any_cluster.create_topic(topic, assignment=[[1, 2, 3]])
    with RawClient(any_cluster.brokers[1].address) as client:
        first = Partition(client, topic)
        first.append(batch(values(3)))
    any_cluster.brokers[1].kill()
    new_leader = any_cluster.await_leader(topic, 0, other_than=1)
    with RawClient(any_cluster.brokers[new_leader].address) as client:
        second = Partition(client, topic)
        eventually(lambda: second.produce(batch(values(2))).error_code == 0, 30.0, "a write to the new leader")
        _, _, end, epoch = second.list_offset(-1)
        assert epoch > 0
        assert end >= 5
        assert second.list_offset(-2) == (0, -1, 0, 0)
        assert second.end_of_epoch(0) == (0, 0, 3)
        assert second.end_of_epoch(epoch) == (0, epoch, end)
        assert second.end_of_epoch(epoch + 1) == (0, -1, -1)
        assert second.end_of_epoch(0, current_epoch=0) == (_FENCED, -1, -1)
        assert second.list_offset(-1, current_leader_epoch=0)[0] == _FENCED
        before = second.stored()
    any_cluster.make_healthy()
    any_cluster.move_leader(topic, 0, 1)
    with RawClient(any_cluster.brokers[1].address) as client:
        third = Partition(client, topic)
        eventually(lambda: third.list_offset(-1)[:3] == (0, -1, end), 30.0, "the first leader is it again")
        assert third.end_of_epoch(0) == (0, 0, 3)
        assert third.end_of_epoch(epoch) == (0, epoch, end)
        assert third.stored() == before
