"""The lists of contract files and of files without twins name files that exist."""

from __future__ import annotations

from pathlib import Path

from tests.support import contracts, optional, quick
from tests.support.twin_use import WITHOUT_TWINS

_ROOT = Path(__file__).parents[2]


def test_contract_files_exist() -> None:
    for name in (*contracts._FILES, *contracts._DIRECTORIES):
        assert (_ROOT / name).exists(), name


def test_variants_named_by_other_files_exist() -> None:
    for name in contracts.SHOWN_BY_OTHERS:
        file, _, test = name.partition("::")
        assert f"def {test.partition('[')[0]}(" in (_ROOT / file).read_text(encoding="utf-8"), name


def test_files_without_twins_exist() -> None:
    for name in WITHOUT_TWINS.read_text(encoding="utf-8").split():
        assert (_ROOT / name).is_file(), name


def test_files_beyond_quick_exist() -> None:
    for name in quick._FILES:
        assert (_ROOT / name).is_file(), name
    for name in quick._DIRECTORIES:
        assert (_ROOT / "tests" / name).is_dir(), name


def test_optional_packages_are_absent_only_if_they_are_not_installed() -> None:
    there = ModuleNotFoundError("No module named 'pyarrow.nothing'", name="pytest.nothing")
    assert not optional.is_absent(there), "a test whose import is wrong fails"
    assert not optional.is_absent(ModuleNotFoundError("No module named 'nothing'", name="nothing"))
    assert not optional.is_absent(ValueError())
    assert not optional.is_absent(None)
