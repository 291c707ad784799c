"""HTTP to a schema registry: connections that are reused, several URLs, retries, credentials.

The standard library's client, with the TLS contexts of this package. Every attempt has a deadline for all of its reads
together, and every request a bounded number of attempts with backoff between them.
"""

from __future__ import annotations

import base64
import email.utils
import http.client
import importlib
import json
import random
import threading
import urllib.parse
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from pykclient.clock import SYSTEM_CLOCK, Clock
from pykclient.config.config_def import ConfigDef, ConfigKey, Importance, Password, Type
from pykclient.config.security_keys import SECURITY_KEYS
from pykclient.config.validators import ValidString, at_least
from pykclient.errors import ConfigError, KafkaError
from pykclient.network.authenticator.token_endpoint import (
    ClientCredentials,
    Deadline,
    EndpointSettings,
    TimedSocket,
    TokenEndpoint,
)
from pykclient.network.exponential_backoff import ExponentialBackoff
from pykclient.network.failures import shown_text
from pykclient.network.tls.ssl_factory import SslFactory, client_ssl_factory
from pykclient.schema_registry.schemas import OAuthTokenError, SchemaRegistryError
from pykclient.version import __version__

#: Responses that may be different the next time.
RETRIABLE: Final = frozenset((408, 429, 500, 502, 503, 504))
_MEDIA_TYPE: Final = "application/vnd.schemaregistry.v1+json"
_MOST_BYTES: Final = 64 * 1024 * 1024
_MOST_SHOWN: Final = 500
_MOST_IDLE: Final = 4
#: A token is replaced this long before it expires, in ms.
_EARLY_MS: Final = 30_000

_PREFIX: Final = "schema.registry."


def _key(name: str, type: str, default: Any, doc: str, **more: Any) -> ConfigKey:
    validator = more.pop("validator", None)
    return ConfigKey(name, type, default, validator, Importance.MEDIUM, doc, extension=True, **more)


_SOURCES = ("URL", "USER_INFO", "STATIC_TOKEN", "OAUTHBEARER", "CUSTOM")

#: The keys of a registry's client: confluent-kafka's, and this package's for TLS.
DEFINITION = ConfigDef(
    (
        _key("url", Type.STRING, None, "The registry's URL, or several separated by commas."),
        _key("timeout", Type.DOUBLE, 30.0, "The time limit of each attempt, in seconds.", validator=at_least(0.001)),
        _key("max.retries", Type.INT, 3, "How often a failed request is repeated.", validator=at_least(0)),
        _key("retries.wait.ms", Type.INT, 200, "The first backoff between attempts.", validator=at_least(0)),
        _key("retries.max.wait.ms", Type.INT, 20_000, "The longest backoff.", validator=at_least(0)),
        _key("cache.capacity", Type.INT, 1000, "The most entries of each cache.", validator=at_least(1)),
        _key("cache.latest.ttl.sec", Type.DOUBLE, None, "How long the latest version of a subject is cached."),
        _key(
            "cache.missing.ttl.sec",
            Type.DOUBLE,
            10.0,
            "How long the client remembers that the registry does not know an id.",
            validator=at_least(0),
        ),
        _key("basic.auth.credentials.source", Type.STRING, None, "Where user and password are.", named=True),
        _key("basic.auth.user.info", Type.PASSWORD, None, "user:password"),
        _key(
            "bearer.auth.credentials.source",
            Type.STRING,
            None,
            "Where tokens come from.",
            validator=ValidString(*_SOURCES[2:]),
        ),
        _key("bearer.auth.token", Type.PASSWORD, None, "The token of STATIC_TOKEN."),
        _key("bearer.auth.logical.cluster", Type.STRING, None, "The header target-sr-cluster."),
        _key("bearer.auth.identity.pool.id", Type.STRING, None, "The header Confluent-Identity-Pool-Id."),
        _key("bearer.auth.client.id", Type.STRING, None, "The client id of OAUTHBEARER."),
        _key("bearer.auth.client.secret", Type.PASSWORD, None, "The client secret of OAUTHBEARER."),
        _key("bearer.auth.scope", Type.STRING, None, "The scope of OAUTHBEARER."),
        _key("bearer.auth.issuer.endpoint.url", Type.STRING, None, "The token endpoint of OAUTHBEARER."),
        _key("bearer.auth.custom.provider.function", Type.CLASS, None, "A function that returns the bearer fields."),
        _key("proxy", Type.PASSWORD, None, "The URL of an HTTP proxy."),
        *(key for key in SECURITY_KEYS if key.name.startswith(("ssl.", "enable.ssl."))),
    )
)


