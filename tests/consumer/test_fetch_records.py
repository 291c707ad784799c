"""Decoding a response into records at once or batch by batch gives the same result, even for corrupt input."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from pykclient.consumer import fetch_collector
from pykclient.consumer.fetch_collector import CompletedFetch, Deserializers
from pykclient.consumer.values import READ_COMMITTED, READ_UNCOMMITTED, FetchConfig
from pykclient.errors import IllegalStateError, KafkaError, RecordDeserializationError
from pykclient.record import default_record, memory_records
from pykclient.record.columns import Columns
from pykclient.record.record_batch import crc32c
from pykclient.types import ConsumerRecord, Headers
from tests.consumer.responses import batch
from tests.consumer.test_fetch_columns import answers, completed, with_damage, with_damage_behind_the_checksum
from tests.support.twins import both_forms

PYTHON, COMPILED = zip(
    *(both_forms("pykclient.record.default_record", name) for name in ("RecordCursor", "decode_batches")), strict=True
)

#: The ways to decode: pure Python, compiled batch by batch, and compiled for as many batches at once as possible.
WAYS = (PYTHON, (COMPILED[0], PYTHON[1]), COMPILED)


@contextlib.contextmanager
def decoding(way: Any) -> Iterator[None]:
    """Let batches be decoded in one of WAYS."""
    names = vars(memory_records)
    before = names["RecordCursor"], default_record.decode_batches
    names["RecordCursor"], default_record.decode_batches = way
    try:
        yield
    finally:
        names["RecordCursor"], default_record.decode_batches = before


@pytest.fixture(params=WAYS, ids=("python", "batch by batch", "at once"))
def _way(request: pytest.FixtureRequest) -> Iterator[None]:
    with decoding(request.param):
        yield


class Picky:
    """A deserializer that fails for values that begin with some bytes, each time or only the first time."""

    def __init__(self, refused: bytes, *, for_ever: bool) -> None:
        self._refused = refused
        self._for_ever = for_ever
        self.seen: list[bytes] = []

    def __call__(self, topic: str, headers: Headers, data: bytes) -> tuple[str, Headers, bytes]:
        self.seen.append(data)
        if data[:1] and data[0] in self._refused and (self._for_ever or data not in self.seen[:-1]):
            raise ValueError(f"refused {data!r}")
        return topic, headers, data


def fields(record: ConsumerRecord[Any, Any]) -> list[Any]:
    return [getattr(record, name) for name in ConsumerRecord.__slots__]


def read(
    way: Any,
    fetch: CompletedFetch,
    config: FetchConfig,
    steps: list[int],
    value_deserializer: Picky | None = None,
) -> Any:
    """Read a response step by step until it has failed twice, and return everything observable.

    A negative step reads columns.
    """
    seen: list[Any] = []
    with decoding(way):
        failures = number = 0
        while not fetch.is_consumed and failures < 3:
            step = steps[number % len(steps)]
            number += 1
            result: Any
            try:
                if step > 0:
                    deserializers = Deserializers(None, value_deserializer)
                    result = [fields(record) for record in fetch.fetch_records(config, deserializers, step)]
                else:
                    result = fetch.fetch_columns(config, Columns(["offset"]), -step)
            except KafkaError as error:
                failures += 1
                result = repr(error), repr(error.__cause__)
            seen.append((result, fetch.next_fetch_offset, fetch.last_epoch, fetch.is_consumed))
        fetch.drain()
        calls = [] if value_deserializer is None else value_deserializer.seen
        return seen, fetch._records_read, fetch._bytes_read, calls


step = st.integers(1, 30)
ways = st.tuples(
    st.integers(0, 20),  # position
    st.lists(step | step.map(int.__neg__), min_size=1, max_size=4),
    st.booleans(),  # check_crcs
    st.sampled_from((READ_COMMITTED, READ_UNCOMMITTED)),
    st.lists(st.tuples(st.integers(1, 2), st.integers(0, 10)), max_size=2),  # aborted
    st.none() | st.binary(max_size=9),  # the first bytes of values that cannot be deserialized
    st.booleans(),  # for ever
)


def compare(records: bytes, chosen: Any) -> None:
    offset, steps, check_crcs, isolation_level, aborted, refused, for_ever = chosen
    config = FetchConfig(isolation_level=isolation_level, check_crcs=check_crcs)
    results = [
        read(
            way,
            completed(records, aborted, offset),
            config,
            steps,
            None if refused is None else Picky(refused, for_ever=for_ever),
        )
        for way in WAYS
    ]
    assert results[1] == results[0]
    assert results[2] == results[0]


@given(answers(), ways)
def test_bulk_read_equals_batch_by_batch_read(records: bytes, chosen: Any) -> None:
    compare(records, chosen)


@given(answers(), ways, st.data())
def test_corrupt_bytes_fail_alike_on_every_path(records: bytes, chosen: Any, data: st.DataObject) -> None:
    compare(with_damage(records, data), chosen)


@given(answers(), ways, st.data())
def test_corrupt_bytes_with_valid_crc_fail_alike(records: bytes, chosen: Any, data: st.DataObject) -> None:
    hostile = with_damage_behind_the_checksum(records, data)
    if hostile is not None:
        compare(hostile, chosen)


@settings(max_examples=20)
@given(st.integers(0, 1 << 30))
def test_many_batches_are_read_alike(seed: int) -> None:
    rng = random.Random(seed)
    records = b"".join(batch(50 * number, [b"%d" % rng.randrange(1000)] * 50) for number in range(40))
    for offset, steps in ((0, [1 << 30]), (777, [333]), (0, [500, -500]), (0, [50, 49, 51])):
        compare(records, (offset, steps, True, READ_COMMITTED, [], None, False))


@pytest.mark.usefixtures("_way")
def test_the_last_record_drains_the_response() -> None:
    fetch = completed(batch(0, [b"a"] * 3) + batch(3, [b"b"]), [], 0)
    assert len(fetch.fetch_records(FetchConfig(), Deserializers(), 4)) == 4
    assert fetch.is_consumed
    assert fetch.next_fetch_offset == 4


@pytest.mark.usefixtures("_way")
def test_position_within_a_batch_has_its_epoch() -> None:
    fetch = completed(batch(0, [b"a"] * 3, epoch=1) + batch(3, [b"b"] * 3, epoch=2), [], 0)
    assert len(fetch.fetch_records(FetchConfig(), Deserializers(), 4)) == 4
    assert (fetch.next_fetch_offset, fetch.last_epoch) == (4, 2)
    assert len(fetch.fetch_records(FetchConfig(), Deserializers(), 4)) == 2


@pytest.mark.usefixtures("_way")
def test_a_deserializer_is_called_once_for_each_attempt() -> None:
    """The records before the one that fails are returned first, and the next call tries that one again."""
    picky = Picky(b"c", for_ever=True)
    deserializers = Deserializers(None, picky)
    fetch = completed(batch(0, [b"a", b"b", b"c"]) + batch(3, [b"d"]), [], 0)
    assert [record.offset for record in fetch.fetch_records(FetchConfig(), deserializers, 9)] == [0, 1]
    for _ in range(2):
        with pytest.raises(RecordDeserializationError, match=r"offset 2 of .*refused b'c'") as info:
            fetch.fetch_records(FetchConfig(), deserializers, 9)
        assert isinstance(info.value, ValueError)
    assert picky.seen == [b"a", b"b", b"c", b"c", b"c"]
    assert fetch.next_fetch_offset == 2


@pytest.mark.usefixtures("_way")
@pytest.mark.parametrize("raised", [KeyboardInterrupt, SystemExit])
def test_deserializer_can_raise_system_exit(raised: type[BaseException]) -> None:
    def ends(_topic: str, _headers: Headers, data: bytes) -> bytes:
        if data == b"b":
            raise raised
        return data

    fetch = completed(batch(0, [b"a", b"b"]), [], 0)
    with pytest.raises(raised):
        fetch.fetch_records(FetchConfig(), Deserializers(None, ends), 9)


def test_partly_read_batch_is_checked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(default_record, "decode_batches", COMPILED[1])
    checked: list[int] = []

    def checksum(data: Any) -> int:
        checked.append(len(data))
        return real(data)

    real = crc32c
    monkeypatch.setattr(fetch_collector, "crc32c", checksum)
    fetch = completed(batch(0, [b"a"] * 5) + batch(5, [b"b"] * 5), [], 0)
    read_counts = [len(fetch.fetch_records(FetchConfig(), Deserializers(), 3)) for _ in range(4)]
    assert read_counts == [3, 3, 3, 1]
    assert len(checked) == 2


def test_an_error_of_a_signal_handler_between_batches_ends_the_call(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing has moved: the next call returns the same records."""

    def interrupted(_data: Any) -> int:
        raise IllegalStateError("this KafkaConsumer is in the middle of poll()")

    monkeypatch.setattr(default_record, "decode_batches", COMPILED[1])
    fetch = completed(batch(0, [b"a"] * 2), [], 0)
    with monkeypatch.context() as patch:
        patch.setattr(fetch_collector, "crc32c", interrupted)
        with pytest.raises(IllegalStateError):
            fetch.fetch_records(FetchConfig(), Deserializers(), 9)
    assert fetch.next_fetch_offset == 0
    assert [record.offset for record in fetch.fetch_records(FetchConfig(), Deserializers(), 9)] == [0, 1]
