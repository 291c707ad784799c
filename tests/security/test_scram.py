"""SCRAM: published exchanges, and servers that cheat."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import example, given, strategies as st

from pykclient.config.config_def import Password
from pykclient.errors import SaslAuthenticationError
from pykclient.network.authenticator import scram as formatter
from pykclient.network.authenticator.scram import ScramLogin, ScramSaslClient

# RFC 7677, section 3.
NONCE = "rOprNGfwEbeRWgbNEkqO"
FIRST = b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
CHALLENGE = b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
FINAL = b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
OUTCOME = b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="


def salting(mechanism: str = "SCRAM-SHA-256", password: str = "pencil") -> Callable[[bytes, int], bytes]:
    return lambda salt, iterations: formatter.salted_password(mechanism, password, salt, iterations)


def started() -> ScramSaslClient:
    client = ScramSaslClient("SCRAM-SHA-256", "user", salting(), NONCE)
    assert client.initial() == FIRST
    return client


def test_exchange_equals_rfc_7677() -> None:
    client = started()
    assert client.evaluate(CHALLENGE) == FINAL
    assert not client.complete
    assert client.evaluate(OUTCOME) is None
    assert client.complete


def test_client_key_is_recovered_from_proof() -> None:
    mechanism, salt = "SCRAM-SHA-512", b"salt of the user"
    salted = formatter.salted_password(mechanism, "pencil", salt, 4096)
    kept = formatter.credential(mechanism, salted, salt, 4096)
    assert len(kept.stored_key) == len(kept.server_key) == 64
    proof = formatter.client_proof(mechanism, salted, b"message")
    client_key = formatter.xor(proof, formatter.sign(mechanism, kept.stored_key, b"message"))
    assert client_key == formatter.sign(mechanism, salted, b"Client Key")


@pytest.mark.parametrize(
    ("challenge", "problem"),
    [
        (b"", "malformed"),
        (b"e=other-error", "malformed"),
        (b"r=rOprNGfwEbeRWgbNEkqO,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096", "nonce"),
        (b"r=another%nonce,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096", "nonce"),
        (b"r=rOprNGfwEbeRWgbNEkqOx,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=1", "1 iterations"),
        (b"r=rOprNGfwEbeRWgbNEkqOx,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4095", "4095 iterations"),
        (b"r=rOprNGfwEbeRWgbNEkqOx,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=2147483648", "2147483648 iterations"),
        (b"r=rOprNGfwEbeRWgbNEkqOx,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=" + b"9" * 5000, "malformed"),
        (b"r=rOprNGfwEbeRWgbNEkqOx,s=W,i=4096", "base 64"),
        (b"r=rOprNGfwEbeRWgbNEkqO\xff,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096", "utf-8"),
    ],
)
def test_invalid_challenges_are_refused(challenge: bytes, problem: str) -> None:
    with pytest.raises(SaslAuthenticationError, match=problem):
        started().evaluate(challenge)


@pytest.mark.parametrize(
    ("outcome", "problem"),
    [
        (b"", "malformed"),
        (b"v=", "malformed"),
        (b"v=AAAA", "its signature is wrong"),
        (b"v=7rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=", "its signature is wrong"),
        (b"e=invalid-proof", "ended the exchange: invalid-proof"),
    ],
)
def test_a_server_without_proof_is_refused(outcome: bytes, problem: str) -> None:
    client = started()
    client.evaluate(CHALLENGE)
    with pytest.raises(SaslAuthenticationError, match=problem):
        client.evaluate(outcome)
    assert not client.complete


@given(st.integers(0, len(CHALLENGE) - 1), st.integers(1, 255))
def test_any_changed_byte_of_the_challenge_ends_the_exchange(position: int, change: int) -> None:
    changed = bytearray(CHALLENGE)
    changed[position] ^= change
    client = started()
    try:
        answer = client.evaluate(bytes(changed))
    except SaslAuthenticationError:
        return
    # The proof covers the challenge, so the server refuses it; and the signature of an honest server does not fit.
    assert answer != FINAL
    with pytest.raises(SaslAuthenticationError):
        client.evaluate(OUTCOME)


@given(st.integers(0, len(OUTCOME) - 1), st.integers(1, 255))
@example(44, 1)  # of the last digit's bits, base 64 does not use all
def test_any_changed_byte_of_the_outcome_ends_the_exchange(position: int, change: int) -> None:
    changed = bytearray(OUTCOME)
    changed[position] ^= change
    client = started()
    client.evaluate(CHALLENGE)
    with pytest.raises(SaslAuthenticationError):
        client.evaluate(bytes(changed))


@given(st.binary(max_size=200), st.binary(max_size=200))
def test_random_bytes_are_refused(challenge: bytes, outcome: bytes) -> None:
    client = started()
    with pytest.raises(SaslAuthenticationError):
        client.evaluate(challenge)
    client = started()
    client.evaluate(CHALLENGE)
    with pytest.raises(SaslAuthenticationError):
        client.evaluate(outcome)


def test_user_names_are_escaped_and_tokens_marked() -> None:
    client = ScramSaslClient("SCRAM-SHA-256", "a=b,c", salting(), "nonce", is_token=True)
    first = client.initial()
    assert first == b"n,,n=a=3Db=2Cc,r=nonce,tokenauth=true"


def test_login_salts_password_once_and_renews_nonce() -> None:
    login = ScramLogin("SCRAM-SHA-256", "user", Password("pencil"))
    assert "pencil" not in repr(login)
    firsts = {login.new_client("host", bool).initial() for _ in range(10)}
    assert len(firsts) == 10
    salted = login._user.salted(b"salt", 4096)
    assert login._user.salted(b"salt", 4096) is salted
    for number in range(20):
        login._user.salted(b"%d" % number, 4096)
    assert len(login._user.known) == 8
    assert login._user.salted(b"salt", 4096) == salted
