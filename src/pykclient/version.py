"""The version of this package, which clients also tell brokers (KIP-511)."""

__version__ = "0.1.0"
