"""Queues become due in time, and the sender is woken for them."""

from __future__ import annotations

import random
from typing import Any

import pytest

from pykclient.clock import FOREVER_MS
from pykclient.producer.future import ProducerBatch
from tests.producer.harness import TOPIC, TP0, nodes_due, snapshot
from tests.producer.test_record_accumulator import LINGER_MS, Harness

#: Mutes a partition, in place of a batch in flight.
MUTING: Any = object()


def test_sender_is_woken_only_for_earlier_due_batches() -> None:
    h = Harness()
    accumulator = h.accumulator
    now_ms = h.clock.now_ms()
    assert h.append()[1]  # the sender's next deadline is unknown
    accumulator.waiting.next_look_ms = now_ms + LINGER_MS
    assert not h.append(partition=1)[1]  # due when the sender's wait ends anyway
    accumulator.waiting.next_look_ms = now_ms + LINGER_MS + 1
    assert h.append(partition=2)[1]
    accumulator.waiting.next_look_ms = now_ms
    accumulator.waiting.begin_look()
    h.drain(0)
    assert h.append()[1]  # a round has begun, so the deadline no longer counts


def test_batch_found_full_is_due_at_once() -> None:
    h = Harness(linger_ms=10_000)
    h.append()
    assert h.ready() == set()
    h.accumulator.waiting.next_look_ms = h.clock.now_ms() + 1
    assert not h.append()[1]
    assert h.append(value=bytes(1000))[1]
    assert h.ready() == {0}


def test_sender_is_woken_once_until_it_checks() -> None:
    h = Harness(linger_ms=0)
    accumulator = h.accumulator
    assert h.append()[1]
    assert not accumulator.waiting.expect_look()
    assert not h.append(partition=1)[1]
    assert h.append(value=bytes(1000))[1]  # a full batch lets a sender that waits for the GIL run
    assert accumulator.waiting.expect_look()
    accumulator.waiting.begin_look()
    assert h.append(partition=2)[1]
    assert not accumulator.waiting.expect_look()


def test_full_batch_is_noticed_with_custom_partitioner() -> None:
    h = Harness(linger_ms=10_000)
    h.append()
    h.accumulator.waiting.next_look_ms = h.clock.now_ms() + 1
    assert h.append(value=bytes(1000), abort_on_new_batch=True) == (None, True, True)
    assert h.ready() == {0}


def test_sender_is_not_woken_for_blocked_node() -> None:
    h = Harness(linger_ms=0)
    h.append()
    assert h.ready() == {0}
    h.accumulator.waiting.nodes[0].is_blocked = True
    assert not h.append(value=bytes(1000))[1]
    h.accumulator.waiting.begin_look()
    assert h.append(value=bytes(1000))[1]


def test_new_metadata_moves_queues_to_new_leaders() -> None:
    h = Harness(linger_ms=0)
    h.append()
    h.append(partition=2)
    assert h.ready() == {0, 1}
    assert h.ready(snapshot({TP0: None})) == set()
    assert TP0 in [queue.topic_partition for queue in h.accumulator.waiting.leaderless]
    assert h.ready(snapshot({TP0: 1})) == {1}
    assert h.ready() == {0, 1}
    assert len(h.drain(0)) == len(h.drain(1)) == 1
    assert h.ready() == set()
    assert h.ready(snapshot({TP0: None})) == set()
    assert not h.accumulator.waiting.leaderless


def _walk(h: Harness) -> tuple[set[int], int]:
    """Return the nodes that are due and the time to the next check, by scanning all queues as Java does."""
    now_ms = h.clock.now_ms()
    waits_ms: dict[int, list[int]] = {0: [], 1: []}
    for partition in range(3):
        batches = h.queue(partition)
        if batches and batches[0].topic_partition not in h.accumulator.waiting.muted:
            first = batches[0]
            linger_ms = 0 if len(batches) > 1 or first.is_full else LINGER_MS
            wait_ms = max(linger_ms, first.retry_backoff_ms) - (now_ms - first.last_attempt_ms)
            waits_ms[partition // 2].append(max(wait_ms, 0))
    shortest = {node: min(waits) for node, waits in waits_ms.items() if waits}
    due = {node for node, wait_ms in shortest.items() if not wait_ms}
    return due, min((wait_ms for wait_ms in shortest.values() if wait_ms), default=FOREVER_MS)


@pytest.mark.parametrize("seed", range(20))
def test_next_check_equals_a_scan_of_all_queues(seed: int) -> None:
    rng = random.Random(seed)
    h = Harness(memory=1024 * 1024)
    accumulator = h.accumulator
    sent: list[ProducerBatch] = []
    for _ in range(300):
        step = rng.randrange(7)
        queue = accumulator.get_queue(TOPIC, rng.randrange(3))
        if step <= 1:
            h.append(rng.randrange(3), bytes(rng.choice((10, 300, 900))))
        elif step == 2:
            h.clock.advance(rng.randrange(1, LINGER_MS))
        elif step == 3:
            sent += h.drain(rng.randrange(2), rng.choice((1000, FOREVER_MS)))
        elif step == 4 and sent:
            accumulator.register.requeue(sent.pop(rng.randrange(len(sent))), h.clock.now_ms())
        elif step == 5 and queue is not None:
            rng.choice((accumulator.waiting.mute, accumulator.waiting.unmute))(queue, MUTING)
        elif step == 6 and queue is not None and rng.random() < 0.1:
            h.clock.advance(3000)
            for batch in accumulator.expired_batches(h.clock.now_ms()):
                assert batch.has_reached_delivery_timeout(accumulator.delivery_timeout_ms, h.clock.now_ms())
        due, next_ms = nodes_due(accumulator, h.snapshot, h.clock.now_ms())
        assert (set(due), next_ms) == _walk(h)
        made = [batch.created_ms for partition in range(3) for batch in h.queue(partition)[:1]]
        assert accumulator.waiting.next_expiry_ms <= min(made, default=FOREVER_MS) + accumulator.delivery_timeout_ms
