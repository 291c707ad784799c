"""Rules of data contracts: conditions and transformations that a schema carries, executed when records are written and
read.

A rule that this process cannot execute raises, whatever it says about failures: a field that should have been encrypted
must not be sent in plain text. Executors are registered by type. CEL (``CEL``, ``CEL_FIELD``) needs the package
cel-python, JSONata (``JSONATA``) jsonata-python, encryption (``ENCRYPT``, ``ENCRYPT_PAYLOAD``) cryptography; others are
the application's to register.
"""

from __future__ import annotations

import datetime
import decimal
import functools
import re
import threading
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

from pykclient.errors import SerializationError
from pykclient.schema_registry.rest import load
from pykclient.schema_registry.schemas import Rule, RuleKind, RuleMode, RulePhase, RuleSet, Schema
from pykclient.serialization import SerializationContext

if TYPE_CHECKING:
    from pykclient.schema_registry.schema_registry_client import SchemaRegistryClient

#: Changes each field's value: it is given the field's path, its tags, the name of its type, and the value.
FieldTransform = Callable[[str, frozenset[str], str, Any], Any]
#: Walks a message and calls the function for each of its fields.
FieldWalk = Callable[[Any, FieldTransform], Any]


#: The environments in which a rule set may be enabled, and those that are serializers and deserializers.
_ENVIRONMENTS: Final = frozenset(("ALL", "CLIENT", "GATEWAY", "SERVER", "NONE"))
_OURS: Final = frozenset(("ALL", "CLIENT"))
_MODES: Final = {
    RulePhase.MIGRATION: frozenset((RuleMode.UPGRADE, RuleMode.DOWNGRADE, RuleMode.UPDOWN)),
    RulePhase.DOMAIN: frozenset((RuleMode.WRITE, RuleMode.READ, RuleMode.WRITEREAD)),
    RulePhase.ENCODING: frozenset((RuleMode.WRITE, RuleMode.READ, RuleMode.WRITEREAD)),
}


class RuleError(SerializationError):
    """A rule failed, or cannot be executed here."""

    #: A record whose rule fails raises SerializationError.
    blames_record = False


class RuleConditionError(RuleError):
    """The condition of a rule is not met."""

    def __init__(self, rule: Rule) -> None:
        super().__init__(rule.doc or (f"Rule expr failed: {rule.expr}" if rule.expr else f"Rule failed: {rule.name}"))
        self.rule = rule


class RuleNotExecutedError(RuleError):
    """A rule cannot be executed, or not now: the record is not at fault."""


class MustWaitError(RuleError):
    """A rule needs a key that must be fetched, and its caller is an event loop, which may not wait."""

    def __init__(self, fetch: Callable[[], None]) -> None:
        """``fetch`` fetches the key, in a thread. It keeps the error, if any, for the next attempt."""
        super().__init__("a key is not loaded yet")
        self.fetch = fetch


@dataclass(eq=False, slots=True)
class RuleContext:
    """The message, schemas and mode that a rule is executed with."""

    rule: Rule
    rule_mode: RuleMode
    subject: str
    ser_ctx: SerializationContext | None
    source: Schema | None
    target: Schema | None
    #: None where the message's format has no fields that can be walked.
    walk: FieldWalk | None
    #: All rules of the step, in the order in which they are executed.
    rules: Sequence[Rule] = ()
    #: The client of the schemas' registry.
    registry: SchemaRegistryClient | None = None
    #: The serializer's ``rule_conf``: settings for executors, also secrets.
    conf: Mapping[str, Any] = field(default_factory=dict, repr=False)
    #: False in an event loop: an executor that must wait raises MustWaitError instead.
    may_wait: bool = True

    def get_parameter(self, name: str) -> str | None:
        """Return a parameter of the rule, or the property of that name in the schema's metadata."""
        if self.rule.params is not None and name in self.rule.params.params:
            return self.rule.params.params[name]
        metadata = None if self.target is None else self.target.metadata
        return metadata.properties.properties.get(name) if metadata and metadata.properties else None


