"""The choice of the fetched records that a member of a share group gets (Java: SharePartition.acquire)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from pykclient.protocol.messages.share_fetch import ShareFetchResponse
from pykclient.testing.share.in_flight_batch import NO_MEMBER, AcquisitionLock, InFlightBatch, InFlightState
from pykclient.testing.share.share_states import RecordState

if TYPE_CHECKING:
    from pykclient.record.memory_records import AnyRecordBatch
    from pykclient.testing.log.log_types import AbortedTxn
    from pykclient.testing.share.in_flight_records import InFlightRecords

AcquiredRecords = ShareFetchResponse.AcquiredRecords


class AcquireRequest(NamedTuple):
    """A member's request for records of one partition.

    With ``record_limit``, ``max_records`` is a strict limit; otherwise batches of the log stay whole (KIP-1206).
    """

    member_id: str
    max_records: int
    batch_size: int
    record_limit: bool


class RecordAcquirer:
    """Acquires records that were read from the log, and remembers them as in flight.

    Records that were delivered often are given in smaller and smaller portions, and alone with their last delivery, so
    that one poison record does not use up the deliveries of others. Thread: loop.
    """

    __slots__ = ("_max_deliveries", "_max_in_flight", "_new_lock", "_records", "_throttle_from")

    def __init__(self, records: InFlightRecords, new_lock: Callable[[int, int], AcquisitionLock]) -> None:
        self._records = records
        self._new_lock = new_lock
        self.set_limits(1, 1)

    def set_limits(self, max_in_flight: int, max_deliveries: int) -> None:
        """Set how many records may be in flight, and how often each may be delivered."""
        self._max_in_flight = max_in_flight
        self._max_deliveries = max_deliveries
        self._throttle_from = max(2, -(-max_deliveries // 2))

    def acquire(
        self, request: AcquireRequest, fetch_offset: int, batches: Sequence[AnyRecordBatch]
    ) -> list[AcquiredRecords]:
        """Acquire what a member gets of ``batches``, which were read from ``fetch_offset`` on."""
        records = self._records
        if request.max_records <= 0 or not batches or batches[-1].last_offset < records.start_offset:
            return []
        last_offset, left = self._limits(request, fetch_offset, batches[-1].last_offset)
        if left <= 0:
            return []
        first_offset = base_offset = batches[0].base_offset
        if fetch_offset < base_offset:
            # Compaction has removed records that were released.
            records.archive(fetch_offset, base_offset - 1, RecordState.AVAILABLE)
        floor = records.floor(base_offset)
        if floor is None:
            base_offset = max(base_offset, records.start_offset)
        elif floor.last_offset >= base_offset:
            base_offset = floor.first_offset
        found = records.between(min(first_offset, base_offset), last_offset)
        if not found:
            return self._acquire_new(request, batches, base_offset, last_offset, left)
        result, left = self._acquire_known(request, batches, found, (first_offset, base_offset, last_offset), left)
        if left > 0 and found[-1].last_offset < last_offset:
            result += self._acquire_new(request, batches, found[-1].last_offset + 1, last_offset, left)
        if result:
            records.read_up_to(result[-1].last_offset + 1)
        return result

    def _limits(self, request: AcquireRequest, fetch_offset: int, last_offset: int) -> tuple[int, int]:
        """Return the last offset and the number of records that can be acquired."""
        records = self._records
        left = min(request.max_records, self._max_in_flight - records.count)
        if left <= 0 and fetch_offset <= records.end_offset:
            # Only what was released between other records in flight.
            left = min(request.max_records, records.end_offset - fetch_offset + 1)
            last_offset = min(last_offset, records.end_offset)
        return last_offset, left

    def _acquire_known(
        self,
        request: AcquireRequest,
        batches: Sequence[AnyRecordBatch],
        found: Sequence[InFlightBatch],
        offsets: tuple[int, int, int],
        left: int,
    ) -> tuple[list[AcquiredRecords], int]:
        """Acquire what is available of batches in flight, and between them; return it and how many are left."""
        first_offset, gap_start, last_offset = offsets
        records = self._records
        result: list[AcquiredRecords] = []
        for batch in found:
            if left <= 0:
                break
            if records.has_gaps:
                if gap_start < batch.first_offset:
                    new = self._acquire_new(request, batches, gap_start, batch.first_offset - 1, left)
                    result += new
                    left -= _count(new)
                gap_start = batch.last_offset + 1
                if left <= 0:
                    break
            throttled = self._is_throttled(batch, first_offset, last_offset)
            if throttled and result:
                return result, 0
            is_whole = batch.is_within(first_offset, last_offset) and not throttled
            if batch.state is not None:
                if not _can_acquire(batch.state):
                    continue
                if is_whole and not (request.record_limit and len(batch) > left):
                    lock = self._new_lock(batch.first_offset, batch.last_offset)
                    batch.state.acquire(request.member_id, lock)
                    result.append(_acquired(batch.first_offset, batch.last_offset, batch.state.delivery_count))
                    left -= len(batch)
                    continue
                batch.split()
            some = self._acquire_some(request, batch, first_offset, last_offset, left)
            result += some
            left -= _count(some)
            if throttled and some:
                return result, 0
        return result, left

    # --- records that were delivered before

    def _is_throttled(self, batch: InFlightBatch, first_offset: int, last_offset: int) -> bool:
        return any(
            state.delivery_count >= self._throttle_from and _can_acquire(state)
            for first, last, state in batch.parts()
            if batch.state is not None or first_offset <= first <= last_offset
        )

    def _acquire_some(
        self, request: AcquireRequest, batch: InFlightBatch, first_offset: int, last_offset: int, left: int
    ) -> list[AcquiredRecords]:
        """Acquire available records of a batch, one by one; join those with the same delivery count."""
        limit = left if request.record_limit else len(batch)
        is_limited = False
        taken: list[tuple[int, InFlightState]] = []
        for offset, _, state in batch.parts():
            if len(taken) >= limit or offset > last_offset:
                break
            if offset < first_offset or not _can_acquire(state):
                continue
            is_last = self._max_deliveries > 2 and state.delivery_count == self._max_deliveries - 1
            if is_last and taken:
                break
            if state.delivery_count >= self._throttle_from and not is_limited:
                is_limited = True
                limit = min(limit, max(1, len(batch) >> state.delivery_count - self._throttle_from + 1))
            taken.append((offset, state))
            if is_last:
                break
        if not taken:
            return []
        lock = self._new_lock(taken[0][0], taken[-1][0])
        joined: list[AcquiredRecords] = []
        for offset, state in taken:
            state.acquire(request.member_id, lock)
            last = joined[-1] if joined else None
            if last is not None and last.last_offset + 1 == offset and last.delivery_count == state.delivery_count:
                last.last_offset = offset
            else:
                joined.append(_acquired(offset, offset, state.delivery_count))
        return joined

    # --- records that were not delivered before

    def _acquire_new(
        self,
        request: AcquireRequest,
        batches: Sequence[AnyRecordBatch],
        first_offset: int,
        last_offset: int,
        left: int,
    ) -> list[AcquiredRecords]:
        records = self._records
        if not records.batches:
            first_offset = max(first_offset, records.end_offset)
        last = last_offset
        if left < last - first_offset + 1:
            last = _end_of_batch(batches, first_offset + left - 1)
            if records.has_gaps:
                last = min(last, last_offset)
        acquired = self._add_batches(request, batches, first_offset, last, left)
        if records.batches[0].first_offset == first_offset:
            records.start_offset = first_offset
        records.end_offset = max(records.end_offset, last)
        records.read_up_to(acquired[-1].last_offset + 1)
        return acquired

    def _add_batches(
        self,
        request: AcquireRequest,
        batches: Sequence[AnyRecordBatch],
        first_offset: int,
        last_offset: int,
        left: int,
    ) -> list[AcquiredRecords]:
        count = last_offset - first_offset + 1
        if request.record_limit and count > left:
            # The rest of the log's batch becomes available.
            last_acquired = first_offset + left - 1
            batch = InFlightBatch(first_offset, last_offset, InFlightState(RecordState.AVAILABLE, 0, NO_MEMBER))
            lock = self._new_lock(first_offset, last_acquired)
            for offset, state in batch.split().items():
                if offset <= last_acquired:
                    state.acquire(request.member_id, lock)
            self._records.add(batch)
            return [_acquired(first_offset, last_acquired, 1)]
        starts = [first_offset]
        if not request.record_limit and count > request.batch_size:
            for log_batch in batches:
                if starts[-1] + request.batch_size <= log_batch.base_offset <= last_offset:
                    starts.append(log_batch.base_offset)
        acquired = []
        for start, end in zip(starts, [*(start - 1 for start in starts[1:]), last_offset], strict=True):
            state = InFlightState(RecordState.AVAILABLE, 0)
            state.acquire(request.member_id, self._new_lock(start, end))
            self._records.add(InFlightBatch(start, end, state))
            acquired.append(_acquired(start, end, 1))
        return acquired

    # --- transactions

    def archive_aborted(
        self, acquired: list[AcquiredRecords], batches: Sequence[AnyRecordBatch], aborted: Sequence[AbortedTxn]
    ) -> list[AcquiredRecords]:
        """Archive acquired records of aborted transactions; return the others."""
        for batch in _aborted_batches(batches, aborted):
            self._records.archive(batch.base_offset, batch.last_offset, RecordState.ACQUIRED)
            acquired = [
                part for records in acquired for part in _without(records, batch.base_offset, batch.last_offset)
            ]
        return acquired


def _can_acquire(state: InFlightState) -> bool:
    return state.state is RecordState.AVAILABLE


def _acquired(first_offset: int, last_offset: int, delivery_count: int) -> AcquiredRecords:
    return AcquiredRecords(first_offset=first_offset, last_offset=last_offset, delivery_count=delivery_count)


def _count(acquired: Sequence[AcquiredRecords]) -> int:
    return sum(records.last_offset - records.first_offset + 1 for records in acquired)


def _end_of_batch(batches: Sequence[AnyRecordBatch], offset: int) -> int:
    """Return the last offset of the batch with this offset, or ``offset`` if no batch has it."""
    for batch in batches:
        if batch.base_offset <= offset <= batch.last_offset:
            return batch.last_offset
    return offset


def _aborted_batches(batches: Sequence[AnyRecordBatch], aborted: Sequence[AbortedTxn]) -> list[AnyRecordBatch]:
    """Return the batches of aborted transactions, without their markers."""
    waiting = sorted(aborted, key=lambda txn: txn.first_offset, reverse=True)
    producer_ids: set[int] = set()
    found = []
    for batch in batches:
        if batch.producer_id < 0:
            continue
        while waiting and waiting[-1].first_offset <= batch.last_offset:
            producer_ids.add(waiting.pop().producer_id)
        if batch.is_control_batch:
            producer_ids.discard(batch.producer_id)
        elif batch.is_transactional and batch.producer_id in producer_ids:
            found.append(batch)
    return found


def _without(records: AcquiredRecords, first_offset: int, last_offset: int) -> list[AcquiredRecords]:
    """Return the parts of ``records`` outside of a range."""
    if last_offset < records.first_offset or first_offset > records.last_offset:
        return [records]
    parts = []
    if records.first_offset < first_offset:
        parts.append(_acquired(records.first_offset, first_offset - 1, records.delivery_count))
    if records.last_offset > last_offset:
        parts.append(_acquired(last_offset + 1, records.last_offset, records.delivery_count))
    return parts
