"""``pykclient consume``: records to stdout or a file."""

from __future__ import annotations

from typing import Any

import click

from pykclient.cli import completion
from pykclient.cli.options import Command, Session, pass_session
from pykclient.cli.values import DELIMITER, POSITION, Position


@click.command(cls=Command)
@click.argument("topics", nargs=-1, required=True, metavar="TOPIC...", shell_complete=completion.topics)
@click.option("-g", "--group", metavar="NAME", shell_complete=completion.groups, help="Read as a member of a group.")
@click.option(
    "-o",
    "--from",
    "start",
    type=POSITION,
    metavar="POSITION",
    help="beginning, end, an offset, -N (the last N of each partition), or @TIME such as @-15m or @2026-01-31T12:00. "
    "Default: the beginning; of a group, its committed offsets.",
)
@click.option(
    "--until",
    "stop",
    type=POSITION,
    metavar="POSITION",
    help="Stop at the end that the topic has now (end), at an offset, or at @TIME. Default: never.",
)
@click.option("-e", "--exit", "is_until_end", is_flag=True, help="The same as --until end.")
@click.option("-c", "--count", "most", type=click.IntRange(min=1), metavar="N", help="Stop after N records.")
@click.option(
    "-p",
    "--partition",
    "partitions",
    multiple=True,
    type=click.IntRange(min=0),
    metavar="N",
    help="Read only this partition. Can be given several times.",
)
@click.option(
    "-f",
    "--format",
    "form",
    default="plain",
    metavar="FORMAT",
    help="plain (values), json, hex, base64, or a text with %t topic, %p partition, %o offset, %k key, %s value, "
    "%h headers, %T timestamp in ms, %K and %S sizes of key and value, %% and escapes such as \\n. Default: plain.",
)
@click.option("-J", "is_json", is_flag=True, help="The same as --format json.")
@click.option(
    "-K", "--key-delimiter", type=DELIMITER, metavar="TEXT", help="Write the key and this text before each value."
)
@click.option(
    "-D",
    "--delimiter",
    type=DELIMITER,
    default="\\n",
    metavar="TEXT",
    help="Write this text after each record. Default: a new line.",
)
@click.option("--null", default="", metavar="TEXT", help="Write this text for null. Default: nothing.")
@click.option("--grep", metavar="REGEX", help="Only records whose value matches somewhere.")
@click.option("--key", "key_pattern", metavar="REGEX", help="Only records whose key matches somewhere.")
@click.option(
    "--header", "header_patterns", multiple=True, metavar="NAME[=REGEX]", help="Only records with such a header."
)
@click.option(
    "-O",
    "--output",
    type=click.Path(dir_okay=False, writable=True),
    metavar="FILE",
    help="Write to a file: Parquet if it ends with .parquet, Arrow's format with .arrow or .feather, JSON with .jsonl, "
    "else lines.",
)
@pass_session
def consume(session: Session, /, **options: Any) -> None:
    """Read records of topics and write them to stdout or a file.

    Without --group, nothing is committed, and all partitions are read. The command follows the topics until Ctrl-C,
    unless --until or --count ends it.
    """
    from pykclient.cli import reading
    from pykclient.cli.output import Wanted

    if options.pop("is_until_end"):
        options["stop"] = Position("end")
    if options.pop("is_json") or session.is_json:
        options["form"] = "json"
    reading.read(session, Wanted(**options))
