"""Rules that encrypt: ``ENCRYPT`` the fields with a rule's tags, and ``ENCRYPT_PAYLOAD`` whole records.

A subject has a data encryption key (DEK) in the DEK registry, encrypted by a key encryption key (KEK) of a key
management service. The first writer makes both. ``pip install 'pykclient[encryption]'``. The bytes are those of
confluent-kafka: keys are Tink's, in its serialized form, without a prefix before what they encrypt.

No message of this module has a key or a value in it.
"""

from __future__ import annotations

import base64
import logging
import os
import weakref
from collections.abc import Callable, Mapping
from threading import Lock
from typing import Any, Final, NamedTuple, TypeVar

from pykclient.clock import SYSTEM_CLOCK, Clock
from pykclient.errors import ConfigError
from pykclient.schema_registry.dek_registry import LATEST, Dek, DekAlgorithm, DekRegistryClient, Kek
from pykclient.schema_registry.kms import Aead, aead_ciphers, gcm_decrypt, gcm_encrypt, get_kms_driver
from pykclient.schema_registry.rest import load
from pykclient.schema_registry.rules import (
    BuiltIn,
    FieldContext,
    FieldRuleExecutor,
    MustWaitError,
    RuleContext,
    RuleError,
    RuleNotExecutedError,
)
from pykclient.schema_registry.schema_registry_client import BoundedCache, SchemaRegistryClient
from pykclient.schema_registry.schemas import RuleMode, SchemaRegistryError

T = TypeVar("T")
_log = logging.getLogger(__name__)

ENCRYPT_KEK_NAME: Final = "encrypt.kek.name"
ENCRYPT_KMS_TYPE: Final = "encrypt.kms.type"
ENCRYPT_KMS_KEY_ID: Final = "encrypt.kms.key.id"
ENCRYPT_DEK_ALGORITHM: Final = "encrypt.dek.algorithm"
ENCRYPT_DEK_EXPIRY_DAYS: Final = "encrypt.dek.expiry.days"
ENCRYPT_ALTERNATE_KMS_KEY_IDS: Final = "encrypt.alternate.kms.key.ids"

_DAY_MS: Final = 24 * 60 * 60 * 1000
_NO_DATA: Final = b""
#: A DEK registry's codes for what it does not have: 40470 for a key.
_UNKNOWN_CODES: Final = range(40401, 40500)
_CONFLICT: Final = 409
#: How long a thread's failure is kept for the event loop, in seconds.
_FAILURE_TTL_S: Final = 1.0
_MOST_KEYS: Final = 1000


class _Cipher(NamedTuple):
    """An algorithm, and the form of its keys: Tink's messages, whose only field is the key itself."""

    size_bytes: int
    #: The number of the message's field, and its type (2: bytes).
    tag: bytes

    def new_key(self) -> bytes:
        key = os.urandom(self.size_bytes)
        return self.tag + bytes((len(key),)) + key

    def plain(self, key: bytes) -> bytes:
        """Return the key in a message. Fields that have defaults are not written."""
        if key[:2] != self.tag + bytes((self.size_bytes,)) or len(key) != self.size_bytes + 2:
            raise RuleError("the data encryption key is not one of the rule's algorithm")
        return key[2:]


_GCM_TAG: Final = b"\x1a"
_SIV_TAG: Final = b"\x12"
_CIPHERS: Final = {
    DekAlgorithm.AES128_GCM: _Cipher(16, _GCM_TAG),
    DekAlgorithm.AES256_GCM: _Cipher(32, _GCM_TAG),
    DekAlgorithm.AES256_SIV: _Cipher(64, _SIV_TAG),
}


def encrypt(algorithm: DekAlgorithm, key: bytes, data: bytes) -> bytes:
    """Return encrypted bytes; ``key`` is in Tink's form."""
    plain = _CIPHERS[algorithm].plain(key)
    if algorithm != DekAlgorithm.AES256_SIV:
        return gcm_encrypt(plain, data, _NO_DATA)
    made: bytes = aead_ciphers().AESSIV(plain).encrypt(data, [_NO_DATA])
    return made


