"""``pykclient users`` and ``pykclient quotas``: SCRAM credentials, and limits of users, clients and addresses."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from pykclient.cli.console import emit
from pykclient.cli.options import Command, CommandGroup, pass_session
from pykclient.cli.outcomes import confirm, note_failures, report
from pykclient.cli.problems import BadInputError
from pykclient.cli.session import Session
from pykclient.cli.value_types import SETTING

if TYPE_CHECKING:
    from pykclient.admin.access import ClientQuotaFilterComponent, Entity

F = TypeVar("F", bound=Callable[..., Any])

_MECHANISM: Final = click.Choice(["SCRAM-SHA-256", "SCRAM-SHA-512"], case_sensitive=False)


@click.group(cls=CommandGroup)
def users() -> None:
    """List, create and delete the SCRAM credentials of users."""


@users.command("list", cls=Command)
@click.argument("names", nargs=-1, metavar="[USER...]")
@pass_session
def list_users(session: Session, /, names: tuple[str, ...]) -> int:
    """List users with SCRAM credentials, by default all. Passwords are not stored, so nobody can show them."""
    with session.admin() as admin:
        found = admin.describe_user_scram_credentials(names or None)
    rows = [
        {"user": user, "mechanism": _named(credential.mechanism.name), "iterations": credential.iterations}
        for user, credentials in sorted(found.succeeded.items())
        for credential in credentials
    ]
    if rows or not found.failed:
        emit(session, rows, ("user", "mechanism", "iterations"))
    return note_failures(found)


@users.command("set", cls=Command)
@click.argument("name", metavar="USER")
@click.option("--mechanism", type=_MECHANISM, default="SCRAM-SHA-512", help="Default: SCRAM-SHA-512.")
@click.option("--iterations", type=click.IntRange(4096, 131_072), metavar="N", help="Of the hash. Default: 4096.")
@pass_session
def set_user(session: Session, /, name: str, mechanism: str, iterations: int | None) -> None:
    """Create a user's credential, or replace its password.

    The password is asked for, or is the first line of stdin if that is no terminal.
    """
    from pykclient.admin.values import UserScramCredentialUpsertion

    new = UserScramCredentialUpsertion(name, mechanism.replace("-", "_"), _new_password(name), iterations)
    with session.admin() as admin:
        report(session, admin.alter_user_scram_credentials([new]), f"{mechanism} set")


def _new_password(user: str) -> str:
    """Return the password that the user types, or the first line of stdin.

    Raises:
        BadInputError: it is empty.
    """
    if sys.stdin.isatty():
        typed: str = click.prompt(f"New password of {user}", hide_input=True, confirmation_prompt=True, err=True)
        return typed
    line = sys.stdin.readline().removesuffix("\n").removesuffix("\r")
    if not line:
        raise BadInputError("there is no password: type it on a terminal, or write it to stdin")
    return line


@users.command("delete", cls=Command)
@click.argument("name", metavar="USER")
@click.option("--mechanism", type=_MECHANISM, default="SCRAM-SHA-512", help="Default: SCRAM-SHA-512.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@pass_session
def delete_user(session: Session, /, name: str, mechanism: str, yes: bool) -> None:
    """Delete a user's credential of one mechanism."""
    from pykclient.admin.values import UserScramCredentialDeletion

    confirm(session, f"Delete the {mechanism} credential of {name}?", yes)
    with session.admin() as admin:
        deletion = UserScramCredentialDeletion(name, mechanism.replace("-", "_"))
        report(session, admin.alter_user_scram_credentials([deletion]), f"{mechanism} deleted")


def _named(mechanism: str) -> str:
    return mechanism.replace("_", "-")


# --- quotas ----------------------------------------------------------------------------------------------------------


@click.group(cls=CommandGroup)
def quotas() -> None:
    """Show and change the quotas of users, clients and addresses."""


def _entity_options(function: F) -> F:
    """Add the options that name an entity."""
    for option in reversed(
        (
            click.option("--user", metavar="NAME", help="A user; an empty name ('') is the default of users."),
            click.option("--client-id", metavar="NAME", help="A client id; an empty name is the default."),
            click.option("--ip", metavar="ADDRESS", help="An address; an empty one is the default."),
        )
    ):
        function = option(function)
    return function


def _entity(names: dict[str, str | None]) -> dict[str, str | None]:
    """Return the entity that options name. In Kafka the name None stands for the default."""
    return {kind.replace("_", "-"): name or None for kind, name in names.items() if name is not None}


@quotas.command("list", cls=Command)
@_entity_options
@pass_session
def list_quotas(session: Session, /, **names: str | None) -> None:
    """List quotas: all, or those of an entity."""
    from pykclient.admin.access import ClientQuotaFilterComponent

    wanted: list[ClientQuotaFilterComponent] = [
        ClientQuotaFilterComponent(kind, name) for kind, name in _entity(names).items()
    ]
    with session.admin() as admin:
        found = admin.describe_client_quotas(wanted)
    rows = [
        {**{kind: "(default)" if name is None else name for kind, name in entity}, "quota": key, "value": value}
        for entity, values in sorted(found.items(), key=lambda item: str(item[0]))
        for key, value in sorted(values.items())
    ]
    emit(session, rows, ("user", "client-id", "ip", "quota", "value"))


@quotas.command(cls=Command)
@_entity_options
@click.option("-c", "--set", "settings", multiple=True, type=SETTING, metavar="KEY=NUMBER", help="Set a quota.")
@click.option("--unset", multiple=True, metavar="KEY", help="Remove a quota.")
@click.option("--dry-run", is_flag=True, help="Let the brokers check only.")
@pass_session
def alter(
    session: Session,
    /,
    settings: tuple[tuple[str, str], ...],
    unset: tuple[str, ...],
    dry_run: bool,
    **names: str | None,
) -> None:
    """Set and remove quotas of an entity, such as producer_byte_rate, consumer_byte_rate and request_percentage."""
    entity = _entity(names)
    if not entity:
        raise click.UsageError("say whose quotas to change: --user, --client-id or --ip")
    if not settings and not unset:
        raise click.UsageError("say what to change: --set or --unset")
    values: dict[str, float | None] = dict.fromkeys(unset)
    for key, text in settings:
        try:
            values[key] = float(text)
        except ValueError as error:
            raise click.UsageError(f"--set: {key} is a number, not {text!r}") from error
    with session.admin() as admin:
        results = admin.alter_client_quotas([(entity, values)], validate_only=dry_run)
    report(session, results, "would be changed" if dry_run else "changed", _shown)


def _shown(entity: Entity) -> str:
    return ", ".join(f"{kind} {'(default)' if name is None else name}" for kind, name in entity)
