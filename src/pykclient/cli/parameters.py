"""The parameters of ``produce`` and ``consume``, as a table without click.

``options.py`` makes click's parameters of the table. ``quick.py`` reads plain command lines with the table alone, as
the import of click takes a third of a short command's time.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from pykclient.cli.values import delimiter, duration_ms, position, time_ms

_CODECS: Final = ("none", "gzip", "snappy", "lz4", "zstd")


class PathRule(NamedTuple):
    """The files that an option or an argument takes."""

    exists: bool = False
    is_written: bool = False
    allows_dash: bool = False

    def accepts(self, path: str) -> bool:
        """Return True if the path fulfils the rule."""
        if path == "-" and self.allows_dash:
            return True
        if not os.path.exists(path):
            return not self.exists
        return not os.path.isdir(path) and os.access(path, os.W_OK if self.is_written else os.R_OK)


class Parameter(NamedTuple):
    """An option, or an argument if its name has no dash.

    ``parse`` turns a text into a value, or raises ValueError with a text that quotes it. ``complete`` says what
    completion finds: "topics" or "groups".
    """

    names: tuple[str, ...]
    field: str
    help: str = ""
    parse: Callable[[str], Any] = str
    metavar: str | None = None
    default: str | None = None
    choices: tuple[str, ...] = ()
    minimum: int | None = None
    path: PathRule | None = None
    complete: str | None = None
    is_flag: bool = False
    is_repeated: bool = False
    is_required: bool = False

    def value(self, text: str) -> Any:
        """Return the value of a text.

        Raises:
            ValueError: there is no such value.
        """
        if self.choices and text not in self.choices:
            raise ValueError(text)
        if self.path is not None and not self.path.accepts(text):
            raise ValueError(text)
        if self.minimum is not None:
            number = int(text)
            if number < self.minimum:
                raise ValueError(text)
            return number
        return self.parse(text)


#: The formats of ``formats.py``, without its imports.
_FORMATS: Final = ("avro", "json", "protobuf")


# fmt: off
def _registry(verb: str) -> tuple[Parameter, ...]:
    return (
        Parameter(("--value-format",), "value_format",
            f"{verb} values by the schemas of a registry, as JSON. Default: as they are.", choices=_FORMATS),
        Parameter(("--key-format",), "key_format", "The same for keys.", choices=_FORMATS),
        Parameter(("--schema-registry",), "registry",
            "The registry's address. Default: SCHEMA_REGISTRY_URL in the environment.", metavar="URL"),
        Parameter(("--registry-config",), "registry_config",
            "A file with settings of the registry's client, such as basic.auth.user.info.", path=PathRule(exists=True)),
    )
# fmt: on


class CommandTable(NamedTuple):
    """A command: its arguments, its options, and the function that runs it, as ``module:function``."""

    arguments: tuple[Parameter, ...]
    options: tuple[Parameter, ...]
    run: str


# fmt: off
#: The options that may stand before and after every command with a connection.
COMMON: Final = (
    Parameter(("-b", "--bootstrap-servers"), "bootstrap_servers",
        "Brokers to start from. Default: localhost:9092.", metavar="HOST:PORT,..."),
    Parameter(("-F", "--config"), "config",
        "A file with settings: .properties as Java's, or .toml.", path=PathRule(exists=True)),
    Parameter(("-X",), "set", "A setting, such as client.id=me. No secrets.", metavar="KEY=VALUE", is_repeated=True),
    Parameter(("--timeout",), "timeout",
        "The longest wait for an answer. Default: 15s.", parse=duration_ms, metavar="TIME"),
    Parameter(("--json",), "json", "Write JSON to stdout.", is_flag=True),
    Parameter(("-v", "--verbose"), "verbose", "Log what the client does.", is_flag=True),
    Parameter(("--debug",), "debug", "Log everything; show tracebacks.", is_flag=True),
)

PRODUCE: Final = CommandTable(
    (
        Parameter(("topic",), "topic", complete="topics", is_required=True),
        Parameter(("files",), "files",
            metavar="[FILE...]", path=PathRule(exists=True, allows_dash=True), is_repeated=True),
    ),
    (
        Parameter(("-f", "--format"), "form",
            "lines: a record per line. json: an object per line with value and, if you like, key, headers, partition, "
            "timestamp, as `consume --format json` writes them. file: each file is one record. Default: lines.",
            default="lines", choices=("lines", "json", "file")),
        Parameter(("-J",), "is_json_lines", "The same as --format json.", is_flag=True),
        Parameter(("-k", "--key"), "key", "The key of all records.", metavar="KEY"),
        Parameter(("-K", "--key-delimiter"), "key_delimiter",
            "The text between key and value of a line.", parse=delimiter, metavar="TEXT"),
        Parameter(("-D", "--delimiter"), "delimiter",
            "The text after each record. Default: a new line.", parse=delimiter, metavar="TEXT", default="\\n"),
        Parameter(("-Z", "--empty-is-null"), "empty_is_null", "Send null for an empty key or value.", is_flag=True),
        Parameter(("-p", "--partition"), "partition", "The partition of all records.", metavar="N", minimum=0),
        Parameter(("-H", "--header"), "headers",
            "A header of all records. Can be given several times.", metavar="NAME=VALUE", is_repeated=True),
        Parameter(("--timestamp",), "timestamp", "The timestamp of all records.", parse=time_ms, metavar="TIME"),
        Parameter(("-z", "--compression"), "compression", "The codec.", choices=_CODECS),
        Parameter(("--acks",), "acks",
            "How many replicas must have a record. Default: all.", choices=("0", "1", "all")),
        *_registry("Write"),
        Parameter(("--progress/--no-progress",), "progress", "Show progress. Default: on a terminal.", is_flag=True),
    ),
    "writing:produce",
)

CONSUME: Final = CommandTable(
    (Parameter(("topics",), "topics", metavar="TOPIC...", complete="topics", is_repeated=True, is_required=True),),
    (
        Parameter(("-g", "--group"), "group", "Read as a member of a group.", metavar="NAME", complete="groups"),
        Parameter(("-o", "--from"), "start",
            "beginning, end, an offset, -N (the last N of each partition), or @TIME such as @-15m or "
            "@2026-01-31T12:00. Default: the beginning. The committed offsets of a group win over it.",
            parse=position, metavar="POSITION"),
        Parameter(("--until",), "stop",
            "Stop at the end that the topic has now (end), at an offset, or at that end without the records from @TIME "
            "on. Default: never.", parse=position, metavar="POSITION"),
        Parameter(("-e", "--exit"), "is_until_end", "The same as --until end.", is_flag=True),
        Parameter(("-c", "--count"), "most", "Stop after N records.", metavar="N", minimum=1),
        Parameter(("-p", "--partition"), "partitions",
            "Read only this partition. Can be given several times.", metavar="N", minimum=0, is_repeated=True),
        Parameter(("-f", "--format"), "form",
            "plain (values), json, hex, base64, or a text with %t topic, %p partition, %o offset, %k key, %s value, %h "
            "headers, %T timestamp in ms, %K and %S sizes of key and value, %% and escapes such as \\n. Default: "
            "plain.", metavar="FORMAT", default="plain"),
        Parameter(("-J",), "is_json", "The same as --format json.", is_flag=True),
        Parameter(("-K", "--key-delimiter"), "key_delimiter",
            "Write the key and this text before each value.", parse=delimiter, metavar="TEXT"),
        Parameter(("-D", "--delimiter"), "delimiter",
            "Write this text after each record. Default: a new line.", parse=delimiter, metavar="TEXT", default="\\n"),
        Parameter(("--null",), "null", "Write this text for null. Default: nothing.", metavar="TEXT", default=""),
        Parameter(("--grep",), "grep", "Only records whose value matches somewhere.", metavar="REGEX"),
        Parameter(("--key",), "key_pattern", "Only records whose key matches somewhere.", metavar="REGEX"),
        Parameter(("--header",), "header_patterns",
            "Only records with such a header.", metavar="NAME[=REGEX]", is_repeated=True),
        Parameter(("-O", "--output"), "output",
            "Write to a file: Parquet if it ends with .parquet, Arrow's format with .arrow or .feather, JSON with "
            ".jsonl, else lines; compressed with .gz, such as .jsonl.gz.",
            metavar="FILE", path=PathRule(is_written=True)),
        *_registry("Read"),
        Parameter(("--dead-letters",), "dead_letters",
            "Copy records that do not fit their format to this topic, with the reason in headers, and go on.",
            metavar="TOPIC", complete="topics"),
    ),
    "reading:consume",
)
# fmt: on

TABLES: Final = {"produce": PRODUCE, "consume": CONSUME}
