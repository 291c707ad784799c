"""Rates by client and the throttling for them; quotas set through the admin APIs."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from pykclient.errors import InvalidRequestError
from pykclient.protocol.api_keys import ApiKeys
from pykclient.protocol.messages.alter_client_quotas import AlterClientQuotasRequest, AlterClientQuotasResponse
from pykclient.protocol.messages.describe_client_quotas import (
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
)
from pykclient.testing.handlers.configs import handle_alter_client_quotas, handle_describe_client_quotas
from pykclient.testing.standard_authorizer import AuthHelper
from tests.testing.handlers.refusals import refused
from tests.testing.server.support import VirtualCluster


def request(
    api_key: int, size_bytes: int = 100, client_id: str = "a", broker_id: int = 1, user: str = "ANONYMOUS"
) -> Any:
    return SimpleNamespace(
        api_key=api_key,
        size_bytes=size_bytes,
        client_id=client_id,
        broker_id=broker_id,
        principal=f"User:{user}",
        is_from_broker=False,
    )


def test_default_has_no_quotas() -> None:
    cluster = VirtualCluster()
    assert not cluster.quotas.active
    assert cluster.quotas.throttle_time_ms(request(ApiKeys.PRODUCE, 1 << 40)) == 0


def test_fast_writer_is_throttled_to_its_rate() -> None:
    cluster = VirtualCluster()
    quotas = cluster.quotas
    quotas.alter({"client-id": "a"}, {"producer_byte_rate": 1000})
    assert quotas.active
    for _ in range(10):
        assert quotas.throttle_time_ms(request(ApiKeys.PRODUCE, 1000)) == 0
        cluster.clock.advance(1000)
    # 11 kB within ten seconds exceed the quota by one second.
    cluster.clock.advance(-1000)
    assert quotas.throttle_time_ms(request(ApiKeys.PRODUCE, 1000)) == 1000
    assert quotas.throttle_time_ms(request(ApiKeys.PRODUCE, 1000, client_id="b")) == 0
    assert quotas.throttle_time_ms(request(ApiKeys.PRODUCE, 1000, broker_id=2)) == 0
    assert quotas.fetch_throttle_time_ms(request(ApiKeys.FETCH), 1 << 30) == 0
    cluster.clock.advance(20_000)
    assert quotas.throttle_time_ms(request(ApiKeys.PRODUCE, 1000)) == 0
    assert quotas.throttle_time_ms(request(ApiKeys.PRODUCE, 1 << 40)) == 10_000


def test_fetch_quota_counts_bytes_and_request_quota_counts_requests() -> None:
    quotas = VirtualCluster().quotas
    quotas.alter({"client-id": None}, {"consumer_byte_rate": 100, "request_percentage": 1})
    assert quotas.fetch_throttle_time_ms(request(ApiKeys.FETCH), 1500) == 5000
    assert quotas.fetch_throttle_time_ms(request(ApiKeys.FETCH), 1001) == 10  # the refused 1500 do not count
    assert quotas.fetch_throttle_time_ms(request(ApiKeys.FETCH), 1000) == 0
    assert quotas.max_fetched_bytes(request(ApiKeys.FETCH)) == 1000
    for _ in range(97):
        assert quotas.throttle_time_ms(request(ApiKeys.HEARTBEAT)) == 0
    assert quotas.throttle_time_ms(request(ApiKeys.HEARTBEAT)) == 100


def test_brokers_are_never_throttled() -> None:
    quotas = VirtualCluster(quota_consumer_default=1).quotas
    fetch = request(ApiKeys.FETCH)
    assert quotas.fetch_throttle_time_ms(fetch, 5_000) > 0
    fetch.is_from_broker = True
    assert quotas.fetch_throttle_time_ms(fetch, 5_000) == 0


def test_most_specific_quota_applies() -> None:
    quotas = VirtualCluster(quota_producer_default=1).quotas
    steps: list[tuple[dict[str, str | None], float]] = [
        ({"client-id": None}, 2),
        ({"client-id": "a"}, 3),
        ({"user": None}, 4),
        ({"user": None, "client-id": "a"}, 5),
        ({"user": "ANONYMOUS"}, 6),
        ({"user": "ANONYMOUS", "client-id": None}, 7),
        ({"user": "ANONYMOUS", "client-id": "a"}, 8),
    ]

    def bound() -> float | None:
        found = quotas._bound(request(ApiKeys.PRODUCE), "producer_byte_rate")
        return None if found is None else found.per_s

    assert bound() == 1
    for entity, rate in steps:
        quotas.alter(entity, {"producer_byte_rate": rate})
        assert bound() == rate
    for entity, rate in reversed(steps):
        assert bound() == rate
        quotas.alter(entity, {"producer_byte_rate": None})
    assert bound() == 1
    assert quotas.entities == {}


def test_clients_of_a_user_share_its_quota() -> None:
    """A user's quota is for all its clients together, a pair's for that client alone, a client id's for all users."""
    for entity, is_shared_by_user, is_shared_by_id in (
        ({"user": "u"}, True, False),
        ({"user": "u", "client-id": None}, False, False),
        ({"client-id": None}, False, True),
    ):
        quotas = VirtualCluster().quotas
        quotas.alter(entity, {"producer_byte_rate": 100})
        assert quotas.throttle_time_ms(request(ApiKeys.PRODUCE, 2000, "a", user="u")) > 0
        assert (quotas.throttle_time_ms(request(ApiKeys.PRODUCE, 1, "b", user="u")) > 0) is is_shared_by_user
        assert (quotas.throttle_time_ms(request(ApiKeys.PRODUCE, 1, "a", user="v")) > 0) is is_shared_by_id


