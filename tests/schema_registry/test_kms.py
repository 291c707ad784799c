"""Drivers of key management services speak with stand-ins of their services."""

from __future__ import annotations

import base64
import http.server
import json
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from pykclient.errors import ConfigError
from pykclient.schema_registry.kms import (
    AwsKmsDriver,
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
        super().__init__(("127.0.0.1", 0), _Handler)

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
        body = self.rfile.read(int(self.headers["Content-Length"]))
        headers = {name.lower(): value for name, value in self.headers.items()}
        answer = self.server.answer(self.path, headers, body)
        self.send_response(200)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    do_PUT = do_POST  # noqa: N815

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
        monkeypatch.setenv(f"AWS_ENDPOINT_URL_{name}", f"http://127.0.0.1:{service.server_address[1]}")
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
    with pytest.raises(RuleError, match=r"no driver for keys of type 'gcp-kms' .*register_kms_driver"):
        get_kms_driver("gcp-kms://k")


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
