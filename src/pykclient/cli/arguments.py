"""Types of command-line values: sizes, topics, settings. argparse reports their errors."""

from __future__ import annotations

import argparse
import re
from typing import NamedTuple

_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
_SIZE = re.compile(r"(\d+)\s*([KMG]?)(?:I?B)?", re.IGNORECASE)


class TopicOption(NamedTuple):
    """A topic as ``NAME[:PARTITIONS[:REPLICATION]]``, with the brokers' defaults for omitted parts."""

    name: str
    partitions: int | None
    replication_factor: int | None


def size_bytes(text: str) -> int:
    """Parse a number of bytes: ``512MB``, ``1GiB``, ``65536``. Units are powers of 1024."""
    found = _SIZE.fullmatch(text.strip())
    if found is None or not int(found[1]):
        raise argparse.ArgumentTypeError(f"{text!r} is no size; 512MB and 1GB are")
    return int(found[1]) * _UNITS[found[2].upper()]


def topic(text: str) -> TopicOption:
    """Parse a topic to create: ``orders``, ``orders:6`` or ``orders:6:3``."""
    name, *numbers = text.split(":")
    if not name or len(numbers) > 2 or not all(number.isdecimal() and int(number) for number in numbers):
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME, NAME:PARTITIONS or NAME:PARTITIONS:REPLICATION")
    partitions, replication_factor = [*map(int, numbers), None, None][:2]
    return TopicOption(name, partitions, replication_factor)


def setting(text: str) -> tuple[str, str]:
    """Parse a broker setting: ``num.partitions=6``."""
    key, equals, value = text.partition("=")
    if not key or not equals:
        raise argparse.ArgumentTypeError(f"{text!r} is not KEY=VALUE")
    return key.strip(), value.strip()


def port(text: str) -> int:
    """Parse a TCP port; 0 means any."""
    if not text.isdecimal() or int(text) > 65535:
        raise argparse.ArgumentTypeError(f"{text!r} is no port: 0 to 65535")
    return int(text)
