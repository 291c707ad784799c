"""The pure and compiled implementations of the selector's parts, in one process."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest

from pykclient.network import selector, transport_layer
from pykclient.network.tls import ssl_transport_layer as ssl_transports
from tests.support.twins import both_forms

IMPLEMENTATIONS = ("python", "c", "c with other streams")


@cache
def _streams() -> tuple[Any, Any]:
    """Return both forms, found before the module that has them is patched."""
    return both_forms("pykclient.network.transport_layer", "plaintext_frame_stream")


def choose(monkeypatch: pytest.MonkeyPatch, implementation: str) -> None:
    """Choose the implementation of selectors that are created from now on.

    It is the one in Python, or the compiled one with its own streams or with those in Python.
    """
    pollers = both_forms("pykclient.network.selector", "new_poller")
    streams = _streams()
    pumps = both_forms("pykclient.network.transport_layer", "byte_pump")
    monkeypatch.setattr(selector, "new_poller", pollers[implementation != "python"])
    monkeypatch.setattr(transport_layer, "plaintext_frame_stream", streams[implementation == "c"])
    monkeypatch.setattr(ssl_transports, "byte_pump", pumps[implementation == "c"])
