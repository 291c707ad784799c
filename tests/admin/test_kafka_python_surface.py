"""Programs for kafka-python's admin client run unchanged: the same names, arguments and values."""

from __future__ import annotations

import inspect
import pickle
import re
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator
from enum import Enum
from typing import Any

import kafka.admin
import kafka.errors
import pytest

import pykclient.admin
from pykclient import errors
from pykclient.admin import KafkaAdminClient, NewPartitions, NewTopic
from pykclient.errors import IllegalArgumentError, KafkaError
from tests.admin.harness import as_kafka_python
from tests.support.embedded_kafka import EmbeddedKafka

METHODS = [
    name
    for name in dir(kafka.admin.KafkaAdminClient)
    if not name.startswith("_") and callable(getattr(kafka.admin.KafkaAdminClient, name))
]
CLASSES = [name for name in kafka.admin.__all__ if name != "KafkaAdminClient"] + ["NewTopic", "NewPartitions"]


def parameters(of: Any) -> list[tuple[str, Any]]:
    return [(name, parameter.default) for name, parameter in inspect.signature(of).parameters.items()]


@pytest.mark.parametrize("name", METHODS)
def test_a_method_has_the_same_parameters(name: str) -> None:
    theirs, ours = getattr(kafka.admin.KafkaAdminClient, name), getattr(KafkaAdminClient, name)
    assert [(key, getattr(default, "value", default)) for key, default in parameters(ours)] == [
        (key, getattr(default, "value", default)) for key, default in parameters(theirs)
    ]


@pytest.mark.parametrize("name", CLASSES)
def test_class_has_members_of_kafka_python(name: str) -> None:
    theirs, ours = getattr(kafka.admin, name), getattr(pykclient.admin, name)
    if issubclass(theirs, Enum):
        values = {member.name: member.value for member in ours}
        assert {member.name: member.value for member in theirs}.items() <= values.items()
    elif name != "OffsetTimestamp":
        wanted = [(key, getattr(default, "value", default)) for key, default in parameters(theirs)]
        assert [(key, getattr(default, "value", default)) for key, default in parameters(ours)] == wanted


def test_names_are_loaded_on_first_use() -> None:
    code = (
        "import sys, pykclient.admin; assert 'enum' not in sys.modules or 'pykclient.admin.values' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
    for name in vars(pykclient.admin)["__all__"]:
        assert getattr(pykclient.admin, name).__name__ == name
    assert set(vars(pykclient.admin)["__all__"]) <= set(dir(pykclient.admin))
    with pytest.raises(AttributeError):
        pykclient.admin.Nothing  # type: ignore[attr-defined] # noqa: B018


# --- the same calls on the same cluster ---


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedKafka]:
    with EmbeddedKafka(brokers=3) as made:
        yield made


@pytest.fixture(scope="module")
def both(cluster: EmbeddedKafka) -> Iterator[tuple[Any, Any]]:
    """kafka-python's client and ours."""
    theirs = kafka.admin.KafkaAdminClient(bootstrap_servers=cluster.bootstrap_servers)
    with KafkaAdminClient(bootstrap_servers=cluster.bootstrap_servers) as ours:
        yield theirs, ours
    theirs.close()


def without(value: Any, *names: str) -> Any:
    """Return a value without some keys of its dicts."""
    if isinstance(value, dict):
        return {key: without(item, *names) for key, item in value.items() if key not in names}
    return [without(item, *names) for item in value] if isinstance(value, list) else value


def without_times(response: dict[str, Any]) -> dict[str, Any]:
    """Return a response whose errors do not tell how long the broker took; ours do from 50 ms on."""
    for topic in response["topics"]:
        if topic["error_message"] is not None:
            topic["error_message"] = re.sub(r"\.?( The broker took .*)?$", "", topic["error_message"])
    return response


def test_topic_calls_return_what_kafka_python_returns(both: tuple[Any, Any]) -> None:
    seen = []
    for admin in both:
        made = admin.create_topics(
            {"orders": {"num_partitions": 2, "replication_factor": 3, "configs": {"retention.ms": "60000"}}},
            wait_for_metadata=True,
        )
        again = admin.create_topics(["orders"], raise_errors=False)
        described = admin.describe_topics(["orders", "nothing"])
        by_id = admin.describe_topics()
        grown = admin.create_partitions({"orders": 4})
        deleted = admin.delete_topics(["orders", "nothing"], raise_errors=False)
        seen.append(
            [
                without(made, "topic_id"),
                without_times(again),
                without(described, "topic_id", "leader_id", "replica_nodes", "isr_nodes", "leader_epoch"),
                without(by_id, "topic_id", "leader_id", "replica_nodes", "isr_nodes", "leader_epoch"),
                [(result.name, result.error_code) for result in grown.results],
                without(without_times(deleted), "topic_id"),
                admin.list_topics(),
            ]
        )
    theirs, ours = seen
    assert ours == theirs


