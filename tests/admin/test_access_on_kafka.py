"""Access control lists, quotas, SCRAM credentials and delegation tokens, on a real broker with an authorizer."""

from __future__ import annotations

import base64
import uuid
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import confluent_kafka.admin
import kafka.admin
import pytest

import pykclient.admin
from pykclient import errors
from pykclient.admin import (
    ACL,
    ACLFilter,
    ACLOperation,
    ACLPermissionType,
    ACLResourcePatternType,
    Admin,
    ClientQuotaFilterComponent,
    DelegationToken,
    KafkaAdminClient,
    ResourcePattern,
    ResourcePatternFilter,
    ResourceType,
    ScramMechanism,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)
from pykclient.errors import IllegalArgumentError, KafkaError
from pykclient.testing import EmbeddedCluster
from tests.admin.java_admin import JavaAdmin, as_java, errors_of, java as java
from tests.kafka.cluster import KafkaCluster
from tests.support.wait import eventually

confluent: Any = confluent_kafka.admin

pytestmark = pytest.mark.filterwarnings("ignore:.*:DeprecationWarning:kafka")

PLAIN = (
    "org.apache.kafka.common.security.plain.PlainLoginModule required "
    'username="admin" password="admin-secret" user_admin="admin-secret" user_bob="bob-secret";'
)
PROPERTIES = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS;User:admin",
    "delegation.token.secret.key": "secret-key",
    "listener.name.sasl_plaintext.sasl.enabled.mechanisms": "PLAIN",
    "listener.name.sasl_plaintext.plain.sasl.jaas.config": PLAIN,
}


@pytest.fixture(scope="module")
def guarded() -> Iterator[KafkaCluster]:
    with KafkaCluster(1, PROPERTIES, listeners={"SASL_PLAINTEXT": "SASL_PLAINTEXT"}) as made:
        yield made


@pytest.fixture(scope="module")
def ours(guarded: KafkaCluster) -> Iterator[KafkaAdminClient]:
    with KafkaAdminClient(bootstrap_servers=guarded.bootstrap_servers) as admin:
        yield admin


@pytest.fixture(scope="module")
def theirs(guarded: KafkaCluster) -> Iterator[Any]:
    admin = kafka.admin.KafkaAdminClient(bootstrap_servers=guarded.bootstrap_servers)
    yield admin
    admin.close()


def authenticated(guarded: KafkaCluster, user: str) -> Admin:
    broker = guarded.brokers[1]
    return Admin(
        bootstrap_servers=f"{broker.host}:{broker.ports['SASL_PLAINTEXT']}",
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism="PLAIN",
        sasl_plain_username=user,
        sasl_plain_password=f"{user}-secret",
    )


def acl_of(module: Any, topic: str, operation: str = "READ", principal: str = "User:carol") -> Any:
    return module.ACL(
        principal,
        "*",
        module.ACLOperation[operation],
        module.ACLPermissionType.ALLOW,
        module.ResourcePattern(module.ResourceType.TOPIC, topic),
    )


def filter_of(module: Any, topic: str | None) -> Any:
    return module.ACLFilter(
        None,
        None,
        module.ACLOperation.ANY,
        module.ACLPermissionType.ANY,
        module.ResourcePatternFilter(module.ResourceType.TOPIC, topic, module.ACLResourcePatternType.ANY),
    )


def has_acls(admin: Any, wanted: Any, count: int) -> bool:
    return len(admin.describe_acls(wanted)[0]) == count


def has_credential(admin: Any, user: str, expected: bool) -> bool:
    return (user in admin.describe_user_scram_credentials()) is expected


def shown(value: Any) -> Any:
    """Return results with ACLs, of either package, as text; classes by name."""
    if isinstance(value, (list, tuple)):
        return sorted((shown(item) for item in value), key=repr)
    if isinstance(value, dict):
        return {key: shown(item) for key, item in value.items()}
    return value.__name__ if isinstance(value, type) else repr(value)


