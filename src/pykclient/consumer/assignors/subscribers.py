"""The members that may have a partition, if members subscribe to different topics."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from pykclient.consumer.assignors.rack_info import RackInfo
from pykclient.types import TopicPartition


class Subscribers:
    """The members that subscribe to a topic, in ascending order, and those of them that are near a partition.

    ``topics`` are each member's topics. Thread: application.
    """

    __slots__ = ("_by_racks", "_by_topic", "_racks", "_topics")

    def __init__(self, subscribed: Iterable[str], topics: Mapping[str, frozenset[str]], racks: RackInfo) -> None:
        members = sorted(topics)
        self._topics = topics
        self._racks = racks
        self._by_topic = {topic: [each for each in members if topic in topics[each]] for topic in subscribed}
        self._by_racks: dict[tuple[str, frozenset[str]], Sequence[str]] = {}

    def of(self, topic: str) -> Sequence[str]:
        """Return the members that subscribe to the topic."""
        return self._by_topic[topic]

    def near(self, tp: TopicPartition) -> Sequence[str]:
        """Return the subscribers in the rack of a replica, and those to whom racks do not matter."""
        key = tp.topic, self._racks.replica_racks(tp)
        near = self._by_racks.get(key)
        if near is None:
            near = [each for each in self._by_topic[tp.topic] if self._racks.matches(each, tp)]
            self._by_racks[key] = near
        return near

    def may_have(self, member_id: str, tp: TopicPartition) -> bool:
        """Return True if the member subscribes to the partition's topic."""
        return tp.topic in self._topics[member_id]
