"""Generate docs/configuration.md: ``python tools/config_reference.py docs/configuration.md [--check]``."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
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

<!-- Written by `python tools/config_reference.py docs/configuration.md` from src/pykclient/config. -->

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
- Settings that [all clients](#all-clients) have are listed once. Settings that only kafka-python has are listed at the
  end of each section.
- Keys of [features that are missing](#not-supported-yet) are listed at the end of the page.
"""

_ORDER = {Importance.HIGH: 0, Importance.MEDIUM: 1, Importance.LOW: 2}
_LARGEST = {INT_MAX: "2147483647", LONG_MAX: "9223372036854775807 (no bound)"}

_CONFIGS: tuple[tuple[str, type[AbstractConfig]], ...] = (
    ("Producer", ProducerConfig),
    ("Consumer", ConsumerConfig),
    ("Admin client", AdminClientConfig),
)

#: The keys to look at first, by what a reader wants.
_TASKS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("connect", ("bootstrap.servers", "client.id", "proxy.url", "client.dns.lookup")),
    ("encrypt, and trust an authority", ("security.protocol", "ssl.truststore.location", "ssl.keystore.location")),
    ("authenticate", ("sasl.mechanism", "sasl.username", "sasl.password", "sasl.oauthbearer.token.endpoint.url")),
    ("write safely", ("acks", "enable.idempotence", "delivery.timeout.ms", "transactional.id")),
    ("write faster", ("linger.ms", "batch.size", "compression.type", "buffer.memory")),
    ("send large records", ("max.request.size", "fetch.max.bytes", "max.partition.fetch.bytes")),
    ("choose where a group starts and what it commits", ("auto.offset.reset", "enable.auto.commit", "isolation.level")),
    ("process for a long time", ("max.poll.interval.ms", "max.poll.records")),
    (
        "rebalance less",
        ("group.instance.id", "partition.assignment.strategy", "group.protocol", "session.timeout.ms"),
    ),
    ("read from a near replica", ("client.rack",)),
    ("wait longer, or give up earlier", ("request.timeout.ms", "max.block.ms", "default.api.timeout.ms")),
    ("measure", ("metric.reporters", "enable.metrics.push", "interceptor.classes")),
)

#: The parts of the section about all clients, by the beginnings of their keys. The last one has the rest.
_PARTS = (
    ("SASL", ("sasl.",)),
    ("TLS", ("ssl.", "https.", "security.", "enable.ssl")),
    ("Metrics", ("metric", "enable.metrics.push", "auto.include")),
    ("Connections", ("",)),
)


def reference() -> str:
    """Return the whole page."""
    shared = _shared()
    sections = ["\n".join(_section(title, config, shared)) for title, config in _CONFIGS]
    return "\n".join([_INTRODUCTION, *_tasks(), *sections, *_all_clients(shared), *_unsupported(), ""])


def _tasks() -> Iterator[str]:
    """Yield the table of keys by task."""
    known = {name for _, config in _CONFIGS for name in config.DEFINITION.keys}
    yield "| to | set |"
    yield "| --- | --- |"
    for task, names in _TASKS:
        if missing := set(names) - known:
            raise KeyError(f"unknown keys: {missing}")
        yield f"| {task} | {', '.join(f'[`{name}`](#{_anchor(name)})' for name in names)} |"
    yield ""


def _anchor(name: str) -> str:
    """Return the anchor of a key's heading."""
    return name.replace(".", "")


def _shared() -> dict[str, list[ConfigKey]]:
    """Return the keys that all clients have with the same meaning; only defaults may differ."""
    found: dict[str, list[ConfigKey]] = {}
    for name in _CONFIGS[0][1].DEFINITION.keys:
        keys = [config.DEFINITION.keys.get(name) for _, config in _CONFIGS]
        present = [key for key in keys if key is not None and key.unsupported is None]
        same = {(key.doc, key.type, key.valid_values, key.aliases, key.importance) for key in present}
        if len(present) == len(_CONFIGS) and len(same) == 1:
            found[name] = present
    return found


def _section(title: str, config: type[AbstractConfig], shared: Mapping[str, object]) -> Iterator[str]:
    definition = config.DEFINITION
    own = [key for key in definition.keys.values() if key.unsupported is None and key.name not in shared]
    yield f"## {title}"
    yield ""
    yield "See also the settings of [all clients](#all-clients)."
    yield ""
    for key in sorted(own, key=lambda key: (_ORDER[key.importance], key.name)):
        yield from _entry(key, _default(key))
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


def _all_clients(shared: Mapping[str, list[ConfigKey]]) -> Iterator[str]:
    """Yield the section with the keys of all clients."""
    yield "## All clients"
    yield ""
    rest = dict(shared)
    parts: dict[str, list[str]] = {}
    for title, beginnings in _PARTS:
        parts[title] = [name for name in rest if name.startswith(beginnings)]
        rest = {name: keys for name, keys in rest.items() if name not in parts[title]}
    for title in ("Connections", "TLS", "SASL", "Metrics"):
        yield f"**{title}:** " + ", ".join(f"[`{name}`](#{_anchor(name)})" for name in sorted(parts[title]))
        yield ""
    for title in ("Connections", "TLS", "SASL", "Metrics"):
        for name in sorted(parts[title], key=lambda name: (_ORDER[shared[name][0].importance], name)):
            yield from _entry(shared[name][0], _defaults(shared[name]))


def _defaults(keys: Sequence[ConfigKey]) -> str:
    """Return the default of a key of all clients, with the clients that have another one."""
    texts = [_default(key) for key in keys]
    others = [f"{title.lower()}: {text}" for (title, _), text in zip(_CONFIGS, texts, strict=True) if text != texts[0]]
    return f"{texts[0]} ({'; '.join(others)})" if others else texts[0]


def _entry(key: ConfigKey, default: str) -> Iterator[str]:
    names = [f"`{key.name}`", f"`{key.keyword}`", *(f"`{alias}`" for alias in key.aliases)]
    yield f"### {key.name}"
    yield ""
    facts = [", ".join(dict.fromkeys(names)), key.type.lower(), f"default {default}"]
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
    if key.name == "bootstrap.servers" and not value:
        return "the same, unless `bootstrap.controllers` is set"
    if value in ("", ()):
        return "empty"
    if key.type == Type.LIST:
        value = ", ".join(value)
    elif isinstance(value, int) and value in _LARGEST:
        value = _LARGEST[value]
    readable = _readable(key.name, value) if isinstance(value, int) and not isinstance(value, bool) else ""
    return f"`{value}` ({readable})" if readable else f"`{value}`"


def _readable(name: str, value: int) -> str:
    """Return a size or a time in larger units, or an empty string if it has none."""
    units: tuple[tuple[str, int], ...]
    if name.endswith((".bytes", ".memory", ".size")):
        units = (("MiB", 1024 * 1024), ("KiB", 1024))
    elif name.endswith((".ms", ".millis")):
        units = (("days", 86_400_000), ("hours", 3_600_000), ("minutes", 60_000), ("seconds", 1000))
    else:
        return ""
    for unit, size in units:
        if value >= size and value % size == 0:
            count = value // size
            return f"{count} {unit[:-1] if count == 1 and unit.endswith('s') else unit}"
    return ""


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
    sys.stderr.write(f"{paths[0]} is out of date; write it with python tools/config_reference.py {paths[0]}\n")
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
