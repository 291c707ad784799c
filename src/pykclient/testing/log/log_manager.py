"""All logs of a broker, and their periodic maintenance (Java: LogManager)."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from functools import partial

from pykclient.errors import BrokerError
from pykclient.record.record_batch import CURRENT_MAGIC_VALUE
from pykclient.testing import broker_context
from pykclient.testing.broker_context import BrokerContext
from pykclient.testing.coordination.coordination_client import CoordinationClient, KafkaCoordinationClient
from pykclient.testing.coordination.coordination_service import ConnectionLossError
from pykclient.testing.log.broker_disk import BrokerDisk, PartitionDirectory
from pykclient.testing.log.log_cleaner import clean, log_to_clean
from pykclient.testing.log.log_config import MESSAGE_FORMAT_VERSION, LogConfig, log_config, server_defaults
from pykclient.testing.log.unified_log import UnifiedLog
from pykclient.types import TopicPartition

#: Kafka's defaults of keys that this broker does not have.
_START_OFFSET_CHECKPOINT_INTERVAL_MS = 60_000
_PRODUCER_EXPIRATION_CHECK_INTERVAL_MS = 600_000


class LogManager:
    """Opens and creates logs, deletes old segments, and compacts. Thread: loop."""

    def __init__(self, broker: BrokerContext, disk: BrokerDisk, coordination: CoordinationClient) -> None:
        self._broker = broker
        self._disk = disk
        self._clock = broker.loop.clock
        self._log = broker.log_context.logger(__name__)
        self._configs = KafkaCoordinationClient(coordination)
        self._defaults = server_defaults(broker.config)
        profile = broker.profile
        if profile.magic < CURRENT_MAGIC_VALUE:
            self._defaults[MESSAGE_FORMAT_VERSION] = profile.release
        self._producer_id_expiration_ms = broker.config.get_int("producer.id.expiration.ms")
        self._logs: dict[TopicPartition, UnifiedLog] = {}

    # --- start and stop ----------------------------------------------------------------------------------------------

    def startup(self) -> None:
        """Open all logs of the disk. The settings of a topic are read when a partition first needs its log."""
        config = self._broker.config
        for directory in self._disk.directories.values():
            self._logs[directory.topic_partition] = self._open(directory, log_config(self._defaults, {}))
        for interval_ms, work in (
            (config.get_int("log.retention.check.interval.ms"), self.cleanup_logs),
            (max(1, config.get_int("log.cleaner.backoff.ms")), self.clean_logs),
            (_START_OFFSET_CHECKPOINT_INTERVAL_MS, self.checkpoint_log_start_offsets),
            (_PRODUCER_EXPIRATION_CHECK_INTERVAL_MS, self._remove_expired_producers),
        ):
            self._broker.every(interval_ms, partial(self._unless_offline, work))

    def _unless_offline(self, work: Callable[[], None]) -> None:
        if not self._disk.offline:
            work()

    def shutdown(self) -> None:
        """Close the logs. After a kill, only data that was on the disk before remains."""
        if self._broker.state == broker_context.SHUTTING_DOWN and not self._disk.offline:
            self.checkpoint_log_start_offsets()
            for log in self._logs.values():
                log.close()
        self._logs.clear()

    # --- logs --------------------------------------------------------------------------------------------------------

    @property
    def all_logs(self) -> list[UnifiedLog]:
        return list(self._logs.values())

    def get_log(self, topic_partition: TopicPartition) -> UnifiedLog | None:
        """Return the partition's log, or None if this broker has none."""
        return self._logs.get(topic_partition)

    def get_or_create_log(self, topic_partition: TopicPartition, topic_id: uuid.UUID | None = None) -> UnifiedLog:
        """Return the partition's log with its topic's current settings; create it if there is none.

        Raises:
            KafkaStorageError: the disk is offline, or full and the log does not exist yet.
        """
        self._disk.check_readable()
        log = self._logs.get(topic_partition)
        config = self.fetch_log_config(topic_partition.topic)
        if log is None:
            log = self._open(self._disk.directory(topic_partition), config)
            self._logs[topic_partition] = log
            self._log.info("Created a log for %s", topic_partition)
        log.config = config
        if topic_id is not None:
            log.assign_topic_id(topic_id)
        return log

    def _open(self, directory: PartitionDirectory, config: LogConfig) -> UnifiedLog:
        return UnifiedLog(
            directory,
            config,
            self._clock,
            log_start_offset=self._disk.log_start_offsets.get(directory.topic_partition, 0),
            producer_id_expiration_ms=self._producer_id_expiration_ms,
            segment_jitter_ms=config.random_segment_jitter(self._broker.rng),
            verifies_transactions=self._broker.config["transaction.partition.verification.enable"],
        )

    def async_delete(self, topic_partition: TopicPartition) -> None:
        """Delete a log and its files, if they exist."""
        self._logs.pop(topic_partition, None)
        self._disk.delete(topic_partition)

    # --- settings ----------------------------------------------------------------------------------------------------

    def fetch_log_config(self, topic: str) -> LogConfig:
        """Return a topic's settings.

        If the coordination service is unreachable, these are only the broker's defaults.
        """
        try:
            overrides = self._configs.topic_config(topic)
        except ConnectionLossError:
            overrides = {}
        return log_config(self._defaults, overrides)

    def update_topic_config(self, topic: str, overrides: Mapping[str, str]) -> None:
        """Apply a topic's changed settings."""
        config = log_config(self._defaults, overrides)
        for log in self._logs.values():
            if log.topic_partition.topic == topic:
                log.config = config

    # --- from time to time -------------------------------------------------------------------------------------------

    def cleanup_logs(self) -> None:
        """Delete segments that exceed the retention time or size."""
        for log in self.all_logs:
            deleted = log.delete_old_segments()
            if deleted:
                self._log.info("Deleted %d segments of %s", deleted, log.topic_partition)

    def clean_logs(self) -> None:
        """Compact the logs with enough new data, or with data that has waited for too long."""
        now_ms = self._clock.wall_ms()
        for log in self.all_logs:
            if not log.config.compact:
                continue
            to_clean = log_to_clean(log, now_ms)
            if to_clean.needs_compaction_now or (
                to_clean.cleanable_bytes and to_clean.cleanable_ratio > log.config.min_cleanable_ratio
            ):
                try:
                    freed = clean(log, now_ms)
                except BrokerError as error:
                    self._log.warning("Cannot compact %s: %s", log.topic_partition, error)
                else:
                    self._log.info("Compacted %s, which freed %d bytes", log.topic_partition, freed)

    def checkpoint_log_start_offsets(self) -> None:
        """Save the start offsets of logs that begin inside a segment."""
        checkpoint = self._disk.log_start_offsets
        for topic_partition, log in self._logs.items():
            if log.log_start_offset > log.segments[0].base_offset:
                checkpoint[topic_partition] = log.log_start_offset
            else:
                checkpoint.pop(topic_partition, None)

    def _remove_expired_producers(self) -> None:
        for log in self._logs.values():
            log.remove_expired_producers()
