"""Key management services, which encrypt the keys of fields: the drivers of this package, and those of applications.

A driver has confluent-kafka's shape, so that one that was written for it can be registered here as well::

    register_kms_driver(driver)  # driver.get_key_url_prefix() returns "my-kms://", for instance

Those of Azure and Google need no package of these clouds: a few requests over HTTP get a token and use a key.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import hmac
import http.client
import json
import os
import re
import ssl
import threading
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, ClassVar, Final, Protocol

from pykclient.clock import SYSTEM_CLOCK, Clock
from pykclient.errors import ConfigError
from pykclient.network.authenticator.assertions import signed_jwt
from pykclient.network.authenticator.token_endpoint import (
    RETRIABLE,
    EndpointSettings,
    TokenEndpoint,
    json_object,
    opener,
)
from pykclient.network.exponential_backoff import ExponentialBackoff
from pykclient.network.failures import raise_if_of_signal_handler, shown_text
from pykclient.schema_registry.rest import AZURE_IMDS, Tokens, load
from pykclient.schema_registry.rules import RuleError
from pykclient.schema_registry.schemas import OAuthTokenError


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


class _Driver:
    """A driver for the keys whose URLs begin with ``prefix``."""

    prefix: ClassVar[str]

    def get_key_url_prefix(self) -> str:
        return self.prefix

    @classmethod
    def register(cls) -> None:
        """Register a driver of this class, as confluent-kafka needs it. Those of this package are found without."""
        register_kms_driver(cls())  # type: ignore[arg-type]


class LocalKmsDriver(_Driver):
    """Encrypts by a secret of the application, for tests: ``secret`` in ``rule_conf``, or LOCAL_SECRET."""

    prefix = "local-kms://"

    def new_kms_client(self, conf: Mapping[str, Any], key_url: str) -> _Bound:  # noqa: ARG002 - a driver's signature
        secret = conf.get("secret") or os.getenv("LOCAL_SECRET")
        if not secret:
            raise RuleError("local-kms needs the setting 'secret' in rule_conf, or the variable LOCAL_SECRET")
        return _Bound(lambda _: _LocalAead(secret))


class AwsKmsDriver(_Driver):
    """Encrypts by AWS KMS, with botocore: ``pip install 'pykclient[aws]'``.

    The key's id is its ARN. Credentials are those of AWS's own environment and files, or in ``rule_conf``:
    ``access.key.id`` and ``secret.access.key``, or ``profile``; and ``role.arn``, ``role.session.name`` and
    ``role.external.id`` for a role to assume.
    """

    prefix = "aws-kms://"

    def new_kms_client(self, conf: Mapping[str, Any], key_url: str) -> _Bound:
        arn = key_url.removeprefix(self.prefix)
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
        return _Bound(lambda url: _AwsAead(client, url.removeprefix(self.prefix)))


class HcVaultKmsDriver(_Driver):
    """Encrypts by the transit engine of HashiCorp's Vault, with hvac: ``pip install 'pykclient[vault]'``.

    The key's id is ``https://host:port/MOUNT/keys/NAME``. Settings in ``rule_conf``: ``token.id``, ``namespace``,
    ``approle.role.id`` and ``approle.secret.id``, ``ssl.ca.location``, ``ssl.certificate.location`` and
    ``ssl.key.location``; without them, Vault's own variables such as VAULT_TOKEN.
    """

    prefix = "hcvault://"

    def new_kms_client(self, conf: Mapping[str, Any], key_url: str) -> _Bound:
        parts = urllib.parse.urlsplit(key_url.removeprefix(self.prefix))
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


class AzureKmsDriver(_Driver):
    """Encrypts by a key of Azure Key Vault, by RSA-OAEP-256.

    The key's id is ``https://VAULT.vault.azure.net/keys/NAME``, with or without ``/VERSION``. Without, the latest
    version encrypts. With the setting ``encrypt.azure.key.version.save``, the encrypted key says which one that was, so
    that it can be decrypted after a rotation. Credentials are ``tenant.id``, ``client.id`` and ``client.secret`` in
    ``rule_conf``; or else Azure's variables AZURE_TENANT_ID, AZURE_CLIENT_ID, and AZURE_CLIENT_SECRET or
    AZURE_FEDERATED_TOKEN_FILE; or else the machine's managed identity.
    """

    prefix = "azure-kms://"

    def new_kms_client(self, conf: Mapping[str, Any], key_url: str) -> _Bound:
        address = key_url.removeprefix(self.prefix)
        found = _AZURE_KEY.fullmatch(address)
        if found is None or (found["scheme"] == "http" and found["host"] not in _LOOPBACK):
            raise RuleError(f"{key_url!r} is no key of Azure: it must be azure-kms://https://HOST/keys/NAME[/VERSION]")
        # The token is for the domain of the vault. Another address gets none that a vault would accept.
        resource = f"https://{found['host'].partition('.')[2] or found['host']}"
        service = _CloudService("Azure Key Vault", _azure_tokens(conf, resource))
        saves = str(conf.get("encrypt.azure.key.version.save")).lower() == "true"
        return _Bound(lambda _: _AzureAead(service, address.removesuffix("/"), found["version"], saves))


class GcpKmsDriver(_Driver):
    """Encrypts by a key of Google's Cloud KMS.

    The key's id is ``projects/P/locations/L/keyRings/R/cryptoKeys/K``. Credentials are a service account's
    ``client.email``, ``private.key``, ``private.key.id`` and ``client.id`` in ``rule_conf``, and perhaps ``token.uri``;
    or else the file that GOOGLE_APPLICATION_CREDENTIALS names, or that of ``gcloud auth application-default login``; or
    else the machine's service account.
    """

    prefix = "gcp-kms://"

    def new_kms_client(self, conf: Mapping[str, Any], key_url: str) -> _Bound:
        name = key_url.removeprefix(self.prefix)
        if _GCP_KEY.fullmatch(name) is None:
            raise RuleError(
                f"{key_url!r} is no key of Google's Cloud KMS: it must be "
                "gcp-kms://projects/P/locations/L/keyRings/R/cryptoKeys/K"
            )
        kind = conf.get("account.type") or _SERVICE_ACCOUNT
        if kind != _SERVICE_ACCOUNT:
            raise RuleError(f"account.type = {kind!r}: it must be {_SERVICE_ACCOUNT!r}")
        service = _CloudService("Google's Cloud KMS", _gcp_tokens(conf))
        base = os.getenv("CLOUDSDK_API_ENDPOINT_OVERRIDES_CLOUDKMS") or "https://cloudkms.googleapis.com/"
        return _Bound(lambda _: _GcpAead(service, f"{base.rstrip('/')}/v1/{name}"))


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
        return self._run(self._client.encrypt, "Plaintext", plaintext, associated_data, "CiphertextBlob")

    def decrypt(self, ciphertext: bytes, associated_data: bytes) -> bytes:
        return self._run(self._client.decrypt, "CiphertextBlob", ciphertext, associated_data, "Plaintext")

    def _run(self, call: Callable[..., Any], name: str, data: bytes, associated_data: bytes, wanted: str) -> bytes:
        given: dict[str, Any] = {"KeyId": self._arn, name: data}
        if associated_data:
            given["EncryptionContext"] = {"associatedData": associated_data.hex()}
        found: bytes = call(**given)[wanted]
        return found


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


# --- Azure and Google -------------------------------------------------------------------------------------------------

_LOOPBACK: Final = frozenset(("127.0.0.1", "localhost"))
_AZURE_KEY: Final = re.compile(
    r"(?P<scheme>https?)://(?P<host>[A-Za-z0-9.-]+)(:\d+)?/keys/[A-Za-z0-9-]+(/(?P<version>[0-9a-fA-F]{32}))?/?"
)
_AZURE_API: Final = "api-version=7.4"
#: Before an encrypted key that says which version of the KEK has encrypted it, in 32 characters and a colon.
_AZURE_PREFIX: Final = b"azure:v1:"
_AZURE_PREFIXED: Final = re.compile(rb"azure:v1:([0-9a-fA-F]{32}):(.*)", re.DOTALL)
_GCP_KEY: Final = re.compile(
    r"projects/[^/?#\s]+/locations/[\w-]+/keyRings/[\w-]+/cryptoKeys/[\w-]+(/cryptoKeyVersions/\d+)?"
)
_GCP_TOKEN_URL: Final = "https://oauth2.googleapis.com/token"  # noqa: S105 - an address
_SERVICE_ACCOUNT: Final = "service_account"
_TRUST: Final = "set SSL_CERT_FILE to the certificate of the authority that issued it"
#: How often a request is made, and how long each may take, in seconds.
_MOST_ATTEMPTS: Final = 4
_TIMEOUT_S: Final = 10.0
_LONGEST_WAIT_MS: Final = 5_000
_MOST_BYTES: Final = 1024 * 1024
_MOST_SHOWN: Final = 300


class _RetriableError(Exception):
    """The next attempt may succeed, ``wait_ms`` later."""

    def __init__(self, text: str, wait_ms: int = 0) -> None:
        super().__init__(text)
        self.wait_ms = wait_ms


class _CloudService:
    """Requests to a service of a cloud, with a token for each. Blocks. Thread: any."""

    def __init__(self, name: str, tokens: Tokens, clock: Clock = SYSTEM_CLOCK) -> None:
        self._name = name
        self._tokens = tokens
        self._clock = clock
        self._backoff = ExponentialBackoff(200, _LONGEST_WAIT_MS)
        self._opener = opener(clock, ssl.create_default_context)

    def send(self, url: str, body: Mapping[str, str] | None = None) -> dict[str, Any]:
        """Return the JSON of the response to a POST, or without ``body`` to a GET.

        Raises:
            RuleError: the service refused, or did not answer. The text has nothing of the request but its address.
        """
        start_ms = self._clock.now_ms()
        for attempt in range(_MOST_ATTEMPTS):
            try:
                return self._attempt(url, body, may_renew=attempt == 0)
            except _RetriableError as error:
                problem = error
            except OAuthTokenError as error:
                raise RuleError(f"{self._name}: {error.message}") from None
            if attempt + 1 < _MOST_ATTEMPTS:
                self._clock.sleep_ms(max(self._backoff.backoff(attempt), min(problem.wait_ms, _LONGEST_WAIT_MS)))
        took_s = (self._clock.now_ms() - start_ms) / 1000
        took = f"{_MOST_ATTEMPTS} attempts in {took_s:.1f} s"
        raise RuleError(f"{self._name} did not answer {_without_query(url)} ({took}): {problem}")

    def _attempt(self, url: str, body: Mapping[str, str] | None, may_renew: bool) -> dict[str, Any]:
        token = self._tokens.get()
        headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json", "Accept": "application/json"}
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(url, data, headers)  # noqa: S310 - http and https only
        try:
            with self._opener.open(request, timeout=_TIMEOUT_S) as response:
                found = json_object(response.read(_MOST_BYTES))
        except urllib.error.HTTPError as error:
            with error:
                reason = _reason(error, (token, *(body or {}).values()))
            if error.code == http.client.UNAUTHORIZED and may_renew:
                self._tokens.forget()  # it has expired, or was revoked
                raise _RetriableError(f"status {error.code}{reason}") from None
            if error.code in RETRIABLE:
                wait = error.headers.get("Retry-After") or ""
                raise _RetriableError(
                    f"status {error.code}{reason}", int(wait[:6]) * 1000 if wait.isdecimal() else 0
                ) from None
            raise RuleError(f"{self._name} refused {_without_query(url)}: status {error.code}{reason}") from None
        except (OSError, http.client.HTTPException) as error:  # URLError is an OSError
            cause = error.reason if isinstance(error, urllib.error.URLError) else error
            if isinstance(cause, BaseException):
                raise_if_of_signal_handler(cause)
            text = shown_text(f"{type(cause).__name__}: {cause}", _MOST_SHOWN)
            if isinstance(cause, ssl.SSLCertVerificationError):
                raise RuleError(f"{self._name}: {_without_query(url)}: {text}; {_TRUST}") from None
            raise _RetriableError(text) from None
        if found is None:
            raise RuleError(f"{self._name}: the response of {_without_query(url)} is not a JSON object")
        return found

    def bytes_in(self, found: Mapping[str, Any], name: str) -> bytes:
        """Return the bytes in a response, in base64 of either alphabet.

        Raises:
            RuleError: the response has none.
        """
        text = found.get(name)
        if isinstance(text, str):
            with contextlib.suppress(ValueError):
                return base64.b64decode(text.translate(_STANDARD) + "=" * (-len(text) % 4), validate=True)
        raise RuleError(f"{self._name}: the response has no {name} in base64")


_STANDARD: Final = str.maketrans("-_", "+/")


def _without_query(url: str) -> str:
    return url.partition("?")[0]


def _reason(error: urllib.error.HTTPError, secrets: tuple[str, ...]) -> str:
    """Return a service's own words about an error, in a form that is safe to log."""
    try:
        found = (json_object(error.read(_MOST_BYTES)) or {}).get("error")
    except (OSError, http.client.HTTPException):
        return ""
    if not isinstance(found, dict):
        return ""
    text = ": ".join(str(found[name]) for name in ("status", "code", "message") if isinstance(found.get(name), str))
    for secret in secrets:
        text = text.replace(secret, "[hidden]")
    return f", {shown_text(text, _MOST_SHOWN)}" if text else ""


