"""The interfaces of SASL mechanisms (Java: SaslClient, Login), PLAIN (RFC 4616), and credentials that expire."""

from __future__ import annotations

import logging
import random
import threading
import traceback
from collections.abc import Callable
from typing import Final, Generic, NamedTuple, Protocol, TypeVar

from pykclient.clock import SYSTEM_CLOCK, Clock
from pykclient.config.config_def import Password, white_space_remark
from pykclient.errors import AuthenticationError, SaslAuthenticationError


class SaslClient(Protocol):
    """The client's side of one exchange of a mechanism, without I/O.

    Any step may raise SaslAuthenticationError. Thread: io.
    """

    @property
    def complete(self) -> bool:
        """True once the exchange is complete and, if the mechanism allows, the server is verified."""

    def initial(self) -> bytes:
        """Return the first token, which is sent without a challenge."""

    def evaluate(self, challenge: bytes) -> bytes | None:
        """Return the token that answers the server's challenge; None if there is nothing to send.

        Not called once ``complete``.
        """


class Login(Protocol):
    """The credentials of one client for a mechanism, shared by all its connections. Its repr shows no secret.

    Thread: io, except for ``close``.
    """

    mechanism: str
    #: Advice for the user when the broker rejects the credentials.
    remedy: str

    def new_client(self, host: str, on_ready: Callable[[], object]) -> SaslClient | None:
        """Return an exchange with the broker at ``host``; None while the credentials are being fetched.

        In that case any thread calls ``on_ready``, once, when it is worthwhile to call this method again.

        Raises:
            AuthenticationError: there are no credentials, and waiting will not help.
        """

    def close(self) -> None:
        """Stop fetching credentials. Thread: any."""


PLAIN_MECHANISM: Final = "PLAIN"


class PlainSaslClient:
    """An exchange of one token. Thread: io."""

    def __init__(self, username: str, password: str) -> None:
        self._token = f"\0{username}\0{password}".encode()
        self.complete = False

    def initial(self) -> bytes:
        self.complete = True
        return self._token

    def evaluate(self, challenge: bytes) -> bytes | None:  # noqa: ARG002 - the mechanism has no challenges
        return None


class PlainLogin:
    """A user name and a password. Thread: any."""

    mechanism = PLAIN_MECHANISM

    def __init__(self, username: str, password: Password) -> None:
        self.set_credentials(username, password)

    def set_credentials(self, username: str, password: Password) -> None:
        """Use another user for the connections that are made from now on."""
        self._credentials = (username, password)
        self.remedy = f"check the user name and the password{white_space_remark(password.value)}"

    def new_client(self, host: str, on_ready: Callable[[], object]) -> PlainSaslClient:  # noqa: ARG002
        username, password = self._credentials
        return PlainSaslClient(username, password.value)

    def close(self) -> None:
        """Do nothing, as there are no resources."""

    def __repr__(self) -> str:
        return f"PlainLogin({self._credentials[0]!r})"


_logger = logging.getLogger(__name__)
#: The time for which a failure to fetch credentials is the answer to all connections, so that they do not add load.
FAILURE_REMEMBERED_MS: Final = 1_000
#: The time after which credentials that do not say when they expire are fetched again, for the next connection.
_UNKNOWN_LIFETIME_MS: Final = 60_000
#: The wait before the next attempt to refresh credentials that are still valid.
_REFRESH_RETRY_MS: Final = 10_000


class Expiring(Protocol):
    """Credentials."""

    @property
    def expiry_ms(self) -> int | None:
        """The wall clock time at which they expire; None if unknown."""


C = TypeVar("C", bound=Expiring)


def no_credentials(cause: BaseException) -> SaslAuthenticationError:
    """Return the error for connections whose credentials could not be fetched."""
    (*_, text) = traceback.format_exception_only(cause)  # which copes with a __str__ that raises
    failure = SaslAuthenticationError(f"there are no credentials: {text.strip()}")
    failure.__cause__ = cause
    return failure


class RefreshWindow(NamedTuple):
    """The times at which credentials are refreshed (Java: the keys sasl.login.refresh.*)."""

    factor: float = 0.8
    jitter: float = 0.05
    min_period_ms: int = 60_000
    buffer_ms: int = 300_000

    def refresh_ms(self, now_ms: int, expiry_ms: int, rng: random.Random) -> int:
        """Return the time to refresh credentials that were fetched at ``now_ms``."""
        lifetime_ms = expiry_ms - now_ms
        proposed_ms = now_ms + int(lifetime_ms * (self.factor + self.jitter * rng.random()))
        if lifetime_ms < self.min_period_ms + self.buffer_ms:
            return proposed_ms
        return max(now_ms + self.min_period_ms, min(proposed_ms, expiry_ms - self.buffer_ms))


