"""Bytes that members of a group give each other, records of coordinators, and requests to an embedded broker."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from importlib import import_module
from random import Random
from typing import Any

from pykclient.consumer.coordinator.classic_rebalance import (
    deserialize_assignment,
    deserialize_subscription,
    serialize_assignment,
    serialize_subscription,
)
from pykclient.consumer.partition_assignors import (
    Assignment,
    ConsumerPartitionAssignor,
    RangeAssignor,
    RoundRobinAssignor,
    Subscription,
)
from pykclient.consumer.sticky_assignor import CooperativeStickyAssignor, StickyAssignor, serialize_member_data
from pykclient.errors import CorruptRecordError, RemoteProtocolError, UnsupportedVersionError
from pykclient.protocol.api_keys import ApiKeys
from pykclient.protocol.headers import encode_request, parse_request_header
from pykclient.protocol.messages.create_topics import CreateTopicsRequest
from pykclient.protocol.wire import Reader
from pykclient.record import MemoryRecords, MemoryRecordsBuilder
from pykclient.testing.cluster import Cluster
from pykclient.testing.config import ClusterConfig
from pykclient.testing.event_loop import EventLoop
from pykclient.testing.group import group_metadata_manager
from pykclient.testing.handlers import handler
from pykclient.testing.request_channel import Request
from pykclient.testing.server.kafka_apis import LocalRequest
from pykclient.testing.simulation.hub import VirtualClock
from pykclient.testing.transaction import transaction_metadata
from pykclient.types import TopicPartition
from tests.consumer.assignors.groups import Group
from tests.fuzz.protocol_targets import outcome
from tests.fuzz.target import Input, Target, number, pieces
from tests.protocol.messages import AnyMessage, random_message, snake, written

TOPICS = ("topic-1", "a")

# --- groups ----------------------------------------------------------------------------------------------------------

_ASSIGNORS: tuple[type[ConsumerPartitionAssignor], ...] = (
    RangeAssignor,
    RoundRobinAssignor,
    StickyAssignor,
    CooperativeStickyAssignor,
)


def run_groups(data: bytes) -> None:
    """Assign partitions to members with any metadata, as a group's leader does."""
    given = Input(data)
    assignor = _ASSIGNORS[given.byte() % len(_ASSIGNORS)]()
    members: dict[str, Subscription] = {}
    for index, piece in enumerate(given.pieces()[:10]):
        subscription = outcome(lambda p=piece: deserialize_subscription(p), RemoteProtocolError)  # type: ignore[misc]
        if isinstance(subscription, Subscription):
            members[f"m{index}"] = subscription
        outcome(lambda p=piece: deserialize_assignment(p), RemoteProtocolError)  # type: ignore[misc]
    if not members:
        return
    group = Group({topic: [["r1", "r2"], ["r2"], [""]] for topic in TOPICS}, members)
    assignments = assignor.assign(group.cluster, members)
    assert assignments.keys() == members.keys()
    given_away = [tp for assignment in assignments.values() for tp in assignment.partitions]
    assert len(given_away) == len(set(given_away)), "a partition has two owners"
    wanted = {topic for subscription in members.values() for topic in subscription.topics}
    everything = {TopicPartition(topic, index) for topic in TOPICS if topic in wanted for index in range(3)}
    assert set(given_away) <= everything
    if not isinstance(assignor, CooperativeStickyAssignor):  # which may hold a partition back until it is revoked
        assert set(given_away) == everything
    for member_id, assignment in assignments.items():
        assert {tp.topic for tp in assignment.partitions} <= set(members[member_id].topics)


def group_seeds(rng: Random) -> Iterator[bytes]:
    owned = [TopicPartition("topic-1", 0), TopicPartition("a", 2)]
    subscriptions = [
        Subscription(list(TOPICS), serialize_member_data(owned, 3), owned, 3, "r1"),
        Subscription(["a"], serialize_member_data(owned, 3), [], -1, "r2"),
        Subscription(["topic-1", "missing"], None, owned[:1], 4, None),
    ]
    for assignor in range(len(_ASSIGNORS)):
        for version in range(4):
            yield number(assignor) + pieces(*(serialize_subscription(each, version) for each in subscriptions))
    yield b"\0" + pieces(serialize_assignment(Assignment(owned, b"x")))


# --- the records of coordinators -------------------------------------------------------------------------------------


def _batch(data: bytes) -> bytes:
    """Return a batch with the pairs of keys and values in ``data``."""
    given = Input(data)
    builder = MemoryRecordsBuilder(
        is_transactional=bool(given.byte() & 1), producer_id=1, producer_epoch=0, base_sequence=0
    )
    builder.append(0, b"", None)  # a batch cannot be empty
    parts = given.pieces()
    for index, key in enumerate(parts[::2]):
        value = parts[2 * index + 1] if 2 * index + 1 < len(parts) else None
        builder.append(0, key, value)
    return bytes(builder.build())


def run_coordinator_records(data: bytes) -> None:
    """Load any records as a partition of __consumer_offsets and of __transaction_state."""
    batch = _batch(data)
    groups = group_metadata_manager._LoadedGroups(0)
    transactions: dict[str, Any] = {}
    for each in MemoryRecords(batch).batches():
        for record in each.records():
            for apply in (groups.apply, partial(transaction_metadata._apply, transactions)):
                refusals = CorruptRecordError, RemoteProtocolError, UnsupportedVersionError
                outcome(partial(apply, each, record), *refusals)
    for group in (*groups.groups.values(), *transactions.values()):
        repr(group)


