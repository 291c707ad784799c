"""``pykclient topics``: list, describe, create, delete, alter; records, leaders and replicas of partitions."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import click

from pykclient.admin.values import ElectionType, NewTopic, OffsetSpec
from pykclient.cli.console import confirm, emit, note_failures, report
from pykclient.cli.options import POSITION, SETTING, TOPIC_OPTION, CommandGroup, complete_topics
from pykclient.cli.session import Session
from pykclient.cli.values import Position, TopicOption
from pykclient.errors import ElectionNotNeededError, TopicExistsError
from pykclient.types import TopicPartition

if TYPE_CHECKING:
    from pykclient.admin.admin import Admin
    from pykclient.admin.descriptions import PartitionDescription, TopicDescription


@click.group(cls=CommandGroup)
def topics() -> None:
    """List, describe, create, delete and alter topics."""


@topics.command("list")
@click.argument("pattern", required=False, metavar="[PATTERN]")
@click.option("--internal", is_flag=True, help="Also topics of Kafka itself.")
def list_topics(session: Session, /, pattern: str | None, internal: bool) -> None:
    """List topics, or those whose names match a PATTERN such as 'orders*'."""
    with session.admin() as admin:
        names = [topic.name for topic in admin.list_topics(list_internal=internal)]
        if pattern is not None:
            names = fnmatch.filter(names, pattern)
        described = admin.describe_topics(names) if names else None
    rows = [_summary(topic) for topic in sorted(described.all().values())] if described is not None else []
    emit(session, rows, ("topic", "partitions", "replicas", "under_replicated", "leaderless"))


def _summary(topic: TopicDescription) -> dict[str, Any]:
    parts = topic.partitions
    return {
        "topic": topic.name,
        "partitions": len(parts),
        "replicas": max((len(part.replicas) for part in parts), default=0),
        "under_replicated": sum(len(part.in_sync_replicas) < len(part.replicas) for part in parts),
        "leaderless": sum(part.leader is None for part in parts),
        "internal": topic.is_internal,
        "id": None if topic.topic_id is None else str(topic.topic_id),
    }


@topics.command()
@click.argument("names", nargs=-1, required=True, metavar="TOPIC...", shell_complete=complete_topics)
def describe(session: Session, /, names: tuple[str, ...]) -> int:
    """Show the partitions of topics: leaders, replicas, in-sync replicas, and the first and next offsets."""
    with session.admin() as admin:
        described = admin.describe_topics(names)
        partitions = [
            TopicPartition(topic.name, part.partition)
            for topic in described.succeeded.values()
            for part in topic.partitions
            if part.leader is not None
        ]
        starts, ends = offsets_of(admin, partitions)
    rows = []
    for topic in described.succeeded.values():
        for part in sorted(topic.partitions, key=lambda part: part.partition):
            tp = TopicPartition(topic.name, part.partition)
            rows.append(_partition(topic, part, starts.get(tp), ends.get(tp)))
    if rows:
        emit(session, rows, ("topic", "partition", "leader", "replicas", "in_sync", "offline", "start", "end"))
    return note_failures(described)


def offsets_of(
    admin: Admin, partitions: Iterable[TopicPartition]
) -> tuple[Mapping[TopicPartition, int], Mapping[TopicPartition, int]]:
    """Return the first and the next offset of each partition that has both."""
    wanted = list(partitions)
    if not wanted:
        return {}, {}
    starts, ends = (
        admin.list_offsets(dict.fromkeys(wanted, spec)).map(lambda found: found.offset).succeeded
        for spec in (OffsetSpec.EARLIEST, OffsetSpec.LATEST)
    )
    return starts, ends


def _partition(
    topic: TopicDescription, part: PartitionDescription, start: int | None, end: int | None
) -> dict[str, Any]:
    return {
        "topic": topic.name,
        "partition": part.partition,
        "leader": None if part.leader is None else part.leader.id,
        "leader_epoch": part.leader_epoch,
        "replicas": [node.id for node in part.replicas],
        "in_sync": [node.id for node in part.in_sync_replicas],
        "offline": [node.id for node in part.offline_replicas],
        "start": start,
        "end": end,
    }


@topics.command()
@click.argument("wanted", nargs=-1, required=True, type=TOPIC_OPTION, metavar="NAME[:PARTITIONS[:REPLICATION]]...")
@click.option("-p", "--partitions", type=click.IntRange(min=1), metavar="N", help="Default: the brokers'.")
@click.option("-r", "--replication-factor", type=click.IntRange(min=1), metavar="N", help="Default: the brokers'.")
@click.option(
    "-c",
    "--set",
    "settings",
    multiple=True,
    type=SETTING,
    metavar="KEY=VALUE",
    help="A setting, such as retention.ms=1000.",
)
@click.option("--if-not-exists", is_flag=True, help="A topic that exists is a success.")
@click.option("--dry-run", is_flag=True, help="Let the brokers check only.")
def create(
    session: Session,
    /,
    wanted: tuple[TopicOption, ...],
    partitions: int | None,
    replication_factor: int | None,
    settings: tuple[tuple[str, str], ...],
    if_not_exists: bool,
    dry_run: bool,
) -> None:
    """Create topics."""
    new = [
        NewTopic(
            topic.name,
            topic.partitions or partitions or -1,
            topic.replication_factor or replication_factor or -1,
            topic_configs=dict(settings),
        )
        for topic in wanted
    ]
    with session.admin() as admin:
        results = admin.create_topics(new, validate_only=dry_run).map(lambda _: None)
    if if_not_exists:
        for name in [name for name, error in results.failed.items() if isinstance(error, TopicExistsError)]:
            del results.failed[name]
            results.succeeded[name] = None
    report(session, results, "would be created" if dry_run else "created")


@topics.command()
@click.argument("names", nargs=-1, required=True, metavar="TOPIC...", shell_complete=complete_topics)
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
def delete(session: Session, /, names: tuple[str, ...], yes: bool) -> None:
    """Delete topics with all their records."""
    confirm(session, f"Delete {', '.join(names)} with all records?", yes)
    with session.admin() as admin:
        report(session, admin.delete_topics(names), "deleted")


@topics.command()
@click.argument("name", metavar="TOPIC", shell_complete=complete_topics)
@click.option("-p", "--partitions", type=click.IntRange(min=1), metavar="N", help="The new number, which is higher.")
@click.option("-c", "--set", "settings", multiple=True, type=SETTING, metavar="KEY=VALUE", help="Set a key.")
@click.option("--unset", multiple=True, metavar="KEY", help="Set a key back to the brokers' default.")
@click.option("--dry-run", is_flag=True, help="Let the brokers check only.")
def alter(
    session: Session,
    /,
    name: str,
    partitions: int | None,
    settings: tuple[tuple[str, str], ...],
    unset: tuple[str, ...],
    dry_run: bool,
) -> None:
    """Add partitions to a topic, and change its settings.

    More partitions send keys to other partitions than before.
    """
    from pykclient.cli.configs import change

    if partitions is None and not settings and not unset:
        raise click.UsageError("say what to change: --partitions, --set or --unset")
    with session.admin() as admin:
        if partitions is not None:
            report(session, admin.create_partitions({name: partitions}, validate_only=dry_run), "partitions added")
        if settings or unset:
            change(session, admin, "topic", name, settings, unset, dry_run)


# --- records, leaders and replicas of partitions ---------------------------------------------------------------------

_PARTITIONS = re.compile(r"(?P<topic>[^:]+)(?::(?P<partitions>\d+(?:,\d+)*))?")
_MOVE = re.compile(r"(?P<topic>[^:=]+):(?P<partition>\d+)(?:=(?P<brokers>\d+(?:,\d+)*))?")


def partitions_of(admin: Admin, texts: Iterable[str], option: str) -> list[TopicPartition]:
    """Return the partitions of texts such as ``orders`` or ``orders:0,1``. ``option`` names the option, for messages.

    Raises:
        click.UsageError: a topic does not have a partition, or a text is malformed.
        UnknownTopicOrPartitionError: a topic does not exist.
    """
    found: list[TopicPartition] = []
    for text in texts:
        parts = _PARTITIONS.fullmatch(text)
        if parts is None:
            raise click.UsageError(f"{option}: {text!r} is not TOPIC or TOPIC:0,1")
        name = parts["topic"]
        numbers = [part.partition for part in admin.describe_topics([name])[name].partitions]
        wanted = [int(number) for number in parts["partitions"].split(",")] if parts["partitions"] else sorted(numbers)
        if missing := set(wanted) - set(numbers):
            raise click.UsageError(f"topic {name!r} has no partition {min(missing)}; it has 0 to {max(numbers)}")
        found += [TopicPartition(name, number) for number in wanted]
    return found


@topics.command("delete-records")
@click.argument("wanted", nargs=-1, required=True, metavar="TOPIC[:0,1]...", shell_complete=complete_topics)
@click.option(
    "--before",
    required=True,
    type=POSITION,
    metavar="POSITION",
    help="Delete what is before: end, an offset, -N (keep the last N), or @TIME such as @-7d.",
)
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
def delete_records(session: Session, /, wanted: tuple[str, ...], before: Position, yes: bool) -> None:
    """Delete the first records of partitions, and show the new first offset of each."""
    confirm(session, f"Delete the first records of {', '.join(wanted)}?", yes)
    with session.admin() as admin:
        partitions = partitions_of(admin, wanted, "TOPIC")
        starts, ends = offsets_of(admin, partitions)
        at = dict(ends)
        if before.kind == "time":
            found = admin.list_offsets(dict.fromkeys(partitions, before.number)).all()
            at = {tp: found[tp].offset if found[tp].offset >= 0 else ends[tp] for tp in partitions}
        elif before.kind in {"offset", "last"}:
            is_last = before.kind == "last"
            at = {tp: ends[tp] - before.number if is_last else min(before.number, ends[tp]) for tp in partitions}
        elif before.kind == "beginning":
            at = dict(starts)
        results = admin.delete_records({tp: max(starts[tp], at[tp]) for tp in partitions})
    rows = [
        {"topic": tp.topic, "partition": tp.partition, "start": start, "end": ends[tp]}
        for tp, start in sorted(results.succeeded.items())
    ]
    if rows:
        emit(session, rows, ("topic", "partition", "start", "end"))
    if results.failed:
        for tp in list(results.succeeded):  # which have been shown
            del results.succeeded[tp]
        report(session, results, "deleted")


@topics.command("elect-leaders")
@click.argument("wanted", nargs=-1, metavar="[TOPIC[:0,1]...]", shell_complete=complete_topics)
@click.option(
    "--unclean", is_flag=True, help="Elect any replica, also one that is not in sync, which loses records. Asks first."
)
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
def elect_leaders(session: Session, /, wanted: tuple[str, ...], unclean: bool, yes: bool) -> None:
    """Elect the preferred leaders of partitions (default: all). Succeeds if it already leads."""
    if unclean:
        confirm(session, f"Elect replicas that may lack records, in {', '.join(wanted) or 'all topics'}?", yes)
    kind = ElectionType.UNCLEAN if unclean else ElectionType.PREFERRED
    with session.admin() as admin:
        results = admin.elect_leaders(kind, partitions_of(admin, wanted, "TOPIC") if wanted else None)
    for tp in [tp for tp, error in results.failed.items() if isinstance(error, ElectionNotNeededError)]:
        del results.failed[tp]
        results.succeeded[tp] = None
    report(session, results, "leader elected")


@topics.command()
@click.argument("moves", nargs=-1, metavar="[TOPIC:PARTITION=1,2,3...]")
@click.option("--cancel", is_flag=True, help="Cancel the moves of these partitions, which are TOPIC:PARTITION.")
def reassign(session: Session, /, moves: tuple[str, ...], cancel: bool) -> None:
    """Move partitions to other brokers, preferred leader first. Without arguments, list moves in progress.

    The move continues after the command has ended.
    """
    wanted: dict[TopicPartition, list[int] | None] = {}
    for text in moves:
        parts = _MOVE.fullmatch(text)
        if parts is None or (parts["brokers"] is None) != cancel:
            raise click.UsageError(f"{text!r} is not TOPIC:PARTITION" + ("" if cancel else "=BROKER,BROKER"))
        brokers = None if parts["brokers"] is None else [int(id) for id in parts["brokers"].split(",")]
        wanted[TopicPartition(parts["topic"], int(parts["partition"]))] = brokers
    if cancel and not wanted:
        raise click.UsageError("--cancel needs partitions, such as orders:0")
    with session.admin() as admin:
        if wanted:
            report(session, admin.alter_partition_reassignments(wanted), "cancelled" if cancel else "moving")
            return
        found = admin.list_partition_reassignments()
    rows = [
        {
            "topic": tp.topic,
            "partition": tp.partition,
            "replicas": list(move.replicas),
            "adding": list(move.adding_replicas),
            "removing": list(move.removing_replicas),
        }
        for tp, move in sorted(found.items())
    ]
    emit(session, rows, ("topic", "partition", "replicas", "adding", "removing"))
