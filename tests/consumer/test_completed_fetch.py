"""Transactions, gaps and old formats within one partition's response (Java: CompletedFetchTest, FetcherTest)."""

from __future__ import annotations

import builtins
import random
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from pykclient.consumer import fetch_collector
from pykclient.consumer.consumer_metrics import FetchMetricsAggregator, FetchMetricsManager
from pykclient.consumer.fetch_collector import CompletedFetch, Deserializers
from pykclient.consumer.subscription_state import SubscriptionState
from pykclient.consumer.values import READ_COMMITTED, READ_UNCOMMITTED, FetchConfig
from pykclient.errors import IllegalStateError, KafkaError
from pykclient.implementation import python_form
from pykclient.log_context import LogContext
from pykclient.metrics import Metrics
from pykclient.record import Compression, CompressionType, MemoryRecordsBuilder, default_record
from pykclient.record.arrow import record_batch
from pykclient.record.columns import Columns
from pykclient.record.memory_records_builder import write_empty_header
from tests.consumer.harness import TP0, Harness, offsets, values
from tests.consumer.responses import batch, marker, partition_data


def completed(records: bytes, *, aborted: list[tuple[int, int]] | None = None, offset: int = 0) -> CompletedFetch:
    log_context = LogContext()
    harness = Harness()
    harness.assign(TP0)
    subscriptions: SubscriptionState = harness.subscriptions
    aggregator = FetchMetricsAggregator(FetchMetricsManager(Metrics()), [TP0])
    data = partition_data(TP0, records, aborted=aborted or ())
    return CompletedFetch(log_context.logger(__name__), subscriptions, TP0, data, aggregator, offset)


def read_all(
    fetch: CompletedFetch, isolation_level: int = READ_COMMITTED, step: int = 500, rng: random.Random | None = None
) -> list[Any]:
    """Return all values; ``rng`` chooses at random between records and columns."""
    config = FetchConfig(isolation_level=isolation_level)
    result: list[Any] = []
    while not fetch.is_consumed:
        if rng is None or rng.random() < 0.5:
            result += [record.value for record in fetch.fetch_records(config, Deserializers(), step)]
        else:
            columns = Columns(["value"], max_bytes=rng.choice((1, 1 << 20)))
            count = fetch.fetch_columns(config, columns, step)
            assert count == columns.rows <= step
            result += record_batch(columns)["value"].to_pylist()
    return result


def txn(offset: int, values: list[bytes | None], producer_id: int) -> bytes:
    return batch(offset, values, producer_id=producer_id, transactional=True)


def test_read_committed_skips_aborted_records() -> None:
    records = (
        txn(0, [b"a0", b"a1"], 1)
        + txn(2, [b"b2"], 2)
        + marker(3, 2, commit=False)
        + txn(4, [b"a4"], 1)
        + marker(5, 1, commit=True)
        + batch(6, [b"plain"])
    )
    fetch = completed(records, aborted=[(2, 2)])
    assert read_all(fetch) == [b"a0", b"a1", b"a4", b"plain"]
    assert fetch.next_fetch_offset == 7


def test_read_uncommitted_skips_only_markers() -> None:
    records = txn(0, [b"a"], 1) + marker(1, 1, commit=False) + txn(2, [b"b"], 1) + marker(3, 1, commit=True)
    fetch = completed(records)
    assert read_all(fetch, READ_UNCOMMITTED) == [b"a", b"b"]
    assert fetch.next_fetch_offset == 4


def test_only_the_committed_transaction_is_returned() -> None:
    records = txn(0, [b"bad"], 1) + marker(1, 1, commit=False) + txn(2, [b"good"], 1) + marker(3, 1, commit=True)
    assert read_all(completed(records, aborted=[(1, 0)])) == [b"good"]


def test_records_of_both_aborts_are_skipped() -> None:
    records = b"".join(
        (
            txn(0, [b"bad"], 1),
            marker(1, 1, commit=False),
            txn(2, [b"good"], 1),
            marker(3, 1, commit=True),
            txn(4, [b"bad"], 1),
            txn(5, [b"bad"], 1),
            marker(6, 1, commit=False),
        )
    )
    fetch = completed(records, aborted=[(1, 4), (1, 0)])
    assert read_all(fetch) == [b"good"]
    assert fetch.next_fetch_offset == 7


def test_aborted_transaction_started_before_the_position_is_skipped() -> None:
    assert read_all(completed(txn(5, [b"bad"], 1) + marker(6, 1, commit=False), aborted=[(1, 0)], offset=5)) == []


