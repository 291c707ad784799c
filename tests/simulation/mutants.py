"""Does the simulation notice? Puts faults into a copy of clients and brokers, one at a time, and looks for a seed that
fails.

    python -m tests.simulation.mutants [--jobs 2] [--docs] [NAME ...]

With ``--docs`` the table in docs/testing.md is written anew.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

_ROOT = Path(__file__).parents[2]
_DOCS = _ROOT / "docs" / "testing.md"
_SEEDS = 2000
#: Around the table in the documentation.
_BEGIN, _END = "<!-- mutants: begin -->\n", "<!-- mutants: end -->\n"
#: A schedule without an end, as some faults make it, is found by this.
_SECONDS = 600


class Mutant(NamedTuple):
    name: str
    module: str  # under src/pykclient
    before: str
    after: str


_PRODUCER = (
    Mutant(
        "a partition is not muted while it has a request in flight",
        "producer/sender",
        "accumulator.mute_partition(batch.topic_partition)",
        "pass",
    ),
    Mutant(
        "a partition is never unmuted",
        "producer/produce_response",
        "self._accumulator.unmute_partition(batch.topic_partition)",
        "pass",
    ),
    Mutant(
        "a retry goes to the tail of its queue",
        "producer/record_accumulator",
        "batches.insert(position, batch)",
        "batches.append(batch)",
    ),
    Mutant(
        "sequence numbers go on after a bump of the epoch",
        "producer/txn_partition_map",
        "        self.next_sequence = sequence\n",
        "        self.next_sequence = max(sequence, self.next_sequence)\n",
    ),
    Mutant(
        "a retry gets a new sequence number",
        "producer/record_accumulator",
        "        if manager is None or batch.has_sequence:\n            return\n",
        "        if manager is None:\n            return\n        manager.remove_in_flight_batch(batch)\n",
    ),
    Mutant(
        "any retry may go, whatever is in flight",
        "producer/record_accumulator",
        "return expected not in (NO_SEQUENCE, first.base_sequence)",
        "return False",
    ),
    Mutant(
        "numbers are given out while earlier ones are unresolved",
        "producer/transaction_manager",
        "return topic_partition in self._unresolved or topic_partition in self._partitions_to_rewrite",
        "return False",
    ),
    Mutant(
        "an expired batch leaves its numbers resolved",
        "producer/transaction_manager",
        "            self.mark_sequence_unresolved(batch)\n",
        "            pass\n",
    ),
    Mutant(
        "memory is kept after a success",
        "producer/produce_response",
        "        self._accumulator.deallocate(batch)\n        if not batch.complete(",
        "        if not batch.complete(",
    ),
    Mutant(
        "memory is kept after a failure",
        "producer/produce_response",
        "        if deallocate:\n            self._accumulator.deallocate(batch)\n",
        "",
    ),
    Mutant(
        "batches in flight never expire",
        "producer/produce_response",
        "                expired.append(batch)\n",
        "                pass\n",
    ),
    Mutant(
        "waiting batches never expire",
        "producer/sender",
        "        for batch in accumulator.expired_batches(now_ms):\n            self._fail_expired(batch, now_ms)\n",
        "",
    ),
    Mutant(
        "flush does not wait for the parts of a split batch",
        "producer/future",
        "            waiting.extend(part for _, part in result.parts or ())\n",
        "",
    ),
    Mutant(
        "parts of a split batch have no callbacks",
        "producer/future",
        "            entry[0].locate()[0].listeners.append(entry)\n",
        "            pass\n",
    ),
    Mutant(
        "a new batch wakes nobody",
        "producer/kafka_producer",
        "        self._sender.wakeup()\n        # Give",
        "        # Give",
    ),
    Mutant(
        "a refused batch counts as acknowledged",
        "producer/produce_response",
        "            elif isinstance(error, DuplicateSequenceError):",
        "            elif isinstance(error, (DuplicateSequenceError, NotLeaderOrFollowerError)):",
    ),
    Mutant(
        "metadata of an older leader epoch is taken",
        "network/metadata",
        "            if epoch < known:\n",
        "            if False:\n",
    ),
)

_CONSUMER = (
    Mutant(
        "no heartbeats are sent",
        "consumer/coordinator/heartbeat_thread",
        "        self._beat()\n        return retry_ms\n",
        "        return retry_ms\n",
    ),
    Mutant(
        "the revoked callback is skipped",
        "consumer/coordinator/consumer_coordinator",
        "            failure = self._listeners.invoke_partitions_revoked(owned)\n"
        "            self._subscriptions.assign_from_subscribed(())\n        else:",
        "            self._subscriptions.assign_from_subscribed(())\n        else:",
    ),
    Mutant(
        "offsets are committed that were fetched, not handed out",
        "consumer/consumer_components",
        "        return offsets\n\n\ndef _bound",
        "        return {tp: type(o)(o.offset + 1, o.metadata, o.leader_epoch) for tp, o in offsets.items()}\n\n\ndef _bound",
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
        "        advanced = completed.next_fetch_offset > position.offset\n",
        "        advanced = completed.next_fetch_offset > position.offset + 3\n",
    ),
    Mutant(
        "reading starts behind the committed offset",
        "consumer/coordinator/committed_offsets",
        "FetchPosition(committed.offset, epoch",
        "FetchPosition(committed.offset + 1, epoch",
    ),
    Mutant(
        "a fetch session goes on after an error",
        "consumer/fetch_session_handler",
        "        self._next_metadata = self._next_metadata.next_close_existing_attempt_new()\n\n\ndef _join",
        "        self._next_metadata = self._next_metadata.next_incremental()\n\n\ndef _join",
    ),
    Mutant(
        "partitions stay in the fetch session",
        "consumer/fetch_session_handler",
        "                    removed.append(TopicIdPartition(previous.topic_id, tp))\n",
        "                    pass\n",
    ),
    Mutant(
        "a coordinator that has moved is asked on and on",
        "consumer/coordinator/coordinator_finder",
        "            node, self._node = self._node, None\n            if node is not None:\n",
        "            node = self._node\n            if node is not None:\n",
    ),
    Mutant(
        "commits carry no generation",
        "consumer/coordinator/offset_committer",
        "            sent = generation\n",
        "            pass\n",
    ),
    Mutant(
        "an unknown member keeps its id",
        "consumer/coordinator/abstract_coordinator",
        "reset_member_id = not isinstance(error, errors.IllegalGenerationError)",
        "reset_member_id = False",
    ),
    Mutant(
        "closing does not leave the group",
        "consumer/coordinator/abstract_coordinator",
        "            leaving = self.maybe_leave_group(operation,",
        "            leaving = self.maybe_leave_group(REMAIN_IN_GROUP,",
    ),
    Mutant(
        "the answer to an old heartbeat ends the membership",
        "consumer/coordinator/group_membership",
        "            if self._generation != sent:\n                return False\n            self._reset(reason, reset_member_id, lost_because)\n",
        "            self._reset(reason, reset_member_id, lost_because)\n",
    ),
)