_KEYS_AND_VALUES = {
    "OffsetCommitKey": ("OffsetCommitValue", 1),
    "GroupMetadataKey": ("GroupMetadataValue", 2),
    "ConsumerGroupMetadataKey": ("ConsumerGroupMetadataValue", 3),
    "ConsumerGroupMemberMetadataKey": ("ConsumerGroupMemberMetadataValue", 5),
    "ConsumerGroupTargetAssignmentMetadataKey": ("ConsumerGroupTargetAssignmentMetadataValue", 6),
    "ConsumerGroupTargetAssignmentMemberKey": ("ConsumerGroupTargetAssignmentMemberValue", 7),
    "ConsumerGroupCurrentMemberAssignmentKey": ("ConsumerGroupCurrentMemberAssignmentValue", 8),
    "ConsumerGroupRegularExpressionKey": ("ConsumerGroupRegularExpressionValue", 16),
    "TransactionLogKey": ("TransactionLogValue", 0),
}


def _class_of(name: str) -> AnyMessage:
    found: AnyMessage = getattr(import_module(f"pykclient.protocol.messages.{snake(name)}"), name)
    return found


def _record(key_name: str, rng: Random) -> list[bytes]:
    value_name, type = _KEYS_AND_VALUES[key_name]
    key, value = _class_of(key_name), _class_of(value_name)
    version = rng.choice(range(value.VERSIONS[0], value.VERSIONS[1] + 1))
    return [
        number(type, 2) + written(random_message(key, key, 0, rng), 0),
        number(version, 2) + written(random_message(value, value, version, rng), version),
    ]


def coordinator_record_seeds(rng: Random) -> Iterator[bytes]:
    for name in _KEYS_AND_VALUES:
        for flags in range(2):
            yield number(flags) + pieces(*_record(name, rng), *_record(name, rng))
    everything = [part for name in _KEYS_AND_VALUES for part in _record(name, rng)]
    yield b"\0" + pieces(*everything)


# --- requests --------------------------------------------------------------------------------------------------------


class _Sink:
    """Collects what became of a request. Thread: owner."""

    def __init__(self) -> None:
        self.responses = 0
        self.closed = 0

    def send_response(self, request: Request, buffers: Any, throttle_time_ms: int) -> None:
        self.responses += 1

    def close_connection(self, request: Request) -> None:
        self.closed += 1


class Broker:
    """A cluster of one broker on virtual time. Thread: owner."""

    def __init__(self) -> None:
        self.clock = VirtualClock()
        self.loop = EventLoop(self.clock)
        self.cluster = Cluster(ClusterConfig(1, memory_limit_bytes=16 * 1024 * 1024), self.loop, Random(1))
        self.cluster.start()
        self.run(5_000)
        assert self.cluster.is_ready()
        (self.broker,) = self.cluster.brokers.values()
        new = CreateTopicsRequest.CreatableTopic
        topics = [new(name=name, num_partitions=2, replication_factor=1) for name in TOPICS]
        LocalRequest(self.broker, CreateTopicsRequest(topics=topics, timeout_ms=1000), lambda _: None)
        self.run(1_000)

    def run(self, duration_ms: int) -> None:
        """Let time pass."""
        end_ms = self.clock.time_ms + duration_ms
        while True:
            wait_ms = self.loop.run_due()
            if self.clock.time_ms + wait_ms > end_ms:
                self.clock.time_ms = end_ms
                return
            self.clock.time_ms += wait_ms

    def ask(self, frame: bytes) -> None:
        """Handle a frame as a processor does."""
        reader = Reader(frame)
        header = parse_request_header(reader)
        sink = _Sink()
        channel = self.broker.request_channel
        channel.send_request(
            Request(channel, sink, header, reader, "fuzz", f"client:{header.client_id}", "127.0.0.1", self.loop.now_ms)
        )
        self.run(100)
        assert sink.responses + sink.closed <= 1
        if self.loop.failure is not None:
            raise self.loop.failure


def run_broker(data: bytes) -> None:
    """Send an embedded broker any requests, one after the other."""
    broker = Broker()
    for frame in Input(data).pieces()[:8]:
        try:
            broker.ask(frame)
        except RemoteProtocolError:
            continue  # the header is broken: the processor closes the connection
    broker.run(60_000)
    if broker.loop.failure is not None:
        raise broker.loop.failure


def broker_seeds(rng: Random) -> Iterator[bytes]:
    frames = []
    for key in ApiKeys.client_apis():
        if handler(key) is None:
            continue
        cls = ApiKeys.message_class(key)
        for version in {ApiKeys.oldest_served_version(key), ApiKeys.latest_version(key)}:
            request: Any = random_message(cls, cls, version, rng)
            frames.append(encode_request(request, version, 7, "fuzz").getvalue()[4:])
            yield pieces(frames[-1])
    for _ in range(40):
        yield pieces(*rng.sample(frames, 4))


#: Structs of a few bytes become objects, and topics and groups have state.
_STATE = 2_000

TARGETS = [
    Target("groups", run_groups, group_seeds),
    Target("coordinator-records", run_coordinator_records, coordinator_record_seeds, 80),
    Target("broker", run_broker, broker_seeds, _STATE),
]
