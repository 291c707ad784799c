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

GOALS = tuple(
    Goal(bench.kind, [Comparison(f"`pykclient {name}` of a million lines, CPU", OURS, bench, FIGURE, 0.5, to=KCAT)])
    for name, bench in (("produce", PRODUCE), ("consume", CONSUME))
)
TABLES = {
    "cli-cpu": Table(
        "A million lines of 100 bytes, seconds of CPU",
        "In parentheses: the ratio to kcat.",
        (OURS, KCAT),
        [
            TableRow("from a file to a topic", PRODUCE, FIGURE),
            TableRow("from a topic to a file", CONSUME, FIGURE),
            TableRow("the first line alone, to a topic", START_OF_PRODUCE, FIGURE),
            TableRow("the first line alone, from a topic", START_OF_CONSUME, FIGURE),
        ],
        reference=KCAT,
    )
}