class RuleExecutor(Protocol):
    """Executes rules of one type. Thread: any.

    If it also has ``configure(client_conf, rule_conf)``, each serializer calls that with the configuration of its
    registry's client and its ``rule_conf``.
    """

    def type(self) -> str:
        """Return the type, as rules name it."""

    def transform(self, ctx: RuleContext, message: Any) -> Any:
        """Return the transformed message or, for a condition, whether it is met."""


def has_same_fields(ctx: RuleContext) -> bool:
    """Return whether another rule of the step transforms the fields of this one: the one that is first on writing.

    As in confluent-kafka, only that one is executed: fields are encrypted once. Every condition is checked.
    """
    if ctx.rule.kind == RuleKind.CONDITION:
        return False
    rule, at = ctx.rule, next(place for place, one in enumerate(ctx.rules) if one is ctx.rule)
    others = ctx.rules[:at] if ctx.rule_mode in (RuleMode.WRITE, RuleMode.UPGRADE) else ctx.rules[at + 1 :]

    def form(of: Rule) -> tuple[Any, ...]:
        return (of.kind, of.mode, of.type, of.tags)

    return bool(rule.tags) and any(form(other) == form(rule) for other in others)


class FieldContext(NamedTuple):
    """The field that a rule is executed for: its full name and tags in the schema, and the name of its type."""

    full_name: str
    name: str
    field_type: str
    tags: frozenset[str]
    containing_message: Any

    def type_name(self) -> str:
        return self.field_type


def _walk_of(ctx: RuleContext) -> FieldWalk:
    if ctx.walk is None:
        raise NotImplementedError("rules of fields are not supported for this format")
    return ctx.walk


def walk_fields(ctx: RuleContext, message: Any, change: Callable[[FieldContext, Any], Any]) -> Any:
    """Return the message with changed fields: those with one of the rule's tags, or all if it has none.

    For a condition, return True: ``change`` then returns whether a field's value meets it.

    Raises:
        NotImplementedError: the message's format has no fields that can be walked.
        RuleConditionError: ``change`` returned False for a field of a condition.
    """
    wanted = frozenset(ctx.rule.tags or ())
    is_condition = ctx.rule.kind == RuleKind.CONDITION

    def each(path: str, tags: frozenset[str], type_name: str, value: Any) -> Any:
        if wanted and not wanted & tags:
            return value
        found = change(FieldContext(path, path.rpartition(".")[2], type_name, tags, message), value)
        if not is_condition:
            return found
        if found is False:
            raise RuleConditionError(ctx.rule)
        return value

    changed = _walk_of(ctx)(message, each)
    return True if is_condition else changed


class FieldRuleExecutor:
    """The base of executors that change the fields with one of a rule's tags, or all fields without any.

    For a condition, the function of ``new_transform`` returns whether a field's value meets it.
    """

    def configure(self, client_conf: dict[str, Any], rule_conf: dict[str, Any]) -> None:
        """Take the configuration of a serializer, if the executor needs any."""

    def type(self) -> str:
        raise NotImplementedError

    def new_transform(self, ctx: RuleContext) -> Callable[[RuleContext, FieldContext, Any], Any]:
        """Return the function that is called with the context, each field's and its value, and returns the new one."""
        raise NotImplementedError

    def transform(self, ctx: RuleContext, message: Any) -> Any:
        """Return the message with changed fields; True for a condition.

        Raises:
            NotImplementedError: the message's format has no fields that can be walked.
            RuleConditionError: a field does not meet a condition.
        """
        _walk_of(ctx)  # raises before new_transform, which may need keys
        if has_same_fields(ctx):
            return message
        change = self.new_transform(ctx)
        return walk_fields(ctx, message, lambda field, value: change(ctx, field, value))


class BuiltIn:
    """An executor of this package. Serializers find it without registration, and pass it all that it needs."""

    @classmethod
    def register(cls) -> None:
        """Register an executor of this class for all serializers, as confluent-kafka needs it."""
        RuleRegistry.register_rule_executor(cls())  # type: ignore[arg-type]


