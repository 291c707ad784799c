"""Key management services, which encrypt the keys of fields: the drivers of this package, and those of applications.

A driver has confluent-kafka's shape, so that one that was written for it can be registered here as well::

    register_kms_driver(driver)  # driver.get_key_url_prefix() returns "my-kms://", for instance
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import os
import threading
import urllib.parse
from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol

from pykclient.errors import ConfigError
from pykclient.schema_registry.rest import load
from pykclient.schema_registry.rules import RuleError


class Aead(Protocol):
    """Encrypts with a key of a service. Thread: any."""

    def encrypt(self, plaintext: bytes, associated_data: bytes, /) -> bytes:
        """Return the encrypted bytes."""

    def decrypt(self, ciphertext: bytes, associated_data: bytes, /) -> bytes:
        """Return the plain bytes."""


class KmsClient(Protocol):
    """A connection to a service."""

    def get_aead(self, key_uri: str, /) -> Aead:
        """Return what encrypts with a key, named by its URL."""


class KmsDriver(Protocol):
    """Makes connections to a service. Thread: any."""

    def get_key_url_prefix(self) -> str:
        """Return the beginning of the URLs of the service's keys, such as ``aws-kms://``."""

    def new_kms_client(self, conf: dict[str, Any], key_url: str, /) -> KmsClient:
        """Return a connection; ``conf`` has the application's ``rule_conf`` and the properties of the KEK."""


class LocalKmsDriver:
    """Encrypts by a secret of the application, for tests: ``secret`` in ``rule_conf``, or LOCAL_SECRET."""

    def get_key_url_prefix(self) -> str:
        return "local-kms://"

    def new_kms_client(self, conf: Mapping[str, Any], key_url: str) -> _Bound:  # noqa: ARG002 - a driver's signature
        secret = conf.get("secret") or os.getenv("LOCAL_SECRET")
        if not secret:
            raise RuleError("local-kms needs the setting 'secret' in rule_conf, or the variable LOCAL_SECRET")
        return _Bound(lambda _: _LocalAead(secret))


class AwsKmsDriver:
    """Encrypts by AWS KMS, with botocore: ``pip install 'pykclient[aws]'``.

    The key's id is its ARN. Credentials are those of AWS's own environment and files, or in ``rule_conf``:
    ``access.key.id`` and ``secret.access.key``, or ``profile``; and ``role.arn``, ``role.session.name`` and
    ``role.external.id`` for a role to assume.
    """

    def get_key_url_prefix(self) -> str:
        return "aws-kms://"

    def new_kms_client(self, conf: Mapping[str, Any], key_url: str) -> _Bound:
        arn = key_url.removeprefix(self.get_key_url_prefix())
        if len(arn.split(":")) < 6:
            raise RuleError(f"{arn!r} is not the ARN of a key of AWS KMS")
        session = load("botocore.session", "aws").Session(profile=conf.get("profile"))
        given: dict[str, Any] = {"region_name": arn.split(":")[3]}
        key, secret = conf.get("access.key.id"), conf.get("secret.access.key")
        if key is not None and secret is not None:
            given |= {"aws_access_key_id": key, "aws_secret_access_key": secret}
        role = conf.get("role.arn") or os.getenv("AWS_ROLE_ARN")
        if role and os.getenv("AWS_WEB_IDENTITY_TOKEN_FILE") is None:  # with which AWS's library takes the role itself
            asked = {
                "RoleArn": role,
                "RoleSessionName": conf.get("role.session.name")
                or os.getenv("AWS_ROLE_SESSION_NAME")
                or "pykclient-encrypt",
                "ExternalId": conf.get("role.external.id") or os.getenv("AWS_ROLE_EXTERNAL_ID"),
            }
            sts = session.create_client("sts", **given)
            found = sts.assume_role(**{name: value for name, value in asked.items() if value})["Credentials"]
            given["aws_access_key_id"] = found["AccessKeyId"]
            given["aws_secret_access_key"] = found["SecretAccessKey"]
            given["aws_session_token"] = found["SessionToken"]
        client = session.create_client("kms", **given)
        return _Bound(lambda url: _AwsAead(client, url.removeprefix(self.get_key_url_prefix())))


class HcVaultKmsDriver:
    """Encrypts by the transit engine of HashiCorp's Vault, with hvac: ``pip install 'pykclient[vault]'``.

    The key's id is ``https://host:port/MOUNT/keys/NAME``. Settings in ``rule_conf``: ``token.id``, ``namespace``,
    ``approle.role.id`` and ``approle.secret.id``, ``ssl.ca.location``, ``ssl.certificate.location`` and
    ``ssl.key.location``; without them, Vault's own variables such as VAULT_TOKEN.
    """

    def get_key_url_prefix(self) -> str:
        return "hcvault://"

    def new_kms_client(self, conf: Mapping[str, Any], key_url: str) -> _Bound:
        parts = urllib.parse.urlsplit(key_url.removeprefix(self.get_key_url_prefix()))
        mount, _, name = parts.path.strip("/").rpartition("/keys/")
        if not (parts.scheme and parts.netloc and mount and name):
            raise RuleError(f"{key_url!r} is no key of Vault: it must be hcvault://https://host:port/MOUNT/keys/NAME")
        client = load("hvac", "vault").Client(
            url=f"{parts.scheme}://{parts.netloc}",
            token=conf.get("token.id") or os.getenv("VAULT_TOKEN"),
            namespace=conf.get("namespace") or os.getenv("VAULT_NAMESPACE"),
            verify=vault_verify(conf),
            cert=vault_cert(conf),
        )
        role = conf.get("approle.role.id") or os.getenv("VAULT_APPROLE_ROLE_ID")
        secret = conf.get("approle.secret.id") or os.getenv("VAULT_APPROLE_SECRET_ID")
        if role and secret:
            client.auth.approle.login(role_id=role, secret_id=secret)
        return _Bound(lambda _: _VaultAead(client, mount, name))


