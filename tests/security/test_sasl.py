"""SASL on the embedded cluster and on real Kafka: records both ways by every mechanism, and failures that explain."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from time import monotonic, time
from typing import Any, Protocol

import pytest

from pykclient import KafkaConsumer, KafkaProducer, OffsetAndMetadata, TopicPartition
from pykclient.aio import AIOKafkaProducer
from pykclient.errors import (
    AuthenticationError,
    IllegalSaslStateError,
    SaslAuthenticationError,
)
from pykclient.testing import EmbeddedCluster, Security
from tests.kafka.secure_kafka import PASSWORD, SESSION_MS, USER
from tests.security.tokens import TokenServer, unsecured_token
from tests.support.any_kafka import EMBEDDED, REAL
from tests.support.forward_proxy import ForwardProxy
from tests.support.wait import eventually

RECORDS = 1000
PASSWORDS = ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"]
MECHANISMS = [*PASSWORDS, "OAUTHBEARER"]
JAAS = {
    "PLAIN": "org.apache.kafka.common.security.plain.PlainLoginModule",
    "SCRAM-SHA-256": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "SCRAM-SHA-512": "org.apache.kafka.common.security.scram.ScramLoginModule",
}


class SecureCluster(Protocol):
    """The embedded cluster or real Kafka, with the listeners of tests/kafka/secure_kafka.py."""

    def bootstrap(self, listener: str) -> str:
        """Return the addresses of a listener."""

    def path(self, name: str) -> str:
        """Return the path of a file: ca.pem has the certificate of the authority."""


class EmbeddedSecureCluster:
    """Two embedded clusters, because the limit of sessions is a setting of brokers."""

    def __init__(self, files: Path) -> None:
        self._files = files
        users = {USER: PASSWORD}
        over_tls = Security("SASL_SSL", users=users)
        (files / "ca.pem").write_text(over_tls.client_config()["ssl.ca.pem"])
        listeners: dict[str, str | Security] = {
            "PLAINTEXT": "PLAINTEXT",
            "SASL_PLAINTEXT": Security("SASL_PLAINTEXT", users=users),
            "SASL_SSL": over_tls,
        }
        self.cluster = EmbeddedCluster(security=listeners, delegation_token_secret_key="secret-key")
        self.short_sessions = EmbeddedCluster(
            security=Security("SASL_PLAINTEXT", users=users), connections_max_reauth_ms=SESSION_MS
        )

    def bootstrap(self, listener: str) -> str:
        if listener == "SHORT_SESSIONS":
            return self.short_sessions.bootstrap_servers
        return str(self.cluster.client_config(listener)["bootstrap.servers"])

    def path(self, name: str) -> str:
        return str(self._files / name)


@pytest.fixture(scope="module", params=[EMBEDDED, REAL])
def secure(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecureCluster]:
    if request.param == "real":
        yield request.getfixturevalue("secure_kafka")
        return
    clusters = EmbeddedSecureCluster(tmp_path_factory.mktemp("secure"))
    with clusters.cluster, clusters.short_sessions:
        yield clusters


def a_token(config: str | None) -> tuple[str, float]:
    """Return an unsecured token and when it expires, as confluent-kafka's callback does."""
    assert not config
    return unsecured_token(USER, 3600), time() + 3600


def settings(kafka: SecureCluster, mechanism: str, listener: str = "SASL_PLAINTEXT", **more: Any) -> dict[str, Any]:
    credentials = {"sasl.username": USER, "sasl.password": PASSWORD}
    return {
        "bootstrap.servers": kafka.bootstrap(listener),
        "security.protocol": "SASL_SSL" if listener == "SASL_SSL" else "SASL_PLAINTEXT",
        **({"ssl.ca.location": kafka.path("ca.pem")} if listener == "SASL_SSL" else {}),
        "sasl.mechanism": mechanism,
        **({"oauth_cb": a_token} if mechanism == "OAUTHBEARER" else credentials),
        **more,
    }


def produce(config: Mapping[str, Any], topic: str, count: int = RECORDS) -> list[bytes]:
    values = [b"value-%d" % number for number in range(count)]
    with KafkaProducer(config) as producer:
        for value in values:
            producer.send(topic, value)
        producer.flush(30)
    return values


