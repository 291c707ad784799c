"""The settings for fetching from share groups (Java: ShareFetchConfig)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pykclient.record.compression import DEFAULT_MAX_DECOMPRESSED_BYTES

if TYPE_CHECKING:
    from pykclient.config.abstract_config import AbstractConfig

#: Brokers return whole batches, so there may be more than ``max.poll.records`` records.
BATCH_OPTIMIZED: Final = 0
#: Brokers return at most ``max.poll.records`` records (KIP-1206).
RECORD_LIMIT: Final = 1

_ACQUIRE_MODES = {"batch_optimized": BATCH_OPTIMIZED, "record_limit": RECORD_LIMIT}


class ShareFetchConfig:
    """The settings of fetches: sizes in bytes, and waits. Thread: any."""

    __slots__ = (
        "acquire_mode",
        "check_crcs",
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
        max_poll_records: int = 500,
        check_crcs: bool = True,
        max_decompressed_bytes: int = DEFAULT_MAX_DECOMPRESSED_BYTES,
        retry_backoff_ms: int = 100,
        acquire_mode: int = BATCH_OPTIMIZED,
    ) -> None:
        self.min_bytes = min_bytes
        self.max_bytes = max_bytes
        self.max_wait_ms = max_wait_ms
        self.max_poll_records = max_poll_records
        self.check_crcs = check_crcs
        self.max_decompressed_bytes = max_decompressed_bytes
        self.retry_backoff_ms = retry_backoff_ms
        self.acquire_mode = acquire_mode

    @classmethod
    def from_config(cls, config: AbstractConfig) -> ShareFetchConfig:
        """Return the settings of a share consumer's configuration."""
        return cls(
            min_bytes=config.get_int("fetch.min.bytes"),
            max_bytes=config.get_int("fetch.max.bytes"),
            max_wait_ms=config.get_int("fetch.max.wait.ms"),
            max_poll_records=config.get_int("max.poll.records"),
            check_crcs=config.get_bool("check.crcs"),
            max_decompressed_bytes=config.get_int("max.decompressed.batch.bytes"),
            retry_backoff_ms=config.get_int("retry.backoff.ms"),
            acquire_mode=_ACQUIRE_MODES[config.get_str("share.acquire.mode").lower()],
        )
