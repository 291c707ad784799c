"""The command ``pykclient embedded``, used as from a shell."""

from __future__ import annotations

import contextlib
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

import pykclient
from pykclient import KafkaConsumer, KafkaProducer, implementation
from pykclient.cli.main import main
from tests.kafka.probe import cluster_state
from tests.support.wait import eventually

COMMAND = [sys.executable, "-W", "error", "-m", "pykclient"]


class Command:
    """``pykclient embedded`` in a process of its own."""

    def __init__(self, *options: str) -> None:
        self.process = subprocess.Popen(
            [*COMMAND, "embedded", *options], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        self.bootstrap_servers = self.await_line(r"bootstrap servers: (.*)")[1]

    def await_line(self, pattern: str) -> re.Match[str]:
        """Return the next line that matches, and skip those before it."""
        assert self.process.stdout is not None
        passed = []
        for line in self.process.stdout:
            if found := re.search(pattern, line.rstrip("\n")):
                return found
            passed.append(line)
        assert self.process.stderr is not None
        raise AssertionError(f"no line with {pattern}: {passed}, and at the end {self.process.stderr.read()}")

    def await_lines(self, *patterns: str) -> None:
        """Wait for one matching line per pattern, in any order."""
        missing = set(patterns)
        while missing:
            line = self.await_line("|".join(f"(?:{pattern})" for pattern in missing)).string
            missing = {pattern for pattern in missing if not re.search(pattern, line)}

    def end(self, number: signal.Signals) -> tuple[int, float, str]:
        """Send the signal; return the exit code, the seconds until the exit, and stderr."""
        start = time.monotonic()
        self.process.send_signal(number)
        _, errors = self.process.communicate(timeout=60)
        return self.process.returncode, time.monotonic() - start, errors


@contextlib.contextmanager
def running(*options: str) -> Iterator[Command]:
    command = Command("--port", "0", *options)
    try:
        yield command
    finally:
        command.process.kill()
        command.process.communicate()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_cluster_serves_until_a_signal(number: signal.Signals) -> None:
    with running("--brokers", "3", "--topic", "orders:6:3") as command:
        assert len(command.bootstrap_servers.split(",")) == 3
        command.await_line("topic orders: 6 partitions, 3 replicas each$")
        with KafkaProducer[bytes, bytes](bootstrap_servers=command.bootstrap_servers) as producer:
            assert producer.partitions_for("orders") == set(range(6))
            assert producer.send("orders", b"x").get(20).offset == 0
            code, took_s, errors = command.end(number)  # with a client connected
    assert (code, errors) == (0, "")
    assert took_s < 20.0, "it does not wait for those who are connected"


def test_verbose_prints_requests_and_events() -> None:
    with running("--verbose", "--config", "num.partitions=2") as command:
        servers = command.bootstrap_servers
        with KafkaProducer[bytes, bytes](bootstrap_servers=servers, client_id="teller") as producer:
            producer.send("orders", b"x").get(20)
        time_of_day = r"^\d\d:\d\d:\d\d\.\d\d\d "
        command.await_lines(
            time_of_day + r"teller -> broker 1: API_VERSIONS v\d+, answered after \d+ ms$",
            time_of_day + r"teller -> broker 1: PRODUCE v\d+, answered after \d+ ms$",
            time_of_day + r"topic orders: 2 partitions, 1 replica each$",
        )
        with KafkaConsumer[bytes, bytes]("orders", bootstrap_servers=servers, group_id="readers") as consumer:
            eventually(lambda: consumer.poll(timeout_ms=100) or consumer.assignment(), 30.0, "a member", every_s=0)
            command.await_line(time_of_day + "group readers: Stable, 1 member, generation 1$")


def test_release_option_limits_api_versions() -> None:
    with running("--release", "2.1", "--memory-limit", "64MB") as command:
        command.await_line("1 broker as Kafka 2.1")


def test_error_names_port_in_use() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        done = subprocess.run([*COMMAND, "embedded", "--port", port], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert port in done.stderr
    assert "in use" in done.stderr
    assert "--port" in done.stderr
    assert "Traceback" not in done.stderr


def test_host_error_does_not_suggest_another_port(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["embedded", "--host", "no-such-host.invalid", "--port", "0"]) == 1
    assert "--port" not in capsys.readouterr().err


def test_closed_stdout_ends_the_command() -> None:
    with running() as command:
        command.await_line("Ctrl-C ends")
        assert command.process.stdout is not None
        command.process.stdout.close()
        host, _, port = command.bootstrap_servers.partition(":")
        cluster_state(host, int(port), ["orders"])  # creates the topic, so that there is an event to print
        assert command.process.wait(60) == 141
        assert command.process.stderr is not None
        assert command.process.stderr.read() == ""
        command.process.stdout = None


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (["--brokers", "0"], "brokers"),
        (["--config", "num.partitoins=3"], "num.partitions"),
        (["--release", "0.9"], "0.9"),
        (["--topic", "a/b"], "a/b"),
        (["--brokers", "1", "--topic", "orders:1:3"], "eplication factor"),
    ],
)
def test_impossible_options_are_explained(options: list[str], text: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["embedded", "--port", "0", *options]) in (1, 2)
    shown = capsys.readouterr()
    assert shown.err.startswith("pykclient: ")
    assert text in shown.err


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["no-such-command"], "no-such-command"),
        (["embed"], "did you mean 'embedded'?"),
        (["embedded", "--topic", "orders:0"], "orders:0"),
        (["embedded", "--memory-limit", "much"], "'much' is no size; 512MB and 1GB are"),
    ],
)
def test_wrong_usage_exits_with_code_2(arguments: list[str], text: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments) == 2
    assert text in capsys.readouterr().err


def test_version_option_prints_version_and_implementation(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"pykclient {pykclient.__version__} ({implementation.NAME})\n"


def test_version_option_does_not_import_cluster() -> None:
    program = "import sys; from pykclient.cli.main import main; main(['--version']); print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert not [name for name in done.stdout.split() if name.startswith(("pykclient.testing", "pykclient.network"))]
