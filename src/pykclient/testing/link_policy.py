"""What the network between any two parties is like: cut, slow, narrow, or as it should be.

A party is ``broker-<id>``, ``client:<client id>`` or ``coordination``. Rules name parties by patterns, which may end
in ``*``: ``client:*`` are all clients, ``*`` is everybody.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from pykclient.errors import IllegalArgumentError
from pykclient.testing.event_loop import EventLoop


class Link:
    """One direction between two parties, as all rules together make it.

    ``cut``: nothing arrives until it is healed, and nobody is told. ``reset``: connections break and new ones are
    refused. ``delay_ms`` and up to ``jitter_ms`` more pass on the way, ``bytes_per_second`` go through. Thread: loop.
    """

    __slots__ = ("_free_at_ms", "bytes_per_second", "cut", "delay_ms", "jitter_ms", "perfect", "reset")

    def __init__(
        self,
        *,
        cut: bool = False,
        reset: bool = False,
        delay_ms: int = 0,
        jitter_ms: int = 0,
        bytes_per_second: float | None = None,
    ) -> None:
        self.cut = cut
        self.reset = reset
        self.delay_ms = delay_ms
        self.jitter_ms = jitter_ms
        self.bytes_per_second = bytes_per_second
        self.perfect = not (cut or reset or delay_ms or jitter_ms or bytes_per_second is not None)
        self._free_at_ms = 0.0

    def transit_ms(self, size_bytes: int, now_ms: int, rng: random.Random) -> int:
        """How long a frame that is sent now is on its way."""
        transit_ms = self.delay_ms
        if self.jitter_ms:
            transit_ms += rng.randint(0, self.jitter_ms)
        if self.bytes_per_second is not None:
            self._free_at_ms = max(self._free_at_ms, now_ms) + size_bytes * 1000 / self.bytes_per_second
            transit_ms += int(self._free_at_ms - now_ms)
        return transit_ms

    def __repr__(self) -> str:
        return (
            f"Link(cut={self.cut}, reset={self.reset}, delay_ms={self.delay_ms}, jitter_ms={self.jitter_ms}, "
            f"bytes_per_second={self.bytes_per_second})"
        )


PERFECT: Final = Link()


class LinkPolicy:
    """The rules for all links. Whoever holds frames back subscribes to their changes. Thread: loop."""

    def __init__(self, loop: EventLoop, rng: random.Random) -> None:
        self._loop = loop
        self.rng = rng
        self._rules: dict[tuple[str, str], Link] = {}
        self._partitions: list[list[tuple[str, ...]]] = []
        self._links: dict[tuple[str, str], Link] = {}
        self._subscribers: list[Callable[[], None]] = []

    @property
    def active(self) -> bool:
        """Whether any link is not as it should be."""
        return bool(self._rules or self._partitions)

    def link(self, source: str, destination: str) -> Link:
        """The link that frames from ``source`` to ``destination`` take; it is replaced when rules change."""
        if not self._rules and not self._partitions:
            return PERFECT
        found = self._links.get((source, destination))
        if found is None:
            found = self._links[source, destination] = self._resolve(source, destination)
        return found

    def is_cut(self, source: str, destination: str) -> bool:
        """Whether nothing gets from ``source`` to ``destination``."""
        link = self.link(source, destination)
        return link.cut or link.reset

    def subscribe(self, changed: Callable[[], None]) -> None:
        """Have ``changed`` called after each change of the rules."""
        self._subscribers.append(changed)

    def unsubscribe(self, changed: Callable[[], None]) -> None:
        """Not to be called any more."""
        self._subscribers.remove(changed)

    def set(
        self,
        source: str,
        destination: str,
        *,
        one_way: bool = False,
        cut: bool | None = None,
        reset: bool | None = None,
        delay_ms: int | None = None,
        jitter_ms: int | None = None,
        bytes_per_second: float | None = None,
    ) -> None:
        """Make the link between two parties so, in both directions unless ``one_way``; None leaves a trait as it is."""
        if (delay_ms or 0) < 0 or (jitter_ms or 0) < 0 or (bytes_per_second is not None and bytes_per_second <= 0):
            raise IllegalArgumentError(
                "a link's delay_ms and jitter_ms cannot be negative, and its bytes_per_second must be above 0, "
                f"not {delay_ms}, {jitter_ms} and {bytes_per_second}"
            )
        for pair in ((source, destination),) if one_way else ((source, destination), (destination, source)):
            old = self._rules.get(pair, PERFECT)
            self._rules[pair] = Link(
                cut=old.cut if cut is None else cut,
                reset=old.reset if reset is None else reset,
                delay_ms=old.delay_ms if delay_ms is None else delay_ms,
                jitter_ms=old.jitter_ms if jitter_ms is None else jitter_ms,
                bytes_per_second=old.bytes_per_second if bytes_per_second is None else bytes_per_second,
            )
        self._changed()

    def partition(self, *groups: Iterable[str]) -> None:
        """Cut all links between parties of different groups; parties in none of them are not concerned."""
        self._partitions.append([tuple(group) for group in groups])
        self._changed()

    def heal(self, source: str | None = None, destination: str | None = None) -> None:
        """Forget the rules for two parties as they were given, in both directions; without parties, all rules."""
        if source is None or destination is None:
            self._rules.clear()
            self._partitions.clear()
        else:
            self._rules.pop((source, destination), None)
            self._rules.pop((destination, source), None)
        self._changed()

    def _changed(self) -> None:
        self._links.clear()
        for subscriber in list(self._subscribers):
            subscriber()

    def _resolve(self, source: str, destination: str) -> Link:
        rules = [rule for (a, b), rule in self._rules.items() if matches(a, source) and matches(b, destination)]
        apart = any(_apart(groups, source, destination) for groups in self._partitions)
        if not rules and not apart:
            return PERFECT
        rates = [rule.bytes_per_second for rule in rules if rule.bytes_per_second is not None]
        return Link(
            cut=apart or any(rule.cut for rule in rules),
            reset=any(rule.reset for rule in rules),
            delay_ms=max((rule.delay_ms for rule in rules), default=0),
            jitter_ms=max((rule.jitter_ms for rule in rules), default=0),
            bytes_per_second=min(rates, default=None),
        )


def matches(pattern: str, party: str) -> bool:
    """Whether a pattern names the party."""
    return party.startswith(pattern[:-1]) if pattern.endswith("*") else party == pattern


def _apart(groups: Sequence[tuple[str, ...]], source: str, destination: str) -> bool:
    """Whether two parties are in different groups."""

    def group_of(party: str) -> int | None:
        exact = next((index for index, group in enumerate(groups) if party in group), None)
        if exact is not None:
            return exact
        return next((i for i, group in enumerate(groups) if any(matches(pattern, party) for pattern in group)), None)

    first, second = group_of(source), group_of(destination)
    return first is not None and second is not None and first != second
