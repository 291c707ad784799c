"""A report's medians, ratios, verdicts, tables and plots from canned result lines, without measuring anything."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import pytest

from benchmarks import goals, plots, report, results, tables
from benchmarks.cases import CONSUME, LATENCY, PRODUCE, Bench, plan
from benchmarks.results import Results, Spread

ABOUT = {
    "date": "2026-01-31",
    "rounds": 3,
    "cores": 2,
    "machine": "x86_64",
    "system": "Linux",
    "python": "3.11.9",
    "kafka": "4.3.1",
    "java": "17.0.15",
    "versions": {"pykclient": "0.1.0", "confluent-kafka": "2.16.1"},
}


def line(client: str, bench: Bench, turn: int, **figures: Any) -> dict[str, Any]:
    return {"round": turn, "client": client, **results.case_of(bench), **figures}


def three_rounds(client: str, bench: Bench, figure: str, *values: float) -> list[dict[str, Any]]:
    return [line(client, bench, turn, **{figure: value}) for turn, value in enumerate(values)]


@pytest.fixture
def canned() -> Results:
    """Two producing clients with three rounds each, and Java with two rounds."""
    return Results(
        ABOUT,
        [
            *three_rounds("pykclient", PRODUCE, "cpu_us_per_record", 0.2, 0.4, 0.32),
            *three_rounds("confluent-kafka", PRODUCE, "cpu_us_per_record", 1.0, 1.6, 2.0),
            *three_rounds("java", PRODUCE, "cpu_us_per_record", 3.0, 4.0),
            *three_rounds("pykclient", LATENCY, "p50_ms", 0.2, 0.2, 0.2),
            *three_rounds("confluent-kafka", LATENCY, "p50_ms", 0.1, 0.1, 0.2),
        ],
    )


def test_figure_is_the_median_with_minimum_and_maximum(canned: Results) -> None:
    assert canned.figure("pykclient", PRODUCE, "cpu_us_per_record") == Spread(0.32, 0.2, 0.4)
    assert canned.figure("java", PRODUCE, "cpu_us_per_record") == Spread(3.5, 3.0, 4.0)


def test_unmeasured_figures_are_none(canned: Results) -> None:
    assert canned.figure("pykclient", CONSUME, "cpu_us_per_record") is None
    assert canned.figure("pykclient", PRODUCE, "p50_ms") is None
    assert canned.ratio("pykclient", CONSUME, "cpu_us_per_record") is None
    assert canned.ratio("pykclient", PRODUCE, "cpu_us_per_record", "aiokafka") is None


def test_ratio_is_of_medians_and_spread_is_of_rounds(canned: Results) -> None:
    ratio = canned.ratio("pykclient", PRODUCE, "cpu_us_per_record")
    assert ratio is not None
    assert tuple(ratio) == pytest.approx((0.32 / 1.6, 0.32 / 2.0, 0.4 / 1.6))


def test_spread_ignores_rounds_that_one_client_failed(canned: Results) -> None:
    ratio = canned.ratio("pykclient", PRODUCE, "cpu_us_per_record", "java")
    assert ratio is not None
    assert tuple(ratio) == pytest.approx((0.32 / 3.5, 0.2 / 3.0, 0.4 / 4.0))


def test_written_lines_are_read_back(tmp_path: Path, canned: Results) -> None:
    path = tmp_path / "results" / "lines.jsonl"
    lines = [line("pykclient", PRODUCE, 0, cpu_us_per_record=0.123456789, records=600_000, p50_ms=None)]
    results.write(path, ABOUT, lines)
    assert [json.loads(text) for text in path.read_text().splitlines()] == [
        {"run": ABOUT},
        line("pykclient", PRODUCE, 0, cpu_us_per_record=0.1235, records=600_000),
    ]
    read = Results.read(path)
    assert read.about == ABOUT
    assert read.benches == [PRODUCE]
    assert [path] == list(path.parent.iterdir())


def test_later_run_replaces_repeated_cases(tmp_path: Path, canned: Results) -> None:
    path = tmp_path / "lines.jsonl"
    results.write(path, ABOUT, [line("pykclient", bench, 0, p50_ms=1.0) for bench in (PRODUCE, CONSUME, LATENCY)])
    for day, benches in (("02", [LATENCY]), ("03", [PRODUCE]), ("04", [LATENCY])):
        about = {**ABOUT, "date": f"2026-02-{day}"}
        results.add(path, about, [line("pykclient", bench, 0, p50_ms=float(day)) for bench in benches])
    read = Results.read(path)
    assert read.about == ABOUT
    assert [(about["date"], benches) for about, benches in read.later] == [
        ("2026-02-03", [PRODUCE]),
        ("2026-02-04", [LATENCY]),
    ]
    found = [read.figure("pykclient", bench, "p50_ms") for bench in (PRODUCE, CONSUME, LATENCY)]
    assert [spread.median for spread in found if spread] == [3.0, 1.0, 4.0]
    text = report.pages(read, "{{run}}", "")[""]
    assert "\n| 2026-02-04 | 3 | latency, 100 B, none |" in text
    assert [path] == list(tmp_path.iterdir())


def test_lines_of_a_failed_run_stay_separate(tmp_path: Path) -> None:
    path = tmp_path / "lines.jsonl"
    path.write_text("of an earlier run")

    def lines() -> Any:
        yield line("pykclient", PRODUCE, 0)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        results.write(path, ABOUT, lines())
    assert path.read_text() == "of an earlier run"
    assert len(path.with_suffix(".part").read_text().splitlines()) == 2


def test_goals_show_whether_they_are_met(canned: Results) -> None:
    found = {verdict.goal.id: verdict for verdict in goals.verdicts(canned)}
    assert set(found) == {"send-cpu", "latency-p50"}
    assert found["send-cpu"].met
    assert not found["latency-p50"].met
    assert found["latency-p50"].ratio.median == pytest.approx(2.0)


def test_goal_can_bound_a_single_figure() -> None:
    idle = Bench("idle-consumer")
    measured = Results(ABOUT, three_rounds("pykclient", idle, "cpu_share", 0.0004, 0.0005, 0.0007))
    (verdict,) = goals.verdicts(measured)
    assert (verdict.goal.id, verdict.comparison.goal, verdict.met) == ("idle-consumer", "≤ 0.06 % of a core", True)
    assert tuple(verdict.ratio) == pytest.approx((0.05, 0.04, 0.07))


def test_worst_of_several_ratios_is_reported() -> None:
    fast, slow = Bench("produce", 1000, "lz4"), Bench("consume", 100, "zstd")
    measured = Results(
        ABOUT,
        [
            line("pykclient", fast, 0, records_per_s=300.0),
            line("confluent-kafka", fast, 0, records_per_s=100.0),
            line("pykclient", slow, 0, records_per_s=90.0),
            line("confluent-kafka", slow, 0, records_per_s=100.0),
        ],
    )
    (verdict,) = goals.verdicts(measured)
    assert (verdict.goal.id, verdict.comparison.bench, verdict.met) == ("codecs", slow, False)
    assert str(slow) in verdict.comparison.what


def test_goals_compare_cases_that_are_run() -> None:
    run = set(plan())
    for goal in goals.GOALS:
        for comparison in goal.comparisons:
            assert {comparison.bench, comparison.to_bench or comparison.bench} <= run, goal.id


def test_goal_ids_are_unique() -> None:
    ids = [goal.id for goal in goals.GOALS]
    assert len(ids) == len(set(ids))


def test_table_has_only_measured_rows_and_clients(canned: Results) -> None:
    filled = tables.filled(canned, tables.TABLES["cpu-produce"])
    assert filled.heads == ["`send`", "confluent-kafka", "Java"]
    assert filled.rows == [("produce, 100 B, none", ["0.320 (0.200)", "1.60", "3.50 (2.19)"])]


def test_tables_and_plots_name_only_cases_that_run() -> None:
    run = set(plan(partitions=(3, 1000, 10_000)))
    assert {row.bench for table in tables.TABLES.values() for row in table.rows} <= run
    assert {bench for plot in tables.PLOTS.values() for _, bench, _ in plot.panels} <= run


def test_the_page_has_tables_verdicts_notes_and_plots(canned: Results) -> None:
    notes = "For whom it concerns.\n\n## send-cpu\n\nNot missed.\n\n## latency-p50 latency-p99\n\nTwo threads.\n"
    texts = report.pages(canned, "{{run}}\n\n{{goals}}\n\n{{bounds}}\n\n{{cpu-produce}}\n\n{{cpu-plot}}\n", notes)
    page = texts[""]
    assert "Measured on 2026-01-31: 3 rounds" in page
    assert "| `send`, CPU: ≤ 0.25 of confluent-kafka | 0.200 (0.160 to 0.250) | met |" in page
    assert "| one at a time, p50: ≤ 1.3 of confluent-kafka | 2.00 (1.00 to 2.00) | **not met** |" in page
    assert "Two threads." in page
    assert "Not missed." not in page
    assert "| produce, 100 B, none | 0.320 (0.200) | 1.60 | 3.50 (2.19) |" in page
    assert "![CPU per record of 100 bytes](performance/cpu.svg)" in page
    assert "| `send` | 0.320 (0.200 to 0.400) |  |  |  |" in texts["figures.md"]
    assert set(texts) == {"", "figures.md", "cpu.svg", "latency.svg"}


def test_committed_page_matches_the_results() -> None:
    """The page in the repository matches the results; if not, run ``python -m benchmarks.report``."""
    place = report.Place.of_repository()
    for path, text in report.texts(place).items():
        assert path.read_text(encoding="utf-8") == text, path


def test_unknown_name_is_an_error(canned: Results) -> None:
    with pytest.raises(KeyError, match="cpu-produces"):
        report.pages(canned, "{{cpu-produces}}", "")


@pytest.mark.parametrize("logarithmic", [True, False])
def test_plots_are_well_formed_and_keep_their_size(logarithmic: bool) -> None:
    rows = [
        plots.Row("send & co", Spread(0.31, 0.29, 0.35), "ours"),
        plots.Row("<other>", Spread(14.6, 14.0, 15.9), "other"),
    ]
    text = plots.dot_plot("CPU", "µs", [plots.Panel("Producing", rows)] * 2, logarithmic=logarithmic)
    assert text == plots.dot_plot("CPU", "µs", [plots.Panel("Producing", rows)] * 2, logarithmic=logarithmic)
    root = ET.fromstring(text)
    _, _, width, height = map(float, root.attrib["viewBox"].split())
    for element in root.iter():
        for name in ("x", "x1", "x2", "cx"):
            assert 0 <= float(element.get(name, 0)) <= width
        for name in ("y", "y1", "y2", "cy"):
            assert 0 <= float(element.get(name, 0)) <= height


@pytest.mark.parametrize("high", [0.00013, 0.13, 0.9, 1.0, 3.7, 96.0, 100.0, 1_900.0])
def test_linear_axes_have_ticks_and_fit_all_values(high: float) -> None:
    text = plots.dot_plot(
        "", "", [plots.Panel("", [plots.Row("", Spread(high, 0.0, high), "other")])], logarithmic=False
    )
    ticks = [
        float(el.text.replace(",", "")) for el in ET.fromstring(text).iter() if el.get("class") == "tick" and el.text
    ]
    assert 3 <= len(ticks) <= 7
    assert ticks[-1] >= high * 0.9999


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0"),
        (0.01234, "0.0123"),
        (0.3, "0.300"),
        (1.6, "1.60"),
        (14.63, "14.6"),
        (237.4, "237"),
        (1_234_567, "1,234,567"),
    ],
)
def test_numbers_have_three_digits(value: float, text: str) -> None:
    assert plots.three_digits(value) == text
