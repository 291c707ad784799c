"""Shell completion of the names of topics and groups, from the cluster, within a bounded time."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

import click

from pykclient.cli.problems import UsageError
from pykclient.errors import KafkaError

if TYPE_CHECKING:
    from pykclient.admin.admin import Admin

#: Nobody waits longer for a completion.
_TIMEOUT_MS = 1500


def topics(context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
    """Return the names of topics that begin with ``incomplete``; none if the cluster does not answer."""
    return _names(context, incomplete, lambda admin: [topic.name for topic in admin.list_topics()])


def groups(context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
    """Return the names of groups that begin with ``incomplete``; none if the cluster does not answer."""
    return _names(context, incomplete, lambda admin: [group.group_id for group in admin.list_groups()])


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


def _names(context: click.Context, incomplete: str, find: Callable[[Admin], Iterable[str]]) -> list[str]:
    from pykclient.cli.session import Session

    session = context.ensure_object(Session)
    session.timeout_ms = _TIMEOUT_MS
    session.on_level(logging.CRITICAL)  # a completion has nowhere to show a warning or an error
    try:
        with session.admin() as admin:
            return sorted(name for name in find(admin) if name.startswith(incomplete))
    except (KafkaError, OSError, UsageError):
        return []
