"""Parsing and resolution of bootstrap addresses."""

from __future__ import annotations

import logging

import pytest
from hypothesis import given, strategies as st

from pykclient.errors import ConfigError
from pykclient.network.client_utils import (
    DNS_GRACE_MS,
    DNS_TIMEOUT_MS,
    parse_address,
    parse_addresses,
    parse_and_validate_addresses,
)
from pykclient.network.exponential_backoff import ExponentialBackoff
from tests.support.mock_clock import MockClock
from tests.support.mock_resolver import MockResolver


def resolver() -> MockResolver:
    return MockResolver({"bad": None, "good": ["10.0.0.1"], "alias": ["10.0.0.1", "10.0.0.2"]})


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
def test_addresses_are_parsed(text: str, expected: tuple[str, int]) -> None:
    assert parse_address(text) == expected


@pytest.mark.parametrize("text", ["", ":9092", "a:b", "a:0", "a:65536", "::1", "a b:1", "[::1", "http://", "a:1:2"])
def test_invalid_address_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match=r"bootstrap\.servers"):
        parse_address(text)


@pytest.mark.parametrize("text", ["::1:9092", "::1"])
def test_ipv6_without_brackets_gets_a_hint(text: str) -> None:
    with pytest.raises(ConfigError, match="brackets"):
        parse_address(text)


@pytest.mark.parametrize("text", ["me:hush@kafka:9092", "SASL_SSL://me:hush@kafka", "me:hu@sh@kafka:9092"])
def test_a_password_in_an_address_is_not_shown(text: str) -> None:
    with pytest.raises(ConfigError, match=r"'\.\.\.@kafka\S*' is not an address .*leave out user") as caught:
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


def test_address_lists_are_parsed_without_duplicates() -> None:
    assert parse_addresses("a:1, b:2,,a:1") == [("a", 1), ("b", 2)]
    assert parse_addresses(["a:1", "b"]) == [("a", 1), ("b", 9092)]


def test_address_without_port_warns(caplog: pytest.LogCaptureFixture) -> None:
    """An address without a port gets port 9092 and a warning.

    kafka-python and librdkafka use port 9092, too; Java's clients refuse the address.
    """
    with caplog.at_level(logging.WARNING):
        found = parse_and_validate_addresses("good:1,alias, good", host_resolver=resolver())
    assert found == [("good", 1), ("alias", 9092), ("good", 9092)]
    assert caplog.messages == ["bootstrap.servers: no port in alias, good; trying port 9092. Write host:port"]


def test_unresolvable_names_are_logged_and_kept(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        assert parse_and_validate_addresses("bad:1,good:2", host_resolver=resolver()) == [("bad", 1), ("good", 2)]
    assert "bad:1: Name or service not known" in caplog.text


@pytest.mark.parametrize(
    ("servers", "said"), [("bad:1", "bad:1: Name or service not known"), ("", "empty"), ([], "empty")]
)
def test_address_list_without_valid_address_is_refused(servers: str | list[str], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        parse_and_validate_addresses(servers, host_resolver=resolver())


def test_canonical_names_replace_aliases() -> None:
    mode = "resolve_canonical_bootstrap_servers_only"
    found = parse_and_validate_addresses("alias:7", mode, host_resolver=resolver())
    assert found == [("10.0.0.1.example", 7), ("10.0.0.2.example", 7)]


def test_unanswered_lookup_fails_after_timeout() -> None:
    clock, hanging = MockClock(), resolver()
    hanging.hanging.add("good")
    start_ms = clock.now_ms()
    with pytest.raises(ConfigError, match=r"good:1: no answer from the DNS within 10 s"):
        parse_and_validate_addresses("good:1", host_resolver=hanging, clock=clock)
    assert clock.now_ms() - start_ms == DNS_TIMEOUT_MS


def test_first_resolved_name_shortens_wait_for_others(caplog: pytest.LogCaptureFixture) -> None:
    clock, hanging = MockClock(), resolver()
    hanging.hanging.add("slow")
    start_ms = clock.now_ms()
    found = parse_and_validate_addresses("slow:1,good:2", host_resolver=hanging, clock=clock)
    assert found == [("slow", 1), ("good", 2)]
    assert clock.now_ms() - start_ms == DNS_GRACE_MS
    assert "slow:1: no answer from the DNS within 1 s" in caplog.text
    hanging.answer()  # nobody waits for this response any more


def test_all_names_are_looked_up_in_parallel() -> None:
    clock, hanging = MockClock(), resolver()
    hanging.hanging.update(("good", "alias"))
    clock.listeners.append(hanging.answer)
    start_ms = clock.now_ms()
    assert parse_and_validate_addresses("good:1,alias:2", host_resolver=hanging, clock=clock) == [
        ("good", 1),
        ("alias", 2),
    ]
    assert hanging.asked == ["good", "alias"]
    assert clock.now_ms() - start_ms == DNS_TIMEOUT_MS  # both lookups finished within one wait


@given(
    initial=st.integers(0, 10_000),
    maximum=st.integers(0, 100_000),
    jitter=st.floats(0, 1),
    attempts=st.integers(0, 1 << 40),
)
def test_backoff_stays_within_bounds(initial: int, maximum: int, jitter: float, attempts: int) -> None:
    backoff = ExponentialBackoff(initial, maximum, jitter=jitter)
    assert 0 <= backoff.backoff(attempts) <= max(maximum, 0)
    if maximum <= initial:
        assert backoff.backoff(attempts) == maximum


def test_backoff_doubles() -> None:
    backoff = ExponentialBackoff(100, 1_000, jitter=0)
    assert [backoff.backoff(attempts) for attempts in range(6)] == [100, 200, 400, 800, 1_000, 1_000]
