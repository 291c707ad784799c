"""Deliberate faults of transactions, which the pipeline must catch.

python -m tests.simulation.pipeline_mutants [--seeds 100] [NAME ...]
"""

from __future__ import annotations

import sys

from tests.producer.transaction_mutants import MUTANTS as TRANSACTION_MUTANTS
from tests.support.mutants import Mutant, simulate

_SECONDS = 900

_COORDINATOR = "testing/transaction/transaction_coordinator"
_METADATA = "testing/transaction/transaction_metadata"
_STATES = "testing/transaction/transaction_metadata"
_MARKERS = "testing/transaction/transaction_marker_channel_manager"
_ENTRY = "testing/log/producer_state_manager"

#: Faults of the producer that its own tests catch, too.
_OF_PRODUCERS = (
    "a commit does not wait for records in flight",
    "a failed batch does not matter to the transaction",
    "an abort commits",
    "a commit aborts",
    "the epoch of the response is ignored",
    "partitions of the last transaction count as part of the next",
    "groups of the last transaction count as part of the next",
    "a member that was left behind can commit offsets",
    "offsets are committed with the id of the group only",
)

MUTANTS = (
    Mutant(
        "a member that its group has removed is nobody in the group metadata",
        "consumer/coordinator/consumer_rebalance",
        "        generation = self.membership.last_generation\n",
        "        generation = self.membership.generation\n",
    ),
    Mutant(
        "a producer's epoch is not bumped",
        _METADATA,
        "        epoch, last_epoch = self.producer_epoch + 1, NO_PRODUCER_EPOCH\n",
        "        epoch, last_epoch = max(self.producer_epoch, 0), NO_PRODUCER_EPOCH\n",
    ),
    Mutant(
        "a new coordinator forgets the markers of decided transactions",
        _STATES,
        "            if metadata.state in (PREPARE_COMMIT, PREPARE_ABORT):\n",
        "            if False:\n",
    ),
    Mutant(
        "a new coordinator forgets the partitions of transactions",
        "testing/transaction/transaction_metadata",
        "            for topic in read.transaction_partitions or ()\n",
        "            for topic in ()\n",
    ),
    Mutant(
        "a marker that fails is not sent again",
        _MARKERS,
        "        if retry:\n",
        "        if False:\n",
    ),
    Mutant(
        "a transaction is complete before all its markers are written",
        _MARKERS,
        "        if not txn.metadata.topic_partitions and self._is_current(txn):\n",
        "        if self._is_current(txn):\n",
    ),
    Mutant(
        "transactions do not time out",
        _STATES,
        "            and metadata.txn_start_ms + metadata.txn_timeout_ms < now_ms\n",
        "            and False\n",
    ),
    Mutant(
        "a decision is announced although it is not written",
        _COORDINATOR,
        "            if not error_code:\n                complete = ",
        "            metadata.pending_state = None\n            if True:\n                complete = ",
    ),
    Mutant(
        "leaders do not ask whether a transaction has the partition",
        "testing/log/producer_state_manager",
        "        return (\n            entry is not None and entry.current_txn_first_offset is not None and ",
        "        return True or (\n            entry is not None and entry.current_txn_first_offset is not None and ",
    ),
    Mutant(
        "the last stable offset is one too high",
        "testing/log/unified_log",
        "        return self.high_watermark if unstable is None else min(unstable, self.high_watermark)\n",
        "        return self.high_watermark if unstable is None else min(unstable + 1, self.high_watermark)\n",
    ),
    Mutant(
        "aborted transactions are not indexed",
        "testing/log/unified_log",
        "        if completed.is_aborted:\n",
        "        if False:\n",
    ),
    Mutant(
        "an old epoch is accepted by partitions",
        "testing/log/producer_state_manager",
        "        if epoch < entry.producer_epoch and self.origin != AppendOrigin.REPLICATION:\n",
        "        if False:\n",
    ),
    Mutant(
        "offsets of aborted transactions are committed",
        "testing/group/group_metadata",
        "            if not committed:\n                continue\n",
        "            if False:\n                continue\n",
    ),
    Mutant(
        "offsets of a transaction are committed before it ends",
        "testing/group/group_metadata",
        "            offset.record_offset = record_offset\n\n    def fail_transactional",
        "            offset.record_offset = record_offset\n        self.committed.update(offsets)\n\n"
        "    def fail_transactional",
    ),
    Mutant(
        "a new group coordinator forgets the offsets of open transactions",
        "testing/group/group_metadata_manager",
        "                group.offsets = offsets\n",
        "                group.offsets = offsets\n                offsets.transactional.clear()\n",
    ),
    Mutant(
        "a new group coordinator takes aborted offsets for committed",
        "testing/group/group_metadata_manager",
        ".control_type is ControlRecordType.COMMIT\n",
        ".control_type is not None\n",
    ),
    Mutant(
        "offsets of a former generation are accepted",
        "testing/group/group_coordinator",
        "        group.validate_generation(body.generation_id)\n        return group\n",
        "        return group\n",
    ),
    Mutant(
        "a stale member epoch is accepted",
        "testing/group/modern_groups",
        "        self._validate_member_epoch(member, epoch)\n\n    def validate_fetch",
        "\n    def validate_fetch",
    ),
    Mutant(
        "a marker is written twice",
        _MARKERS,
        "            if error_code is None or error_code in _RETRIABLE:\n",
        "            if error_code is None or error_code in _RETRIABLE or self._broker.rng.random() < 0.5:\n",
    ),
    Mutant(
        "unstable offsets are handed out",
        "testing/group/group_coordinator",
        "            if group is not None and require_stable:\n",
        "            if False:\n",
    ),
    Mutant(
        "the markers of an abort commit",
        _MARKERS,
        "transaction_result=metadata.state is PREPARE_COMMIT,\n",
        "transaction_result=True,\n",
    ),
    Mutant(
        "a transaction that has timed out is committed",
        _COORDINATOR,
        "producer, False, version, respond, is_from_client=False)\n",
        "producer, True, version, respond, is_from_client=False)\n",
    ),
    Mutant(
        "a transaction that has timed out is aborted in its epoch",
        _METADATA,
        "producer_epoch=epoch + (not keep)",
        "producer_epoch=epoch",
    ),
    Mutant(
        "any epoch may end a transaction or add partitions to it",
        _COORDINATOR,
        "    if metadata.producer.epoch != epoch:\n",
        "    if False:\n",
    ),
    Mutant(
        "the end of a transaction does not bump its epoch",
        _METADATA,
        "                epoch += 1\n",
        "                pass\n",
    ),
    Mutant(
        "a marker may be of the transaction before",
        _ENTRY,
        "            self.transaction_version >= _FIRST_VERSION_WITH_EPOCHS\n",
        "            self.transaction_version > _FIRST_VERSION_WITH_EPOCHS\n",
    ),
    Mutant(
        "a snapshot of producers forgets open transactions",
        _ENTRY,
        "        copy = self.without_batches()\n",
        "        copy = self.without_batches()\n        copy.current_txn_first_offset = None\n",
    ),
    Mutant(
        "the end of a transaction discards the offsets of others",
        "testing/group/group_metadata",
        "        for tp, offset in self.transactional.pop(producer_id, {}).items():\n",
        "        mine = self.transactional.pop(producer_id, {})\n        self.transactional.clear()\n"
        "        for tp, offset in mine.items():\n",
    ),
    Mutant(
        "records of aborted transactions are handed out",
        "consumer/fetch_collector",
        "            self._aborted_producer_ids.add(aborted.popleft()[1])\n",
        "            aborted.popleft()\n",
    ),
    Mutant(
        "an aborted transaction does not end with its marker",
        "consumer/fetch_collector",
        "                self._aborted_producer_ids.discard(batch.producer_id)\n",
        "                pass\n",
    ),
    Mutant(
        "a new coordinator begins with epoch 0 of a producer",
        "testing/transaction/transaction_metadata",
        "        producer_epoch=read.producer_epoch,\n",
        "        producer_epoch=0,\n",
    ),
    Mutant(
        "a marker of a former coordinator is accepted",
        _ENTRY,
        "        if entry.coordinator_epoch > marker.coordinator_epoch and ",
        "        if entry.coordinator_epoch is None and ",
    ),
    Mutant(
        "a transaction counts as stable before its marker is replicated",
        "testing/log/producer_state_manager",
        "        self._unreplicated[completed.first_offset] = completed.last_offset\n",
        "",
    ),
    Mutant(
        "the commit of a transaction brings back an older offset",
        "testing/group/group_metadata",
        "                offset.record_offset = marker_offset\n            self._commit(tp, offset)\n",
        "                offset.record_offset = marker_offset\n            self.committed[tp] = offset\n",
    ),
    *(mutant for mutant in TRANSACTION_MUTANTS if mutant.name in _OF_PRODUCERS),
)


if __name__ == "__main__":
    sys.exit(simulate(MUTANTS, "tests.simulation.pipeline_mutants", "tests.simulation.pipeline", _SECONDS))
