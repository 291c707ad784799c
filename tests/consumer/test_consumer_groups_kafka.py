"""Groups of the consumer group protocol (KIP-848), on the embedded cluster and on real Kafka."""

from __future__ import annotations

import contextlib
import re
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import confluent_kafka
import pytest

from pykclient import KafkaProducer
from pykclient.consumer.kafka_consumer import KafkaConsumer
from pykclient.consumer.values import SubscriptionPattern
from pykclient.errors import (
    BrokerError,
    CommitFailedError,
    CoordinatorLoadInProgressError,
    CoordinatorNotAvailableError,
    InvalidRegularExpressionError,
    NotCoordinatorError,
    RebalanceInProgressError,
    UnreleasedInstanceIdError,
    UnsupportedAssignorError,
    for_code,
)
from pykclient.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from pykclient.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from pykclient.types import MemberState, OffsetAndMetadata, TopicPartition
from tests.consumer.test_groups_kafka import Consumer, Events, partitions_of, poll_until, produce
from tests.interop.group_members import CONSUMER_PROTOCOL, Java, Place
from tests.support.any_kafka import EMBEDDED, REAL, AnyKafka
from tests.support.embedded_kafka import EmbeddedKafka
from tests.support.group_configs import set_group_configs
from tests.support.wait import eventually
from tests.testing.handlers.raw_client import RawClient

Join = Callable[..., Consumer]


#: The settings of the embedded broker; those of real ones are in tests/kafka/cluster.py.
_EMBEDDED = {"group.consumer.heartbeat.interval.ms": 500}


@pytest.fixture(scope="module", params=[EMBEDDED, REAL])
def brokers(request: pytest.FixtureRequest) -> Iterator[AnyKafka]:
    """One broker, embedded or real."""
    if request.param == "real":
        yield request.getfixturevalue("kafka")
        return
    with EmbeddedKafka(1, _EMBEDDED) as cluster:
        yield cluster


@pytest.fixture(params=[EMBEDDED, REAL])
def impatient_brokers(request: pytest.FixtureRequest, group_id: str) -> Iterator[AnyKafka]:
    """One broker, embedded or real, on which sessions of the test's group expire after two seconds."""
    if request.param == "real":
        real: AnyKafka = request.getfixturevalue("kafka")
        set_session_timeout(real, group_id, 2_000)
        yield real
        return
    with EmbeddedKafka(1, {**_EMBEDDED, "group.consumer.session.timeout.ms": 2_000}) as cluster:
        yield cluster


@pytest.fixture
def join(request: pytest.FixtureRequest, topic: str, group_id: str) -> Iterator[Join]:
    """A factory of members of the test's group, closed after the test."""
    made: list[Consumer] = []
    name = "brokers" if "brokers" in request.fixturenames else "impatient_brokers"
    cluster: AnyKafka = request.getfixturevalue(name)

    def make(*, listener: Any = None, **settings: Any) -> Consumer:
        consumer: Consumer = KafkaConsumer(
            bootstrap_servers=cluster.bootstrap_servers,
            **{"group_id": group_id, "group_protocol": "consumer", "auto_offset_reset": "earliest", **settings},
        )
        made.append(consumer)
        consumer.subscribe([topic], listener=listener)
        return consumer

    yield make
    for consumer in made:
        consumer.close(timeout_ms=2_000)


def set_session_timeout(brokers: AnyKafka, group_id: str, timeout_ms: int) -> None:
    """Set the session timeout of one group."""
    set_group_configs(brokers, group_id, {"consumer.session.timeout.ms": str(timeout_ms)})


def shared(count: int, *consumers: Consumer) -> Callable[[], bool]:
    """Return a condition: the consumers have ``count`` partitions in all, in equal shares, and none has two owners."""

    def is_shared() -> bool:
        assignments = [consumer.assignment() for consumer in consumers]
        return len(set().union(*assignments)) == sum(map(len, assignments)) == count and (
            max(map(len, assignments)) - min(map(len, assignments)) <= 1
        )

    return is_shared


