"""Marks for features that not all supported releases of Spark have."""

from __future__ import annotations

import pytest

from pykclient.spark.stream_reader import HAS_READ_LIMITS

#: For tests whose streams are limited.
needs_read_limits = pytest.mark.skipif(
    not HAS_READ_LIMITS, reason="Spark 4.1 lets no Python data source limit a micro-batch"
)
