"""The progress of a command, on stderr."""

from __future__ import annotations

from types import TracebackType
from typing import Any, Self


class Progress:
    """A line on stderr with what was sent so far, if wanted. ``total_bytes`` is None if it is not known.

    Thread: owner.
    """

    def __init__(self, is_shown: bool, total_bytes: int | None) -> None:
        self._is_shown = is_shown
        self._total_bytes = total_bytes
        self._records = 0
        self._bar: Any = None
        self._task: Any = None

    def __enter__(self) -> Self:
        if self._is_shown:
            from rich.console import Console
            from rich.progress import BarColumn, DownloadColumn, TextColumn, TransferSpeedColumn
            from rich.progress import Progress as Bar

            columns = (BarColumn(), DownloadColumn(), TransferSpeedColumn(), TextColumn("{task.description}"))
            self._bar = Bar(*columns, console=Console(stderr=True))
            self._task = self._bar.add_task("", total=self._total_bytes)
            self._bar.start()
        return self

    def advance(self, records: int, size_bytes: int) -> None:
        """Count records that were handed to the producer."""
        if self._bar is not None:
            self._records += records
            self._bar.update(self._task, advance=size_bytes, description=f"{self._records:,} records")

    def __exit__(
        self, error_type: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()
