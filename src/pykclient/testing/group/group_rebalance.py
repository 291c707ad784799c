"""The steps from one generation of a classic group to the next: JoinGroup and SyncGroup."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from pykclient import errors
from pykclient.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from pykclient.protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse
from pykclient.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from pykclient.testing.broker_context import BrokerContext
from pykclient.testing.group.group_metadata import (
    COMPLETING_REBALANCE,
    DEAD,
    EMPTY,
    PREPARING_REBALANCE,
    STABLE,
    UNKNOWN_MEMBER_ID,
    GroupMetadata,
    JoinCallback,
    MemberMetadata,
    Protocols,
    SyncCallback,
)
from pykclient.testing.group.group_metadata_manager import GroupMetadataManager, ignore


class GroupRebalance:
    """The two barriers of a rebalance, and members' sessions (Java: in GroupMetadataManager).

    Joining: all known members must join within the longest of their rebalance timeouts. The first members of an empty
    group get ``group.initial.rebalance.delay.ms`` instead, again for each new member. A member that does not join is
    removed, unless it is static. Syncing: all joined members ask for their assignment, which they get once the leader's
    is in the log.

    After a pause of the broker, a cancelled timer may still fire. So timer callbacks check whether there is anything to
    do.

    Thread: loop
    """

    def __init__(self, broker: BrokerContext, manager: GroupMetadataManager) -> None:
        self._broker = broker
        self._manager = manager
        self._max_size: int = broker.config["group.max.size"]
        self._initial_delay_ms: int = broker.config["group.initial.rebalance.delay.ms"]
        self._log = broker.log_context.logger(__name__)

    # --- sessions

    def reschedule_session(self, group: GroupMetadata, member: MemberMetadata, timeout_ms: int | None = None) -> None:
        """Restart the member's session after a sign of life."""
        if timeout_ms is None:
            timeout_ms = member.session_timeout_ms
        member.deadline_ms = self._broker.loop.now_ms + timeout_ms
        timer = member.session_timer
        # Heartbeats are frequent, expired sessions rare: a timer that fires too early is set again then.
        if timer is not None and timer.active:
            if member.timer_due_ms <= member.deadline_ms:
                return
            timer.cancel()
        self._arm(group, member)

    def _arm(self, group: GroupMetadata, member: MemberMetadata) -> None:
        member.timer_due_ms = member.deadline_ms
        delay_ms = member.deadline_ms - self._broker.loop.now_ms
        member.session_timer = self._broker.call_later(delay_ms, self._expire_session, group, member)

    def _expire_session(self, group: GroupMetadata, member: MemberMetadata) -> None:
        if group.members.get(member.member_id) is not member or group.state is DEAD:
            return
        if member.deadline_ms > self._broker.loop.now_ms:
            if member.session_timer is None or not member.session_timer.active:
                self._arm(group, member)
        elif not member.has_satisfied_heartbeat:
            self._log.info("%r was not heard of for %d ms, removing %r", group, member.session_timeout_ms, member)
            group.remove(member.member_id)
            self.update_after_removal(group, f"session of member {member.member_id} expired")

    def expect_pending_member(self, group: GroupMetadata, member_id: str, session_timeout_ms: int) -> None:
        """Expect a member that was given its id to join within its session timeout."""
        timer = self._broker.call_later(session_timeout_ms, self._expire_pending_member, group, member_id)
        group.pending_members[member_id] = timer

    def _expire_pending_member(self, group: GroupMetadata, member_id: str) -> None:
        if group.remove_pending_member(member_id):
            self._log.info("%r: member %s got its id and did not join with it", group, member_id)
            self.maybe_complete_join_phase(group)

    def update_after_removal(self, group: GroupMetadata, reason: str) -> None:
        """Rebalance after members were removed, or stop waiting for them."""
        if group.state is STABLE or group.state is COMPLETING_REBALANCE:
            self.prepare_rebalance(group, reason)
        else:
            self.maybe_complete_join_phase(group)

    # --- joining

    def maybe_prepare_rebalance(self, group: GroupMetadata, reason: str) -> None:
        """Start a rebalance, or check whether the current one is complete."""
        if group.can_rebalance:
            self.prepare_rebalance(group, reason)
        else:
            self.maybe_complete_join_phase(group)

    def prepare_rebalance(self, group: GroupMetadata, reason: str) -> None:
        """Start a rebalance: all members must join again."""
        if group.state is COMPLETING_REBALANCE:
            self._refuse_assignment(group, errors.RebalanceInProgressError.code)
        _cancel_sync_timer(group)
        group.transition_to(PREPARING_REBALANCE, self._broker.loop.wall_ms)
        self._log.info("Preparing to rebalance %r: %s", group, reason)
        if group.is_initial_rebalance:
            delay_ms = self._initial_delay_ms
            self._schedule_initial_join(group, delay_ms, max(0, group.rebalance_timeout_ms - delay_ms))
        elif group.has_all_members_joined:
            self._complete_join(group)
        else:
            self._schedule_join(group)

    def _schedule_join(self, group: GroupMetadata) -> None:
        group.rebalance_timer = self._broker.call_later(
            group.rebalance_timeout_ms, self._expire_join, group, group.generation_id
        )

    def _expire_join(self, group: GroupMetadata, generation_id: int) -> None:
        if group.state is PREPARING_REBALANCE and group.generation_id == generation_id:
            self._complete_join(group)

    def _schedule_initial_join(self, group: GroupMetadata, delay_ms: int, remaining_ms: int) -> None:
        group.new_member_added = False
        group.rebalance_timer = self._broker.call_later(
            delay_ms, self._expire_initial_join, group, group.generation_id, delay_ms, remaining_ms
        )

    def _expire_initial_join(self, group: GroupMetadata, generation_id: int, delay_ms: int, remaining_ms: int) -> None:
        if not group.is_initial_rebalance or group.generation_id != generation_id:
            return
        if group.new_member_added and remaining_ms:
            next_delay_ms = min(self._initial_delay_ms, remaining_ms)
            self._schedule_initial_join(group, next_delay_ms, max(0, remaining_ms - delay_ms))
        else:
            self._complete_join(group)

    def maybe_complete_join_phase(self, group: GroupMetadata) -> None:
        """Complete the join phase if all members have joined and the initial delay is over."""
        if group.state is PREPARING_REBALANCE and not group.is_initial_rebalance and group.has_all_members_joined:
            self._complete_join(group)

    def _complete_join(self, group: GroupMetadata) -> None:
        if group.rebalance_timer is not None:
            group.rebalance_timer.cancel()
        late = [member for member in group.not_yet_rejoined() if member.instance_id is None]
        for member in late:
            group.remove(member.member_id)
        if late:
            self._log.info("%r rebalances without %r, which did not join in time", group, late)
        if group.members and not group.maybe_elect_new_joined_leader():
            # Only static members, and all are away: they have the rest of their sessions to return.
            self._schedule_join(group)
            return
        group.init_next_generation(self._broker.loop.wall_ms)
        if group.state is EMPTY:
            self._log.info("%r has no members any more", group)
            # If this fails, a new coordinator waits for the old members until their sessions expire, no longer.
            self._manager.store_group(group, {}, ignore)
            return
        self._log.info("%r: all have joined", group)
        for member in list(group.members.values()):
            member.answer_join(self.join_response(group, member))
            self.reschedule_session(group, member)
            member.is_new = False
            group.pending_sync_members[member.member_id] = None
        group.sync_timer = self._broker.call_later(
            group.rebalance_timeout_ms, self._expire_sync, group, group.generation_id
        )

    @staticmethod
    def join_response(
        group: GroupMetadata, member: MemberMetadata, *, with_members: bool = True, skip_assignment: bool = False
    ) -> JoinGroupResponse:
        """Return the JoinGroup response for ``member``; the leader's lists all members."""
        return JoinGroupResponse(
            generation_id=group.generation_id,
            protocol_type=group.protocol_type,
            protocol_name=group.protocol_name,
            leader=group.leader_id or "",
            skip_assignment=skip_assignment,
            member_id=member.member_id,
            members=group.current_members() if with_members and group.is_leader(member.member_id) else (),
        )

    def join(self, group: GroupMetadata, attempt: JoinAttempt) -> None:
        """Admit the member, or respond with an error."""
        body = attempt.body
        member_id = body.member_id
        try:
            if not self._accepts(group, member_id):
                group.remove(member_id)
                self.maybe_complete_join_phase(group)
                member_id = UNKNOWN_MEMBER_ID
                raise errors.GroupMaxSizeReachedError(
                    f"group {group.group_id} has {self._max_size} members (group.max.size)"
                )
            if group.state is DEAD:
                raise errors.CoordinatorNotAvailableError(f"group {group.group_id} is being removed")
            if not group.supports_protocols(body.protocol_type, [name for name, _ in attempt.protocols]):
                raise errors.InconsistentGroupProtocolError(
                    f"no protocol of the member ({body.protocol_type!r}: {[name for name, _ in attempt.protocols]}) "
                    f"is one that all of group {group.group_id} ({group.protocol_type!r}) support"
                )
            if member_id == UNKNOWN_MEMBER_ID:
                self._join_new_member(group, attempt)
            else:
                self._join_existing_member(group, attempt)
        except errors.BrokerError as error:
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
            self.expect_pending_member(group, new_id, body.session_timeout_ms)
            attempt.refuse(errors.MemberIdRequiredError(), new_id)
        else:
            self._add_member(group, attempt, new_id)

    def _join_existing_member(self, group: GroupMetadata, attempt: JoinAttempt) -> None:
        member_id = attempt.body.member_id
        if member_id in group.pending_members:
            if attempt.body.group_instance_id is not None:
                raise errors.InvalidRequestError(f"member {member_id} was not static when it got its id")
            self._add_member(group, attempt, member_id)
            return
        member = group.member(member_id, attempt.body.group_instance_id)
        if group.state is EMPTY:
            raise errors.UnknownMemberIdError(f"group {group.group_id} has no member {member_id!r}")
        unchanged = member.matches(attempt.protocols)
        # The response to its last JoinGroup may have been lost.
        joined_already = group.state is COMPLETING_REBALANCE and unchanged
        # A leader that joins again wants a new assignment, because it watches the topics.
        nothing_to_do = group.state is STABLE and unchanged and not group.is_leader(member_id)
        if joined_already or nothing_to_do:
            attempt.respond(self.join_response(group, member))
            return
        group.update_member(
            member, attempt.protocols, attempt.rebalance_timeout_ms, attempt.body.session_timeout_ms, attempt.respond
        )
        self.maybe_prepare_rebalance(group, f"member {member_id} joined again: {attempt.reason}")

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
        self.reschedule_session(group, member, _NEW_MEMBER_JOIN_TIMEOUT_MS)
        self.maybe_prepare_rebalance(group, f"member {member_id} joined: {attempt.reason}")

    def _replace_static_member(
        self, group: GroupMetadata, attempt: JoinAttempt, instance_id: str, old_id: str, new_id: str
    ) -> None:
        """Give a static member that returned without its id a new one.

        It keeps its place and its assignment (KIP-345).
        """
        body = attempt.body
        self._log.info("%r: static member %s, which was %s, is back as %s", group, instance_id, old_id, new_id)
        leader_id = group.leader_id
        member = group.replace_static_member(old_id, new_id)
        before = (member.protocols, member.rebalance_timeout_ms, member.session_timeout_ms)
        group.update_member(
            member, attempt.protocols, attempt.rebalance_timeout_ms, body.session_timeout_ms, attempt.respond
        )
        self.reschedule_session(group, member)
        if group.state is COMPLETING_REBALANCE:
            # The leader is making its assignment for the old id.
            self.prepare_rebalance(group, f"static member {instance_id} is back: {attempt.reason}")
            return
        if group.state is not STABLE:
            self.maybe_complete_join_phase(group)
            return
        if group.select_protocol() != group.protocol_name:
            self.prepare_rebalance(
                group, f"static member {instance_id} is back and changes the protocol: {attempt.reason}"
            )
            return

        def stored(error_code: int) -> None:
            if group.members.get(new_id) is not member or not member.is_awaiting_join or group.state is not STABLE:
                return  # it already has a response
            if error_code:
                member.answer_join(JoinGroupResponse(member_id=UNKNOWN_MEMBER_ID, error_code=error_code))
                group.update_member(member, *before, None)
                group.replace_static_member(new_id, old_id)
                self.reschedule_session(group, member)
                return
            member.answer_join(self._welcome_back(group, member, attempt.api_version, leader_id))
            # Its session may have expired unnoticed while it waited.
            self.reschedule_session(group, member)

        self._manager.store_group(
            group, {member.member_id: member.assignment for member in group.members.values()}, stored
        )

    def _welcome_back(
        self, group: GroupMetadata, member: MemberMetadata, api_version: int, former_leader_id: str | None
    ) -> JoinGroupResponse:
        if api_version >= _SUPPORTS_SKIPPING_ASSIGNMENT:
            is_leader = group.is_leader(member.member_id)
            return self.join_response(group, member, skip_assignment=is_leader)
        # The member must not believe that it is the leader: it would make an assignment that nobody expects.
        response = self.join_response(group, member, with_members=False)
        response.leader = former_leader_id or ""
        return response

    # --- syncing

    def sync(self, group: GroupMetadata, body: SyncGroupRequest, respond: SyncCallback) -> None:
        """Handle SyncGroup; the leader's contains the assignments of all.

        Raises:
            UnknownMemberIdError, FencedInstanceIdError, IllegalGenerationError, InconsistentGroupProtocolError,
                RebalanceInProgressError, CoordinatorNotAvailableError: the request does not fit the group's state.
        """
        member = self._validate_sync(group, body)
        if group.state is PREPARING_REBALANCE:
            raise errors.RebalanceInProgressError(f"group {group.group_id} is rebalancing: join again")
        self._remove_pending_sync_member(group, member)
        if group.state is STABLE:
            self.reschedule_session(group, member)
            respond(_assignment_of(group, member))
            return
        # The waiting request was sent before this one, and nobody will read its response.
        member.answer_sync(SyncGroupResponse(error_code=errors.RebalanceInProgressError.code))
        member.awaiting_sync = respond
        if group.is_leader(member.member_id):
            self._store_assignment(group, {one.member_id: one.assignment for one in body.assignments})

    @staticmethod
    def _validate_sync(group: GroupMetadata, body: SyncGroupRequest) -> MemberMetadata:
        group.validate_alive()
        member = group.member(body.member_id, body.group_instance_id)
        group.validate_generation(body.generation_id)
        for theirs, ours in ((body.protocol_type, group.protocol_type), (body.protocol_name, group.protocol_name)):
            if theirs is not None and theirs != ours:
                raise errors.InconsistentGroupProtocolError(
                    f"group {group.group_id} has agreed on {ours!r}, not {theirs!r}"
                )
        return member

    def _store_assignment(self, group: GroupMetadata, theirs: dict[str, bytes]) -> None:
        generation_id = group.generation_id
        assignments = {member_id: theirs.get(member_id, b"") for member_id in group.members}
        if len(theirs.keys() & assignments.keys()) < len(assignments):
            self._log.info("The leader of %r left members without an assignment", group)

        def stored(error_code: int) -> None:
            # A member may have joined meanwhile, which makes this assignment obsolete.
            if group.state is not COMPLETING_REBALANCE or group.generation_id != generation_id:
                return
            if error_code:
                self._refuse_assignment(group, error_code)
                self.prepare_rebalance(group, f"the assignment could not be stored, error code {error_code}")
                return
            group.transition_to(STABLE, self._broker.loop.wall_ms)
            for member in list(group.members.values()):
                member.assignment = assignments[member.member_id]
                if member.answer_sync(_assignment_of(group, member)):
                    # Its session may have expired unnoticed while it waited.
                    self.reschedule_session(group, member)

        self._manager.store_group(group, assignments, stored)

    def _refuse_assignment(self, group: GroupMetadata, error_code: int) -> None:
        for member in list(group.members.values()):
            member.assignment = b""
            if member.answer_sync(SyncGroupResponse(error_code=error_code)):
                self.reschedule_session(group, member)

    def _remove_pending_sync_member(self, group: GroupMetadata, member: MemberMetadata) -> None:
        group.pending_sync_members.pop(member.member_id, None)
        if not group.pending_sync_members:
            _cancel_sync_timer(group)

    def _expire_sync(self, group: GroupMetadata, generation_id: int) -> None:
        if group.generation_id != generation_id or group.state not in (COMPLETING_REBALANCE, STABLE):
            return
        late = list(group.pending_sync_members)
        for member_id in late:
            group.remove(member_id)
        if late:
            self.prepare_rebalance(group, f"members {', '.join(late)} did not ask for their assignment in time")

    # --- the end

    def abandon(self, group: GroupMetadata, error_code: int) -> None:
        """Answer all waiting requests with an error, and cancel all timers, because another group object takes over."""
        group.transition_to(DEAD, self._broker.loop.wall_ms)
        group.cancel_timers()
        for member in list(group.members.values()):
            member.answer_join(JoinGroupResponse(member_id=member.member_id, error_code=error_code))
            member.answer_sync(SyncGroupResponse(error_code=error_code))


