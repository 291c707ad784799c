"""A pytest plugin, found automatically, with embedded clusters as fixtures.

    def test_orders(pykclient_cluster):                      # a cluster for this test alone
        ...

    @pytest.mark.pykclient_cluster(brokers=3, release="2.8")  # the arguments of EmbeddedCluster
    def test_failover(pykclient_cluster):
        ...

    def test_reading(pykclient_shared_cluster):              # one for the session
        ...

The report of a failed test shows the state of its cluster at that moment, and the last requests. Loading this module is
cheap; the first test that uses a cluster loads the rest.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from pykclient.testing.embedded_cluster import EmbeddedCluster
    from pykclient.testing.schema_registry import EmbeddedSchemaRegistry

_MARKER = (
    "pykclient_cluster(brokers=1, *, release=None, config=None, ...): how the test's pykclient_cluster is set up; "
    "the arguments are EmbeddedCluster's, and those of a class's marker hold for its tests as well."
)

_SHARED_NAME = "pykclient_shared_cluster"

_own = pytest.StashKey["EmbeddedCluster"]()  # a test's
_shared = pytest.StashKey["EmbeddedCluster"]()  # the session's
_asked_before = pytest.StashKey[int]()  # a test's: the last request before it


def pytest_configure(config: pytest.Config) -> None:
    """Register the marker."""
    config.addinivalue_line("markers", _MARKER)


@pytest.fixture
def pykclient_cluster(request: pytest.FixtureRequest) -> Iterator[EmbeddedCluster]:
    """An embedded cluster for one test. Configure it with ``pytest.mark.pykclient_cluster``."""
    from pykclient.testing.embedded_cluster import EmbeddedCluster

    positional, settings = _marked(request.node)
    with EmbeddedCluster(*positional, **settings) as cluster:
        request.node.stash[_own] = cluster
        yield cluster
        del request.node.stash[_own]


@pytest.fixture(scope="session")
def pykclient_shared_cluster_settings() -> dict[str, Any]:
    """The arguments of EmbeddedCluster for ``pykclient_shared_cluster``. Override this fixture in a conftest.py."""
    return {}


@pytest.fixture(scope="session")
def pykclient_shared_cluster(
    request: pytest.FixtureRequest, pykclient_shared_cluster_settings: dict[str, Any]
) -> Iterator[EmbeddedCluster]:
    """An embedded cluster for the whole session. Use topics and groups of your own, and do not touch its brokers."""
    from pykclient.testing.embedded_cluster import EmbeddedCluster

    with EmbeddedCluster(**pykclient_shared_cluster_settings) as cluster:
        request.session.stash[_shared] = cluster
        yield cluster
        del request.session.stash[_shared]


@pytest.fixture
def pykclient_schema_registry() -> Iterator[EmbeddedSchemaRegistry]:
    """An empty schema registry for one test."""
    from pykclient.testing.schema_registry import EmbeddedSchemaRegistry

    with EmbeddedSchemaRegistry() as registry:
        yield registry


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Remember the shared cluster's last request before a test, so that the test's report omits earlier ones."""
    if _SHARED_NAME in getattr(item, "fixturenames", ()) and _shared in item.session.stash:
        requests = item.session.stash[_shared].requests
        item.stash[_asked_before] = requests[-1].number if requests else 0


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Add the state of its clusters to the report of a failed test."""
    report = yield
    if report.failed and (used := _clusters_of(item)):
        from pykclient.testing.cluster import failure_report

        for cluster, asked_before in used:
            try:
                text = failure_report(cluster.state(), cluster.requests_of(after=asked_before))
            except Exception as error:  # noqa: BLE001 - a hook's, for instance, and the test has failed already
                text = f"nothing is known of it: {error!r}"
            report.sections.append((f"{cluster!r} at the failure", text))
    return report


def _clusters_of(item: pytest.Item) -> list[tuple[EmbeddedCluster, int]]:
    """Return the clusters that a test uses, each with the number of the last request before the test."""
    used = []
    if _own in item.stash:
        used.append((item.stash[_own], 0))
    if _SHARED_NAME in getattr(item, "fixturenames", ()) and _shared in item.session.stash:
        used.append((item.session.stash[_shared], item.stash.get(_asked_before, 0)))
    return used


def _marked(node: pytest.Item) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return the arguments of all markers of a test, merged; the closest marker wins."""
    positional: tuple[Any, ...] = ()
    settings: dict[str, Any] = {}
    for marker in reversed(list(node.iter_markers("pykclient_cluster"))):
        positional = marker.args or positional
        settings |= marker.kwargs
    if positional and "brokers" in settings:
        raise pytest.UsageError(f"{node.nodeid}: pykclient_cluster() names the brokers twice")
    return positional, settings
