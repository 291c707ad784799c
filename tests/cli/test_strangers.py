"""Commands as newcomers type them: several items of which one is wrong, live groups, times, files, patterns."""

from __future__ import annotations

import gzip
import json
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet
import pytest

from pykclient import KafkaConsumer, KafkaProducer
from pykclient.cli.main import main
from pykclient.testing import EmbeddedCluster, Security
from tests.cli.command import Pykclient


@pytest.fixture
def two_topics(cluster: EmbeddedCluster, topic: str) -> tuple[str, str]:
    """Two topics of one partition with a record each, whose value is the name of the topic."""
    names = (f"{topic}.a", f"{topic}.b")
    with KafkaProducer[bytes, bytes](bootstrap_servers=cluster.bootstrap_servers) as producer:
        for name in names:
            cluster.create_topic(name, 1)
            producer.send(name, name.encode()).get(30)
    return names


@pytest.fixture
def member(cluster: EmbeddedCluster, two_topics: tuple[str, str], group_id: str) -> Iterator[str]:
    """A group with a member; the group's id."""
    with KafkaConsumer[bytes, bytes](
        two_topics[0], bootstrap_servers=cluster.bootstrap_servers, group_id=group_id, auto_offset_reset="earliest"
    ) as consumer:
        deadline = time.monotonic() + 60
        while not consumer.poll(1000):
            assert time.monotonic() < deadline
        consumer.commit()
        yield group_id


# --- several items ---------------------------------------------------------------------------------------------------


def test_describing_several_items_shows_the_good_ones_and_the_errors(
    pykclient: Pykclient, two_topics: tuple[str, str], member: str
) -> None:
    for words, good in (
        (("topics", "describe"), two_topics[0]),
        (("groups", "describe"), member),
        (("groups", "describe", "--members"), member),
        (("configs", "describe", "topic", "--all"), two_topics[0]),
    ):
        result = pykclient(*words, "missing-one", good)
        assert result.code == 1
        assert good in result.out
        assert result.err.startswith("pykclient: ")
        assert "missing-one" in result.err
        assert result.err.count("pykclient: ") == 1
        assert pykclient(*words, "missing-one", "missing-two").raw == b""


def test_error_of_single_item_is_printed_once(pykclient: Pykclient) -> None:
    for words in (("topics", "describe"), ("groups", "describe"), ("topics", "delete", "--yes")):
        result = pykclient(*words, "missing-one")
        assert (result.code, result.raw) == (1, b"")
        assert [line.split()[0] for line in result.err.splitlines()] == ["pykclient:", "Next"]


