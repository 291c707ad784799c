"""The common base of the serializers of all formats: settings, subjects, the choice of a schema, rules.

Each record needs a plan: the schema's id, the parsed schemas, the rules. Making one may ask the registry. It is made
once for a topic and field and, on reading, a schema's id. With a plan, a record takes no request, so serializers for
asyncio make plans in a thread and do the rest in the event loop.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Hashable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final, Generic

from pykclient.caused_errors import caused_by
from pykclient.clock import SYSTEM_CLOCK
from pykclient.config.config_def import ConfigDef, ConfigKey, Importance, Type
from pykclient.errors import ConfigError, KafkaError, SerializationError
from pykclient.schema_registry.models import model_problem
from pykclient.schema_registry.rules import (
    FieldWalk,
    InlineCheck,
    MustWaitError,
    RuleRegistry,
    RuleRunner,
    ensure_inline_rules_hold,
    may_have_rules,
)
from pykclient.schema_registry.schema_registry_client import (
    AsyncSchemaRegistryClient,
    BoundedCache,
    SchemaRegistryClient,
)
from pykclient.schema_registry.schemas import RegisteredSchema, RuleMode, RulePhase, Schema, SchemaRegistryError
from pykclient.schema_registry.wire import (
    SchemaId,
    decoded_by,
    dual_schema_id_deserializer,
    prefix_schema_id_serializer,
)
from pykclient.serialization import MessageField, SerializationContext
from pykclient.types import Headers

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    #: What a serializer or deserializer returns. Any if neither a model nor a function says it.
    T = TypeVar("T", default=Any)
else:
    from typing import TypeVar

    T = TypeVar("T")

S = TypeVar("S", bound="BaseSerde")
Registry = SchemaRegistryClient | AsyncSchemaRegistryClient
Strategy = Callable[..., str | None]
ToDict = Callable[[Any, SerializationContext], Any]

#: What registries answer that have no association for a topic, or no associations at all.
_NO_ASSOCIATION: Final = frozenset((404, *range(40401, 40500)))
_MOST_PLANS: Final = 10_000


# --- subjects --------------------------------------------------------------------------------------------------------


def topic_subject_name_strategy(ctx: SerializationContext | None, record_name: str | None) -> str | None:  # noqa: ARG001
    """Return the topic's name with ``-key`` or ``-value``."""
    return f"{_needed(ctx, 'topic_subject_name_strategy').topic}-{_needed(ctx, '').field}"


def topic_record_subject_name_strategy(ctx: SerializationContext | None, record_name: str | None) -> str | None:
    """Return the topic's name with that of the record's type."""
    topic = _needed(ctx, "topic_record_subject_name_strategy").topic
    return None if record_name is None else f"{topic}-{record_name}"


def record_subject_name_strategy(ctx: SerializationContext | None, record_name: str | None) -> str | None:  # noqa: ARG001
    """Return the name of the record's type."""
    return record_name


def reference_subject_name_strategy(ctx: SerializationContext | None, schema_ref: Any) -> str | None:  # noqa: ARG001
    """Return the name of a schema reference as the subject."""
    return None if schema_ref is None else str(schema_ref.name)


def _needed(ctx: SerializationContext | None, who: str) -> SerializationContext:
    if ctx is None:
        raise ValueError(
            f"SerializationContext is required for {who}. Either provide a SerializationContext or use "
            "record_subject_name_strategy."
        )
    return ctx


class SubjectNameStrategyType(StrEnum):
    """The strategies for configurations. ASSOCIATED asks the registry; NONE is valid only as its fallback."""

    NONE = "NONE"
    TOPIC = "TOPIC"
    RECORD = "RECORD"
    TOPIC_RECORD = "TOPIC_RECORD"
    ASSOCIATED = "ASSOCIATED"


_STRATEGIES: Final[dict[str, Strategy]] = {
    "TOPIC": topic_subject_name_strategy,
    "RECORD": record_subject_name_strategy,
    "TOPIC_RECORD": topic_record_subject_name_strategy,
}
KAFKA_CLUSTER_ID: Final = "subject.name.strategy.kafka.cluster.id"
FALLBACK_TYPE: Final = "subject.name.strategy.fallback.type"


