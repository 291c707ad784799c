from collections.abc import Callable

from pykclient.record.columns import Columns
from pykclient.record.record_batch import Buffer

def decode(
    data: Buffer,
    pos: int,
    remaining: int,
    max_rows: int,
    next_offset: int,
    base_offset: int,
    base_timestamp: int,
    log_append_time: int | None,
    columns: Columns,
    end_offset: int = ...,
) -> tuple[int, int, int]: ...
def decode_batches(
    records: memoryview,
    pos: int,
    next_offset: int,
    checksum: Callable[[Buffer], int] | None,
    takes_transactional: bool,
    topic: str,
    partition: int,
    columns: Columns,
    max_rows: int,
    end_offset: int = ...,
) -> tuple[int, int, bool, bool, int, int]: ...
