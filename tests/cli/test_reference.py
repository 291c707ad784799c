"""docs/cli.md has the commands as they are, and every command has what the house asks for."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from pykclient.cli.app import COMMANDS, app
from pykclient.cli.main import main

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "cli.md"


def commands() -> Iterator[tuple[str, click.Command]]:
    """Yield each command that does something, with its words."""
    context = click.Context(app, info_name="pykclient")
    for name in COMMANDS:
        command = app.get_command(context, name)
        assert command is not None
        if isinstance(command, click.Group):
            yield from ((f"{name} {inner}", found) for inner, found in command.commands.items())
        else:
            yield name, command


def test_cli_reference_is_up_to_date(tmp_path: Path) -> None:
    def run(*words: str) -> int:
        command = [sys.executable, str(ROOT / "tools" / "cli_reference.py"), *words]
        return subprocess.run(command, cwd=ROOT, check=False, timeout=120).returncode

    assert run("--check", str(PAGE)) == 0, "python tools/cli_reference.py docs/cli.md"
    copy = tmp_path / "copy.md"
    copy.write_text(PAGE.read_text().replace("### consume", "### devour"))
    assert run("--check", str(copy)) == 1
    assert run(str(copy)) == 0
    assert copy.read_text() == PAGE.read_text()


@pytest.mark.parametrize(("words", "command"), [pytest.param(*found, id=found[0]) for found in commands()])
def test_every_command_has_help(words: str, command: click.Command, capsys: pytest.CaptureFixture[str]) -> None:
    assert command.help
    assert all(option.help for option in command.params if isinstance(option, click.Option))
    assert main([*words.split(), "--help"]) == 0
    help_text = capsys.readouterr().out
    assert help_text.startswith(f"Usage: pykclient {words}")
    rows = help_text.partition("Options:\n")[2].partition("\n\n")[0].splitlines()
    assert all(row.lstrip().startswith("-") or row.startswith("    ") for row in rows), "only options, no arguments"
    assert main([*words.split(), "--no-such-option"]) == 2
    assert "--no-such-option" in capsys.readouterr().err


def test_heavy_modules_are_imported_on_first_use() -> None:
    ours = [f"pykclient.{name}" for name in ("admin", "consumer", "network", "producer", "testing")]
    heavy = {"numpy", "pyarrow", "rich", *ours}
    program = f"import sys; from pykclient.cli.main import main; main(['--help']); print({heavy} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "set()"


def test_error_names_missing_extra() -> None:
    program = "import sys; sys.modules['click'] = None; from pykclient.cli.main import main; sys.exit(main(['--help']))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert "pip install 'pykclient[cli]'" in done.stderr
    assert "Traceback" not in done.stderr
