"""Results of commands on the terminal: tables or JSON, and the outcome of each item of a call."""

from __future__ import annotations

import sys
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import click

from pykclient.cli.problems import CommandError, explained, is_bad_input
from pykclient.cli.session import Session

if TYPE_CHECKING:
    from pykclient.admin.values import Results
    from pykclient.errors import KafkaError


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
    """Print one item, as a JSON object or as lines of names and values."""
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


K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


def report(session: Session, results: Results[K, V], done: str, named: Callable[[K], str] = str) -> None:
    """Print the outcome of each item, as lines such as ``created: orders`` or as JSON.

    Raises:
        CommandError: an item failed. All failures have been printed.
    """
    if session.is_json:
        rows = [
            {
                "name": named(key),
                "result": done if key in results.succeeded else "failed",
                "error": None if key in results.succeeded else str(results.failed[key]),
            }
            for key in results
        ]
        emit(session, rows, ())
    else:
        for key in results.succeeded:
            click.echo(f"{done}: {named(key)}")
    failed = results.failed
    if failed:
        first = next(iter(failed.values()))
        text = f"{len(failed)} of {len(results)} failed"
        if len(results) == 1:
            text = "".join(f"{named(key)}: {explained(error)}" for key, error in failed.items())
        else:
            _note_failures(failed, named)
        if all(is_bad_input(error) for error in failed.values()):
            raise CommandError(text) from first
        raise CommandError(text)


def note_failures(results: Results[K, V], named: Callable[[K], str] = str) -> int:
    """Print the errors of items that could not be shown, after the others; return the exit code.

    Raises:
        KafkaError: the only item has failed.
    """
    for key, error in results.failed.items() if len(results) == 1 else ():
        if named(key) in str(error):
            raise error
        raise CommandError(f"{named(key)}: {explained(error)}") from error
    _note_failures(results.failed, named)
    if not results.failed:
        return 0
    return 2 if all(is_bad_input(error) for error in results.failed.values()) else 1


def _note_failures(failed: Mapping[K, KafkaError], named: Callable[[K], str]) -> None:
    for key, error in failed.items():
        note(f"pykclient: {named(key)}: {explained(error)}")


def confirm(session: Session, question: str, is_confirmed: bool) -> None:
    """Ask for confirmation before deleting, unless ``--yes`` was given. Names the cluster's addresses.

    Raises:
        click.UsageError: nobody can be asked.
        click.Abort: the answer is no.
    """
    if is_confirmed:
        return
    question = f"{question} (cluster: {session.settings()['bootstrap.servers']})"
    if not sys.stdin.isatty():
        raise click.UsageError(f"{question} Nobody is here to ask: confirm with --yes")
    click.confirm(question, abort=True, err=True)
