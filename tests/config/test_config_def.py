from __future__ import annotations

import collections
import contextlib
import os
import pickle
from typing import Any

import pytest
from hypothesis import given, strategies as st

from pykclient.config.abstract_config import AbstractConfig
from pykclient.config.config_def import (
    REQUIRED,
    ConfigDef,
    ConfigKey,
    ForeignKey,
    Importance,
    Password,
    Type,
    load,
    parse_type,
)
from pykclient.config.validators import (
    CaseInsensitiveValidString,
    NonEmptyString,
    Range,
    Validator,
    ValidList,
    ValidString,
    at_least,
    between,
    parse_iso_duration_ms,
)
from pykclient.errors import ConfigError


def key(name: str, type: str, default: Any = None, validator: Validator | None = None, **more: Any) -> ConfigKey:
    return ConfigKey(name, type, default, Importance.LOW, "what it is for", validator, **more)


class Closing:
    closed = 0

    def close(self) -> None:
        Closing.closed += 1


class Configured:
    def configure(self, config: dict[str, Any]) -> None:
        self.seen = config


class Failing:
    def __init__(self) -> None:
        raise RuntimeError("no")


class Sample(AbstractConfig):
    DEFINITION = ConfigDef(
        (
            key("must.be", Type.STRING, REQUIRED),
            key("a.number", Type.INT, 5, between(0, 10)),
            key("a.float", Type.DOUBLE, 0.5),
            key("a.list", Type.LIST, ("x",), ValidList()),
            key("a.flag", Type.BOOLEAN, True),
            key("a.secret", Type.PASSWORD),
            key("a.word", Type.STRING, "red", ValidString("red", "green"), aliases=("a.colour",)),
            key("a.plugin", Type.CLASS),
            key("not.yet", Type.STRING, "off", unsupported="it takes time"),
        ),
        (
            ForeignKey("foreign.one", "that is how it is", harmless=(None, 1)),
            ForeignKey("foreign.two", "it does nothing", ignored=True),
        ),
    )


def sample(**more: Any) -> Sample:
    return Sample(must_be="there", **more)


# --- parsing of values ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("type", "given", "expected"),
    [
        (Type.BOOLEAN, " TRUE ", True),
        (Type.BOOLEAN, False, False),
        (Type.INT, " 42 ", 42),
        (Type.INT, "-7", -7),
        (Type.INT, 3.0, 3),
        (Type.INT, float("inf"), 2**31 - 1),
        (Type.LONG, float("inf"), 2**63 - 1),
        (Type.LONG, 2**40, 2**40),
        (Type.SHORT, "32767", 32767),
        (Type.DOUBLE, "0.25", 0.25),
        (Type.DOUBLE, 1, 1.0),
        (Type.STRING, "  trimmed ", "trimmed"),
        (Type.LIST, "a , b,c", ["a", "b", "c"]),
        (Type.LIST, "", []),
        (Type.LIST, ("a",), ["a"]),
        (Type.CLASS, "collections.OrderedDict", collections.OrderedDict),
        (Type.CLASS, "collections:OrderedDict.fromkeys", collections.OrderedDict.fromkeys),
        (Type.CLASS, len, len),
        (Type.PASSWORD, " s3cret\n", Password(" s3cret\n")),
        (Type.PASSWORD, Password("x"), Password("x")),
    ],
)
def test_values_are_parsed(type: str, given: Any, expected: Any) -> None:
    assert parse_type(given, type) == expected


@pytest.mark.parametrize("type", [getattr(Type, name) for name in dir(Type) if name.isupper()])
def test_none_stays_none(type: str) -> None:
    assert parse_type(None, type) is None


@pytest.mark.parametrize(
    ("type", "given"),
    [
        (Type.BOOLEAN, "yes"),
        (Type.BOOLEAN, 1),
        (Type.INT, 2**31),
        (Type.INT, "2147483648"),
        (Type.INT, 1.5),
        (Type.INT, float("nan")),
        (Type.INT, float("-inf")),
        (Type.INT, True),
        (Type.INT, "five"),
        (Type.SHORT, 32768),
        (Type.LONG, 2**63),
        (Type.DOUBLE, "x"),
        (Type.DOUBLE, True),
        (Type.DOUBLE, float("nan")),
        (Type.DOUBLE, "nan"),
        (Type.STRING, "\ud800"),
        (Type.LIST, ["a", "\ud800"]),
        (Type.PASSWORD, "\ud800"),
        (Type.STRING, 5),
        (Type.LIST, 5),
        (Type.PASSWORD, 5),
        (Type.CLASS, 5),
        (Type.CLASS, "nodots"),
        (Type.CLASS, "no.such.module.Class"),
        (Type.CLASS, "collections.NoSuchClass"),
    ],
)
def test_wrong_types_are_refused_with_key_and_value(type: str, given: Any) -> None:
    with pytest.raises(ConfigError) as caught:
        key("some.key", type).parse(given)
    assert str(caught.value).startswith("some.key = ")
    assert caught.value.key == "some.key"


