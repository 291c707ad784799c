"""Modules and classes that programs import from kafka-python exist here under the same names."""

from __future__ import annotations

import importlib
import subprocess
import sys
from collections.abc import Iterator, Sequence
from typing import Any

import kafka
import kafka.partitioner
import pytest

import pykclient
from pykclient import KafkaAdminClient, KafkaConsumer, KafkaProducer, partitioner
from pykclient.config.producer_config import ProducerConfig
from pykclient.partitioner import RoundRobinPartitioner
from pykclient.producer.partitioner import resolve_partitioner
from pykclient.testing import EmbeddedCluster

NAMES = [
    ("consumer", "KafkaConsumer"),
    ("consumer.fetcher", "ConsumerRecord"),
    ("consumer.group", "KafkaConsumer"),
    ("consumer.subscription_state", "ConsumerRebalanceListener"),
    ("coordinator.assignors.range", "RangePartitionAssignor"),
    ("coordinator.assignors.cooperative_sticky", "CooperativeStickyAssignor"),
    ("coordinator.assignors.roundrobin", "RoundRobinPartitionAssignor"),
    ("coordinator.assignors.sticky.sticky_assignor", "StickyPartitionAssignor"),
    ("coordinator.base", "MemberState"),
    ("errors", "KafkaError"),
    ("errors", "NoBrokersAvailable"),
    ("partitioner", "DefaultPartitioner"),
    ("partitioner", "Partitioner"),
    ("partitioner", "StickyPartitioner"),
    ("partitioner", "murmur2"),
    ("partitioner.default", "DefaultPartitioner"),
    ("partitioner.default", "murmur2"),
    ("partitioner.hashed", "murmur2"),
    ("partitioner.roundrobin", "RoundRobinPartitioner"),
    ("partitioner.sticky", "StickyPartitioner"),
    ("producer", "KafkaProducer"),
    ("producer.future", "FutureRecordMetadata"),
    ("producer.future", "RecordMetadata"),
    ("producer.kafka", "KafkaProducer"),
    ("serializer", "JsonSerializer"),
    ("structs", "ConsumerGroupMetadata"),
    ("structs", "MemberState"),
    ("structs", "OffsetAndMetadata"),
    ("structs", "OffsetAndTimestamp"),
    ("structs", "TopicPartition"),
]

#: kafka-python 2 has these.
OLDER = {
    ("errors", "NoBrokersAvailable"),
    ("partitioner.hashed", "murmur2"),
    ("partitioner.roundrobin", "RoundRobinPartitioner"),
}


@pytest.mark.parametrize(("module", "name"), NAMES)
def test_names_are_where_kafka_python_has_them(module: str, name: str) -> None:
    if (module, name) not in OLDER:
        assert hasattr(importlib.import_module(f"kafka.{module}"), name)
    statement = f"from pykclient.{module} import {name}"  # in a process of its own, so that no other import helps
    subprocess.run([sys.executable, "-c", statement], check=True, timeout=60)


def test_clients_are_the_same_class_everywhere() -> None:
    for module in ("consumer", "consumer.group"):
        assert importlib.import_module(f"pykclient.{module}").KafkaConsumer is pykclient.KafkaConsumer
    for module in ("producer", "producer.kafka"):
        assert importlib.import_module(f"pykclient.{module}").KafkaProducer is pykclient.KafkaProducer
    with pytest.raises(ImportError):
        from pykclient.consumer import NoSuchName  # type: ignore[attr-defined] # noqa: F401


# --- configurations ---------------------------------------------------------------------------------------------------

CLIENTS = {
    "producer": (KafkaProducer, kafka.KafkaProducer),
    "consumer": (KafkaConsumer, kafka.KafkaConsumer),
    "admin": (KafkaAdminClient, kafka.KafkaAdminClient),
}
#: Keys whose values are objects of kafka-python itself.
THEIR_OBJECTS = {"default_offset_commit_callback", "kafka_client", "partitioner", "selector"}
#: Kafka's own keys, with Java's default.
JAVAS_DEFAULT = {"sasl_kerberos_service_name"}


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster() as made:
        yield made


@pytest.mark.parametrize("kind", CLIENTS)
def test_every_key_of_a_client_s_config_can_be_read(cluster: EmbeddedCluster, kind: str) -> None:
    our_class, their_class = CLIENTS[kind]
    ours, theirs = (each(bootstrap_servers=cluster.bootstrap_servers) for each in (our_class, their_class))
    try:
        unlike = {}
        for key, value in theirs.config.items():
            read = ours.config[key]  # raises KeyError if it is unknown
            if key not in THEIR_OBJECTS | JAVAS_DEFAULT and read is None and value is not None:
                unlike[key] = value
        assert unlike == {}
        assert ours.config["api_version"] >= (4, 0)
    finally:
        ours.close()
        theirs.close()


@pytest.mark.parametrize(
    ("given", "key", "value"),
    [
        ({"api_version": (2, 8)}, "api_version", (2, 8)),
        ({"sasl_plain_username": "ann"}, "sasl_plain_username", "ann"),
        ({"compression_type": "zstd"}, "compression_attrs", 4),
        ({}, "compression_attrs", 0),
        ({"metrics_enabled": False}, "metrics_enabled", False),
        ({"partitioner": RoundRobinPartitioner}, "partitioner", RoundRobinPartitioner),
    ],
)
def test_keys_of_kafka_python_have_the_given_value(given: dict[str, Any], key: str, value: object) -> None:
    config = ProducerConfig(bootstrap_servers="localhost:1", **given)
    assert config[key] == value
    assert config.get(key) == value


