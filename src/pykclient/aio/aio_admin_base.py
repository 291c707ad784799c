"""The life of an admin client for asyncio."""

from __future__ import annotations

import asyncio
import warnings
from collections.abc import Iterable, Mapping
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, NoReturn, Self, TypeVar

from pykclient.admin import configs, expect, group_offsets, groups, topics
from pykclient.admin.admin_calls import AdminComponents, Steps
from pykclient.admin.descriptions import CreatedTopic
from pykclient.admin.values import Results
from pykclient.aio.aiokafka_arguments import with_known_mechanism
from pykclient.aio.loop_driver import LoopEnvironment, look_up_bootstrap_servers
from pykclient.argument_values import shown
from pykclient.config.admin_config import AdminClientConfig
from pykclient.errors import BrokerError, IllegalArgumentError, IllegalStateError, UnknownServerError
from pykclient.metrics import Metrics, SubscribedMetrics
from pykclient.network.environment import SYSTEM_ENVIRONMENT, Environment
from pykclient.pacing import Pace, PacedCoroutines

if TYPE_CHECKING:
    from typing import Unpack

    from pykclient.admin.admin_calls import AdminCall
    from pykclient.admin.descriptions import GroupDescription
    from pykclient.admin.values import ConfigResource
    from pykclient.aio.loop_driver import LoopDriver
    from pykclient.config.client_settings import AdminSettings
    from pykclient.protocol.messages.create_topics import CreateTopicsResponse
    from pykclient.types import Node, OffsetAndMetadata, TopicPartition

T = TypeVar("T")


def _nothing() -> None:
    """Do nothing after a turn: each call reports its own end."""


def _finish(future: asyncio.Future[None]) -> None:
    if not future.done():  # it has been cancelled
        future.set_result(None)


class CreatedTopics(Results[str, CreatedTopic]):
    """The outcome of each topic to create, which also reads as aiokafka's response."""

    @classmethod
    def of(cls, results: Results[str, CreateTopicsResponse.CreatableTopicResult]) -> Self:
        """Return results of the request with typed values."""
        typed = results.map(topics.created_topic)
        created = cls(typed.succeeded, typed.failed)
        created.error_of_all = typed.error_of_all
        return created

    def to_object(self) -> dict[str, Any]:
        """Return the fields of the response as plain values, as aiokafka does. Frameworks read the errors there."""
        errors: list[dict[str, Any]] = [
            {"topic": name, "error_code": 0, "error_message": None} for name in self.succeeded
        ]
        for name, error in self.failed.items():
            code = error.code if isinstance(error, BrokerError) else UnknownServerError.code
            errors.append({"topic": name, "error_code": code, "error_message": str(error)})
        return {"throttle_time_ms": 0, "topic_errors": errors}


