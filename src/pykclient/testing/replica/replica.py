"""A leader's knowledge of one follower (Java: Replica, ReplicaState)."""

from __future__ import annotations

from typing import Final

UNKNOWN_OFFSET: Final = -1
#: Earlier than all times of any clock.
_NEVER_MS: Final = -(1 << 62)


class Replica:
    """The progress of a follower, as its fetches show.

    A follower is caught up at the time of a fetch from the leader's end, or of a fetch from where the leader's end was
    at the previous fetch: it had read everything there was at that time. Thread: loop.
    """

    __slots__ = (
        "broker_epoch",
        "broker_id",
        "last_caught_up_time_ms",
        "last_fetch_leader_log_end_offset",
        "last_fetch_time_ms",
        "log_end_offset",
        "log_start_offset",
    )

    def __init__(self, broker_id: int) -> None:
        self.broker_id = broker_id
        self.log_start_offset = UNKNOWN_OFFSET
        self.log_end_offset = UNKNOWN_OFFSET
        self.last_fetch_leader_log_end_offset = 0
        self.last_fetch_time_ms = _NEVER_MS
        self.last_caught_up_time_ms = _NEVER_MS
        self.broker_epoch = -1

    def update_fetch_state(
        self,
        fetch_offset: int,
        log_start_offset: int,
        now_ms: int,
        leader_end_offset: int,
        broker_epoch: int,
    ) -> None:
        """Record a fetch."""
        if fetch_offset >= leader_end_offset:
            self.last_caught_up_time_ms = max(self.last_caught_up_time_ms, now_ms)
        elif fetch_offset >= self.last_fetch_leader_log_end_offset:
            self.last_caught_up_time_ms = max(self.last_caught_up_time_ms, self.last_fetch_time_ms)
        self.log_start_offset = log_start_offset
        self.log_end_offset = fetch_offset
        self.last_fetch_leader_log_end_offset = leader_end_offset
        self.last_fetch_time_ms = now_ms
        self.broker_epoch = max(self.broker_epoch, broker_epoch)

    def reset(self, now_ms: int, leader_end_offset: int, *, new_leader: bool, in_sync: bool) -> None:
        """Start a new leader epoch. Members of the ISR get time to send a fetch.

        A new leader knows nothing about its followers yet; one that stays leader keeps what it knows.
        """
        caught_up_ms = now_ms if in_sync else _NEVER_MS
        if new_leader:
            self.log_start_offset = UNKNOWN_OFFSET
            self.log_end_offset = UNKNOWN_OFFSET
            self.last_fetch_leader_log_end_offset = UNKNOWN_OFFSET
            self.last_fetch_time_ms = _NEVER_MS
            self.broker_epoch = -1
        else:
            self.last_fetch_leader_log_end_offset = leader_end_offset
            self.last_fetch_time_ms = caught_up_ms
        self.last_caught_up_time_ms = caught_up_ms

    def is_caught_up(self, leader_end_offset: int, now_ms: int, max_lag_ms: int) -> bool:
        """Return whether the follower is at the leader's end, or was within the last ``max_lag_ms``."""
        return leader_end_offset == self.log_end_offset or now_ms - self.last_caught_up_time_ms <= max_lag_ms

    def __repr__(self) -> str:
        return (
            f"Replica({self.broker_id}, offsets {self.log_start_offset}..{self.log_end_offset}, "
            f"caught up at {self.last_caught_up_time_ms})"
        )
