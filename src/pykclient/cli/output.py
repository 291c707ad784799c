"""The options of ``pykclient consume``, its filters, and the interface of its outputs."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from pykclient.cli.problems import UsageError
from pykclient.cli.values import Position

if TYPE_CHECKING:
    from pykclient.record.columns import Columns
    from pykclient.record.lines import LineBuffer
    from pykclient.types import ConsumerRecord, Header


class Wanted(NamedTuple):
    """The options of ``consume``."""

    topics: tuple[str, ...]
    group: str | None
    start: Position | None
    stop: Position | None
    most: int | None
    partitions: tuple[int, ...]
    form: str
    key_delimiter: bytes | None
    delimiter: bytes
    null: str
    grep: str | None
    key_pattern: str | None
    header_patterns: tuple[str, ...]
    output: str | None


class Filters:
    """The conditions that a record must fulfil.

    Raises:
        UsageError: a pattern is no regular expression.
    """

    def __init__(
        self,
        value: str | None,
        key: str | None,
        headers: Sequence[str],
        from_ms: int | None = None,
        until_ms: int | None = None,
    ) -> None:
        self._value = None if value is None else _pattern(value, "--grep")
        self._key = None if key is None else _pattern(key, "--key")
        pairs = [text.partition("=") for text in headers]
        self._headers = [(name, _pattern(pattern, "--header")) for name, _, pattern in pairs]
        # Producers set timestamps, so they need not be in order within a partition.
        self._from_ms = from_ms
        self._until_ms = until_ms
        self.is_empty = value is None and key is None and not headers and from_ms is None and until_ms is None

    def match(
        self, key: bytes | None, value: bytes | None, headers: Iterable[Header], timestamp_ms: int | None
    ) -> bool:
        """Return True if a record with these fields fulfils all conditions."""
        if self._from_ms is not None and (timestamp_ms is None or timestamp_ms < self._from_ms):
            return False
        if self._until_ms is not None and timestamp_ms is not None and timestamp_ms >= self._until_ms:
            return False
        if self._value is not None and (value is None or not self._value.search(value)):
            return False
        if self._key is not None and (key is None or not self._key.search(key)):
            return False
        if not self._headers:
            return True
        given = list(headers)
        return all(
            any(name == wanted and pattern.search(data or b"") for name, data in given)
            for wanted, pattern in self._headers
        )


def _pattern(text: str, option: str) -> re.Pattern[bytes]:
    try:
        return re.compile(text.encode())
    except re.error as error:
        raise UsageError(f"{option}: {text!r} is no regular expression: {error}") from error


class Output:
    """A destination of records. Thread: owner."""

    #: True if it takes columns, False if it takes records.
    is_columnar = False
    #: The names of the columns that it takes, unless it takes lines.
    columns: Sequence[str] = ()
    #: Where polls put the text of records, if it takes lines.
    lines: LineBuffer | None = None
    #: What a poll for columns returns at most: for text, little enough to stay in the processor's cache.
    max_bytes = 1 << 20

    def write_columns(self, columns: Columns) -> int:
        """Write the rows, and give the memory of the columns back. Return how many rows passed the filters."""
        raise NotImplementedError

    def write(self, record: ConsumerRecord[Any, Any]) -> bool:
        """Write a record; return False if the filters leave it out."""
        raise NotImplementedError

    def flush(self) -> None:
        """Write what is buffered."""

    def close(self) -> None:
        """Write what is buffered, and close the file."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, error_type: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()