@pytest.mark.kafka
@pytest.mark.timeout(180)
def test_acl_calls_equal_kafka_pythons(ours: KafkaAdminClient, theirs: Any, topic: str) -> None:
    seen = []
    for admin, module in ((theirs, kafka.admin), (ours, pykclient.admin)):
        acls = [acl_of(module, topic), acl_of(module, topic, "WRITE")]
        created = admin.create_acls(acls)
        wanted = filter_of(module, topic)
        eventually(partial(has_acls, admin, wanted, 2), 20.0, "both are there")
        described = admin.describe_acls(wanted)
        deleted = admin.delete_acls([wanted, filter_of(module, "nowhere")])
        eventually(partial(has_acls, admin, wanted, 0), 20.0, "both are gone")
        seen.append(shown([created, described, deleted]))
    assert seen[1] == seen[0]


@pytest.mark.kafka
@pytest.mark.timeout(180)
def test_acls_equal_those_of_confluent_kafka(ours: KafkaAdminClient, guarded: KafkaCluster, topic: str) -> None:
    other = confluent.AdminClient({"bootstrap.servers": guarded.bootstrap_servers, "log_level": 0})
    pattern = ResourcePattern(ResourceType.TOPIC, topic, ACLResourcePatternType.PREFIXED)
    acl = ACL("User:dave", "10.0.0.1", ACLOperation.ALTER, ACLPermissionType.DENY, pattern)
    user = ACL(
        "User:dave",
        "*",
        ACLOperation.CREATE_TOKENS,
        ACLPermissionType.ALLOW,
        ResourcePattern(ResourceType.USER, "User:x"),
    )
    assert ours.typed.create_acls([acl, user]).all().keys() == {acl, user}
    wanted = ACLFilter(
        "User:dave",
        None,
        ACLOperation.ANY,
        ACLPermissionType.ANY,
        ResourcePatternFilter(ResourceType.ANY, None, ACLResourcePatternType.ANY),
    )
    eventually(lambda: set(ours.typed.describe_acls(wanted)) == {acl, user}, 20.0, "both are there")
    any_of_dave = confluent.AclBindingFilter(
        confluent.ResourceType.TOPIC,
        None,
        confluent.ResourcePatternType.ANY,
        "User:dave",
        None,
        confluent.AclOperation.ANY,
        confluent.AclPermissionType.ANY,
    )
    (their,) = other.describe_acls(any_of_dave).result(20)
    assert (their.restype.name, their.name, their.resource_pattern_type.name) == ("TOPIC", topic, "PREFIXED")
    assert (their.principal, their.host, their.operation.name, their.permission_type.name) == (
        acl.principal,
        acl.host,
        acl.operation.name,
        acl.permission_type.name,
    )
    deleted = ours.typed.delete_acls([wanted])[wanted]
    assert set(deleted.succeeded) == {acl, user}
    assert not deleted.failed


@pytest.mark.kafka
@pytest.mark.timeout(180)
def test_scram_credential_calls_equal_kafka_pythons(ours: KafkaAdminClient, theirs: Any, topic: str) -> None:
    seen = []
    for admin, module in ((theirs, kafka.admin), (ours, pykclient.admin)):
        upsertion = module.UserScramCredentialUpsertion(topic, "scram-sha-256", "secret", iterations=5000)
        altered = admin.alter_user_scram_credentials([upsertion])
        eventually(partial(has_credential, admin, topic, True), 20.0, "the user has a credential")
        described = admin.describe_user_scram_credentials([topic, "nobody"])
        wrong = admin.alter_user_scram_credentials([module.UserScramCredentialDeletion("nobody", "SCRAM-SHA-512")])
        deleted = admin.alter_user_scram_credentials([module.UserScramCredentialDeletion(topic, 1)])
        eventually(partial(has_credential, admin, topic, False), 20.0, "the credential is gone")
        seen.append([altered, described, wrong, deleted])
    assert seen[1] == seen[0]
    typed = ours.typed
    results = typed.alter_user_scram_credentials(
        [
            UserScramCredentialUpsertion(topic, ScramMechanism.SCRAM_SHA_512, b"secret"),
            UserScramCredentialDeletion("nobody", ScramMechanism.SCRAM_SHA_256),
        ]
    )
    assert set(results.succeeded) == {topic}
    assert isinstance(results.failed["nobody"], errors.ResourceNotFoundError)
    eventually(lambda: topic in typed.describe_user_scram_credentials().succeeded, 20.0, "the credential is there")
    found = typed.describe_user_scram_credentials([topic, "nobody"])
    assert [(info.mechanism, info.iterations) for info in found[topic]] == [(ScramMechanism.SCRAM_SHA_512, 4096)]
    assert isinstance(found.failed["nobody"], errors.ResourceNotFoundError)


