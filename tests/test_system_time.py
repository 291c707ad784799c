"""The machine's clocks, as both implementations read them."""

from __future__ import annotations

import pytest

from tests.support.twins import both_forms


@pytest.mark.parametrize("name", ["monotonic_ms", "wall_ms"])
def test_both_forms_read_the_same_clock(name: str) -> None:
    python, compiled = both_forms("pykclient.system_time", name)
    assert type(compiled()) is type(python()) is int
    assert abs(compiled() - python()) < 600_000
