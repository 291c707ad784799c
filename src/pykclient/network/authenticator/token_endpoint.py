"""Tokens from an identity provider over HTTP: OAuth's client credentials grant, with a secret (KIP-768) or an assertion
(KIP-1258), and its JWT bearer grant (KIP-1139; Java: HttpJwtRetriever).

HTTP requests to identity providers, each of which has one deadline.

The timeout of the standard library is that of each single read. A server that sends a byte now and then would hold up
the thread that fetches tokens for hours.
"""

from __future__ import annotations

import base64
import contextlib
import functools
import http.client
import io
import json
import random
import ssl
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from pykclient.clock import SYSTEM_CLOCK, Clock
from pykclient.config.config_def import Password
from pykclient.errors import SaslAuthenticationError
from pykclient.network.authenticator.assertions import AssertionSource
from pykclient.network.authenticator.oauth_bearer import BearerToken, expiry_of_jwt
from pykclient.network.failures import raise_if_of_signal_handler, shown_text
from pykclient.network.tls.ssl_failures import speaks_no_tls, verification_text

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

#: The shortest timeout of a read, in seconds. A timeout of 0 would make the socket non-blocking.
_LEAST_S: Final = 0.001
#: SHUT_RDWR.
_BOTH_WAYS: Final = 2


def opener(
    clock: Clock, context: Callable[[], ssl.SSLContext] | None, proxy: str | None = None
) -> urllib.request.OpenerDirector:
    """Return an opener for ``http`` and, with ``context``, which returns the context of a connection, for ``https``.

    ``proxy`` is the URL of an HTTP proxy; without one, the environment may name it; an empty one is none.

    The ``timeout`` of its ``open`` is that of the whole response.
    It does not follow redirects, so that credentials are not sent to another address.
    """
    given = {"http": proxy, "https": proxy} if proxy else {}
    proxies = () if proxy is None else (urllib.request.ProxyHandler(given),)
    return urllib.request.build_opener(*proxies, _NoRedirects, _HttpHandler(clock), _HttpsHandler(clock, context))


def _not_followed(*_: Any, **__: Any) -> Any:
    """Leave a redirect to the default handler, which raises HTTPError, without reading its address."""


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    http_error_301 = http_error_302 = http_error_303 = http_error_307 = http_error_308 = _not_followed


class _HttpHandler(urllib.request.HTTPHandler):
    def __init__(self, clock: Clock) -> None:
        super().__init__()
        self._clock = clock

    def http_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
        new_connection: Any = functools.partial(_HttpConnection, clock=self._clock)
        return self.do_open(new_connection, req)


class _HttpsHandler(urllib.request.HTTPSHandler):
    def __init__(self, clock: Clock, context: Callable[[], ssl.SSLContext] | None) -> None:
        super().__init__()
        self._clock = clock
        self._new_context = context

    def https_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
        new_connection: Any = functools.partial(
            _HttpsConnection, clock=self._clock, context=None if self._new_context is None else self._new_context()
        )
        return self.do_open(new_connection, req)


class _HttpConnection(http.client.HTTPConnection):
    """A connection whose socket has a deadline from the time at which the connection object is created."""

    def __init__(self, host: str, *, clock: Clock, timeout: float, **settings: Any) -> None:
        super().__init__(host, timeout=timeout, **settings)
        self._deadline = Deadline(clock, timeout)

    def connect(self) -> None:
        super().connect()
        self.sock: Any = TimedSocket(self.sock, self._deadline)


class _HttpsConnection(_HttpConnection, http.client.HTTPSConnection):
    """As ``_HttpConnection``, with TLS."""


class Deadline:
    """The time at which a request must be complete."""

    def __init__(self, clock: Clock, timeout_s: float) -> None:
        self._clock = clock
        self.restart(timeout_s)

    def restart(self, timeout_s: float) -> None:
        """Allow ``timeout_s`` from now on."""
        self._due_ms = self._clock.now_ms() + int(timeout_s * 1000)

    def apply_to(self, sock: Any) -> None:
        """Set the timeout of a socket's next operation.

        Raises:
            TimeoutError: the time is over.
        """
        left_s = (self._due_ms - self._clock.now_ms()) / 1000
        if left_s <= 0:
            raise TimeoutError("the response took too long")
        sock.settimeout(max(left_s, _LEAST_S))


class TimedSocket:
    """A socket for ``http.client`` with one deadline for all operations."""

    def __init__(self, sock: Any, deadline: Deadline) -> None:
        self._sock = sock
        self._deadline = deadline

    def sendall(self, data: bytes) -> None:
        self._deadline.apply_to(self._sock)
        self._sock.sendall(data)

    def makefile(self, mode: str) -> io.BufferedReader:
        assert mode == "rb", mode
        return io.BufferedReader(TimedReader(self._sock, self._deadline))

    def abort(self) -> None:
        """End the reads and writes of other threads. It is not closed, which would free its number for another."""
        sock = self._sock
        # Not SSLSocket's own method, which takes TLS away from a thread that is reading.
        plain: Any = super(ssl.SSLSocket, sock) if isinstance(sock, ssl.SSLSocket) else sock
        with contextlib.suppress(OSError):
            plain.shutdown(_BOTH_WAYS)

    def close(self) -> None:
        """Close the socket, once its readers are closed."""
        self._sock.close()


