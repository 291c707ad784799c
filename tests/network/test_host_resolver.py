"""DNS lookups on threads are shared, bounded and cached, and can be abandoned."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator

import pytest

from pykclient.network import host_resolver
from pykclient.network.host_resolver import (
    FAILURE_REMEMBERED_MS,
    MAX_THREADS,
    DefaultHostResolver,
    Lookup,
    is_numeric,
)
from tests.support.mock_clock import MockClock
from tests.support.wait import eventually


class Dns:
    """A fake system resolver: each lookup waits until the test provides its result."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.running: set[str] = set()
        self.threads: set[str] = set()
        self._lock = threading.Condition()
        self._answers: dict[str, list[str] | Exception] = {}

    def __call__(self, host: str) -> list[str]:
        with self._lock:
            self.asked.append(host)
            self.running.add(host)
            self.threads.add(threading.current_thread().name)
            assert self._lock.wait_for(lambda: host in self._answers, 60)
            self.running.discard(host)
            outcome = self._answers[host]
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    def answer(self, host: str, outcome: list[str] | Exception) -> None:
        with self._lock:
            self._answers[host] = outcome
            self._lock.notify_all()

    def answer_all(self) -> None:
        for host in list(self.asked):
            self.answer(host, ["10.0.0.1"])


@pytest.fixture
def dns(monkeypatch: pytest.MonkeyPatch) -> Iterator[Dns]:
    dns = Dns()
    monkeypatch.setattr(host_resolver, "_ask_system", dns)
    yield dns
    for number in range(100):
        dns.answer(f"host-{number}", ["10.0.0.1"])
    eventually(lambda: not dns.running)


def ended(lookup: Lookup) -> Callable[[], bool]:
    return lambda: lookup.done


def test_numeric_address_needs_no_lookup(dns: Dns) -> None:
    resolver = DefaultHostResolver()
    for address in ("10.1.2.3", "::1", "fe80::1%eth0"):
        lookup = resolver.look_up(address, lambda: pytest.fail("it was done already"))
        assert lookup.done
        assert lookup.result() == [address]
    assert not dns.asked


def test_callback_is_called_once_without_blocking_caller(dns: Dns) -> None:
    resolver = DefaultHostResolver()
    told = threading.Semaphore(0)
    lookup = resolver.look_up("host-1", told.release)
    assert not lookup.done
    eventually(lambda: dns.running)
    dns.answer("host-1", ["10.0.0.1", "10.0.0.2"])
    assert told.acquire(timeout=30)
    assert lookup.done
    assert lookup.result() == ["10.0.0.1", "10.0.0.2"]
    assert dns.threads == {"kafka-dns | host-1"}


def test_concurrent_lookups_of_same_name_are_shared(dns: Dns) -> None:
    resolver = DefaultHostResolver()
    lookups = [resolver.look_up("host-1") for _ in range(5)]
    eventually(lambda: dns.running)
    dns.answer("host-1", ["10.0.0.1"])
    for lookup in lookups:
        eventually(ended(lookup))
        assert lookup.result() == ["10.0.0.1"]
    assert dns.asked == ["host-1"]
    later = resolver.look_up("host-1")
    eventually(ended(later))
    assert dns.asked == ["host-1"] * 2  # results are not cached


def test_cancelled_lookup_calls_no_callback(dns: Dns) -> None:
    resolver = DefaultHostResolver()
    told: list[int] = []
    first = resolver.look_up("host-1", lambda: told.append(1))
    second = resolver.look_up("host-1", lambda: told.append(2))
    first.cancel()
    dns.answer("host-1", ["10.0.0.1"])
    eventually(ended(second))
    eventually(lambda: told)
    assert told == [2]


def test_a_failure_is_remembered_for_a_while(dns: Dns) -> None:
    clock = MockClock()
    resolver = DefaultHostResolver(clock)
    lookup = resolver.look_up("host-1")
    dns.answer("host-1", OSError(-3, "Temporary failure in name resolution"))
    eventually(ended(lookup))
    for _ in range(3):
        again = resolver.look_up("host-1")
        assert again.done
        with pytest.raises(OSError, match="Temporary failure") as caught:
            again.result()
        assert caught.value.errno == -3
    assert dns.asked == ["host-1"]
    clock.advance(FAILURE_REMEMBERED_MS)
    later = resolver.look_up("host-1")
    eventually(ended(later))
    assert dns.asked == ["host-1"] * 2


@pytest.mark.parametrize("outcome", [OSError(-2, "unknown"), UnicodeError("label too long"), ValueError("null"), []])
def test_every_failure_is_an_oserror(dns: Dns, outcome: Exception | list[str]) -> None:
    lookup = DefaultHostResolver().look_up("host-1")
    dns.answer("host-1", outcome)
    eventually(ended(lookup))
    with pytest.raises(OSError, match=r"\w"):
        lookup.result()


