"""Settings are described with their sources, altered on any broker, and applied by all brokers."""

from __future__ import annotations

import pytest

from pykclient.protocol.messages.alter_configs import AlterConfigsRequest, AlterConfigsResponse
from pykclient.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResponse
from pykclient.protocol.messages.incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from pykclient.protocol.messages.list_config_resources import ListConfigResourcesRequest, ListConfigResourcesResponse
from pykclient.testing.controller.config_manager import (
    APPEND,
    BROKER,
    BROKER_LOGGER,
    CLIENT_METRICS,
    DEFAULT_CONFIG,
    DELETE,
    DYNAMIC_DEFAULT_BROKER_CONFIG,
    GROUP,
    SET,
    STATIC_BROKER_CONFIG,
    SUBTRACT,
    TOPIC,
    TOPIC_CONFIG,
    UNKNOWN,
)
from pykclient.testing.coordination.coordination_client import MAX_CONFIG_CHANGES
from pykclient.testing.coordination.znodes import CONFIG_CHANGES, topic_config_path
from pykclient.types import TopicPartition
from tests.testing.controller.harness import ClusterHarness

Entry = DescribeConfigsResponse.DescribeConfigsResourceResult


@pytest.fixture
def cluster() -> ClusterHarness:
    cluster = ClusterHarness(3, min_insync_replicas=2)
    cluster.create_topic("t", 1, 3, retention_ms="1000")
    return cluster


def describe(
    cluster: ClusterHarness,
    type: int,
    name: str,
    *keys: str,
    broker_id: int = 2,
    version: int = 4,
    synonyms: bool = True,
    documentation: bool = False,
) -> DescribeConfigsResponse.DescribeConfigsResult:
    request = DescribeConfigsRequest(
        resources=[
            DescribeConfigsRequest.DescribeConfigsResource(
                resource_type=type, resource_name=name, configuration_keys=keys or None
            )
        ],
        include_synonyms=synonyms,
        include_documentation=documentation,
    )
    (result,) = cluster.ask(request, DescribeConfigsResponse, broker_id, version).results
    assert (result.resource_type, result.resource_name) == (type, name)
    return result


def entries(result: DescribeConfigsResponse.DescribeConfigsResult) -> dict[str, Entry]:
    assert result.error_code == 0, result
    return {entry.name: entry for entry in result.configs}


def incrementally(
    cluster: ClusterHarness,
    *changes: tuple[str, int, str | None],
    name: str = "t",
    type: int = TOPIC,
    broker_id: int | None = None,
    validate_only: bool = False,
) -> tuple[int, str]:
    request = IncrementalAlterConfigsRequest(
        resources=[
            IncrementalAlterConfigsRequest.AlterConfigsResource(
                resource_type=type,
                resource_name=name,
                configs=[
                    IncrementalAlterConfigsRequest.AlterableConfig(name=key, config_operation=operation, value=value)
                    for key, operation, value in changes
                ],
            )
        ],
        validate_only=validate_only,
    )
    (result,) = cluster.ask(request, IncrementalAlterConfigsResponse, broker_id).responses
    cluster.run_for()
    return result.error_code, result.error_message or ""


@pytest.mark.parametrize("version", range(1, 5))
def test_topic_configs_are_described_with_sources(cluster: ClusterHarness, version: int) -> None:
    documentation = version >= 3
    found = entries(describe(cluster, TOPIC, "t", version=version, documentation=documentation))
    retention, replicas, policy = found["retention.ms"], found["min.insync.replicas"], found["cleanup.policy"]
    assert (retention.value, retention.config_source, retention.read_only) == ("1000", TOPIC_CONFIG, False)
    assert (replicas.value, replicas.config_source) == ("2", DYNAMIC_DEFAULT_BROKER_CONFIG)
    assert (policy.value, policy.config_source) == ("delete", DEFAULT_CONFIG)
    assert [(synonym.name, synonym.value, synonym.source) for synonym in retention.synonyms] == [
        ("retention.ms", "1000", TOPIC_CONFIG),
        ("log.retention.ms", "604800000", DEFAULT_CONFIG),
    ]
    assert [(synonym.value, synonym.source) for synonym in replicas.synonyms] == [
        ("2", DYNAMIC_DEFAULT_BROKER_CONFIG),
        ("2", STATIC_BROKER_CONFIG),
        ("1", DEFAULT_CONFIG),
    ]
    assert (retention.config_type, policy.config_type) == ((5, 7) if version >= 3 else (0, 0))
    assert bool(retention.documentation) == documentation
    assert not any(name.startswith("internal.") for name in found)


