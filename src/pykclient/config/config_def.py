"""The table of keys: a row is default, validation and documentation at once (Java: ConfigDef).

Unlike in Java, an unknown key is an error, and values may be Python objects: numbers, lists, classes, instances,
callables.
"""

from __future__ import annotations

import importlib
import logging
import math
import os
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, NamedTuple

from pykclient import argument_values
from pykclient.config.validators import Validator, ValidList
from pykclient.errors import ConfigError

_logger = logging.getLogger(__name__)


class Type:
    """The types of values, with Java's names."""

    BOOLEAN: Final = "BOOLEAN"
    STRING: Final = "STRING"
    INT: Final = "INT"
    SHORT: Final = "SHORT"
    LONG: Final = "LONG"
    DOUBLE: Final = "DOUBLE"
    LIST: Final = "LIST"
    CLASS: Final = "CLASS"
    PASSWORD: Final = "PASSWORD"  # noqa: S105 - a type's name


class Importance:
    """The likelihood that users need to set a key."""

    HIGH: Final = "HIGH"
    MEDIUM: Final = "MEDIUM"
    LOW: Final = "LOW"


#: Begins keys of any name, each a label that metrics reporters are told (KIP-606).
METRICS_CONTEXT_PREFIX: Final = "metrics.context."

#: The default of a key that must be set.
REQUIRED: Final = object()

#: The length from which a word is no part of a key's name.
_LONGEST_WORD: Final = 24

_BITS = {Type.SHORT: 16, Type.INT: 32, Type.LONG: 64}
#: The types of keys whose values are not None, unless that is the default.
_NEVER_NONE: Final = frozenset((*_BITS, Type.BOOLEAN, Type.DOUBLE))
_EXPECTED = {
    Type.BOOLEAN: "True or False",
    Type.STRING: "a string",
    Type.INT: "a 32-bit integer",
    Type.SHORT: "a 16-bit integer",
    Type.LONG: "a 64-bit integer",
    Type.DOUBLE: "a number",
    Type.LIST: "a list or a comma-separated string",
    Type.CLASS: "a class, an instance, a callable, or the dotted name of one",
    Type.PASSWORD: "a string",
}


#: Lists of text. The others are of classes, objects or their dotted names.
_LISTS_OF_TEXT: Final = frozenset(
    ("bootstrap.servers", "bootstrap.controllers", "config.providers", "ssl.cipher.suites", "ssl.enabled.protocols")
)


class Password:
    """A secret. ``value`` contains it; its text forms do not."""

    __slots__ = ("value",)

    def __init__(self, value: str) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Password) and self.value == other.value

    def __hash__(self) -> int:
        return hash(self.value)

    def __repr__(self) -> str:
        return "[hidden]"


def white_space_remark(secret: str | None) -> str:
    """Return a hint for the error about a rejected secret if it begins or ends with white space, else ""."""
    if not secret or secret == secret.strip():
        return ""
    return (
        "; it begins or ends with white space, such as the line feed at the end of a file, which counts as a part of it"
    )


