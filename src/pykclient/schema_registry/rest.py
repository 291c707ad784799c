"""HTTP to a schema registry: connections that are reused, several URLs, retries, credentials.

The standard library's client, with the TLS contexts of this package. Every attempt has a deadline for all of its reads
together, and every request a bounded number of attempts with backoff between them.
"""

from __future__ import annotations

import base64
import email.utils
import functools
import http.client
import importlib
import json
import os
import random
import threading
import urllib.parse
import weakref
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, NamedTuple

from pykclient.clock import SYSTEM_CLOCK, Clock
from pykclient.config.config_def import ConfigDef, ConfigKey, Importance, Password, Type
from pykclient.config.security_keys import SECURITY_KEYS
from pykclient.config.validators import ValidString, at_least
from pykclient.errors import ConfigError, KafkaError
from pykclient.network.authenticator.oauth_bearer import BearerToken
from pykclient.network.authenticator.token_endpoint import (
    REDIRECTS,
    RETRIABLE,
    ClientCredentials,
    Deadline,
    EndpointSettings,
    TimedSocket,
    TokenEndpoint,
    shown_target,
)
from pykclient.network.exponential_backoff import ExponentialBackoff
from pykclient.network.failures import raise_if_of_signal_handler, shown_text
from pykclient.network.tls.ssl_factory import SslFactory, client_ssl_factory
from pykclient.schema_registry.schemas import OAuthTokenError, SchemaRegistryError
from pykclient.version import __version__

_MEDIA_TYPE: Final = "application/vnd.schemaregistry.v1+json"
_MOST_BYTES: Final = 64 * 1024 * 1024
_MOST_SHOWN: Final = 500
_MOST_IDLE: Final = 4
#: A token is replaced this long before it expires, in ms.
_EARLY_MS: Final = 30_000

_PREFIX: Final = "schema.registry."


def _key(name: str, type: str, default: Any, doc: str, **more: Any) -> ConfigKey:
    return ConfigKey(name, type, default, Importance.MEDIUM, doc, extension=True, **more)


#: The sources of tokens.
_SOURCES: Final = ("STATIC_TOKEN", "OAUTHBEARER", "OAUTHBEARER_AZURE_IMDS", "CUSTOM")
_SOURCE: Final = "bearer.auth.credentials.source"
_ISSUER: Final = "bearer.auth.issuer.endpoint.url"
_QUERY: Final = "bearer.auth.issuer.endpoint.query"
_POOL: Final = "bearer.auth.identity.pool.id"
_CUSTOM: Final = ("bearer.auth.custom.provider.function", "bearer.auth.custom.provider.config")
#: The headers of Confluent's cloud, and the settings that fill them.
_HEADERS: Final = (("bearer.auth.logical.cluster", "target-sr-cluster"), (_POOL, "Confluent-Identity-Pool-Id"))
#: The address at which Azure's virtual machines get the tokens of their managed identity.
AZURE_IMDS: Final = "http://169.254.169.254/metadata/identity/oauth2/token"

# fmt: off
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
        _key("cache.missing.ttl.sec", Type.DOUBLE, 10.0,
            "How long the client remembers that the registry does not know an id.", validator=at_least(0)),
        _key("basic.auth.credentials.source", Type.STRING, None, "Where user and password are.", named=True),
        _key("basic.auth.user.info", Type.PASSWORD, None, "user:password"),
        _key("bearer.auth.credentials.source", Type.STRING, None, "Where tokens come from.",
            validator=ValidString(*_SOURCES)),
        _key("bearer.auth.token", Type.PASSWORD, None, "The token of STATIC_TOKEN."),
        _key("bearer.auth.logical.cluster", Type.STRING, None, "The header target-sr-cluster."),
        _key("bearer.auth.identity.pool.id", Type.STRING, None, "The header Confluent-Identity-Pool-Id."),
        _key("bearer.auth.client.id", Type.STRING, None, "The client id of OAUTHBEARER."),
        _key("bearer.auth.client.secret", Type.PASSWORD, None, "The client secret of OAUTHBEARER."),
        _key("bearer.auth.scope", Type.STRING, None, "The scope of OAUTHBEARER."),
        _key("bearer.auth.issuer.endpoint.url", Type.STRING, None, "The token endpoint of OAUTHBEARER."),
        _key("bearer.auth.issuer.endpoint.query", Type.STRING, None, "The query of OAUTHBEARER_AZURE_IMDS."),
        _key("bearer.auth.custom.provider.function", Type.CLASS, None, "A function that returns the bearer fields."),
        _key("proxy", Type.PASSWORD, None, "The URL of an HTTP proxy."),
        *(key for key in SECURITY_KEYS if key.name.startswith(("ssl.", "enable.ssl."))),
    )
)
# fmt: on


