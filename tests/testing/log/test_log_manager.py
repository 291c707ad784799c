"""The logs of one broker, across restarts."""

from __future__ import annotations

import random
import uuid
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast

import pytest

from pykclient.errors import InconsistentTopicIdError, KafkaStorageError
from pykclient.log_context import LogContext
from pykclient.testing import broker_context
from pykclient.testing.broker_context import BrokerContext
from pykclient.testing.config import BrokerConfig
from pykclient.testing.coordination.coordination_service import ConnectionLossError, NoNodeError
from pykclient.testing.coordination.znodes import topic_config_path
from pykclient.testing.event_loop import EventLoop, TimerHandle
from pykclient.testing.log.broker_disk import BrokerDisk
from pykclient.testing.log.log_manager import LogManager
from pykclient.testing.log.log_segment import MemoryBudget
from pykclient.testing.release_profiles import ReleaseProfile
from tests.support.mock_clock import MockClock
from tests.testing.log.support import NOW_MS, TP, batch

if TYPE_CHECKING:
    from pykclient.testing.coordination.coordination_client import CoordinationClient

_HOUR_MS = 3_600_000


class Coordination:
    """The coordination service's topic settings; unreachable if ``settings`` is None."""

    def __init__(self) -> None:
        self.settings: dict[str, dict[str, str]] | None = {}

    def get_data(self, path: str) -> tuple[dict[str, str], None]:
        if self.settings is None:
            raise ConnectionLossError(path)
        for topic, config in self.settings.items():
            if path == topic_config_path(topic):
                return config, None
        raise NoNodeError(path)


class Owner:
    """The parts of a broker that its logs use."""

    def __init__(self, release: str = ReleaseProfile.CURRENT, **config: Any) -> None:
        self.config = BrokerConfig(config)
        self.clock = MockClock(wall_ms=NOW_MS)
        self.loop = EventLoop(self.clock)
        self.disk = BrokerDisk(MemoryBudget(1 << 20), "broker 1")
        self.coordination = Coordination()
        self.log_context = LogContext()
        self.rng = random.Random(1)
        self.state = broker_context.RUNNING
        self.profile = ReleaseProfile.of(release)
        self._periodic: dict[Callable[[], object], TimerHandle] = {}
        self.logs = self.start()

    def every(self, interval_ms: int, work: Callable[[], object]) -> None:
        BrokerContext.every(cast(BrokerContext, self), interval_ms, work)

    def call_later(self, delay_ms: int, callback: Callable[..., object], *arguments: Any) -> TimerHandle:
        return self.loop.call_later(delay_ms, callback, *arguments)

    def start(self) -> LogManager:
        self.state = broker_context.RUNNING
        self.logs = LogManager(cast(BrokerContext, self), self.disk, cast("CoordinationClient", self.coordination))
        self.logs.startup()
        return self.logs

    def stop(self) -> None:
        self.state = broker_context.SHUTTING_DOWN
        self.kill()

    def kill(self) -> None:
        self.logs.shutdown()
        for timer in self._periodic.values():
            timer.cancel()

    def advance(self, duration_ms: int) -> None:
        self.clock.advance(duration_ms)
        self.loop.run_due()
        assert self.loop.failure is None

    def append(self, data: bytes | None = None) -> None:
        log = self.logs.get_or_create_log(TP)
        log.append_as_leader(batch(timestamps=[self.clock.wall_ms()]) if data is None else data, 0)
        log.update_high_watermark(log.log_end_offset)


def test_logs_survive_a_restart_and_a_kill() -> None:
    owner = Owner()
    id = uuid.uuid4()
    owner.logs.get_or_create_log(TP, id)
    for end in (owner.stop, owner.kill):
        owner.append()
        before = owner.logs.get_or_create_log(TP).log_end_offset
        end()
        assert not owner.logs.all_logs
        log = owner.start().get_log(TP)
        assert log is not None
        assert (log.log_end_offset, log.high_watermark, log.topic_id) == (before, 0, id)
    with pytest.raises(InconsistentTopicIdError):
        owner.logs.get_or_create_log(TP, uuid.uuid4())


