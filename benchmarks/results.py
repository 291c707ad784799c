"""Results: JSON lines, one per run, and comparisons of clients."""

from __future__ import annotations

import json
import statistics
from collections import defaultdict
from collections.abc import Iterable, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple, Self

from benchmarks.cases import Bench

Line = dict[str, Any]

#: The client whose figures are 1.
REFERENCE = "confluent-kafka"

#: Significant digits of stored figures.
_DIGITS = 4


class Spread(NamedTuple):
    """A figure over all rounds."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Self | None:
        """Return the spread of the values, or None without values."""
        return cls(statistics.median(values), min(values), max(values)) if values else None


class Results:
    """The lines of one run of the benchmarks. The first line describes the run. Thread: owner."""

    def __init__(self, about: Line, lines: Iterable[Line]) -> None:
        self.about = about
        self._by_round: dict[tuple[str, Bench], dict[int, Line]] = defaultdict(dict)
        for line in lines:
            self._by_round[line["client"], bench_of(line)][line["round"]] = line

    @classmethod
    def read(cls, path: Path) -> Self:
        about, *lines = map(json.loads, path.read_text().splitlines())
        return cls(about["run"], lines)

    @property
    def benches(self) -> list[Bench]:
        """Return all cases in the order of their runs."""
        return list(dict.fromkeys(bench for _, bench in self._by_round))

    def clients(self, bench: Bench) -> list[str]:
        """Return the clients that took part in a case."""
        return [client for client, other in self._by_round if other == bench]

    def figure(self, client: str, bench: Bench, figure: str) -> Spread | None:
        """Return a figure, or None if the client does not have it."""
        return Spread.of(list(self._rounds(client, bench, figure).values()))

    def ratio(
        self, client: str, bench: Bench, figure: str, to: str = REFERENCE, to_bench: Bench | None = None
    ) -> Spread | None:
        """Return the ratio of two medians, with the lowest and highest ratio of rounds."""
        ours, theirs = self._rounds(client, bench, figure), self._rounds(to, to_bench or bench, figure)
        if not ours or not theirs:
            return None
        by_round = [ours[turn] / theirs[turn] for turn in ours if theirs.get(turn)]
        reference = statistics.median(theirs.values())
        if not by_round or not reference:
            return None
        return Spread(statistics.median(ours.values()) / reference, min(by_round), max(by_round))

    def _rounds(self, client: str, bench: Bench, figure: str) -> dict[int, float]:
        lines = self._by_round.get((client, bench), {})
        return {turn: line[figure] for turn, line in lines.items() if line.get(figure) is not None}


def bench_of(line: Line) -> Bench:
    return Bench(line["case"], line["size_bytes"], line["codec"], line["keyed"], line["partitions"])


def case_of(bench: Bench) -> Line:
    """Return the part of a line that ``bench_of`` reads."""
    return {
        "case": bench.kind,
        "size_bytes": bench.size_bytes,
        "codec": bench.codec,
        "keyed": bench.keyed,
        "partitions": bench.partitions,
    }


def write(path: Path, about: Line, lines: Iterable[Line]) -> None:
    """Write lines for ``Results.read``, without missing figures and insignificant digits.

    Until the last line has come, the file's name ends in ``.part``.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_suffix(".part")
    with part.open("w") as file:
        for row in chain([{"run": about}], map(_compact, lines)):
            file.write(json.dumps(row, separators=(",", ":")) + "\n")
            file.flush()
    part.rename(path)


def _compact(line: Line) -> Line:
    return {
        name: float(f"{value:.{_DIGITS}g}") if isinstance(value, float) else value
        for name, value in line.items()
        if value is not None
    }
