"""The generator of ``src/pykclient/protocol/messages/*.py`` and ``api_table.py``, from the schemas in Kafka's jars.

    python tools/protocol/generate.py --lib 4.3.1/lib --old-lib 3.9.1/lib            write the files
    python tools/protocol/generate.py --lib 4.3.1/lib --old-lib 3.9.1/lib --check    exit 1 if a file is out of date

Clients use what the newer Kafka has. Versions and APIs that it has dropped come from the older one; brokers that
imitate an old release serve them, and embedded brokers use them among themselves.

The generator takes only facts from the schemas: names, types, versions, tags and defaults. It works like a compiler:
``load`` reads a schema, ``Message`` and its parts model it, ``ClassEmitter`` writes a class. The emitted code is
formatted as ``ruff format`` would.
"""

from __future__ import annotations

import argparse
import re
import sys
import zipfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from schemas import NEVER, Field, Message, Struct, Versions, load, read_schema, snake

ROOT = Path(__file__).resolve().parents[2] / "src" / "pykclient" / "protocol"
LINE_LENGTH = 120

APIS = """
    AddOffsetsToTxn AddPartitionsToTxn AddRaftVoter AlterClientQuotas AlterConfigs AlterPartitionReassignments
    AlterReplicaLogDirs AlterShareGroupOffsets AlterUserScramCredentials ApiVersions ConsumerGroupDescribe
    ConsumerGroupHeartbeat CreateAcls CreateDelegationToken CreatePartitions CreateTopics DeleteAcls
    DeleteGroups DeleteRecords DeleteShareGroupOffsets DeleteTopics DescribeAcls DescribeClientQuotas
    DescribeCluster DescribeConfigs DescribeDelegationToken DescribeGroups DescribeLogDirs DescribeProducers
    DescribeQuorum DescribeShareGroupOffsets DescribeTopicPartitions DescribeTransactions
    DescribeUserScramCredentials ElectLeaders EndTxn ExpireDelegationToken Fetch FindCoordinator
    GetTelemetrySubscriptions Heartbeat IncrementalAlterConfigs InitProducerId JoinGroup LeaveGroup
    ListConfigResources ListGroups ListOffsets ListPartitionReassignments ListTransactions Metadata OffsetCommit
    OffsetDelete OffsetFetch OffsetForLeaderEpoch Produce PushTelemetry RemoveRaftVoter RenewDelegationToken
    SaslAuthenticate SaslHandshake ShareAcknowledge ShareFetch ShareGroupDescribe ShareGroupHeartbeat
    StreamsGroupDescribe SyncGroup TxnOffsetCommit UnregisterBroker UpdateFeatures WriteTxnMarkers
"""
"""Every API that a producer, a consumer or an admin client sends."""

BROKER_APIS = """
    AllocateProducerIds AlterPartition ControlledShutdown DeleteShareGroupState Envelope InitializeShareGroupState
    LeaderAndIsr ReadShareGroupState ReadShareGroupStateSummary StopReplica UpdateMetadata WriteShareGroupState
"""
"""The APIs between brokers and controllers, which clients do not use."""

DATA = {
    "kafka-clients": "ConsumerProtocolAssignment ConsumerProtocolSubscription ControlRecordTypeSchema EndTxnMarker",
    "kafka-group-coordinator": (
        "ConsumerGroupCurrentMemberAssignmentKey ConsumerGroupCurrentMemberAssignmentValue "
        "ConsumerGroupMemberMetadataKey ConsumerGroupMemberMetadataValue ConsumerGroupMetadataKey "
        "ConsumerGroupMetadataValue ConsumerGroupRegularExpressionKey ConsumerGroupRegularExpressionValue "
        "ConsumerGroupTargetAssignmentMemberKey ConsumerGroupTargetAssignmentMemberValue "
        "ConsumerGroupTargetAssignmentMetadataKey ConsumerGroupTargetAssignmentMetadataValue "
        "GroupMetadataKey GroupMetadataValue LegacyOffsetCommitKey LegacyOffsetCommitValue OffsetCommitKey "
        "OffsetCommitValue "
        "ShareGroupCurrentMemberAssignmentKey ShareGroupCurrentMemberAssignmentValue "
        "ShareGroupMemberMetadataKey ShareGroupMemberMetadataValue ShareGroupMetadataKey ShareGroupMetadataValue "
        "ShareGroupStatePartitionMetadataKey ShareGroupStatePartitionMetadataValue "
        "ShareGroupTargetAssignmentMemberKey ShareGroupTargetAssignmentMemberValue "
        "ShareGroupTargetAssignmentMetadataKey ShareGroupTargetAssignmentMetadataValue"
    ),
    "kafka-share-coordinator": "ShareSnapshotKey ShareSnapshotValue ShareUpdateKey ShareUpdateValue",
    "kafka-transaction-coordinator": "TransactionLogKey TransactionLogValue",
}
"""Messages inside the bytes of another message or in a record, by jar."""

