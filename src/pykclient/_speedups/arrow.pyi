from collections.abc import Callable
from typing import Any

from pykclient.record.columns import Columns

def arrays(columns: Columns, types: tuple[Any, ...], import_array: Callable[[int, Any], Any]) -> list[Any]: ...
