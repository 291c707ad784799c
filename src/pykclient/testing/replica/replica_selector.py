"""The replica that a consumer should read from (Java: ReplicaSelector, RackAwareReplicaSelector; KIP-392)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from pykclient.errors import ConfigError
from pykclient.testing.replica.fetch_params import ClientMetadata


class ReplicaView(NamedTuple):
    """A replica that has the records a consumer wants."""

    broker_id: int
    rack: str | None
    log_end_offset: int
    time_since_last_caught_up_ms: int


class ReplicaSelector(Protocol):
    """A strategy for choosing a replica. Thread: loop."""

    def select(
        self, client: ClientMetadata, leader: ReplicaView, replicas: Sequence[ReplicaView]
    ) -> ReplicaView | None:
        """Return one of ``replicas``, which include the leader; None keeps the consumer where it is."""


class LeaderSelector:
    """Chooses the leader. Thread: loop."""

    __slots__ = ()

    def select(
        self,
        client: ClientMetadata,  # noqa: ARG002 - as the protocol has it
        leader: ReplicaView,
        replicas: Sequence[ReplicaView],  # noqa: ARG002
    ) -> ReplicaView | None:
        return leader


class RackAwareReplicaSelector:
    """Chooses a replica in the consumer's rack: the leader if it is there, else the one with the most records.

    Thread: loop.
    """

    __slots__ = ()

    def select(
        self, client: ClientMetadata, leader: ReplicaView, replicas: Sequence[ReplicaView]
    ) -> ReplicaView | None:
        nearby = [replica for replica in replicas if client.rack_id and replica.rack == client.rack_id]
        if not nearby or leader in nearby:
            return leader
        return max(nearby, key=lambda replica: (replica.log_end_offset, -replica.time_since_last_caught_up_ms))


def replica_selector(class_name: str | None) -> ReplicaSelector | None:
    """Return the selector for ``replica.selector.class``, with or without its Java package; None if it is not set.

    Raises:
        ConfigError: the class is unknown.
    """
    if not class_name:
        return None
    simple_name = class_name.rpartition(".")[2]
    for known in (RackAwareReplicaSelector, LeaderSelector):
        if simple_name == known.__name__:
            return known()
    raise ConfigError(
        f"replica.selector.class {class_name!r} is not known; RackAwareReplicaSelector and LeaderSelector are",
        "replica.selector.class",
    )
