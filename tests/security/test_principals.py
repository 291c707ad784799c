"""Principals of the embedded cluster: by certificate, by SASL, and their quotas."""

from __future__ import annotations

import pytest

from pykclient import KafkaProducer
from pykclient.admin import Admin
from pykclient.errors import ConfigError, TopicAuthorizationError
from pykclient.testing import Acl, EmbeddedCluster, Security
from pykclient.testing.standard_authorizer import SslPrincipalMapper

NAME = "CN=Alice,OU=Data,O=Bank"


@pytest.mark.parametrize(
    ("rules", "name"),
    [
        ("DEFAULT", NAME),
        ("RULE:^CN=(.*?),.*$/$1/", "Alice"),
        ("RULE:^CN=(.*?),.*$/$1/L", "alice"),
        ("RULE:^CN=(.*?),.*$/$1/U, DEFAULT", "ALICE"),
        ("RULE:^CN=(.*?),OU=(.*?),.*$/$2-$1@$3/L", "data-alice@$3"),
        ("RULE:^CN=none$/x/,RULE:^CN=(\\w+),OU=(\\w+).*$/$1\\/$2/", "Alice/Data"),
        ("RULE:^CN=none$/x/, DEFAULT", NAME),
        ("RULE:^CN=none$/x/", None),
        ("", None),
    ],
)
def test_first_matching_mapping_rule_decides(rules: str, name: str | None) -> None:
    """The first rule that matches the whole name decides, with its groups and its case."""
    assert SslPrincipalMapper(rules).name_of(NAME) == name


@pytest.mark.parametrize("rules", ["NONE", "RULE:^a$/b", "RULE:(/a/"])
def test_wrong_mapping_rules_are_refused(rules: str) -> None:
    with pytest.raises(ConfigError, match=r"ssl\.principal\.mapping\.rules"):
        SslPrincipalMapper(rules)


def test_acls_apply_to_mapped_certificate_name() -> None:
    """ACLs are for the certificate's name as the rules map it, and clients without one are anonymous."""
    security = Security("SSL", client_auth="requested")
    acls = [Acl("User:client", ["WRITE", "CREATE"], topic="t")]
    rules = {"ssl.principal.mapping.rules": "RULE:^CN=(.*)$/$1/L"}
    with EmbeddedCluster(security=security, acls=acls, config=rules) as cluster:
        config = cluster.client_config()
        with KafkaProducer(config) as producer:
            producer.send("t", b"value").get(20)
        without = {key: value for key, value in config.items() if "key" not in key and "certificate" not in key}
        with KafkaProducer(without) as producer, pytest.raises(TopicAuthorizationError):
            producer.send("t", b"value").get(20)
        assert {request.principal for request in cluster.requests_of("Metadata")} == {"User:client", "User:ANONYMOUS"}


def test_user_quota_throttles_only_that_user() -> None:
    """A throttled user's client waits for its quota, and delivers everything once; others are not affected."""
    users = {"slow": "a", "fast": "b"}
    security = Security("SASL_PLAINTEXT", mechanisms=["PLAIN"], users=users)
    with EmbeddedCluster(security=security, quota_window_num=2, quota_window_size_seconds=1) as cluster:
        cluster.create_topic("t")
        with Admin(cluster.client_config(user="fast")) as admin:
            admin.alter_client_quotas([({"user": "slow"}, {"producer_byte_rate": 20_000.0})]).all()
        for user in users:
            settings = {**cluster.client_config(user=user), "client.id": user, "batch.size": 1, "linger.ms": 0}
            with KafkaProducer(settings) as producer:
                for future in [producer.send("t", bytes(5_000)) for _ in range(10)]:
                    future.get(30)
        throttled = {
            user: sum(request.throttle_time_ms for request in cluster.requests_of("Produce", client_id=user))
            for user in users
        }
        assert throttled["slow"] > 0
        assert throttled["fast"] == 0
        with Admin(cluster.client_config(user="fast")) as admin:
            assert admin.describe_client_quotas() == {(("user", "slow"),): {"producer_byte_rate": 20_000.0}}