SECRETS = {
    ("AlterConfigsRequest", "AlterableConfig"): ("value",),
    ("IncrementalAlterConfigsRequest", "AlterableConfig"): ("value",),
    ("CreateTopicsRequest", "CreatableTopicConfig"): ("value",),
}
"""Strings that may be passwords. Bytes are never shown anyway."""


def singular(name: str) -> str:
    """Return the name of one element of an array."""
    if name.endswith("ies"):
        return name[:-3] + "y"
    return name[:-1] if name.endswith("s") and not name.endswith("ss") else f"{name}_item"


# --- writing the code -------------------------------------------------------------------------------------------------


def grouped(fields: Iterable[Field], key: Callable[[Field], Any]) -> Iterator[list[Field]]:
    """Yield lists of adjacent fields with the same key. A field whose key is None is alone in its list."""
    group: list[Field] = []
    for f in fields:
        if group and (key(f) is None or key(group[0]) != key(f)):
            yield group
            group = []
        group.append(f)
    if group:
        yield group


class Lines:
    """The lines of a module, and the names they need from other modules."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.layouts: dict[str, str] = {}
        self.names: set[str] = set()
        self._indent = ""

    def add(self, *lines: str) -> None:
        self.lines += [self._indent + line if line else "" for line in lines]

    @contextmanager
    def block(self, head: str) -> Iterator[None]:
        self.add(head)
        with self.indented():
            yield

    @contextmanager
    def indented(self) -> Iterator[None]:
        outer, self._indent = self._indent, self._indent + "    "
        yield
        self._indent = outer

    def fits(self, line: str) -> bool:
        return len(self._indent + line) <= LINE_LENGTH

    def listed(self, head: str, items: list[str], tail: str, exploded: tuple[str, str] | None = None) -> None:
        """Write items between ``head`` and ``tail`` on one line or, if that is too long, one per line."""
        line = f"{head}{', '.join(items)}{tail}"
        if self.fits(line):
            self.add(line)
            return
        head, tail = exploded or (head, tail)
        with self.block(head):
            self.add(*(f"{item}," for item in items))
        self.add(tail)

    def elements(self, name: str, element: str, count: str) -> None:
        """Write code that makes ``name`` a list of ``count`` elements."""
        line = f"{name} = [{element} for _ in range({count})]"
        if self.fits(line):
            self.add(line)
            return
        with self.block(f"{name} = ["):
            line = f"{element} for _ in range({count})"
            self.add(*([line] if self.fits(line) else [element, f"for _ in range({count})"]))
        self.add("]")

    def need(self, name: str) -> str:
        self.names.add(name)
        return name

    def layout(self, codes: str) -> str:
        """Return the name of the module's ``Struct`` for these codes."""
        names = {"?": "BOOL", "H": "UINT16", "I": "UINT32", "d": "DOUBLE"}
        parts = [names.get(code, code.upper()) for code in codes]
        name = "_" + ("_" if any(len(part) > 1 for part in parts) else "").join(parts)
        self.layouts[name] = f'Struct(">{codes}")'
        return name


