"""Rules of data contracts: conditions and transformations that a schema carries, executed when records are written and
read.

A rule that this process cannot execute raises, whatever it says about failures: a field that should have been encrypted
must not be sent in plain text. Executors are registered by type. CEL (``CEL``, ``CEL_FIELD``) needs the package
cel-python, JSONata (``JSONATA``) jsonata-python; others, such as field encryption, are the application's to register.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Protocol

from pykclient.errors import SerializationError
from pykclient.schema_registry.rest import load
from pykclient.schema_registry.schemas import Rule, RuleKind, RuleMode, RulePhase, Schema
from pykclient.serialization import SerializationContext

#: Changes each field's value: it is given the field's path, its tags, the name of its type, and the value.
FieldTransform = Callable[[str, frozenset[str], str, Any], Any]
#: Walks a message and calls the function for each of its fields.
FieldWalk = Callable[[Any, FieldTransform], Any]


class RuleError(SerializationError):
    """A rule failed, or cannot be executed here."""


class RuleConditionError(RuleError):
    """The condition of a rule is not met."""

    def __init__(self, rule: Rule) -> None:
        super().__init__(rule.doc or (f"Rule expr failed: {rule.expr}" if rule.expr else f"Rule failed: {rule.name}"))
        self.rule = rule


class RuleContext:
    """The message, schemas and mode that a rule is executed with."""

    __slots__ = ("ctx", "mode", "rule", "source", "subject", "target", "walk")

    def __init__(
        self,
        rule: Rule,
        mode: RuleMode,
        subject: str,
        ctx: SerializationContext | None,
        source: Schema | None,
        target: Schema | None,
        walk: FieldWalk | None,
    ) -> None:
        self.rule = rule
        self.mode = mode
        self.subject = subject
        self.ctx = ctx
        self.source = source
        self.target = target
        #: None where the message's format has no fields that can be walked.
        self.walk = walk

    def parameter(self, name: str) -> str | None:
        """Return a parameter of the rule, or the property of that name in the schema's metadata."""
        if self.rule.params is not None and name in self.rule.params.params:
            return self.rule.params.params[name]
        metadata = None if self.target is None else self.target.metadata
        return metadata.properties.properties.get(name) if metadata and metadata.properties else None


class RuleExecutor(Protocol):
    """Executes rules of one type. Thread: any."""

    def type(self) -> str:
        """Return the type, as rules name it."""

    def transform(self, ctx: RuleContext, message: Any) -> Any:
        """Return the changed message, or for a condition whether it is met."""


class RuleAction(Protocol):
    """Done after a rule, as its onSuccess or onFailure says."""

    def type(self) -> str:
        """Return the name of the action."""

    def run(self, ctx: RuleContext, message: Any, ex: Exception | None) -> None:
        """Act; ``ex`` is the rule's error, if there is one."""


class RuleRegistry:
    """The executors and actions, by type. Thread: any."""

    _global: RuleRegistry | None = None

    def __init__(self) -> None:
        self._lock = threading.Lock()  # guards both
        self._executors: dict[str, RuleExecutor] = {}
        self._actions: dict[str, RuleAction] = {}

    def register_executor(self, rule_executor: RuleExecutor) -> None:
        """Let an executor run the rules of its type."""
        with self._lock:
            self._executors[rule_executor.type().upper()] = rule_executor

    def register_action(self, rule_action: RuleAction) -> None:
        """Let rules name an action."""
        with self._lock:
            self._actions[rule_action.type()] = rule_action

    def get_executor(self, name: str) -> RuleExecutor | None:
        """Return the executor for a type; None if there is none."""
        with self._lock:
            found = self._executors.get(name.upper())
        return found or _built_in(name.upper())

    def get_action(self, name: str) -> RuleAction | None:
        """Return the action of a name; None if there is none."""
        with self._lock:
            return self._actions.get(name)

    @staticmethod
    def get_global_instance() -> RuleRegistry:
        """Return the registry that serializers use without one of their own."""
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


class CelExecutor:
    """Executes CEL expressions; ``message`` is the record. Needs the package cel-python."""

    def __init__(self) -> None:
        self._lock = threading.Lock()  # guards _programs
        self._programs: dict[str, Any] = {}

    def type(self) -> str:
        return "CEL"

    def transform(self, ctx: RuleContext, message: Any) -> Any:
        expression = ctx.rule.expr or ""
        guard, found, rest = expression.partition(";")
        if hasattr(message, "DESCRIPTOR"):
            raise NotImplementedError("CEL is not supported for Protobuf")
        variables = {"message": message}
        if found:
            if not self.evaluate(guard, variables):
                return True if ctx.rule.kind == RuleKind.CONDITION else message
            expression = rest
        return self.evaluate(expression, variables)

    def evaluate(self, expression: str, variables: Mapping[str, Any]) -> Any:
        """Return the value of an expression, in Python's types."""
        celpy = load("celpy", "rules")
        adapter = load("celpy.adapter", "rules")
        with self._lock:
            program = self._programs.get(expression)
        if program is None:
            environment = celpy.Environment()
            program = environment.program(environment.compile(expression))
            with self._lock:
                self._programs[expression] = program
        try:
            found = program.evaluate({name: adapter.json_to_cel(value) for name, value in variables.items()})
        except celpy.CELEvalError as error:
            raise RuleError(f"the expression {expression!r} failed: {type(error).__name__}") from error
        return _plain(found)