def test_members_join_and_leave_and_nothing_is_lost_or_doubled(brokers: AnyKafka, topic: str, join: Join) -> None:
    brokers.create_topic(topic, partitions=6)
    produce(brokers, topic, 300, partitions=6)
    one = join()
    seen = poll_until(shared(6, one), one)
    two, three = join(), join()
    seen += poll_until(shared(6, one, two, three), one, two, three)
    produce(brokers, topic, 300, partitions=6)
    two.close()
    seen += poll_until(shared(6, one, three), one, three)
    three.unsubscribe()
    seen += poll_until(shared(6, one), one)
    produce(brokers, topic, 300, partitions=6)
    seen += poll_until(lambda: all(one.position(tp) == 150 for tp in one.assignment()), one)
    counts = Counter((record.partition, record.offset) for record in seen)
    assert sorted(counts) == [(partition, offset) for partition in range(6) for offset in range(150)]
    assert set(counts.values()) == {1}


def test_partitions_that_need_not_move_are_not_revoked(brokers: AnyKafka, topic: str, join: Join) -> None:
    brokers.create_topic(topic, partitions=6)
    events = Events()
    one = join(listener=events)
    poll_until(shared(6, one), one)
    two = join()
    poll_until(shared(6, one, two), one, two)
    moved = {tp for what, partitions in events.told if what == "revoked" for tp in partitions}
    assert len(moved) == 3
    assert moved == two.assignment()
    two.close()
    poll_until(shared(6, one), one)
    assert [what for what, partitions in events.told if partitions] == ["assigned", "revoked", "assigned"]


_KILLED = """
import sys
from pykclient import KafkaConsumer
consumer = KafkaConsumer(
    sys.argv[2], bootstrap_servers=sys.argv[1], group_id=sys.argv[3], group_protocol="consumer",
    group_instance_id=sys.argv[4] or None, auto_offset_reset="earliest",
)
while True:
    consumer.poll(100)
    if consumer.assignment():
        print("joined", flush=True)
"""


@contextlib.contextmanager
def running(brokers: AnyKafka, topic: str, group_id: str, instance_id: str = "") -> Iterator[subprocess.Popen[str]]:
    """Yield a member in a process of its own that has partitions, and kill it at the end."""
    arguments = [sys.executable, "-c", _KILLED, brokers.bootstrap_servers, topic, group_id, instance_id]
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "joined\n"
            yield process
        finally:
            process.kill()


def test_partitions_of_a_killed_member_move(impatient_brokers: AnyKafka, topic: str, group_id: str, join: Join) -> None:
    impatient_brokers.create_topic(topic, partitions=4)
    with running(impatient_brokers, topic, group_id):
        one = join()
        poll_until(shared(2, one), one)
    poll_until(shared(4, one), one)


def test_a_member_that_does_not_poll_leaves_and_comes_back(brokers: AnyKafka, topic: str, join: Join) -> None:
    brokers.create_topic(topic, partitions=2)
    produce(brokers, topic, 10, partitions=2)
    events = Events()
    late = join(listener=events, max_poll_interval_ms=1_500, enable_auto_commit=False)
    poll_until(shared(2, late), late)
    other = join()
    poll_until(shared(2, late, other), late, other)
    (kept,) = late.assignment()
    poll_until(lambda: len(other.assignment()) == 2, other)
    with pytest.raises(CommitFailedError, match=r"max\.poll\.interval\.ms=1500"):
        late.commit({kept: OffsetAndMetadata(1)})
    poll_until(shared(2, late, other), late, other)
    assert ("lost", [kept]) in events.told


def test_a_static_member_comes_back_to_its_partitions(brokers: AnyKafka, topic: str, join: Join) -> None:
    brokers.create_topic(topic, partitions=2)
    events = Events()
    a = join(group_instance_id="a")
    b = join(group_instance_id="b", listener=events)
    poll_until(shared(2, a, b), a, b)
    before, told = a.assignment(), list(events.told)
    a.close()
    again = join(group_instance_id="a")
    poll_until(again.assignment, again, b)
    assert again.assignment() == before
    assert events.told == told
    assert again.group_metadata().group_instance_id == "a"


def test_instance_id_in_use_is_refused(brokers: AnyKafka, topic: str, join: Join) -> None:
    brokers.create_topic(topic)
    first = join(group_instance_id="a")
    poll_until(first.assignment, first)
    second = join(group_instance_id="a")
    for _ in range(2):
        with pytest.raises(UnreleasedInstanceIdError, match=r"group\.instance\.id='a'"):
            poll_until(lambda: False, second)
    first.close(group_membership_operation="leave_group")
    second.unsubscribe()
    second.subscribe([topic])
    poll_until(second.assignment, second)