class ClassEmitter:
    """Emits the class of one struct: the message's own, or one nested in it."""

    def __init__(self, out: Lines, message: Message, struct: Struct) -> None:
        self.out = out
        self.message = message
        self.struct = struct

    def emit_message(self) -> None:
        message, out = self.message, self.out
        base = {"request": "Request", "response": "Response"}.get(message.kind, "DataMessage")
        with out.block(f"class {message.name}({out.need(base)}):"):
            out.add(f'"""{self._title(base)}"""', "")
            self._slots()
            out.add("")
            if message.is_sent:
                out.add(f"API_KEY = {message.key}")
            elif message.kind == "coordinator-key":
                out.add(f"RECORD_TYPE = {message.key}")
            out.add(f"VERSIONS = ({message.spoken.lowest}, {message.spoken.highest})")
            if message.is_sent:
                out.add(
                    f"FLEXIBLE_FROM = {message.flexible.lowest if message.flexible else out.need('NEVER_FLEXIBLE')}"
                )
            self._methods()
            for struct in message.structs:
                out.add("")
                ClassEmitter(out, message, struct).emit_struct()

    def emit_struct(self) -> None:
        with self.out.block(f"class {self.struct.name}({self.out.need('Message')}):"):
            self._slots()
            secrets = SECRETS.get((self.message.name, self.struct.name))
            if secrets:
                self.out.add("", f"SECRETS = {secrets!r}".replace("'", '"'))
            self._methods()

    def _title(self, base: str) -> str:
        message = self.message
        title = f"{message.name.removesuffix(base)}, key {message.key}" if message.is_sent else message.name
        title += f", {message.versions}"
        if message.flexible:
            title += (
                ", flexible" if message.flexible == message.versions else f", flexible from v{message.flexible.lowest}"
            )
        if message.spoken.lowest != message.versions.lowest:
            dropped = Versions(message.versions.lowest, message.spoken.lowest - 1)
            title += f"; {dropped} of old clients only"
        if message.spoken.highest != message.versions.highest:
            title += f"; v{message.versions.highest} is not stable yet"
        return title + "."

    def _slots(self) -> None:
        names = [f'"{f.name}"' for f in self.struct.fields]
        self.out.listed("__slots__ = (", names, ",)" if len(names) == 1 else ")")

    def _methods(self) -> None:
        out = self.out
        out.add("")
        if self.struct.fields:
            out.listed("def __init__(", ["self", "*", *map(self._parameter, self.struct.fields)], ") -> None:")
        else:
            out.add("def __init__(self) -> None:")
        with out.indented():
            self._init()
        out.add("")
        with out.block("def write(self, w: Writer, version: int) -> None:"), self._version_checked("type(self)"):
            self._write()
        out.add("", "@classmethod")
        with out.block("def read(cls, r: Reader, version: int) -> Self:"), self._version_checked("cls"):
            self._read()

    @contextmanager
    def _version_checked(self, cls: str) -> Iterator[None]:
        """Write the body of a method, after the lines it needs: the version check, the variable ``flexible``."""
        out, versions, flexible = self.out, self.struct.versions, self.message.flexible & self.struct.versions
        if self.struct is self.message.body:
            one = versions.lowest == versions.highest
            known = f"version == {versions.lowest}" if one else f"{versions.lowest} <= version <= {versions.highest}"
            with out.block(f"if version != {versions.lowest}:" if one else f"if not {known}:"):
                out.add(f"raise {out.need('unsupported_version')}({cls}, version)")
        start = len(out.lines)
        yield
        if any(re.search(r"\bflexible\b", line) for line in out.lines[start:]):
            body = out.lines[start:]
            del out.lines[start:]
            out.add(f"flexible = {flexible.condition(versions)}")
            out.lines += body

    # --- what Python says about a field

    def _struct_type(self, f: Field) -> str:
        return f"{self.message.name}.{f.type}"

    def _element_type(self, f: Field) -> str:
        if f.primitive is None:
            return self._struct_type(f)
        python = f.primitive.python
        return self.out.need(python) if python in ("UUID", "BytesLike") else python

    def _default(self, f: Field) -> str:
        if f.default == "ZERO_UUID":
            self.out.need("ZERO_UUID")
        return f"{self._struct_type(f)}()" if f.default == "Struct()" else f.default

    def _non_default(self, f: Field) -> str:
        """Return Python code that is true if the field is set."""
        name = f"self.{f.name}"
        match self._default(f):
            case "None":
                return f"{name} is not None"
            case "[]":
                return f"{name} is None or {name}" if f.optional else name
            case "False":
                return name
            case "True":
                return f"not {name}"
            case '""' | 'b""' if not f.optional:
                return name
            case default:
                return f"{name} != {default}"

    def _flexible(self, f: Field, known: Versions) -> str:
        """Return Python code that is true if the field is in its compact form, for versions in ``known``."""
        if not f.flexible & known:
            return "False"
        return "True" if f.flexible.covers(known) else "flexible"

    # --- __init__

    def _parameter(self, f: Field) -> str:
        kind, default = self._element_type(f), self._default(f)
        if f.array:
            kind, default = f"{self.out.need('Iterable')}[{kind}]", "()" if default == "[]" else default
        elif f.default == "Struct()":
            return f"{f.name}: {kind} | None = None"
        return f"{f.name}: {kind}{' | None' if f.optional else ''} = {default}"

    def _init(self) -> None:
        for f in self.struct.fields:
            value = f.name
            if f.array:
                value = f"None if {f.name} is None else list({f.name})" if f.optional else f"list({f.name})"
            elif f.default == "Struct()":
                value = f"{self._default(f)} if {f.name} is None else {f.name}"
            # A struct may be null without that being its default.
            kind = f": {self._element_type(f)} | None" if f.optional and f.default == "Struct()" else ""
            line = f"self.{f.name}{kind} = {value}"
            if self.out.fits(line):
                self.out.add(line)
            else:
                with self.out.block(f"self.{f.name}{kind} = ("):
                    if self.out.fits(value):
                        self.out.add(value)
                    else:
                        self.out.add(*re.split(r" (?=if |else )", value))
                self.out.add(")")
        self.out.add("self.unknown_tags = None")

    # --- write

    def _write(self) -> None:
        out, among = self.out, self.struct.versions
        for group in grouped(self.struct.plain, lambda f: f.versions):
            versions = group[0].versions
            checked = [f for f in group if not f.ignorable]
            if versions == among:
                self._write_group(group, among)
            elif versions:
                with out.block(f"if {versions.condition(among)}:"):
                    self._write_group(group, versions)
                if len(checked) == 1:
                    self._refuse(checked, "elif")
                elif checked:
                    with out.block("else:"):
                        self._refuse(checked)
            else:
                self._refuse(checked)
        for f in self.struct.tagged:
            if not f.ignorable and f.versions != among:
                condition = f"({self._non_default(f)})" if " or " in self._non_default(f) else self._non_default(f)
                with out.block(f"if {f.versions.outside(among)} and {condition}:"):
                    out.add(f'raise {out.need("unsupported_field")}(self, "{f.name}", version)')
        self._write_tags()

    def _refuse(self, fields: list[Field], keyword: str = "if") -> None:
        for f in fields:
            with self.out.block(f"{keyword} {self._non_default(f)}:"):
                self.out.add(f'raise {self.out.need("unsupported_field")}(self, "{f.name}", version)')

    def _write_group(self, group: list[Field], known: Versions) -> None:
        for run in grouped(group, lambda f: f.code and "fixed"):
            if len(run) > 1:
                layout = self.out.layout("".join(f.code or "" for f in run))
                self.out.listed("w.pack(", [layout, *(f"self.{f.name}" for f in run)], ")")
            else:
                self._write_field(run[0], known)

    def _write_field(self, f: Field, known: Versions, to: str = "w") -> None:
        out, nullable = self.out, f.nullable & known
        if nullable == known:
            self._write_nullable(f, known, to)
        elif nullable:
            with out.block(f"if {nullable.condition(known)}:"):
                self._write_nullable(f, nullable, to)
            with out.block("else:"):
                self._write_value(f, f'{out.need("not_null")}(self.{f.name}, "{f.name}")', known, to)
        elif f.optional:
            self._write_value(f, f'{out.need("not_null")}(self.{f.name}, "{f.name}")', known, to)
        else:
            self._write_value(f, f"self.{f.name}", known, to)

    def _write_nullable(self, f: Field, known: Versions, to: str) -> None:
        out, name, flexible = self.out, f"self.{f.name}", self._flexible(f, known)
        if f.primitive and (not f.array or f.type == "int32"):
            out.add(f"{to}.{self._nullable_method(f)}({name}, {flexible})")
            return
        with out.block(f"if {name} is None:"):
            out.add(f"{to}.array_length(-1, {flexible})" if f.array else f"{to}.int8(-1)")
        with out.block("else:"):
            if not f.array:
                out.add(f"{to}.int8(1)")
            self._write_value(f, name, known, to)

    def _write_value(self, f: Field, value: str, known: Versions, to: str) -> None:
        out, flexible = self.out, self._flexible(f, known)
        if f.primitive and (not f.array or f.type == "int32"):
            # The writer also accepts several buffers; mypy joins both types to a wrong one.
            ignored = "  # type: ignore[arg-type]" if f.type == "records" and value.startswith("not_null") else ""
            out.add(f"{to}.{self._method(f)}({value}{self._compact_argument(f, flexible)}){ignored}")
        elif not f.array:
            out.add(f"{value}.write({to}, version)")
        else:
            if value.startswith("not_null"):
                out.add(f"{f.name} = {value}")
                value = f.name
            out.add(f"{to}.array_length(len({value}), {flexible})")
            item = singular(f.name)
            with out.block(f"for {item} in {value}:"):
                if f.primitive is None:
                    out.add(f"{item}.write({to}, version)")
                else:
                    out.add(f"{to}.{f.primitive.method}({item}{', ' + flexible if f.primitive.variable else ''})")

    def _method(self, f: Field) -> str:
        if f.array:
            return "int32_array"
        assert f.primitive
        return f.primitive.method

    def _nullable_method(self, f: Field) -> str:
        return f"nullable_{self._method(f).rstrip('_')}"

    def _compact_argument(self, f: Field, flexible: str) -> str:
        assert f.primitive
        return f", {flexible}" if f.array or f.primitive.variable else ""

    def _write_tags(self) -> None:
        out, among, flexible = self.out, self.struct.versions, self.message.flexible & self.struct.versions
        if flexible == among:
            self._write_tag_section(flexible)
        else:
            if flexible:
                with out.block("if flexible:"):
                    self._write_tag_section(flexible)
            with out.block("elif self.unknown_tags:" if flexible else "if self.unknown_tags:"):
                out.add(f'raise {out.need("unsupported_field")}(self, "unknown_tags", version)')

    def _write_tag_section(self, known: Versions) -> None:
        out = self.out
        if not self.struct.tagged:
            out.add("w.tags(self.unknown_tags)")
            return
        out.add("tags = dict(self.unknown_tags) if self.unknown_tags else {}")
        for f in self.struct.tagged:
            condition = self._non_default(f)
            if f.versions != known:
                condition = f"({condition})" if " or " in condition else condition
                condition = f"{f.versions.condition(known)} and {condition}"
            with out.block(f"if {condition}:"):
                out.add("field = Writer()")
                self._write_field(f, f.versions, "field")
                out.add(f"tags[{f.tag}] = field.getvalue()")
        out.add("w.tags(tags)")

    # --- read

    def _read(self) -> None:
        out, among = self.out, self.struct.versions
        out.add("self = cls.__new__(cls)")
        for group in grouped(self.struct.plain, lambda f: f.versions):
            versions = group[0].versions
            if versions == among:
                self._read_group(group, among)
                continue
            if versions:
                with out.block(f"if {versions.condition(among)}:"):
                    self._read_group(group, versions)
                with out.block("else:"):
                    self._set_defaults(group)
            else:
                self._set_defaults(group)
        self._set_defaults(self.struct.tagged)
        self._read_tags()
        out.add("return self")

    def _set_defaults(self, fields: list[Field]) -> None:
        self.out.add(*(f"self.{f.name} = {self._default(f)}" for f in fields))

    def _read_group(self, group: list[Field], known: Versions) -> None:
        for run in grouped(group, lambda f: f.code and "fixed"):
            if len(run) == 1:
                self._read_field(run[0], known)
                continue
            names = [f"self.{f.name}" for f in run]
            call = f"r.unpack({self.out.layout(''.join(f.code or '' for f in run))})"
            self.out.listed("", names, f" = {call}", exploded=("(", f") = {call}"))

    def _read_field(self, f: Field, known: Versions) -> None:
        out, nullable = self.out, f.nullable & known
        if nullable == known:
            self._read_nullable(f, known)
        elif nullable:
            with out.block(f"if {nullable.condition(known)}:"):
                self._read_nullable(f, nullable)
            with out.block("else:"):
                self._read_value(f, known)
        else:
            self._read_value(f, known)

    def _read_nullable(self, f: Field, known: Versions) -> None:
        out, name, flexible = self.out, f"self.{f.name}", self._flexible(f, known)
        if f.primitive and (not f.array or f.type == "int32"):
            out.add(f"{name} = r.{self._nullable_method(f)}({flexible})")
        elif f.array:
            out.add(f"length = r.nullable_array_length({flexible})")
            with out.block("if length < 0:"):
                out.add(f"{name} = None")
            with out.block("else:"):
                out.elements(name, self._read_element(f, flexible), "length")
        else:
            value = f"{self._struct_type(f)}.read(r, version) if r.int8() >= 0 else None"
            if out.fits(f"{name} = {value}"):
                out.add(f"{name} = {value}")
            else:
                with out.block(f"{name} = ("):
                    out.add(value)
                out.add(")")

    def _read_value(self, f: Field, known: Versions) -> None:
        out, name, flexible = self.out, f"self.{f.name}", self._flexible(f, known)
        if f.primitive and (not f.array or f.type == "int32"):
            out.add(f"{name} = r.{self._method(f)}({self._compact_argument(f, flexible).removeprefix(', ')})")
        elif f.array:
            out.elements(name, self._read_element(f, flexible), f"r.array_length({flexible})")
        else:
            out.add(f"{name} = {self._struct_type(f)}.read(r, version)")

    def _read_element(self, f: Field, flexible: str) -> str:
        if f.primitive is None:
            return f"{self._struct_type(f)}.read(r, version)"
        return f"r.{f.primitive.method}({flexible if f.primitive.variable else ''})"

    def _read_tags(self) -> None:
        out, among, flexible = self.out, self.struct.versions, self.message.flexible & self.struct.versions
        if not self.struct.tagged:
            if flexible == among:
                out.add("self.unknown_tags = r.tags()")
            else:
                out.add(f"self.unknown_tags = {'r.tags() if flexible else None' if flexible else 'None'}")
            return
        out.add("self.unknown_tags = None")
        if flexible == among:
            self._read_tag_section(flexible)
        else:
            with out.block("if flexible:"):
                self._read_tag_section(flexible)

    def _read_tag_section(self, known: Versions) -> None:
        out = self.out
        with out.block("for _ in range(r.uvarint()):"):
            out.add("tag, end = r.tag()")
            keyword = "if"
            for f in self.struct.tagged:
                condition = f"tag == {f.tag}"
                if f.versions != known:
                    condition += f" and {f.versions.condition(known)}"
                with out.block(f"{keyword} {condition}:"):
                    self._read_field(f, f.versions)
                keyword = "elif"
            with out.block("else:"):
                with out.block("if self.unknown_tags is None:"):
                    out.add("self.unknown_tags = {}")
                out.add("self.unknown_tags[tag] = r.raw(end)")
            out.add("r.end_tag(tag, end)")