def _tokens(url: str, key: str, headers: Mapping[str, str], form: Callable[[], Mapping[str, str]] | None) -> Tokens:
    """Return the tokens of a provider. Without ``form`` it is a service of the machine, which no proxy reaches."""
    if urllib.parse.urlsplit(url).scheme not in ("http", "https"):
        raise RuleError(f"{key}: it must be an http or https URL")
    settings = EndpointSettings(
        url, context=ssl.create_default_context, trust=_TRUST, proxy="" if form is None else None, key=key
    )
    return Tokens(TokenEndpoint(settings, lambda: headers, form, {}), SYSTEM_CLOCK)


def _azure_tokens(conf: Mapping[str, Any], resource: str) -> Tokens:
    given = [conf.get(name) for name in ("tenant.id", "client.id", "client.secret")]
    if not all(given):
        given = [os.getenv(f"AZURE_{name}") for name in ("TENANT_ID", "CLIENT_ID", "CLIENT_SECRET")]
    tenant, client, secret = given
    file = os.getenv("AZURE_FEDERATED_TOKEN_FILE")
    if tenant and client and (secret or file):
        key = "AZURE_AUTHORITY_HOST"
        authority = os.getenv(key) or "login.microsoftonline.com"
        if "://" not in authority:
            authority = f"https://{authority}"
        form = {"grant_type": "client_credentials", "client_id": client, "scope": f"{resource}/.default"}

        def proven() -> dict[str, str]:
            if secret:
                return {**form, "client_secret": secret}
            assertion = _content(Path(file or ""), "AZURE_FEDERATED_TOKEN_FILE").strip()
            kind = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"
            return {**form, "client_assertion_type": kind, "client_assertion": assertion}

        return _tokens(f"{authority.rstrip('/')}/{urllib.parse.quote(tenant, '')}/oauth2/v2.0/token", key, {}, proven)
    query = {"resource": resource, "api-version": "2018-02-01", **({"client_id": client} if client else {})}
    endpoint = os.getenv("IDENTITY_ENDPOINT")  # of App Service and Functions
    if endpoint:
        query["api-version"] = "2019-08-01"
        headers = {"X-IDENTITY-HEADER": os.getenv("IDENTITY_HEADER") or ""}
        return _tokens(f"{endpoint}?{urllib.parse.urlencode(query)}", "IDENTITY_ENDPOINT", headers, None)
    key = "AZURE_POD_IDENTITY_AUTHORITY_HOST"
    host = os.getenv(key)
    path = urllib.parse.urlsplit(AZURE_IMDS).path
    url = f"{host.rstrip('/')}{path}" if host else AZURE_IMDS
    return _tokens(f"{url}?{urllib.parse.urlencode(query)}", key, {"Metadata": "true"}, None)


