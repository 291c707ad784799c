"""The output of commands: tables and JSON. Data goes to stdout, everything else to stderr."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import click

from pykclient.cli.session import Session


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
