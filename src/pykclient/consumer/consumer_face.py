"""The methods that the public consumers have in common."""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Generic, NoReturn, Self

from pykclient import explanation
from pykclient.clock import Timer
from pykclient.config.consumer_config import ConsumerConfig
from pykclient.consumer import consumer_arguments
from pykclient.consumer.application_driver import RequestFuture, client_instance_id
from pykclient.metrics import SubscribedMetrics
from pykclient.network.environment import Environment
from pykclient.types import ConsumerRecord, K, V

if TYPE_CHECKING:
    from uuid import UUID

    from pykclient.consumer.application_driver import Steps
    from pykclient.consumer.consumer_components import ConsumerComponents
    from pykclient.consumer.consumer_delegate import ConsumerDelegate
    from pykclient.consumer.share.share_consumer import ShareConsumer, ShareConsumerComponents
    from pykclient.metrics import Metrics


class OffsetCommitFuture:
    """The future of an asynchronous commit, which completes inside later calls of the consumer.

    It cannot be waited on; use ``commit()`` to wait. Thread: application.
    """

    def __init__(self, future: RequestFuture[None]) -> None:
        self._future = future

    @property
    def is_done(self) -> bool:
        return self._future.is_done

    @property
    def exception(self) -> Exception | None:
        """The error, or None if there is none."""
        return self._future.exception if self._future.failed else None

    @property
    def value(self) -> None:
        """None: a commit has no result."""
        return

    def succeeded(self) -> bool:
        return self._future.succeeded

    def failed(self) -> bool:
        return self._future.failed

    def retriable(self) -> bool:
        """Return whether the commit failed with an error that allows a retry."""
        return self._future.failed and self._future.is_retriable

    def add_callback(self, callback: Callable[[None], object]) -> OffsetCommitFuture:
        """Call ``callback(None)`` on success."""
        self._future.add_listener(callback)
        return self

    def add_errback(self, errback: Callable[[Exception], object]) -> OffsetCommitFuture:
        """Call ``errback(error)`` on failure."""
        self._future.add_listener(None, errback)
        return self


#: The default bound of close().
DEFAULT_CLOSE_TIMEOUT_MS = 30_000
#: The bound of leaving a ``with`` block that ends by KeyboardInterrupt or SystemExit.
ENDING_TIMEOUT_MS = 500