def test_non_transactional_records_of_an_aborting_producer_are_read() -> None:
    records = batch(0, [b"idempotent"], producer_id=1) + txn(1, [b"bad"], 1) + marker(2, 1, commit=False)
    assert read_all(completed(records, aborted=[(1, 0)])) == [b"idempotent"]


def test_abort_marker_without_records_is_skipped() -> None:
    # Compaction removed all records of the transaction.
    fetch = completed(marker(3, 1, commit=False) + txn(4, [b"good"], 1) + marker(5, 1, commit=True))
    assert read_all(fetch) == [b"good"]
    assert fetch.next_fetch_offset == 6


def test_only_aborted_records_move_the_position_without_records() -> None:
    harness = Harness({"isolation.level": "read_committed"})
    harness.assign(TP0)
    records = txn(0, [b"bad", b"bad"], 1) + marker(2, 1, commit=False)
    fetch = harness.fetch({TP0: partition_data(TP0, records, aborted=[(1, 0)])})
    assert fetch.num_records == 0
    assert fetch.position_advanced
    assert not fetch.is_empty
    assert harness.position(TP0) == 3


def test_empty_batches_are_skipped() -> None:
    empty = bytes(write_empty_header(1, 0, 0, 3, 9, 1, 0, 1000))
    fetch = completed(batch(0, [b"a"]) + empty + batch(10, [b"b"]))
    assert read_all(fetch) == [b"a", b"b"]
    fetch = completed(empty, offset=3)
    assert read_all(fetch) == []
    assert fetch.next_fetch_offset == 10


def test_offset_gaps_are_skipped() -> None:
    builder = MemoryRecordsBuilder(base_offset=0)
    for offset in (0, 3, 7):
        builder.append_with_offset(offset, 1000, None, b"%d" % offset)
    builder.close()
    fetch = completed(bytes(builder.build()) + batch(20, [b"20"]), offset=2)
    assert read_all(fetch, step=1) == [b"3", b"7", b"20"]
    assert fetch.next_fetch_offset == 21


@pytest.mark.parametrize("magic", [0, 1])
def test_old_message_formats_are_read(magic: int) -> None:
    builder = MemoryRecordsBuilder(base_offset=5, magic=magic, timestamp_type=-1 if magic == 0 else 0)
    builder.append(1000 if magic else -1, b"k", b"v0")
    builder.append(1000 if magic else -1, None, b"v1")
    builder.close()
    fetch = completed(bytes(builder.build()), offset=5)
    assert read_all(fetch) == [b"v0", b"v1"]
    assert fetch.last_epoch is None
    assert fetch.next_fetch_offset == 7
    fetch = completed(bytes(builder.build()), offset=5)
    columns = Columns()
    assert fetch.fetch_columns(FetchConfig(), columns, 10) == 2
    rows = record_batch(columns).to_pylist()
    assert [(row["key"], row["value"], row["timestamp_type"], row["leader_epoch"]) for row in rows] == [
        (b"k", b"v0", magic - 1, None),
        (None, b"v1", magic - 1, None),
    ]
    assert rows[0]["timestamp"] == (datetime.fromtimestamp(1, UTC) if magic else None)
    assert fetch.next_fetch_offset == 7


@pytest.mark.parametrize(
    "kind", [CompressionType.GZIP, CompressionType.SNAPPY, CompressionType.LZ4, CompressionType.ZSTD]
)
def test_compressed_batches_are_read(kind: CompressionType) -> None:
    builder = MemoryRecordsBuilder(compression=Compression.of(kind))
    for index in range(100):
        builder.append(1000, None, b"value %d" % index)
    builder.close()
    fetch = completed(bytes(builder.build()), offset=90)
    assert read_all(fetch, step=3) == [b"value %d" % index for index in range(90, 100)]


def test_malformed_batch_raises_with_its_offset() -> None:
    fetch = completed(batch(0, [b"a"]) + b"\xff" * 80)
    config = FetchConfig()
    assert [record.value for record in fetch.fetch_records(config, Deserializers(), 10)] == [b"a"]
    for _ in range(2):
        with pytest.raises(KafkaError, match="test-0 at offset 1"):
            fetch.fetch_records(config, Deserializers(), 10)
        with pytest.raises(KafkaError, match="test-0 at offset 1"):
            fetch.fetch_columns(config, Columns(), 10)
    fetch.drain()
    assert fetch.fetch_records(config, Deserializers(), 10) == []


