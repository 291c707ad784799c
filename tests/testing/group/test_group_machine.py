"""Clients join, leave, crash and commit in any order while coordinators fail; the group's invariants always hold."""

from __future__ import annotations

from typing import Any

from hypothesis import HealthCheck, settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from pykclient.protocol.messages.join_group import JoinGroupResponse
from pykclient.protocol.messages.sync_group import SyncGroupResponse
from pykclient.testing.group.group_metadata import COMPLETING_REBALANCE, STABLE
from pykclient.types import TopicPartition
from tests.support.examples import examples
from tests.testing.group.harness import TP, Groups, Reply

PARTITIONS = 6
SESSION_MS = 10_000
REBALANCE_MS = 20_000

#: Errors after which a client rejoins as a new member (LOST), rejoins with its id (OUTDATED), or looks for another
#: coordinator (ELSEWHERE).
LOST = {25, 82}
OUTDATED = {22, 27}
ELSEWHERE = {14, 15, 16}


class Client:
    """A member that behaves like a client: it joins, syncs, and sends a heartbeat when told to."""

    def __init__(self, machine: GroupMachine, instance_id: str | None, version: int) -> None:
        self.machine = machine
        self.instance_id = instance_id
        self.version = version
        self.member_id = ""
        self.generation = -1
        self.owned: frozenset[int] = frozenset()
        self.metadata = b"0"
        self.fenced = False
        self.is_member = False
        self.joining: Reply[JoinGroupResponse] | None = None
        self.syncing: Reply[SyncGroupResponse] | None = None

    @property
    def groups(self) -> Groups:
        return self.machine.groups

    @property
    def waits(self) -> bool:
        return self.joining is not None or self.syncing is not None

    def join(self) -> None:
        self.is_member = False
        self.owned = frozenset()
        self.joining = self.machine.expect(
            self.groups.join(
                self.member_id,
                instance_id=self.instance_id,
                protocols={"range": self.metadata},
                session_timeout_ms=SESSION_MS,
                rebalance_timeout_ms=REBALANCE_MS,
                version=self.version,
            )
        )

    def go_on(self) -> bool:
        """Handle the responses that have arrived; return False if there are none."""
        if self.joining is not None and self.joining.answered:
            answer, self.joining = self.joining.value, None
            self._joined(answer)
            return True
        if self.syncing is not None and self.syncing.answered:
            synced, self.syncing = self.syncing.value, None
            if synced.error_code:
                self._failed(synced.error_code)
            else:
                self.owned = frozenset(synced.assignment)
                self.is_member = True
                self.machine.saw_assignment(self)
            return True
        return False

    def _joined(self, answer: JoinGroupResponse) -> None:
        if answer.error_code == 79:
            self.member_id = answer.member_id
            self.join()
        elif answer.error_code:
            self._failed(answer.error_code)
        else:
            self.member_id = answer.member_id
            self.generation = answer.generation_id
            assignments: dict[str, bytes] = {}
            if answer.leader == self.member_id and answer.members and not answer.skip_assignment:
                ids = [member.member_id for member in answer.members]
                assignments = {one: bytes(range(PARTITIONS)[number :: len(ids)]) for number, one in enumerate(ids)}
            self.syncing = self.machine.expect(
                self.groups.sync(self.member_id, self.generation, assignments, instance_id=self.instance_id)
            )

    def _failed(self, error_code: int) -> None:
        assert error_code in LOST | OUTDATED | ELSEWHERE, error_code
        if error_code == 82:
            self.fenced = True
            self.machine.clients.remove(self)
        elif error_code in LOST:
            self.member_id = ""
        self.is_member = self.is_member and error_code in ELSEWHERE
        self.owned = self.owned if self.is_member else frozenset()

    def beat(self) -> None:
        """Send a heartbeat, or join if not a member; do nothing while waiting for a response."""
        if self.waits:
            return
        if not self.is_member:
            self.join()
            return
        error_code = self.groups.heartbeat(self.member_id, self.generation, self.instance_id)
        if error_code:
            self._failed(error_code)
            if not self.is_member and not self.fenced:
                self.join()

    def connection_lost(self) -> None:
        self.joining = self.syncing = None


