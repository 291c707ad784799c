"""What a member knows of its membership, shared by the application and the heartbeat thread.

Java: the synchronized fields of AbstractCoordinator. Here they are apart from all input and output: each method is one
step under the lock, so that no thread ever waits for the network while it holds it.
"""

from __future__ import annotations

import threading

from pykclient.clock import FOREVER_MS, Clock
from pykclient.consumer.coordinator.group_rebalance_config import GroupRebalanceConfig
from pykclient.consumer.coordinator.heartbeat import Heartbeat
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
from pykclient.log_context import LogContext
from pykclient.network.exponential_backoff import ExponentialBackoff

#: What ``next_action`` tells the heartbeat thread.
REST = "rest"
BEAT = "beat"
SESSION_EXPIRED = "session expired"
POLL_EXPIRED = "poll expired"


class GroupMembership:
    """State, generation, the wish to join again, and the heartbeat's timers. Thread: any."""

    def __init__(
        self,
        config: GroupRebalanceConfig,
        log_context: LogContext,
        clock: Clock,
        retry_backoff: ExponentialBackoff,
    ) -> None:
        self._log = log_context.logger(__name__)
        self._clock = clock
        self._lock = threading.Lock()  # guards: all below
        self._condition = clock.new_condition(self._lock)
        self.heartbeat = Heartbeat(config, clock, retry_backoff)
        self._state = UNJOINED
        self._generation = NO_GENERATION
        self._rejoin_needed = True
        self._rejoin_reason = ""
        self._needs_join_prepare = True
        self._lost_because: str | None = None
        self._last_rebalance_start_ms: int | None = None
        self._last_rebalance_end_ms: int | None = None
        self._signals = 0

    # --- waiting -----------------------------------------------------------------------------------------------------

    @property
    def signals(self) -> int:
        """Rises with everything that the heartbeat thread has to look at again."""
        return self._signals

    def signal(self) -> None:
        """Let the heartbeat thread look again."""
        with self._lock:
            self._signal()

    def _signal(self) -> None:
        self._signals += 1
        self._condition.notify_all()

    def wait_for_signal(self, seen: int, timeout_ms: int) -> None:
        """Wait until ``signals`` is not ``seen``, or for ``timeout_ms``.

        ``seen`` was read before the caller decided to wait, so that a signal given since then is not slept through.
        """
        with self._lock:
            if self._signals == seen:
                self._clock.wait(self._condition, timeout_ms)

    # --- questions; single reads, which need no lock -----------------------------------------------------------------

    @property
    def state(self) -> MemberState:
        return self._state

    @property
    def generation(self) -> Generation:
        """The present generation; it may belong to a rebalance that is not over."""
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
        """Why the last membership ended, if it ended against the application's will."""
        return self._lost_because

    @property
    def last_rebalance_end_ms(self) -> int | None:
        return self._last_rebalance_end_ms

    @property
    def rebalance_in_progress(self) -> bool:
        return self._state is PREPARING_REBALANCE or self._state is COMPLETING_REBALANCE

    def generation_if_stable(self) -> Generation | None:
        with self._lock:
            return self._generation if self._state is STABLE else None

    def snapshot(self) -> tuple[Generation, MemberState]:
        """Generation and state of one moment."""
        with self._lock:
            return self._generation, self._state

    # --- the rebalance -----------------------------------------------------------------------------------------------

    def take_join_prepare(self) -> bool:
        """Whether the application's part before a join is still to be done; it is taken by asking."""
        with self._lock:
            needed = self._needs_join_prepare
            self._needs_join_prepare = False
            return needed

    def need_join_prepare(self) -> None:
        with self._lock:
            self._needs_join_prepare = True

    def begin_rebalance(self) -> tuple[Generation, str]:
        """JoinGroup is about to be sent, with this generation and reason."""
        with self._lock:
            self._state = move(self._state, PREPARING_REBALANCE)
            if self._last_rebalance_start_ms is None:  # attempts that failed belong to the same rebalance
                self._last_rebalance_start_ms = self._clock.now_ms()
            return self._generation, self._rejoin_reason

    def joined(self, generation: Generation) -> bool:
        """JoinGroup was answered. False when the application has left the group meanwhile."""
        with self._lock:
            if self._state is not PREPARING_REBALANCE:
                return False
            self._state = move(self._state, COMPLETING_REBALANCE)
            self._generation = generation
            self.heartbeat.reset_timeouts()
            self._signal()  # there is something to beat for
            return True

    def member_id_assigned(self, member_id: str) -> None:
        """The coordinator wants the next JoinGroup to carry this id (KIP-394)."""
        with self._lock:
            self._generation = Generation(NO_GENERATION.generation_id, member_id, None)
        self.request_rejoin(f"need to re-join with the given member-id: {member_id}")

    def synced(self, sent: Generation) -> tuple[bool, int]:
        """SyncGroup was answered. Whether the rebalance is complete, and how long it took in milliseconds.

        It is not when the heartbeat has ended the membership meanwhile.
        """
        with self._lock:
            if self._generation != sent or self._state is not COMPLETING_REBALANCE:
                return False, 0
            self._state = move(self._state, STABLE)
            self._rejoin_reason = ""
            self._rejoin_needed = False
            self._lost_because = None
            end_ms = self._last_rebalance_end_ms = self._clock.now_ms()
            start_ms = end_ms if self._last_rebalance_start_ms is None else self._last_rebalance_start_ms
            self._last_rebalance_start_ms = None
            return True, end_ms - start_ms

    def request_rejoin(self, short_reason: str, full_reason: str | None = None) -> None:
        """Join again with the next poll. The coordinator is told ``short_reason`` (KIP-800), the log the full one."""
        with self._lock:
            self._rejoin_reason = short_reason
            self._rejoin_needed = True
        self._log.info("Going to join the group again: %s", full_reason or short_reason)

    def request_rejoin_if_necessary(self, short_reason: str, full_reason: str) -> None:
        """As ``request_rejoin``, unless that is going to happen anyway."""
        if not self._rejoin_needed:
            self.request_rejoin(short_reason, full_reason)

    def request_rejoin_if_stable(self, short_reason: str) -> bool:
        """The coordinator says that others rebalance; False when this member is in the middle of it already."""
        with self._lock:
            if self._state is not STABLE:
                return False
            self._rejoin_reason = short_reason
            self._rejoin_needed = True
        self._log.info("Going to join the group again: %s", short_reason)
        return True

    # --- the end of a membership -------------------------------------------------------------------------------------

    def reset_and_rejoin(self, reason: str, *, reset_member_id: bool, lost_because: str | None = None) -> None:
        """The membership has ended; start anew with the next poll."""
        with self._lock:
            self._reset(reason, reset_member_id, lost_because)
        self._log.info("Membership reset%s: %s", "" if reset_member_id else ", keeping the member id", reason)

    def reset_if_unchanged(self, sent: Generation, reason: str, *, reset_member_id: bool, lost_because: str) -> bool:
        """As ``reset_and_rejoin``, if ``sent`` is still the generation: an answer to an old one means nothing now."""
        with self._lock:
            if self._generation != sent:
                return False
            self._reset(reason, reset_member_id, lost_because)
        self._log.info("Membership reset%s: %s", "" if reset_member_id else ", keeping the member id", reason)
        return True

    def reset_unless_rebalancing_anew(
        self, sent: Generation, reason: str, *, reset_member_id: bool, lost_because: str
    ) -> bool:
        """As ``reset_and_rejoin``, unless a rebalance has started since ``sent`` was the generation."""
        with self._lock:
            if self._generation != sent and self._state is PREPARING_REBALANCE:
                return False
            self._reset(reason, reset_member_id, lost_because)
        self._log.info("Membership reset%s: %s", "" if reset_member_id else ", keeping the member id", reason)
        return True

    def _reset(self, reason: str, reset_member_id: bool, lost_because: str | None) -> None:
        self._state = move(self._state, UNJOINED)
        # A member id that may be valid is kept: as a new member it would have to wait for its old self to time out.
        member_id = NO_GENERATION.member_id if reset_member_id else self._generation.member_id
        self._generation = Generation(NO_GENERATION.generation_id, member_id, None)
        self._rejoin_reason = reason
        self._rejoin_needed = True
        self._needs_join_prepare = True
        if lost_because is not None:
            self._lost_because = lost_because

    # --- the heartbeat -----------------------------------------------------------------------------------------------

    def poll_heartbeat(self, now_ms: int) -> None:
        """The application is alive."""
        with self._lock:
            self.heartbeat.poll(now_ms)

    def receive_heartbeat(self) -> None:
        with self._lock:
            self.heartbeat.receive_heartbeat()

    def fail_heartbeat(self) -> None:
        with self._lock:
            self.heartbeat.fail_heartbeat()
            self._signal()

    def coordinator_found(self) -> None:
        """The session's time counts anew, and a heartbeat that is due can be sent: until then no poll would wait."""
        with self._lock:
            self.heartbeat.reset_session_timeout()
            self._signal()

    def time_to_next_heartbeat(self, now_ms: int) -> int:
        """Milliseconds, without bound for who is not a member."""
        with self._lock:
            return FOREVER_MS if self._state.has_not_joined_group else self.heartbeat.time_to_next_heartbeat(now_ms)

    def next_action(self, now_ms: int) -> tuple[str, int]:
        """What the heartbeat thread has to do now, and how long it may sleep before it asks again.

        Asking for BEAT counts as sending one.
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
