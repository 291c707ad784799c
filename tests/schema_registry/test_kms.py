"""Drivers of key management services speak with stand-ins of their services."""

from __future__ import annotations

import base64
import functools
import http.server
import json
import logging
import threading
import urllib.parse
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from pykclient.errors import ConfigError
from pykclient.schema_registry.kms import (
    AwsKmsDriver,
    AzureKmsDriver,
    GcpKmsDriver,
    HcVaultKmsDriver,
    get_kms_driver,
    register_kms_driver,
    reset_kms_drivers,
    vault_cert,
    vault_verify,
)
from pykclient.schema_registry.rules import RuleError

ARN = "arn:aws:kms:eu-central-1:111122223333:key/1234abcd"
#: The AssumeRole answer of AWS's token service.
ROLE = (
    "<AssumeRoleResponse xmlns='https://sts.amazonaws.com/doc/2011-06-15/'><AssumeRoleResult><Credentials>"
    "<AccessKeyId>ROLEKEY</AccessKeyId><SecretAccessKey>s</SecretAccessKey><SessionToken>t</SessionToken>"
    "<Expiration>2999-01-01T00:00:00Z</Expiration></Credentials></AssumeRoleResult></AssumeRoleResponse>"
)


class Service(http.server.ThreadingHTTPServer):
    """Stands for a service: it "encrypts" by turning the bytes around."""

    daemon_threads = True

    def __init__(self) -> None:
        self.seen: list[tuple[str, dict[str, str], Any]] = []
        #: The status, headers and body with which the next requests to a path with this text fail.
        self.failures: list[tuple[str, int, dict[str, str], Any]] = []
        super().__init__(("127.0.0.1", 0), _Handler)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def cloud(self, path: str, headers: dict[str, str], body: bytes) -> Any:
        """Return what Azure or Google return; tokens are numbered."""
        if path.startswith("/metadata") or "/computeMetadata/" in path or "/token" in path:
            self.seen.append((path, headers, dict(urllib.parse.parse_qsl(body.decode()))))
            count = sum(1 for seen, _, _ in self.seen if "token" in seen)
            return {"access_token": f"hush-{count}", "expires_in": "3600"}
        asked = json.loads(body or b"{}")
        self.seen.append((path, headers, asked))
        if "value" in asked:
            data = base64.urlsafe_b64decode(asked["value"] + "==")[::-1]
            return {"kid": path, "value": base64.urlsafe_b64encode(data).decode().rstrip("=")}
        if path.startswith("/keys/"):
            return {"key": {"kid": f"https://vault/keys/k/{'ab' * 16}"}}
        name, other = ("plaintext", "ciphertext") if "plaintext" in asked else ("ciphertext", "plaintext")
        return {other: base64.b64encode(base64.b64decode(asked[name])[::-1]).decode()}

    def answer(self, path: str, headers: dict[str, str], body: bytes) -> bytes:
        if body.startswith(b"Action="):
            self.seen.append((path, headers, body.decode()))
            return ROLE.encode()
        asked = json.loads(body)
        self.seen.append((path, headers, asked))
        if "x-amz-target" in headers:
            name = "Plaintext" if headers["x-amz-target"].endswith("Encrypt") else "CiphertextBlob"
            other = {"Plaintext": "CiphertextBlob", "CiphertextBlob": "Plaintext"}[name]
            turned = base64.b64encode(base64.b64decode(asked[name])[::-1]).decode()
            return json.dumps({other: turned, "KeyId": ARN}).encode()
        if "/login" in path:
            return json.dumps({"auth": {"client_token": "of the role"}}).encode()
        if "plaintext" in asked:
            return json.dumps({"data": {"ciphertext": "vault:v1:" + asked["plaintext"][::-1]}}).encode()
        return json.dumps({"data": {"plaintext": asked["ciphertext"].removeprefix("vault:v1:")[::-1]}}).encode()