def test_unknown_remote_assignor_is_refused(brokers: AnyKafka, topic: str, join: Join) -> None:
    brokers.create_topic(topic)
    member = join(group_remote_assignor="mine")
    with pytest.raises(UnsupportedAssignorError, match="'mine'"):
        poll_until(lambda: False, member)


def test_remote_assignor_is_used(brokers: AnyKafka, topic: str, join: Join) -> None:
    brokers.create_topic(topic, partitions=4)
    members = [join(group_remote_assignor="range", group_instance_id=f"i{number}") for number in range(2)]
    poll_until(shared(4, *members), *members)
    assert sorted(map(sorted, (member.assignment() for member in members))) == [
        sorted(partitions_of(topic, 0, 1)),
        sorted(partitions_of(topic, 2, 3)),
    ]


def test_pattern_adds_matching_new_topics(brokers: AnyKafka, topic: str, join: Join) -> None:
    brokers.create_topic(f"{topic}-1", partitions=2)
    member = join(metadata_max_age_ms=500)
    member.unsubscribe()
    member.subscribe(pattern=re.compile(re.escape(topic) + "-[12]"))
    poll_until(lambda: member.assignment() == partitions_of(f"{topic}-1", 0, 1), member)
    brokers.create_topic(f"{topic}-2")
    expected = partitions_of(f"{topic}-1", 0, 1) | partitions_of(f"{topic}-2", 0)
    poll_until(lambda: member.assignment() == expected, member)


def test_brokers_match_a_subscription_pattern(brokers: AnyKafka, topic: str, join: Join) -> None:
    brokers.create_topic(f"{topic}-1", partitions=2)
    brokers.create_topic(f"{topic}-other")
    produce(brokers, f"{topic}-1", 10, partitions=2)
    member = join()
    member.unsubscribe()
    member.subscribe(pattern=SubscriptionPattern(re.escape(topic).replace("\\-", "-") + "-[0-9]"))
    seen = poll_until(lambda: member.assignment() == partitions_of(f"{topic}-1", 0, 1), member)
    brokers.create_topic(f"{topic}-2")
    expected = partitions_of(f"{topic}-1", 0, 1) | partitions_of(f"{topic}-2", 0)
    seen += poll_until(lambda: member.assignment() == expected, member, timeout_s=60)
    produce(brokers, f"{topic}-2", 5)
    while len(seen) < 15:
        seen += [record for records in member.poll(1_000).values() for record in records]
    assert {record.topic for record in seen} == {f"{topic}-1", f"{topic}-2"}


def test_invalid_broker_pattern_raises(brokers: AnyKafka, topic: str, join: Join) -> None:
    member = join()
    member.unsubscribe()
    member.subscribe(pattern=SubscriptionPattern("("))
    with pytest.raises(InvalidRegularExpressionError, match=r"SubscriptionPattern\('\('\)"):
        poll_until(lambda: False, member)


def test_changed_subscription_moves_assignment(brokers: AnyKafka, topic: str, join: Join) -> None:
    other = f"{topic}-other"
    brokers.create_topic(topic, partitions=2)
    brokers.create_topic(other, partitions=1)
    events = Events()
    member = join(listener=events)
    poll_until(lambda: len(member.assignment()) == 2, member)
    member.subscribe([other], listener=events)
    poll_until(lambda: member.assignment() == partitions_of(other, 0), member)
    assert [(what, partitions) for what, partitions in events.told if partitions][1:] == [
        ("revoked", sorted(partitions_of(topic, 0, 1))),
        ("assigned", [TopicPartition(other, 0)]),
    ]


def test_heartbeats_go_on_while_the_application_works(brokers: AnyKafka, topic: str, join: Join) -> None:
    brokers.create_topic(topic)
    events = Events()
    member = join(listener=events)
    poll_until(member.assignment, member)
    epoch, told = member.group_metadata().generation_id, list(events.told)

    def heartbeats() -> float:
        return float(member.metrics()["consumer-coordinator-metrics"]["heartbeat-total"])

    before = heartbeats()
    eventually(lambda: heartbeats() >= before + 3, 30, "heartbeats without polls")
    member.poll(100)
    member.commit({TopicPartition(topic, 0): OffsetAndMetadata(0)})
    assert member.group_metadata().generation_id == epoch
    assert events.told == told


