"""Sending frames."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from pykclient.implementation import python_form
from pykclient.network.frames import IOV_MAX, NetworkSend

#: The class that clients use, and its Python form.
FORMS = sorted({NetworkSend, python_form(NetworkSend)}, key=lambda form: form.__module__)


@pytest.mark.parametrize("form", FORMS)
@given(buffers=st.lists(st.binary(max_size=20), max_size=20), steps=st.lists(st.integers(1, 40), min_size=1))
def test_any_partial_writes_send_the_same_bytes(
    form: type[NetworkSend], buffers: list[bytes], steps: list[int]
) -> None:
    send = form("0", buffers)
    assert send.size == sum(map(len, buffers))
    sent = b""
    turn = 0
    while not send.completed:
        pending = b"".join(bytes(buffer) for buffer in send.pending())
        count = min(steps[turn % len(steps)], len(pending))
        assert count
        sent += pending[:count]
        send.advance(count)
        turn += 1
    assert sent == b"".join(buffers)
    assert send.remaining == 0


@pytest.mark.parametrize("form", FORMS)
def test_pending_returns_at_most_iov_max_buffers(form: type[NetworkSend]) -> None:
    send = form("0", [b"x"] * (IOV_MAX + 10))
    assert len(send.pending()) == IOV_MAX
    send.advance(IOV_MAX)
    assert len(send.pending()) == 10
    send.advance(10)
    assert send.completed


@pytest.mark.parametrize("form", FORMS)
def test_advancing_too_far_raises(form: type[NetworkSend]) -> None:
    send = form("7", [b"abc", memoryview(b"de")], expect_response=False)
    assert (send.destination_id, send.expect_response, send.size) == ("7", False, 5)
    assert repr(send) == "NetworkSend(to=7, 5 of 5 bytes left)"
    with pytest.raises(IndexError):
        send.advance(6)


@pytest.mark.parametrize("form", FORMS)
def test_complete_marks_frame_as_sent(form: type[NetworkSend]) -> None:
    send = form("0", [b"abc", b"de"])
    send.advance(1)
    assert send.unsent() == [b"bc", b"de"]
    send.complete()
    assert send.completed
    assert send.remaining == 0
    assert send.unsent() == []
