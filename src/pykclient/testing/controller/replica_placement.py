"""The placement of a topic's partitions on brokers (Java: AdminUtils)."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Final

from pykclient.errors import InvalidPartitionsError, InvalidReplicationFactorError, PolicyViolationError
from pykclient.types import Node

#: Java's ReplicationControlManager creates no more for a request.
MAX_PARTITIONS_PER_BATCH: Final = 10_000
TOO_MANY_PARTITIONS: Final = "Excessively large number of partitions per request."


def assign_replicas_to_brokers(
    brokers: Sequence[Node],
    num_partitions: int,
    replication_factor: int,
    rng: random.Random,
    *,
    start_partition: int = 0,
    start_index: int | None = None,
) -> dict[int, tuple[int, ...]]:
    """Return the replicas of each partition.

    Leaders rotate over the brokers, and the other replicas of a broker's leaders spread over the other brokers. If all
    brokers have racks, the replicas of a partition are on different racks as far as possible. The first partition
    starts at ``start_index``, or at a random broker.

    Raises:
        InvalidPartitionsError, InvalidReplicationFactorError, PolicyViolationError: the numbers are not possible.
    """
    if num_partitions <= 0:
        raise InvalidPartitionsError("Number of partitions was set to an invalid non-positive value.")
    if num_partitions > MAX_PARTITIONS_PER_BATCH:
        raise PolicyViolationError(TOO_MANY_PARTITIONS)
    if replication_factor <= 0:
        raise InvalidReplicationFactorError("Replication factor must be larger than 0, or -1 to use the default value.")
    if replication_factor > len(brokers):
        raise InvalidReplicationFactorError(
            f"Unable to replicate the partition {replication_factor} time(s): The target replication factor of "
            f"{replication_factor} cannot be reached because only {len(brokers)} broker(s) are registered "
            "or some brokers have all their log directories cordoned."
        )
    racks = {broker.id: broker.rack for broker in brokers}
    if None in racks.values():
        ids, rack_count = sorted(racks), 1
        racks = dict.fromkeys(ids, None)
    else:
        ids = rack_alternated_broker_list(brokers)
        rack_count = len(set(racks.values()))
    start = rng.randrange(len(ids)) if start_index is None else start_index
    shift = rng.randrange(len(ids)) if start_index is None else start_index
    assignment: dict[int, tuple[int, ...]] = {}
    for partition in range(start_partition, start_partition + num_partitions):
        if partition > 0 and partition % len(ids) == 0:
            shift += 1
        first = (partition + start) % len(ids)
        assignment[partition] = _replicas(ids, racks, first, shift * rack_count, replication_factor)
    return assignment


def _replicas(
    ids: Sequence[int], racks: dict[int, str | None], first: int, shift: int, replication_factor: int
) -> tuple[int, ...]:
    replicas = [ids[first]]
    rack_count = len(set(racks.values()))
    used_racks = {racks[ids[first]]}
    step = 0
    while len(replicas) < replication_factor:
        id = ids[_replica_index(first, shift, step, len(ids))]
        step += 1
        # Use a rack again only when all racks have been used.
        if id not in replicas and (racks[id] not in used_racks or len(used_racks) == rack_count):
            replicas.append(id)
            used_racks.add(racks[id])
    return tuple(replicas)


def _replica_index(first: int, shift: int, step: int, brokers: int) -> int:
    return (first + 1 + (shift + step) % (brokers - 1)) % brokers


def rack_alternated_broker_list(brokers: Sequence[Node]) -> list[int]:
    """Return one broker of each rack in turn, with racks in the order of their names."""
    by_rack: dict[str, list[int]] = {}
    for broker in sorted(brokers, key=lambda broker: broker.id):
        by_rack.setdefault(broker.rack or "", []).append(broker.id)
    columns = [by_rack[rack] for rack in sorted(by_rack)]
    longest = max(map(len, columns), default=0)
    return [column[row] for row in range(longest) for column in columns if row < len(column)]
