"""The metrics of the group ``app-info`` (Java: AppInfoParser)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from pykclient.metrics.metric_config import MetricConfig
from pykclient.metrics.metrics import Metrics
from pykclient.version import __version__

_GROUP: Final = "app-info"
#: The value of ``commit-id``, as packages do not hold the commit that they were built from.
_UNKNOWN: Final = "unknown"


def register_app_info(metrics: Metrics) -> None:
    """Register the version of this package, and when the client started, in milliseconds since the epoch."""
    start_ms = metrics.clock.wall_ms()
    for name, value, description in (
        ("version", __version__, "The version of pykclient"),
        ("commit-id", _UNKNOWN, "The commit that the package was built from"),
        ("start-time-ms", start_ms, "When the client started, in milliseconds since the epoch"),
    ):
        metrics.add_metric(metrics.metric_name(name, _GROUP, description), _constant(value))


def _constant(value: object) -> Callable[[MetricConfig, int], object]:
    return lambda _config, _now_ms: value