@pytest.mark.kafka
@pytest.mark.timeout(180)
def test_admin_creates_renews_and_expires_delegation_tokens(guarded: KafkaCluster) -> None:
    with authenticated(guarded, "admin") as admin:
        token = admin.create_delegation_token(["User:bob"], max_lifetime_ms=3_600_000)
        assert token.owner == ("User", "admin")
        assert token.renewers == (("User", "bob"),)
        assert token.max_timestamp_ms - token.issue_timestamp_ms == 3_600_000
        assert repr(token.hmac) not in repr(token)
        eventually(lambda: admin.describe_delegation_tokens() == [token], 20.0, "the token is listed")
        assert admin.describe_delegation_tokens(["User:erin"]) == []
        renewed = admin.renew_delegation_token(token.hmac, renew_period_ms=1_800_000)
        assert token.issue_timestamp_ms < renewed <= token.max_timestamp_ms
        with pytest.raises(errors.DelegationTokenNotFoundError):
            admin.renew_delegation_token(b"no such token")
        admin.expire_delegation_token(token.hmac)
        eventually(lambda: admin.describe_delegation_tokens() == [], 20.0, "the token is gone")
        other = admin.create_delegation_token(owner="User:bob")
        assert other.owner == ("User", "bob")
        assert other.requester == ("User", "admin")


@pytest.mark.kafka
@pytest.mark.timeout(180)
def test_authorization_error_class_matches_resource(guarded: KafkaCluster, ours: KafkaAdminClient, topic: str) -> None:
    ours.create_topics([topic], wait_for_metadata=True)
    with authenticated(guarded, "bob") as bob:
        failures: list[tuple[type[KafkaError], Callable[[], Any]]] = [
            (errors.TopicAuthorizationError, lambda: bob.create_topics([f"{topic}-2"]).all()),
            (errors.TopicAuthorizationError, lambda: bob.delete_topics([topic]).all()),
            (errors.TopicAuthorizationError, lambda: bob.describe_topics([topic]).all()),
            (errors.GroupAuthorizationError, lambda: bob.describe_groups(["g"]).all()),
            (errors.GroupAuthorizationError, lambda: bob.delete_groups(["g"]).all()),
            (errors.ClusterAuthorizationError, lambda: bob.describe_acls(filter_of(pykclient.admin, None))),
            (errors.ClusterAuthorizationError, bob.describe_metadata_quorum),
            (errors.ClusterAuthorizationError, bob.describe_client_quotas),
            (errors.TransactionalIdAuthorizationError, lambda: bob.describe_transactions(["t"]).all()),
        ]
        for kind, call in failures:
            with pytest.raises(kind):
                call()
        assert topic not in {listed.name for listed in bob.list_topics()}
        assert bob.list_groups() == []
    with authenticated(guarded, "nobody") as stranger, pytest.raises(errors.AuthenticationError):
        stranger.list_topics()


@pytest.mark.kafka
@pytest.mark.timeout(180)
def test_real_broker_alters_and_describes_quotas(ours: KafkaAdminClient, topic: str) -> None:
    quotas(ours.typed, topic)


def test_embedded_cluster_alters_and_describes_quotas(topic: str) -> None:
    with EmbeddedCluster() as cluster, Admin(bootstrap_servers=cluster.bootstrap_servers) as admin:
        quotas(admin, topic)


