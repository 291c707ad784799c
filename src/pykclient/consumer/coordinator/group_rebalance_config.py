"""The settings of group membership (Java: GroupRebalanceConfig)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pykclient.config.consumer_config import ConsumerConfig

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
