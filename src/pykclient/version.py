"""The version of this package, which clients also tell brokers (KIP-511)."""

from __future__ import annotations

__version__ = "0.1.0"
