"""What must hold in Kafka whatever happens, as questions to plain data: what was sent, stored and read.

Each check raises InvariantError, which names the first place where it does not hold. ``Log`` is what a partition's
log holds by offset, as ``{record.offset: record.value for record in cluster.log_records(tp)}``.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from pykclient.types import TopicPartition

Log = Mapping[int, bytes]


class InvariantError(AssertionError):
    """Something that must hold does not."""


def check_nothing_lost(
    acknowledged: Iterable[tuple[TopicPartition, int, bytes]], logs: Mapping[TopicPartition, Log]
) -> None:
    """Each acknowledged (partition, offset, value) is in the log where it was said to be.

    Holds with ``acks=all`` and without unclean elections.
    """
    for tp, offset, value in acknowledged:
        found = logs[tp].get(offset)
        if found != value:
            what = "nothing" if found is None else _short(found)
            raise InvariantError(f"{_short(value)} was acknowledged at offset {offset} of {tp}, where {what} is")


def check_nothing_twice(logs: Mapping[TopicPartition, Log], forgotten: Collection[bytes] = ()) -> None:
    """No value is in a log, or in several, more than once. For values that are sent once by idempotent producers.

    ``forgotten`` may be: what a producer had in flight when a broker loaded the log's producers from a snapshot, which
    has only the last batch of each. Kafka does not know an earlier batch again after that: it answers a retry with
    OUT_OF_ORDER_SEQUENCE_NUMBER, and the producer sends what is in flight again in a new epoch (KIP-360).
    """
    seen: dict[bytes, tuple[TopicPartition, int]] = {}
    for tp, log in logs.items():
        for offset, value in log.items():
            if value in forgotten:
                continue
            first = seen.setdefault(value, (tp, offset))
            if first != (tp, offset):
                raise InvariantError(f"{_short(value)} is at offset {first[1]} of {first[0]} and at {offset} of {tp}")


def check_order(sent: Mapping[TopicPartition, Sequence[bytes]], logs: Mapping[TopicPartition, Log]) -> None:
    """The values of one producer are in each log in the order of their sending, by their first occurrence.

    Holds for idempotent producers and for those with one request in flight.
    """
    for tp, values in sent.items():
        places = {value: place for place, value in enumerate(values)}
        last = -1
        seen: set[bytes] = set()
        for offset, value in sorted(logs[tp].items()):
            place = places.get(value)
            if place is None or value in seen:
                continue
            seen.add(value)
            if place < last:
                raise InvariantError(
                    f"{_short(value)} is at offset {offset} of {tp} behind {_short(values[last])}, which was sent later"
                )
            last = place


def check_origin(sent: Iterable[bytes], logs: Mapping[TopicPartition, Log]) -> None:
    """Nothing is in a log that nobody has sent."""
    known = set(sent)
    for tp, log in logs.items():
        for offset, value in log.items():
            if value not in known:
                raise InvariantError(f"{_short(value)} is at offset {offset} of {tp}, and was never sent")


def check_reading(read: Mapping[TopicPartition, Log], logs: Mapping[TopicPartition, Log]) -> None:
    """What was read is what the log holds at the same offset: nothing uncommitted was read, and nothing made up."""
    for tp, records in read.items():
        for offset, value in records.items():
            found = logs[tp].get(offset)
            if found != value:
                what = "nothing" if found is None else _short(found)
                raise InvariantError(f"{_short(value)} was read at offset {offset} of {tp}, where {what} is")


def check_everything_read(read: Mapping[TopicPartition, Log], logs: Mapping[TopicPartition, Log]) -> None:
    """Everything in the logs was read at least once."""
    for tp, log in logs.items():
        missing = [offset for offset in log if offset not in read.get(tp, {})]
        if missing:
            raise InvariantError(f"offset {missing[0]} of {tp} was never read, and {len(missing) - 1} others")


def check_one_topic_after_the_other(
    consumer: str, tp: TopicPartition, read: Sequence[tuple[int, bytes]], log: Log
) -> None:
    """Once a consumer has read from the topic that is there now, it reads nothing of a topic deleted before.

    ``read`` has the (offset, value) pairs of one partition in the order in which ``consumer`` got them, ``log`` is the
    partition's log at the end. Each value must have been sent once.
    """
    values = set(log.values())
    has_begun = False
    for offset, value in read:
        is_there = log.get(offset) == value
        if value in values and not is_there:
            raise InvariantError(f"{consumer} read {_short(value)} at offset {offset} of {tp}, which is elsewhere")
        if has_begun and not is_there:
            raise InvariantError(
                f"{consumer} read {_short(value)} at offset {offset} of {tp}, which was in a topic deleted before"
            )
        has_begun = has_begun or is_there


def check_read_again(read: Mapping[TopicPartition, Iterable[int]], committed: Mapping[TopicPartition, int]) -> None:
    """No offset that was committed is read again by those who come after a crash."""
    for tp, offsets in read.items():
        again = min(offsets, default=committed[tp])
        if again < committed[tp]:
            raise InvariantError(f"{tp} is read again from {again} on, although all up to {committed[tp]} was read")


def check_replicas(replicas: Mapping[int, bytes], tp: TopicPartition) -> None:
    """All replicas' logs, by broker, are the same to the byte. Holds once they are all in sync and nothing is sent."""
    (first, log), *others = replicas.items()
    for broker, other in others:
        if other != log:
            at = next(
                (i for i, (a, b) in enumerate(zip(log, other, strict=False)) if a != b), min(len(log), len(other))
            )
            raise InvariantError(f"the logs of {tp} on brokers {first} and {broker} differ from byte {at} on")


class Ownership:
    """Who owns which partition in a group, by what rebalance listeners are told.

    Raises InvariantError as soon as a member is told something that cannot be, or two members are given the same
    partition in one generation. Thread: owner.
    """

    def __init__(self) -> None:
        self._owned: dict[str, set[TopicPartition]] = {}
        self._given: dict[tuple[int, TopicPartition], str] = {}

    def assigned(
        self, member: str, generation: int, partitions: Iterable[TopicPartition], owner: str | None = None
    ) -> None:
        """``owner`` stands for the member if it can come back with another name, as static members do."""
        wanted = owner or member
        owned = self._owned.setdefault(member, set())
        for tp in sorted(partitions):
            if tp in owned:
                raise InvariantError(f"{member} is given {tp}, which it has not given up")
            first = self._given.setdefault((generation, tp), wanted)
            if first != wanted:
                raise InvariantError(f"{wanted} and {first} are both given {tp} in generation {generation}")
            owned.add(tp)

    def given_up(self, member: str, partitions: Iterable[TopicPartition]) -> None:
        """Revoked or lost."""
        owned = self._owned.setdefault(member, set())
        for tp in sorted(partitions):
            if tp not in owned:
                raise InvariantError(f"{member} gives up {tp}, which it does not own")
            owned.discard(tp)

    def closed(self, member: str) -> None:
        """Its consumer was closed, so it was asked to give everything up before."""
        owned = self._owned.pop(member, set())
        if owned:
            raise InvariantError(f"{member} was closed without being told to give up {sorted(owned)}")

    def crashed(self, member: str) -> None:
        self._owned.pop(member, None)

    def of(self, member: str) -> set[TopicPartition]:
        return set(self._owned.get(member, ()))


def _short(value: bytes) -> str:
    return value[:12].decode(errors="replace").rstrip(".")
