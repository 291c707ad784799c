"""The limit on the memory of all logs."""

from __future__ import annotations

import pytest

from pykclient.errors import PolicyViolationError
from pykclient.testing.log.broker_disk import BrokerDisk
from pykclient.testing.log.log_config import LogConfig
from pykclient.testing.log.log_segment import MemoryBudget
from pykclient.testing.log.log_types import AppendOrigin
from pykclient.testing.log.unified_log import UnifiedLog
from pykclient.types import TopicPartition
from tests.support.mock_clock import MockClock
from tests.testing.log.support import batch, values

_SIZE = len(batch(values(1, 100)))


def test_append_past_the_limit_is_refused_with_advice() -> None:
    budget = MemoryBudget(5 * _SIZE)
    logs = [
        UnifiedLog(BrokerDisk(budget, f"broker {id}").directory(TopicPartition("t", 0)), LogConfig(), MockClock())
        for id in (1, 2)
    ]
    for _ in range(2):
        for log in logs:
            log.append_as_leader(batch(values(1, 100)), 0)
    logs[0].append_as_leader(batch(values(1, 100)), 0)
    assert budget.held_bytes == 5 * _SIZE
    with pytest.raises(PolicyViolationError) as caught:
        logs[1].append_as_leader(batch(producer=(1, 0, 0)), 0)
    message = str(caught.value)
    assert f"memory_limit_bytes is {5 * _SIZE}" in message
    assert f"t-0 on broker 1 {3 * _SIZE}, t-0 on broker 2 {2 * _SIZE}" in message
    for advice in ("Raise memory_limit_bytes", "retention.bytes", "segment.bytes", "delete topics"):
        assert advice in message
    # The refused append changed nothing.
    assert logs[1].log_end_offset == 2
    assert not logs[1].active_producers
    assert budget.held_bytes == 5 * _SIZE
    # The limit does not block followers and groups.
    logs[1].append_as_follower(batch(base_offset=2, epoch=0))
    logs[1].append_as_leader(batch(), 0, AppendOrigin.COORDINATOR)
    assert budget.held_bytes > 5 * _SIZE
    logs[1].truncate_to(2)
    logs[0].truncate_to(1)
    assert budget.held_bytes == 3 * _SIZE
    assert logs[1].append_as_leader(batch(producer=(1, 0, 0)), 0).first_offset == 2
    logs[1].truncate_fully_and_start_at(0)
    assert budget.held_bytes == _SIZE
