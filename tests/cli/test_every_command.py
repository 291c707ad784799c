"""Bad input to every command that there is: exit code 2, a text that names the option, and no traceback."""

from __future__ import annotations

from collections.abc import Iterator

import click
import pytest

from pykclient.cli.app import app
from tests.cli.command import Pykclient

#: A value that no option with a type of its own takes.
WRONG = "/no such value/"


def commands(group: click.Group, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    """Yield each command that does something, with the words that call it."""
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        if isinstance(command, click.Group):
            yield from commands(command, (*path, name))
        else:
            yield (*path, name), command


COMMANDS = list(commands(app))
ids = [" ".join(words) for words, _ in COMMANDS]


@pytest.fixture
def pykclient(monkeypatch: pytest.MonkeyPatch, tmp_path: object) -> Pykclient:
    """The command without a cluster, which bad input never gets to."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    return Pykclient()


def refuses(pykclient: Pykclient, text: str, *words: str) -> None:
    result = pykclient(*words)
    assert (result.code, result.raw) == (2, b""), (words, result.err)
    assert text in result.err, (words, result.err)
    assert "Traceback" not in result.err


def takes(option: click.Option) -> bool:
    """Return True if any text is a value of the option."""
    try:
        option.type.convert(WRONG, option, None)
    except click.BadParameter:
        return False
    return True


@pytest.mark.parametrize(("words", "command"), COMMANDS, ids=ids)
def test_options_refuse_wrong_values(pykclient: Pykclient, words: tuple[str, ...], command: click.Command) -> None:
    arguments = [parameter for parameter in command.params if isinstance(parameter, click.Argument)]
    valid = ["x"] * sum(argument.required for argument in arguments if not isinstance(argument.type, click.Choice))
    for option in command.params:
        if not isinstance(option, click.Option) or option.is_flag or takes(option):
            continue
        name = option.opts[-1]
        refuses(pykclient, name, *words, name, WRONG, *valid)
        refuses(pykclient, name, *words, name)  # and without a value


@pytest.mark.parametrize(("words", "command"), COMMANDS, ids=ids)
def test_unknown_option_is_refused(pykclient: Pykclient, words: tuple[str, ...], command: click.Command) -> None:
    refuses(pykclient, "--no-such-option", *words, "--no-such-option")
    for parameter in command.params:
        if parameter.required:
            refuses(pykclient, f"Missing {parameter.param_type_name}", *words)
            return
    if not any(isinstance(parameter, click.Argument) for parameter in command.params):
        refuses(pykclient, "unexpected extra argument", *words, "surplus")


@pytest.mark.parametrize("group", sorted({words[:-1] for words, _ in COMMANDS if len(words) > 1}))
def test_unknown_command_is_refused(pykclient: Pykclient, group: tuple[str, ...]) -> None:
    refuses(pykclient, "descibe", *group, "descibe")


@pytest.mark.parametrize("setting", ["no.such.key=1", "linger.ms=soon", "no-equals-sign", "sasl.password=4021"])
def test_error_names_wrong_setting_without_its_value(pykclient: Pykclient, setting: str) -> None:
    result = pykclient("produce", "orders", "-X", setting)
    assert (result.code, result.raw) == (2, b"")
    assert setting.partition("=")[0] in result.err
    assert "4021" not in result.err
    assert "Traceback" not in result.err
