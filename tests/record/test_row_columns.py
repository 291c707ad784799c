"""Rows encoded from columns give the same bytes as one by one, from both twins."""

from __future__ import annotations

import array as arrays
import itertools
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, strategies as st

from pykclient.errors import IllegalArgumentError
from pykclient.implementation import python_form
from pykclient.producer.partitioner.hashing import POSITIVE, hash_partitions, murmur2
from pykclient.record import Compression, MemoryRecordsBuilder, arrow, memory_records_builder
from pykclient.record.default_record import encode_headers
from pykclient.record.record_batch import MAX_INT32, estimate_size_in_bytes_upper_bound
from pykclient.record.row_columns import (
    BytesColumn,
    Rows,
    encode_rows,
    fingerprint,
    gather,
    gather_headers,
    group_rows,
    oversized,
    upper_bound,
    widened,
)
from tests.record.strategies import headers, nullable_bytes
from tests.support.twins import compiled_form

compiled = compiled_form("pykclient.record.row_columns")

records = st.lists(
    st.tuples(st.integers(0, 1 << 42) | st.just((1 << 63) - 1), nullable_bytes, nullable_bytes, headers), max_size=30
)


def rows_of(given: list[Any]) -> Rows:
    return Rows(
        len(given),
        BytesColumn.of([key for _, key, _, _ in given]),
        BytesColumn.of([value for _, _, value, _ in given]),
        BytesColumn.of([encode_headers(headers) for _, _, _, headers in given]),
        memoryview(pa.array([timestamp for timestamp, *_ in given], pa.int64()).buffers()[1]).cast("B").cast("q")
        if given
        else None,
        7,
    )


@given(records, st.data(), st.sampled_from(("none", "lz4")), st.integers(61, 3000), st.sampled_from((1.0, 0.3)))
def test_rows_encode_same_batch_as_single_records(
    given: list[Any], data: st.DataObject, codec: str, limit: int, ratio: float
) -> None:
    indices = data.draw(st.none() | st.lists(st.integers(0, max(0, len(given) - 1)), max_size=40 if given else 0))
    wanted = given if indices is None else [given[index] for index in indices]
    before = data.draw(st.lists(st.binary(max_size=100), max_size=3))
    steps = data.draw(st.integers(1, 40))
    results = []
    for encode in (None, python_form(encode_rows), compiled.encode_rows):
        builder = MemoryRecordsBuilder(bytearray(limit), compression=Compression.of(codec), write_limit=limit)
        builder.set_estimated_compression_ratio(ratio)
        for value in before:
            builder.append(5, None, value)
        if encode is None:
            fitting = itertools.takewhile(lambda record: builder.try_append(*record), wanted)  # noqa: B023
            count = len(list(fitting))
        else:
            count = append_all(builder, encode, rows_of(given), indices, len(wanted), steps)
        results.append((count, builder.num_records, builder.info(), bytes(builder.build())))
    assert results[0] == results[1] == results[2]


def append_all(
    builder: MemoryRecordsBuilder, encode: Any, rows: Rows, indices: list[int] | None, total: int, step: int
) -> int:
    module: Any = memory_records_builder
    module.encode_rows, original = encode, module.encode_rows
    view = None if indices is None else memoryview(pa.array(indices, pa.int32()).buffers()[1]).cast("B").cast("i")
    try:
        first = 0
        while first < total:
            stop = min(first + step, total)
            count, largest = builder.try_append_rows(rows, view, first, stop, MAX_INT32)
            assert bool(count) == bool(largest)
            first += count
            if first < stop:
                break
        return first
    finally:
        module.encode_rows = original


@pytest.mark.parametrize("encode", [python_form(encode_rows), compiled.encode_rows])
def test_append_rows_stops_at_given_size(encode: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory_records_builder, "encode_rows", encode)
    rows = rows_of([(1, None, bytes(100), ())] * 10)
    builder = MemoryRecordsBuilder()
    assert builder.try_append_rows(rows, None, 0, 10, 250)[0] == 3
    assert builder.try_append_rows(rows, None, 3, 10, 1)[0] == 1
    builder.close_for_record_appends()
    assert builder.try_append_rows(rows, None, 4, 10, 1000) == (0, 0)


