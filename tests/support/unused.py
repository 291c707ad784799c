"""Ends a process's real clusters when the files that it may run next do not use them.

An idle broker takes 4 % of a core, and each of several processes has up to four brokers. A cluster that is needed again
after all is restarted.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from itertools import groupby
from typing import Any

import pytest

#: Session fixtures of clusters, and the fixtures that hand them out.
CLUSTERS = {
    "kafka": ("any_kafka",),
    "_three_brokers": ("any_cluster", "kafka_cluster"),
}
_WATCHED = {*CLUSTERS, *(name for names in CLUSTERS.values() for name in names)}

#: The number of files to look ahead: starting a cluster costs as much as keeping it for a minute.
AHEAD = 10


def file_of(item: pytest.Item) -> str:
    return item.nodeid.split("::", 1)[0]


def clusters_of(item: pytest.Item) -> set[str]:
    """Return the clusters that a test uses."""
    if item.get_closest_marker("kafka") is None:  # it uses the embedded cluster
        return set()
    wanted = set(getattr(item, "fixturenames", ()))
    return {cluster for cluster, names in CLUSTERS.items() if not wanted.isdisjoint((cluster, *names))}


class UnusedClusters:
    """A pytest plugin, because pytest does not call the hooks of a conftest.py for session fixtures."""

    def __init__(self) -> None:
        #: By file: the clusters that one of the next files uses.
        self._wanted: dict[str, set[str]] = {}
        self._running: dict[str, tuple[pytest.FixtureDef[Any], Any]] = {}

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Note the order of the files; the process runs all or some of them in this order."""
        tests = groupby(session.items, file_of)
        files = [(file, set[str]().union(*map(clusters_of, items))) for file, items in tests]
        for place, (file, _) in enumerate(files):
            self._wanted[file] = set[str]().union(*(used for _, used in files[place + 1 : place + 1 + AHEAD]))

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef: pytest.FixtureDef[Any], request: Any) -> Generator[None, object, object]:
        value = yield
        if fixturedef.argname in _WATCHED and fixturedef.scope == "session":  # a file may define its own
            self._running[fixturedef.argname] = (fixturedef, request)
        return value

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_teardown(self, item: pytest.Item, nextitem: pytest.Item | None) -> Iterator[None]:
        """After the last test of a file, end the clusters that the next files do not use."""
        yield
        if nextitem is None or file_of(nextitem) == file_of(item):
            return
        wanted = self._wanted[file_of(item)] | clusters_of(nextitem)
        for cluster in CLUSTERS.keys() - wanted:
            for name in (*CLUSTERS[cluster], cluster):  # first the fixtures that depend on it
                if name in self._running:
                    fixture, request = self._running.pop(name)
                    fixture.finish(request)