def notice(sources: str) -> str:
    return f"# Generated by tools/protocol/generate.py from {sources}. Do not edit."


def module_text(messages: list[Message], sources: str) -> str:
    """Return the text of the module with these messages."""
    out = Lines()
    for message in messages:
        out.add("", "")
        ClassEmitter(out, message, message.body).emit_message()
    head = Lines()
    head.add(notice(sources), "")
    head.add("from __future__ import annotations", "")
    if out.layouts:
        head.add("from struct import Struct")
    head.add("from typing import TYPE_CHECKING", "")
    imported(head, "pykclient.protocol.message", out.names - {"BytesLike", "Iterable", "UUID", "ZERO_UUID"})
    uses_writer = any("= Writer()" in line for line in out.lines)
    wire = {name for name, used in (("Writer", uses_writer), ("ZERO_UUID", "ZERO_UUID" in out.names)) if used}
    if wire:
        imported(head, "pykclient.protocol.wire", wire)
    head.add("", "if TYPE_CHECKING:")
    with head.indented():
        if "Iterable" in out.names:
            head.add("from collections.abc import Iterable")
        head.add("from typing import Self")
        if "UUID" in out.names:
            head.add("from uuid import UUID")
        head.add("")
        typed = {"Reader", "Writer"} | (out.names & {"BytesLike"})
        if typed - wire:
            imported(head, "pykclient.protocol.wire", typed - wire)
    if out.layouts:
        head.add("", *(f"{name} = {value}" for name, value in sorted(out.layouts.items())))
    return "\n".join([*head.lines, *out.lines, ""])