def decrypt(algorithm: DekAlgorithm, key: bytes, data: bytes) -> bytes:
    """Return plain bytes; ``key`` is in Tink's form.

    Raises:
        RuleError: the bytes were not encrypted by this key.
    """
    wrong = load("cryptography.exceptions", "encryption").InvalidTag
    plain = _CIPHERS[algorithm].plain(key)
    try:
        if algorithm != DekAlgorithm.AES256_SIV:
            return gcm_decrypt(plain, data, _NO_DATA)
        found: bytes = aead_ciphers().AESSIV(plain).decrypt(data, [_NO_DATA])
    except (wrong, ValueError) as error:
        raise RuleError(f"the data was not encrypted by this key ({type(error).__name__})") from None
    return found


class _Step(NamedTuple):
    """The parameters of a rule, and the clients, for one value."""

    kek_name: str
    kms_type: str | None
    kms_key_id: str | None
    algorithm: DekAlgorithm
    expiry_days: int
    subject: str
    is_reading: bool
    deks: DekRegistryClient
    conf: Mapping[str, Any]

    def key_of(self, version: int) -> tuple[Any, ...]:
        """Return what a plain key is cached by: whoever has other settings must get it from the service himself."""
        return (*self[:-1], frozenset((name, str(value)) for name, value in self.conf.items()), version)


