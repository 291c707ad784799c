"""``pykclient schemas``: list, get, register and check the schemas of a registry."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from pykclient.cli.console import emit, emit_fields
from pykclient.cli.formats import registry_client
from pykclient.cli.options import CommandGroup, together
from pykclient.cli.problems import BadInputError, CommandError
from pykclient.cli.session import Session

if TYPE_CHECKING:
    from pykclient.schema_registry import Schema, SchemaRegistryClient


_URL: Final = "SCHEMA_REGISTRY_URL"
_KINDS: Final = click.Choice(["AVRO", "JSON", "PROTOBUF"])
_TYPES: Final = {".avsc": "AVRO", ".json": "JSON"}


#: The options that name the registry.
_registry_options = together(
    click.option("--url", metavar="URL", help=f"The registry's address; {_URL} in the environment otherwise."),
    click.option(
        "--registry-config",
        metavar="FILE",
        type=click.Path(exists=True, dir_okay=False, path_type=Path),
        help="A file with settings of the registry's client, such as basic.auth.user.info.",
    ),
)
#: What a schema for a subject is read from.
_schema_parameters = together(
    click.argument("subject"),
    click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path)),
    click.option("--type", "kind", type=_KINDS, help="Default: by the file's name."),
    click.option("--reference", multiple=True, metavar="NAME=SUBJECT:VERSION", help="A schema that FILE refers to."),
    _registry_options,
)


def _client(session: Session, url: str | None, file: Path | None) -> SchemaRegistryClient:
    # No retries: a registry that does not answer would take four times as long, and the user can repeat the command.
    return registry_client(url, file, "--url", session.timeout_ms, **{"max.retries": 0})


def _schema(file: Path, kind: str | None, reference: tuple[str, ...]) -> Schema:
    from pykclient.schema_registry import Schema, SchemaReference

    chosen = kind or _TYPES.get(file.suffix)
    if chosen is None:
        raise BadInputError(f"{file}: say with --type what it is: AVRO, JSON or PROTOBUF")
    found = []
    for text in reference:
        name, _, rest = text.partition("=")
        subject, _, version = rest.rpartition(":")
        if not name or not subject or not version.isdigit():
            raise BadInputError(f"--reference {text}: it must be NAME=SUBJECT:VERSION")
        found.append(SchemaReference(name, subject, int(version)))
    return Schema(file.read_text(encoding="utf-8"), chosen, found)


@click.group(cls=CommandGroup)
def schemas() -> None:
    """List, show, register and check the schemas of a registry."""


@schemas.command("list")
@click.argument("prefix", required=False, metavar="[PREFIX]")
@_registry_options
def list_schemas(session: Session, /, prefix: str | None, url: str | None, registry_config: Path | None) -> None:
    """List subjects with their latest versions, or those whose names begin with PREFIX."""
    rows = []
    with _client(session, url, registry_config) as client:
        for subject in client.get_subjects(prefix):
            latest = client.get_latest_version(subject)
            kind = latest.schema.schema_type
            rows.append({"subject": subject, "version": latest.version, "id": latest.schema_id, "type": kind})
    emit(session, rows, ("subject", "version", "id", "type"))


@schemas.command()
@click.argument("name", metavar="SUBJECT|ID")
@click.option("--version", metavar="N", type=click.IntRange(1), help="A version of the subject; default: the latest.")
@_registry_options
def get(session: Session, /, name: str, version: int | None, url: str | None, registry_config: Path | None) -> None:
    """Print the schema of a SUBJECT, or the one with an ID. With --json, also its id, version and type."""
    with _client(session, url, registry_config) as client:
        if name.isdigit():
            found = {"id": int(name), **client.get_schema(int(name)).to_dict()}
        else:
            found = client.get_version(name, "latest" if version is None else version).to_dict()
    if session.is_json:
        emit_fields(session, found)
    else:
        click.echo(found["schema"])


@schemas.command()
@_schema_parameters
def register(session: Session, /, subject: str, url: str | None, registry_config: Path | None, **schema: Any) -> None:
    """Register the schema in FILE for a SUBJECT, such as orders-value, and print its id."""
    with _client(session, url, registry_config) as client:
        number = client.register_schema(subject, _schema(**schema))
    emit_fields(session, {"subject": subject, "id": number})


@schemas.command()
@_schema_parameters
def check(session: Session, /, subject: str, url: str | None, registry_config: Path | None, **schema: Any) -> None:
    """Check whether the schema in FILE is compatible with those of a SUBJECT; exit with 1 if not."""
    with _client(session, url, registry_config) as client:
        problems = client.compatibility_problems(subject, _schema(**schema), None)
    if session.is_json:
        emit_fields(session, {"subject": subject, "compatible": not problems, "problems": problems})
    for problem in problems:
        click.echo(problem, err=True)
    if problems:
        raise CommandError(f"{schema['file']} is not compatible with the versions of {subject}")
    if not session.is_json:
        click.echo(f"{schema['file']} is compatible with the versions of {subject}")
