"""The thread that keeps a member in its group while the application is busy (Java:
AbstractCoordinator.HeartbeatThread).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from pykclient.network.environment import SYSTEM_ENVIRONMENT, Environment

if TYPE_CHECKING:
    from pykclient.clock import Clock
    from pykclient.consumer.coordinator.coordinator_request_manager import CoordinatorRequestManager
    from pykclient.consumer.coordinator.group_rebalance_config import GroupRebalanceConfig
    from pykclient.consumer.coordinator.membership import Membership
    from pykclient.consumer.network_client_delegate import NetworkClientDelegate
    from pykclient.log_context import LogContext

HEARTBEAT_THREAD_PREFIX = "kafka-coordinator-heartbeat-thread"

#: Signals end a wait; this bound is for the thread of a consumer that was garbage-collected without being closed.
_MAX_REST_MS = 5000

#: The bound of the wait for the thread, which never blocks, when the consumer is closed.
_JOIN_S = 5.0


class HeartbeatThread:
    """Drives the managers that run in the background, while the application does not.

    It sleeps until one of them is due. It never waits for the network or for the I/O lease: if the application holds
    that, the application's poll drives the managers. It runs no application code. It is a daemon, so it does not delay
    the exit of the interpreter.
    """

    def __init__(
        self,
        config: GroupRebalanceConfig,
        log_context: LogContext,
        client: NetworkClientDelegate,
        membership: Membership,
        coordinator: CoordinatorRequestManager,
        clock: Clock,
        environment: Environment = SYSTEM_ENVIRONMENT,
    ) -> None:
        self._thread = environment.new_thread(self.run, f"{HEARTBEAT_THREAD_PREFIX} | {config.group_id}")
        self._retry_backoff_ms = config.retry_backoff_ms
        self._log = log_context.logger(__name__)
        self._client = client
        self._membership = membership
        self._coordinator = coordinator
        self._clock = clock
        self._closed = False
        self._abandoned = False
        #: The exception that ended the thread; poll() raises it in the application.
        self.failure: Exception | None = None

    def start(self) -> None:
        self._thread.start()

    def is_alive(self) -> bool:
        return self._thread.is_alive()

    def join(self, timeout: float) -> None:
        """Wait until the thread has ended, at most ``timeout`` seconds."""
        self._thread.join(timeout)

    def close(self) -> None:
        """Make the thread end."""
        self._closed = True
        self._membership.signal()

    def abandon(self) -> None:
        """Make the thread end when it wakes up next, without a lock, for the garbage collector.

        The thread then closes the connections, as nothing else will.
        """
        self._abandoned = self._closed = True

    def run(self) -> None:
        self._log.debug("Heartbeat thread started")
        try:
            while not self._closed:
                seen = self._membership.signals
                wait_ms = self.run_once()
                if wait_ms > 0 and not self._closed:
                    self._membership.wait_for_signal(seen, wait_ms)
        except Exception as error:  # noqa: BLE001 - the end of a thread
            self._log.exception("The heartbeat thread failed")
            self.failure = error
        if self._abandoned:
            self._client.close()
        self._log.debug("Heartbeat thread has ended")

    def run_once(self) -> int:
        """Poll the managers, unless the application does; return the milliseconds until the next call."""
        membership = self._membership
        wait_ms = self._client.poll_background()
        if not membership.state.sends_heartbeats:
            wait_ms = _MAX_REST_MS if wait_ms is None else wait_ms
        elif wait_ms is None:
            # The application may leave its poll just before something is due. Otherwise the poll does it in time, so
            # that there is nothing to do here.
            wait_ms = self._retry_backoff_ms + membership.time_to_next_event(self._clock.now_ms())
        elif membership.heartbeat_in_flight or self._coordinator.unknown:
            # This thread must receive the response, because the application may not poll.
            wait_ms = min(wait_ms, self._retry_backoff_ms)
        return min(wait_ms, _MAX_REST_MS)


class HeartbeatThreadOwner:
    """The heartbeat thread of one consumer, which starts once the consumer joins its group. Thread: application."""

    def __init__(
        self,
        config: GroupRebalanceConfig,
        log_context: LogContext,
        client: NetworkClientDelegate,
        membership: Membership,
        coordinator: CoordinatorRequestManager,
        clock: Clock,
        environment: Environment,
    ) -> None:
        self._arguments = (config, log_context, client, membership, coordinator, clock, environment)
        #: Tests replace it with a thread that they step themselves.
        self.new_thread: Callable[..., HeartbeatThread] = HeartbeatThread
        #: The thread, from its start until it is closed or its failure is taken.
        self.thread: HeartbeatThread | None = None

    def start(self) -> None:
        """Start the thread unless there is one."""
        if self.thread is None:
            self.thread = self.new_thread(*self._arguments)
            self.thread.start()

    def take_failure(self) -> Exception | None:
        """Return the exception that ended the thread, once; ``start`` then starts another thread."""
        if self.thread is None or self.thread.failure is None:
            return None
        thread, self.thread = self.thread, None
        return thread.failure

    def close(self) -> None:
        """End the thread, and wait until it has ended."""
        thread, self.thread = self.thread, None
        if thread is None:
            return
        thread.close()
        if thread.is_alive():
            thread.join(_JOIN_S)

    def abandon(self) -> bool:
        """Let the thread end by itself, as nothing will close it; return whether there is one."""
        thread = self.thread
        if thread is None:
            return False
        thread.abandon()
        return True
