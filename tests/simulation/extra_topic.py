"""The second topic of a world: created during the schedule, deleted, and recreated under the same name."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, cast

from pykclient.protocol.messages.create_topics import CreateTopicsRequest
from pykclient.protocol.messages.delete_topics import DeleteTopicsRequest
from pykclient.protocol.wire import ZERO_UUID
from pykclient.record import MemoryRecords
from pykclient.testing.coordination.znodes import DELETE_TOPICS
from pykclient.testing.server.kafka_apis import LocalRequest
from pykclient.testing.simulation.checks import Log, check_one_topic_after_the_other
from pykclient.types import TopicPartition
from tests.simulation.applications import EXTRA

if TYPE_CHECKING:
    from pykclient.protocol.message import Request
    from pykclient.protocol.messages.produce import ProduceRequest
    from pykclient.testing.broker import Broker
    from tests.simulation.world import World

_TIMEOUT_MS = 5_000


class ExtraTopic:
    """Creates and deletes the topic, and keeps the records that consumers read from it. Thread: owner."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.partitions = [TopicPartition(EXTRA, number) for number in range(world.settings.partitions)]
        #: The brokers that have yet to respond to a request. Those that have died since will not.
        self._asked: list[Broker] = []
        #: The records that each consumer process read, in that order.
        self._read: dict[str, dict[TopicPartition, list[tuple[int, bytes]]]] = {}

    # --- steps -------------------------------------------------------------------------------------------------------

    def create(self) -> None:
        """Request creation of the topic; without a controller, or if the topic exists, nothing happens."""
        settings = self._world.settings
        topic = CreateTopicsRequest.CreatableTopic(
            name=EXTRA, num_partitions=settings.partitions, replication_factor=settings.replication_factor
        )
        self._request(CreateTopicsRequest(topics=[topic], timeout_ms=_TIMEOUT_MS))

    def delete(self) -> None:
        """Request deletion of the topic, which completes once no replica is left."""
        state = DeleteTopicsRequest.DeleteTopicState(name=EXTRA)
        self._request(DeleteTopicsRequest(topics=[state], timeout_ms=_TIMEOUT_MS))

    def _request(self, request: Request) -> None:
        controller = self._world.cluster.active_controller()
        if controller is not None:
            self._asked.append(controller)
            LocalRequest(controller, request, partial(self._responded, controller))

    def _responded(self, controller: Broker, response: object) -> None:
        self._asked.remove(controller)
        self._world.note("extra topic", type(response).__name__)

    def is_changing(self) -> bool:
        """Return whether a request is in progress, or a deletion, which may go on after the response."""
        is_deleted = bool(self._world.cluster.coordination.get_children(DELETE_TOPICS))
        return is_deleted or any(broker.alive for broker in self._asked)

    def has_leaders(self) -> bool:
        """Return whether all partitions have a leader."""
        return all(self._world.cluster.leader(tp) is not None for tp in self.partitions)

    # --- reading -----------------------------------------------------------------------------------------------------

    def delivered(self, consumer: str, tp: TopicPartition, offset: int, value: bytes) -> None:
        """Record that a consumer read a record."""
        self._world.note("read extra", consumer, tp.partition, offset)
        self._read.setdefault(consumer, {}).setdefault(tp, []).append((offset, value))

    def read_by(self, consumer: str, tp: TopicPartition) -> list[tuple[int, bytes]]:
        """Return the (offset, value) pairs that a consumer read, in that order."""
        return self._read.get(consumer, {}).get(tp, [])

    def everything_read(self, logs: Callable[[TopicPartition], Log]) -> bool:
        """Return whether all records in the logs were read, by the group or by each running consumer without one."""
        world = self._world
        readers = [consumer.name for consumer in world.consumers]
        for tp in self.partitions:
            log = set(logs(tp).items())
            if world.settings.groups:
                if not log <= {entry for reads in self._read.values() for entry in reads.get(tp, ())}:
                    return False
            elif not all(log <= set(self._read.get(name, {}).get(tp, ())) for name in readers):
                return False
        return True

    def check(self, logs: Callable[[TopicPartition], Log]) -> None:
        """Check that no consumer read a record of an earlier topic after one of the current topic."""
        sent_before = self._sent_to_deleted_topics()
        for consumer, reads in self._read.items():
            for tp, entries in reads.items():
                check_one_topic_after_the_other(consumer, tp, entries, logs(tp), sent_before)

    def _sent_to_deleted_topics(self) -> set[bytes]:
        """Return the values in requests to topics that no longer exist. A producer may have sent them again."""
        cluster = self._world.cluster
        existing = {ZERO_UUID}  # in requests before version 13, which name topics
        for broker in cluster.alive_brokers():
            existing |= broker.metadata_cache.snapshot.topic_names.keys()
        return {
            bytes(record.value or b"")
            for request in cluster.history.matching(api="PRODUCE")
            for topic in cast("ProduceRequest", request.body).topic_data
            if topic.topic_id not in existing
            for partition in topic.partition_data
            for record in MemoryRecords(partition.records or b"").records()
        }