def consume(config: Mapping[str, Any], topic: str, count: int = RECORDS) -> list[bytes]:
    values: list[bytes] = []
    with KafkaConsumer(topic, auto_offset_reset="earliest", **{k.replace(".", "_"): v for k, v in config.items()}) as c:
        end = monotonic() + 60
        while len(values) < count and monotonic() < end:
            for records in c.poll(1000).values():
                values += [record.value or b"" for record in records]
    return values


def consume_with_librdkafka(config: Mapping[str, Any], topic: str, count: int = RECORDS) -> list[bytes]:
    from confluent_kafka import Consumer

    consumer = Consumer({**config, "group.id": f"{topic}-librdkafka", "auto.offset.reset": "earliest"})
    try:
        consumer.subscribe([topic])
        values: list[bytes] = []
        end = monotonic() + 60
        while len(values) < count and monotonic() < end:
            for message in consumer.consume(count, 1):
                value = message.value()
                assert message.error() is None
                assert isinstance(value, bytes)
                values.append(value)
        return values
    finally:
        consumer.close()


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("listener", ["SASL_PLAINTEXT", "SASL_SSL"])
def test_each_mechanism_carries_records(secure: SecureCluster, topic: str, listener: str, mechanism: str) -> None:
    config = settings(secure, mechanism, listener)
    values = produce(config, topic)
    assert consume(config, topic) == values
    assert consume_with_librdkafka(config, topic) == values


@pytest.mark.parametrize("scheme", ["socks5", "http"])
def test_records_round_trip_through_proxy(secure: SecureCluster, topic: str, scheme: str) -> None:
    """TLS and SASL run inside of the proxy's tunnel, which is the only way to the brokers."""
    with ForwardProxy({"127.0.0.1": "127.0.0.1", "localhost": "127.0.0.1"}, ("user", "hush-proxy")) as proxy:
        url = proxy.url(scheme, ("user", "hush-proxy"))
        config = settings(secure, "SCRAM-SHA-256", "SASL_SSL", **{"proxy.url": url})
        values = produce(config, topic)
        assert consume(config, topic) == values
        assert proxy.connections >= 4  # each client's bootstrap connection, and another one


@pytest.mark.parametrize("mechanism", PASSWORDS)
def test_jaas_config_authenticates(secure: SecureCluster, topic: str, mechanism: str) -> None:
    config = settings(secure, mechanism)
    del config["sasl.username"], config["sasl.password"]
    config["sasl.jaas.config"] = f'{JAAS[mechanism]} required username="{USER}" password="{PASSWORD}";'
    assert consume(config, topic, len(produce(config, topic, 10))) == [b"value-%d" % number for number in range(10)]


async def _send_from_a_loop(config: Mapping[str, Any], topic: str) -> int:
    async with AIOKafkaProducer(config) as producer:
        sent = [await producer.send(topic, b"value-%d" % number) for number in range(RECORDS)]
        return len([await future for future in sent])


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-512", "OAUTHBEARER"])
def test_asyncio_producer_authenticates(secure: SecureCluster, topic: str, mechanism: str) -> None:
    import asyncio

    config = settings(secure, mechanism)
    assert asyncio.run(_send_from_a_loop(config, topic)) == RECORDS
    assert len(consume(config, topic)) == RECORDS


# --- failures --------------------------------------------------------------------------------------------------------


#: A refusal reaches each call within this time.
SOON_MS = 20_000


REFUSED = [
    ("PLAIN", {"sasl.password": "hush-wrong"}, SaslAuthenticationError, "check the user name and the password"),
    ("PLAIN", {"sasl.username": "nobody"}, SaslAuthenticationError, "check the user name and the password"),
    ("SCRAM-SHA-256", {"sasl.password": "hush-wrong"}, SaslAuthenticationError, "check the user name, the password"),
    ("SCRAM-SHA-512", {"sasl.username": "nobody"}, SaslAuthenticationError, "check the user name, the password"),
    ("OAUTHBEARER", {"oauth_cb": lambda: "hush.hush.hush"}, SaslAuthenticationError, "the token's issuer, audience"),
]


