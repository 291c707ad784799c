"""Where settings come from, which of them wins, and what happens with those that are wrong or secret."""

from __future__ import annotations

from pathlib import Path

import pytest

from pykclient.cli import settings
from pykclient.cli.main import main
from pykclient.cli.problems import UsageError
from pykclient.config.consumer_config import ConsumerConfig
from pykclient.config.producer_config import ProducerConfig
from pykclient.errors import ConfigError
from pykclient.testing import EmbeddedCluster, Security
from tests.cli.command import Pykclient


@pytest.fixture(autouse=True)
def _no_settings_of_the_user(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))


def test_command_line_overrides_environment_and_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    file = tmp_path / "kafka.properties"
    file.write_text("client.id=file\nlinger.ms=1\nfetch.min.bytes=3\nbootstrap.servers=file:1\n")
    monkeypatch.setenv("PYKCLIENT_CLIENT_ID", "environment")
    monkeypatch.setenv("PYKCLIENT_BOOTSTRAP_SERVERS", "environment:1")
    monkeypatch.setenv("PYKCLIENT_CONFIG", str(file))
    found = settings.merged(None, {"client_id": "line"})
    assert found["client.id"] == "line"
    assert found["bootstrap.servers"] == "environment:1"
    assert settings.for_client(ProducerConfig, found, {})["linger.ms"] == "1"
    assert "linger.ms" not in settings.for_client(ConsumerConfig, found, {})
    assert settings.for_client(ConsumerConfig, found, {"client.id": "default"}, {"group_id": "g"}) == {
        "client.id": "line",
        "bootstrap.servers": "environment:1",
        "fetch.min.bytes": "3",
        "group.id": "g",
    }


