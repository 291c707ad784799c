"""The options of commands as click's objects."""

from __future__ import annotations

from typing import Any, Final

import click

from pykclient.cli import completion
from pykclient.cli.parameters import COMMON, CommandTable, Parameter
from pykclient.cli.problems import UsageError
from pykclient.cli.session import Session
from pykclient.cli.value_types import Parsed

_SECTION: Final = "Connection and output"


def _remember(context: click.Context, parameter: click.Parameter, value: Any) -> None:
    try:
        context.ensure_object(Session).remember(parameter.name or "", value)
    except UsageError as error:
        raise click.UsageError(str(error), context) from error


def common_options() -> list[click.Parameter]:
    """Return new objects of the options that may stand before and after a command."""
    return [_clicked(found, expose_value=False, callback=_remember) for found in COMMON]


def parameters_of(table: CommandTable) -> list[click.Parameter]:
    """Return click's objects of the arguments and options of a command."""
    return [_clicked(found) for found in (*table.arguments, *table.options)]


def _clicked(parameter: Parameter, **facts: Any) -> click.Parameter:
    if parameter.complete is not None:
        facts["shell_complete"] = getattr(completion, parameter.complete)
    facts |= {"type": _type_of(parameter), "metavar": parameter.metavar}
    if not parameter.names[0].startswith("-"):
        return click.Argument(
            [parameter.field],
            nargs=-1 if parameter.is_repeated else 1,
            required=parameter.is_required,
            **facts,
        )
    if parameter.is_flag:
        facts |= {"is_flag": True, "type": None, "default": None if "/" in parameter.names[0] else False}
    elif parameter.default is not None:
        facts["default"] = parameter.default
    names = [*parameter.names, parameter.field]
    return click.Option(names, multiple=parameter.is_repeated, help=parameter.help, **facts)


def _type_of(parameter: Parameter) -> Any:
    if parameter.choices:
        return click.Choice(parameter.choices)
    if parameter.minimum is not None:
        return click.IntRange(min=parameter.minimum)
    if parameter.path is not None:
        rule = parameter.path
        return click.Path(exists=rule.exists, dir_okay=False, writable=rule.is_written, allow_dash=rule.allows_dash)
    return None if parameter.parse is str else Parsed(parameter.field, parameter.parse)


_COMMON: Final = frozenset(option.name for option in common_options())


def format_options_in_sections(command: click.Command, ctx: click.Context, formatter: click.HelpFormatter) -> None:
    """Write the help of options: the command's own, then the common ones."""
    own: list[tuple[str, str]] = []
    common: list[tuple[str, str]] = []
    for parameter in command.get_params(ctx):
        if (record := parameter.get_help_record(ctx)) is not None:
            (common if parameter.name in _COMMON else own).append(record)
    for title, records in (("Options", own), (_SECTION, common)):
        if records:
            with formatter.section(title):
                formatter.write_dl(records)


class Command(click.Command):
    """A command with a connection to a cluster."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        taken = {name for parameter in self.params for name in parameter.opts}
        self.params += [option for option in common_options() if not taken & {*option.opts}]

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except UsageError as error:
            raise click.UsageError(str(error), ctx) from error

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        format_options_in_sections(self, ctx, formatter)


class CommandGroup(click.Group):
    """A command with subcommands, before which the common options may stand, too."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.params += common_options()

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        format_options_in_sections(self, ctx, formatter)
        self.format_commands(ctx, formatter)


pass_session = click.make_pass_decorator(Session, ensure=True)