class _Handler(http.server.BaseHTTPRequestHandler):
    server: Service

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"] or 0))
        headers = {name.lower(): value for name, value in self.headers.items()}
        status: int = 200
        more: dict[str, str] = {}
        failures = self.server.failures
        if failures and failures[0][0] in self.path:
            _, status, more, found = failures.pop(0)
            self.server.seen.append((self.path, headers, None))
            answer = found(body, headers).encode() if callable(found) else json.dumps(found).encode()
        elif any(part in self.path for part in ("/keys/", "token", "/v1/projects/")) and "/team/" not in self.path:
            answer = json.dumps(self.server.cloud(self.path, headers, body)).encode()
        else:
            answer = self.server.answer(self.path, headers, body)
        self.send_response(status)
        for name, value in more.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    do_PUT = do_GET = do_POST  # noqa: N815

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


@pytest.fixture
def service() -> Iterator[Service]:
    with Service() as found:
        thread = threading.Thread(target=found.serve_forever, args=(0.02,))
        thread.start()
        yield found
        found.shutdown()
        thread.join(30)


@pytest.fixture
def aws(service: Service, monkeypatch: pytest.MonkeyPatch) -> Service:
    pytest.importorskip("botocore", reason="the extra aws")
    for name in ("AWS_PROFILE", "AWS_ROLE_ARN", "AWS_WEB_IDENTITY_TOKEN_FILE", "AWS_CONFIG_FILE"):
        monkeypatch.delenv(name, raising=False)
    for name in ("KMS", "STS"):
        monkeypatch.setenv(f"AWS_ENDPOINT_URL_{name}", service.url)
    return service


def turned(driver: Any, conf: dict[str, Any], url: str) -> bytes:
    """Return the encrypted form of a key, which must be decrypted to it."""
    aead = driver.new_kms_client(conf, url).get_aead(url)
    made: bytes = aead.encrypt(b"a key", b"")
    assert aead.decrypt(made, b"") == b"a key"
    return made


def test_aws_encrypts_by_the_key_of_the_arn(aws: Service) -> None:
    conf = {"access.key.id": "AKEY", "secret.access.key": "never shown"}
    assert turned(AwsKmsDriver(), conf, f"aws-kms://{ARN}") == b"yek a"
    for _, headers, body in aws.seen:
        assert "AKEY" in headers["authorization"]
        assert "eu-central-1/kms" in headers["authorization"]
        assert body["KeyId"] == ARN
    assert "never shown" not in str(aws.seen)


def test_aws_takes_a_role(aws: Service) -> None:
    conf = {"access.key.id": "AKEY", "secret.access.key": "s", "role.arn": "arn:aws:iam::1:role/r"}
    turned(AwsKmsDriver(), {**conf, "role.external.id": "mine"}, f"aws-kms://{ARN}")
    (_, _, asked), *others = aws.seen
    assert "Action=AssumeRole" in asked
    assert "ExternalId=mine" in asked
    assert all("ROLEKEY" in headers["authorization"] for _, headers, _ in others)


def test_key_of_aws_must_be_an_arn() -> None:
    with pytest.raises(RuleError, match=r"'alias/x' is not the ARN of a key of AWS KMS"):
        AwsKmsDriver().new_kms_client({}, "aws-kms://alias/x")


@pytest.mark.parametrize("role", [False, True])
def test_vault_encrypts_by_its_transit_engine(service: Service, monkeypatch: pytest.MonkeyPatch, role: bool) -> None:
    pytest.importorskip("hvac", reason="the extra vault")
    for name in ("VAULT_TOKEN", "VAULT_NAMESPACE", "VAULT_CACERT", "VAULT_CLIENT_CERT", "VAULT_CLIENT_KEY"):
        monkeypatch.delenv(name, raising=False)
    conf = {"approle.role.id": "r", "approle.secret.id": "s"} if role else {"token.id": "tok"}
    url = f"hcvault://http://127.0.0.1:{service.server_address[1]}/team/transit/keys/orders"
    text = base64.b64encode(b"a key").decode()
    assert turned(HcVaultKmsDriver(), {**conf, "namespace": "n"}, url) == f"vault:v1:{text[::-1]}".encode()
    path, headers, _ = service.seen[-1]
    assert path == "/v1/team/transit/decrypt/orders"
    assert headers["x-vault-token"] == ("of the role" if role else "tok")
    assert headers["x-vault-namespace"] == "n"