@pytest.mark.parametrize(("mechanism", "change", "kind", "remedy"), REFUSED)
def test_refused_credentials_reach_every_caller(
    secure: SecureCluster,
    topic: str,
    mechanism: str,
    change: dict[str, Any],
    kind: type[AuthenticationError],
    remedy: str,
) -> None:
    config = settings(secure, mechanism, **change)
    errors: list[BaseException] = []
    with KafkaProducer(config, max_block_ms=SOON_MS) as producer:
        with pytest.raises(kind) as caught:
            producer.send(topic, b"v").get(SOON_MS / 1000)
        errors.append(caught.value)
        with pytest.raises(kind) as caught:
            producer.partitions_for(topic)
        errors.append(caught.value)
    keywords = {k.replace(".", "_"): v for k, v in config.items()}
    keywords |= {"request_timeout_ms": SOON_MS, "default_api_timeout_ms": SOON_MS}
    with KafkaConsumer(topic, **keywords, group_id=topic) as consumer:
        with pytest.raises(kind) as caught:
            consumer.poll(SOON_MS)
        errors.append(caught.value)
        with pytest.raises(kind) as caught:
            consumer.end_offsets([TopicPartition(topic, 0)])
        errors.append(caught.value)
        with pytest.raises(kind) as caught:
            consumer.commit({TopicPartition(topic, 0): OffsetAndMetadata(1, "", -1)})
        errors.append(caught.value)
    for error in errors:
        text = str(error)
        assert secure.bootstrap("SASL_PLAINTEXT") in text
        assert mechanism in text
        assert remedy in text
        assert "hush" not in text
        assert PASSWORD not in text


def test_error_names_listener_without_sasl(secure: SecureCluster, topic: str) -> None:
    config = settings(secure, "PLAIN", "PLAINTEXT")
    with (
        KafkaProducer(config, max_block_ms=SOON_MS) as producer,
        pytest.raises(IllegalSaslStateError, match=r"the listener does not use SASL; set security\.protocol"),
    ):
        producer.send(topic, b"v").get(SOON_MS / 1000)


# --- re-authentication -----------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(
    "mechanism",
    [
        pytest.param("PLAIN", marks=pytest.mark.exhaustive),
        pytest.param("SCRAM-SHA-256", marks=pytest.mark.exhaustive),
        "OAUTHBEARER",
    ],
)
def test_reauthentication_loses_no_record(secure: SecureCluster, topic: str, mechanism: str) -> None:
    """No record fails, is lost or comes twice, and all over one connection to the broker."""
    config = settings(secure, mechanism, "SHORT_SESSIONS")
    sent = 0
    received: list[bytes] = []
    keywords = {k.replace(".", "_"): v for k, v in config.items()}
    with KafkaProducer(config) as producer, KafkaConsumer(topic, auto_offset_reset="earliest", **keywords) as consumer:
        end = monotonic() + 6 * SESSION_MS / 1000
        futures = []
        while monotonic() < end:
            for _ in range(20):
                futures.append(producer.send(topic, b"%d" % sent))
                sent += 1
            for records in consumer.poll(10).values():
                received += [record.value or b"" for record in records]
        for future in futures:
            assert future.get(30).offset >= 0
        end = monotonic() + 30
        while len(received) < sent and monotonic() < end:
            for records in consumer.poll(1000).values():
                received += [record.value or b"" for record in records]
        assert received == [b"%d" % number for number in range(sent)]
        for client in (producer, consumer):
            totals = [
                values["successful-reauthentication-total"]
                for group, values in client.metrics().items()
                if "successful-reauthentication-total" in values
            ]
            assert max(totals) >= 5, totals
            closed = [v["connection-close-total"] for v in client.metrics().values() if "connection-close-total" in v]
            assert sum(closed) <= 1, "the bootstrap connection alone"


# --- identity providers ----------------------------------------------------------------------------------------------


def endpoint_settings(secure: SecureCluster, url: str) -> dict[str, Any]:
    config = settings(secure, "OAUTHBEARER")
    del config["oauth_cb"]
    config["sasl.oauthbearer.token.endpoint.url"] = url
    config["sasl.oauthbearer.client.credentials.client.id"] = "client"
    config["sasl.oauthbearer.client.credentials.client.secret"] = "hush-secret"
    return config


def test_tokens_come_from_identity_provider(secure: SecureCluster, topic: str) -> None:
    with TokenServer(USER) as provider:
        config = endpoint_settings(secure, provider.url)
        assert consume(config, topic, len(produce(config, topic, 10))) == [b"value-%d" % number for number in range(10)]
        assert len(provider.requests) == 2, "one for each client, whatever its connections"