def test_only_requested_configs_are_described(cluster: ClusterHarness) -> None:
    found = entries(describe(cluster, TOPIC, "t", "retention.ms", "no.such", synonyms=False))
    assert list(found) == ["retention.ms"]
    assert found["retention.ms"].synonyms == []


def test_broker_describes_its_own_configs(cluster: ClusterHarness) -> None:
    found = entries(describe(cluster, BROKER, "2"))
    assert (found["min.insync.replicas"].value, found["min.insync.replicas"].config_source) == (
        "2",
        DYNAMIC_DEFAULT_BROKER_CONFIG,
    )
    assert (found["num.partitions"].config_source, found["num.partitions"].read_only) == (DEFAULT_CONFIG, True)
    assert found["auto.create.topics.enable"].value == "true"
    assert (
        describe(cluster, BROKER, "3").error_message
        == "Unexpected broker id, expected 2 or empty string, but received 3"
    )
    assert describe(cluster, BROKER, "x").error_message == "Broker id must be an integer, but it is: x"
    for type in (BROKER_LOGGER, CLIENT_METRICS):
        assert entries(describe(cluster, type, "2")) == {}
    (of_all,) = entries(describe(cluster, BROKER, "")).values()
    assert (of_all.name, of_all.value, len(of_all.synonyms)) == ("min.insync.replicas", "2", 1)


def test_group_configs_are_altered_and_described(cluster: ClusterHarness) -> None:
    name = "share.delivery.count.limit"
    assert incrementally(cluster, (name, SET, "3"), type=GROUP, name="a/b") == (0, "")
    found = entries(describe(cluster, GROUP, "a/b"))
    assert (found[name].value, [synonym.name for synonym in found[name].synonyms]) == ("3", [name, f"group.{name}"])
    assert entries(describe(cluster, GROUP, "other"))[name].value == "5"
    assert incrementally(cluster, (name, SET, "none"), type=GROUP, name="a/b")[0] == 40
    assert incrementally(cluster, ("share.auto.offset.reset", SET, "by_duration:1h"), type=GROUP)[0] == 40
    assert incrementally(cluster, (name, DELETE, None), type=GROUP, name="a/b") == (0, "")
    assert entries(describe(cluster, GROUP, "a/b"))[name].value == "5"


def test_describing_configs_of_invalid_resources_fails(cluster: ClusterHarness) -> None:
    codes = [describe(cluster, type, name).error_code for type, name in ((TOPIC, "no"), (TOPIC, "a b"), (UNKNOWN, "t"))]
    assert codes == [3, 17, 42]


def test_changed_configs_apply_on_all_brokers_at_once(cluster: ClusterHarness) -> None:
    assert incrementally(cluster, ("max.message.bytes", SET, "777"), ("retention.ms", DELETE, None)) == (0, "")
    for broker in cluster.cluster.alive_brokers():
        found = entries(describe(cluster, TOPIC, "t", broker_id=broker.id))
        assert (found["max.message.bytes"].value, found["retention.ms"].value) == ("777", "604800000")
        log = broker.log_manager.get_log(TopicPartition("t", 0))
        assert log is not None
        assert (log.config.max_message_size, log.config.retention_ms) == (777, 604_800_000)


def test_disconnected_broker_gets_config_changes_later(cluster: ClusterHarness) -> None:
    broker = cluster.broker(cluster.others()[0])
    links = cluster.cluster.faults.links
    links.set(broker.party, "coordination", cut=True)
    incrementally(cluster, ("max.message.bytes", SET, "777"))
    log = broker.log_manager.get_log(TopicPartition("t", 0))
    assert log is not None
    assert log.config.max_message_size != 777
    links.heal()
    cluster.run_for()
    assert log.config.max_message_size == 777
    # This also works after the broker lost a session and its watches.
    broker.coordination.expire()
    cluster.run_until(cluster.cluster.is_ready, "it is back")
    incrementally(cluster, ("max.message.bytes", SET, "888"))
    cluster.run_until(lambda: log.config.max_message_size == 888, "it has heard")


