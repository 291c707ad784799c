"""The Python worker that runs a task: the current task, and the worker's garbage collector."""

from __future__ import annotations

import gc
import sys
from functools import cache
from typing import Final, NamedTuple

#: The bound of the responses that a worker keeps of each broker for later tasks of streams, in bytes.
KEPT_BYTES: Final = 64 << 20

#: The maximum number of consumers that keep them. Each holds at most one response of each broker.
MAX_WARM: Final = 8


def task_context() -> tuple[int, int]:
    """Return the partition and attempt of the current task, both counted from 0; (0, 0) outside of tasks."""
    module = sys.modules.get("pyspark.taskcontext")
    context = None if module is None else module.TaskContext.get()
    return (0, 0) if context is None else (context.partitionId(), context.attemptNumber())


class TaskAttempt(NamedTuple):
    """A task's attempt and its micro-batch. In a batch query, ``query`` is None and ``batch`` -1."""

    partition: int = 0
    attempt: int = 0
    query: str | None = None
    batch: int = -1


def task_attempt() -> TaskAttempt:
    """Return the current task's attempt, with the properties that streams set (Spark: MicroBatchExecution)."""
    module = sys.modules.get("pyspark.taskcontext")
    context = None if module is None else module.TaskContext.get()
    if context is None:
        return TaskAttempt()
    query = context.getLocalProperty("sql.streaming.queryId")
    batch = context.getLocalProperty("streaming.sql.batchId")
    return TaskAttempt(
        context.partitionId(), context.attemptNumber(), query or None, -1 if batch is None else int(batch)
    )


def task_name() -> str:
    """Return the name of the current task for errors. The partition is one of Spark's, not of a topic."""
    partition, attempt = task_context()
    return f"Spark partition {partition} (attempt {attempt + 1})"


@cache
def freeze_heap_once() -> None:
    """Exempt all objects that this worker has loaded so far from garbage collection, permanently.

    PySpark's daemon runs the garbage collector after each task. It visits all objects of pandas, pyarrow and other
    loaded modules, which takes 35 ms of CPU and finds nothing.
    """
    import pyarrow.compute  # noqa: F401 - loaded first, so that it is frozen, too

    gc.collect()
    gc.freeze()
