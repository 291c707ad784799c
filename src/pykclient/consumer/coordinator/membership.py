"""Membership in a group by either protocol: its states, settings, the interface to its state, and its lock and signals.

The states are tables. Java: AbstractCoordinator.MemberState; there, the transitions are spread over its handlers.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Final, NamedTuple

from pykclient import types
from pykclient.consumer.application_driver import begins_with
from pykclient.errors import FencedInstanceIdError, KafkaError, RetriableError, check_move

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pykclient.clock import Clock
    from pykclient.config.consumer_config import ConsumerConfig
    from pykclient.errors import BrokerError
    from pykclient.log_context import PrefixLogger
    from pykclient.network.exponential_backoff import ExponentialBackoff


class MemberState(NamedTuple):
    """A state. ``reported`` is its name in ``ConsumerGroupMetadata.state``. Thread: any."""

    name: str
    reported: str
    sends_heartbeats: bool

    def __repr__(self) -> str:
        return self.name


#: Not part of the group.
UNJOINED = MemberState("UNJOINED", types.MemberState.UNJOINED, sends_heartbeats=False)
#: JoinGroup is in flight, while the other members join.
PREPARING_REBALANCE = MemberState("PREPARING_REBALANCE", types.MemberState.REBALANCING, sends_heartbeats=False)
#: JoinGroup was answered and SyncGroup is in flight; the coordinator expects heartbeats.
COMPLETING_REBALANCE = MemberState("COMPLETING_REBALANCE", types.MemberState.REBALANCING, sends_heartbeats=True)
#: The member has its assignment. Members by KIP-848 have this state, too.
STABLE = MemberState("STABLE", types.MemberState.STABLE, sends_heartbeats=True)

#: A failed attempt keeps the state until the next JoinGroup, which can start from any state. An error that ends the
#: membership leads to UNJOINED, even if it has ended already.
TRANSITIONS: dict[MemberState, frozenset[MemberState]] = {
    UNJOINED: frozenset((UNJOINED, PREPARING_REBALANCE)),
    PREPARING_REBALANCE: frozenset((UNJOINED, PREPARING_REBALANCE, COMPLETING_REBALANCE)),
    COMPLETING_REBALANCE: frozenset((UNJOINED, PREPARING_REBALANCE, STABLE)),
    STABLE: frozenset((UNJOINED, PREPARING_REBALANCE)),
}


def move(state: MemberState, to: MemberState) -> MemberState:
    """Return ``to``.

    Raises:
        IllegalStateError: the table does not have this transition.
    """
    check_move("a group member", TRANSITIONS, state, to)
    return to


class Generation(NamedTuple):
    """A generation of the group, and the member's id in it."""

    generation_id: int
    member_id: str
    protocol_name: str | None

    @property
    def has_member_id(self) -> bool:
        """True if the member has an id, possibly before it is part of a generation (KIP-394)."""
        return bool(self.member_id)

    @property
    def is_reset(self) -> bool:
        """True if the membership has ended. The member id may outlive it, after ILLEGAL_GENERATION."""
        return self.generation_id == NO_GENERATION.generation_id and self.protocol_name is None

    def __str__(self) -> str:
        protocol = "" if self.protocol_name is None else f", {self.protocol_name}"
        return f"generation {self.generation_id} (member {self.member_id or 'without id'}{protocol})"


NO_GENERATION = Generation(-1, "", None)


#: The value of ``group.protocol`` for the protocol of KIP-848; ``classic`` is the other one.
CONSUMER: Final = "consumer"


class GroupRebalanceConfig(NamedTuple):
    """The settings of a group member. Times are in milliseconds.

    ``rebalance_timeout_ms`` is ``max.poll.interval.ms``. Thread: any.
    """

    group_id: str
    group_instance_id: str | None = None
    group_protocol: str = "classic"
    group_remote_assignor: str | None = None
    session_timeout_ms: int = 45_000
    rebalance_timeout_ms: int = 300_000
    heartbeat_interval_ms: int = 3_000
    rack_id: str | None = None
    retry_backoff_ms: int = 100
    retry_backoff_max_ms: int = 1_000
    max_poll_records: int = 500

    @classmethod
    def from_consumer_config(cls, group_id: str, config: ConsumerConfig) -> GroupRebalanceConfig:
        """Return the settings of a consumer with a ``group.id``."""
        return cls(
            group_id,
            group_instance_id=config["group.instance.id"],
            group_protocol=config["group.protocol"],
            group_remote_assignor=config["group.remote.assignor"],
            session_timeout_ms=config["session.timeout.ms"],
            rebalance_timeout_ms=config["max.poll.interval.ms"],
            heartbeat_interval_ms=config["heartbeat.interval.ms"],
            rack_id=config["client.rack"] or None,
            retry_backoff_ms=config["retry.backoff.ms"],
            retry_backoff_max_ms=config["retry.backoff.max.ms"],
            max_poll_records=config["max.poll.records"],
        )


class StaleMemberError(RetriableError):
    """A request had an outdated epoch. The next heartbeat's response brings the new one."""


def fenced_error(config: GroupRebalanceConfig) -> FencedInstanceIdError:
    return FencedInstanceIdError(
        f"another consumer of group {config.group_id!r} has taken over group.instance.id="
        f"{config.group_instance_id!r}; instance ids must be unique among the members that run"
    )


