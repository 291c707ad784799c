"""Deliberate faults of the share consumer, each of which this package's tests must catch.

``python -m tests.consumer.share.mutants`` puts one after another into a copy of the sources and runs those tests.
"""

from __future__ import annotations

import sys

from tests.support.mutants import Mutant, escaped

_TESTS = (
    "tests/consumer/share/test_acknowledgements.py",
    "tests/consumer/share/test_share_membership.py",
    "tests/consumer/share/test_share_session_handler.py",
    "tests/consumer/share/test_kafka_share_consumer.py",
    "tests/consumer/share/test_share_poll_arrow.py",
)

_CONSUMER = "consumer/share/share_consumer"
_REQUESTS = "consumer/share/share_consume_request_manager"
_SESSION = "consumer/share/share_consume_request_manager"
_FETCH = "consumer/share/share_fetch"
_COMPLETED = "consumer/share/share_fetch"
_MEMBER = "consumer/share/share_coordinator"

MUTANTS: tuple[Mutant, ...] = (
    Mutant(
        "records that wait for a loop are accepted",
        _FETCH,
        "            if offset not in types and offset not in except_offsets:\n",
        "            if offset not in types:\n",
    ),
    Mutant(
        "close accepts the records of the last poll",
        _CONSUMER,
        "        with self._lease():\n            futures = self._requests.close_sessions(",
        "        self._accept()\n        with self._lease():\n            futures = self._requests.close_sessions(",
    ),
    Mutant(
        "a poll with explicit acknowledgement does not require it",
        _CONSUMER,
        "        elif missing := self._fetch.unacknowledged - len(self._waiting):\n",
        "        elif missing := 0:\n",
    ),
    Mutant(
        "rows are acknowledged up to the first that cannot be",
        _FETCH,
        "            found.append((batch, offset))\n",
        "            batch.acknowledge(offset, kind)\n",
    ),
    Mutant(
        "a renewed record is not returned again",
        _FETCH,
        "            if record is not None and kind == AcknowledgeType.RENEW and acknowledgements.error is None:\n",
        "            if False:\n",
    ),
    Mutant(
        "a record whose renewal has failed is returned again",
        _FETCH,
        "            if record is not None and kind == AcknowledgeType.RENEW and acknowledgements.error is None:\n",
        "            if record is not None and kind == AcknowledgeType.RENEW:\n",
    ),
    Mutant(
        "the session of a broker goes on after it has lost it",
        _SESSION,
        "        if isinstance(error, _SESSION_LOST):\n            self._begin_anew()\n        elif",
        "        if",
    ),
    Mutant(
        "the epoch of a session is not raised",
        _SESSION,
        "            self.epoch = 1 if self.epoch == _MAX_EPOCH else self.epoch + 1\n",
        "            self.epoch = max(self.epoch, 1)\n",
    ),
    Mutant(
        "partitions that are no longer assigned stay in the session",
        _SESSION,
        "        removed = [partition for tp, partition in present.items() if after.get(tp) != partition]\n",
        "        removed = []\n",
    ),
    Mutant(
        "acknowledgements go to a broker that does not lead any more",
        _REQUESTS,
        "        elif leader.id != node_id:\n",
        "        elif False:\n",
    ),
    Mutant(
        "two requests are in flight to one broker",
        _REQUESTS,
        "            if node_id in self._busy or node_id in self._operations:\n",
        "            if node_id in self._operations:\n",
    ),
    Mutant(
        "an acknowledgement without an answer counts as successful",
        _REQUESTS,
        "        self._fail(acknowledged, _failure(error, node))\n",
        "        for tip, each in acknowledged.items():\n            each.complete(None)\n"
        "            self._on_completed(tip, each, None)\n",
    ),
    Mutant(
        "acknowledgements are retried after their timeout",
        _REQUESTS,
        "            elif operation.attempts and now_ms >= operation.deadline_ms:\n",
        "            elif False:\n",
    ),
    Mutant(
        "records of other members are delivered",
        _COMPLETED,
        "            if acquired and acquired[0][0] == record.offset:\n",
        "            if acquired and acquired[0][0] <= record.offset + 1:\n",
    ),
    Mutant(
        "offsets without records are not acknowledged",
        _FETCH,
        "        self.acknowledgements.types[offset] = GAP\n",
        "        pass\n",
    ),
    Mutant(
        "a corrupt batch is released for ever",
        _COMPLETED,
        "                kind = AcknowledgeType.REJECT\n",
        "                kind = AcknowledgeType.RELEASE\n",
    ),
    Mutant(
        "records are returned whose locks have expired",
        "consumer/share/share_fetch",
        "            if self._clock.now_ms() >= completed.lock_end_ms:\n",
        "            if False:\n",
    ),
    Mutant(
        "a member that was fenced keeps its partitions",
        _MEMBER,
        "            self._drop_assignment()\n            self._log.info(\n",
        "            self._log.info(\n",
    ),
    Mutant(
        "a member joins again after an error that no retry mends",
        _MEMBER,
        "        elif state is FENCED or state is STALE:\n",
        "        elif state is FENCED or state is STALE or state is FATAL:\n",
    ),
)


def main() -> int:
    missed = escaped(MUTANTS, *_TESTS)
    print(f"{len(MUTANTS) - len(missed)} of {len(MUTANTS)} faults are caught")
    return bool(missed)


if __name__ == "__main__":
    sys.exit(main())