@pytest.mark.parametrize("encode", [python_form(encode_rows), compiled.encode_rows])
def test_rows_fit_although_view_prevents_growth(encode: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory_records_builder, "encode_rows", encode)
    buffer = bytearray(100)
    rows = rows_of([(1, None, bytes(100), ())])
    with memoryview(buffer):
        builder = MemoryRecordsBuilder(buffer)
        assert builder.try_append_rows(rows, None, 0, 1, MAX_INT32)[0] == 1
        assert len(builder.build()) > 100


@pytest.mark.parametrize("encode", [python_form(encode_rows), compiled.encode_rows])
@pytest.mark.parametrize("offsets", [(0, 9), (5, 2), (-1, 2), (3, 1 << 40)])
def test_offsets_outside_of_data_are_refused(encode: Any, offsets: tuple[int, int]) -> None:
    column = BytesColumn(1, memoryview(pa.array(offsets, pa.int64()).buffers()[1]).cast("B").cast("q"), b"12345678")
    rows = Rows(1, None, column, None, None, 1)
    with pytest.raises(IllegalArgumentError, match="row 0 is at"):
        encode(bytearray(100), 0, rows, None, 0, 1, 1, 0, 0, 1.0, 1000, 1000, MAX_INT32)


def test_twins_encode_many_rows_alike() -> None:
    rows = rows_of([(1000 + i % 7, b"k" * (i % 3), b"v" * (i % 200), [("h", None)] * (i % 2)) for i in range(3000)])
    results = []
    for encode in (python_form(encode_rows), compiled.encode_rows):
        for size, room in ((0, 1 << 30), (100_000, 1 << 30), (300_000, 200_000)):
            target = bytearray(size)
            results.append((encode(target, 0, rows, None, 2, 3000, 1000, 0, 0, 1.0, room, 1 << 30, MAX_INT32), target))
    for one, other in zip(results[:3], results[3:], strict=True):
        assert one[0] == other[0]
        assert one[1][: one[0][1]] == other[1][: one[0][1]]


@given(records, st.data())
def test_upper_bound_holds_for_every_row(given: list[Any], data: st.DataObject) -> None:
    rows = rows_of(given)
    start = data.draw(st.integers(0, len(given)))
    stop = data.draw(st.integers(start, len(given)))
    bound = python_form(upper_bound)(rows, start, stop)
    assert compiled.upper_bound(rows, start, stop) == bound
    exact = [rows.upper_bound(row) for row in range(start, stop)]
    assert max(exact, default=0) <= bound
    if stop - start == 1:
        assert exact == [bound]


@given(
    st.lists(st.integers(-3, 12) | st.integers(-(1 << 63), (1 << 63) - 1), min_size=1, max_size=6),
    st.integers(-1, 6),
    st.integers(-1, 7),
)
def test_twins_check_any_offsets_alike(offsets: list[int], start: int, stop: int) -> None:
    places = memoryview(pa.array(offsets, pa.int64()).buffers()[1]).cast("B").cast("q")[: len(offsets)]
    rows = Rows(len(offsets) - 1, None, BytesColumn(len(offsets) - 1, places, b"12345678"), None, None, 1)
    results: list[Any] = []
    for twin in (python_form(upper_bound), compiled.upper_bound):
        try:
            results.append(twin(rows, start, stop))
        except (IllegalArgumentError, IndexError) as error:
            results.append((type(error), str(error)))
    assert results[0] == results[1]


@given(records, st.integers(80, 500))
def test_too_large_rows_are_found(given: list[Any], limit: int) -> None:
    rows = rows_of(given)
    expected = [
        index
        for index, (_, key, value, headers_) in enumerate(given)
        if estimate_size_in_bytes_upper_bound(2, Compression.of("none"), key, value, headers_) > limit
    ]
    assert python_form(oversized)(rows, 0, len(given), limit) == expected
    assert compiled.oversized(rows, 0, len(given), limit) == expected


@given(st.lists(st.integers(-2, 5) | st.integers(0, 3000), max_size=60), st.data())
def test_twins_group_rows_by_partition_alike(numbers: list[int], data: st.DataObject) -> None:
    view = memoryview(bytearray(pa.array(numbers, pa.int32()).buffers()[1] or b"")[: 4 * len(numbers)]).cast("i")
    start = data.draw(st.integers(0, len(numbers)))
    stop = data.draw(st.integers(start, len(numbers)))
    expected = [
        (number, [row for row in range(start, stop) if numbers[row] == number])
        for number in sorted(set(numbers[start:stop]))
    ]
    for twin in (python_form(group_rows), compiled.group_rows):
        assert [(number, list(rows)) for number, rows in twin(view, start, stop)] == expected


