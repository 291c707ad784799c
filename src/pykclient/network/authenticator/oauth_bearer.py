"""SASL OAUTHBEARER: a token that someone else has issued (RFC 7628; Java: OAuthBearerSaslClient)."""

from __future__ import annotations

import base64
import inspect
import json
import math
import re
import sys
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from pykclient.errors import ConfigError, SaslAuthenticationError
from pykclient.network.authenticator.assertions import read_file, signed_jwt
from pykclient.network.failures import shown_text

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop

MECHANISM: Final = "OAUTHBEARER"
#: The client's answer to the server's description of an error, which ends the exchange.
END: Final = b"\x01"
_EXTENSION_NAME = re.compile(r"[A-Za-z]+")
_EXTENSION_VALUE = re.compile(r"[\x21-\x7e \t\r\n]+")
_TOKEN = re.compile(r"[\x21-\x7e]+")
_INITIAL = re.compile(
    r"n,(?:a=(?P<authzid>(?:[^,=\x00\x01]|=2C|=3D)+))?,\x01auth=(?i:bearer) +(?P<token>[\x21-\x7e]+)"
    r"(?P<extensions>(?:\x01(?!auth=)[A-Za-z]+=[\x21-\x7e \t\r\n]+)*)\x01\x01"
)


class BearerToken(NamedTuple):
    """A token and its extensions. ``expiry_ms`` is wall-clock time; None if unknown. The repr hides the token."""

    value: str
    expiry_ms: int | None = None
    extensions: Mapping[str, str] = {}

    def __repr__(self) -> str:
        return f"BearerToken([hidden], expiry_ms={self.expiry_ms}, extensions={sorted(self.extensions)})"


class InitialResponse(NamedTuple):
    """The client's first message, which has the token."""

    authzid: str
    token: str
    extensions: dict[str, str]


def check(token: BearerToken) -> None:
    """Check that a token can be sent.

    Raises:
        ValueError: it contains characters that are not allowed. The error does not show them.
    """
    if not _TOKEN.fullmatch(token.value):
        raise ValueError("the token is empty or has characters that no token has")
    for name, value in token.extensions.items():
        if not _EXTENSION_NAME.fullmatch(name) or name.lower() == "auth":
            raise ValueError(f"{name!r} cannot be the name of an extension")
        if not _EXTENSION_VALUE.fullmatch(value):
            raise ValueError(f"the extension {name} is empty or has characters that are not allowed")


def initial_response(token: BearerToken) -> bytes:
    """Return the client's first message."""
    extensions = "".join(f"\x01{name}={value}" for name, value in token.extensions.items())
    return f"n,,\x01auth=Bearer {token.value}{extensions}\x01\x01".encode()


def parse_initial_response(message: bytes) -> InitialResponse:
    """Return the parts of a client's first message.

    Raises:
        ValueError: the message is malformed.
    """
    match = _INITIAL.fullmatch(message.decode())
    if match is None:
        raise ValueError("the message is malformed")
    pairs = [pair.split("=", 1) for pair in match["extensions"].split("\x01")[1:]]
    return InitialResponse(match["authzid"] or "", match["token"], dict(pairs))


class OAuthBearerSaslClient:
    """An exchange of one token, or of two if the server describes an error. Thread: io."""

    def __init__(self, token: BearerToken) -> None:
        self._token = token
        self._problem: str | None = None
        self.complete = False

    def initial(self) -> bytes:
        return initial_response(self._token)

    def evaluate(self, challenge: bytes) -> bytes | None:
        if self._problem is not None:
            raise SaslAuthenticationError(f"the broker refused the token: {self._problem}")
        if challenge:
            self._problem = _problem_in(challenge)
            return END
        self.complete = True
        return None


def _problem_in(challenge: bytes) -> str:
    """Return the server's description of an error in a form that is safe to show."""
    try:
        found = json.loads(challenge)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        return "the description of the error is unreadable"
    shown = [f"{name} {found[name]}" for name in ("status", "scope") if isinstance(found.get(name), str)]
    return shown_text(", ".join(shown), 200) or "no reason is given"


#: The time that a provider's coroutine may take on the event loop.
_COROUTINE_TIMEOUT_S: Final = 30.0
_CLAIM: Final = "unsecuredLoginStringClaim_"
_NUMBER_CLAIM: Final = "unsecuredLoginNumberClaim_"
_LIST_CLAIM: Final = "unsecuredLoginListClaim_"


