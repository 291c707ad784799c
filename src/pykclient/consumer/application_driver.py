"""The waits of the application's thread (Java: the application's side of NetworkClientDelegate)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from pykclient.clock import FOREVER_MS, Timer
from pykclient.errors import KafkaError

if TYPE_CHECKING:
    from pykclient.clock import Clock
    from pykclient.consumer.consumer_network_client import ConsumerNetworkClient
    from pykclient.consumer.request_future import RequestFuture
    from pykclient.network.metadata import Metadata

T = TypeVar("T")


class ApplicationDriver:
    """Runs the request managers and the network until what a call waits for has happened. Thread: application."""

    def __init__(self, client: ConsumerNetworkClient, metadata: Metadata, clock: Clock) -> None:
        self._client = client
        self._metadata = metadata
        self._clock = clock

    def step(self, timer: Timer, is_done: Callable[[], bool] | None = None, *, wakeup: bool = True) -> None:
        """Run once: wait until something happens or the timer expires, unless ``is_done()``.

        Raises:
            WakeupError: ``wakeup`` was called; not with ``wakeup=False``.
            KafkaError: metadata has an error for the application.
        """
        self._client.poll(timer, None if is_done is None else lambda: not is_done(), disable_wakeup=not wakeup)

    def run_until(self, is_done: Callable[[], bool], timer: Timer, *, wakeup: bool = True) -> bool:
        """Run until ``is_done()`` or until the timer expires, at least once; return ``is_done()``.

        Raises:
            KafkaError: an error of ``step``.
        """
        while not is_done():
            self.step(timer, is_done, wakeup=wakeup)
            if timer.expired:
                return is_done()
        return True

    def await_metadata_update(self, timer: Timer) -> bool:
        """Request metadata and run until it arrives. Return False if the timer expires first.

        Raises:
            KafkaError: an error of ``step``.
        """
        version = self._metadata.request_update(False)
        return self.run_until(lambda: self._metadata.update_version > version, timer)

    def result(self, future: RequestFuture[T]) -> T:
        """Run until a manager has completed ``future``, and return its value or raise its error.

        The manager ends the wait in time. Give the future up if anything else ends this call.
        """
        try:
            self.run_until(lambda: future.is_done, Timer(self._clock, FOREVER_MS))
        finally:
            if not future.is_done:
                future.give_up(KafkaError("the call that waited for this was interrupted"))
        if future.failed:
            raise future.exception
        return future.value
