"""Both forms of the cursor, whichever this process runs."""

from __future__ import annotations

from tests.support.twins import both_forms

PythonCursor, CompiledCursor = both_forms("pykclient.record.record_cursor", "RecordCursor")
