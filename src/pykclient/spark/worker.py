"""The Python worker that runs a task: the current task, and the worker's garbage collector."""

from __future__ import annotations

import gc
import sys
from functools import cache


def task_context() -> tuple[int, int]:
    """Return partition and attempt of the current task, both counted from 0; (0, 0) outside of tasks."""
    module = sys.modules.get("pyspark.taskcontext")
    context = None if module is None else module.TaskContext.get()
    return (0, 0) if context is None else (context.partitionId(), context.attemptNumber())


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