def read_config(*sources: Mapping[str, Any]) -> dict[str, Any]:
    """Return a value for each key; Java's prefix ``schema.registry.`` is accepted.

    Raises:
        ConfigError: a key is unknown, or has a wrong value.
    """
    plain: list[dict[str, Any]] = []
    for source in sources:
        found = {name.replace("_", "."): value for name, value in source.items()}
        plain.append({name.removeprefix(_PREFIX): value for name, value in found.items() if value is not None})
        pools = plain[-1].get("bearer.auth.identity.pool.id")
        if isinstance(pools, (list, tuple)):
            plain[-1]["bearer.auth.identity.pool.id"] = ",".join(map(str, pools))
        if plain[-1].get("ssl.ca.location") is False:
            del plain[-1]["ssl.ca.location"]
            plain[-1]["enable.ssl.certificate.verification"] = False
    custom = [part.pop("bearer.auth.custom.provider.config", None) for part in plain]
    values = DEFINITION.parse(DEFINITION.read(*plain))
    values["bearer.auth.custom.provider.config"] = next((given for given in custom if given is not None), None)
    if values["url"] is None:
        raise ConfigError("url must be set to the address of the schema registry, such as http://localhost:8081", "url")
    return values


#: The beginning of paths of Apicurio's own API, which lies beside Confluent's.
APICURIO: Final = "/apis/registry/v3/"


class _Url(NamedTuple):
    scheme: str
    host: str
    port: int
    path: str

    def __str__(self) -> str:
        return f"{self.scheme}://{self.host}:{self.port}{self.path}"


def _urls(text: str) -> tuple[list[_Url], str | None]:
    """Return the URLs, and the user and password of the first that has them."""
    found: list[_Url] = []
    user_info = None
    for part in text.split(","):
        try:
            parts = urllib.parse.urlsplit(part.strip())
            port = parts.port
        except ValueError:
            raise ConfigError("url: it is not a valid URL", key="url") from None
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ConfigError("url: each must be http://host:port or https://host:port", key="url")
        if parts.username is not None and user_info is None:
            user_info = f"{urllib.parse.unquote(parts.username)}:{urllib.parse.unquote(parts.password or '')}"
        default = 443 if parts.scheme == "https" else 80
        found.append(_Url(parts.scheme, parts.hostname, port or default, parts.path.rstrip("/")))
    return found, user_info


class Credentials:
    """The headers that authenticate requests. Thread: any."""

    def __init__(
        self, config: Mapping[str, Any], user_info: str | None, clock: Clock, tls: SslFactory | None = None
    ) -> None:
        """``tls`` makes the contexts of connections to an identity provider."""
        self._clock = clock
        self._tls = tls
        self._fixed: dict[str, str] = {}
        self._fetch: Callable[[], tuple[str, float | None]] | None = None
        self._custom: Callable[[], Mapping[str, str]] | None = None
        self._lock = threading.Lock()  # guards _token
        self._token: tuple[str, float | None] | None = None
        basic = config["basic.auth.user.info"]
        if basic is not None and user_info is not None:
            raise ConfigError("set basic.auth.user.info, or user and password in the url, but not both", key="url")
        pair = basic.value if basic is not None else user_info
        if pair is not None:
            if ":" not in pair:
                raise ConfigError(
                    "basic.auth.user.info must be in the form of {username}:{password}", key="basic.auth.user.info"
                )
            self._fixed["Authorization"] = "Basic " + base64.b64encode(pair.encode()).decode()
        source = config["bearer.auth.credentials.source"]
        if source is not None:
            if pair is not None:
                raise ConfigError("set basic.auth.user.info or bearer.auth.*, but not both", key="basic.auth.user.info")
            self._set_bearer(source, config)

    def _set_bearer(self, source: str, config: Mapping[str, Any]) -> None:
        for key, header in (
            ("bearer.auth.logical.cluster", "target-sr-cluster"),
            ("bearer.auth.identity.pool.id", "Confluent-Identity-Pool-Id"),
        ):
            if config[key] is not None:
                self._fixed[header] = config[key]
        if source == "STATIC_TOKEN":
            token = _needed(config, "bearer.auth.token", source).value
            self._fixed["Authorization"] = f"Bearer {token}"
        elif source == "CUSTOM":
            function = _needed(config, "bearer.auth.custom.provider.function", source)
            given = config["bearer.auth.custom.provider.config"]
            self._custom = lambda: function(given)
        else:
            self._fetch = _token_fetcher(config, self._clock, self._tls)

    def headers(self) -> dict[str, str]:
        """Return the headers; may fetch a token, which blocks.

        Raises:
            OAuthTokenError: there is no token.
        """
        if self._custom is not None:
            fields = self._custom()
            if "bearer.auth.token" not in fields:
                raise OAuthTokenError("bearer.auth.custom.provider.function returned no bearer.auth.token")
            found = {**self._fixed, "Authorization": f"Bearer {fields['bearer.auth.token']}"}
            for key, header in (
                ("bearer.auth.logical.cluster", "target-sr-cluster"),
                ("bearer.auth.identity.pool.id", "Confluent-Identity-Pool-Id"),
            ):
                if key in fields:
                    found[header] = fields[key]
            return found
        if self._fetch is None:
            return self._fixed
        with self._lock:
            held = self._token
        if held is None or (held[1] is not None and held[1] - _EARLY_MS < self._clock.wall_ms()):
            held = self._fetch()
            with self._lock:
                self._token = held
        return {**self._fixed, "Authorization": f"Bearer {held[0]}"}

    def forget(self) -> None:
        """Fetch a new token for the next request, because the last one was rejected."""
        with self._lock:
            self._token = None


