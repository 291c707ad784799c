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
    """The lines of a run of the benchmarks, and of later runs of a few cases. Thread: owner.

    The first line describes the run, and so does the first of each later run.
    """

    def __init__(self, about: Line, lines: Iterable[Line]) -> None:
        self.about = about
        #: The descriptions of later runs, with their cases.
        self.later: list[tuple[Line, list[Bench]]] = []
        self._by_round: dict[tuple[str, Bench], dict[int, Line]] = defaultdict(dict)
        for line in lines:
            if "run" in line:
                self.later.append((line["run"], []))
                continue
            bench = bench_of(line)
            if self.later and bench not in self.later[-1][1]:
                self.later[-1][1].append(bench)
            self._by_round[line["client"], bench][line["round"]] = line

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
    return Bench(
        line["case"], line["size_bytes"], line["codec"], line["keyed"], line["partitions"], line.get("defaults", False)
    )


def case_of(bench: Bench) -> Line:
    """Return the part of a line that ``bench_of`` reads."""
    return {
        "case": bench.kind,
        "size_bytes": bench.size_bytes,
        "codec": bench.codec,
        "keyed": bench.keyed,
        "partitions": bench.partitions,
        **({"defaults": True} if bench.defaults else {}),
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


def add(path: Path, about: Line, lines: Iterable[Line]) -> None:
    """Add the lines of a later run, in place of the lines that the file has for its cases."""
    new = path.with_name("later.jsonl")
    write(new, about, lines)
    added = [json.loads(text) for text in new.read_text().splitlines()]
    replaced = {bench_of(line) for line in added[1:]}
    kept: list[Line] = []
    for line in map(json.loads, path.read_text().splitlines()):
        if "run" in line and len(kept) > 1 and "run" in kept[-1]:
            kept.pop()  # a later run of which nothing is left
        if "run" in line or bench_of(line) not in replaced:
            kept.append(line)
    if len(kept) > 1 and "run" in kept[-1]:
        kept.pop()
    path.write_text("".join(json.dumps(line, separators=(",", ":")) + "\n" for line in [*kept, *added]))
    new.unlink()


def _compact(line: Line) -> Line:
    return {
        name: float(f"{value:.{_DIGITS}g}") if isinstance(value, float) else value
        for name, value in line.items()
        if value is not None
    }