class ValueTypeError(ConfigError, TypeError):
    """A setting of the registry's client has a value of the wrong type."""


def read_config(*sources: Mapping[str, Any]) -> dict[str, Any]:
    """Return a value for each key; Java's prefix ``schema.registry.`` is accepted.

    Raises:
        ConfigError: a key is unknown, or has a wrong value.
    """
    plain: list[dict[str, Any]] = []
    for source in sources:
        found = {name.replace("_", "."): value for name, value in source.items()}
        plain.append({name.removeprefix(_PREFIX): value for name, value in found.items() if value is not None})
        if plain[-1].get("ssl.ca.location") is False:
            del plain[-1]["ssl.ca.location"]
            plain[-1]["enable.ssl.certificate.verification"] = False
    custom = [part.pop(_CUSTOM[1], None) for part in plain]
    for part in plain:
        _check_names_and_types(part)
    values = DEFINITION.parse(DEFINITION.read(*plain))
    values[_CUSTOM[1]] = next((given for given in custom if given is not None), None)
    if values["url"] is None:
        raise ConfigError(
            "Missing required configuration property url: the address of the schema registry, such as "
            "http://localhost:8081",
            "url",
        )
    has_key = values["ssl.keyfile"] or values["ssl.key.password"]
    if has_key and not any(values[name] for name in _CERTIFICATES):
        raise ConfigError(
            "ssl.certificate.location required when configuring ssl.key.location or ssl.key.password",
            key="ssl.certificate.location",
        )
    return values


#: The settings that may have a client's certificate.
_CERTIFICATES: Final = ("ssl.certfile", "ssl.keystore.location", "ssl.keystore.certificate.chain", "ssl.context")


def _check_names_and_types(given: dict[str, Any]) -> None:
    """Check what ``ConfigDef`` would convert, and make a list of identity pools the text that the header has.

    Raises:
        ConfigError: a key is unknown, or a value is no text.
    """
    for name in given:
        try:
            DEFINITION.canonical(name)
        except ConfigError as error:
            raise ConfigError(f"Unrecognized properties: {error}", key=error.key) from None
    pools = given.get(_POOL)
    if isinstance(pools, (list, tuple)):
        if not all(isinstance(pool, str) for pool in pools):
            raise ValueTypeError(f"{_POOL}: All items in identity pool list must be strings", key=_POOL)
        given[_POOL] = ",".join(pools)
    for name, value in given.items():
        if isinstance(value, (str, Password)) or name == _CUSTOM[0]:
            continue
        if name == "url" or name.startswith(("basic.", "bearer.")):
            what = {_POOL: f"{_POOL}: identity pool id", "bearer.auth.logical.cluster": f"{name}: logical cluster"}
            kinds = "a str or list" if name == _POOL else "a str"
            raise ValueTypeError(f"{what.get(name, name)} must be {kinds}, not {type(value)}", key=name)


#: What a forked child must not share with its parent: locks that a thread of the parent may hold, and connections.
renewed_after_fork: Final[weakref.WeakSet[Any]] = weakref.WeakSet()


def _renew_all() -> None:
    for one in list(renewed_after_fork):
        one.after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_all)


#: The beginning of paths of Apicurio's own API, which lies beside Confluent's.
APICURIO: Final = "/apis/registry/v3/"


