"""The expiry of idle connections (Java: Selector.IdleExpiryManager)."""

from __future__ import annotations

from pykclient.clock import FOREVER_MS


class IdleExpiryManager:
    """Connections in the order of their last use.

    Each call expires at most one, the least recently used. Thread: owner.
    """

    __slots__ = ("_last_used_ms", "_max_idle_ms", "quiet_until_ms")

    def __init__(self, max_idle_ms: int, now_ms: int) -> None:
        self._max_idle_ms = max_idle_ms
        #: No connection expires until this time.
        self.quiet_until_ms = now_ms + max_idle_ms
        self._last_used_ms: dict[str, int] = {}  # a dict keeps insertion order, so the first is the oldest

    @property
    def next_check_ms(self) -> int:
        """The time from which ``poll_expired`` may find a connection; ``FOREVER_MS`` if there is none."""
        return self.quiet_until_ms + 1 if self._last_used_ms else FOREVER_MS

    def update(self, connection_id: str, now_ms: int) -> None:
        """Mark the connection as used."""
        self._last_used_ms.pop(connection_id, None)
        self._last_used_ms[connection_id] = now_ms

    def poll_expired(self, now_ms: int) -> tuple[str, int] | None:
        """Return the least recently used connection and its idle time, if that exceeds the limit."""
        if now_ms <= self.quiet_until_ms:
            return None
        if not self._last_used_ms:
            self.quiet_until_ms = now_ms + self._max_idle_ms
            return None
        connection_id, last_used_ms = next(iter(self._last_used_ms.items()))
        self.quiet_until_ms = last_used_ms + self._max_idle_ms
        return (connection_id, now_ms - last_used_ms) if now_ms > self.quiet_until_ms else None

    def oldest(self) -> str | None:
        return next(iter(self._last_used_ms), None)

    def remove(self, connection_id: str) -> None:
        self._last_used_ms.pop(connection_id, None)