@given(st.lists(st.none() | st.binary(max_size=40), max_size=20), st.integers(1, 2000))
def test_twins_hash_keys_to_same_partitions(keys: list[bytes | None], count: int) -> None:
    results = []
    for twin in (python_form(hash_partitions), compiled_form("pykclient.producer.partitioner.hashing").hash_partitions):
        numbers = memoryview(bytearray(b"\xff" * (4 * len(keys) + 4))).cast("i")
        if keys:
            numbers[0] = 77  # already chosen
        twin(BytesColumn.of(keys), 0, len(keys), count, numbers)
        results.append(list(numbers))
    assert results[0] == results[1]
    expected = [-1 if key is None else (murmur2(key) & POSITIVE) % count for key in keys]
    assert results[0] == [77, *expected[1:], -1] if keys else [-1]


to_view: Any = memoryview
texts = st.binary(max_size=20)
buffers: st.SearchStrategy[Any] = texts | texts.map(bytearray) | texts.map(to_view)


def outcome(function: Any, *arguments: Any) -> Any:
    """Return the result, with views as lists, or the error."""
    try:
        offsets, data, validity = function(*arguments)
    except (IllegalArgumentError, IndexError) as error:
        return type(error), str(error)
    return list(offsets), bytes(data), validity and list(validity)


@given(st.lists(st.none() | buffers | buffers.map(lambda each: memoryview(each)[::2]) | st.integers(), max_size=20))
def test_twins_gather_objects_alike(values: list[Any]) -> None:
    found = outcome(python_form(gather), values)
    assert outcome(compiled.gather, values) == found
    assert outcome(compiled.gather, tuple(values)) == found
    if not any(isinstance(value, int) for value in values):
        column = BytesColumn.of(values)
        assert [column[row] for row in range(len(column))] == [None if v is None else bytes(v) for v in values]


names = st.lists(st.none() | st.text(max_size=5).map(str.encode) | st.binary(min_size=60, max_size=70), max_size=6)


@given(names, st.lists(nullable_bytes, max_size=6), st.lists(st.integers(-1, 7), max_size=6))
def test_twins_gather_headers_alike(names: list[bytes | None], values: list[bytes | None], places: list[int]) -> None:
    view = memoryview(bytearray(pa.array(places, pa.int64()).buffers()[1] or b"")[: 8 * len(places)]).cast("q")
    arguments = (view, BytesColumn.of(names), BytesColumn.of(values))
    one, other = outcome(compiled.gather_headers, *arguments), outcome(python_form(gather_headers), *arguments)
    assert one[0] == other[0]
    assert one == other or one[0] is IndexError  # the texts of IndexError differ


VALUES = [b"a", None, b"", b"longer than what a view holds"]


@pytest.mark.parametrize(
    "kind",
    [pa.binary(), pa.large_binary(), pa.binary_view(), pa.string(), pa.large_string(), pa.string_view()],
    ids=str,
)
@pytest.mark.parametrize("start", [0, 1, 3])
def test_arrow_arrays_of_each_type_are_accepted(kind: pa.DataType, start: int) -> None:
    array = pa.array(VALUES, pa.binary()).cast(kind)[start:]
    column = arrow.bytes_column(array, "value")
    assert [column[row] for row in range(len(column))] == VALUES[start:]
    if "view" not in str(kind):  # Arrow has no dictionaries of views
        column = arrow.bytes_column(array.dictionary_encode(), "value")
    assert [column[row] for row in range(len(column))] == VALUES[start:]


@given(st.lists(st.integers(-(1 << 31), MAX_INT32)))
def test_32_bit_offsets_are_widened(offsets: list[int]) -> None:
    narrow = memoryview(arrays.array("i", offsets))
    for twin in (python_form(widened), compiled.widened):
        wide = twin(narrow)
        assert (wide.format, wide.tolist()) == ("q", offsets)


@pytest.mark.parametrize("kind", [pa.binary(), pa.string(), pa.large_binary(), pa.large_string()], ids=str)
def test_the_usual_kinds_do_not_import_pyarrow_compute(kind: pa.DataType, monkeypatch: pytest.MonkeyPatch) -> None:
    given = pa.array(["a", None, "bc"], kind)
    monkeypatch.delattr(arrow, "_cast")
    column = arrow.bytes_column(given[1:], "value")
    assert [column[0], column[1]] == [None, b"bc"]


