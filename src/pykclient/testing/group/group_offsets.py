"""The offsets of one group: those that are committed, and those on their way into the log."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from uuid import UUID

from pykclient.protocol.wire import ZERO_UUID
from pykclient.types import TopicPartition


class CommittedOffset:
    """What was committed for one partition (Java: the coordinator's OffsetAndMetadata). Compare by identity.

    ``leader_epoch`` is -1 when the consumer knew none. ``topic_id`` is ZERO_UUID for a topic without one.
    ``expire_timestamp_ms`` is -1 unless the commit brought a retention time of its own, as old clients may.
    ``record_offset`` is the offset of the commit's batch in __consumer_offsets, -1 before it has one.

    Thread: loop
    """

    __slots__ = (
        "commit_timestamp_ms",
        "expire_timestamp_ms",
        "leader_epoch",
        "metadata",
        "offset",
        "record_offset",
        "topic_id",
    )

    def __init__(
        self,
        offset: int,
        leader_epoch: int,
        metadata: str,
        commit_timestamp_ms: int,
        expire_timestamp_ms: int = -1,
        topic_id: UUID = ZERO_UUID,
    ) -> None:
        self.offset = offset
        self.leader_epoch = leader_epoch
        self.metadata = metadata
        self.commit_timestamp_ms = commit_timestamp_ms
        self.expire_timestamp_ms = expire_timestamp_ms
        self.topic_id = topic_id
        self.record_offset = -1

    def __repr__(self) -> str:
        return f"CommittedOffset({self.offset}, leader_epoch={self.leader_epoch}, metadata={self.metadata!r})"


class GroupOffsets:
    """What one group committed (Java: the offsets of GroupMetadata).

    A commit is *pending* from its append until the log has it on all in-sync replicas, and only then can it be
    read: an offset that was handed out must not be lost with one broker. Commits come in writes; whoever wants
    stable offsets (KIP-447) waits for those writes that were under way when it asked.

    Thread: loop
    """

    __slots__ = ("_last_write", "_pending", "_removed", "_waiting", "_writes", "committed")

    def __init__(self) -> None:
        self.committed: dict[TopicPartition, CommittedOffset] = {}
        self._pending: dict[TopicPartition, CommittedOffset] = {}
        #: Tombstones that were written while there were commits on their way, by partition.
        self._removed: dict[TopicPartition, int] = {}
        self._last_write = 0
        self._writes: dict[int, Mapping[TopicPartition, CommittedOffset]] = {}
        self._waiting: list[tuple[int, Callable[[], None]]] = []

    def __bool__(self) -> bool:
        """Whether there are any, pending ones included."""
        return bool(self.committed or self._pending)

    def partitions(self) -> list[TopicPartition]:
        """All partitions with an offset, pending ones included."""
        return list({**self.committed, **self._pending})

    def is_pending(self, tp: TopicPartition) -> bool:
        return tp in self._pending

    def prepare(self, offsets: Mapping[TopicPartition, CommittedOffset]) -> int:
        """These are about to be appended. Returns the number of the write, to be completed or failed."""
        self._last_write += 1
        self._writes[self._last_write] = offsets
        self._pending.update(offsets)
        return self._last_write

    def complete(self, write: int, record_offset: int) -> None:
        """The write is in the log, its batch at ``record_offset``. Writes may end in another order than they began."""
        committed = self.committed
        for tp, offset in self._writes[write].items():
            # Deleted meanwhile, by a tombstone that lies behind it in the log.
            if record_offset < self._removed.get(tp, -1):
                continue
            offset.record_offset = record_offset
            known = committed.get(tp)
            if known is None or known.record_offset < record_offset:
                committed[tp] = offset
        self._end(write)

    def fail(self, write: int) -> None:
        """The write did not get into the log, as far as is known."""
        self._end(write)

    def _end(self, write: int) -> None:
        for tp, offset in self._writes.pop(write).items():
            if self._pending.get(tp) is offset:
                del self._pending[tp]
        if not self._writes:
            self._removed.clear()
        oldest = next(iter(self._writes), self._last_write + 1)
        ready = [then for last, then in self._waiting if last < oldest]
        if ready:
            self._waiting = [waiting for waiting in self._waiting if waiting[0] >= oldest]
            for then in ready:
                then()

    def when_stable(self, then: Callable[[], None]) -> None:
        """Call ``then`` when all writes that are under way have ended: at once if there is none."""
        if self._writes:
            self._waiting.append((self._last_write, then))
        else:
            then()

    def abandon(self) -> None:
        """The group is unloaded: whoever waits is called, and finds that out."""
        waiting, self._waiting = self._waiting, []
        for _, then in waiting:
            then()

    def load(self, offsets: Mapping[TopicPartition, CommittedOffset]) -> None:
        """What the log had."""
        self.committed.update(offsets)

    def remove(self, partitions: Iterable[TopicPartition], tombstone_offset: int) -> None:
        """Forget these, except what was committed after the tombstone at ``tombstone_offset``."""
        for tp in partitions:
            if self._writes:
                self._removed[tp] = tombstone_offset
            known = self.committed.get(tp)
            if known is not None and known.record_offset < tombstone_offset:
                del self.committed[tp]

    def expired(
        self, base_timestamp_ms: Callable[[CommittedOffset], int], now_ms: int, retention_ms: int
    ) -> list[TopicPartition]:
        """The partitions, none pending, whose retention is over, counted from ``base_timestamp_ms`` (KIP-211)."""
        return [
            tp
            for tp, offset in self.committed.items()
            if tp not in self._pending
            and (
                now_ms >= offset.expire_timestamp_ms
                if offset.expire_timestamp_ms >= 0
                else now_ms - base_timestamp_ms(offset) >= retention_ms
            )
        ]
