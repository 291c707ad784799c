"""The controller's knowledge of the cluster, with the tables of states, and its event queue.

Java: ControllerContext, PartitionState, ReplicaState, ControllerEventManager.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple
from uuid import UUID

from pykclient.errors import ControllerMovedError, check_move
from pykclient.protocol.wire import ZERO_UUID
from pykclient.testing.broker_context import BrokerContext
from pykclient.testing.coordination.coordination_client import CoordinationClient
from pykclient.testing.coordination.znodes import (
    EPOCH_DURING_DELETE,
    LeaderIsrAndControllerEpoch,
    ReplicaAssignment,
    TopicAssignment,
)
from pykclient.types import Node, TopicPartition


class PartitionState:
    """The states of a partition."""

    NON_EXISTENT: Final = "NON_EXISTENT"  # never created, or deleted
    NEW: Final = "NEW"  # has replicas, and no leader yet
    ONLINE: Final = "ONLINE"  # has a leader
    OFFLINE: Final = "OFFLINE"  # had one

    #: state -> the valid next states
    MOVES: Final = {
        NON_EXISTENT: (NEW,),
        NEW: (ONLINE, OFFLINE),
        ONLINE: (ONLINE, OFFLINE),
        OFFLINE: (ONLINE, OFFLINE, NON_EXISTENT),
    }


class ReplicaState:
    """The states of a replica."""

    NON_EXISTENT: Final = "NON_EXISTENT"
    NEW: Final = "NEW"  # can only become a follower
    ONLINE: Final = "ONLINE"
    OFFLINE: Final = "OFFLINE"  # its broker is gone, or it was told to stop
    DELETION_STARTED: Final = "DELETION_STARTED"
    DELETION_SUCCESSFUL: Final = "DELETION_SUCCESSFUL"
    DELETION_INELIGIBLE: Final = "DELETION_INELIGIBLE"  # the deletion failed or cannot start

    #: state -> the valid next states
    MOVES: Final = {
        NON_EXISTENT: (NEW,),
        NEW: (ONLINE, OFFLINE),
        ONLINE: (ONLINE, OFFLINE),
        OFFLINE: (ONLINE, OFFLINE, DELETION_STARTED, DELETION_INELIGIBLE),
        DELETION_STARTED: (DELETION_SUCCESSFUL, DELETION_INELIGIBLE),
        DELETION_SUCCESSFUL: (NON_EXISTENT,),
        DELETION_INELIGIBLE: (ONLINE, OFFLINE),
    }


#: An error code and its text; (0, None) means success.
ApiError = tuple[int, str | None]

NONE: Final[ApiError] = (0, None)


class PartitionAndReplica(NamedTuple):
    """One replica of a partition."""

    topic_partition: TopicPartition
    replica: int


_UNASSIGNED = ReplicaAssignment(())


class ControllerContext:
    """Brokers, topics, assignments, leaders and states, mostly copied from the coordination service.

    Sets that are iterated over are dicts, so that their order is the same in each run. Thread: loop.
    """

    def __init__(self) -> None:
        self.epoch = 0
        self.epoch_version = -1  # of the epoch's node; all writes depend on it
        self.replicas_on_offline_dirs: dict[int, dict[TopicPartition, None]] = {}
        self.reset()

    def reset(self) -> None:
        """Clear everything except the epoch."""
        self.live_brokers: dict[int, Node] = {}  # including brokers that are shutting down
        self.live_broker_epochs: dict[int, int] = {}
        self.shutting_down_broker_ids: set[int] = set()
        self.topic_ids: dict[str, UUID] = {}
        self.topic_names: dict[UUID, str] = {}
        self.assignments: dict[str, dict[int, ReplicaAssignment]] = {}
        self.leadership: dict[TopicPartition, LeaderIsrAndControllerEpoch] = {}
        self.partitions_being_reassigned: dict[TopicPartition, None] = {}
        self.partition_states: dict[TopicPartition, str] = {}
        self.replica_states: dict[PartitionAndReplica, str] = {}
        self.topics_to_be_deleted: dict[str, None] = {}
        self.topics_with_deletion_started: dict[str, None] = {}
        self.topics_ineligible_for_deletion: dict[str, None] = {}
        self.replicas_on_offline_dirs.clear()

    # --- brokers ---------------------------------------------------------------------------------------------------

    def add_live_brokers(self, brokers: Mapping[int, tuple[Node, int]]) -> None:
        for id, (node, epoch) in brokers.items():
            self.live_brokers[id] = node
            self.live_broker_epochs[id] = epoch

    def remove_live_brokers(self, ids: Iterable[int]) -> None:
        for id in ids:
            del self.live_brokers[id], self.live_broker_epochs[id]

    def is_live_broker(self, id: int) -> bool:
        return id in self.live_brokers and id not in self.shutting_down_broker_ids

    @property
    def live_broker_ids(self) -> list[int]:
        """The live brokers that are not shutting down."""
        return [id for id in self.live_brokers if id not in self.shutting_down_broker_ids]

    @property
    def live_or_shutting_down_broker_ids(self) -> list[int]:
        return list(self.live_brokers)

    def is_replica_online(
        self, id: int, topic_partition: TopicPartition, *, include_shutting_down_brokers: bool = False
    ) -> bool:
        alive = id in self.live_brokers if include_shutting_down_brokers else self.is_live_broker(id)
        return alive and topic_partition not in self.replicas_on_offline_dirs.get(id, ())

    # --- topics and assignments --------------------------------------------------------------------------------------

    @property
    def all_topics(self) -> Collection[str]:
        return self.assignments.keys()

    def all_partitions(self) -> list[TopicPartition]:
        return [partition for topic in self.assignments for partition in self.partitions_for_topic(topic)]

    def put_topic(self, topic: str, assignment: TopicAssignment) -> None:
        self.topic_ids[topic] = assignment.topic_id
        self.topic_names[assignment.topic_id] = topic
        self.assignments[topic] = dict(assignment.partitions)

    def topic_id(self, topic: str) -> UUID:
        return self.topic_ids.get(topic, ZERO_UUID)

    def topic_assignment(self, topic: str) -> TopicAssignment:
        return TopicAssignment(self.topic_id(topic), dict(self.assignments[topic]))

    def assignment(self, topic_partition: TopicPartition) -> ReplicaAssignment:
        """Return the assignment of a partition, empty if it is unknown."""
        return self.assignments.get(topic_partition.topic, {}).get(topic_partition.partition, _UNASSIGNED)

    def replicas(self, topic_partition: TopicPartition) -> tuple[int, ...]:
        return self.assignment(topic_partition).replicas

    def put_assignment(self, topic_partition: TopicPartition, assignment: ReplicaAssignment) -> None:
        self.assignments.setdefault(topic_partition.topic, {})[topic_partition.partition] = assignment

    def partitions_for_topic(self, topic: str) -> list[TopicPartition]:
        return [TopicPartition(topic, index) for index in self.assignments.get(topic, ())]

    def replicas_on_brokers(self, ids: Collection[int]) -> list[PartitionAndReplica]:
        return [it for it in self.replicas_for_partitions(self.all_partitions()) if it.replica in ids]

    def replicas_for_partitions(self, partitions: Iterable[TopicPartition]) -> list[PartitionAndReplica]:
        return [PartitionAndReplica(partition, id) for partition in partitions for id in self.replicas(partition)]

    def replicas_for_topic(self, topic: str) -> list[PartitionAndReplica]:
        return self.replicas_for_partitions(self.partitions_for_topic(topic))

    def remove_topic(self, topic: str) -> None:
        """Remove everything about a topic."""
        for topic_partition in self.partitions_for_topic(topic):
            self.leadership.pop(topic_partition, None)
            self.partition_states.pop(topic_partition, None)
            self.partitions_being_reassigned.pop(topic_partition, None)
            for offline in self.replicas_on_offline_dirs.values():
                offline.pop(topic_partition, None)
        self.assignments.pop(topic, None)
        topic_id = self.topic_ids.pop(topic, None)
        if topic_id is not None:
            del self.topic_names[topic_id]
        for replica in [replica for replica in self.replica_states if replica.topic_partition.topic == topic]:
            del self.replica_states[replica]
        self.topics_to_be_deleted.pop(topic, None)
        self.topics_with_deletion_started.pop(topic, None)
        self.topics_ineligible_for_deletion.pop(topic, None)

    # --- leaders ---------------------------------------------------------------------------------------------------

    def leader(self, topic_partition: TopicPartition) -> int | None:
        """Return the last elected leader (dead or alive, or -1); None if there never was an election."""
        info = self.leadership.get(topic_partition)
        return None if info is None else info.leader_and_isr.leader

    def partitions_with_offline_leader(self) -> list[TopicPartition]:
        return [
            topic_partition
            for topic_partition, info in self.leadership.items()
            if not self.is_replica_online(info.leader_and_isr.leader, topic_partition)
            and not self.is_topic_queued_up_for_deletion(topic_partition.topic)
        ]

    def partition_leaders_on_broker(self, id: int) -> list[TopicPartition]:
        """Return the partitions that a live broker leads and that have other replicas."""
        return [
            topic_partition
            for topic_partition, info in self.leadership.items()
            if info.leader_and_isr.leader == id
            and len(self.replicas(topic_partition)) > 1
            and not self.is_topic_queued_up_for_deletion(topic_partition.topic)
        ]

    def leader_epoch(self, topic_partition: TopicPartition) -> int:
        """Return the leader epoch for STOP_REPLICA.

        -2 means that the topic is being deleted; it overrides any epoch (KIP-570).
        """
        if self.is_topic_queued_up_for_deletion(topic_partition.topic):
            return EPOCH_DURING_DELETE
        info = self.leadership.get(topic_partition)
        return -1 if info is None else info.leader_and_isr.leader_epoch

    # --- states ------------------------------------------------------------------------------------------------------

    def partitions_in_states(self, *states: str) -> list[TopicPartition]:
        return [topic_partition for topic_partition, state in self.partition_states.items() if state in states]

    def move_partition(self, topic_partition: TopicPartition, target: str) -> None:
        """Change a partition's state.

        Raises:
            IllegalStateError: the table does not have the transition.
        """
        current = self.partition_states.get(topic_partition, PartitionState.NON_EXISTENT)
        check_move(f"partition {topic_partition}", PartitionState.MOVES, current, target)
        if target == PartitionState.NON_EXISTENT:
            self.partition_states.pop(topic_partition, None)
        else:
            self.partition_states[topic_partition] = target

    def replica_state(self, replica: PartitionAndReplica) -> str:
        return self.replica_states.get(replica, ReplicaState.NON_EXISTENT)

    def move_replica(self, replica: PartitionAndReplica, target: str) -> None:
        """Change a replica's state.

        Raises:
            IllegalStateError: the table does not have the transition.
        """
        check_move(f"replica {replica}", ReplicaState.MOVES, self.replica_state(replica), target)
        if target == ReplicaState.NON_EXISTENT:
            self.replica_states.pop(replica, None)
        else:
            self.replica_states[replica] = target

    def replicas_in_state(self, topic: str, state: str) -> list[PartitionAndReplica]:
        return [replica for replica in self.replicas_for_topic(topic) if self.replica_state(replica) == state]

    # --- deletion ----------------------------------------------------------------------------------------------------

    def is_topic_queued_up_for_deletion(self, topic: str) -> bool:
        return topic in self.topics_to_be_deleted


class _Event(NamedTuple):
    name: str
    process: Callable[[], None]
    preempt: Callable[[], None]


@dataclass(eq=False, repr=False)
class ControllerEventManager:
    """A queue of events; each turn of the loop processes one.

    While the broker has no contact with the coordination service, no event is processed; Java's thread would block in
    its next call. Contact cannot be lost during an event, so either all of its calls reach the service or none does.

    Thread: loop.
    """

    _broker: BrokerContext
    _coordination: CoordinationClient
    _on_controller_moved: Callable[[], None]
    _queue: deque[_Event] = field(default_factory=deque)
    _scheduled: bool = False
    _closed: bool = False

    def __post_init__(self) -> None:
        self._log = self._broker.log_context.logger(__name__)

    def put(self, name: str, process: Callable[[], None], preempt: Callable[[], None]) -> None:
        """Queue ``process`` as one event; ``preempt`` is called instead if the broker's session ends first."""
        if not self._closed:
            self._queue.append(_Event(name, process, preempt))
            self.resume()

    def preempt_all(self) -> None:
        """Discard all waiting events, and call their ``preempt``."""
        preempted, self._queue = self._queue, deque()
        for event in preempted:
            event.preempt()

    def close(self) -> None:
        self._closed = True
        self._queue.clear()

    def resume(self) -> None:
        """Process events again: there is a new one, or the service is reachable again."""
        if self._queue and not self._scheduled and not self._closed:
            self._scheduled = True
            self._broker.call_soon(self._process_next)

    def _process_next(self) -> None:
        self._scheduled = False
        if not self._queue or self._closed or not self._coordination.connected:
            return
        event = self._queue.popleft()
        self._log.debug("Processing %s", event.name)
        try:
            event.process()
        except ControllerMovedError as error:
            self._log.info("Not the controller any more, as %s shows: %s", event.name, error)
            self._on_controller_moved()
        finally:
            self.resume()
