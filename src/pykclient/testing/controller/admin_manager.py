"""The admin APIs for topics, on the broker that is the controller (Java: ZkAdminManager, AdminUtils)."""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Container, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple
from uuid import UUID

from pykclient import errors, topic_names
from pykclient.protocol.messages.create_partitions import CreatePartitionsRequest
from pykclient.protocol.messages.create_topics import CreateTopicsRequest
from pykclient.protocol.wire import ZERO_UUID
from pykclient.testing.broker_context import BrokerContext
from pykclient.testing.controller.controller_context import ControllerContext
from pykclient.testing.coordination.coordination_client import KafkaCoordinationClient
from pykclient.testing.coordination.znodes import ReplicaAssignment, TopicAssignment
from pykclient.testing.delayed_operation import DelayedOperation, DelayedOperationPurgatory
from pykclient.testing.log import log_config
from pykclient.testing.metadata_cache import MetadataCache
from pykclient.types import Node, TopicPartition

#: Java's ReplicationControlManager creates no more for a request.
MAX_PARTITIONS_PER_BATCH: Final = 10_000

TOO_MANY_PARTITIONS: Final = "Excessively large number of partitions per request."


def assign_replicas_to_brokers(
    brokers: Sequence[Node],
    num_partitions: int,
    replication_factor: int,
    rng: random.Random,
    *,
    start_partition: int = 0,
    start_index: int | None = None,
) -> dict[int, tuple[int, ...]]:
    """Return the replicas of each partition.

    Leaders rotate over the brokers, and the other replicas of a broker's leaders spread over the other brokers. If all
    brokers have racks, the replicas of a partition are on different racks as far as possible. The first partition
    starts at ``start_index``, or at a random broker.

    Raises:
        InvalidPartitionsError, InvalidReplicationFactorError, PolicyViolationError: the numbers are not possible.
    """
    if num_partitions <= 0:
        raise errors.InvalidPartitionsError("Number of partitions was set to an invalid non-positive value.")
    if num_partitions > MAX_PARTITIONS_PER_BATCH:
        raise errors.PolicyViolationError(TOO_MANY_PARTITIONS)
    if replication_factor <= 0:
        raise errors.InvalidReplicationFactorError(
            "Replication factor must be larger than 0, or -1 to use the default value."
        )
    if replication_factor > len(brokers):
        raise errors.InvalidReplicationFactorError(
            f"Unable to replicate the partition {replication_factor} time(s): The target replication factor of "
            f"{replication_factor} cannot be reached because only {len(brokers)} broker(s) are registered "
            "or some brokers have all their log directories cordoned."
        )
    racks = {broker.id: broker.rack for broker in brokers}
    if None in racks.values():
        ids, rack_count = sorted(racks), 1
        racks = dict.fromkeys(ids, None)
    else:
        ids = rack_alternated_broker_list(brokers)
        rack_count = len(set(racks.values()))
    start = rng.randrange(len(ids)) if start_index is None else start_index
    shift = rng.randrange(len(ids)) if start_index is None else start_index
    assignment: dict[int, tuple[int, ...]] = {}
    for partition in range(start_partition, start_partition + num_partitions):
        if partition > 0 and partition % len(ids) == 0:
            shift += 1
        first = (partition + start) % len(ids)
        assignment[partition] = _replicas(ids, racks, first, shift * rack_count, replication_factor)
    return assignment


def _replicas(
    ids: Sequence[int], racks: dict[int, str | None], first: int, shift: int, replication_factor: int
) -> tuple[int, ...]:
    replicas = [ids[first]]
    rack_count = len(set(racks.values()))
    used_racks = {racks[ids[first]]}
    step = 0
    while len(replicas) < replication_factor:
        id = ids[_replica_index(first, shift, step, len(ids))]
        step += 1
        # Use a rack again only when all racks have been used.
        if id not in replicas and (racks[id] not in used_racks or len(used_racks) == rack_count):
            replicas.append(id)
            used_racks.add(racks[id])
    return tuple(replicas)


