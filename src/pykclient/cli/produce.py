"""``pykclient produce``: records out of lines, JSON or files."""

from __future__ import annotations

from typing import Any

import click

from pykclient.cli import completion
from pykclient.cli.options import Command, Session, pass_session
from pykclient.cli.values import DELIMITER, TIME

_CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


@click.command(cls=Command)
@click.argument("topic", shell_complete=completion.topics)
@click.argument("files", nargs=-1, type=click.Path(exists=True, dir_okay=False, allow_dash=True), metavar="[FILE...]")
@click.option(
    "-f",
    "--format",
    "form",
    type=click.Choice(["lines", "json", "file"]),
    default="lines",
    help="lines: a record per line. json: an object per line with value and, if you like, key, headers, partition, "
    "timestamp, as `consume --format json` writes them. file: each file is one record. Default: lines.",
)
@click.option("-J", "is_json_lines", is_flag=True, help="The same as --format json.")
@click.option("-k", "--key", metavar="KEY", help="The key of all records.")
@click.option("-K", "--key-delimiter", type=DELIMITER, metavar="TEXT", help="The text between key and value of a line.")
@click.option(
    "-D",
    "--delimiter",
    type=DELIMITER,
    default="\\n",
    metavar="TEXT",
    help="The text after each record. Default: a new line.",
)
@click.option("-Z", "--empty-is-null", is_flag=True, help="Send null for an empty key or value.")
@click.option("-p", "--partition", type=click.IntRange(min=0), metavar="N", help="The partition of all records.")
@click.option(
    "-H",
    "--header",
    "headers",
    multiple=True,
    metavar="NAME=VALUE",
    help="A header of all records. Can be given several times.",
)
@click.option("--timestamp", type=TIME, metavar="TIME", help="The timestamp of all records.")
@click.option("-z", "--compression", type=click.Choice(_CODECS), help="The codec.")
@click.option(
    "--acks", type=click.Choice(["0", "1", "all"]), help="How many replicas must have a record. Default: all."
)
@click.option("--progress/--no-progress", default=None, help="Show progress. Default: on a terminal.")
@pass_session
def produce(session: Session, /, **options: Any) -> None:
    """Write records to a topic, from files or stdin.

    A lone line feed ends a record: send binary data with --format file, or as JSON. The exit code is 0 once the brokers
    have acknowledged all records.
    """
    from pykclient.cli import writing

    if options.pop("is_json_lines"):
        options["form"] = "json"
    writing.write(session, writing.Wanted(**options))