class EncryptionExecutor(BuiltIn):
    """Executes rules ``ENCRYPT_PAYLOAD``: encrypts the bytes of records. Thread: any."""

    protects = True

    def __init__(self, client: DekRegistryClient | None = None, clock: Clock = SYSTEM_CLOCK) -> None:
        """``client`` is the DEK registry's; None takes the one beside the schemas. ``clock`` tells a DEK's age."""
        self.client = client
        self.clock = clock
        self._lock = Lock()  # guards the following, and client
        #: Settings for the drivers of all serializers. Those of a serializer come before them.
        self._conf: dict[str, Any] = {}
        self._clients: weakref.WeakKeyDictionary[SchemaRegistryClient, DekRegistryClient] = weakref.WeakKeyDictionary()
        #: Plain keys, with their versions and times.
        self._keys: BoundedCache[tuple[int, bytes, int | None]] = BoundedCache(_MOST_KEYS, clock)
        #: Why a thread could not fetch a key, for the next attempt of an event loop.
        self._failures: BoundedCache[Exception] = BoundedCache(_MOST_KEYS, clock)

    def configure(self, client_conf: Mapping[str, Any], rule_conf: Mapping[str, Any]) -> None:
        """Set the DEK registry, and settings for the drivers, for all serializers; none needs to be set.

        Raises:
            ConfigError: ``client_conf`` is no configuration of a client.
            RuleError: another registry, or another value of a setting, was set before.
        """
        made = DekRegistryClient(client_conf) if client_conf and self.client is None else None
        with self._lock:
            self.client = self.client or made
            if client_conf and self.client is not None and self.client.config() != client_conf:
                raise RuleError("executor already configured")
            for key, value in rule_conf.items():
                if self._conf.get(key, value) != value:
                    raise RuleError(f"rule config key already set: {key}")
            self._conf.update(rule_conf)

    def type(self) -> str:
        return "ENCRYPT_PAYLOAD"

    def transform(self, ctx: RuleContext, message: Any) -> Any:
        """Return the encrypted or decrypted bytes.

        Raises:
            RuleError: there is no key, or the bytes were not encrypted by it.
            MustWaitError: the key must be fetched, and the caller is an event loop.
        """
        return self.change(ctx)("BYTES", message, "the record")

    def change(self, ctx: RuleContext) -> Callable[[str, Any, str], Any]:
        """Return what encrypts or decrypts a value of a type, at a place."""
        step = self._step(ctx)

        def change(type_name: str, value: Any, where: str) -> Any:
            if value is None:
                return None
            is_text = type_name == "STRING" and isinstance(value, str)
            is_data = type_name == "BYTES" and isinstance(value, (bytes, bytearray, memoryview))
            if not is_text and not is_data:
                if step.is_reading and type_name not in ("STRING", "BYTES"):
                    return value  # which no writer encrypts
                raise RuleError(f"{where} is of type {type_name} ({type(value).__name__}), and cannot be encrypted")
            if not step.is_reading:
                return self._encrypted(step, ctx.may_wait, value, where)
            return self._decrypted(step, ctx.may_wait, value, where)

        return change

    def _step(self, ctx: RuleContext) -> _Step:
        name = ctx.get_parameter(ENCRYPT_KEK_NAME)
        if not name:
            raise RuleNotExecutedError(f"the rule has no {ENCRYPT_KEK_NAME}")
        algorithm = ctx.get_parameter(ENCRYPT_DEK_ALGORITHM) or DekAlgorithm.AES256_GCM
        if algorithm not in DekAlgorithm.__members__:
            raise RuleNotExecutedError(
                f"{ENCRYPT_DEK_ALGORITHM} = {algorithm}: it must be one of {', '.join(DekAlgorithm)}"
            )
        days = ctx.get_parameter(ENCRYPT_DEK_EXPIRY_DAYS) or "0"
        if not days.isdecimal():
            raise RuleNotExecutedError(f"{ENCRYPT_DEK_EXPIRY_DAYS} = {days}: it must be a number of days")
        if not ctx.subject:
            raise RuleNotExecutedError("there is no subject, whose key encrypts; pass a SerializationContext")
        if ctx.rule_mode not in (RuleMode.WRITE, RuleMode.READ):
            raise RuleNotExecutedError(f"the rule cannot be executed for {ctx.rule_mode}")
        return _Step(
            name,
            ctx.get_parameter(ENCRYPT_KMS_TYPE),
            ctx.get_parameter(ENCRYPT_KMS_KEY_ID),
            DekAlgorithm(algorithm),
            int(days),
            ctx.subject,
            ctx.rule_mode == RuleMode.READ,
            self.client or self._client_of(ctx.registry),
            {**self._conf, **ctx.conf},
        )

    def _client_of(self, registry: SchemaRegistryClient | None) -> DekRegistryClient:
        if registry is None:
            raise RuleNotExecutedError("there is no client of a registry with the keys")
        with self._lock:
            found = self._clients.get(registry)
            if found is None:
                found = self._clients[registry] = DekRegistryClient(rest=registry.rest, clock=registry.clock)
        return found

    def _encrypted(self, step: _Step, may_wait: bool, value: Any, where: str) -> Any:
        is_text = isinstance(value, str)
        try:
            data = value.encode() if is_text else bytes(value)
        except UnicodeEncodeError:
            raise RuleError(f"{where} is no text of UTF-8") from None
        version, key = self._key(step, LATEST if step.expiry_days else 1, may_wait)
        made = encrypt(step.algorithm, key, data)
        if step.expiry_days:
            made = b"\x00" + version.to_bytes(4, "big") + made
        return base64.b64encode(made).decode() if is_text else made

    def _decrypted(self, step: _Step, may_wait: bool, value: Any, where: str) -> Any:
        is_text = isinstance(value, str)
        try:
            data = base64.b64decode(value, validate=True) if is_text else bytes(value)
        except ValueError:
            raise RuleError(f"{where} is not encrypted: it is not base64") from None
        version = 1
        if step.expiry_days:
            version, data = int.from_bytes(data[1:5], "big"), data[5:]
            if not version:
                raise RuleError(f"{where} is not encrypted: it has no version of a key")
        _, key = self._key(step, version, may_wait)
        found = decrypt(step.algorithm, key, data)
        try:
            return found.decode() if is_text else found
        except UnicodeDecodeError:
            raise RuleError(f"{where} is no text of UTF-8 after decryption") from None

    # --- keys ---------------------------------------------------------------------------------------------------------

    def _key(self, step: _Step, version: int, may_wait: bool) -> tuple[int, bytes]:
        """Return a version of the subject's DEK, and its number. Writers make one that does not exist, or is old."""
        place = step.key_of(version)
        held = self._keys.get(place)
        if held is not None and not self._is_old(step, held[2]):
            return held[:2]
        if not may_wait:
            failure = self._failures.get(place)
            if failure is not None:
                raise failure.with_traceback(None)
            raise MustWaitError(lambda: self._try_to_fetch(step, version))
        dek, key = self._fetched(step, version)
        number = dek.version or 1
        self._keys.put(place, (number, key, dek.ts))
        return number, key

    def _is_old(self, step: _Step, ts: int | None) -> bool:
        if step.is_reading or not step.expiry_days or ts is None:
            return False
        return self.clock.wall_ms() - ts > step.expiry_days * _DAY_MS

    def _try_to_fetch(self, step: _Step, version: int) -> None:
        try:
            self._key(step, version, True)
        except Exception as error:  # noqa: BLE001 - which the record gets that needs the key
            self._failures.put(step.key_of(version), error, _FAILURE_TTL_S)

    def _fetched(self, step: _Step, version: int) -> tuple[Dek, bytes]:
        kek = self._kek(step)
        dek = _asked(
            f"the data encryption key of {step.subject!r}",
            lambda: step.deks.get_dek(step.kek_name, step.subject, step.algorithm, version, step.is_reading),
        )
        if dek is None and step.is_reading:
            raise RuleError(
                f"the registry has no data encryption key of {step.subject!r}, by the KEK {step.kek_name!r}, version "
                f"{version}, algorithm {step.algorithm}"
            )
        if dek is None or self._is_old(step, dek.ts):
            dek = self._created(step, kek, dek, version)
        plain = dek.get_key_material_bytes()
        if plain is None:
            sealed = dek.get_encrypted_key_material_bytes()
            if sealed is None:
                raise RuleNotExecutedError(f"the registry did not return the data encryption key of {step.subject!r}")
            plain = _by_kek(step, kek, "decrypt", lambda aead: aead.decrypt(sealed, _NO_DATA))
        return dek, plain

    def _kek(self, step: _Step) -> Kek:
        slash = step.subject.find(":", 2)
        # A subject in a context is ":.context:subject", and "." is the default context.
        context = step.subject[1 : slash if slash > 0 else None] if step.subject.startswith(":.") else None
        context = None if context == "." else context

        def get() -> Kek:
            return step.deks.get_kek(step.kek_name, False, context)

        what = f"the key encryption key {step.kek_name!r}"
        kek = _asked(what, get)
        if kek is None:
            if step.is_reading:
                raise RuleError(f"the registry does not know {what}")
            if not step.kms_type or not step.kms_key_id:
                raise RuleNotExecutedError(
                    f"the registry does not know {what}, and the rule lacks {ENCRYPT_KMS_TYPE} and {ENCRYPT_KMS_KEY_ID}"
                )
            kms_type, kms_key_id = step.kms_type, step.kms_key_id
            made = _asked(
                what, lambda: step.deks.register_kek(step.kek_name, kms_type, kms_key_id, context=context), _CONFLICT
            )
            kek = made or _asked(what, get)  # another writer was first
        if kek is None:
            raise RuleNotExecutedError(f"the registry neither takes nor knows {what}")
        for name, wanted, held in (
            (ENCRYPT_KMS_TYPE, step.kms_type, kek.kms_type),
            (ENCRYPT_KMS_KEY_ID, step.kms_key_id, kek.kms_key_id),
        ):
            if wanted and wanted != held:
                raise RuleNotExecutedError(f"{what} has {name} = {held}, and the rule {wanted}")
        return kek

    def _created(self, step: _Step, kek: Kek, before: Dek | None, version: int) -> Dek:
        sealed = None
        if not kek.shared:
            key = _CIPHERS[step.algorithm].new_key()
            made = _by_kek(step, kek, "encrypt", lambda aead: aead.encrypt(key, _NO_DATA))
            sealed = base64.b64encode(made).decode()
        number = 1 if before is None else (before.version or 0) + 1
        what = f"the data encryption key of {step.subject!r}"
        try:
            found = _asked(
                what,
                lambda: step.deks.register_dek(step.kek_name, step.subject, sealed, step.algorithm, number),
                _CONFLICT,
            ) or _asked(what, lambda: step.deks.get_dek(step.kek_name, step.subject, step.algorithm, version))
        except RuleError as error:
            if before is None:
                raise
            _log.warning(
                "no new key for %s: %s; the old one, version %s, is used on", step.subject, error, before.version
            )
            return before
        if found is None:
            raise RuleNotExecutedError(f"the registry neither takes nor has {what}")
        return found