def _needed(config: Mapping[str, Any], key: str, source: str) -> Any:
    if config[key] is None:
        raise ConfigError(f"bearer.auth.credentials.source = {source} needs {key}", key=key)
    return config[key]


def _token_fetcher(
    config: Mapping[str, Any], clock: Clock, tls: SslFactory | None
) -> Callable[[], tuple[str, float | None]]:
    url = _needed(config, "bearer.auth.issuer.endpoint.url", "OAUTHBEARER")
    if not url.startswith(("http://", "https://")):
        raise ConfigError("bearer.auth.issuer.endpoint.url must be an http or https URL", key="url")
    credentials = ClientCredentials(
        _needed(config, "bearer.auth.client.id", "OAUTHBEARER"),
        _needed(config, "bearer.auth.client.secret", "OAUTHBEARER"),
        config["bearer.auth.scope"],
    )
    settings = EndpointSettings(
        url,
        context=None if tls is None else lambda: tls.current().context,
        trust="set ssl.ca.location or ssl.truststore.location to the certificate of the authority that issued it",
        proxy=None if config["proxy"] is None else config["proxy"].value,
    )
    endpoint = TokenEndpoint(settings, credentials.headers, credentials.form, {}, clock)
    lock = threading.Lock()  # guards the endpoint, which is for one thread at a time

    def fetch() -> tuple[str, float | None]:
        with lock:
            try:
                token = endpoint.fetch()
            except KafkaError as error:
                raise OAuthTokenError(str(error)) from error
        return token.value, token.expiry_ms

    return fetch


class _Connection(http.client.HTTPConnection):
    """A connection whose requests have a deadline each."""

    def __init__(self, url: _Url, timeout_s: float, clock: Clock, tls: SslFactory | None, proxy: _Url | None) -> None:
        target = proxy or url
        super().__init__(target.host, target.port, timeout=timeout_s)
        self.is_used = False
        self.deadline = Deadline(clock, timeout_s)
        self._url = url
        self._tls = tls if url.scheme == "https" else None

    def connect(self) -> None:
        answers: list[http.client.HTTPResponse] = []

        def proxys_answer(*args: Any, **kwargs: Any) -> http.client.HTTPResponse:
            answers.append(http.client.HTTPResponse(*args, **kwargs))
            return answers[-1]

        setattr(self, "response_class", proxys_answer)  # noqa: B010 - declared as a class
        try:
            super().connect()
        except OSError:
            for answer in answers:  # that of a proxy which refuses stays open, and so the socket, until Python 3.11.3
                answer.close()
            raise
        finally:
            del self.response_class
        if self._tls is not None:
            context = self._tls.current().context
            self.deadline.apply_to(self.sock)
            self.sock: Any = context.wrap_socket(self.sock, server_hostname=self._url.host)
        self.sock = TimedSocket(self.sock, self.deadline)