class _AzureAead:
    """Encrypts by a key of a vault. RSA has no associated data, and there is none for a DEK."""

    def __init__(self, service: _CloudService, address: str, version: str | None, saves_version: bool) -> None:
        self._service = service
        self._key = address.removesuffix(f"/{version}")
        self._version = version
        self._saves_version = saves_version

    def encrypt(self, plaintext: bytes, associated_data: bytes) -> bytes:  # noqa: ARG002 - always empty
        version = self._version or self._latest()
        made = self._run("encrypt", version, plaintext)
        return _AZURE_PREFIX + version.encode() + b":" + made if self._saves_version else made

    def decrypt(self, ciphertext: bytes, associated_data: bytes) -> bytes:  # noqa: ARG002 - always empty
        found = _AZURE_PREFIXED.fullmatch(ciphertext)
        if found is not None:  # as long as any writer has saved the version, whatever the setting is here
            return self._run("decrypt", found[1].decode(), found[2])
        return self._run("decrypt", self._version or self._latest(), ciphertext)

    def _latest(self) -> str:
        key = self._service.send(f"{self._key}?{_AZURE_API}").get("key")
        version = str(key.get("kid") if isinstance(key, dict) else "").rpartition("/")[2]
        if not re.fullmatch(r"[0-9a-fA-F]{32}", version):
            raise RuleError(f"Azure Key Vault: the response of {self._key} does not name the key's version")
        return version

    def _run(self, verb: str, version: str, data: bytes) -> bytes:
        value = base64.urlsafe_b64encode(data).decode().rstrip("=")
        body = {"alg": "RSA-OAEP-256", "value": value}
        return self._service.bytes_in(self._service.send(f"{self._key}/{version}/{verb}?{_AZURE_API}", body), "value")