def vault_verify(conf: Mapping[str, Any]) -> bool | str:
    """Return the CA file for Vault; without one, True: an empty setting must not turn the check off."""
    return conf.get("ssl.ca.location") or os.getenv("VAULT_CACERT") or True


def vault_cert(conf: Mapping[str, Any]) -> str | tuple[str, str] | None:
    """Return the client's certificate for Vault, and its key if that is in another file.

    Raises:
        ConfigError: there is a key without a certificate.
    """
    certificate = conf.get("ssl.certificate.location") or os.getenv("VAULT_CLIENT_CERT")
    key = conf.get("ssl.key.location") or os.getenv("VAULT_CLIENT_KEY")
    if key and not certificate:
        raise ConfigError("ssl.certificate.location required when configuring ssl.key.location")
    return (certificate, key) if certificate and key else certificate or None


class _Bound:
    """A connection whose keys are made by a function."""

    def __init__(self, make: Callable[[str], Aead]) -> None:
        self._make = make

    def get_aead(self, key_uri: str) -> Aead:
        return self._make(key_uri)


class _LocalAead:
    def __init__(self, secret: str) -> None:
        # HKDF (RFC 5869) with SHA-256, and neither salt nor info: 16 bytes are less than one block.
        extracted = hmac.digest(bytes(32), secret.encode(), hashlib.sha256)
        self._key = hmac.digest(extracted, b"\x01", hashlib.sha256)[:16]

    def encrypt(self, plaintext: bytes, associated_data: bytes) -> bytes:
        return gcm_encrypt(self._key, plaintext, associated_data)

    def decrypt(self, ciphertext: bytes, associated_data: bytes) -> bytes:
        return gcm_decrypt(self._key, ciphertext, associated_data)


def aead_ciphers() -> Any:
    """Return cryptography's module of ciphers. Raises ImportError if the extra ``encryption`` is not installed."""
    return load("cryptography.hazmat.primitives.ciphers.aead", "encryption")


def gcm_encrypt(key: bytes, data: bytes, associated_data: bytes) -> bytes:
    """Encrypt by AES-GCM: a random nonce of 12 bytes, and the encrypted bytes."""
    nonce = os.urandom(12)
    made: bytes = nonce + aead_ciphers().AESGCM(key).encrypt(nonce, data, associated_data)
    return made


def gcm_decrypt(key: bytes, data: bytes, associated_data: bytes) -> bytes:
    """Decrypt what ``gcm_encrypt`` has made. Raises cryptography's errors."""
    found: bytes = aead_ciphers().AESGCM(key).decrypt(data[:12], data[12:], associated_data)
    return found


class _AwsAead:
    def __init__(self, client: Any, arn: str) -> None:
        self._client = client
        self._arn = arn

    def encrypt(self, plaintext: bytes, associated_data: bytes) -> bytes:
        found: bytes = self._client.encrypt(KeyId=self._arn, Plaintext=plaintext, **_context(associated_data))[
            "CiphertextBlob"
        ]
        return found

    def decrypt(self, ciphertext: bytes, associated_data: bytes) -> bytes:
        found: bytes = self._client.decrypt(KeyId=self._arn, CiphertextBlob=ciphertext, **_context(associated_data))[
            "Plaintext"
        ]
        return found


def _context(associated_data: bytes) -> dict[str, Any]:
    return {"EncryptionContext": {"associatedData": associated_data.hex()}} if associated_data else {}


class _VaultAead:
    def __init__(self, client: Any, mount: str, name: str) -> None:
        self._transit = client.secrets.transit
        self._where = {"name": name, "mount_point": mount}

    def encrypt(self, plaintext: bytes, associated_data: bytes) -> bytes:  # noqa: ARG002 - always empty
        text = base64.b64encode(plaintext).decode()
        found: str = self._transit.encrypt_data(plaintext=text, **self._where)["data"]["ciphertext"]
        return found.encode()

    def decrypt(self, ciphertext: bytes, associated_data: bytes) -> bytes:  # noqa: ARG002 - always empty
        found: str = self._transit.decrypt_data(ciphertext=ciphertext.decode(), **self._where)["data"]["plaintext"]
        return base64.b64decode(found)


_BUILT_IN: Final[tuple[KmsDriver, ...]] = (LocalKmsDriver(), AwsKmsDriver(), HcVaultKmsDriver())
_lock = threading.Lock()  # guards _registered
_registered: list[KmsDriver] = []


def register_kms_driver(driver: KmsDriver) -> None:
    """Let a driver handle the keys with its prefix. It comes before earlier ones and those of this package."""
    with _lock:
        _registered.insert(0, driver)


def reset_kms_drivers() -> None:
    """Forget the registered drivers. Those of this package remain."""
    with _lock:
        _registered.clear()


def get_kms_driver(key_url: str) -> KmsDriver:
    """Return the driver for a key.

    Raises:
        RuleError: there is none.
    """
    with _lock:
        drivers = (*_registered, *_BUILT_IN)
    for driver in drivers:
        if key_url.startswith(driver.get_key_url_prefix()):
            return driver
    kind, _, _ = key_url.partition("://")
    known = ", ".join(driver.get_key_url_prefix().removesuffix("://") for driver in drivers)
    raise RuleError(
        f"there is no driver for keys of type {kind!r} (known: {known}): register one with "
        "pykclient.schema_registry.kms.register_kms_driver()"
    )
