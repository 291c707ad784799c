"""The command line beside kcat: cases, goals and tables of ``benchmarks.cli``."""

from __future__ import annotations

from benchmarks.cases import Bench
from benchmarks.goals import Comparison, Goal
from benchmarks.tables import Table, TableRow

KCAT, OURS = "kcat", "pykclient"
FIGURE = "cpu_s"
PRODUCE, CONSUME = Bench("cli-produce", partitions=1), Bench("cli-consume", partitions=1)
START_OF_PRODUCE = Bench("cli-start-of-produce", partitions=1)
START_OF_CONSUME = Bench("cli-start-of-consume", partitions=1)
#: Other formats, and larger records: kcat's -J, and eight fields.
JSON, FORMAT = Bench("cli-consume-json", partitions=1), Bench("cli-consume-format", partitions=1)
CONSUME_LARGE = CONSUME._replace(size_bytes=1000)
JSON_LARGE, FORMAT_LARGE = JSON._replace(size_bytes=1000), FORMAT._replace(size_bytes=1000)


def _at_most(bench: Bench, what: str, bound: float) -> Goal:
    return Goal(bench.kind, [Comparison(f"`pykclient {what}, CPU", OURS, bench, FIGURE, bound, to=KCAT)])


GOALS = (
    _at_most(PRODUCE, "produce` of a million lines", 0.5),
    _at_most(CONSUME, "consume` of a million lines", 0.5),
    _at_most(CONSUME_LARGE, "consume` of 1 KB lines", 1.0),
    _at_most(JSON, "consume --json` at 100 bytes", 1.0),
    _at_most(JSON_LARGE, "consume --json` at 1 KB", 1.0),
    _at_most(FORMAT, "consume --format` at 100 bytes", 1.0),
    _at_most(FORMAT_LARGE, "consume --format` at 1 KB", 1.0),
)
TABLES = {
    "cli-cpu": Table(
        "The command line, seconds of CPU",
        "In parentheses: the ratio to kcat.",
        (OURS, KCAT),
        [
            TableRow("100 B lines, from a file to a topic", PRODUCE, FIGURE),
            TableRow("100 B lines, from a topic to a file", CONSUME, FIGURE),
            TableRow("1 KB lines, from a topic to a file", CONSUME_LARGE, FIGURE),
            TableRow("100 B, as JSON", JSON, FIGURE),
            TableRow("1 KB, as JSON", JSON_LARGE, FIGURE),
            TableRow("100 B, eight fields", FORMAT, FIGURE),
            TableRow("1 KB, eight fields", FORMAT_LARGE, FIGURE),
            TableRow("the first line alone, to a topic", START_OF_PRODUCE, FIGURE),
            TableRow("the first line alone, from a topic", START_OF_CONSUME, FIGURE),
        ],
        reference=KCAT,
    )
}