class RuleAction(Protocol):
    """An action to run after a rule, as named by its onSuccess or onFailure."""

    def type(self) -> str:
        """Return the name of the action."""

    def run(self, ctx: RuleContext, message: Any, ex: Exception | None) -> None:
        """Run the action; ``ex`` is the rule's error, if any."""


class RuleOverride(NamedTuple):
    """Overrides of this process for the rules of a type; None keeps a rule's own value."""

    type: str
    on_success: str | None = None
    on_failure: str | None = None
    disabled: bool | None = None


class RuleRegistry:
    """The executors and actions, by type. Thread: any."""

    _global: RuleRegistry | None = None

    def __init__(self) -> None:
        self._lock = threading.Lock()  # guards the following
        self._executors: dict[str, RuleExecutor] = {}
        self._actions: dict[str, RuleAction] = {}
        self._overrides: dict[str, RuleOverride] = {}

    def register_executor(self, rule_executor: RuleExecutor) -> None:
        """Let an executor run the rules of its type."""
        with self._lock:
            self._executors[rule_executor.type().upper()] = rule_executor

    def register_action(self, rule_action: RuleAction) -> None:
        """Let rules name an action."""
        with self._lock:
            self._actions[rule_action.type()] = rule_action

    def configure(self, client_conf: Mapping[str, Any], rule_conf: Mapping[str, Any]) -> None:
        """Configure the registered executors and actions that want to be."""
        with self._lock:
            found = [*self._executors.values(), *self._actions.values()]
        for one in found:
            configure = None if isinstance(one, BuiltIn) else getattr(one, "configure", None)
            if configure is not None:
                configure(dict(client_conf), dict(rule_conf))

    def get_executor(self, name: str) -> RuleExecutor | None:
        """Return the executor for a type; None if there is none."""
        with self._lock:
            found = self._executors.get(name.upper())
        return found or _built_in(name.upper())

    def get_action(self, name: str) -> RuleAction | None:
        """Return the action of a name; None if there is none."""
        with self._lock:
            return self._actions.get(name)

    def register_override(self, rule_override: RuleOverride) -> None:
        """Register an override for the rules of a type."""
        with self._lock:
            self._overrides[rule_override.type.upper()] = rule_override

    def get_override(self, name: str) -> RuleOverride | None:
        """Return the override for a type; None if there is none."""
        with self._lock:
            return self._overrides.get(name.upper())

    def clear(self) -> None:
        """Forget all executors, actions and overrides. Built-in executors remain."""
        with self._lock:
            self._executors.clear()
            self._actions.clear()
            self._overrides.clear()

    @staticmethod
    def get_global_instance() -> RuleRegistry:
        """Return the default registry of serializers."""
        if RuleRegistry._global is None:
            RuleRegistry._global = RuleRegistry()
        return RuleRegistry._global

    @staticmethod
    def register_rule_executor(rule_executor: RuleExecutor) -> None:
        """Register an executor for all serializers."""
        RuleRegistry.get_global_instance().register_executor(rule_executor)

    @staticmethod
    def register_rule_action(rule_action: RuleAction) -> None:
        """Register an action for all serializers."""
        RuleRegistry.get_global_instance().register_action(rule_action)

    @staticmethod
    def register_rule_override(rule_override: RuleOverride) -> None:
        """Register an override for all serializers."""
        RuleRegistry.get_global_instance().register_override(rule_override)


def outer_tags(schema: Schema | None, path: str) -> frozenset[str]:
    """Return a field's tags in the schema's metadata, by the field's full name.

    A path may have wildcards: ``?`` is a character and ``*`` any number within a name, ``**`` any number.
    """
    if schema is None or schema.metadata is None or schema.metadata.tags is None:
        return frozenset()
    tags = schema.metadata.tags.tags
    return frozenset(tag for pattern, given in tags.items() if _wildcards(pattern).fullmatch(path) for tag in given)


