"""Authentication of connections, between connecting and the first request."""

from pykclient.network.authenticator.authenticator import Authenticator, PlaintextAuthenticator, Session

__all__ = ["Authenticator", "PlaintextAuthenticator", "Session"]