def imported(out: Lines, module: str, names: Iterable[str]) -> None:
    """Write an import in ruff's order: constants, classes, functions."""
    ordered = sorted(names, key=lambda name: (0 if name.isupper() else 1 if name[0].isupper() else 2, name))
    out.listed(f"from {module} import ", ordered, "", exploded=(f"from {module} import (", ")"))


def table_text(requests: dict[str, Message], sources: str) -> str:
    """Return the text of the module that lists the APIs, so that their messages need not be imported."""
    out = Lines()
    out.add(notice(sources), "")
    out.add('"""The APIs whose messages this package has."""', "", "from __future__ import annotations", "", "")
    by_key = sorted(requests.items(), key=lambda item: item[1].key)
    with out.block("class ApiConstants:"):
        out.add('"""The keys of the APIs, under Kafka\'s names."""', "")
        out.add(*(f"{snake(name).upper()} = {request.key}" for name, request in by_key))
    out.add("", "", f"NEVER_FLEXIBLE = {NEVER}")
    out.add('"""The first flexible version of a message that has none: above every int16."""', "")
    out.add("# key: (name, oldest version, latest version, latest stable version, first flexible version,")
    out.add("#       oldest version that a broker may serve: those before the oldest are of old clients)")
    with out.block("API_TABLE: dict[int, tuple[str, int, int, int, int, int]] = {"):
        for name, request in by_key:
            flexible = request.flexible.lowest if request.flexible else NEVER
            row = (request.spoken.lowest, request.versions.highest, request.spoken.highest, flexible)
            out.add(f'{request.key}: ("{name}", {", ".join(map(str, (*row, request.versions.lowest)))}),')
    out.add("}", "")
    keys = [str(request.key) for name, request in by_key if name in BROKER_APIS.split()]
    out.listed("BROKER_APIS = frozenset((", keys, "))")
    out.add('"""APIs that brokers and their controller use among themselves; clients know nothing of them."""', "")
    return "\n".join(out.lines)


