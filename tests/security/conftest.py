"""Fixtures for tests of TLS and SASL."""

from __future__ import annotations

import pytest

from pykclient.testing.certificates import CertificateAuthority


@pytest.fixture(scope="session")
def authority() -> CertificateAuthority:
    """The authority that both sides trust."""
    return CertificateAuthority()


@pytest.fixture(scope="session")
def stranger() -> CertificateAuthority:
    """An authority that nobody trusts."""
    return CertificateAuthority("stranger")
