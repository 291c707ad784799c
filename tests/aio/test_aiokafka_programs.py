"""Programs for aiokafka behave the same: errors, rebalance listeners, transactions, the client, sources of tokens."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Coroutine, Iterator
from pathlib import Path
from typing import Any

import aiokafka.errors
import pytest

from pykclient import KafkaProducer
from pykclient.aio import AIOKafkaConsumer, AIOKafkaProducer, ConsumerRebalanceListener, OffsetAndTimestamp, errors
from pykclient.aio.abc import AbstractTokenProvider
from pykclient.aio.helpers import create_ssl_context
from pykclient.errors import SaslAuthenticationError
from pykclient.testing import EmbeddedCluster, Security
from pykclient.testing.certificates import CertificateAuthority
from pykclient.types import TopicPartition
from tests.security.tokens import unsecured_token

TP = TopicPartition("t", 0)
TIMEOUT_S = 60


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(config={"group.initial.rebalance.delay.ms": 0}) as made:
        made.create_topic("t", 1)
        with KafkaProducer[Any, Any](bootstrap_servers=made.bootstrap_servers) as producer:
            producer.send("t", b"0", timestamp_ms=1_000)
            producer.send("t", b"1", timestamp_ms=2_000)
        yield made


def run(main: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(main, TIMEOUT_S))


ERRORS = sorted(
    name
    for name, value in vars(aiokafka.errors).items()
    if isinstance(value, type) and issubclass(value, Exception) and not name.startswith("_")
)


@pytest.mark.parametrize("name", ERRORS)
def test_error_has_the_code_of_aiokafka(name: str) -> None:
    theirs, ours = getattr(aiokafka.errors, name), getattr(errors, name)
    # A loop that catches KafkaError and goes on must not go on with a consumer that is stopped.
    assert issubclass(ours, errors.KafkaError) is (name != "ConsumerStoppedError")
    code = getattr(theirs, "errno", None)
    if code is not None:
        assert ours.code == code


class Seeking(ConsumerRebalanceListener):
    """Seeks to the end as soon as partitions are assigned, itself or in a task that it waits for."""

    def __init__(self, is_task: bool) -> None:
        self.is_task = is_task
        self.consumer: AIOKafkaConsumer
        self.positions: list[int | None] = []

    async def on_partitions_revoked(self, revoked: set[TopicPartition]) -> None: ...

    async def on_partitions_assigned(self, assigned: set[TopicPartition]) -> None:
        await (asyncio.ensure_future(self.seek()) if self.is_task else self.seek())

    async def seek(self) -> None:
        self.positions = [await self.consumer.committed(TP), await self.consumer.position(TP)]
        assert await self.consumer.seek_to_end(TP)
        self.positions.append(await self.consumer.position(TP))


@pytest.mark.parametrize("is_task", [False, True])
def test_listener_may_seek_to_the_end(cluster: EmbeddedCluster, is_task: bool) -> None:
    async def main() -> None:
        listener = Seeking(is_task)
        consumer = AIOKafkaConsumer(
            bootstrap_servers=cluster.bootstrap_servers,
            group_id=f"seeking-{is_task}",
            auto_offset_reset="earliest",
            enable_auto_commit=False,
        )
        listener.consumer = consumer
        consumer.subscribe(["t"], listener=listener)
        async with consumer:
            assert listener.positions == [None, 0, 2]

    run(main())


def test_missing_group_offset_raises_without_a_reset_policy(cluster: EmbeddedCluster) -> None:
    async def main() -> None:
        servers = cluster.bootstrap_servers
        consumer = AIOKafkaConsumer("t", bootstrap_servers=servers, group_id="none", auto_offset_reset="none")
        async with consumer:  # the start does not fail
            with pytest.raises(errors.NoOffsetForPartitionError):
                await consumer.getmany(timeout_ms=TIMEOUT_S * 1000)
            with pytest.raises(errors.NoOffsetForPartitionError):
                await consumer.getone()
            consumer.seek(TP, 19_999)
            with pytest.raises(errors.OffsetOutOfRangeError):
                await consumer.getone(TP)
            consumer.seek(TP, 1)
            assert (await consumer.getone()).value == b"1"

    run(main())


def test_offsets_for_times_accepts_plain_timestamps(cluster: EmbeddedCluster) -> None:
    async def main() -> None:
        async with AIOKafkaConsumer(bootstrap_servers=cluster.bootstrap_servers) as consumer:
            assert await consumer.offsets_for_times({TP: 1_500}) == {TP: OffsetAndTimestamp(1, 2_000)}
            assert OffsetAndTimestamp(1, 2_000) == (1, 2_000)
            assert await consumer.offsets_for_times({TP: 2_500}) == {TP: None}

    run(main())


def test_client_add_topic_adds_to_the_metadata(cluster: EmbeddedCluster) -> None:
    async def main() -> None:
        async with AIOKafkaProducer(bootstrap_servers=cluster.bootstrap_servers) as producer:
            assert "t" not in producer.client.cluster.topics()
            producer.client.add_topic("t")
            assert await producer.client.force_metadata_update()
            assert producer.client.cluster.partitions_for_topic("t") == {0}
            with pytest.raises(errors.InvalidTopicError):
                producer.client.add_topic("a/b")

    run(main())


def test_send_offsets_needs_a_transaction_and_a_group(cluster: EmbeddedCluster) -> None:
    async def main() -> None:
        servers = cluster.bootstrap_servers
        async with AIOKafkaProducer(bootstrap_servers=servers, transactional_id="offsets") as producer:
            with pytest.raises(errors.IllegalOperation, match="send_offsets_to_transaction"):
                await producer.send_offsets_to_transaction({}, group_id=None)  # type: ignore[arg-type]
            async with producer.transaction():
                with pytest.raises(ValueError, match="group"):
                    await producer.send_offsets_to_transaction({}, group_id=None)  # type: ignore[arg-type]

    run(main())


def test_transaction_block_of_a_fenced_producer_raises(cluster: EmbeddedCluster) -> None:
    async def main() -> None:
        servers = cluster.bootstrap_servers
        zombie = AIOKafkaProducer(bootstrap_servers=servers, transactional_id="fenced")
        await zombie.start()
        async with AIOKafkaProducer(bootstrap_servers=servers, transactional_id="fenced") as successor:
            async with successor.transaction():
                await successor.send_and_wait("t", b"2")
            with pytest.raises(errors.ProducerFenced):
                async with zombie.transaction():
                    await zombie.send_and_wait("t", b"zombie")
        await zombie.stop()

    run(main())


class Tokens(AbstractTokenProvider):
    """Tokens that a coroutine makes on the event loop of the client."""

    def __init__(self) -> None:
        self.loops: list[asyncio.AbstractEventLoop] = []

    async def token(self) -> str:
        await asyncio.sleep(0)
        self.loops.append(asyncio.get_running_loop())
        return unsecured_token("someone", 3600)


@pytest.fixture(scope="module")
def secure() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(security=Security("SASL_PLAINTEXT", users={"someone": "hush-word"})) as made:
        yield made


def test_token_provider_may_be_a_coroutine(secure: EmbeddedCluster) -> None:
    tokens = Tokens()
    settings: dict[str, Any] = {
        "bootstrap_servers": secure.bootstrap_servers,
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "OAUTHBEARER",
        "sasl_oauth_token_provider": tokens,
    }

    async def main() -> None:
        async with AIOKafkaProducer(**settings) as producer:
            await producer.send_and_wait("secured", b"1")
        assert tokens.loops
        assert set(tokens.loops) == {asyncio.get_running_loop()}

    run(main())
    refusal = pytest.raises(SaslAuthenticationError, match=r"coroutine, which only a running client of pykclient\.aio")
    with KafkaProducer[Any, Any](settings) as producer, refusal:  # has no loop
        producer.send("secured", b"2").get(TIMEOUT_S)


def test_ssl_context_sets_up_tls(tmp_path: Path) -> None:
    authority = CertificateAuthority()
    brokers, client = authority.issue("localhost"), authority.issue("client")
    texts = {
        "ca.crt": authority.certificate_pem,
        "client.crt": client.certificate_pem,
        "client.key": client.key_pem("hush-word"),
        "none.crl": authority.revocation_list_pem(),
        "brokers.crl": authority.revocation_list_pem(brokers),
    }
    files = {name: str(tmp_path / name) for name in texts}
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
    settings = {
        "cafile": files["ca.crt"],
        "certfile": files["client.crt"],
        "keyfile": files["client.key"],
        "password": "hush-word",
    }

    async def send(servers: str, context: ssl.SSLContext) -> None:
        async with AIOKafkaProducer(
            bootstrap_servers=servers, security_protocol="SSL", ssl_context=context, max_block_ms=TIMEOUT_S * 1000
        ) as producer:
            await producer.send_and_wait("secured", b"1")

    security = Security("SSL", authority=authority, broker_certificate=brokers, client_auth="required")
    with EmbeddedCluster(security=security, host="127.0.0.1", advertised_host="localhost") as cluster:
        servers = cluster.bootstrap_servers.replace("127.0.0.1", "localhost")
        run(send(servers, create_ssl_context(**settings, crlfile=files["none.crl"])))
        with pytest.raises(errors.KafkaError, match="revoked"):
            run(send(servers, create_ssl_context(**settings, crlfile=files["brokers.crl"])))
