"""A membership in a group by either protocol: its settings, the interface to its state, and its lock and signals."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Final, Protocol

from pykclient.clock import Clock
from pykclient.errors import FencedInstanceIdError, KafkaError, RetriableError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pykclient.config.consumer_config import ConsumerConfig
    from pykclient.consumer.coordinator.member_state import Generation, MemberState

#: The value of ``group.protocol`` for the protocol of KIP-848; ``classic`` is the other one.
CONSUMER: Final = "consumer"


class GroupRebalanceConfig:
    """The settings of a group member. Times are in milliseconds.

    ``rebalance_timeout_ms`` is ``max.poll.interval.ms``. Thread: any.
    """

    __slots__ = (
        "group_id",
        "group_instance_id",
        "group_protocol",
        "group_remote_assignor",
        "heartbeat_interval_ms",
        "max_poll_records",
        "rack_id",
        "rebalance_timeout_ms",
        "retry_backoff_max_ms",
        "retry_backoff_ms",
        "session_timeout_ms",
    )

    def __init__(
        self,
        group_id: str,
        *,
        group_instance_id: str | None = None,
        group_protocol: str = "classic",
        group_remote_assignor: str | None = None,
        session_timeout_ms: int = 45_000,
        rebalance_timeout_ms: int = 300_000,
        heartbeat_interval_ms: int = 3_000,
        rack_id: str | None = None,
        retry_backoff_ms: int = 100,
        retry_backoff_max_ms: int = 1_000,
        max_poll_records: int = 500,
    ) -> None:
        self.group_id = group_id
        self.group_instance_id = group_instance_id
        self.group_protocol = group_protocol
        self.group_remote_assignor = group_remote_assignor
        self.session_timeout_ms = session_timeout_ms
        self.rebalance_timeout_ms = rebalance_timeout_ms
        self.heartbeat_interval_ms = heartbeat_interval_ms
        self.rack_id = rack_id or None
        self.retry_backoff_ms = retry_backoff_ms
        self.retry_backoff_max_ms = retry_backoff_max_ms
        self.max_poll_records = max_poll_records

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
            rack_id=config["client.rack"],
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


class SignalledState:
    """A lock, and a counter of the changes under it that the heartbeat thread must see. Thread: any."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()  # guards: what the subclass names, and the counter
        self._condition = clock.new_condition(self._lock)
        #: A counter that rises with every change that the heartbeat thread must see. A single read needs no lock.
        self.signals = 0

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


class Membership(Protocol):
    """The state of a membership that the managers of a group and the heartbeat thread share. Thread: any."""

    @property
    def state(self) -> MemberState:
        """The state of the member."""

    @property
    def generation(self) -> Generation:
        """The current generation, which may belong to an unfinished rebalance."""

    @property
    def rebalance_in_progress(self) -> bool:
        """True if commits must wait for the end of a rebalance."""

    @property
    def lost_because(self) -> str | None:
        """The reason why the last membership ended, unless the application ended it."""

    @property
    def lost_generation(self) -> int | None:
        """The generation, or member epoch, in which the last membership ended, unless the application ended it."""

    @property
    def last_rebalance_end_ms(self) -> int | None:
        """The time of the last successful rebalance."""

    @property
    def last_poll_ms(self) -> int:
        """The time of the application's last poll."""

    @property
    def last_send_ms(self) -> int | None:
        """The time when the last heartbeat was sent."""

    @property
    def heartbeat_in_flight(self) -> bool:
        """True while the coordinator has not answered a heartbeat."""

    @property
    def signals(self) -> int:
        """A counter that rises with every change that the heartbeat thread must see."""

    def signal(self) -> None:
        """Make the heartbeat thread check again."""

    def wait_for_signal(self, seen: int, timeout_ms: int) -> None:
        """Wait until ``signals`` is not ``seen``, or for ``timeout_ms``."""

    def time_to_next_event(self, now_ms: int) -> int:
        """Return the milliseconds until a heartbeat is due or a timer of the membership expires."""

    def coordinator_found(self) -> None:
        """Record that the coordinator is known again."""

    def poll_heartbeat(self, now_ms: int, call_ms: int = 0) -> bool:
        """Record that the application is alive, in a call that waits for ``call_ms`` at most.

        Return True if a heartbeat is due earlier than before: now, instead of in the middle of the call.
        """

    def generation_if_stable(self) -> Generation | None:
        """Return the generation to commit in, or None if this member cannot commit now."""

    def generation_for_fetches(self) -> Generation | None:
        """Return the generation for OffsetFetch, or None if the protocol has none."""

    def snapshot(self) -> tuple[Generation, MemberState]:
        """Return generation and state of the same moment."""

    def request_rejoin(self, short_reason: str, full_reason: str | None = None) -> None:
        """Rebalance the group in the next poll, if the protocol lets members decide."""

    def reset_unless_rebalancing_anew(
        self, sent: Generation, reason: str, *, reset_member_id: bool, lost_because: str
    ) -> bool:
        """End the membership, and join again in the next poll. Return False if it has changed since ``sent``."""