def test_offsets_of_a_member_that_was_removed_are_refused(
    brokers: AnyKafka, topic: str, group_id: str, join: Join
) -> None:
    """The heartbeat thread notices while the application is in a transaction: others may have its partitions."""
    brokers.create_topic(topic)
    member = join()
    poll_until(member.assignment, member)
    epoch = member.group_metadata().generation_id
    member_id = member.group_metadata().member_id
    assert ask(brokers, group_id, [{"member_id": member_id, "member_epoch": -1}]) == [None]
    eventually(lambda: member.group_metadata().state is MemberState.UNJOINED, 30, "the member notices")
    assert (member.group_metadata().generation_id, member.group_metadata().member_id) == (epoch, member_id)
    with KafkaProducer(bootstrap_servers=brokers.bootstrap_servers, transactional_id=topic) as producer:
        producer.init_transactions()
        with pytest.raises(CommitFailedError), producer.transaction():
            producer.send_offsets_to_transaction({TopicPartition(topic, 0): 1}, member.group_metadata())
    assert member.committed(TopicPartition(topic, 0)) is None


def test_group_is_shared_with_confluent_kafka(brokers: AnyKafka, topic: str, group_id: str, join: Join) -> None:
    brokers.create_topic(topic, partitions=4)
    ours = join()
    theirs = confluent_kafka.Consumer(
        {"bootstrap.servers": brokers.bootstrap_servers, "group.id": group_id, "group.protocol": "consumer"}
    )
    try:
        theirs.subscribe([topic])

        def is_shared() -> bool:
            theirs.poll(0.05)
            return len(theirs.assignment()) == len(ours.assignment()) == 2

        poll_until(is_shared, ours)
    finally:
        theirs.close()
    poll_until(shared(4, ours), ours)


@pytest.mark.java
def test_group_is_shared_with_java(brokers: AnyKafka, topic: str, group_id: str, join: Join) -> None:
    brokers.create_topic(topic, partitions=4)
    ours = join()
    theirs = Java(Place(brokers.bootstrap_servers, group_id, topic, CONSUMER_PROTOCOL))
    try:
        poll_until(lambda: len(ours.assignment()) == len(theirs.heard.owned) == 2, ours)
        assert theirs.heard.owned == {0, 1, 2, 3} - {tp.partition for tp in ours.assignment()}
    finally:
        theirs.close()
    poll_until(shared(4, ours), ours)


class _CommittedReads:
    """Reads with several members and commits after each poll. Knows which records were committed as read."""

    def __init__(self) -> None:
        #: How often each record, by partition and offset, was committed as read. A record whose commit was refused,
        #: because the group was rebalancing, is not counted: it comes again.
        self.counts: Counter[tuple[int, int]] = Counter()

    def until(self, condition: Callable[[], object], *members: Consumer) -> None:
        def once() -> bool:
            for member in members:
                polled = member.poll(50)
                if not polled:
                    continue
                try:
                    member.commit()
                except (CommitFailedError, RebalanceInProgressError):
                    continue
                self.counts.update((record.partition, record.offset) for some in polled.values() for record in some)
            return bool(condition())

        eventually(once, 30, every_s=0)


def test_live_protocol_migration_loses_no_commit(brokers: AnyKafka, topic: str, join: Join) -> None:
    """Members of the classic protocol are replaced one by one, and then the other way round. No commit is lost.

    Automatic commits would not do: when the last member of the consumer protocol leaves, Kafka refuses commits of
    classic members that have not heard of the group's last epoch yet, and what they have read comes again.
    """
    brokers.create_topic(topic, partitions=4)
    produce(brokers, topic, 40, partitions=4)
    shared_settings: dict[str, Any] = {"enable_auto_commit": False}
    classic = {**shared_settings, "group_protocol": "classic", "heartbeat_interval_ms": 500}
    members = [join(**classic) for _ in range(2)]
    reads = _CommittedReads()
    reads.until(shared(4, *members), *members)
    for settings in (shared_settings, shared_settings, classic, classic):
        members.append(join(**settings))
        reads.until(shared(4, *members), *members)
        members.pop(0).close()
        reads.until(shared(4, *members), *members)
        produce(brokers, topic, 40, partitions=4)
    reads.until(lambda: len(reads.counts) == 200, *members)
    assert reads.counts == {(partition, offset): 1 for partition in range(4) for offset in range(50)}


#: The member epoch of the last answer.
_CURRENT = 1_000

