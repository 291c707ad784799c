"""A group member in its coordinator's memory."""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence
from typing import TYPE_CHECKING

from pykclient.errors import IllegalArgumentError
from pykclient.protocol.messages.join_group import JoinGroupResponse
from pykclient.protocol.messages.sync_group import SyncGroupResponse

if TYPE_CHECKING:
    from pykclient.testing.event_loop import TimerHandle

JoinCallback = Callable[[JoinGroupResponse], None]
SyncCallback = Callable[[SyncGroupResponse], None]
#: Names of protocols and the member's metadata for each, the preferred one first.
Protocols = Sequence[tuple[str, bytes]]


class MemberMetadata:
    """A group member (Java: ClassicGroupMember).

    ``awaiting_join`` and ``awaiting_sync`` answer the member's waiting request, if there is one. ``is_new`` is True
    until the member's first JoinGroup is answered: before, it does not know its id and cannot send heartbeats. The
    session ends at ``deadline_ms``; ``session_timer`` fires at ``timer_due_ms``, which may be earlier.

    Thread: loop
    """

    __slots__ = (
        "assignment",
        "awaiting_join",
        "awaiting_sync",
        "client_host",
        "client_id",
        "deadline_ms",
        "group_instance_id",
        "is_new",
        "member_id",
        "protocol_type",
        "protocols",
        "rebalance_timeout_ms",
        "session_timeout_ms",
        "session_timer",
        "timer_due_ms",
    )

    def __init__(
        self,
        member_id: str,
        group_instance_id: str | None,
        client_id: str,
        client_host: str,
        rebalance_timeout_ms: int,
        session_timeout_ms: int,
        protocol_type: str,
        protocols: Protocols,
        assignment: bytes = b"",
    ) -> None:
        self.member_id = member_id
        self.group_instance_id = group_instance_id
        self.client_id = client_id
        self.client_host = client_host
        self.rebalance_timeout_ms = rebalance_timeout_ms
        self.session_timeout_ms = session_timeout_ms
        self.protocol_type = protocol_type
        self.protocols = protocols
        self.assignment = assignment
        self.is_new = False
        self.awaiting_join: JoinCallback | None = None
        self.awaiting_sync: SyncCallback | None = None
        self.deadline_ms = 0
        self.session_timer: TimerHandle | None = None
        self.timer_due_ms = 0

    @property
    def is_static_member(self) -> bool:
        return self.group_instance_id is not None

    @property
    def is_awaiting_join(self) -> bool:
        return self.awaiting_join is not None

    @property
    def has_satisfied_heartbeat(self) -> bool:
        """True if the member counts as alive without heartbeats because it waits for the coordinator.

        New members do not count: their connection may be long gone, and they cannot send heartbeats.
        """
        return not self.is_new and (self.awaiting_join is not None or self.awaiting_sync is not None)

    def metadata(self, protocol: str) -> bytes:
        """Return the member's metadata for ``protocol``.

        Raises:
            IllegalArgumentError: the member does not support the protocol.
        """
        for name, data in self.protocols:
            if name == protocol:
                return data
        raise IllegalArgumentError(f"member {self.member_id} does not support protocol {protocol!r}")

    def matches(self, protocols: Protocols) -> bool:
        """Return whether the member has exactly these protocols, with the same order and metadata."""
        return list(protocols) == list(self.protocols)

    def vote(self, candidates: Container[str]) -> str:
        """Return the first of the member's protocols that is a candidate.

        Raises:
            IllegalArgumentError: none is.
        """
        for name, _ in self.protocols:
            if name in candidates:
                return name
        raise IllegalArgumentError(f"member {self.member_id} supports none of the group's protocols")

    def answer_join(self, response: JoinGroupResponse) -> bool:
        """Answer the waiting JoinGroup request; return False if there is none.

        Call it through the group, which counts them.
        """
        respond, self.awaiting_join = self.awaiting_join, None
        if respond is None:
            return False
        respond(response)
        return True

    def answer_sync(self, response: SyncGroupResponse) -> bool:
        """Answer the waiting SyncGroup request; return False if there is none."""
        respond, self.awaiting_sync = self.awaiting_sync, None
        if respond is None:
            return False
        respond(response)
        return True

    def __repr__(self) -> str:
        instance = "" if self.group_instance_id is None else f", instance {self.group_instance_id}"
        return f"<member {self.member_id}{instance}>"
