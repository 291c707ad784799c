"""A broker's disk, which outlives the broker (Java: a log directory with its files), and the queue of its writes."""

from __future__ import annotations

import uuid
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from pykclient.errors import KafkaStorageError
from pykclient.testing.broker_context import BrokerContext
from pykclient.testing.log.log_segment import LeaderEpochFileCache, LogSegment, MemoryBudget
from pykclient.testing.log.producer_state_manager import Snapshots
from pykclient.types import TopicPartition


@dataclass(slots=True, eq=False)
class PartitionDirectory:
    """The files of one partition: segments with their indexes, leader epochs, producer snapshots, the topic's id.

    Thread: loop.
    """

    disk: BrokerDisk
    #: The name of the log in the account of the cluster's memory.
    owner: str
    topic_partition: TopicPartition
    topic_id: uuid.UUID | None = None
    segments: list[LogSegment] = field(default_factory=list)
    leader_epochs: LeaderEpochFileCache = field(default_factory=LeaderEpochFileCache)
    producer_snapshots: Snapshots = field(default_factory=dict)
    #: The offset up to which the log was compacted.
    cleaner_checkpoint: int = 0

    def acquire(self, size: int, *, within_limit: bool) -> None:
        """Reserve ``size`` bytes.

        Raises:
            KafkaStorageError: the disk is offline or full.
            PolicyViolationError: the cluster's memory limit would be exceeded, and ``within_limit`` is set.
        """
        self.disk.check_writable()
        self.disk.budget.acquire(self.owner, size, within_limit=within_limit)

    def release(self, size: int) -> None:
        """Release ``size`` bytes."""
        if size:
            self.disk.budget.release(self.owner, size)

    @property
    def size(self) -> int:
        """Bytes of all segments."""
        return sum(segment.size for segment in self.segments)


@dataclass(slots=True, eq=False)
class BrokerDisk:
    """The logs and checkpoints of a broker, kept across restarts, and the disk's faults.

    ``offline``: it can be neither read nor written. ``full``: it can only be read. ``write_delay_ms``: the time an
    append takes; the caller waits for it. Thread: loop.
    """

    budget: MemoryBudget
    name: str = "the broker"
    directories: dict[TopicPartition, PartitionDirectory] = field(default_factory=dict)
    #: The checkpoints as last written, which lag behind the logs.
    high_watermarks: dict[TopicPartition, int] = field(default_factory=dict)
    log_start_offsets: dict[TopicPartition, int] = field(default_factory=dict)
    write_delay_ms: int = 0
    full: bool = False
    offline: bool = False

    def directory(self, topic_partition: TopicPartition) -> PartitionDirectory:
        """Return the partition's directory; create it if it does not exist."""
        directory = self.directories.get(topic_partition)
        if directory is None:
            self.check_writable()
            owner = f"{topic_partition} on {self.name}"
            directory = self.directories[topic_partition] = PartitionDirectory(self, owner, topic_partition)
        return directory

    def delete(self, topic_partition: TopicPartition) -> None:
        """Remove all files of a partition, if there are any."""
        directory = self.directories.pop(topic_partition, None)
        if directory is not None:
            directory.release(directory.size)
            directory.segments.clear()
        self.high_watermarks.pop(topic_partition, None)
        self.log_start_offsets.pop(topic_partition, None)

    def check_readable(self) -> None:
        """Check that the disk is online.

        Raises:
            KafkaStorageError: the disk is offline.
        """
        if self.offline:
            raise KafkaStorageError(f"the disk of {self.name} is offline")

    def check_writable(self) -> None:
        """Check that the disk can be written.

        Raises:
            KafkaStorageError: the disk is offline or full.
        """
        if self.offline or self.full:
            raise KafkaStorageError(f"the disk of {self.name} is {'offline' if self.offline else 'full'}")


class DiskQueue:
    """Runs the writes to a broker's disk in order: immediately, or each ``disk.write_delay_ms`` after the previous one.

    Writes of a killed broker that were not due yet are lost, as on a real disk. Thread: loop.
    """

    __slots__ = ("_broker", "_disk", "_waiting")

    def __init__(self, broker: BrokerContext, disk: BrokerDisk) -> None:
        self._broker = broker
        self._disk = disk
        self._waiting: deque[tuple[Callable[..., object], tuple[Any, ...]]] = deque()

    def submit(self, write: Callable[..., object], *arguments: Any) -> None:
        """Call ``write`` after everything submitted before."""
        if not self._waiting and not self._disk.write_delay_ms:
            write(*arguments)
            return
        self._waiting.append((write, arguments))
        if len(self._waiting) == 1:
            self._broker.call_later(self._disk.write_delay_ms, self._next)

    @property
    def idle(self) -> bool:
        """True if everything is written."""
        return not self._waiting

    def clear(self) -> None:
        self._waiting.clear()

    def _next(self) -> None:
        if not self._waiting:
            return
        write, arguments = self._waiting[0]
        try:
            write(*arguments)
        finally:
            if self._waiting:
                self._waiting.popleft()
            if self._waiting:
                self._broker.call_later(self._disk.write_delay_ms, self._next)
