"""``pykclient acls``, ``pykclient users`` and ``pykclient quotas``: who may do what, and how much."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, Final

import click

from pykclient.admin.values import (
    ACL,
    ACLFilter,
    ACLOperation,
    ACLPermissionType,
    ACLResourcePatternType,
    ResourcePattern,
    ResourcePatternFilter,
    ResourceType,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)
from pykclient.cli.console import confirm, emit, note, note_failures, report
from pykclient.cli.options import SETTING, CommandGroup, complete_groups, complete_topics, together
from pykclient.cli.problems import BadInputError, CommandError
from pykclient.cli.session import Session

if TYPE_CHECKING:
    from pykclient.admin.access import ClientQuotaFilterComponent, Entity

_OPERATION = click.Choice([found.name for found in ACLOperation if found >= ACLOperation.ALL], case_sensitive=False)
#: The name of the only cluster, as Kafka has it.
_CLUSTER: Final = "kafka-cluster"
_COLUMNS: Final = ("principal", "host", "permission", "operation", "resource", "name", "pattern")


#: The options that name a resource.
_resource_options = together(
    click.option("--topic", metavar="NAME", shell_complete=complete_topics, help="A topic."),
    click.option("--group", metavar="NAME", shell_complete=complete_groups, help="A group."),
    click.option("--transactional-id", metavar="NAME", help="A transactional id."),
    click.option("--delegation-token", metavar="NAME", help="A delegation token."),
    click.option("--user", metavar="NAME", help="A user, for tokens."),
    click.option("--cluster", is_flag=True, help="The cluster."),
    click.option("--prefixed", is_flag=True, help="All resources whose name begins with the given one."),
)


@click.group(cls=CommandGroup)
def acls() -> None:
    """List, create and delete access control lists."""


@acls.command("list")
@click.option("--principal", metavar="TYPE:NAME", help="Only those of a principal, such as User:alice.")
@click.option("--operation", type=_OPERATION, help="Only those of an operation.")
@_resource_options
def list_acls(session: Session, /, **options: Any) -> None:
    """List ACLs (default: all). With a resource, list those that apply to it, including prefixes and wildcards."""
    wanted = _filter(options, is_match=True)
    with session.admin() as admin:
        found = admin.describe_acls(wanted)
    emit(session, sorted(map(_row, found), key=lambda row: [str(row[name]) for name in _COLUMNS]), _COLUMNS)


@acls.command()
@click.option("--principal", required=True, metavar="TYPE:NAME", help="Whom it is about, such as User:alice or User:*.")
@click.option(
    "--operation", "operations", required=True, multiple=True, type=_OPERATION, help="Can be given several times."
)
@click.option("--deny", is_flag=True, help="Deny it, in place of allowing it.")
@click.option("--host", default="*", metavar="ADDRESS", help="Only from this address. Default: any.")
@_resource_options
def create(
    session: Session, /, principal: str, operations: tuple[str, ...], deny: bool, host: str, **options: Any
) -> None:
    """Create ACLs. One that exists already is a success."""
    pattern = _pattern(options, is_match=False)
    if pattern is None or pattern.resource_name is None:
        raise click.UsageError("name a resource: --topic, --group, --cluster or another one")
    resource = ResourcePattern(pattern.resource_type, pattern.resource_name, pattern.pattern_type)
    permission = ACLPermissionType.DENY if deny else ACLPermissionType.ALLOW
    new = [ACL(principal, host, ACLOperation.build_from(name), permission, resource) for name in operations]
    with session.admin() as admin:
        report(session, admin.create_acls(new), "created", _text)


@acls.command()
@click.option("--principal", metavar="TYPE:NAME", help="Only those of a principal, such as User:alice.")
@click.option("--operation", type=_OPERATION, help="Only those of an operation.")
@_resource_options
@click.option("--all", "are_all", is_flag=True, help="All ACLs.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
def delete(session: Session, /, are_all: bool, yes: bool, **options: Any) -> None:
    """Delete the ACLs that match, and show them."""
    wanted = _filter(options, is_match=False)
    if are_all == any(options.values()):
        raise click.UsageError("say which ACLs to delete: by --principal, --operation and a resource, or --all")
    with session.admin() as admin:
        if not yes:
            for acl in admin.describe_acls(wanted):
                note(_text(acl))
        confirm(session, "Delete these ACLs?", yes)
        deleted = admin.delete_acls([wanted])[wanted]
    emit(session, map(_row, deleted.succeeded), _COLUMNS)
    if deleted.failed:
        raise CommandError("; ".join(f"{_text(acl)}: {error}" for acl, error in deleted.failed.items()))


def _pattern(options: dict[str, Any], *, is_match: bool) -> ResourcePatternFilter | None:
    """Return the resource that the options name, or None.

    Raises:
        click.UsageError: they name several.
    """
    kinds = ("topic", "group", "transactional_id", "delegation_token", "user", "cluster")
    given = [(kind, options[kind]) for kind in kinds if options[kind]]
    if len(given) > 1:
        raise click.UsageError(
            "choose one resource: " + " or ".join(f"--{kind.replace('_', '-')}" for kind, _ in given)
        )
    if not given:
        if options["prefixed"]:
            raise click.UsageError("--prefixed is about the name of a resource, such as --topic")
        return None
    kind, name = given[0]
    if options["prefixed"]:
        pattern = ACLResourcePatternType.PREFIXED
    else:
        pattern = ACLResourcePatternType.MATCH if is_match else ACLResourcePatternType.LITERAL
    return ResourcePatternFilter(ResourceType.build_from(kind), _CLUSTER if kind == "cluster" else name, pattern)


def _filter(options: dict[str, Any], *, is_match: bool) -> ACLFilter:
    pattern = _pattern(options, is_match=is_match)
    if pattern is None:
        pattern = ResourcePatternFilter(ResourceType.ANY, None, ACLResourcePatternType.ANY)
    operation = ACLOperation.build_from(options["operation"] or "ANY")
    return ACLFilter(options["principal"], None, operation, ACLPermissionType.ANY, pattern)


def _row(acl: ACL) -> dict[str, Any]:
    return {
        "principal": acl.principal,
        "host": acl.host,
        "permission": acl.permission_type.name,
        "operation": acl.operation.name,
        "resource": acl.resource_pattern.resource_type.name,
        "name": acl.resource_pattern.resource_name,
        "pattern": acl.resource_pattern.pattern_type.name,
    }


def _text(acl: ACL) -> str:
    row = _row(acl)
    return "{principal} from {host}: {permission} {operation} on {resource} {name} ({pattern})".format(**row)


_MECHANISM: Final = click.Choice(["SCRAM-SHA-256", "SCRAM-SHA-512"], case_sensitive=False)


@click.group(cls=CommandGroup)
def users() -> None:
    """List, create and delete the SCRAM credentials of users."""


@users.command("list")
@click.argument("names", nargs=-1, metavar="[USER...]")
def list_users(session: Session, /, names: tuple[str, ...]) -> int:
    """List users with SCRAM credentials (default: all). Brokers do not store passwords, so none are shown."""
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


@users.command("set")
@click.argument("name", metavar="USER")
@click.option("--mechanism", type=_MECHANISM, default="SCRAM-SHA-512", help="Default: SCRAM-SHA-512.")
@click.option("--iterations", type=click.IntRange(4096, 131_072), metavar="N", help="Of the hash. Default: 4096.")
def set_user(session: Session, /, name: str, mechanism: str, iterations: int | None) -> None:
    """Create a user's credential, or replace its password.

    The password is asked for, or is the first line of stdin if that is no terminal.
    """
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


@users.command("delete")
@click.argument("name", metavar="USER")
@click.option("--mechanism", type=_MECHANISM, default="SCRAM-SHA-512", help="Default: SCRAM-SHA-512.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
def delete_user(session: Session, /, name: str, mechanism: str, yes: bool) -> None:
    """Delete a user's credential of one mechanism."""
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


#: The options that name an entity.
_entity_options = together(
    click.option("--user", metavar="NAME", help="A user; an empty name ('') is the default of users."),
    click.option("--client-id", metavar="NAME", help="A client id; an empty name is the default."),
    click.option("--ip", metavar="ADDRESS", help="An address; an empty one is the default."),
)


def _entity(names: dict[str, str | None]) -> dict[str, str | None]:
    """Return the entity that options name. In Kafka the name None stands for the default."""
    return {kind.replace("_", "-"): name or None for kind, name in names.items() if name is not None}


@quotas.command("list")
@_entity_options
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


@quotas.command()
@_entity_options
@click.option("-c", "--set", "settings", multiple=True, type=SETTING, metavar="KEY=NUMBER", help="Set a quota.")
@click.option("--unset", multiple=True, metavar="KEY", help="Remove a quota.")
@click.option("--dry-run", is_flag=True, help="Let the brokers check only.")
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
