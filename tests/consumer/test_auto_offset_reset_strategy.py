from __future__ import annotations

import pytest

from pykclient.consumer.values import AutoOffsetResetStrategy
from pykclient.errors import IllegalArgumentError


@pytest.mark.parametrize(
    ("text", "timestamp"),
    [
        ("earliest", -2),
        ("latest", -1),
        ("none", None),
        ("by_duration:PT1H", 1_000_000_000 - 3_600_000),
        ("by_duration:P1DT2H3M4.5S", 1_000_000_000 - 93_784_500),
        ("by_duration:PT0S", 1_000_000_000),
        ("by_duration:P10000D", 0),
    ],
)
def test_strategy_has_timestamp(text: str, timestamp: int | None) -> None:
    assert AutoOffsetResetStrategy.from_string(text).timestamp(1_000_000_000) == timestamp


@pytest.mark.parametrize(
    "text", ["", "Latest", "by_duration", "by_duration:", "by_duration:1h", "by_duration:PT-1H", "x"]
)
def test_unknown_strategies_are_refused(text: str) -> None:
    with pytest.raises(IllegalArgumentError):
        AutoOffsetResetStrategy.from_string(text)


def test_equal_durations_are_equal_strategies() -> None:
    hour = AutoOffsetResetStrategy.from_string("by_duration:PT1H")
    assert hour == AutoOffsetResetStrategy.from_string("by_duration:PT60M")
    assert len({hour, AutoOffsetResetStrategy.from_string("by_duration:PT60M")}) == 1
    assert hour != AutoOffsetResetStrategy.from_string("by_duration:PT61M")
    assert AutoOffsetResetStrategy.from_string("earliest") is AutoOffsetResetStrategy.EARLIEST
    assert str(hour) == "by_duration of 3600000 ms"
