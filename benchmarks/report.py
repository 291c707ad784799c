"""Generate the pages from the results of a run: ``python -m benchmarks.report`` writes docs/performance.md.

The prose is in benchmarks/page.md, where names in double braces stand for tables. benchmarks/details.md becomes
benchmarks/README.md in the same way: the method, our goals and all other measurements. benchmarks/notes.md explains
what bounds the goals that are not met, under the goals' ids.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, Self

from benchmarks import cli_cases, goals, tables
from benchmarks.cases import Bench
from benchmarks.plots import dot_plot, three_digits
from benchmarks.results import Results
from benchmarks.spark import cases as spark_cases

_HERE = Path(__file__).parent
_ROOT = _HERE.parent

_WRITTEN = "<!-- Written by `python -m benchmarks.report` from the results and the texts in benchmarks/. -->\n\n"


class Place(NamedTuple):
    """The files of results and pages. Plots and the page of all figures are in a folder beside the page."""

    lines: Path
    page: Path
    details: Path

    @classmethod
    def of_repository(cls) -> Self:
        return cls(_HERE / "results" / "benchmarks.jsonl", _ROOT / "docs" / "performance.md", _HERE / "README.md")

    @classmethod
    def of_folder(cls, folder: Path | None = None) -> Self:
        folder = folder or _ROOT / "build" / "benchmarks"
        return cls(folder / "benchmarks.jsonl", folder / "performance.md", folder / "details.md")

    @property
    def folder(self) -> Path:
        return self.page.with_suffix("")

    @property
    def spark_lines(self) -> Path:
        """The results of ``python -m benchmarks.spark``."""
        return self.lines.with_name("spark.jsonl")

    @property
    def cli_lines(self) -> Path:
        """The results of ``python -m benchmarks.cli``."""
        return self.lines.with_name("cli.jsonl")


def pages(
    results: Results,
    page: str,
    notes: str,
    folder: str = "performance",
    spark: Results | None = None,
    cli: Results | None = None,
) -> dict[str, str]:
    """Return the text of each file by its path beside the page; ``""`` is the page itself."""
    pictures = {
        f"{name}.svg": dot_plot(plot.title, plot.unit, panels, logarithmic=plot.logarithmic)
        for name, plot in tables.PLOTS.items()
        if (panels := tables.panels(results, plot))
    }
    parts = {
        "run": _run(results),
        "goals": _goals(goals.verdicts(results)),
        "bounds": _bounds(goals.verdicts(results), notes),
        "java-start": _java_start(results),
        "behind": _behind(results),
        **_own_parts("spark", spark, spark_cases.TABLES, spark_cases.GOALS, notes),
        **_own_parts("cli", cli, cli_cases.TABLES, cli_cases.GOALS, notes),
    }
    for name, table in tables.TABLES.items():
        parts[name] = _markdown(tables.filled(results, table))
    for name, plot in tables.PLOTS.items():
        parts[f"{name}-plot"] = f"![{plot.title}]({folder}/{name}.svg)" if f"{name}.svg" in pictures else ""
    text = re.sub(r"\{\{([\w-]+)\}\}", lambda found: parts[found[1]], page)
    return {"": _WRITTEN + text, "figures.md": _WRITTEN + _figures(results, spark, cli), **pictures}


def _own_parts(
    name: str,
    results: Results | None,
    shown_tables: Mapping[str, tables.Table],
    shown_goals: Sequence[goals.Goal],
    notes: str,
) -> dict[str, str]:
    """Return the parts of the page about measurements with a run of their own; ``name`` begins their names."""
    if results is None:
        return dict.fromkeys((f"{name}-run", f"{name}-goals", f"{name}-bounds", *shown_tables), "Not measured yet.")
    return {
        f"{name}-run": _run(results),
        f"{name}-goals": _goals(goals.verdicts(results, shown_goals)),
        f"{name}-bounds": _bounds(goals.verdicts(results, shown_goals), notes),
        **{each: _markdown(tables.filled(results, table)) for each, table in shown_tables.items()},
    }


def texts(place: Place) -> dict[Path, str]:
    """Return the text of every file for the stored results."""
    results, notes = Results.read(place.lines), (_HERE / "notes.md").read_text(encoding="utf-8")
    own = [Results.read(path) if path.exists() else None for path in (place.spark_lines, place.cli_lines)]

    def filled(template: str, folder: str) -> dict[str, str]:
        return pages(results, (_HERE / template).read_text(encoding="utf-8"), notes, folder, *own)

    written = filled("page.md", place.folder.name)
    pictures = Path(os.path.relpath(place.folder, place.details.parent)).as_posix()
    return {
        **{place.folder / name if name else place.page: text for name, text in written.items()},
        place.details: filled("details.md", pictures)[""],
    }


def render(place: Place) -> None:
    """Write the page and its files."""
    place.folder.mkdir(parents=True, exist_ok=True)
    for path, text in texts(place).items():
        path.write_text(text, encoding="utf-8")


def show(place: Place) -> None:
    """Print the tables."""
    _show(Results.read(place.lines), tables.DETAILS, goals.GOALS, place.page, place.lines)


def show_own(lines: Path, shown_tables: Mapping[str, tables.Table], shown_goals: Sequence[goals.Goal]) -> None:
    """Print the tables of measurements with a run of their own."""
    _show(Results.read(lines), shown_tables, shown_goals, lines)


def _show(
    results: Results, shown_tables: Mapping[str, tables.Table], shown_goals: Sequence[goals.Goal], *written: Path
) -> None:
    from rich.console import Console
    from rich.table import Table

    console = Console()
    if not console.is_terminal:  # no line width in a file
        console = Console(width=180)
    for table in shown_tables.values():
        filled = tables.filled(results, table)
        if not filled.rows:
            continue
        shown = Table(title=table.title, title_justify="left", caption=table.caption, caption_justify="left")
        shown.add_column("")
        for head in filled.heads:
            shown.add_column(head.replace("`", ""), justify="right")
        for label, cells in filled.rows:
            shown.add_row(label, *cells)
        console.print(shown)
    met = Table("goal", "measured", "", title="Goals", title_justify="left")
    for verdict in goals.verdicts(results, shown_goals):
        what, measured, word = _verdict(verdict)
        met.add_row(what.replace("`", ""), measured, word, style=None if verdict.met else "red")
    console.print(met)
    console.print("\n".join(map(str, written)), highlight=False)


def _markdown(table: tables.Filled) -> str:
    if not table.rows:
        return "Not measured in this run."
    lines = ["| | " + " | ".join(table.heads) + " |", "| --- |" + " ---: |" * len(table.heads)]
    lines += [f"| {label} | " + " | ".join(cells) + " |" for label, cells in table.rows]
    return "\n".join(lines)


def _run(results: Results) -> str:
    about = results.about
    names = ", ".join(f"{name} {version}" for name, version in about["versions"].items() if name != "pykclient")
    rounds = f"{about['rounds']} round{'s' if about['rounds'] > 1 else ''}"
    text = (
        f"Measured on {about['date']}: {rounds}, one broker of Kafka {about['kafka']} on the same {about['cores']} "
        f"cores as the client, {about['system']} {about['machine']}, Python {about['python']}, "
        f"Java {about['java']}; {names}."
    )
    if not results.later:
        return text
    lines = [
        f"| {later['date']} | {later['rounds']} | {'; '.join(map(str, benches))} |" for later, benches in results.later
    ]
    return "\n".join([f"{text} Later runs:", "", "| measured on | rounds | cases |", "| --- | ---: | --- |", *lines])


def _verdict(verdict: goals.Verdict) -> tuple[str, str, str]:
    ratio = verdict.ratio
    measured = f"{three_digits(ratio.median)} ({three_digits(ratio.low)} to {three_digits(ratio.high)})"
    return f"{verdict.comparison.what}: {verdict.comparison.goal}", measured, "met" if verdict.met else "not met"


def _goals(verdicts: Iterator[goals.Verdict]) -> str:
    lines = ["| goal | measured | |", "| --- | ---: | --- |"]
    for verdict in verdicts:
        what, measured, word = _verdict(verdict)
        lines.append(f"| {what} | {measured} | {word if verdict.met else f'**{word}**'} |")
    return "\n".join(lines)


def _bounds(verdicts: Iterator[goals.Verdict], notes: str) -> str:
    """Return the paragraphs of notes.md about the goals that were not met."""
    found = re.split(r"^## ([\w -]+)\n", notes, flags=re.MULTILINE)[1:]
    texts = {id: text.strip() for ids, text in zip(found[::2], found[1::2], strict=True) for id in ids.split()}
    missed = [verdict.goal.id for verdict in verdicts if not verdict.met]
    said = dict.fromkeys(texts[id] for id in missed if texts.get(id))  # several goals may share a paragraph
    return "\n\n".join(said)


def _behind(results: Results) -> str:
    """Return a table of the cases in which a peer takes less CPU, the peers of a method side by side."""
    found: dict[tuple[str, str], list[str]] = {}
    for case, method, peer, ratio in tables.behind(results):
        found.setdefault((case, method), []).append(f"{three_digits(ratio)} of {peer}")
    lines = ["| case | method | CPU |", "| --- | --- | --- |"]
    return "\n".join(
        [*lines, *(f"| {case} | {method} | {', '.join(cells)} |" for (case, method), cells in found.items())]
    )


def _java_start(results: Results) -> str:
    starts = [
        spread
        for bench in results.benches
        if bench.kind in ("produce", "consume") and (spread := results.figure("java", bench, "start_s"))
    ]
    if not starts:
        return "some tenths of a second"
    return f"{three_digits(min(s.median for s in starts))} to {three_digits(max(s.median for s in starts))} s"


_FIGURES = {
    "cpu_us_per_record": "CPU µs a record",
    "records_per_s": "records/s",
    "p50_ms": "p50 ms",
    "p99_ms": "p99 ms",
    "cpu_share": "share of a core",
    "peak_rss_mb": "peak MB",
    "sleeps_per_1000_records": "sleeps for 1,000 records",
}


def _figures(results: Results, spark: Results | None, cli: Results | None) -> str:
    """Return every figure of every client, with the lowest and highest rounds."""
    lines = ["# All figures", "", _run(results), "", *_rows(results, _FIGURES, tables.figures_of), ""]
    if spark is not None:
        rows = _rows(spark, spark_cases.FIGURES, lambda _: tuple(spark_cases.FIGURES))
        lines += ["## Spark", "", _run(spark), "", *rows, ""]
    if cli is not None:
        rows = _rows(cli, {cli_cases.FIGURE: "CPU s"}, lambda _: (cli_cases.FIGURE,))
        lines += ["## Command line", "", _run(cli), "", *rows, ""]
    return "\n".join(lines)


def _rows(results: Results, names: Mapping[str, str], figures_of: Callable[[Bench], Sequence[str]]) -> Iterator[str]:
    for bench in results.benches:
        figures = figures_of(bench)
        yield f"\n### {bench}\n"
        yield "| | " + " | ".join(names[figure] for figure in figures) + " |"
        yield "| --- |" + " ---: |" * len(figures)
        for client in results.clients(bench):
            cells = []
            for figure in figures:
                spread = results.figure(client, bench, figure)
                cells.append(
                    ""
                    if spread is None
                    else f"{three_digits(spread.median)} ({three_digits(spread.low)} to {three_digits(spread.high)})"
                )
            yield f"| {tables.label(client, bench.kind)} | " + " | ".join(cells) + " |"


if __name__ == "__main__":
    render(Place.of_repository())
    show(Place.of_repository())