def _gcp_tokens(conf: Mapping[str, Any]) -> Tokens:
    names = ("client.id", "client.email", "private.key.id", "private.key")
    if all(conf.get(name) for name in names):
        account = {name.replace(".", "_"): conf[name] for name in names}
        return _account_tokens({**account, "token_uri": conf.get("token.uri") or _GCP_TOKEN_URL}, "private.key")
    file = os.getenv("GOOGLE_APPLICATION_CREDENTIALS")
    folder = Path(os.getenv("CLOUDSDK_CONFIG") or Path.home() / ".config" / "gcloud")
    path = Path(file) if file else folder / "application_default_credentials.json"
    if file or path.exists():
        held = json_object(_content(path, "GOOGLE_APPLICATION_CREDENTIALS").encode()) or {}
        url = str(held.get("token_uri") or _GCP_TOKEN_URL)
        if held.get("type") == _SERVICE_ACCOUNT:
            return _account_tokens({**held, "token_uri": url}, str(path))
        if held.get("type") == "authorized_user":
            form = {name: str(held.get(name)) for name in ("client_id", "client_secret", "refresh_token")}
            return _tokens(url, "token.uri", {}, lambda: {"grant_type": "refresh_token", **form})
        raise RuleError(
            f"{path} has credentials of the type {held.get('type')!r}: only service_account and authorized_user can be "
            "used; or register a driver of your own"
        )
    key = "GCE_METADATA_HOST"
    host = os.getenv(key) or "metadata.google.internal"
    url = f"http://{host}/computeMetadata/v1/instance/service-accounts/default/token"
    return _tokens(url, key, {"Metadata-Flavor": "Google"}, None)