def _replica_index(first: int, shift: int, step: int, brokers: int) -> int:
    return (first + 1 + (shift + step) % (brokers - 1)) % brokers


def rack_alternated_broker_list(brokers: Sequence[Node]) -> list[int]:
    """Return one broker of each rack in turn, with racks in the order of their names."""
    by_rack: dict[str, list[int]] = {}
    for broker in sorted(brokers, key=lambda broker: broker.id):
        by_rack.setdefault(broker.rack or "", []).append(broker.id)
    columns = [by_rack[rack] for rack in sorted(by_rack)]
    longest = max(map(len, columns), default=0)
    return [column[row] for row in range(longest) for column in columns if row < len(column)]


def validate_manual_assignment(registered: Container[int], ids: Sequence[int], replication_factor: int | None) -> None:
    """Check that the brokers are registered, different, and as many as required.

    Raises:
        InvalidReplicaAssignmentError: they are not.
    """
    if not ids:
        raise errors.InvalidReplicaAssignmentError("The manual partition assignment includes an empty replica list.")
    for id in ids:
        if ids.count(id) > 1:
            raise errors.InvalidReplicaAssignmentError(
                f"The manual partition assignment includes the broker {id} more than once."
            )
        if id not in registered:
            raise errors.InvalidReplicaAssignmentError(
                f"The manual partition assignment includes broker {id}, but no such broker is registered."
            )
    if replication_factor is not None and len(ids) != replication_factor:
        raise errors.InvalidReplicaAssignmentError(
            f"The manual partition assignment includes a partition with {len(ids)} replica(s), but this is not "
            f"consistent with previous partitions, which have {replication_factor} replica(s)."
        )


#: In a request: use the cluster's default.
_DEFAULT: Final = -1

_MAX_DEFAULT_REPLICATION_FACTOR: Final = 3

#: Java's QuorumController writes no more metadata records for a request.
_MAX_RECORDS: Final = 10_000

# Kafka's wording.
_NO_SUCH_TOPIC: Final = "This server does not host this topic-partition."


class TopicOutcome(NamedTuple):
    """The result for one topic. Without an ``error``, the other fields describe the topic."""

    error: errors.BrokerError | None
    topic_id: UUID = ZERO_UUID
    num_partitions: int = -1
    replication_factor: int = -1
    config: Mapping[str, str] | None = None


class _PlannedTopic(NamedTuple):
    assignment: TopicAssignment
    config: dict[str, str]


Respond = Callable[[Mapping[str, TopicOutcome]], None]