def test_fixed_size_and_null_arrays_are_accepted() -> None:
    fixed = arrow.bytes_column(pa.array([b"abc", None], pa.binary(3)), "key")
    assert [fixed[0], fixed[1]] == [b"abc", None]
    nulls = arrow.bytes_column(pa.nulls(2), "key")
    assert [nulls[0], nulls[1], len(nulls)] == [None, None, 2]
    assert len(arrow.bytes_column(pa.array([], pa.binary()), "key")) == 0
    for wrong in (pa.array([1]), pa.array([[b"a"]]), pa.array([True])):
        with pytest.raises(IllegalArgumentError, match="key is of type"):
            arrow.bytes_column(wrong, "key")


def test_numeric_arrays_are_converted() -> None:
    def taken(array: Any, layout: Any = "q") -> tuple[list[int], int | None]:
        view, highest = arrow.numbers_column(array, "x", layout)
        return list(view), highest

    assert taken(pa.array([1, None, 3], pa.int8())) == ([1, -1, 3], 3)
    assert taken(pa.array([1, None, 3])[1:], "i") == ([-1, 3], 3)
    assert taken(pa.nulls(2)) == ([-1, -1], None)
    assert taken(pa.array([1_999_999, None], pa.timestamp("ns"))) == ([1, -1], 1)
    assert taken(pa.array([2], pa.timestamp("s", "Europe/Berlin"))) == ([2000], 2000)
    for wrong, layout in (
        (pa.array([-1]), "q"),
        (pa.array([1 << 31]), "i"),
        (pa.array([1 << 63], pa.uint64()), "q"),
        (pa.array(["1"]), "q"),
        (pa.array([1], pa.timestamp("ms")), "i"),
    ):
        with pytest.raises(IllegalArgumentError):
            taken(wrong, layout)


#: Milliseconds (UTC) in local hours that occur twice or never when clocks change, and some others.
CLOCK_CHANGES_MS = (1_699_162_200_123, 1_699_165_800_123, 1_698_539_400_000, 1_678_606_200_999, 0, 1, 4_102_444_800_000)


