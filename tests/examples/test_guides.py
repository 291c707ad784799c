"""The code of docs/quickstart.md and docs/columns.md runs as it is printed, and the site has no broken links."""

from __future__ import annotations

import importlib
import inspect
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import examples
from pykclient import KafkaConsumer, KafkaProducer, TopicPartition, errors
from pykclient.errors import ConfigError, KafkaTimeoutError
from pykclient.testing import EmbeddedCluster
from tests.cli.command import Pykclient
from tests.kafka.ports import refusing_port
from tests.support.wait import eventually

DOCS = Path(examples.__file__).parents[1] / "docs"


@pytest.fixture
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(brokers=1) as cluster:
        yield cluster


def run(page: str, cluster: EmbeddedCluster, printed: list[tuple[Any, ...]]) -> None:
    """Run the snippets of a page against ``cluster``; collect the arguments of ``print``."""
    text = (DOCS / page).read_text(encoding="utf-8")
    snippets = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    assert len(snippets) > 2
    for snippet in snippets:
        assert "localhost:9092" in snippet
        code = snippet.replace("localhost:9092", cluster.bootstrap_servers)
        exec(code, {"print": lambda *args: printed.append(args)})


def read(cluster: EmbeddedCluster, topic: str) -> list[bytes | None]:
    """Return the values of a topic's records."""
    return [record.value for record in cluster.log(TopicPartition(topic, 0))]


def test_programs_of_the_quick_start_run(cluster: EmbeddedCluster) -> None:
    printed: list[tuple[Any, ...]] = []
    run("quickstart.md", cluster, printed)
    assert printed[0] == (0, 10)  # the place of the record in JSON
    assert [args[1] for args in printed[1:]] == list(range(11))
    assert printed[-1] == (0, 10, b"customer-7", b'{"number": 10}')


def test_options_of_the_quick_starts_commands_exist() -> None:
    text = (DOCS / "quickstart.md").read_text(encoding="utf-8")
    commands = re.findall(r"\bpykclient (embedded|doctor)((?: -+\w+ \S+)*)", text)
    assert len(commands) == 2
    for name, options in commands:
        arguments = [word.strip("`") for word in options.split()]
        shown = Pykclient().ok(name, *arguments, "--help").out
        assert all(option in shown for option in arguments[::2])


def test_programs_of_the_columns_page_run(cluster: EmbeddedCluster) -> None:
    with KafkaProducer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        for number in range(5):
            producer.send("flights", b"%d" % number)
    printed: list[tuple[Any, ...]] = []
    run("columns.md", cluster, printed)
    assert printed[0] == (5, ["partition", "offset", "key", "value"])
    assert read(cluster, "copies") == read(cluster, "flights")
    assert len(read(cluster, "copies")) == 7


def test_errors_have_the_texts_of_the_quick_start() -> None:
    text = (DOCS / "quickstart.md").read_text(encoding="utf-8")
    with refusing_port() as port, KafkaProducer(bootstrap_servers=f"localhost:{port}", max_block_ms=200) as producer:
        cause = f"could not be reached (localhost:{port} (127.0.0.1): Connection refused, nothing listens there"

        def is_told() -> bool:
            with pytest.raises(KafkaTimeoutError) as timeout:
                producer.send("orders", b"x").get(30)
            return cause in str(timeout.value)

        eventually(is_told)  # on a busy machine the first wait may end before the connection was refused
    assert "could not be reached (localhost:9092 (127.0.0.1): Connection refused, nothing listens there" in text
    with pytest.raises(ConfigError) as unknown:
        KafkaConsumer({"bootstrap_server": "localhost:9092"})
    assert f"ConfigError: {unknown.value}" in text


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The built site. A page that is missing in the menu, and a link or an anchor that leads nowhere, are warnings."""
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--quiet", "--site-dir", str(folder)]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    built = subprocess.run(
        command, cwd=DOCS.parent, env=environment, capture_output=True, text=True, timeout=280, check=False
    )
    assert built.returncode == 0, built.stderr
    return folder


@pytest.mark.timeout(300)
def test_site_builds_without_a_warning(site: Path) -> None:
    assert "pip install pykclient" in (site / "index.html").read_text(encoding="utf-8")


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    "package",
    [
        "pykclient",
        "pykclient.admin",
        "pykclient.aio",
        "pykclient.confluent",
        "pykclient.exporters.opentelemetry",
        "pykclient.exporters.prometheus",
        "pykclient.metrics",
        "pykclient.schema_registry",
        "pykclient.serialization",
        "pykclient.spark",
        "pykclient.testing",
        "pykclient.testing.simulation",
    ],
)
def test_reference_has_every_public_name(package: str, site: Path) -> None:
    pages = "".join(page.read_text(encoding="utf-8") for page in (site / "api").rglob("index.html"))
    known = set(re.findall(r'id="(pykclient\.[\w.]+)"', pages)) | set(re.findall(r"<code>(\w+)</code>", pages))
    anchors = known | {name.rpartition(".")[2] for name in known}
    public = public_names(importlib.import_module(package))
    assert not public - anchors - {"__version__", "errors"}


#: Names of modules without ``__all__`` that only the package itself uses.
INTERNAL = {"CallableSerializer", "CallableDeserializer", "definition_of", "serializer_for", "deserializer_for"}


def public_names(module: ModuleType) -> set[str]:
    """Return the names in ``__all__``, or else those of a module's classes and functions."""
    if hasattr(module, "__all__"):
        return set(module.__all__)
    own = {
        name
        for name, value in vars(module).items()
        if inspect.isclass(value) or inspect.isfunction(value)
        if value.__module__ == module.__name__ and not name.startswith("_")
    }
    assert own
    return own - INTERNAL


