"""Authentication of connections, between connecting and the first request.

- ``sasl_client_authenticator``, ``authenticator``: the exchange of frames on a connection
- ``sasl_client``: the mechanisms; ``scram``, ``oauth_bearer``, ``gssapi_client``, ``aws_msk_iam``: the larger ones
- ``logins``: whose credentials a connection uses
- ``token_endpoint``, ``assertions``: tokens from OAuth servers
"""

from pykclient.network.authenticator.authenticator import Authenticator, PlaintextAuthenticator, Session

__all__ = ["Authenticator", "PlaintextAuthenticator", "Session"]
