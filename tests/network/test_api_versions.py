"""The API versions that nodes support."""

from __future__ import annotations

import pytest

from pykclient.errors import UnsupportedVersionError
from pykclient.network.cluster_connection_states import ApiVersionRange, ApiVersions, NodeApiVersions
from pykclient.protocol.api_keys import ApiKeys


def test_newest_common_version_is_usable() -> None:
    node = NodeApiVersions({ApiKeys.PRODUCE: ApiVersionRange(4, 7)})
    assert node.latest_usable_version(ApiKeys.PRODUCE) == 7
    assert node.latest_usable_version(ApiKeys.PRODUCE, 3, 5) == 5
    with pytest.raises(UnsupportedVersionError, match="PRODUCE in versions 1 to 3, only 4 to 7"):
        node.latest_usable_version(ApiKeys.PRODUCE, 1, 3)
    with pytest.raises(UnsupportedVersionError, match="PRODUCE in versions 8 to 9"):
        node.latest_usable_version(ApiKeys.PRODUCE, 8, 9)
    with pytest.raises(UnsupportedVersionError, match="does not support FETCH"):
        node.latest_usable_version(ApiKeys.FETCH)


def test_created_node_versions_default_to_ours() -> None:
    node = NodeApiVersions.create([(ApiKeys.FETCH, 0, 4)])
    assert node.latest_usable_version(ApiKeys.METADATA) == ApiKeys.latest_version(ApiKeys.METADATA)
    assert node.api_version(ApiKeys.FETCH) == (0, 4)
    assert "FETCH(1): 0 to 4" in repr(node)


def test_oldest_node_limits_batch_format() -> None:
    versions = ApiVersions()
    assert versions.max_usable_produce_magic == 2
    versions.update("1", NodeApiVersions.create())
    versions.update("2", NodeApiVersions.create([(ApiKeys.PRODUCE, 0, 2)]))
    assert versions.max_usable_produce_magic == 1
    versions.update("3", NodeApiVersions.create([(ApiKeys.PRODUCE, 0, 1)]))
    assert versions.max_usable_produce_magic == 0
    versions.remove("3")
    versions.remove("2")
    versions.remove("2")
    assert versions.max_usable_produce_magic == 2
    assert versions.get("2") is None


def test_features_with_newest_epoch_win() -> None:
    versions = ApiVersions()
    versions.update("1", NodeApiVersions({}, {}, {"transaction.version": 2}, 10))
    versions.update("2", NodeApiVersions({}, {}, {"transaction.version": 1}, 9))
    versions.remove("1")
    info = versions.finalized_features_info
    assert info.finalized_features_epoch == 10
    assert info.finalized_features == {"transaction.version": 2}
