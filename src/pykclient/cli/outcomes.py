"""The report of a command that changes things: each item that was done, and each that failed."""

from __future__ import annotations

import sys
from collections.abc import Callable, Hashable
from typing import TYPE_CHECKING, TypeVar

import click

from pykclient.cli.console import emit, note
from pykclient.cli.problems import CommandError, explained, is_bad_input
from pykclient.cli.session import Session

if TYPE_CHECKING:
    from pykclient.admin.results import Results

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
    for key, error in failed.items():
        note(f"pykclient: {named(key)}: {explained(error)}")
    if failed:
        first = next(iter(failed.values()))
        text = f"{len(failed)} of {len(results)} failed"
        if all(is_bad_input(error) for error in failed.values()):
            raise CommandError(text) from first
        raise CommandError(text)


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
