"""The life of a consumer for asyncio: starting, stopping, and the checks that each call makes."""

from __future__ import annotations

import asyncio
import warnings
from abc import abstractmethod
from asyncio import _get_running_loop, get_running_loop  # the first returns None where the second raises
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, NoReturn, TypeVar

from pykclient import explanation
from pykclient.aio.errors import ConsumerStoppedError
from pykclient.aio.loop_driver import LoopEnvironment, LoopWaits, await_bootstrap, look_up_bootstrap_servers
from pykclient.clock import Timer
from pykclient.consumer import consumer_arguments
from pykclient.consumer.application_driver import client_instance_id
from pykclient.consumer.consumer_face import DEFAULT_CLOSE_TIMEOUT_MS, ENDING_TIMEOUT_MS
from pykclient.errors import IllegalStateError
from pykclient.metrics import SubscribedMetrics
from pykclient.network.environment import SYSTEM_ENVIRONMENT, Environment
from pykclient.pacing import Pace, PacedCoroutines
from pykclient.producer.future import milliseconds as in_seconds

if TYPE_CHECKING:
    from typing import Self
    from uuid import UUID

    from pykclient.aio.threadless_consumer import StepsRunner
    from pykclient.config.consumer_config import ConsumerConfig
    from pykclient.errors import KafkaError
    from pykclient.metrics import Metrics


D = TypeVar("D", bound="StepsRunner")