@dataclass(eq=False, repr=False)
class AdminManager:
    """Creates, extends and deletes topics.

    A request is answered when this broker has received the result from itself as the controller, which then has sent it
    to all other brokers as well; or with REQUEST_TIMED_OUT, in which case the operation continues. Thread: loop.
    """

    _broker: BrokerContext
    _context: ControllerContext
    _store: KafkaCoordinationClient
    _metadata_cache: MetadataCache

    def __post_init__(self) -> None:
        self._purgatory = DelayedOperationPurgatory(self._broker)
        self._metadata_cache.add_listener(self._on_metadata_update)

    def shutdown(self) -> None:
        self._purgatory.shutdown()

    def on_topic_deleted(self, topic: str) -> None:
        """Answer the requests that wait until a topic is completely deleted."""
        self._purgatory.check_and_complete(topic)

    def _on_metadata_update(self, topics: Collection[str]) -> None:
        for topic in topics:
            self._purgatory.check_and_complete(topic)

    # --- creating ------------------------------------------------------------------------------------------------

    def create_topics(
        self,
        timeout_ms: int,
        validate_only: bool,
        topics: Sequence[CreateTopicsRequest.CreatableTopic],
        respond: Respond,
    ) -> None:
        """Create the topics that can be created; call ``respond`` with the result of each.

        Raises:
            PolicyViolationError: the request is for too many partitions; none of its topics is created.
        """
        if sum(map(self._num_partitions, topics)) > MAX_PARTITIONS_PER_BATCH:
            raise errors.PolicyViolationError(TOO_MANY_PARTITIONS)
        names = [topic.name for topic in topics]
        outcomes: dict[str, TopicOutcome] = {}
        planned: dict[str, _PlannedTopic] = {}
        for topic in topics:
            try:
                if names.count(topic.name) > 1:
                    raise errors.InvalidRequestError("Duplicate topic name.")
                plan = self._planned_topic(topic, planned)
            except errors.BrokerError as error:
                outcomes[topic.name] = TopicOutcome(error)
                continue
            planned[topic.name] = plan
            topic_id = ZERO_UUID if validate_only else plan.assignment.topic_id
            replicas = plan.assignment.partitions
            outcomes[topic.name] = TopicOutcome(None, topic_id, len(replicas), len(replicas[0].replicas), plan.config)
        # Java's controller writes a record for each topic, setting and partition.
        if sum(1 + len(plan.config) + len(plan.assignment.partitions) for plan in planned.values()) > _MAX_RECORDS:
            raise errors.PolicyViolationError("Unable to perform excessively large batch operation.")
        for name, plan in () if validate_only else planned.items():
            self._store.create_topic(name, plan.assignment, plan.config)
        self._answer_when_known(timeout_ms, validate_only, outcomes, respond, self._is_created)

    def _num_partitions(self, topic: CreateTopicsRequest.CreatableTopic) -> int:
        """Return the number of partitions that a topic asks for; at least 0."""
        if topic.assignments:
            return len(topic.assignments)
        if topic.num_partitions == _DEFAULT:
            return self._broker.config.get_int("num.partitions")
        return max(0, topic.num_partitions)

    def _planned_topic(
        self, topic: CreateTopicsRequest.CreatableTopic, planned: Mapping[str, _PlannedTopic]
    ) -> _PlannedTopic:
        """Return the topic to create, which must not collide with one that exists or is ``planned``.

        Raises:
            BrokerError: the topic cannot be created.
        """
        name = topic.name
        topic_names.validate(name)
        if name == topic_names.CLUSTER_METADATA_TOPIC_NAME:
            raise errors.InvalidRequestError(f"Creation of internal topic {name} is prohibited.")
        existing = self._store.all_topics()
        if name in existing:
            raise errors.TopicExistsError(f"Topic '{name}' already exists.")
        other = topic_names.colliding(name, [*existing, *planned])
        if other is not None:
            raise errors.InvalidTopicError(f"Topic '{name}' collides with existing topic: {other}")
        nulls = [config.name for config in topic.configs if config.value is None]
        if nulls:
            raise errors.InvalidConfigurationError(f"Null value not supported for topic configs: {','.join(nulls)}")
        config = {config.name: config.value for config in topic.configs if config.value is not None}
        log_config.validate(config, has_message_formats=self._broker.profile.has_message_formats)
        partitions = self._manual_assignment(topic) if topic.assignments else self._automatic_assignment(topic)
        topic_id = UUID(int=self._broker.rng.getrandbits(128), version=4)
        replicas = {index: ReplicaAssignment(ids) for index, ids in partitions.items()}
        return _PlannedTopic(TopicAssignment(topic_id, replicas), config)

    def _automatic_assignment(self, topic: CreateTopicsRequest.CreatableTopic) -> dict[int, tuple[int, ...]]:
        context, config = self._context, self._broker.config
        brokers = [context.live_brokers[id] for id in sorted(context.live_broker_ids)]
        replication_factor = topic.replication_factor
        if replication_factor == _DEFAULT:
            replication_factor = config.get_int("default.replication.factor")
            if replication_factor == _DEFAULT:
                replication_factor = min(_MAX_DEFAULT_REPLICATION_FACTOR, len(brokers))
        return assign_replicas_to_brokers(brokers, self._num_partitions(topic), replication_factor, self._broker.rng)

    def _manual_assignment(self, topic: CreateTopicsRequest.CreatableTopic) -> dict[int, tuple[int, ...]]:
        if topic.replication_factor != _DEFAULT:
            raise errors.InvalidRequestError(
                "A manual partition assignment was specified, but replication factor was not set to -1."
            )
        if topic.num_partitions != _DEFAULT:
            raise errors.InvalidRequestError(
                "A manual partition assignment was specified, but numPartitions was not set to -1."
            )
        partitions: dict[int, tuple[int, ...]] = {}
        replication_factor = None
        for assignment in topic.assignments:
            index = assignment.partition_index
            if index in partitions:
                raise errors.InvalidReplicaAssignmentError(
                    f"Found multiple manual partition assignments for partition {index}"
                )
            ids = tuple(assignment.broker_ids)
            validate_manual_assignment(self._context.live_brokers, ids, replication_factor)
            replication_factor = len(ids)
            partitions[index] = ids
        if sorted(partitions) != list(range(len(partitions))):
            raise errors.InvalidReplicaAssignmentError("partitions should be a consecutive 0-based integer sequence")
        return partitions

    def create_partitions(
        self,
        timeout_ms: int,
        validate_only: bool,
        topics: Sequence[CreatePartitionsRequest.CreatePartitionsTopic],
        respond: Respond,
    ) -> None:
        """Add partitions to topics; call ``respond`` with the result of each."""
        names = [topic.name for topic in topics]
        outcomes: dict[str, TopicOutcome] = {}
        # Java's controller makes partitions up to its limit, and answers UNKNOWN_SERVER_ERROR for the rest.
        room = MAX_PARTITIONS_PER_BATCH
        for topic in topics:
            try:
                if names.count(topic.name) > 1:
                    raise errors.InvalidRequestError("Duplicate topic name.")
                existing, added = self._planned_partitions(topic)
                if len(added) > room:
                    raise errors.PolicyViolationError(TOO_MANY_PARTITIONS)
            except errors.BrokerError as error:
                outcomes[topic.name] = TopicOutcome(error)
                continue
            room -= len(added)
            if not validate_only:
                extended = TopicAssignment(existing.topic_id, {**existing.partitions, **added})
                self._store.set_topic_assignment(topic.name, extended)
            replication_factor = len(existing.partitions[0].replicas)
            outcomes[topic.name] = TopicOutcome(None, existing.topic_id, topic.count, replication_factor)
        self._answer_when_known(timeout_ms, validate_only, outcomes, respond, self._is_created)

    def _planned_partitions(
        self, topic: CreatePartitionsRequest.CreatePartitionsTopic
    ) -> tuple[TopicAssignment, dict[int, ReplicaAssignment]]:
        """Return a topic as it is, and the partitions to add.

        Raises:
            BrokerError: they cannot be added.
        """
        existing = self._store.topic_assignment(topic.name)
        if existing is None or self._context.is_topic_queued_up_for_deletion(topic.name):
            raise errors.UnknownTopicOrPartitionError
        count = len(existing.partitions)
        added = topic.count - count
        if added == 0:
            raise errors.InvalidPartitionsError(f"Topic already has {count} partition(s).")
        if added < 0:
            raise errors.InvalidPartitionsError(
                f"The topic {topic.name} currently has {count} partition(s); {topic.count} would not be an increase."
            )
        if any(assignment.is_being_reassigned for assignment in existing.partitions.values()):
            raise errors.ReassignmentInProgressError(
                f"A partition reassignment is in progress for the topic '{topic.name}'."
            )
        replication_factor = len(existing.partitions[0].replicas)
        if topic.assignments:
            if len(topic.assignments) != added:
                raise errors.InvalidReplicaAssignmentError(
                    f"Attempted to add {added} additional partition(s), but only {len(topic.assignments)} "
                    "assignment(s) were specified."
                )
            partitions: dict[int, tuple[int, ...]] = {}
            for offset, assignment in enumerate(topic.assignments):
                ids = tuple(assignment.broker_ids)
                validate_manual_assignment(self._context.live_brokers, ids, replication_factor)
                partitions[count + offset] = ids
        else:
            context = self._context
            brokers = [context.live_brokers[id] for id in sorted(context.live_broker_ids)]
            ids_in_order = [broker.id for broker in brokers]
            first = existing.partitions[0].replicas[0]
            start = ids_in_order.index(first) if first in ids_in_order else 0
            partitions = assign_replicas_to_brokers(
                brokers, added, replication_factor, self._broker.rng, start_partition=count, start_index=start
            )
        return existing, {index: ReplicaAssignment(ids) for index, ids in partitions.items()}

    def _is_created(self, topic: str, outcome: TopicOutcome) -> bool:
        return is_led(self._metadata_cache, topic, outcome.num_partitions)

    # --- deleting ------------------------------------------------------------------------------------------------

    def delete_topics(self, timeout_ms: int, topics: Collection[str], respond: Respond) -> None:
        """Delete topics; call ``respond`` with the result of each."""
        outcomes: dict[str, TopicOutcome] = {}
        for topic in topics:
            if not self._broker.config.get_bool("delete.topic.enable"):
                outcomes[topic] = TopicOutcome(errors.TopicDeletionDisabledError())
            elif self._store.topic_exists(topic):
                self._store.create_delete_topic(topic)
                outcomes[topic] = TopicOutcome(None, self._context.topic_id(topic))
            else:
                outcomes[topic] = TopicOutcome(errors.UnknownTopicOrPartitionError(_NO_SUCH_TOPIC))
        self._answer_when_known(timeout_ms, False, outcomes, respond, self._is_deleted)

    def _is_deleted(self, topic: str, outcome: TopicOutcome) -> bool:  # noqa: ARG002 - as _is_created
        if self._metadata_cache.contains(topic):
            return False
        # Normally wait until a topic of the same name can be created. If that depends on a broker that is down, the
        # topic is deleted for clients all the same.
        context = self._context
        return topic not in context.assignments or topic in context.topics_ineligible_for_deletion

    # --- answering -----------------------------------------------------------------------------------------------

    def _answer_when_known(
        self,
        timeout_ms: int,
        validate_only: bool,
        outcomes: dict[str, TopicOutcome],
        respond: Respond,
        is_known: Callable[[str, TopicOutcome], bool],
    ) -> None:
        pending = [topic for topic, outcome in outcomes.items() if outcome.error is None]
        if validate_only or not pending:
            respond(outcomes)
        elif timeout_ms <= 0:
            timed_out = TopicOutcome(errors.RequestTimedOutError())
            respond({topic: timed_out if topic in pending else outcome for topic, outcome in outcomes.items()})
        else:
            operation = DelayedTopicOperation(timeout_ms, outcomes, respond, is_known)
            self._purgatory.try_complete_else_watch(operation, pending)


@dataclass(eq=False)
class DelayedTopicOperation(DelayedOperation):
    """A response that waits until the broker knows the result (Java: DelayedCreatePartitions). Thread: loop."""

    _outcomes: dict[str, TopicOutcome]
    _respond: Respond
    _is_known: Callable[[str, TopicOutcome], bool]

    def try_complete(self, key: object) -> bool:  # noqa: ARG002 - there are few topics in a request
        if all(self._is_known(topic, outcome) for topic, outcome in self._outcomes.items() if outcome.error is None):
            return self.force_complete()
        return False

    def on_complete(self) -> None:
        self._respond(
            {
                topic: TopicOutcome(errors.RequestTimedOutError())
                if outcome.error is None and not self._is_known(topic, outcome)
                else outcome
                for topic, outcome in self._outcomes.items()
            }
        )


def is_led(cache: MetadataCache, topic: str, num_partitions: int) -> bool:
    """Return whether a broker knows a live leader for ``num_partitions`` partitions of a topic."""
    snapshot = cache.snapshot
    return all(snapshot.leader(TopicPartition(topic, index)) is not None for index in range(num_partitions))
