"""SASL AWS_MSK_IAM: a request signed with AWS credentials (Signature Version 4), for Amazon MSK."""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple
from urllib.parse import quote

from pykclient.config.config_def import Password
from pykclient.errors import ConfigError, SaslAuthenticationError
from pykclient.version import __version__

MECHANISM: Final = "AWS_MSK_IAM"

_VERSION: Final = "2020_10_22"
_SERVICE: Final = "kafka-cluster"
_ACTION: Final = "kafka-cluster:Connect"
_ALGORITHM: Final = "AWS4-HMAC-SHA256"
_EXPIRES_S: Final = "900"

_REGION_IN_HOST = re.compile(r"\.kafka(?:-serverless)?\.([a-z0-9-]+)\.amazonaws\.com(?:\.cn)?$")

#: The environment variables with the region, if the host name does not tell.
_REGION_VARIABLES: Final = ("AWS_REGION", "AWS_DEFAULT_REGION")


class AwsCredentials(NamedTuple):
    """AWS credentials. Their repr does not show the secrets."""

    access_key_id: str
    secret_access_key: Password
    session_token: Password | None = None
    expiry_ms: int | None = None

    @classmethod
    def of(cls, access_key_id: str, secret_access_key: str, session_token: str | None = None) -> AwsCredentials:
        return cls(access_key_id, Password(secret_access_key), Password(session_token) if session_token else None)


class AwsMskIamSaslClient:
    """An exchange of one signed request. Thread: io."""

    def __init__(self, credentials: AwsCredentials, host: str, region: str, time: datetime) -> None:
        self._payload = signed_payload(credentials, host, region, time)
        self.complete = False

    def initial(self) -> bytes:
        return self._payload

    def evaluate(self, challenge: bytes) -> bytes | None:
        if not challenge:
            raise SaslAuthenticationError("the broker did not confirm the signed request")
        self.complete = True
        return None


def signed_payload(credentials: AwsCredentials, host: str, region: str, time: datetime) -> bytes:
    """Return a signed request to connect to ``host``."""
    timestamp = time.strftime("%Y%m%dT%H%M%SZ")
    scope = f"{timestamp[:8]}/{region}/{_SERVICE}/aws4_request"
    signed = {
        "Action": _ACTION,
        "X-Amz-Algorithm": _ALGORITHM,
        "X-Amz-Credential": f"{credentials.access_key_id}/{scope}",
        "X-Amz-Date": timestamp,
        "X-Amz-Expires": _EXPIRES_S,
    }
    if credentials.session_token is not None:
        signed["X-Amz-Security-Token"] = credentials.session_token.value
    signed["X-Amz-SignedHeaders"] = "host"
    query = "&".join(f"{name}={quote(value, safe='-._~')}" for name, value in signed.items())
    request = "\n".join(("GET", "/", query, f"host:{host}", "", "host", hashlib.sha256(b"").hexdigest()))
    to_sign = "\n".join((_ALGORITHM, timestamp, scope, hashlib.sha256(request.encode()).hexdigest()))
    key = ("AWS4" + credentials.secret_access_key.value).encode()
    for part in (*scope.split("/"), to_sign):
        key = hmac.digest(key, part.encode(), "sha256")
    parts = {name.lower(): value for name, value in signed.items()}
    payload = {
        "version": _VERSION,
        "host": host,
        "user-agent": f"pykclient/{__version__}",
        **parts,
        "x-amz-signature": key.hex(),
    }
    return json.dumps(payload, separators=(",", ":")).encode()


def region_of(host: str, environment: Mapping[str, str] = os.environ) -> str:
    """Return the AWS region of a broker.

    Raises:
        SaslAuthenticationError: neither the host name nor the environment tells.
    """
    match = _REGION_IN_HOST.search(host)
    if match is not None:
        return match[1]
    for name in _REGION_VARIABLES:
        if environment.get(name):
            return environment[name]
    raise SaslAuthenticationError(
        f"the AWS region is not in the host name {host}; set the variable {_REGION_VARIABLES[0]}"
    )


def new_client(credentials: AwsCredentials, host: str, now_ms: int) -> AwsMskIamSaslClient:
    return AwsMskIamSaslClient(credentials, host, region_of(host), datetime.fromtimestamp(now_ms / 1000, UTC))


def credentials_source(
    provider: Any, profile: str | None, environment: Mapping[str, str] = os.environ
) -> Callable[[], AwsCredentials]:
    """Return a function that gets the credentials: the application's, those of a profile, or AWS's default ones.

    ``provider`` is a callable that returns an access key id, a secret access key and, if there is one, a session token,
    as a tuple or as attributes with botocore's names.

    Raises:
        ConfigError: the provider cannot be called.
    """
    if provider is not None:
        if not callable(provider):
            raise ConfigError(
                f"sasl.aws.credentials.provider is a callable, not a {type(provider).__name__}",
                key="sasl.aws.credentials.provider",
            )
        return lambda: _credentials_of(provider())

    def find() -> AwsCredentials:
        key, secret = environment.get("AWS_ACCESS_KEY_ID"), environment.get("AWS_SECRET_ACCESS_KEY")
        if profile is None and key and secret:
            return AwsCredentials.of(key, secret, environment.get("AWS_SESSION_TOKEN"))
        return _by_botocore(profile)

    return find


def _by_botocore(profile: str | None) -> AwsCredentials:
    try:
        from botocore.session import Session
    except ImportError as error:
        raise SaslAuthenticationError(
            "there are no AWS credentials: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or for profiles, roles and "
            "instance metadata: pip install 'pykclient[aws]'"
        ) from error
    found = Session(profile=profile).get_credentials()
    if found is None:
        raise SaslAuthenticationError(
            "botocore finds no AWS credentials; check the profile, the role and the environment"
        )
    return _credentials_of(found.get_frozen_credentials())


def _credentials_of(found: Any) -> AwsCredentials:
    if hasattr(found, "access_key"):
        found = (found.access_key, found.secret_key, found.token)
    if not isinstance(found, tuple) or len(found) not in (2, 3) or not all(isinstance(part, str) for part in found[:2]):
        raise SaslAuthenticationError(
            f"the provider of AWS credentials returned a {type(found).__name__} instead of an access key id, a secret "
            "access key and perhaps a session token"
        )
    return AwsCredentials.of(*found)
