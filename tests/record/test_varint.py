from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from pykclient.errors import CorruptRecordError, IllegalArgumentError
from pykclient.record.record_batch import (
    VARINTS,
    Varints,
    encode_varint,
    read_varint,
    rest_of_varlong,
    size_of_varint,
)


@pytest.mark.parametrize(
    ("number", "encoded"),
    [
        (0, "00"),
        (-1, "01"),
        (1, "02"),
        (63, "7e"),
        (-64, "7f"),
        (64, "8001"),
        (-65, "8101"),
        (8191, "fe7f"),
        (8192, "808001"),
        ((1 << 31) - 1, "feffffff0f"),
        (-(1 << 31), "ffffffff0f"),
        ((1 << 63) - 1, "feffffffffffffffff01"),
        (-(1 << 63), "ffffffffffffffffff01"),
    ],
)
def test_varints_have_expected_bytes(number: int, encoded: str) -> None:
    assert encode_varint(number).hex() == encoded
    assert VARINTS[number].hex() == encoded
    assert size_of_varint(number) == len(encoded) // 2


@given(st.integers(-(1 << 31), (1 << 31) - 1))
def test_int32_varints_round_trip(number: int) -> None:
    encoded = VARINTS[number]
    assert encoded == encode_varint(number)
    assert read_varint(b"\xff" + encoded + b"\xff", 1) == (number, 1 + len(encoded))
    assert size_of_varint(number) == len(encoded)


def test_varint_table_keeps_only_small_numbers() -> None:
    table = Varints()
    for number in (0, 100, 8191, 8192, 1 << 40, -1, -5):
        for _ in range(2):
            assert table[number] == encode_varint(number)
    assert sorted(table) == [0, 100, 8191]


@pytest.mark.parametrize("number", [1 << 63, -(1 << 63) - 1])
def test_numbers_over_64_bits_are_refused(number: int) -> None:
    with pytest.raises(IllegalArgumentError, match="does not fit 64 bits"):
        encode_varint(number)


def test_too_long_varints_are_refused() -> None:
    with pytest.raises(CorruptRecordError, match="more than 5 bytes"):
        read_varint(b"\x80" * 5 + b"\x00", 0)
    assert rest_of_varlong(b"\x80" * 9 + b"\x00", 1, 0x80) == (0, 10)
    with pytest.raises(CorruptRecordError, match="more than 10 bytes"):
        rest_of_varlong(b"\x80" * 10 + b"\x00", 1, 0x80)


@pytest.mark.parametrize("cut", range(5))
def test_truncated_varint_raises_index_error(cut: int) -> None:
    with pytest.raises(IndexError):
        read_varint(encode_varint((1 << 31) - 1)[:cut], 0)
