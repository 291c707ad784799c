"""Signed assertions about an OAuth client (KIP-1139, KIP-1258; Java: AssertionCreator, AssertionJwtTemplate)."""

from __future__ import annotations

import base64
import json
import uuid
from collections.abc import Callable, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from pykclient.config.config_def import Password, white_space_remark
from pykclient.errors import ConfigError, SaslAuthenticationError

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes

_PREFIX: Final = "sasl.oauthbearer.assertion"
FILE: Final = f"{_PREFIX}.file"
KEY_FILE: Final = f"{_PREFIX}.private.key.file"
TEMPLATE_FILE: Final = f"{_PREFIX}.template.file"
_ISSUER: Final = f"{_PREFIX}.claim.iss"

#: The largest file that is read, in bytes.
_MOST_BYTES: Final = 1024 * 1024

#: The bytes of each number in a signature with ES256 (RFC 7518, section 3.4).
_ES256_BYTES: Final = 32

#: Returns the assertion of one request. Reads files, so it runs on the thread that fetches tokens.
AssertionSource = Callable[[], str]


class AssertionClaims(NamedTuple):
    """The claims of an assertion besides its times. Times are in seconds."""

    issuer: str | None
    subject: str | None
    audience: str | None
    validity_s: int
    skew_s: int
    has_id: bool


def are_configured(config: Mapping[str, Any]) -> bool:
    """Return whether a client's configuration has assertions."""
    return config[FILE] is not None or config[_ISSUER] is not None


def assertion_source(config: Mapping[str, Any], wall_ms: Callable[[], int]) -> AssertionSource:
    """Return the source of assertions for a client's configuration: a file, or claims and a key that signs them.

    Files are read for each assertion, so that they can be replaced while the client runs.

    Raises:
        ConfigError: a key is missing, or a file cannot be used.
    """
    if config[FILE] is not None:
        path = Path(config[FILE])
        _checked(lambda: assertion_in(path), FILE)
        return lambda: assertion_in(path)
    if config[KEY_FILE] is None:
        raise ConfigError(f"an assertion needs {FILE}, or {KEY_FILE} and claims such as {_ISSUER}", key=KEY_FILE)
    if find_spec("cryptography") is None:
        raise ConfigError(f"{KEY_FILE} needs the package cryptography: pip install 'pykclient[security]'", key=KEY_FILE)
    creator = AssertionCreator(
        config[f"{_PREFIX}.algorithm"].upper(),
        Path(config[KEY_FILE]),
        config[f"{_PREFIX}.private.key.passphrase"],
        AssertionClaims(
            config[_ISSUER],
            config[f"{_PREFIX}.claim.sub"],
            config[f"{_PREFIX}.claim.aud"],
            config[f"{_PREFIX}.claim.exp.seconds"],
            config[f"{_PREFIX}.claim.nbf.seconds"],
            config[f"{_PREFIX}.claim.jti.include"],
        ),
        None if config[TEMPLATE_FILE] is None else Path(config[TEMPLATE_FILE]),
        wall_ms,
    )
    _checked(creator.create, KEY_FILE)
    return creator.create


def _checked(source: AssertionSource, key: str) -> None:
    """Make one assertion, so that a wrong file is found at the start.

    Raises:
        ConfigError: it cannot be made.
    """
    try:
        source()
    except SaslAuthenticationError as error:
        raise ConfigError(f"{key}: {error}", key=key) from error


def assertion_in(path: Path) -> str:
    """Return the complete assertion in a file.

    Raises:
        SaslAuthenticationError: there is none.
    """
    text = read_file(path).decode("latin-1").strip()
    if text.count(".") != 2 or not text.isascii() or not text.isprintable():
        raise SaslAuthenticationError(f"the file {path} does not contain an assertion, which is a signed JWT")
    return text


