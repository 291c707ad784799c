"""The result for one partition of a produce request (Java: ProduceResponse.PartitionResponse)."""

from __future__ import annotations

from collections.abc import Mapping

from pykclient.producer.future import NO_OFFSET, NO_TIMESTAMP

#: For ``leader_id`` and ``leader_epoch``: the response has none.
NO_LEADER = -1


class PartitionResponse:
    """The result for one partition: its part of the response, or an error that stands for a missing response."""

    __slots__ = (
        "base_offset",
        "error_code",
        "error_message",
        "leader_epoch",
        "leader_id",
        "log_append_time_ms",
        "log_start_offset",
        "record_errors",
    )

    def __init__(
        self,
        error_code: int,
        base_offset: int = NO_OFFSET,
        log_append_time_ms: int = NO_TIMESTAMP,
        log_start_offset: int = NO_OFFSET,
        error_message: str | None = None,
        record_errors: Mapping[int, str | None] | None = None,
        leader_id: int = NO_LEADER,
        leader_epoch: int = NO_LEADER,
    ) -> None:
        self.error_code = error_code
        self.base_offset = base_offset
        self.log_append_time_ms = log_append_time_ms
        self.log_start_offset = log_start_offset
        self.error_message = error_message
        #: The error message per invalid record, by the record's index in the batch (KIP-467).
        self.record_errors = record_errors
        self.leader_id = leader_id
        self.leader_epoch = leader_epoch
