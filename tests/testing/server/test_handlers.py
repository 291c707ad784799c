"""Every handler module keeps the promises on which dispatch and error injection rely."""

from __future__ import annotations

from random import Random

import pytest

from pykclient.errors import UnsupportedVersionError
from pykclient.protocol.api_keys import ApiKeys
from pykclient.protocol.headers import encode_response, parse_request, parse_response
from pykclient.protocol.messages.produce import ProduceRequest
from pykclient.testing.handlers import handler
from pykclient.testing.request_channel import _error_codes
from tests.testing.server.plausible import Plausible

API_KEYS = [key for key in ApiKeys.all() if handler(key) is not None]


@pytest.mark.parametrize("api_key", API_KEYS, ids=ApiKeys.name_of)
def test_handlers_can_return_any_error_in_any_version(api_key: int) -> None:
    found = handler(api_key)
    assert found is not None
    for version in range(found.versions[0], found.versions[1] + 1):
        said = False
        for seed in range(20):
            frame = Plausible(Random(seed), []).request(ApiKeys.message_class(api_key), version)
            body = parse_request(frame[4:])[1]
            response = found.error_response(body, 29, "an injected error")
            if response is None:
                assert isinstance(body, ProduceRequest)
                assert body.acks == 0
                continue
            assert isinstance(response, ApiKeys.message_class(api_key, request=False))
            assert set(_error_codes(response)) <= {29}
            try:
                frame = encode_response(response, version, 1).getvalue()
            except UnsupportedVersionError:
                continue  # an empty request, whose response has no field for an error
            said = said or bool(set(_error_codes(parse_response(frame[4:], api_key, version)[1])))
        assert said, f"v{version}"


def test_all_apis_of_clients_and_brokers_have_handlers() -> None:
    served = {ApiKeys.name_of(key) for key in API_KEYS}
    assert served >= {
        *("PRODUCE", "FETCH", "LIST_OFFSETS", "METADATA", "API_VERSIONS", "OFFSET_FOR_LEADER_EPOCH"),
        *("OFFSET_COMMIT", "OFFSET_FETCH", "FIND_COORDINATOR", "JOIN_GROUP", "HEARTBEAT", "LEAVE_GROUP", "SYNC_GROUP"),
        *("DESCRIBE_GROUPS", "LIST_GROUPS", "DELETE_GROUPS", "OFFSET_DELETE", "INIT_PRODUCER_ID"),
        *("CREATE_TOPICS", "DELETE_TOPICS", "CREATE_PARTITIONS", "DELETE_RECORDS", "ELECT_LEADERS"),
        *("DESCRIBE_CONFIGS", "ALTER_CONFIGS", "INCREMENTAL_ALTER_CONFIGS", "DESCRIBE_CLUSTER", "DESCRIBE_LOG_DIRS"),
        *("DESCRIBE_PRODUCERS", "DESCRIBE_TOPIC_PARTITIONS", "LIST_CONFIG_RESOURCES"),
        *("ALTER_PARTITION_REASSIGNMENTS", "LIST_PARTITION_REASSIGNMENTS"),
        *("DESCRIBE_CLIENT_QUOTAS", "ALTER_CLIENT_QUOTAS"),
        *("LEADER_AND_ISR", "STOP_REPLICA", "UPDATE_METADATA", "CONTROLLED_SHUTDOWN", "ALTER_PARTITION"),
        "ALLOCATE_PRODUCER_IDS",
    }
