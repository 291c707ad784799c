"""The mutations that are drawn: each is a fault that Python can run."""

from __future__ import annotations

import ast
import random

import pytest

from tests.random_mutants import cpu_limit, mutations
from tests.random_mutants.explained import EXPLAINED
from tests.random_mutants.mutations import AREAS, SOURCES, Mutation, draw, mutations_of
from tests.random_mutants.trial import unit_tests_of

pytest_plugins = ["pytester"]

_SOURCE = '''
def decide(self, size, *, limit=3):
    """Return a decision."""
    self._log.debug("size %d", size)
    if size < limit and not self.closed or False:
        self.sent += 1
        return size
    raise ValueError("too " + str(1))
'''

_MUTATED = {
    "condition negated": ["if not (size < limit and not self.closed or False):"],
    "bound shifted": ["if size <= limit and not self.closed or False:", "self.sent += (1 + 1)"],
    "boolean flipped": ["if size < limit and not self.closed or True:"],
    "and/or swapped": [
        "if (size < limit and not self.closed and False):",
        "if (size < limit or not self.closed) or False:",
    ],
    "statement deleted": ["self.sent += 1", 'raise ValueError("too " + str(1))'],
    "return value dropped": ["return size"],
}


@pytest.fixture
def _sources(tmp_path: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mutations, "SOURCES", tmp_path)


@pytest.mark.usefixtures("_sources")
def test_every_kind_of_mutation_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    (mutations.SOURCES / "module.py").write_text(_SOURCE, encoding="utf-8")
    found: dict[str, list[str]] = {}
    for mutation in mutations_of("module"):
        assert mutation.function == "decide"
        found.setdefault(mutation.kind, []).append(mutation.code)
        ast.parse(mutation.apply(_SOURCE.encode()))
    assert {kind: sorted(codes) for kind, codes in found.items()} == {
        kind: sorted(codes) for kind, codes in _MUTATED.items()
    }


@pytest.mark.parametrize("area", AREAS)
def test_each_mutation_is_valid_and_changes_the_code(area: str) -> None:
    check_mutations(draw(1, 10, [area]))


@pytest.mark.exhaustive
@pytest.mark.parametrize("area", AREAS)
def test_each_of_many_fresh_mutations_is_valid_and_changes_the_code(area: str) -> None:
    check_mutations(draw(random.SystemRandom().randrange(1 << 32), 40, [area]))


def check_mutations(mutations: list[Mutation]) -> None:
    for mutation in mutations:
        source = (SOURCES / f"{mutation.module}.py").read_bytes()
        assert ast.dump(ast.parse(mutation.apply(source))) != ast.dump(ast.parse(source)), mutation


def test_a_seed_is_a_draw() -> None:
    assert draw(7, 20, ["producer/transactions"]) == draw(7, 20, ["producer/transactions"])
    assert draw(7, 20, ["producer/transactions"]) != draw(8, 20, ["producer/transactions"])


def test_a_modules_own_tests_come_first() -> None:
    first, *others = unit_tests_of("producer/sender")
    assert first == ["tests/producer/test_sender.py"]
    assert "tests/producer/test_faults.py" in {file for group in others for file in group}


def test_an_endless_test_ends(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cpu_limit, "LIMIT_S", 0.2)
    pytester.makepyfile(
        """
        from hypothesis import given, strategies as st

        @given(st.integers())
        def test_endless(number):
            while True:
                pass

        def test_other():
            pass
        """
    )
    result = pytester.runpytest_inprocess("-p", cpu_limit.__name__, "-p", "no:cacheprovider")
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(["*EndlessTest: the test took more than 0.2 s of CPU time"])


def test_explained_mutations_are_still_possible() -> None:
    for entry in EXPLAINED:
        assert entry.key in {mutation.key for mutation in mutations_of(entry.module)}, entry
        assert entry.why, entry
