"""The expiry of idle connections (Java: Selector.IdleExpiryManager)."""

from __future__ import annotations

from collections.abc import Iterable
from operator import attrgetter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pykclient.network.kafka_channel import KafkaChannel

_used_ms = attrgetter("used_ms")


def least_recently_used(channels: Iterable[KafkaChannel]) -> KafkaChannel | None:
    """Return the connection that has been idle longest; None if there is none."""
    return min(channels, key=_used_ms, default=None)


class IdleExpiryManager:
    """Finds idle connections by the time of their last use, which the selector notes in ``KafkaChannel.used_ms``.

    Java keeps the connections in the order of their last use, and so changes a map at each use. Thread: owner.
    """

    __slots__ = ("_max_idle_ms", "quiet_until_ms")

    def __init__(self, max_idle_ms: int, now_ms: int) -> None:
        self._max_idle_ms = max_idle_ms
        #: No connection expires until this time.
        self.quiet_until_ms = now_ms + max_idle_ms

    def poll_expired(self, channels: Iterable[KafkaChannel], now_ms: int) -> KafkaChannel | None:
        """Return the least recently used of ``channels`` if it was idle for longer than the limit.

        Each call returns at most one.
        """
        if now_ms <= self.quiet_until_ms:
            return None
        oldest = least_recently_used(channels)
        self.quiet_until_ms = (now_ms if oldest is None else oldest.used_ms) + self._max_idle_ms
        return oldest if now_ms > self.quiet_until_ms else None
