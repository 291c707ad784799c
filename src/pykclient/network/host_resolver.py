"""Host name lookups that do not block the caller (Java: HostResolver, DefaultHostResolver)."""

from __future__ import annotations

import os
import socket
import threading
import weakref
from collections import deque
from collections.abc import Callable
from typing import Final, Protocol

from pykclient.clock import SYSTEM_CLOCK, Clock

#: The most lookups in progress at the same time. Further lookups wait in a queue, first in, first out.
MAX_THREADS: Final = 16

#: A failed lookup is not repeated for this long, so that retrying clients do not add load to a failing name server.
FAILURE_REMEMBERED_MS: Final = 1_000


class Lookup:
    """A caller's request for the addresses of a host. Thread: any."""

    def __init__(self, on_done: Callable[[], object] | None = None) -> None:
        self._on_done = on_done
        self._outcome: list[str] | OSError | None = None

    @property
    def done(self) -> bool:
        """True once the lookup has succeeded or failed."""
        return self._outcome is not None

    def result(self) -> list[str]:
        """Return the result of a lookup that is done: at least one address, in the order to try them.

        Raises:
            OSError: the host has no address, or the lookup failed.
        """
        outcome = self._outcome
        if isinstance(outcome, OSError):
            raise OSError(*outcome.args)  # a new error, because several callers may share the outcome
        assert outcome is not None
        return list(outcome)

    def finish(self, outcome: list[str] | OSError) -> None:
        """Set the outcome and notify the caller. For resolvers."""
        self._outcome = outcome
        on_done, self._on_done = self._on_done, None
        if on_done is not None:
            on_done()

    def cancel(self) -> None:
        """Do not notify the caller any more."""
        self._on_done = None


class HostResolver(Protocol):
    """Finds the addresses of hosts. Thread: any."""

    def look_up(self, host: str, on_done: Callable[[], object] | None = None, canonical: bool = False) -> Lookup:
        """Start to look up ``host``. Never block, and never raise OSError: ``Lookup.result`` raises it.

        Any thread calls ``on_done`` when the lookup is done, unless it is done when this method returns. ``on_done``
        must not block. The result consists of numeric addresses; with ``canonical``, of the names of these addresses.
        """


_Key = tuple[str, bool]


class DefaultHostResolver:
    """The system's resolver, called on daemon threads because its call has no timeout.

    The resolver looks up each name only once at a time, however many clients ask for it. So a name server that does not
    respond blocks one thread per host, and at most ``MAX_THREADS`` in total. IPv4 addresses come first, as in Java,
    because brokers on a developer's machine mostly listen there.

    A forked child starts afresh, because the parent's threads and results do not exist there. Thread: any.
    """

    def __init__(self, clock: Clock = SYSTEM_CLOCK) -> None:
        self._clock = clock
        self.reset()
        _resolvers.add(self)

    def reset(self) -> None:
        """Forget the lookups in progress.

        No lock is taken, because in a forked child another thread of the parent may have held it.
        """
        self._lock = threading.Lock()  # guards: all below
        self._lookups: dict[_Key, list[Lookup]] = {}
        self._waiting: deque[_Key] = deque()
        self._failures: dict[_Key, tuple[int, OSError]] = {}
        self._threads = 0

    def look_up(self, host: str, on_done: Callable[[], object] | None = None, canonical: bool = False) -> Lookup:
        lookup = Lookup(on_done)
        if is_numeric(host) and not canonical:
            lookup = Lookup()
            lookup.finish([host])
            return lookup
        key = host, canonical
        now_ms = self._clock.now_ms()
        with self._lock:
            failure = self._failures.get(key)
            if failure is not None and now_ms - failure[0] < FAILURE_REMEMBERED_MS:
                lookup.cancel()
                lookup.finish(failure[1])
                return lookup
            under_way = self._lookups.get(key)
            if under_way is not None:
                under_way.append(lookup)
                return lookup
            self._lookups[key] = [lookup]
            if self._threads >= MAX_THREADS:
                self._waiting.append(key)
                return lookup
            self._threads += 1
        try:
            threading.Thread(target=self._run, args=(key,), name=f"kafka-dns | {host}", daemon=True).start()
        except RuntimeError as error:  # no more threads, or the interpreter is shutting down
            lookup.cancel()
            failed: _Key | None = key
            while failed is not None:  # lookups that joined the queue meanwhile have no thread, either
                failed = self._finish(failed, OSError(f"{failed[0]!r} cannot be looked up: {error}"))
        return lookup

    def _run(self, key: _Key | None) -> None:
        while key is not None:
            threading.current_thread().name = f"kafka-dns | {key[0]}"
            key = self._finish(key, _outcome(*key))

    def _finish(self, key: _Key, outcome: list[str] | OSError) -> _Key | None:
        """Record an outcome and notify its callers. Return the next name to look up; None ends the thread."""
        now_ms = self._clock.now_ms()
        with self._lock:
            finished = self._lookups.pop(key, [])
            self._failures = {
                failed: failure
                for failed, failure in self._failures.items()
                if now_ms - failure[0] < FAILURE_REMEMBERED_MS
            }
            if isinstance(outcome, OSError):
                self._failures[key] = now_ms, outcome
            following = self._waiting.popleft() if self._waiting else None
            if following is None:
                self._threads -= 1
        for lookup in finished:
            lookup.finish(outcome)
        return following


_resolvers: weakref.WeakSet[DefaultHostResolver] = weakref.WeakSet()


def _reset_all() -> None:
    for resolver in list(_resolvers):
        resolver.reset()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_reset_all)


def is_numeric(host: str) -> bool:
    """Return True if ``host`` is a numeric address."""
    for family in (socket.AF_INET, socket.AF_INET6):
        try:
            socket.inet_pton(family, host.partition("%")[0])
        except (OSError, ValueError):
            continue
        return True
    return False


def _outcome(host: str, canonical: bool) -> list[str] | OSError:
    try:
        addresses = _ask_system(host)
        found = list(dict.fromkeys(map(_canonical_name, addresses))) if canonical else addresses
    except OSError as error:
        return error
    except ValueError:  # for example UnicodeError: a label of the name has more than 63 characters
        return OSError(f"{host!r} is not a host name")
    return found or OSError(f"{host!r} has no address")


def _ask_system(host: str) -> list[str]:
    answers = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    answers.sort(key=lambda answer: answer[0] != socket.AF_INET)  # a stable sort keeps the DNS's order otherwise
    return list(dict.fromkeys(str(answer[4][0]) for answer in answers))


def _canonical_name(ip: str) -> str:
    """Return the name of an address, or the address if it has none."""
    try:
        return socket.getnameinfo((ip, 0), socket.NI_NAMEREQD)[0]
    except OSError:
        return ip
