"""The client's connections: TLS, client certificates, tokens of an identity provider, proxies."""

from __future__ import annotations

import asyncio
import base64
import json
import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pykclient.schema_registry import AsyncSchemaRegistryClient, Schema, SchemaRegistryClient, SchemaRegistryError
from pykclient.schema_registry.schemas import OAuthTokenError
from pykclient.testing import EmbeddedSchemaRegistry
from pykclient.testing.certificates import CertificateAuthority, IssuedCertificate
from tests.security.tokens import TokenServer, unsecured_token
from tests.support.forward_proxy import ForwardProxy

ONCE: dict[str, Any] = {"max.retries": 0, "timeout": 30}


@pytest.fixture(scope="module")
def authority() -> CertificateAuthority:
    return CertificateAuthority()


def server_context(authority: CertificateAuthority, folder: Path, host: str, *, mutual: bool = False) -> ssl.SSLContext:
    issued = authority.issue("registry", [host])
    file = folder / "registry.pem"
    file.write_text(issued.key_pem() + issued.certificate_pem)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(file)
    if mutual:
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(cadata=authority.certificate_pem)
    return context


@pytest.fixture
def secure(authority: CertificateAuthority, tmp_path: Path) -> Iterator[EmbeddedSchemaRegistry]:
    with EmbeddedSchemaRegistry(ssl_context=server_context(authority, tmp_path, "127.0.0.1")) as found:
        yield found


def trusting(authority: CertificateAuthority, **more: Any) -> dict[str, Any]:
    return {"ssl.truststore.certificates": authority.certificate_pem, "ssl.truststore.type": "PEM", **ONCE, **more}


def with_key(issued: IssuedCertificate) -> dict[str, Any]:
    return {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.key": issued.key_pem(),
        "ssl.keystore.certificate.chain": issued.certificate_pem,
    }


def test_tls_by_text_and_by_confluents_keys(
    secure: EmbeddedSchemaRegistry, authority: CertificateAuthority, tmp_path: Path
) -> None:
    file = tmp_path / "ca.pem"
    file.write_text(authority.certificate_pem)
    for settings in (trusting(authority), {"ssl.ca.location": str(file), **ONCE}):
        with SchemaRegistryClient({"url": secure.url, **settings}) as client:
            assert client.register_schema("s", Schema('"long"')) == 1
            assert client.get_schema(1).schema_str == '"long"'


def test_a_registry_of_another_authority_is_refused(secure: EmbeddedSchemaRegistry) -> None:
    with (
        SchemaRegistryClient({"url": secure.url, **trusting(CertificateAuthority())}) as client,
        pytest.raises(SchemaRegistryError, match=r"of the schema registry https://.*(?i:certificate verify)"),
    ):
        client.get_subjects()
    assert secure.requests == []


def test_a_registry_whose_certificate_names_another_host_is_refused(
    authority: CertificateAuthority, tmp_path: Path
) -> None:
    with EmbeddedSchemaRegistry(ssl_context=server_context(authority, tmp_path, "127.0.0.2")) as registry:
        with (
            SchemaRegistryClient({"url": registry.url, **trusting(authority)}) as client,
            pytest.raises(SchemaRegistryError, match=r"(?i)not valid for '127\.0\.0\.1'"),
        ):
            client.get_subjects()
        unchecked = trusting(authority, **{"ssl.endpoint.identification.algorithm": ""})
        with SchemaRegistryClient({"url": registry.url, **unchecked}) as client:
            assert client.get_subjects() == []


def test_registry_asks_for_a_certificate(authority: CertificateAuthority, tmp_path: Path) -> None:
    context = server_context(authority, tmp_path, "127.0.0.1", mutual=True)
    with EmbeddedSchemaRegistry(ssl_context=context) as registry:
        known, stranger = authority.issue("app"), CertificateAuthority().issue("app")
        with SchemaRegistryClient({"url": registry.url, **trusting(authority, **with_key(known))}) as client:
            assert client.get_subjects() == []
        for wrong in ({}, with_key(stranger)):
            with (
                SchemaRegistryClient({"url": registry.url, **trusting(authority, **wrong)}) as client,
                pytest.raises(SchemaRegistryError, match="of the schema registry https://"),
            ):
                client.get_subjects()


