"""The compiled form of ``system_time.py``."""

from libc.stdint cimport int64_t

from time import monotonic_ns as _monotonic_ns, time_ns as _time_ns

cdef object monotonic_ns = _monotonic_ns
cdef object time_ns = _time_ns


def monotonic_ms():
    return <int64_t>monotonic_ns() // 1_000_000


def wall_ms():
    return <int64_t>time_ns() // 1_000_000
