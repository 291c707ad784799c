"""A user who may not do something gets the matching error, where the user is, on any kind of cluster."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from pykclient import KafkaConsumer, KafkaProducer, TopicPartition, errors
from pykclient.admin import (
    ACLFilter,
    ACLOperation,
    ACLPermissionType,
    ACLResourcePatternType,
    Admin,
    ConfigResource,
    ConfigResourceType,
    ResourcePatternFilter,
    ResourceType,
)
from pykclient.structs import OffsetAndMetadata
from pykclient.testing import Acl, EmbeddedCluster, Security
from tests.security import guarded as clusters
from tests.security.guarded import Guarded
from tests.support.any_kafka import EMBEDDED, REAL
from tests.support.wait import eventually

EVERYTHING = ACLFilter(
    None,
    None,
    ACLOperation.ANY,
    ACLPermissionType.ANY,
    ResourcePatternFilter(ResourceType.ANY, None, ACLResourcePatternType.ANY),
)


@pytest.fixture(scope="module", params=[EMBEDDED, REAL])
def server(request: pytest.FixtureRequest) -> Iterator[Guarded]:
    with clusters.embedded() if request.param == "embedded" else clusters.real() as found:
        yield found


@pytest.fixture
def guarded(server: Guarded) -> Iterator[Guarded]:
    """A cluster without ACLs."""
    yield server
    server.disallow_all()


@pytest.fixture
def given(guarded: Guarded, topic: str) -> str:
    """A topic that exists, with one record."""
    guarded.admin.create_topics([topic]).all()
    with KafkaProducer(**guarded.config("admin")) as producer:
        producer.send(topic, b"secret").get(20)
    return topic


def denied(kind: type[errors.AuthorizationError], call: Callable[[], Any], *words: str) -> None:
    """Check that a call fails with an error that has certain words, and not by a timeout."""
    with pytest.raises(kind) as caught:
        call()
    for word in (*words, "User:bob"):
        assert word in str(caught.value)


def poll_until_error(consumer: KafkaConsumer[Any, Any]) -> None:
    for _ in range(20):
        consumer.poll(timeout_ms=500)


# --- producers -------------------------------------------------------------------------------------------------------


def test_send_reports_topic_without_describe_permission(guarded: Guarded, given: str) -> None:
    """send() reports a topic whose metadata is denied; existing and missing topics look the same."""
    with KafkaProducer(**guarded.config("bob")) as producer:
        denied(errors.TopicAuthorizationError, lambda: producer.send(given, b"").get(20), given)
        missing = f"{given}-missing"
        denied(errors.TopicAuthorizationError, lambda: producer.send(missing, b"").get(20), missing)


def test_send_reports_topic_without_write_permission(guarded: Guarded, given: str) -> None:
    """The record's future has the error of a topic that may be seen only."""
    guarded.allow("DESCRIBE", "TOPIC", given)
    with KafkaProducer(**guarded.config("bob"), enable_idempotence=False) as producer:
        denied(errors.TopicAuthorizationError, lambda: producer.send(given, b"").get(20), given, "WRITE")


def test_idempotence_needs_a_topic_that_may_be_written(guarded: Guarded, given: str) -> None:
    """A producer gets no producer id without WRITE on any topic, and fails with the cluster's error."""
    guarded.allow("DESCRIBE", "TOPIC", given)
    with KafkaProducer(**guarded.config("bob")) as producer:
        denied(errors.ClusterAuthorizationError, lambda: producer.send(given, b"").get(20), "WRITE")
    guarded.allow("WRITE", "TOPIC", given)
    with KafkaProducer(**guarded.config("bob")) as producer:
        producer.send(given, b"").get(20)


