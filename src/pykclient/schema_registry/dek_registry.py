"""The client of a DEK registry, which schema registries have beside their schemas: the keys that encrypt fields.

A key encryption key (KEK) is one in a key management service; the registry knows only its name there. Data encryption
keys (DEKs) are stored encrypted by a KEK, one or more versions for each subject and algorithm.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, ClassVar, Final, NamedTuple

from pykclient.clock import SYSTEM_CLOCK, Clock
from pykclient.errors import IllegalArgumentError
from pykclient.schema_registry.rest import RestClient, read_config
from pykclient.schema_registry.schema_registry_client import BoundedCache, ConfiguredClient, quoted
from pykclient.schema_registry.schemas import JsonMap, JsonValue, SchemaRegistryError

#: The version that means the latest.
LATEST: Final = -1
_ROOT: Final = "dek-registry/v1/keks"
_NOT_ALLOWED: Final = 405


class DekAlgorithm(StrEnum):
    """The algorithms of data encryption keys. Only AES256_SIV gives equal texts for equal values."""

    AES128_GCM = "AES128_GCM"
    AES256_GCM = "AES256_GCM"
    AES256_SIV = "AES256_SIV"


@dataclass(eq=False)
class KekKmsProps(JsonMap):
    """The properties of a key for its service's driver."""

    properties: dict[str, str] = field(default_factory=dict)


@dataclass(eq=False)
class Kek(JsonValue):
    """A key encryption key. If it is ``shared``, the registry may use it, and encrypts the DEKs itself."""

    name: str | None = None
    kms_type: str | None = None
    kms_key_id: str | None = None
    kms_props: KekKmsProps | None = None
    doc: str | None = None
    shared: bool | None = None
    ts: int | None = None
    deleted: bool | None = None

    _makers: ClassVar = {"kms_props": KekKmsProps.from_dict}


@dataclass(eq=False)
class Dek(JsonValue):
    """A version of a data encryption key. ``ts`` is when it was made, in ms since the epoch. Secrets are not shown."""

    kek_name: str | None = None
    subject: str | None = None
    version: int | None = None
    algorithm: DekAlgorithm | None = None
    encrypted_key_material: str | None = field(default=None, repr=False)
    key_material: str | None = field(default=None, repr=False)
    ts: int | None = None
    deleted: bool | None = None

    _makers: ClassVar = {"algorithm": DekAlgorithm}

    def get_encrypted_key_material_bytes(self) -> bytes | None:
        """Return the key as encrypted by its KEK; None if the registry has it not."""
        return None if self.encrypted_key_material is None else base64.b64decode(self.encrypted_key_material)

    def get_key_material_bytes(self) -> bytes | None:
        """Return the plain key, which the registry returns for shared KEKs only."""
        return None if self.key_material is None else base64.b64decode(self.key_material)


class KekId(NamedTuple):
    """The identity of a key encryption key."""

    name: str
    deleted: bool = False
    context: str | None = None


class DekId(NamedTuple):
    """The identity of a version of a data encryption key."""

    kek_name: str
    subject: str
    version: int
    algorithm: DekAlgorithm
    deleted: bool = False


class DekRegistryClient(ConfiguredClient):
    """The client of a DEK registry, with the keys of ``SchemaRegistryClient``. Answers are cached. Thread: any.

    All methods raise SchemaRegistryError if the registry refuses or cannot be reached.
    """

    def __init__(
        self, conf: Mapping[str, Any] | None = None, *, rest: RestClient | None = None, clock: Clock = SYSTEM_CLOCK
    ) -> None:
        """``rest`` is a client's HTTP to share; without one, ``conf`` has the registry's address and credentials.

        Raises:
            ConfigError: a key is unknown, or has a wrong value.
        """
        self._conf = dict(conf or {})
        self._rest = rest or RestClient(read_config(self._conf), clock)
        self._owns_rest = rest is None
        self.clock = clock
        self._keks: BoundedCache[Kek] = BoundedCache(1000, clock)
        self._deks: BoundedCache[Dek] = BoundedCache(1000, clock)

    def close(self) -> None:
        """Close the connections, unless they are those of another client."""
        if self._owns_rest:
            self._rest.close()

    def register_kek(
        self,
        name: str,
        kms_type: str,
        kms_key_id: str,
        shared: bool = False,
        kms_props: Mapping[str, str] | None = None,
        doc: str | None = None,
        context: str | None = None,
    ) -> Kek:
        """Register a key encryption key, and return it. The key itself stays in its service.

        ``kms_type`` is the service's, such as ``aws-kms``, and ``kms_key_id`` the key's name there.
        """
        props = None if kms_props is None else KekKmsProps(dict(kms_props))
        body = Kek(name, kms_type, kms_key_id, props, doc, shared).to_dict()
        key = KekId(name, False, context)
        return self._keks.got(key, lambda: Kek.from_dict(self._rest.post(_ROOT, body, {"context": context})))

    def get_kek(self, name: str, deleted: bool = False, context: str | None = None) -> Kek:
        """Return a key encryption key by its name."""
        path, query = f"{_ROOT}/{quoted(name)}", {"deleted": deleted, "context": context}
        return self._keks.got(KekId(name, deleted, context), lambda: Kek.from_dict(self._rest.get(path, query)))

    def register_dek(
        self,
        kek_name: str,
        subject: str,
        encrypted_key_material: str | None,
        algorithm: DekAlgorithm = DekAlgorithm.AES256_GCM,
        version: int = 1,
    ) -> Dek:
        """Register a version of a subject's data encryption key, and return it.

        ``encrypted_key_material`` is the key as encrypted by the KEK, in base64; None lets the registry make a key, if
        the KEK is shared.
        """
        key = DekId(kek_name, subject, version, algorithm)
        found = self._deks.get(key)
        if found is not None:
            return found
        body = Dek(None, subject, version, algorithm, encrypted_key_material).to_dict()
        # Whether this succeeds, or another client was first: there is a newer one than the latest that is known.
        self._deks.remove(lambda known: known[:2] == key[:2] and known.version == LATEST)
        path = f"{_ROOT}/{quoted(kek_name)}/deks"
        try:
            answer = self._rest.post(f"{path}/{quoted(subject)}", body)
        except SchemaRegistryError as error:
            if error.http_status_code != _NOT_ALLOWED:
                raise
            answer = self._rest.post(path, body)  # older registries
        found = Dek.from_dict(answer)
        self._deks.put(key, found)
        return found

    def get_dek(
        self,
        kek_name: str,
        subject: str,
        algorithm: DekAlgorithm = DekAlgorithm.AES256_GCM,
        version: int = 1,
        deleted: bool = False,
    ) -> Dek:
        """Return a version of a subject's data encryption key; -1 is the latest."""
        if version < LATEST or version == 0:
            raise IllegalArgumentError(f"version {version}: it must be positive, or -1 for the latest")
        key = DekId(kek_name, subject, version, algorithm, deleted)
        path = f"{_ROOT}/{quoted(kek_name)}/deks/{quoted(subject)}/versions/{version}"
        query = {"algorithm": str(algorithm), "deleted": deleted}
        return self._deks.got(key, lambda: Dek.from_dict(self._rest.get(path, query)))

    def clear_caches(self) -> None:
        """Forget all answers."""
        self._keks.remove()
        self._deks.remove()
