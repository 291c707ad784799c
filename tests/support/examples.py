"""The number of examples that Hypothesis draws for tests that set it themselves."""

from __future__ import annotations

from hypothesis import settings


def examples(count: int) -> int:
    """Return ``count`` with a profile that draws fresh examples, as `make test-full` does, and a quarter otherwise."""
    return count // 4 if settings.get_current_profile_name() == "pykclient" else count
