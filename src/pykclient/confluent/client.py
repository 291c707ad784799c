"""The parts that confluent-kafka's clients have in common: events, statistics, and requests about the cluster."""

from __future__ import annotations

import logging
import os
import sys
import weakref
from collections.abc import Callable
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar

from pykclient import errors
from pykclient.clock import SYSTEM_CLOCK
from pykclient.config.config_def import Password
from pykclient.confluent.configuration import NOWHERE, Configuration
from pykclient.confluent.events import UNCOUNTED, Events, monotonic
from pykclient.confluent.kafka_error import KafkaError, KafkaException, error_of

if TYPE_CHECKING:
    from pykclient.admin.kafka_admin_client import KafkaAdminClient
    from pykclient.types import Node

T = TypeVar("T")

#: The interval at which the connections are looked at for ``error_cb``.
_LOOK_S = 0.1
#: The longest wait of a constructor for the first token of ``oauth_cb``.
_TOKEN_MS = 10_000

#: The default time limit of a request about the cluster.
NO_LIMIT_MS = 2**31 - 1

FORKED = "this client was made before fork(): create one in each process"

_clients: weakref.WeakSet[Client] = weakref.WeakSet()
_numbers = {"producer": 0, "consumer": 0, "admin": 0}


class _LogEvents(logging.Handler):
    """Passes the log records of one client on to its events, which call the application's logger."""

    def __init__(self, client: Client, logger: Any, client_id: str) -> None:
        super().__init__()
        self._find = weakref.ref(client)
        self._logger = logger
        self._name = client.name
        self._mark = f"client_id={client_id}"

    def emit(self, record: logging.LogRecord) -> None:
        message = record.getMessage()
        client = self._find()
        if client is not None and self._mark in message:
            logger, name = self._logger, self._name
            level, module = record.levelno, record.name.rpartition(".")[2].upper()
            client.events.put(lambda: (logger.log(level, "%s [%s] %s", module, name, message), UNCOUNTED)[1])


