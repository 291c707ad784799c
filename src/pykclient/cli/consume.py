"""``pykclient consume``: records to stdout or a file."""

from __future__ import annotations

from typing import Any

import click

from pykclient.cli.options import Command, parameters_of, pass_session
from pykclient.cli.parameters import CONSUME
from pykclient.cli.session import Session


@click.command(cls=Command, params=parameters_of(CONSUME))
@pass_session
def consume(session: Session, /, **values: Any) -> None:
    """Read records of topics and write them to stdout or a file. A TOPIC may be a pattern such as 'orders*'.

    Without --group, nothing is committed, and all partitions are read. The command follows the topics until Ctrl-C,
    unless --until or --count ends it.
    """
    from pykclient.cli import reading

    reading.consume(session, **values)