def quotas(admin: Admin, name: str) -> None:
    both = {"user": name, "client-id": "app"}
    results = admin.alter_client_quotas(
        [
            ({"user": name}, {"producer_byte_rate": 1000, "request_percentage": 12.5}),
            (both, {"consumer_byte_rate": 2000}),
            ({"user": None}, {"consumer_byte_rate": 3000}),
            ({"planet": "mars"}, {"consumer_byte_rate": 1}),
        ]
    )
    assert len(results.succeeded) == 3
    ((wrong, error),) = results.failed.items()
    assert wrong == (("planet", "mars"),)
    assert isinstance(error, errors.InvalidRequestError)
    of_user = ClientQuotaFilterComponent("user", name)
    pair = (("client-id", "app"), ("user", name))
    expected = {
        (("user", name),): {"producer_byte_rate": 1000.0, "request_percentage": 12.5},
        pair: {"consumer_byte_rate": 2000.0},
    }
    eventually(lambda: admin.describe_client_quotas([of_user]) == expected, 20.0, "the quotas are set")
    assert admin.describe_client_quotas([of_user], strict=True).keys() == {(("user", name),)}
    assert (("user", None),) in admin.describe_client_quotas([ClientQuotaFilterComponent("user")], strict=True)
    every = admin.describe_client_quotas([ClientQuotaFilterComponent("user", matches_any=True)])
    assert expected.keys() <= every.keys()
    removed: list[Any] = [({"user": name}, {"producer_byte_rate": None, "request_percentage": None})]
    removed += [(both, {"consumer_byte_rate": None}), ({"user": None}, {"consumer_byte_rate": None})]
    admin.alter_client_quotas(removed).all()
    eventually(lambda: admin.describe_client_quotas([of_user]) == {}, 20.0, "the quotas are gone")


def test_acl_calls_fail_without_authorizer() -> None:
    acl = acl_of(pykclient.admin, "t")
    with EmbeddedCluster() as cluster, Admin(bootstrap_servers=cluster.bootstrap_servers) as admin:
        calls: list[Callable[[], Any]] = [
            lambda: admin.describe_acls(filter_of(pykclient.admin, None)),
            lambda: admin.create_acls([acl]).all(),
            lambda: admin.delete_acls([filter_of(pykclient.admin, None)]).all(),
        ]
        for call in calls:
            with pytest.raises(errors.SecurityDisabledError):
                call()


def test_embedded_cluster_creates_describes_and_deletes_acls(topic: str) -> None:
    """ACLs are created, described by filters and deleted; wrong ones are refused one by one."""
    acls = [acl_of(pykclient.admin, topic), acl_of(pykclient.admin, topic, "WRITE"), acl_of(pykclient.admin, "other")]
    wrong = ACL(
        "User:carol", "*", ACLOperation.ALTER, ACLPermissionType.ALLOW, ResourcePattern(ResourceType.CLUSTER, "mine")
    )
    nameless = acl_of(pykclient.admin, topic, principal="carol")
    with (
        EmbeddedCluster(acls=[], super_users="User:ANONYMOUS") as cluster,
        Admin(bootstrap_servers=cluster.bootstrap_servers) as admin,
    ):
        results = admin.create_acls([*acls, wrong, nameless])
        assert set(results.succeeded) == set(acls)
        assert {type(error) for error in results.failed.values()} == {errors.InvalidRequestError}
        admin.create_acls(acls[:1]).all()  # exists already
        of_topic = filter_of(pykclient.admin, topic)
        assert set(admin.describe_acls(of_topic)) == set(acls[:2])
        assert set(admin.describe_acls(filter_of(pykclient.admin, None))) == set(acls)
        assert set(admin.delete_acls([of_topic])[of_topic].succeeded) == set(acls[:2])
        assert admin.describe_acls(filter_of(pykclient.admin, None)) == acls[2:]


def test_argument_errors_show_no_secret() -> None:
    with Admin(bootstrap_servers="localhost:1") as admin:
        calls: list[tuple[str, Callable[[], Any]]] = [
            ("acl_filter[0]", lambda: admin.describe_acls("User:x")),  # type: ignore[arg-type]
            ("acls[0] is", lambda: admin.create_acls([filter_of(pykclient.admin, "t")])),
            ("each of alterations", lambda: admin.alter_client_quotas(["user"])),  # type: ignore[list-item]
            ("an entity is empty", lambda: admin.alter_client_quotas([({}, {"q": 1.0})])),
            ("twice", lambda: admin.alter_client_quotas([({"user": "u"}, {}), ({"user": "u"}, {})])),
            ("quota 'q' is", lambda: admin.alter_client_quotas([({"user": "u"}, {"q": "1"})])),  # type: ignore[dict-item]
            ("components[0]", lambda: admin.describe_client_quotas(["user"])),  # type: ignore[list-item]
            ("alterations[0]", lambda: admin.alter_user_scram_credentials(["hunter2"])),  # type: ignore[list-item]
            ("hmac is of type str", lambda: admin.expire_delegation_token("hunter2")),  # type: ignore[arg-type]
            ("renewers[0]", lambda: admin.create_delegation_token(["alice"])),
            ("resource_type must be", lambda: ResourcePattern("topic", "t")),  # type: ignore[arg-type]
            ("cannot be ANY", lambda: ResourcePattern(ResourceType.ANY, "t")),
            ("MATCH", lambda: ResourcePattern(ResourceType.TOPIC, "t", ACLResourcePatternType.MATCH)),
            ("there is no ScramMechanism", lambda: UserScramCredentialUpsertion("u", "MD5", "hunter2")),
            ("UNKNOWN", lambda: UserScramCredentialUpsertion("u", 0, "hunter2")),
        ]
        for message, call in calls:
            with pytest.raises(IllegalArgumentError) as caught:
                call()
            assert message in str(caught.value)
            assert "hunter2" not in str(caught.value)
    assert "secret" not in repr(UserScramCredentialUpsertion("u", 1, "secret"))


