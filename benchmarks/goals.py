"""The goals of pykclient, and whether a run meets them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from benchmarks.cases import CODECS, CONSUME, LATENCY, PRODUCE, SIZES, Bench
from benchmarks.results import REFERENCE, Results, Spread

_NAMES = {"java": "Java", "built-in": "the built-in source", "built-in-tuned": "the built-in source, tuned"}


class Comparison(NamedTuple):
    """A ratio with an upper or lower bound. ``to`` and ``to_bench`` are the reference."""

    what: str
    client: str
    bench: Bench
    figure: str
    bound: float
    at_least: bool = False
    to: str = REFERENCE
    to_bench: Bench | None = None

    def met_by(self, ratio: float) -> bool:
        return ratio >= self.bound if self.at_least else ratio <= self.bound

    @property
    def goal(self) -> str:
        whose = _NAMES.get(self.to, self.to)
        if self.to_bench is not None:
            whose = f"{self.to_bench.partitions} partitions"
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


_CPU, _RATE, _RSS = "cpu_us_per_record", "records_per_s", "peak_rss_mb"

_SEND_MANY, _POLL_MANY = Bench("produce", partitions=1000), Bench("consume", partitions=1000)
_CODED = [Bench(kind, size, codec) for kind in ("produce", "consume") for size in SIZES for codec in CODECS[1:]]


def _at_most(id: str, what: str, client: str, bench: Bench, figure: str, bound: float) -> Goal:
    return Goal(id, [Comparison(what, client, bench, figure, bound)])


def _at_least(id: str, what: str, client: str, bench: Bench, figure: str, bound: float, to: str = REFERENCE) -> Goal:
    return Goal(id, [Comparison(what, client, bench, figure, bound, at_least=True, to=to)])


def _same_as_with_3(id: str, what: str, bench: Bench) -> Goal:
    three = bench._replace(partitions=3)
    return Goal(id, [Comparison(what, "pykclient", bench, _CPU, 1.5, to="pykclient", to_bench=three)])


GOALS = (
    _at_most("send-cpu", "`send`, CPU", "pykclient", PRODUCE, _CPU, 0.25),
    _at_least("send-rate", "`send`, records/s", "pykclient", PRODUCE, _RATE, 1.5),
    _at_least("send-java", "`send`, records/s", "pykclient", PRODUCE, _RATE, 1.0, "java"),
    _at_most("poll-cpu", "`poll`, CPU", "pykclient", CONSUME, _CPU, 0.30),
    _at_most("poll-1000-cpu", "`poll` with `max.poll.records=1000`, CPU", "pykclient-1000", CONSUME, _CPU, 0.30),
    _at_least("poll-rate", "`poll`, records/s", "pykclient", CONSUME, _RATE, 2.0),
    _at_least("poll-java", "`poll`, records/s", "pykclient", CONSUME, _RATE, 0.67, "java"),
    _at_most("send-batch-cpu", "`send_batch`, CPU", "pykclient-columns", PRODUCE, _CPU, 0.04),
    _at_most("poll-arrow-cpu", "`poll_arrow`, CPU", "pykclient-columns", CONSUME, _CPU, 0.05),
    _at_most("poll-views-cpu", "`poll_arrow(binary_view=True)`, CPU", "pykclient-views", CONSUME, _CPU, 0.05),
    _at_least("poll-arrow-java", "`poll_arrow`, records/s", "pykclient-columns", CONSUME, _RATE, 1.0, "java"),
    Goal(
        "codecs",
        [
            Comparison(f"lz4, zstd, records/s; worst: {bench}", "pykclient", bench, _RATE, 1.0, at_least=True)
            for bench in _CODED
        ],
    ),
    _at_most("latency-p50", "one at a time, p50", "pykclient", LATENCY, "p50_ms", 1.0),
    _at_most("latency-p99", "one at a time, p99", "pykclient", LATENCY, "p99_ms", 1.0),
    _same_as_with_3("partitions-send", "`send`, 1,000 partitions, CPU", _SEND_MANY),
    _same_as_with_3("partitions-poll", "`poll`, 1,000 partitions, CPU", _POLL_MANY),
    _at_most("rss-send", "`send`, peak memory", "pykclient", PRODUCE, _RSS, 1.0),
    _at_most("rss-poll", "`poll`, peak memory", "pykclient", CONSUME, _RSS, 1.0),
)


def verdicts(results: Results, goals: Sequence[Goal] = GOALS) -> Iterator[Verdict]:
    """Yield the results of all goals that the run covers."""
    for goal in goals:
        found = [
            Verdict(goal, comparison, ratio, comparison.met_by(ratio.median))
            for comparison in goal.comparisons
            if (
                ratio := results.ratio(
                    comparison.client, comparison.bench, comparison.figure, comparison.to, comparison.to_bench
                )
            )
        ]
        if found:
            yield min(found, key=lambda verdict: _margin(verdict.comparison, verdict.ratio.median))


def _margin(comparison: Comparison, ratio: float) -> float:
    """Return a number that is above 1 if the ratio is better than the bound."""
    return ratio / comparison.bound if comparison.at_least else comparison.bound / ratio
