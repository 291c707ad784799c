"""The pure and compiled implementations of the selector's parts, in one process."""

from __future__ import annotations

import pytest

from pykclient.network import byte_pump, frame_stream, poller

IMPLEMENTATIONS = ("python", "c", "c with other streams")


def choose(monkeypatch: pytest.MonkeyPatch, implementation: str) -> None:
    """Choose the implementation of selectors that are created from now on.

    It is the one in Python, or the compiled one with its own streams or with those in Python.
    """
    compiled = pytest.importorskip("pykclient._speedups.network")
    streams = compiled.FrameStream if implementation == "c" else None
    monkeypatch.setattr(frame_stream, "_CompiledFrameStream", streams)
    monkeypatch.setattr(byte_pump, "_CompiledPump", streams)
    monkeypatch.setattr(poller, "_compiled", None if implementation == "python" else compiled)
