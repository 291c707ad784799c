"""Sending frames."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from pykclient.network.network_send import IOV_MAX, NetworkSend


@given(buffers=st.lists(st.binary(max_size=20), max_size=20), steps=st.lists(st.integers(1, 40), min_size=1))
def test_any_partial_writes_send_the_same_bytes(buffers: list[bytes], steps: list[int]) -> None:
    send = NetworkSend("0", buffers)
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


def test_no_more_buffers_than_one_call_takes() -> None:
    send = NetworkSend("0", [b"x"] * (IOV_MAX + 10))
    assert len(send.pending()) == IOV_MAX
    send.advance(IOV_MAX)
    assert len(send.pending()) == 10
    send.advance(10)
    assert send.completed


def test_a_frame_that_was_sent_in_another_form() -> None:
    send = NetworkSend("0", [b"abc", b"de"])
    send.advance(1)
    assert send.unsent() == [b"bc", b"de"]
    send.complete()
    assert send.completed
    assert send.remaining == 0
    assert send.unsent() == []
