"""The coordinator's assignments to the members of a group, to check their revocations against."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from itertools import pairwise
from typing import Any, cast

from pykclient.consumer.coordinator import classic_rebalance
from pykclient.errors import MemberIdRequiredError
from pykclient.testing.request_channel import REQUEST_DROPPED, History, RequestRecord
from pykclient.testing.simulation.checks import InvariantError
from pykclient.types import TopicPartition


class Revocations:
    """Checks that members revoke only partitions that move.

    A cooperative member, and one of the consumer protocol, keeps what its coordinator leaves to it. So it may revoke a
    partition only if one of the assignments that it was sent, since the one that gave it the partition, lacks it.
    Thread: owner.
    """

    def __init__(self, history: History, topic: str) -> None:
        """Check the partitions of ``topic``, the only one of members of the consumer protocol."""
        self._history = history
        self._topic = topic
        #: The number of the request whose response gave the partition to the member.
        self._given: dict[tuple[str, TopicPartition], int] = {}

    def assigned(self, member: str, partitions: Iterable[TopicPartition]) -> None:
        """Record that a listener was told of new partitions."""
        sent = list(self._assignments(member, 0))
        for tp in self._of_topic(partitions):
            self._given[member, tp] = max((number for number, numbers in sent if tp.partition in numbers), default=0)

    def revoked(self, member: str, partitions: Iterable[TopicPartition]) -> None:
        """Check a revocation by a member that neither leaves nor changes its subscription.

        Raises:
            InvariantError: a partition need not move.
        """
        for tp in self._of_topic(partitions):
            since = self._given.pop((member, tp), 0)
            if all(tp.partition in numbers for _, numbers in self._assignments(member, since)):
                raise InvariantError(f"{member} revokes {tp}, which its coordinator has left to it")

    def was_removed(self, member: str, session_ms: int, now_ms: int) -> bool:
        """Return whether the session of a classic member has expired at any time.

        A coordinator of the consumer protocol takes such a member back under its old id, without an error, after it has
        given its partitions to others (Java: GroupMetadataManager.classicGroupJoinToConsumerGroup). So the member
        revokes too late what it has lost.
        """
        heard = [
            record.time_ms
            for record in self._history.matching(client_id=member)
            if record.api in ("JOIN_GROUP", "SYNC_GROUP", "HEARTBEAT") and record.fate != REQUEST_DROPPED
        ]
        return any(after - before >= session_ms for before, after in pairwise([*heard, now_ms]))

    def _assignments(self, member: str, since: int) -> Iterator[tuple[int, Collection[int]]]:
        """Yield the assignments sent to a member, as partition numbers of the topic, with the numbers of requests."""
        for record in self._history.matching(client_id=member, after=since):
            numbers = self._assigned_by(record)
            if numbers is not None:
                yield record.number, numbers

    def _of_topic(self, partitions: Iterable[TopicPartition]) -> list[TopicPartition]:
        return sorted(tp for tp in partitions if tp.topic == self._topic)

    def _assigned_by(self, record: RequestRecord) -> Collection[int] | None:
        response: Any = record.response
        if record.api == "SYNC_GROUP" and response is not None and not response.error_code and response.assignment:
            assignment = classic_rebalance.deserialize_assignment(response.assignment)
            return [tp.partition for tp in self._of_topic(assignment.partitions)]
        if record.api == "CONSUMER_GROUP_HEARTBEAT" and response is not None and response.assignment is not None:
            return [number for topic in response.assignment.topic_partitions for number in topic.partitions]
        return None


def incarnations(history: History) -> int:
    """Return how often the generations of a group have started again.

    A broker creates an empty group anew if the next member uses the other protocol, also if that only got its id: the
    classic group that it then did not join disappears again.
    """
    count = highest = 0
    protocols: set[str] = set()  # of the last generation, and of members that have only got an id since
    for record in history.matching():
        generation = _joined(record)
        if generation == 1 and (highest > 1 or protocols - {record.api}):
            count += 1
            highest = 0
        if generation is not None:
            highest = max(highest, generation)
            protocols = {record.api}
        elif record.api == "JOIN_GROUP" and getattr(record.response, "error_code", 0) == MemberIdRequiredError.code:
            protocols.add(record.api)
    return count


def _joined(record: RequestRecord) -> int | None:
    """Return the generation that a member has joined, or None if the request has another purpose or failed."""
    body, response = cast(Any, record.body), cast(Any, record.response)
    joins = record.api == "JOIN_GROUP" or (record.api == "CONSUMER_GROUP_HEARTBEAT" and not body.member_epoch)
    if not joins or response is None or response.error_code:
        return None
    return cast(int, response.generation_id if record.api == "JOIN_GROUP" else response.member_epoch)