class Client:
    """Base class of the clients: their events, statistics, errors, and metadata of the cluster."""

    _kind: str
    #: The client that does the work, None once this one is closed.
    _inner: Any = None
    _handler: _LogEvents | None = None
    #: True in a child process that was forked after the client was made.
    is_forked = False

    def __init__(self, configuration: Configuration) -> None:
        self.configuration = configuration
        self.events = Events()
        _clients.add(self)
        _numbers[self._kind] += 1
        self.name = f"{configuration.text('client.id')}#{self._kind}-{_numbers[self._kind]}"
        self.started = monotonic()
        self._admin: KafkaAdminClient | None = None
        self._error_cb = configuration.callbacks.get("error_cb")
        self._stats_cb = configuration.callbacks.get("stats_cb")
        interval_ms = configuration.number("statistics.interval.ms")
        self._stats_interval_s = interval_ms / 1000 if self._stats_cb is not None else 0.0
        self._next_stats = self.started + self._stats_interval_s
        self._next_look = self.started
        self._is_down = False
        self._reported = ""
        #: What a callback has raised, for the end of the call that it runs in.
        self._raised: BaseException | None = None
        self.looks = self._error_cb is not None or bool(self._stats_interval_s)
        if configuration.logger is not None:
            self._handler = _LogEvents(self, configuration.logger, configuration.text("client.id"))
            logging.getLogger("pykclient").addHandler(self._handler)
            if configuration.text("debug"):
                logger, name, text = configuration.logger, self.name, f"{type(self).__name__} with debug contexts"
                self.events.put(lambda: (logger.log(logging.DEBUG, "%s [%s] %s", "INIT", name, text), UNCOUNTED)[1])

    # --- background events -----------------------------------------------------------------------------------------

    def network_client(self) -> Any:
        """Return the network client of the inner client, None once that is closed."""
        raise NotImplementedError

    def statistics(self) -> str:
        """Return librdkafka's statistics as JSON text."""
        raise NotImplementedError

    def begin_events(self) -> None:
        """Make events of throttled responses, and get the first token of ``oauth_cb``. Ends the constructor.

        Raises:
            KafkaException: ``oauth_cb`` failed, or took too long. The client is closed.
        """
        callback = self.configuration.callbacks.get("throttle_cb")
        client = self.network_client()
        if callback is not None:
            client.on_throttle = partial(_throttled, self.events, callback)
        if "oauth_cb" in self.configuration.callbacks and client.login is not None:
            arrived = SYSTEM_CLOCK.new_signal()
            try:
                if client.login.new_client("", arrived.set) is None:
                    if not arrived.wait(_TOKEN_MS):
                        raise errors.KafkaTimeoutError(f"oauth_cb returned no token within {_TOKEN_MS / 1000:.0f} s")
                    client.login.new_client("", arrived.set)  # raises the error of the callback
            except errors.KafkaError as error:
                self.close()
                raise KafkaException(error_of(error, KafkaError._AUTHENTICATION)) from error

    def look(self) -> None:
        """Make events of the timers that are due and of connections that have failed."""
        now = monotonic()
        if now < self._next_look:
            return
        self._next_look = now + _LOOK_S
        if self._stats_interval_s and now >= self._next_stats:
            self._next_stats = now + self._stats_interval_s
            callback = self._stats_cb
            if callback is not None:
                text = self.statistics()
                self.events.put(lambda: callback(text))
        if self._error_cb is not None:
            self._look_at_connections()

    def _look_at_connections(self) -> None:
        client = self.network_client()
        if client is None:
            return
        report = client.connection_report()
        if not report:
            self._is_down, self._reported = False, ""
            return
        address = report.split(": ", 1)[0]
        if self._reported != address:
            self._reported = address
            self.report_error(KafkaError(KafkaError._TRANSPORT, report, retriable=True))
        if client.is_unreachable and not self._is_down:
            self._is_down = True
            self.report_error(KafkaError(KafkaError._ALL_BROKERS_DOWN, f"all brokers are down: {report}"))

    def report_error(self, error: KafkaError) -> None:
        """Make an event of an error for ``error_cb``."""
        if self._error_cb is not None:
            self.events.put(lambda: self._tell(error))

    def _tell(self, error: KafkaError) -> None:
        callback = self._error_cb
        if callback is not None:
            callback(error)

    def _raise_callback_error(self) -> None:
        error, self._raised = self._raised, None
        if error is not None:
            raise error

    # --- queries ---------------------------------------------------------------------------------------------------

    def admin(self) -> KafkaAdminClient:
        """Return an admin client with the same connection settings, made on first use."""
        if self._admin is None:
            from pykclient.admin.kafka_admin_client import KafkaAdminClient

            self._admin = built(KafkaAdminClient, self.configuration.common(), "Failed to create admin client: ")
        return self._admin

    def list_topics(self, topic: str | None = None, timeout: float = -1) -> Any:
        """Return the metadata of ``topic`` (default: of all topics) and of the brokers.

        Raises:
            KafkaException: no broker responded within ``timeout`` seconds.
        """
        from pykclient.confluent.cluster_metadata import list_topics

        self.ensure_open()
        return list_topics(self.admin(), topic, timeout)

    def cluster_id(self, timeout: float = -1) -> str:
        """Return the id of the cluster.

        Raises:
            KafkaException: no broker responded within ``timeout`` seconds.
        """
        from pykclient.confluent.cluster_metadata import cluster_id

        self.ensure_open()
        return cluster_id(self.admin(), timeout)

    def close(self) -> object:
        """Release all resources."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, error_type: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> bool | None:
        self.close()
        return None

    def __del__(self, _is_finalizing: Callable[[], bool] = sys.is_finalizing) -> None:
        # At the interpreter's end modules are gone, and connections end with the process.
        if not _is_finalizing():
            self._abandon()

    def _abandon(self) -> None:
        """Release the resources of a client that was not closed."""
        inner, self._inner = self._inner, None
        if inner is not None:
            inner.__del__()
        self._stop_logging()

    def forget_parent(self) -> None:
        """Refuse further calls, in a forked child: connections and messages belong to the parent process."""
        self.is_forked = True

    def ensure_open(self) -> None:
        """Raise RuntimeError if the client is closed."""
        raise NotImplementedError

    def set_sasl_credentials(self, username: str, password: str) -> None:
        """Use another user name and password for the connections that are made from now on.

        Those that are open stay. This has no effect on mechanisms without passwords.

        Raises:
            TypeError: an argument is not a str.
            RuntimeError: the client is closed.
        """
        for number, value in enumerate((username, password), 1):
            if not isinstance(value, str):
                raise TypeError(f"argument {number} must be str, not {type(value).__name__}")
        self.ensure_open()
        self.configuration.set_credentials(username, password)
        clients: list[Any] = [self.network_client()]
        if self._admin is not None:
            clients.append(self._admin._components.client)
        for client in clients:
            replace = None if client is None else getattr(client.login, "set_credentials", None)
            if replace is not None:
                replace(username, Password(password))

    def release(self) -> None:
        """Close the clients that requests and logging have opened."""
        if self._admin is not None:
            self._admin.close()
            self._admin = None
        self._stop_logging()

    def _stop_logging(self) -> None:
        if self._handler is not None:
            logging.getLogger("pykclient").removeHandler(self._handler)
            self._handler = None


def _forget_parents() -> None:
    for client in tuple(_clients):
        client.forget_parent()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_parents)


def _throttled(events: Events, callback: Callable[..., Any], node: Node, throttle_ms: int) -> None:
    """Make an event of a throttled response. Thread: the network client's, which does not keep the Client alive."""
    from pykclient.confluent.model import ThrottleEvent

    name = f"{node.host}:{node.port}/{node.id}"
    events.put(partial(callback, ThrottleEvent(name, node.id, throttle_ms / 1000)))


def built(make: Callable[..., T], settings: dict[str, Any], prefix: str) -> T:
    """Return ``make(**settings)``, also if no bootstrap server's name can be resolved now: it may be later.

    The client gives no warning if it is not closed, as confluent-kafka's give none.

    Raises:
        KafkaException: the settings are refused.
    """
    made: Any
    try:
        try:
            made = make(**_by_argument(settings))
        except errors.ConfigError as error:
            if "can be resolved" not in str(error):
                raise
            # With an address that needs no lookup, the others are kept and looked up again.
            made = make(**_by_argument({**settings, "bootstrap.servers": [*settings["bootstrap.servers"], NOWHERE]}))
    except errors.KafkaError as error:
        raise KafkaException(error_of(error, prefix=prefix)) from error
    made._warns_unclosed = False
    found: T = made
    return found


def _by_argument(settings: dict[str, Any]) -> dict[str, Any]:
    return {name.replace(".", "_"): value for name, value in settings.items()}
