"""Finding secrets in logs, warnings and errors."""

from __future__ import annotations

import base64
import logging
import pickle
import re
import threading
import traceback
import urllib.parse
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from pykclient.config.config_def import Password
from pykclient.errors import KafkaError
from pykclient.network.authenticator.oauth_bearer import BearerToken

#: Shorter values are words of other texts, too.
_FEWEST_CHARACTERS = 6

_PEM_LINE = re.compile(r"-----[A-Z0-9 ]+-----")


class LeakedSecretError(AssertionError):
    """A text contains a secret."""


def forms_of(error: BaseException) -> str:
    """Return all texts of an error that a program may log or store."""
    pickled = pickle.dumps(error).decode("latin-1") if isinstance(error, KafkaError) else ""
    return "\n".join([str(error), repr(error), pickled, *traceback.format_exception(error)])


class SecretRecorder(logging.Handler):
    """Collects secrets as they are made, and all texts that a program may show.

    Secrets are the values of all ``Password`` and ``BearerToken`` objects, and those passed to ``register``. Texts are
    log records at DEBUG with their tracebacks, and the arguments of all ``KafkaError`` objects, from which their text,
    their repr and their pickles are made. Thread: any.
    """

    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self._guard = threading.Lock()  # guards: _secrets, _texts
        self._secrets: set[str] = set()
        self._texts: list[str] = []
        self.setFormatter(logging.Formatter("%(name)s %(message)s"))

    # --- secrets -----------------------------------------------------------------------------------------------------

    def register(self, secret: str) -> None:
        """Register a secret, and each of its lines if it is PEM."""
        if "PRIVATE KEY-----" in secret:
            parts = [line.strip() for line in _PEM_LINE.sub("", secret).splitlines()]
        elif "-----BEGIN" in secret:
            return  # certificates are public
        else:
            parts = [secret]
        with self._guard:
            self._secrets.update(part for part in parts if len(part) >= _FEWEST_CHARACTERS)

    @property
    def secrets(self) -> frozenset[str]:
        with self._guard:
            return frozenset(self._secrets)

    # --- texts -------------------------------------------------------------------------------------------------------

    def emit(self, record: logging.LogRecord) -> None:
        self.record(self.format(record))

    def record(self, text: str) -> None:
        with self._guard:
            self._texts.append(text)

    def check(self) -> int:
        """Forget the texts; return their number.

        Raises:
            LeakedSecretError: one of them contains a secret, as it is or encoded.
        """
        with self._guard:
            texts, self._texts = self._texts, []
            secrets = sorted(self._secrets)
        if not secrets:
            return len(texts)
        pattern = re.compile("|".join(re.escape(form) for secret in secrets for form in sorted(_forms(secret))))
        for text in texts:
            if found := pattern.search(text):
                hidden = pattern.sub("<SECRET>", text)
                raise LeakedSecretError(f"a secret of {len(found[0])} characters is in: {hidden[:2000]}")
        return len(texts)

    # --- recording ---------------------------------------------------------------------------------------------------

    @contextmanager
    def recording(self) -> Iterator[None]:
        """Record everything that happens meanwhile in this process."""
        logger = logging.getLogger("pykclient")
        level = logger.level
        with pytest.MonkeyPatch.context() as patch:
            self._watch(patch)
            logger.addHandler(self)
            logger.setLevel(logging.DEBUG)
            try:
                yield
            finally:
                logger.setLevel(level)
                logger.removeHandler(self)

    def _watch(self, patch: pytest.MonkeyPatch) -> None:
        def new_password(password: Password, value: str) -> None:
            password.value = value
            if isinstance(value, str):
                self.register(value)

        make_token = BearerToken.__new__

        def new_token(cls: type[BearerToken], value: str, *others: Any, **named: Any) -> BearerToken:
            if isinstance(value, str):
                self.register(value)
            token: BearerToken = make_token(cls, value, *others, **named)
            return token

        def new_error(cls: type[KafkaError], *arguments: Any, **named: Any) -> KafkaError:
            if arguments or named:
                self.record(f"{cls.__name__}{arguments!r} {' '.join(map(str, arguments))} {named!r}")
            return Exception.__new__(cls, *arguments)

        def set_arguments(error: KafkaError, *arguments: Any) -> None:
            self.record(f"{type(error).__name__}{arguments!r} {' '.join(map(str, arguments))}")
            Exception.__init__(error, *arguments)

        patch.setattr(Password, "__init__", new_password)
        patch.setattr(BearerToken, "__new__", new_token)
        patch.setattr(KafkaError, "__new__", new_error, raising=False)
        patch.setattr(KafkaError, "__init__", set_arguments, raising=False)


def _forms(secret: str) -> set[str]:
    """Return a secret as it may appear in a text."""
    raw = secret.encode(errors="replace")
    encoded = base64.b64encode(raw).decode().rstrip("=")
    forms = {secret, repr(secret)[1:-1], repr(raw)[2:-1], urllib.parse.quote(secret), encoded, raw.hex()}
    return {form for form in forms if len(form) >= _FEWEST_CHARACTERS}