def _asked(what: str, ask: Callable[[], T], but: int | None = None) -> T | None:
    """Return a registry's answer; None if it has not what is asked for, or refuses with the status ``but``."""
    try:
        return ask()
    except SchemaRegistryError as error:
        if error.error_code in _UNKNOWN_CODES or error.http_status_code == but:
            return None
        raise RuleNotExecutedError(f"the registry does not return {what}: {error}") from error


def _by_kek(step: _Step, kek: Kek, verb: str, run: Callable[[Aead], bytes]) -> bytes:
    """Return what a KEK makes, by the first of its keys in the service that works."""
    props = {} if kek.kms_props is None else kek.kms_props.properties
    others = props.get(ENCRYPT_ALTERNATE_KMS_KEY_IDS) or step.conf.get(ENCRYPT_ALTERNATE_KMS_KEY_IDS) or ""
    names = [str(kek.kms_key_id), *(name.strip() for name in others.split(",") if name.strip())]
    problems = []
    last: Exception | None = None
    for name in names:
        url = f"{kek.kms_type}://{name}"
        try:
            return run(get_kms_driver(url).new_kms_client({**step.conf, **props}, url).get_aead(url))
        except (RuleError, ConfigError, ImportError) as error:
            problems.append(f"{name}: {error}")
            last = error
        except Exception as error:  # noqa: BLE001 - a driver's own errors, whose texts may have anything in them
            problems.append(f"{name}: {type(error).__name__}")
            last = error
    text = f"the KEK {step.kek_name!r} of {kek.kms_type} cannot {verb} a key: {'; '.join(problems)}"
    raise RuleNotExecutedError(text) from last


