"""The output of commands: tables, JSON, progress. Data goes to stdout, everything else to stderr."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any, Self

import click

from pykclient.cli.options import Session


def emit(session: Session, rows: Iterable[Mapping[str, Any]], columns: Sequence[str]) -> None:
    """Print rows: as JSON with all fields, or as a table of ``columns``.

    On a terminal the table has colours; in a pipe it is plain text in columns.
    """
    found = list(rows)
    if session.is_json:
        import json

        click.echo(json.dumps(found, indent=2, default=str, ensure_ascii=False))
        return
    texts = [[shown(row.get(name)) for name in columns] for row in found]
    titles = [name.replace("_", " ").upper() for name in columns]
    numeric = [all(isinstance(row.get(name), (int, float, type(None))) for row in found) for name in columns]
    if sys.stdout.isatty():
        _emit_rich(titles, texts, numeric)
        return
    widths = [max(map(len, cells)) for cells in zip(titles, *texts, strict=True)]
    for line in (titles, *texts):
        cells = [
            cell.rjust(width) if is_number else cell.ljust(width)
            for cell, width, is_number in zip(line, widths, numeric, strict=True)
        ]
        click.echo("  ".join(cells).rstrip())


def _emit_rich(titles: list[str], texts: list[list[str]], numeric: list[bool]) -> None:
    from rich.console import Console

    Console().print(rich_table(titles, texts, numeric))


def rich_table(titles: Sequence[str], texts: Sequence[Sequence[str]], numeric: Sequence[bool]) -> Any:
    """Return a table for a terminal."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for title, is_number in zip(titles, numeric, strict=True):
        table.add_column(title, justify="right" if is_number else "left", overflow="fold")
    for row in texts:
        table.add_row(*map(Text, row))
    return table


def emit_fields(session: Session, fields: Mapping[str, Any]) -> None:
    """Print one thing: as a JSON object, or as lines of names and values."""
    if session.is_json:
        import json

        click.echo(json.dumps(fields, indent=2, default=str, ensure_ascii=False))
        return
    width = max(map(len, fields), default=0)
    for name, value in fields.items():
        click.echo(f"{name.replace('_', ' ').ljust(width)}  {shown(value)}".rstrip())


def shown(value: Any) -> str:
    """Return the text of a value in a table; an empty cell has a dash."""
    if value is None or value == "":
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, (list, tuple, set, frozenset)):
        return ",".join(map(str, value)) or "-"
    return str(value)


def note(text: str) -> None:
    """Print a line for people on stderr."""
    click.echo(text, err=True)


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