@pytest.fixture
def cloud(service: Service, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Service:
    """A service whose machine has an identity, and no other credentials."""
    for name in (
        *("AZURE_TENANT_ID", "AZURE_CLIENT_ID", "AZURE_CLIENT_SECRET", "AZURE_FEDERATED_TOKEN_FILE"),
        *("IDENTITY_ENDPOINT", "GOOGLE_APPLICATION_CREDENTIALS", "HTTP_PROXY", "http_proxy"),
    ):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AZURE_AUTHORITY_HOST", service.url)
    monkeypatch.setenv("AZURE_POD_IDENTITY_AUTHORITY_HOST", service.url)
    monkeypatch.setenv("CLOUDSDK_API_ENDPOINT_OVERRIDES_CLOUDKMS", f"{service.url}/")
    monkeypatch.setenv("CLOUDSDK_CONFIG", str(tmp_path))
    monkeypatch.setenv("GCE_METADATA_HOST", service.url.removeprefix("http://"))
    monkeypatch.setattr("pykclient.schema_registry.kms._LONGEST_WAIT_MS", 10)
    return service


VERSION = "0123456789abcdef0123456789ABCDEF"
AZURE_CONF = {"tenant.id": "t", "client.id": "app", "client.secret": "hush-secret"}
GCP_KEY = "projects/p/locations/l/keyRings/r/cryptoKeys/k"


def aead_of(cloud: Service, kind: str, conf: dict[str, Any] | None = None) -> Any:
    driver: Any = AzureKmsDriver() if kind == "azure" else GcpKmsDriver()
    url = f"azure-kms://{cloud.url}/keys/k/{VERSION}" if kind == "azure" else f"gcp-kms://{GCP_KEY}"
    return driver.new_kms_client(conf or {}, url).get_aead(url)


def test_azure_encrypts_by_the_version_of_a_key(cloud: Service) -> None:
    url = f"azure-kms://{cloud.url}/keys/k/{VERSION}"
    assert turned(AzureKmsDriver(), AZURE_CONF, url) == b"yek a"
    (token, _, form), (path, headers, body), (other, _, _) = cloud.seen
    assert token == "/t/oauth2/v2.0/token"
    assert form["client_id"] == "app"
    assert form["client_secret"] == "hush-secret"
    assert form["scope"].endswith("/.default")
    assert path == f"/keys/k/{VERSION}/encrypt?api-version=7.4"
    assert other == f"/keys/k/{VERSION}/decrypt?api-version=7.4"
    assert headers["authorization"] == "Bearer hush-1"
    assert body == {"alg": "RSA-OAEP-256", "value": base64.urlsafe_b64encode(b"a key").decode().rstrip("=")}


def test_azure_finds_the_latest_version_and_saves_it_on_demand(cloud: Service) -> None:
    url = f"azure-kms://{cloud.url}/keys/k"
    assert turned(AzureKmsDriver(), {}, url) == b"yek a"
    saved = turned(AzureKmsDriver(), {"encrypt.azure.key.version.save": "true"}, url)
    assert saved == b"azure:v1:" + b"ab" * 16 + b":yek a"
    cloud.seen.clear()
    assert aead_of(cloud, "azure").decrypt(saved, b"") == b"a key"  # by the saved version, not by that of the key
    assert cloud.seen[-1][0].startswith(f"/keys/k/{'ab' * 16}/decrypt")


@pytest.mark.parametrize("way", ["variables", "federated", "app service", "machine"])
def test_azure_takes_credentials_of_the_environment(
    cloud: Service, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, way: str
) -> None:
    if way in ("variables", "federated"):
        monkeypatch.setenv("AZURE_TENANT_ID", "t2")
        monkeypatch.setenv("AZURE_CLIENT_ID", "app2")
    if way == "variables":
        monkeypatch.setenv("AZURE_CLIENT_SECRET", "hush-env")
    if way == "federated":
        (tmp_path / "assertion").write_text("hush.as.sertion\n")
        monkeypatch.setenv("AZURE_FEDERATED_TOKEN_FILE", str(tmp_path / "assertion"))
    if way == "app service":
        monkeypatch.setenv("IDENTITY_ENDPOINT", f"{cloud.url}/msi/token")
        monkeypatch.setenv("IDENTITY_HEADER", "hush-header")
    assert aead_of(cloud, "azure").encrypt(b"a key", b"") == b"yek a"
    path, headers, form = cloud.seen[0]
    if way == "variables":
        assert (path, form["client_id"], form["client_secret"]) == ("/t2/oauth2/v2.0/token", "app2", "hush-env")
    elif way == "federated":
        assert (form["client_assertion"], "client_secret" in form) == ("hush.as.sertion", False)
    elif way == "app service":
        assert (path.partition("?")[0], headers["x-identity-header"]) == ("/msi/token", "hush-header")
    else:
        assert path.startswith("/metadata/identity/oauth2/token?resource=https%3A%2F%2F")
        assert headers["metadata"] == "true"


@pytest.mark.parametrize(
    "url", ["azure-kms://vault/keys/k", "azure-kms://https://vault/k", "azure-kms://http://a.b/keys/k"]
)
def test_key_of_azure_must_be_a_url_of_a_vault(url: str) -> None:
    with pytest.raises(RuleError, match=r"is no key of Azure: it must be azure-kms://https://HOST/keys/NAME"):
        AzureKmsDriver().new_kms_client(AZURE_CONF, url)


@functools.cache
def rsa_key() -> str:
    key = rsa.generate_private_key(65537, 2048)
    form = serialization.PrivateFormat.PKCS8
    return key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption()).decode()


