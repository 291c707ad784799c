"""The output of ``pykclient embedded`` while it runs."""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from typing import TYPE_CHECKING

from pykclient.cli import narrator
from pykclient.clock import SYSTEM_CLOCK
from pykclient.testing.history import request_line

if TYPE_CHECKING:
    from pykclient.testing.embedded_cluster import EmbeddedCluster


class Watch:
    """Checks a cluster at intervals and reports changes; with ``verbose`` also clients' requests.

    Thread: owner.
    """

    def __init__(self, cluster: EmbeddedCluster, *, verbose: bool) -> None:
        self._cluster = cluster
        self._verbose = verbose
        self._state = cluster.state()
        self._last_request = 0

    def look(self) -> Iterator[str]:
        """Yield lines about the changes since the last call."""
        if self._verbose:
            for record in self._cluster.requests_of(after=self._last_request):
                self._last_request = record.number
                yield f"{_time_of_day(record.wall_ms)} {request_line(record)}"
        before, self._state = self._state, self._cluster.state()
        now = _time_of_day(SYSTEM_CLOCK.wall_ms())
        for change in narrator.changes(before, self._state):
            yield f"{now} {change}"


def _time_of_day(wall_ms: int) -> str:
    moment = datetime.datetime.fromtimestamp(wall_ms / 1000).astimezone()
    return f"{moment:%H:%M:%S}.{wall_ms % 1000:03}"