@pytest.mark.parametrize(
    ("entity", "changes"),
    [
        ({}, {"producer_byte_rate": 1.0}),
        ({"ip": "10.0.0.1"}, {"producer_byte_rate": 1.0}),
        ({"user": "u"}, {"bytes": 1.0}),
        ({"user": "u"}, {"producer_byte_rate": 0.0}),
        ({"user": "u"}, {"producer_byte_rate": float("nan")}),
    ],
)
def test_wrong_quotas_are_refused(entity: dict[str, str | None], changes: dict[str, float | None]) -> None:
    with pytest.raises(InvalidRequestError):
        VirtualCluster().quotas.alter(entity, changes)


# --- the admin APIs --------------------------------------------------------------------------------------------------


def call(handle: Any, cluster: VirtualCluster, body: Any) -> Any:
    answers: list[Any] = []
    broker = SimpleNamespace(quotas=cluster.quotas, auth=AuthHelper(None))
    handle(broker, SimpleNamespace(respond=answers.append), body)
    return answers[0]


def alteration(entity: dict[str, str | None], ops: dict[str, float | None]) -> AlterClientQuotasRequest.EntryData:
    return AlterClientQuotasRequest.EntryData(
        entity=[
            AlterClientQuotasRequest.EntityData(entity_type=type, entity_name=name) for type, name in entity.items()
        ],
        ops=[
            AlterClientQuotasRequest.OpData(key=key, value=value or 0.0, remove=value is None)
            for key, value in ops.items()
        ],
    )


def test_alter_quotas_answers_each_entity() -> None:
    cluster = VirtualCluster()
    entries = [
        alteration({"client-id": "a"}, {"producer_byte_rate": 10.0, "consumer_byte_rate": None}),
        alteration({"ip": "1.2.3.4"}, {"producer_byte_rate": 10.0}),
        alteration({"client-id": "a"}, {}),
    ]
    entries[2].entity = entries[2].entity * 2
    body = AlterClientQuotasRequest(entries=entries, validate_only=True)
    for validate_only in (True, False):
        body.validate_only = validate_only
        response: AlterClientQuotasResponse = call(handle_alter_client_quotas, cluster, body)
        assert [entry.error_code for entry in response.entries] == [0, 42, 42]
        assert cluster.quotas.active is not validate_only
    assert cluster.quotas.entities == {frozenset({("client-id", "a")}): {"producer_byte_rate": 10.0}}
    assert refused(body, 41, "no").entries[1].error_code == 41


def test_describe_quotas_applies_filters() -> None:
    cluster = VirtualCluster()
    for entity in ({"client-id": "a"}, {"client-id": None}, {"client-id": "a", "user": "u"}, {"user": "u"}):
        cluster.quotas.alter(entity, {"producer_byte_rate": 5.0})

    def describe(*components: tuple[str, int, str | None], strict: bool = False) -> list[list[tuple[str, str | None]]]:
        body = DescribeClientQuotasRequest(
            components=[
                DescribeClientQuotasRequest.ComponentData(entity_type=type, match_type=match_type, match=match)
                for type, match_type, match in components
            ],
            strict=strict,
        )
        response: DescribeClientQuotasResponse = call(handle_describe_client_quotas, cluster, body)
        assert response.entries is not None
        return [[(part.entity_type, part.entity_name) for part in entry.entity] for entry in response.entries]

    assert len(describe()) == 4
    assert describe(strict=True) == []
    assert describe(("client-id", 0, "a")) == [[("client-id", "a")], [("client-id", "a"), ("user", "u")]]
    assert describe(("client-id", 0, "a"), strict=True) == [[("client-id", "a")]]
    assert describe(("client-id", 1, None)) == [[("client-id", None)]]
    assert len(describe(("client-id", 2, None))) == 3
    with pytest.raises(InvalidRequestError, match="twice"):
        describe(("user", 0, "u"), ("user", 0, "u"))
    with pytest.raises(InvalidRequestError):
        describe(("user", 3, "u"))
    assert refused(DescribeClientQuotasRequest(), 41).error_code == 41
