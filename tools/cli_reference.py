"""Generate the reference in docs/cli.md: ``python tools/cli_reference.py docs/cli.md [--check]``.

The page is a guide, which people write, up to a marker; what follows is generated from the commands.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import click

from pykclient.cli.app import app
from pykclient.cli.options import common_options

_MARKER: Final = "<!-- The rest is written by `python tools/cli_reference.py docs/cli.md`. -->\n"


def reference() -> str:
    """Return the generated part of the page, with its marker."""
    context = click.Context(app, info_name="pykclient")
    lines = [_MARKER, "## Reference", "", "### Options of all commands with a connection", ""]
    lines += _options(common_options(), context)
    for name in app.list_commands(context):
        command = app.get_command(context, name)
        assert command is not None
        lines += _command(command, name, context)
    return "\n".join(lines)


def _command(command: click.Command, name: str, parent: click.Context) -> Iterator[str]:
    context = click.Context(command, info_name=name, parent=parent)
    if isinstance(command, click.Group):
        for inner in command.list_commands(context):
            found = command.get_command(context, inner)
            assert found is not None
            yield from _command(found, inner, context)
        return
    pieces = " ".join(command.collect_usage_pieces(context))
    yield f"### {context.command_path.removeprefix('pykclient ')}"
    yield ""
    yield f"`{context.command_path} {pieces}`"
    yield ""
    for paragraph in (command.help or "").split("\n\n"):
        yield " ".join(paragraph.split())
        yield ""
    common = {option.name for option in common_options()}
    yield from _options([found for found in command.params if found.name not in common], context)


def _options(parameters: list[click.Parameter], context: click.Context) -> Iterator[str]:
    records = [
        record for found in parameters if isinstance(found, click.Option) if (record := found.get_help_record(context))
    ]
    if not records:
        return
    yield "| option | |"
    yield "| --- | --- |"
    for names, text in records:
        shown = names.replace("|", "\\|")
        yield f"| `{shown}` | {text.replace('|', chr(92) + '|')} |"
    yield ""


def main(arguments: list[str]) -> int:
    """Write the generated part of a page, or with ``--check`` compare. Return the exit code."""
    check = "--check" in arguments
    paths = [Path(argument) for argument in arguments if argument != "--check"]
    if len(paths) != 1:
        sys.stderr.write(f"{__doc__}\n")
        return 2
    text = paths[0].read_text(encoding="utf-8")
    wanted = text.partition(_MARKER)[0] + reference()
    if not check:
        paths[0].write_text(wanted, encoding="utf-8")
        return 0
    if text == wanted:
        return 0
    sys.stderr.write(f"{paths[0]} is out of date; write it with python tools/cli_reference.py {paths[0]}\n")
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
