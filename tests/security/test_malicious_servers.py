"""Servers that cheat in the SASL exchange, over real connections: the client refuses, soon, and reveals nothing."""

from __future__ import annotations

import contextlib
import socket
import threading
import tracemalloc
from collections.abc import Callable
from typing import Self

import pytest

from pykclient import KafkaProducer
from pykclient.errors import AuthenticationError, KafkaTimeoutError, UnsupportedSaslMechanismError
from pykclient.protocol.messages.sasl_authenticate import SaslAuthenticateResponse
from pykclient.protocol.messages.sasl_handshake import SaslHandshakeResponse
from pykclient.testing import EmbeddedCluster
from tests.security.test_sasl_client_authenticator import ScriptedBroker
from tests.support.wait import eventually

PASSWORD = "hush-hush-hush"
SOON_MS = 20_000
SALT = b"s=W22ZaJ0SNY7soEsUEjb6gQ=="


class MaliciousServer:
    """Accepts connections and answers each frame with ``respond``. Thread: any."""

    def __init__(self, new_broker: Callable[[], ScriptedBroker]) -> None:
        self._new_broker = new_broker
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._socket.getsockname()[1]}"
        self.received: list[bytes] = []
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        self._socket.close()

    def _run(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self._socket.accept()
                with connection, contextlib.suppress(OSError, EOFError):
                    self._serve(connection)

    def _serve(self, connection: socket.socket) -> None:
        broker = self._new_broker()
        stream = connection.makefile("rb")
        while size := stream.read(4):
            frame = size + stream.read(int.from_bytes(size, "big"))
            self.received.append(frame)
            response = broker.respond(frame)
            size_bytes = getattr(broker, "size_bytes", len(response))
            connection.sendall(size_bytes.to_bytes(4, "big") + response)


class Announcing(ScriptedBroker):
    """Announces the largest first response that a client accepts, 16 MiB, and sends one byte of it."""

    size_bytes = 16 * 1024 * 1024

    def respond(self, frame: bytes) -> bytes:
        return b"\0"


def scripted(*challenges: Callable[[bytes], bytes], change: Callable[[bytes], bytes] = bytes) -> ScriptedBroker:
    """Return a broker with these challenges, of which each is a function of the client's first message."""
    steps = list(challenges)
    first: list[bytes] = []

    def token(data: bytes) -> SaslAuthenticateResponse:
        first.append(data)
        challenge = steps.pop(0) if len(steps) > 1 else steps[0]
        return SaslAuthenticateResponse(auth_bytes=challenge(first[0]))

    return ScriptedBroker(token=token, change=change)


def nonce_of(first: bytes) -> bytes:
    return first.rpartition(b",r=")[2]


def challenge(suffix: bytes, iterations: bytes = b"4096") -> Callable[[bytes], bytes]:
    return lambda first: b"r=" + nonce_of(first) + suffix + b"," + SALT + b",i=" + iterations


def says(token: bytes) -> Callable[[bytes], bytes]:
    return lambda _: token


def _late(change: Callable[[bytes], bytes]) -> Callable[[bytes], bytes]:
    """Apply a change from the third response on: the one to the first token."""
    count = 0

    def changed(frame: bytes) -> bytes:
        nonlocal count
        count += 1
        return change(frame) if count > 2 else frame

    return changed


SCRAM = "SCRAM-SHA-256"
CHEATS: dict[str, tuple[str, Callable[[], ScriptedBroker], str]] = {
    "no proof": (SCRAM, lambda: scripted(challenge(b"x"), says(b"")), "malformed"),
    "success at once": (SCRAM, lambda: scripted(says(b"")), "malformed"),
    "a wrong proof": (SCRAM, lambda: scripted(challenge(b"x"), says(b"v=" + b"A" * 43 + b"=")), "signature is wrong"),
    "the client's nonce alone": (SCRAM, lambda: scripted(challenge(b"")), "nonce"),
    "another nonce": (SCRAM, lambda: scripted(says(b"r=other," + SALT + b",i=4096")), "nonce"),
    "one iteration": (SCRAM, lambda: scripted(challenge(b"x", b"1")), "1 iterations, outside of 4096"),
    "years of iterations": (SCRAM, lambda: scripted(challenge(b"x", b"2147483648")), "2147483648 iterations"),
    "an endless number": (SCRAM, lambda: scripted(challenge(b"x", b"9" * 100_000)), "malformed"),
    "the exchange over again": (SCRAM, lambda: scripted(challenge(b"x")), "malformed"),
    "endless errors of a token": ("OAUTHBEARER", lambda: scripted(says(b'{"status":"invalid"}')), "refused the token"),
    "a huge token": (SCRAM, lambda: scripted(says(b"x" * 600_000)), "bytes, more than 524288"),
    "a response of another kind": (SCRAM, lambda: scripted(says(b""), change=_late(lambda f: f[:4])), "unreadable"),
    "another request's response": (
        SCRAM,
        lambda: scripted(says(b""), change=_late(lambda f: b"\0\0\0\7" + f[4:])),
        "responded to request 7",
    ),
}


def config_of(address: str, mechanism: str) -> dict[str, object]:
    secret: dict[str, object] = {"sasl.username": "alice", "sasl.password": PASSWORD}
    if mechanism == "OAUTHBEARER":
        secret = {"oauth_cb": lambda: "token-" + PASSWORD}
    return {
        "bootstrap.servers": address,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": mechanism,
        "max.block.ms": SOON_MS,
        **secret,
    }


@pytest.mark.parametrize("cheat", CHEATS)
def test_client_explains_refusal_of_cheating_server(cheat: str) -> None:
    mechanism, new_broker, problem = CHEATS[cheat]
    with (
        MaliciousServer(new_broker) as server,
        KafkaProducer(config_of(server.address, mechanism)) as producer,
        pytest.raises(AuthenticationError, match=problem) as caught,
    ):
        producer.partitions_for("t")
    assert f"Authentication with {server.address} by {mechanism} failed" in str(caught.value)
    if mechanism == SCRAM:
        assert PASSWORD.encode() not in b"".join(server.received)


@pytest.mark.parametrize("code", [33, 0])
def test_client_never_falls_back_to_weaker_mechanism(code: int) -> None:
    def new_broker() -> ScriptedBroker:
        broker = scripted(says(b""))
        broker.handshake = SaslHandshakeResponse(error_code=code, mechanisms=["PLAIN"])
        return broker

    kind = UnsupportedSaslMechanismError if code else AuthenticationError
    with (
        MaliciousServer(new_broker) as server,
        KafkaProducer(config_of(server.address, SCRAM)) as producer,
        pytest.raises(kind, match=SCRAM) as caught,
    ):
        producer.partitions_for("t")
    assert server.address in str(caught.value)
    assert code == 0 or "only PLAIN; set sasl.mechanism" in str(caught.value)
    sent = b"".join(server.received)
    assert b"SCRAM-SHA-256" in sent
    assert b"PLAIN" not in sent
    assert PASSWORD.encode() not in sent


def test_announced_frame_allocates_no_memory_and_blocks_no_others() -> None:
    """Other clients of the process go on, and the caller's timeout holds."""
    with MaliciousServer(Announcing) as server, EmbeddedCluster() as cluster:
        tracemalloc.start()
        try:
            with KafkaProducer(bootstrap_servers=cluster.bootstrap_servers) as other:
                config = {**config_of(server.address, SCRAM), "max.block.ms": 500}
                with KafkaProducer(config) as producer:
                    with pytest.raises(KafkaTimeoutError):
                        producer.partitions_for("t")
                    eventually(lambda: server.received)
                assert other.send("t", b"x").get(30).offset == 0
            assert tracemalloc.get_traced_memory()[1] < 12 * 1024 * 1024
        finally:
            tracemalloc.stop()


def test_changed_byte_ends_connection_or_is_harmless() -> None:
    """One byte of each response is changed, at places spread over all of them."""
    honest = b"r=%s," + SALT + b",i=4096"
    for place in range(0, 120, 7):
        step = place % 3

        def new_broker(step: int = step, place: int = place) -> ScriptedBroker:
            count = -1

            def change(frame: bytes) -> bytes:
                nonlocal count
                count += 1
                if count != step:
                    return frame
                changed = bytearray(frame)
                changed[place % len(frame)] ^= 0x41
                return bytes(changed)

            return scripted(lambda first: honest % (nonce_of(first) + b"x"), says(b"v=AAAA"), change=change)

        with (
            MaliciousServer(new_broker) as server,
            KafkaProducer(config_of(server.address, SCRAM)) as producer,
            pytest.raises(AuthenticationError, match=server.address),
        ):
            producer.partitions_for("t")
        assert PASSWORD.encode() not in b"".join(server.received)
