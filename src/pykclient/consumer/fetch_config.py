"""The settings for fetching (Java: FetchConfig)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pykclient.record.compression import DEFAULT_MAX_DECOMPRESSED_BYTES

if TYPE_CHECKING:
    from pykclient.config.abstract_config import AbstractConfig

READ_UNCOMMITTED = 0
READ_COMMITTED = 1

_ISOLATION_LEVELS = {"read_uncommitted": READ_UNCOMMITTED, "read_committed": READ_COMMITTED}


class FetchConfig:
    """The settings of fetches: sizes in bytes, waits, and isolation. Thread: any."""

    __slots__ = (
        "check_crcs",
        "client_rack_id",
        "fetch_size",
        "isolation_level",
        "max_bytes",
        "max_decompressed_bytes",
        "max_poll_records",
        "max_wait_ms",
        "min_bytes",
        "retry_backoff_ms",
    )

    def __init__(
        self,
        *,
        min_bytes: int = 1,
        max_bytes: int = 52_428_800,
        max_wait_ms: int = 500,
        fetch_size: int = 1_048_576,
        max_poll_records: int = 500,
        check_crcs: bool = True,
        client_rack_id: str = "",
        isolation_level: int = READ_UNCOMMITTED,
        max_decompressed_bytes: int = DEFAULT_MAX_DECOMPRESSED_BYTES,
        retry_backoff_ms: int = 100,
    ) -> None:
        self.min_bytes = min_bytes
        self.max_bytes = max_bytes
        self.max_wait_ms = max_wait_ms
        self.fetch_size = fetch_size
        self.max_poll_records = max_poll_records
        self.check_crcs = check_crcs
        self.client_rack_id = client_rack_id
        self.isolation_level = isolation_level
        self.max_decompressed_bytes = max_decompressed_bytes
        self.retry_backoff_ms = retry_backoff_ms

    @classmethod
    def from_config(cls, config: AbstractConfig) -> FetchConfig:
        """Return the settings of a consumer's configuration."""
        return cls(
            min_bytes=config.get_int("fetch.min.bytes"),
            max_bytes=config.get_int("fetch.max.bytes"),
            max_wait_ms=config.get_int("fetch.max.wait.ms"),
            fetch_size=config.get_int("max.partition.fetch.bytes"),
            max_poll_records=config.get_int("max.poll.records"),
            check_crcs=config.get_bool("check.crcs"),
            client_rack_id=config.get_str("client.rack"),
            isolation_level=isolation_level(config.get_str("isolation.level")),
            max_decompressed_bytes=config.get_int("max.decompressed.batch.bytes"),
            retry_backoff_ms=config.get_int("retry.backoff.ms"),
        )


def isolation_level(name: str) -> int:
    """Return the protocol's number for a value of ``isolation.level``."""
    return _ISOLATION_LEVELS[name.lower()]
