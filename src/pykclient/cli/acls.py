"""``pykclient acls``: list, create and delete access control lists."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from pykclient.cli import completion
from pykclient.cli.console import emit, note
from pykclient.cli.options import Command, CommandGroup, pass_session
from pykclient.cli.outcomes import confirm, report
from pykclient.cli.problems import CommandError
from pykclient.cli.session import Session

if TYPE_CHECKING:
    from pykclient.admin.values import ACL, ACLFilter, ResourcePatternFilter

F = TypeVar("F", bound=Callable[..., Any])

_OPERATIONS: Final = (
    "ALL",
    "READ",
    "WRITE",
    "CREATE",
    "DELETE",
    "ALTER",
    "DESCRIBE",
    "CLUSTER_ACTION",
    "DESCRIBE_CONFIGS",
    "ALTER_CONFIGS",
    "IDEMPOTENT_WRITE",
    "CREATE_TOKENS",
    "DESCRIBE_TOKENS",
)
_OPERATION = click.Choice(_OPERATIONS, case_sensitive=False)
#: The name of the only cluster, as Kafka has it.
_CLUSTER: Final = "kafka-cluster"
_COLUMNS: Final = ("principal", "host", "permission", "operation", "resource", "name", "pattern")


def _resource_options(function: F) -> F:
    """Add the options that name a resource."""
    for option in reversed(
        (
            click.option("--topic", metavar="NAME", shell_complete=completion.topics, help="A topic."),
            click.option("--group", metavar="NAME", shell_complete=completion.groups, help="A group."),
            click.option("--transactional-id", metavar="NAME", help="A transactional id."),
            click.option("--delegation-token", metavar="NAME", help="A delegation token."),
            click.option("--user", metavar="NAME", help="A user, for tokens."),
            click.option("--cluster", is_flag=True, help="The cluster."),
            click.option("--prefixed", is_flag=True, help="All resources whose name begins with the given one."),
        )
    ):
        function = option(function)
    return function


@click.group(cls=CommandGroup)
def acls() -> None:
    """List, create and delete access control lists."""


@acls.command("list", cls=Command)
@click.option("--principal", metavar="TYPE:NAME", help="Only those of a principal, such as User:alice.")
@click.option("--operation", type=_OPERATION, help="Only those of an operation.")
@_resource_options
@pass_session
def list_acls(session: Session, /, **options: Any) -> None:
    """List ACLs, by default all. With a resource, those that apply to it, also by a prefix or wildcard."""
    wanted = _filter(options, is_match=True)
    with session.admin() as admin:
        found = admin.describe_acls(wanted)
    emit(session, sorted(map(_row, found), key=lambda row: [str(row[name]) for name in _COLUMNS]), _COLUMNS)


@acls.command(cls=Command)
@click.option("--principal", required=True, metavar="TYPE:NAME", help="Whom it is about, such as User:alice or User:*.")
@click.option(
    "--operation", "operations", required=True, multiple=True, type=_OPERATION, help="Can be given several times."
)
@click.option("--deny", is_flag=True, help="Deny it, in place of allowing it.")
@click.option("--host", default="*", metavar="ADDRESS", help="Only from this address. Default: any.")
@_resource_options
@pass_session
def create(
    session: Session, /, principal: str, operations: tuple[str, ...], deny: bool, host: str, **options: Any
) -> None:
    """Create ACLs. One that exists already is a success."""
    from pykclient.admin.values import ACL, ACLOperation, ACLPermissionType, ResourcePattern

    pattern = _pattern(options, is_match=False)
    if pattern is None or pattern.resource_name is None:
        raise click.UsageError("name a resource: --topic, --group, --cluster or another one")
    resource = ResourcePattern(pattern.resource_type, pattern.resource_name, pattern.pattern_type)
    permission = ACLPermissionType.DENY if deny else ACLPermissionType.ALLOW
    new = [ACL(principal, host, ACLOperation.build_from(name), permission, resource) for name in operations]
    with session.admin() as admin:
        report(session, admin.create_acls(new), "created", _text)


@acls.command(cls=Command)
@click.option("--principal", metavar="TYPE:NAME", help="Only those of a principal, such as User:alice.")
@click.option("--operation", type=_OPERATION, help="Only those of an operation.")
@_resource_options
@click.option("--all", "are_all", is_flag=True, help="All ACLs.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@pass_session
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
    from pykclient.admin.values import ACLResourcePatternType, ResourcePatternFilter, ResourceType

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
    from pykclient.admin.values import (
        ACLFilter,
        ACLOperation,
        ACLPermissionType,
        ACLResourcePatternType,
        ResourcePatternFilter,
        ResourceType,
    )

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