class GroupMachine(RuleBasedStateMachine):
    """Random events, one per rule; between them all clients proceed as far as possible."""

    @initialize(delay_ms=st.sampled_from([0, 3_000]), seed=st.integers(0, 1 << 16))
    def start(self, delay_ms: int, seed: int) -> None:
        # No cleanup: a deleted group would start with generation 1 again.
        self.groups = Groups(
            seed, **{"group.initial.rebalance.delay.ms": delay_ms, "offsets.retention.check.interval.ms": 10**9}
        )
        self.clients: list[Client] = []
        self.waiting: list[Reply[Any]] = []
        self.given: dict[int, dict[int, str]] = {}
        self.next_offset = 1
        self.acknowledged = -1
        self.commits: list[tuple[int, Reply[Any]]] = []

    def expect(self, reply: Reply[Any]) -> Any:
        self.waiting.append(reply)
        return reply

    def saw_assignment(self, client: Client) -> None:
        """Check that a generation gives each partition to one member only.

        A static member and its successor count as one.
        """
        owners = self.given.setdefault(client.generation, {})
        who = client.instance_id or client.member_id
        for partition in client.owned:
            assert owners.setdefault(partition, who) == who, (
                f"generation {client.generation} gives partition {partition} to {owners[partition]} and {who}"
            )

    def run(self) -> None:
        self.groups.settle()
        while any(client.go_on() for client in list(self.clients)):
            self.groups.settle()
        self.waiting = [reply for reply in self.waiting if not reply.answered]
        for offset, reply in list(self.commits):
            if reply.answered:
                self.commits.remove((offset, reply))
                if reply.value[TP] == 0:
                    self.acknowledged = max(self.acknowledged, offset)

    def pick(self, number: int) -> Client:
        return self.clients[number % len(self.clients)]

    # --- what happens

    @precondition(lambda self: len(self.clients) < 6)
    @rule(instance=st.sampled_from([None, None, "a", "b"]), version=st.sampled_from([3, 8, 9]))
    def a_client_comes(self, instance: str | None, version: int) -> None:
        client = Client(self, instance, version)
        self.clients.append(client)
        client.join()
        self.run()

    @precondition(lambda self: self.clients)
    @rule(number=st.integers(0, 5))
    def a_client_crashes(self, number: int) -> None:
        self.clients.remove(self.pick(number))

    @precondition(lambda self: self.clients)
    @rule(number=st.integers(0, 5))
    def a_client_leaves(self, number: int) -> None:
        client = self.pick(number)
        self.clients.remove(client)
        if client.member_id:
            self._leave(client)
        self.run()

    def _leave(self, client: Client) -> None:
        if client.instance_id is not None:
            self.groups.leave(instances=[client.instance_id])
        else:
            self.groups.leave(client.member_id)

    @precondition(lambda self: self.clients)
    @rule(number=st.integers(0, 5), changed=st.booleans())
    def a_client_joins_again(self, number: int, changed: bool) -> None:
        client = self.pick(number)
        client.connection_lost()
        if changed:
            client.metadata += b"x"
        client.join()
        self.run()

    @rule(duration_ms=st.sampled_from([100, 1_000, 4_000, 11_000]), beats=st.booleans())
    def time_passes(self, duration_ms: int, beats: bool) -> None:
        self.groups.advance(duration_ms)
        self.run()
        if beats:
            for client in list(self.clients):
                client.beat()
            self.run()

    @precondition(lambda self: self.clients)
    @rule(number=st.integers(0, 5), behind=st.integers(0, 2))
    def a_member_commits(self, number: int, behind: int) -> None:
        """Commit with the member's generation or an earlier one."""
        client = self.pick(number)
        if not client.member_id:
            return
        group = self.groups.coordinator.groups.get("the-group")
        generation = client.generation - behind
        offset = self.next_offset
        self.next_offset += 1
        reply = self.expect(self.groups.commit(offset, client.member_id, generation, instance_id=client.instance_id))
        refused = reply.answered and reply.value[TP] != 0
        if not refused:
            if group is not None and group.members:
                assert generation == group.generation_id
                assert client.member_id in group.members
                assert group.state is not COMPLETING_REBALANCE
            else:
                assert generation < 0
            self.commits.append((offset, reply))
        self.run()

    @rule(kill=st.booleans())
    def the_coordinator_fails(self, kill: bool) -> None:
        holding = self.groups.replicas.holding
        before = list(self.waiting)
        self.groups.fail_over(resign=not kill)
        if kill:
            # The connections are closed, so these responses never arrive.
            self.waiting = [reply for reply in self.waiting if reply not in before]
            self.commits.clear()
            for client in self.clients:
                client.connection_lost()
        self.groups.replicas.holding = holding
        self.run()

    @rule()
    def followers_fall_behind(self) -> None:
        self.groups.replicas.holding = True

    @rule(error_code=st.sampled_from([0, 0, 7]))
    def followers_catch_up(self, error_code: int) -> None:
        self.groups.replicas.holding = False
        self.groups.replicas.release(error_code=error_code)
        self.run()

    # --- what must hold

    @invariant()
    def counts_are_right(self) -> None:
        if not hasattr(self, "groups"):
            return
        for group_id in self.groups.coordinator.groups:
            group = self.groups.group(group_id)
            members = group.members.values()
            assert group.leader_id in group.members if group.members else group.leader_id is None
            assert set(group.pending_sync_members) <= set(group.members)
            if group.state is STABLE:
                owned = [partition for member in members for partition in member.assignment]
                assert len(owned) == len(set(owned))

    @invariant()
    def acknowledged_offsets_are_there(self) -> None:
        if not hasattr(self, "groups"):
            return
        error_code, offsets = self.groups.fetch(TopicPartition("topic", 0)).value
        assert error_code == 0
        assert offsets[TP] >= self.acknowledged

    def teardown(self) -> None:
        """Check that every request gets a response in the end, and the remaining members share all partitions."""
        if not hasattr(self, "groups"):
            return
        self.followers_catch_up(0)
        for _ in range(40):
            self.time_passes(2_000, beats=True)
        assert not self.waiting
        if self.clients:
            owned = [partition for client in self.clients for partition in client.owned]
            assert sorted(owned) == list(range(PARTITIONS))
        for client in list(self.clients):
            self.clients.remove(client)
            self._leave(client)
        self.groups.advance(400_000)
        self.groups.settle()
        group = self.groups.coordinator.groups.get("the-group")
        assert group is None or not group.members
        assert not self.waiting


TestGroupMachine = GroupMachine.TestCase
TestGroupMachine.settings = settings(
    max_examples=examples(150), stateful_step_count=30, deadline=None, suppress_health_check=list(HealthCheck)
)