def _assignment_of(group: GroupMetadata, member: MemberMetadata) -> SyncGroupResponse:
    return SyncGroupResponse(
        protocol_type=group.protocol_type, protocol_name=group.protocol_name, assignment=member.assignment
    )


def _cancel_sync_timer(group: GroupMetadata) -> None:
    group.pending_sync_members.clear()
    if group.sync_timer is not None:
        group.sync_timer.cancel()


def leave_each(
    leaving: Iterable[LeaveGroupRequest.MemberIdentity], remove: Callable[[LeaveGroupRequest.MemberIdentity], None]
) -> list[LeaveGroupResponse.MemberResponse]:
    """Remove all members with ``remove``, and return its result for each."""
    responses = []
    for identity in leaving:
        error_code = 0
        try:
            remove(identity)
        except errors.BrokerError as error:
            error_code = error.code
        responses.append(
            LeaveGroupResponse.MemberResponse(
                member_id=identity.member_id, group_instance_id=identity.group_instance_id, error_code=error_code
            )
        )
    return responses


#: From this version on, a new member is rejected with an id, and must join again with it (KIP-394).
REQUIRES_KNOWN_MEMBER_ID = 4

#: From this version on, a returning leader can be told to keep the assignment (KIP-814).
_SUPPORTS_SKIPPING_ASSIGNMENT = 9

#: The time limit for a new member that shows no sign of life. It has no id for heartbeats yet, and its connection is
#: not read meanwhile, so a disconnect would not be noticed. If the member is still alive, it joins again.
_NEW_MEMBER_JOIN_TIMEOUT_MS = 300_000


class JoinAttempt(NamedTuple):
    """A JoinGroup request and its sender."""

    body: JoinGroupRequest
    api_version: int
    client_id: str
    client_host: str
    respond: JoinCallback

    @property
    def protocols(self) -> Protocols:
        return [(protocol.name, protocol.metadata) for protocol in self.body.protocols]

    @property
    def rebalance_timeout_ms(self) -> int:
        """The rebalance timeout; in version 0, the session timeout."""
        if self.body.rebalance_timeout_ms < 0:
            return self.body.session_timeout_ms
        return self.body.rebalance_timeout_ms

    @property
    def reason(self) -> str:
        return self.body.reason or "not provided"

    def refuse(self, error: errors.BrokerError, member_id: str) -> None:
        """Respond with an error."""
        self.respond(JoinGroupResponse(member_id=member_id, error_code=error.code))
