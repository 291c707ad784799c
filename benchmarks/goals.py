"""The goals of pykclient, and whether a run meets them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from benchmarks.cases import (
    CODECS,
    CONSUME,
    CONSUME_AT_DEFAULTS,
    FLUSHES,
    LATENCY,
    PRODUCE,
    PRODUCE_AT_DEFAULTS,
    SIZES,
    TRANSACTIONS,
    Bench,
)
from benchmarks.results import REFERENCE, Results, Spread

_NAMES = {
    "java": "Java",
    "built-in": "the built-in source",
    "built-in-tuned": "the built-in source, tuned",
    "empty-python": "a Python source without Kafka",
    "pykclient": "pykclient",
}


class Comparison(NamedTuple):
    """A ratio with an upper or lower bound. ``to`` and ``to_bench`` are the reference.

    With a ``unit``, the figure itself is bounded, in that unit, and not its ratio to another.
    """

    what: str
    client: str
    bench: Bench
    figure: str
    bound: float
    at_least: bool = False
    to: str = REFERENCE
    to_bench: Bench | None = None
    unit: str = ""

    def measured(self, results: Results) -> Spread | None:
        """Return the ratio, or the figure in its unit; None if the run does not have it."""
        if not self.unit:
            return results.ratio(self.client, self.bench, self.figure, self.to, self.to_bench)
        figure = results.figure(self.client, self.bench, self.figure)
        times = 100 if self.unit.startswith("%") else 1
        return None if figure is None else Spread(*(value * times for value in figure))

    def met_by(self, ratio: float) -> bool:
        return ratio >= self.bound if self.at_least else ratio <= self.bound

    @property
    def goal(self) -> str:
        if self.unit:
            return f"≤ {self.bound:g} {self.unit}"
        whose = _NAMES.get(self.to, self.to)
        if self.to_bench is not None:
            is_other = self.to_bench.kind != self.bench.kind
            whose = f"{self.to_bench.kind}" if is_other else f"{self.to_bench.partitions} partitions"
        return f"{'≥' if self.at_least else '≤'} {self.bound:g} of {whose}"


class Goal(NamedTuple):
    """Comparisons, the worst of which counts. ``id`` names a paragraph of notes.md about what bounds it."""

    id: str
    comparisons: Sequence[Comparison]


class Verdict(NamedTuple):
    """The result of a goal: the comparison that is closest to failing."""

    goal: Goal
    comparison: Comparison
    ratio: Spread
    met: bool


_CPU, _RATE, _RSS, _SHARE = "cpu_us_per_record", "records_per_s", "peak_rss_mb", "cpu_share"

_SEND_MANY, _POLL_MANY = Bench("produce", partitions=1000), Bench("consume", partitions=1000)
_COLUMNS = "pykclient-columns"
_KEYS_MANY = Bench("produce", keyed=True, partitions=1000)
_CODED = [Bench(kind, size, codec) for kind in ("produce", "consume") for size in SIZES for codec in CODECS[1:]]


def _at_most(id: str, what: str, client: str, bench: Bench, figure: str, bound: float) -> Goal:
    return Goal(id, [Comparison(what, client, bench, figure, bound)])


def _of_aiokafka(id: str, what: str, bench: Bench, figure: str, bound: float, how: str = "") -> Goal:
    return Goal(id, [Comparison(what, f"pykclient-aio{how}", bench, figure, bound, to=f"aiokafka{how}")])


def _at_least(id: str, what: str, client: str, bench: Bench, figure: str, bound: float, to: str = REFERENCE) -> Goal:
    return Goal(id, [Comparison(what, client, bench, figure, bound, at_least=True, to=to)])


def _absolute(id: str, what: str, client: str, bench: Bench, figure: str, bound: float, unit: str) -> Goal:
    return Goal(id, [Comparison(what, client, bench, figure, bound, unit=unit)])


def _same_as_with_3(id: str, what: str, bench: Bench) -> Goal:
    three = bench._replace(partitions=3)
    return Goal(id, [Comparison(what, "pykclient", bench, _CPU, 1.5, to="pykclient", to_bench=three)])


GOALS = (
    _at_most("send-defaults", "`send` at defaults, CPU", "pykclient", PRODUCE_AT_DEFAULTS, _CPU, 0.25),
    _at_most("poll-defaults", "`poll` at defaults, CPU", "pykclient", CONSUME_AT_DEFAULTS, _CPU, 0.22),
    _at_most("send-batch-defaults", "`send_batch` at defaults, CPU", _COLUMNS, PRODUCE_AT_DEFAULTS, _CPU, 0.10),
    _at_most("poll-arrow-defaults", "`poll_arrow` at defaults, CPU", _COLUMNS, CONSUME_AT_DEFAULTS, _CPU, 0.10),
    _at_most("send-cpu", "`send`, CPU", "pykclient", PRODUCE, _CPU, 0.25),
    _at_least("send-rate", "`send`, records/s", "pykclient", PRODUCE, _RATE, 1.5),
    _at_least("send-java", "`send`, records/s", "pykclient", PRODUCE, _RATE, 1.0, "java"),
    _at_most("poll-cpu", "`poll`, CPU", "pykclient", CONSUME, _CPU, 0.30),
    _at_most("poll-1000-cpu", "`poll` with `max.poll.records=1000`, CPU", "pykclient-1000", CONSUME, _CPU, 0.30),
    _at_least("poll-rate", "`poll`, records/s", "pykclient", CONSUME, _RATE, 2.0),
    _at_least("poll-java", "`poll`, records/s", "pykclient", CONSUME, _RATE, 0.67, "java"),
    _at_most("send-batch-cpu", "`send_batch`, CPU", _COLUMNS, PRODUCE, _CPU, 0.04),
    _at_most("poll-arrow-cpu", "`poll_arrow`, CPU", _COLUMNS, CONSUME, _CPU, 0.05),
    _at_most("poll-views-cpu", "`poll_arrow(binary_view=True)`, CPU", "pykclient-views", CONSUME, _CPU, 0.05),
    _at_least("poll-arrow-java", "`poll_arrow`, records/s", _COLUMNS, CONSUME, _RATE, 1.0, "java"),
    Goal(
        "codecs",
        [
            Comparison(f"lz4, zstd, records/s; worst: {bench}", "pykclient", bench, _RATE, 1.0, at_least=True)
            for bench in _CODED
        ],
    ),
    _at_most("latency-p50", "one at a time, p50", "pykclient", LATENCY, "p50_ms", 1.3),
    _at_most("latency-p99", "one at a time, p99", "pykclient", LATENCY, "p99_ms", 1.3),
    Goal(
        "transactions-cpu",
        [
            Comparison(
                "transactions of 100 records, CPU", "pykclient", TRANSACTIONS, _CPU, 1.3, False, "pykclient", FLUSHES
            )
        ],
    ),
    _at_most("commit-latency", "commit of 100 records, p50", "pykclient", TRANSACTIONS, "p50_ms", 1.0),
    _of_aiokafka("aio-send-cpu", "`send` in asyncio, CPU", PRODUCE, _CPU, 0.25),
    _of_aiokafka("aio-getmany-cpu", "`getmany` in asyncio, CPU", CONSUME, _CPU, 0.25),
    _of_aiokafka("aio-loop-cpu", "`async for` in asyncio, CPU", CONSUME, _CPU, 0.35, "-loop"),
    _of_aiokafka("aio-latency", "one at a time in asyncio, p50", LATENCY, "p50_ms", 0.6),
    *(
        Goal(
            f"confluent-{id}",
            [
                Comparison(
                    f"`pykclient.confluent`, {what}, at defaults, CPU",
                    f"pykclient-confluent{how}",
                    bench,
                    _CPU,
                    0.5,
                    to=f"confluent-kafka{how}",
                )
            ],
        )
        for id, what, how, bench in (
            ("produce", "`produce` with `on_delivery`", "-reports", PRODUCE_AT_DEFAULTS),
            ("poll", "`poll`", "-polled", CONSUME_AT_DEFAULTS),
            ("consume", "`consume(1000)`", "", CONSUME_AT_DEFAULTS),
        )
    ),
    _same_as_with_3("partitions-send", "`send`, 1,000 partitions, CPU", _SEND_MANY),
    _same_as_with_3("partitions-poll", "`poll`, 1,000 partitions, CPU", _POLL_MANY),
    _at_most("keys-cpu", "`send` with keys, 1,000 partitions, CPU", "pykclient", _KEYS_MANY, _CPU, 0.6),
    _absolute("idle-consumer", "idle consumer", "pykclient", Bench("idle-consumer"), _SHARE, 0.06, "% of a core"),
    *(
        _absolute(
            f"idle-group-{protocol}",
            f"idle consumer in a group, {protocol} protocol",
            "pykclient",
            Bench(f"idle-group-{protocol}"),
            _SHARE,
            0.06,
            "% of a core",
        )
        for protocol in ("classic", "consumer")
    ),
    _absolute("rss-send-batch", "`send_batch`, peak memory", _COLUMNS, PRODUCE, _RSS, 100, "MB"),
    _at_most("rss-send", "`send`, peak memory", "pykclient", PRODUCE, _RSS, 1.0),
    _at_most("rss-poll", "`poll`, peak memory", "pykclient", CONSUME, _RSS, 1.0),
)


def verdicts(results: Results, goals: Sequence[Goal] = GOALS) -> Iterator[Verdict]:
    """Yield the results of all goals that the run covers."""
    for goal in goals:
        found = [
            Verdict(goal, comparison, ratio, comparison.met_by(ratio.median))
            for comparison in goal.comparisons
            if (ratio := comparison.measured(results))
        ]
        if found:
            yield min(found, key=lambda verdict: _margin(verdict.comparison, verdict.ratio.median))


def _margin(comparison: Comparison, ratio: float) -> float:
    """Return a number that is above 1 if the ratio is better than the bound."""
    if comparison.at_least:
        return ratio / comparison.bound
    return comparison.bound / ratio if ratio else math.inf