def test_hanging_lookups_use_bounded_number_of_threads(dns: Dns) -> None:
    resolver = DefaultHostResolver()
    lookups = [resolver.look_up(f"host-{number}") for number in range(MAX_THREADS + 3)]
    eventually(lambda: len(dns.running) == MAX_THREADS)
    assert len(dns.asked) == MAX_THREADS
    names = {thread.name for thread in threading.enumerate()}
    assert len([name for name in names if name.startswith("kafka-dns | host-")]) == MAX_THREADS
    dns.answer("host-0", ["10.0.0.1"])
    eventually(lambda: len(dns.asked) == MAX_THREADS + 1)
    assert dns.asked[-1] == f"host-{MAX_THREADS}"
    for number in range(MAX_THREADS + 3):
        dns.answer(f"host-{number}", ["10.0.0.1"])
    for lookup in lookups:
        eventually(ended(lookup))
    one_more = resolver.look_up("host-0")
    eventually(ended(one_more))


def test_lookup_fails_if_thread_cannot_start(monkeypatch: pytest.MonkeyPatch) -> None:
    def start(_self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    clock = MockClock()
    resolver = DefaultHostResolver(clock)
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", start)
        lookup = resolver.look_up("host-1", lambda: pytest.fail("it was done already"))
    with pytest.raises(OSError, match="can't start new thread"):
        lookup.result()
    clock.advance(FAILURE_REMEMBERED_MS)
    monkeypatch.setattr(host_resolver, "_ask_system", lambda _host: ["10.0.0.1"])
    later = resolver.look_up("host-1")
    eventually(ended(later))
    assert later.result() == ["10.0.0.1"]


def test_queued_lookups_fail_if_thread_cannot_start(dns: Dns, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = MockClock()
    resolver = DefaultHostResolver(clock)
    running = [resolver.look_up(f"host-{number}") for number in range(MAX_THREADS - 1)]
    waiting: list[Lookup] = []
    told: list[str] = []

    def start(_self: threading.Thread) -> None:
        # Other threads ask for more names before this one fails.
        waiting.extend(resolver.look_up(f"host-{50 + number}", lambda: told.append("waiting")) for number in range(3))
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", start)
        lookup = resolver.look_up("host-49", lambda: pytest.fail("it was done already"))
    assert lookup.done
    assert told == ["waiting"] * 3
    for number, failed in enumerate(waiting):
        with pytest.raises(OSError, match=f"'host-{50 + number}' cannot be looked up: can't start new thread"):
            failed.result()
    clock.advance(FAILURE_REMEMBERED_MS)
    later = resolver.look_up("host-50")  # takes the place of the thread that did not start
    eventually(lambda: "host-50" in dns.asked)
    for number in (*range(MAX_THREADS - 1), 50):
        dns.answer(f"host-{number}", ["10.0.0.1"])
    for lookup in (*running, later):
        eventually(ended(lookup))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork")
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_forked_child_repeats_lookup(dns: Dns) -> None:
    """A forked child inherits neither the pending lookup nor a lock that another thread holds."""
    resolver = DefaultHostResolver()
    resolver.look_up("host-1")
    eventually(lambda: dns.running)
    with resolver._lock:
        pid = os.fork()
        if pid == 0:
            host_resolver._ask_system = lambda _host: ["10.0.0.9"]  # type: ignore[assignment]
            done = threading.Event()
            lookup = resolver.look_up("host-1", done.set)
            in_time = lookup.done or done.wait(20)
            os._exit(0 if in_time and lookup.result() == ["10.0.0.9"] else 1)
    _, status = os.waitpid(pid, 0)
    assert os.waitstatus_to_exitcode(status) == 0


def test_system_resolver_resolves_localhost() -> None:
    resolver = DefaultHostResolver()

    def answer(host: str, canonical: bool = False) -> list[str]:
        lookup = resolver.look_up(host, None, canonical)
        eventually(ended(lookup))
        return lookup.result()

    assert "127.0.0.1" in answer("localhost")
    assert answer("localhost")[0] == "127.0.0.1"  # IPv4 first
    assert len(answer("localhost", canonical=True)) >= 1
    assert len(answer("127.0.0.1", canonical=True)) == 1
    for name in ("no-such-host.invalid", "a" * 70 + ".example"):
        with pytest.raises(OSError, match=r"\w"):
            answer(name)


@pytest.mark.parametrize(
    ("host", "expected"), [("1.2.3.4", True), ("::", True), ("fe80::1%lo", True), ("a", False), ("a\0b", False)]
)
def test_numeric_addresses_are_recognized(host: str, expected: bool) -> None:
    assert is_numeric(host) == expected
