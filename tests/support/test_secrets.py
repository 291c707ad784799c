"""The recorder finds secrets wherever a program may show them."""

from __future__ import annotations

import base64
import logging
import pickle

import pytest

from pykclient.config.config_def import Password
from pykclient.errors import ConfigError, KafkaError, RecordTooLargeError
from pykclient.network.authenticator.oauth_bearer import BearerToken
from tests.support.secrets import LeakedSecretError, SecretRecorder

SECRET = "correct horse"
_logger = logging.getLogger("pykclient.tests")


def _log_error() -> None:
    try:
        raise ValueError(SECRET)
    except ValueError:
        _logger.exception("it failed")


@pytest.mark.parametrize(
    "leak",
    [
        lambda: _logger.debug("with %s", SECRET),
        lambda: _logger.warning("token %s", base64.b64encode(SECRET.encode()).decode()),
        lambda: ConfigError(f"a password {SECRET}", key="k"),
        lambda: RecordTooLargeError(f"{SECRET} is too large"),
        _log_error,
    ],
)
def test_leaks_are_found(leak: object) -> None:
    recorder = SecretRecorder()
    with recorder.recording():
        Password(SECRET)
        assert callable(leak)
        leak()
    with pytest.raises(LeakedSecretError, match="<SECRET>") as caught:
        recorder.check()
    assert SECRET not in str(caught.value)
    assert recorder.check() == 0


def test_secrets_are_registered_when_created() -> None:
    recorder = SecretRecorder()
    with recorder.recording():
        Password("a password")
        BearerToken("a-token", None)
        Password("short")
        Password("-----BEGIN PRIVATE KEY-----\nMIIEvQIBADANBg\n-----END PRIVATE KEY-----\n")
        Password("-----BEGIN CERTIFICATE-----\nMIIBfzCCASWgAw\n-----END CERTIFICATE-----\n")
    Password("later, unseen")
    assert recorder.secrets == {"a password", "a-token", "MIIEvQIBADANBg"}


def test_recorder_does_not_change_errors() -> None:
    recorder = SecretRecorder()
    with recorder.recording():
        error = ConfigError("wrong", key="k")
        assert str(error) == "wrong"
        assert error.key == "k"
        copied = pickle.loads(pickle.dumps(error))
        assert (type(copied), copied.args, copied.key) == (ConfigError, ("wrong",), "k")
    assert recorder.check() >= 1
    assert str(KafkaError("later")) == "later"
    assert recorder.check() == 0
