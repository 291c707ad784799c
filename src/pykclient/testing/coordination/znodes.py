"""The nodes of a cluster in the coordination service, and what brokers read of their JSON contents (Java: ZkData)."""

from __future__ import annotations

import json
from base64 import urlsafe_b64decode, urlsafe_b64encode
from typing import Any, Final, NamedTuple
from uuid import UUID

from pykclient.types import Node, TopicPartition

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
CLUSTER_ID: Final = "/cluster/id"
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
    "/cluster",
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


def encode(data: dict[str, Any]) -> bytes:
    return json.dumps(data, separators=(",", ":")).encode()


def decode(data: bytes) -> dict[str, Any]:
    decoded: dict[str, Any] = json.loads(data)
    return decoded


def uuid_to_string(uuid: UUID) -> str:
    """Return a topic id as Kafka writes it: 22 characters of URL-safe base64."""
    return urlsafe_b64encode(uuid.bytes).rstrip(b"=").decode()


def uuid_from_string(text: str) -> UUID:
    return UUID(bytes=urlsafe_b64decode(text + "=="))


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

    def new_recovering_leader_and_isr(self, leader: int, isr: tuple[int, ...]) -> LeaderAndIsr:
        """Return the state for a leader that was not in sync: records that only others had are lost (KIP-704)."""
        return self._replace(
            leader=leader, isr=isr, leader_epoch=self.leader_epoch + 1, leader_recovery_state=RECOVERING
        )

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


def encode_broker(node: Node) -> bytes:
    return encode({"host": node.host, "port": node.port, "rack": node.rack})


def decode_broker(broker_id: int, data: bytes) -> Node:
    broker = decode(data)
    return Node(broker_id, broker["host"], broker["port"], broker["rack"])


def encode_controller(broker_id: int) -> bytes:
    return encode({"brokerid": broker_id})


def decode_controller(data: bytes) -> int:
    return int(decode(data)["brokerid"])


def encode_topic(assignment: TopicAssignment) -> bytes:
    partitions = assignment.partitions.items()
    return encode(
        {
            "version": 3,
            "topic_id": uuid_to_string(assignment.topic_id),
            "partitions": {str(partition): replicas.replicas for partition, replicas in partitions},
            "adding_replicas": {str(p): r.adding_replicas for p, r in partitions if r.adding_replicas},
            "removing_replicas": {str(p): r.removing_replicas for p, r in partitions if r.removing_replicas},
        }
    )


def decode_topic(data: bytes) -> TopicAssignment:
    topic = decode(data)
    adding, removing = topic["adding_replicas"], topic["removing_replicas"]
    return TopicAssignment(
        uuid_from_string(topic["topic_id"]),
        {
            int(partition): ReplicaAssignment(
                tuple(replicas), tuple(adding.get(partition, ())), tuple(removing.get(partition, ()))
            )
            for partition, replicas in topic["partitions"].items()
        },
    )


def encode_partition_state(state: LeaderAndIsr, controller_epoch: int) -> bytes:
    return encode(
        {
            "version": 1,
            "controller_epoch": controller_epoch,
            "leader": state.leader,
            "leader_epoch": state.leader_epoch,
            "isr": state.isr,
            "leader_recovery_state": state.leader_recovery_state,
        }
    )


def decode_partition_state(data: bytes, version: int) -> LeaderIsrAndControllerEpoch:
    """Decode a partition's state; ``version`` is the node's version."""
    state = decode(data)
    leader_and_isr = LeaderAndIsr(
        state["leader"], state["leader_epoch"], tuple(state["isr"]), state["leader_recovery_state"], version
    )
    return LeaderIsrAndControllerEpoch(leader_and_isr, state["controller_epoch"])


def encode_config(config: dict[str, str]) -> bytes:
    return encode({"version": 1, "config": config})


def decode_config(data: bytes) -> dict[str, str]:
    config: dict[str, str] = decode(data)["config"]
    return config


def encode_config_change(entity_path: str) -> bytes:
    """Encode a notification; ``entity_path`` is, for example, ``topics/orders``."""
    return encode({"version": 2, "entity_path": entity_path})


def decode_config_change(data: bytes) -> str:
    return str(decode(data)["entity_path"])


def encode_producer_id_block(broker_id: int, first: int, last: int) -> bytes:
    return encode({"version": 1, "broker": broker_id, "block_start": str(first), "block_end": str(last)})


def decode_producer_id_block_end(data: bytes) -> int:
    """Return the last producer id that was ever allocated."""
    return int(decode(data)["block_end"])
