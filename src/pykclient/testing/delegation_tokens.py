"""The delegation tokens of an embedded cluster (Java: DelegationTokenControlManager; KIP-48)."""

from __future__ import annotations

import base64
import hashlib
import hmac
import random
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple
from uuid import UUID

from pykclient import errors
from pykclient.network.authenticator import scram
from pykclient.network.authenticator.scram import ScramCredential
from pykclient.testing.config import BrokerConfig
from pykclient.testing.coordination import znodes
from pykclient.testing.coordination.coordination_service import CoordinationService
from pykclient.testing.event_loop import EventLoop

_USER: Final = "User:"
_LONGEST_MS: Final = (1 << 63) - 1


class DelegationToken(NamedTuple):
    """A token without its secret. Principals have the form ``User:alice``; times are of the wall clock."""

    token_id: str
    owner: str
    requester: str
    renewers: tuple[str, ...]
    issue_ms: int
    expiry_ms: int
    max_ms: int

    def belongs_to(self, principal: str) -> bool:
        """Return whether a principal owns the token, or may renew it."""
        return principal == self.owner or principal in self.renewers


class DelegationTokens:
    """All tokens of a cluster, stored in its coordination service. All brokers share them.

    A broker removes an expired token when it next looks at it, so such a token is unknown at once. Kafka's brokers look
    for expired tokens every ``delegation.token.expiry.check.interval.ms``. Thread: loop.
    """

    def __init__(self, service: CoordinationService, config: BrokerConfig, loop: EventLoop, rng: random.Random) -> None:
        self._service = service
        self._loop = loop
        self._rng = rng
        secret = config["delegation.token.secret.key"]
        self._secret: bytes | None = None if secret is None else secret.value.encode()
        self._max_lifetime_ms = config.get_int("delegation.token.max.lifetime.ms")
        self._renew_lifetime_ms = config.get_int("delegation.token.expiry.time.ms")
        self._credentials: dict[tuple[str, str], ScramCredential] = {}  # by token id and mechanism

    def check_enabled(self) -> None:
        """Check that the cluster uses tokens.

        Raises:
            DelegationTokenDisabledError: it has no ``delegation.token.secret.key``.
        """
        if self._secret is None:
            raise errors.DelegationTokenDisabledError("Delegation Token feature is not enabled.")

    # --- changes -----------------------------------------------------------------------------------------------------

    def create(self, owner: str, requester: str, renewers: Sequence[str], max_lifetime_ms: int) -> DelegationToken:
        """Create a token. Without a positive ``max_lifetime_ms``, it gets the cluster's maximum lifetime.

        Raises:
            DelegationTokenDisabledError: the cluster does not use tokens.
            InvalidPrincipalTypeError: a renewer is no user.
        """
        self.check_enabled()
        if not all(renewer.startswith(_USER) for renewer in renewers):
            raise errors.InvalidPrincipalTypeError("Supplied principalType is not supported.")
        now_ms = self._loop.wall_ms
        lifetime_ms = min(self._max_lifetime_ms, max_lifetime_ms) if max_lifetime_ms > 0 else self._max_lifetime_ms
        max_ms = _sum(now_ms, lifetime_ms)
        expiry_ms = min(max_ms, _sum(now_ms, self._renew_lifetime_ms))
        token_id = znodes.uuid_to_string(UUID(int=self._rng.getrandbits(128), version=4))
        token = DelegationToken(token_id, owner, requester, tuple(renewers), now_ms, expiry_ms, max_ms)
        self._service.create(znodes.delegation_token_path(token_id), token)
        return token

    def renew(self, secret: bytes, principal: str, renew_period_ms: int) -> int:
        """Extend the life of the token with this HMAC, and return when it expires.

        Raises:
            BrokerError: there is no such token, it has expired, or somebody else may renew it.
        """
        token = self._own(secret, principal)
        period_ms = self._renew_lifetime_ms
        if renew_period_ms > 0:
            period_ms = min(period_ms, renew_period_ms)
        return self._expire_at(token, min(token.max_ms, self._loop.wall_ms + period_ms))

    def expire(self, secret: bytes, principal: str, expiry_period_ms: int) -> int:
        """Shorten the life of the token with this HMAC, and return when it expires; with a negative period, now.

        Raises:
            BrokerError: there is no such token, it has expired, or it belongs to somebody else.
        """
        token = self._own(secret, principal)
        now_ms = self._loop.wall_ms
        if expiry_period_ms < 0:
            self._remove(token.token_id)
            return now_ms
        return self._expire_at(token, min(token.max_ms, _sum(now_ms, expiry_period_ms)))

    def _own(self, secret: bytes, principal: str) -> DelegationToken:
        self.check_enabled()
        stored = (token for token in self._stored() if hmac.compare_digest(self.hmac(token.token_id), secret))
        token = next(stored, None)
        if token is None:
            raise errors.DelegationTokenNotFoundError("Delegation Token is not found on server.")
        if token.expiry_ms < self._loop.wall_ms:
            raise errors.DelegationTokenExpiredError("Delegation Token is expired.")
        if not token.belongs_to(principal):
            raise errors.DelegationTokenOwnerMismatchError("Specified Principal is not valid Owner/Renewer.")
        return token

    def _expire_at(self, token: DelegationToken, expiry_ms: int) -> int:
        self._service.set_data(znodes.delegation_token_path(token.token_id), token._replace(expiry_ms=expiry_ms))
        return expiry_ms

    def _remove(self, token_id: str) -> None:
        self._service.delete(znodes.delegation_token_path(token_id))
        for key in [key for key in self._credentials if key[0] == token_id]:
            del self._credentials[key]

    # --- reading -----------------------------------------------------------------------------------------------------

    def hmac(self, token_id: str) -> bytes:
        """Return the secret of a token.

        Raises:
            DelegationTokenDisabledError: the cluster does not use tokens.
        """
        self.check_enabled()
        assert self._secret is not None
        return hmac.digest(self._secret, token_id.encode(), "sha512")

    def _stored(self) -> list[DelegationToken]:
        """Return all tokens, the oldest first."""
        names = self._service.get_children(znodes.DELEGATION_TOKENS)
        found = [self._service.get_data(znodes.delegation_token_path(name)) for name in names]
        return [token for token, _ in sorted(found, key=lambda node: node[1].czxid)]

    def tokens(self, wanted: Callable[[DelegationToken], bool]) -> list[DelegationToken]:
        """Return the valid tokens for which ``wanted`` is true, the oldest first. Remove the expired ones."""
        found = []
        for token in self._stored():
            if token.expiry_ms < self._loop.wall_ms:
                self._remove(token.token_id)
            elif wanted(token):
                found.append(token)
        return found

    def token(self, token_id: str) -> DelegationToken | None:
        """Return a valid token, or None."""
        if self._secret is None:
            return None
        found = self.tokens(lambda token: token.token_id == token_id)
        return found[0] if found else None

    def credential(self, token_id: str, mechanism: str) -> ScramCredential:
        """Return the credential for authentication with a token: the password is its HMAC in base 64."""
        key = token_id, mechanism
        if key not in self._credentials:
            password = base64.b64encode(self.hmac(token_id)).decode()
            salt = hashlib.sha256(token_id.encode()).digest()  # the same in each run, as all of an embedded cluster
            iterations = scram.MIN_ITERATIONS
            salted = scram.salted_password(mechanism, password, salt, iterations)
            self._credentials[key] = scram.credential(mechanism, salted, salt, iterations)
        return self._credentials[key]


def _sum(now_ms: int, duration_ms: int) -> int:
    return min(now_ms + duration_ms, _LONGEST_MS)
