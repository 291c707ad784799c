"""The sampling of metrics (Java: MetricConfig)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from pykclient.errors import IllegalArgumentError

#: The value of ``event_window`` for windows that end by time alone.
UNLIMITED_EVENTS: Final = (1 << 63) - 1


class RecordingLevel:
    """The level of a sensor, compared with ``metrics.recording.level``."""

    INFO: Final = 0
    DEBUG: Final = 1
    TRACE: Final = 2

    @staticmethod
    def for_name(name: str) -> int:
        """Return the level for a value of ``metrics.recording.level``."""
        return {"INFO": 0, "DEBUG": 1, "TRACE": 2}[name.upper()]


class MetricConfig:
    """The sampling of one client's metrics: ``samples`` windows of ``time_window_ms`` each.

    A window also ends after ``event_window`` values. ``tags`` are added to every metric's own. Reporters are told the
    labels in ``context``. Thread: any (immutable).
    """

    __slots__ = ("context", "event_window", "record_level", "samples", "tags", "time_window_ms")

    def __init__(
        self,
        samples: int = 2,
        time_window_ms: int = 30_000,
        record_level: int = RecordingLevel.INFO,
        tags: Mapping[str, str] | None = None,
        event_window: int = UNLIMITED_EVENTS,
        context: Mapping[str, str] | None = None,
    ) -> None:
        if samples < 1:
            raise IllegalArgumentError(f"samples = {samples}: at least one is needed")
        self.samples = samples
        self.time_window_ms = time_window_ms
        self.record_level = record_level
        self.tags: dict[str, str] = dict(tags or {})
        self.event_window = event_window
        self.context: dict[str, str] = dict(context or {})

    @classmethod
    def of(cls, config: Mapping[str, Any], client_id: str, context: Mapping[str, str] | None = None) -> MetricConfig:
        """Return the settings from a client's configuration, with the tag ``client-id``."""
        return cls(
            context=context,
            samples=config["metrics.num.samples"],
            time_window_ms=config["metrics.sample.window.ms"],
            record_level=RecordingLevel.for_name(config["metrics.recording.level"]),
            tags={"client-id": client_id},
        )
