"""Assertions instead of a client's secret (KIP-1258), and as grants (KIP-1139)."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from pathlib import Path
from time import time
from typing import Any

import pytest
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
from cryptography.hazmat.primitives.asymmetric.utils import encode_dss_signature

from pykclient import KafkaProducer
from pykclient.config.config_def import Password
from pykclient.errors import ConfigError, SaslAuthenticationError
from pykclient.network.authenticator.assertions import AssertionClaims, AssertionCreator
from pykclient.testing import EmbeddedCluster, Security
from tests.security.tokens import TokenServer

RSA_KEY = rsa.generate_private_key(65537, 2048)
EC_KEY = ec.generate_private_key(ec.SECP256R1())
JWT_BEARER = "org.apache.kafka.common.security.oauthbearer.JwtBearerJwtRetriever"
NOW_S = 1_700_000_000
CLAIMS = AssertionClaims("me", "app", "https://idp", 300, 60, False)


def pem_of(key: Any, password: bytes | None = None) -> bytes:
    encryption: Any = serialization.NoEncryption()
    if password is not None:
        encryption = serialization.BestAvailableEncryption(password)
    pem: bytes = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, encryption)
    return pem


def parts_of(assertion: str) -> tuple[dict[str, Any], dict[str, Any], bytes, bytes]:
    """Return header, payload, signature and what is signed."""
    header, payload, signature = (
        base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)) for part in assertion.split(".")
    )
    return json.loads(header), json.loads(payload), signature, assertion.rpartition(".")[0].encode()


def verify(assertion: str, key: Any) -> None:
    _, _, signature, signed = parts_of(assertion)
    if isinstance(key, rsa.RSAPrivateKey):
        key.public_key().verify(signature, signed, padding.PKCS1v15(), hashes.SHA256())
    else:
        assert len(signature) == 64
        numbers = int.from_bytes(signature[:32], "big"), int.from_bytes(signature[32:], "big")
        key.public_key().verify(encode_dss_signature(*numbers), signed, ec.ECDSA(hashes.SHA256()))


@pytest.fixture
def key_file(tmp_path: Path) -> Path:
    path = tmp_path / "key.pem"
    path.write_bytes(pem_of(RSA_KEY))
    return path


def creator(key_file: Path, algorithm: str = "RS256", **changes: Any) -> AssertionCreator:
    password, template = changes.pop("password", None), changes.pop("template", None)
    return AssertionCreator(
        algorithm, key_file, password, CLAIMS._replace(**changes), template, lambda: NOW_S * 1000 + 999
    )


@pytest.mark.parametrize(("algorithm", "key"), [("RS256", RSA_KEY), ("ES256", EC_KEY)])
@pytest.mark.parametrize("password", [None, b"key-secret"])
def test_an_assertion_is_signed(tmp_path: Path, algorithm: str, key: Any, password: bytes | None) -> None:
    """The claims and the signature are those of RFC 7519 and RFC 7518, with an encrypted key as well."""
    path = tmp_path / "key.pem"
    path.write_bytes(pem_of(key, password))
    given = None if password is None else Password(password.decode())
    assertion = creator(path, algorithm, password=given).create()
    verify(assertion, key)
    header, payload, _, _ = parts_of(assertion)
    assert header == {"alg": algorithm, "typ": "JWT"}
    assert payload == {
        "iss": "me",
        "sub": "app",
        "aud": "https://idp",
        "iat": NOW_S,
        "exp": NOW_S + 300,
        "nbf": NOW_S - 60,
    }


def test_template_adds_claims_and_ids_differ(tmp_path: Path, key_file: Path) -> None:
    """A template adds claims and header fields, configured claims replace its own, and ids differ."""
    template = tmp_path / "template.json"
    template.write_text('{"header": {"kid": "7", "alg": "none"}, "payload": {"iss": "other", "tenant": 5, "exp": 0}}')
    made = creator(key_file, template=template, has_id=True)
    header, first, _, _ = parts_of(made.create())
    assert header == {"kid": "7", "alg": "RS256", "typ": "JWT"}
    assert (first["iss"], first["tenant"], first["exp"]) == ("me", 5, NOW_S + 300)
    assert parts_of(made.create())[1]["jti"] != first["jti"]


def test_replaced_key_file_is_used(key_file: Path) -> None:
    """Files are read for each assertion."""
    made = creator(key_file)
    verify(made.create(), RSA_KEY)
    other = rsa.generate_private_key(65537, 2048)
    key_file.write_bytes(pem_of(other))
    verify(made.create(), other)


@pytest.mark.parametrize(
    ("content", "algorithm", "password", "words"),
    [
        (b"hush", "RS256", None, "is no private key in PEM"),
        (pem_of(EC_KEY), "RS256", None, "needs an RSA key"),
        (pem_of(RSA_KEY), "ES256", None, "needs a key on the curve P-256"),
        (pem_of(ec.generate_private_key(ec.SECP384R1())), "ES256", None, "needs a key on the curve P-256"),
        (pem_of(RSA_KEY, b"hush-1"), "RS256", None, "is encrypted: set"),
        (pem_of(RSA_KEY, b"hush-1"), "RS256", Password("hush-2"), "its password is wrong"),
        (pem_of(RSA_KEY), "RS256", Password("hush"), "is not encrypted"),
        (None, "RS256", None, "cannot be read: No such file"),
        (b" " * 2_000_000, "RS256", None, "has more than"),
    ],
)
def test_error_names_wrong_key_file(
    tmp_path: Path, content: bytes | None, algorithm: str, password: Password | None, words: str
) -> None:
    """Errors name the file and the reason, and show no secret."""
    path = tmp_path / "key.pem"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(SaslAuthenticationError, match=words) as caught:
        creator(path, algorithm, password=password).create()
    text = str(caught.value)
    assert str(path) in text
    assert "hush" not in text.replace(str(path), "")


@pytest.mark.parametrize("content", ["", "[]", '{"header": 1}', '{"payload": "text"}', "[" * 100_000])
def test_template_must_be_json_object(tmp_path: Path, key_file: Path, content: str) -> None:
    template = tmp_path / "template.json"
    template.write_text(content)
    with pytest.raises(SaslAuthenticationError, match="must be a JSON object"):
        creator(key_file, template=template).create()


# --- clients ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def provider() -> Iterator[TokenServer]:
    with TokenServer("alice") as server:
        yield server


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(security=Security(mechanisms=["OAUTHBEARER"])) as running:
        running.create_topic("t")
        yield running


def settings_of(cluster: EmbeddedCluster, provider: TokenServer, **changes: Any) -> dict[str, Any]:
    changes = {f"sasl.oauthbearer.{name.replace('_', '.')}": value for name, value in changes.items()}
    return {**cluster.client_config(), "sasl.oauthbearer.token.endpoint.url": provider.url, **changes}


def send(config: dict[str, Any]) -> None:
    with KafkaProducer(config) as producer:
        producer.send("t", b"value").get(20)


def test_client_authenticates_by_assertion(cluster: EmbeddedCluster, provider: TokenServer, key_file: Path) -> None:
    """The client credentials grant has a fresh assertion instead of the secret."""
    config = settings_of(
        cluster,
        provider,
        assertion_claim_iss="app",
        assertion_claim_aud="https://idp",
        assertion_private_key_file=str(key_file),
        client_credentials_client_id="app",
        scope="kafka",
    )
    send(config)
    headers, form = provider.requests[0]
    assert "Authorization" not in headers
    assertion = form.pop("client_assertion")
    assert form == {
        "grant_type": "client_credentials",
        "client_assertion_type": "urn:ietf:params:oauth:client-assertion-type:jwt-bearer",
        "client_id": "app",
        "scope": "kafka",
    }
    verify(assertion, RSA_KEY)
    assert abs(parts_of(assertion)[1]["iat"] - time()) < 60


def test_assertion_file_becomes_grant(cluster: EmbeddedCluster, provider: TokenServer, tmp_path: Path) -> None:
    """The JWT bearer grant, with a complete assertion from a file that is replaced between two clients."""
    path = tmp_path / "assertion.jwt"
    config = settings_of(cluster, provider, jwt_retriever_class=JWT_BEARER, assertion_file=str(path))
    for content in ("a.b.c", "d.e.f"):
        path.write_text(f"{content}\n")
        send(config)
        assert provider.requests[-1][1] == {
            "grant_type": "urn:ietf:params:oauth:grant-type:jwt-bearer",
            "assertion": content,
        }


def test_refused_assertion_is_fatal(cluster: EmbeddedCluster, provider: TokenServer, key_file: Path) -> None:
    """The provider's refusal is a fatal error that says what to check, and shows no assertion."""
    provider.status = 401
    config = settings_of(cluster, provider, assertion_claim_iss="app", assertion_private_key_file=str(key_file))
    with pytest.raises(SaslAuthenticationError, match=r"refused to issue a token.*assertion.*clock") as caught:
        send(config)
    assert provider.requests[-1][1]["client_assertion"] not in str(caught.value)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({}, "or an assertion"),
        ({"assertion_claim_iss": "app"}, "private.key.file"),
        ({"jwt_retriever_class": JWT_BEARER}, "private.key.file"),
        ({"assertion_file": "/none"}, "cannot be read"),
        ({"assertion_claim_iss": "app", "assertion_private_key_file": "/none"}, "cannot be read"),
        ({"jwt_retriever_class": "com.example.Mine"}, "jwt.retriever.class"),
        ({"jwt_retriever_class": "org.apache.kafka.common.security.oauthbearer.FileJwtRetriever"}, "file: and a path"),
        ({"assertion_algorithm": "HS256"}, "algorithm"),
    ],
)
def test_wrong_assertion_settings_are_refused(
    cluster: EmbeddedCluster, provider: TokenServer, changes: dict[str, Any], words: str
) -> None:
    """A configuration that cannot work is an error when the client is created."""
    with pytest.raises(ConfigError, match=words):
        KafkaProducer(settings_of(cluster, provider, **changes))
