"""Every test of the asyncio clients fails if an await keeps returning at once."""

from __future__ import annotations

import pytest

from tests.aio.spinning import watch_for_spinning


@pytest.fixture(autouse=True)
def no_await_spins(monkeypatch: pytest.MonkeyPatch) -> None:
    watch_for_spinning(monkeypatch)