class AssertionCreator:
    """Creates signed JWTs. Thread: one at a time."""

    def __init__(
        self,
        algorithm: str,
        key_file: Path,
        passphrase: Password | None,
        claims: AssertionClaims,
        template_file: Path | None,
        wall_ms: Callable[[], int],
    ) -> None:
        self._algorithm = algorithm
        self._key_file = key_file
        self._passphrase = passphrase
        self._claims = claims
        self._template_file = template_file
        self._wall_ms = wall_ms

    def create(self) -> str:
        """Return an assertion that is valid from now on.

        Raises:
            SaslAuthenticationError: the key or the template cannot be read.
        """
        header, payload = self._template()
        header |= {"alg": self._algorithm, "typ": "JWT"}
        payload |= self._payload(self._wall_ms() // 1000)
        return signed_jwt(header, payload, self._signature)

    def _payload(self, now_s: int) -> dict[str, Any]:
        claims = self._claims
        named = {"aud": claims.audience, "iss": claims.issuer, "sub": claims.subject}
        payload: dict[str, Any] = {name: value for name, value in named.items() if value is not None}
        payload |= {"iat": now_s, "exp": now_s + claims.validity_s, "nbf": now_s - claims.skew_s}
        if claims.has_id:
            payload["jti"] = str(uuid.uuid4())
        return payload

    def _template(self) -> tuple[dict[str, Any], dict[str, Any]]:
        path = self._template_file
        if path is None:
            return {}, {}
        try:
            found = json.loads(read_file(path))
            header, payload = found.get("header", {}), found.get("payload", {})
            return dict(header), dict(payload)
        except (ValueError, TypeError, AttributeError, RecursionError):
            raise SaslAuthenticationError(
                f"the template {path} must be a JSON object with the objects header and payload"
            ) from None

    def _signature(self, signed: bytes) -> bytes:
        from cryptography.hazmat.primitives.asymmetric.ec import ECDSA, SECP256R1, EllipticCurvePrivateKey
        from cryptography.hazmat.primitives.asymmetric.padding import PKCS1v15
        from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey
        from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature
        from cryptography.hazmat.primitives.hashes import SHA256

        key = self._key()
        if self._algorithm == "RS256" and isinstance(key, RSAPrivateKey):
            return key.sign(signed, PKCS1v15(), SHA256())
        if self._algorithm == "ES256" and isinstance(key, EllipticCurvePrivateKey) and isinstance(key.curve, SECP256R1):
            numbers = decode_dss_signature(key.sign(signed, ECDSA(SHA256())))
            return b"".join(number.to_bytes(_ES256_BYTES, "big") for number in numbers)
        wanted = "an RSA key" if self._algorithm == "RS256" else "a key on the curve P-256"
        raise SaslAuthenticationError(f"{self._algorithm} needs {wanted}, which the one in {self._key_file} is not")

    def _key(self) -> PrivateKeyTypes:
        from cryptography.exceptions import UnsupportedAlgorithm
        from cryptography.hazmat.primitives.serialization import load_pem_private_key

        password = None if self._passphrase is None else self._passphrase.value.encode()
        pem = read_file(self._key_file)
        try:
            return load_pem_private_key(pem, password)
        except TypeError:
            problem = "is not encrypted: leave out" if password is not None else "is encrypted: set"
        except (ValueError, UnsupportedAlgorithm):
            problem = "is no private key in PEM, or its password is wrong: check"
        remark = "" if self._passphrase is None else white_space_remark(self._passphrase.value)
        raise SaslAuthenticationError(f"the key in {self._key_file} {problem} {_PREFIX}.private.key.passphrase{remark}")


def read_file(path: Path) -> bytes:
    """Return the content of a file with a key, an assertion or a token.

    Raises:
        SaslAuthenticationError: it cannot be read, or is too large to be one.
    """
    try:
        with path.open("rb") as file:
            content = file.read(_MOST_BYTES + 1)
    except OSError as error:
        raise SaslAuthenticationError(f"the file {path} cannot be read: {error.strerror or error}") from error
    if len(content) > _MOST_BYTES:
        raise SaslAuthenticationError(f"the file {path} has more than {_MOST_BYTES} bytes")
    return content


def signed_jwt(header: dict[str, Any], payload: dict[str, Any], sign: Callable[[bytes], bytes]) -> str:
    """Return a JWT with the signature that ``sign`` makes of its bytes."""
    signed = f"{_encoded_json(header)}.{_encoded_json(payload)}"
    return f"{signed}.{_encoded(sign(signed.encode()))}"


def _encoded_json(value: dict[str, Any]) -> str:
    return _encoded(json.dumps(value, separators=(",", ":")).encode())


def _encoded(value: bytes) -> str:
    return base64.urlsafe_b64encode(value).decode().rstrip("=")
