"""Descriptions of the changes between two states of a cluster."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby

from pykclient.testing.history import ClusterState, PartitionState
from pykclient.types import TopicPartition


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