class ConsumerFace(SubscribedMetrics, ABC, Generic[K, V]):
    """The base class of the public consumers. Thread: as the subclass says."""

    #: The classes of the configuration, of the parts, and of the implementation.
    _config_class: ClassVar[type[ConsumerConfig]]
    _components_class: ClassVar[type[Any]]
    _consumer_class: ClassVar[type[Any]]
    #: False for a consumer inside of one that gives no warning.
    _warns_unclosed = True
    #: What ``pickle``'s error adds.
    _where_to_make_it = ""
    _consumer: ConsumerDelegate | ShareConsumer

    def _create(self, args: tuple[Any, ...], settings: Mapping[str, Any], environment: Environment) -> None:
        """Create the parts from the constructor's arguments, and subscribe."""
        config, names = consumer_arguments.settings_and_topics(args, settings, type(self).__name__)
        made = config if isinstance(config, self._config_class) else self._config_class(config, **settings)
        self._start(self._components_class(made, environment))
        if names:
            try:
                self.subscribe(names)
            except BaseException:  # nobody gets this object, so nobody else could close it
                self.close(timeout_ms=0)
                raise

    @classmethod
    def in_environment(cls, environment: Environment, /, *topics: Any, **settings: Any) -> Self:
        """Return a consumer that takes its time, random numbers, threads and connections from ``environment``."""
        consumer = cls.__new__(cls)
        consumer._create(topics, settings, environment)
        return consumer

    @classmethod
    def _of(cls, components: ConsumerComponents | ShareConsumerComponents) -> Self:
        """Return a consumer made of the given parts, for tests and simulations."""
        consumer = cls.__new__(cls)
        consumer._start(components)
        return consumer

    def _start(self, components: ConsumerComponents | ShareConsumerComponents) -> None:
        """Take the parts that the consumer is made of."""
        self.config = components.config
        self._guard = guard = components.guard
        self._clock = components.clock
        self._default_timeout_ms: int = self.config["default.api.timeout.ms"]
        self._loop_timeout_ms: int = self.config["consumer.timeout.ms"]
        self._iterator: Iterator[ConsumerRecord[K, V]] | None = None
        self._consumer = consumer = self._consumer_class(components)
        self._run = components.driver.run
        guard.recover = consumer.recover
        guard.has_leftovers = consumer.has_leftovers
        explanation.opened(self)

    @abstractmethod
    def subscribe(self, topics: Collection[str]) -> None:
        """Subscribe to ``topics``."""

    @abstractmethod
    def close(self, *, timeout_ms: float | None = None) -> None:
        """Close the consumer."""

    @abstractmethod
    def _loop(self) -> Iterator[ConsumerRecord[K, V]]:
        """Return the iterator of a loop over all records."""

    def __iter__(self) -> Iterator[ConsumerRecord[K, V]]:
        if type(self).__next__ is not ConsumerFace.__next__:  # a subclass or an instrumentation has replaced it
            return self
        return self._loop()

    def _iterate(self) -> bool:
        """Poll until records wait for the loop. Return False if none arrived in time."""
        consumer: Any = self._consumer
        with self._guard:
            self._guard.require_outermost()
            if consumer.has_waiting_records:
                return True
            timer = Timer(self._clock, self._loop_timeout_ms)
            while True:
                fetch = self._run(consumer.poll(timer))
                if fetch.records:
                    consumer.keep_for_loop(fetch)
                    return True
                fetch.returned = True  # positions may have moved over aborted records only
                timer.update()
                if timer.expired:
                    return False

    @abstractmethod
    def _explain(self) -> str:
        """Return the page of ``explain``."""

    def __repr__(self) -> str:
        state = " closed" if self._guard.closed else ""
        components = self._consumer.components
        return f"<{self._guard.name} client_id={components.client_id} group_id={components.group_id}{state}>"

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            f"{self!r} cannot be pickled, as its connections belong to this process: make it in the function that runs "
            f"elsewhere{self._where_to_make_it}"
        )

    def _timer(self, timeout_ms: float | None) -> Timer:
        return Timer(
            self._clock, self._default_timeout_ms if timeout_ms is None else consumer_arguments.milliseconds(timeout_ms)
        )

    def subscription(self) -> set[str] | None:
        """Return the topics subscribed to, or None if there are none. Thread: any."""
        self._guard.check_open()
        return set(self._consumer.components.subscriptions.subscription()) or None

    def __next__(self) -> ConsumerRecord[K, V]:
        """Return the next record, as a loop does.

        Raises:
            StopIteration: no record arrived for ``consumer.timeout.ms``; a later call may find one.
        """
        if self._iterator is None:
            self._iterator = self._loop()
        try:
            # Not next(): a signal handler may run between a call and the use of its result.
            for record in self._iterator:
                return record
        except BaseException:  # the iterator ends with any exception, but the consumer remains usable
            self._iterator = None
            raise
        self._iterator = None
        raise StopIteration

    def _registry(self, call: str) -> Metrics:  # noqa: ARG002
        self._guard.check_process()
        self._guard.check_not_interrupting()
        return self._consumer.components.metrics

    def client_instance_id(self, timeout_ms: float | None = None) -> UUID | None:
        """Return the client instance id, by which brokers identify this client's metrics (KIP-714).

        Waits at most ``timeout_ms`` milliseconds (default: ``default.api.timeout.ms``); 0 does not wait. Return None if
        there is no id by then, for example as the brokers have no receiver for metrics.

        Raises:
            IllegalStateError: telemetry is disabled (``enable.metrics.push=false``), or a callback makes this call.
            IllegalArgumentError: ``timeout_ms`` is negative, or not a number.
            WakeupError: ``wakeup`` was called.
        """
        with self._guard:
            self._guard.require_outermost()
            components, timer = self._consumer.components, self._timer(timeout_ms)
            return self._run(client_instance_id(components.client, components.metadata, components.clock, timer))

    def explain(self) -> str:
        """Return a report of what the consumer is doing and waiting for.

        It names the call in progress, the membership in the group, each partition, the connections with their requests
        in flight, and the last warnings and errors. May be called from any thread; ``pykclient.explain_on_signal``
        prints it on a signal.

        Raises:
            IllegalStateError: called by a signal handler or destructor that interrupts another call of this thread.
            UseAfterForkError: this is a forked child process.
        """
        self._guard.check_process()
        self._guard.check_not_interrupting()
        return self._explain()

    def wakeup(self) -> None:
        """Make the call in progress in another thread, or else the next call that waits, raise WakeupError.

        May be called from any thread and from signal handlers.
        """
        self._guard.check_process()
        self._consumer.components.driver.wakeup()

    def _is_gone(self) -> bool:
        """Return True if there is nothing to close: it is closed, or belongs to the parent process."""
        if self._guard.forked:
            self._guard.closed = True  # the connections and the membership belong to the parent
        return self._guard.closed

    def _close(self, close: Callable[[], Steps[Exception | None]], abort: Callable[[], Steps[Any]]) -> Exception | None:
        """Run the steps of ``close``, and return its error. If an exception ends them, run those of ``abort``.

        The caller is inside of the guard.
        """
        try:
            failure = self._run(close())
        except BaseException:
            # Ctrl-C, or a signal handler that raises: whoever interrupts the wait does not want to wait for the next
            # step instead. If another exception strikes here, another call of close() does the rest.
            self._consumer.recover(in_middle=True)
            self._run(abort())
            self._guard.closed = True
            explanation.closed(self)
            raise
        self._iterator = None
        self._guard.closed = True
        explanation.closed(self)
        return failure

    def __enter__(self) -> Self:
        return self

    @staticmethod
    def _exit(error_type: type[BaseException] | None) -> tuple[bool, int | None]:
        """Return whether an error ends a block, and the time to close within: half a second if the program ends.

        A generator that is closed because its caller leaves a loop exits the block normally.
        """
        is_error = error_type is not None and not issubclass(error_type, GeneratorExit)
        is_ending = is_error and error_type is not None and not issubclass(error_type, Exception)
        return is_error, ENDING_TIMEOUT_MS if is_ending else None

    def __del__(self) -> None:
        consumer = getattr(self, "_consumer", None)
        if consumer is None or self._guard.closed or self._guard.forked:
            return
        try:
            consumer.abandon()
        finally:
            if self._warns_unclosed:
                warnings.warn(f"{self!r} was not closed", ResourceWarning, stacklevel=2, source=self)
