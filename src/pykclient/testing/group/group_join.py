"""JoinGroup: new members, returning members, and the effects on the others."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pykclient.errors import (
    BrokerError,
    CoordinatorNotAvailableError,
    GroupMaxSizeReachedError,
    InconsistentGroupProtocolError,
    InvalidRequestError,
    MemberIdRequiredError,
    UnknownMemberIdError,
)
from pykclient.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from pykclient.testing.group.group_metadata import UNKNOWN_MEMBER_ID, GroupMetadata
from pykclient.testing.group.group_state import COMPLETING_REBALANCE, DEAD, EMPTY, PREPARING_REBALANCE, STABLE
from pykclient.testing.group.member_metadata import JoinCallback, MemberMetadata, Protocols

if TYPE_CHECKING:
    from pykclient.testing.broker import Broker
    from pykclient.testing.group.group_metadata_manager import GroupMetadataManager
    from pykclient.testing.group.group_rebalance import GroupRebalance

#: From this version on, a new member is rejected with an id, and must join again with it (KIP-394).
REQUIRES_KNOWN_MEMBER_ID = 4
#: From this version on, a returning leader can be told to keep the assignment (KIP-814).
_SUPPORTS_SKIPPING_ASSIGNMENT = 9

#: The time limit for a new member that shows no sign of life. It has no id for heartbeats yet, and its connection is
#: not read meanwhile, so a disconnect would not be noticed. If the member is still alive, it joins again.
_NEW_MEMBER_JOIN_TIMEOUT_MS = 300_000


class JoinAttempt:
    """A JoinGroup request and its sender. Thread: loop."""

    __slots__ = ("api_version", "body", "client_host", "client_id", "protocols", "respond")

    def __init__(
        self, body: JoinGroupRequest, api_version: int, client_id: str, client_host: str, respond: JoinCallback
    ) -> None:
        self.body = body
        self.api_version = api_version
        self.client_id = client_id
        self.client_host = client_host
        self.respond = respond
        self.protocols: Protocols = [(protocol.name, protocol.metadata) for protocol in body.protocols]

    @property
    def rebalance_timeout_ms(self) -> int:
        """The rebalance timeout; in version 0, the session timeout."""
        if self.body.rebalance_timeout_ms < 0:
            return self.body.session_timeout_ms
        return self.body.rebalance_timeout_ms

    @property
    def reason(self) -> str:
        return self.body.reason or "not provided"

    def refuse(self, error: BrokerError, member_id: str) -> None:
        """Respond with an error."""
        self.respond(JoinGroupResponse(member_id=member_id, error_code=error.code))


class GroupJoin:
    """Java: the classicGroupJoin methods of GroupMetadataManager. Thread: loop."""

    __slots__ = ("_broker", "_log", "_manager", "_max_size", "_rebalance")

    def __init__(self, broker: Broker, manager: GroupMetadataManager, rebalance: GroupRebalance) -> None:
        self._broker = broker
        self._manager = manager
        self._rebalance = rebalance
        self._max_size: int = broker.config["group.max.size"]
        self._log = broker.log_context.logger(__name__)

    def join(self, group: GroupMetadata, attempt: JoinAttempt) -> None:
        """Admit the member, or respond with an error."""
        body = attempt.body
        member_id = body.member_id
        try:
            if not self._accepts(group, member_id):
                group.remove(member_id)
                self._rebalance.maybe_complete_join_phase(group)
                member_id = UNKNOWN_MEMBER_ID
                raise GroupMaxSizeReachedError(f"group {group.group_id} has {self._max_size} members (group.max.size)")
            if group.state is DEAD:
                raise CoordinatorNotAvailableError(f"group {group.group_id} is being removed")
            if not group.supports_protocols(body.protocol_type, [name for name, _ in attempt.protocols]):
                raise InconsistentGroupProtocolError(
                    f"no protocol of the member ({body.protocol_type!r}: {[name for name, _ in attempt.protocols]}) "
                    f"is one that all of group {group.group_id} ({group.protocol_type!r}) support"
                )
            if member_id == UNKNOWN_MEMBER_ID:
                self._join_new_member(group, attempt)
            else:
                self._join_existing_member(group, attempt)
        except BrokerError as error:
            attempt.refuse(error, member_id)

    def _accepts(self, group: GroupMetadata, member_id: str) -> bool:
        """Return whether the group has room.

        During a rebalance only members that have joined count, so the last ones are rejected.
        """
        if group.state is PREPARING_REBALANCE:
            member = group.members.get(member_id)
            return (member is not None and member.is_awaiting_join) or group.num_awaiting_join < self._max_size
        if group.state is COMPLETING_REBALANCE or group.state is STABLE:
            return member_id in group.members or len(group.members) < self._max_size
        return True

    def _join_new_member(self, group: GroupMetadata, attempt: JoinAttempt) -> None:
        body = attempt.body
        instance_id = body.group_instance_id
        new_id = group.generate_member_id(attempt.client_id, instance_id, self._broker.rng)
        if instance_id is not None:
            old_id = group.static_members.get(instance_id)
            if old_id is None:
                self._add_member(group, attempt, new_id)
            else:
                self._replace_static_member(group, attempt, instance_id, old_id, new_id)
        elif attempt.api_version >= REQUIRES_KNOWN_MEMBER_ID:
            self._rebalance.expect_pending_member(group, new_id, body.session_timeout_ms)
            attempt.refuse(MemberIdRequiredError(), new_id)
        else:
            self._add_member(group, attempt, new_id)

    def _join_existing_member(self, group: GroupMetadata, attempt: JoinAttempt) -> None:
        member_id = attempt.body.member_id
        if member_id in group.pending_members:
            if attempt.body.group_instance_id is not None:
                raise InvalidRequestError(f"member {member_id} was not static when it got its id")
            self._add_member(group, attempt, member_id)
            return
        member = group.validate_member(member_id, attempt.body.group_instance_id)
        if group.state is EMPTY:
            raise UnknownMemberIdError(f"group {group.group_id} has no member {member_id!r}")
        unchanged = member.matches(attempt.protocols)
        # The response to its last JoinGroup may have been lost.
        joined_already = group.state is COMPLETING_REBALANCE and unchanged
        # A leader that joins again wants a new assignment, because it watches the topics.
        nothing_to_do = group.state is STABLE and unchanged and not group.is_leader(member_id)
        if joined_already or nothing_to_do:
            attempt.respond(self._rebalance.join_response(group, member))
            return
        group.update_member(
            member, attempt.protocols, attempt.rebalance_timeout_ms, attempt.body.session_timeout_ms, attempt.respond
        )
        self._rebalance.maybe_prepare_rebalance(group, f"member {member_id} joined again: {attempt.reason}")

    def _add_member(self, group: GroupMetadata, attempt: JoinAttempt, member_id: str) -> None:
        body = attempt.body
        member = MemberMetadata(
            member_id,
            body.group_instance_id,
            attempt.client_id,
            attempt.client_host,
            attempt.rebalance_timeout_ms,
            body.session_timeout_ms,
            body.protocol_type,
            attempt.protocols,
        )
        member.is_new = True
        if group.is_initial_rebalance:
            group.new_member_added = True
        group.add(member, attempt.respond)
        self._rebalance.reschedule_session(group, member, _NEW_MEMBER_JOIN_TIMEOUT_MS)
        self._rebalance.maybe_prepare_rebalance(group, f"member {member_id} joined: {attempt.reason}")

    def _replace_static_member(
        self, group: GroupMetadata, attempt: JoinAttempt, instance_id: str, old_id: str, new_id: str
    ) -> None:
        """Give a static member that returned without its id a new one.

        It keeps its place and its assignment (KIP-345).
        """
        body = attempt.body
        self._log.info("%r: static member %s, which was %s, is back as %s", group, instance_id, old_id, new_id)
        leader_id = group.leader_id
        member = group.replace_static_member(instance_id, old_id, new_id)
        before = (member.protocols, member.rebalance_timeout_ms, member.session_timeout_ms)
        group.update_member(
            member, attempt.protocols, attempt.rebalance_timeout_ms, body.session_timeout_ms, attempt.respond
        )
        self._rebalance.reschedule_session(group, member)
        if group.state is COMPLETING_REBALANCE:
            # The leader is making its assignment for the old id.
            self._rebalance.prepare_rebalance(group, f"static member {instance_id} is back: {attempt.reason}")
            return
        if group.state is not STABLE:
            self._rebalance.maybe_complete_join_phase(group)
            return
        if group.select_protocol() != group.protocol_name:
            self._rebalance.prepare_rebalance(
                group, f"static member {instance_id} is back and changes the protocol: {attempt.reason}"
            )
            return

        def stored(error_code: int) -> None:
            if group.members.get(new_id) is not member or not member.is_awaiting_join or group.state is not STABLE:
                return  # it already has a response
            if error_code:
                group.answer_join(member, JoinGroupResponse(member_id=UNKNOWN_MEMBER_ID, error_code=error_code))
                group.update_member(member, *before, None)
                group.replace_static_member(instance_id, new_id, old_id)
                self._rebalance.reschedule_session(group, member)
                return
            group.answer_join(member, self._welcome_back(group, member, attempt.api_version, leader_id))
            # Its session may have expired unnoticed while it waited.
            self._rebalance.reschedule_session(group, member)

        self._manager.store_group(
            group, {member.member_id: member.assignment for member in group.members.values()}, stored
        )

    def _welcome_back(
        self, group: GroupMetadata, member: MemberMetadata, api_version: int, former_leader_id: str | None
    ) -> JoinGroupResponse:
        if api_version >= _SUPPORTS_SKIPPING_ASSIGNMENT:
            is_leader = group.is_leader(member.member_id)
            return self._rebalance.join_response(group, member, skip_assignment=is_leader)
        # The member must not believe that it is the leader: it would make an assignment that nobody expects.
        response = self._rebalance.join_response(group, member, with_members=False)
        response.leader = former_leader_id or ""
        return response
