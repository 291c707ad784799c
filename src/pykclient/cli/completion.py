"""Shell completion of the names of topics and groups, from the cluster, within a bounded time."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

import click

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


def _names(context: click.Context, incomplete: str, find: Callable[[Admin], Iterable[str]]) -> list[str]:
    from pykclient.cli.options import Session

    session = context.ensure_object(Session)
    session.timeout_ms = _TIMEOUT_MS
    try:
        with session.admin() as admin:
            return sorted(name for name in find(admin) if name.startswith(incomplete))
    except (KafkaError, OSError, click.ClickException):
        return []  # a completion has nowhere to show an error
