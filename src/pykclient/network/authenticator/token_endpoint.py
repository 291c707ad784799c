"""Tokens from an identity provider over HTTP: OAuth's client credentials grant, with a secret (KIP-768) or an assertion
(KIP-1258), and its JWT bearer grant (KIP-1139; Java: HttpJwtRetriever).
"""

from __future__ import annotations

import base64
import http.client
import json
import random
import ssl
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from pykclient.clock import SYSTEM_CLOCK, Clock
from pykclient.config.config_def import Password
from pykclient.errors import SaslAuthenticationError
from pykclient.network.authenticator import token_http
from pykclient.network.authenticator.assertions import AssertionSource
from pykclient.network.authenticator.oauth_bearer import BearerToken
from pykclient.network.authenticator.token_providers import expiry_of_jwt
from pykclient.network.connection_failures import shown_text
from pykclient.network.tls.ssl_failures import speaks_no_tls, verification_text

#: The remedy if nobody trusts the issuer of the provider's certificate.
TRUST: Final = (
    "set https.ca.location (or ssl.truststore.location, ssl_cafile) to the certificate of the authority that issued it"
)

#: The timeout of a request, unless it is configured.
DEFAULT_TIMEOUT_MS: Final = 4_000

#: The largest response that is read, in bytes.
_MOST_BYTES: Final = 1024 * 1024

#: The characters of a provider's own words that are shown.
_MOST_SHOWN: Final = 300

#: The longest lifetime of a token that counts, in seconds: some 30,000 years.
_LONGEST_LIFETIME_S: Final = 1 << 40

#: All attempts together take no longer than this before an error is reported, so that calls fail while someone waits.
_MOST_RETRYING_MS: Final = 3_000

_URL: Final = "sasl.oauthbearer.token.endpoint.url"

_REDIRECTS: Final = frozenset((301, 302, 303, 307, 308))

#: The status codes that may be different the next time.
_RETRIABLE: Final = frozenset((408, 429, 500, 502, 503, 504))


class EndpointSettings(NamedTuple):
    """The address of an identity provider, the limits of requests to it, and how its certificate is verified.

    ``context`` returns the TLS context of a connection. ``trust`` says how to make it trust another authority.
    ``remark`` is added to errors about refused credentials.
    """

    url: str
    timeout_ms: int = DEFAULT_TIMEOUT_MS
    retry_backoff_ms: int = 100
    retry_backoff_max_ms: int = 10_000
    context: Callable[[], ssl.SSLContext] | None = None
    trust: str = TRUST
    remark: str = ""


class ClientCredentials(NamedTuple):
    """An OAuth client's id and secret. Its repr does not show the secret."""

    client_id: str
    secret: Password
    scope: str | None = None
    urlencode: bool = False

    def headers(self) -> dict[str, str]:
        """Return the header that authenticates the client (RFC 6749, section 2.3.1)."""
        parts = [self.client_id, self.secret.value]
        if self.urlencode:
            parts = [urllib.parse.quote_plus(part) for part in parts]
        return {"Authorization": "Basic " + base64.b64encode(":".join(parts).encode()).decode()}

    def form(self) -> dict[str, str]:
        """Return the parameters of the request."""
        scope = {"scope": self.scope} if self.scope else {}
        return {"grant_type": "client_credentials", **scope}


class ClientAssertion(NamedTuple):
    """Assertions instead of a client's secret, in the client credentials grant (KIP-1258)."""

    source: AssertionSource
    client_id: str | None = None
    scope: str | None = None

    def form(self) -> dict[str, str]:
        """Return the parameters of the request."""
        form = {
            "grant_type": "client_credentials",
            "client_assertion_type": "urn:ietf:params:oauth:client-assertion-type:jwt-bearer",
            "client_assertion": self.source(),
        }
        if self.client_id:
            form["client_id"] = self.client_id
        return {**form, "scope": self.scope} if self.scope else form


class JwtBearer(NamedTuple):
    """Assertions as grants (KIP-1139, RFC 7523)."""

    source: AssertionSource
    scope: str | None = None

    def form(self) -> dict[str, str]:
        """Return the parameters of the request."""
        form = {"grant_type": "urn:ietf:params:oauth:grant-type:jwt-bearer", "assertion": self.source()}
        return {**form, "scope": self.scope} if self.scope else form


def no_headers() -> dict[str, str]:
    """Return the headers of requests whose form authenticates the client."""
    return {}


class _RetriableError(Exception):
    """The next attempt may succeed."""


