"""Real clusters end early, but not too early."""

from __future__ import annotations

from itertools import pairwise
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tests.support.unused import AHEAD, UnusedClusters, clusters_of


class Test:
    """The parts of a collected test that the plugin uses."""

    __test__ = False

    def __init__(self, file: str, *fixtures: str, real: bool = True) -> None:
        self.nodeid = f"tests/{file}.py::test"
        self.fixturenames = fixtures
        self._real = real

    def get_closest_marker(self, name: str) -> object:
        return name if self._real and name == "kafka" else None


class Fixture:
    """A cluster that was started."""

    def __init__(self, name: str, scope: str = "session") -> None:
        self.argname = name
        self.scope = scope
        self.finished: int = 0

    def finish(self, _request: object) -> None:
        self.finished += 1


def of(*tests: Test) -> list[pytest.Item]:
    return cast("list[pytest.Item]", list(tests))


def collected(tests: list[pytest.Item]) -> UnusedClusters:
    plugin = UnusedClusters()
    plugin.pytest_collection_finish(cast("pytest.Session", SimpleNamespace(items=tests)))
    return plugin


def started(plugin: UnusedClusters, name: str, scope: str = "session") -> Fixture:
    fixture = Fixture(name, scope)
    setup = plugin.pytest_fixture_setup(cast("pytest.FixtureDef[Any]", fixture), None)
    next(setup)
    with pytest.raises(StopIteration, match="the value"):
        setup.send("the value")
    return fixture


def ended(plugin: UnusedClusters, test: pytest.Item, following: pytest.Item | None) -> None:
    list(plugin.pytest_runtest_teardown(test, following))


def test_clusters_of_a_test_are_found_by_its_fixtures() -> None:
    tests = of(Test("a", "any_kafka", "topic"), Test("a", "kafka_cluster", "kafka"), Test("a", "any_kafka", real=False))
    assert [clusters_of(test) for test in tests] == [{"kafka"}, {"kafka", "_three_brokers"}, set()]


def test_cluster_stops_after_the_last_file_that_uses_it() -> None:
    tests = of(Test("a", "kafka"), Test("a"), Test("b"), Test("c", "kafka"), Test("d"))
    plugin = collected(tests)
    fixture, another = started(plugin, "kafka"), started(plugin, "topic")
    for test, following in pairwise(tests):
        assert not fixture.finished
        ended(plugin, test, following)
    assert fixture.finished == 1
    ended(plugin, tests[-1], None)
    assert (fixture.finished, another.finished) == (1, 0)


def test_fixture_that_hands_out_a_cluster_ends_with_it() -> None:
    tests = of(Test("a", "any_kafka"), Test("b"))
    plugin = collected(tests)
    fixtures = [started(plugin, "kafka"), started(plugin, "any_kafka")]
    ended(plugin, *tests)
    assert [fixture.finished for fixture in fixtures] == [1, 1]


def test_module_scoped_cluster_is_not_stopped() -> None:
    tests = of(Test("a", "kafka"), Test("b"))
    plugin = collected(tests)
    fixtures = [started(plugin, "kafka"), started(plugin, "kafka", "module")]
    ended(plugin, *tests)
    assert [fixture.finished for fixture in fixtures] == [1, 0]


def test_distant_file_gets_a_new_cluster() -> None:
    between = [Test(f"between-{number}") for number in range(AHEAD)]
    tests = of(Test("a", "any_cluster"), *between, Test("b", "any_cluster"))
    plugin = collected(tests)
    first = started(plugin, "_three_brokers")
    ended(plugin, tests[0], tests[1])
    assert first.finished == 1
    second = started(plugin, "_three_brokers")
    for test, following in pairwise(tests[1:]):
        ended(plugin, test, following)
    assert not second.finished


def test_next_item_overrides_the_collected_order() -> None:
    """If a process crashes, its files go to other processes in another order; ``nextitem`` shows it."""
    tests = of(Test("a", "kafka"), Test("b", "kafka"), Test("c"))
    plugin = collected(tests)
    fixture = started(plugin, "kafka")
    steps = [(tests[2], tests[0]), (tests[0], tests[1]), (tests[1], tests[2])]
    finished = []
    for test, following in steps:
        ended(plugin, test, following)
        finished.append(fixture.finished)
    assert finished == [0, 0, 1]
