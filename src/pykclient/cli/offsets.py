"""``pykclient offsets``: move the offsets of a group, after showing the changes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import click

from pykclient.cli.console import confirm, emit, note, report
from pykclient.cli.options import DURATION, TIME, CommandGroup, complete_groups, complete_topics
from pykclient.cli.problems import CommandError
from pykclient.cli.session import Session
from pykclient.cli.topics import offsets_of, partitions_of
from pykclient.clock import SYSTEM_CLOCK
from pykclient.errors import GroupIdNotFoundError, GroupNotEmptyError, UnknownMemberIdError
from pykclient.types import TopicPartition

if TYPE_CHECKING:
    from pykclient.admin.admin import Admin
    from pykclient.admin.descriptions import GroupDescription


@click.group(cls=CommandGroup)
def offsets() -> None:
    """Reset and delete the offsets of groups."""


class _Target(NamedTuple):
    """The place to reset to. ``number`` belongs to some kinds."""

    kind: str
    number: int = 0


@offsets.command()
@click.argument("group", shell_complete=complete_groups)
@click.option(
    "-t",
    "--topic",
    "topics",
    multiple=True,
    metavar="TOPIC[:0,1]",
    shell_complete=complete_topics,
    help="A topic, or some of its partitions. Can be given several times. Default: all that the group has read.",
)
@click.option("--to-earliest", is_flag=True, help="To the first records.")
@click.option("--to-latest", is_flag=True, help="Behind the last records.")
@click.option("--to-current", is_flag=True, help="To the committed offsets, but inside of what the partitions have.")
@click.option("--to-offset", type=click.IntRange(min=0), metavar="N", help="To an offset.")
@click.option("--to-time", type=TIME, metavar="TIME", help="To the first records at or after a time.")
@click.option("--by-duration", type=DURATION, metavar="TIME", help="To the first records of the last hour (1h), say.")
@click.option("--shift-by", type=int, metavar="N", help="Forward, or back if N is negative.")
@click.option("--dry-run", is_flag=True, help="Only show what would change. The default.")
@click.option("--execute", is_flag=True, help="Change it.")
def reset(
    session: Session, /, group: str, topics: tuple[str, ...], dry_run: bool, execute: bool, **targets: Any
) -> None:
    """Reset the committed offsets of a group. It must have no members, even for a dry run.

    Without --execute, the command only shows what would change. Offsets outside of a partition become its first or next
    one.
    """
    if dry_run and execute:
        raise click.UsageError("choose one of --dry-run and --execute")
    target = _target(targets)
    with session.admin() as admin:
        described = _described(admin, group)
        is_share = described is not None and described.type.value == "share"
        _check_is_inactive(group, described)
        current = _current(admin, group, is_share)
        partitions = _partitions(admin, topics, current)
        new = _new_offsets(admin, partitions, current, target)
        if not execute:
            _show(session, current, new)
            note("Nothing was changed; --execute changes it.")
            return
        results = admin.alter_share_group_offsets(group, new) if is_share else admin.alter_group_offsets(group, new)
        if any(isinstance(error, (UnknownMemberIdError, GroupNotEmptyError)) for error in results.failed.values()):
            _check_is_inactive(group, _described(admin, group))
    if results.failed:
        report(session, results, "reset")
    _show(session, current, new)


def _target(targets: dict[str, Any]) -> _Target:
    """Return the only target that was given.

    Raises:
        click.UsageError: there are none or several.
    """
    given = [_Target(kind, int(value)) for kind, value in targets.items() if value is not None and value is not False]
    if len(given) != 1:
        names = ", ".join(f"--{kind.replace('_', '-')}" for kind in targets)
        raise click.UsageError(f"say where to reset to: one of {names}")
    return given[0]


def _described(admin: Admin, group: str) -> GroupDescription | None:
    """Return the description of a group, None if it does not exist: the first offsets make it."""
    try:
        return admin.describe_groups([group])[group]
    except GroupIdNotFoundError:
        return None


def _check_is_inactive(group: str, described: GroupDescription | None) -> None:
    """Check that a group has no members, in the words of Kafka's tool.

    Raises:
        CommandError: it has.
    """
    if described is not None and described.state.value not in ("Empty", "Dead"):
        raise CommandError(
            f"Assignments can only be reset if the group '{group}' is inactive, but the current state is "
            f"{described.state.value}.\nNext step: stop its members; `pykclient groups describe {group} --members` "
            "shows them."
        )


def _current(admin: Admin, group: str, is_share: bool) -> dict[TopicPartition, int | None]:
    if is_share:
        starts = admin.list_share_group_offsets(group)[group]
        return {tp: start.start_offset for tp, start in starts.items()}
    committed = admin.list_group_offsets(group)[group]
    return {tp: None if found is None else found.offset for tp, found in committed.items()}


def _partitions(
    admin: Admin, topics: tuple[str, ...], current: dict[TopicPartition, int | None]
) -> list[TopicPartition]:
    """Return the partitions that are meant.

    Raises:
        click.UsageError: there are none, or a topic is not written as it should be.
        UnknownTopicOrPartitionError: a topic does not exist.
    """
    if not topics:
        if not current:
            raise click.UsageError("the group has no offsets; say with --topic which ones it shall have")
        return sorted(current)
    return partitions_of(admin, topics, "--topic")


def _new_offsets(
    admin: Admin, partitions: list[TopicPartition], current: dict[TopicPartition, int | None], target: _Target
) -> dict[TopicPartition, int]:
    """Return the new offset of each partition, within what the partition has."""
    starts, ends = offsets_of(admin, partitions)
    kind, number = target
    if kind in {"to_time", "by_duration"}:
        time_ms = number if kind == "to_time" else max(0, SYSTEM_CLOCK.wall_ms() - number)
        found = admin.list_offsets(dict.fromkeys(partitions, time_ms)).all()
        return {tp: found[tp].offset if found[tp].offset >= 0 else ends[tp] for tp in partitions}
    new = {}
    for tp in partitions:
        start, end = starts[tp], ends[tp]
        at = current.get(tp)
        place = {
            "to_earliest": start,
            "to_latest": end,
            "to_current": end if at is None else at,
            "to_offset": number,
            "shift_by": (end if at is None else at) + number,
        }[kind]
        new[tp] = min(max(start, place), end)
    return new


def _show(session: Session, current: dict[TopicPartition, int | None], new: dict[TopicPartition, int]) -> None:
    rows = [
        {"topic": tp.topic, "partition": tp.partition, "current": current.get(tp), "new": offset}
        for tp, offset in sorted(new.items())
    ]
    emit(session, rows, ("topic", "partition", "current", "new"))


@offsets.command()
@click.argument("group", shell_complete=complete_groups)
@click.option(
    "-t", "--topic", "topics", multiple=True, required=True, metavar="TOPIC[:0,1]", help="A topic, or some partitions."
)
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
def delete(session: Session, /, group: str, topics: tuple[str, ...], yes: bool) -> None:
    """Delete committed offsets of a group. No member may subscribe to their topics."""
    confirm(session, f"Delete offsets of {group} in {', '.join(topics)}?", yes)
    with session.admin() as admin:
        if (described := _described(admin, group)) is not None and described.type.value == "share":
            report(session, admin.delete_share_group_offsets(group, topics), "deleted")
            return
        partitions = _partitions(admin, topics, {})
        report(session, admin.delete_group_offsets(group, partitions), "deleted")