@pytest.mark.parametrize("zone", [None, "UTC", "America/New_York", "Europe/Berlin", "Nowhere/Land", "+05:30"])
@pytest.mark.parametrize(("unit", "per_ms"), [("s", 0.001), ("ms", 1), ("us", 1_000), ("ns", 1_000_000)])
def test_timestamps_of_any_unit_and_time_zone_are_converted(unit: str, per_ms: float, zone: str | None) -> None:
    """Local time does not matter: neither an hour that occurs twice nor a zone unknown to this machine."""
    given_ms = [each // 1000 * 1000 if unit == "s" else each for each in CLOCK_CHANGES_MS]
    numbers = [None, *(int(each * per_ms) for each in given_ms), None]
    array = pa.array(numbers, pa.int64()).view(pa.timestamp(unit, zone))
    if per_ms > 1:  # rounded down
        array = pa.array([each and each + int(per_ms) - 1 for each in numbers], pa.int64()).view(array.type)
    expected = [-1, *given_ms, -1]
    cut = pa.array([7, *numbers], pa.int64()).view(array.type)[1:]
    dictionary = pa.DictionaryArray.from_arrays(pa.array([2, None, 1, 2], pa.int8()), array[:3])
    # The value under a null may be arbitrary.
    garbage = pa.Array.from_buffers(
        array.type, 2, [pa.py_buffer(b"\x02"), pa.py_buffer(b"\xff" * 7 + b"\x7f" + bytes(8))]
    )
    for column, found in (
        (array, expected),
        (cut, expected),
        (dictionary, [expected[2], -1, expected[1], expected[2]]),
        (garbage, [-1, 0]),
    ):
        view, highest = arrow.numbers_column(column, "timestamp", "q")
        assert list(view) == found
        assert highest == max(found)
    with pytest.raises(IllegalArgumentError, match="negative"):
        arrow.numbers_column(pa.array([5, -1], pa.int64()).view(array.type), "timestamp", "q")


def test_timestamps_overflowing_milliseconds_are_refused() -> None:
    with pytest.raises(IllegalArgumentError, match="too many milliseconds"):
        arrow.numbers_column(pa.array([1, 1 << 60], pa.int64()).view(pa.timestamp("s", "UTC")), "timestamp", "q")


def test_arrow_headers_of_each_shape_are_accepted() -> None:
    rows = [[("a", b"1"), ("b", None)], [], None, [("ü", b"")]]
    expected = [encode_headers(headers or ()) for headers in rows]
    pairs = [None if each is None else [{"key": key, "value": value} for key, value in each] for each in rows]
    struct = pa.struct([("name", pa.string()), ("value", pa.binary())])
    renamed = [None if each is None else [{"name": e["key"], "value": e["value"]} for e in each] for each in pairs]
    for array in (
        pa.array(renamed, pa.list_(struct)),
        pa.array(renamed, pa.large_list(struct)),
        pa.array(rows, pa.map_(pa.string(), pa.binary())),
    ):
        for start in (0, 1):
            column = arrow.headers_column(array[start:], "headers")
            assert column is not None
            assert [column[row] for row in range(len(column))] == expected[start:]
    assert arrow.headers_column(pa.nulls(3), "headers") is None
    for wrong in (pa.array([b"a"]), pa.array([[1]])):
        with pytest.raises(IllegalArgumentError, match="headers is of type"):
            arrow.headers_column(wrong, "headers")
    for nameless in ([{"name": None, "value": b"x"}], [None]):
        with pytest.raises(IllegalArgumentError, match="without a name"):
            arrow.headers_column(pa.array([nameless], pa.list_(struct)), "headers")
    of_bytes = pa.struct([("name", pa.binary()), ("value", pa.string_view())])
    column = arrow.headers_column(pa.array([[{"name": "ü".encode(), "value": "x"}]], pa.list_(of_bytes)), "headers")
    assert column is not None
    assert column[0] == encode_headers([("ü", b"x")])
    with pytest.raises(IllegalArgumentError, match="UTF8"):
        arrow.headers_column(pa.array([[{"name": b"\xff", "value": "x"}]], pa.list_(of_bytes)), "headers")
    under_null = pa.ListArray.from_arrays(
        [0, 1, 2], pa.array([{"name": "a"}] * 2, struct), mask=pa.array([True, False])
    )
    column = arrow.headers_column(under_null, "headers")
    assert column is not None
    assert [column[0], column[1]] == [encode_headers([]), encode_headers([("a", None)])]


# --- fingerprints ----------------------------------------------------------------------------------------------------


@given(records, st.data(), st.integers(0, (1 << 64) - 1))
def test_fingerprints_of_parts_in_any_order_add_up(given: list[Any], data: st.DataObject, seed: int) -> None:
    order = data.draw(st.permutations(given))
    cut = data.draw(st.integers(0, len(given)))
    for form in (python_form(fingerprint), compiled.fingerprint):
        parts = form(rows_of(order[:cut]), seed) + form(rows_of(order[cut:]), seed)
        assert parts % (1 << 64) == form(rows_of(given), seed) == compiled.fingerprint(rows_of(given), seed)


@given(st.lists(st.tuples(nullable_bytes, nullable_bytes, headers), min_size=2, max_size=12))
def test_fingerprints_differ_where_rows_do(given: list[Any]) -> None:
    encoded = [(key, value, encode_headers(found)) for key, value, found in given]
    found = {fingerprint(rows_of([(0, *row)])) for row in given}
    assert len(found) == len(set(encoded))


def test_fingerprints_tell_fields_and_nulls_apart() -> None:
    rows: list[Any] = [
        (0, key, value, []) for key, value in itertools.product((None, b"", b"\0", b"a", b"ab"), repeat=2)
    ]
    assert len({fingerprint(rows_of([row])) for row in rows}) == len(rows)
    assert fingerprint(rows_of(rows[:1]), 1) != fingerprint(rows_of(rows[:1]), 2)
    assert fingerprint(rows_of([])) == 0


@pytest.mark.parametrize("form", [python_form(fingerprint), compiled.fingerprint])
def test_fingerprints_of_rows_outside_their_data_are_an_error(form: Any) -> None:
    broken = BytesColumn(1, memoryview(arrays.array("q", (0, 9))), b"short")
    with pytest.raises(IllegalArgumentError, match="row 0 is at 0 to 9 of 5 bytes"):
        form(Rows(1, None, broken, None, None, 0))
