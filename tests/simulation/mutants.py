"""Mutation tests of the simulation itself.

Each mutant is a fault in a copy of clients and brokers; the run looks for a seed that fails with it.

    python -m tests.simulation.mutants [--jobs 2] [--docs] [NAME ...]

With ``--docs`` the rows of these faults in docs/verification.md are rewritten.
"""

from __future__ import annotations

import argparse
import re
import sys
import tempfile
import textwrap
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

from tests.support.mutants import Mutant, first_failing_schedule, with_fault

_DOCS = Path(__file__).parents[2] / "docs" / "verification.md"
_SEEDS = 2000
#: Markers around the table in the documentation.
_BEGIN, _END = "<!-- mutants: begin -->\n", "<!-- mutants: end -->\n"
#: The time for all schedules of a fault.
_SECONDS = 3600


_PRODUCER = (
    Mutant(
        "a partition is not muted while it has a request in flight",
        "producer/record_accumulator",
        "waiting.mute(queue, first)",
        "pass",
    ),
    Mutant(
        "a partition is never unmuted",
        "producer/batch_register",
        "            del self.muted[queue.topic_partition]\n",
        "            pass\n",
    ),
    Mutant(
        "a retry goes to the tail of its queue",
        "producer/batch_register",
        "self._place_of_retry(queue.batches, batch)",
        "len(queue.batches)",
    ),
    Mutant(
        "sequence numbers go on after a bump of the epoch",
        "producer/transactions/producer_id_manager",
        "        self.next_sequence = sequence\n",
        "        self.next_sequence = max(sequence, self.next_sequence)\n",
    ),
    Mutant(
        "a retry gets a new sequence number",
        "producer/record_accumulator",
        "            if manager is not None and first.base_sequence == NO_SEQUENCE:",
        "            if manager is not None:\n                manager.remove_in_flight_batch(first)",
    ),
    Mutant(
        "an expired batch leaves its numbers resolved",
        "producer/transactions/producer_id_manager",
        "            self.mark_sequence_unresolved(batch)\n",
        "            pass\n",
    ),
    Mutant(
        "memory is kept after a success",
        "producer/batch_register",
        "            if batch.loan is not None:\n",
        "            if batch.loan is not None and batch.final_state != SUCCEEDED:\n",
    ),
    Mutant(
        "memory is kept after a failure",
        "producer/batch_register",
        "            if batch.loan is not None:\n",
        "            if batch.loan is not None and batch.final_state != FAILED:\n",
    ),
    Mutant(
        "batches in flight never expire",
        "producer/batch_register",
        "                expired.append(batch)\n",
        "                pass\n",
    ),
    Mutant(
        "waiting batches never expire",
        "producer/sender",
        "        for batch in waiting:\n",
        "        for batch in ():\n",
    ),
    Mutant(
        "parts of a split batch have no callbacks",
        "producer/future",
        "            of_part += (entry,)",
        "            pass",
    ),
    Mutant(
        "a new batch wakes nobody",
        "producer/kafka_producer",
        "            self._driver.wakeup()\n        # Release",
        "            pass\n        # Release",
    ),
    Mutant(
        "a refused batch counts as acknowledged",
        "producer/produce_requests",
        "        if error is None:\n",
        "        if error is None or isinstance(error, NotLeaderOrFollowerError):\n",
    ),
)

