"""Faults are judged by schedules that fail because of them, whatever else goes on."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.simulation import mutants as deliberate, seeds
from tests.simulation.mutants import MUTANTS
from tests.support import mutants
from tests.support.mutants import Mutant, first_failing_schedule, with_fault


def of_name(name: str) -> Mutant:
    return next(mutant for mutant in MUTANTS if mutant.name == name)


def test_fault_is_found_by_its_first_schedule(tmp_path: Path) -> None:
    sources = with_fault(of_name("memory is kept after a success"), tmp_path)
    found = first_failing_schedule(sources, 3, 300)
    assert found is not None
    assert "buffer.memory" in found


def test_schedule_failing_without_the_fault_is_skipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    failing = {tmp_path: [3, 5], mutants._ROOT / "src": [3]}

    def failure(sources: Path, simulation: str, *arguments: object, limit_s: int) -> str | None:
        options = dict(zip(arguments[::2], arguments[1::2], strict=False))
        first = int(str(options["--seed"]))
        tried = range(first, first + int(str(options.get("--count", 1))))
        return next((f"seed {seed}: it fails" for seed in tried if seed in failing[sources]), None)

    monkeypatch.setattr(mutants, "_failure", failure)
    assert first_failing_schedule(tmp_path, 10, 60) == "seed 5: it fails"
    assert first_failing_schedule(tmp_path, 4, 60) is None


def test_endless_schedule_is_stopped() -> None:
    def failure(_seed: int) -> None:
        while True:
            pass

    assert seeds._limited(failure, 1, 7) == "not done after 1 s: somebody goes round without end"


def test_unmeasured_rows_stay_in_the_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second, third, *_ = MUTANTS
    docs = tmp_path / "testing.md"
    docs.write_text("before\n<!-- mutants: begin -->\n<!-- mutants: end -->\nafter\n", encoding="utf-8")
    monkeypatch.setattr(deliberate, "_DOCS", docs)
    deliberate._write_docs({second.name: "seed 5: InvariantError: five", third.name: None})
    docs.write_text(docs.read_text(encoding="utf-8").replace(third.module, "former/place"), encoding="utf-8")
    deliberate._write_docs({first.name: "seed 3: three", second.name: "seed 4: four"})
    assert docs.read_text(encoding="utf-8").splitlines() == [
        "before",
        "<!-- mutants: begin -->",
        "| deliberate fault | where | first seed | found by |",
        "| --- | --- | --- | --- |",
        f"| {first.name} | `{first.module}` | 3 | three |",
        f"| {second.name} | `{second.module}` | 4 | four |",
        f"| {third.name} | `{third.module}` | none |  |",
        "<!-- mutants: end -->",
        "after",
    ]