# --- beside Java's client ---


def quotas_as_java(found: Any) -> dict[str, Any]:
    """Return quotas by entity, in the form of a Java map's text."""
    entities = {entity: ", ".join(f"{kind}={name or 'null'}" for kind, name in entity) for entity in found}
    return {f"{{{entities[entity]}}}": quotas for entity, quotas in found.items()}


@pytest.mark.kafka
@pytest.mark.timeout(180)
def test_quota_results_equal_javas(java: JavaAdmin, guarded: KafkaCluster, ours: KafkaAdminClient, topic: str) -> None:
    admin, servers = ours.typed, guarded.bootstrap_servers
    by_java: list[Any] = [
        [{"user": topic}, {"producer_byte_rate": 1000}],
        [{"user": None, "client-id": "app"}, {"consumer_byte_rate": 5}],
        [{"planet": "mars"}, {"consumer_byte_rate": 1}],
        [{"user": "x"}, {"no_such_rate": 1}],
    ]
    their = errors_of(java.call(servers, "alterClientQuotas", by_java))
    by_us: list[Any] = [({"user": topic, "client-id": "app"}, {"request_percentage": 12.5}), *map(tuple, by_java[2:])]
    our = admin.alter_client_quotas(by_us)
    assert {key: error for key, error in their.items() if error} == {
        "{planet=mars}": "InvalidRequestException",
        "{user=x}": "InvalidRequestException",
    }
    assert [as_java(error)["error"] for error in our.failed.values()] == ["InvalidRequestException"] * 2
    expected = {
        f"{{user={topic}}}": {"producer_byte_rate": 1000},
        "{client-id=app, user=null}": {"consumer_byte_rate": 5.0},
        f"{{client-id=app, user={topic}}}": {"request_percentage": 12.5},
    }
    found: list[Any] = []

    def are_set() -> bool:
        found[:] = quotas_as_java(admin.describe_client_quotas()), java.call(servers, "describeClientQuotas")
        return bool(found[0] == found[1] and expected.items() <= found[0].items())

    eventually(are_set, 20.0, "both clients describe the quotas alike")
    removed: list[Any] = [
        [{"user": topic}, {"producer_byte_rate": None}],
        [{"user": topic, "client-id": "app"}, {"request_percentage": None}],
    ]
    java.call(servers, "alterClientQuotas", removed)
    admin.alter_client_quotas([({"user": None, "client-id": "app"}, {"consumer_byte_rate": None})]).all()
    eventually(lambda: not expected.keys() & java.call(servers, "describeClientQuotas").keys(), 20.0, "they are gone")
    assert not expected.keys() & quotas_as_java(admin.describe_client_quotas()).keys()


def token_as_java(token: DelegationToken) -> tuple[Any, ...]:
    owner, requester, *renewers = (":".join(each) for each in (token.owner, token.requester, *token.renewers))
    times = token.issue_timestamp_ms, token.expiry_timestamp_ms, token.max_timestamp_ms
    return token.token_id, base64.b64encode(token.hmac).decode(), owner, requester, sorted(renewers), *times


def token_of_java(told: Any) -> tuple[Any, ...]:
    info = told["tokenInfo"]
    who = info["ownerAsString"], info["tokenRequesterAsString"], sorted(info["renewersAsString"])
    times = info["issueTimestamp"], info["expiryTimestamp"], info["maxTimestamp"]
    return info["tokenId"], told["hmacAsBase64String"], *who, *times