_CONSUMER = (
    Mutant(
        "no heartbeats are sent",
        "consumer/coordinator/classic_membership",
        "        return PollResult(rest_ms, (request,))\n",
        "        return PollResult(rest_ms)\n",
    ),
    Mutant(
        "the revoked callback is skipped",
        "consumer/coordinator/classic_rebalance",
        '            failure = yield from self._listeners.invoke("revoked", owned)\n'
        "            self._subscriptions.assign_from_subscribed(())\n        else:",
        "            self._subscriptions.assign_from_subscribed(())\n        else:",
    ),
    Mutant(
        "offsets are committed that were fetched, not handed out",
        "consumer/consumer_components",
        "        return offsets\n\n\ndef hold_back",
        "        return {tp: type(o)(o.offset + 1, '', o.leader_epoch) for tp, o in offsets.items()}\n\n\n"
        "def hold_back",
    ),
    Mutant(
        "what was fetched before a seek is handed out",
        "consumer/fetch_collector",
        "        if completed.next_fetch_offset != position.offset:\n",
        "        if False:\n",
    ),
    Mutant(
        "the position does not move",
        "consumer/fetch_collector",
        "        if completed.next_fetch_offset > position.offset:\n",
        "        if completed.next_fetch_offset > position.offset + 3:\n",
    ),
    Mutant(
        "reading starts behind the committed offset",
        "consumer/coordinator/commit_request_manager",
        "FetchPosition(committed.offset, epoch",
        "FetchPosition(committed.offset + 1, epoch",
    ),
    Mutant(
        "a coordinator that has moved is asked on and on",
        "consumer/coordinator/coordinator_request_manager",
        "            node, self._node = self._node, None\n            if node is not None:\n",
        "            node = self._node\n            if node is not None:\n",
    ),
    Mutant(
        "commits carry no generation",
        "consumer/coordinator/commit_request_manager",
        "            sent = generation\n",
        "            pass\n",
    ),
    Mutant(
        "closing does not leave the group",
        "consumer/coordinator/consumer_coordinator",
        "        left = yield from self.leave_group(operation,",
        '        left = yield from self.leave_group("remain_in_group",',
    ),
)

_BROKERS = (
    Mutant(
        "the high watermark does not wait for the followers",
        "testing/replica/partition",
        "            if replica.log_end_offset < new_high_watermark and (\n",
        "            if replica.log_end_offset < 0 and (\n",
    ),
    Mutant(
        "acks=all is answered before the followers have the records",
        "testing/replica/partition",
        "        if log.high_watermark < required_offset:\n            return False, 0\n",
        "",
    ),
    Mutant(
        "a follower joins the ISR before it has caught up",
        "testing/replica/partition",
        "        if replica.log_end_offset < log.high_watermark or replica.log_end_offset < start:\n"
        "            return\n",
        "",
    ),
    Mutant(
        "the ISR never shrinks",
        "testing/replica/partition",
        "        if not late:\n            return\n",
        "        if True:\n            return\n",
    ),
    Mutant(
        "the ISR never grows",
        "testing/replica/partition",
        "            self._maybe_expand_isr(replica)\n",
        "            pass\n",
    ),
    Mutant(
        "a broker that does not lead takes records",
        "testing/replica/partition",
        "(NO_EPOCH, require_leader=True)\n        if required_acks",
        "(NO_EPOCH, require_leader=False)\n        if required_acks",
    ),
    Mutant(
        "a follower does not truncate what has diverged",
        "testing/replica/replica_fetcher",
        "        log.truncate_to(offset)\n        self._truncated(",
        "        self._truncated(",
    ),
    Mutant(
        "a leader does not tell who has diverged",
        "testing/replica/partition",
        "        if fetch.last_fetched_epoch != NO_EPOCH:\n",
        "        if False:\n",
    ),
    Mutant(
        "consumers get what is not committed",
        "testing/replica/partition",
        "        info = log.read(offset, max_bytes, isolation, min_one_message)\n",
        "        info = log.read(offset, max_bytes, FetchIsolation.LOG_END, min_one_message)\n",
    ),
    Mutant(
        "duplicates are not noticed",
        "testing/log/producer_state_manager",
        "                if updates.duplicate is not None:\n                    return updates\n",
        "                updates.duplicate = None\n",
    ),
    Mutant(
        "any sequence number is taken",
        "testing/log/producer_state_manager",
        "        if first_sequence != expected:\n",
        "        if False:\n",
    ),
    Mutant(
        "producers are unknown to a follower",
        "testing/log/unified_log",
        "        updates = state.prepare_update(batches, origin, verification, transaction_version)\n",
        "        updates = state.prepare_update(batches if origin != AppendOrigin.REPLICATION else (), origin)\n",
    ),
    Mutant(
        "a fetch session keeps the offset that it was begun with",
        "testing/replica/fetch_session",
        "                cached.update_request(fetch)\n",
        "                pass\n",
    ),
    Mutant(
        "a generation is not counted up",
        "testing/group/group_metadata",
        "        self.generation_id += 1\n",
        "        self.generation_id = max(1, self.generation_id)\n",
    ),
    Mutant(
        "a new coordinator knows no offsets",
        "testing/replica/replica_manager",
        "                if coordinator is not None:\n                    coordinator.on_election(",
        "                if coordinator is not None and state.leader_epoch == 0:\n"
        "                    coordinator.on_election(",
    ),
    Mutant(
        "a replica that is not in sync is elected",
        "testing/controller/state_machines",
        "for id in candidates if id in state.isr and context",
        "for id in candidates if context",
    ),
    Mutant(
        "a leader keeps its epoch",
        "testing/coordination/znodes",
        "isr=isr, leader_epoch=self.leader_epoch + 1)",
        "isr=isr)",
    ),
    Mutant(
        "a connection is not muted while a request is in progress",
        "testing/server/processor",
        "connection.state is NOT_MUTED and not connection.broker.paused",
        "not connection.broker.paused",
    ),
)

