"""Write the tables of librdkafka's settings into docs/migrating.md and docs/from-confluent.md.

``python tools/librdkafka_defaults.py PAGE ...`` replaces what is between the two markers of a table: that of the
defaults that differ between librdkafka and pykclient, or that of all properties and what ``pykclient.confluent`` does
with each.
librdkafka's side is ``pykclient.config.librdkafka_settings``, pykclient's is the tables of its producer and consumer.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

from pykclient.config.consumer_config import ConsumerConfig
from pykclient.config.librdkafka_settings import HONOURED, IGNORED, SETTINGS, Setting
from pykclient.config.producer_config import ProducerConfig

BEGIN: Final = "<!-- defaults of librdkafka: begin -->"
END: Final = "<!-- defaults of librdkafka: end -->"

BEGIN_ALL: Final = "<!-- properties of librdkafka: begin -->"
END_ALL: Final = "<!-- properties of librdkafka: end -->"

_CLIENTS: Final = {"P": ("producer", ProducerConfig.DEFINITION), "C": ("consumer", ConsumerConfig.DEFINITION)}

#: Different texts for the same behaviour.
_SAME: Final = {
    "acks": ("-1", "all"),
    "auto.offset.reset": ("largest", "latest"),
    "sasl.kerberos.service.name": ("kafka", "None"),
    "sasl.oauthbearer.grant.type": ("client_credentials", "DefaultJwtRetriever"),
    "socket.receive.buffer.bytes": ("0", "-1"),
    "socket.send.buffer.bytes": ("0", "-1"),
}

#: Rows whose values are not texts of one key.
_IN_WORDS: Final = {
    "bootstrap.servers": ("must be set", "`localhost:9092`"),
    "client.id": ("`rdkafka`", "`producer-1`, `consumer-1` and so on"),
    "compression.level": ("-1: the codec's own", "`compression.gzip.level` -1, `compression.lz4.level` 9, "
                          "`compression.zstd.level` 3"),
    "connections.max.idle.ms": ("0: never closed", "540000"),
    "partitioner": ("`consistent_random`: CRC32 of the key, a random partition without one",
                    "MurmurHash2 of the key; without one, a partition until its batch is full"),
    "queue.buffering.max.kbytes": ("1048576 KiB", "`buffer.memory` 33554432 bytes"),
    "queue.buffering.max.messages": ("100000", "no such limit; `buffer.memory` limits bytes"),
}  # fmt: skip


class Row(NamedTuple):
    """A setting of librdkafka whose default differs from that of Kafka's key."""

    key: str
    clients: tuple[str, ...]
    theirs: str
    ours: str


def rows() -> Iterator[Row]:
    """Yield the rows, in librdkafka's order. Other names that librdkafka has for one of Kafka's keys are left out."""
    for setting in SETTINGS.values():
        found = {client: own for client in _CLIENTS if (own := _ours(setting, client)) is not None}
        if not found:
            continue
        key, ours = next(iter(found.values()))
        if key != setting.name and key in SETTINGS and SETTINGS[key].default == setting.default:
            continue
        shown = f"`{ours}`" if key == setting.name else f"`{key}` `{ours}`"
        names = tuple(_CLIENTS[client][0] for client in found)
        yield Row(setting.name, names, *_IN_WORDS.get(setting.name, (f"`{setting.default}`", shown)))


def _ours(setting: Setting, client: str) -> tuple[str, str] | None:
    """Return Kafka's key and the default of one of our clients; None if it has no such key, or the same default."""
    if setting.scope not in ("*", client) or setting.treatment != HONOURED:
        return None
    definition = _CLIENTS[client][1]
    names = (setting.note, setting.name, definition.aliases.get(setting.name, ""))
    key = next((name for name in names if name in definition.keys), None)
    if key is None:
        return ("", "") if setting.name in _IN_WORDS and setting.scope == client else None
    ours = _text(definition.keys[key].default)
    name = key if key in _SAME else setting.name
    if name in _SAME and (setting.default, ours) == _SAME[name]:
        return None
    is_same = ours.lower() == setting.default.lower() or (not setting.default and ours in ("None", ""))
    return None if is_same else (key, ours)


def _text(default: Any) -> str:
    if isinstance(default, (list, tuple)):
        return ",".join(map(str, default))
    if isinstance(default, bool):
        return str(default).lower()
    return str(default).rpartition("org.apache.kafka.common.security.oauthbearer.")[2]


_SCOPES: Final = {"P": "producer", "C": "consumer", "*": "all"}


def _differences() -> list[str]:
    lines = ["| setting | client | confluent-kafka | pykclient |", "| --- | --- | --- | --- |"]
    return lines + [f"| `{row.key}` | {' and '.join(row.clients)} | {row.theirs} | {row.ours} |" for row in rows()]


def _properties() -> list[str]:
    """Return the table of all properties, with the default that both sides have."""
    lines = ["| property | clients | default | in `pykclient.confluent` |", "| --- | --- | --- | --- |"]
    for it in sorted(SETTINGS.values(), key=lambda it: it.name):
        default = f"`{it.default}`" if it.default else ""
        lines.append(f"| `{it.name}` | {_SCOPES[it.scope]} | {default} | {_treatment(it)} |")
    return lines


def _treatment(setting: Setting) -> str:
    note = setting.note.replace("|", "\\|")
    if setting.treatment != HONOURED:
        return f"{'no effect' if setting.treatment == IGNORED else 'refused'}: {note}"
    if note == setting.name:
        return "honoured"
    return f"honoured: `{note}`" if note in _KEYS else f"honoured: {note}"


_KEYS: Final = {name for _, definition in _CLIENTS.values() for name in definition.keys}

_TABLES: Final = ((BEGIN, END, _differences), (BEGIN_ALL, END_ALL, _properties))


def page(text: str) -> str:
    """Return a page with each table between its markers.

    Raises:
        ValueError: there are no markers.
    """
    found = [table for table in _TABLES if table[0] in text]
    for begin, end, lines in found:
        before, _, rest = text.partition(begin)
        _, marker, after = rest.partition(end)
        if not marker:
            raise ValueError(f"there is no line {end}")
        text = "\n".join([before + begin, *lines(), end]) + after
    if not found:
        raise ValueError(f"there is no line {BEGIN} or {BEGIN_ALL}")
    return text


def main(arguments: list[str]) -> int:
    """Rewrite the files that are named; return the exit code."""
    for path in map(Path, arguments):
        path.write_text(page(path.read_text(encoding="utf-8")), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