#: What readers search for, and the page that answers it.
FIRST = {
    "aiokafka": "migrating",
    "alerts": "alerts",
    "asyncio": "asyncio",
    "avro spark": "spark",
    "commit after processing": "recipes",
    "configuration key": "configuration",
    "contributing": "contributing",
    "consumer group": "groups",
    "dashboard": "alerts",
    "dead letter": "recipes",
    "defaults differ": "migrating",
    "exactly once spark": "spark",
    "fastapi": "tutorials/fastapi",
    "fork": "faq",
    "group protocol": "groups",
    "install": "quickstart",
    "kafka-python": "migrating",
    "KafkaConsumer": "api/consumer",
    "KafkaProducer": "api/producer",
    "license": "faq",
    "linger.ms": "configuration",
    "liveness probe": "kubernetes",
    "maintainer": "faq",
    "opentelemetry": "opentelemetry",
    "outbox": "recipes",
    "performance": "performance",
    "produce key": "producing",
    "python versions": "faq",
    "rebalance": "consuming",
    "replay": "consuming",
    "retry topics": "recipes",
    "rotation": "recipes",
    "schema registry": "schemas",
    "scram": "security",
    "seek time": "consuming",
    "seek to a time": "consuming",
    "share groups": "share-groups",
    "sigterm": "kubernetes",
    "sizing": "production",
    "spark options": "spark",
    "tls": "security",
    "upgrade": "compatibility",
}
#: The same, where another page may come before it.
AMONG_THREE = {
    "api reference": "api",
    "avro": "schemas",
    "certificates": "security",
    "commit": "consuming",
    "confluent-kafka": "from-confluent",
    "gunicorn": "recipes",
    "hangs": "troubleshooting",
    "kafka": "migrating",
    "lag": "troubleshooting",
    "logging": "production",
    "memory": "troubleshooting",
    "multiprocessing": "recipes",
    "password environment": "security",
    "prometheus": "alerts",
    "pytest": "testing",
    "record size": "performance",
    "retriable errors": "api/errors",
    "secrets": "security",
    "shutdown": "production",
    "spark install": "spark",
    "threads": "consuming",
    "without docker": "testing",
}


@pytest.mark.timeout(300)
def test_search_answers_the_questions_of_readers(site: Path) -> None:
    """The script that browsers run finds these pages. If it cannot read a term of its index, it finds nothing."""
    if shutil.which("node") is None:
        pytest.skip("needs node, which runs the search of the site")
    queries = {**FIRST, **AMONG_THREE}
    command = ["node", str(Path(__file__).with_name("search_worker.js")), str(site)]
    searched = subprocess.run(
        command, input="\n".join(queries), capture_output=True, text=True, timeout=120, check=True
    )
    assert not searched.stderr
    found = {
        query: [page.strip("/") for page in json.loads(line)]
        for query, line in zip(queries, searched.stdout.splitlines(), strict=True)
    }
    wrong = {query: found[query][:3] for query, page in FIRST.items() if found[query][:1] != [page]}
    wrong |= {query: found[query][:3] for query, page in AMONG_THREE.items() if page not in found[query][:3]}
    assert not wrong


@pytest.mark.timeout(300)
def test_names_of_errors_lead_to_the_page_of_errors(site: Path) -> None:
    known = set(re.findall(r"id='?\"?(\w+)", (site / "api" / "errors" / "index.html").read_text(encoding="utf-8")))
    linked = {
        name
        for page in (site / "api").rglob("index.html")
        for name in re.findall(r'href="\.\./errors/#(\w+)"', page.read_text(encoding="utf-8"))
    }
    assert {"ConfigError", "IllegalStateError", "KafkaTimeoutError"} <= linked
    assert linked <= known


@pytest.mark.parametrize("name", ["Producer", "Consumer", "ShareConsumer"])
def test_reference_of_confluent_has_the_methods_of_confluent_kafka(name: str) -> None:
    confluent_kafka = pytest.importorskip("confluent_kafka")
    text = (DOCS / "api" / "confluent.md").read_text(encoding="utf-8")
    listed = re.search(rf"^::: pykclient\.confluent\.{name}\n.*\n.*\n((?: +- \w+\n)+)", text, re.MULTILINE)
    assert listed is not None
    theirs = {method for method in dir(getattr(confluent_kafka, name)) if not method.startswith("_")}
    assert set(re.findall(r"\w+", listed[1])) == theirs


@pytest.mark.timeout(300)
def test_reference_has_every_error(site: Path) -> None:
    page = (site / "api" / "errors" / "index.html").read_text(encoding="utf-8")
    assert [
        name for name, value in vars(errors).items() if is_error(value) and f"<code>{value.__name__}</code>" not in page
    ] == []


def is_error(value: object) -> bool:
    return isinstance(value, type) and issubclass(value, errors.KafkaError)


def test_page_of_errors_is_up_to_date() -> None:
    command = [sys.executable, "tools/errors_reference.py", "docs/api/errors.md", "--check"]
    done = subprocess.run(command, cwd=DOCS.parent, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
