"""Commands on a terminal: prompts, progress, the live view, and Ctrl-C, which ends all of them quietly."""

from __future__ import annotations

import os
import pty
import re
import select
import signal
import subprocess
import sys
import termios
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

import pytest

from pykclient import KafkaConsumer, KafkaProducer, OffsetAndMetadata, TopicPartition
from pykclient.testing import EmbeddedCluster, Security

pytest.importorskip("rich")

#: Makes the terminal on stdin the one whose Ctrl-C this process gets, then runs the command.
LAUNCHER = "import fcntl, os, sys, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); os.execv(sys.argv[1], sys.argv[1:])"
CTRL_C = b"\x03"
PATIENCE_S = 60
PASSWORD = "hers-4021"
TOPIC = "orders"


class Terminal:
    """A command on a pseudo-terminal. Thread: owner."""

    def __init__(self, *words: str, settings: Mapping[str, str]) -> None:
        environment = {name: text for name, text in os.environ.items() if not name.startswith("PYKCLIENT_")}
        environment |= {f"PYKCLIENT_{key.upper().replace('.', '_')}": text for key, text in settings.items()}
        environment |= {"TERM": "xterm", "COLUMNS": "120", "LINES": "40", "XDG_CONFIG_HOME": "/nonexistent"}
        self._terminal, self._side = pty.openpty()
        self._before = termios.tcgetattr(self._side)
        command = [sys.executable, "-c", LAUNCHER, sys.executable, "-W", "error", "-m", "pykclient", *words]
        self.process = subprocess.Popen(
            command,
            stdin=self._side,
            stdout=self._side,
            stderr=self._side,
            env=environment,
            start_new_session=True,
        )
        self.shown = ""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, _type: type[BaseException] | None, _: BaseException | None, _at: TracebackType | None) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGKILL)
        self.process.wait(PATIENCE_S)
        os.close(self._terminal)
        os.close(self._side)

    def _read(self) -> None:
        """Read what has been shown, and wait a moment for it if there is nothing."""
        if select.select([self._terminal], [], [], 0.05)[0]:
            self.shown += os.read(self._terminal, 1 << 16).decode()

    def until(self, pattern: str) -> None:
        """Wait until the pattern has been shown."""
        deadline_s = time.monotonic() + PATIENCE_S
        while not re.search(pattern, self.shown):
            assert self.process.poll() is None, f"it has ended: {self.shown!r}"
            assert time.monotonic() < deadline_s, f"no {pattern!r} in {self.shown!r}"
            self._read()

    def until_silent(self) -> None:
        """Wait until the terminal echoes nothing, as a command has turned that off."""
        deadline_s = time.monotonic() + PATIENCE_S
        while termios.tcgetattr(self._side)[3] & termios.ECHO:
            assert time.monotonic() < deadline_s
            self._read()

    def type(self, keys: bytes) -> None:
        os.write(self._terminal, keys)

    def end(self) -> int:
        """Wait for the end; return the exit code. The terminal is as it was before."""
        deadline_s = time.monotonic() + PATIENCE_S
        while self.process.poll() is None:
            assert time.monotonic() < deadline_s, f"it does not end: {self.shown!r}"
            self._read()
        while select.select([self._terminal], [], [], 0)[0]:
            self._read()
        assert termios.tcgetattr(self._side) == self._before
        assert "Traceback" not in self.shown
        assert self.shown.count("\x1b[?25l") <= self.shown.count("\x1b[?25h"), "the cursor is hidden"
        assert self.shown.count("\x1b[?1049h") == self.shown.count("\x1b[?1049l"), "the screen was not given back"
        return self.process.returncode


@pytest.fixture(scope="module")
def settings() -> Iterator[dict[str, str]]:
    """The settings of a cluster with passwords, without the password."""
    with EmbeddedCluster(1, security=Security("SASL_PLAINTEXT", users={"alice": PASSWORD})) as cluster:
        cluster.create_topic(TOPIC, 1)
        settings = {key: str(value) for key, value in cluster.client_config().items()}
        with KafkaProducer(dict(settings)) as producer, KafkaConsumer({**settings, "group.id": "g"}) as consumer:
            producer.send(TOPIC, b"the record").get(30)
            consumer.assign([TopicPartition(TOPIC, 0)])
            consumer.commit({TopicPartition(TOPIC, 0): OffsetAndMetadata(1)})
        assert settings.pop("sasl.password") == PASSWORD
        yield settings


@pytest.fixture
def with_password(settings: dict[str, str]) -> dict[str, str]:
    return {**settings, "sasl.password": PASSWORD}


def test_password_prompt_does_not_echo(settings: dict[str, str], tmp_path: Path) -> None:
    lines = tmp_path / "lines.txt"
    lines.write_bytes(b"x" * 99 + b"\n")
    with Terminal("produce", TOPIC, str(lines), settings=settings) as terminal:
        terminal.until("Password of alice: ")
        terminal.until_silent()
        terminal.type(PASSWORD.encode() + b"\n")
        assert terminal.end() == 0, terminal.shown
        assert PASSWORD not in terminal.shown
        assert "100%" in terminal.shown or "bytes" in terminal.shown  # the progress


def test_ctrl_c_at_password_prompt_exits_with_130(settings: dict[str, str]) -> None:
    with Terminal("topics", "list", settings=settings) as terminal:
        terminal.until("Password of alice: ")
        terminal.until_silent()
        terminal.type(PASSWORD[:3].encode() + CTRL_C)
        assert terminal.end() == 130, terminal.shown
        assert PASSWORD[:3] not in terminal.shown


@pytest.mark.parametrize(
    ("words", "sign"),
    [
        (("top", "--interval", "50ms"), r"\x1b\[\?1049h(.|\n)*TOPIC"),
        (("groups", "describe", "g", "--watch", "--interval", "50ms"), r"GROUP"),
        (("consume", TOPIC), "the record"),
        (("consume", TOPIC, "--group", "g2"), "the record"),
    ],
    ids=["top", "watch", "consume", "consume in a group"],
)
def test_ctrl_c_ends_endless_commands(with_password: dict[str, str], words: tuple[str, ...], sign: str) -> None:
    with Terminal(*words, settings=with_password) as terminal:
        terminal.until(sign)
        terminal.type(CTRL_C)
        assert terminal.end() == 130, terminal.shown


def test_ctrl_c_ends_produce_from_terminal(with_password: dict[str, str]) -> None:
    with Terminal("produce", TOPIC, "--verbose", settings=with_password) as terminal:
        terminal.until("pykclient: ")  # it runs
        terminal.type(b"typed\n")
        terminal.until("typed")
        terminal.type(CTRL_C)
        assert terminal.end() == 130, terminal.shown


def test_ctrl_c_ends_produce_with_progress_bar(with_password: dict[str, str], tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = os.open(pipe, os.O_RDWR)  # which does not wait for the reader, and keeps the pipe open
    try:
        with Terminal("produce", TOPIC, str(pipe), "--progress", settings=with_password) as terminal:
            os.write(writer, b"x\n" * 10)
            terminal.until("10 records")
            terminal.type(CTRL_C)
            assert terminal.end() == 130, terminal.shown
    finally:
        os.close(writer)
