"""Checks after each test that no fault caused an error in a client's own thread or left a thread behind."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator

import pytest

from tests.support.wait import eventually

pytest.register_assert_rewrite("tests.chaos.verifier")

_CLIENT_THREADS = ("kafka-producer-network-thread", "kafka-coordinator-heartbeat-thread")


def client_threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith(_CLIENT_THREADS)]


@pytest.fixture(autouse=True)
def nothing_odd(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """Check that the log has no traceback (except of application code), and that no client thread is left."""
    caplog.set_level(logging.INFO, "pykclient")
    yield
    tracebacks = [
        record.getMessage()
        for record in caplog.get_records("call")
        if record.exc_info and record.name.startswith("pykclient") and not _is_of_application(record)
    ]
    assert not tracebacks, tracebacks
    eventually(lambda: not client_threads(), 30.0, f"no threads left: {client_threads()}")


def _is_of_application(record: logging.LogRecord) -> bool:
    """Return whether a test's callback raised the error."""
    return "chaos:" in str(record.exc_info[1] if record.exc_info else "")