def test_unknown_key_is_a_key_error() -> None:
    with pytest.raises(KeyError, match=r"no\.such"):
        ProducerConfig(bootstrap_servers="localhost:1")["no_such"]


# --- partitioners -----------------------------------------------------------------------------------------------------


class Metadata:
    """Cluster metadata in the form of kafka-python's."""

    def __init__(self, partitions: Sequence[int], available: Sequence[int] = ()) -> None:
        self.everything, self.available = set(partitions), set(available)

    def topics(self) -> set[str]:
        return {"t"}

    def partitions_for_topic(self, topic: str) -> set[int]:
        return self.everything

    def available_partitions_for_topic(self, topic: str) -> set[int]:
        return self.available


def choose(chooser: Any, key: bytes | None, metadata: Metadata) -> int:
    number: int = chooser.partition("t", key, key, b"v", b"v", metadata)
    return number


@pytest.mark.parametrize("name", ["DefaultPartitioner", "StickyPartitioner"])
def test_keys_map_to_the_same_partitions_as_in_kafka_python(name: str) -> None:
    theirs, ours = getattr(kafka.partitioner, name)(), getattr(partitioner, name)()
    for count in (1, 3, 100):
        for number in range(50):
            key = b"key-%d" % number
            expected = choose(theirs, key, Metadata(range(count)))
            assert choose(ours, key, Metadata(range(count))) == expected
            assert ours(key, list(range(count)), []) == expected


@pytest.mark.parametrize("name", ["DefaultPartitioner", "StickyPartitioner"])
def test_records_without_key_go_to_available_partitions(name: str) -> None:
    ours = getattr(partitioner, name)()
    assert choose(ours, None, Metadata(range(10), [7])) == 7
    assert choose(getattr(partitioner, name)(), None, Metadata([4])) == 4
    assert ours(None, [1, 2], [2]) == 2
    with pytest.raises(ValueError, match="not found"):
        ours.partition("another", None, None, None, None, Metadata([1]))


def test_sticky_partitioner_keeps_partition_until_a_new_batch() -> None:
    ours, metadata = partitioner.StickyPartitioner(), Metadata(range(10), range(10))
    first = choose(ours, None, metadata)
    assert {choose(ours, None, metadata) for _ in range(20)} == {first}
    ours.on_new_batch("t", metadata, first + 1)
    assert choose(ours, None, metadata) == first
    ours.on_new_batch("t", metadata, first)
    assert choose(ours, None, metadata) != first


def test_round_robin_partitioner_cycles_through_partitions() -> None:
    ours = RoundRobinPartitioner()
    assert [ours(None, [0, 1, 2], []) for _ in range(4)] == [0, 1, 2, 0]
    assert [choose(ours, b"k", Metadata([0, 1, 2], [0, 2])) for _ in range(3)] == [0, 2, 0]
    assert [RoundRobinPartitioner([5, 6])() for _ in range(2)] == [5, 5]
    with pytest.raises(ValueError, match="no partitions"):
        ours()


class Called:
    """A partitioner called like a function."""

    def __call__(self, key: bytes | None, all_partitions: list[int], available: list[int]) -> int:
        return all_partitions[-1]


class CalledByName:
    """The same partitioner with only a method."""

    def partition(self, key: bytes | None, all_partitions: list[int], available: list[int]) -> int:
        return all_partitions[-1]


class CalledEitherWay(Called):
    """A partitioner with both, as in kafka-python 1."""

    def partition(self, key: bytes | None, all_partitions: Any = None, available: Any = None) -> int:
        return self(key, all_partitions, available)


class WithMetadata(partitioner.Partitioner):
    """A partitioner as in kafka-python 3, where partitions are numbers."""

    def partition(
        self, topic: str, key: Any, serialized_key: bytes | None, value: Any, serialized_value: Any, cluster: Any
    ) -> int:
        assert topic in cluster.topics()
        assert cluster.available_partitions_for_topic(topic) == {0, 1, 2}
        return len(cluster.partitions_for_topic(topic)) - 1


@pytest.mark.parametrize("kind", [Called, CalledByName, CalledEitherWay, WithMetadata, RoundRobinPartitioner])
def test_partitioners_of_every_kafka_python_version_work(kind: type, pykclient_cluster: EmbeddedCluster) -> None:
    cluster = pykclient_cluster
    cluster.create_topic("partitioned", partitions=3)
    for given in (kind, kind()):
        with KafkaProducer(bootstrap_servers=cluster.bootstrap_servers, partitioner=given) as producer:
            futures = [producer.send("partitioned", b"v", b"k") for _ in range(4)]
            chosen = [future.get(10).partition for future in futures]
        assert chosen == ([0, 1, 2, 0] if kind is RoundRobinPartitioner else [2, 2, 2, 2])


def test_partition_method_with_var_args_is_accepted() -> None:
    class Vague:
        def partition(self, *args: Any) -> int:
            return len(args)

    made = resolve_partitioner(Vague())
    assert made is not None
    assert made.partition("t", None, None, None, None, Metadata([])) == 6  # type: ignore[arg-type]


def test_max_usable_produce_magic_equals_kafka_python() -> None:
    versions = [(0, 9), (0, 10), (0, 10, 2), (0, 11), (2, 1), (4, 3)]
    assert [KafkaProducer.max_usable_produce_magic(version) for version in versions] == [
        kafka.KafkaProducer.max_usable_produce_magic(version) for version in versions
    ]