def test_certificates_that_change_are_read_again(authority: CertificateAuthority, tmp_path: Path) -> None:
    file = tmp_path / "ca.pem"
    file.write_text(CertificateAuthority().certificate_pem)
    context = server_context(authority, tmp_path, "127.0.0.1")
    with (
        EmbeddedSchemaRegistry(ssl_context=context) as registry,
        SchemaRegistryClient({"url": registry.url, "ssl.ca.location": str(file), **ONCE}) as client,
    ):
        with pytest.raises(SchemaRegistryError, match="certificate verify"):
            client.get_subjects()
        file.write_text(authority.certificate_pem + "\n" * 2)
        assert client.get_subjects() == []


def oauth(server: TokenServer, registry: EmbeddedSchemaRegistry) -> dict[str, Any]:
    return {
        "url": registry.url,
        "bearer.auth.credentials.source": "OAUTHBEARER",
        "bearer.auth.issuer.endpoint.url": server.url,
        "bearer.auth.client.id": "app",
        "bearer.auth.client.secret": "hush",
        "bearer.auth.scope": "registry",
        "bearer.auth.logical.cluster": "lsrc-1",
        **ONCE,
    }


def test_tokens_of_an_identity_provider_are_fetched_once_and_replaced_when_refused() -> None:
    token, newer = unsecured_token("app", 3600), unsecured_token("app", 7200)
    with TokenServer("app") as server, EmbeddedSchemaRegistry(tokens=frozenset({token})) as registry:
        server.body = json.dumps({"access_token": token, "expires_in": 3600}).encode()
        settings = {**oauth(server, registry), "max.retries": 1, "retries.wait.ms": 1}
        with SchemaRegistryClient(settings) as client:
            assert [client.get_subjects(), client.get_subjects()] == [[], []]
            ((headers, form),) = server.requests
            assert form == {"grant_type": "client_credentials", "scope": "registry"}
            assert headers["Authorization"] == "Basic " + base64.b64encode(b"app:hush").decode()
            assert {request.headers["target-sr-cluster"] for request in registry.requests} == {"lsrc-1"}
            server.body = json.dumps({"access_token": newer, "expires_in": 7200}).encode()
            registry._tokens = frozenset({newer})  # the first one was revoked
            assert client.get_subjects() == []
            assert [request.status for request in registry.requests] == [200, 200, 401, 200]
            assert len(server.requests) == 2


def test_an_identity_provider_that_refuses_is_named_without_the_secret() -> None:
    with TokenServer("app") as server, EmbeddedSchemaRegistry(tokens=frozenset()) as registry:
        server.status = 401
        with SchemaRegistryClient(oauth(server, registry)) as client, pytest.raises(OAuthTokenError) as caught:
            client.get_subjects()
        text = str(caught.value)
        assert "invalid_client" in text
        assert "hush" not in text
        assert registry.requests == []


def test_unreachable_identity_provider_names_the_registrys_own_setting() -> None:
    with TokenServer("app") as server, EmbeddedSchemaRegistry(tokens=frozenset()) as registry:
        server.status, server.headers = 302, {"Location": "http://elsewhere"}
        with (
            SchemaRegistryClient(oauth(server, registry)) as client,
            pytest.raises(OAuthTokenError, match=r"set bearer\.auth\.issuer\.endpoint\.url to the address"),
        ):
            client.get_subjects()


def test_managed_identity_of_azure_gets_tokens_past_the_proxy() -> None:
    token = unsecured_token("app", 3600)
    with TokenServer("app") as server, EmbeddedSchemaRegistry(tokens=frozenset({token})) as registry:
        server.body = json.dumps({"access_token": token, "expires_in": "3600"}).encode()
        settings = {
            "url": "http://registry.example:8081",
            "proxy": registry.url,  # answers for the registry behind it
            "bearer.auth.credentials.source": "OAUTHBEARER_AZURE_IMDS",
            "bearer.auth.issuer.endpoint.url": server.url,
            "bearer.auth.issuer.endpoint.query": "resource=api://kafka&api-version=2018-02-01",
            "bearer.auth.logical.cluster": "lsrc-1",
            **ONCE,
        }
        with SchemaRegistryClient(settings) as client:
            assert [client.get_subjects(), client.get_subjects()] == [[], []]
        ((headers, query),) = server.requests
        assert headers["Metadata"] == "true"
        assert query == {"resource": "api://kafka", "api-version": "2018-02-01"}
        assert {request.headers["target-sr-cluster"] for request in registry.requests} == {"lsrc-1"}


