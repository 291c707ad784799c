"""How a connection proves who is at its ends, between connecting and the first request."""

from pykclient.network.authenticator.authenticator import Authenticator, PlaintextAuthenticator

__all__ = ["Authenticator", "PlaintextAuthenticator"]