def test_token_is_read_from_file(secure: SecureCluster, topic: str, tmp_path: Path) -> None:
    (tmp_path / "a token").write_text(unsecured_token(USER, 3600) + "\n")
    config = settings(secure, "OAUTHBEARER")
    del config["oauth_cb"]
    config["sasl.oauthbearer.token.endpoint.url"] = (tmp_path / "a token").as_uri()
    assert len(produce(config, topic, 10)) == 10


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ("down", "sasl.oauthbearer.token.endpoint.url and whether the identity provider is up"),
        ("refuses", "check the client's id, its secret or assertion, the scope"),
        ("expired", "by this machine's clock; check the clock"),
    ],
)
def test_failures_of_an_identity_provider_reach_every_caller(
    secure: SecureCluster, topic: str, answer: str, said: str
) -> None:
    with TokenServer(USER) as provider:
        provider.status = 401 if answer == "refuses" else 200
        provider.lifetime_s = -10 if answer == "expired" else 3600
        if answer == "down":
            provider.close()
        config = endpoint_settings(secure, provider.url)
        with KafkaProducer(config, max_block_ms=SOON_MS) as producer:
            with pytest.raises(SaslAuthenticationError) as caught:
                producer.send(topic, b"v").get(SOON_MS / 1000)
            with pytest.raises(SaslAuthenticationError):
                producer.partitions_for(topic)
    assert said in str(caught.value)
    assert "hush" not in str(caught.value)
    assert secure.bootstrap("SASL_PLAINTEXT").split(",")[0] in str(caught.value)


# --- users -----------------------------------------------------------------------------------------------------------


def test_users_are_added_and_removed_while_the_cluster_runs(secure: SecureCluster, topic: str) -> None:
    from confluent_kafka.admin import AdminClient
    from confluent_kafka.admin._scram import (
        ScramCredentialInfo,
        ScramMechanism,
        UserScramCredentialDeletion,
        UserScramCredentialUpsertion,
    )

    admin = AdminClient({"bootstrap.servers": secure.bootstrap("PLAINTEXT")})
    user = f"user,of={topic}"

    def alter(change: Any) -> None:
        for outcome in admin.alter_user_scram_credentials([change]).values():
            outcome.result(30)

    def outcome_of(password: str, mechanism: str = "SCRAM-SHA-256") -> str:
        config = settings(secure, mechanism, **{"sasl.username": user, "sasl.password": password})
        with KafkaProducer(config) as producer:
            try:
                producer.send(topic, b"v").get(SOON_MS / 1000)
            except SaslAuthenticationError:
                return "refused"
        return "accepted"

    assert outcome_of("one") == "refused"
    alter(UserScramCredentialUpsertion(user, ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 8192), b"one"))
    eventually(lambda: outcome_of("one") == "accepted", 30, "the user is known")
    assert outcome_of("one", "SCRAM-SHA-512") == "refused"
    found = admin.describe_user_scram_credentials([user])
    assert isinstance(found, dict)
    described = found[user].result(30)
    assert [(info.mechanism, info.iterations) for info in described.scram_credential_infos] == [
        (ScramMechanism.SCRAM_SHA_256, 8192)
    ]
    alter(UserScramCredentialUpsertion(user, ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096), "zwö".encode()))
    eventually(lambda: outcome_of("zwö") == "accepted", 10, "the password is changed")
    assert outcome_of("one") == "refused"
    alter(UserScramCredentialDeletion(user, ScramMechanism.SCRAM_SHA_256))
    eventually(lambda: outcome_of("zwö") == "refused", 10, "the user is gone")
    for change, problem in (
        (UserScramCredentialDeletion(user, ScramMechanism.SCRAM_SHA_256), "RESOURCE_NOT_FOUND"),
        (
            UserScramCredentialUpsertion(user, ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 100), b"x"),
            "UNACCEPTABLE_CREDENTIAL",
        ),
        (
            UserScramCredentialUpsertion(user, ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 16_385), b"x"),
            "UNACCEPTABLE_CREDENTIAL",
        ),
    ):
        with pytest.raises(Exception, match=problem):
            alter(change)