class TimedReader(io.RawIOBase):
    """Reads from a socket until a deadline."""

    def __init__(self, sock: Any, deadline: Deadline) -> None:
        self._sock = sock
        self._deadline = deadline
        self._raw = sock.makefile("rb", 0)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: WriteableBuffer) -> int | None:
        self._deadline.apply_to(self._sock)
        count: int | None = self._raw.readinto(buffer)
        return count

    def close(self) -> None:
        self._raw.close()
        super().close()


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
#: The status codes that name another address.
REDIRECTS: Final = frozenset((301, 302, 303, 307, 308))
#: The status codes that may be different the next time.
RETRIABLE: Final = frozenset((408, 429, 500, 502, 503, 504))


class EndpointSettings(NamedTuple):
    """The address of an identity provider, the limits of requests to it, and how its certificate is verified.

    ``context`` returns the TLS context of a connection. ``trust`` says how to make it trust another authority.
    ``remark`` is added to errors about refused credentials. ``proxy`` is the URL of an HTTP proxy. ``key`` is the
    setting with the address, for errors.
    """

    url: str
    timeout_ms: int = DEFAULT_TIMEOUT_MS
    retry_backoff_ms: int = 100
    retry_backoff_max_ms: int = 10_000
    context: Callable[[], ssl.SSLContext] | None = None
    trust: str = TRUST
    remark: str = ""
    proxy: str | None = None
    key: str = _URL


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
    """Client credentials grant with assertions instead of a secret (KIP-1258)."""

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
        form: Callable[[], Mapping[str, str]] | None,
        extensions: Mapping[str, str],
        clock: Clock = SYSTEM_CLOCK,
        rng: random.Random | None = None,
    ) -> None:
        """Without ``form``, the request is a GET, as of services on the machine itself."""
        self._settings = settings
        self._headers = headers
        self._form = form
        self._extensions = dict(extensions)
        self._clock = clock
        self._rng = rng or random.Random()
        self._opener = opener(clock, settings.context, settings.proxy)
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
                        f"no token from {self._name} after {took_s:.1f} s: {error}; check {settings.key} and whether "
                        "the identity provider is up"
                    ) from error.__cause__
                self._clock.sleep_ms(wait_ms)
                backoff_ms = min(backoff_ms * 2, limit_ms)

    def _attempt(self) -> BearerToken:
        headers = {"Accept": "application/json", **self._headers()}
        form = None
        if self._form is not None:
            form = urllib.parse.urlencode(self._form()).encode()
            headers["Content-Type"] = "application/x-www-form-urlencoded"
        request = urllib.request.Request(self._settings.url, form, headers)  # noqa: S310 - http and https only
        try:
            with self._opener.open(request, timeout=self._settings.timeout_ms / 1000) as response:
                body = response.read(_MOST_BYTES + 1)
        except urllib.error.HTTPError as error:
            with error:
                problem = f"status {error.code}{_reason_in(error)}"
            if error.code in REDIRECTS:
                target = shown_target(error.url or "", error.headers.get("Location"))
                raise SaslAuthenticationError(
                    f"{self._name} redirects to {target} (status {error.code}), which the client does not follow, as "
                    f"it would send its credentials there: set {self._settings.key} to the address of the token "
                    "endpoint itself"
                ) from None
            if error.code in RETRIABLE:
                raise _RetriableError(problem) from None
            raise SaslAuthenticationError(
                f"{self._name} refused to issue a token: {problem}; check the client's id, its secret or assertion, "
                f"the scope, and this machine's clock{self._settings.remark}"
            ) from None
        except urllib.error.URLError as error:
            if isinstance(error.reason, BaseException):
                raise_if_of_signal_handler(error.reason)
            if isinstance(error.reason, ssl.SSLError) and (text := self._tls_problem(error.reason)):
                raise SaslAuthenticationError(text) from error.reason
            raise _RetriableError(str(error.reason)) from error
        except (OSError, http.client.HTTPException) as error:
            raise_if_of_signal_handler(error)
            raise _RetriableError(shown_text(f"{type(error).__name__} {error}", _MOST_SHOWN)) from error
        return self._token_in(body)

    def _tls_problem(self, error: ssl.SSLError) -> str | None:
        """Return the reason if no retry can help."""
        if isinstance(error, ssl.SSLCertVerificationError):
            name = f"use a host name that the certificate has in {self._settings.key}"
            return verification_text(error, self._name, self._host, trust=self._settings.trust, name=name)
        if speaks_no_tls(error):
            return f"{self._name} does not speak TLS: check the port in {self._settings.key}, or begin it with http://"
        return None

    def _token_in(self, body: bytes) -> BearerToken:
        found = (json_object(body) if len(body) <= _MOST_BYTES else None) or {}
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


def shown_target(url: str, location: str | None) -> str:
    """Return the address that a redirect of ``url`` names, without user, password and query."""
    try:
        target = shown_url(urllib.parse.urljoin(url, location or ""))
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
        found = json_object(error.read(_MOST_BYTES)) or {}
    except (OSError, http.client.HTTPException):
        return ""
    words = [found[name] for name in ("error", "error_description") if isinstance(found.get(name), str)]
    text = shown_text(": ".join(words), _MOST_SHOWN)
    return f", {text}" if text else ""


def json_object(body: bytes) -> dict[str, Any] | None:
    """Return the JSON object that a response is; None if it is none."""
    try:
        found = json.loads(body)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None