def account(cloud: Service) -> dict[str, str]:
    ids = {"client.id": "1", "client.email": "app@p", "private.key.id": "k1"}
    return {**ids, "private.key": rsa_key(), "token.uri": f"{cloud.url}/token"}


def test_gcp_encrypts_by_a_key_with_a_service_account(cloud: Service) -> None:
    conf = account(cloud)
    assert turned(GcpKmsDriver(), conf, f"gcp-kms://{GCP_KEY}") == b"yek a"
    (token, _, form), (path, headers, body), (other, _, _) = cloud.seen
    assert token == "/token"
    assert form["grant_type"] == "urn:ietf:params:oauth:grant-type:jwt-bearer"
    claims = json.loads(base64.urlsafe_b64decode(form["assertion"].split(".")[1] + "=="))
    assert claims["iss"] == "app@p"
    assert claims["aud"] == conf["token.uri"]
    assert claims["exp"] > claims["iat"]
    assert path == f"/v1/{GCP_KEY}:encrypt"
    assert other == f"/v1/{GCP_KEY}:decrypt"
    assert headers["authorization"] == "Bearer hush-1"
    assert body == {"plaintext": base64.b64encode(b"a key").decode()}


@pytest.mark.parametrize("way", ["account", "user", "machine", "other"])
def test_gcp_takes_credentials_of_the_environment(
    cloud: Service, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, way: str
) -> None:
    held = {name.replace(".", "_"): value for name, value in account(cloud).items()}
    kinds = {
        "account": {**held, "type": "service_account"},
        "user": {"type": "authorized_user", "client_id": "c", "client_secret": "hush-s", "refresh_token": "hush-r"},
        "other": {"type": "external_account"},
    }
    if way == "user":
        (tmp_path / "application_default_credentials.json").write_text(
            json.dumps({**kinds["user"], "token_uri": held["token_uri"]})
        )
    elif way != "machine":
        (tmp_path / "file.json").write_text(json.dumps(kinds[way]))
        monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(tmp_path / "file.json"))
    if way == "other":
        with pytest.raises(RuleError, match=r"file\.json has credentials of the type 'external_account': only"):
            aead_of(cloud, "gcp")
        return
    assert aead_of(cloud, "gcp").encrypt(b"a key", b"") == b"yek a"
    path, headers, form = cloud.seen[0]
    if way == "account":
        assert "assertion" in form
    elif way == "user":
        assert (form["grant_type"], form["refresh_token"]) == ("refresh_token", "hush-r")
    else:
        assert path == "/computeMetadata/v1/instance/service-accounts/default/token"
        assert headers["metadata-flavor"] == "Google"


