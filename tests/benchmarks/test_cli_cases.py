"""The command line's cases beside kcat, from canned result lines."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from benchmarks import cli_cases, goals, report, results
from benchmarks.cases import Bench
from benchmarks.cli import commands
from benchmarks.results import Results
from tests.benchmarks.test_report import ABOUT


def line(client: str, bench: Bench, seconds: float) -> dict[str, Any]:
    return {"round": 0, "client": client, **results.case_of(bench), cli_cases.FIGURE: seconds}


def test_goals_and_tables_name_only_commands_that_run() -> None:
    run = commands("localhost:9092", Path("folder"))
    for bench in (row.bench for table in cli_cases.TABLES.values() for row in table.rows):
        assert {(cli_cases.OURS, bench), (cli_cases.KCAT, bench)} <= run.keys()
    for goal in cli_cases.GOALS:
        assert {(each.client, each.bench) for each in goal.comparisons} <= run.keys()
    assert not {goal.id for goal in cli_cases.GOALS} & {goal.id for goal in goals.GOALS}


def test_the_page_compares_with_kcat() -> None:
    cli = Results(
        ABOUT,
        [
            line(cli_cases.OURS, cli_cases.CONSUME, 0.2),
            line(cli_cases.KCAT, cli_cases.CONSUME, 0.5),
            line(cli_cases.OURS, cli_cases.PRODUCE, 0.3),
            line(cli_cases.KCAT, cli_cases.PRODUCE, 0.5),
        ],
    )
    page = "{{cli-run}}\n\n{{cli-goals}}\n\n{{cli-bounds}}\n\n{{cli-cpu}}"
    texts = report.pages(Results(ABOUT, []), page, "## cli-produce\n\nWhat bounds it.\n", cli=cli)
    assert "| `pykclient consume` of a million lines, CPU: ≤ 0.5 of kcat | 0.400 (0.400 to 0.400) | met |" in texts[""]
    assert "CPU: ≤ 0.5 of kcat | 0.600 (0.600 to 0.600) | **not met** |" in texts[""]
    assert "What bounds it." in texts[""]
    assert "| 100 B lines, from a topic to a file | 0.200 (0.400) | 0.500 |" in texts[""]
    assert "| kcat | 0.500 (0.500 to 0.500) |" in texts["figures.md"]
    assert "Not measured" in report.pages(Results(ABOUT, []), "{{cli-cpu}}", "")[""]
