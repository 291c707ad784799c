"""The limit on the memory of all logs of a cluster."""

from __future__ import annotations

from pykclient.errors import PolicyViolationError


class MemoryBudget:
    """The bytes of all replicas on all brokers, compared with ``memory_limit_bytes``.

    Only clients' writes are rejected beyond the limit. Followers must be able to copy what a leader has accepted, and
    groups must keep working, so the limit can be exceeded by the lag of the followers. Thread: loop.
    """

    __slots__ = ("_held_by", "held_bytes", "limit_bytes")

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self.held_bytes = 0
        self._held_by: dict[str, int] = {}

    def acquire(self, owner: str, size: int, *, within_limit: bool = True) -> None:
        """Add ``size`` bytes of a log.

        Raises:
            PolicyViolationError: ``within_limit`` is set and the limit would be exceeded; nothing was added.
        """
        held = self.held_bytes + size
        if within_limit and held > self.limit_bytes:
            raise PolicyViolationError(self._refusal(owner, size))
        self.held_bytes = held
        self._held_by[owner] = self._held_by.get(owner, 0) + size

    def release(self, owner: str, size: int) -> None:
        """Subtract ``size`` bytes of a log."""
        self.held_bytes -= size
        left = self._held_by[owner] - size
        if left:
            self._held_by[owner] = left
        else:
            del self._held_by[owner]

    def _refusal(self, owner: str, size: int) -> str:
        largest = sorted(self._held_by.items(), key=lambda item: -item[1])[:3]
        holders = ", ".join(f"{name} {held:,}" for name, held in largest) or "none"
        return (
            f"{size:,} bytes for {owner} would pass the cluster's memory limit: memory_limit_bytes is "
            f"{self.limit_bytes:,}, {self.held_bytes:,} bytes are held in {len(self._held_by)} logs (largest: "
            f"{holders}). Raise memory_limit_bytes, delete topics, or give them a retention.bytes with a smaller "
            "segment.bytes, or a retention.ms: what is over is deleted every log.retention.check.interval.ms"
        )
