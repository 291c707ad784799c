"""A metric: its name, its configuration and its value (Java: MetricName, MetricConfig, KafkaMetric)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from pykclient.clock import SYSTEM_CLOCK, Clock
from pykclient.errors import IllegalArgumentError


class MetricName:
    """A name within a group, and tags that distinguish metrics of the same name.

    Equality ignores the description. Thread: any (immutable).
    """

    __slots__ = ("_hash", "description", "group", "name", "tags")

    def __init__(self, name: str, group: str, description: str = "", tags: Mapping[str, str] | None = None) -> None:
        self.name = name
        self.group = group
        self.description = description
        self.tags: dict[str, str] = dict(tags or {})
        # Only the hash is kept: with thousands of partitions, keys would be a quarter of a consumer's memory.
        self._hash = hash((name, group, frozenset(self.tags.items())))

    def sibling(self, name: str, description: str = "") -> MetricName:
        """Return another name with this one's group and tags, which both share: most of a name's memory is its tags."""
        sibling = MetricName.__new__(MetricName)
        sibling.name = name
        sibling.group = self.group
        sibling.description = description
        sibling.tags = self.tags
        sibling._hash = hash((name, self.group, frozenset(self.tags.items())))
        return sibling

    def __eq__(self, other: object) -> bool:
        return self is other or (
            isinstance(other, MetricName)
            and self._hash == other._hash
            and self.name == other.name
            and self.group == other.group
            and self.tags == other.tags
        )

    def __hash__(self) -> int:
        return self._hash

    def __repr__(self) -> str:
        return f"MetricName({self.name!r}, group={self.group!r}, tags={self.tags!r})"


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


class KafkaMetric:
    """A name and a way to compute its value. Thread: any.

    ``provider(config, now_ms)`` returns the value. It is called without a lock.
    """

    __slots__ = ("_clock", "_provider", "config", "metric_name")

    def __init__(
        self,
        metric_name: MetricName,
        provider: Callable[[MetricConfig, int], Any],
        config: MetricConfig | None = None,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self.metric_name = metric_name
        self.config = MetricConfig() if config is None else config
        self._provider = provider
        self._clock = clock

    def metric_value(self) -> Any:
        """Return the current value: a float for a stat, anything for a gauge."""
        return self._provider(self.config, self._clock.now_ms())

    def value(self) -> Any:
        """Return the current value: ``metric_value`` under kafka-python's name."""
        return self.metric_value()

    def __repr__(self) -> str:
        return f"KafkaMetric({self.metric_name!r})"