def test_names_of_files_may_be_any_bytes() -> None:
    name = os.fsdecode(b"/etc/caf\xe9.pem")
    assert key("ssl.cafile", Type.STRING).parse(name) == name
    with pytest.raises(ConfigError, match="UTF-8"):
        key("client.id", Type.STRING).parse(name)


@given(st.integers())
def test_integers_outside_64_bits_are_refused(number: int) -> None:
    row = key("n", Type.LONG)
    if -(2**63) <= number < 2**63:
        assert row.parse(number) == row.parse(str(number)) == number
    else:
        with pytest.raises(ConfigError):
            row.parse(number)


@given(st.one_of(st.none(), st.booleans(), st.text(), st.binary(), st.floats(), st.lists(st.text())))
def test_any_value_parses_or_raises_config_error(given_value: Any) -> None:
    for type in (Type.BOOLEAN, Type.STRING, Type.INT, Type.LONG, Type.DOUBLE, Type.LIST, Type.PASSWORD):
        with contextlib.suppress(ConfigError):
            key("k", type).parse(given_value)


def test_loading_missing_class_raises_import_error() -> None:
    assert load("os.path.join") is not None
    with pytest.raises(ImportError):
        load("plain")


# --- validators -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("validator", "text", "right", "wrong"),
    [
        (at_least(1), "[1,...]", [1, 100], [0, None]),
        (between(1, 9), "[1,...,9]", [1, 9], [0, 10, None]),
        (between(0.0, 0.25), "[0.0,...,0.25]", [0.1], [0.3]),
        (Range(None, 4), "[...,4]", [-5], [5]),
        (Range(None, None), "[...]", [5], [None]),
        (ValidString("a", "b"), "[a, b]", ["a"], ["A", "c", None]),
        (CaseInsensitiveValidString("A", "B"), "(case insensitive) [A, B]", ["a", "B"], ["c", None]),
        (NonEmptyString(), "non-empty string", ["x", None], [""]),
        (ValidList(), "", [[], ["a"], [object()]], [["a", ""], None]),
        (ValidList(empty_allowed=False), "", [["a"]], [[], None]),
        (Validator(lambda value: None if value else "must be true", "anything true"), "anything true", [1], [0]),
    ],
)
def test_validators_refuse_wrong_values(validator: Validator, text: str, right: list[Any], wrong: list[Any]) -> None:
    assert str(validator) == text
    for value in right:
        assert validator.problem(value) is None
    for value in wrong:
        assert (validator.problem(value) or "").startswith("must ")


def test_range_errors_name_key_value_and_range() -> None:
    with pytest.raises(ConfigError, match=r"a\.number = 11: it must be at most 10 \(valid values: \[0,\.\.\.,10\]\)"):
        sample(a_number=11)


# --- names ------------------------------------------------------------------------------------------------------------


def test_keys_may_be_dotted_or_snake_case() -> None:
    assert Sample({"must.be": "a", "a_number": 1}, **{"a.flag": False})["a.number"] == 1
    config = Sample({"must_be": "a", "a.number": 1}, a_number=2)
    assert config["a.number"] == config["a_number"] == 2, "keyword arguments win"
    assert config.originals == {"must.be": "a", "a.number": 2}


def test_alias_sets_key() -> None:
    assert sample(a_colour="green")["a.word"] == "green"


def test_one_key_in_two_spellings_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"given twice, as 'a\.number' and as 'a_number'"):
        Sample({"must.be": "a", "a.number": 1, "a_number": 1})


@pytest.mark.parametrize(
    ("name", "told"), [("a.numbr", "'a.number'"), ("a_numbr", "'a_number'"), ("A_NUMBER_", "'a_number'")]
)
def test_unknown_key_error_suggests_nearest_key(name: str, told: str) -> None:
    with pytest.raises(ConfigError, match=rf"unknown configuration key '{name}'; did you mean {told}\?"):
        sample(**{name: 1})


def test_unknown_key_without_similar_key_names_documentation() -> None:
    with pytest.raises(ConfigError, match=r"unknown configuration key 'zzz'; docs"):
        sample(zzz=1)


def test_keys_must_be_strings() -> None:
    with pytest.raises(ConfigError, match="are strings, not 5"):
        Sample({5: 1})  # type: ignore[dict-item]


def test_missing_required_key_is_error() -> None:
    with pytest.raises(ConfigError, match=r"must\.be has no default and must be set"):
        Sample()


def test_unsupported_key_accepts_only_its_default() -> None:
    assert sample(not_yet="off")["not.yet"] == "off"
    assert sample(not_yet=None)["not.yet"] == "off"
    with pytest.raises(ConfigError, match=r"not\.yet is not supported yet: it takes time\. .* default, 'off'"):
        sample(not_yet="on")


