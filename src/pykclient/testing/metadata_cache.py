"""A broker's knowledge of the cluster, as the controller sent it (Java: ZkMetadataCache)."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from uuid import UUID

from pykclient.protocol.messages.update_metadata import UpdateMetadataRequest
from pykclient.protocol.wire import ZERO_UUID
from pykclient.testing.broker_context import BrokerContext
from pykclient.testing.coordination.znodes import LEADER_DURING_DELETE
from pykclient.types import Node, TopicPartition

PartitionState = UpdateMetadataRequest.UpdateMetadataPartitionState


@dataclass(eq=False)
class MetadataSnapshot:
    """An immutable view of the cluster at one moment. Thread: any."""

    partition_states: Mapping[str, Mapping[int, PartitionState]]
    topic_ids: Mapping[str, UUID]
    controller_id: int | None
    alive_brokers: Mapping[int, Node]

    def __post_init__(self) -> None:
        self.topic_names = {id: name for name, id in self.topic_ids.items()}

    def leader(self, topic_partition: TopicPartition) -> Node | None:
        """Return the broker that leads a partition, if there is one and it is alive."""
        state = self.partition_states.get(topic_partition.topic, {}).get(topic_partition.partition)
        return None if state is None else self.alive_brokers.get(state.leader)


_EMPTY = MetadataSnapshot({}, {}, None, {})


class MetadataCache:
    """Holds the current snapshot, and replaces it as a whole with each UPDATE_METADATA.

    Brokers get these requests one by one, so any of them may lag behind. ``freeze`` forces this for a test: the cache
    queues updates until ``thaw``. Thread: loop.
    """

    def __init__(self, broker: BrokerContext) -> None:
        self._log = broker.log_context.logger(__name__)
        self.snapshot = _EMPTY
        self.frozen = False
        self._held_back: deque[UpdateMetadataRequest] = deque()
        self._listeners: list[Callable[[Collection[str]], None]] = []

    def add_listener(self, listener: Callable[[Collection[str]], None]) -> None:
        """Call ``listener`` with the topics of each update, after the snapshot was replaced."""
        self._listeners.append(listener)

    # --- updates ---------------------------------------------------------------------------------------------------

    def freeze(self) -> None:
        """Keep the current snapshot, whatever the controller sends."""
        self.frozen = True

    def thaw(self) -> None:
        """Apply all updates since ``freeze``, in order."""
        self.frozen = False
        while self._held_back and not self.frozen:
            self._apply(self._held_back.popleft())

    def update_metadata(self, request: UpdateMetadataRequest) -> None:
        """Apply an update whose epoch was checked before."""
        if self.frozen:
            self._held_back.append(request)
        else:
            self._apply(request)

    def _apply(self, request: UpdateMetadataRequest) -> None:
        previous = self.snapshot
        alive_brokers = {}
        for broker in request.live_brokers:
            endpoint = broker.endpoints[0]
            alive_brokers[broker.id] = Node(broker.id, endpoint.host, endpoint.port, broker.rack)
        states: Mapping[str, Mapping[int, PartitionState]] = previous.partition_states
        topic_ids: Mapping[str, UUID] = previous.topic_ids
        if request.topic_states:
            states, topic_ids = self._merge(previous, request.topic_states)
        controller_id = None if request.controller_id < 0 else request.controller_id
        self.snapshot = MetadataSnapshot(states, topic_ids, controller_id, alive_brokers)
        topics = [topic.topic_name for topic in request.topic_states]
        for listener in self._listeners:
            listener(topics)

    @staticmethod
    def _merge(
        previous: MetadataSnapshot, topic_states: Collection[UpdateMetadataRequest.UpdateMetadataTopicState]
    ) -> tuple[dict[str, Mapping[int, PartitionState]], dict[str, UUID]]:
        """Return the previous states updated with the new ones.

        Topics without changes share their tables with the previous.
        """
        states = dict(previous.partition_states)
        topic_ids = dict(previous.topic_ids)
        for topic in topic_states:
            name = topic.topic_name
            if topic.topic_id == ZERO_UUID:
                topic_ids.pop(name, None)
            else:
                topic_ids[name] = topic.topic_id
            partitions = dict(states.get(name, {}))
            for state in topic.partition_states:
                if state.leader == LEADER_DURING_DELETE:
                    partitions.pop(state.partition_index, None)
                else:
                    partitions[state.partition_index] = state
            if partitions:
                states[name] = partitions
            else:
                states.pop(name, None)
                topic_ids.pop(name, None)
        return states, topic_ids

    # --- looking things up -----------------------------------------------------------------------------------------

    @property
    def controller_id(self) -> int | None:
        return self.snapshot.controller_id

    def partition_info(self, topic_partition: TopicPartition) -> PartitionState | None:
        return self.snapshot.partition_states.get(topic_partition.topic, {}).get(topic_partition.partition)

    def contains(self, topic: str) -> bool:
        return topic in self.snapshot.partition_states

    def all_topics(self) -> list[str]:
        return list(self.snapshot.partition_states)

    def num_partitions(self, topic: str) -> int | None:
        partitions = self.snapshot.partition_states.get(topic)
        return None if partitions is None else len(partitions)

    def topic_id(self, topic: str) -> UUID:
        """Return a topic's id, or ZERO_UUID if the topic is unknown."""
        return self.snapshot.topic_ids.get(topic, ZERO_UUID)

    def topic_name(self, topic_id: UUID) -> str | None:
        return self.snapshot.topic_names.get(topic_id)

    def alive_brokers(self) -> list[Node]:
        return list(self.snapshot.alive_brokers.values())

    def alive_broker(self, broker_id: int) -> Node | None:
        return self.snapshot.alive_brokers.get(broker_id)
