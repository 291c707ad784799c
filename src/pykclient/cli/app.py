"""The root of the command line in click: its commands, which are loaded on use."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import Any, Final

import click

from pykclient import implementation
from pykclient.cli.options import common_options, format_options_in_sections
from pykclient.cli.problems import Interrupted, own_errors
from pykclient.cli.session import Session
from pykclient.version import __version__

#: The commands: the module and the object of each, and its line in the list of commands.
COMMANDS: Final = {
    "produce": ("records:produce", "Write records from lines, JSON or files."),
    "consume": ("records:consume", "Read records as text, JSON, Parquet or Arrow."),
    "topics": ("topics:topics", "List, describe, create, delete and alter topics; move and elect replicas."),
    "groups": ("groups:groups", "List and describe groups with their lag; delete them."),
    "offsets": ("offsets:offsets", "Reset and delete the offsets of groups."),
    "configs": ("configs:configs", "Show and change settings of topics, brokers and groups."),
    "acls": ("access:acls", "List, create and delete access control lists."),
    "users": ("access:users", "List, create and delete the SCRAM credentials of users."),
    "quotas": ("access:quotas", "Show and change quotas."),
    "cluster": ("cluster:cluster", "Show brokers, features, the quorum and log directories."),
    "transactions": ("transactions:transactions", "List and describe transactions; find and abort those that hang."),
    "schemas": ("schemas:schemas", "List, show, register and check the schemas of a registry."),
    "spark-transactions": (
        "spark_transactions:spark_transactions",
        "Show and settle transactions of Spark jobs that write exactly once.",
    ),
    "doctor": ("doctor:doctor", "Check a connection step by step, and say what to do."),
    "bench": ("bench:bench", "Write and read records, and show the rates."),
    "top": ("top:top", "Watch write rates, lag and rebalances."),
    "completion": ("options:completion", "Print the completion script of a shell."),
    "embedded": ("embedded:embedded", "Run an embedded cluster until Ctrl-C."),
}


class Commands(click.Group):
    """The commands, each of which is imported when it is used."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        if cmd_name not in COMMANDS:
            return None
        module, _, name = COMMANDS[cmd_name][0].partition(":")
        command: click.Command = getattr(importlib.import_module(f"pykclient.cli.{module}"), name)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if name not in COMMANDS and not name.startswith("-"):
            import difflib

            near = difflib.get_close_matches(name, COMMANDS, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(COMMANDS)}"
            raise click.UsageError(f"There is no command {name!r}; {hint}", ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        with formatter.section("Commands"):
            formatter.write_dl([(name, line) for name, (_, line) in COMMANDS.items()])

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        format_options_in_sections(self, ctx, formatter)
        self.format_commands(ctx, formatter)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command. Turns closed pipes and Ctrl-C into errors that click does not handle."""
        with own_errors():
            return super().invoke(ctx)


app = Commands(
    name="pykclient",
    params=common_options(),
    help="Produce, consume and administer Apache Kafka. The options of a connection may stand before or after the "
    "command. docs/cli.md is a guide.",
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120},
)
app.params.insert(
    0, click.Option(["--version"], is_flag=True, expose_value=False, is_eager=True, help="Show the version.")
)


def _show_version(context: click.Context, _: click.Parameter, is_wanted: bool) -> None:
    if is_wanted and not context.resilient_parsing:
        click.echo(f"pykclient {__version__} ({implementation.NAME})")
        context.exit()


app.params[0].callback = _show_version


def run(arguments: Sequence[str] | None, session: Session) -> int:
    """Run a command, show click's errors on stderr, and return the exit code.

    Raises:
        Interrupted: the user pressed Ctrl-C, or did not confirm.
        ReaderGoneError, KafkaError, OSError, ImportError: the command failed.
    """
    try:
        code = app.main(
            None if arguments is None else list(arguments), prog_name="pykclient", standalone_mode=False, obj=session
        )
    except click.Abort as error:
        raise Interrupted from error
    except click.ClickException as error:
        if session.is_debug:
            raise
        error.show()
        return error.exit_code
    return code if isinstance(code, int) else 0


def show_usage_error(name: str, text: str) -> int:
    """Show a usage error on stderr with the command's usage; return the exit code."""
    root = click.Context(app, info_name="pykclient")
    command = app.get_command(root, name)
    assert command is not None
    error = click.UsageError(text, click.Context(command, info_name=name, parent=root))
    error.show()
    return error.exit_code