def _account_tokens(account: Mapping[str, Any], where: str) -> Tokens:
    """Return the tokens of a service account, for assertions that its key signs. ``where`` is the key's place."""
    padding = load("cryptography.hazmat.primitives.asymmetric.padding", "encryption")
    hashes = load("cryptography.hazmat.primitives.hashes", "encryption")
    serialization = load("cryptography.hazmat.primitives.serialization", "encryption")
    try:
        key = serialization.load_pem_private_key(str(account["private_key"]).encode(), None)

        def sign(data: bytes) -> bytes:
            made: bytes = key.sign(data, padding.PKCS1v15(), hashes.SHA256())
            return made

        sign(b"")
    except Exception:  # noqa: BLE001 - cryptography's own errors, whose texts may have parts of the key
        raise RuleError(f"{where} has no private key of RSA in PEM") from None

    def form() -> dict[str, str]:
        now_s = SYSTEM_CLOCK.wall_ms() // 1000
        header = {"alg": "RS256", "typ": "JWT", "kid": account.get("private_key_id")}
        claims = {
            "iss": account.get("client_email"),
            "scope": "https://www.googleapis.com/auth/cloudkms",
            "aud": account["token_uri"],
            "iat": now_s,
            "exp": now_s + 3600,
        }
        grant = "urn:ietf:params:oauth:grant-type:jwt-bearer"
        return {"grant_type": grant, "assertion": signed_jwt(header, claims, sign)}

    return _tokens(str(account["token_uri"]), "token.uri", {}, form)


