"""The program that measures schemas runs, and has the rows that its goals compare."""

from __future__ import annotations

import pytest

from benchmarks import schemas


def test_each_goal_has_its_rows(capsys: pytest.CaptureFixture[str]) -> None:
    schemas.main(["--rounds", "1", "--records", "500"])
    lines = capsys.readouterr().out.splitlines()
    assert len([line for line in lines if line.endswith(" us")]) == 20
    assert sum("(at most" in line for line in lines) == len(schemas.GOALS)