def raise_first(failures: Sequence[Exception | None]) -> None:
    """Raise the first error of a rebalance listener or assignor, as a KafkaError."""
    for failure in failures:
        if isinstance(failure, KafkaError):
            raise failure
        if failure is not None:
            raise KafkaError(f"the rebalance listener or assignor failed: {failure!r}") from failure


class Membership(ABC):
    """The state of a membership, with the lock that its users share, which are managers and the heartbeat thread.

    Single reads of its public attributes need no lock. Thread: any.
    """

    #: The state of the member.
    state: MemberState

    def __init__(
        self, config: GroupRebalanceConfig, log: PrefixLogger, clock: Clock, retry_backoff: ExponentialBackoff
    ) -> None:
        self._config = config
        self._log = log
        self._clock = clock
        self._retry_backoff = retry_backoff
        self._lock = threading.Lock()  # guards: all below, and what the subclass adds
        self._condition = clock.new_condition(self._lock)
        #: A counter that rises with every change that the heartbeat thread must see.
        self.signals = 0
        #: The current generation, or member epoch, and the member's id. It may belong to an unfinished rebalance.
        self.generation = NO_GENERATION
        #: The reason why the last membership ended, unless the application ended it.
        self.lost_because: str | None = None
        #: The generation, or member epoch, in which the last membership ended, unless the application ended it.
        self.lost_generation: int | None = None
        #: The time of the last successful rebalance.
        self.last_rebalance_end_ms: int | None = None
        #: The time of the application's last poll.
        self.last_poll_ms = clock.now_ms()
        #: The time when the last heartbeat was sent.
        self.last_send_ms: int | None = None
        #: True while the coordinator has not answered a heartbeat.
        self.heartbeat_in_flight = False
        self._rebalance_start_ms: int | None = None  # failed attempts belong to the same rebalance
        self._interval_ms = 0  # between heartbeats
        self._due_ms = 0  # the next heartbeat
        self._poll_end_ms = self.last_poll_ms + config.rebalance_timeout_ms
        self._failures = 0  # of heartbeats, since the last answer

    def signal(self) -> None:
        """Make the heartbeat thread check again."""
        with self._lock:
            self._signal()

    def _signal(self) -> None:
        self.signals += 1
        self._condition.notify_all()

    def wait_for_signal(self, seen: int, timeout_ms: int) -> None:
        """Wait until ``signals`` is not ``seen``, or for ``timeout_ms``.

        The caller reads ``seen`` before it decides to wait, so that it cannot miss a signal in between.
        """
        with self._lock:
            if self.signals == seen:
                self._clock.wait(self._condition, timeout_ms)

    @property
    def rebalance_in_progress(self) -> bool:
        """True if commits must wait for the end of a rebalance. Members by KIP-848 commit also while they reconcile."""
        return self.state is PREPARING_REBALANCE or self.state is COMPLETING_REBALANCE

    def snapshot(self) -> tuple[Generation, MemberState]:
        """Return generation and state of the same moment."""
        with self._lock:
            return self.generation, self.state

    def poll_heartbeat(self, now_ms: int, call_ms: int = 0) -> bool:
        """Record that the application is alive, in a call that waits for ``call_ms`` at most.

        Return True if a heartbeat is due earlier than before: now, instead of in the middle of the call.
        """
        with self._lock:
            self.last_poll_ms = now_ms
            self._poll_end_ms = now_ms + self._config.rebalance_timeout_ms
            if self.state is not STABLE or self.heartbeat_in_flight or self._failures:
                return False
            is_early = begins_with(max(0, self._due_ms - now_ms), call_ms, self._interval_ms)
            if is_early:
                self._due_ms = now_ms
            return is_early

    def coordinator_found(self) -> None:
        """Make polls wait for a due heartbeat again, now that the coordinator is known."""
        with self._lock:
            self._signal()

    def time_to_next_event(self, now_ms: int) -> int:
        """Return the milliseconds until a heartbeat is due or a timer of the membership expires."""
        with self._lock:
            return self._time_to_next_event(now_ms)

    @abstractmethod
    def _time_to_next_event(self, now_ms: int) -> int: ...

    def _sent(self, now_ms: int) -> None:
        self.heartbeat_in_flight = True
        self.last_send_ms = now_ms
        self._due_ms = now_ms + self._interval_ms

    def _rebalance_ended(self) -> int:
        """Record that the member has its assignment; return the duration of the rebalance in milliseconds."""
        self.lost_because = self.lost_generation = None
        end_ms = self.last_rebalance_end_ms = self._clock.now_ms()
        start_ms, self._rebalance_start_ms = self._rebalance_start_ms, None
        return 0 if start_ms is None else end_ms - start_ms

    @abstractmethod
    def generation_if_stable(self) -> Generation | None:
        """Return the generation to commit in, or None if this member cannot commit now."""

    def generation_for_fetches(self) -> Generation | None:
        """Return the generation for OffsetFetch, or None: the classic protocol has none."""
        return None

    @abstractmethod
    def request_rejoin(self, short_reason: str, full_reason: str | None = None) -> None:
        """Rebalance the group in the next poll, if the protocol lets members decide."""

    @abstractmethod
    def reset_unless_rebalancing_anew(self, sent: Generation, error: BrokerError, reason: str) -> bool:
        """End the membership, and join again in the next poll. Return False if it has changed since ``sent``."""