_COLUMNS = (
    Mutant(
        "rows of a split batch are looked for where they were",
        "producer/columns",
        "            result, at = self.result.locate(place)\n",
        "            result, at = self.result.locate(place)[0], place\n",
    ),
    Mutant(
        "rows that waited in vain for memory are forgotten",
        "producer/columns",
        "            self._refuse((row for row in range(start, stop) if base + row not in handled), error)\n",
        "",
    ),
    Mutant(
        "send_batch wakes nobody",
        "producer/columns",
        "                self._wake_sender()\n                start = stop\n",
        "                start = stop\n",
    ),
    Mutant(
        "a loop counts as seen what waits behind it",
        "consumer/consumer_components",
        "        hold_back(offsets, self.undelivered.next_positions())\n",
        "        pass\n",
    ),
    Mutant(
        "poll_arrow skips what a loop has not seen",
        "consumer/consumer_delegate",
        "            self.rewind({tp: position for tp, position in waiting.items() if tp not in kept})\n",
        "            pass\n",
    ),
    Mutant(
        "a seek keeps what waits for a loop",
        "consumer/consumer_delegate",
        "        self._subscriptions.seek_unvalidated(tp, position)\n        self._undelivered.drop((tp,))\n",
        "        self._subscriptions.seek_unvalidated(tp, position)\n",
    ),
)

_PROGRESS = (
    Mutant(
        "automatic commits are never due",
        "consumer/coordinator/commit_request_manager",
        "            if wait_ms <= 0 or begins_with(wait_ms, call_ms, interval_ms):\n",
        "            if False:\n",
    ),
    Mutant(
        "after a failure nothing is committed automatically any more",
        "consumer/coordinator/commit_request_manager",
        "            self._next_auto_commit_ms = self._clock.now_ms() + self._config.retry_backoff_ms\n",
        "            self._next_auto_commit_ms = 1 << 60\n",
    ),
    Mutant(
        "a new topic is not matched with the pattern",
        "consumer/coordinator/classic_rebalance",
        "            self._pattern.match(cluster)\n",
        "            pass\n",
    ),
)

_NAMES = (
    Mutant(
        "an offset outlives its topic",
        "consumer/subscription_state",
        "        return own is not None and topic_id is not None and own != topic_id\n",
        "        return False\n",
    ),
    Mutant(
        "what the DNS answers late is not noticed",
        "network/cluster_connection_states",
        "in self.lookups.items() if lookup.done]",
        "in self.lookups.items() if False]",
    ),
    Mutant(
        "a name that is not answered holds up the metadata",
        "network/cluster_connection_states",
        "        return id in self.lookups and now_ms - self._nodes[id].last_connect_attempt_ms > SLOW_LOOKUP_MS\n",
        "        return False\n",
    ),
)

