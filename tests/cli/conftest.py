"""One embedded broker for all commands of a file, and the command itself."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from pykclient.testing import EmbeddedCluster
from tests.cli.command import Pykclient


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster]:
    """A broker that creates no topics by itself."""
    with EmbeddedCluster(1, config={"auto.create.topics.enable": False}) as running:
        yield running


@pytest.fixture
def pykclient(cluster: EmbeddedCluster, monkeypatch: pytest.MonkeyPatch, tmp_path: object) -> Pykclient:
    """The command, connected to the cluster, without the settings of the user who runs the tests."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    return Pykclient(cluster.bootstrap_servers)