# --- the command ------------------------------------------------------------------------------------------------------


@contextmanager
def opened(lib: Path, name: str) -> Iterator[tuple[zipfile.ZipFile, str]]:
    """Open the jar ``name`` in a folder of jars; yield it and its version."""
    jars = list(lib.glob(f"{name}-[0-9]*.jar"))
    if len(jars) != 1:
        raise FileNotFoundError(f"{lib} should have one {name} jar, and has {len(jars)}")
    with zipfile.ZipFile(jars[0]) as jar:
        yield jar, jars[0].stem.removeprefix(f"{name}-")


def generate(lib: Path, old_lib: Path) -> dict[Path, str]:
    """Return the text of every generated file."""
    files: dict[Path, str] = {}
    requests: dict[str, Message] = {}
    with opened(lib, "kafka-clients") as (jar, version), opened(old_lib, "kafka-clients") as (old_jar, old_version):
        for name in (APIS + BROKER_APIS).split():
            request, response = load(jar, f"{name}Request", old_jar), load(jar, f"{name}Response", old_jar)
            response.spoken = request.spoken  # only requests have it
            requests[name] = request
            sources = f"Kafka {version}"
            if read_schema(jar, f"{name}Request") is None:
                sources = f"Kafka {old_version}"
            elif request.versions.lowest < request.spoken.lowest:
                sources += f" and {old_version}"
            files[ROOT / "messages" / f"{snake(name)}.py"] = module_text([request, response], sources)
        files[ROOT / "api_table.py"] = table_text(requests, f"Kafka {version} and {old_version}")
    for jar_name, names in DATA.items():
        with opened(lib, jar_name) as (jar, version):
            for name in names.split():
                files[ROOT / "messages" / f"{snake(name)}.py"] = module_text([load(jar, name)], f"Kafka {version}")
    return files


