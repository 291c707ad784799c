from pykclient.record.columns import BinaryBuffers
from pykclient.record.row_columns import Gathered

def split_lines(
    data: bytes | memoryview, delimiter: bytes, key_delimiter: bytes | None, empty_is_null: bool
) -> tuple[Gathered | None, Gathered]: ...
def join_lines(
    keys: BinaryBuffers | None, values: BinaryBuffers, delimiter: bytes, key_delimiter: bytes, null: bytes
) -> bytes | bytearray: ...