def test_a_denied_topic_does_not_affect_others(guarded: Guarded, given: str) -> None:
    """An idempotent producer goes on with its other topics."""
    guarded.allow("DESCRIBE", "TOPIC", given)
    guarded.allow("WRITE", "TOPIC", f"{given}-2")
    guarded.admin.create_topics([f"{given}-2"]).all()
    with KafkaProducer(**guarded.config("bob")) as producer:
        for _ in range(3):
            denied(errors.TopicAuthorizationError, lambda: producer.send(given, b"").get(20), given, "WRITE")
            producer.send(f"{given}-2", b"").get(20)


def test_transaction_calls_report_denied_transactional_id(guarded: Guarded, given: str) -> None:
    """init_transactions() and the end of a transaction report a denied transactional id."""
    guarded.allow("WRITE", "TOPIC", given)
    config = {**guarded.config("bob"), "transactional.id": f"{given}-id"}
    with KafkaProducer(**config) as producer:
        denied(errors.TransactionalIdAuthorizationError, producer.init_transactions, f"{given}-id", "WRITE")
    guarded.allow("DESCRIBE", "TRANSACTIONAL_ID", f"{given}-id")
    with KafkaProducer(**config) as producer:
        denied(errors.TransactionalIdAuthorizationError, producer.init_transactions, f"{given}-id", "WRITE")
    guarded.allow("WRITE", "TRANSACTIONAL_ID", f"{given}-id")
    with KafkaProducer(**config) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send(given, b"in a transaction").get(20)
        offsets = {TopicPartition(given, 0): OffsetAndMetadata(1, "", -1)}
        denied(
            errors.GroupAuthorizationError,
            lambda: producer.send_offsets_to_transaction(offsets, f"{given}-group"),
            f"{given}-group",
        )
        producer.abort_transaction()


# --- consumers -------------------------------------------------------------------------------------------------------

PROTOCOLS = pytest.mark.parametrize("protocol", ["classic", "consumer"])


def consumer_of(guarded: Guarded, group: str | None, protocol: str = "classic") -> KafkaConsumer[Any, Any]:
    settings = {} if group is None else {"group.id": group, "group.protocol": protocol}
    return KafkaConsumer({**guarded.config("bob"), **settings, "auto.offset.reset": "earliest"})


@PROTOCOLS
def test_poll_reports_denied_group(guarded: Guarded, given: str, protocol: str) -> None:
    """poll() reports a denied group, whether or not its coordinator may be looked up."""
    guarded.allow("READ", "TOPIC", given)
    for _ in range(2):
        with consumer_of(guarded, f"{given}-group", protocol) as consumer:
            consumer.subscribe([given])
            denied(errors.GroupAuthorizationError, lambda: poll_until_error(consumer), f"{given}-group", "READ")
        guarded.allow("DESCRIBE", "GROUP", f"{given}-group")
    guarded.allow("READ", "GROUP", f"{given}-group")
    with consumer_of(guarded, f"{given}-group", protocol) as consumer:
        consumer.subscribe([given])
        assert next(consumer).value == b"secret"


@PROTOCOLS
def test_poll_reports_denied_subscribed_topic(guarded: Guarded, given: str, protocol: str) -> None:
    """poll() reports a denied topic, first by its metadata, then by the fetch; READ mends it."""
    guarded.allow("READ", "GROUP", f"{given}-group")
    with consumer_of(guarded, f"{given}-group", protocol) as consumer:
        consumer.subscribe([given])
        denied(errors.TopicAuthorizationError, lambda: poll_until_error(consumer), given)
    guarded.allow("DESCRIBE", "TOPIC", given)
    with consumer_of(guarded, f"{given}-group", protocol) as consumer:
        consumer.subscribe([given])
        denied(errors.TopicAuthorizationError, lambda: poll_until_error(consumer), given, "READ")
        guarded.allow("READ", "TOPIC", given)
        assert next(consumer).value == b"secret"


