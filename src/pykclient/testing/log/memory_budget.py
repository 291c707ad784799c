"""How much all logs of a cluster may hold together."""

from __future__ import annotations

from pykclient.errors import PolicyViolationError


class MemoryBudget:
    """Bytes of records, of all replicas on all brokers, against ``memory_limit_bytes``.

    Only what clients write is refused past the limit. What a leader has taken must get to its followers, and groups
    must be able to go on, so the limit can be passed by as much as followers lag behind. Thread: loop.
    """

    __slots__ = ("_held_by", "held_bytes", "limit_bytes")

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self.held_bytes = 0
        self._held_by: dict[str, int] = {}

    def acquire(self, owner: str, size: int, *, within_limit: bool = True) -> None:
        """Count ``size`` more bytes of a log.

        Raises:
            PolicyViolationError: they are too many ``within_limit``, and nothing was counted.
        """
        held = self.held_bytes + size
        if within_limit and held > self.limit_bytes:
            raise PolicyViolationError(self._refusal(owner, size))
        self.held_bytes = held
        self._held_by[owner] = self._held_by.get(owner, 0) + size

    def release(self, owner: str, size: int) -> None:
        """Count them no more."""
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
