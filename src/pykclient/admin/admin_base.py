"""The life of an admin client, and the threads that call it."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, NoReturn, Self, TypeVar

from pykclient.admin import expect
from pykclient.admin.admin_calls import AdminCall, AdminComponents, Steps
from pykclient.argument_values import shown
from pykclient.clock import HERE, ensure_not_interrupting
from pykclient.config.admin_config import AdminClientConfig
from pykclient.errors import IllegalArgumentError, IllegalStateError, KafkaError
from pykclient.metrics import Metrics, SubscribedMetrics
from pykclient.network.environment import SYSTEM_ENVIRONMENT, Environment
from pykclient.network.failures import raise_if_of_signal_handler
from pykclient.pacing import SHORT_PAUSE_MS

if TYPE_CHECKING:
    from typing import Unpack

    from pykclient.admin.admin_calls import AdminCalls, AdminMetadata
    from pykclient.clock import Signal
    from pykclient.config.client_settings import AdminSettings
    from pykclient.network.kafka_client import KafkaClient
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

    def complete(self, call: AdminCall[Any, Any]) -> None:
        """Run ``call`` until it is done.

        Raises:
            IllegalStateError: a signal handler or a ``__del__`` has interrupted a call of the same thread.
        """
        self._ensure_not_nested(f"{call.name}()")
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


T = TypeVar("T")
#: The longest wait of ``close`` for another thread that drives the network.
_CLOSE_TIMEOUT_MS = 5_000


class AdminBase(SubscribedMetrics):
    """Runs the steps of methods on the calling thread, and closes the client."""

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

    def _run(self, steps: Steps[T], timeout_ms: object = None) -> T:
        """Run the steps of a method to their end, and return their result.

        Raises:
            UseAfterForkError: the client was made before a fork.
            IllegalStateError: the client is closed, or a signal handler interrupted a call.
            KafkaError: an error of the steps.
        """
        components = self._components
        try:
            components.ensure_usable()
        except KafkaError:
            components.clock.sleep_ms(SHORT_PAUSE_MS)  # a program may repeat the call without end
            raise
        deadline = components.deadline(expect.timeout(timeout_ms))
        try:
            call = next(steps)
            while True:
                if call is not None:
                    components.begin(call, deadline)
                    self._driver.complete(call)
                call = steps.send(components)
        except StopIteration as stop:
            result: T = stop.value
            return result
        finally:
            steps.close()

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