@functools.lru_cache(1000)
def _wildcards(pattern: str) -> re.Pattern[str]:
    known = {"**.*": ".*", "**": ".*", "*": "[^.]*", "?": "[^.]"}
    parts = re.split(r"(\*\*\.\*|\*\*|\*|\?)", pattern)
    return re.compile("".join(known.get(part) or re.escape(part) for part in parts), re.DOTALL)


class CelExecutor(BuiltIn):
    """Executes CEL expressions; ``message`` is the record. Needs the package cel-python."""

    def __init__(self) -> None:
        self._lock = threading.Lock()  # guards _programs
        self._programs: dict[str, Any] = {}

    def type(self) -> str:
        return "CEL"

    def transform(self, ctx: RuleContext, message: Any) -> Any:
        if hasattr(message, "DESCRIPTOR") and ctx.rule.kind == RuleKind.TRANSFORM:
            raise NotImplementedError("CEL cannot make messages of Protobuf; use CEL_FIELD")
        return self._result(ctx.rule, {"message": message}, message)

    def _result(self, rule: Rule, variables: Mapping[str, Any], value: Any) -> Any:
        """Return what a rule makes of a value. If the guard before its expression is false, it changes nothing."""
        guard, has_guard, rest = (rule.expr or "").partition(";")
        if has_guard and not self.evaluate(guard, variables):
            return True if rule.kind == RuleKind.CONDITION else value
        return self.evaluate(rest if has_guard else guard, variables)

    def evaluate(self, expression: str, variables: Mapping[str, Any]) -> Any:
        """Return the value of an expression, in Python's types."""
        celpy = load("celpy", "rules")
        with self._lock:
            program = self._programs.get(expression)
        if program is None:
            environment = celpy.Environment()
            program = environment.program(environment.compile(expression))
            with self._lock:
                self._programs[expression] = program
        try:
            found = program.evaluate({name: _to_cel(value) for name, value in variables.items()})
        except celpy.CELEvalError as error:
            raise RuleError(f"the expression {expression!r} failed: {type(error).__name__}") from error
        return _plain(found)


def _to_cel(value: Any) -> Any:
    """Return a value of a record as CEL has it: dates are days, times microseconds, UUIDs strings."""
    types = load("celpy.celtypes", "rules")
    if isinstance(value, Mapping):
        return types.MapType({_to_cel(key): _to_cel(item) for key, item in value.items()})
    if hasattr(value, "DESCRIPTOR"):
        return _message_to_cel(value, types)
    if isinstance(value, bool):  # before int, which it is
        return types.BoolType(value)
    if isinstance(value, datetime.date) and not isinstance(value, datetime.datetime):
        return types.IntType(value.toordinal() - datetime.date(1970, 1, 1).toordinal())
    if isinstance(value, datetime.time):
        return types.IntType(((value.hour * 60 + value.minute) * 60 + value.second) * 1_000_000 + value.microsecond)
    for kind, make in (
        (int, types.IntType),
        (float, types.DoubleType),
        (decimal.Decimal, types.DoubleType),
        (str, types.StringType),
        (bytes, types.BytesType),
        (datetime.datetime, types.TimestampType),
        (datetime.timedelta, types.DurationType),
    ):
        if isinstance(value, kind):
            return make(value)
    if isinstance(value, uuid.UUID):
        return types.StringType(str(value))
    if isinstance(value, tuple) and len(value) == 2 and isinstance(value[0], str):  # a branch of a union, by its name
        return _to_cel(value[1])
    if isinstance(value, (list, tuple, Sequence)):
        return types.ListType([_to_cel(item) for item in value])
    return value


