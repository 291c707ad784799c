"""``pykclient produce`` and ``pykclient consume``: records from files or stdin, and to files or stdout."""

from __future__ import annotations

from typing import Any

import click

from pykclient.cli.options import Command, parameters_of, pass_session
from pykclient.cli.parameters import CONSUME, PRODUCE
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


@click.command(cls=Command, params=parameters_of(CONSUME))
@pass_session
def consume(session: Session, /, **values: Any) -> None:
    """Read records of topics and write them to stdout or a file. A TOPIC may be a pattern such as 'orders*'.

    Without --group, nothing is committed, and all partitions are read. The command follows the topics until Ctrl-C,
    unless --until or --count ends it.
    """
    from pykclient.cli import reading

    reading.consume(session, **values)
