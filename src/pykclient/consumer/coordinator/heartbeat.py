"""The timers of a membership: the next heartbeat, the session, and the poll interval (Java: Heartbeat)."""

from __future__ import annotations

from pykclient.clock import FOREVER_MS, Clock, Timer
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
        "_config",
        "_heartbeat_timer",
        "_poll_timer",
        "_retry_backoff",
        "_session_timer",
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
        self._heartbeat_timer = Timer(clock, config.heartbeat_interval_ms)
        self._session_timer = Timer(clock, config.session_timeout_ms)
        self._poll_timer = Timer(clock, config.rebalance_timeout_ms)
        self._attempts = 0
        self.in_flight = False
        self.last_send_ms: int | None = None
        self.last_poll_ms = clock.now_ms()

    def poll(self, now_ms: int, call_ms: int = 0) -> bool:
        """Record that the application has called ``poll``; return True if a heartbeat has become due by that."""
        self._poll_timer.update(now_ms)
        self.last_poll_ms = now_ms
        self._poll_timer.reset(self._config.rebalance_timeout_ms)
        timer = self._heartbeat_timer
        timer.update(now_ms)
        is_early = not (self.in_flight or self._attempts) and begins_with(
            timer.remaining_ms, call_ms, self._config.heartbeat_interval_ms
        )
        if is_early:
            timer.reset(0)
        return is_early

    def sent_heartbeat(self, now_ms: int) -> None:
        self.last_send_ms = now_ms
        self.in_flight = True
        self._heartbeat_timer.update(now_ms)
        self._heartbeat_timer.reset(self._config.heartbeat_interval_ms)

    def fail_heartbeat(self) -> None:
        """Record that the last heartbeat failed: the next one comes after a backoff instead of the interval."""
        self._heartbeat_timer.update()
        self.in_flight = False
        self._heartbeat_timer.reset(self._retry_backoff.backoff(self._attempts))
        self._attempts += 1

    def receive_heartbeat(self) -> None:
        """Record a response from the coordinator, which keeps the session alive."""
        self._session_timer.update()
        self.in_flight = False
        self._attempts = 0
        self._session_timer.reset(self._config.session_timeout_ms)

    def reset_timeouts(self) -> None:
        """Restart all timers, because the group was joined."""
        self.in_flight = False
        self._session_timer.update_and_reset(self._config.session_timeout_ms)
        self._poll_timer.update_and_reset(self._config.rebalance_timeout_ms)
        self._heartbeat_timer.update_and_reset(self._config.heartbeat_interval_ms)

    def reset_session_timeout(self) -> None:
        """Restart the session, because a coordinator was found."""
        self._session_timer.update_and_reset(self._config.session_timeout_ms)

    def should_heartbeat(self, now_ms: int) -> bool:
        self._heartbeat_timer.update(now_ms)
        return self._heartbeat_timer.expired

    def session_timeout_expired(self, now_ms: int) -> bool:
        self._session_timer.update(now_ms)
        return self._session_timer.expired

    def poll_timeout_expired(self, now_ms: int) -> bool:
        self._poll_timer.update(now_ms)
        return self._poll_timer.expired

    def time_to_next_event(self, now_ms: int) -> int:
        """Return the milliseconds until something is due, if no response comes first."""
        timers = (self._heartbeat_timer, self._session_timer, self._poll_timer)
        for timer in timers:
            timer.update(now_ms)
        return min(FOREVER_MS, *(timer.remaining_ms for timer in timers))
