"""What the adapters of the benchmarks share."""

from __future__ import annotations

import hashlib
import threading

from benchmarks.clients.measuring import running_threads, settle
from tests.support.wait import eventually


def test_threads_that_compute_without_the_gil_are_running_until_they_end() -> None:
    done = threading.Event()

    def compute() -> None:
        while not done.is_set():
            hashlib.pbkdf2_hmac("sha256", b"", b"", 500_000)

    thread = threading.Thread(target=compute)
    thread.start()
    try:
        eventually(lambda: str(thread.native_id) in running_threads())
    finally:
        done.set()
        thread.join(30.0)
    settle()
    assert str(thread.native_id) not in running_threads()
