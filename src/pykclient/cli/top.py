"""``pykclient top``: a live view of write rates, lag and rebalances."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

import click

from pykclient.admin.values import OffsetSpec
from pykclient.cli.console import emit, rich_table, shown
from pykclient.cli.options import DURATION, Command, pass_session
from pykclient.cli.session import Session
from pykclient.clock import SYSTEM_CLOCK
from pykclient.types import TopicPartition

if TYPE_CHECKING:
    from pykclient.admin.admin import Admin
    from pykclient.admin.descriptions import GroupDescription

_TOPIC_COLUMNS: Final = ("topic", "partitions", "records_per_s", "end")
_GROUP_COLUMNS: Final = ("group", "state", "members", "lag", "records_per_s", "changes")
#: The rows of each table on a terminal.
_MOST_ROWS: Final = 20
#: Topics and groups are listed again after this many rounds. Each round asks for offsets.
_TURNS_PER_LISTING: Final = 10


class Sample:
    """The offsets seen in one round, and its time ``at_ms``. Thread: owner."""

    def __init__(self, at_ms: int, ends: Mapping[TopicPartition, int]) -> None:
        self.at_ms = at_ms
        self.ends = ends
        self.committed: dict[str, dict[TopicPartition, int]] = {}


class Monitor:
    """Asks the cluster for offsets and groups, and compares each round with the one before. Thread: owner.

    A round asks each broker once for the offsets of all its partitions, and each coordinator once for those of all its
    groups.
    """

    def __init__(self, admin: Admin, pattern: str | None) -> None:
        self._admin = admin
        self._pattern = pattern
        self._partitions: list[TopicPartition] = []
        self._groups: list[str] = []
        self._members: dict[str, tuple[str, frozenset[str]]] = {}
        self._changes: dict[str, int] = {}
        self._before: Sample | None = None
        self._turn = 0

    def turn(self) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
        """Return the rows of topics and of groups; the busiest topics and the largest lags come first."""
        admin = self._admin
        if self._turn % _TURNS_PER_LISTING == 0:
            self._list()
        self._turn += 1
        specs = dict.fromkeys(self._partitions, OffsetSpec.LATEST)
        found = admin.list_offsets(specs).succeeded if specs else {}
        sample = Sample(SYSTEM_CLOCK.now_ms(), {tp: listed.offset for tp, listed in found.items()})
        described = admin.describe_groups(self._groups).succeeded if self._groups else {}
        committed = admin.list_group_offsets(self._groups).succeeded if self._groups else {}
        for group, offsets in committed.items():
            sample.committed[group] = {
                tp: offset.offset for tp, offset in offsets.items() if offset is not None and tp in sample.ends
            }
        before, self._before = self._before, sample
        topics = sorted(self._topic_rows(sample, before), key=lambda row: (-(row["records_per_s"] or 0), row["topic"]))
        groups = sorted(self._group_rows(described, sample, before), key=lambda row: (-row["lag"], row["group"]))
        return topics, groups

    def _list(self) -> None:
        import fnmatch

        names = [topic.name for topic in self._admin.list_topics()]
        if self._pattern is not None:
            names = fnmatch.filter(names, self._pattern)
        described = self._admin.describe_topics(names).succeeded if names else {}
        self._partitions = [
            TopicPartition(topic.name, part.partition)
            for topic in described.values()
            for part in topic.partitions
            if part.leader is not None
        ]
        self._groups = [group.group_id for group in self._admin.list_groups(types=["classic", "consumer"])]

    def _topic_rows(self, sample: Sample, before: Sample | None) -> Iterator[dict[str, Any]]:
        counts: dict[str, int] = {}
        ends: dict[str, int] = {}
        written: dict[str, int] = {}
        for tp, end in sample.ends.items():
            topic = tp.topic
            counts[topic] = counts.get(topic, 0) + 1
            ends[topic] = ends.get(topic, 0) + end
            if before is not None and tp in before.ends:
                written[topic] = written.get(topic, 0) + end - before.ends[tp]
        for topic, count in counts.items():
            rate = _rate(written.get(topic), sample, before)
            yield {"topic": topic, "partitions": count, "records_per_s": rate, "end": ends[topic]}

    def _group_rows(
        self, described: Mapping[str, GroupDescription], sample: Sample, before: Sample | None
    ) -> Iterator[dict[str, Any]]:
        for name, group in described.items():
            offsets = sample.committed.get(name, {})
            if self._pattern is not None and not offsets:
                continue
            old = {} if before is None else before.committed.get(name, {})
            read = sum(offset - old[tp] for tp, offset in offsets.items() if tp in old) if before is not None else None
            yield {
                "group": name,
                "state": group.state.value,
                "members": len(group.members),
                "lag": sum(max(0, sample.ends[tp] - offset) for tp, offset in offsets.items()),
                "records_per_s": _rate(read, sample, before),
                "changes": self._count_changes(name, group),
            }

    def _count_changes(self, name: str, group: GroupDescription) -> int:
        """Return how many rounds have seen another state or other members than the round before: rebalances, mostly."""
        now = group.state.value, frozenset(member.member_id for member in group.members)
        if self._members.get(name, now) != now:
            self._changes[name] = self._changes.get(name, 0) + 1
        self._members[name] = now
        return self._changes.get(name, 0)


def _rate(records: int | None, sample: Sample, before: Sample | None) -> int | None:
    if records is None or before is None or sample.at_ms <= before.at_ms:
        return None
    return round(1000 * records / (sample.at_ms - before.at_ms))


@click.command(cls=Command)
@click.argument("pattern", required=False, metavar="[PATTERN]")
@click.option("--interval", type=DURATION, default="2s", metavar="TIME", help="Default: 2s.")
@click.option("-n", "--turns", type=click.IntRange(min=1), metavar="N", help="Stop after N turns. Default: never.")
@pass_session
def top(session: Session, /, pattern: str | None, interval: int, turns: int | None) -> None:
    """Watch write rates of topics, and the lag, rates and rebalances of groups, until Ctrl-C.

    PATTERN chooses topics, such as 'orders*'. In a pipe, each round prints both tables; with --json, a line with both.
    """
    with session.admin() as admin:
        monitor = Monitor(admin, pattern)
        views = _live(monitor) if sys.stdout.isatty() and not session.is_json else _plain(session, monitor)
        try:
            for number, _ in enumerate(views, 1):
                if number == turns:
                    return
                SYSTEM_CLOCK.sleep_ms(interval)  # an Event may raise another error if Ctrl-C comes
        finally:
            views.close()


def _plain(session: Session, monitor: Monitor) -> Any:
    import json

    while True:
        topics, groups = monitor.turn()
        if session.is_json:
            click.echo(json.dumps({"topics": topics, "groups": groups}, ensure_ascii=False))
        else:
            emit(session, topics, _TOPIC_COLUMNS)
            click.echo()
            emit(session, groups, _GROUP_COLUMNS)
            click.echo()
        yield


def _live(monitor: Monitor) -> Any:
    from rich.console import Group
    from rich.live import Live

    with Live(auto_refresh=False, screen=True) as live:
        while True:
            topics, groups = monitor.turn()
            live.update(Group(_table(topics, _TOPIC_COLUMNS), _table(groups, _GROUP_COLUMNS)), refresh=True)
            yield


def _table(rows: list[dict[str, Any]], columns: tuple[str, ...]) -> Any:
    first = rows[:_MOST_ROWS]
    titles = [name.replace("_", " ").upper() for name in columns]
    numeric = [name not in {"topic", "group", "state"} for name in columns]
    table = rich_table(titles, [[shown(row[name]) for name in columns] for row in first], numeric)
    if len(rows) > len(first):
        table.caption = f"and {len(rows) - len(first)} more"
    return table
