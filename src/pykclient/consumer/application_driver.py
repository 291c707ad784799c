"""The loop of a call of the application that waits (Java: ApplicationEventHandler, NetworkClientDelegate.poll)."""

from __future__ import annotations

from collections.abc import Callable

from pykclient.clock import Timer
from pykclient.consumer.consumer_network_client import ConsumerNetworkClient


class ApplicationDriver:
    """Polls the network, and with it the request managers, until something is done. Thread: application."""

    __slots__ = ("_client",)

    def __init__(self, client: ConsumerNetworkClient) -> None:
        self._client = client

    def run_until(self, done: Callable[[], bool], timer: Timer, *, wakeup: bool = True) -> bool:
        """Poll at least once, until ``done()`` or the timer expires; return ``done()``.

        Raises:
            WakeupError: ``wakeup`` is True, and the consumer's method of that name was called.
        """
        while True:
            self._client.poll(timer, lambda: not done(), disable_wakeup=not wakeup)
            if done() or timer.expired:
                return done()
