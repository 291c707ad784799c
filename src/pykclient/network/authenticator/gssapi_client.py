"""SASL GSSAPI: Kerberos, through the package gssapi (RFC 4752)."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from pykclient.errors import AuthenticationError, ConfigError, SaslAuthenticationError
from pykclient.network.authenticator.sasl_client import no_credentials

MECHANISM: Final = "GSSAPI"

#: The only security layer that Kafka has: none, as TLS does that.
_NO_LAYER: Final = 1

#: The exchanges that are kept for connections that have not asked for them yet.
_MOST_KEPT: Final = 64


class KerberosSettings(NamedTuple):
    """The client's principal, and the brokers' service name. None means the environment's default."""

    service: str
    target: Any = None
    domain: str | None = None
    principal: str | None = None
    keytab: str | None = None


def _cache_of(principal: str | None, keytab: str) -> str:
    """Return the name of the ticket cache, in memory, of the clients with this identity.

    The user's own cache may have tickets that another key has got, and would be overwritten (Java: useTicketCache is
    false by default).
    """
    identity = hashlib.sha256(f"{principal}\n{keytab}".encode()).hexdigest()
    return f"MEMORY:pykclient-{identity}"


class GssapiSaslClient:
    """An exchange: the tokens of the security context, then the choice of no security layer. Thread: io."""

    def __init__(self, context: Any, first: bytes) -> None:
        self._context = context
        self._first = first
        self._is_negotiating = False
        self.complete = False

    def initial(self) -> bytes:
        self._is_negotiating = bool(self._context.complete)
        return self._first

    def evaluate(self, challenge: bytes) -> bytes | None:
        import gssapi

        try:
            if not self._is_negotiating:
                token: bytes = self._context.step(challenge) or b""
                self._is_negotiating = bool(self._context.complete)
                return token
            offered = self._context.unwrap(challenge).message
            if len(offered) != 4 or not offered[0] & _NO_LAYER:
                raise SaslAuthenticationError("the broker wants a security layer, which Kafka does not have")
            answer: bytes = self._context.wrap(bytes((_NO_LAYER, 0, 0, 0)), False).message
        except gssapi.exceptions.GSSError as error:
            raise SaslAuthenticationError(f"Kerberos failed: {error}") from error
        self.complete = True
        return answer


class GssapiLogin:
    """A ``Login`` with Kerberos credentials. A thread asks the key distribution center. Thread: any."""

    mechanism = MECHANISM
    remedy = (
        "check the principal, its keytab or ticket (kinit), and that the brokers' host names are those of the service"
    )

    def __init__(self, settings: KerberosSettings) -> None:
        """Prepare the login.

        Raises:
            ConfigError: the package gssapi is missing.
        """
        try:
            import gssapi
        except (ImportError, OSError) as error:
            raise ConfigError(
                "sasl.mechanism=GSSAPI needs the package gssapi: pip install 'pykclient[gssapi]'", key="sasl.mechanism"
            ) from error
        self._gssapi: Any = gssapi
        self._settings = settings
        self._lock = threading.Lock()  # guards: all below
        self._waiting: set[Callable[[], object]] = set()  # whose first token is being fetched
        self._ready: dict[Callable[[], object], GssapiSaslClient | AuthenticationError] = {}

    def new_client(self, host: str, on_ready: Callable[[], object]) -> GssapiSaslClient | None:
        with self._lock:
            outcome = self._ready.pop(on_ready, None)
            if outcome is None and on_ready in self._waiting:
                return None
            if outcome is None:
                self._waiting.add(on_ready)
        if outcome is None:
            threading.Thread(
                target=self._begin, args=(host, on_ready), name=f"kafka-login | {MECHANISM}", daemon=True
            ).start()
            return None
        if isinstance(outcome, AuthenticationError):
            raise outcome
        return outcome

    def _begin(self, host: str, on_ready: Callable[[], object]) -> None:
        outcome: GssapiSaslClient | AuthenticationError
        try:
            context = self._context(host)
            outcome = GssapiSaslClient(context, context.step(None) or b"")
        except self._gssapi.exceptions.GSSError as error:
            outcome = SaslAuthenticationError(f"Kerberos failed: {error} ({self.remedy})")
            outcome.__cause__ = error
        except BaseException as error:  # noqa: BLE001 - such as a feature that this system's Kerberos does not have
            outcome = no_credentials(error)
        with self._lock:
            while len(self._ready) >= _MOST_KEPT:  # of connections that ended meanwhile
                del self._ready[next(iter(self._ready))]
            self._ready[on_ready] = outcome
            self._waiting.discard(on_ready)
        on_ready()

    def _context(self, host: str) -> Any:
        gssapi, settings = self._gssapi, self._settings
        target = settings.target
        if not isinstance(target, gssapi.Name):
            text = target or f"{settings.service}@{settings.domain or host}"
            target = gssapi.Name(text, gssapi.NameType.hostbased_service).canonicalize(gssapi.MechType.kerberos)
        credentials = None
        if settings.principal is not None or settings.keytab is not None:
            principal = settings.principal
            name = None if principal is None else gssapi.Name(principal, gssapi.NameType.kerberos_principal)
            store = None
            if settings.keytab is not None:
                store = {"client_keytab": f"FILE:{settings.keytab}", "ccache": _cache_of(principal, settings.keytab)}
            credentials = gssapi.Credentials(usage="initiate", name=name, store=store)
        return gssapi.SecurityContext(name=target, creds=credentials, usage="initiate")

    def close(self) -> None:
        with self._lock:
            self._ready.clear()

    def __repr__(self) -> str:
        return f"GssapiLogin({self._settings.service!r})"