def check(files: dict[Path, str]) -> list[str]:
    """Return the differences between the files and their generated text."""
    problems = [
        f"{path.relative_to(ROOT)} is {'out of date' if path.exists() else 'missing'}"
        for path, text in files.items()
        if not path.exists() or path.read_text(encoding="utf-8") != text
    ]
    present = set((ROOT / "messages").glob("*.py")) - {ROOT / "messages" / "__init__.py"}
    return problems + [f"{path.relative_to(ROOT)} has no schema" for path in sorted(present - files.keys())]


def main() -> int:
    parser = argparse.ArgumentParser(description="Generate the protocol's messages from Kafka's jars.")
    parser.add_argument("--lib", type=Path, required=True, help="the folder with Kafka's jars")
    parser.add_argument("--old-lib", type=Path, required=True, help="the folder with the jars of Kafka 3.9")
    parser.add_argument("--check", action="store_true", help="compare, write nothing")
    arguments = parser.parse_args()
    files = generate(arguments.lib, arguments.old_lib)
    if arguments.check:
        problems = check(files)
        print("\n".join(problems) if problems else f"{len(files)} files are up to date")
        return 1 if problems else 0
    for path, text in files.items():
        path.write_text(text, encoding="utf-8")
    print(f"{len(files)} files written")
    return 0


if __name__ == "__main__":
    sys.exit(main())