class _Url(NamedTuple):
    scheme: str
    host: str
    port: int
    path: str
    #: As it was given, without a user and a password.
    text: str

    def __str__(self) -> str:
        return self.text

    @property
    def address(self) -> str:
        """The host and the port, as the header Host has them."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def _urls(text: str) -> tuple[list[_Url], str | None]:
    """Return the URLs, and the user and password of the first that has them."""
    found: list[_Url] = []
    user_info = None
    for part in text.split(","):
        given = part.strip().rstrip("/")
        shown = "[hidden]" if "@" in given else given.partition("?")[0]
        try:
            parts = urllib.parse.urlsplit(given)
            port = parts.port
        except ValueError:
            raise ConfigError(f"Invalid url {shown}: it is not a valid URL", key="url") from None
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ConfigError(f"Invalid url {shown}: each must be http://host:port or https://host:port", key="url")
        if parts.username is not None and user_info is None:
            user_info = f"{urllib.parse.unquote(parts.username)}:{urllib.parse.unquote(parts.password or '')}"
        default = 443 if parts.scheme == "https" else 80
        path = parts.path.rstrip("/")
        text = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{path}"
        found.append(_Url(parts.scheme, parts.hostname, port or default, path, text))
    return found, user_info


class Tokens:
    """The tokens of an identity provider, each replaced before it expires. Blocks. Thread: any."""

    def __init__(self, endpoint: TokenEndpoint, clock: Clock) -> None:
        renewed_after_fork.add(self)
        self._endpoint = endpoint
        self._clock = clock
        self._lock = threading.Lock()  # guards _token
        self._token: BearerToken | None = None
        self._fetching = threading.Lock()  # guards the endpoint, which is for one thread at a time

    def after_fork(self) -> None:
        """Replace the locks, which a thread of the parent may have held."""
        self._lock, self._fetching = threading.Lock(), threading.Lock()

    def get(self) -> str:
        """Return a token that is valid for a while.

        Raises:
            OAuthTokenError: the provider refused, or did not answer.
        """
        held = self._valid()
        if held is None:
            with self._fetching:
                held = self._valid() or self._fetched()
        return held.value

    def forget(self) -> None:
        """Fetch a new token for the next request, because the last one was rejected."""
        with self._lock:
            self._token = None

    def _valid(self) -> BearerToken | None:
        with self._lock:
            held = self._token
        if held is None or (held.expiry_ms is not None and held.expiry_ms - _EARLY_MS < self._clock.wall_ms()):
            return None
        return held

    def _fetched(self) -> BearerToken:
        try:
            found = self._endpoint.fetch()
        except KafkaError as error:
            raise OAuthTokenError(str(error)) from error
        with self._lock:
            self._token = found
        return found


class _NoTokenError(OAuthTokenError, ValueError):
    """An application's function returned no token."""


class Credentials:
    """The headers that authenticate requests. Thread: any."""

    def __init__(
        self, config: Mapping[str, Any], user_info: str | None, clock: Clock, tls: SslFactory | None = None
    ) -> None:
        """``tls`` makes the contexts of connections to an identity provider."""
        self._fixed: dict[str, str] = {}
        self._tokens: Tokens | None = None
        self._custom: Callable[[], Mapping[str, str]] | None = None
        basic = config["basic.auth.user.info"]
        if basic is not None and user_info is not None:
            raise ConfigError(
                "basic.auth.user.info configured with userinfo credentials in the URL. Remove userinfo credentials "
                "from the url or remove basic.auth.user.info from the configuration",
                key="url",
            )
        pair = basic.value if basic is not None else user_info
        if pair is not None:
            if ":" not in pair:
                raise ConfigError(
                    "basic.auth.user.info must be in the form of {username}:{password}", key="basic.auth.user.info"
                )
            self._fixed["Authorization"] = "Basic " + base64.b64encode(pair.encode()).decode()
        source = config[_SOURCE]
        if source is not None:
            if pair is not None:
                raise ConfigError("set basic.auth.user.info or bearer.auth.*, but not both", key="basic.auth.user.info")
            self._set_bearer(source, config, clock, tls)

    def _set_bearer(self, source: str, config: Mapping[str, Any], clock: Clock, tls: SslFactory | None) -> None:
        self._fixed |= {header: config[key] for key, header in _HEADERS if config[key] is not None}
        if source == "STATIC_TOKEN":
            if config["bearer.auth.token"] is None:
                raise ConfigError(f"Missing bearer.auth.token, which {_SOURCE} = {source} needs", "bearer.auth.token")
            self._fixed["Authorization"] = f"Bearer {config['bearer.auth.token'].value}"
        elif source == "CUSTOM":
            _ensure_given(config, _CUSTOM[:1], "custom OAuth")
            function, given = (config[key] for key in _CUSTOM)
            self._custom = functools.partial(function, given)
        else:
            self._tokens = Tokens(_token_endpoint(source, config, clock, tls), clock)

    def headers(self) -> dict[str, str]:
        """Return the headers; may fetch a token, which blocks.

        Raises:
            OAuthTokenError: there is no token.
        """
        if self._custom is not None:
            fields = self._custom()
            if "bearer.auth.token" not in fields:
                raise _NoTokenError(
                    "Missing required bearer auth fields, needs to be set in config or custom function: "
                    "bearer.auth.token"
                )
            more = {header: fields[key] for key, header in _HEADERS if key in fields}
            return {**self._fixed, "Authorization": f"Bearer {fields['bearer.auth.token']}", **more}
        if self._tokens is None:
            return self._fixed
        return {**self._fixed, "Authorization": f"Bearer {self._tokens.get()}"}

    def forget(self) -> None:
        """Fetch a new token for the next request, because the last one was rejected."""
        if self._tokens is not None:
            self._tokens.forget()