_JOIN: dict[str, Any] = {
    "member_id": "a",
    "member_epoch": 0,
    "rebalance_timeout_ms": 60_000,
    "subscribed_topic_names": ["a-topic"],
    "topic_partitions": [],
}


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({}, None),
        ({"member_id": ""}, "INVALID_REQUEST"),
        ({"instance_id": ""}, "INVALID_REQUEST"),
        ({"rack_id": ""}, "INVALID_REQUEST"),
        ({"rebalance_timeout_ms": -1}, "INVALID_REQUEST"),
        ({"topic_partitions": None}, "INVALID_REQUEST"),
        ({"subscribed_topic_names": None}, "INVALID_REQUEST"),
        ({"member_epoch": -2}, "INVALID_REQUEST"),
        ({"member_epoch": -3}, "INVALID_REQUEST"),
        ({"member_epoch": 5}, "GROUP_ID_NOT_FOUND"),
        ({"member_epoch": -1}, "GROUP_ID_NOT_FOUND"),
        ({"server_assignor": "mine"}, "UNSUPPORTED_ASSIGNOR"),
        ({"subscribed_topic_regex": "("}, "INVALID_REGULAR_EXPRESSION"),
        ({"group_id": ""}, "INVALID_REQUEST"),
    ],
)
def test_kafka_and_embedded_refuse_same_heartbeats(
    brokers: AnyKafka, group_id: str, changes: dict[str, Any], error: str | None
) -> None:
    assert ask(brokers, group_id, [{**_JOIN, **changes}]) == [error]


def test_kafka_and_embedded_refuse_same_members(brokers: AnyKafka, group_id: str) -> None:
    beat = {"member_id": "a", "instance_id": "i"}
    dialogue: list[tuple[dict[str, Any], str | None]] = [
        ({**_JOIN, "instance_id": "i"}, None),
        ({**beat, "member_epoch": _CURRENT}, None),
        ({**beat, "member_epoch": 70}, "FENCED_MEMBER_EPOCH"),
        ({"member_id": "b", "member_epoch": _CURRENT}, "UNKNOWN_MEMBER_ID"),
        ({"member_id": "b", "instance_id": "i", "member_epoch": _CURRENT}, "FENCED_INSTANCE_ID"),
        ({"member_id": "b", "instance_id": "j", "member_epoch": _CURRENT}, "UNKNOWN_MEMBER_ID"),
        ({**_JOIN, "member_id": "b", "instance_id": "i"}, "UNRELEASED_INSTANCE_ID"),
        ({**_JOIN, "instance_id": "i"}, "UNRELEASED_INSTANCE_ID"),
        ({**beat, "member_epoch": -2}, None),
        ({**beat, "member_epoch": _CURRENT}, "FENCED_MEMBER_EPOCH"),
        ({**_JOIN, "member_id": "b", "instance_id": "i"}, None),
        ({**beat, "member_epoch": -1}, "FENCED_INSTANCE_ID"),
        ({"member_id": "b", "instance_id": "i", "member_epoch": -1}, None),
        ({"member_id": "b", "instance_id": "i", "member_epoch": -1}, "UNKNOWN_MEMBER_ID"),
        ({"member_id": "b", "member_epoch": -1}, "UNKNOWN_MEMBER_ID"),
    ]
    assert ask(brokers, group_id, [request for request, _ in dialogue]) == [error for _, error in dialogue]


#: The coordinator is not ready yet.
_NOT_YET = (CoordinatorNotAvailableError, CoordinatorLoadInProgressError, NotCoordinatorError)


def ask(brokers: AnyKafka, group_id: str, requests: list[dict[str, Any]]) -> list[str | None]:
    """Return the names of the errors that these heartbeats are answered with."""
    found: list[str | None] = []
    epoch = 0
    with RawClient(brokers.bootstrap_servers) as client:
        # Creates the topic of offsets, if nobody has needed it yet.
        client.ask(FindCoordinatorRequest(coordinator_keys=[group_id]), 4, FindCoordinatorResponse)
        for fields in requests:
            request = ConsumerGroupHeartbeatRequest(**{"group_id": group_id, **fields})
            if request.member_epoch == _CURRENT:
                request.member_epoch = epoch
            error: BrokerError | None = CoordinatorLoadInProgressError()
            deadline_s = time.monotonic() + 20
            while isinstance(error, _NOT_YET) and time.monotonic() < deadline_s:
                response = client.ask(request, 1, ConsumerGroupHeartbeatResponse)
                error = for_code(response.error_code)
                epoch = max(epoch, response.member_epoch)
            found.append(None if error is None else error.error_name)
    return found
