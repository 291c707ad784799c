"""The life of an admin client, and the threads that call it."""

from __future__ import annotations

import os
import threading
import warnings
from collections.abc import Callable, Iterable, Mapping
from itertools import count
from types import TracebackType
from typing import TYPE_CHECKING, Any, NoReturn, Self, TypeVar

from pykclient.admin import expect
from pykclient.admin.admin_calls import (
    AdminCall,
    AdminCalls,
    AdminMetadata,
    CallContext,
    Deadline,
    Operation,
    RetryPolicy,
)
from pykclient.argument_values import shown
from pykclient.clock import HERE, ensure_not_interrupting
from pykclient.config.admin_config import AdminClientConfig
from pykclient.errors import (
    IllegalArgumentError,
    IllegalStateError,
    KafkaError,
    UnsupportedEndpointTypeError,
    UseAfterForkError,
)
from pykclient.log_context import LogContext
from pykclient.metrics import MetricConfig, Metrics, SubscribedMetrics, register_app_info
from pykclient.network.client_utils import create_network_client, parse_and_validate_addresses, resolver_for
from pykclient.network.cluster_connection_states import ApiVersions
from pykclient.network.environment import SYSTEM_ENVIRONMENT, Environment
from pykclient.network.exponential_backoff import ExponentialBackoff
from pykclient.network.failures import principal_of, raise_if_of_signal_handler
from pykclient.network.metadata import RETRY_BACKOFF_EXP_BASE, RETRY_BACKOFF_JITTER, ClusterResourceListeners
from pykclient.pacing import SHORT_PAUSE_MS

if TYPE_CHECKING:
    from typing import Unpack

    from pykclient.admin.api import AdminApiHandler
    from pykclient.clock import Signal
    from pykclient.config.client_settings import AdminSettings
    from pykclient.network.kafka_client import IdentifiedTelemetry, KafkaClient
    from pykclient.types import Node

#: After a pause of this length, connections may have been lost that nobody has polled.
_STALE_MS = 100
#: A waiting thread looks this often whether the lease is free: the driver that should have woken it may have been
#: interrupted.
_LONGEST_WAIT_MS = 500