def _ensure_given(config: Mapping[str, Any], keys: tuple[str, ...], what: str) -> None:
    missing = [key for key in keys if config[key] is None]
    if missing:
        raise ConfigError(
            f"Missing required {what} configuration properties: {', '.join(missing)}, which {_SOURCE} = "
            f"{config[_SOURCE]} needs",
            key=missing[0],
        )


def _token_endpoint(source: str, config: Mapping[str, Any], clock: Clock, tls: SslFactory | None) -> TokenEndpoint:
    """Return the identity provider of OAUTHBEARER and OAUTHBEARER_AZURE_IMDS."""
    is_azure = source == "OAUTHBEARER_AZURE_IMDS"
    if not is_azure:
        _ensure_given(config, ("bearer.auth.client.id", "bearer.auth.client.secret", _ISSUER), "OAuth")
    elif config[_ISSUER] is None and config[_QUERY] is None:
        raise ConfigError(f"{_QUERY} must be provided when {_ISSUER} isn't overridden", key=_QUERY)
    url = config[_ISSUER] or AZURE_IMDS
    try:
        parts = urllib.parse.urlsplit(url)
    except ValueError as error:
        raise ConfigError(f"{_ISSUER}: Failed to parse token endpoint URL: {error}", key=_ISSUER) from None
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ConfigError(f"{_ISSUER} must be an http or https URL", key=_ISSUER)
    if is_azure and config[_QUERY]:
        url = parts._replace(query=config[_QUERY], fragment="").geturl()
    settings = EndpointSettings(
        url,
        context=None if tls is None else lambda: tls.current().context,
        trust="set ssl.ca.location or ssl.truststore.location to the certificate of the authority that issued it",
        proxy="" if is_azure else None if config["proxy"] is None else config["proxy"].value,
        key=_ISSUER,
    )
    if is_azure:
        return TokenEndpoint(settings, lambda: {"Metadata": "true"}, None, {}, clock)
    credentials = ClientCredentials(
        config["bearer.auth.client.id"], config["bearer.auth.client.secret"], config["bearer.auth.scope"]
    )
    return TokenEndpoint(settings, credentials.headers, credentials.form, {}, clock)


class _Connection(http.client.HTTPConnection):
    """A connection whose requests have a deadline each."""

    def __init__(self, url: _Url, timeout_s: float, clock: Clock, tls: SslFactory | None, proxy: _Url | None) -> None:
        target = proxy or url
        super().__init__(target.host, target.port, timeout=timeout_s)
        self.is_used = False
        self.deadline = Deadline(clock, timeout_s)
        self._url = url
        self._tls = tls if url.scheme == "https" else None

    def abort(self) -> None:
        """End the request of another thread."""
        if isinstance(self.sock, TimedSocket):  # which it is not before it is connected
            self.sock.abort()

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