def _message_to_cel(message: Any, types: Any) -> Any:
    if message.DESCRIPTOR.full_name in ("google.protobuf.Timestamp", "google.protobuf.Duration"):
        nanos = message.seconds * 1_000_000_000 + message.nanos
        delta = datetime.timedelta(microseconds=nanos // 1000)
        if message.DESCRIPTOR.name == "Duration":
            return types.DurationType(delta)
        return types.TimestampType(datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC) + delta)
    fields = [field for field in message.DESCRIPTOR.fields if not field.has_presence or message.HasField(field.name)]
    return types.MapType({types.StringType(field.name): _to_cel(getattr(message, field.name)) for field in fields})


def _plain(value: Any) -> Any:
    """Return a value of CEL in Python's own types."""
    if type(value).__name__ == "BoolType":  # which is an int
        return bool(value)
    if isinstance(value, (datetime.datetime, datetime.timedelta)):
        return value
    for kind in (int, float, str, bytes):
        if isinstance(value, kind):
            make: Callable[[Any], Any] = kind
            return value if isinstance(value, bool) else make(value)
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, Sequence):
        return [_plain(item) for item in value]
    return value


class CelFieldExecutor(CelExecutor):
    """Executes CEL expressions for each field with one of the rule's tags; ``value`` is the field's."""

    def type(self) -> str:
        return "CEL_FIELD"

    def transform(self, ctx: RuleContext, message: Any) -> Any:
        def change(field: FieldContext, value: Any) -> Any:
            variables = {
                "value": value,
                "message": message,
                "typeName": field.field_type,
                "name": field.name,
                "fullName": field.full_name,
                "tags": sorted(field.tags),
            }
            found = self._result(ctx.rule, variables, value)
            return bool(found) if ctx.rule.kind == RuleKind.CONDITION else found

        return walk_fields(ctx, message, change)


class JsonataExecutor(BuiltIn):
    """Executes JSONata expressions, for migrations. Needs the package jsonata-python."""

    def type(self) -> str:
        return "JSONATA"

    def transform(self, ctx: RuleContext, message: Any) -> Any:
        jsonata = load("jsonata", "rules")
        return jsonata.Jsonata(ctx.rule.expr or "").evaluate(message)


def _encryption(name: str) -> RuleExecutor:
    made: RuleExecutor = getattr(load("pykclient.schema_registry.encryption", "encryption"), name)()
    return made


_BUILT_IN: Final[dict[str, Callable[[], RuleExecutor]]] = {
    "CEL": CelExecutor,
    "CEL_FIELD": CelFieldExecutor,
    "JSONATA": JsonataExecutor,
    "ENCRYPT": lambda: _encryption("FieldEncryptionExecutor"),
    "ENCRYPT_PAYLOAD": lambda: _encryption("EncryptionExecutor"),
}
_made: Final[dict[str, RuleExecutor]] = {}


def _built_in(name: str) -> RuleExecutor | None:
    if name not in _made and name in _BUILT_IN:
        _made[name] = _BUILT_IN[name]()
    return _made.get(name)


def rules_for(
    phase: RulePhase, mode: RuleMode, source: Schema | None, target: Schema | None, registry: RuleRegistry | None = None
) -> list[Rule]:
    """Return the rules to execute for a step, in order; reads and downgrades undo in reverse.

    With a registry, its overrides decide which rules are disabled.

    Raises:
        RuleError: this version does not know the mode or the kind of a rule, its phase, or where it is enabled.
    """

    def is_disabled(rule: Rule) -> bool:
        override = None if registry is None else registry.get_override(rule.type or "")
        return bool(rule.disabled if override is None or override.disabled is None else override.disabled)

    of = source if mode == RuleMode.DOWNGRADE else target
    if of is None or of.rule_set is None:
        return []
    held = of.rule_set
    if not _is_enabled(held):
        return []
    both = RuleMode.UPDOWN if phase == RulePhase.MIGRATION else RuleMode.WRITEREAD
    enabled = [rule for rule in held.of(phase) if not is_disabled(rule)]
    wanted = [rule for rule in enabled if _mode_of(rule, phase) in (mode, both)]
    return wanted[::-1] if mode in (RuleMode.READ, RuleMode.DOWNGRADE) else wanted


