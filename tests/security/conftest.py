"""Fixtures for tests of TLS and SASL. No test here may log a secret, or show one in an error."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from pykclient.testing.certificates import CertificateAuthority
from pykclient.testing.security import DEFAULT_USERS
from tests.support.secrets import SecretRecorder


@pytest.fixture(scope="package", autouse=True)
def recorder() -> Iterator[SecretRecorder]:
    """Record logs at DEBUG and errors of all tests of this directory."""
    recorder = SecretRecorder()
    for password in DEFAULT_USERS.values():
        recorder.register(password)
    with recorder.recording():
        yield recorder
    recorder.check()


@pytest.fixture(autouse=True)
def no_secret_is_shown(recorder: SecretRecorder, recwarn: pytest.WarningsRecorder) -> Iterator[None]:
    yield
    for warning in recwarn:
        recorder.record(str(warning.message))
    recorder.check()


@pytest.fixture(scope="session")
def authority() -> CertificateAuthority:
    """The authority that both sides trust."""
    return CertificateAuthority()


@pytest.fixture(scope="session")
def stranger() -> CertificateAuthority:
    """An authority that nobody trusts."""
    return CertificateAuthority("stranger")