@pytest.mark.parametrize(
    ("conf", "url", "text"),
    [
        ({}, "gcp-kms://projects/p/keys/k", r"is no key of Google's Cloud KMS: it must be gcp-kms://projects"),
        ({"account.type": "user"}, f"gcp-kms://{GCP_KEY}", "account.type = 'user': it must be 'service_account'"),
        (
            {"client.id": "1", "client.email": "e", "private.key.id": "k", "private.key": "hush"},
            f"gcp-kms://{GCP_KEY}",
            "private.key has no private key of RSA in PEM",
        ),
    ],
)
def test_wrong_settings_of_gcp_raise(conf: dict[str, str], url: str, text: str) -> None:
    with pytest.raises(RuleError, match=text) as caught:
        GcpKmsDriver().new_kms_client(conf, url)
    assert "hush" not in str(caught.value)


def test_gcp_does_not_decrypt_by_a_version(cloud: Service) -> None:
    url = f"gcp-kms://{GCP_KEY}/cryptoKeyVersions/3"
    aead = GcpKmsDriver().new_kms_client({}, url).get_aead(url)
    assert aead.encrypt(b"a key", b"") == b"yek a"
    with pytest.raises(RuleError, match="leave out /cryptoKeyVersions"):
        aead.decrypt(b"yek a", b"")


KINDS = pytest.mark.parametrize("kind", ["azure", "gcp"])


@KINDS
def test_expired_token_of_a_cloud_is_replaced_once(cloud: Service, kind: str) -> None:
    aead = aead_of(cloud, kind)
    assert aead.encrypt(b"a key", b"") == b"yek a"
    cloud.failures = [("encrypt", 401, {}, {"error": {"message": "expired"}})]
    assert aead.encrypt(b"a key", b"") == b"yek a"
    assert [headers["authorization"] for path, headers, _ in cloud.seen if "encrypt" in path] == [
        "Bearer hush-1",
        "Bearer hush-1",
        "Bearer hush-2",
    ]
    cloud.failures = [("encrypt", 401, {}, {})] * 2
    with pytest.raises(RuleError, match=r"refused http://127.*: status 401"):
        aead.encrypt(b"a key", b"")


@KINDS
def test_throttled_request_to_a_cloud_is_repeated(cloud: Service, kind: str) -> None:
    aead = aead_of(cloud, kind)
    cloud.failures = [
        ("encrypt", 429, {"Retry-After": "1"}, {"error": {"code": "Throttled"}}),
        ("encrypt", 503, {"Retry-After": "soon"}, {}),
    ]
    assert aead.encrypt(b"a key", b"") == b"yek a"
    cloud.failures = [("encrypt", 429, {}, {"error": {"status": "RESOURCE_EXHAUSTED", "message": "slow"}})] * 9
    with pytest.raises(RuleError, match=r"did not answer http.*4 attempts in .*status 429, RESOURCE_EXHAUSTED: slow"):
        aead.encrypt(b"a key", b"")


