"""The report of a command that changes things: each item that was done, and each that failed."""

from __future__ import annotations

import sys
from collections.abc import Callable, Hashable, Mapping
from typing import TYPE_CHECKING, TypeVar

import click

from pykclient.cli.console import emit, note
from pykclient.cli.problems import CommandError, explained, is_bad_input
from pykclient.cli.session import Session

if TYPE_CHECKING:
    from pykclient.admin.results import Results
    from pykclient.errors import KafkaError

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


def report(session: Session, results: Results[K, V], done: str, named: Callable[[K], str] = str) -> None:
    """Print what became of each item, as lines such as ``created: orders`` or as JSON.

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
    """Print the error of each item that cannot be shown, after the others have been; return the exit code.

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
    """Ask before something is deleted, unless ``--yes`` was given. The question names the cluster by its addresses.

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
