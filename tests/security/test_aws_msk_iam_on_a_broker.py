"""AWS_MSK_IAM against an embedded broker that checks each signed request with botocore, Amazon's own signer."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import pytest
from botocore.auth import SigV4QueryAuth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

from pykclient import KafkaConsumer, KafkaProducer
from pykclient.admin import Admin
from pykclient.errors import SaslAuthenticationError
from pykclient.network.authenticator.aws_msk_iam import MECHANISM, AwsCredentials, signed_payload
from pykclient.testing import EmbeddedCluster, Security, security
from pykclient.testing.certificates import CertificateAuthority
from pykclient.testing.server import sasl_server_authenticator

RECORDS = 1_000
REGION = "eu-central-1"
KEY_ID = "AKIDEXAMPLE"
SECRET = "hush/wJalrXUtnFEMI+K7MDENG"
TOKEN = "hush-session/token+=="


def signed_by_botocore(host: str, region: str, timestamp: str, credentials: Credentials) -> dict[str, str]:
    """Return the parameters of a request to connect that botocore has signed, with names in lower case."""
    signer = SigV4QueryAuth(credentials, "kafka-cluster", region, expires=900)
    request = AWSRequest("GET", f"https://{host}/?Action=kafka-cluster%3AConnect")
    request.context["timestamp"] = timestamp
    signer._modify_request_before_signing(request)
    to_sign = signer.string_to_sign(request, signer.canonical_request(request))
    parameters = {name.lower(): value for name, value in parse_qsl(urlsplit(request.url).query)}
    return parameters | {"x-amz-signature": signer.signature(to_sign, request)}


@pytest.mark.parametrize("token", [None, TOKEN])
@pytest.mark.parametrize("host", ["b-1.bank.abc123.c2.kafka.eu-central-1.amazonaws.com", "kafka.example.com"])
def test_signature_equals_botocores(host: str, token: str | None) -> None:
    time = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
    ours = json.loads(signed_payload(AwsCredentials.of(KEY_ID, SECRET, token), host, REGION, time))
    assert (ours.pop("version"), ours.pop("host")) == ("2020_10_22", host)
    assert ours.pop("user-agent").startswith("pykclient/")
    assert ours == signed_by_botocore(host, REGION, "20260102T030405Z", Credentials(KEY_ID, SECRET, token))


class MskSaslServer:
    """Signs the client's request again and compares. Thread: loop."""

    uses_token = False
    expiry_ms: int | None = None

    def __init__(self) -> None:
        self.user: str | None = None

    def evaluate(self, response: bytes) -> bytes:
        claims: dict[str, str] = json.loads(response)
        expected = signed_by_botocore("127.0.0.1", REGION, claims["x-amz-date"], Credentials(KEY_ID, SECRET, TOKEN))
        age_s = (datetime.now(UTC) - datetime.strptime(claims["x-amz-date"] + "+0000", "%Y%m%dT%H%M%SZ%z")).seconds
        if (
            expected.items() <= claims.items()
            and claims["host"] == "127.0.0.1"
            and age_s < int(expected["x-amz-expires"])
        ):
            self.user = KEY_ID
            return b'{"version":"2020_10_22","request-id":"1"}'
        raise SaslAuthenticationError("Access denied")


def test_broker_checking_signatures_accepts_clients(
    authority: CertificateAuthority, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(security, "MECHANISMS", (MECHANISM,))
    monkeypatch.setattr(sasl_server_authenticator, "new_sasl_server", lambda *_: MskSaslServer())
    monkeypatch.setenv("AWS_REGION", REGION)
    with EmbeddedCluster(security=Security("SASL_SSL", mechanisms=[MECHANISM], authority=authority)) as cluster:
        config: dict[str, Any] = {
            "bootstrap.servers": cluster.bootstrap_servers,
            "security.protocol": "SASL_SSL",
            "ssl.ca.pem": authority.certificate_pem,
            "sasl.mechanism": MECHANISM,
            "sasl.aws.credentials.provider": lambda: (KEY_ID, SECRET, TOKEN),
        }
        with KafkaProducer(config) as producer:
            for number in range(RECORDS):
                producer.send("t", b"%d" % number)
        values: list[Any] = []
        with KafkaConsumer({**config, "auto.offset.reset": "earliest", "group.id": "g"}, "t") as consumer:
            while len(values) < RECORDS:
                values += [record.value for records in consumer.poll(10_000).values() for record in records]
        assert values == [b"%d" % number for number in range(RECORDS)]
        wrong = {**config, "sasl.aws.credentials.provider": lambda: (KEY_ID, "hush-wrong", TOKEN)}
        with Admin(wrong) as admin, pytest.raises(SaslAuthenticationError) as caught:
            admin.list_topics()
    for words in (config["bootstrap.servers"], MECHANISM, "Access denied"):
        assert words in str(caught.value)
    assert "hush" not in str(caught.value)
