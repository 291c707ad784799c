"""The versions of confluent-kafka and of librdkafka whose interface this is."""

from __future__ import annotations

_LIBRDKAFKA = (2, 16, 0)
_CONFLUENT_KAFKA = "2.16.1"


def version() -> str:
    """Return the version of confluent-kafka whose interface this package has."""
    return _CONFLUENT_KAFKA


def libversion() -> tuple[str, int]:
    """Return the version of librdkafka whose behaviour this package has, as text and as a number."""
    major, minor, patch = _LIBRDKAFKA
    return f"{major}.{minor}.{patch}", major << 24 | minor << 16 | patch << 8 | 0xFF
