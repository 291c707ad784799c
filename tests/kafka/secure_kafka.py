"""Real Kafka with TLS and SASL listeners, and the certificates and credentials for them."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Final, Self

from pykclient.admin import Admin
from pykclient.errors import SaslAuthenticationError
from pykclient.testing.certificates import CertificateAuthority
from tests.kafka.broker import Broker
from tests.kafka.cluster import KafkaCluster
from tests.support.wait import eventually

#: The listeners and their protocols. On MTLS clients must have a certificate, on SSL they need not. On SHORT_SESSIONS
#: clients must authenticate again every ``SESSION_MS`` (KIP-368).
LISTENERS: Final = {
    "SSL": "SSL",
    "MTLS": "SSL",
    "SASL_PLAINTEXT": "SASL_PLAINTEXT",
    "SASL_SSL": "SASL_SSL",
    "SHORT_SESSIONS": "SASL_PLAINTEXT",
}
SESSION_MS: Final = 1_500
SCRAM: Final = ("SCRAM-SHA-256", "SCRAM-SHA-512")
MECHANISMS: Final = ("PLAIN", *SCRAM, "OAUTHBEARER")

USER: Final = "alice"
PASSWORD: Final = "alice-secret"
STORE_PASSWORD: Final = "store-secret"


class SecureKafka:
    """One real broker with the listeners of ``LISTENERS`` beside PLAINTEXT. Thread: any, one call at a time.

    ``files`` has ``ca.pem``, ``ca.p12``, ``client.pem`` (certificate and key), ``client.p12``, ``client.crt``,
    ``client.key`` and ``client.encrypted.key``. All passwords are ``STORE_PASSWORD``.
    """

    def __init__(self, files: Path, *, throughput: bool = False) -> None:
        self.files = files
        self.authority = CertificateAuthority()
        self.broker_certificate = self.authority.issue("broker", ["localhost", "127.0.0.1"])
        self.client_certificate = self.authority.issue("client")
        self._write_files()
        self.cluster = KafkaCluster(1, self._properties(), listeners=LISTENERS, throughput=throughput)

    def __enter__(self) -> Self:
        self.cluster.start()
        try:
            self._create_scram_users()
        except BaseException:
            self.cluster.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.cluster.close()

    @property
    def broker(self) -> Broker:
        return self.cluster.brokers[1]

    def bootstrap(self, listener: str) -> str:
        """Return the address of a listener."""
        port = self.broker.port if listener == "PLAINTEXT" else self.broker.ports[listener]
        return f"{self.broker.host}:{port}"

    @staticmethod
    def protocol(listener: str) -> str:
        """Return the security protocol of a listener."""
        return LISTENERS.get(listener, listener)

    def path(self, name: str) -> str:
        return str(self.files / name)

    def _write_files(self) -> None:
        broker, client = self.broker_certificate, self.client_certificate
        texts = {
            "ca.pem": self.authority.certificate_pem,
            "broker.pem": broker.key_pem() + broker.certificate_pem,
            "client.pem": client.key_pem() + client.certificate_pem,
            "client.crt": client.certificate_pem,
            "client.key": client.key_pem(),
            "client.encrypted.key": client.key_pem(STORE_PASSWORD),
        }
        for name, text in texts.items():
            (self.files / name).write_text(text)
        (self.files / "ca.p12").write_bytes(self.authority.pkcs12(STORE_PASSWORD))
        (self.files / "client.p12").write_bytes(client.pkcs12(STORE_PASSWORD))

    def _properties(self) -> dict[str, object]:
        plain = (
            "org.apache.kafka.common.security.plain.PlainLoginModule required "
            f'username="{USER}" password="{PASSWORD}" user_{USER}="{PASSWORD}";'
        )
        properties: dict[str, object] = {
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": self.path("broker.pem"),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": self.path("ca.pem"),
            "listener.name.ssl.ssl.client.auth": "none",
            "listener.name.mtls.ssl.client.auth": "required",
            "delegation.token.secret.key": "secret-key",
            "delegation.token.expiry.check.interval.ms": 1_000,
        }
        unsecured = (
            "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required "
            f'unsecuredLoginStringClaim_sub="{USER}";'
        )
        scram = "org.apache.kafka.common.security.scram.ScramLoginModule required;"
        for name in ("sasl_plaintext", "sasl_ssl", "short_sessions"):
            prefix = f"listener.name.{name}"
            properties[f"{prefix}.sasl.enabled.mechanisms"] = ",".join(MECHANISMS)
            properties[f"{prefix}.plain.sasl.jaas.config"] = plain
            properties[f"{prefix}.oauthbearer.sasl.jaas.config"] = unsecured
            for mechanism in SCRAM:
                properties[f"{prefix}.{mechanism.lower()}.sasl.jaas.config"] = scram
        for mechanism in MECHANISMS:
            properties[f"listener.name.short_sessions.{mechanism.lower()}.connections.max.reauth.ms"] = SESSION_MS
        return properties

    def _create_scram_users(self) -> None:
        from confluent_kafka.admin import AdminClient
        from confluent_kafka.admin._scram import ScramCredentialInfo, ScramMechanism, UserScramCredentialUpsertion

        admin = AdminClient({"bootstrap.servers": self.bootstrap("PLAINTEXT")})
        for name in SCRAM:
            info = ScramCredentialInfo(getattr(ScramMechanism, name.replace("-", "_")), 4096)
            change = UserScramCredentialUpsertion(USER, info, PASSWORD.encode())
            for outcome in admin.alter_user_scram_credentials([change]).values():
                outcome.result(30)
            eventually(partial(self._accepts, name), 30.0, "the broker knows the user")  # it does a little later

    def _accepts(self, mechanism: str) -> bool:
        credentials = {"sasl.mechanism": mechanism, "sasl.username": USER, "sasl.password": PASSWORD}
        servers = self.bootstrap("SASL_PLAINTEXT")
        with Admin({"bootstrap.servers": servers, "security.protocol": "SASL_PLAINTEXT", **credentials}) as admin:
            try:
                admin.describe_cluster()
            except SaslAuthenticationError:
                return False
        return True
