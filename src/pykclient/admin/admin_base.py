"""The life of an admin client, and the threads that call it."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, NoReturn, Self, TypeVar

from pykclient.admin import expect
from pykclient.admin.admin_components import AdminComponents
from pykclient.admin.admin_driver import AdminDriver
from pykclient.admin.operation import CallContext, Operation
from pykclient.argument_values import shown
from pykclient.config.admin_config import AdminClientConfig
from pykclient.errors import IllegalArgumentError
from pykclient.metrics.metrics import Metrics
from pykclient.metrics.subscribed_metrics import SubscribedMetrics
from pykclient.network.environment import SYSTEM_ENVIRONMENT, Environment

if TYPE_CHECKING:
    from pykclient.admin.admin_metadata import AdminMetadata
    from pykclient.network.kafka_client import KafkaClient
    from pykclient.types import Node

T = TypeVar("T")

#: The longest wait of ``close`` for another thread that drives the network.
_CLOSE_TIMEOUT_MS = 5_000


class AdminBase(SubscribedMetrics):
    """Runs operations on the thread that calls, and closes the client."""

    def __init__(self, config: Mapping[str, Any] | None = None, /, **configs: Any) -> None:
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
        components.ensure_usable()
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
            and not self._components.is_forked
            and not self._components.calls.is_closing
        ):
            warnings.warn(f"{self!r} was never closed", ResourceWarning, source=self, stacklevel=2)

    def __reduce__(self) -> NoReturn:
        raise TypeError(f"{self!r} cannot be pickled, as its connections belong to this process")

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._components.client_id}>"
