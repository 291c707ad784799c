"""Responses by which embedded brokers refuse a request."""

from __future__ import annotations

from typing import Any

from pykclient.protocol.message import Request
from pykclient.testing.handlers import handler


def refused(body: Request, code: int, message: str | None = None) -> Any:
    """Return the response to ``body`` that contains only an error."""
    found = handler(body.API_KEY)
    assert found is not None
    return found.error_response(body, code, message)
