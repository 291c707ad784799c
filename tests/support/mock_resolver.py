"""A resolver that answers from a table, at once or when a test tells it to."""

from __future__ import annotations

from collections.abc import Callable

from pykclient.network.host_resolver import Lookup


class MockResolver:
    """Implements pykclient.network.host_resolver.HostResolver. Hosts that are not in the table are addresses."""

    def __init__(self, answers: dict[str, list[str] | None] | None = None) -> None:
        self.answers: dict[str, list[str] | None] = answers or {}  # None: there is no such name
        self.hanging: set[str] = set()
        self.asked: list[str] = []
        self.pending: list[tuple[Lookup, str]] = []

    def look_up(self, host: str, on_done: Callable[[], object] | None = None, canonical: bool = False) -> Lookup:
        self.asked.append(host)
        if host in self.hanging:
            lookup = Lookup(on_done)
            self.pending.append((lookup, host))
        else:
            lookup = Lookup()
            lookup.finish(self._answer(host, canonical))
        return lookup

    def _answer(self, host: str, canonical: bool = False) -> list[str] | OSError:
        found = self.answers.get(host, [host])
        if found is None:
            return OSError(-2, "Name or service not known")
        return [f"{ip}.example" for ip in found] if canonical else found

    def answer(self) -> None:
        """Answer what waits."""
        pending, self.pending = self.pending, []
        for lookup, host in pending:
            lookup.finish(self._answer(host))
