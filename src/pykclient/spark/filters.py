"""Bounds of a query's filters: the partitions, offsets and timestamps that can match.

Spark evaluates all filters again on the rows it gets. So a bound may be too wide but never too narrow, and unknown
filters are ignored. Spark's own Kafka source pushes no filters down.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from pykclient.spark.ranges import OffsetRange
from pykclient.types import TopicPartition

if TYPE_CHECKING:
    from pyspark.sql.datasource import Filter

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)

#: Comparisons of a topic name or a number with the value, or values, of a filter.
_TESTS: dict[str, Callable[[Any, Any], bool]] = {
    "EqualTo": lambda it, value: bool(it == value),
    "EqualNullSafe": lambda it, value: bool(it == value),
    "In": lambda it, values: it in values,
    "GreaterThan": lambda it, value: bool(it > value),
    "GreaterThanOrEqual": lambda it, value: bool(it >= value),
    "LessThan": lambda it, value: bool(it < value),
    "LessThanOrEqual": lambda it, value: bool(it <= value),
    "StringStartsWith": lambda it, value: it.startswith(value),
    "StringEndsWith": lambda it, value: it.endswith(value),
    "StringContains": lambda it, value: value in it,
}
_ON_NUMBERS = frozenset(name for name in _TESTS if not name.startswith("String"))
_ON_NAMES = frozenset(_TESTS) - {"GreaterThan", "GreaterThanOrEqual", "LessThan", "LessThanOrEqual"}

#: Negations of comparisons. That of equality is not an interval.
_OPPOSITES = {
    "GreaterThan": "LessThanOrEqual",
    "GreaterThanOrEqual": "LessThan",
    "LessThan": "GreaterThanOrEqual",
    "LessThanOrEqual": "GreaterThan",
}

#: A filter on a topic name or a partition number: kind of comparison, True if negated, value.
_Rule = tuple[str, bool, Any]


@dataclass(frozen=True)
class Bounds:
    """Bounds outside of which no record matches the filters of a query. They are inclusive; None means unbounded.

    ``apply`` uses all bounds but timestamps, which are left to the reader. Records are not in the order of their
    timestamps. So ``first_timestamp_ms`` gives an offset at which reading may start (by ``offsets_for_times``), but
    there is no offset at which it may end, and rows in between may be outside the bounds.

    Pickles. Thread: any (immutable).
    """

    topic_rules: tuple[_Rule, ...] = ()
    partition_rules: tuple[_Rule, ...] = ()
    first_offset: int | None = None
    last_offset: int | None = None
    first_timestamp_ms: int | None = None
    last_timestamp_ms: int | None = None

    @classmethod
    def of(cls, filters: Iterable[Filter]) -> Bounds:
        """Return the intersection of the bounds of ``filters``, all of which must match."""
        topic_rules: list[_Rule] = []
        partition_rules: list[_Rule] = []
        offsets, times = _Interval(), _Interval()
        for given in filters:
            column, kind, negated, value = _taken_apart(given)
            if column == "topic" and kind in _ON_NAMES and _all_are(value, str):
                topic_rules.append((kind, negated, value))
            elif column == "partition" and kind in _ON_NUMBERS and _all_are(value, int):
                partition_rules.append((kind, negated, value))
            elif column == "offset" and kind in _ON_NUMBERS and _all_are(value, int):
                offsets.narrow(kind, negated, value, 1)
            elif column == "timestamp" and kind in _ON_NUMBERS and _all_are(value, datetime):
                microseconds = [_microseconds(each) for each in _each(value)]
                if None not in microseconds:
                    times.narrow(kind, negated, tuple(microseconds) if kind == "In" else microseconds[0], 1_000)
        return cls(tuple(topic_rules), tuple(partition_rules), offsets.first, offsets.last, times.first, times.last)

    def allows(self, topic_partition: TopicPartition) -> bool:
        """Return True if records of the partition can match."""
        return _match(self.topic_rules, topic_partition.topic) and _match(
            self.partition_rules, topic_partition.partition
        )

    def apply(self, ranges: Iterable[OffsetRange]) -> list[OffsetRange]:
        """Return the non-empty intersections of ``ranges`` with the bounds on topic, partition and offset, in order."""
        first_ms, last_ms = self.first_timestamp_ms, self.last_timestamp_ms
        if first_ms is not None and last_ms is not None and first_ms > last_ms:
            return []  # no timestamp can match
        left = []
        for each in ranges:
            start = each.start if self.first_offset is None else max(each.start, self.first_offset)
            end = each.end if self.last_offset is None else min(each.end, self.last_offset + 1)
            if start < end and self.allows(each.topic_partition):
                left.append(each._replace(start=start, end=end))
        return left


@dataclass
class _Interval:
    """Whole numbers from ``first`` to ``last``, both inclusive; None means unbounded. Thread: owner."""

    first: int | None = None
    last: int | None = None

    def narrow(self, kind: str, negated: bool, value: Any, unit: int) -> None:
        """Remove each ``n`` for which ``n * unit`` does not compare to ``value`` as ``kind`` requires."""
        if negated:
            kind = _OPPOSITES.get(kind, "")
        values = _each(value)
        if kind in {"EqualTo", "EqualNullSafe", "In"}:
            # Numbers between the values of a list are not removed.
            self._from(min((-(-each // unit) for each in values), default=1))
            self._to(max((each // unit for each in values), default=0))
        elif kind == "GreaterThan":
            self._from(value // unit + 1)
        elif kind == "GreaterThanOrEqual":
            self._from(-(-value // unit))
        elif kind == "LessThan":
            self._to(-(-value // unit) - 1)
        elif kind == "LessThanOrEqual":
            self._to(value // unit)

    def _from(self, first: int) -> None:
        self.first = first if self.first is None else max(self.first, first)

    def _to(self, last: int) -> None:
        self.last = last if self.last is None else min(self.last, last)


def _taken_apart(given: Filter) -> tuple[str, str, bool, Any]:
    """Return column, kind, True if negated, and value. The column is empty for nested fields and for other filters."""
    negated = False
    inner: Any = given
    while type(inner).__name__ == "Not":
        inner, negated = inner.child, not negated
    path: tuple[str, ...] = getattr(inner, "attribute", ())
    kind = type(inner).__name__
    value = getattr(inner, "value", None)
    if kind == "In":
        # Null equals nothing, and NOT IN with a null is never true: without nulls the bound is only wider.
        value = tuple(each for each in value or () if each is not None)
    return (path[0].lower() if len(path) == 1 else ""), kind, negated, value


def _each(value: Any) -> tuple[Any, ...]:
    return value if isinstance(value, tuple) else (value,)


def _all_are(value: Any, kind: type) -> bool:
    """Return True if the value, or each of several, is of this type. A bool is not a number."""
    return all(isinstance(each, kind) and not isinstance(each, bool) for each in _each(value))


def _microseconds(moment: datetime) -> int | None:
    """Return the microseconds since the epoch; None without a time zone, which only Spark knows."""
    if moment.utcoffset() is None:
        return None
    return (moment - _EPOCH) // _MICROSECOND


def _match(rules: tuple[_Rule, ...], it: str | int) -> bool:
    return all(_TESTS[kind](it, value) != negated for kind, negated, value in rules)
