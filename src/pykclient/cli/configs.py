"""``pykclient configs``: settings of topics, brokers, groups and subscriptions to client metrics."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final

import click

from pykclient.admin.values import AlterConfigOp, ConfigResource
from pykclient.cli.console import emit, note_failures, report
from pykclient.cli.options import SETTING, CommandGroup
from pykclient.cli.session import Session

if TYPE_CHECKING:
    from pykclient.admin.admin import Admin

_TYPES: Final = ("topic", "broker", "broker-logger", "group", "client-metrics")
_TYPE = click.Choice(_TYPES)


@click.group(cls=CommandGroup)
def configs() -> None:
    """Show and change settings of topics, brokers, groups and client metrics."""


@configs.command()
@click.argument("kind", type=_TYPE, metavar="TYPE")
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
@click.option("--all", "are_all", is_flag=True, help="Also keys with their default values.")
@click.option("--key", "keys", multiple=True, metavar="KEY", help="Only this key. Can be given several times.")
def describe(session: Session, /, kind: str, names: tuple[str, ...], are_all: bool, keys: tuple[str, ...]) -> int:
    """Show the settings of resources. TYPE is topic, broker, broker-logger, group or client-metrics.

    The values of secrets are not shown; brokers do not tell them.
    """
    resources = [ConfigResource(kind, name, list(keys) or None) for name in names]
    with session.admin() as admin:
        found = admin.describe_configs(resources)
    rows: list[dict[str, Any]] = [
        {
            "type": kind,
            "name": resource.name,
            "key": entry.name,
            "value": entry.value,
            "source": entry.source.name.lower(),
            "read_only": entry.is_read_only,
            "sensitive": entry.is_sensitive,
        }
        for resource, entries in found.succeeded.items()
        for entry in sorted(entries.values())
        if are_all or keys or not entry.is_default
    ]
    if found.succeeded:
        emit(session, rows, ("name", "key", "value", "source"))
    return note_failures(found, lambda resource: f"{kind} {resource.name}")


@configs.command()
@click.argument("kind", type=_TYPE, metavar="TYPE")
@click.argument("name", metavar="NAME")
@click.option("-c", "--set", "settings", multiple=True, type=SETTING, metavar="KEY=VALUE", help="Set a key.")
@click.option("--unset", multiple=True, metavar="KEY", help="Set a key back to its default.")
@click.option("--dry-run", is_flag=True, help="Let the brokers check only.")
def alter(
    session: Session,
    /,
    kind: str,
    name: str,
    settings: tuple[tuple[str, str], ...],
    unset: tuple[str, ...],
    dry_run: bool,
) -> None:
    """Change settings of a resource. The other keys stay as they are.

    The NAME of a broker is its id; an empty one ('') is for all brokers.
    """
    if not settings and not unset:
        raise click.UsageError("say what to change: --set or --unset")
    with session.admin() as admin:
        change(session, admin, kind, name, settings, unset, dry_run)


def change(
    session: Session,
    admin: Admin,
    kind: str,
    name: str,
    settings: Iterable[tuple[str, str]],
    unset: Iterable[str],
    is_dry_run: bool,
) -> None:
    """Change settings of a resource, and report it.

    Raises:
        CommandError: the brokers refused it.
    """
    changes: dict[str, Any] = {
        **{key: (AlterConfigOp.SET, value) for key, value in settings},
        **dict.fromkeys(unset, (AlterConfigOp.DELETE, None)),
    }
    results = admin.incremental_alter_configs([ConfigResource(kind, name, changes)], validate_only=is_dry_run)
    done = "would be changed" if is_dry_run else "changed"
    report(session, results, done, lambda resource: f"{kind} {resource.name or '(all)'}")
