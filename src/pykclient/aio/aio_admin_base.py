"""The life of an admin client for asyncio."""

from __future__ import annotations

import asyncio
import warnings
from collections.abc import Callable, Mapping
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, NoReturn, Self, TypeVar

from pykclient.admin import expect
from pykclient.admin.admin_components import AdminComponents
from pykclient.admin.operation import CallContext, Operation
from pykclient.aio.loop_environment import LoopEnvironment
from pykclient.aio.starting import look_up_bootstrap_servers
from pykclient.argument_values import shown
from pykclient.config.admin_config import AdminClientConfig
from pykclient.errors import IllegalArgumentError, IllegalStateError
from pykclient.metrics.metrics import Metrics
from pykclient.metrics.subscribed_metrics import SubscribedMetrics
from pykclient.network.environment import SYSTEM_ENVIRONMENT, Environment

if TYPE_CHECKING:
    from pykclient.admin.admin_call import AdminCall
    from pykclient.aio.loop_driver import LoopDriver
    from pykclient.types import Node

T = TypeVar("T")


def _nothing() -> None:
    """Do nothing after a turn: calls tell for themselves that they are done."""


def _finish(future: asyncio.Future[None]) -> None:
    if not future.done():  # it has been cancelled
        future.set_result(None)


class AIOAdminBase(SubscribedMetrics):
    """Runs operations on the event loop, and closes the client. Thread: the loop's."""

    #: Where the client takes its time and connections from. Simulations replace it.
    _environment: Environment = SYSTEM_ENVIRONMENT

    def __init__(self, config: Mapping[str, Any] | None = None, /, **configs: Any) -> None:
        if config is not None and not isinstance(config, Mapping):
            raise IllegalArgumentError(
                f"the first argument is {shown(config)}; it must be a dict of settings. The address of a "
                "broker is given with bootstrap_servers="
            )
        self._config = AdminClientConfig(config, **configs)
        self._components: AdminComponents | None = None
        self._driver: LoopDriver | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._is_closed = False

    @property
    def config(self) -> AdminClientConfig:
        """The configuration."""
        return self._config

    async def start(self) -> None:
        """Look up the bootstrap servers, and take the running loop. This does not wait for the cluster; calls do.

        Raises:
            ConfigError: no name of a bootstrap server can be resolved.
            IllegalStateError: the client was started or closed before.
        """
        if self._loop is not None or self._is_closed:
            raise IllegalStateError("the admin client was started before; create another one")
        self._loop = loop = asyncio.get_running_loop()
        try:
            hosts = await look_up_bootstrap_servers(loop, self._config, self._environment, self._config.bootstrap_key)
            environment = LoopEnvironment(hosts, self._environment)
            self._components = components = AdminComponents(self._config, environment)
            environment.forget_hosts()
            self._driver = environment.driver(loop, components.calls, components.client, _nothing)
            self._driver.start()
        except BaseException:
            self._loop = None
            raise

    def _started(self) -> tuple[AdminComponents, LoopDriver]:
        """Return the components of a client that can be used here and now."""
        components, driver = self._components, self._driver
        if self._is_closed:
            raise IllegalStateError("the admin client is closed; create another one")
        if components is None or driver is None:
            raise IllegalStateError("the admin client was not started: await start(), or use it with `async with`")
        components.ensure_usable()
        if asyncio.get_running_loop() is not self._loop:
            raise IllegalStateError("the admin client belongs to another event loop; create one in each loop")
        return components, driver

    async def _run(self, name: str, timeout_ms: object, begin: Callable[[CallContext], Operation[T]]) -> T:  # noqa: ARG002
        """Run an operation to its end, and return its result.

        Raises:
            UseAfterForkError: the client was made before a fork.
            IllegalStateError: the client is not started, is closed, or belongs to another loop.
            KafkaError: an error of the operation.
        """
        components, driver = self._started()
        operation = begin(CallContext(components, components.deadline(expect.timeout(timeout_ms))))
        try:
            call = next(operation)
            while True:
                await self._complete(components, driver, call)
                call = operation.send(None)
        except StopIteration as stop:
            result: T = stop.value
            return result
        finally:
            operation.close()

    async def _complete(self, components: AdminComponents, driver: LoopDriver, call: AdminCall[Any, Any]) -> None:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        call.on_done = partial(_finish, future)
        components.calls.submit(call)
        driver.wake()
        try:
            await future
        finally:
            if not call.is_done:  # it was cancelled
                components.calls.abandon(call)
                driver.wake()

    def _node_by_id(self, node_id: int) -> Node | None:
        components, _ = self._started()
        return components.metadata.fetch().node_by_id(node_id)

    def _registry(self, call: str) -> Metrics:  # noqa: ARG002
        components, _ = self._started()
        return components.metrics

    async def close(self) -> None:
        """Close the connections. Calls in progress fail with IllegalStateError. Further calls do nothing."""
        self._is_closed = True
        components, driver = self._components, self._driver
        if components is None or driver is None or components.is_forked:
            return
        components.calls.initiate_close()
        if driver.closed.get_loop() is asyncio.get_running_loop():
            driver.wake()
            await asyncio.shield(driver.closed)
        else:
            driver.close_at_once()
        components.close_plugins()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, error_type: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()

    def __del__(self) -> None:
        components = getattr(self, "_components", None)
        if components is not None and not self._is_closed and not components.is_forked:
            warnings.warn(f"{self!r} was never closed", ResourceWarning, source=self, stacklevel=2)
            components.calls.initiate_close()
            components.client.wakeup()  # the loop keeps the driver, which closes the connections in its next turn

    def __reduce__(self) -> NoReturn:
        raise TypeError(f"{self!r} cannot be pickled, as its connections belong to this process")

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._components.client_id if self._components else 'not started'}>"