def _close_all(connections: Mapping[_Url, Iterable[_Connection]]) -> None:
    for several in connections.values():
        for connection in several:
            connection.close()


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
        self._backoff = ExponentialBackoff(config["retries.wait.ms"], config["retries.max.wait.ms"], rng)
        renewed_after_fork.add(self)
        self._clock = clock
        self._lock = threading.Lock()  # guards the following
        self._idle: dict[_Url, list[_Connection]] = {}
        self._in_use: set[_Connection] = set()
        self._first = 0
        self._closed = False

    @property
    def name(self) -> str:
        """The registry's addresses, for messages."""
        return ", ".join(map(str, self._urls))

    def close(self) -> None:
        """Close the idle connections, and end the requests in flight. They raise, and so do later ones."""
        with self._lock:
            self._closed = True
            idle, self._idle = self._idle, {}
            in_use = list(self._in_use)
        for connection in in_use:
            connection.abort()
        _close_all(idle)

    def after_fork(self) -> None:
        """Leave the parent its connections: two processes would read each other's responses."""
        self._lock = threading.Lock()
        self._in_use = set()
        idle, self._idle = self._idle, {}
        _close_all(idle)

    def __del__(self) -> None:
        _close_all(getattr(self, "_idle", {}))  # of a client that was never closed

    def get(self, path: str, query: Mapping[str, Any] | None = None) -> Any:
        """Return the JSON that the registry has at a path. Raises as ``send``."""
        return self.send("GET", path, query)

    def post(self, path: str, body: Any, query: Mapping[str, Any] | None = None) -> Any:
        """Send JSON to a path, and return the response's. Raises as ``send``."""
        return self.send("POST", path, query, body)

    def put(self, path: str, body: Any, query: Mapping[str, Any] | None = None) -> Any:
        """Put JSON at a path, and return the response's. Raises as ``send``."""
        return self.send("PUT", path, query, body)

    def delete(self, path: str, query: Mapping[str, Any] | None = None) -> Any:
        """Delete what is at a path, and return the JSON of the response. Raises as ``send``."""
        return self.send("DELETE", path, query)

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
            connection = self._connection(url, f"{method} {path}")
            was_used = connection.is_used
            try:
                status, content, answered = self._exchange(connection, url, method, path, data, headers)
            except (OSError, http.client.HTTPException) as error:
                connection.close()
                raise_if_of_signal_handler(error)
                if was_used and isinstance(error, (ConnectionError, http.client.RemoteDisconnected)):
                    continue  # closed by the registry while it was idle: a new connection, which may fail for good
                text = shown_text(f"{type(error).__name__}: {error}", _MOST_SHOWN)
                failure = SchemaRegistryError(-1, -1, f"{url}: {text}")
                failure.__cause__ = error
                return failure
            except BaseException:
                connection.close()
                raise
            finally:
                with self._lock:
                    self._in_use.discard(connection)
            if len(content) > _MOST_BYTES:
                return SchemaRegistryError(status, -1, f"{url}: the response has more than {_MOST_BYTES} bytes")
            if 200 <= status < 300:
                try:
                    return (json.loads(content) if content.strip() else None,)
                except (ValueError, RecursionError):
                    return SchemaRegistryError(-1, -1, f"{url}: the response is not JSON; is this a schema registry?")
            if status in REDIRECTS:
                target = shown_target(str(url), answered.get("Location"))
                text = f"{url} redirects to {target}, which the client does not follow: set url to the new address"
                return SchemaRegistryError(status, -1, text)
            refusal = _refusal(status, content, url, headers)
            refusal.retry_after_ms = self._wait_ms(answered.get("Retry-After"))
            return refusal

    def _exchange(
        self, connection: _Connection, url: _Url, method: str, path: str, data: bytes | None, headers: dict[str, str]
    ) -> tuple[int, bytes, Any]:
        """Return the status, the body and the headers of a response. A body that is too large is cut off."""
        connection.deadline.restart(self._timeout_s)
        prefix = url.path
        if path.startswith(APICURIO):
            prefix, path = url.path.partition("/apis/ccompat/")[0], path[1:]
        target = f"{prefix}/{path}"
        if self._proxy is not None and url.scheme == "http":
            target = f"{url.scheme}://{url.address}{target}"
            headers = {**headers, **self._proxy_headers, "Host": url.address}
        connection.request(method, target, data, headers)
        response = connection.getresponse()
        content = response.read(_MOST_BYTES + 1)
        connection.is_used = True
        if response.will_close or len(content) > _MOST_BYTES:
            connection.close()
        else:
            self._give_back(url, connection)
        return response.status, content, response.headers

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

    def _connection(self, url: _Url, asked: str) -> _Connection:
        made: _Connection | None = None
        while True:
            with self._lock:
                if self._closed:
                    raise SchemaRegistryError(-1, -1, "the client is closed", asked)
                idle = self._idle.get(url)
                found = idle.pop() if idle else made
                if found is not None:
                    self._in_use.add(found)
                    return found
            made = _Connection(url, self._timeout_s, self._clock, self._tls, self._proxy)
            if self._proxy is not None and url.scheme == "https":
                made.set_tunnel(url.host, url.port, self._proxy_headers)

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
    return _Url("http", parts.hostname, port or 8080, "", ""), headers


def _refusal(status: int, content: bytes, url: _Url, headers: Mapping[str, str]) -> SchemaRegistryError:
    """Return the error in a response, with the registry's own text. ``headers`` are those of the request."""
    try:
        found = json.loads(content)
    except (ValueError, RecursionError):
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