_CONSUMER_GROUPS = tuple(
    Mutant(*fault, arguments=("--consumer-groups",))
    for fault in (
        (
            "a member that joins again keeps its old assignment",
            "consumer/coordinator/consumer_membership",
            "        self.target = self.owned = NO_ASSIGNMENT\n        self.heartbeat_in_flight = False\n",
            "        self.heartbeat_in_flight = False\n",
        ),
        (
            "a member need not confirm that it has given up partitions",
            "testing/group/modern_groups",
            "    if reported is None:\n        return True\n",
            "    if reported is None:\n        return False\n",
        ),
        (
            "the partitions of a member that leaves stay taken",
            "testing/group/modern_groups",
            "        super().remove(member)\n        self._count(member.current, -1)\n",
            "        super().remove(member)\n",
        ),
        (
            "the session of a member of a consumer group never expires",
            "testing/group/consumer_group_manager",
            "            self.restart_session(group, member)\n        if member.current is not",
            "        if member.current is not",
        ),
        (
            "a fenced member keeps its partitions",
            "consumer/coordinator/consumer_rebalance",
            "            self._subscriptions.assign_from_subscribed(())\n        return failure\n",
            "            pass\n        return failure\n",
        ),
        (
            "a member does not report what it has given back",
            "consumer/coordinator/consumer_membership",
            "            if beat.owned != sent.owned:\n",
            "            if sent.owned is None:\n",
        ),
        (
            "a member whose application does not poll stays",
            "consumer/coordinator/consumer_membership",
            "            if now_ms < self._poll_end_ms or state is PREPARE_LEAVING or state is LEAVING:\n",
            "            if True:\n",
        ),
        (
            "a member revokes partitions that need not move, and takes them again",
            "consumer/coordinator/consumer_rebalance",
            "        self.revoked = sorted(owned.difference(partitions))\n"
            "        self.added = [tp for tp in partitions if tp not in owned]\n",
            "        self.revoked = sorted(owned)\n        self.added = list(partitions)\n",
        ),
        (
            "partitions that a fenced member has lost are reported as revoked",
            "consumer/coordinator/consumer_rebalance",
            '            failure = yield from self._listeners.invoke("lost", owned)\n',
            '            failure = yield from self._listeners.invoke("revoked", owned)\n',
        ),
    )
)

_PROTOCOL = "consumer/coordinator/classic_rebalance"

_STICKY_GROUPS = tuple(
    Mutant(*fault, arguments=("--sticky",))
    for fault in (
        (
            "a partition moves directly to its next owner",
            "consumer/sticky_assignor",
            " if not owned.moves(member_id, tp)]",
            "]",
        ),
        (
            "a partition is given to its last owner and its next one",
            "consumer/sticky_assignor",
            "            member_id: [tp for tp in partitions if not owned.moves(member_id, tp)]\n",
            "            member_id: [*partitions, *set(owned.by_member()[member_id]).difference(partitions)]\n",
        ),
        (
            "partitions that move are not revoked",
            _PROTOCOL,
            "            revoked = owned.difference(assignment.partitions)\n",
            "            revoked: frozenset[TopicPartition] = frozenset()\n",
        ),
        (
            "no second rebalance follows a revocation",
            _PROTOCOL,
            '                self._membership.request_rejoin(\n                    "need to',
            '                str.format(\n                    "need to',
        ),
        (
            "a member joins without the partitions that it owns",
            _PROTOCOL,
            "        owned = self._subscriptions.assigned_partitions_list()\n",
            "        owned: list[TopicPartition] = []\n",
        ),
        (
            "a member goes on to read what it has revoked",
            _PROTOCOL,
            "        self._subscriptions.assign_from_subscribed(assignment.partitions)\n",
            "        self._subscriptions.assign_from_subscribed(owned.union(assignment.partitions))\n",
        ),
        (
            "a member of a cooperative group revokes all partitions if one moves",
            _PROTOCOL,
            "            revoked = owned.difference(assignment.partitions)\n            if revoked:\n",
            "            revoked = owned\n            if owned.difference(assignment.partitions):\n"
            "                added = list(assignment.partitions)\n",
        ),
        (
            "partitions that were lost are reported as revoked",
            _PROTOCOL,
            '                failure = yield from self._listeners.invoke("lost", owned)\n'
            "                self._subscriptions.assign_from_subscribed(())\n            elif",
            '                failure = yield from self._listeners.invoke("revoked", owned)\n'
            "                self._subscriptions.assign_from_subscribed(())\n            elif",
        ),
    )
)