def test_drained_fetch_releases_the_response() -> None:
    fetch = completed(batch(0, [b"a"]))
    assert read_all(fetch) == [b"a"]
    assert fetch.partition_data.records is None
    fetch.drain()
    assert read_all(fetch) == []


@settings(max_examples=80, deadline=None)
@given(seed=st.integers(0, 1 << 32), step=st.integers(1, 7), start=st.integers(0, 30))
def test_interleaved_transactions_return_committed_records(seed: int, step: int, start: int) -> None:
    """Exactly the committed records are returned, in order, for any step size and start offset."""
    rng = random.Random(seed)
    log: list[bytes] = []
    committed: list[tuple[int, bytes]] = []
    aborted: list[tuple[int, int]] = []
    open_transactions: dict[int, list[tuple[int, bytes]]] = {}
    offset = 0
    for _ in range(rng.randrange(1, 30)):
        producer_id = rng.randrange(3)
        action = rng.random()
        if action < 0.6:
            written = [b"%d" % (offset + index) for index in range(rng.randrange(1, 4))]
            log.append(txn(offset, list(written), producer_id))
            pending = open_transactions.setdefault(producer_id, [])
            pending += [(offset + index, value) for index, value in enumerate(written)]
            offset += len(written)
        elif action < 0.7:
            log.append(batch(offset, [b"%d" % offset]))
            committed.append((offset, b"%d" % offset))
            offset += 1
        elif producer_id in open_transactions:
            pending = open_transactions.pop(producer_id)
            commit = action < 0.85
            log.append(marker(offset, producer_id, commit=commit))
            if commit:
                committed += pending
            else:
                aborted.append((producer_id, pending[0][0]))
            offset += 1
    for producer_id, pending in open_transactions.items():
        log.append(marker(offset, producer_id, commit=True))
        committed += pending
        offset += 1
    if not log:
        return
    start = min(start, offset - 1)
    # A broker sends whole batches, starting with the one that contains the offset.
    first = max(index for index, each in enumerate(log) if int.from_bytes(each[:8], "big") <= start)
    # Like a broker, list the aborted transactions that overlap the returned range.
    still_open = [each for each in aborted if _ends_after(log, first, each)]
    fetch = completed(b"".join(log[first:]), aborted=rng.sample(still_open, len(still_open)), offset=start)
    expected = [value for at, value in sorted(committed) if at >= start]
    assert read_all(fetch, step=step, rng=rng) == expected
    assert fetch.next_fetch_offset == offset


def _ends_after(log: list[bytes], first: int, aborted: tuple[int, int]) -> bool:
    """Return whether the marker of the transaction is in ``log[first:]``."""
    producer_id, first_offset = aborted
    for index, each in enumerate(log):
        base_offset = int.from_bytes(each[:8], "big")
        is_control = bool(each[22] & 0x20)
        if is_control and base_offset > first_offset and int.from_bytes(each[43:51], "big") == producer_id:
            return index >= first
    return False


def test_position_has_the_epoch_of_the_last_read_record() -> None:
    harness = Harness()
    harness.assign(TP0)
    fetch = harness.fetch({TP0: partition_data(TP0, batch(0, [b"a"], epoch=1) + batch(1, [b"b"], epoch=4))})
    assert offsets(fetch, TP0) == [0, 1]
    assert values(fetch, TP0) == [b"a", b"b"]
    position = harness.subscriptions.position(TP0)
    assert position is not None
    assert position.offset_epoch == 4


@pytest.mark.parametrize("read_before", [0, 2])
def test_signal_handler_error_ends_the_call(monkeypatch: pytest.MonkeyPatch, read_before: int) -> None:
    """The handler strikes after records were read and before the offset moves past them.

    The records must not be returned: nobody would know that the next call begins with them.
    """
    monkeypatch.setattr(default_record, "decode_batches", python_form(default_record.decode_batches))
    fetch = completed(batch(0, [b"a", b"b"]) + batch(2, [b"c", b"d"]))
    calls: list[object] = []

    def interrupted(*numbers: int) -> int:
        calls.append(numbers)
        if len(calls) > read_before // 2:
            raise IllegalStateError("this KafkaConsumer is in the middle of poll()")
        return builtins.max(*numbers)

    monkeypatch.setattr(fetch_collector, "max", interrupted, raising=False)
    with pytest.raises(IllegalStateError):
        fetch.fetch_records(FetchConfig(), Deserializers(), 500)
    assert fetch.next_fetch_offset == read_before