def test_file_named_on_the_command_line_wins_over_the_environment(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    staging, default = tmp_path / "staging.properties", tmp_path / "config" / "pykclient" / "config.properties"
    staging.write_text("bootstrap.servers=staging:1\nclient.id=staging\n")
    default.parent.mkdir(parents=True)
    default.write_text("bootstrap.servers=default:1\nclient.rack=default\n")
    monkeypatch.setenv("PYKCLIENT_BOOTSTRAP_SERVERS", "production:1")
    monkeypatch.setenv("PYKCLIENT_LINGER_MS", "7")
    assert settings.merged(str(staging), {}) == {
        "bootstrap.servers": "staging:1",
        "client.id": "staging",
        "linger.ms": "7",
    }
    assert settings.merged(str(staging), {"client.id": "line"})["client.id"] == "line"
    assert settings.merged(None, {})["bootstrap.servers"] == "production:1"


@pytest.mark.parametrize(
    "words",
    [
        ["topics", "delete", "orders"],
        ["groups", "delete", "tower"],
        ["offsets", "delete", "tower", "-t", "orders"],
    ],
)
def test_question_before_deleting_names_the_cluster(
    words: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    staging = tmp_path / "staging.properties"
    staging.write_text("bootstrap.servers=staging.example:9092\n")
    monkeypatch.setenv("PYKCLIENT_BOOTSTRAP_SERVERS", "production.example:9092")
    assert main([*words, "-F", str(staging)]) == 2
    assert "cluster: staging.example:9092" in " ".join(capsys.readouterr().err.split())


def test_settings_are_read_from_toml(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    file = tmp_path / "config" / "pykclient" / "config.toml"
    file.parent.mkdir(parents=True)
    file.write_text('bootstrap.servers = ["a:1", "b:2"]\nenable.auto.commit = false\n[linger]\nms = 7\n')
    found = settings.merged(None, {})
    assert found == {"bootstrap.servers": "a:1,b:2", "enable.auto.commit": "false", "linger.ms": "7"}
    other = tmp_path / "other.properties"
    other.write_text("client.id=other")
    monkeypatch.setenv("PYKCLIENT_CONFIG", str(other))
    assert settings.merged(None, {}) == {"bootstrap.servers": "localhost:9092", "client.id": "other"}


def test_properties_file_is_read_like_in_java() -> None:
    text = (
        "# comment\n! comment\n\n  a = 1\nb:2\nc 3\nd\\ e\\=f=\\tx\\u00e4\nlong = one, \\\n     two\n"
        "even=a\\\\\r\nempty=\nlast=end\\"
    )
    assert settings.parse_properties(text) == {
        "a": "1",
        "b": "2",
        "c": "3",
        "d e=f": "\txä",
        "long": "one, two",
        "even": "a\\",
        "empty": "",
        "last": "end",
    }


@pytest.mark.parametrize(
    ("name", "content", "text"),
    [
        ("a.properties", "sasl.user=x", "sasl.username"),
        ("a.properties", r"client.id=\u12", "hexadecimal"),
        ("a.properties", "client.id=one, \\\n two\nHush1 ", "line 3 has no value"),
        ("a.toml", "client.id = ", "a.toml"),
    ],
)
def test_settings_file_error_names_line_and_no_secret(tmp_path: Path, name: str, content: str, text: str) -> None:
    file = tmp_path / name
    file.write_text(content)
    with pytest.raises(ConfigError) as refused:
        settings.merged(str(file), {})
    assert text in str(refused.value)
    assert "Hush1" not in str(refused.value)


def test_an_error_about_an_unknown_variable_suggests_the_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYKCLIENT_BOOTSTRAP_SERVER", "a:1")
    with pytest.raises(ConfigError) as refused:
        settings.merged(None, {})
    assert "bootstrap.servers" in str(refused.value)
    assert "environment" in str(refused.value)


@pytest.mark.parametrize("key", ["sasl.password", "sasl_plain_password", "ssl.key.password", "sasl.jaas.config"])
def test_secrets_are_refused_on_the_command_line(key: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(UsageError):
        settings.merged(None, {key: "hush"})
    assert main(["consume", "t", "-X", f"{key}=hush"]) == 2
    shown = capsys.readouterr()
    assert "is a secret" in shown.err
    assert "hush" not in shown.err + shown.out


def test_missing_password_is_error_without_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    secure = ["-X", "security.protocol=SASL_PLAINTEXT", "-X", "sasl.mechanism=PLAIN", "-X", "sasl.username=alice"]
    assert main(["consume", "t", *secure]) == 2
    assert "PYKCLIENT_SASL_PASSWORD" in capsys.readouterr().err


def test_password_is_read_from_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    with EmbeddedCluster(1, security=Security("SASL_PLAINTEXT", users={"alice": "hush"})) as cluster:
        monkeypatch.setenv("PYKCLIENT_SASL_PASSWORD", "hush")
        monkeypatch.setenv("PYKCLIENT_SECURITY_PROTOCOL", "SASL_PLAINTEXT")
        secure = ["-X", "sasl.mechanism=SCRAM-SHA-256", "-X", "sasl.username=alice"]
        pykclient = Pykclient(cluster.bootstrap_servers)
        pykclient.ok("produce", "t", *secure, stdin=b"x\n")
        assert pykclient.ok("consume", "t", "-e", *secure).raw == b"x\n"
        monkeypatch.setenv("PYKCLIENT_SASL_PASSWORD", "wrong")
        refused = pykclient("consume", "t", "-e", *secure)
        assert refused.code == 1
        assert "wrong" not in refused.err
        assert "password" in refused.err


def test_settings_may_precede_or_follow_command(cluster: EmbeddedCluster) -> None:
    pykclient = Pykclient()
    cluster.create_topic("anywhere", 1)
    servers = cluster.bootstrap_servers
    pykclient.ok("-b", servers, "produce", "anywhere", stdin=b"x\n")
    assert pykclient.ok("-b", "nowhere:1", "consume", "anywhere", "-e", "-b", servers).raw == b"x\n"