class ConfigKey(NamedTuple):
    """A row of a table.

    ``unsupported`` is the reason why only the default is allowed. ``aliases`` are other names of the key. ``convert``
    turns a Python value into Kafka's form before parsing. ``extension`` marks keys that Java does not have. With
    ``named``, strings are not loaded: the client has short names for its own classes besides dotted names, and loads
    them itself. ``hidden`` keys are secrets as those of the type PASSWORD are.
    """

    name: str
    type: str
    default: Any
    importance: str
    doc: str
    validator: Validator | None = None
    unsupported: str | None = None
    aliases: tuple[str, ...] = ()
    convert: Callable[[Any], Any] | None = None
    extension: bool = False
    named: bool = False
    hidden: bool = False

    @property
    def is_secret(self) -> bool:
        """True if errors do not show the key's value."""
        return self.hidden or self.type == Type.PASSWORD

    def __repr__(self) -> str:
        return f"ConfigKey({self.name!r}, {self.type}, default={self.default!r})"

    @property
    def keyword(self) -> str:
        """The name as a keyword argument."""
        return self.name.replace(".", "_")

    @property
    def has_default(self) -> bool:
        return self.default is not REQUIRED

    @property
    def valid_values(self) -> str:
        """The valid values as in Java's documentation; empty if any value of the type is valid."""
        return "" if self.validator is None else str(self.validator)

    def default_value(self) -> Any:
        """Return the default as stored in the configuration."""
        return list(self.default) if self.type == Type.LIST else self.default

    def parse(self, given: Any) -> Any:
        """Return the validated value. Fractions of milliseconds are rounded.

        Raises:
            ConfigError: the type or range is wrong, or the key is not supported and the value is not its default.
        """
        if self.unsupported is not None and (given is None or argument_values.is_same(given, self.default)):
            return self.default_value()
        value = given if self.convert is None else self.convert(given)
        if isinstance(value, float) and self.name.endswith(".ms") and math.isfinite(value):
            value = round(value)
        try:
            value = parse_type(value, Type.STRING if self.named and isinstance(value, str) else self.type)
        except (ValueError, TypeError, OverflowError) as error:
            raise self.error(given, f"must be {_EXPECTED[self.type]}") from (None if self.is_secret else error)
        except (ImportError, AttributeError) as error:
            if self.is_secret:
                raise self.error(given, f"must be {_EXPECTED[self.type]}") from None
            raise self.error(given, f"cannot be imported ({error})") from error
        if value is None and self.type in _NEVER_NONE and self.default not in (None, REQUIRED):
            raise self.error(given, f"must be {_EXPECTED[self.type]}")
        if self.type == Type.LIST and value is not None and not all(map(self._may_be_element, value)):
            raise self.error(given, f"must be {_EXPECTED[self.type]}")
        if not self._is_encodable(value):
            raise self.error(given, "has characters that UTF-8 does not have (lone surrogates)")
        if isinstance(self.validator, ValidList) and value is not None:
            value = self._without_doubles(value)
        if self.validator is not None and (problem := self.validator.problem(value)):
            raise self.error(given, problem)
        if self.unsupported is not None and not argument_values.is_same(value, self.default_value()):
            raise ConfigError(
                f"{self.name} is not supported yet: {self.unsupported}. Leave it at its default, {self.default!r}",
                key=self.name,
            )
        return value

    def error(self, given: Any, problem: str) -> ConfigError:
        """Return the error for a value of this key. ``problem`` follows the word "it"."""
        shown = "[hidden]" if self.is_secret else _shown(given)
        valid = f" (valid values: {self.valid_values})" if self.valid_values else ""
        return ConfigError(f"{self.name} = {shown}: it {problem}{valid}", key=self.name)

    def _may_be_element(self, element: Any) -> bool:
        return isinstance(element, str) or (self.name not in _LISTS_OF_TEXT and _may_be_class(element))

    def _is_encodable(self, value: Any) -> bool:
        """Return whether the texts in a value can be sent or, if they are the names of files, opened."""
        if isinstance(value, Password):
            value = value.value
        encode = os.fsencode if self.name.endswith(("file", ".location")) else str.encode
        try:
            for text in value if isinstance(value, list) else (value,):
                if isinstance(text, str):
                    encode(text)
        except UnicodeEncodeError:
            return False
        return True

    def _without_doubles(self, values: list[Any]) -> list[Any]:
        unique: list[Any] = []
        for value in values:
            if value not in unique:
                unique.append(value)
        if len(unique) != len(values):
            _logger.warning("%s has entries more than once; only the first of each counts", self.name)
        return unique


class ForeignKey(NamedTuple):
    """A configuration key of another client, known so that its users get a helpful error.

    Values in ``harmless`` request what happens anyway, and are accepted. Other values are rejected with ``reason`` or,
    with ``ignored``, accepted with ``reason`` as a logged warning. A program that reads the key gets the given value,
    else ``own_value``, else the last one in ``harmless``.
    """

    name: str
    reason: str
    harmless: tuple[Any, ...] = (None,)
    ignored: bool = False
    own_value: Any = None

    @property
    def value(self) -> Any:
        return self.harmless[-1] if self.own_value is None else self.own_value

    def check(self, given: Any) -> None:
        """Check a given value.

        Raises:
            ConfigError: the client cannot do what the value requests.
        """
        if any(argument_values.is_same(given, harmless) for harmless in self.harmless):
            return
        keyword = self.name.replace(".", "_")
        if not self.ignored:
            raise ConfigError(f"{keyword} is not a key of this client: {self.reason}", key=self.name)
        _logger.warning("%s has no effect: %s", keyword, self.reason)


