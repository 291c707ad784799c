"""Valid command-line arguments are understood; invalid ones get an error that says what is wrong."""

from __future__ import annotations

import argparse
from collections.abc import Callable

import pytest

from pykclient.cli import arguments


@pytest.mark.parametrize(
    ("text", "size"),
    [("65536", 65536), ("1K", 1024), ("512MB", 512 << 20), ("2 gib", 2 << 30), ("1g", 1 << 30), ("7B", 7)],
)
def test_sizes(text: str, size: int) -> None:
    assert arguments.size_bytes(text) == size


def test_topics() -> None:
    assert arguments.topic("orders") == ("orders", None, None)
    assert arguments.topic("orders:6") == ("orders", 6, None)
    assert arguments.topic("orders:6:3") == ("orders", 6, 3)


def test_settings() -> None:
    assert arguments.setting("num.partitions=6") == ("num.partitions", "6")
    assert arguments.setting("a.b = c=d") == ("a.b", "c=d")


@pytest.mark.parametrize(
    ("parse", "text"),
    [
        *((arguments.size_bytes, text) for text in ("", "MB", "0", "-1MB", "1.5GB", "1TB")),
        *((arguments.topic, text) for text in ("", ":3", "orders:0", "orders:x", "orders:", "orders:1:2:3")),
        *((arguments.setting, text) for text in ("", "num.partitions", "=6")),
        *((arguments.port, text) for text in ("", "-1", "65536", "http")),
    ],
)
def test_what_is_wrong_is_quoted(parse: Callable[[str], object], text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError) as refused:
        parse(text)
    assert repr(text) in str(refused.value)
