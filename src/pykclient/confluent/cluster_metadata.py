"""The cluster's metadata in confluent-kafka's shape."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pykclient import errors
from pykclient.confluent.events import deadline_of, monotonic
from pykclient.confluent.kafka_error import KafkaError, failure

if TYPE_CHECKING:
    from pykclient.admin.kafka_admin_client import KafkaAdminClient

#: The default time limit of a request.
_DEFAULT_MS = 60_000


class ClusterMetadata:
    """The cluster: its id, its controller, and its brokers and topics by id and name."""

    def __init__(self) -> None:
        self.cluster_id: str | None = None
        self.controller_id = -1
        self.brokers: dict[int, BrokerMetadata] = {}
        self.topics: dict[str, TopicMetadata] = {}
        self.orig_broker_id = -1
        self.orig_broker_name: str | None = None

    def __repr__(self) -> str:
        return f"ClusterMetadata({self.cluster_id})"

    def __str__(self) -> str:
        return str(self.cluster_id)


class BrokerMetadata:
    """A broker: its id and its address."""

    def __init__(self) -> None:
        self.id = -1
        self.host: str | None = None
        self.port = -1

    def __repr__(self) -> str:
        return f"BrokerMetadata({self.id}, {self.host}:{self.port})"

    def __str__(self) -> str:
        return f"{self.host}:{self.port}/{self.id}"


class TopicMetadata:
    """A topic: its partitions by number, and the error that stands for them."""

    def __init__(self) -> None:
        self.topic: str | None = None
        self.partitions: dict[int, PartitionMetadata] = {}
        self.error: KafkaError | None = None

    def __repr__(self) -> str:
        error = "" if self.error is None else f", {self.error}"
        return f"TopicMetadata({self.topic}, {len(self.partitions)} partitions{error})"

    def __str__(self) -> str:
        return str(self.topic)


class PartitionMetadata:
    """A partition: the ids of its leader, its replicas and its in-sync replicas."""

    def __init__(self) -> None:
        self.id = -1
        self.leader = -1
        self.replicas: list[int] = []
        self.isrs: list[int] = []
        self.error: KafkaError | None = None

    def __repr__(self) -> str:
        error = "" if self.error is None else f", {self.error}"
        return f"PartitionMetadata({self.id}{error})"

    def __str__(self) -> str:
        return str(self.id)


class GroupMember:
    """A member of a group; ``metadata`` and ``assignment`` are bytes of the group's protocol."""

    def __init__(self) -> None:
        self.id: str | None = None
        self.client_id: str | None = None
        self.client_host: str | None = None
        self.metadata: bytes | None = None
        self.assignment: bytes | None = None


class GroupMetadata:
    """A group: its coordinator, state, protocol and members."""

    def __init__(self) -> None:
        self.broker: BrokerMetadata | None = None
        self.id: str | None = None
        self.error: KafkaError | None = None
        self.state: str | None = None
        self.protocol_type: str | None = None
        self.protocol: str | None = None
        self.members: list[GroupMember] = []

    def __repr__(self) -> str:
        error = "" if self.error is None else f", {self.error}"
        return f"GroupMetadata({self.id}{error})"

    def __str__(self) -> str:
        return str(self.id)


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
    response = _metadata(admin, None if topic is None else [topic], timeout, "Failed to get metadata")
    cluster = ClusterMetadata()
    cluster.cluster_id = response.cluster_id
    cluster.controller_id = response.controller_id
    for broker in response.brokers:
        cluster.brokers[broker.node_id] = made = BrokerMetadata()
        made.id, made.host, made.port = broker.node_id, broker.host, broker.port
    if response.brokers:
        first = response.brokers[0]
        cluster.orig_broker_id = first.node_id
        cluster.orig_broker_name = f"{first.host}:{first.port}/{first.node_id}"
    for found in response.topics:
        if found.name is not None:
            cluster.topics[found.name] = _topic(found)
    return cluster


def _topic(found: Any) -> TopicMetadata:
    topic = TopicMetadata()
    topic.topic, topic.error = found.name, _error(found.error_code)
    for each in found.partitions:
        partition = topic.partitions[each.partition_index] = PartitionMetadata()
        partition.id, partition.leader = each.partition_index, each.leader_id
        partition.replicas, partition.isrs = list(each.replica_nodes), list(each.isr_nodes)
        partition.error = _error(each.error_code)
    return topic


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


def _metadata(admin: KafkaAdminClient, topics: list[str] | None, timeout: float, prefix: str) -> Any:
    from pykclient.admin.topics import all_metadata, topic_keys

    keys = None if topics is None else topic_keys(topics)
    try:
        return admin._run(all_metadata("list_topics", keys), limit_ms(timeout))
    except errors.KafkaTimeoutError as error:
        raise failure(KafkaError._TRANSPORT, f"{prefix}: Local: Broker transport failure: {error}") from error
    except errors.KafkaError as error:
        raise failure(KafkaError._FAIL, f"{prefix}: {error}") from error
