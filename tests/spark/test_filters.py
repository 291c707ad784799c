"""Bounds of a query's filters: never too narrow, and as narrow as possible before reading."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta, timezone
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given, strategies as st
from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    IsNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringContains,
    StringEndsWith,
    StringStartsWith,
)

from pykclient.spark.filters import Bounds
from pykclient.spark.ranges import OffsetRange
from pykclient.types import TopicPartition

TOPIC, PARTITION, OFFSET, TIME = ("topic",), ("partition",), ("offset",), ("timestamp",)
NONE = (None, None)


def offsets(*filters: Filter) -> tuple[int | None, int | None]:
    bounds = Bounds.of(filters)
    return bounds.first_offset, bounds.last_offset


def times(*filters: Filter) -> tuple[int | None, int | None]:
    bounds = Bounds.of(filters)
    return bounds.first_timestamp_ms, bounds.last_timestamp_ms


def at(milliseconds: int, microseconds: int = 0) -> datetime:
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=milliseconds, microseconds=microseconds)


class TestOffsets:
    @pytest.mark.parametrize(
        ("filters", "expected"),
        [
            ([GreaterThan(OFFSET, 5)], (6, None)),
            ([GreaterThanOrEqual(OFFSET, 5)], (5, None)),
            ([LessThan(OFFSET, 5)], (None, 4)),
            ([LessThanOrEqual(OFFSET, 5)], (None, 5)),
            ([EqualTo(OFFSET, 5)], (5, 5)),
            ([EqualNullSafe(OFFSET, 5)], (5, 5)),
            ([In(OFFSET, (9, 5, 7))], (5, 9)),
            ([In(OFFSET, (9, None, 7))], (7, 9)),
            ([GreaterThan(OFFSET, 5), LessThan(OFFSET, 10), GreaterThan(OFFSET, 3), LessThan(OFFSET, 12)], (6, 9)),
            ([GreaterThan(OFFSET, 5), LessThan(OFFSET, 3)], (6, 2)),
            ([Not(GreaterThan(OFFSET, 5))], (None, 5)),
            ([Not(GreaterThanOrEqual(OFFSET, 5))], (None, 4)),
            ([Not(LessThan(OFFSET, 5))], (5, None)),
            ([Not(LessThanOrEqual(OFFSET, 5))], (6, None)),
            ([Not(Not(EqualTo(OFFSET, 5)))], (5, 5)),
            ([GreaterThan(("OFFSET",), 5)], (6, None)),
        ],
    )
    def test_filters_become_an_interval(self, filters: list[Filter], expected: tuple[int | None, int | None]) -> None:
        assert offsets(*filters) == expected

    @pytest.mark.parametrize(
        "unknown",
        [
            Not(EqualTo(OFFSET, 5)),
            Not(In(OFFSET, (5, 6))),
            IsNull(OFFSET),
            IsNotNull(OFFSET),
            EqualTo(OFFSET, None),
            EqualNullSafe(OFFSET, None),
            EqualTo(OFFSET, 5.0),
            EqualTo(OFFSET, "5"),
            GreaterThan(OFFSET, True),
            In(OFFSET, (5, "6")),
            GreaterThan(("headers", "offset"), 5),
            GreaterThan((), 5),
            GreaterThan(("value",), 5),
            StringStartsWith(OFFSET, "5"),
        ],
    )
    def test_are_not_bounded_by_what_is_not_understood(self, unknown: Filter) -> None:
        assert Bounds.of([unknown]) == Bounds()
        assert offsets(unknown, LessThan(OFFSET, 10)) == (None, 9)

    def test_empty_list_matches_nothing(self) -> None:
        for filters in ([In(OFFSET, ())], [In(OFFSET, (None,))], [In(OFFSET, ()), GreaterThan(OFFSET, 100)]):
            assert Bounds.of(filters).apply([OffsetRange(TopicPartition("t", 0), 0, 1_000)]) == []


class TestTimes:
    """Records have milliseconds, filters microseconds."""

    @pytest.mark.parametrize(
        ("filter", "expected"),
        [
            (GreaterThan(TIME, at(5)), (6, None)),
            (GreaterThan(TIME, at(5, 1)), (6, None)),
            (GreaterThan(TIME, at(5, 999)), (6, None)),
            (GreaterThan(TIME, at(5, -1)), (5, None)),
            (GreaterThanOrEqual(TIME, at(5)), (5, None)),
            (GreaterThanOrEqual(TIME, at(5, 1)), (6, None)),
            (GreaterThanOrEqual(TIME, at(5, -1)), (5, None)),
            (LessThan(TIME, at(5)), (None, 4)),
            (LessThan(TIME, at(5, 1)), (None, 5)),
            (LessThan(TIME, at(5, -1)), (None, 4)),
            (LessThanOrEqual(TIME, at(5)), (None, 5)),
            (LessThanOrEqual(TIME, at(5, 1)), (None, 5)),
            (LessThanOrEqual(TIME, at(5, -1)), (None, 4)),
            (EqualTo(TIME, at(5)), (5, 5)),
            (EqualTo(TIME, at(5, 1)), (6, 5)),
            (In(TIME, (at(9, 1), at(5, 1))), (6, 9)),
            (GreaterThan(TIME, at(-5, 1)), (-4, None)),
            (LessThan(TIME, at(-5, 1)), (None, -5)),
        ],
    )
    def test_bounds_include_the_edges(self, filter: Filter, expected: tuple[int | None, int | None]) -> None:
        assert times(filter) == expected

    def test_zones_are_converted_to_utc(self) -> None:
        noon = datetime(2026, 3, 1, 12, tzinfo=timezone(timedelta(hours=5, minutes=30)))
        assert times(GreaterThanOrEqual(TIME, noon)) == (1772346600000, None)

    def test_extreme_times_do_not_overflow(self) -> None:
        assert times(LessThan(TIME, datetime.max.replace(tzinfo=UTC))) == (None, 253402300799999)
        assert times(GreaterThanOrEqual(TIME, datetime.min.replace(tzinfo=UTC))) == (-62135596800000, None)

    @pytest.mark.parametrize(
        "unknown",
        [
            GreaterThan(TIME, datetime(2026, 3, 1)),  # only Spark knows the time zone
            In(TIME, (at(5), datetime(2026, 3, 1))),
            GreaterThan(TIME, date(2026, 3, 1)),
            GreaterThan(TIME, 5),
            Not(EqualTo(TIME, at(5))),
        ],
    )
    def test_are_not_bounded_by_what_is_not_understood(self, unknown: Filter) -> None:
        assert Bounds.of([unknown]) == Bounds()

    def test_time_filters_do_not_change_ranges(self) -> None:
        """Records are not in order of their timestamps."""
        bounds = Bounds.of([GreaterThan(TIME, at(5)), LessThan(TIME, at(9))])
        ranges = [OffsetRange(TopicPartition("t", 0), 0, 10)]
        assert bounds.apply(ranges) == ranges
        assert Bounds.of([EqualTo(TIME, at(5))]).apply(ranges) == ranges
        assert Bounds.of([EqualTo(TIME, at(5, 1))]).apply(ranges) == []  # no record has microseconds


class TestPartitions:
    @pytest.mark.parametrize(
        ("filters", "topics"),
        [
            ([EqualTo(TOPIC, "orders")], ["orders"]),
            ([EqualNullSafe(TOPIC, "orders")], ["orders"]),
            ([Not(EqualTo(TOPIC, "orders"))], ["my-orders", "orders-eu", "x"]),
            ([In(TOPIC, ("x", "orders", None, "y"))], ["orders", "x"]),
            ([Not(In(TOPIC, ("x", "orders")))], ["my-orders", "orders-eu"]),
            ([StringStartsWith(TOPIC, "orders")], ["orders", "orders-eu"]),
            ([StringEndsWith(TOPIC, "orders")], ["my-orders", "orders"]),
            ([StringContains(TOPIC, "-")], ["my-orders", "orders-eu"]),
            ([Not(StringContains(TOPIC, "-"))], ["orders", "x"]),
            ([StringStartsWith(TOPIC, "orders"), StringEndsWith(TOPIC, "eu"), IsNotNull(TOPIC)], ["orders-eu"]),
            ([In(TOPIC, ())], []),
            ([EqualTo(TOPIC, 5)], ["my-orders", "orders", "orders-eu", "x"]),
            ([EqualTo(TOPIC, None)], ["my-orders", "orders", "orders-eu", "x"]),
            ([GreaterThan(TOPIC, "orders")], ["my-orders", "orders", "orders-eu", "x"]),
        ],
    )
    def test_topic_filters_select_topics(self, filters: list[Filter], topics: list[str]) -> None:
        bounds = Bounds.of(filters)
        there = ["my-orders", "orders", "orders-eu", "x"]
        assert [name for name in there if bounds.allows(TopicPartition(name, 0))] == topics

    @pytest.mark.parametrize(
        ("filters", "partitions"),
        [
            ([EqualTo(PARTITION, 2)], [2]),
            ([In(PARTITION, (0, 3, 9))], [0, 3]),
            ([Not(In(PARTITION, (0, 3, 9)))], [1, 2]),
            ([Not(EqualTo(PARTITION, 2))], [0, 1, 3]),
            ([GreaterThan(PARTITION, 1)], [2, 3]),
            ([LessThanOrEqual(PARTITION, 1)], [0, 1]),
            ([Not(LessThanOrEqual(PARTITION, 1)), LessThan(PARTITION, 3)], [2]),
            ([EqualTo(PARTITION, "2")], [0, 1, 2, 3]),
            ([StringContains(PARTITION, "2")], [0, 1, 2, 3]),
        ],
    )
    def test_number_filters_select_partitions(self, filters: list[Filter], partitions: list[int]) -> None:
        bounds = Bounds.of(filters)
        assert [number for number in range(4) if bounds.allows(TopicPartition("t", number))] == partitions

    def test_filters_select_and_bound_ranges(self) -> None:
        topic_id = UUID(int=1)
        ranges = [
            OffsetRange(TopicPartition(topic, n), 10 * n, 10 * n + 20, topic_id) for topic in "tu" for n in range(4)
        ]
        bounds = Bounds.of(
            [EqualTo(TOPIC, "t"), GreaterThan(OFFSET, 24), LessThanOrEqual(OFFSET, 40), IsNotNull(OFFSET)]
        )
        assert bounds.apply(ranges) == [
            OffsetRange(TopicPartition("t", 1), 25, 30, topic_id),
            OffsetRange(TopicPartition("t", 2), 25, 40, topic_id),
            OffsetRange(TopicPartition("t", 3), 30, 41, topic_id),
        ]


def test_empty_bounds_allow_everything() -> None:
    bounds = Bounds.of([])
    ranges = [OffsetRange(TopicPartition("t", 0), 3, 9)]
    assert bounds == Bounds()
    assert bounds.apply(ranges) == ranges
    assert bounds.apply([OffsetRange(TopicPartition("t", 0), 3, 3)]) == []


def test_bounds_pickle_without_spark() -> None:
    bounds = Bounds.of([EqualTo(TOPIC, "t"), In(PARTITION, (1, 2)), LessThan(OFFSET, 5), GreaterThan(TIME, at(7))])
    text = pickle.dumps(bounds)
    assert b"pyspark" not in text
    assert pickle.loads(text) == bounds
    assert bounds != Bounds.of([EqualTo(TOPIC, "t")])
    assert "first_timestamp_ms=8" in repr(bounds)


# --- whatever the filters, no record that matches them all is left out -----------------------------------------------

_COMPARISONS: tuple[tuple[Callable[..., Filter], Callable[[Any, Any], bool]], ...] = (
    (EqualTo, lambda it, value: it == value),
    (EqualNullSafe, lambda it, value: it == value),
    (GreaterThan, lambda it, value: it > value),
    (GreaterThanOrEqual, lambda it, value: it >= value),
    (LessThan, lambda it, value: it < value),
    (LessThanOrEqual, lambda it, value: it <= value),
)
_COLUMNS: dict[str, st.SearchStrategy[Any]] = {
    "topic": st.sampled_from(["a", "ab", "abc", "b"]),
    "partition": st.integers(0, 3),
    "offset": st.integers(0, 12),
    "timestamp": st.builds(at, st.integers(-3, 12), st.integers(-2, 2)),
}


@st.composite
def comparisons(draw: st.DrawFn) -> tuple[Filter, Callable[[dict[str, Any]], bool]]:
    """Return a filter and Spark's evaluation of it."""
    column = draw(st.sampled_from(sorted(_COLUMNS)))
    kind = draw(st.integers(0, 6))
    if kind < 6:
        make, test = _COMPARISONS[kind]
        value = draw(_COLUMNS[column])
        made = make((column,), value)
    else:
        value = tuple(draw(st.lists(_COLUMNS[column], max_size=3)))
        made, test = In((column,), value), lambda it, values: it in values
    if draw(st.booleans()):
        return Not(made), lambda row: not test(row[column], value)
    return made, lambda row: test(row[column], value)


@given(st.lists(comparisons(), max_size=4), st.data())
def test_filters_never_exclude_matching_rows(
    filters: list[tuple[Filter, Callable[[dict[str, Any]], bool]]], data: st.DataObject
) -> None:
    bounds = Bounds.of([each for each, _ in filters])
    milliseconds = data.draw(st.integers(-3, 12))
    row = {name: data.draw(values) for name, values in _COLUMNS.items()} | {"timestamp": at(milliseconds)}
    if all(test(row) for _, test in filters):
        tp = TopicPartition(row["topic"], row["partition"])
        left = bounds.apply([OffsetRange(tp, 0, 20)])
        assert len(left) == 1
        assert left[0].start <= row["offset"] < left[0].end
        assert bounds.first_timestamp_ms is None or bounds.first_timestamp_ms <= milliseconds
        assert bounds.last_timestamp_ms is None or milliseconds <= bounds.last_timestamp_ms
