"""What options have in common in click: types of their values, completion by a shell, and options of all commands."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from pykclient.cli import values
from pykclient.cli.parameters import COMMON, CommandTable, Parameter
from pykclient.cli.problems import UsageError
from pykclient.cli.session import Session
from pykclient.errors import KafkaError

if TYPE_CHECKING:
    from pykclient.admin.admin import Admin

    _ParamType = click.ParamType[Any]
else:
    _ParamType = click.ParamType  # which is generic from click 8.4 on


class Parsed(_ParamType):
    """A type whose values are parsed by a function, which raises ValueError."""

    def __init__(self, name: str, parse: Callable[[str], Any]) -> None:
        self.name = name
        self._parse = parse

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if not isinstance(value, str):
            return value
        try:
            return self._parse(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)


DURATION: Final = Parsed("duration", values.duration_ms)
TIME: Final = Parsed("time", values.time_ms)
SIZE: Final = Parsed("size", values.size_bytes)
TOPIC_OPTION: Final = Parsed("topic", values.topic)
SETTING: Final = Parsed("setting", values.setting)
POSITION: Final = Parsed("position", values.position)
PORT: Final = Parsed("port", values.port)


#: Nobody waits longer for a completion.
_COMPLETION_TIMEOUT_MS = 1500


def complete_topics(context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
    """Return the names of topics that begin with ``incomplete``; none if the cluster does not answer."""
    return _names_in_cluster(context, incomplete, lambda admin: [topic.name for topic in admin.list_topics()])


def complete_groups(context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
    """Return the names of groups that begin with ``incomplete``; none if the cluster does not answer."""
    return _names_in_cluster(context, incomplete, lambda admin: [group.group_id for group in admin.list_groups()])


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print the script that completes commands, options, topics and groups in a shell.

    For bash: eval "$(pykclient completion bash)" in ~/.bashrc. For zsh, the same in ~/.zshrc. For fish: pykclient
    completion fish > ~/.config/fish/completions/pykclient.fish
    """
    from click.shell_completion import get_completion_class

    found = get_completion_class(shell)
    assert found is not None
    root = click.get_current_context().find_root().command
    click.echo(found(root, {}, "pykclient", "_PYKCLIENT_COMPLETE").source())


def _names_in_cluster(context: click.Context, incomplete: str, find: Callable[[Admin], Iterable[str]]) -> list[str]:
    session = context.ensure_object(Session)
    session.timeout_ms = _COMPLETION_TIMEOUT_MS
    session.on_level(logging.CRITICAL)  # a completion has nowhere to show a warning or an error
    try:
        with session.admin() as admin:
            return sorted(name for name in find(admin) if name.startswith(incomplete))
    except (KafkaError, OSError, UsageError):
        return []


#: What ``Parameter.complete`` names.
_COMPLETIONS: Final = {"groups": complete_groups, "topics": complete_topics}
_SECTION: Final = "Connection and output"


def _remember(context: click.Context, parameter: click.Parameter, value: Any) -> None:
    try:
        context.ensure_object(Session).remember(parameter.name or "", value)
    except UsageError as error:
        raise click.UsageError(str(error), context) from error


def common_options() -> list[click.Parameter]:
    """Return the options that may stand before or after a command, as new objects."""
    return [_clicked(found, expose_value=False, callback=_remember) for found in COMMON]


def parameters_of(table: CommandTable) -> list[click.Parameter]:
    """Return click's parameter objects for a command."""
    return [_clicked(found) for found in (*table.arguments, *table.options)]


def _clicked(parameter: Parameter, **facts: Any) -> click.Parameter:
    if parameter.complete is not None:
        facts["shell_complete"] = _COMPLETIONS[parameter.complete]
    facts |= {"type": _type_of(parameter), "metavar": parameter.metavar}
    if not parameter.names[0].startswith("-"):
        return click.Argument(
            [parameter.field], nargs=-1 if parameter.is_repeated else 1, required=parameter.is_required, **facts
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
        if isinstance(parameter, click.Option) and (record := parameter.get_help_record(ctx)) is not None:
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
    """A command with subcommands that also accepts the common options. The subcommands get the session."""

    command_class = Command

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.params += common_options()

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        format_options_in_sections(self, ctx, formatter)
        self.format_commands(ctx, formatter)

    def command(self, name: str | None = None) -> Callable[[Callable[..., Any]], click.Command]:  # type: ignore[override]
        """Return the decorator that makes a subcommand of a function, whose first argument is the session."""
        decorate = super().command(name)
        return lambda function: decorate(pass_session(function))


pass_session = click.make_pass_decorator(Session, ensure=True)
F = TypeVar("F", bound=Callable[..., Any])


def together(*options: Callable[[F], F]) -> Callable[[F], F]:
    """Return the decorator that adds several options, in this order."""

    def add(function: F) -> F:
        for option in reversed(options):
            function = option(function)
        return function

    return add
