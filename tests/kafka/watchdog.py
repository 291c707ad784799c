"""Kills leftover processes when the test process ends, however it ends. KafkaCluster runs it as a script.

The pipe on stdin stays open while the parent lives. The parent adds and removes processes to watch with ``+pid`` and
``-pid`` lines. At the end of the pipe, the script kills the remaining processes and deletes the folder (first
argument).
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import sys
import time


def main() -> None:
    watched: set[int] = set()
    for line in sys.stdin:
        pid = int(line[1:])
        (watched.add if line[0] == "+" else watched.discard)(pid)
    for pid in watched:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    for _ in range(50):  # a dying broker may still be writing
        shutil.rmtree(sys.argv[1], ignore_errors=True)
        if not os.path.exists(sys.argv[1]):
            return
        time.sleep(0.1)


if __name__ == "__main__":
    main()
