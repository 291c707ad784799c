"""Values of the wrong kind, for every argument of every public method."""

from __future__ import annotations

import enum
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa


class Text(str):
    """A subclass of str that equals nothing."""

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        return False

    def __ne__(self, other: object) -> bool:
        return True

    __hash__ = str.__hash__


class Names(str, enum.Enum):  # noqa: UP042 - as programs for Python 3.10 write it
    ORDERS = "orders"


class Number(enum.IntEnum):
    ONE = 1


class Opaque:
    """An object that raises from every operation."""

    def __bool__(self) -> bool:
        raise TypeError("no truth value")

    def __repr__(self) -> str:
        raise TypeError("no text")

    def __len__(self) -> int:
        raise TypeError("no length")

    def __getitem__(self, place: object) -> object:
        raise TypeError("no items")


HOSTILE: list[Any] = [
    None,
    *(True, False, -1, 0, 1, 7, 1 << 31, 1 << 40, 1 << 63, 10**5000, -(10**5000), Number.ONE),
    *(-0.5, 0.0, 1.0, 4 / 2, 1e300, float("nan"), float("inf"), float("-inf")),
    *(Decimal("NaN"), Decimal(1), Fraction(1, 3), 1j),
    *("", "1", "orders\ud800", "x" * 300, Text("orders"), Names.ORDERS),
    *(b"", b"1", bytearray(b"1"), memoryview(b"1"), memoryview(b"12345678").cast("i")),
    *(np.int64(1), np.uint8(1), np.int32(-1), np.float32(0.5), np.float64("nan"), np.bool_(True), np.str_("a")),
    *(np.array(1), np.array(1.5), np.array([1, 2]), np.array([b"a"]), np.array([]), np.datetime64("2024-01-01")),
    *(
        [],
        (),
        {},
        set(),
        [None],
        [1],
        [b"a"],
        ["a"],
        [("a", 1)],
        [("a",)],
        [(b"a", b"b")],
        [["a", b"b"]],
        [("\ud800", b"")],
    ),
    *({"a": b"b"}, [[("a", b"b")]], [[("a", 1)]], [5, None], [-1], [1.5], [True], [1 << 70], [np.int64(1)]),
    *(pa.array([1]), pa.array([b"a"]), pa.array([1.5]), pa.array([None]), pa.array([1 << 40]), pa.table({"a": [b"1"]})),
    *(pa.scalar(1), Exception("x"), object(), Opaque(), len, iter(()), type, ...),
]