class RestClient:
    """Sends requests to the first registry that answers. Blocks. Thread: any."""

    def __init__(
        self, config: Mapping[str, Any], clock: Clock = SYSTEM_CLOCK, rng: random.Random | None = None
    ) -> None:
        """``config`` is the result of ``read_config``."""
        self._urls, user_info = _urls(config["url"])
        addresses = [*map(str, self._urls), config["bearer.auth.issuer.endpoint.url"] or ""]
        is_secure = any(address.startswith("https://") for address in addresses)
        self._tls = client_ssl_factory(config) if is_secure else None
        self._proxy, self._proxy_headers = _proxy(config["proxy"])
        self._credentials = Credentials(config, user_info, clock, self._tls)
        self._timeout_s: float = config["timeout"]
        self._max_retries: int = config["max.retries"]
        self._longest_wait_ms: int = config["retries.max.wait.ms"]
        self._backoff = ExponentialBackoff(
            config["retries.wait.ms"], 2, config["retries.max.wait.ms"], 0.2, rng or random.Random()
        )
        self._clock = clock
        self._lock = threading.Lock()  # guards _idle, _first, _closed
        self._idle: dict[_Url, list[_Connection]] = {}
        self._first = 0
        self._closed = False

    @property
    def name(self) -> str:
        """The registry's addresses, for messages."""
        return ", ".join(map(str, self._urls))

    def close(self) -> None:
        """Close the idle connections. Later requests raise."""
        with self._lock:
            self._closed = True
            idle, self._idle = self._idle, {}
        for connections in idle.values():
            for connection in connections:
                connection.close()

    def __del__(self) -> None:
        for connections in getattr(self, "_idle", {}).values():  # of a client that was never closed
            for connection in connections:
                connection.close()

    def send(self, method: str, path: str, query: Mapping[str, Any] | None = None, body: Any = None) -> Any:
        """Return the JSON of the response; None if it has no body.

        Raises:
            SchemaRegistryError: the registry refused, or did not answer in any attempt.
        """
        given = {name: value for name, value in (query or {}).items() if value is not None}
        if given:
            text = {name: str(value).lower() if isinstance(value, bool) else value for name, value in given.items()}
            path += "?" + urllib.parse.urlencode(text, doseq=True)
        data = None if body is None else json.dumps(body).encode()
        start_ms = self._clock.now_ms()
        failure = SchemaRegistryError(-1, -1, "not asked")
        was_refused = False
        asked_to_wait_ms = 0
        for attempt in range(self._max_retries + 1):
            if attempt:
                self._clock.sleep_ms(max(self._backoff.backoff(attempt - 1), asked_to_wait_ms))
                asked_to_wait_ms = 0
            for place in range(len(self._urls)):
                number = (self._first + place) % len(self._urls)
                with self._lock:
                    if self._closed:
                        raise SchemaRegistryError(-1, -1, "the client is closed", f"{method} {path}")
                found = self._attempt(self._urls[number], method, path, data)
                if not isinstance(found, SchemaRegistryError):
                    self._first = number
                    return found[0]
                failure = found
                asked_to_wait_ms = max(asked_to_wait_ms, min(found.retry_after_ms, self._longest_wait_ms))
                if found.http_status_code == 401 and not was_refused:
                    was_refused = True
                    self._credentials.forget()
                elif found.http_status_code != -1 and found.http_status_code not in RETRIABLE:
                    raise self._explained(found, method, path, attempt + 1, start_ms)
        raise self._explained(failure, method, path, self._max_retries + 1, start_ms)

    def _explained(
        self, error: SchemaRegistryError, method: str, path: str, attempts: int, start_ms: int
    ) -> SchemaRegistryError:
        took = "" if attempts == 1 else f" ({attempts} attempts in {(self._clock.now_ms() - start_ms) / 1000:.1f} s)"
        asked = f"{method} {path} of the schema registry {self.name}{took}"
        made = SchemaRegistryError(error.http_status_code, error.error_code, error.error_message, asked)
        made.__cause__ = error.__cause__
        return made

    def _attempt(self, url: _Url, method: str, path: str, data: bytes | None) -> SchemaRegistryError | tuple[Any]:
        headers = {
            "Accept": f"{_MEDIA_TYPE}, application/vnd.schemaregistry+json, application/json",
            "User-Agent": f"pykclient/{__version__}",
            **self._credentials.headers(),
        }
        if data is not None:
            headers["Content-Type"] = _MEDIA_TYPE
            headers["Confluent-Accept-Unknown-Properties"] = "true"
        while True:
            connection = self._connection(url)
            was_used = connection.is_used
            try:
                status, content, retry_after = self._exchange(connection, url, method, path, data, headers)
            except (OSError, http.client.HTTPException) as error:
                connection.close()
                if was_used and isinstance(error, (ConnectionError, http.client.RemoteDisconnected)):
                    continue  # closed by the registry while it was idle: a new connection, which may fail for good
                text = shown_text(f"{type(error).__name__}: {error}", _MOST_SHOWN)
                failure = SchemaRegistryError(-1, -1, f"{url}: {text}")
                failure.__cause__ = error
                return failure
            except BaseException:
                connection.close()
                raise
            if 200 <= status < 300:
                try:
                    return (json.loads(content) if content.strip() else None,)
                except ValueError:
                    return SchemaRegistryError(-1, -1, f"{url}: the response is not JSON; is this a schema registry?")
            refusal = _refusal(status, content, url, headers)
            refusal.retry_after_ms = self._wait_ms(retry_after)
            return refusal

    def _exchange(
        self,
        connection: _Connection,
        url: _Url,
        method: str,
        path: str,
        data: bytes | None,
        headers: dict[str, str],
    ) -> tuple[int, bytes, str | None]:
        """Return the status and the body of a response, and how long it asks to wait."""
        connection.deadline.restart(self._timeout_s)
        prefix = url.path
        if path.startswith(APICURIO):
            prefix, path = url.path.partition("/apis/ccompat/")[0], path[1:]
        target = f"{prefix}/{path}"
        if self._proxy is not None and url.scheme == "http":
            target = f"{url.scheme}://{url.host}:{url.port}{target}"
            headers = {**headers, **self._proxy_headers, "Host": f"{url.host}:{url.port}"}
        connection.request(method, target, data, headers)
        response = connection.getresponse()
        content = response.read(_MOST_BYTES + 1)
        if len(content) > _MOST_BYTES:
            raise http.client.HTTPException("the response is too large")
        connection.is_used = True
        if response.will_close:
            connection.close()
        else:
            self._give_back(url, connection)
        return response.status, content, response.getheader("Retry-After")

    def _wait_ms(self, retry_after: str | None) -> int:
        """Return the time in a header: seconds, or a date; 0 if it is neither."""
        try:
            return max(0, int(float(retry_after or 0) * 1000))
        except (ValueError, OverflowError):
            pass
        try:
            due = email.utils.parsedate_to_datetime(retry_after or "")
        except ValueError:
            return 0
        return max(0, int(due.timestamp() * 1000) - self._clock.wall_ms())

    def _connection(self, url: _Url) -> _Connection:
        with self._lock:
            idle = self._idle.get(url)
            if idle:
                return idle.pop()
        made = _Connection(url, self._timeout_s, self._clock, self._tls, self._proxy)
        if self._proxy is not None and url.scheme == "https":
            made.set_tunnel(url.host, url.port, self._proxy_headers)
        return made

    def _give_back(self, url: _Url, connection: _Connection) -> None:
        with self._lock:
            idle = self._idle.setdefault(url, [])
            if not self._closed and len(idle) < _MOST_IDLE:
                idle.append(connection)
                return
        connection.close()