def _content(path: Path, name: str) -> str:
    try:
        with path.open("rb") as file:
            return file.read(_MOST_BYTES).decode()
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or type(error).__name__
        raise RuleError(f"{name}: the file {path} cannot be read: {reason}") from None


class _GcpAead:
    def __init__(self, service: _CloudService, url: str) -> None:
        self._service = service
        self._url = url

    def encrypt(self, plaintext: bytes, associated_data: bytes) -> bytes:
        return self._run("encrypt", "plaintext", plaintext, associated_data, "ciphertext")

    def decrypt(self, ciphertext: bytes, associated_data: bytes) -> bytes:
        if "/cryptoKeyVersions/" in self._url:
            raise RuleError("Google's Cloud KMS decrypts by a key and not by its version: leave out /cryptoKeyVersions")
        return self._run("decrypt", "ciphertext", ciphertext, associated_data, "plaintext")

    def _run(self, verb: str, name: str, data: bytes, associated_data: bytes, wanted: str) -> bytes:
        body = {name: base64.b64encode(data).decode()}
        if associated_data:
            body["additionalAuthenticatedData"] = base64.b64encode(associated_data).decode()
        return self._service.bytes_in(self._service.send(f"{self._url}:{verb}", body), wanted)


# --- the drivers ------------------------------------------------------------------------------------------------------

_BUILT_IN: Final[tuple[KmsDriver, ...]] = (
    LocalKmsDriver(),
    AwsKmsDriver(),
    AzureKmsDriver(),
    GcpKmsDriver(),
    HcVaultKmsDriver(),
)
_lock = threading.Lock()  # guards _registered
#: By prefix, the newest last.
_registered: dict[str, KmsDriver] = {}


def register_kms_driver(driver: KmsDriver) -> None:
    """Let a driver handle the keys with its prefix. It comes before earlier ones and those of this package."""
    prefix = driver.get_key_url_prefix()
    with _lock:
        _registered.pop(prefix, None)
        _registered[prefix] = driver


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
        drivers = (*reversed(_registered.values()), *_BUILT_IN)
    for driver in drivers:
        if key_url.startswith(driver.get_key_url_prefix()):
            return driver
    kind, _, _ = key_url.partition("://")
    known = ", ".join(driver.get_key_url_prefix().removesuffix("://") for driver in drivers)
    raise RuleError(
        f"there is no driver for keys of type {kind!r} (known: {known}): register one with "
        "pykclient.schema_registry.kms.register_kms_driver()"
    )