class AssociatedNameStrategy:
    """The subject that the registry associates with a topic; without one, the subject of another strategy.

    ``subject.name.strategy.conf`` may name that strategy (``subject.name.strategy.fallback.type``: TOPIC, RECORD,
    TOPIC_RECORD, or NONE for an error) and the Kafka cluster (``subject.name.strategy.kafka.cluster.id``). Answers
    are cached. Thread: any.
    """

    def __init__(self, cache_capacity: int = 1000) -> None:
        self._subjects: BoundedCache[str] = BoundedCache(cache_capacity, SYSTEM_CLOCK)

    def __call__(
        self,
        ctx: SerializationContext | None,
        record_name: str | None,
        schema_registry_client: SchemaRegistryClient | None,
        conf: Mapping[str, Any] | None = None,
    ) -> str | None:
        """Return the subject for a record's key or value.

        Raises:
            ConfigError: the fallback is no strategy.
            SerializationError: several subjects are associated, or none and the fallback is NONE.
            SchemaRegistryError: the registry cannot be asked.
        """
        known = _needed(ctx, "AssociatedNameStrategy")
        if schema_registry_client is None:
            return topic_subject_name_strategy(ctx, record_name)
        key = (known.topic, str(known.field), record_name)
        subject = self._subjects.get(key)
        if subject is None:
            subject = self._ask(known, record_name, schema_registry_client, conf or {})
            if subject is not None:
                self._subjects.put(key, subject)
        return subject

    def _ask(
        self,
        ctx: SerializationContext,
        record_name: str | None,
        registry: SchemaRegistryClient,
        conf: Mapping[str, Any],
    ) -> str | None:
        fallback = str(conf.get(FALLBACK_TYPE) or "TOPIC").upper()
        if fallback not in _STRATEGIES and fallback != SubjectNameStrategyType.NONE:
            known = ", ".join(("NONE", *_STRATEGIES))
            raise ConfigError(f"{FALLBACK_TYPE} = {fallback!r}: it must be one of {known}", key=FALLBACK_TYPE)
        try:
            found = registry.get_associations_by_resource_name(
                ctx.topic, conf.get(KAFKA_CLUSTER_ID) or "-", "topic", [str(ctx.field)]
            )
        except SchemaRegistryError as error:
            if error.error_code not in _NO_ASSOCIATION:
                raise
            found = []
        if len(found) > 1:
            raise SerializationError(f"Multiple associated subjects found for topic {ctx.topic}")
        if found:
            return found[0].subject
        if fallback == SubjectNameStrategyType.NONE:
            raise SerializationError(f"No associated subject found for topic {ctx.topic}")
        return _STRATEGIES[fallback](ctx, record_name)


# --- settings --------------------------------------------------------------------------------------------------------


def setting(name: str, type: str, default: Any, doc: str) -> ConfigKey:
    """Return a setting of serializers or deserializers."""
    return ConfigKey(name, type, default, Importance.MEDIUM, doc, extension=True, named=True)


_BOTH: Final = (
    setting("use.latest.version", Type.BOOLEAN, False, "Use the latest version of the subject."),
    setting("use.latest.with.metadata", Type.CLASS, None, "Use the latest version with these metadata properties."),
    setting("subject.name.strategy", Type.CLASS, None, "A function that returns the subject."),
    setting("subject.name.strategy.type", Type.STRING, None, "TOPIC, RECORD, TOPIC_RECORD or ASSOCIATED."),
    setting("subject.name.strategy.conf", Type.CLASS, None, "Settings of ASSOCIATED."),
)
_REGISTER: Final = "auto.register.schemas"
WRITING: Final = (
    *_BOTH,
    setting(_REGISTER, Type.BOOLEAN, False, "Register the schema if it is not registered yet."),
    setting("normalize.schemas", Type.BOOLEAN, False, "Let the registry bring schemas into a normal form."),
    setting("use.schema.id", Type.INT, None, "Use the schema of this id."),
    setting("schema.id.serializer", Type.CLASS, None, "A function that writes the schema's id."),
    setting("validation.rules.execution", Type.STRING, "BEFORE_DOMAIN_RULES", "When rules in a schema's text run."),
    setting("validation.rules.fail.fast", Type.BOOLEAN, False, "Stop at the first of these rules that fails."),
)
_EXECUTION: Final = ("DISABLED", "BEFORE_DOMAIN_RULES", "AFTER_DOMAIN_RULES")
READING: Final = (
    *_BOTH,
    setting("schema.id.deserializer", Type.CLASS, None, "A function that reads the schema's id."),
    setting("glue.client", Type.CLASS, None, "A client of AWS Glue (boto3) for records that were written with it."),
)
#: Settings whose values are objects, which are taken as they are.
_OBJECTS: Final = frozenset(key.name for key in (*WRITING, *READING) if key.type == Type.CLASS)


def registering(keys: tuple[ConfigKey, ...]) -> tuple[ConfigKey, ...]:
    """Return the settings of a serializer that registers schemas unless it is told otherwise."""
    return tuple(setting(key.name, key.type, True, key.doc) if key.name == _REGISTER else key for key in keys)


