"""Writes the configuration reference: ``python -m pykclient.config.reference [--check] docs/configuration.md``."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pykclient.config.abstract_config import AbstractConfig
from pykclient.config.admin_config import AdminClientConfig
from pykclient.config.client_keys import INT_MAX, LONG_MAX
from pykclient.config.config_def import ConfigKey, Importance, Type
from pykclient.config.consumer_config import ConsumerConfig
from pykclient.config.producer_config import ProducerConfig
from pykclient.config.security_keys import SECURITY_KEYS

_INTRODUCTION = """\
# Configuration

<!-- Written by `python -m pykclient.config.reference docs/configuration.md` from src/pykclient/config. -->

Names, types, defaults and valid values are those of Kafka's Java clients, version 4.3.1. A key can be written in two
ways, which mean the same: with dots in a mapping, with underscores as a keyword argument.

```python
KafkaProducer({"bootstrap.servers": "localhost:9092", "linger.ms": 20})
KafkaProducer(bootstrap_servers="localhost:9092", linger_ms=20)
```

- An unknown key is an error that names the nearest known one. So is a value of the wrong type or out of range.
- A key that is **not supported yet** may stand in a configuration with its default; any other value is an error.
- Numbers may be given as strings, lists as strings with commas. `float("inf")` is the largest number of the type.
- Where Java wants a class, an object, a class, a callable or the dotted name of one will do. Serializers may be left
  out: bytes pass through.
- Names of kafka-python that are not Kafka's are told apart at the end of each section.
"""

_ORDER = {Importance.HIGH: 0, Importance.MEDIUM: 1, Importance.LOW: 2}
_LARGEST = {INT_MAX: "2147483647", LONG_MAX: "9223372036854775807 (no bound)"}


def reference() -> str:
    """The whole text."""
    parts = [_INTRODUCTION]
    for title, config in (
        ("Producer", ProducerConfig),
        ("Consumer", ConsumerConfig),
        ("Admin client", AdminClientConfig),
    ):
        parts.append("\n".join(_section(title, config)))
    security = [
        "## Security",
        "",
        "For all clients alike.",
        "",
        *_table(SECURITY_KEYS),
    ]
    return "\n".join([*parts, *security, ""])


def _section(title: str, config: type[AbstractConfig]) -> Iterator[str]:
    definition = config.DEFINITION
    own = [key for key in definition.keys.values() if key not in SECURITY_KEYS]
    yield f"## {title}"
    yield ""
    for key in sorted(own, key=lambda key: (_ORDER[key.importance], key.name)):
        yield from _entry(key)
    yield f"### {title}: names of kafka-python that Kafka does not have"
    yield ""
    yield "| keyword | |"
    yield "| --- | --- |"
    for foreign in sorted(definition.foreign.values(), key=lambda foreign: foreign.name):
        accepted = "accepted, no effect" if foreign.ignored else "refused"
        fine = [repr(value) for value in foreign.harmless if value is not None]
        unless = "" if foreign.ignored or not fine else f" unless it is {' or '.join(fine)}"
        yield f"| `{foreign.name.replace('.', '_')}` | {accepted}{unless}: {foreign.reason} |"
    yield ""


def _entry(key: ConfigKey) -> Iterator[str]:
    names = [f"`{key.name}`", f"`{key.keyword}`", *(f"`{alias}`" for alias in key.aliases)]
    yield f"### {key.name}"
    yield ""
    facts = [", ".join(dict.fromkeys(names)), key.type.lower(), f"default {_default(key)}"]
    if key.valid_values:
        facts.append(f"valid {key.valid_values}")
    facts.append(f"importance {key.importance.lower()}")
    if key.extension:
        facts.append("not in Java")
    yield " · ".join(facts)
    yield ""
    yield key.doc
    yield ""
    if status := _status(key):
        yield f"**{status}**"
        yield ""


def _table(keys: tuple[ConfigKey, ...]) -> Iterator[str]:
    yield "| key | type | default | valid values | what | status |"
    yield "| --- | --- | --- | --- | --- | --- |"
    for key in keys:
        cells = [
            f"`{key.name}`",
            key.type.lower(),
            _default(key),
            key.valid_values,
            key.doc,
            _status(key) or "supported",
        ]
        yield f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"
    yield ""


def _status(key: ConfigKey) -> str:
    if key.unsupported is not None:
        return f"Not supported yet: {key.unsupported}."
    return f"No effect: {key.no_effect}." if key.no_effect is not None else ""


def _default(key: ConfigKey) -> str:
    if not key.has_default:
        return "none, must be set"
    value: Any = key.default
    if value in ("", ()):
        return "empty"
    if key.type == Type.LIST:
        value = ", ".join(value)
    elif isinstance(value, int) and value in _LARGEST:
        value = _LARGEST[value]
    return f"`{value}`"


def main(arguments: list[str]) -> int:
    """Write the file, or with ``--check`` say whether it is up to date."""
    check = "--check" in arguments
    paths = [Path(argument) for argument in arguments if argument != "--check"]
    if len(paths) != 1:
        sys.stderr.write(f"{__doc__}\n")
        return 2
    text = reference()
    if not check:
        paths[0].write_text(text, encoding="utf-8")
        return 0
    if paths[0].read_text(encoding="utf-8") == text:
        return 0
    sys.stderr.write(f"{paths[0]} is out of date; write it with python -m pykclient.config.reference {paths[0]}\n")
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
