"""Addresses of brokers where something else is expected."""

from __future__ import annotations

import re

_ADDRESS = re.compile(r"[^\s/]+:\d+")


def looks_like_one(text: str) -> bool:
    """Return True for host:port, or several of them separated by commas. No topic can have such a name."""
    return all(_ADDRESS.fullmatch(part.strip()) for part in text.split(","))
