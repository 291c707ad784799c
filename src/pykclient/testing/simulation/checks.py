"""Kafka's invariants, as checks on plain data: the records that were sent, stored and read.

Each check raises InvariantError, which names the first violation. ``Log`` is the content of a partition's log by
offset, as in ``{record.offset: record.value for record in cluster.log_records(tp)}``.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from pykclient.types import TopicPartition

Log = Mapping[int, bytes]


class InvariantError(AssertionError):
    """An invariant is violated."""


def _check_value(log: Log, tp: TopicPartition, offset: int, value: bytes, deed: str) -> None:
    found = log.get(offset)
    if found != value:
        what = "nothing" if found is None else _short(found)
        raise InvariantError(f"{_short(value)} was {deed} at offset {offset} of {tp}, but the log has {what} there")


def check_nothing_lost(
    acknowledged: Iterable[tuple[TopicPartition, int, bytes]], logs: Mapping[TopicPartition, Log]
) -> None:
    """Check that each acknowledged (partition, offset, value) is in the log at that offset.

    Holds with ``acks=all`` and without unclean elections.
    """
    for tp, offset, value in acknowledged:
        _check_value(logs[tp], tp, offset, value, "acknowledged")


def check_nothing_twice(logs: Mapping[TopicPartition, Log], forgotten: Collection[bytes] = ()) -> None:
    """Check that no value is in the logs more than once.

    For values that idempotent producers send once each. Values in ``forgotten`` may be duplicated. These are the values
    that a producer had in flight when a broker loaded its producer state from a snapshot, which has only the last batch
    of each producer. After that the broker does not recognize an earlier batch: it responds to a retry with
    OUT_OF_ORDER_SEQUENCE_NUMBER, and the producer sends its batches in flight again in a new epoch (KIP-360).
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
    """Check that each log has the values of one producer in the order they were sent, by their first occurrence.

    Holds for idempotent producers and for producers with one request in flight.
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
                    f"{_short(value)} is at offset {offset} of {tp} after {_short(values[last])}, which was sent later"
                )
            last = place


def check_origin(sent: Iterable[bytes], logs: Mapping[TopicPartition, Log]) -> None:
    """Check that the logs contain only values that were sent."""
    known = set(sent)
    for tp, log in logs.items():
        for offset, value in log.items():
            if value not in known:
                raise InvariantError(f"{_short(value)} is at offset {offset} of {tp}, and was never sent")


def check_reading(read: Mapping[TopicPartition, Log], logs: Mapping[TopicPartition, Log]) -> None:
    """Check that each value read is in the log at the same offset: no uncommitted and no invented records."""
    for tp, records in read.items():
        for offset, value in records.items():
            _check_value(logs[tp], tp, offset, value, "read")


def check_everything_read(read: Mapping[TopicPartition, Log], logs: Mapping[TopicPartition, Log]) -> None:
    """Check that every record in the logs was read at least once."""
    for tp, log in logs.items():
        missing = [offset for offset in log if offset not in read.get(tp, {})]
        if missing:
            raise InvariantError(f"offset {missing[0]} of {tp} was never read, and {len(missing) - 1} others")


def check_one_topic_after_the_other(
    consumer: str, tp: TopicPartition, read: Sequence[tuple[int, bytes]], log: Log, sent_before: Collection[bytes] = ()
) -> None:
    """Check that a consumer reads no records of a deleted topic once it has read from the topic that replaced it.

    ``read`` has the (offset, value) pairs of one partition in the order in which ``consumer`` received them. ``log`` is
    the partition's log at the end. Each value must have been sent once. Values in ``sent_before`` were sent to a
    deleted topic; they may be in the log as well, because a producer that gets no response retries in the new topic.
    """
    values = {value for value in log.values() if value not in sent_before}
    has_begun = False
    for offset, value in read:
        is_there = log.get(offset) == value
        if value in values and not is_there:
            raise InvariantError(
                f"{consumer} read {_short(value)} at offset {offset} of {tp}, which the log has elsewhere"
            )
        if has_begun and not is_there:
            raise InvariantError(
                f"{consumer} read {_short(value)} at offset {offset} of {tp}, which is of a topic deleted before"
            )
        has_begun = has_begun or (is_there and value not in sent_before)


def check_read_again(read: Mapping[TopicPartition, Iterable[int]], committed: Mapping[TopicPartition, int]) -> None:
    """Check that the members that take over after a crash read no committed offset again."""
    for tp, offsets in read.items():
        again = min(offsets, default=committed[tp])
        if again < committed[tp]:
            raise InvariantError(
                f"{tp} is read again from offset {again}, although offset {committed[tp]} was committed"
            )


def check_transactions(
    transactions: Iterable[tuple[bool | None, Mapping[TopicPartition, Sequence[bytes]]]],
    committed: Mapping[TopicPartition, Sequence[bytes]],
) -> None:
    """Check that read_committed shows all records of a transaction or none, according to its outcome.

    ``transactions`` has the outcome of each (None if the producer was not told) and its values; each value was sent
    once. ``committed`` has the values that read_committed shows, in order.
    """
    shown = {tp: set(values) for tp, values in committed.items()}
    for tp, values in committed.items():
        if len(values) != len(shown[tp]):
            raise InvariantError(f"read_committed shows a value of {tp} twice")
    for outcome, sent in transactions:
        found = {value in shown[tp] for tp, values in sent.items() for value in values}
        first = next((_short(value) for values in sent.values() for value in values), "nothing")
        if len(found) > 1:
            raise InvariantError(f"read_committed shows a part of the transaction with {first}, whose end is {outcome}")
        if outcome is not None and found == {not outcome}:
            what = "committed, but not shown" if outcome else "not committed, but shown"
            raise InvariantError(f"the transaction with {first} is {what} by read_committed")


def check_exactly_once(
    inputs: Mapping[TopicPartition, Sequence[bytes]], outputs: Mapping[TopicPartition, Sequence[bytes]]
) -> None:
    """Check that a pipeline has processed each input once, in the order of its partition.

    ``outputs`` has the inputs that the outputs were made of, by the partition of the input.
    """
    for tp, values in inputs.items():
        for index, value in enumerate(values):
            found = outputs[tp][index : index + 1]
            if found != [value]:
                what = _short(found[0]) if found else "nothing"
                raise InvariantError(f"the output has {what} where {_short(value)} of {tp} is due, number {index}")
        if len(outputs[tp]) > len(values):
            raise InvariantError(f"the output has {_short(outputs[tp][len(values)])} of {tp} once more than the input")


def check_replicas(replicas: Mapping[int, bytes], tp: TopicPartition) -> None:
    """Check that the logs of all replicas, by broker, are identical to the byte.

    Holds once all replicas are in sync and no producer sends any more.
    """
    (first, log), *others = replicas.items()
    for broker, other in others:
        if other != log:
            at = next(
                (i for i, (a, b) in enumerate(zip(log, other, strict=False)) if a != b), min(len(log), len(other))
            )
            raise InvariantError(f"the logs of {tp} on brokers {first} and {broker} differ from byte {at} on")


class Ownership:
    """The owners of a group's partitions, according to the calls of rebalance listeners.

    Raises InvariantError as soon as a listener is told something impossible, two members are assigned the same
    partition in one generation, or one is assigned what another revokes in that generation. Thread: owner.
    """

    def __init__(self) -> None:
        self._owned: dict[str, set[TopicPartition]] = {}
        self._given: dict[tuple[int, TopicPartition], str] = {}
        self._revoked: dict[tuple[int, TopicPartition], str] = {}

    def assigned(
        self, member: str, generation: int, partitions: Iterable[TopicPartition], owner: str | None = None
    ) -> None:
        """Record an assignment.

        ``owner`` identifies a member whose name changes when it comes back, as a static member's does.
        """
        wanted = owner or member
        owned = self._owned.setdefault(member, set())
        for tp in sorted(partitions):
            if tp in owned:
                raise InvariantError(f"{member} is assigned {tp}, which it still owns")
            first = self._given.setdefault((generation, tp), wanted)
            if first != wanted:
                raise InvariantError(f"{wanted} and {first} are both assigned {tp} in generation {generation}")
            self._check_move(generation, tp, self._revoked.get((generation, tp), wanted), wanted)
            owned.add(tp)

    def given_up(self, member: str, partitions: Iterable[TopicPartition]) -> None:
        """Record that partitions were revoked or lost."""
        owned = self._owned.setdefault(member, set())
        for tp in sorted(partitions):
            if tp not in owned:
                raise InvariantError(f"{member} gives up {tp}, which it does not own")
            owned.discard(tp)

    def revoked(
        self, member: str, generation: int, partitions: Iterable[TopicPartition], owner: str | None = None
    ) -> None:
        """Record that partitions were revoked by a member whose last completed rebalance is ``generation``."""
        for tp in sorted(partitions):
            former = self._revoked[generation, tp] = owner or member
            self._check_move(generation, tp, former, self._given.get((generation, tp), former))
        self.given_up(member, partitions)

    def _check_move(self, generation: int, tp: TopicPartition, former: str, new: str) -> None:
        if former != new:
            raise InvariantError(f"{new} is assigned {tp} in generation {generation}, in which {former} still owns it")

    def closed(self, member: str) -> None:
        """Record that the member's consumer was closed, which must have given up all partitions first."""
        owned = self._owned.pop(member, set())
        if owned:
            raise InvariantError(f"{member} was closed without being told to give up {sorted(owned)}")

    def crashed(self, member: str) -> None:
        self._owned.pop(member, None)

    def of(self, member: str) -> set[TopicPartition]:
        return set(self._owned.get(member, ()))


def _short(value: bytes) -> str:
    return value[:12].decode(errors="replace").rstrip(".")