def test_old_config_changes_are_deleted(cluster: ClusterHarness) -> None:
    for size in range(1, 2 * MAX_CONFIG_CHANGES):
        cluster.controller.store.set_config(topic_config_path("t"), {"max.message.bytes": str(size)})
        cluster.run_for()
    assert len(cluster.cluster.coordination.get_children(CONFIG_CHANGES)) <= MAX_CONFIG_CHANGES
    for broker in cluster.cluster.alive_brokers():
        log = broker.log_manager.get_log(TopicPartition("t", 0))
        assert log is not None
        assert log.config.max_message_size == 2 * MAX_CONFIG_CHANGES - 1


def test_list_configs_support_append_and_subtract(cluster: ClusterHarness) -> None:
    assert incrementally(cluster, ("cleanup.policy", APPEND, "compact")) == (0, "")
    assert cluster.controller.store.topic_config("t")["cleanup.policy"] == "delete,compact"
    assert incrementally(cluster, ("cleanup.policy", APPEND, "compact")) == (0, "")
    assert incrementally(cluster, ("cleanup.policy", SUBTRACT, "delete")) == (0, "")
    assert cluster.controller.store.topic_config("t")["cleanup.policy"] == "compact"
    for operation in (APPEND, SUBTRACT):
        code, message = incrementally(cluster, ("retention.ms", operation, "1"))
        assert code == 40
        assert "because its type is not LIST" in message


def test_validate_only_changes_no_config(cluster: ClusterHarness) -> None:
    assert incrementally(cluster, ("max.message.bytes", SET, "777"), validate_only=True) == (0, "")
    assert "max.message.bytes" not in cluster.controller.store.topic_config("t")


def test_wrong_config_changes_are_refused(cluster: ClusterHarness) -> None:
    assert incrementally(cluster, ("no.such", SET, "1")) == (40, "Unknown topic config name: no.such")
    assert incrementally(cluster, ("retention.ms", SET, "soon"))[0] == 40
    assert incrementally(cluster, ("retention.ms", SET, None))[0] == 42
    assert incrementally(cluster, ("retention.ms", 9, "1"))[0] == 42
    assert incrementally(cluster, ("retention.ms", SET, "1"), ("retention.ms", SET, "2"))[0] == 42
    assert incrementally(cluster, ("retention.ms", SET, "1"), name="no") == (3, "The topic 'no' does not exist.")
    assert incrementally(cluster, ("x", SET, "1"), type=GROUP) == (40, "Unknown group config name: x")
    assert incrementally(cluster, ("num.partitions", SET, "1"), type=BROKER, name="1") == (
        42,
        "Cannot update these configs dynamically: [num.partitions]",
    )
    assert incrementally(cluster, type=BROKER, name="9")[0] == 42
    assert cluster.controller.store.topic_config("t") == {"retention.ms": "1000"}


@pytest.mark.parametrize("version", range(3))
def test_alter_configs_replaces_all_configs(cluster: ClusterHarness, version: int) -> None:
    request = AlterConfigsRequest(
        resources=[
            AlterConfigsRequest.AlterConfigsResource(
                resource_type=TOPIC,
                resource_name="t",
                configs=[AlterConfigsRequest.AlterableConfig(name="max.message.bytes", value="777")],
            )
        ]
    )
    (result,) = cluster.ask(request, AlterConfigsResponse, version=version).responses
    assert (result.error_code, result.resource_name) == (0, "t")
    assert cluster.controller.store.topic_config("t") == {"max.message.bytes": "777"}


def test_brokers_that_are_not_the_controller_alter_configs(cluster: ClusterHarness) -> None:
    other = cluster.others()[0]
    assert incrementally(cluster, ("retention.ms", SET, "1"), broker_id=other) == (0, "")
    assert cluster.controller.store.topic_config("t") == {"retention.ms": "1"}


def test_config_resources_are_listed_by_type(cluster: ClusterHarness) -> None:
    def ask(*types: int, version: int = 1) -> list[tuple[int, str]]:
        request = ListConfigResourcesRequest(resource_types=types)
        response = cluster.ask(request, ListConfigResourcesResponse, 2, version)
        assert response.error_code == 0
        return [(resource.resource_type, resource.resource_name) for resource in response.config_resources]

    assert ask(TOPIC) == [(TOPIC, "t")]
    assert ask(BROKER) == [(BROKER, "1"), (BROKER, "2"), (BROKER, "3")]
    assert len(ask()) == 7
    assert ask(version=0) == []
    request = ListConfigResourcesRequest(resource_types=[99])
    assert cluster.ask(request, ListConfigResourcesResponse, 2).error_code == 35