class ConfigDef:
    """All keys of one client. Thread: any (immutable)."""

    __slots__ = ("_defaults", "_lists", "_required", "aliases", "foreign", "keys")

    def __init__(self, keys: Iterable[ConfigKey], foreign: Iterable[ForeignKey] = ()) -> None:
        self.keys: dict[str, ConfigKey] = {key.name: key for key in keys}
        self._defaults = {key.name: key.default for key in self.keys.values()}
        self._required = {key.name for key in self.keys.values() if not key.has_default}
        #: The keys with a default that each configuration gets a copy of.
        self._lists = [key for key in self.keys.values() if key.type == Type.LIST and key.has_default]
        self.aliases = {alias: key.name for key in self.keys.values() for alias in key.aliases}
        self.foreign = {key.name: key for key in foreign if key.name not in self.keys}

    def canonical(self, name: str) -> str:
        """Return the key's dotted name for any spelling or alias.

        Raises:
            ConfigError: the key is unknown.
        """
        dotted = name.replace("_", ".")
        dotted = self.aliases.get(dotted, dotted)
        if dotted in self.keys or dotted in self.foreign or self._is_label(dotted):
            return dotted
        raise self._unknown(name, dotted)

    def _is_label(self, dotted: str) -> bool:
        """Return whether a key names a label of the metrics' context; clients with reporters have these."""
        return (
            dotted.startswith(METRICS_CONTEXT_PREFIX)
            and dotted != METRICS_CONTEXT_PREFIX
            and "metric.reporters" in self.keys
        )

    def read(self, *sources: Mapping[str, Any]) -> dict[str, Any]:
        """Return the given values by dotted name; later sources win over earlier ones.

        Raises:
            ConfigError: a key is unknown, one source has a key in two spellings, or a foreign key cannot be honoured.
        """
        given: dict[str, Any] = {}
        for source in sources:
            spelling: dict[str, str] = {}
            for name, value in source.items():
                if not isinstance(name, str):
                    raise ConfigError(f"configuration keys are strings, not {name!r}")
                key = self.canonical(name)
                if key in spelling:
                    raise ConfigError(f"{key} is given twice, as {spelling[key]!r} and as {name!r}", key=key)
                spelling[key] = name
                if key in self.foreign:
                    self.foreign[key].check(value)
                elif key not in self.keys and not isinstance(value, str):
                    raise ConfigError(f"{key} = {value!r}: it must be text", key=key)
                else:
                    given[key] = value
        return given

    def parse(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Return a value for every key of the table, from the result of ``read``."""
        values = self._defaults.copy()
        for key in self._lists:
            values[key.name] = key.default_value()
        required = self._required
        for name in self.keys:  # in this order, so that of several errors always the same one is raised
            if name in given:
                values[name] = self.keys[name].parse(given[name])
            elif name in required:
                raise ConfigError(f"{name} has no default and must be set", key=name)
        return values

    def _unknown(self, name: str, dotted: str) -> ConfigError:
        from pykclient.config.librdkafka_settings import advice

        if len(name) > _LONGEST_WORD and not {".", "_"} & set(name):
            # Such as a line of a private key, in a file in which a value of several lines was not continued.
            return ConfigError(
                f"unknown configuration key of {len(name)} characters, which is not shown as it may be a secret"
            )
        known = {name: key.unsupported for name, key in self.keys.items()}
        if text := advice(dotted, known) or _key_of_another_client(dotted):
            return ConfigError(f"unknown configuration key {name!r}: {text}", key=name)
        nearest = self._nearest(dotted.lower())
        if nearest is None:
            return ConfigError(f"unknown configuration key {name!r}; docs/configuration.md lists all", key=name)
        # Suggest the key in the spelling of the unknown one.
        nearest = nearest if "." in name else nearest.replace(".", "_")
        return ConfigError(f"unknown configuration key {name!r}; did you mean {nearest!r}?", key=name)

    def _nearest(self, dotted: str) -> str | None:
        """Return the key that was probably meant, of those that can be set; None rather than a wild guess."""
        import difflib

        known = [name for name, key in self.keys.items() if key.unsupported is None]
        known += [alias for alias, name in self.aliases.items() if name in known]
        near = difflib.get_close_matches(dotted, known, n=1, cutoff=0.8)
        if near:
            return near[0]
        # Some words of a name, if only one key has them: servers, linger.
        having = [name for name in known if set(dotted.split(".")) <= set(name.split("."))]
        return having[0] if len(having) == 1 else None


def _key_of_another_client(dotted: str) -> str | None:
    """Return whose key an unknown key is, if another client has it."""
    from pykclient.config.client_settings import ConsumerSettings, ProducerSettings

    for settings, owner, parameter in (
        (ProducerSettings, "producer", "_serializer"),
        (ConsumerSettings, "consumer", "_deserializer"),
    ):
        name = dotted.replace(".", "_")
        if name in settings.__annotations__ or name in (f"key{parameter}", f"value{parameter}"):
            return f"it is a {owner}'s key"
    return None


def parse_type(value: Any, type: str) -> Any:
    """Return ``value`` converted to a type; None stays None. Strings are trimmed and parsed (Java:
    ConfigDef.parseType), but secrets are taken as they are: Java would send another password than the one given.

    Raises:
        ValueError, TypeError: the value is not of the type.
        ImportError, AttributeError: a dotted name cannot be loaded.
    """
    if value is None:
        return None
    if isinstance(value, str):
        return Password(value) if type == Type.PASSWORD else _parse_text(value.strip(), type)
    if type == Type.BOOLEAN:
        if isinstance(value, bool):
            return value
    elif type in _BITS:
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            return _whole_number(value, _BITS[type])
    elif type == Type.DOUBLE:
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            return _number(value)
    elif type == Type.LIST:
        if isinstance(value, (list, tuple, set, frozenset)):
            return list(value)
    elif type == Type.CLASS:
        if _may_be_class(value):
            return value
    elif type == Type.PASSWORD and isinstance(value, Password):
        return value
    raise TypeError(value.__class__.__name__)


def _shown(given: Any) -> str:
    """Return text for an error message: texts and lists of texts as they are, other values as ``shown`` does."""
    parts = given if type(given) in (list, tuple) else (given,)
    is_text = all(isinstance(part, str) for part in parts)
    return repr(given) if is_text else argument_values.shown(given)


def _may_be_class(value: object) -> bool:
    return value is not None and not isinstance(value, (bool, int, float, bytes, list, tuple, dict))


def _parse_text(text: str, type: str) -> Any:
    if type == Type.STRING:
        return text
    if type == Type.BOOLEAN:
        if text.lower() not in {"true", "false"}:
            raise ValueError(text)
        return text.lower() == "true"
    if type in _BITS:
        return _whole_number(int(text), _BITS[type])
    if type == Type.DOUBLE:
        return _number(float(text))
    if type == Type.LIST:
        return [part.strip() for part in text.split(",")] if text else []
    return load(text)


def _number(number: float) -> float:
    if math.isnan(number):
        raise ValueError(number)
    return float(number)


def _whole_number(number: float, bits: int) -> int:
    """Return an integer of ``bits`` bits. Infinity is the largest one, as programs written for kafka-python mean it."""
    limit = 1 << (bits - 1)
    if number == float("inf"):
        return limit - 1
    if not -limit <= number < limit or number != int(number):
        raise ValueError(number)
    return int(number)


def load(name: str) -> Any:
    """Load the object with a dotted name: ``package.module.Class`` or ``package.module:Class.attribute``.

    Raises:
        ImportError, AttributeError: there is no such object.
    """
    module_name, colon, path = name.partition(":")
    if not colon:
        module_name, dot, path = name.rpartition(".")
        if not dot:
            raise ImportError(f"{name!r} is not a dotted name")
    found: Any = importlib.import_module(module_name)
    for attribute in path.split("."):
        found = getattr(found, attribute)
    return found