@pytest.mark.kafka
@pytest.mark.timeout(180)
def test_delegation_token_results_equal_javas(java: JavaAdmin, guarded: KafkaCluster) -> None:
    broker = guarded.brokers[1]
    settings = {
        "bootstrap.servers": f"{broker.host}:{broker.ports['SASL_PLAINTEXT']}",
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.jaas.config": PLAIN,
    }
    with authenticated(guarded, "admin") as admin:
        by_us = admin.create_delegation_token(["User:bob"], max_lifetime_ms=7_200_000)
        by_java = java.call(settings, "createDelegationToken", "User:erin", 3_600_000)
        created = {by_us.token_id: token_as_java(by_us), by_java["tokenInfo"]["tokenId"]: token_of_java(by_java)}

        def listed() -> list[Any]:
            """Return the tokens that each client describes, of those created here."""
            our = [token_as_java(token) for token in admin.describe_delegation_tokens()]
            their = [token_of_java(told) for told in java.call(settings, "describeDelegationToken")]
            return [{token[0]: token for token in tokens if token[0] in created} for tokens in (our, their)]

        eventually(lambda: listed() == [created, created], 20.0, "both clients describe the tokens as they were made")
        no_token = base64.b64encode(b"no such token").decode()
        for call, ours in (
            ("renewDelegationToken", admin.renew_delegation_token),
            ("expireDelegationToken", admin.expire_delegation_token),
        ):
            with pytest.raises(errors.KafkaError) as caught:
                ours(b"no such token")
            assert java.call(settings, call, no_token)["error"] == as_java(caught.value)["error"]
        renewed = java.call(settings, "renewDelegationToken", base64.b64encode(by_us.hmac).decode())
        assert by_us.issue_timestamp_ms < renewed <= by_us.max_timestamp_ms
        java.call(settings, "expireDelegationToken", base64.b64encode(by_us.hmac).decode())
        admin.expire_delegation_token(base64.b64decode(by_java["hmacAsBase64String"]))
        eventually(lambda: listed() == [{}, {}], 20.0, "both tokens are gone")


@pytest.mark.kafka
@pytest.mark.timeout(180)
def test_quorum_voters_equal_javas(java: JavaAdmin, guarded: KafkaCluster, ours: KafkaAdminClient) -> None:
    admin, servers = ours.typed, guarded.bootstrap_servers
    before = java.call(servers, "describeMetadataQuorum")
    our = admin.describe_metadata_quorum()
    after = java.call(servers, "describeMetadataQuorum")
    assert before["leaderId"] == our.leader_id
    assert before["leaderEpoch"] <= our.leader_epoch <= after["leaderEpoch"]
    assert before["highWatermark"] <= our.high_watermark <= after["highWatermark"]
    names = {
        "directoryId": "replicaDirectoryId",
        "lastFetchTimestampMs": "lastFetchTimestamp",
        "lastCaughtUpTimestampMs": "lastCaughtUpTimestamp",
    }
    for kind, replicas in (("voters", our.voters), ("observers", our.observers)):
        for first, replica, last in zip(before[kind], as_java(replicas), after[kind], strict=True):
            fields = {names.get(name, name): told for name, told in replica.items()}
            fields["replicaDirectoryId"] = fields["replicaDirectoryId"] or as_java(uuid.UUID(int=0))  # Java's unknown
            assert first.keys() == fields.keys()
            for name, told in fields.items():
                if isinstance(told, int) and name != "replicaId":
                    assert first[name] <= told <= last[name], name
                else:
                    assert first[name] == told == last[name], name
    nodes = {str(node): sorted(map(list, endpoints)) for node, endpoints in our.endpoints.items()}
    assert nodes == {
        node: sorted([end["listener"], end["host"], end["port"]] for end in told["endpoints"])
        for node, told in before["nodes"].items()
    }
    directory = uuid.uuid4()
    calls: list[tuple[str, Callable[[], Any]]] = [
        ("removeRaftVoter", lambda: admin.remove_raft_voter(99, directory)),
        ("addRaftVoter", lambda: admin.add_raft_voter(99, directory, [("CONTROLLER", "127.0.0.1", 1)])),
    ]
    for name, call in calls:
        with pytest.raises(errors.KafkaError) as caught:
            call()
        their = java.call(servers, name, 99, as_java(directory))
        assert as_java(caught.value)["error"] == their["error"]
