"""The offsets of one group, committed and pending."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from uuid import UUID

from pykclient.protocol.wire import ZERO_UUID
from pykclient.types import TopicPartition


class CommittedOffset:
    """A committed offset of one partition (Java: the coordinator's OffsetAndMetadata). Compare by identity.

    ``leader_epoch`` is -1 if the consumer did not know it. ``topic_id`` is ZERO_UUID for a topic without one.
    ``expire_timestamp_ms`` is -1 unless the commit had its own retention time, as old clients may send.
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
    """The commits of one group (Java: the offsets of GroupMetadata).

    A commit is *pending* from its append until all in-sync replicas have it. Only then can it be read, because an
    offset that a client has seen must survive the loss of a broker. Each commit request is one write. A fetch of stable
    offsets (KIP-447) waits for the writes that were pending when it arrived. Offsets that a transaction sends are kept
    by its producer's id until the transaction's marker decides; meanwhile they are *unstable*.

    Thread: loop
    """

    __slots__ = ("_last_write", "_pending", "_removed", "_transactional", "_waiting", "_writes", "committed")

    def __init__(self) -> None:
        self.committed: dict[TopicPartition, CommittedOffset] = {}
        self._pending: dict[TopicPartition, CommittedOffset] = {}
        #: The offsets of tombstones written while commits were pending, by partition.
        self._removed: dict[TopicPartition, int] = {}
        self._last_write = 0
        self._writes: dict[int, Mapping[TopicPartition, CommittedOffset]] = {}
        self._waiting: list[tuple[int, Callable[[], None]]] = []
        self._transactional: dict[int, dict[TopicPartition, CommittedOffset]] = {}

    def __bool__(self) -> bool:
        """Return whether there are any offsets, including pending ones."""
        return bool(self.committed or self._pending or self._transactional)

    def partitions(self) -> list[TopicPartition]:
        """Return all partitions with an offset, including pending ones."""
        known = {**self.committed, **self._pending}
        for offsets in self._transactional.values():
            known |= offsets
        return list(known)

    def is_pending(self, tp: TopicPartition) -> bool:
        return tp in self._pending

    # --- transactions

    def is_unstable(self, tp: TopicPartition) -> bool:
        """Return whether an open transaction has sent an offset of the partition."""
        return any(tp in offsets for offsets in self._transactional.values())

    def prepare_transactional(self, producer_id: int, offsets: Mapping[TopicPartition, CommittedOffset]) -> None:
        """Add offsets of a transaction that are about to be appended."""
        self._transactional.setdefault(producer_id, {}).update(offsets)

    def complete_transactional(self, offsets: Mapping[TopicPartition, CommittedOffset], record_offset: int) -> None:
        """Complete the write of a transaction's offsets, whose batch is at ``record_offset``."""
        for offset in offsets.values():
            offset.record_offset = record_offset

    def fail_transactional(self, producer_id: int, offsets: Mapping[TopicPartition, CommittedOffset]) -> None:
        """Remove offsets of a transaction that, as far as is known, are not in the log."""
        pending = self._transactional.get(producer_id, {})
        for tp, offset in offsets.items():
            if pending.get(tp) is offset:
                del pending[tp]
        if not pending:
            self._transactional.pop(producer_id, None)

    def end_transaction(self, producer_id: int, marker_offset: int, *, committed: bool) -> None:
        """Commit or discard the offsets of a producer's transaction, whose marker is at ``marker_offset``."""
        for tp, offset in self._transactional.pop(producer_id, {}).items():
            if not committed:
                continue
            if offset.record_offset < 0:
                # Not known to be replicated, but the marker is, which comes later in the log.
                offset.record_offset = marker_offset
            known = self.committed.get(tp)
            if known is None or known.record_offset < offset.record_offset:
                self.committed[tp] = offset

    # --- writes

    def prepare(self, offsets: Mapping[TopicPartition, CommittedOffset]) -> int:
        """Add offsets that are about to be appended; return the number of the write, to be completed or failed."""
        self._last_write += 1
        self._writes[self._last_write] = offsets
        self._pending.update(offsets)
        return self._last_write

    def complete(self, write: int, record_offset: int) -> None:
        """Complete a write, whose batch is at ``record_offset``. Writes may complete in any order."""
        committed = self.committed
        for tp, offset in self._writes[write].items():
            # Deleted meanwhile, by a later tombstone in the log.
            if record_offset < self._removed.get(tp, -1):
                continue
            offset.record_offset = record_offset
            known = committed.get(tp)
            if known is None or known.record_offset < record_offset:
                committed[tp] = offset
        self._end(write)

    def fail(self, write: int) -> None:
        """Fail a write that, as far as is known, is not in the log."""
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
        """Call ``then`` when all writes that are pending now have ended, or immediately if there is none."""
        if self._writes:
            self._waiting.append((self._last_write, then))
        else:
            then()

    def abandon(self) -> None:
        """Call all waiters, which then find that the group is unloaded."""
        waiting, self._waiting = self._waiting, []
        for _, then in waiting:
            then()

    def load(
        self,
        offsets: Mapping[TopicPartition, CommittedOffset],
        transactional: Mapping[int, Mapping[TopicPartition, CommittedOffset]],
    ) -> None:
        """Add offsets loaded from the log, and those of open transactions by producer id."""
        self.committed.update(offsets)
        for producer_id, pending in transactional.items():
            self.prepare_transactional(producer_id, pending)

    def remove(self, partitions: Iterable[TopicPartition], tombstone_offset: int) -> None:
        """Remove the offsets of these partitions. Those committed after the tombstone at ``tombstone_offset`` stay."""
        for tp in partitions:
            if self._writes:
                self._removed[tp] = tombstone_offset
            known = self.committed.get(tp)
            if known is not None and known.record_offset < tombstone_offset:
                del self.committed[tp]
            for producer_id, pending in list(self._transactional.items()):
                sent = pending.get(tp)
                if sent is not None and sent.record_offset < tombstone_offset:
                    self.fail_transactional(producer_id, {tp: sent})

    def expired(
        self, base_timestamp_ms: Callable[[CommittedOffset], int], now_ms: int, retention_ms: int
    ) -> list[TopicPartition]:
        """Return the partitions without pending commits whose retention is over.

        The retention starts at ``base_timestamp_ms`` (KIP-211).
        """
        return [
            tp
            for tp, offset in self.committed.items()
            if tp not in self._pending
            and not self.is_unstable(tp)
            and (
                now_ms >= offset.expire_timestamp_ms
                if offset.expire_timestamp_ms >= 0
                else now_ms - base_timestamp_ms(offset) >= retention_ms
            )
        ]
