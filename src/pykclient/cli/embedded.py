"""``pykclient embedded``: brokers for development, until Ctrl-C."""

from __future__ import annotations

import datetime
import errno
import signal
from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import TYPE_CHECKING, Any

import click

from pykclient.cli.options import PORT, SETTING, SIZE, TOPIC_OPTION
from pykclient.cli.problems import CommandError
from pykclient.cli.values import TopicOption
from pykclient.clock import SYSTEM_CLOCK, Signal
from pykclient.testing.cluster import ClusterState, PartitionState, request_line
from pykclient.types import TopicPartition

if TYPE_CHECKING:
    from pykclient.testing.embedded_cluster import EmbeddedCluster


def changes(before: ClusterState, after: ClusterState) -> Iterator[str]:
    """Yield one line per change."""
    for broker, state in after.brokers.items():
        if before.brokers.get(broker) != state:
            yield f"broker {broker} is {state}"
    if before.controller != after.controller:
        yield "no controller" if after.controller is None else f"broker {after.controller} is the controller"
    yield from _topics(before, after)
    for group, now in after.groups.items():
        if (was := before.groups.get(group)) != now:
            members = "no members" if not now.members else f"{now.members} member{'s' * (now.members > 1)}"
            if was is None or (was.state, was.members) != (now.state, now.members):
                yield f"group {group}: {now.state}, {members}, generation {now.generation}"
    for group in before.groups.keys() - after.groups.keys():
        yield f"group {group} is gone"


def _topics(before: ClusterState, after: ClusterState) -> Iterator[str]:
    had, has = _by_topic(before), _by_topic(after)
    for topic in had.keys() - has.keys():
        yield f"topic {topic} was deleted"
    for topic, partitions in has.items():
        if topic not in had:
            copies = len(next(iter(partitions.values())).replicas)
            yield f"topic {topic}: {_counted(len(partitions), 'partition')}, {_counted(copies, 'replica')} each"
        elif len(partitions) > len(had[topic]):
            yield f"topic {topic} has {len(partitions)} partitions now, {len(had[topic])} before"
        for partition, now in partitions.items():
            was = had.get(topic, {}).get(partition)
            if was is not None and (was.leader, was.isr) != (now.leader, now.isr):
                yield f"{topic}-{partition}: {_leadership(was, now)}"


def _leadership(was: PartitionState, now: PartitionState) -> str:
    isr = f"in sync: {', '.join(map(str, now.isr)) or 'none'}"
    if now.leader is None:
        return f"no leader, {isr}"
    if was.leader == now.leader:
        return f"led by {now.leader}, {isr}"
    return f"leader {was.leader or 'none'} -> {now.leader}, {isr}"


def _by_topic(state: ClusterState) -> dict[str, dict[int, PartitionState]]:
    def topic(entry: tuple[TopicPartition, PartitionState]) -> str:
        return entry[0].topic

    entries: Iterable[tuple[TopicPartition, PartitionState]] = sorted(state.partitions.items())
    return {name: {tp.partition: partition for tp, partition in rows} for name, rows in groupby(entries, topic)}


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}{'s' if number != 1 else ''}"


class Watch:
    """Checks a cluster at intervals and reports changes; with ``verbose`` also clients' requests.

    Thread: owner.
    """

    def __init__(self, cluster: EmbeddedCluster, *, verbose: bool) -> None:
        self._cluster = cluster
        self._verbose = verbose
        self._state = cluster.state()
        self._last_request = 0

    def look(self) -> Iterator[str]:
        """Yield lines about the changes since the last call."""
        if self._verbose:
            for record in self._cluster.requests_of(after=self._last_request):
                self._last_request = record.number
                yield f"{_time_of_day(record.wall_ms)} {request_line(record)}"
        before, self._state = self._state, self._cluster.state()
        now = _time_of_day(SYSTEM_CLOCK.wall_ms())
        for change in changes(before, self._state):
            yield f"{now} {change}"


def _time_of_day(wall_ms: int) -> str:
    moment = datetime.datetime.fromtimestamp(wall_ms / 1000).astimezone()
    return f"{moment:%H:%M:%S}.{wall_ms % 1000:03}"


#: The interval of checks for changes.
_LOOK_INTERVAL_MS = 200


@click.command()
@click.option("--brokers", type=int, default=1, metavar="N", help="Number of brokers. Default: 1.")
@click.option("--host", default="127.0.0.1", metavar="HOST", help="Address to listen on. Default: 127.0.0.1.")
@click.option(
    "--advertised-host", metavar="HOST", help="Address for clients to connect to, such as this machine's name."
)
@click.option(
    "--port",
    type=PORT,
    default=9092,
    metavar="PORT",
    help="Port of the first broker; the others use the next ports; 0: any free ports. Default: 9092.",
)
@click.option("--release", metavar="VERSION", help="Pose as this release of Kafka, such as 2.8.")
@click.option(
    "--topic",
    "topics",
    multiple=True,
    type=TOPIC_OPTION,
    metavar="NAME[:PARTITIONS[:REPLICATION]]",
    help="A topic to create. Can be given several times.",
)
@click.option(
    "--config",
    "settings",
    multiple=True,
    type=SETTING,
    metavar="KEY=VALUE",
    help="A broker setting, such as num.partitions=6. Can be given several times.",
)
@click.option(
    "--memory-limit",
    type=SIZE,
    default="512MB",
    metavar="SIZE",
    help="What all logs may hold together. Default: 512MB.",
)
@click.option("--verbose", is_flag=True, help="Print each request of a client.")
def embedded(**options: Any) -> None:
    """Run Kafka brokers in this process, for development and tests.

    Any client can use them. Nothing is written to disk: all data is lost when the command ends, at Ctrl-C or SIGTERM.
    """
    stopping = SYSTEM_CLOCK.new_signal()  # an Event may wait for ever in a signal handler
    before = {number: signal.signal(number, lambda *_: stopping.set()) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        _run(stopping, **options)
    except OSError as error:
        if error.errno == errno.EPIPE:
            raise
        hint = "; --port names another one" if error.errno == errno.EADDRINUSE else ""
        raise CommandError(f"{error}{hint}") from error
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _run(
    stopping: Signal,
    *,
    brokers: int,
    topics: tuple[TopicOption, ...],
    settings: tuple[tuple[str, str], ...],
    memory_limit: int,
    verbose: bool,
    release: str | None,
    **where: Any,
) -> None:
    from pykclient.testing.embedded_cluster import EmbeddedCluster

    config = dict(settings)
    with EmbeddedCluster(brokers, release=release, memory_limit_bytes=memory_limit, config=config, **where) as cluster:
        watch = Watch(cluster, verbose=verbose)
        for topic in topics:
            cluster.create_topic(topic.name, topic.partitions or -1, topic.replication_factor)
        click.echo(f"bootstrap servers: {cluster.bootstrap_servers}")
        posing = f" as Kafka {release}" if release else ""
        click.echo(f"{brokers} broker{'s' * (brokers > 1)}{posing}, Ctrl-C ends")
        while not stopping.wait(_LOOK_INTERVAL_MS):
            for line in watch.look():
                click.echo(line)
