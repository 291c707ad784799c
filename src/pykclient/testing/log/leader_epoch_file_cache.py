"""The history of leader epochs in a log (Java: LeaderEpochFileCache; KIP-101, KIP-279)."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from typing import Final, NamedTuple

from pykclient.errors import IllegalArgumentError
from pykclient.testing.log.log_types import OffsetAndEpoch

UNDEFINED_EPOCH: Final = -1
UNDEFINED_EPOCH_OFFSET: Final = -1


class EpochEntry(NamedTuple):
    """A leader epoch and the offset of its first record."""

    epoch: int
    start_offset: int


class LeaderEpochFileCache:
    """Leader epochs and the offsets at which they began, both strictly increasing.

    Every change is written to the disk, so the cache outlives its broker. Thread: loop.
    """

    __slots__ = ("_epochs", "_start_offsets")

    def __init__(self) -> None:
        self._epochs: list[int] = []
        self._start_offsets: list[int] = []

    # --- changes -----------------------------------------------------------------------------------------------------

    def assign(self, epoch: int, start_offset: int) -> bool:
        """Let ``epoch`` begin at ``start_offset``; return whether the entry is new.

        Entries with a later epoch or a later offset contradict it. They belong to an abandoned history and are removed.

        Raises:
            IllegalArgumentError: a number is negative.
        """
        epochs, offsets = self._epochs, self._start_offsets
        if epochs and epochs[-1] == epoch and offsets[-1] <= start_offset:
            return False
        if epoch < 0 or start_offset < 0:
            raise IllegalArgumentError(f"leader epoch {epoch} cannot begin at offset {start_offset}")
        keep = min(bisect_left(epochs, epoch), bisect_left(offsets, start_offset))
        self._cut(keep)
        epochs.append(epoch)
        offsets.append(start_offset)
        return True

    def truncate_from_end(self, end_offset: int) -> None:
        """Remove the epochs that began at ``end_offset`` or later."""
        if end_offset >= 0:
            self._cut(bisect_left(self._start_offsets, end_offset))

    def truncate_from_start(self, start_offset: int) -> None:
        """Remove the epochs that ended before ``start_offset``. The epoch that contains it now begins there."""
        gone = bisect_right(self._start_offsets, start_offset)
        if gone:
            del self._epochs[: gone - 1]
            del self._start_offsets[: gone - 1]
            self._start_offsets[0] = start_offset

    def clear(self) -> None:
        self._cut(0)

    def _cut(self, count: int) -> None:
        del self._epochs[count:]
        del self._start_offsets[count:]

    # --- questions ---------------------------------------------------------------------------------------------------

    @property
    def latest_epoch(self) -> int | None:
        return self._epochs[-1] if self._epochs else None

    @property
    def earliest_entry(self) -> EpochEntry | None:
        return EpochEntry(self._epochs[0], self._start_offsets[0]) if self._epochs else None

    @property
    def entries(self) -> list[EpochEntry]:
        return [EpochEntry(*entry) for entry in zip(self._epochs, self._start_offsets, strict=True)]

    def end_offset_for(self, requested_epoch: int, log_end_offset: int) -> OffsetAndEpoch:
        """Return the largest known epoch not above the requested one, and its end offset.

        The latest epoch ends at the end of the log. If the requested epoch is older than all known ones, return it with
        the start offset of the first known epoch. Both are -1 if the epoch is undefined or newer than all known ones.
        """
        epochs = self._epochs
        if requested_epoch == UNDEFINED_EPOCH or not epochs or requested_epoch > epochs[-1]:
            return OffsetAndEpoch(UNDEFINED_EPOCH_OFFSET, UNDEFINED_EPOCH)
        if requested_epoch == epochs[-1]:
            return OffsetAndEpoch(log_end_offset, requested_epoch)
        higher = bisect_right(epochs, requested_epoch)
        epoch = epochs[higher - 1] if higher else requested_epoch
        return OffsetAndEpoch(self._start_offsets[higher], epoch)

    def __repr__(self) -> str:
        return f"LeaderEpochFileCache({[tuple(entry) for entry in self.entries]})"
