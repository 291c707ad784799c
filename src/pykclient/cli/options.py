"""The options that all commands with a connection share, and the clients that they make."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

import click

from pykclient.cli import settings
from pykclient.cli.values import DURATION

if TYPE_CHECKING:
    from pykclient.admin.admin import Admin
    from pykclient.cli.column_consumer import ColumnConsumer
    from pykclient.producer.kafka_producer import KafkaProducer

#: The time for one call to the cluster. Somebody waits at a terminal, so it is shorter than Java's minute.
_DEFAULT_TIMEOUT_MS = 15_000

_SECTION: Final = "Connection and output"


class Session:
    """The options before and after the command, and the configuration that they amount to. Thread: owner."""

    def __init__(self) -> None:
        self.bootstrap_servers: str | None = None
        self.config_path: str | None = None
        self.given: dict[str, str] = {}
        self.timeout_ms = _DEFAULT_TIMEOUT_MS
        self.is_json = False
        self.is_debug = False
        self.on_level: Callable[[int], None] = lambda _: None
        self._settings: dict[str, str] | None = None

    def settings(self) -> dict[str, str]:
        """Return the keys that were given, by dotted name: from the file, the environment, and the command line.

        Raises:
            ConfigError: a key is unknown, or the file is wrong.
            click.UsageError: a secret stands on the command line.
        """
        if self._settings is None:
            given = dict(self.given)
            if self.bootstrap_servers is not None:
                given["bootstrap.servers"] = self.bootstrap_servers
            self._settings = settings.merged(self.config_path, given)
        return self._settings

    def admin(self) -> Admin:
        """Return an admin client."""
        from pykclient.admin.admin import Admin
        from pykclient.config.admin_config import AdminClientConfig

        return Admin(settings.for_client(AdminClientConfig, self.settings(), self._waits()))

    def consumer(self, **overrides: Any) -> ColumnConsumer:
        """Return a consumer of bytes. ``overrides`` win over all settings."""
        from pykclient.cli.column_consumer import ColumnConsumer

        return ColumnConsumer(**self.consumer_settings(**overrides))

    def consumer_settings(self, **overrides: Any) -> dict[str, Any]:
        """Return the settings of a consumer, as keyword arguments."""
        from pykclient.config.consumer_config import ConsumerConfig

        chosen = settings.for_client(ConsumerConfig, self.settings(), self._waits(), overrides)
        return {key.replace(".", "_"): value for key, value in chosen.items()}

    def producer(self, **overrides: Any) -> KafkaProducer[bytes, bytes]:
        """Return a producer of bytes. ``overrides`` win over all settings."""
        from pykclient.config.producer_config import ProducerConfig
        from pykclient.producer.kafka_producer import KafkaProducer

        waits = {"max.block.ms": self.timeout_ms}
        chosen = settings.for_client(ProducerConfig, self.settings(), waits, overrides)
        return KafkaProducer(chosen)

    def _waits(self) -> dict[str, Any]:
        return {"default.api.timeout.ms": self.timeout_ms, "request.timeout.ms": min(30_000, self.timeout_ms)}


def _remember(context: click.Context, parameter: click.Parameter, value: Any) -> None:
    session = context.ensure_object(Session)
    match parameter.name:
        case "bootstrap_servers" if value is not None:
            session.bootstrap_servers = value
        case "config" if value is not None:
            session.config_path = value
        case "set" if value:
            session.given.update(settings.assignments(value))
        case "timeout" if value is not None:
            session.timeout_ms = max(1, value)
        case "json" if value:
            session.is_json = True
        case "verbose" if value:
            session.on_level(logging.INFO)
        case "debug" if value:
            session.is_debug = True
            session.on_level(logging.DEBUG)


def common_options() -> list[click.Parameter]:
    """Return new objects of the options that may stand before and after a command."""

    def option(*names: str, **facts: Any) -> click.Option:
        return click.Option(names, expose_value=False, callback=_remember, **facts)

    return [
        option(
            "-b", "--bootstrap-servers", metavar="HOST:PORT,...", help="Brokers to start from. Default: localhost:9092."
        ),
        option(
            "-F",
            "--config",
            type=click.Path(exists=True, dir_okay=False),
            help="A file with settings: .properties as Java's, or .toml.",
        ),
        option("-X", "set", multiple=True, metavar="KEY=VALUE", help="A setting, such as client.id=me. No secrets."),
        option("--timeout", type=DURATION, metavar="TIME", help="The longest wait for an answer. Default: 15s."),
        option("--json", is_flag=True, help="Write JSON to stdout."),
        option("-v", "--verbose", is_flag=True, help="Log what the client does."),
        option("--debug", is_flag=True, help="Log everything; show tracebacks."),
    ]


_COMMON: Final = frozenset(option.name for option in common_options())


def format_options_in_sections(command: click.Command, ctx: click.Context, formatter: click.HelpFormatter) -> None:
    """Write the help of options: the command's own, then the common ones."""
    own: list[tuple[str, str]] = []
    common: list[tuple[str, str]] = []
    for parameter in command.get_params(ctx):
        if (record := parameter.get_help_record(ctx)) is not None:
            (common if parameter.name in _COMMON else own).append(record)
    for title, records in (("Options", own), (_SECTION, common)):
        if records:
            with formatter.section(title):
                formatter.write_dl(records)


class Command(click.Command):
    """A command with a connection to a cluster."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        taken = {name for parameter in self.params for name in parameter.opts}
        self.params += [option for option in common_options() if not taken & {*option.opts}]

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        format_options_in_sections(self, ctx, formatter)


class CommandGroup(click.Group):
    """A command with subcommands, before which the common options may stand, too."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.params += common_options()

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        format_options_in_sections(self, ctx, formatter)
        self.format_commands(ctx, formatter)


pass_session = click.make_pass_decorator(Session, ensure=True)
