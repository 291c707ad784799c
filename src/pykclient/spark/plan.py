"""A look at a query's plan, for the exactly-once sink."""

from __future__ import annotations

import contextlib
import io
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

#: An operator that moves rows between Spark's partitions, in the text of a physical plan. A broadcast moves none.
_EXCHANGE = re.compile(r"^[ :+|-]*(?:\*\(\d+\) )?Exchange\b", re.MULTILINE)


def has_shuffle(frame: DataFrame) -> bool:
    """Return True if Spark's physical plan of a DataFrame moves rows between partitions: aggregations, joins, sorts.

    Such a query may have its rows in other partitions when a micro-batch is repeated, so the sink's option
    ``exactlyOnceMode=task`` is not for it. Call it on the driver, with a batch or a stream, also with Spark Connect::

        assert not has_shuffle(orders)
        orders.writeStream.format("pykclient").option("exactlyOnceMode", "task")...
    """
    text = io.StringIO()
    with contextlib.redirect_stdout(text):  # the only way that Spark and Spark Connect share
        frame.explain()
    return _EXCHANGE.search(text.getvalue()) is not None