class RefreshingLogin(Generic[C]):
    """A ``Login`` whose credentials are fetched by ``fetch`` on a thread, and refreshed before they expire.

    The thread exists from the first connection on, while the credentials have a known expiry. Thread: any.
    """

    def __init__(
        self,
        mechanism: str,
        remedy: str,
        fetch: Callable[[], C],
        new_client: Callable[[C, str], SaslClient],
        window: RefreshWindow | None = None,
        clock: Clock = SYSTEM_CLOCK,
        rng: random.Random | None = None,
    ) -> None:
        """Prepare the login.

        ``fetch`` may block; any exception that it raises is the error of the connections that wait. ``new_client``
        makes an exchange from credentials and the name of the broker's host.
        """
        self.mechanism = mechanism
        self.remedy = remedy
        self._fetch = fetch
        self._new_client = new_client
        self._window = window or RefreshWindow()
        self._clock = clock
        self._rng = rng or random.Random()
        self._lock = threading.Lock()  # guards: all below
        self._condition = threading.Condition(self._lock)  # of the thread that fetches
        self._credentials: C | None = None
        self._usable_until_ms = 0
        self._waiting: list[Callable[[], object]] = []
        self._failed: dict[Callable[[], object], AuthenticationError] = {}
        self._failure: AuthenticationError | None = None
        self._failure_ms = 0
        self._is_running = False  # True while there is a thread
        self._is_wanted = False  # True if the thread must fetch now
        self._is_closed = False

    def new_client(self, host: str, on_ready: Callable[[], object]) -> SaslClient | None:
        with self._lock:  # not the condition, which is written in Python: a signal handler may raise there
            credentials = self._credentials
            if credentials is None or self._clock.wall_ms() >= self._usable_until_ms:
                self._raise_failure(on_ready)
                self._want(on_ready)
                return None
        return self._new_client(credentials, host)

    def _raise_failure(self, on_ready: Callable[[], object]) -> None:
        failure = self._failed.pop(on_ready, None)
        if failure is None and self._clock.now_ms() - self._failure_ms < FAILURE_REMEMBERED_MS:
            failure = self._failure
        if failure is not None:
            # A new error, because each connection adds its own broker to the text.
            raise type(failure)(*failure.args) from failure.__cause__

    def _want(self, on_ready: Callable[[], object]) -> None:
        if self._is_closed:
            raise SaslAuthenticationError("the client is closed")
        if on_ready not in self._waiting:
            self._waiting.append(on_ready)
        self._is_wanted = True
        self._condition.notify_all()
        if not self._is_running:
            threading.Thread(target=self._run, name=f"kafka-login | {self.mechanism}", daemon=True).start()
            self._is_running = True

    def _run(self) -> None:
        while True:
            outcome = self._outcome()
            with self._lock:
                waiting, self._waiting = self._waiting, []
                self._is_wanted = False
                refresh_ms = self._take(outcome, waiting)
            for on_ready in waiting:
                on_ready()
            with self._lock:
                if not self._wait_until(refresh_ms):
                    self._is_running = False
                    return

    def _outcome(self) -> C | AuthenticationError:
        try:
            return self._fetch()
        except AuthenticationError as error:
            return error
        except BaseException as error:  # noqa: BLE001 - a provider is the user's code; connections get what it raises
            # SystemExit included: without this thread, no connection would ever get credentials or an error.
            return no_credentials(error)

    def _take(self, outcome: C | AuthenticationError, waiting: list[Callable[[], object]]) -> int | None:
        """Keep the outcome of a fetch; return the wall clock time of the next one, or None if there is none."""
        wall_ms = self._clock.wall_ms()
        if isinstance(outcome, AuthenticationError):
            self._failure, self._failure_ms = outcome, self._clock.now_ms()
            self._failed = dict.fromkeys(waiting, outcome)
            if self._credentials is None or wall_ms >= self._usable_until_ms:
                self._credentials = None
                return None
            _logger.warning("The credentials for %s could not be refreshed: %s", self.mechanism, outcome)
            return wall_ms + _REFRESH_RETRY_MS
        self._failure = None
        self._failed = {}
        self._credentials = outcome
        if outcome.expiry_ms is None:
            self._usable_until_ms = wall_ms + _UNKNOWN_LIFETIME_MS
            return None
        self._usable_until_ms = outcome.expiry_ms
        return self._window.refresh_ms(wall_ms, outcome.expiry_ms, self._rng)

    def _wait_until(self, refresh_ms: int | None) -> bool:
        """Wait for the time of the next fetch; return False if there is none."""
        while not self._is_closed and not self._is_wanted:
            if refresh_ms is None:
                return False
            wait_ms = refresh_ms - self._clock.wall_ms()
            if wait_ms <= 0:
                return True
            self._clock.wait(self._condition, wait_ms)
        return not self._is_closed

    def close(self) -> None:
        with self._lock:
            self._is_closed = True
            self._credentials = None
            self._condition.notify_all()

    def __repr__(self) -> str:
        return f"RefreshingLogin({self.mechanism})"
