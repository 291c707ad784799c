from collections.abc import Sequence

from pykclient.record.record_batch import Buffer
from pykclient.record.row_columns import BytesColumn, Encoded, Gathered, Rows

def encode_rows(
    target: bytearray,
    position: int,
    rows: Rows,
    indices: memoryview | None,
    first: int,
    stop: int,
    base_timestamp: int,
    offset_delta: int,
    size: int,
    size_factor: float,
    room: int,
    max_size: int,
    size_limit: int,
) -> Encoded: ...
def upper_bound(rows: Rows, start: int, stop: int) -> int: ...
def oversized(rows: Rows, start: int, stop: int, limit: int) -> list[int]: ...
def group_rows(numbers: memoryview, start: int, stop: int) -> list[tuple[int, memoryview]]: ...
def hash_partitions(keys: BytesColumn | None, start: int, stop: int, count: int, numbers: memoryview) -> None: ...
def gather(values: Sequence[Buffer | None]) -> Gathered: ...
def gather_headers(places: memoryview, names: BytesColumn, values: BytesColumn) -> Gathered: ...
