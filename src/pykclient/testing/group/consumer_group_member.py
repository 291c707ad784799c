"""A member of a consumer group in its coordinator's memory, and its way to its target assignment (KIP-848)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from uuid import UUID

    from pykclient.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
    from pykclient.protocol.messages.consumer_protocol_subscription import ConsumerProtocolSubscription
    from pykclient.testing.event_loop import TimerHandle

#: Partitions by topic id.
Partitions = Mapping["UUID", frozenset[int]]

#: The values in records of ConsumerGroupCurrentMemberAssignment.
STABLE: Final = 1
UNREVOKED_PARTITIONS: Final = 2
UNRELEASED_PARTITIONS: Final = 3

#: The epoch of a static member that has left for a while.
LEFT_STATIC_EPOCH: Final = -2


class CurrentAssignment(NamedTuple):
    """The progress of a member towards its target."""

    epoch: int = 0
    previous_epoch: int = -1
    state: int = STABLE
    assigned: Partitions = MappingProxyType({})
    pending_revocation: Partitions = MappingProxyType({})

    def at(self, epoch: int, state: int, assigned: Partitions, pending: Partitions) -> CurrentAssignment:
        """Return the next step, which remembers the epoch of this one."""
        return CurrentAssignment(epoch, self.epoch, state, assigned, pending)

    def next(
        self,
        target_epoch: int,
        target: Partitions,
        reported: Partitions | None,
        is_owned: Callable[[UUID, int], bool],
    ) -> CurrentAssignment:
        """Return the next step towards ``target`` (Java: CurrentAssignmentBuilder).

        ``reported`` are the partitions that the member says it owns, None if the heartbeat did not say.
        ``is_owned(topic_id, partition)`` tells whether any member owns or still has to give up a partition.
        """
        if self.state == STABLE:
            return (
                self
                if self.epoch == target_epoch
                else self._towards(self.epoch, target_epoch, target, reported, is_owned)
            )
        if self.state == UNREVOKED_PARTITIONS:
            if _overlaps(reported, self.pending_revocation):
                return self
            return self._towards(self.epoch + 1, target_epoch, target, reported, is_owned)
        return self._towards(self.epoch, target_epoch, target, reported, is_owned)

    def _towards(
        self,
        epoch: int,
        target_epoch: int,
        target: Partitions,
        reported: Partitions | None,
        is_owned: Callable[[UUID, int], bool],
    ) -> CurrentAssignment:
        kept: dict[UUID, frozenset[int]] = {}
        revoked: dict[UUID, frozenset[int]] = {}
        added: dict[UUID, frozenset[int]] = {}
        is_waiting = False
        for topic_id in {**target, **self.assigned}:
            wanted, assigned = target.get(topic_id, frozenset()), self.assigned.get(topic_id, frozenset())
            free = frozenset(number for number in wanted - assigned if not is_owned(topic_id, number))
            is_waiting = is_waiting or free != wanted - assigned
            for partitions, into in ((assigned & wanted, kept), (assigned - wanted, revoked), (free, added)):
                if partitions:
                    into[topic_id] = partitions
        if revoked and _overlaps(reported, revoked):
            return self.at(epoch, UNREVOKED_PARTITIONS, kept, revoked)
        for topic_id, partitions in added.items():
            kept[topic_id] = kept.get(topic_id, frozenset()) | partitions
        return self.at(target_epoch, UNRELEASED_PARTITIONS if is_waiting else STABLE, kept, {})


class ClassicProtocol(NamedTuple):
    """The settings of a member that uses the classic protocol: the names of its assignors and its subscription."""

    session_timeout_ms: int
    protocols: tuple[tuple[str, bytes], ...]


def _overlaps(reported: Partitions | None, revoked: Partitions) -> bool:
    """Return whether the member may still own any of the revoked partitions."""
    if reported is None:
        return True
    return any(reported.get(topic_id, frozenset()) & partitions for topic_id, partitions in revoked.items())


class ConsumerGroupMember:
    """A member of a consumer group (Java: ConsumerGroupMember).

    ``classic`` is None if it uses the consumer protocol. ``rebalance_timer`` limits the time to give up partitions or,
    with the classic protocol, the time until the next request. Thread: loop.
    """

    __slots__ = (
        "classic",
        "client_host",
        "client_id",
        "current",
        "instance_id",
        "member_id",
        "rack_id",
        "rebalance_timeout_ms",
        "rebalance_timer",
        "server_assignor",
        "session_timer",
        "topic_names",
        "topic_regex",
    )

    def __init__(self, member_id: str, instance_id: str | None = None) -> None:
        self.member_id = member_id
        self.instance_id = instance_id
        self.rack_id: str | None = None
        self.client_id = ""
        self.client_host = ""
        self.rebalance_timeout_ms = -1
        self.topic_names: frozenset[str] = frozenset()
        self.topic_regex = ""
        self.server_assignor: str | None = None
        self.classic: ClassicProtocol | None = None
        self.current = CurrentAssignment()
        self.session_timer: TimerHandle | None = None
        self.rebalance_timer: TimerHandle | None = None

    def settings(self) -> tuple[object, ...]:
        """Return what the member's metadata record contains."""
        return (
            self.instance_id,
            self.rack_id,
            self.client_id,
            self.client_host,
            self.rebalance_timeout_ms,
            self.topic_names,
            self.topic_regex,
            self.server_assignor,
            self.classic,
        )

    def update(self, body: ConsumerGroupHeartbeatRequest, client_id: str, client_host: str) -> None:
        """Apply the fields that a heartbeat has."""
        self.classic = None
        self.client_id = client_id
        self.client_host = client_host
        if body.rack_id is not None:
            self.rack_id = body.rack_id
        if body.rebalance_timeout_ms != -1:
            self.rebalance_timeout_ms = body.rebalance_timeout_ms
        if body.subscribed_topic_names is not None:
            self.topic_names = frozenset(body.subscribed_topic_names)
        if body.subscribed_topic_regex is not None:
            self.topic_regex = body.subscribed_topic_regex
        if body.server_assignor is not None:
            self.server_assignor = body.server_assignor

    def update_classic(
        self,
        classic: ClassicProtocol,
        subscription: ConsumerProtocolSubscription,
        rebalance_timeout_ms: int,
        client_id: str,
        client_host: str,
    ) -> None:
        """Apply the fields of JoinGroup."""
        self.classic = classic
        self.client_id = client_id
        self.client_host = client_host
        self.rack_id = subscription.rack_id or self.rack_id
        self.rebalance_timeout_ms = rebalance_timeout_ms
        self.topic_names = frozenset(subscription.topics)
        self.topic_regex = ""
        self.server_assignor = None

    def copy_settings(self, other: ConsumerGroupMember) -> None:
        """Take over the place of a static member that has left."""
        self.rack_id = other.rack_id
        self.rebalance_timeout_ms = other.rebalance_timeout_ms
        self.topic_names = other.topic_names
        self.topic_regex = other.topic_regex
        self.server_assignor = other.server_assignor
        self.classic = other.classic
        self.current = other.current._replace(epoch=0, previous_epoch=0)

    def cancel_timers(self) -> None:
        """Cancel the timers of the session and of a rebalance."""
        if self.session_timer is not None:
            self.session_timer.cancel()
            self.session_timer = None
        self.cancel_rebalance_timer()

    def cancel_rebalance_timer(self) -> None:
        """Cancel the timer of a rebalance, as the member has taken the step that it waited for."""
        if self.rebalance_timer is not None:
            self.rebalance_timer.cancel()
            self.rebalance_timer = None

    def __repr__(self) -> str:
        instance = "" if self.instance_id is None else f", instance {self.instance_id}"
        return f"<member {self.member_id}{instance}, epoch {self.current.epoch}>"