class TokenEndpoint:
    """Requests tokens, with retries. Blocks. Thread: one at a time."""

    def __init__(
        self,
        settings: EndpointSettings,
        headers: Callable[[], Mapping[str, str]],
        form: Callable[[], Mapping[str, str]],
        extensions: Mapping[str, str],
        clock: Clock = SYSTEM_CLOCK,
        rng: random.Random | None = None,
    ) -> None:
        self._settings = settings
        self._headers = headers
        self._form = form
        self._extensions = dict(extensions)
        self._clock = clock
        self._rng = rng or random.Random()
        self._opener = token_http.opener(clock, settings.context)
        self._host = urllib.parse.urlsplit(settings.url).hostname
        self._name = shown_url(settings.url)

    def fetch(self) -> BearerToken:
        """Return a new token.

        Raises:
            SaslAuthenticationError: the identity provider refused, or did not respond.
        """
        settings = self._settings
        start_ms = self._clock.now_ms()
        limit_ms = min(settings.retry_backoff_max_ms, _MOST_RETRYING_MS)
        backoff_ms = float(settings.retry_backoff_ms)
        while True:
            try:
                return self._attempt()
            except _RetriableError as error:
                wait_ms = int(backoff_ms * self._rng.uniform(0.8, 1.2))
                if self._clock.now_ms() + wait_ms - start_ms > limit_ms:
                    took_s = (self._clock.now_ms() - start_ms) / 1000
                    raise SaslAuthenticationError(
                        f"no token from {self._name} after {took_s:.1f} s: {error}; check "
                        "sasl.oauthbearer.token.endpoint.url and whether the identity provider is up"
                    ) from error.__cause__
                self._clock.sleep_ms(wait_ms)
                backoff_ms = min(backoff_ms * 2, limit_ms)

    def _attempt(self) -> BearerToken:
        request = urllib.request.Request(  # noqa: S310 - the configuration allows http and https only
            self._settings.url,
            urllib.parse.urlencode(self._form()).encode(),
            {"Accept": "application/json", "Content-Type": "application/x-www-form-urlencoded", **self._headers()},
            method="POST",
        )
        try:
            with self._opener.open(request, timeout=self._settings.timeout_ms / 1000) as response:
                body = response.read(_MOST_BYTES + 1)
        except urllib.error.HTTPError as error:
            with error:
                problem = f"status {error.code}{_reason_in(error)}"
            if error.code in _REDIRECTS:
                raise SaslAuthenticationError(
                    f"{self._name} redirects to {_target_of(error)} (status {error.code}), which the client does not "
                    f"follow, as it would send its credentials there: set {_URL} to the address of the token endpoint "
                    "itself"
                ) from None
            if error.code in _RETRIABLE:
                raise _RetriableError(problem) from None
            raise SaslAuthenticationError(
                f"{self._name} refused to issue a token: {problem}; check the client's id, its secret or assertion, "
                f"the scope, and this machine's clock{self._settings.remark}"
            ) from None
        except urllib.error.URLError as error:
            if isinstance(error.reason, ssl.SSLError) and (text := self._tls_problem(error.reason)):
                raise SaslAuthenticationError(text) from error.reason
            raise _RetriableError(str(error.reason)) from error
        except (OSError, http.client.HTTPException) as error:
            raise _RetriableError(shown_text(f"{type(error).__name__} {error}", _MOST_SHOWN)) from error
        return self._token_in(body)

    def _tls_problem(self, error: ssl.SSLError) -> str | None:
        """Return what is wrong if no retry helps against it."""
        if isinstance(error, ssl.SSLCertVerificationError):
            name = f"use a host name that the certificate has in {_URL}"
            return verification_text(error, self._name, self._host, trust=self._settings.trust, name=name)
        if speaks_no_tls(error):
            return f"{self._name} does not speak TLS: check the port in {_URL}, or begin it with http://"
        return None

    def _token_in(self, body: bytes) -> BearerToken:
        found = _json_object(body) if len(body) <= _MOST_BYTES else {}
        value = found.get("access_token") or found.get("id_token")
        if not isinstance(value, str):
            raise SaslAuthenticationError(f"the response of {self._name} has no access_token; is it a token endpoint?")
        expiry_ms = expiry_of_jwt(value)
        if expiry_ms is None and (lifetime_s := _seconds_in(found.get("expires_in"))):
            expiry_ms = self._clock.wall_ms() + lifetime_s * 1000
        return BearerToken(value, expiry_ms, self._extensions)


def shown_url(url: str) -> str:
    """Return a URL without its query, which may have secrets."""
    parts = urllib.parse.urlsplit(url)
    return f"{parts.scheme}://{parts.hostname}{f':{parts.port}' if parts.port else ''}{parts.path}"


def _target_of(error: urllib.error.HTTPError) -> str:
    """Return the address that a redirect names."""
    try:
        target = shown_url(urllib.parse.urljoin(error.url or "", error.headers.get("Location") or ""))
    except ValueError:
        return "another address"
    return shown_text(target, _MOST_SHOWN)


def _seconds_in(lifetime: Any) -> int | None:
    """Return a token's lifetime, which some providers send as text or as a fraction; None if there is none."""
    try:
        seconds = int(float(lifetime)) if isinstance(lifetime, str | int | float) else 0
    except (ValueError, OverflowError):
        return None
    return min(seconds, _LONGEST_LIFETIME_S) if seconds > 0 and not isinstance(lifetime, bool) else None


def _reason_in(error: urllib.error.HTTPError) -> str:
    """Return the provider's own words about an error, if it has any, in a form that is safe to log."""
    try:
        found = _json_object(error.read(_MOST_BYTES))
    except (OSError, http.client.HTTPException):
        return ""
    words = [found[name] for name in ("error", "error_description") if isinstance(found.get(name), str)]
    text = shown_text(": ".join(words), _MOST_SHOWN)
    return f", {text}" if text else ""


def _json_object(body: bytes) -> dict[str, Any]:
    try:
        found = json.loads(body)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}