def read_settings(keys: tuple[ConfigKey, ...], conf: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return the value of each setting.

    Raises:
        ConfigError: one is unknown, or of the wrong type; or two exclude each other.
    """
    definition = ConfigDef(keys)
    given = definition.read(conf or {})
    objects = {name: given.pop(name) for name in list(given) if name in _OBJECTS}
    given = {name: value for name, value in given.items() if value is not None}
    for name in given:
        if definition.keys[name].type == Type.BOOLEAN and not isinstance(given[name], bool):
            raise ConfigError(f"{name} must be a boolean: True or False", key=name)
    values = {**definition.parse(given), **objects}
    if values["use.latest.version"] and values.get("auto.register.schemas"):
        raise ConfigError("cannot enable both use.latest.version and auto.register.schemas", key="use.latest.version")
    if values["use.latest.with.metadata"] is not None and not isinstance(values["use.latest.with.metadata"], Mapping):
        raise ConfigError("use.latest.with.metadata must be a dict", key="use.latest.with.metadata")
    if values.get("validation.rules.execution", _EXECUTION[0]) not in _EXECUTION:
        raise ConfigError(
            f"validation.rules.execution must be one of {', '.join(_EXECUTION)}", key="validation.rules.execution"
        )
    for name in ("subject.name.strategy", "schema.id.serializer", "schema.id.deserializer"):
        if values.get(name) is not None and not callable(values[name]):
            raise ConfigError(f"{name} must be callable", key=name)
    return values


def converter(name: str, given: ToDict | None, what: str) -> ToDict | None:
    """Return an application's function, named ``name``, of ``what`` and a context. Raises ConfigError if it is none."""
    if given is not None and not callable(given):
        raise ConfigError(f"{name} must be callable: {name}({what}, SerializationContext)")
    return given


def _ctx_for(ctx: SerializationContext | None) -> SerializationContext:
    if ctx is None:
        raise TypeError("SerializationContext cannot be None")
    return ctx


class NotLoadedError(SerializationError):
    """An asyncio deserializer needs the registry's answer. Await ``load()``, then retry."""

    def __init__(self, load: Callable[[], Awaitable[None]]) -> None:
        super().__init__("the schema is not loaded yet")
        self.load = load


@dataclass(eq=False, slots=True)
class Plan:
    """The registry's answers that one record needs. Immutable. Thread: any.

    ``writer`` is the schema that the bytes are written with, and ``reader`` the one that the application gets.
    """

    subject: str | None
    schema_id: SchemaId | None
    writer: Schema | None
    reader: Schema | None
    #: The format's own parsed schemas.
    codec: Any
    migrations: tuple[tuple[RuleMode, Schema, Schema], ...] = ()
    is_writing: bool = False
    #: The schema whose domain rules hold; None: the reader's. Its rules are executed for values in its form.
    ruled: Schema | None = None
    #: Yields the parts of a value that the schema's text has rules for; None if it has none.
    inline: Callable[[Any], Iterator[InlineCheck]] | None = None
    tags_of: Callable[[Schema], Any] = lambda _: None
    has_rules: bool = field(init=False)
    has_encoding_rules: bool = field(init=False)
    #: The tags of fields, in the form of the format; None where there are no rules.
    tags: Any = field(init=False)
    #: True if a value has the writer's form for its rules, and takes the reader's form after them.
    is_ruled_first: bool = field(init=False)

    def __post_init__(self) -> None:
        mode = RuleMode.WRITE if self.is_writing else RuleMode.READ
        self.ruled = self.ruled or self.reader
        self.has_rules = may_have_rules(RulePhase.DOMAIN, mode, self.ruled)
        self.tags = self.tags_of(self.ruled) if self.has_rules and self.ruled is not None else None
        self.has_encoding_rules = may_have_rules(RulePhase.ENCODING, mode, self.writer)
        self.is_ruled_first = self.has_rules and self.ruled is self.writer and self.reader is not self.writer


class BaseSerde:
    """The settings and the plans of a serializer or deserializer. Thread: any."""

    _keys: tuple[ConfigKey, ...] = ()
    #: AVRO, JSON or PROTOBUF.
    schema_type = ""
    #: The format of schemas' texts to ask for.
    _fmt: str | None = None
    _is_writing = False
    #: The form of the indexes of messages.
    _zigzag = True

    def __init__(
        self,
        registry: Registry | None,
        conf: Mapping[str, Any] | None,
        rule_registry: RuleRegistry | None,
        rule_conf: Mapping[str, Any] | None = None,
    ) -> None:
        self._conf = read_settings(self._keys, conf)
        self._client = registry
        self._blocking = registry.blocking if isinstance(registry, AsyncSchemaRegistryClient) else registry
        self._runner = RuleRunner(rule_registry, self._blocking, dict(rule_conf or {}))
        self._strategy = self._chosen_strategy()
        self._passes_client = _takes_client(self._strategy)
        clock = SYSTEM_CLOCK if self._blocking is None else self._blocking.clock
        self._plans: BoundedCache[Plan] = BoundedCache(_MOST_PLANS, clock)
        uses_latest = self._conf["use.latest.version"] or self._conf["use.latest.with.metadata"] is not None
        self._ttl_s = None if self._blocking is None or not uses_latest else self._blocking.latest_ttl_s

    def _chosen_strategy(self) -> Strategy:
        own: Strategy | None = self._conf["subject.name.strategy"]
        if own is not None:
            return own
        name = str(self._conf["subject.name.strategy.type"] or "TOPIC").upper()
        if name == SubjectNameStrategyType.ASSOCIATED:
            return AssociatedNameStrategy()
        if name not in _STRATEGIES:
            known = ", ".join((*_STRATEGIES, "ASSOCIATED"))
            raise ConfigError(
                f"subject.name.strategy.type = {name!r}: it must be one of {known}", key="subject.name.strategy.type"
            )
        return _STRATEGIES[name]

    def _subject(self, ctx: SerializationContext | None, record_name: str | None) -> str | None:
        if self._passes_client:
            return self._strategy(ctx, record_name, self._blocking, self._conf["subject.name.strategy.conf"])
        return self._strategy(ctx, record_name)

    def _registry_needed(self) -> SchemaRegistryClient:
        if self._blocking is None:
            raise SerializationError(f"this {type(self).__name__} has no schema registry's client")
        return self._blocking

    def _resolve(self, subject: str, version: int) -> Schema:
        """Return the schema of a reference."""
        return self._registry_needed().get_version(subject, version, True, self._fmt).schema

    def _latest(self, subject: str | None) -> RegisteredSchema | None:
        """Return the version to use instead of the given schema, if the settings name one."""
        if subject is None:
            return None
        metadata = self._conf["use.latest.with.metadata"]
        if metadata is not None:
            return self._registry_needed().get_latest_with_metadata(subject, metadata, True, self._fmt)
        if self._conf["use.latest.version"]:
            return self._registry_needed().get_latest_version(subject, self._fmt)
        return None

    def _keep(self, key: Hashable, plan: Plan) -> Plan:
        self._plans.put(key, plan, self._ttl_s)
        return plan

    def _where(self, ctx: SerializationContext | None, plan: Plan | None) -> str:
        """Return the record's place for messages."""
        parts = [] if ctx is None else [f"the {ctx.field} of a record of topic {ctx.topic!r}"]
        if plan is not None and plan.schema_id is not None:
            parts.append(f"schema {plan.schema_id}")
        if plan is not None and plan.subject is not None:
            parts.append(f"subject {plan.subject!r}")
        return ", ".join(parts) or "the data"

    def _tags(self, schema: Schema) -> Any:
        """Return the tags of fields in a schema's text, if they are not looked up by the walk. May ask the registry."""
        return None

    def _mismatch(self, plan: Plan, value: Any) -> str | None:
        """Return which part of a value or of data does not fit, and both types; None if unknown."""
        return None

    def _unfit(self, plan: Plan, value: Any, ctx: SerializationContext | None, error: Exception) -> Exception:
        """Return the error for a value, or for data, of the wrong form. It does not show the value."""
        text = self._mismatch(plan, value)
        if text is None:
            text = str(error) if isinstance(error, SerializationError) else f"it is not valid ({type(error).__name__})"
        return caused_by(SerializationError(f"{self._where(ctx, plan)}: {text}"), error)

    def _walk(self, plan: Plan) -> FieldWalk | None:
        """Return what walks the fields of a value for rules; None if the format has none."""
        return None

    def _ruled(self, phase: RulePhase, plan: Plan, value: Any, ctx: SerializationContext | None, may_wait: bool) -> Any:
        """Return a value after the domain rules of its plan, or bytes after the encoding rules."""
        mode = RuleMode.WRITE if self._is_writing else RuleMode.READ
        schema, walk = (plan.ruled, self._walk(plan)) if phase == RulePhase.DOMAIN else (plan.writer, None)
        return self._runner.run(phase, mode, plan.subject or "", ctx, None, schema, value, walk, may_wait)

    def close(self) -> None:
        """Do nothing: the registry's client is the application's to close."""


def _takes_client(strategy: Strategy) -> bool:
    """Return whether a strategy also takes the registry's client and its configuration, as confluent-kafka's may."""
    try:
        parameters = inspect.signature(strategy).parameters.values()
    except (TypeError, ValueError):
        return False
    return len([one for one in parameters if one.kind in (one.POSITIONAL_ONLY, one.POSITIONAL_OR_KEYWORD)]) >= 4


class BaseSerializer(BaseSerde):
    """A serializer's choice of a schema, and the steps of writing a record. Thread: any."""

    _keys: tuple[ConfigKey, ...] = WRITING
    _is_writing = True

    def __init__(self, registry: Registry | None, conf: Mapping[str, Any] | None, *rest: Any) -> None:
        super().__init__(registry, conf, *rest)
        self._write_id = self._conf["schema.id.serializer"] or prefix_schema_id_serializer
        self._inline_execution: str = self._conf["validation.rules.execution"]
        self._to_dict: ToDict | None = None
        #: Makes values of the application's model, if there is one.
        self._of_model: Callable[[Any], Any] | None = None
        #: The schema that the application has given, and the name of its type.
        self._schema: Schema | None = None
        self._name: str | None = None

    # Hooks for each format.

    def _own_schema(self, ctx: SerializationContext | None) -> Schema | None:
        """Return the schema to write by, unless settings name another one."""
        return self._schema

    def _codec(self, schema: Schema) -> Any:
        """Return what the format needs to write by a schema. May ask the registry for references."""
        raise NotImplementedError

    def _dumped(self, plan: Plan, value: Any) -> bytes:
        """Return the bytes of a value."""
        raise NotImplementedError

    def _converted(self, obj: Any, ctx: SerializationContext | None) -> Any:
        """Return the value of an application's object."""
        if self._to_dict is not None:
            return self._to_dict(obj, _ctx_for(ctx))
        return obj if self._of_model is None else self._of_model(obj)

    def _inline(self, codec: Any) -> Callable[[Any], Iterator[InlineCheck]] | None:
        """Return what yields the parts of a value that the schema's text has rules for; None if it has none."""
        return None

    def _check_object(self, obj: Any) -> None:
        """Raise if the object is of a wrong type, before anything is asked of the registry."""

    def _indexes(self) -> list[int] | None:
        return None

    # The steps.

    def _known_plan(self, ctx: SerializationContext | None) -> Plan | None:
        return self._plans.get(self._plan_key(ctx))

    def _plan_key(self, ctx: SerializationContext | None) -> Hashable:
        if self._conf["subject.name.strategy"] is not None:  # which may look at anything
            return self._subject(ctx, self._name)
        return None if ctx is None else (ctx.topic, ctx.field)

    def _make_plan(self, ctx: SerializationContext | None) -> Plan:
        """Ask the registry for what the records of this topic and field need.

        Raises:
            SchemaRegistryError: the schema is not registered, or not compatible.
        """
        registry = self._registry_needed()
        subject = self._subject(ctx, self._name)
        fixed: int | None = self._conf["use.schema.id"]
        if fixed is not None:
            schema = registry.get_schema(fixed, None, self._fmt)
            return self._keep(self._plan_key(ctx), self._plan_for(subject, fixed, None, schema))
        latest = self._latest(subject)
        if latest is not None:
            plan = self._plan_for(subject, latest.schema_id, latest.guid, latest.schema)
            return self._keep(self._plan_key(ctx), plan)
        schema_given = self._own_schema(ctx)
        if schema_given is None:
            raise SerializationError("set use.latest.version or use.schema.id, or give the serializer a schema")
        if subject is None:
            raise SerializationError(f"the subject name strategy has no subject for {self._where(ctx, None)}")
        normalize = self._conf["normalize.schemas"]
        if self._conf["auto.register.schemas"]:
            found = registry.register_schema_full_response(subject, schema_given, normalize)
        else:
            try:
                found = registry.lookup_schema(subject, schema_given, normalize)
            except SchemaRegistryError as error:
                if error.is_unknown:
                    error.error_message += (
                        "; this serializer does not register schemas: set auto.register.schemas, or register it with "
                        f"'pykclient schemas register {subject}'"
                    )
                raise
        registered = found.schema
        if found.version is None and found.schema_id is not None:
            # The answer has only the id, and the registry may have taken rules over from the version before.
            registered = registry.get_schema(found.schema_id, None, self._fmt)
        # The registry may also have merged the given rules with its own.
        rules = registered.rule_set or schema_given.rule_set
        metadata = registered.metadata or schema_given.metadata
        own = Schema(schema_given.schema_str, schema_given.schema_type, schema_given.references, metadata, rules)
        return self._keep(self._plan_key(ctx), self._plan_for(subject, found.schema_id, found.guid, own))

    def _plan_for(self, subject: str | None, number: int | None, guid: str | None, schema: Schema) -> Plan:
        schema_id = SchemaId(self.schema_type, number, guid, self._indexes())
        schema_id.zigzag = self._zigzag
        codec = self._codec(schema)
        inline = None if self._inline_execution == "DISABLED" else self._inline(codec)
        return Plan(subject, schema_id, schema, schema, codec, is_writing=True, inline=inline, tags_of=self._tags)

    def _write(self, plan: Plan, obj: Any, ctx: SerializationContext | None, may_wait: bool = True) -> bytes:
        value = self._converted(obj, ctx)
        if plan.inline is not None and self._inline_execution == "BEFORE_DOMAIN_RULES":
            self._ensure_inline_rules_hold(plan, value, ctx)
        if plan.has_rules:
            value = self._ruled(RulePhase.DOMAIN, plan, value, ctx, may_wait)
        if plan.inline is not None and self._inline_execution == "AFTER_DOMAIN_RULES":
            self._ensure_inline_rules_hold(plan, value, ctx)
        try:
            data = self._dumped(plan, value)
        except Exception as error:
            raise self._unfit(plan, value, ctx, error) from error
        if plan.has_encoding_rules:
            data = self._ruled(RulePhase.ENCODING, plan, data, ctx, may_wait)
        return self.framed(plan, data, ctx)

    def _ensure_inline_rules_hold(self, plan: Plan, value: Any, ctx: SerializationContext | None) -> None:
        assert plan.inline is not None
        try:
            checks = list(plan.inline(value))
        except Exception as error:
            raise self._unfit(plan, value, ctx, error) from error
        ensure_inline_rules_hold(checks, plan.subject, self._conf["validation.rules.fail.fast"])

    def _call(self, obj: Any, ctx: SerializationContext | None) -> bytes | None:
        if obj is None:
            return None
        self._check_object(obj)
        return self._write(self.plan(ctx), obj, ctx)

    async def _call_async(self, obj: Any, ctx: SerializationContext | None) -> bytes | None:
        if obj is None:
            return None
        self._check_object(obj)
        plan = self._known_plan(ctx)
        if plan is None:
            plan = await _async_client(self._client).run(lambda: self._make_plan(ctx))
        try:
            return self._write(plan, obj, ctx, False)
        except MustWaitError:
            return await _async_client(self._client).run(lambda: self._write(plan, obj, ctx))

    def plan(self, ctx: SerializationContext | None) -> Plan:
        """Return the plan for records of a topic and field, which is made once.

        Raises:
            SchemaRegistryError: the schema is not registered, or not compatible, or the registry does not answer.
        """
        return self._known_plan(ctx) or self._make_plan(ctx)

    def framed(self, plan: Plan, data: bytes, ctx: SerializationContext | None) -> bytes:
        """Return the bytes of a value with the schema's id before them, unless that goes into a header."""
        assert plan.schema_id is not None
        written: bytes = self._write_id(data, ctx, plan.schema_id)
        return written

    def for_field(self, field: MessageField) -> BoundSerializer:
        """Return the serializer of a client's keys or values."""
        return BoundSerializer(self, field)


class BaseDeserializer(BaseSerde, Generic[T]):
    """A deserializer's choice of schemas, and the steps of reading a record. Thread: any."""

    _keys: tuple[ConfigKey, ...] = READING

    def __init__(self, registry: Registry | None, conf: Mapping[str, Any] | None, *rest: Any) -> None:
        super().__init__(registry, conf, *rest)
        self._read_id = self._conf["schema.id.deserializer"] or dual_schema_id_deserializer
        #: Makes instances of the application's model, if there is one.
        self._make: Callable[[Any], Any] | None = None
        self._from_dict: ToDict | None = None
        #: The schema that the application wants to read by.
        self._schema: Schema | None = None

    # Hooks for each format.

    def _codec(self, writer: Schema | None, reader: Schema | None, schema_id: SchemaId) -> Any:
        """Return what the format needs to read. May ask the registry for references."""
        raise NotImplementedError

    def _writer_name(self, codec: Any) -> str | None:
        """Return the name of the writer's type."""
        return None

    def _loaded(self, plan: Plan, data: bytes) -> Any:
        """Return the value in the data."""
        raise NotImplementedError

    def _after_migrations(self, plan: Plan, value: Any) -> Any:
        return value

    def _after_rules(self, plan: Plan, value: Any) -> Any:
        """Return a value in the reader's form, after the rules of the plan."""
        return value

    def _made(self, value: Any, ctx: SerializationContext | None) -> Any:
        """Return the application's object for a value."""
        return value if self._from_dict is None else self._from_dict(value, _ctx_for(ctx))

    def _problem(self, plan: Plan, value: Any) -> str | None:
        """Return which part of a value is not valid, and why; None if it is."""
        return None

    # The steps.

    def _plan_key(self, schema_id: SchemaId, ctx: SerializationContext | None) -> Hashable:
        number: Hashable = schema_id.id if schema_id.id is not None else schema_id.guid
        if schema_id.is_global:
            number = (number, "global")
        if schema_id.message_indexes is not None:
            number = (number, *schema_id.message_indexes)
        return (number, schema_id.is_glue) if ctx is None else (number, schema_id.is_glue, ctx.topic, ctx.field)

    def _writer_schema(self, schema_id: SchemaId, subject: str | None) -> Schema | None:
        if schema_id.is_glue:
            return self._glue_schema(schema_id)
        if self._blocking is None:
            return None
        if schema_id.id is None:
            return self._blocking.get_schema_by_guid(str(schema_id.guid), self._fmt)
        if schema_id.is_global:
            return self._blocking.get_schema_by_global_id(schema_id.id, self._fmt)
        # Ids of a context are those of its subjects (":.context:subject").
        within = subject if subject is not None and subject.startswith(":.") else None
        return self._blocking.get_schema(schema_id.id, within, self._fmt)

    def _glue_schema(self, schema_id: SchemaId) -> Schema:
        client = self._conf["glue.client"]
        if client is None:
            raise SerializationError(
                f"the record was written with AWS Glue (version {schema_id.guid}): set glue.client, for instance to "
                "boto3.client('glue')"
            )
        try:
            found = client.get_schema_version(SchemaVersionId=str(schema_id.guid))
        except Exception as error:
            raise SerializationError(f"AWS Glue does not return version {schema_id.guid}: {error}") from error
        return Schema(found["SchemaDefinition"], found.get("DataFormat", self.schema_type))

    def _make_plan(self, schema_id: SchemaId, ctx: SerializationContext | None) -> Plan:
        """Ask the registry for what the records with this id need.

        Raises:
            SchemaRegistryError: the id is unknown, or the registry does not answer.
            SerializationError: the schema is of another type.
        """
        subject = None if ctx is None else self._subject(ctx, None)
        writer = self._writer_schema(schema_id, subject)
        if writer is not None and (writer.schema_type or "AVRO") != self.schema_type:
            raise SerializationError(
                f"schema {schema_id} is of type {writer.schema_type}, and this deserializer reads {self.schema_type}"
            )
        if subject is None and ctx is not None and writer is not None:
            subject = self._subject(ctx, self._writer_name(self._codec(writer, None, schema_id)))
        latest = self._latest(subject) if writer is not None else None
        migrations: tuple[tuple[RuleMode, Schema, Schema], ...] = ()
        ruled: Schema | None
        if latest is not None and subject is not None and writer is not None:
            reader: Schema | None = latest.schema
            ruled = reader
            migrations = self._migrations(subject, writer, latest)
        else:
            own = self._schema
            reader = own or writer
            ruled = own if own is not None and own.rule_set is not None else writer or own
        decoded = writer if migrations else reader
        codec = self._codec(writer, decoded, schema_id)
        plan = Plan(subject, schema_id, writer, reader, codec, migrations, ruled=ruled, tags_of=self._tags)
        return self._keep(self._plan_key(schema_id, ctx), plan)

    def _migrations(
        self, subject: str, writer: Schema, target: RegisteredSchema
    ) -> tuple[tuple[RuleMode, Schema, Schema], ...]:
        registry = self._registry_needed()
        source = registry.lookup_schema(subject, writer, False, None, True)
        if source.version is None or target.version is None or source.version == target.version:
            return ()
        is_up = source.version < target.version
        mode = RuleMode.UPGRADE if is_up else RuleMode.DOWNGRADE
        first, last = sorted((source.version, target.version))
        versions = [registry.get_version(subject, number, True, self._fmt).schema for number in range(first, last + 1)]
        steps = [
            (mode, before, after) if is_up else (mode, after, before)
            for before, after in pairwise(versions)
            if self._runner.rules_for(RulePhase.MIGRATION, mode, subject, after, after)
        ]
        return tuple(steps if is_up else reversed(steps))

    def _begin(self, data: bytes, ctx: SerializationContext | None) -> tuple[SchemaId, bytes, Plan | None]:
        """Return the schema's id, the data, and the plan for both if it is known."""
        schema_id = SchemaId(self.schema_type)
        schema_id.zigzag = self._zigzag
        try:
            payload = decoded_by(self._read_id, data, ctx, schema_id)
        except SerializationError as error:
            raise type(error)(f"{self._where(ctx, None)}: {error}") from error
        return schema_id, payload, self._plans.get(self._plan_key(schema_id, ctx))

    def _read(self, plan: Plan, data: bytes, ctx: SerializationContext | None, may_wait: bool = True) -> Any:
        if plan.has_encoding_rules:
            data = self._ruled(RulePhase.ENCODING, plan, data, ctx, may_wait)
        try:
            value = self._loaded(plan, data)
        except Exception as error:
            raise self._unfit(plan, data, ctx, error) from error
        if plan.migrations:
            for mode, source, target in plan.migrations:
                value = self._runner.run(RulePhase.MIGRATION, mode, plan.subject or "", ctx, source, target, value)
            value = self._after_migrations(plan, value)
        if plan.has_rules:
            value = self._ruled(RulePhase.DOMAIN, plan, value, ctx, may_wait)
            try:
                value = self._after_rules(plan, value)
            except Exception as error:
                raise self._unfit(plan, data, ctx, error) from error
        text = self._problem(plan, value)
        if text is not None:
            raise SerializationError(f"{self._where(ctx, plan)}: {text}")
        if self._make is None:
            return self._made(value, ctx)
        try:
            return self._make(value)
        except Exception as error:
            text = model_problem(error)
            raise caused_by(SerializationError(f"{self._where(ctx, plan)}: {text}"), error) from error

    def _new_plan(self, schema_id: SchemaId, ctx: SerializationContext | None) -> Plan:
        """Return ``_make_plan``'s result. Its errors get a note with the record's place."""
        try:
            return self._make_plan(schema_id, ctx)
        except KafkaError as error:
            error.add_note(f"for {self._where(ctx, None)}, schema {schema_id}")
            raise

    def _call(self, data: bytes | None, ctx: SerializationContext | None) -> Any:
        if data is None:
            return None
        schema_id, payload, plan = self._begin(data, ctx)
        return self._read(plan or self._new_plan(schema_id, ctx), payload, ctx)

    async def _call_async(self, data: bytes | None, ctx: SerializationContext | None) -> Any:
        if data is None:
            return None
        schema_id, payload, plan = self._begin(data, ctx)
        if plan is None and self._client is None:  # then nothing is asked
            plan = self._new_plan(schema_id, ctx)
        if plan is None:
            plan = await _async_client(self._client).run(lambda: self._new_plan(schema_id, ctx))
        try:
            return self._read(plan, payload, ctx, False)
        except MustWaitError:
            return await _async_client(self._client).run(lambda: self._read(plan, payload, ctx))

    def for_field(self, field: MessageField) -> BoundDeserializer[T]:
        """Return the deserializer of a client's keys or values."""
        return BoundDeserializer(self, field)


def _async_client(client: Registry | None) -> AsyncSchemaRegistryClient:
    if not isinstance(client, AsyncSchemaRegistryClient):
        raise ConfigError("serializers for asyncio need an AsyncSchemaRegistryClient")
    return client


class _Bound(Generic[S]):
    """A serializer or deserializer for the keys or the values of a client. Thread: any."""

    def __init__(self, serde: S, field: MessageField) -> None:
        self._serde = serde
        self._field = field
        self._waits = not isinstance(serde._client, AsyncSchemaRegistryClient)
        #: The name for messages.
        self.definition = type(serde).__qualname__

    def close(self) -> None:
        """Do nothing: the registry's client is the application's to close."""


class BoundSerializer(_Bound[BaseSerializer]):
    """A serializer for the keys or the values of a client. Thread: any."""

    def serialize(self, topic: str, headers: Headers, data: Any) -> Any:
        """Return the bytes of ``data``; an asynchronous serializer returns an awaitable if it must ask the registry.

        Raises:
            SerializationError, SchemaRegistryError: the value does not fit, or there is no schema for it.
        """
        ctx = SerializationContext(topic, self._field, headers)
        if self._waits or data is None:
            return self._serde._call(data, ctx)
        serde = self._serde
        serde._check_object(data)
        plan = serde._known_plan(ctx)
        if plan is None:
            return serde._call_async(data, ctx)
        try:
            return serde._write(plan, data, ctx, False)
        except MustWaitError:
            return serde._call_async(data, ctx)


class BoundDeserializer(_Bound[BaseDeserializer[Any]], Generic[T]):
    """A deserializer for the keys or the values of a client. Thread: any."""

    def deserialize(self, topic: str, headers: Headers, data: bytes) -> T | None:
        """Return the object encoded in ``data``.

        Raises:
            SerializationError, SchemaRegistryError: the bytes are damaged, or their schema is unknown.
            NotLoadedError: the registry must be asked first, and this deserializer is one for asyncio.
        """
        ctx = SerializationContext(topic, self._field, headers)
        serde = self._serde
        found: T | None
        if self._waits or data is None:
            found = serde._call(data, ctx)
            return found
        schema_id, payload, plan = serde._begin(data, ctx)
        if plan is None:
            raise NotLoadedError(lambda: _loading(serde._client, lambda: serde._new_plan(schema_id, ctx)))
        try:
            found = serde._read(plan, payload, ctx, False)
        except MustWaitError as error:
            fetch = error.fetch
            raise NotLoadedError(lambda: _loading(serde._client, fetch)) from None
        return found


async def _loading(client: Registry | None, make: Callable[[], object]) -> None:
    await _async_client(client).run(make)


class Blocking(Generic[T]):
    """A serializer or deserializer that is called with a context: ``serializer(value, ctx)``."""

    def __call__(self, obj: Any, ctx: SerializationContext | None = None) -> T:
        """Return the bytes of an object, or the object of bytes."""
        return self._call(obj, ctx)  # type: ignore[attr-defined,no-any-return]


class Asynchronous(Generic[T]):
    """A serializer or deserializer for asyncio: ``await serializer(value, ctx)``."""

    async def __call__(self, obj: Any, ctx: SerializationContext | None = None) -> T:
        """Return the bytes of an object, or the object of bytes. Does not block the event loop."""
        return await self._call_async(obj, ctx)  # type: ignore[attr-defined,no-any-return]

    def __await__(self) -> Any:
        """Return the object itself: confluent-kafka's are awaited after their creation."""
        return self
        yield
