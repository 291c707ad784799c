"""Cursors that decode in one form, whichever this process runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

from pykclient.record import record_cursor
from pykclient.record.record_cursor import RecordCursor
from pykclient.types import ConsumerRecord
from tests.support.twins import both_forms


class _CursorInOneForm(RecordCursor):
    """Sets the decoder for each call. Thread: the test's."""

    __slots__ = ()
    _decode_into: ClassVar[Callable[..., None]]

    def next_records(self, max_records: int) -> list[ConsumerRecord[Any, Any]]:
        before = record_cursor.decode_into
        vars(record_cursor)["decode_into"] = type(self)._decode_into
        try:
            return super().next_records(max_records)
        finally:
            vars(record_cursor)["decode_into"] = before


_PYTHON, _COMPILED = both_forms(record_cursor.__name__, "decode_into")


class CompiledCursor(_CursorInOneForm):
    """A cursor with the compiled decoder. Thread: the test's."""

    __slots__ = ()
    _decode_into = staticmethod(_COMPILED)


class PythonCursor(_CursorInOneForm):
    """A cursor with the decoder in Python. Thread: the test's."""

    __slots__ = ()
    _decode_into = staticmethod(_PYTHON)