def test_a_member_whose_heartbeats_are_denied_recovers(guarded: Guarded, given: str) -> None:
    """A topic that may not be described does not end a membership by the consumer protocol: READ mends it."""
    guarded.allow("READ", "GROUP", f"{given}-group")
    told: list[str] = []

    def polled() -> Any:
        try:
            return consumer.poll(timeout_ms=200)
        except errors.TopicAuthorizationError as error:
            told.append(str(error))
            return None

    with consumer_of(guarded, f"{given}-group", "consumer") as consumer:
        consumer.subscribe([given])
        eventually(lambda: polled() is None and "to subscribe" in told[-1], 20.0, "a heartbeat is denied", every_s=0)
        guarded.allow("READ", "TOPIC", given)
        eventually(polled, 20.0, "the record is read", every_s=0)
    assert given in told[-1]


@PROTOCOLS
def test_a_pattern_matches_only_topics_that_may_be_seen(guarded: Guarded, given: str, protocol: str) -> None:
    """A pattern skips denied topics without an error."""
    guarded.admin.create_topics([f"{given}-2"]).all()
    guarded.allow("READ", "GROUP", f"{given}-group")
    guarded.allow("READ", "TOPIC", given)
    with consumer_of(guarded, f"{given}-group", protocol) as consumer:
        consumer.subscribe(pattern=f"^{given}.*")
        assert next(consumer).value == b"secret"
        assert consumer.assignment() == {TopicPartition(given, 0)}


def test_poll_reports_denied_assigned_topic(guarded: Guarded, given: str) -> None:
    """poll() reports a topic that may be seen but not read, and one that may not be seen."""
    with consumer_of(guarded, None) as consumer:
        consumer.assign([TopicPartition(given, 0)])
        denied(errors.TopicAuthorizationError, lambda: poll_until_error(consumer), given)
        denied(errors.TopicAuthorizationError, lambda: consumer.partitions_for_topic(given), given)
        denied(errors.TopicAuthorizationError, lambda: consumer.end_offsets([TopicPartition(given, 0)]), given)
        assert given not in consumer.topics()
    guarded.allow("DESCRIBE", "TOPIC", given)
    with consumer_of(guarded, None) as consumer:
        consumer.assign([TopicPartition(given, 0)])
        assert consumer.end_offsets([TopicPartition(given, 0)]) == {TopicPartition(given, 0): 1}
        denied(errors.TopicAuthorizationError, lambda: poll_until_error(consumer), given, "READ")


def test_commit_reports_denied_groups_and_topics(guarded: Guarded, given: str) -> None:
    """commit() and committed() report denied groups and topics."""
    partition = TopicPartition(given, 0)
    offsets = {partition: OffsetAndMetadata(1, "", -1)}
    group = f"{given}-group"
    with consumer_of(guarded, group) as consumer:
        denied(errors.GroupAuthorizationError, lambda: consumer.commit(offsets), group, "READ")
    guarded.allow("DESCRIBE", "GROUP", group)
    with consumer_of(guarded, group) as consumer:
        denied(errors.GroupAuthorizationError, lambda: consumer.commit(offsets), group, "READ")
        denied(errors.TopicAuthorizationError, lambda: consumer.committed(partition), given)
    guarded.allow("READ", "GROUP", group)
    guarded.allow("DESCRIBE", "TOPIC", given)
    with consumer_of(guarded, group) as consumer:
        denied(errors.TopicAuthorizationError, lambda: consumer.commit(offsets), given, "READ")
        assert consumer.committed(partition) is None
    guarded.allow("READ", "TOPIC", given)
    with consumer_of(guarded, group) as consumer:
        consumer.commit(offsets)
        assert consumer.committed(partition) == 1


# --- admin clients ---------------------------------------------------------------------------------------------------