def test_a_plain_proxy_gets_the_whole_url_and_its_own_credentials() -> None:
    with EmbeddedSchemaRegistry(users={"app": "pw"}) as proxy:  # answers for the registry behind it
        address = proxy.url.removeprefix("http://")
        settings = {"url": "http://app:pw@registry.example:8081", "proxy": f"http://me:p%40ss@{address}", **ONCE}
        with SchemaRegistryClient(settings) as client:
            assert client.get_subjects() == []
        (request,) = proxy.requests
        assert request.headers["host"] == "registry.example:8081"
        assert request.headers["proxy-authorization"] == "Basic " + base64.b64encode(b"me:p@ss").decode()
        assert request.headers["authorization"] == "Basic " + base64.b64encode(b"app:pw").decode()


def test_https_goes_through_a_tunnel_to_the_name_that_the_proxy_resolves(
    authority: CertificateAuthority, tmp_path: Path
) -> None:
    context = server_context(authority, tmp_path, "registry.example")
    with (
        EmbeddedSchemaRegistry(ssl_context=context) as registry,
        ForwardProxy({"registry.example": "127.0.0.1"}, ("me", "secret")) as proxy,
    ):
        proxy.sends_continue = False
        port = int(registry.url.rpartition(":")[2])
        settings = {"url": f"https://registry.example:{port}", **trusting(authority)}
        with SchemaRegistryClient({**settings, "proxy": proxy.url("http", ("me", "secret"))}) as client:
            assert client.get_subjects() == []
            assert client.get_subjects() == []
        assert proxy.asked == [("registry.example", port)]
        assert all("proxy-authorization" not in request.headers for request in registry.requests)
        with (
            SchemaRegistryClient({**settings, "proxy": proxy.url("http", ("me", "wrong-one"))}) as client,
            pytest.raises(SchemaRegistryError, match="407") as caught,
        ):
            client.get_subjects()
        assert "wrong-one" not in str(caught.value)
        unknown = {**settings, "url": f"https://elsewhere.example:{port}"}
        with (
            SchemaRegistryClient({**unknown, "proxy": proxy.url("http", ("me", "secret"))}) as client,
            pytest.raises(SchemaRegistryError, match="502"),
        ):
            client.get_subjects()


def test_asyncio_uses_the_same_connections(secure: EmbeddedSchemaRegistry, authority: CertificateAuthority) -> None:
    async def run() -> tuple[list[str], int]:
        async with AsyncSchemaRegistryClient({"url": secure.url, **trusting(authority)}) as client:
            number = await client.register_schema("s", Schema('"long"'))
            return await client.get_subjects(), number

    assert asyncio.run(run()) == (["s"], 1)


def test_token_endpoint_is_reached_by_the_registrys_tls_settings(
    secure: EmbeddedSchemaRegistry, authority: CertificateAuthority, tmp_path: Path
) -> None:
    token = unsecured_token("app", 3600)
    secure._tokens = frozenset({token})
    with TokenServer("app", server_context(authority, tmp_path, "127.0.0.1")) as server:
        server.body = json.dumps({"access_token": token, "expires_in": 3600}).encode()
        with SchemaRegistryClient({**oauth(server, secure), **trusting(authority)}) as client:
            assert client.get_subjects() == []
        with (
            SchemaRegistryClient({**oauth(server, secure), **trusting(CertificateAuthority())}) as client,
            pytest.raises(OAuthTokenError, match=r"ssl\.ca\.location"),
        ):
            client.get_subjects()


def test_token_endpoint_is_reached_through_the_proxy(authority: CertificateAuthority, tmp_path: Path) -> None:
    token = unsecured_token("app", 3600)
    with (
        TokenServer("app", server_context(authority, tmp_path, "login.example")) as server,
        EmbeddedSchemaRegistry(
            tokens=frozenset({token}), ssl_context=server_context(authority, tmp_path, "registry.example")
        ) as registry,
        ForwardProxy({"login.example": "127.0.0.1", "registry.example": "127.0.0.1"}, ("me", "secret")) as proxy,
    ):
        proxy.sends_continue = False
        server.body = json.dumps({"access_token": token, "expires_in": 3600}).encode()
        settings = {
            **oauth(server, registry),
            **trusting(authority),
            "url": registry.url.replace("127.0.0.1", "registry.example"),
            "bearer.auth.issuer.endpoint.url": server.url.replace("127.0.0.1", "login.example"),
            "proxy": proxy.url("http", ("me", "secret")),
        }
        with SchemaRegistryClient(settings) as client:
            assert client.get_subjects() == []
        assert [host for host, _ in proxy.asked] == ["login.example", "registry.example"]
        assert all("Proxy-Authorization" not in headers for headers, _ in server.requests)