@KINDS
def test_refusal_of_a_cloud_shows_its_reason_and_no_secret(
    cloud: Service, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    def echo(body: bytes, headers: dict[str, str]) -> str:
        text = f"Forbidden for {headers['authorization']} with {body.decode()}"
        return json.dumps({"error": {"code": "Forbidden", "message": text}})

    aead = aead_of(cloud, kind)
    cloud.failures = [("encrypt", 403, {}, echo), ("decrypt", 400, {}, {"error": {"message": "wrong key"}})]
    with (
        caplog.at_level(logging.DEBUG),
        pytest.raises(RuleError, match=r"refused http.*: status 403, Forbidden") as caught,
    ):
        aead.encrypt(b"a key of 16 byte", b"")
    text = f"{caught.value}{caplog.text}"
    assert "hush" not in text
    assert base64.b64encode(b"a key of 16 byte").decode().rstrip("=") not in text
    with pytest.raises(RuleError, match=r"status 400, wrong key"):
        aead.decrypt(b"other", b"")


@KINDS
def test_identity_provider_of_a_cloud_that_refuses_is_named(cloud: Service, kind: str) -> None:
    conf = AZURE_CONF if kind == "azure" else account(cloud)
    aead = aead_of(cloud, kind, conf)
    cloud.failures = [("token", 400, {}, {"error": "invalid_client", "error_description": "who"})]
    with pytest.raises(RuleError, match="refused to issue a token: status 400, invalid_client: who") as caught:
        aead.encrypt(b"a key", b"")
    assert "hush" not in str(caught.value)


@KINDS
@pytest.mark.parametrize("answer", [[], {}, {"value": 1, "ciphertext": "%"}])
def test_response_of_a_cloud_without_data_raises(cloud: Service, kind: str, answer: Any) -> None:
    aead = aead_of(cloud, kind)
    cloud.failures = [("encrypt", 200, {}, answer)]
    with pytest.raises(RuleError, match=r"is not a JSON object|has no (value|ciphertext) in base64"):
        aead.encrypt(b"a key", b"")


@KINDS
def test_unreachable_cloud_is_named(cloud: Service, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    aead = aead_of(cloud, kind)
    aead.encrypt(b"a key", b"")  # so that there is a token
    cloud.shutdown()
    cloud.server_close()
    with pytest.raises(RuleError, match=r"did not answer http://127\.0\.0\.1.*4 attempts"):
        aead.encrypt(b"a key", b"")


@pytest.mark.parametrize("url", ["hcvault://vault/transit/keys/k", "hcvault://https://vault/transit/k", "hcvault://"])
def test_key_of_vault_must_be_a_url_with_mount_and_name(url: str) -> None:
    with pytest.raises(RuleError, match="is no key of Vault: it must be hcvault://https://host:port/MOUNT/keys/NAME"):
        HcVaultKmsDriver().new_kms_client({}, url)


def test_vaults_certificate_is_always_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VAULT_CACERT", "")
    for name in ("VAULT_CLIENT_CERT", "VAULT_CLIENT_KEY"):
        monkeypatch.delenv(name, raising=False)
    assert vault_verify({"ssl.ca.location": ""}) is True
    assert vault_verify({"ssl.ca.location": "ca.pem"}) == "ca.pem"
    assert vault_cert({}) is None
    assert vault_cert({"ssl.certificate.location": "c", "ssl.key.location": "k"}) == ("c", "k")
    with pytest.raises(ConfigError, match=r"ssl\.certificate\.location required"):
        vault_cert({"ssl.key.location": "k"})


def test_registered_driver_comes_first_and_missing_one_is_named() -> None:
    class Driver(AwsKmsDriver):
        pass

    made = Driver()
    register_kms_driver(made)
    try:
        assert get_kms_driver(f"aws-kms://{ARN}") is made
    finally:
        reset_kms_drivers()
    assert type(get_kms_driver(f"aws-kms://{ARN}")) is AwsKmsDriver
    with pytest.raises(RuleError, match=r"no driver for keys of type 'my-kms' .*register_kms_driver"):
        get_kms_driver("my-kms://k")


def test_driver_of_confluents_shape_can_be_registered() -> None:
    tink = pytest.importorskip("tink", reason="confluent-kafka's drivers need Tink")
    pytest.importorskip("hkdf", reason="confluent-kafka's driver of local keys needs hkdf")
    from confluent_kafka.schema_registry.rules.encryption.localkms.local_driver import LocalKmsDriver as TheirDriver

    tink.aead.register()
    theirs: Any = TheirDriver()
    register_kms_driver(theirs)
    try:
        aead = (
            get_kms_driver("local-kms://k").new_kms_client({"secret": "x"}, "local-kms://k").get_aead("local-kms://k")
        )
        made = aead.encrypt(b"a key", b"")
    finally:
        reset_kms_drivers()
    ours = get_kms_driver("local-kms://k").new_kms_client({"secret": "x"}, "local-kms://k").get_aead("local-kms://k")
    assert ours.decrypt(made, b"") == b"a key"