def test_admin_calls_report_denied_resources(guarded: Guarded, given: str) -> None:
    """Each admin call reports the error of its resource."""
    topic = ConfigResource(ConfigResourceType.TOPIC, given)
    broker = ConfigResource(ConfigResourceType.BROKER, "1")
    with Admin(**guarded.config("bob")) as bob:
        failures: list[tuple[type[errors.AuthorizationError], Callable[[], Any]]] = [
            (errors.TopicAuthorizationError, lambda: bob.create_topics([f"{given}-2"]).all()),
            (errors.TopicAuthorizationError, lambda: bob.create_partitions({given: 3}).all()),
            (errors.TopicAuthorizationError, lambda: bob.delete_topics([given]).all()),
            (errors.TopicAuthorizationError, lambda: bob.describe_topics([given]).all()),
            (errors.TopicAuthorizationError, lambda: bob.describe_configs([topic]).all()),
            (errors.TopicAuthorizationError, lambda: bob.delete_records({TopicPartition(given, 0): 1}).all()),
            (errors.GroupAuthorizationError, lambda: bob.describe_groups(["g"]).all()),
            (errors.GroupAuthorizationError, lambda: bob.delete_groups(["g"]).all()),
            (errors.ClusterAuthorizationError, lambda: bob.describe_configs([broker]).all()),
            (errors.ClusterAuthorizationError, lambda: bob.describe_acls(EVERYTHING)),
            (errors.ClusterAuthorizationError, lambda: bob.delete_acls([EVERYTHING]).all()),
            (errors.ClusterAuthorizationError, bob.describe_client_quotas),
            (errors.TransactionalIdAuthorizationError, lambda: bob.describe_transactions(["t"]).all()),
        ]
        for kind, call in failures:
            denied(kind, call)
        with pytest.raises(errors.TopicAuthorizationError, match=rf"--operation <operation> --topic {given}$"):
            bob.describe_configs([topic]).all()
        with pytest.raises(errors.GroupAuthorizationError, match=r"--operation <operation> --group 'a group'$"):
            bob.describe_groups(["a group"]).all()
        assert given not in {listed.name for listed in bob.list_topics()}
        assert bob.list_groups() == []


# --- ACLs as metadata ------------------------------------------------------------------------------------------------


def test_acls_survive_all_brokers_and_controllers(topic: str) -> None:
    """ACLs are metadata of the cluster: a broker that starts reads them, whoever was the controller before."""
    security = Security(mechanisms=["PLAIN"], users=clusters.USERS)
    allowed = Acl("User:bob", "WRITE", topic=topic)
    with EmbeddedCluster(3, security=security, acls=[], super_users="User:admin") as cluster:
        cluster.create_topic(topic, replication_factor=3)
        cluster.add_acls(allowed, Acl("User:bob", "READ", topic=topic))
        cluster.remove_acls(Acl("User:bob", "READ", topic=topic))
        for broker in (1, 2, 3):
            cluster.kill(broker)
            cluster.restart(broker)
        with Admin(cluster.client_config(user="admin")) as admin:
            (acl,) = admin.describe_acls(EVERYTHING)
            assert (acl.principal, acl.operation) == ("User:bob", ACLOperation.WRITE)
        with KafkaProducer(cluster.client_config(user="bob"), enable_idempotence=False) as producer:
            assert producer.send(topic, b"v").get(30).topic == topic


def test_broker_cut_off_from_controller_keeps_its_acls(topic: str) -> None:
    """Without contact to the controller, a broker decides by what it knew, and refuses changes until it is back."""
    security = Security(mechanisms=["PLAIN"], users=clusters.USERS)
    with (
        EmbeddedCluster(security=security, acls=[], super_users="User:admin") as cluster,
        Admin(cluster.client_config(user="admin")) as admin,
    ):
        cluster.faults.cut(1, "coordination")
        cluster.add_acls(Acl("User:bob", "WRITE", topic=topic))
        assert admin.describe_acls(EVERYTHING) == []
        with pytest.raises((errors.NotControllerError, errors.KafkaTimeoutError)):
            admin.delete_acls([EVERYTHING], timeout_ms=500).all()
        cluster.faults.heal()
        eventually(lambda: len(admin.describe_acls(EVERYTHING)) == 1, 20.0, "the broker has read the ACL")
        admin.delete_acls([EVERYTHING]).all()
        assert admin.describe_acls(EVERYTHING) == []