#: Faults after which large groups do not keep what need not move. Their simulation has no faults of brokers.
_LARGE_GROUPS = (
    Mutant(
        "the sticky assignors forget who owned what",
        "consumer/sticky_assignor",
        "            assignment = ConstrainedAssignmentBuilder(every_partition, racks, owned).build()\n",
        "            nobody = OwnedPartitions((), {member_id: MemberData(()) for member_id in topics})\n"
        "            assignment = ConstrainedAssignmentBuilder(every_partition, racks, nobody).build()\n",
        ("--protocol", "classic"),
        "tests.simulation.large_groups",
    ),
    Mutant(
        "the uniform assignor moves partitions that need not move",
        "testing/group/server_assignors",
        "        for topic_id, partitions in member.target.items():\n            mine = ",
        "        for topic_id, partitions in {}.items():\n            mine = ",
        ("--protocol", "consumer"),
        "tests.simulation.large_groups",
    ),
)

_MIGRATION = tuple(
    Mutant(*fault, arguments=("--migration",))
    for fault in (
        (
            "a member whose generation was refused does not leave",
            "consumer/coordinator/classic_membership",
            "        if sent.has_member_id and not (",
            '        if sent.has_member_id and self._membership.state.name != "UNJOINED" and not (',
        ),
        (
            "a group that is converted forgets what its members own",
            "testing/group/consumer_group_manager",
            "        member.current = CurrentAssignment(epoch, epoch, STABLE, assigned, {})\n",
            "        member.current = CurrentAssignment(epoch, epoch, STABLE, {}, {})\n",
        ),
        (
            "a group that is converted back begins with generation 1",
            "testing/group/consumer_group_manager",
            "            old.group_id, old.group_epoch, CONSUMER_PROTOCOL_TYPE",
            "            old.group_id, 1, CONSUMER_PROTOCOL_TYPE",
        ),
    )
)

MUTANTS = (
    *_PRODUCER,
    *_COLUMNS,
    *_CONSUMER,
    *_CONSUMER_GROUPS,
    *_STICKY_GROUPS,
    *_LARGE_GROUPS,
    *_MIGRATION,
    *_PROGRESS,
    *_NAMES,
    *_BROKERS,
)


def _caught(seeds: int, mutant: Mutant) -> str | None:
    """Return the failure's line, or None."""
    with tempfile.TemporaryDirectory() as name:
        sources = with_fault(mutant, Path(name))
        return first_failing_schedule(sources, seeds, _SECONDS, mutant.simulation, mutant.arguments)


def _write_docs(results: dict[str, str | None]) -> None:
    """Write ``results`` into the table, and keep what it says about faults that were not run."""
    before, _, rest = _DOCS.read_text(encoding="utf-8").partition(_BEGIN)
    table, _, after = rest.partition(_END)
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in table.splitlines()]
    measured = {name: (seed, why) for name, _, seed, why in rows}
    measured.update({name: _seed_and_reason(caught) for name, caught in results.items()})
    lines = ["| deliberate fault | where | first seed | found by |\n", "| --- | --- | --- | --- |\n"]
    for mutant in MUTANTS:
        if mutant.name in measured:
            seed, why = measured[mutant.name]
            lines.append(f"| {mutant.name} | `{mutant.module}` | {seed} | {why} |\n")
    _DOCS.write_text("".join([before, _BEGIN, *lines, _END, after]), encoding="utf-8")


def _seed_and_reason(caught: str | None) -> tuple[str, str]:
    found = re.match(r"seed (\S+): (.*)", caught or "")
    seed, why = (found[1], found[2]) if found else ("none", caught or "")
    return seed, textwrap.shorten(re.sub(r"[|<>]|^InvariantError: ", " ", why), 80, placeholder=" ...")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation.mutants")
    parser.add_argument("names", nargs="*")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--seeds", type=int, default=_SEEDS, help="how many to try for each")
    parser.add_argument("--docs", action="store_true", help="write the table in docs/verification.md")
    options = parser.parse_args()
    chosen = [mutant for mutant in MUTANTS if not options.names or mutant.name in options.names]
    results: dict[str, str | None] = {}
    with ThreadPoolExecutor(options.jobs) as pool:
        for mutant, caught in zip(chosen, pool.map(partial(_caught, options.seeds), chosen), strict=True):
            print(f"{mutant.name}: {caught or 'ESCAPED'}", flush=True)
            results[mutant.name] = caught
            if options.docs:
                _write_docs(results)
    return 0 if None not in results.values() else 1


if __name__ == "__main__":
    sys.exit(main())
