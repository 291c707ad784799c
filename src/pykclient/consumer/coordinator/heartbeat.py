"""The times of a membership: the next heartbeat, the ends of the session and of the poll interval (Java: Heartbeat)."""

from __future__ import annotations

from pykclient.clock import Clock
from pykclient.consumer.coordinator.group_rebalance_config import GroupRebalanceConfig
from pykclient.consumer.due_times import begins_with
from pykclient.errors import ConfigError
from pykclient.network.exponential_backoff import ExponentialBackoff


class Heartbeat:
    """Three timers: the next heartbeat, the coordinator's silence (session), the application's silence (poll).

    Thread: any, under the lock of GroupMembership.
    """

    __slots__ = (
        "_attempts",
        "_clock",
        "_config",
        "_due_ms",
        "_poll_end_ms",
        "_retry_backoff",
        "_session_end_ms",
        "in_flight",
        "last_poll_ms",
        "last_send_ms",
    )

    def __init__(self, config: GroupRebalanceConfig, clock: Clock, retry_backoff: ExponentialBackoff) -> None:
        if config.heartbeat_interval_ms >= config.session_timeout_ms:
            raise ConfigError(
                f"heartbeat.interval.ms={config.heartbeat_interval_ms} must be lower than "
                f"session.timeout.ms={config.session_timeout_ms}; a third of it is usual"
            )
        self._config = config
        self._retry_backoff = retry_backoff
        self._clock = clock
        self._due_ms = self._session_end_ms = self._poll_end_ms = 0
        self._attempts = 0
        self.last_send_ms: int | None = None
        self.last_poll_ms = clock.now_ms()
        self.reset_timeouts()

    def poll(self, now_ms: int, call_ms: int = 0) -> bool:
        """Record that the application has called ``poll``; return True if a heartbeat has become due by that."""
        self.last_poll_ms = now_ms
        self._poll_end_ms = now_ms + self._config.rebalance_timeout_ms
        is_early = not (self.in_flight or self._attempts) and begins_with(
            max(0, self._due_ms - now_ms), call_ms, self._config.heartbeat_interval_ms
        )
        if is_early:
            self._due_ms = now_ms
        return is_early

    def sent_heartbeat(self, now_ms: int) -> None:
        self.last_send_ms = now_ms
        self.in_flight = True
        self._due_ms = now_ms + self._config.heartbeat_interval_ms

    def fail_heartbeat(self) -> None:
        """Record that the last heartbeat failed: the next one comes after a backoff instead of the interval."""
        self.in_flight = False
        self._due_ms = self._clock.now_ms() + self._retry_backoff.backoff(self._attempts)
        self._attempts += 1

    def receive_heartbeat(self) -> None:
        """Record a response from the coordinator, which keeps the session alive."""
        self.in_flight = False
        self._attempts = 0
        self._session_end_ms = self._clock.now_ms() + self._config.session_timeout_ms

    def reset_timeouts(self) -> None:
        """Restart all timers, because the group was joined."""
        now_ms = self._clock.now_ms()
        self.in_flight = False
        self._session_end_ms = now_ms + self._config.session_timeout_ms
        self._poll_end_ms = now_ms + self._config.rebalance_timeout_ms
        self._due_ms = now_ms + self._config.heartbeat_interval_ms

    def reset_session_timeout(self) -> None:
        """Restart the session, because a coordinator was found."""
        self._session_end_ms = self._clock.now_ms() + self._config.session_timeout_ms

    def should_heartbeat(self, now_ms: int) -> bool:
        return now_ms >= self._due_ms

    def session_timeout_expired(self, now_ms: int) -> bool:
        return now_ms >= self._session_end_ms

    def poll_timeout_expired(self, now_ms: int) -> bool:
        return now_ms >= self._poll_end_ms

    def time_to_next_event(self, now_ms: int) -> int:
        """Return the milliseconds until something is due, if no response comes first."""
        return max(0, min(self._due_ms, self._session_end_ms, self._poll_end_ms) - now_ms)
