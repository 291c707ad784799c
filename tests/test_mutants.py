"""Every deliberate fault still finds its place in the sources: a fault without one would test nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.consumer.share.mutants import MUTANTS as SHARE_CONSUMER_MUTANTS
from tests.producer.transaction_mutants import MUTANTS as TRANSACTION_MUTANTS
from tests.simulation.mutants import MUTANTS
from tests.simulation.pipeline_mutants import MUTANTS as PIPELINE_MUTANTS
from tests.simulation.share_mutants import MUTANTS as SHARE_GROUP_MUTANTS
from tests.simulation.two_phase_mutants import MUTANTS as TWO_PHASE_MUTANTS
from tests.support.mutants import Mutant
from tests.testing.share.mutants import MUTANTS as SHARE_MUTANTS

SOURCES = Path(__file__).parents[1] / "src" / "pykclient"


#: Some simulations also run faults that unit tests catch.
ALL = dict.fromkeys(
    (
        *MUTANTS,
        *PIPELINE_MUTANTS,
        *TWO_PHASE_MUTANTS,
        *TRANSACTION_MUTANTS,
        *SHARE_GROUP_MUTANTS,
        *SHARE_MUTANTS,
        *SHARE_CONSUMER_MUTANTS,
    )
)


@pytest.mark.parametrize("mutant", ALL, ids=lambda mutant: mutant.name)
def test_mutated_text_occurs_exactly_once(mutant: Mutant) -> None:
    assert (SOURCES / f"{mutant.module}.py").read_text(encoding="utf-8").count(mutant.before) == 1
    assert mutant.after != mutant.before
