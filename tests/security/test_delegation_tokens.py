"""Delegation tokens as credentials: who may make them, what they are good for, and how they end."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from time import sleep
from typing import Any

import pytest

from pykclient import KafkaConsumer, KafkaProducer
from pykclient.admin import Admin
from pykclient.admin.access import DelegationToken
from pykclient.errors import (
    DelegationTokenDisabledError,
    DelegationTokenNotFoundError,
    DelegationTokenOwnerMismatchError,
    InvalidPrincipalTypeError,
    KafkaTimeoutError,
    NotControllerError,
    SaslAuthenticationError,
    UnsupportedByAuthenticationError,
)
from pykclient.testing import Acl, EmbeddedCluster, Security
from tests.security.test_sasl import SecureCluster, consume, produce, secure as secure, settings
from tests.support.secrets import SecretRecorder
from tests.support.wait import eventually

SCRAM = "SCRAM-SHA-256"
USERS = {"admin": "admin-secret", "alice": "alice-secret", "bob": "bob-secret"}


def login(token: DelegationToken, mechanism: str = SCRAM) -> dict[str, str]:
    """Return the settings that log in by a token, as docs/security.md says."""
    module = "org.apache.kafka.common.security.scram.ScramLoginModule"
    secret = base64.b64encode(token.hmac).decode()
    return {
        "sasl.mechanism": mechanism,
        "sasl.jaas.config": f'{module} required username="{token.token_id}" password="{secret}" tokenauth="true";',
    }


def with_token(config: dict[str, Any], token: DelegationToken, mechanism: str = SCRAM) -> dict[str, Any]:
    """Return a client's settings with a token in place of its credentials."""
    kept = {key: value for key, value in config.items() if key not in ("sasl.username", "sasl.password")}
    return {**kept, **login(token, mechanism)}


# --- on any cluster --------------------------------------------------------------------------------------------------


@pytest.fixture
def admin(secure: SecureCluster) -> Iterator[Admin]:
    """A client that has authenticated by a password, so it may manage tokens."""
    with Admin(settings(secure, "PLAIN")) as client:
        yield client


def create(admin: Admin, recorder: SecretRecorder, **arguments: Any) -> DelegationToken:
    """Create a token, and wait until the brokers know it."""
    token = admin.create_delegation_token(**arguments)
    recorder.register(base64.b64encode(token.hmac).decode())
    eventually(lambda: token in admin.describe_delegation_tokens(), 20.0, "the brokers know the token")
    return token


def refusal(config: dict[str, Any], topic: str) -> str:
    """Return the error of a client with wrong credentials."""
    with KafkaProducer(config, max_block_ms=60_000) as producer, pytest.raises(SaslAuthenticationError) as caught:
        producer.send(topic, b"v").get(60)
    return str(caught.value)


@pytest.mark.parametrize(
    ("listener", "mechanism"), [("SASL_PLAINTEXT", "SCRAM-SHA-256"), ("SASL_SSL", "SCRAM-SHA-512")]
)
def test_clients_authenticate_with_delegation_token(
    secure: SecureCluster, admin: Admin, recorder: SecretRecorder, topic: str, listener: str, mechanism: str
) -> None:
    token = create(admin, recorder)
    config = with_token(settings(secure, mechanism, listener), token, mechanism)
    values = produce(config, topic)
    assert consume(config, topic) == values
    admin.expire_delegation_token(token.hmac)