@pytest.mark.parametrize(
    "command", [["consume", "t"], ["produce", "t"], ["topics", "list"], ["consume", "t", "-g", "g"]]
)
def test_error_that_ends_a_command_is_printed_once(command: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    with EmbeddedCluster(1, security=Security("SASL_PLAINTEXT", users={"alice": "hers"})) as cluster:
        monkeypatch.setenv("PYKCLIENT_SASL_PASSWORD", "not-hers")
        options = ("security.protocol=SASL_PLAINTEXT", "sasl.mechanism=PLAIN", "sasl.username=alice")
        words = [word for option in options for word in ("-X", option)]
        result = Pykclient(cluster.bootstrap_servers)(*command, *words, stdin=b"x\n")
        assert result.code == 1
        assert result.err.count("Invalid username or password") == 1
        verbose = Pykclient(cluster.bootstrap_servers)(*command, *words, "--verbose", stdin=b"x\n")
        assert verbose.err.count("Invalid username or password") > 1


# --- groups ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("options", [["--to-earliest"], ["--to-earliest", "--execute"]])
def test_reset_of_active_group_fails_like_kafkas_tool(pykclient: Pykclient, member: str, options: list[str]) -> None:
    result = pykclient("offsets", "reset", member, *options)
    assert (result.code, result.raw) == (1, b"")
    assert result.err.startswith(
        f"pykclient: Assignments can only be reset if the group '{member}' is inactive, but the current state is "
        "Stable."
    )


def test_groups_are_listed_by_pattern(pykclient: Pykclient, member: str) -> None:
    assert [row["group"] for row in pykclient.ok("groups", "list", f"{member[:-2]}*", "--json").json] == [member]
    assert pykclient.ok("groups", "list", "no-such-*", "--json").json == []


def test_committed_offsets_override_from_option_with_notice(
    pykclient: Pykclient, two_topics: tuple[str, str], group_id: str
) -> None:
    words = ("consume", two_topics[0], "-g", group_id, "-e", "-o", "beginning")
    first = pykclient.ok(*words)
    assert (first.out, first.err) == (f"{two_topics[0]}\n", "")
    second = pykclient.ok(*words)
    assert second.raw == b""
    assert "goes on from its committed offsets, which win over --from, in all partitions" in second.err


# --- topics by pattern -----------------------------------------------------------------------------------------------


def test_topics_are_consumed_by_pattern(pykclient: Pykclient, two_topics: tuple[str, str], group_id: str) -> None:
    pattern = two_topics[0][:-1] + "*"
    assert sorted(pykclient.ok("consume", pattern, "-e").lines()) == sorted(two_topics)
    assert sorted(pykclient.ok("consume", pattern, "-e", "-g", group_id).lines()) == sorted(two_topics)
    assert pykclient.ok("consume", pattern[:-1] + "[b]", "-e").lines() == [two_topics[1]]
    missing = pykclient("consume", "no-such-*", "-e")
    assert missing.code == 1
    assert "no topic matches 'no-such-*'" in missing.err


# --- times -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def disordered(cluster: EmbeddedCluster, topic: str) -> str:
    """A topic whose timestamps, in seconds, are 10, 30, 20, 40, 15; they are the values as well."""
    cluster.create_topic(topic, 1)
    with KafkaProducer[bytes, bytes](bootstrap_servers=cluster.bootstrap_servers) as producer:
        for second in (10, 30, 20, 40, 15):
            producer.send(topic, b"%d" % second, timestamp_ms=second * 1000)
    return topic


@pytest.mark.parametrize(
    ("options", "seconds"),
    [
        (["--from", "@20000"], ["30", "20", "40"]),
        (["--until", "@30000"], ["10", "20", "15"]),
        (["--from", "@15000", "--until", "@40000"], ["30", "20", "15"]),
        (["--from", "@15000", "--until", "@40000", "-c", "2"], ["30", "20"]),
        (["--from", "@50000"], []),
    ],
)
def test_time_bounds_select_records_with_unordered_timestamps(
    pykclient: Pykclient, disordered: str, options: list[str], seconds: list[str], tmp_path: Path
) -> None:
    end = [] if "--until" in options else ["-e"]
    assert pykclient.ok("consume", disordered, *options, *end).lines() == seconds
    if "-c" not in options:
        path = tmp_path / "records.parquet"
        pykclient.ok("consume", disordered, *options, *end, "-O", str(path))
        found = pyarrow.parquet.read_table(path).column("value").to_pylist()
        assert [value.decode() for value in found] == seconds


def test_older_than_lists_only_open_transactions(pykclient: Pykclient, cluster: EmbeddedCluster, topic: str) -> None:
    cluster.create_topic(topic, 1)
    with KafkaProducer[bytes, bytes](bootstrap_servers=cluster.bootstrap_servers, transactional_id=topic) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send(topic, b"x").get(30)

        def listed() -> list[str]:
            rows = pykclient.ok("transactions", "list", "--older-than", "1ms", "--json").json
            return [row["state"] for row in rows if row["transactional_id"] == topic]

        assert listed() == ["Ongoing"]
        producer.commit_transaction()
        assert listed() == []


# --- files -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ending", ["json", "csv", "xlsx", "json.gz", "jsonl.zst", "bz2"])
def test_file_name_that_contradicts_format_is_refused(
    pykclient: Pykclient, two_topics: tuple[str, str], tmp_path: Path, ending: str
) -> None:
    path = tmp_path / f"records.{ending}"
    result = pykclient("consume", two_topics[0], "-e", "-O", str(path))
    assert result.code == 2
    assert "would not be what its name says: " in " ".join(result.err.split())
    assert not path.exists()


def test_output_file_has_format_of_its_name(pykclient: Pykclient, two_topics: tuple[str, str], tmp_path: Path) -> None:
    topic = two_topics[0]
    for name in ("a.jsonl", "a.ndjson", "a.jsonl.gz"):
        pykclient.ok("consume", topic, "-e", "-O", str(tmp_path / name))
        content = (tmp_path / name).read_bytes()
        line = gzip.decompress(content) if name.endswith(".gz") else content
        assert json.loads(line)["value"] == topic
    pykclient.ok("consume", topic, "-e", "-O", str(tmp_path / "a.txt.gz"))
    assert gzip.decompress((tmp_path / "a.txt.gz").read_bytes()) == topic.encode() + b"\n"
    pykclient.ok("consume", topic, "-e", "-O", str(tmp_path / "a.csv"), "-f", "%o,%s\\n")
    assert (tmp_path / "a.csv").read_text() == f"0,{topic}\n"
    assert pykclient("consume", topic, "-e", "-O", str(tmp_path / "b.jsonl"), "-f", "%s").code == 2


# --- the start of the process ----------------------------------------------------------------------------------------


@pytest.mark.skipif(sys.platform == "win32", reason="there is no sh")
def test_closed_streams_are_no_error(cluster: EmbeddedCluster) -> None:
    for closed in ("<&- >&-", ">&- 2>&-"):
        words = ["-m", "pykclient", "topics", "list", "-b", cluster.bootstrap_servers]
        shell = ["sh", "-c", f'exec "$0" "$@" {closed}', sys.executable, *words]
        done = subprocess.run(shell, capture_output=True, text=True, timeout=120, check=False)
        assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_ctrl_c_while_the_command_is_imported_shows_no_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(_arguments: object) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr("pykclient.cli.run.run", interrupt)
    assert main(["topics", "list"]) == 130


# --- servers that do not answer --------------------------------------------------------------------------------------


@pytest.fixture
def silent() -> Iterator[str]:
    """The address of a server that accepts connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"127.0.0.1:{server.getsockname()[1]}"


@pytest.mark.parametrize("command", [["topics", "list"], ["groups", "describe", "g"], ["cluster", "log-dirs"]])
def test_silent_server_is_named_and_advice_is_of_the_command_line(command: list[str], silent: str) -> None:
    result = Pykclient()(*command, "--bootstrap-servers", silent, "--timeout", "1s")
    assert result.code == 1
    assert silent in result.err
    assert "timeout_ms" not in result.err


@pytest.mark.parametrize("words", [["produce", "t"], ["consume", "t", "-e"], ["bench", "--topic", "t"]])
def test_silent_server_is_named_by_commands_for_records(words: list[str], silent: str) -> None:
    # A request that is too late is noticed when the metadata is looked at again, each second; 0.2 s are left then.
    result = Pykclient()(*words, "--bootstrap-servers", silent, "--timeout", "2200ms", stdin=b"record\n")
    assert result.code == 1
    assert silent in result.err
    assert "Check that the brokers are up" in result.err


def test_timeout_holds_for_commands_on_spark_transactions(silent: str) -> None:
    result = Pykclient()("spark-transactions", "list", "--bootstrap-servers", silent, "--timeout", "5s")
    assert result.code == 1
    assert "within 5000 ms" in result.err
    assert silent in result.err


@pytest.mark.parametrize("id", ["0", "9"])
def test_broker_that_does_not_exist_is_named(pykclient: Pykclient, id: str) -> None:
    result = pykclient("cluster", "log-dirs", id, "--timeout", "1s")
    assert result.code == 1
    assert f"there is no connection to broker {id}" in result.err
    assert "has not answered" not in result.err


def test_silent_registry_ends_commands_after_timeout(silent: str) -> None:
    for words in (["list"], ["get", "1"]):
        result = Pykclient()("schemas", *words, "--url", f"http://{silent}", "--timeout", "1s")
        assert result.code == 1
        assert silent in result.err
        assert "attempts in" not in result.err


def test_unwritable_output_is_bad_input(pykclient: Pykclient, two_topics: tuple[str, str], tmp_path: Path) -> None:
    for name in ("out.txt", "out.jsonl.gz", "out.parquet", "out.arrow"):
        path = tmp_path / "missing" / name
        result = pykclient("consume", two_topics[0], "-e", "--output", str(path))
        assert result.code == 2
        assert result.err.startswith(f"pykclient: --output: {path} cannot be written: ")
