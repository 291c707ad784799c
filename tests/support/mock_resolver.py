"""A resolver that resolves names from a table, at once or when a test says so."""

from __future__ import annotations

from collections.abc import Callable

from pykclient.network.host_resolver import Lookup


class MockResolver:
    """Implements pykclient.network.host_resolver.HostResolver.

    A host that is not in the table is taken for an address.
    """

    def __init__(self, answers: dict[str, list[str] | None] | None = None) -> None:
        self.answers: dict[str, list[str] | None] = answers or {}  # None: no such name
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
        """Complete the pending lookups."""
        pending, self.pending = self.pending, []
        for lookup, host in pending:
            lookup.finish(self._answer(host))
