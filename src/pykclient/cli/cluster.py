"""``pykclient cluster``: brokers, features, the quorum of controllers, log directories."""

from __future__ import annotations

import click

from pykclient.cli.console import emit, emit_fields, note_failures
from pykclient.cli.options import CommandGroup
from pykclient.cli.session import Session


@click.group(cls=CommandGroup)
def cluster() -> None:
    """Show brokers, features, the quorum of controllers and log directories."""


@cluster.command()
def describe(session: Session, /) -> None:
    """Show the cluster's id and its brokers.

    With KRaft, the controller is the broker that answers for it.
    """
    with session.admin() as admin:
        described = admin.describe_cluster()
    controller = None if described.controller is None else described.controller.id
    brokers = [
        {
            "broker": node.id,
            "host": node.host,
            "port": node.port,
            "rack": node.rack,
            "controller": node.id == controller,
        }
        for node in sorted(described.nodes, key=lambda node: node.id)
    ]
    if session.is_json:
        emit_fields(session, {"cluster_id": described.cluster_id, "controller": controller, "brokers": brokers})
        return
    emit_fields(session, {"cluster_id": described.cluster_id})
    click.echo()
    emit(session, brokers, ("broker", "host", "port", "rack", "controller"))


@cluster.command()
def features(session: Session, /) -> None:
    """Show the levels of the cluster's features: those in effect, and those that the brokers support."""
    with session.admin() as admin:
        found = admin.describe_features()
    rows = [
        {
            "feature": name,
            "level": found.finalized[name][1] if name in found.finalized else None,
            "lowest": lowest,
            "highest": highest,
        }
        for name, (lowest, highest) in sorted(found.supported.items())
    ]
    emit(session, rows, ("feature", "level", "lowest", "highest"))


@cluster.command()
def quorum(session: Session, /) -> None:
    """Show the quorum of controllers: its leader, its voters and observers, and how far each is behind."""
    with session.admin() as admin:
        info = admin.describe_metadata_quorum()
    leader_end = next((voter.log_end_offset for voter in info.voters if voter.replica_id == info.leader_id), None)
    rows = [
        {
            "node": replica.replica_id,
            "role": "leader" if replica.replica_id == info.leader_id else role,
            "log_end": replica.log_end_offset,
            "lag": None if leader_end is None else max(0, leader_end - replica.log_end_offset),
            "directory": None if replica.directory_id is None else str(replica.directory_id),
        }
        for role, replicas in (("voter", info.voters), ("observer", info.observers))
        for replica in replicas
    ]
    emit(session, rows, ("node", "role", "log_end", "lag", "directory"))


@cluster.command("log-dirs")
@click.argument("brokers", nargs=-1, type=int, metavar="[BROKER...]")
def log_dirs(session: Session, /, brokers: tuple[int, ...]) -> int:
    """Show the log directories of brokers (default: all) and their sizes in bytes."""
    with session.admin() as admin:
        ids = brokers or [node.id for node in admin.describe_cluster().nodes]
        results = admin.describe_log_dirs(ids)
    rows = [
        {
            "broker": broker,
            "path": path,
            "replicas": len(found.replicas),
            "replica_bytes": sum(replica.size_bytes for replica in found.replicas.values()),
            "total_bytes": None if found.total_bytes < 0 else found.total_bytes,
            "usable_bytes": None if found.usable_bytes < 0 else found.usable_bytes,
            "error": None if found.error is None else str(found.error),
        }
        for broker, directories in sorted(results.succeeded.items())
        for path, found in sorted(directories.items())
    ]
    emit(session, rows, ("broker", "path", "replicas", "replica_bytes", "total_bytes", "usable_bytes", "error"))
    return note_failures(results, lambda broker: f"broker {broker}")
