"""The pytest plugin: fixtures, the marker, and failure reports. Each test runs pytest on a small project."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytest_plugins = ["pytester"]


def run(pytester: pytest.Pytester, source: str, *, finds_plugins: bool = False) -> pytest.RunResult:
    """Run a test file. Other installed plugins would take most of the time, so one test is enough that finds them."""
    pytester.makepyfile(source)
    pytester.makeini("[pytest]\n")  # not that of a directory above
    options = ["--strict-markers", "-p", "no:cacheprovider"]
    if finds_plugins:
        return pytester.runpytest_subprocess(*options, "-p", "no:xdist")
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
        return pytester.runpytest_subprocess(*options, "-p", "pykclient.testing.plugin")


def test_fixture_gives_each_test_its_cluster(pytester: pytest.Pytester) -> None:
    done = run(
        pytester,
        """
        import pytest
        from pykclient import KafkaConsumer, KafkaProducer, TopicPartition

        seen = []

        def test_one(pykclient_cluster):
            seen.append(pykclient_cluster)
            with KafkaProducer(bootstrap_servers=pykclient_cluster.bootstrap_servers) as producer:
                assert producer.send("orders", b"first").get(20).offset == 0
            assert [record.value for record in pykclient_cluster.log(TopicPartition("orders", 0))] == [b"first"]

        def test_another(pykclient_cluster):
            assert pykclient_cluster not in seen
            assert pykclient_cluster.broker_ids == [1]
            with KafkaConsumer(bootstrap_servers=pykclient_cluster.bootstrap_servers) as consumer:
                assert consumer.topics() == set()

        @pytest.mark.pykclient_cluster(3, num_partitions=5)
        class TestMarked:
            def test_class(self, pykclient_cluster):
                assert pykclient_cluster.broker_ids == [1, 2, 3]
                assert self.partitions(pykclient_cluster) == 5

            @pytest.mark.pykclient_cluster(2)
            def test_closest_wins(self, pykclient_cluster):
                assert pykclient_cluster.broker_ids == [1, 2]
                assert self.partitions(pykclient_cluster) == 5

            def partitions(self, cluster):
                with KafkaProducer(bootstrap_servers=cluster.bootstrap_servers) as producer:
                    return len(producer.partitions_for("new"))
        """,
        finds_plugins=True,
    )
    done.assert_outcomes(passed=4)


def test_session_fixture_shares_a_cluster(pytester: pytest.Pytester) -> None:
    pytester.makeconftest(
        """
        import pytest

        @pytest.fixture(scope="session")
        def pykclient_shared_cluster_settings():
            return {"brokers": 2}
        """
    )
    done = run(
        pytester,
        """
        import pytest

        seen = []

        @pytest.fixture(scope="module")
        def orders(pykclient_shared_cluster):
            pykclient_shared_cluster.create_topic("orders")

        @pytest.mark.parametrize("turn", [1, 2])
        def test_it(pykclient_shared_cluster, pykclient_cluster, orders, turn):
            seen.append(pykclient_shared_cluster)
            assert set(map(id, seen)) == {id(pykclient_shared_cluster)}
            assert pykclient_shared_cluster.broker_ids == [1, 2]
            assert pykclient_cluster is not pykclient_shared_cluster
        """,
    )
    done.assert_outcomes(passed=2)


def test_failed_test_shows_the_cluster(pytester: pytest.Pytester) -> None:
    done = run(
        pytester,
        """
        from pykclient import KafkaProducer

        def test_it(pykclient_cluster):
            with KafkaProducer(bootstrap_servers=pykclient_cluster.bootstrap_servers, client_id="app") as producer:
                producer.send("orders", b"x").get(20)
            assert False
        """,
    )
    done.assert_outcomes(failed=1)
    done.stdout.re_match_lines_random(
        [
            r"-+ <EmbeddedCluster 127\.0\.0\.1:\d+> at the failure -+",
            r"broker 1: running, controller",
            r"orders-0: leader 1, in sync 1 of 1, offsets 0 to 1",
            r"requests of clients, the last \d+ of \d+, .*",
            r" +\d+ app -> broker 1: PRODUCE v\d+, answered after \d+ ms",
        ]
    )


def test_failed_test_shows_only_its_requests_of_a_shared_cluster(pytester: pytest.Pytester) -> None:
    done = run(
        pytester,
        """
        from pykclient import KafkaProducer

        def produce(cluster, client_id):
            with KafkaProducer(bootstrap_servers=cluster.bootstrap_servers, client_id=client_id) as producer:
                producer.send("orders", b"x").get(20)

        def test_before(pykclient_shared_cluster):
            produce(pykclient_shared_cluster, "before")

        def test_it(pykclient_shared_cluster):
            produce(pykclient_shared_cluster, "mine")
            assert False

        def test_without():
            assert False
        """,
    )
    done.assert_outcomes(passed=1, failed=2)
    done.stdout.no_re_match_line(".* before -> broker 1: .*")
    done.stdout.re_match_lines([r".* mine -> broker 1: PRODUCE .*"])
    assert done.stdout.str().count("at the failure") == 1


def test_failure_after_close_says_that_the_cluster_does_not_run(pytester: pytest.Pytester) -> None:
    done = run(
        pytester,
        """
        def test_it(pykclient_cluster):
            pykclient_cluster.close()
            assert False
        """,
    )
    done.assert_outcomes(failed=1)
    done.stdout.fnmatch_lines(["nothing is known of it: *the cluster does not run*"])


def test_number_of_brokers_given_twice_is_refused(pytester: pytest.Pytester) -> None:
    done = run(
        pytester,
        """
        import pytest

        @pytest.mark.pykclient_cluster(3, brokers=3)
        def test_it(pykclient_cluster):
            pass
        """,
    )
    done.assert_outcomes(errors=1)
    done.stdout.fnmatch_lines(["*names the brokers twice*"])


def test_plugin_alone_does_not_load_the_cluster() -> None:
    program = (
        "import pytest, sys; before = set(sys.modules); import pykclient.testing.plugin;"
        "print(*sorted(set(sys.modules) - before))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["pykclient", "pykclient.testing", "pykclient.testing.plugin", "pykclient.version"]
