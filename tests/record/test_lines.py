"""Lines to columns, in both implementations."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, strategies as st

from tests.support.twins import load

_NAMES = ("pykclient.record.lines", "pykclient.record.row_columns")

#: Texts in which delimiters of one and of two bytes are frequent, whole and cut off.
texts = st.text("ab;=\n", max_size=60).map(str.encode)
delimiters = st.sampled_from([b"\n", b";", b";=", b"aa", b"a"])


def rows(modules: dict[str, Any], parts: Any) -> list[bytes | None] | None:
    if parts is None:
        return None
    column = modules["pykclient.record.row_columns"].BytesColumn(len(parts[0]) - 1, *parts)
    return [column[row] for row in range(len(column))]


def split(implementation: str, *arguments: Any) -> tuple[list[bytes | None] | None, list[bytes | None] | None]:
    modules = load(implementation, _NAMES)
    keys, values = modules["pykclient.record.lines"].split_lines(*arguments)
    return rows(modules, keys), rows(modules, values)


@given(texts, delimiters, st.none() | delimiters, st.booleans())
def test_python_and_c_split_lines_alike(
    data: bytes, delimiter: bytes, between: bytes | None, empty_is_null: bool
) -> None:
    arguments = data, delimiter, between, empty_is_null
    assert split("c", *arguments) == split("python", *arguments)


@pytest.mark.parametrize("implementation", ["c", "python"])
def test_lines_are_split_into_keys_and_values(implementation: str) -> None:
    assert split(implementation, b"", b"\n", None, False) == (None, [])
    assert split(implementation, b"a\n\nb", b"\n", None, False) == (None, [b"a", b"", b"b"])
    assert split(implementation, b"a\n\nb\n", b"\n", None, True) == (None, [b"a", None, b"b"])
    assert split(implementation, b"\n" * 999, b"\n", None, False) == (None, [b""] * 999)
    assert split(implementation, b"a\n\n" * 999, b"\n", None, True) == (None, [b"a", None] * 999)
    assert split(implementation, memoryview(b"a\nb")[:2], b"\n", None, False) == (None, [b"a"])
    assert split(implementation, b"k=v=w\nx\n=\n", b"\n", b"=", False) == ([b"k", None, b""], [b"v=w", b"x", b""])
    assert split(implementation, b"k=v\n=\n", b"\n", b"=", True) == ([b"k", None], [b"v", None])
    for delimiter, between in ((b"", None), (b"\n", b"")):
        with pytest.raises(ValueError, match="empty separator"):
            split(implementation, b"a", delimiter, between, False)
