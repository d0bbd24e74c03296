"""The README's commands are run and their output compared, so that they cannot rot."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

from launcher.cli import VERBS
from tests.tools import tool

# Without what a make that runs this suite tells the makes below it.
ENVIRONMENT = {name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "MFLAGS"))}

CHECKOUT = Path(__file__).parents[1]
README = (CHECKOUT / "README.md").read_text(encoding="utf-8")


def examples() -> list[tuple[str, str]]:
    """Every `$ command` of the console blocks, with the output shown under it."""
    found = []
    for block in re.findall(r"^```console\n(.*?)^```$", README, re.MULTILINE | re.DOTALL):
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, _, output = part.partition("\n")
            found.append((command, output))
    return found


def pattern(shown: str) -> re.Pattern[str]:
    """`...` alone on a line stands for any lines, within a line for any text."""
    parts = re.split(r"(?m)(^\.\.\.\n|\.\.\.)", shown)
    return re.compile(
        "".join(
            r"(?:.*\n)*?" if part == "...\n" else r"[^\n]*?" if part == "..." else re.escape(part) for part in parts
        )
    )


def test_the_first_screen_shows_the_two_commands() -> None:
    assert [command for command, _ in examples()][:2] == ["make quickstart", "make test"]
    assert README[: README.index("$ make test")].count("\n") < 40


# `make test` is what runs this.
EXAMPLES = [pair for pair in examples() if pair[0] != "make test"]


@pytest.mark.parametrize(("command", "shown"), EXAMPLES, ids=[command for command, _ in EXAMPLES])
def test_a_command_prints_what_the_readme_shows(command: str, shown: str, tmp_path: Path) -> None:
    path = os.pathsep.join([str(CHECKOUT / ".venv/bin"), str(tool("helm").parent), os.environ["PATH"]])
    done = subprocess.run(
        command,
        shell=True,
        cwd=CHECKOUT,
        env={**ENVIRONMENT, "PATH": path, "SLIPWAY_HOME": str(tmp_path)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert pattern(shown).fullmatch(done.stdout), done.stdout


def test_make_test_is_this_very_suite() -> None:
    done = subprocess.run(
        ["make", "--dry-run", "--always-make", "test"],
        cwd=CHECKOUT,
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.rstrip().endswith(".venv/bin/python -m pytest")


def test_every_verb_is_in_the_readme() -> None:
    for verb in VERBS:
        assert re.search(rf"^\|.*`{verb} ?[^`]*`", README, re.MULTILINE), f"README does not tell of launcher {verb}"
