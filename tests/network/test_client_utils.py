"""From configuration to addresses."""

from __future__ import annotations

import logging

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pykclient.errors import ConfigError
from pykclient.network.client_utils import parse_address, parse_addresses, parse_and_validate_addresses
from pykclient.network.exponential_backoff import ExponentialBackoff
from pykclient.network.host_resolver import DefaultHostResolver, is_numeric


class Resolver:
    def resolve(self, host: str) -> list[str]:
        if host == "bad":
            raise OSError(-2, "Name or service not known")
        return ["127.0.0.1"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("kafka:9093", ("kafka", 9093)),
        (" kafka ", ("kafka", 9092)),
        ("10.0.0.1:1", ("10.0.0.1", 1)),
        ("[::1]:9093", ("::1", 9093)),
        ("[fe80::1%eth0]", ("fe80::1%eth0", 9092)),
        ("PLAINTEXT://a.b-c.example:9094", ("a.b-c.example", 9094)),
        ("SASL_SSL://kafka:9094", ("kafka", 9094)),
        ("under_score:9092", ("under_score", 9092)),
    ],
)
def test_addresses(text: str, expected: tuple[str, int]) -> None:
    assert parse_address(text) == expected


@pytest.mark.parametrize("text", ["", ":9092", "a:b", "a:0", "a:65536", "::1", "a b:1", "[::1", "http://", "a:1:2"])
def test_texts_that_are_no_address(text: str) -> None:
    with pytest.raises(ConfigError, match=r"bootstrap\.servers"):
        parse_address(text)


def test_ipv6_without_brackets_gets_a_hint() -> None:
    with pytest.raises(ConfigError, match="brackets"):
        parse_address("::1:9092")


@pytest.mark.parametrize("text", ["me:hush@kafka:9092", "SASL_SSL://me:hush@kafka", "me:hu@sh@kafka:9092"])
def test_a_password_in_an_address_is_not_shown(text: str) -> None:
    with pytest.raises(ConfigError, match=r"'\.\.\.@kafka\S*' is not an address .*no part of it") as caught:
        parse_address(text)
    assert "hu" not in str(caught.value)


@given(st.text(max_size=30))
def test_any_text_is_an_address_or_a_config_error(text: str) -> None:
    try:
        host, port = parse_address(text)
    except ConfigError:
        return
    assert host
    assert 0 < port < 65536


def test_lists() -> None:
    assert parse_addresses("a:1, b:2,,a:1") == [("a", 1), ("b", 2)]
    assert parse_addresses(["a:1", "b"]) == [("a", 1), ("b", 9092)]


def test_names_that_cannot_be_resolved_are_told_and_kept(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        assert parse_and_validate_addresses("bad:1,good:2", host_resolver=Resolver()) == [("bad", 1), ("good", 2)]
    assert "bad:1: Name or service not known" in caplog.text


@pytest.mark.parametrize(
    ("servers", "said"), [("bad:1", "bad:1: Name or service not known"), ("", "empty"), ([], "empty")]
)
def test_no_address_is_left(servers: str | list[str], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        parse_and_validate_addresses(servers, host_resolver=Resolver())


def test_canonical_names() -> None:
    mode = "resolve_canonical_bootstrap_servers_only"
    ((host, port),) = parse_and_validate_addresses("alias:7", mode, host_resolver=Resolver())
    assert host
    assert port == 7


def test_the_systems_resolver() -> None:
    resolver = DefaultHostResolver()
    assert resolver.resolve("10.1.2.3") == ["10.1.2.3"]
    assert resolver.resolve("::1") == ["::1"]
    assert "127.0.0.1" in resolver.resolve("localhost")
    with pytest.raises(OSError, match=r"\w"):
        resolver.resolve("no-such-host.invalid")
    with pytest.raises(OSError, match=r"\w"):
        resolver.resolve("a" * 70 + ".example")


def test_a_dns_that_does_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    import threading

    release = threading.Event()

    def hang(_host: str) -> list[str]:
        release.wait(10)
        return []

    monkeypatch.setattr("pykclient.network.host_resolver._ask_system", hang)
    with pytest.raises(TimeoutError, match=r"0\.01 s"):
        DefaultHostResolver(timeout_ms=10).resolve("slow")
    release.set()


@pytest.mark.parametrize(("host", "expected"), [("1.2.3.4", True), ("::", True), ("fe80::1%lo", True), ("a", False)])
def test_numeric(host: str, expected: bool) -> None:
    assert is_numeric(host) == expected


@given(
    initial=st.integers(0, 10_000),
    maximum=st.integers(0, 100_000),
    jitter=st.floats(0, 1),
    attempts=st.integers(0, 1 << 40),
)
def test_backoff_bounds(initial: int, maximum: int, jitter: float, attempts: int) -> None:
    backoff = ExponentialBackoff(initial, 2, maximum, jitter)
    assert 0 <= backoff.backoff(attempts) <= max(maximum, 0)
    if maximum <= initial:
        assert backoff.backoff(attempts) == maximum


def test_backoff_doubles() -> None:
    backoff = ExponentialBackoff(100, 2, 1_000, 0)
    assert [backoff.backoff(attempts) for attempts in range(6)] == [100, 200, 400, 800, 1_000, 1_000]
    with pytest.raises(ValueError, match="jitter"):
        ExponentialBackoff(1, 2, 3, 1.5)