def test_kill_can_bring_deleted_records_back() -> None:
    owner = Owner()
    for _ in range(4):
        owner.append()
    owner.logs.get_or_create_log(TP).maybe_increment_log_start_offset(1)
    owner.advance(60_000)
    owner.logs.get_or_create_log(TP).maybe_increment_log_start_offset(3)
    owner.kill()
    assert owner.start().get_or_create_log(TP).log_start_offset == 1
    owner.logs.get_or_create_log(TP).update_high_watermark(4)
    owner.logs.get_or_create_log(TP).maybe_increment_log_start_offset(3)
    owner.stop()
    assert owner.start().get_or_create_log(TP).log_start_offset == 3


def test_topic_settings_apply_to_logs() -> None:
    owner = Owner(log_retention_ms=5000)
    assert owner.coordination.settings is not None
    owner.coordination.settings["orders"] = {"min.insync.replicas": "2"}
    log = owner.logs.get_or_create_log(TP)
    assert (log.config.retention_ms, log.config.min_in_sync_replicas) == (5000, 2)
    owner.logs.update_topic_config("orders", {"retention.ms": "7"})
    assert (log.config.retention_ms, log.config.min_in_sync_replicas) == (7, 1)
    owner.coordination.settings = None
    assert owner.logs.get_or_create_log(TP).config.retention_ms == 5000


def test_deleted_log_frees_its_memory() -> None:
    owner = Owner()
    owner.append()
    assert owner.disk.budget.held_bytes
    owner.logs.async_delete(TP)
    owner.logs.async_delete(TP)
    assert owner.logs.get_log(TP) is None
    assert owner.disk.budget.held_bytes == 0
    owner.stop()
    assert not owner.start().all_logs


def test_old_segments_are_deleted_on_schedule() -> None:
    owner = Owner(log_retention_ms=_HOUR_MS, log_segment_bytes=150, log_retention_check_interval_ms=1000)
    for _ in range(5):
        owner.append()
    log = owner.logs.get_or_create_log(TP)
    owner.advance(_HOUR_MS)
    assert len(log.segments) == 3
    owner.advance(1000)
    assert (len(log.segments), log.log_start_offset, log.size) == (1, 5, 0)


def test_compaction_starts_when_enough_is_dirty() -> None:
    owner = Owner(log_cleanup_policy="compact", log_segment_bytes=300, log_cleaner_backoff_ms=1000)
    for _ in range(9):
        owner.append()
    log = owner.logs.get_or_create_log(TP)
    before = log.size
    owner.disk.offline = True
    owner.advance(1000)
    assert log.size == before
    owner.disk.offline = False
    owner.advance(1000)
    assert log.size < before
    checkpoint = log.cleaner_checkpoint
    assert checkpoint > 0
    owner.advance(1000)
    assert log.cleaner_checkpoint == checkpoint


def test_idle_producers_expire_on_schedule() -> None:
    owner = Owner(producer_id_expiration_ms=1000)
    owner.append(batch(producer=(7, 0, 0), timestamps=[NOW_MS]))
    log = owner.logs.get_or_create_log(TP)
    owner.advance(599_000)
    assert log.active_producers
    owner.advance(1_000)
    assert not log.active_producers


def test_disk_failures_are_storage_errors() -> None:
    owner = Owner()
    owner.append()
    owner.disk.full = True
    other = TP._replace(partition=1)
    with pytest.raises(KafkaStorageError, match="full"):
        owner.logs.get_or_create_log(other)
    assert owner.logs.get_or_create_log(TP).log_end_offset == 1
    owner.disk.offline = True
    with pytest.raises(KafkaStorageError, match="offline"):
        owner.logs.get_or_create_log(TP)


def test_stopped_manager_does_nothing() -> None:
    owner = Owner(log_retention_ms=1, log_segment_bytes=150, log_retention_check_interval_ms=1000)
    for _ in range(5):
        owner.append()
    log = owner.logs.get_or_create_log(TP)
    owner.stop()
    owner.advance(_HOUR_MS)
    assert len(log.segments) == 3


def test_old_releases_use_their_record_format() -> None:
    owner = Owner(release="0.10.2")
    owner.append()
    assert owner.logs.get_or_create_log(TP).config.message_format_magic == 1
    (stored,) = owner.logs.get_or_create_log(TP).batches(0, 1)
    assert (stored.magic, stored.last_offset) == (1, 0)
