"""Hashes compared with Java and librdkafka, and each partitioner's use of them."""

from __future__ import annotations

import random
import struct
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, strategies as st

from pykclient.errors import ConfigError, IllegalArgumentError
from pykclient.network.metadata import Cluster
from pykclient.producer.batch_register import BuiltInPartitioner
from pykclient.producer.partitioner import CallablePartitioner, Partitioner, resolve_partitioner
from pykclient.producer.partitioner.hashing import POSITIVE, fnv1a, murmur2, murmur2_cached
from pykclient.producer.partitioner.partitioners import (
    RandomPartitioner,
    RoundRobinPartitioner,
    UniformStickyPartitioner,
)
from pykclient.types import Node, PartitionInfo
from tests.support.java import run_java

TOPIC = "orders"
BATCH_SIZE = 100


def cluster(partitions: int, without_leader: tuple[int, ...] = ()) -> Cluster:
    node = Node(0, "host", 9092)
    infos = [
        PartitionInfo(TOPIC, index, None if index in without_leader else node, (node,), (node,))
        for index in range(partitions)
    ]
    return Cluster("id", [node], infos)


def keys(count: int) -> list[bytes]:
    rng = random.Random(7)
    return [rng.randbytes(size) for size in range(40)] + [rng.randbytes(rng.randrange(500)) for _ in range(count)]


@pytest.mark.java
def test_murmur2_equals_java() -> None:
    data = keys(500)
    stdin = struct.pack(">i", len(data)) + b"".join(struct.pack(">i", len(key)) + key for key in data)
    output = run_java(Path(__file__).parent / "java" / "Murmur2Oracle.java", stdin=stdin)
    assert [int(line) & 0xFFFFFFFF for line in output.split()] == [murmur2(key) for key in data]


@given(st.binary(max_size=64))
def test_cached_hash_equals_computed_hash(key: bytes) -> None:
    assert murmur2_cached(key) == murmur2(key)


@pytest.mark.parametrize(
    "name", ["consistent", "consistent_random", "murmur2", "murmur2_random", "fnv1a", "fnv1a_random"]
)
def test_hashing_partitioners_equal_librdkafka(name: str) -> None:
    """The partitions equal those of librdkafka on its own mock brokers, whose topics have 4 partitions."""
    from confluent_kafka import Producer

    theirs: dict[bytes, int] = {}

    def note(_error: Any, message: Any) -> None:
        theirs[message.key()] = message.partition()

    producer = Producer({"test.mock.num.brokers": 1, "partitioner": name, "log_level": 0})
    for key in keys(60):
        if key:
            producer.produce(TOPIC, value=b"", key=key, on_delivery=note)
    assert producer.flush(30) == 0
    partitions = producer.list_topics(TOPIC, timeout=10).topics[TOPIC].partitions
    ours = resolve_partitioner(name)
    assert ours is not None
    shape = cluster(len(partitions))
    assert theirs == {key: ours.partition(TOPIC, key, key, None, None, shape) for key in theirs}
    assert len(set(theirs.values())) > 1


def test_fnv1a_hash_is_never_negative() -> None:
    assert all(0 <= fnv1a(key) <= 1 << 31 for key in keys(100))


@pytest.mark.parametrize(
    ("name", "for_none", "for_empty"),
    [
        ("consistent", 0, 0),
        ("consistent_random", None, None),
        ("murmur2", (murmur2(b"") & POSITIVE) % 5, (murmur2(b"") & POSITIVE) % 5),
        ("murmur2_random", None, (murmur2(b"") & POSITIVE) % 5),
        ("murmur3", None, 0),
    ],
)
def test_records_without_key_go_to_expected_partition(name: str, for_none: int | None, for_empty: int | None) -> None:
    partitioner = resolve_partitioner(name)
    assert partitioner is not None
    assert partitioner.partition(TOPIC, None, None, None, None, cluster(5)) == for_none
    assert partitioner.partition(TOPIC, b"", b"", None, None, cluster(5)) == for_empty


def test_murmur3_spreads_keys() -> None:
    partitioner = resolve_partitioner("murmur3")
    assert partitioner is not None
    chosen = Counter(partitioner.partition(TOPIC, None, b"key-%d" % n, None, None, cluster(4)) for n in range(4000))
    assert min(chosen.values()) > 850


# --- round robin, sticky, one's own ----------------------------------------------------------------------------------


def test_round_robin_visits_partitions_with_a_leader_in_turn() -> None:
    partitioner = RoundRobinPartitioner()
    shape = cluster(3, without_leader=(1,))
    assert [partitioner.partition(TOPIC, b"k", b"k", None, None, shape) for _ in range(4)] == [0, 2, 0, 2]


def test_round_robin_uses_all_partitions_without_leaders() -> None:
    partitioner = RoundRobinPartitioner()
    shape = cluster(2, without_leader=(0, 1))
    assert [partitioner.partition(TOPIC, None, None, None, None, shape) for _ in range(3)] == [0, 1, 0]


def test_uniform_sticky_changes_partition_with_each_batch_only() -> None:
    partitioner = UniformStickyPartitioner(random.Random(1))
    shape = cluster(3)
    first = partitioner.partition(TOPIC, b"a", b"a", None, None, shape)
    assert first is not None
    assert {partitioner.partition(TOPIC, b"b", b"b", None, None, shape) for _ in range(10)} == {first}
    partitioner.on_new_batch(TOPIC, shape, first)
    second = partitioner.partition(TOPIC, None, None, None, None, shape)
    assert second != first
    partitioner.on_new_batch(TOPIC, shape, first)  # another thread's call, which comes late
    assert partitioner.partition(TOPIC, None, None, None, None, shape) == second


