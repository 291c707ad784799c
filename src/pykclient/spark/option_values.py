"""Options as text: case-insensitive names, and values that are numbers, times or booleans."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from pykclient.errors import ConfigError

if TYPE_CHECKING:
    from pykclient.config.config_def import ConfigDef

W = TypeVar("W", bound=str)

#: The prefix of Kafka's own keys.
KAFKA_PREFIX = "kafka."
#: The prefix of the keys of a schema registry's client.
REGISTRY_PREFIX = "schema.registry."
REGISTRY_OPTIONS = REGISTRY_PREFIX + "*"

#: Options that Spark, its SQL and its streaming writers add to those of a source or sink. They are ignored.
_SPARKS_OPTIONS = frozenset(
    (
        "asyncprogresstrackingcheckpointintervalms",
        "asyncprogresstrackingenabled",
        "asyncprogresstrackingoverridesinksupportcheck",
        "checkpointlocation",
        "header.serialization.format",
        "outputmode",
        "path",
        "queryname",
        "serialization.format",
    )
)

_TIME_UNITS_US = {
    "us": 1,
    "ms": 1_000,
    "s": 1_000_000,
    "m": 60_000_000,
    "min": 60_000_000,
    "h": 3_600_000_000,
    "d": 86_400_000_000,
}


class GivenOptions:
    """The given options by lower-case name, with the keys of Kafka and the registry apart and without those of Spark.

    ``names`` are the valid options, ``others`` those that are valid elsewhere, as ``use`` says. ``definition`` has
    Kafka's keys. Thread: owner.

    Raises:
        ConfigError: An option is unknown (the text suggests the nearest), or given twice with different values.
    """

    def __init__(
        self,
        options: Mapping[str, Any],
        names: tuple[str, ...],
        others: tuple[str, ...],
        use: str,
        definition: ConfigDef,
    ) -> None:
        self.definition = definition
        self._spelling = {name.lower(): name for name in names}
        self.values: dict[str, str] = {}
        self.kafka: dict[str, str] = {}
        self.registry: dict[str, str] = {}
        given: dict[str, str] = {}
        for name, value in options.items():
            lower = name.lower()
            if lower in given and options[given[lower]] != value:
                raise ConfigError(f"option {given[lower]!r} is given twice with two values, also as {name!r}", key=name)
            given[lower] = name
            if value is None:
                continue
            if lower.startswith(KAFKA_PREFIX):
                self.kafka[lower.removeprefix(KAFKA_PREFIX)] = str(value)
            elif lower.startswith(REGISTRY_PREFIX) and REGISTRY_OPTIONS in self._spelling:
                self.registry[lower.removeprefix(REGISTRY_PREFIX)] = str(value)
            elif lower in self._spelling:
                self.values[lower] = str(value)
            elif lower not in _SPARKS_OPTIONS:
                raise self._unknown(name, others, use)

    def _unknown(self, name: str, others: tuple[str, ...], use: str) -> ConfigError:
        lower = name.lower()
        if lower in {other.lower() for other in others} or lower.startswith(REGISTRY_PREFIX):
            return ConfigError(f"option {name!r} has no meaning {use}", key=name)
        if (key := lower.replace("_", ".")) in self.definition.keys:
            return ConfigError(f"unknown option {name!r}; did you mean {KAFKA_PREFIX + key!r}?", key=name)
        import difflib

        near = difflib.get_close_matches(lower, [*self._spelling, KAFKA_PREFIX + "bootstrap.servers"], n=1, cutoff=0.5)
        hint = f"; did you mean {self._spelling.get(near[0], near[0])!r}?" if near else ""
        kafkas = "" if near else "; Kafka's own keys have 'kafka.' in front"
        return ConfigError(f"unknown option {name!r}{hint}{kafkas}", key=name)

    def get(self, name: str) -> str | None:
        """Return the text of an option; None if it is not given."""
        return self.values.get(name.lower())

    def __contains__(self, name: str) -> bool:
        return name.lower() in self.values

    def whole(self, name: str, minimum: int, bits: int = 64) -> int | None:
        """Return a number of at most ``bits`` bits; None if it is not given. Raises ConfigError if it is not one."""
        text = self.get(name)
        return None if text is None else whole_number(name, text, minimum, bits)

    def time_ms(self, name: str, default: int) -> int:
        """Return a time in milliseconds. Raises ConfigError if it is not a time."""
        text = self.get(name)
        return default if text is None else parse_time_ms(name, text)

    def boolean(self, name: str, default: bool) -> bool:
        """Return a boolean, written in any case. Raises ConfigError if it is neither true nor false."""
        text = self.get(name)
        return default if text is None else parse_boolean(name, text)

    def choice(self, name: str, allowed: tuple[W, ...]) -> W:
        """Return one of the ``allowed`` words, written in any case; by default the first one.

        Raises:
            ConfigError: It is another word.
        """
        text = (self.get(name) or allowed[0]).strip()
        found = next((word for word in allowed if word.lower() == text.lower()), None)
        if found is None:
            raise ConfigError(f"option {name} must be {' or '.join(allowed)}, not {text!r}", key=name)
        return found


def parse_boolean(name: str, text: str) -> bool:
    """Return a boolean, written in any case. Raises ConfigError if it is neither true nor false."""
    word = text.strip().lower()
    if word not in {"true", "false"}:
        raise ConfigError(f"option {name} must be true or false, not {text!r}", key=name)
    return word == "true"


def parse_time_ms(name: str, text: str) -> int:
    """Return the milliseconds of ``10s``, ``15m``, ``500ms`` or a bare number (Spark: JavaUtils.timeStringAsMs).

    Units are us, ms, s, m or min, h and d.

    Raises:
        ConfigError: It is not a time. Fractions and negative times are not allowed.
    """
    match = re.fullmatch(r"([0-9]{1,18})\s*([a-z]*)", text.strip().lower())
    unit = (match[2] or "ms") if match else ""
    if match is None or unit not in _TIME_UNITS_US:
        raise ConfigError(
            f"option {name} must be a time such as 15m, 10s, 500ms or a number of milliseconds, not {text!r}", key=name
        )
    return int(match[1]) * _TIME_UNITS_US[unit] // 1_000


def whole_number(name: str, text: str, minimum: int, bits: int = 64) -> int:
    """Return the number in ``text``. Raises ConfigError unless it is at least ``minimum`` and fits into ``bits``."""
    match = re.fullmatch(r"[+-]?[0-9]{1,19}", text.strip())
    number = int(match[0]) if match else None
    most = (1 << (bits - 1)) - 1
    if number is None or not minimum <= number <= most:
        bound = f"at least {minimum}" if number is None or number < minimum else f"at most {most}"
        raise ConfigError(f"option {name} must be a whole number of {bound}, not {text!r}", key=name)
    return number