class AdminDriver:
    """Drives all calls in progress on one of the threads that wait for them.

    A thread that waits takes the lease if it is free: it steps the calls and polls the network until its own call is
    done. Then it gives the lease up, and wakes another one that waits. No thread of its own is needed, and a call does
    not cross from one thread to another.

    An exception of a signal handler may end a cycle anywhere. The next driver finds it unfinished, and has the calls
    start again with new connections, unless only the wait for the network was interrupted. Thread: any.
    """

    def __init__(self, calls: AdminCalls, client: KafkaClient, environment: Environment) -> None:
        self._calls = calls
        self._client = client
        self._clock = environment.clock
        self._get_ident = environment.get_ident
        self._lock = threading.Lock()  # guards: _waiting, and taking the lease, which is _holder
        self._holder: int | None = None
        self._waiting: dict[AdminCall[Any, Any], Signal] = {}
        self._is_unfinished = False
        self._last_poll_ms = self._clock.now_ms()

    def complete(self, call: AdminCall[Any, Any], name: str) -> None:
        """Run ``call`` until it is done. ``name`` is the method that the application has called.

        Raises:
            IllegalStateError: a signal handler or a ``__del__`` has interrupted a call of the same thread.
        """
        self._ensure_not_nested(name)
        signal = self._clock.new_signal()
        call.on_done = signal.set
        try:
            with HERE.mark, self._lock:
                self._waiting[call] = signal
            self._calls.submit(call)
            if self._holder is not None:
                self._client.wakeup()
            while not call.is_done:
                if not self._drive(call):
                    signal.wait(_LONGEST_WAIT_MS)
        finally:
            with HERE.mark, self._lock:
                self._waiting.pop(call, None)
            if not call.is_done:
                self._calls.abandon(call)

    def close(self, timeout_ms: int, name: str) -> None:
        """Fail calls in progress and close connections. Wait at most ``timeout_ms`` for the thread that drives."""
        self._ensure_not_nested(name)
        deadline_ms = self._clock.now_ms() + timeout_ms
        self._calls.initiate_close()
        self._client.wakeup()
        signal = self._clock.new_signal()
        while not self._calls.is_closed:
            ident = self._get_ident()
            try:
                if self._take(ident):
                    self._calls.step(self._clock.now_ms())
            finally:
                if self._holder == ident:
                    self._holder = None
            left_ms = deadline_ms - self._clock.now_ms()
            if self._calls.is_closed or left_ms <= 0:
                return
            signal.wait(min(left_ms, 5))

    def _ensure_not_nested(self, name: str) -> None:
        ensure_not_interrupting(name)
        if self._holder == self._get_ident():
            raise IllegalStateError(
                f"{name} was called by a signal handler or a __del__ while this thread was inside another call to this "
                "client, and would wait for itself. Set a flag there, and make the call outside"
            )

    def _take(self, ident: int) -> bool:
        """Take the lease if it is free. The caller gives it up even if an exception ends this method."""
        with HERE.mark, self._lock:
            if self._holder is None:
                self._holder = ident
        return self._holder == ident

    def _wake_next(self) -> None:
        """Have another thread that waits take the lease, which this one has given up."""
        with HERE.mark, self._lock:
            following = next((signal for call, signal in self._waiting.items() if not call.is_done), None)
        if following is not None:
            following.set()

    def _drive(self, call: AdminCall[Any, Any]) -> bool:
        """Drive until ``call`` is done. Return False, and do nothing, if another thread drives."""
        ident = self._get_ident()
        try:
            if not self._take(ident):
                return False
            self._begin()
            while not call.is_done:
                self._cycle(call)
        finally:
            if self._holder == ident:
                self._holder = None  # no call before this, so that no exception can prevent it
                self._wake_next()
        return True

    def _begin(self) -> None:
        if self._is_unfinished and not self._client.end_interrupted_wait():
            self._calls.recover()
        self._is_unfinished = False

    def _cycle(self, call: AdminCall[Any, Any]) -> None:
        """Step the calls once, and wait for the network unless ``call`` is done."""
        self._is_unfinished = True
        now_ms = self._clock.now_ms()
        try:
            if now_ms - self._last_poll_ms >= _STALE_MS and not self._calls.is_closed:
                self._client.poll(0, now_ms)  # notice connections that the brokers have closed meanwhile
            wait_ms = self._calls.step(now_ms)
            if not (call.is_done or self._calls.is_closed):
                self._client.poll(wait_ms, now_ms)
        except Exception as error:  # noqa: BLE001 - the calls of other threads must not hang
            raise_if_of_signal_handler(error)
            self._clock.sleep_ms(self._calls.round_failed(error, now_ms))
        self._last_poll_ms = self._clock.now_ms()
        self._is_unfinished = False


K = TypeVar("K")
V = TypeVar("V")
#: A broker handles the requests of one connection one after another; more than a few in flight gain nothing.
_MAX_IN_FLIGHT_REQUESTS_PER_CONNECTION = 5
_numbers = count(1)


