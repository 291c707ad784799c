"""The nodes of a cluster in the coordination service, and the values in them (Java: ZkData)."""

from __future__ import annotations

from base64 import urlsafe_b64encode
from typing import Final, NamedTuple
from uuid import UUID

from pykclient.types import TopicPartition

BROKER_IDS: Final = "/brokers/ids"
BROKER_TOPICS: Final = "/brokers/topics"
CONTROLLER: Final = "/controller"
CONTROLLER_EPOCH: Final = "/controller_epoch"
CONFIG_TOPICS: Final = "/config/topics"
CONFIG_GROUPS: Final = "/config/groups"
CONFIG_CHANGES: Final = "/config/changes"
CONFIG_CHANGE_PREFIX: Final = "/config/changes/config_change_"
DELETE_TOPICS: Final = "/admin/delete_topics"
PRODUCER_ID_BLOCK: Final = "/latest_producer_id_block"
ACLS: Final = "/kafka-acl"
ACL_PREFIX: Final = "/kafka-acl/acl_"
DELEGATION_TOKENS: Final = "/delegation_token/tokens"

#: The nodes that exist before the first broker starts, parents first.
PERSISTENT_PATHS: Final = (
    "/brokers",
    BROKER_IDS,
    BROKER_TOPICS,
    "/config",
    CONFIG_TOPICS,
    CONFIG_GROUPS,
    CONFIG_CHANGES,
    "/admin",
    DELETE_TOPICS,
    PRODUCER_ID_BLOCK,
    ACLS,
    "/delegation_token",
    DELEGATION_TOKENS,
)

#: In place of a leader (Java: LeaderAndIsr.NO_LEADER, LEADER_DURING_DELETE, EPOCH_DURING_DELETE).
NO_LEADER: Final = -1
LEADER_DURING_DELETE: Final = -2
EPOCH_DURING_DELETE: Final = -2

# Java: LeaderRecoveryState.
RECOVERED: Final = 0
RECOVERING: Final = 1


def broker_id_path(broker_id: int) -> str:
    return f"{BROKER_IDS}/{broker_id}"


def topic_path(topic: str) -> str:
    return f"{BROKER_TOPICS}/{topic}"


def topic_partitions_path(topic: str) -> str:
    return f"{BROKER_TOPICS}/{topic}/partitions"


def topic_partition_path(topic_partition: TopicPartition) -> str:
    return f"{BROKER_TOPICS}/{topic_partition.topic}/partitions/{topic_partition.partition}"


def topic_partition_state_path(topic_partition: TopicPartition) -> str:
    return f"{BROKER_TOPICS}/{topic_partition.topic}/partitions/{topic_partition.partition}/state"


def topic_config_path(topic: str) -> str:
    return f"{CONFIG_TOPICS}/{topic}"


def group_config_path(group_id: str) -> str:
    # A group's id may contain any character.
    return f"{CONFIG_GROUPS}/{urlsafe_b64encode(group_id.encode()).decode()}"


def delete_topic_path(topic: str) -> str:
    return f"{DELETE_TOPICS}/{topic}"


def delegation_token_path(token_id: str) -> str:
    return f"{DELEGATION_TOKENS}/{token_id}"


def uuid_to_string(uuid: UUID) -> str:
    """Return a topic id as Kafka writes it: 22 characters of URL-safe base64."""
    return urlsafe_b64encode(uuid.bytes).rstrip(b"=").decode()


class LeaderAndIsr(NamedTuple):
    """The leader and the in-sync replicas of a partition (Java: LeaderAndIsr).

    ``partition_epoch`` is the version of the partition's state node: it counts all changes.
    """

    leader: int
    leader_epoch: int
    isr: tuple[int, ...]
    leader_recovery_state: int
    partition_epoch: int

    def new_leader(self, leader: int) -> LeaderAndIsr:
        return self._replace(leader=leader, leader_epoch=self.leader_epoch + 1)

    def new_leader_and_isr(self, leader: int, isr: tuple[int, ...]) -> LeaderAndIsr:
        return self._replace(leader=leader, isr=isr, leader_epoch=self.leader_epoch + 1)

    def new_epoch(self) -> LeaderAndIsr:
        return self._replace(leader_epoch=self.leader_epoch + 1)

    def equals_allow_stale_partition_epoch(self, other: LeaderAndIsr) -> bool:
        return (
            self.leader == other.leader
            and self.leader_epoch == other.leader_epoch
            and set(self.isr) == set(other.isr)
            and self.leader_recovery_state == other.leader_recovery_state
            and self.partition_epoch <= other.partition_epoch
        )


class LeaderIsrAndControllerEpoch(NamedTuple):
    """A partition's state, and the epoch of the controller that wrote it."""

    leader_and_isr: LeaderAndIsr
    controller_epoch: int


class ReplicaAssignment(NamedTuple):
    """The brokers with a replica of a partition, including those being added and removed (KIP-455)."""

    replicas: tuple[int, ...]
    adding_replicas: tuple[int, ...] = ()
    removing_replicas: tuple[int, ...] = ()

    @property
    def origin_replicas(self) -> tuple[int, ...]:
        return tuple(id for id in self.replicas if id not in self.adding_replicas)

    @property
    def target_replicas(self) -> tuple[int, ...]:
        return tuple(id for id in self.replicas if id not in self.removing_replicas)

    @property
    def is_being_reassigned(self) -> bool:
        return bool(self.adding_replicas or self.removing_replicas)

    def reassign_to(self, target: tuple[int, ...]) -> ReplicaAssignment:
        """Return the assignment with old and new replicas, until the new ones are in sync."""
        origin = self.origin_replicas
        full = (*target, *(id for id in origin if id not in target))
        return ReplicaAssignment(
            full, tuple(id for id in full if id not in origin), tuple(id for id in full if id not in target)
        )


class TopicAssignment(NamedTuple):
    """A topic's id, and the replicas by partition number."""

    topic_id: UUID
    partitions: dict[int, ReplicaAssignment]
