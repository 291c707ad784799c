"""The state of a membership by the classic group protocol, shared by the application and the heartbeat thread.

Its times are a Heartbeat's: the next heartbeat, the ends of the session and of the poll interval.

Java: the synchronized fields of AbstractCoordinator. Here they are separate from all I/O: each method is one step under
the lock, so no thread ever waits for the network while holding it.
"""

from __future__ import annotations

from pykclient.clock import Clock
from pykclient.consumer.coordinator.member_state import (
    COMPLETING_REBALANCE,
    NO_GENERATION,
    PREPARING_REBALANCE,
    STABLE,
    UNJOINED,
    Generation,
    MemberState,
    move,
)
from pykclient.consumer.coordinator.membership import GroupRebalanceConfig, SignalledState
from pykclient.consumer.request_manager import begins_with
from pykclient.errors import ConfigError
from pykclient.log_context import LogContext
from pykclient.network.exponential_backoff import ExponentialBackoff


class Heartbeat:
    """Three timers: the next heartbeat, the session timeout, and the poll timeout.

    Thread: any, under the lock of ClassicMembership.
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
        """Record a call of ``poll``; return True if a heartbeat is due as a result."""
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


#: The results of ``next_action``.
REST = "rest"
BEAT = "beat"
SESSION_EXPIRED = "session expired"
POLL_EXPIRED = "poll expired"


class ClassicMembership(SignalledState):
    """State, generation, the need to rejoin, and the heartbeat's timers. Thread: any."""

    def __init__(
        self,
        config: GroupRebalanceConfig,
        log_context: LogContext,
        clock: Clock,
        retry_backoff: ExponentialBackoff,
    ) -> None:
        super().__init__(clock)
        self._log = log_context.logger(__name__)
        # The lock of SignalledState guards all below.
        self.heartbeat = Heartbeat(config, clock, retry_backoff)
        self.state: MemberState = UNJOINED
        self._generation = NO_GENERATION
        self._rejoin_needed = True
        self._rejoin_reason = ""
        self._needs_join_prepare = True
        self._lost_because: str | None = None
        self._lost_generation: int | None = None
        self._last_rebalance_start_ms: int | None = None
        self._last_rebalance_end_ms: int | None = None

    # --- queries: single reads, which need no lock -------------------------------------------------------------------

    @property
    def generation(self) -> Generation:
        """The current generation, which may belong to an unfinished rebalance."""
        return self._generation

    @property
    def member_id(self) -> str:
        return self._generation.member_id

    @property
    def rejoin_needed(self) -> bool:
        return self._rejoin_needed

    @property
    def rejoin_reason(self) -> str:
        return self._rejoin_reason

    @property
    def lost_because(self) -> str | None:
        """The reason why the last membership ended, unless the application ended it."""
        return self._lost_because

    @property
    def lost_generation(self) -> int | None:
        """The generation in which the last membership ended, unless the application ended it."""
        return self._lost_generation

    @property
    def last_rebalance_end_ms(self) -> int | None:
        return self._last_rebalance_end_ms

    @property
    def last_poll_ms(self) -> int:
        """The time of the application's last poll."""
        return self.heartbeat.last_poll_ms

    @property
    def last_send_ms(self) -> int | None:
        """The time when the last heartbeat was sent."""
        return self.heartbeat.last_send_ms

    @property
    def heartbeat_in_flight(self) -> bool:
        """True while the coordinator has not answered a heartbeat."""
        return self.heartbeat.in_flight

    @property
    def rebalance_in_progress(self) -> bool:
        return self.state is PREPARING_REBALANCE or self.state is COMPLETING_REBALANCE

    def generation_if_stable(self) -> Generation | None:
        with self._lock:
            return self._generation if self.state is STABLE else None

    def generation_for_fetches(self) -> Generation | None:
        """Return None: in the classic protocol, OffsetFetch has no generation."""
        return None

    def snapshot(self) -> tuple[Generation, MemberState]:
        """Return generation and state of the same moment."""
        with self._lock:
            return self._generation, self.state

    # --- the rebalance -----------------------------------------------------------------------------------------------

    def take_join_prepare(self) -> bool:
        """Return whether the application must prepare for a join. The next call returns False."""
        with self._lock:
            needed = self._needs_join_prepare
            self._needs_join_prepare = False
            return needed

    @property
    def needs_join_prepare(self) -> bool:
        """True if ``take_join_prepare`` would return True."""
        return self._needs_join_prepare

    def need_join_prepare(self) -> None:
        with self._lock:
            self._needs_join_prepare = True

    def begin_rebalance(self) -> tuple[Generation, str]:
        """Start a rebalance; return the generation and reason for JoinGroup."""
        with self._lock:
            self.state = move(self.state, PREPARING_REBALANCE)
            if self._last_rebalance_start_ms is None:  # failed attempts belong to the same rebalance
                self._last_rebalance_start_ms = self._clock.now_ms()
            return self._generation, self._rejoin_reason

    def joined(self, generation: Generation) -> bool:
        """Process the JoinGroup response. Return False if the application has left the group meanwhile."""
        with self._lock:
            if self.state is not PREPARING_REBALANCE:
                return False
            self.state = move(self.state, COMPLETING_REBALANCE)
            self._generation = generation
            self.heartbeat.reset_timeouts()
            self._signal()  # heartbeats are needed now
            return True

    def member_id_assigned(self, member_id: str) -> None:
        """Set the member id that the next JoinGroup must contain (KIP-394)."""
        with self._lock:
            self._generation = Generation(NO_GENERATION.generation_id, member_id, None)
        self.request_rejoin(f"need to re-join with the given member-id: {member_id}")

    def synced(self, sent: Generation) -> tuple[bool, int]:
        """Process the SyncGroup response. Return whether the rebalance is complete, and its duration in milliseconds.

        It is not complete if a heartbeat has ended the membership meanwhile.
        """
        with self._lock:
            if self._generation != sent or self.state is not COMPLETING_REBALANCE:
                return False, 0
            self.state = move(self.state, STABLE)
            self._rejoin_reason = ""
            self._rejoin_needed = False
            self._lost_because = self._lost_generation = None
            end_ms = self._last_rebalance_end_ms = self._clock.now_ms()
            start_ms = end_ms if self._last_rebalance_start_ms is None else self._last_rebalance_start_ms
            self._last_rebalance_start_ms = None
            return True, end_ms - start_ms

    def request_rejoin(self, short_reason: str, full_reason: str | None = None) -> None:
        """Join again in the next poll. The coordinator gets ``short_reason`` (KIP-800), the log the full one."""
        with self._lock:
            self._rejoin_reason = short_reason
            self._rejoin_needed = True
        self._log.info("Rejoining the group: %s", full_reason or short_reason)

    def request_rejoin_if_necessary(self, short_reason: str, full_reason: str) -> None:
        """Do the same as ``request_rejoin``, unless a rejoin is already needed."""
        if not self._rejoin_needed:
            self.request_rejoin(short_reason, full_reason)

    def request_rejoin_if_stable(self, short_reason: str) -> bool:
        """Rejoin because the group rebalances; return False if this member is already rebalancing."""
        with self._lock:
            if self.state is not STABLE:
                return False
            self._rejoin_reason = short_reason
            self._rejoin_needed = True
        self._log.info("Rejoining the group: %s", short_reason)
        return True

    # --- the end of a membership -------------------------------------------------------------------------------------

    def reset_and_rejoin(self, reason: str, *, reset_member_id: bool, lost_because: str | None = None) -> None:
        """End the membership, and join again in the next poll."""
        with self._lock:
            self._reset(reason, reset_member_id, lost_because)
        self._log.info("Membership reset%s: %s", "" if reset_member_id else ", keeping the member id", reason)

    def reset_if_unchanged(self, sent: Generation, reason: str, *, reset_member_id: bool, lost_because: str) -> bool:
        """Do the same as ``reset_and_rejoin`` if ``sent`` is still the generation.

        A response to a request of an old generation is irrelevant.
        """
        with self._lock:
            if self._generation != sent:
                return False
            self._reset(reason, reset_member_id, lost_because)
        self._log.info("Membership reset%s: %s", "" if reset_member_id else ", keeping the member id", reason)
        return True

    def reset_unless_rebalancing_anew(
        self, sent: Generation, reason: str, *, reset_member_id: bool, lost_because: str
    ) -> bool:
        """Do the same as ``reset_and_rejoin``, unless a rebalance has started since ``sent`` was the generation."""
        with self._lock:
            if self._generation != sent and self.state is PREPARING_REBALANCE:
                return False
            self._reset(reason, reset_member_id, lost_because)
        self._log.info("Membership reset%s: %s", "" if reset_member_id else ", keeping the member id", reason)
        return True

    def _reset(self, reason: str, reset_member_id: bool, lost_because: str | None) -> None:
        self.state = move(self.state, UNJOINED)
        if lost_because is not None:
            self._lost_because = lost_because
            self._lost_generation = self._generation.generation_id
        # Keep a member id that may be valid: a new member would have to wait for its old id's session to expire.
        member_id = NO_GENERATION.member_id if reset_member_id else self._generation.member_id
        self._generation = Generation(NO_GENERATION.generation_id, member_id, None)
        self._rejoin_reason = reason
        self._rejoin_needed = True
        self._needs_join_prepare = True

    # --- the heartbeat -----------------------------------------------------------------------------------------------

    def poll_heartbeat(self, now_ms: int, call_ms: int = 0) -> bool:
        """Record that the application is alive, in a call that waits for ``call_ms`` at most.

        Return True if a heartbeat is due earlier than before: now, instead of in the middle of the call.
        """
        with self._lock:
            return self.heartbeat.poll(now_ms, call_ms)

    def receive_heartbeat(self) -> None:
        with self._lock:
            self.heartbeat.receive_heartbeat()

    def fail_heartbeat(self) -> None:
        with self._lock:
            self.heartbeat.fail_heartbeat()
            self._signal()

    def coordinator_found(self) -> None:
        """Restart the session, and send a due heartbeat, now that the coordinator is known."""
        with self._lock:
            self.heartbeat.reset_session_timeout()
            self._signal()

    def time_to_next_event(self, now_ms: int) -> int:
        """Return the milliseconds until a heartbeat is due or a timer of the membership expires."""
        with self._lock:
            return self.heartbeat.time_to_next_event(now_ms)

    def next_action(self, now_ms: int) -> tuple[str, int]:
        """Return what must be done now, and the milliseconds until the next call if nothing is signalled before.

        A call that returns BEAT counts as sending a heartbeat.
        """
        with self._lock:
            heartbeat = self.heartbeat
            if heartbeat.session_timeout_expired(now_ms):
                heartbeat.reset_session_timeout()
                return SESSION_EXPIRED, 0
            if heartbeat.poll_timeout_expired(now_ms):
                return POLL_EXPIRED, 0
            if heartbeat.should_heartbeat(now_ms):
                heartbeat.sent_heartbeat(now_ms)
                return BEAT, heartbeat.time_to_next_event(now_ms)
            return REST, heartbeat.time_to_next_event(now_ms)