class AIOConsumerBase(PacedCoroutines, SubscribedMetrics, Generic[D]):
    """Starts and stops a consumer, and rejects calls from a wrong loop or callback. Thread: the loop's."""

    #: Defaults of the attributes that the destructor reads, should the constructor raise.
    _consumer: D | None = None
    _closed: bool = True
    #: Those of attempts to start that have failed after they joined the group, until they have left it.
    _ending: list[D]

    def __init__(self, config: ConsumerConfig, given_loop: asyncio.AbstractEventLoop | None = None) -> None:
        self._config = config
        self._given_loop = given_loop
        self._pace = Pace()
        self._environment: Environment = SYSTEM_ENVIRONMENT
        self._group_id: str | None = config["group.id"]
        self._timeout_ms: int = config["default.api.timeout.ms"]
        self._is_starting = False
        self._closed = False
        self._ending = []
        #: Functions that replace private methods of aiokafka's consumer, by their names there.
        self._replaced: dict[str, Callable[..., Any]] = {}
        self._stopping: asyncio.Task[KafkaError | None] | None = None
        # From ``start`` on:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._waits: LoopWaits
        self._now_s: Callable[[], float]

    @classmethod
    def in_environment(cls, environment: Environment, /, *topics: Any, **settings: Any) -> Self:
        """Return a consumer that uses the clock, random numbers and connections of ``environment``."""
        consumer = cls(*topics, **settings)
        consumer._environment = environment
        return consumer

    # --- for subclasses --------------------------------------------------------------------------------------------

    @abstractmethod
    async def start(self) -> None:
        """Connect to the cluster, and join the group if there is a subscription."""

    @abstractmethod
    async def stop(self, timeout: float | None = None) -> None:
        """Leave the group, and close all connections, within ``timeout`` seconds."""

    @abstractmethod
    def _new_consumer(self, environment: LoopEnvironment, loop: asyncio.AbstractEventLoop, waits: LoopWaits) -> D:
        """Return the side that decides."""

    @abstractmethod
    async def _join(self, consumer: D) -> None:
        """Join the group if there is a subscription."""

    @abstractmethod
    def _forget_start(self) -> None:
        """Undo what an attempt to start has changed in the subscription."""

    @abstractmethod
    def _end_reading(self, consumer: D) -> None:
        """Note which records the application has, before the consumer stops."""

    # --- starting --------------------------------------------------------------------------------------------------

    async def _start(self) -> None:
        """Connect to the cluster, and join the group if there is a subscription. Raises what ``start`` documents."""
        loop = get_running_loop()
        if self._closed:
            raise ConsumerStoppedError("the consumer is stopped, and cannot be started again: create another one")
        if self._given_loop is not None and self._given_loop is not loop:
            raise IllegalStateError("Please create objects with the same loop as running with: leave `loop` out")
        if self._consumer is not None or self._is_starting:
            raise IllegalStateError("Did you call `start` twice? The consumer has been started already")
        self._is_starting = True
        try:
            hosts = await look_up_bootstrap_servers(loop, self._config, self._environment)
            await self._connect(loop, LoopEnvironment(hosts, self._environment))
        finally:
            self._is_starting = False

    async def _connect(self, loop: asyncio.AbstractEventLoop, environment: LoopEnvironment) -> None:
        waits = LoopWaits(loop)
        consumer = self._new_consumer(environment, loop, waits)
        components = consumer.components
        consumer.driver = driver = environment.driver(loop, consumer, components.client, waits.check)
        is_bootstrapped = False
        try:
            driver.start()
            if "bootstrap" in self._replaced:
                await self._replaced["bootstrap"]()
            else:
                await await_bootstrap(
                    components.metadata,
                    components.client,
                    components.clock,
                    waits,
                    self._timeout_ms,
                    "default.api.timeout.ms",
                    consumer.raise_failure,
                )
            is_bootstrapped = True
            environment.forget_hosts()
            self._loop, self._waits, self._now_s = loop, waits, loop.time
            self._consumer = consumer  # rebalance listeners may use it
            await self._join(consumer)
            if self._closed:
                raise ConsumerStoppedError("the consumer was stopped while it started")
            explanation.opened(self)
        except BaseException:
            # The attempt may have changed the subscription's state. Another one starts from what was asked for.
            self._consumer = None
            self._forget_start()
            if is_bootstrapped:  # it may have joined the group
                consumer.stop("the attempt to start the consumer, during which this call was made, has failed")
                self._ending.append(consumer)  # its listener may use it still
                consumer.closing = loop.create_task(consumer.close(ENDING_TIMEOUT_MS, is_sound=False))
                consumer.closing.add_done_callback(lambda _: self._ending.remove(consumer))
            else:
                consumer.release()
            raise

    # --- checks ----------------------------------------------------------------------------------------------------

    def _usable(self) -> D:
        """Return the consumer, if it can be used here.

        Raises:
            ConsumerStoppedError: it is stopped.
            IllegalStateError: it has not been started, or belongs to another loop.
            UseAfterForkError: it belongs to the parent process.
        """
        consumer = self._started()
        if _get_running_loop() is not self._loop:
            raise IllegalStateError("this consumer was started in another event loop: create one in each loop")
        return consumer

    def _started(self) -> D:
        """Return the consumer for calls that any thread may make; raise what ``_usable`` does but for another loop."""
        consumer = self._ending_here() if self._ending else None
        if consumer is not None:
            return consumer
        consumer = self._consumer
        if self._closed and not self._is_called_by_stop():
            raise ConsumerStoppedError("the consumer is stopped")
        if consumer is None:
            raise IllegalStateError("the consumer has not been started: await start(), or use `async with`")
        consumer.components.guard.check_process()
        return consumer

    def _ending_here(self) -> D | None:
        """Return the consumer of an attempt to start that has failed, in code of the application that its end calls."""
        task = None if _get_running_loop() is None else asyncio.current_task()
        return next((consumer for consumer in self._ending if consumer.is_run_by(task)), None)

    def _is_called_by_stop(self) -> bool:
        """Return True in code of the application that ``stop`` calls or waits for: it may use the consumer still."""
        consumer, stopping = self._consumer, self._stopping
        if consumer is None or stopping is None or stopping.done() or _get_running_loop() is not self._loop:
            return False
        return consumer.is_run_by(asyncio.current_task())

    def _changeable(self) -> D | None:
        """Return the consumer to change the subscription of; None before ``start``.

        Raises:
            Exception: the errors of ``_usable``, but it need not have been started.
        """
        if self._closed or self._consumer is not None or self._ending_here() is not None:
            return self._usable()
        if self._is_starting:
            raise IllegalStateError("the consumer is starting: change its subscription before start(), or after it")
        return None

    # --- queries -----------------------------------------------------------------------------------------------------

    @property
    def config(self) -> ConsumerConfig:
        """The settings in use, by their dotted keys."""
        return self._config

    @abstractmethod
    def explain(self) -> str:
        """Return a report of what the consumer is doing and waiting for."""

    async def client_instance_id(self, timeout_ms: float | None = None) -> UUID | None:
        """Return the client instance id, by which brokers identify this client's metrics (KIP-714).

        Waits at most ``timeout_ms`` milliseconds, by default ``default.api.timeout.ms``; 0 does not wait. Return None
        if no broker has given an id by then, for example as the brokers have no receiver for metrics.

        Raises:
            IllegalStateError: telemetry is disabled (``enable.metrics.push=false``).
            IllegalArgumentError: ``timeout_ms`` is negative, or not a number.
        """
        consumer = self._usable()
        components, timer = consumer.components, self._timer(consumer, timeout_ms)
        steps = client_instance_id(components.client, components.metadata, components.clock, timer)
        return await consumer.run_call(steps)

    def _timer(self, consumer: D, timeout_ms: float | None = None) -> Timer:
        bound_ms = self._timeout_ms if timeout_ms is None else consumer_arguments.milliseconds(timeout_ms)
        return Timer(consumer.components.clock, bound_ms)

    def _registry(self, call: str) -> Metrics:  # noqa: ARG002
        return self._started().components.metrics

    # --- stopping --------------------------------------------------------------------------------------------------

    async def _stop(self, timeout_s: float | None) -> None:
        """Close the consumer once. Waits at most ``timeout_s`` seconds (None: 30). Raises what ``stop`` documents."""
        timeout_ms = DEFAULT_CLOSE_TIMEOUT_MS if timeout_s is None else in_seconds(timeout_s)
        consumer = self._consumer
        if consumer is None or consumer.components.guard.forked:
            self._closed = True
            await self._end_attempts()
            return
        assert self._loop is not None
        if get_running_loop() is not self._loop:
            if not self._loop.is_closed():
                raise IllegalStateError("this consumer was started in another event loop: stop it there")
            self._release(consumer)
            return
        if not self._closed:
            consumer.refuse_in_callback("stop", asyncio.current_task())
            # Decide here, where an exception can be seen, which records the application has processed.
            self._closed = True
            explanation.closed(self)
            self._end_reading(consumer)
            consumer.stop("the consumer was stopped")
            self._stopping = consumer.closing = self._loop.create_task(self._close(consumer, timeout_ms))
            # Not raised by the task: the event loop would report an error that a cancelled call leaves to nobody.
            failure = await asyncio.shield(self._stopping)
            if failure is not None:
                raise failure
        elif self._stopping is not None and not self._is_called_by_stop():
            await asyncio.wait({self._stopping})  # the first call raises its error

    async def _end_attempts(self) -> None:
        """Wait until failed attempts to start have left the group and closed their connections, half a second each."""
        if self._ending and not self._ending_here():
            await asyncio.wait({consumer.closing for consumer in self._ending if consumer.closing is not None})

    async def _close(self, consumer: D, timeout_ms: int) -> KafkaError | None:
        try:
            return await consumer.close(timeout_ms, is_sound=True)
        finally:
            await self._waits.until(consumer.driver.closed.done, ENDING_TIMEOUT_MS)

    def _release(self, consumer: D) -> None:
        """Let go of connections after the loop was closed: nothing can be sent any more."""
        self._closed = True
        consumer.release()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, error_type: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Stop. Takes at most half a second when KeyboardInterrupt or SystemExit ends the program."""
        is_ending = error_type is not None and issubclass(error_type, (KeyboardInterrupt, SystemExit))
        await self.stop(ENDING_TIMEOUT_MS / 1000 if is_ending else None)

    def __del__(self) -> None:
        consumer, loop = self._consumer, getattr(self, "_loop", None)
        if consumer is None or self._closed or loop is None or consumer.components.guard.forked:
            return
        message = f"Unclosed {type(self).__name__} {self!r}: await stop(), or use `async with`"
        warnings.warn(message, ResourceWarning, source=self, stacklevel=2)
        if loop.is_closed():
            self._release(consumer)
        else:
            loop.call_exception_handler({"consumer": self, "message": message})
            loop.call_soon_threadsafe(consumer.release)

    def __reduce__(self) -> NoReturn:
        raise TypeError(f"{self!r} cannot be pickled, as its connections belong to this process and its event loop")

    def __repr__(self) -> str:
        client_id = self._config["client.id"] if self._consumer is None else self._consumer.components.client_id
        return f"<{type(self).__name__} {client_id} group_id={self._group_id}>"