def test_foreign_keys_are_refused_or_ignored_with_warning(caplog: pytest.LogCaptureFixture) -> None:
    sample(foreign_one=1)
    with pytest.raises(ConfigError, match="foreign_one is not a key of this client: that is how it is"):
        sample(foreign_one=2)
    assert "foreign.two" not in sample(foreign_two=5)
    assert "foreign_two has no effect: it does nothing" in caplog.text


def test_duplicates_in_list_are_removed_with_warning(caplog: pytest.LogCaptureFixture) -> None:
    assert sample(a_list="x,y,x")["a.list"] == ["x", "y"]
    assert "a.list has entries more than once" in caplog.text


# --- the object -------------------------------------------------------------------------------------------------------


def test_typed_getters_return_typed_values() -> None:
    config = sample()
    assert config.get_int("a.number") == 5
    assert config.get_bool("a.flag") is True
    assert config.get_str("must.be") == "there"
    for wrong in (config.get_int, config.get_str):
        with pytest.raises(TypeError, match=r"a\.flag is not a"):
            wrong("a.flag")
    with pytest.raises(TypeError):
        config.get_bool("a.number")
    with pytest.raises(KeyError):
        config["no.such"]


def test_config_is_a_mapping_of_all_keys() -> None:
    config = sample()
    assert set(config) == set(Sample.DEFINITION.keys)
    assert len(config) == len(Sample.DEFINITION.keys)
    assert dict(config)["a.number"] == 5
    assert config.is_set("must.be")
    assert not config.is_set("a.number")


def test_defaults_are_not_shared() -> None:
    sample()["a.list"].append("y")
    assert sample()["a.list"] == ["x"]


def test_unused_lists_keys_never_read() -> None:
    config = sample(a_number=1)
    assert config["a_number"] == 1
    assert config.unused() == {"must.be"}


def test_secrets_are_hidden() -> None:
    config = sample(a_secret="geheim")
    assert "geheim" not in repr(config)
    assert "[hidden]" in repr(config)
    assert "geheim" not in str(Password("geheim"))
    with pytest.raises(ConfigError) as caught:
        key("pass.word", Type.PASSWORD, None, Validator(lambda _: "must be longer", "long")).parse("geheim")
    assert "geheim" not in str(caught.value)


def test_pickling_keeps_given_settings() -> None:
    config = sample(a_number=3, a_secret="s")
    copy = pickle.loads(pickle.dumps(config))
    assert dict(copy) == dict(config)
    assert copy.originals == config.originals


def test_configured_instances_accept_objects_classes_and_names() -> None:
    instance = Closing()
    config = sample(a_list=[instance, Configured, f"{__name__}.Closing"], a_plugin=Configured)
    made = config.configured_instances("a.list")
    assert made[0] is instance
    assert made[1].seen["a.number"] == 5, "what is made from a class is told the configuration"
    assert isinstance(made[2], Closing)
    assert isinstance(config.configured_instance("a.plugin", Configured), Configured)
    assert sample().configured_instance("a.plugin") is None
    with pytest.raises(ConfigError, match="is not a Closing"):
        config.configured_instance("a.plugin", Closing)


def test_instances_made_before_a_failure_are_closed() -> None:
    Closing.closed = 0
    with pytest.raises(ConfigError, match="Failing could not be created"):
        sample(a_list=[Closing, Failing]).configured_instances("a.list")
    with pytest.raises(ConfigError, match="cannot be imported"):
        sample(a_list=[Closing, "no.such"]).configured_instances("a.list")
    assert Closing.closed == 2


# --- durations --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [
        ("P7D", 7 * 86_400_000),
        ("PT12H", 12 * 3_600_000),
        ("P1DT2H30M", 95_400_000),
        ("pt0.5s", 500),
        ("PT1.0019S", 1001),
        ("PT-6H+3M", -21_420_000),
        ("-PT6H", -21_600_000),
        ("PT-0.5S", -500),
        ("P0D", 0),
    ],
)
def test_iso_durations_are_parsed(text: str, milliseconds: int) -> None:
    assert parse_iso_duration_ms(text) == milliseconds


@pytest.mark.parametrize("text", ["", "P", "PT", "P1DT", "1D", "P1H", "P1Y", "PT1S1M", "P1.5D", " P1D", "P\u0661D"])
def test_invalid_iso_duration_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not a duration"):
        parse_iso_duration_ms(text)


def test_ignored_foreign_key_can_be_read_if_given() -> None:
    from pykclient.config.producer_config import ProducerConfig

    assert ProducerConfig(bootstrap_servers="a:1", api_version=(2, 5))["api_version"] == (2, 5)
    assert ProducerConfig(bootstrap_servers="a:1")["api_version"] == (4, 3)
