"""The Python worker that runs a task: which task it is, and what keeps the worker fast."""

from __future__ import annotations

import gc
import sys
from functools import cache


def task_context() -> tuple[int, int]:
    """Partition and attempt of the task that this is, counted from 0; (0, 0) outside of tasks."""
    module = sys.modules.get("pyspark.taskcontext")
    context = None if module is None else module.TaskContext.get()
    return (0, 0) if context is None else (context.partitionId(), context.attemptNumber())


def task_name() -> str:
    """The task that this is, for errors; its partition is one of Spark's, of what is written."""
    partition, attempt = task_context()
    return f"Spark partition {partition} (attempt {attempt + 1})"


@cache
def freeze_heap_once() -> None:
    """Take what this worker has loaded so far out of the reach of the garbage collector, for good.

    PySpark's daemon collects garbage after each task, which goes through all objects of pandas, pyarrow and whatever
    else is loaded: 35 ms of CPU. Modules are no garbage, and so need not be looked at.
    """
    import pyarrow.compute  # noqa: F401 - before, so that it is frozen as well

    gc.collect()
    gc.freeze()
