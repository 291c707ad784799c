"""Valid command-line arguments are understood; invalid ones get an error that says what is wrong."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from pykclient.cli import values


@pytest.mark.parametrize(
    ("text", "size"),
    [("65536", 65536), ("1K", 1024), ("512MB", 512 << 20), ("2 gib", 2 << 30), ("1g", 1 << 30), ("7B", 7)],
)
def test_sizes_are_parsed_with_units(text: str, size: int) -> None:
    assert values.size_bytes(text) == size


def test_topic_argument_has_partitions_and_replicas() -> None:
    assert values.topic("orders") == ("orders", None, None)
    assert values.topic("orders:6") == ("orders", 6, None)
    assert values.topic("orders:6:3") == ("orders", 6, 3)


def test_setting_argument_has_key_and_value() -> None:
    assert values.setting("num.partitions=6") == ("num.partitions", "6")
    assert values.setting("a.b = c=d") == ("a.b", "c=d")


@pytest.mark.parametrize(
    ("text", "duration_ms"),
    [("90s", 90_000), ("1h30m", 5_400_000), ("500ms", 500), ("1.5s", 1500), ("2d", 172_800_000), ("PT1H", 3_600_000)],
)
def test_durations_are_parsed_with_units(text: str, duration_ms: int) -> None:
    assert values.duration_ms(text) == duration_ms


def test_times_are_parsed_as_epoch_iso_or_relative() -> None:
    assert values.time_ms("1769860800000") == 1769860800000
    assert values.time_ms("2026-01-31T12:00:00+00:00") == 1769860800000
    assert values.time_ms("now") - values.time_ms("-1h") in range(3_590_000, 3_600_001)


def test_positions_are_parsed() -> None:
    assert values.position("beginning") == values.position("earliest") == ("beginning", 0)
    assert values.position("latest") == ("end", 0)
    assert values.position("12") == ("offset", 12)
    assert values.position("-12") == ("last", 12)
    assert values.position("@12") == ("time", 12)


def test_delimiters_are_unescaped() -> None:
    assert values.delimiter(r"\t") == b"\t"
    assert values.delimiter(r"\x1f\\n") == b"\x1f\\n"
    assert values.delimiter("ä;") == "ä;".encode()
    for text in ("", r"\q", "a\\"):
        with pytest.raises(ValueError, match=r"empty|escape"):
            values.delimiter(text)


@pytest.mark.parametrize(
    ("parse", "text"),
    [
        *((values.size_bytes, text) for text in ("", "MB", "0", "-1MB", "1.5GB", "1TB")),
        *((values.topic, text) for text in ("", ":3", "orders:0", "orders:x", "orders:", "orders:1:2:3")),
        *((values.setting, text) for text in ("", "num.partitions", "=6")),
        *((values.port, text) for text in ("", "-1", "65536", "http")),
        *((values.duration_ms, text) for text in ("", "1", "s", "1y", "P", "PT", "-1s")),
        *((values.time_ms, text) for text in ("", "soon", "2026-13-01", "-soon", "-1")),
        *((values.position, text) for text in ("", "middle", "--1", "1.5")),
    ],
)
def test_wrong_values_are_quoted(parse: Callable[[str], object], text: str) -> None:
    with pytest.raises(ValueError, match=r"no|not") as refused:
        parse(text)
    assert repr(text) in str(refused.value)
