"""Decisions to do what is due a little earlier or later, at a time when the application is awake.

An idle consumer is called again and again with the same timeout. If its heartbeats and commits leave when a call
begins, the process does not have to wake up for them. As they then become due about when a later call ends, they stay
there.
"""

from __future__ import annotations

from typing import Final

#: The part of a wait by which it may be longer, and the part of an interval by which it may be shorter.
_PARTS_OF_WAIT: Final = 16
_PARTS_OF_INTERVAL: Final = 3


def ends_with(wait_ms: int, remaining_ms: int) -> bool:
    """Return whether to wait until the call ends, in ``remaining_ms``, for something that is due in ``wait_ms``.

    That is so if it is due later, or so little earlier that the next call can do it, a sixteenth of ``wait_ms`` late
    at most.
    """
    return remaining_ms <= wait_ms + wait_ms // _PARTS_OF_WAIT


def begins_with(wait_ms: int, remaining_ms: int, interval_ms: int) -> bool:
    """Return whether to do at once what is due in ``wait_ms``, because that is in the middle of the call.

    That is so if it is early by a third of its interval at most.
    """
    # The rest is ``not ends_with(wait_ms, remaining_ms)``, without its call.
    return wait_ms <= interval_ms // _PARTS_OF_INTERVAL and remaining_ms > wait_ms + wait_ms // _PARTS_OF_WAIT
