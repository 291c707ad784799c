"""Deliberate faults go into the sources as they are today: a place that is gone tests nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.producer.model import mutants as of_the_model
from tests.simulation import mutants as of_the_simulation
from tests.support.mutants import Mutant

SOURCES = Path(__file__).parents[1] / "src" / "pykclient"


@pytest.mark.parametrize("mutant", [*of_the_model.MUTANTS, *of_the_simulation.MUTANTS], ids=lambda mutant: mutant.name)
def test_the_place_is_there_once(mutant: Mutant) -> None:
    assert (SOURCES / f"{mutant.module}.py").read_text(encoding="utf-8").count(mutant.before) == 1
    assert mutant.after != mutant.before
