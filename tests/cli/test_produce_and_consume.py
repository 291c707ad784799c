"""Records into the cluster and out of it again, in all formats."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from types import FrameType
from typing import NoReturn

import pyarrow.feather
import pyarrow.ipc
import pyarrow.parquet
import pytest

from pykclient import KafkaConsumer, KafkaProducer, TopicPartition
from pykclient.cli import writing
from pykclient.testing import EmbeddedCluster
from tests.cli.command import Pykclient
from tests.support.wait import eventually

COMMAND = [sys.executable, "-W", "error", "-m", "pykclient"]


@pytest.fixture
def orders(cluster: EmbeddedCluster, topic: str) -> str:
    """A topic with two partitions."""
    cluster.create_topic(topic, 2)
    return topic


def records(cluster: EmbeddedCluster, topic: str, partition: int = 0) -> list[tuple[bytes | None, bytes | None]]:
    return [(record.key, record.value) for record in cluster.log(TopicPartition(topic, partition))]


def test_produced_lines_are_consumed_unchanged(pykclient: Pykclient, orders: str) -> None:
    lines = b"".join(b"line %d\n" % number for number in range(3000)) + b"\nthe last one, without an end"
    assert pykclient.ok("produce", orders, "-p", "1", stdin=lines) == (0, b"", "")
    assert pykclient.ok("consume", orders, "-e").raw == lines + b"\n"
    assert pykclient.ok("consume", orders, "-c", "2").raw == b"line 0\nline 1\n"
    assert pykclient.ok("consume", orders, "-p", "0", "-e").raw == b""


def test_keys_headers_nulls_and_times_round_trip(pykclient: Pykclient, cluster: EmbeddedCluster, orders: str) -> None:
    stdin = rb"a=>1;=>2;c=>;plain=;=>" + b"\n"
    pykclient.ok(
        *(
            "produce",
            orders,
            "-p",
            "0",
            "-K",
            "=>",
            "-D",
            ";",
            "-Z",
            "-H",
            "from=test",
            "-H",
            "empty",
            "--timestamp",
            "7000",
        ),
        stdin=stdin[:-1],
    )
    assert records(cluster, orders) == [(b"a", b"1"), (None, b"2"), (b"c", None), (None, b"plain="), (None, None)]
    shown = pykclient.ok("consume", orders, "-e", "-J").lines()
    assert json.loads(shown[0]) == {
        "topic": orders,
        "partition": 0,
        "offset": 0,
        "timestamp": 7000,
        "key": "a",
        "value": "1",
        "headers": [{"key": "from", "value": "test"}, {"key": "empty", "value": None}],
    }
    assert pykclient.ok("consume", orders, "-e", "-K", ":", "--null", "NULL").lines()[1:3] == ["NULL:2", "c:NULL"]
    text = pykclient.ok("consume", orders, "-c", "2", "-f", r"%t %p %o %k %s %h %T %K %S %%\n").out
    assert text == f"{orders} 0 0 a 1 from=test,empty= 7000 1 1 %\n{orders} 0 1  2 from=test,empty= 7000 -1 1 %\n"
    assert pykclient.ok("consume", orders, "-c", "1", "-f", "hex", "-K", " ").out == "61 31\n"
    assert pykclient.ok("consume", orders, "-c", "1", "-f", "base64").out == "MQ==\n"


def test_json_records_round_trip(pykclient: Pykclient, cluster: EmbeddedCluster, orders: str) -> None:
    given = [
        {
            "key": "k",
            "value": {"price": 1.5, "name": "ä"},
            "headers": {"a": "b", "n": None},
            "partition": 0,
            "timestamp": 5,
        },
        {
            "value_base64": "/w==",
            "key_base64": "gA==",
            "headers": [{"key": "h", "value_base64": "/g=="}],
            "partition": 0,
        },
        {"value": None, "key": "k", "partition": 0},
    ]
    pykclient.ok("produce", orders, "-J", stdin="\n".join(map(json.dumps, given)).encode())
    assert records(cluster, orders) == [(b"k", '{"price":1.5,"name":"ä"}'.encode()), (b"\x80", b"\xff"), (b"k", None)]
    shown = pykclient.ok("consume", orders, "-e", "--json").raw
    assert json.loads(shown.splitlines()[1])["headers"] == [{"key": "h", "value_base64": "/g=="}]
    pykclient.ok("produce", orders, "-J", "-p", "1", stdin=shown)
    assert records(cluster, orders, 1) == records(cluster, orders, 0)


@pytest.mark.parametrize(
    ("line", "text"),
    [
        ("{", "no JSON"),
        ("[1]", "an object"),
        ('{"key": "a"}', 'no "value"'),
        ('{"value": 1, "partition": "0"}', "partition"),
        ('{"value": 1, "headers": 3}', "headers"),
        ('{"value": 1, "headers": [{"value": "x"}]}', "key"),
        ('{"value_base64": "?"}', "base64"),
    ],
)
def test_produce_refuses_wrong_json(pykclient: Pykclient, orders: str, line: str, text: str) -> None:
    result = pykclient("produce", orders, "-J", stdin=b'{"value": "fine"}\n' + line.encode())
    assert result.code == 2
    assert text in result.err
    assert "stdin" in result.err
    assert "Traceback" not in result.err


def test_file_becomes_one_record(pykclient: Pykclient, cluster: EmbeddedCluster, orders: str, tmp_path: Path) -> None:
    file = tmp_path / "binary"
    file.write_bytes(b"\x00\n\xff\n")
    summary = pykclient.ok("produce", orders, str(file), "-f", "file", "-k", "name", "-p", "0", "--json", "-z", "gzip")
    assert summary.json == [{"topic": orders, "records": 1, "bytes": 4}]
    assert records(cluster, orders) == [(b"name", b"\x00\n\xff\n")]


def test_consume_honours_start_and_end_positions(pykclient: Pykclient, cluster: EmbeddedCluster, orders: str) -> None:
    with KafkaProducer[bytes, bytes](bootstrap_servers=cluster.bootstrap_servers) as producer:
        for number in range(10):
            producer.send(orders, b"%d" % number, partition=0, timestamp_ms=1000 * (number + 1))

    def read(*options: str) -> str:
        return pykclient.ok("consume", orders, "-D", " ", *options).out.strip()

    assert read("-e", "--from", "7") == "7 8 9"
    assert read("-e", "--from", "-2") == "8 9"
    assert read("-e", "--from", "@9000") == "8 9"
    assert read("-e", "--from", "end") == ""
    assert read("-e", "--from", "99") == ""
    assert read("-e", "--from", "beginning", "-c", "1") == "0"
    for form in ("plain", "%s "):
        shown = pykclient.ok("consume", orders, "--until", "2", "-f", form, "-D", " ").out
        assert shown.split() == ["0", "1"], form
    assert read("--until", "@3000") == "0 1"


def test_consume_filters_by_pattern_key_and_header(pykclient: Pykclient, orders: str) -> None:
    lines = [{"key": f"k{number}", "value": f"v{number}", "headers": {"n": str(number)}} for number in range(20)]
    pykclient.ok("produce", orders, "-J", "-p", "0", stdin="\n".join(map(json.dumps, lines)).encode())
    assert pykclient.ok("consume", orders, "-e", "--grep", "^v1.$", "-c", "3").lines() == ["v10", "v11", "v12"]
    assert pykclient.ok("consume", orders, "-e", "--key", "7").lines() == ["v7", "v17"]
    assert pykclient.ok("consume", orders, "-e", "--header", "n=^5").lines() == ["v5"]
    assert pykclient.ok("consume", orders, "-e", "--header", "m").lines() == []


def test_consume_writes_parquet_arrow_and_json_files(pykclient: Pykclient, orders: str, tmp_path: Path) -> None:
    pykclient.ok("produce", orders, "-K", ":", "-p", "0", "-H", "a=b", stdin=b"x:1\ny:2\nz:3\n")
    parquet, arrow, text = (str(tmp_path / name) for name in ("out.parquet", "out.arrow", "out.jsonl"))
    pykclient.ok("consume", orders, "-e", "-O", parquet)
    table = pyarrow.parquet.read_table(parquet)
    assert table.column("value").to_pylist() == [b"1", b"2", b"3"]
    assert table.column("topic").to_pylist() == [orders] * 3
    pykclient.ok("consume", orders, "-e", "-O", arrow, "--key", "[xz]")
    read = pyarrow.feather.read_table(arrow)
    assert read.column("key").to_pylist() == [b"x", b"z"]
    assert read.column("headers").to_pylist()[0] == [{"key": "a", "value": b"b"}]
    pykclient.ok("consume", orders, "-e", "-O", text)
    assert [json.loads(line)["value"] for line in Path(text).read_text().splitlines()] == ["1", "2", "3"]


def test_group_resumes_from_committed_offsets(pykclient: Pykclient, orders: str, group_id: str) -> None:
    pykclient.ok("produce", orders, "-p", "0", stdin=b"1\n2\n3\n4\n")
    for form in (["-f", "plain"], ["-f", r"%s\n"]):
        group = ("-g", f"{group_id}{len(form[1])}", *form)
        assert pykclient.ok("consume", orders, *group, "-c", "1").lines() == ["1"]
        assert pykclient.ok("consume", orders, *group, "-c", "2").lines() == ["2", "3"]
        assert pykclient.ok("consume", orders, *group, "-e").lines() == ["4"]
        assert pykclient.ok("consume", orders, *group, "-e").lines() == []
    assert pykclient.ok("consume", orders, "-g", f"{group_id}-new", "-e", "--from", "end").lines() == []


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (["consume"], "TOPIC"),
        (["consume", "t", "-f", "xml"], "xml"),
        (["consume", "t", "-f", "%q"], "%q"),
        (["consume", "t", "-f", r"%s\q"], "escape"),
        (["consume", "t", "--grep", "("], "regular expression"),
        (["consume", "t", "--from", "middle"], "middle"),
        (["consume", "t", "--until", "-3"], "--until"),
        (["consume", "t", "--count", "0"], "0"),
        (["consume", "t", "-g", "g", "--from", "3"], "offsets reset"),
        (["consume", "t", "-g", "g", "-p", "0"], "--partition"),
        (["consume", "t", "-O", "a.parquet", "-J"], "--format"),
        (["consume", "t", "-D", ""], "empty"),
        (["consume", "t", "-X", "fetch.min.bites=3"], "fetch.min.bytes"),
        (["consume", "t", "-X", "fetch.min.bytes=x"], "fetch.min.bytes"),
        (["produce"], "TOPIC"),
        (["produce", "t", "no-such-file"], "no-such-file"),
        (["produce", "t", "-k", "a", "-K", ":"], "--key"),
        (["produce", "t", "-J", "-K", ":"], "lines"),
        (["produce", "t", "-H", "=x"], "--header"),
        (["produce", "t", "--timestamp", "soon"], "soon"),
        (["produce", "t", "-z", "zip"], "zip"),
        (["produce", "t/u"], "t/u"),
    ],
)
def test_bad_input_exits_with_code_2(
    pykclient: Pykclient, options: list[str], text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    result = pykclient(*options, stdin=b"x\n")
    assert (result.code, result.raw) == (2, b""), result.err
    assert text in result.err
    assert "Traceback" not in result.err


def test_error_says_that_topic_does_not_exist(pykclient: Pykclient, orders: str) -> None:
    result = pykclient("consume", orders[:-1], "-e")
    assert result.code == 1
    assert f"did you mean {orders!r}?" in result.err
    assert "pykclient topics create" in result.err


def test_error_says_that_partition_does_not_exist(pykclient: Pykclient, orders: str) -> None:
    result = pykclient("consume", orders, "-p", "7")
    assert result.code == 2
    assert "no partition 7; it has 0 to 1" in result.err


#: The signals that end a command, with its exit code.
ENDINGS = [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)]


@pytest.mark.parametrize(("number", "code"), ENDINGS)
def test_signal_commits_what_was_written_and_leaves_the_group(
    cluster: EmbeddedCluster, orders: str, group_id: str, number: signal.Signals, code: int
) -> None:
    servers = cluster.bootstrap_servers
    with KafkaProducer[bytes, bytes](bootstrap_servers=servers) as producer:
        for value in range(5):
            producer.send(orders, b"%d" % value, partition=0)
    command = [*COMMAND, "consume", orders, "-b", servers, "-g", group_id]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None
    assert [process.stdout.readline() for _ in range(5)] == [b"%d\n" % value for value in range(5)]
    process.send_signal(number)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out, err) == (code, b"", b"")
    assert cluster.state().groups[group_id].members == 0
    with KafkaConsumer[bytes, bytes](bootstrap_servers=servers, group_id=group_id) as consumer:
        assert consumer.committed(TopicPartition(orders, 0)) == 5


def test_closed_pipe_ends_consume_quietly(cluster: EmbeddedCluster, orders: str) -> None:
    servers = cluster.bootstrap_servers
    with KafkaProducer[bytes, bytes](bootstrap_servers=servers) as producer:
        producer.send_batch(orders, [bytes(1000)] * 2000, partition=0).get(30)
    for form in ("plain", "json"):
        command = [*COMMAND, "consume", orders, "-b", servers, "-f", form]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.read(10)
        process.stdout.close()
        assert process.wait(60) == 141
        assert process.stderr.read() == b""
        process.stderr.close()


def test_ctrl_c_ends_a_producer(cluster: EmbeddedCluster, orders: str) -> None:
    command = [*COMMAND, "produce", orders, "-b", cluster.bootstrap_servers, "-p", "0"]
    pipe = subprocess.PIPE
    process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe)
    assert process.stdin is not None
    process.stdin.write(b"one\n")
    process.stdin.flush()
    eventually(lambda: records(cluster, orders), 30.0, "a line of a pipe is sent at once")
    process.send_signal(signal.SIGINT)
    assert process.wait(60) == 130
    assert process.communicate() == (b"", b"")


@pytest.mark.parametrize("form", ["lines", "file"])
def test_signal_handled_by_other_thread_ends_produce(
    pykclient: Pykclient, orders: str, form: str, tmp_path: Path
) -> None:
    # Another thread gets the signal, so that the wait goes on, as if the signal had come right before it.
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = os.open(pipe, os.O_RDWR)
    main_thread = threading.get_ident()
    ended = threading.Event()

    def signal_to_itself() -> None:
        looks = 0
        while looks < 3 and not ended.wait(0.05):
            frame = sys._current_frames()[main_thread]
            looks = looks + 1 if frame.f_code.co_filename == writing.__file__ else 0
        signal.pthread_kill(threading.get_ident(), signal.SIGUSR1)

    def on_signal(_number: int, _frame: FrameType | None) -> NoReturn:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGUSR1, on_signal)
    thread = threading.Thread(target=signal_to_itself)
    end_of_input = threading.Timer(60, os.close, [writer])
    thread.start()
    end_of_input.start()
    try:
        assert pykclient("produce", orders, str(pipe), "--format", form).code == 130
        assert not end_of_input.finished.is_set(), "only the end of the input has ended it"
    finally:
        ended.set()
        thread.join()
        end_of_input.cancel()
        end_of_input.join()
        signal.signal(signal.SIGUSR1, before)
        with contextlib.suppress(OSError):  # closed by the timer
            os.close(writer)


@pytest.mark.parametrize(("number", "code"), ENDINGS)
def test_signal_sends_lingering_lines(number: signal.Signals, code: int) -> None:
    with EmbeddedCluster(2) as cluster:
        cluster.create_topic("orders", 2, 1)
        assert cluster.leader(TopicPartition("orders", 0)) != cluster.leader(TopicPartition("orders", 1))
        command = [*COMMAND, "produce", "orders", "-J", "-b", cluster.bootstrap_servers]
        command += ["-X", "linger.ms=80000", "-X", "batch.size=1000"]
        pipe = subprocess.PIPE
        process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe)
        assert process.stdin is not None
        process.stdin.write(b'{"value": "lingers", "partition": 0}\n')
        process.stdin.write(b'{"value": "%s", "partition": 1}\n' % bytes(b"x" * 2000) * 2)  # full batches
        process.stdin.flush()
        eventually(lambda: records(cluster, "orders", 1), 30.0, "a full batch is sent at once")
        assert records(cluster, "orders", 0) == []
        process.send_signal(number)
        assert process.wait(60) == code
        assert process.communicate() == (b"", b"")
        assert records(cluster, "orders", 0) == [(None, b"lingers")]
