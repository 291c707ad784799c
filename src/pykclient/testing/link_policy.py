"""The state of the network between any two parties: cut, delayed, throttled, or healthy.

A party is ``broker-<id>``, ``client:<client id>`` or ``coordination``. Rules name parties by patterns, which may end in
``*``: ``client:*`` matches all clients, ``*`` matches everything.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from pykclient.errors import IllegalArgumentError
from pykclient.testing.event_loop import EventLoop, below


class Link:
    """One direction between two parties, combined from all rules.

    ``cut``: nothing arrives until the link is healed, silently. ``reset``: connections break and new ones are refused.
    A frame takes ``delay_ms`` plus up to ``jitter_ms``; ``bytes_per_second`` limits the throughput. Thread: loop.
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
        """Return the milliseconds until a frame that is sent now arrives."""
        transit_ms = self.delay_ms
        if self.jitter_ms:
            transit_ms += below(rng, self.jitter_ms + 1)
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
    """The rules of all links. Components that hold frames back subscribe to changes. Thread: loop."""

    def __init__(self, loop: EventLoop, rng: random.Random) -> None:
        self._loop = loop
        self.rng = rng
        self._rules: dict[tuple[str, str], Link] = {}
        self._partitions: list[list[tuple[str, ...]]] = []
        self._links: dict[tuple[str, str], Link] = {}
        self._subscribers: list[Callable[[], None]] = []
        #: The number of changes of the rules. A link is valid until the next one.
        self.changes = 0

    @property
    def active(self) -> bool:
        """True if any link is not healthy."""
        return bool(self._rules or self._partitions)

    def link(self, source: str, destination: str) -> Link:
        """Return the link from ``source`` to ``destination``. It is replaced when rules change."""
        if not self._rules and not self._partitions:
            return PERFECT
        found = self._links.get((source, destination))
        if found is None:
            found = self._links[source, destination] = self._resolve(source, destination)
        return found

    def is_cut(self, source: str, destination: str) -> bool:
        """Return whether nothing gets from ``source`` to ``destination``."""
        link = self.link(source, destination)
        return link.cut or link.reset

    def subscribe(self, changed: Callable[[], None]) -> None:
        """Call ``changed`` after each change of the rules."""
        self._subscribers.append(changed)

    def unsubscribe(self, changed: Callable[[], None]) -> None:
        """Stop calling ``changed``."""
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
        """Set properties of the link between two parties, in both directions unless ``one_way``.

        None keeps a property.
        """
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
        """Cut all links between parties of different groups. Other parties are not affected."""
        self._partitions.append([tuple(group) for group in groups])
        self._changed()

    def heal(self, source: str | None = None, destination: str | None = None) -> None:
        """Remove the rules for two parties in both directions, or all rules.

        The parties must be given by the same patterns as before.
        """
        if source is None or destination is None:
            self._rules.clear()
            self._partitions.clear()
        else:
            self._rules.pop((source, destination), None)
            self._rules.pop((destination, source), None)
        self._changed()

    def _changed(self) -> None:
        self._links.clear()
        self.changes += 1
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
    """Return whether a pattern matches the party."""
    return party.startswith(pattern[:-1]) if pattern.endswith("*") else party == pattern


def _apart(groups: Sequence[tuple[str, ...]], source: str, destination: str) -> bool:
    """Return whether two parties are in different groups."""

    def group_of(party: str) -> int | None:
        exact = next((index for index, group in enumerate(groups) if party in group), None)
        if exact is not None:
            return exact
        return next((i for i, group in enumerate(groups) if any(matches(pattern, party) for pattern in group)), None)

    first, second = group_of(source), group_of(destination)
    return first is not None and second is not None and first != second