class FieldEncryptionExecutor(FieldRuleExecutor, BuiltIn):
    """Executes rules ``ENCRYPT``: encrypts the texts and bytes in fields with one of a rule's tags. Thread: any."""

    protects = True

    def __init__(self, client: DekRegistryClient | None = None, clock: Clock = SYSTEM_CLOCK) -> None:
        """``client`` is the DEK registry's; None takes the one beside the schemas. ``clock`` tells a DEK's age."""
        #: What encrypts a value, and has the keys.
        self.executor = EncryptionExecutor(client, clock)

    def configure(self, client_conf: Mapping[str, Any], rule_conf: Mapping[str, Any]) -> None:
        """Set the DEK registry and the settings, as ``EncryptionExecutor.configure``."""
        self.executor.configure(client_conf, rule_conf)

    def type(self) -> str:
        return "ENCRYPT"

    def new_transform(self, ctx: RuleContext) -> Callable[[RuleContext, FieldContext, Any], Any]:
        """Return what encrypts or decrypts a field.

        Its function raises RuleError if there is no key, or the field was not encrypted by it, or is of another type;
        and MustWaitError if the key must be fetched, and the caller is an event loop.
        """
        change = self.executor.change(ctx)
        return lambda _, field, value: change(field.field_type, value, f"the field {field.full_name!r}")
