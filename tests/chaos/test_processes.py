"""Ctrl-C, interpreter exit and fork, each in a process of its own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from typing import Self

import pytest

from tests.chaos import programs
from tests.chaos.verifier import read_back
from tests.support.any_kafka import AnyKafka
from tests.support.proxy import TcpProxy

pytestmark = pytest.mark.slow

#: An interrupted wait ends in under a second on an idle machine; an uninterrupted one takes a minute, or never ends.
PROMPT_S = 20.0

#: The time for a program to reach the state that its name describes.
READY_S = 60.0


class Program:
    """A running process of one of ``programs``."""

    def __init__(self, program: programs.Program, servers: str, topic: str, proxy: TcpProxy | None = None) -> None:
        command = [sys.executable, "-X", "faulthandler", "-m", "tests.chaos.programs", program.__name__, servers, topic]
        environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(
            command, stdin=pipe, stdout=pipe, stderr=pipe, text=True, env=environment, start_new_session=True
        )
        self._proxy = proxy
        #: Aborts a program that hangs, which makes it print where.
        self._watch = threading.Timer(READY_S, lambda: self._process.send_signal(signal.SIGABRT))
        self.output: list[str] = []
        self.errors = ""
        self.took_s = 0.0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._watch.cancel()
        self._process.kill()
        self._process.communicate()

    def await_ready(self) -> Self:
        assert self._process.stdout is not None
        assert self._process.stdin is not None
        self._watch.start()
        for line in self._process.stdout:
            if line == "ready\n":
                self._watch.cancel()
                return self
            if line == "blackhole\n":
                assert self._proxy is not None
                self._proxy.blackhole()
                self._process.stdin.write("done\n")
                self._process.stdin.flush()
            else:
                self.output.append(line.strip())
        self._process.wait(30)
        assert self._process.stderr is not None
        raise AssertionError(f"ended early: {self.output} {self._process.stderr.read()}")

    def signal(self, number: signal.Signals) -> Self:
        self._process.send_signal(number)
        return self

    def await_end(self, timeout_s: float = 60.0) -> int:
        """Wait for the end of the program and return its exit code."""
        start = time.monotonic()
        try:
            output, self.errors = self._process.communicate(timeout=timeout_s)
        except subprocess.TimeoutExpired:
            self._process.send_signal(signal.SIGABRT)
            raise AssertionError(f"hangs: {self._process.communicate()[1]}") from None
        self.took_s = time.monotonic() - start
        self.output += output.split("\n")
        return self._process.returncode


@pytest.fixture
def proxy(any_kafka: AnyKafka) -> Iterator[TcpProxy]:
    with any_kafka.proxies() as proxies:
        yield proxies[1]


@pytest.mark.parametrize(
    "program",
    [
        programs.send_waits_for_memory,
        programs.flush_waits,
        programs.future_waits,
        programs.close_waits,
        programs.poll_waits,
        programs.iteration_waits,
        programs.commit_waits,
        programs.consumer_close_waits,
    ],
    ids=lambda program: program.__name__,
)
def test_ctrl_c_ends_a_program_during_an_outage(
    any_kafka: AnyKafka, proxy: TcpProxy, topic: str, program: programs.Program
) -> None:
    any_kafka.create_topic(topic)
    with Program(program, proxy.address, topic, proxy) as running:
        running.await_ready().signal(signal.SIGINT)
        code = running.await_end()
        assert code == -signal.SIGINT, running.errors
        assert running.took_s < PROMPT_S, running.errors
        assert running.errors.strip().endswith("KeyboardInterrupt"), running.errors
        assert running.errors.count("Traceback") == 1, running.errors


@pytest.mark.parametrize(
    "program",
    [programs.send_waits_for_metadata, programs.poll_waits_without_brokers],
    ids=lambda program: program.__name__,
)
def test_ctrl_c_ends_a_program_without_brokers(any_kafka: AnyKafka, topic: str, program: programs.Program) -> None:
    nobody = f"{any_kafka.brokers[1].host}:{any_kafka.brokers[1].proxied_port}"
    with Program(program, nobody, topic) as running:
        running.await_ready().signal(signal.SIGINT)
        assert running.await_end() == -signal.SIGINT, running.errors
        assert running.took_s < PROMPT_S
        assert running.errors.strip().endswith("KeyboardInterrupt"), running.errors
        assert running.errors.count("Traceback") == 1, running.errors


def test_exit_sends_buffered_records(any_kafka: AnyKafka, topic: str) -> None:
    any_kafka.create_topic(topic)
    with Program(programs.exit_with_unflushed_records, any_kafka.bootstrap_servers, topic) as running:
        assert running.await_ready().await_end() == 0
        assert running.errors == ""
        assert running.took_s < PROMPT_S
    log = read_back(any_kafka.bootstrap_servers, topic)[0]
    assert [record.value for record in log] == [b"%d" % n for n in range(100)]


@pytest.mark.parametrize(
    ("program", "code"),
    [
        (programs.exit_with_unflushed_records_and_no_cluster, 0),
        (programs.exit_with_open_consumer, 0),
        (programs.exit_with_open_consumer_and_no_cluster, 0),
        (programs.exit_by_an_error, 3),
        (programs.exit_of_main_while_a_thread_sends, 0),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_exit_is_prompt_and_silent(
    any_kafka: AnyKafka, proxy: TcpProxy, topic: str, program: programs.Program, code: int
) -> None:
    any_kafka.create_topic(topic)
    with Program(program, proxy.address, topic, proxy) as running:
        assert running.await_ready().await_end() == code, running.errors
        assert "Traceback" not in running.errors, running.errors
        assert running.took_s < PROMPT_S


def test_sigterm_ends_the_program_as_usual(any_kafka: AnyKafka, topic: str) -> None:
    any_kafka.create_topic(topic)
    with Program(programs.wait_for_a_signal, any_kafka.bootstrap_servers, topic) as running:
        running.await_ready().signal(signal.SIGTERM)
        assert running.await_end() == -signal.SIGTERM
        assert running.took_s < PROMPT_S


@pytest.mark.parametrize(
    "program",
    [programs.fork_in_full_swing, programs.fork_and_own_clients, programs.multiprocessing_pool],
    ids=lambda program: program.__name__,
)
def test_forked_children_refuse_calls_and_parents_continue(
    any_kafka: AnyKafka, topic: str, program: programs.Program
) -> None:
    """In the child each call is refused and nothing hangs; the parent continues."""
    any_kafka.create_topic(topic)
    with Program(program, any_kafka.bootstrap_servers, topic) as running:
        running.await_ready()
        assert set(running.output) <= {"status 0"}
        assert running.await_end() == 0, running.errors
        assert "Traceback" not in running.errors, running.errors
