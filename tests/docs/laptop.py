"""The machine of a new user: a checkout and no cluster, on which the commands of the pages run in order."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.coverage_by_package import unmeasured
from tests.docs.pages import CHECKOUT, Page, runs_here
from tests.docs.shown import differs
from tests.tools import tool
from trainer.spares import SWITCH as SPARES

# Without the variables that a make, if it runs this suite, passes to other makes.
_ENVIRONMENT = {
    name: value for name, value in unmeasured(os.environ).items() if not name.startswith(("MAKE", "MFLAGS", "SLIPWAY"))
}
# Shown, but not run: `make test` runs this test itself, and `make setup` created the environment of this test.
NOT_RUN = ("make setup", "make test")
# A training that several pages show. It runs once.
_SHARED = "make quickstart"
# The longest time until a program in the background has printed what the page shows.
_START_SECONDS = 120


@dataclass
class FreshMachine:
    """`folder` is the reader's checkout. It consists of links, so that the reader's files are not in this checkout."""

    folder: Path
    home: Path
    printed: dict[str, str] = field(default_factory=dict)
    """The last output of each command."""
    followed: set[str] = field(default_factory=set)

    @classmethod
    def set_up(cls, root: Path) -> FreshMachine:
        folder = root / "slipway"
        folder.mkdir()
        for entry in CHECKOUT.iterdir():
            if entry.name not in (".git", ".venv"):
                (folder / entry.name).symlink_to(entry)
        # Use the environment that `make setup` created. The file .done prevents that it is created again.
        (folder / ".venv").mkdir()
        for entry in (CHECKOUT / ".venv").iterdir():
            if entry.name != ".done":
                (folder / ".venv" / entry.name).symlink_to(entry)
        (folder / ".venv" / ".done").touch()
        return cls(folder, root / "home")

    def run(self, command: str, **environment: str) -> str:
        """Run the command and return its output: stdout and stderr in the order in which they are written."""
        if command == _SHARED and command in self.printed:
            return self.printed[command]
        done = subprocess.run(command, text=True, **self._options(command, environment))
        printed: str = done.stdout
        self.printed[command] = printed
        return printed

    @contextlib.contextmanager
    def running(self, command: str, shown: str) -> Iterator[str]:
        """Run the command in the background, after it has printed what the page shows, until the end of the context.

        Yield the difference from the page if it prints something else. Then it gets Ctrl-C, and must end without an
        error.
        """
        printed = ""
        process = subprocess.Popen(f"exec {command}", text=True, start_new_session=True, **self._options(command, {}))
        assert process.stdout is not None

        def read() -> None:
            nonlocal printed
            for line in process.stdout or ():
                printed += line

        reader = threading.Thread(target=read)
        reader.start()
        try:
            deadline = time.monotonic() + _START_SECONDS
            while differs(shown, printed) and process.poll() is None and time.monotonic() < deadline:
                time.sleep(0.1)
            if process.poll() is not None:
                reader.join()  # it has now read everything
            yield differs(shown, printed)
        finally:
            process.send_signal(signal.SIGINT)
            code = process.wait(30)
            reader.join()
            process.stdout.close()
        assert code == 0, printed

    def _options(self, command: str, environment: dict[str, str]) -> dict[str, Any]:
        """Return how a command of the reader starts."""
        tools = [str(tool(name).parent) for name in ("helm", "kubectl") if f"{name} " in f"{command} helm "]
        path = os.pathsep.join([str(CHECKOUT / ".venv/bin"), *tools, os.environ["PATH"]])
        return {
            "shell": True,
            "cwd": self.folder,
            "env": {
                **_ENVIRONMENT,
                **{"PATH": path, "SLIPWAY_HOME": str(self.home), "KUBECONFIG": os.devnull},
                # Spare processes import JAX for seconds in each training, and no page shows them.
                **{"COLUMNS": "100", SPARES: "0", **environment},
            },
            "stdin": subprocess.DEVNULL,
            "stdout": subprocess.PIPE,
            "stderr": subprocess.STDOUT,
        }

    def write(self, name: str, text: str) -> None:
        """Write a file of the reader."""
        file = self.folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        assert file.parent.resolve().is_relative_to(self.folder.resolve()), f"{name} would be written to the checkout"
        file.write_text(text, encoding="utf-8")

    def follow(self, page: Page) -> None:
        """Run the commands of the page once, from top to bottom. Fails with the output that differs from the page."""
        if page.name in self.followed:
            return
        self.followed.add(page.name)
        with contextlib.ExitStack() as background:
            for block in page.blocks:
                if block.file:
                    self.write(block.file, block.text)
                if not runs_here(block):
                    continue
                for example in block.examples:
                    if example.command in NOT_RUN:
                        continue
                    if "background" in block.options:
                        difference = background.enter_context(self.running(example.command, example.shown))
                    else:
                        difference = differs(example.shown, self.run(example.command))
                    assert not difference, f"{page.name}, line {block.line}: $ {example.command}\n{difference}"