class AdminComponents:
    """The parts of one admin client. Tests may pass ``client`` and ``metadata``. Thread: any."""

    def __init__(
        self,
        config: AdminClientConfig,
        environment: Environment = SYSTEM_ENVIRONMENT,
        client: KafkaClient | None = None,
        metadata: AdminMetadata | None = None,
    ) -> None:
        self.config = config
        self.environment = environment
        self.clock = clock = environment.clock
        rng = environment.new_rng()
        self.client_id: str = config["client.id"] or f"adminclient-{next(_numbers)}"
        self.log_context = LogContext(f"[AdminClient client_id={self.client_id}] ", principal_of(config))
        self._default_timeout_ms: int = config["default.api.timeout.ms"]
        self._pid = os.getpid()
        self._are_plugins_closed = False
        addresses: list[tuple[str, int]] = []
        if metadata is None:  # wrong addresses are found before there is anything to close
            addresses = parse_and_validate_addresses(
                config[config.bootstrap_key],
                config["client.dns.lookup"],
                resolver_for(config, environment.host_resolver),
                self.log_context,
                clock,
                config.bootstrap_key,
            )
        self.metrics = Metrics(
            MetricConfig.of(config, self.client_id, config.metrics_context("kafka.admin.client")),
            config.configured_instances("metric.reporters", method="init"),
            clock,
        )
        register_app_info(self.metrics)
        try:
            if metadata is None:
                listeners = ClusterResourceListeners([*self.metrics.reporters])
                metadata = AdminMetadata(config, self.log_context, listeners, rng)
                metadata.bootstrap(addresses)
            self.metadata = metadata
            self.api_versions = ApiVersions()
            self.client = client or create_network_client(
                config,
                self.client_id,
                self.metrics,
                "admin-client",
                self.log_context,
                self.api_versions,
                metadata,
                _MAX_IN_FLIGHT_REQUESTS_PER_CONNECTION,
                environment=environment,
                rng=rng,
            )
        except BaseException:
            self.metrics.close()  # nobody else gets this object
            raise
        backoff = ExponentialBackoff(
            config["retry.backoff.ms"],
            RETRY_BACKOFF_EXP_BASE,
            config["retry.backoff.max.ms"],
            RETRY_BACKOFF_JITTER,
            rng,
        )
        self._policy = RetryPolicy(backoff, config["retries"], config["request.timeout.ms"], self.log_context.principal)
        self.calls = AdminCalls(self.client, metadata, clock, config["retry.backoff.ms"], self.log_context)

    @property
    def telemetry(self) -> IdentifiedTelemetry | None:
        """The telemetry of the client; None if ``enable.metrics.push`` is off."""
        return self.client.telemetry

    def deadline(self, timeout_ms: int | None) -> Deadline:
        """Return the deadline of a call that begins now; None means ``default.api.timeout.ms``."""
        timeout_ms = self._default_timeout_ms if timeout_ms is None else timeout_ms
        return Deadline(timeout_ms, self.clock.now_ms() + timeout_ms)

    def call(self, handler: AdminApiHandler[K, V], keys: Iterable[K], deadline: Deadline) -> AdminCall[K, V]:
        """Return a call that has not begun.

        Raises:
            UnsupportedEndpointTypeError: the client is connected to controllers, and they do not serve the call.
        """
        if self.metadata.uses_controllers and not handler.lookup.SERVED_BY_CONTROLLERS:
            raise UnsupportedEndpointTypeError(
                f"{handler.name} is served by brokers only, and this client is connected to controllers "
                "(bootstrap.controllers). Use a client with bootstrap.servers for it"
            )
        return AdminCall(handler, keys, deadline, self._policy)

    def ensure_usable(self) -> None:
        """Check that the client is open, and belongs to this process.

        Raises:
            UseAfterForkError: the client was made before a fork.
            IllegalStateError: the client is closed.
        """
        if os.getpid() != self._pid:
            raise UseAfterForkError(
                f"this admin client was made in process {self._pid} and is used in its child {os.getpid()}: its "
                "connections belong to the parent; make a client in each process, after the fork"
            )
        if self.calls.is_closed or self.calls.is_closing:
            raise IllegalStateError("the admin client is closed; create another one")

    @property
    def is_forked(self) -> bool:
        return os.getpid() != self._pid

    def close_plugins(self) -> None:
        """Close the metrics and their reporters. Idempotent."""
        if not self._are_plugins_closed:
            self._are_plugins_closed = True
            self.metrics.close()


T = TypeVar("T")
#: The longest wait of ``close`` for another thread that drives the network.
_CLOSE_TIMEOUT_MS = 5_000