def may_have_rules(phase: RulePhase, mode: RuleMode, schema: Schema | None) -> bool:
    """Return False if a schema has no rules for a step, whatever overrides say about disabled ones."""
    if schema is None or schema.rule_set is None:
        return False
    held = schema.rule_set
    if held.others or (held.enable_at or "ALL") not in _ENVIRONMENTS:
        return True
    elsewhere = _MODES[phase] - {mode, RuleMode.WRITEREAD}
    return any(rule.mode not in elsewhere for rule in held.of(phase))


def _is_enabled(rules: RuleSet) -> bool:
    if rules.others:
        raise RuleError(f"the schema has {', '.join(rules.others)}, which this version does not know")
    where = rules.enable_at or "ALL"
    if where not in _ENVIRONMENTS:
        raise RuleError(f"the schema's rules are enabled at {where}, which this version does not know")
    return where in _OURS


def _mode_of(rule: Rule, phase: RulePhase) -> RuleMode:
    """Return the mode of a rule that is enabled. The registry's own defaults hold."""
    mode = rule.mode or RuleMode.WRITEREAD
    if mode not in _MODES[phase]:
        raise RuleError(f"the rule {rule.name!r} of phase {phase} has the mode {mode}, which cannot be executed here")
    if rule.kind is not None and rule.kind not in RuleKind.__members__:
        raise RuleError(f"the rule {rule.name!r} has the kind {rule.kind}, which cannot be executed here")
    return mode


# --- rules in the text of a schema ------------------------------------------------------------------------------------


class InlineRule(NamedTuple):
    """A condition in the text of a schema (``confluent:rules``) on a record or on a field."""

    name: str | None = None
    doc: str | None = None
    expr: str | None = None
    sql: str | None = None


#: A rule, the path of the value that it holds for, and the value.
InlineCheck = tuple[str, InlineRule, Any]


def inline_rules(given: Any) -> tuple[InlineRule, ...]:
    """Return the rules in the property ``confluent:rules`` of a schema.

    Raises:
        RuleError: the property is not a list of objects.
    """
    if given is None:
        return ()
    if not isinstance(given, list) or not all(isinstance(one, dict) for one in given):
        raise RuleError("confluent:rules must be a list of objects")
    return tuple(InlineRule(*(one.get(name) for name in InlineRule._fields)) for one in given)


def ensure_inline_rules_hold(checks: Iterable[InlineCheck], subject: str | None, fail_fast: bool) -> None:
    """Check values by the rules in a schema's text, with ``this`` as the value and ``now`` as the time.

    A value is valid if the expression is true or an empty text. Any other text says what is wrong.

    Raises:
        RuleError: a rule does not hold, or cannot be executed; the text has all that do not hold.
    """
    found: list[str] = []
    for path, rule, value in checks:
        place = f"{path or 'the value'}: {rule.name or 'unnamed'}"
        if not rule.expr:
            raise RuleError(f"the rule {rule.name!r} of {subject!r} has no expression of CEL, and cannot be executed")
        try:
            now = datetime.datetime.now(datetime.UTC)
            result = _inline_executor().evaluate(rule.expr, {"this": value, "now": now})
        except ImportError as error:
            raise RuleError(f"the rule {rule.name!r} of {subject!r} cannot be executed: {error}") from error
        except RuleError as error:
            found.append(f"{place}: {rule.doc or rule.expr} ({error})")
        else:
            if not isinstance(result, (bool, str)):
                raise RuleError(f"the rule {rule.name!r} of {subject!r} must return a bool or a text")
            if result is False or (isinstance(result, str) and result):
                found.append(f"{place}: {result or rule.doc or rule.sql or rule.expr}")
        if found and fail_fast:
            break
    if found:
        raise RuleError(f"the rules in the schema of {subject!r} do not hold: {'; '.join(found)}")


@functools.cache
def _inline_executor() -> CelExecutor:
    return CelExecutor()