def _plain(value: Any) -> Any:
    """Return a value of CEL in Python's own types."""
    if type(value).__name__ == "BoolType":  # which is an int
        return bool(value)
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
        if ctx.walk is None:
            raise NotImplementedError("rules of fields are not supported for this format")
        wanted = frozenset(ctx.rule.tags or ())
        is_condition = ctx.rule.kind == RuleKind.CONDITION
        expression = ctx.rule.expr or ""
        guard, has_guard, rest = expression.partition(";")

        def change(path: str, tags: frozenset[str], type_name: str, value: Any) -> Any:
            if wanted and not wanted & tags:
                return value
            variables = {
                "value": value,
                "message": message,
                "typeName": type_name,
                "name": path.rpartition(".")[2],
                "fullName": path,
                "tags": sorted(tags),
            }
            if has_guard and not self.evaluate(guard, variables):
                return value
            found = self.evaluate(rest if has_guard else expression, variables)
            if is_condition and not found:
                raise RuleConditionError(ctx.rule)
            return value if is_condition else found

        changed = ctx.walk(message, change)
        return True if is_condition else changed


class JsonataExecutor:
    """Executes JSONata expressions, for migrations. Needs the package jsonata-python."""

    def type(self) -> str:
        return "JSONATA"

    def transform(self, ctx: RuleContext, message: Any) -> Any:
        jsonata = load("jsonata", "rules")
        return jsonata.Jsonata(ctx.rule.expr or "").evaluate(message)


_BUILT_IN: Final[dict[str, Callable[[], RuleExecutor]]] = {
    "CEL": CelExecutor,
    "CEL_FIELD": CelFieldExecutor,
    "JSONATA": JsonataExecutor,
}
_made: Final[dict[str, RuleExecutor]] = {}


def _built_in(name: str) -> RuleExecutor | None:
    if name not in _made and name in _BUILT_IN:
        _made[name] = _BUILT_IN[name]()
    return _made.get(name)


def rules_for(phase: RulePhase, mode: RuleMode, source: Schema | None, target: Schema | None) -> list[Rule]:
    """Return the rules to execute for a step, in order; reads and downgrades undo in reverse."""
    of = source if mode == RuleMode.DOWNGRADE else target
    if of is None or of.rule_set is None:
        return []
    held = of.rule_set
    if (held.enable_at or "ALL") not in ("ALL", "CLIENT"):
        return []
    rules = {
        RulePhase.MIGRATION: held.migration_rules,
        RulePhase.DOMAIN: held.domain_rules,
        RulePhase.ENCODING: held.encoding_rules,
    }[phase]
    both = RuleMode.UPDOWN if phase == RulePhase.MIGRATION else RuleMode.WRITEREAD
    wanted = [rule for rule in rules or () if not rule.disabled and rule.mode in (mode, both)]
    return wanted[::-1] if mode in (RuleMode.READ, RuleMode.DOWNGRADE) else wanted


class RuleRunner:
    """Executes the rules of schemas. Thread: any."""

    def __init__(self, registry: RuleRegistry | None) -> None:
        self._registry = registry or RuleRegistry.get_global_instance()

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
    ) -> Any:
        """Return the message after the rules of a step.

        Raises:
            RuleError: a rule is of an unknown type, or needs a package that is not installed.
            SerializationError: a rule failed, and its action for failures is to raise.
        """
        for rule in rules_for(phase, mode, source, target):
            context = RuleContext(rule, mode, subject, ctx, source, target, walk)
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
            except (ImportError, NotImplementedError) as error:
                raise RuleError(f"the rule {rule.name!r} of type {rule.type} cannot be executed: {error}") from error
            except Exception as error:  # noqa: BLE001 - whatever the executor raises is the action's to handle
                self._act(context, rule.on_failure, "ERROR", message, error)
            else:
                self._act(context, rule.on_success, "NONE", message, None)
        return message

    def _act(
        self, context: RuleContext, names: str | None, default: str, message: Any, error: Exception | None
    ) -> None:
        name = names or default
        if "," in name:  # one for writing and upgrading, one for reading and downgrading
            first, _, second = name.partition(",")
            name = first if context.mode in (RuleMode.WRITE, RuleMode.UPGRADE) else second
        if name == "NONE":
            return
        if name == "ERROR":
            text = f"the rule {context.rule.name!r} of {context.subject!r} failed: {error}"
            raise SerializationError(text) from error
        action = self._registry.get_action(name)
        if action is None:
            raise RuleError(f"the rule {context.rule.name!r} names the action {name!r}, which is not registered")
        action.run(context, message, error)