def test_tokens_renew_and_expire(secure: SecureCluster, admin: Admin, recorder: SecretRecorder, topic: str) -> None:
    """A token is described, is renewed, makes no other tokens, and is worth nothing once it has expired."""
    token = create(admin, recorder, renewers=["User:bob"], max_lifetime_ms=3_600_000)
    assert (token.owner, token.requester, token.renewers) == (("User", "alice"), ("User", "alice"), (("User", "bob"),))
    assert token.expiry_timestamp_ms == token.max_timestamp_ms == token.issue_timestamp_ms + 3_600_000
    assert token in admin.describe_delegation_tokens(["User:bob"])
    assert admin.describe_delegation_tokens(["User:erin"]) == []
    expiry_ms = admin.renew_delegation_token(token.hmac, renew_period_ms=600_000)
    assert token.issue_timestamp_ms + 600_000 <= expiry_ms < token.max_timestamp_ms
    config = with_token(settings(secure, SCRAM), token)
    with Admin(config) as client:
        assert isinstance(client.list_topics(), list)
        for forbidden in (client.create_delegation_token, client.describe_delegation_tokens):
            with pytest.raises(UnsupportedByAuthenticationError):
                forbidden()
    with pytest.raises(InvalidPrincipalTypeError):
        admin.create_delegation_token(["Group:staff"])
    with pytest.raises(DelegationTokenNotFoundError):
        admin.renew_delegation_token(b"no such token")
    admin.expire_delegation_token(token.hmac)
    eventually(lambda: token.token_id not in ids(admin), 20.0, "the token is gone")
    text = refusal(config, topic)
    assert secure.bootstrap("SASL_PLAINTEXT") in text
    assert f"{SCRAM} failed" in text
    assert "check the delegation token's id and HMAC, and whether it has expired" in text


def ids(admin: Admin) -> set[str]:
    return {token.token_id for token in admin.describe_delegation_tokens()}


@pytest.mark.exhaustive
def test_a_session_ends_with_its_token(
    secure: SecureCluster, admin: Admin, recorder: SecretRecorder, topic: str
) -> None:
    """A connection does not outlive the token. The records until then are written once each.

    The next record is retried until its delivery timeout, as in Java, because somebody might renew credentials. Its
    error names the cause, and calls that need metadata fail with it.
    """
    token = create(admin, recorder, max_lifetime_ms=8_000)
    config = with_token(settings(secure, SCRAM), token)
    acknowledged: list[bytes] = []
    with KafkaProducer(config, delivery_timeout_ms=3_000, request_timeout_ms=2_000) as producer:
        with pytest.raises((KafkaTimeoutError, SaslAuthenticationError), match=r"whether it has expired"):
            send_until_error(producer, topic, acknowledged)
        with pytest.raises(SaslAuthenticationError):
            producer.partitions_for(f"{topic}-unknown")
    assert acknowledged
    found = consume(settings(secure, "PLAIN"), topic, len(acknowledged))
    assert found[: len(acknowledged)] == acknowledged


def send_until_error(producer: KafkaProducer[Any, Any], topic: str, acknowledged: list[bytes]) -> None:
    """Send one record after the other, and collect those that the broker has acknowledged."""
    while True:
        value = b"value-%d" % len(acknowledged)
        producer.send(topic, value).get(60)
        acknowledged.append(value)
        sleep(0.02)  # leave the processor to others


def test_tokens_need_an_authenticated_connection(secure: SecureCluster) -> None:
    with Admin({"bootstrap.servers": secure.bootstrap("PLAINTEXT")}) as nobody:
        for call in (nobody.create_delegation_token, nobody.describe_delegation_tokens):
            with pytest.raises(UnsupportedByAuthenticationError):
                call()


# --- on the embedded cluster -----------------------------------------------------------------------------------------


@pytest.fixture
def cluster() -> Iterator[EmbeddedCluster]:
    """Three brokers with an authorizer and tokens."""
    with EmbeddedCluster(
        3,
        security=Security(users=USERS),
        acls=[Acl("User:alice", topic="orders", operations=["READ", "WRITE", "CREATE"])],
        super_users="User:admin",
        delegation_token_secret_key="key of tokens",
    ) as running:
        running.create_topic("orders", replication_factor=3)
        yield running


def of(cluster: EmbeddedCluster, user: str) -> Admin:
    return Admin(cluster.client_config(user=user))


def test_tokens_are_disabled_without_secret_key() -> None:
    with EmbeddedCluster(security="SASL_PLAINTEXT") as cluster, Admin(cluster.client_config()) as admin:
        for call in (admin.create_delegation_token, admin.describe_delegation_tokens):
            with pytest.raises(DelegationTokenDisabledError):
                call()


