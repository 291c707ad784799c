"""The lists of contract files and of files without twins name files that exist."""

from __future__ import annotations

from pathlib import Path

from tests.support import contracts
from tests.support.twin_use import WITHOUT_TWINS

_ROOT = Path(__file__).parents[2]


def test_contract_files_exist() -> None:
    for name in (*contracts._FILES, *contracts._DIRECTORIES):
        assert (_ROOT / name).exists(), name


def test_files_without_twins_exist() -> None:
    for name in WITHOUT_TWINS.read_text(encoding="utf-8").split():
        assert (_ROOT / name).is_file(), name