class AdminBase(SubscribedMetrics):
    """Runs operations on the calling thread, and closes the client."""

    #: False for a client inside of one that gives no warning.
    _warns_unclosed = True

    def __init__(self, config: Mapping[str, Any] | None = None, /, **configs: Unpack[AdminSettings]) -> None:
        if config is not None and not isinstance(config, Mapping):
            raise IllegalArgumentError(
                f"the first argument is {shown(config)}; it must be a dict of settings. The address of a "
                "broker is given with bootstrap_servers="
            )
        self._begin(AdminComponents(AdminClientConfig(config, **configs)))

    @classmethod
    def in_environment(
        cls, environment: Environment, config: Mapping[str, Any] | None = None, /, **configs: Any
    ) -> Self:
        """Return a client that takes its time, random numbers and connections from ``environment``."""
        return cls.of_components(AdminComponents(AdminClientConfig(config, **configs), environment))

    @classmethod
    def of_components(cls, components: AdminComponents) -> Self:
        """Return a client made of the given components."""
        client = cls.__new__(cls)
        client._begin(components)
        return client

    @classmethod
    def of_client(
        cls,
        config: AdminClientConfig,
        client: KafkaClient,
        metadata: AdminMetadata,
        environment: Environment = SYSTEM_ENVIRONMENT,
    ) -> Self:
        """Return a client on top of a given network client, for tests."""
        return cls.of_components(AdminComponents(config, environment, client, metadata))

    def _begin(self, components: AdminComponents) -> None:
        self._components = components
        self._driver = AdminDriver(components.calls, components.client, components.environment)
        self._is_owner = True  # and so warns if it is never closed

    def _share(self, other: AdminBase) -> None:
        """Become another face of the same client."""
        self._components = other._components
        self._driver = other._driver
        self._is_owner = False

    @property
    def config(self) -> AdminClientConfig:
        """The configuration."""
        return self._components.config

    def _run(self, name: str, timeout_ms: object, begin: Callable[[CallContext], Operation[T]]) -> T:
        """Run an operation to its end, and return its result.

        Raises:
            UseAfterForkError: the client was made before a fork.
            IllegalStateError: the client is closed, or a signal handler interrupted a call.
            KafkaError: an error of the operation.
        """
        components = self._components
        try:
            components.ensure_usable()
        except KafkaError:
            components.clock.sleep_ms(SHORT_PAUSE_MS)  # a program may repeat the call without end
            raise
        operation = begin(CallContext(components, components.deadline(expect.timeout(timeout_ms))))
        try:
            call = next(operation)
            while True:
                self._driver.complete(call, f"{name}()")
                call = operation.send(None)
        except StopIteration as stop:
            result: T = stop.value
            return result
        finally:
            operation.close()

    def _node_by_id(self, node_id: int) -> Node | None:
        return self._components.metadata.fetch().node_by_id(node_id)

    def _registry(self, call: str) -> Metrics:
        self._components.ensure_usable()
        return self._components.metrics

    def close(self) -> None:
        """Close the connections. Calls in progress on other threads fail with IllegalStateError.

        Further calls of this method do nothing, and neither does one in a forked child.

        Raises:
            IllegalStateError: a signal handler or a ``__del__`` called this method while its thread was inside another
                call.
        """
        components = self._components
        if components.is_forked:
            return
        self._driver.close(_CLOSE_TIMEOUT_MS, "close()")
        components.close_plugins()

    def __enter__(self) -> Self:
        self._components.ensure_usable()
        return self

    def __exit__(
        self, error_type: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def __del__(self) -> None:
        if (
            getattr(self, "_is_owner", False)
            and self._warns_unclosed
            and not self._components.is_forked
            and not self._components.calls.is_closing
        ):
            warnings.warn(f"{self!r} was never closed", ResourceWarning, source=self, stacklevel=2)

    def __reduce__(self) -> NoReturn:
        raise TypeError(f"{self!r} cannot be pickled, as its connections belong to this process")

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._components.client_id}>"
