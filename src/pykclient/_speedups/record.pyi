from collections.abc import Callable
from typing import Any

from pykclient.types import ConsumerRecord as ConsumerRecord

def decode(
    data: bytes | memoryview,
    pos: int,
    remaining: int,
    max_records: int,
    next_offset: int,
    base_offset: int,
    base_timestamp: int,
    log_append_time: int | None,
    timestamp_type: int,
    epoch: int | None,
    owner: tuple[str, int, Callable[..., Any] | None, Callable[..., Any] | None],
    records: list[ConsumerRecord[Any, Any]],
    deserialization_error: Callable[..., Exception],
) -> tuple[int, int, int, int, BaseException | None]: ...
def summarize(data: bytes | memoryview, count: int, base_timestamp: int) -> tuple[int, int, bool, bool] | None: ...