def test_a_callable_gets_kafka_pythons_arguments() -> None:
    seen: list[Any] = []

    def choose(key: bytes | None, everything: list[int], available: list[int]) -> int:
        seen.append((key, everything, available))
        return available[-1]

    partitioner = resolve_partitioner(choose)
    assert isinstance(partitioner, CallablePartitioner)
    assert partitioner.partition(TOPIC, "k", b"k", None, None, cluster(3, without_leader=(0,))) == 2
    assert seen == [(b"k", [0, 1, 2], [1, 2])]


class First(Partitioner):
    def partition(self, *_: Any) -> int:
        return 0


@pytest.mark.parametrize("value", [First, First(), f"{__name__}.First"])
def test_own_partitioner_can_be_object_class_or_name(value: object) -> None:
    partitioner = resolve_partitioner(value)
    assert partitioner is not None
    assert partitioner.partition(TOPIC, None, None, None, None, cluster(1)) == 0


@pytest.mark.parametrize(
    "value", [None, "default", "DefaultPartitioner", "org.apache.kafka.clients.producer.internals.DefaultPartitioner"]
)
def test_names_of_default_partitioner_resolve_to_none(value: object) -> None:
    assert resolve_partitioner(value) is None


def test_javas_class_names_are_known() -> None:
    name = "org.apache.kafka.clients.producer.RoundRobinPartitioner"
    assert isinstance(resolve_partitioner(name), RoundRobinPartitioner)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("nonsense", "use one of"),
        ("no.such.module", "cannot load"),
        (f"{__name__}.Missing", "cannot load"),
        (7, "neither callable"),
    ],
)
def test_invalid_partitioners_are_refused(value: object, text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        resolve_partitioner(value)


# --- the built-in one (Java: BuiltInPartitionerTest) ------------------------------------------------------------------


def built_in() -> BuiltInPartitioner:
    return BuiltInPartitioner(TOPIC, BATCH_SIZE, random.Random(3))


def test_sticky_partition_changes_after_a_batch() -> None:
    partitioner, shape = built_in(), cluster(3)
    info = partitioner.peek_current_partition_info(shape)
    partitioner.update_partition_info(info, BATCH_SIZE - 1, shape)
    assert partitioner.sticky is info
    partitioner.update_partition_info(info, 1, shape)
    assert partitioner.sticky is not info


def test_open_batch_delays_switch_up_to_twice_batch_size() -> None:
    partitioner, shape = built_in(), cluster(3)
    info = partitioner.peek_current_partition_info(shape)
    partitioner.update_partition_info(info, 2 * BATCH_SIZE - 1, shape, enable_switch=False)
    assert partitioner.sticky is info
    partitioner.update_partition_info(info, 1, shape, enable_switch=False)
    assert partitioner.sticky is not info


def test_partitions_without_a_leader_are_avoided() -> None:
    partitioner = built_in()
    assert {partitioner.next_partition(cluster(3, without_leader=(1,))) for _ in range(200)} == {0, 2}
    assert {partitioner.next_partition(cluster(2, without_leader=(0, 1))) for _ in range(200)} == {0, 1}


def test_long_queues_get_fewer_records() -> None:
    partitioner, shape = built_in(), cluster(3)
    partitioner.update_partition_load_stats([0, 3, 1], [0, 1, 2], 3)
    assert partitioner.load_stats is not None
    assert partitioner.load_stats.sums == [4, 5, 8]
    chosen = Counter(partitioner.next_partition(shape) for _ in range(8000))
    assert chosen[0] == pytest.approx(4000, rel=0.1)
    assert chosen[1] == pytest.approx(1000, rel=0.2)
    assert chosen[2] == pytest.approx(3000, rel=0.1)


def test_partition_of_slow_broker_is_skipped() -> None:
    partitioner, shape = built_in(), cluster(3)
    partitioner.update_partition_load_stats([2, 2], [0, 2], 3)
    assert {partitioner.next_partition(shape) for _ in range(200)} == {0, 2}


@pytest.mark.parametrize(("sizes", "count"), [(None, 3), ([], 3), ([1], 1), ([4, 4, 4], 3)])
def test_load_stats_are_dropped_without_differences(sizes: list[int] | None, count: int) -> None:
    partitioner = built_in()
    partitioner.update_partition_load_stats(sizes, list(range(len(sizes or ()))), count)
    assert partitioner.load_stats is None


@given(st.lists(st.integers(0, 50), min_size=2, max_size=20))
def test_every_partition_may_be_chosen(sizes: list[int]) -> None:
    partitioner = built_in()
    partitioner.update_partition_load_stats(list(sizes), list(range(len(sizes))), len(sizes))
    if partitioner.load_stats is not None:
        sums = partitioner.load_stats.sums
        weights = [after - before for before, after in zip([0, *sums], sums, strict=False)]
        assert min(weights) >= 1
        assert [max(sizes) + 1 - size for size in sizes] == weights


def test_the_batch_size_must_be_positive() -> None:
    with pytest.raises(IllegalArgumentError):
        BuiltInPartitioner(TOPIC, 0)


def test_random_partitioner_chooses_partitions_with_leader() -> None:
    partitioner = RandomPartitioner(random.Random(1))
    some = {partitioner.partition(TOPIC, None, None, b"", b"", cluster(4, without_leader=(2,))) for _ in range(100)}
    assert some == {0, 1, 3}
    none = {partitioner.partition(TOPIC, None, None, b"", b"", cluster(2, without_leader=(0, 1))) for _ in range(100)}
    assert none == {0, 1}