def test_topics_accept_old_classes_and_ids(both: tuple[Any, Any]) -> None:
    _, ours = both
    ours.create_topics([NewTopic("old", 1, 2, topic_configs={"cleanup.policy": "compact"})])
    assert ours.create_topics(["trial"], validate_only=True)["topics"][0]["num_partitions"] > 0
    ours.create_partitions({"old": NewPartitions(3, [[1, 2], [2, 3]])})
    (topic,) = ours.describe_topics(["old"])
    assert [partition["replica_nodes"] for partition in topic["partitions"]][1:] == [[1, 2], [2, 3]]
    topic_id = uuid.UUID(topic["topic_id"])
    assert ours.describe_topics([topic_id])[0]["name"] == "old"
    assert ours.delete_topics([topic_id])["topics"][0]["error_code"] == 0
    assert ours.list_topics() == []


def test_response_fields_can_be_read_by_index(both: tuple[Any, Any]) -> None:
    seen = []
    for number, admin in enumerate(both):
        name = f"places-{number}"
        admin.create_topics([name], wait_for_metadata=True)
        (grown,) = admin.create_partitions({name: 2}).results
        (elected,) = admin.elect_leaders(0, {name: [0, 1]}).replica_election_results
        seen.append([grown[0] == name, grown[1], elected[0] == name, sorted((each[0], each[1]) for each in elected[1])])
        with pytest.raises(IndexError):
            elected[9]
        admin.delete_topics([name])
    theirs, ours = seen
    assert ours == theirs == [True, 0, True, [(0, 84), (1, 84)]]


def test_raise_errors_false_returns_errors(both: tuple[Any, Any]) -> None:
    theirs, ours = both
    ours.create_topics(["there"], wait_for_metadata=True)
    calls: list[Callable[[Any], Any]] = [
        lambda admin: admin.create_topics(["there"]),
        lambda admin: admin.create_topics({"bad/name": {}}),
        lambda admin: admin.delete_topics(["nothing"]),
        lambda admin: admin.create_partitions({"there": 1}),
        lambda admin: admin.create_topics({"many": {"replication_factor": 9}}),
    ]
    for call in calls:
        with pytest.raises(kafka.errors.KafkaError) as their_error:
            call(theirs)
        with pytest.raises(KafkaError) as our_error:
            call(ours)
        assert our_error.value.errno == their_error.value.errno  # type: ignore[attr-defined]
    ours.delete_topics(["there"])


def test_waiting_for_topics_times_out(both: tuple[Any, Any]) -> None:
    _, ours = both
    ours.wait_for_topics([])
    with pytest.raises(errors.KafkaTimeoutError, match="'nothing' does not exist"):
        ours.wait_for_topics(["nothing"], timeout_ms=50)
    with pytest.raises(IllegalArgumentError):
        ours.create_topics(["a"], validate_only=True, wait_for_metadata=True)


def test_error_explains_address_passed_as_settings() -> None:
    with pytest.raises(IllegalArgumentError, match="bootstrap_servers="):
        KafkaAdminClient("localhost:9092")  # type: ignore[arg-type]
    with pytest.raises(errors.ConfigError):
        KafkaAdminClient(bootstrap_servers="localhost:9092", no_such_key=1)  # type: ignore[call-arg]


def test_a_client_shows_its_name_and_cannot_be_pickled() -> None:
    admin, _ = as_kafka_python(lambda _node, _request: None)
    with admin:
        assert "adminclient-" in repr(admin)
        assert admin.config["client.id"] == ""
        with pytest.raises(TypeError, match="cannot be pickled"):
            pickle.dumps(admin)
        with admin.typed as typed:
            assert typed.config is admin.config
    with pytest.raises(errors.IllegalStateError):
        admin.list_topics()


@pytest.mark.filterwarnings("ignore:.*has no effect")
def test_defaults_of_kafka_python_are_accepted() -> None:
    defaults = dict(kafka.admin.KafkaAdminClient.DEFAULT_CONFIG)
    del defaults["kafka_client"]  # a class of kafka-python
    KafkaAdminClient(**{**defaults, "bootstrap_servers": "localhost:1"}).close()
