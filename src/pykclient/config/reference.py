"""Generate docs/configuration.md: ``python -m pykclient.config.reference [--check] docs/configuration.md``."""

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

_INTRODUCTION = """\
# Configuration

<!-- Written by `python -m pykclient.config.reference docs/configuration.md` from src/pykclient/config. -->

Names, types, defaults and valid values are those of Kafka's Java clients, version 4.3.1. Two defaults differ,
those of `receive.buffer.bytes` and `send.buffer.bytes`; and some keys that Java requires have a default here. You can
write a key with dots in a mapping, or with underscores as a keyword argument:

```python
KafkaProducer({"bootstrap.servers": "localhost:9092", "linger.ms": 20})
KafkaProducer(bootstrap_servers="localhost:9092", linger_ms=20)
```

- An unknown key raises an error that suggests the nearest known key. So does a value of the wrong type or out of range.
- Numbers may be given as strings, and lists as comma-separated strings. `float("inf")` means the largest number of the
  type.
- Where Java expects a class, you can pass an object, a class, a callable, or the dotted name of one. Without a
  serializer, bytes are sent as they are.
- Settings that only kafka-python has are listed at the end of each section.
- Keys of [features that are missing](#not-supported-yet) are listed at the end of the page.
"""

_ORDER = {Importance.HIGH: 0, Importance.MEDIUM: 1, Importance.LOW: 2}
_LARGEST = {INT_MAX: "2147483647", LONG_MAX: "9223372036854775807 (no bound)"}


_CONFIGS: tuple[tuple[str, type[AbstractConfig]], ...] = (
    ("Producer", ProducerConfig),
    ("Consumer", ConsumerConfig),
    ("Admin client", AdminClientConfig),
)


def reference() -> str:
    """Return the whole page."""
    sections = ["\n".join(_section(title, config)) for title, config in _CONFIGS]
    return "\n".join([_INTRODUCTION, *sections, *_unsupported(), ""])


def _section(title: str, config: type[AbstractConfig]) -> Iterator[str]:
    definition = config.DEFINITION
    own = [key for key in definition.keys.values() if key.unsupported is None]
    yield f"## {title}"
    yield ""
    for key in sorted(own, key=lambda key: (_ORDER[key.importance], key.name)):
        yield from _entry(key)
    yield f"### {title}: settings that only kafka-python has"
    yield ""
    yield "| keyword | |"
    yield "| --- | --- |"
    for foreign in sorted(definition.foreign.values(), key=lambda foreign: foreign.name):
        accepted = "ignored with a warning" if foreign.ignored else "refused"
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


def _unsupported() -> Iterator[str]:
    """Yield the section with the keys of missing features, grouped by what is missing."""
    yield "## Not supported yet"
    yield ""
    yield "You may set these keys only to their defaults. Any other value raises an error."
    yield ""
    keys: dict[str, ConfigKey] = {}
    clients: dict[str, list[str]] = {}
    for title, config in _CONFIGS:
        for key in config.DEFINITION.keys.values():
            if key.unsupported is not None:
                keys.setdefault(key.name, key)
                clients.setdefault(key.name, []).append(title.lower())
    for reason in dict.fromkeys(key.unsupported or "" for key in keys.values()):
        yield f"*{reason[0].upper()}{reason[1:]}.*"
        yield ""
        yield "| key | clients | type | default | valid values | purpose |"
        yield "| --- | --- | --- | --- | --- | --- |"
        for key in keys.values():
            if key.unsupported == reason:
                of = "all" if len(clients[key.name]) == len(_CONFIGS) else ", ".join(clients[key.name])
                cells = [f"`{key.name}`", of, key.type.lower(), _default(key), key.valid_values, key.doc]
                yield f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"
        yield ""


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
    """Write the page to a file, or with ``--check`` compare the two. Return the exit code."""
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