def expiry_of_jwt(token: str) -> int | None:
    """Return when a JWT expires, in milliseconds since the epoch; None if it has no expiry or is no JWT.

    Its signature is not checked: that is up to the broker.
    """
    parts = token.split(".")
    if len(parts) != 3:
        return None
    try:
        claims = json.loads(base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)))
        expiry = claims["exp"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    if isinstance(expiry, bool) or not isinstance(expiry, int | float) or not 0 < expiry < 1e12:
        return None
    return int(expiry * 1000)


def checked(token: BearerToken, wall_ms: int) -> BearerToken:
    """Return a token that can be sent.

    Raises:
        SaslAuthenticationError: it is malformed or has expired.
    """
    try:
        check(token)
    except ValueError as error:
        raise SaslAuthenticationError(str(error)) from None
    if token.expiry_ms is not None and token.expiry_ms <= wall_ms:
        late_s = (wall_ms - token.expiry_ms) / 1000
        raise SaslAuthenticationError(
            f"the token expired {late_s:.0f} s ago by this machine's clock; check the clock, and who issues the token"
        )
    return token


def provider_of(given: Any, config: str) -> Callable[[], BearerToken]:
    """Return a function that gets a token from the application's provider.

    That is an object with the method ``token()``, and perhaps ``extensions()``, as in kafka-python; or a callable that
    returns a token, or a tuple of a token, the time at which it expires in seconds since the epoch, and perhaps a
    principal (ignored) and a mapping of extensions, as in confluent-kafka. A callable with a parameter gets ``config``.
    Either may be a coroutine function, as in aiokafka, if this is called on the thread of a running event loop: the
    coroutine runs on that loop, and the function that is returned waits for it on another thread.

    Raises:
        ConfigError: it is neither.
    """
    loop = _running_loop()
    if isinstance(given, type):
        given = given()
    method = getattr(given, "token", None)
    if callable(method):
        return lambda: _token_of((_awaited(method(), loop), None, None, _extensions_of(given)))
    if not callable(given):
        raise ConfigError(
            f"sasl.oauth.token.provider is an object with the method token(), or a callable, not a "
            f"{type(given).__name__}",
            key="sasl.oauth.token.provider",
        )
    arguments = (config,) if _takes_argument(given) else ()
    return lambda: _token_of(_awaited(given(*arguments), loop))


def _running_loop() -> AbstractEventLoop | None:
    asyncio = sys.modules.get("asyncio")  # no loop runs in a process that has not imported it
    try:
        return None if asyncio is None else asyncio.get_running_loop()
    except RuntimeError:
        return None


def _awaited(returned: Any, loop: AbstractEventLoop | None) -> Any:
    """Return what a provider has returned or, of a coroutine, its result.

    Raises:
        SaslAuthenticationError: no loop can run the coroutine, or it takes too long.
    """
    if not inspect.isawaitable(returned):
        return returned
    if loop is None or loop.is_closed():
        if inspect.iscoroutine(returned):
            returned.close()
        raise SaslAuthenticationError(
            "the token provider returned a coroutine, which only a running client of pykclient.aio can await"
        )
    from asyncio import run_coroutine_threadsafe

    future = run_coroutine_threadsafe(_result_of(returned), loop)
    try:
        return future.result(_COROUTINE_TIMEOUT_S)
    except TimeoutError:
        if future.done():  # the provider's own error
            raise
        future.cancel()
        raise SaslAuthenticationError(
            f"the token provider's coroutine did not complete within {_COROUTINE_TIMEOUT_S:.0f} s"
        ) from None


async def _result_of(returned: Awaitable[Any]) -> Any:
    return await returned


def _takes_argument(function: Callable[..., Any]) -> bool:
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return False
    return any(
        parameter.default is parameter.empty
        and parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD)
        for parameter in parameters
    )


def _extensions_of(provider: Any) -> Any:
    method = getattr(provider, "extensions", None)
    return method() if callable(method) else None


def _token_of(returned: Any) -> BearerToken:
    """Return the token in what a provider has returned."""
    value, expiry_s, _, extensions = (
        (*returned, *(None,) * 4)[:4] if isinstance(returned, tuple) else (returned, *(None,) * 3)
    )
    if isinstance(value, bytes):
        value = value.decode("latin-1")  # ``checked`` refuses what is not ASCII, and does not show it
    if not isinstance(value, str):
        raise SaslAuthenticationError(f"the token provider returned no text, but a {type(value).__name__}")
    is_number = isinstance(expiry_s, int | float) and not isinstance(expiry_s, bool) and math.isfinite(expiry_s)
    if expiry_s is not None and not is_number:
        raise SaslAuthenticationError("the token provider returned an expiration time that is no number of seconds")
    expiry_ms = expiry_of_jwt(value) if expiry_s is None else int(expiry_s * 1000)
    if extensions is not None and not isinstance(extensions, Mapping):
        raise SaslAuthenticationError("the token provider returned extensions that are no mapping")
    return BearerToken(value, expiry_ms, {str(name): str(text) for name, text in (extensions or {}).items()})


def file_provider(path: Path) -> Callable[[], BearerToken]:
    """Return a function that reads a token from a file, whose contents may change."""

    def read() -> BearerToken:
        text = read_file(path).decode("latin-1").strip()  # ``checked`` refuses what is not ASCII, and does not show it
        return BearerToken(text, expiry_of_jwt(text))

    return read


def unsecured_provider(options: Mapping[str, str], wall_ms: Callable[[], int]) -> Callable[[], BearerToken] | None:
    """Return a function that makes tokens without a signature from JAAS options; None if they name no claims.

    Only for development (Java: OAuthBearerUnsecuredLoginCallbackHandler).

    Raises:
        ConfigError: an option is wrong.
    """
    claims: dict[str, Any] = {}
    for name, value in options.items():
        if name.startswith(_CLAIM):
            claims[name.removeprefix(_CLAIM)] = value
        elif name.startswith(_LIST_CLAIM):
            claims[name.removeprefix(_LIST_CLAIM)] = value[1:].split(value[:1]) if value else []
        elif name.startswith(_NUMBER_CLAIM):
            claims[name.removeprefix(_NUMBER_CLAIM)] = _number(name, value)
    if not claims:
        return None
    lifetime_s = _number("unsecuredLoginLifetimeSeconds", options.get("unsecuredLoginLifetimeSeconds", "3600"))

    def make() -> BearerToken:
        now_s = wall_ms() / 1000
        expiry_s = now_s + lifetime_s
        token = signed_jwt({"alg": "none"}, {"iat": now_s, "exp": expiry_s, **claims}, lambda _: b"")
        return BearerToken(token, int(expiry_s * 1000))

    return make


def _number(name: str, value: str) -> float:
    try:
        number = float(value)
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise ConfigError(f"the option {name} of sasl.jaas.config is not a number", key="sasl.jaas.config")
    return number