class RuleRunner:
    """Executes the rules of schemas. Thread: any."""

    def __init__(
        self,
        registry: RuleRegistry | None,
        client: SchemaRegistryClient | None = None,
        conf: Mapping[str, Any] | None = None,
    ) -> None:
        """``client`` is that of the schemas' registry, and ``conf`` has settings for executors."""
        self._registry = registry or RuleRegistry.get_global_instance()
        self._client = client
        self._conf: Mapping[str, Any] = conf or {}
        self._registry.configure({} if client is None else client.config(), self._conf)

    def rules_for(
        self, phase: RulePhase, mode: RuleMode, subject: str, source: Schema | None, target: Schema | None
    ) -> list[Rule]:
        """Return the rules to execute for a step of a subject's schema, in order.

        Raises:
            RuleError: this version does not know the mode or the kind of a rule, its phase, or where it is enabled.
        """
        try:
            return rules_for(phase, mode, source, target, self._registry)
        except RuleError as error:
            raise RuleError(f"the schema of {subject!r} has a rule that would be left out: {error}") from None

    def run(
        self,
        phase: RulePhase,
        mode: RuleMode,
        subject: str,
        ctx: SerializationContext | None,
        source: Schema | None,
        target: Schema | None,
        message: Any,
        walk: FieldWalk | None = None,
        may_wait: bool = True,
    ) -> Any:
        """Return the message after the rules of a step.

        Raises:
            RuleError: a rule is of an unknown type, or needs a package that is not installed.
            MustWaitError: a rule needs a key that is not loaded yet, and ``may_wait`` is False.
            SerializationError: a rule failed, and its action for failures is to raise.
        """
        rules = self.rules_for(phase, mode, subject, source, target)
        for rule in rules:
            override = self._registry.get_override(rule.type or "")
            context = RuleContext(
                rule, mode, subject, ctx, source, target, walk, rules, self._client, self._conf, may_wait
            )
            executor = self._registry.get_executor(rule.type or "")
            if executor is None:
                raise RuleError(
                    f"the schema of {subject!r} has the rule {rule.name!r} of type {rule.type}, which nothing here can "
                    "execute: register an executor with RuleRegistry.register_rule_executor()"
                )
            try:
                found = executor.transform(context, message)
                if rule.kind == RuleKind.CONDITION:
                    if not found:
                        raise RuleConditionError(rule)
                else:
                    message = found
                if message is None:
                    raise RuleError(f"the rule {rule.name!r} returned nothing")
            except MustWaitError:
                raise
            except (ImportError, NotImplementedError) as error:
                raise RuleError(f"the rule {rule.name!r} of type {rule.type} cannot be executed: {error}") from error
            except Exception as error:  # noqa: BLE001 - whatever the executor raises is the action's to handle
                self._act(context, (override and override.on_failure) or rule.on_failure, "ERROR", message, error)
                if mode == RuleMode.WRITE and getattr(executor, "protects", False):
                    self._act(context, "ERROR", "ERROR", message, error)  # nothing is sent in plain text
            else:
                self._act(context, (override and override.on_success) or rule.on_success, "NONE", message, None)
        return message

    def _act(
        self, context: RuleContext, names: str | None, default: str, message: Any, error: Exception | None
    ) -> None:
        name = names or default
        if "," in name:  # one for writing and upgrading, one for reading and downgrading
            first, _, second = name.partition(",")
            name = first if context.rule_mode in (RuleMode.WRITE, RuleMode.UPGRADE) else second
        if name == "NONE":
            return
        if name == "ERROR":
            text = f"the rule {context.rule.name!r} of {context.subject!r} failed: {error}"
            # A record whose rule could not be executed is no poison record.
            kind = RuleNotExecutedError if isinstance(error, RuleNotExecutedError) else SerializationError
            raise kind(text) from error
        action = self._registry.get_action(name)
        if action is None:
            raise RuleError(f"the rule {context.rule.name!r} names the action {name!r}, which is not registered")
        action.run(context, message, error)
