"""Java's sasl.jaas.config: what is read from it, and what is refused without showing secrets."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given, strategies as st

from pykclient.config.config_def import Password
from pykclient.config.jaas_config import parse_jaas_config
from pykclient.errors import ConfigError

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"


def options(text: str) -> dict[str, str]:
    return parse_jaas_config(Password(text)).options


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (f'{PLAIN} required username="u" password="p";', {"username": "u", "password": "p"}),
        (f"{PLAIN} required username='u' password=p ;", {"username": "u", "password": "p"}),
        (f"{PLAIN} REQUIRED\n  username = u\n  password = 1=2;", None),
        (f'{PLAIN} required password="a;b=c \\"d\\\\";', {"password": 'a;b=c "d\\'}),
        (f'{PLAIN} required password="\\t\\101\\x";', {"password": "\tAx"}),
        (f'/* one */ {PLAIN} required // two\n password="//no";', {"password": "//no"}),
        (f"{PLAIN} required password=pä$-_9;", {"password": "pä$-_9"}),
        (f"{PLAIN} required;", {}),
        (f'kafkashaded.{PLAIN} required username="u";', {"username": "u"}),
    ],
)
def test_jaas_options_are_parsed(text: str, expected: dict[str, str] | None) -> None:
    if expected is None:
        with pytest.raises(ConfigError, match=r"after password="):
            options(text)
    else:
        assert options(text) == expected


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "it is empty"),
        ("com.example.Login required;", "the login module com.example.Login is unknown"),
        (f'"{PLAIN}" required;', "must begin with the name of a login module"),
        (f"{PLAIN} username=hush;", "followed by 'required'"),
        (f'{PLAIN} required password="hush"', "a semicolon is missing"),
        (f'{PLAIN} required password="hush;', "a quote is not closed"),
        (f"{PLAIN} required password=very hush;", "after password="),
        (f"{PLAIN} required password=;", "after 'required'"),
        (f"{PLAIN} required hush;", "after 'required'"),
        ("hush", "it names no login module"),
        ("hush required;", "it names no login module"),
        (f"KafkaClient {{ {PLAIN} required password=hush; }};", "leave out KafkaClient {"),
        ("com.bank.OwnLoginModule required;", "the login module com.bank.OwnLoginModule is unknown"),
        (f"{PLAIN} required =hush;", "after 'required'"),
        (f"{PLAIN} required password=hush password=hush;", "given twice"),
        (f"{PLAIN} required password=hush; {PLAIN} required;", "only one login module"),
    ],
)
def test_errors_name_the_problem_and_no_secret(text: str, problem: str) -> None:
    with pytest.raises(ConfigError) as caught:
        options(text)
    assert str(caught.value).startswith("sasl.jaas.config = [hidden]: ")
    assert problem in str(caught.value)
    assert "hush" not in str(caught.value)


def quoted(value: str) -> str:
    return '"' + value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'


@given(st.dictionaries(st.from_regex(r"[a-zA-Z]\w{0,9}", fullmatch=True), st.text(max_size=20), max_size=5))
def test_quoted_values_round_trip(values: dict[str, str]) -> None:
    text = " ".join(f"{name}={quoted(value)}" for name, value in values.items())
    assert options(f"{PLAIN} required {text};") == values


@given(st.text(alphabet=st.sampled_from("a=;\"' /*\\\n-1"), max_size=30))
def test_any_text_is_read_or_refused(text: str) -> None:
    with contextlib.suppress(ConfigError):
        options(f"{PLAIN} required {text}")


def test_repr_shows_no_values() -> None:
    assert "hush" not in repr(parse_jaas_config(Password(f"{PLAIN} required password=hush;")))
