"""``pykclient produce``: records out of lines, JSON or files."""

from __future__ import annotations

from typing import Any

import click

from pykclient.cli.options import Command, parameters_of, pass_session
from pykclient.cli.parameters import PRODUCE
from pykclient.cli.session import Session


@click.command(cls=Command, params=parameters_of(PRODUCE))
@pass_session
def produce(session: Session, /, **values: Any) -> None:
    """Write records to a topic, from files or stdin.

    A lone line feed ends a record: send binary data with --format file, or as JSON. The exit code is 0 once the brokers
    have acknowledged all records.
    """
    from pykclient.cli import writing

    writing.produce(session, **values)
