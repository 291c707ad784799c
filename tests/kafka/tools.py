"""Kafka's own command-line tools, as an independent reader and writer of our data."""

from __future__ import annotations

import subprocess
from pathlib import Path

from tests.kafka import artifacts

_LOG4J = Path(__file__).with_name("log4j2.properties")


class ToolError(AssertionError):
    """A tool failed or took too long; the message has its stderr."""


def run_tool(main_class: str, *args: str, stdin: bytes = b"", timeout_s: float = 120.0) -> bytes:
    """Run a main class of Kafka's jars and return its stdout. Raises ToolError with its stderr."""
    command = [artifacts.java_tool(), "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx256m"]
    command += artifacts.class_data()
    command += [f"-Dlog4j2.configurationFile={_LOG4J}", "-cp", artifacts.classpath(), main_class, *args]
    try:
        done = subprocess.run(command, input=stdin, capture_output=True, timeout=timeout_s, check=False)
    except subprocess.TimeoutExpired as error:
        raise ToolError(f"{main_class} took more than {timeout_s} s:\n{_text(error.stderr)}") from None
    if done.returncode:
        raise ToolError(f"{main_class} ended with code {done.returncode}:\n{_text(done.stderr)}{_text(done.stdout)}")
    return done.stdout


def console_producer(bootstrap_servers: str, topic: str, lines: bytes, *args: str, timeout_s: float = 120.0) -> None:
    """Produce one record per line of ``lines``.

    ``args`` are those of kafka-console-producer (``--reader-property`` ...).
    """
    main_class = "org.apache.kafka.tools.ConsoleProducer"
    run_tool(
        main_class, "--bootstrap-server", bootstrap_servers, "--topic", topic, *args, stdin=lines, timeout_s=timeout_s
    )


def console_consumer(
    bootstrap_servers: str, topic: str, records: int, *args: str, timeout_s: float = 120.0
) -> list[bytes]:
    """Read ``records`` records from the beginning, one per line; ``args`` are those of kafka-console-consumer."""
    command = ["--bootstrap-server", bootstrap_servers, "--topic", topic, "--from-beginning"]
    command += ["--max-messages", str(records), *args]
    output = run_tool("org.apache.kafka.tools.consumer.ConsoleConsumer", *command, timeout_s=timeout_s)
    return output.splitlines()


def dump_log(segment: Path, *args: str) -> str:
    """Return the batches (with ``--print-data-log``, the records too) of a segment, as kafka-dump-log prints them."""
    return run_tool("org.apache.kafka.tools.DumpLogSegments", "--files", str(segment), *args).decode()


def _text(output: bytes | None) -> str:
    return (output or b"").decode(errors="replace")[-8000:]
