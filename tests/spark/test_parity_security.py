"""Both sources and sinks on SASL_SSL and with mutual TLS: the same options, the same rows, and no secret anywhere."""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pykclient.admin import Admin
from tests.kafka.secure_kafka import PASSWORD, STORE_PASSWORD, USER, SecureKafka
from tests.spark import builtin
from tests.spark.parity import FORMATS, rows_of
from tests.support.wait import eventually

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.slow

ROWS = 300

_QUERY = """
SELECT concat('clé ', id) AS key, concat('value ', id) AS value, CAST(id % 2 AS INT) AS partition FROM range({})
"""


def sasl_ssl(kafka: SecureKafka) -> dict[str, str]:
    module = "org.apache.kafka.common.security.scram.ScramLoginModule"
    return {
        "kafka.bootstrap.servers": kafka.bootstrap("SASL_SSL"),
        "kafka.security.protocol": "SASL_SSL",
        "kafka.sasl.mechanism": "SCRAM-SHA-512",
        "kafka.sasl.jaas.config": f'{module} required username="{USER}" password="{PASSWORD}";',
        "kafka.ssl.truststore.type": "PEM",
        "kafka.ssl.truststore.location": kafka.path("ca.pem"),
    }


def delegation_token(kafka: SecureKafka) -> dict[str, str]:
    """Return the options that docs/spark.md makes of a token."""
    settings = {name.removeprefix("kafka."): value for name, value in sasl_ssl(kafka).items()}
    with Admin(settings) as admin:
        token = admin.create_delegation_token()
        eventually(lambda: token in admin.describe_delegation_tokens(), 20.0, "the brokers know the token")
    return {
        **sasl_ssl(kafka),
        "kafka.sasl.jaas.config": (
            "org.apache.kafka.common.security.scram.ScramLoginModule required "
            f'username="{token.token_id}" password="{b64encode(token.hmac).decode()}" tokenauth="true";'
        ),
    }


def mutual_tls(kafka: SecureKafka) -> dict[str, str]:
    return {
        "kafka.bootstrap.servers": kafka.bootstrap("MTLS"),
        "kafka.security.protocol": "SSL",
        "kafka.ssl.truststore.type": "PKCS12",
        "kafka.ssl.truststore.location": kafka.path("ca.p12"),
        "kafka.ssl.truststore.password": STORE_PASSWORD,
        "kafka.ssl.keystore.type": "PKCS12",
        "kafka.ssl.keystore.location": kafka.path("client.p12"),
        "kafka.ssl.keystore.password": STORE_PASSWORD,
    }


def contents(folder: Path) -> bytes:
    return b"".join(path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file())


@pytest.mark.parametrize(
    "options_of", [sasl_ssl, mutual_tls, pytest.param(delegation_token, marks=pytest.mark.exhaustive)]
)
def test_the_same_options_give_the_same_rows(
    spark: SparkSession,
    secure_kafka: SecureKafka,
    topic: str,
    tmp_path: Path,
    options_of: Callable[[SecureKafka], dict[str, str]],
    capfd: pytest.CaptureFixture[str],
) -> None:
    if not builtin.has_builtin():
        pytest.skip("there is no Kafka source of this Spark to compare with")
    options = options_of(secure_kafka)
    shown: list[str] = []
    found: dict[tuple[str, str], list[Any]] = {}
    for writer in FORMATS:
        written = f"{topic}-{writer}"
        secure_kafka.cluster.create_topic(written, 2)
        spark.sql(_QUERY.format(ROWS)).write.format(writer).options(**options, topic=written).mode("append").save()
        for reader in FORMATS:
            frame = spark.read.format(reader).options(**options, subscribe=written).load()
            shown += [str(frame._jdf.queryExecution().toString()), str(frame._jdf.toString())]
            found[writer, reader] = [(row[0], row[1], row[3], row[4]) for row in rows_of(frame)]
            sink, checkpoint = tmp_path / f"{writer}-{reader}", tmp_path / f"checkpoint-{writer}-{reader}"
            stream = spark.readStream.format(reader).options(**options, subscribe=written, startingOffsets="earliest")
            query = (
                stream.load()
                .selectExpr("CAST(value AS STRING) AS value")
                .writeStream.format("json")
                .trigger(availableNow=True)
                .start(str(sink), checkpointLocation=str(checkpoint))
            )
            assert query.awaitTermination(120)
            shown.append(str(query.lastProgress))
            assert spark.read.schema("value STRING").json(str(sink)).distinct().count() == ROWS
    for writer in FORMATS:
        assert len(found[writer, "pykclient"]) == ROWS
        assert found[writer, "pykclient"] == found[writer, "kafka"]
    assert sorted(row[:3] for row in found["kafka", "kafka"]) == sorted(row[:3] for row in found["pykclient", "kafka"])
    everything = "\n".join(shown).encode() + contents(tmp_path) + "".join(capfd.readouterr()).encode()
    for secret in (PASSWORD, STORE_PASSWORD, *re.findall('password="([^"]+)"', str(options))):
        assert secret.encode() not in everything
