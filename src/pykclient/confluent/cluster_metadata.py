"""The cluster's metadata in confluent-kafka's shape."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pykclient import errors
from pykclient.confluent.events import deadline_of, monotonic
from pykclient.confluent.kafka_error import KafkaError, failure

if TYPE_CHECKING:
    from pykclient.admin.kafka_admin_client import KafkaAdminClient

#: The default time limit of a request.
_DEFAULT_MS = 60_000


@dataclass(eq=False, repr=False)
class ClusterMetadata:
    """The cluster: its id, its controller, and its brokers and topics by id and name."""

    cluster_id: str | None = None
    controller_id: int = -1
    brokers: dict[int, BrokerMetadata] = field(default_factory=dict)
    topics: dict[str, TopicMetadata] = field(default_factory=dict)
    orig_broker_id: int = -1
    orig_broker_name: str | None = None

    def __repr__(self) -> str:
        return f"ClusterMetadata({self.cluster_id})"

    def __str__(self) -> str:
        return str(self.cluster_id)


@dataclass(eq=False, repr=False)
class BrokerMetadata:
    """A broker: its id and its address."""

    id: int = -1
    host: str | None = None
    port: int = -1

    def __repr__(self) -> str:
        return f"BrokerMetadata({self.id}, {self.host}:{self.port})"

    def __str__(self) -> str:
        return f"{self.host}:{self.port}/{self.id}"


@dataclass(eq=False, repr=False)
class TopicMetadata:
    """A topic: its partitions by number, and the error that stands for them."""

    topic: str | None = None
    partitions: dict[int, PartitionMetadata] = field(default_factory=dict)
    error: KafkaError | None = None

    def __repr__(self) -> str:
        return f"TopicMetadata({self.topic}, {len(self.partitions)} partitions{_shown(self.error)})"

    def __str__(self) -> str:
        return str(self.topic)


@dataclass(eq=False, repr=False)
class PartitionMetadata:
    """A partition: the ids of its leader, its replicas and its in-sync replicas."""

    id: int = -1
    leader: int = -1
    replicas: list[int] = field(default_factory=list)
    isrs: list[int] = field(default_factory=list)
    error: KafkaError | None = None

    def __repr__(self) -> str:
        return f"PartitionMetadata({self.id}{_shown(self.error)})"

    def __str__(self) -> str:
        return str(self.id)


@dataclass(eq=False, repr=False)
class GroupMember:
    """A member of a group; ``metadata`` and ``assignment`` are bytes of the group's protocol."""

    id: str | None = None
    client_id: str | None = None
    client_host: str | None = None
    metadata: bytes | None = None
    assignment: bytes | None = None


@dataclass(eq=False, repr=False)
class GroupMetadata:
    """A group: its coordinator, state, protocol and members."""

    broker: BrokerMetadata | None = None
    id: str | None = None
    error: KafkaError | None = None
    state: str | None = None
    protocol_type: str | None = None
    protocol: str | None = None
    members: list[GroupMember] = field(default_factory=list)

    def __repr__(self) -> str:
        return f"GroupMetadata({self.id}{_shown(self.error)})"

    def __str__(self) -> str:
        return str(self.id)


def _shown(error: KafkaError | None) -> str:
    return "" if error is None else f", {error}"


def _error(code: int) -> KafkaError | None:
    return KafkaError(code) if code else None


def limit_ms(timeout: float) -> int:
    """Return the time limit of a request in milliseconds; a negative timeout, in seconds, stands for the default."""
    deadline = deadline_of(timeout)
    return _DEFAULT_MS if deadline is None else max(1, int((deadline - monotonic()) * 1000))


def list_topics(admin: KafkaAdminClient, topic: str | None, timeout: float) -> ClusterMetadata:
    """Return the metadata of ``topic``, or of all topics.

    Raises:
        KafkaException: no broker responded within ``timeout`` seconds.
    """
    from pykclient.admin.topics import all_metadata, topic_keys

    keys = None if topic is None else topic_keys([topic])
    prefix = "Failed to get metadata"
    try:
        response: Any = admin._run(all_metadata("list_topics", keys), limit_ms(timeout))
    except errors.KafkaTimeoutError as error:
        raise failure(KafkaError._TRANSPORT, f"{prefix}: Local: Broker transport failure: {error}") from error
    except errors.KafkaError as error:
        raise failure(KafkaError._FAIL, f"{prefix}: {error}") from error
    brokers = {each.node_id: BrokerMetadata(each.node_id, each.host, each.port) for each in response.brokers}
    topics = {found.name: _topic(found) for found in response.topics if found.name is not None}
    cluster = ClusterMetadata(response.cluster_id, response.controller_id, brokers, topics)
    if response.brokers:
        first = brokers[response.brokers[0].node_id]
        cluster.orig_broker_id, cluster.orig_broker_name = first.id, str(first)
    return cluster


def _topic(found: Any) -> TopicMetadata:
    partitions = {
        each.partition_index: PartitionMetadata(
            each.partition_index,
            each.leader_id,
            list(each.replica_nodes),
            list(each.isr_nodes),
            _error(each.error_code),
        )
        for each in found.partitions
    }
    return TopicMetadata(found.name, partitions, _error(found.error_code))


def cluster_id(admin: KafkaAdminClient, timeout: float) -> str:
    """Return the id of the cluster.

    Raises:
        KafkaException: no broker responded within ``timeout`` seconds.
    """
    deadline_of(timeout)  # a TypeError for what is no number
    try:
        found = admin.typed.describe_cluster(timeout_ms=limit_ms(timeout)).cluster_id
    except errors.KafkaError as error:
        raise failure(KafkaError._TIMED_OUT, f"Failed to retrieve cluster id: Local: Timed out. {error}") from error
    if found is None:
        raise failure(KafkaError._TIMED_OUT, "Failed to retrieve cluster id: the broker has none")
    return found
