"""``pykclient groups``: list, describe with lag, delete."""

from __future__ import annotations

import fnmatch
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

import click

from pykclient.admin.values import GroupType, OffsetSpec
from pykclient.cli.console import confirm, emit, note_failures, report
from pykclient.cli.options import DURATION, CommandGroup, complete_groups
from pykclient.cli.session import Session
from pykclient.types import TopicPartition

if TYPE_CHECKING:
    from pykclient.admin.admin import Admin
    from pykclient.admin.descriptions import GroupDescription

_GROUP_TYPES = click.Choice(["classic", "consumer", "share", "streams"])


@click.group(cls=CommandGroup)
def groups() -> None:
    """List and describe groups of every type, with their lag, and delete them."""


@groups.command("list")
@click.argument("pattern", required=False, metavar="[PATTERN]")
@click.option("--state", "states", multiple=True, metavar="STATE", help="Only groups in this state, such as Stable.")
@click.option("--type", "types", multiple=True, type=_GROUP_TYPES, help="Only groups of this type.")
def list_groups(session: Session, /, pattern: str | None, states: tuple[str, ...], types: tuple[str, ...]) -> None:
    """List groups, or those whose names match a PATTERN such as 'tower*'."""
    with session.admin() as admin:
        found = admin.list_groups(states=states, types=types)
    if pattern is not None:
        found = [group for group in found if fnmatch.fnmatchcase(group.group_id, pattern)]
    rows = [
        {"group": group.group_id, "type": group.type.value, "state": group.state.value, "protocol": group.protocol_type}
        for group in sorted(found)
    ]
    emit(session, rows, ("group", "type", "state", "protocol"))


@groups.command()
@click.argument("names", nargs=-1, required=True, metavar="GROUP...", shell_complete=complete_groups)
@click.option("--members", is_flag=True, help="Show the members in place of the partitions.")
@click.option("-w", "--watch", is_flag=True, help="Show it again and again, until Ctrl-C.")
@click.option("--interval", type=DURATION, default="2s", metavar="TIME", help="The interval of --watch. Default: 2s.")
def describe(session: Session, /, names: tuple[str, ...], members: bool, watch: bool, interval: int) -> int:
    """Show the state of groups, and the offset and lag of each partition."""

    def show(admin: Admin) -> int:
        results = admin.describe_groups(names)
        if results.succeeded:
            show_these(admin, results.succeeded)
        return note_failures(results)

    def show_these(admin: Admin, described: Mapping[str, GroupDescription]) -> None:
        if members:
            rows = [row for group in described.values() for row in _members(group)]
            emit(session, rows, ("group", "member", "client", "host", "partitions"))
            return
        rows = [row for group in described.values() for row in lag_rows(admin, group)]
        summaries = [summary(group, rows) for group in described.values()]
        if session.is_json:
            of_groups = [[row for row in rows if row["group"] == found["group"]] for found in summaries]
            pairs = zip(summaries, of_groups, strict=True)
            emit(session, [{**found, "partitions": partitions} for found, partitions in pairs], ())
            return
        emit(session, summaries, _SUMMARY)
        click.echo()
        emit(session, rows, ("group", "topic", "partition", "offset", "end", "lag", "client", "host"))

    with session.admin() as admin:
        if watch:
            repeat(lambda: show(admin), interval)
        return show(admin)


_SUMMARY = ("group", "type", "state", "members", "assignor", "lag")


def repeat(show: Callable[[], object], interval_ms: int) -> NoReturn:
    """Show a view at intervals until Ctrl-C, clearing the screen of a terminal."""
    pause = threading.Event()
    while True:
        click.clear()  # does nothing in a pipe
        show()
        pause.wait(interval_ms / 1000)


def summary(group: GroupDescription, rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return a group's row: its state and its total lag."""
    return {
        "group": group.group_id,
        "type": group.type.value,
        "state": group.state.value,
        "members": len(group.members),
        "assignor": group.assignor,
        "lag": sum(row["lag"] or 0 for row in rows if row["group"] == group.group_id),
    }


def lag_rows(admin: Admin, group: GroupDescription) -> list[dict[str, Any]]:
    """Return a row for each partition that the group has read or owns."""
    owners = {tp: member for member in group.members for tp in member.assignment}
    committed: dict[TopicPartition, int | None] = dict.fromkeys(owners)
    known_lag: dict[TopicPartition, int | None] = {}
    if group.type is GroupType.SHARE:
        for tp, start in admin.list_share_group_offsets(group.group_id)[group.group_id].items():
            committed[tp], known_lag[tp] = start.start_offset, start.lag
    else:
        for tp, found in admin.list_group_offsets(group.group_id)[group.group_id].items():
            committed[tp] = None if found is None else found.offset
    specs = dict.fromkeys(committed, OffsetSpec.LATEST)
    ends = admin.list_offsets(specs).succeeded if specs else {}
    rows = []
    for tp in sorted(committed):
        owner, offset = owners.get(tp), committed[tp]
        end = ends[tp].offset if tp in ends else None
        lag = known_lag.get(tp)
        if lag is None and offset is not None and end is not None:
            lag = max(0, end - offset)
        rows.append(
            {
                "group": group.group_id,
                "topic": tp.topic,
                "partition": tp.partition,
                "offset": offset,
                "end": end,
                "lag": lag,
                "client": None if owner is None else owner.client_id,
                "host": None if owner is None else owner.host,
                "member": None if owner is None else owner.member_id,
            }
        )
    return rows


def _members(group: GroupDescription) -> list[dict[str, Any]]:
    return [
        {
            "group": group.group_id,
            "member": member.member_id,
            "instance": member.group_instance_id,
            "client": member.client_id,
            "host": member.host,
            "partitions": [str(tp) for tp in sorted(member.assignment)],
        }
        for member in group.members
    ]


@groups.command()
@click.argument("names", nargs=-1, required=True, metavar="GROUP...", shell_complete=complete_groups)
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
def delete(session: Session, /, names: tuple[str, ...], yes: bool) -> None:
    """Delete groups without members, with their offsets."""
    confirm(session, f"Delete {', '.join(names)} with all offsets?", yes)
    with session.admin() as admin:
        report(session, admin.delete_groups(names), "deleted")
