"""Typed results of the admin client."""

from __future__ import annotations

from typing import NamedTuple
from uuid import UUID

from pykclient.admin.values import ConfigSourceType, ConfigType
from pykclient.types import Node


class ConfigSynonym(NamedTuple):
    """A place that a configuration value can come from. The first one of a list is in effect."""

    name: str
    value: str | None
    source: ConfigSourceType


class ConfigEntry(NamedTuple):
    """A configuration key, its value, and where the value comes from. A secret's value is None."""

    name: str
    value: str | None
    source: ConfigSourceType
    is_read_only: bool = False
    is_sensitive: bool = False
    type: ConfigType = ConfigType.UNKNOWN
    documentation: str | None = None
    synonyms: tuple[ConfigSynonym, ...] = ()

    @property
    def is_default(self) -> bool:
        """True if the value is Kafka's default."""
        return self.source is ConfigSourceType.DEFAULT_CONFIG


class CreatedTopic(NamedTuple):
    """A topic that was created, or that would be (``validate_only``).

    ``topic_id`` is None if the broker has no topic ids, or nothing was created. The numbers are -1, and ``configs`` is
    empty, if the broker does not tell: it is too old, or the principal may not describe configurations.
    """

    name: str
    topic_id: UUID | None
    num_partitions: int
    replication_factor: int
    configs: dict[str, ConfigEntry]


class TopicDescription(NamedTuple):
    """A topic as the cluster describes it. ``topic_id`` is None if the broker has no topic ids."""

    name: str
    topic_id: UUID | None
    is_internal: bool
    partitions: list[PartitionDescription]
    authorized_operations: list[str] | None


class PartitionDescription(NamedTuple):
    """A partition of a topic. ``leader`` is None while there is none."""

    partition: int
    leader: Node | None
    leader_epoch: int
    replicas: tuple[Node, ...]
    in_sync_replicas: tuple[Node, ...]
    offline_replicas: tuple[Node, ...]


class TopicListing(NamedTuple):
    """A topic in the list of all topics."""

    name: str
    topic_id: UUID | None
    is_internal: bool


class ClusterDescription(NamedTuple):
    """The brokers of the cluster, and one that stands for the controller."""

    cluster_id: str | None
    controller: Node | None
    nodes: tuple[Node, ...]
    authorized_operations: list[str] | None
