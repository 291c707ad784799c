"""The thread that keeps a member in its group while the application is busy (Java:
AbstractCoordinator.HeartbeatThread).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pykclient.consumer.coordinator.group_membership import POLL_EXPIRED, REST, SESSION_EXPIRED
from pykclient.errors import FencedInstanceIdError, RebalanceInProgressError
from pykclient.network.environment import SYSTEM_ENVIRONMENT, Environment

if TYPE_CHECKING:
    from pykclient.consumer.coordinator.abstract_coordinator import AbstractCoordinator

HEARTBEAT_THREAD_PREFIX = "kafka-coordinator-heartbeat-thread"

#: Signals end a wait; this bound is for the thread of a consumer that was garbage-collected without being closed.
_MAX_REST_MS = 5000


class HeartbeatThread:
    """Sleeps until a heartbeat, the end of the session or the end of max.poll.interval.ms is due.

    It never waits for the network: its requests are sent at once, or by the poll that the application is in. It runs no
    application code. It is a daemon, so it does not delay the exit of the interpreter.
    """

    def __init__(self, coordinator: AbstractCoordinator, environment: Environment = SYSTEM_ENVIRONMENT) -> None:
        name = f"{HEARTBEAT_THREAD_PREFIX} | {coordinator.config.group_id}"
        self._thread = environment.new_thread(self.run, name)
        self._coordinator = coordinator
        self._membership = coordinator.membership
        self._log = coordinator.log_context.logger(__name__)
        self._closed = False
        self._abandoned = False
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
            while not self._closed and self.failure is None:
                seen = self._membership.signals
                wait_ms = self.run_once()
                if wait_ms > 0 and not self._closed:
                    self._membership.wait_for_signal(seen, wait_ms)
        except Exception as error:  # noqa: BLE001 - the end of a thread: poll() raises it in the application
            self._log.exception("The heartbeat thread failed")
            self.failure = error
        if self._abandoned:
            self._coordinator.client.close()
        self._log.debug("Heartbeat thread has ended")

    def run_once(self) -> int:
        """Do what is due; return the milliseconds until the next call."""
        coordinator, membership = self._coordinator, self._membership
        if membership.state.has_not_joined_group:
            return _MAX_REST_MS
        client, finder = coordinator.client, coordinator.finder
        retry_ms = coordinator.config.retry_backoff_ms
        client.poll_background()
        if finder.unknown:
            return retry_ms  # the manager looks for it
        action, rest_ms = membership.next_action(coordinator.clock.now_ms())
        if action is REST:
            # While a heartbeat is in flight, this thread must receive the response, because the application may not
            # poll.
            return min(rest_ms, retry_ms) if membership.heartbeat.in_flight else min(rest_ms, _MAX_REST_MS)
        if action is SESSION_EXPIRED:
            finder.mark_unknown("no answer to heartbeats within session.timeout.ms")
            return 0
        if action is POLL_EXPIRED:
            coordinator.handle_poll_timeout_expiry()
            return 0
        self._beat()
        return retry_ms

    def _beat(self) -> None:
        future = self._coordinator.send_heartbeat_request()
        future.add_listener(lambda _: self._membership.receive_heartbeat(), self._beat_failed)
        self._coordinator.client.poll_background()

    def _beat_failed(self, error: Exception) -> None:
        if isinstance(error, RebalanceInProgressError):
            # The member keeps sending heartbeats while the group rebalances: it has the rebalance timeout to rejoin,
            # but without heartbeats the session would expire.
            self._membership.receive_heartbeat()
        elif isinstance(error, FencedInstanceIdError):
            self._log.error("Fenced: %s", error)
            self.failure = error
            self._membership.signal()
        else:
            self._membership.fail_heartbeat()