def test_a_token_has_its_owners_permissions(cluster: EmbeddedCluster) -> None:
    """An administrator makes a token for alice, which may do what alice may."""
    with of(cluster, "bob") as bob, pytest.raises(Exception, match="Not authorized"):
        bob.create_delegation_token(owner="User:alice")
    with of(cluster, "admin") as admin:
        token = admin.create_delegation_token(owner="User:alice")
    assert (token.owner, token.requester) == (("User", "alice"), ("User", "admin"))
    config = with_token(cluster.client_config(user="alice"), token)
    with KafkaProducer(config, enable_idempotence=False) as producer:
        sent = producer.send("orders", b"1").get(30)
    with KafkaConsumer(config) as consumer:
        consumer.assign([sent.topic_partition])
        consumer.seek(sent.topic_partition, 0)
        assert next(consumer).value == b"1"
    (produced,) = cluster.requests_of("PRODUCE")
    assert produced.principal == "User:alice"


@pytest.mark.parametrize("release", ["2.0", "2.8"])
def test_old_releases_support_delegation_tokens(release: str) -> None:
    """Older versions of the requests work as well; they do not tell who has requested a token."""
    with (
        EmbeddedCluster(security=Security(users=USERS), release=release, delegation_token_secret_key="key") as cluster,
        of(cluster, "alice") as alice,
    ):
        token = alice.create_delegation_token(["User:bob"])
        (described,) = alice.describe_delegation_tokens()
        assert described._replace(requester=token.requester) == token
        assert alice.renew_delegation_token(token.hmac) >= token.issue_timestamp_ms
        with KafkaProducer(with_token(cluster.client_config(user="alice"), token)) as producer:
            assert producer.send("t", b"1").get(30).offset == 0
        alice.expire_delegation_token(token.hmac)
        assert alice.describe_delegation_tokens() == []


def test_tokens_are_visible_to_owners_renewers_and_by_acl(cluster: EmbeddedCluster) -> None:
    with of(cluster, "alice") as alice, of(cluster, "bob") as bob:
        hidden = alice.create_delegation_token()
        shared = alice.create_delegation_token(["User:bob"])
        assert alice.describe_delegation_tokens() == [hidden, shared]
        assert bob.describe_delegation_tokens() == [shared]
        assert bob.describe_delegation_tokens([]) == []
        assert bob.renew_delegation_token(shared.hmac) >= shared.issue_timestamp_ms
        with pytest.raises(DelegationTokenOwnerMismatchError):
            bob.renew_delegation_token(hidden.hmac)
        cluster.add_acls(Acl("User:bob", "DESCRIBE", delegation_token=hidden.token_id))
        assert [token.token_id for token in bob.describe_delegation_tokens()] == [hidden.token_id, shared.token_id]
        assert alice.expire_delegation_token(hidden.hmac, expiry_period_ms=60_000) < hidden.expiry_timestamp_ms


def test_tokens_survive_broker_restarts(cluster: EmbeddedCluster) -> None:
    """Tokens are metadata of the cluster: whichever broker is the controller, all know them."""
    with of(cluster, "alice") as alice:
        token = alice.create_delegation_token()
    for broker in (1, 2, 3):
        cluster.kill(broker)
        cluster.restart(broker)
    config = with_token(cluster.client_config(user="alice"), token)
    with KafkaProducer(config, enable_idempotence=False) as producer:
        assert producer.send("orders", b"1").get(30).topic == "orders"


def test_broker_without_controller_refuses_token_changes() -> None:
    """A broker that is cut off from the controller still knows the tokens, and clients try changes again."""
    with (
        EmbeddedCluster(security=Security(users=USERS), delegation_token_secret_key="key") as cluster,
        of(cluster, "alice") as alice,
    ):
        token = alice.create_delegation_token()
        cluster.faults.cut(1, "coordination")
        assert alice.describe_delegation_tokens() == [token]
        with pytest.raises((NotControllerError, KafkaTimeoutError)):
            alice.create_delegation_token(timeout_ms=500)
        assert alice.describe_delegation_tokens() == [token]
        cluster.faults.heal()
        other = alice.create_delegation_token()
        assert alice.describe_delegation_tokens() == [token, other]