class AIOAdminBase(PacedCoroutines, SubscribedMetrics):
    """Runs the steps of methods on the event loop, and closes the client. Thread: the loop's."""

    #: Where the client takes its time and connections from. Simulations replace it.
    _environment: Environment = SYSTEM_ENVIRONMENT

    def __init__(
        self,
        config: Mapping[str, Any] | None = None,
        /,
        *,
        loop: asyncio.AbstractEventLoop | None = None,
        **settings: Unpack[AdminSettings],
    ) -> None:
        if config is not None and not isinstance(config, Mapping):
            raise IllegalArgumentError(
                f"the first argument is {shown(config)}; it must be a dict of settings. The address of a "
                "broker is given with bootstrap_servers="
            )
        self._pace = Pace()
        self._config = with_known_mechanism(AdminClientConfig(config, **settings))
        self._components: AdminComponents | None = None
        self._driver: LoopDriver | None = None
        if loop is not None:
            warnings.warn("the `loop` parameter is deprecated: leave it out", DeprecationWarning, stacklevel=2)
        self._given_loop = loop
        self._loop: asyncio.AbstractEventLoop | None = None
        self._is_closed = False

    @property
    def config(self) -> AdminClientConfig:
        """The configuration."""
        return self._config

    async def start(self) -> None:
        """Look up the bootstrap servers, and bind to the running loop. Does not connect to the cluster yet.

        Raises:
            ConfigError: no name of a bootstrap server can be resolved.
            IllegalStateError: the client was started or closed before, or created with another event loop.
        """
        if self._loop is not None or self._is_closed:
            raise IllegalStateError("the admin client was started before; create another one")
        loop = asyncio.get_running_loop()
        if self._given_loop is not None and self._given_loop is not loop:
            raise IllegalStateError("the admin client was created with another event loop; leave `loop` out")
        self._loop = loop
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

    async def _run(self, steps: Steps[T], timeout_ms: object = None) -> T:
        """Run the steps of a method to their end, and return their result.

        Raises:
            UseAfterForkError: the client was made before a fork.
            IllegalStateError: the client is not started, is closed, or belongs to another loop.
            KafkaError: an error of the steps.
        """
        components, driver = self._started()
        deadline = components.deadline(expect.timeout(timeout_ms))
        try:
            call = next(steps)
            while True:
                if call is not None:
                    components.begin(call, deadline)
                    await self._complete(components, driver, call)
                call = steps.send(components)
        except StopIteration as stop:
            result: T = stop.value
            return result
        finally:
            steps.close()

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

    # --- aiokafka's methods that Admin has under other names ---

    async def find_coordinator(self, group_id: str, coordinator_type: int = 0) -> int:
        """Return the id of the broker that coordinates a group, or a transactional id with ``coordinator_type`` 1.

        Raises:
            IllegalArgumentError: an argument is wrong.
            KafkaError: there is no coordinator.
        """
        name, kind = expect.text(group_id, "group_id"), expect.number(coordinator_type, "coordinator_type")
        if kind not in (0, 1):
            raise IllegalArgumentError(f"coordinator_type is 0 for groups or 1 for transactions, not {kind}")
        return await self._run(groups.find_coordinator(name, kind))

    async def list_consumer_groups(self, broker_ids: Iterable[int] | None = None) -> list[tuple[str, str]]:
        """Return the names and protocol types of groups, of some brokers or of all. See also ``list_groups``.

        Raises:
            IllegalArgumentError: ``broker_ids`` are no numbers.
            KafkaError: a broker could not list its groups.
        """
        brokers = None
        if broker_ids is not None:
            brokers = [expect.number(id, "broker_ids") for id in expect.items(broker_ids, "broker_ids", "numbers")]
        results = await self._run(groups.list_groups(brokers, (), ()))
        found = {(group.group_id, group.protocol_type) for listed in results.all().values() for group in listed}
        return sorted(found)

    async def describe_consumer_groups(
        self,
        group_ids: Iterable[str],
        group_coordinator_id: int | None = None,  # noqa: ARG002 - the client finds it
        include_authorized_operations: bool = False,  # noqa: ARG002 - always included
    ) -> list[GroupDescription]:
        """Return the descriptions of groups, as ``describe_groups``, or raise the first error.

        ``group_coordinator_id`` and ``include_authorized_operations`` have no effect: the client finds coordinators
        itself, and descriptions always have the operations.

        Raises:
            IllegalArgumentError: an argument is wrong.
            KafkaError: a group does not exist, or cannot be described.
        """
        ids = expect.texts(group_ids, "group_ids")
        results = await self._run(groups.describe_groups(ids))
        return list(results.all().values())

    async def list_consumer_group_offsets(
        self,
        group_id: str,
        group_coordinator_id: int | None = None,  # noqa: ARG002 - the client finds it
        partitions: Iterable[TopicPartition] | None = None,
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return a group's committed offsets, for all committed partitions or the given ones (-1 if there is none).

        ``group_coordinator_id`` has no effect: the client finds the coordinator itself.

        Raises:
            IllegalArgumentError: an argument is wrong.
            KafkaError: the offsets cannot be read.
        """
        specs = group_offsets.group_specs({group_id: partitions})
        results = await self._run(group_offsets.list_group_offsets(specs, False))
        return results[group_id]

    async def alter_configs(self, config_resources: Iterable[ConfigResource]) -> Results[ConfigResource, None]:
        """Set configurations of resources, whose ``configs`` map keys to values. Keeps other keys.

        Raises:
            IllegalArgumentError: an argument is wrong.
        """
        changed = {resource: configs.changes_of(resource) for resource in configs.resources(config_resources)}
        results = await self._run(configs.alter_configs(changed, False))
        return results.map(lambda _: None)

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