def _proxy(given: Password | None) -> tuple[_Url | None, dict[str, str]]:
    if given is None:
        return None, {}
    try:
        parts = urllib.parse.urlsplit(given.value)
        port = parts.port
    except ValueError:
        parts = None
    if parts is None or parts.scheme != "http" or not parts.hostname:
        raise ConfigError("proxy = [hidden]: it must be http://host:port or http://user:password@host:port", "proxy")
    headers = {}
    if parts.username is not None:
        pair = f"{urllib.parse.unquote(parts.username)}:{urllib.parse.unquote(parts.password or '')}"
        headers["Proxy-Authorization"] = "Basic " + base64.b64encode(pair.encode()).decode()
    return _Url("http", parts.hostname, port or 8080, ""), headers


def _refusal(status: int, content: bytes, url: _Url, headers: Mapping[str, str]) -> SchemaRegistryError:
    """Return the error in a response, with the registry's own text. ``headers`` are those of the request."""
    try:
        found = json.loads(content)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        text = content.decode(errors="replace")
        secret = headers.get("Authorization", "").rpartition(" ")[2]
        if secret:  # some servers return the request
            text = text.replace(secret, "[hidden]")
        return SchemaRegistryError(
            status,
            -1,
            f"Unknown Schema Registry Error: the response of {url} is not one of a schema registry; is the path in url "
            f"right? It is: {shown_text(text, _MOST_SHOWN)}",
        )
    code, text = found.get("error_code"), found.get("message") or found.get("detail") or found.get("title") or ""
    return SchemaRegistryError(status, code if isinstance(code, int) else -1, str(text))


def load(name: str, extra: str) -> Any:
    """Import and return the module of an optional package.

    Raises:
        ImportError: it is not installed; the text says how to install it.
    """
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise ImportError(f"this needs {name} ({error}); install it: pip install 'pykclient[{extra}]'") from error
