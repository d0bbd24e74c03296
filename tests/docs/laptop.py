"""A stranger's machine: a checkout, no cluster, and the commands of the pages typed one after the other."""

from __future__ import annotations

import os
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

from tests.coverage_by_package import unmeasured
from tests.docs.pages import CHECKOUT, Page, runs_here
from tests.docs.shown import differs
from tests.tools import tool

# Without what a make that runs this suite tells the makes below it.
_ENVIRONMENT = {
    name: value for name, value in unmeasured(os.environ).items() if not name.startswith(("MAKE", "MFLAGS", "SLIPWAY"))
}
# Shown, and not run by what `make test` runs itself, or what has made the environment of this test.
NOT_RUN = ("make setup", "make test")
# A training that several pages show; it is run once.
_SHARED = "make quickstart"


@dataclass
class FreshMachine:
    """`folder` is the reader's: a checkout by links, so that files of the reader's own do not land in this one."""

    folder: Path
    home: Path
    printed: dict[str, str] = field(default_factory=dict)
    followed: set[str] = field(default_factory=set)

    @classmethod
    def set_up(cls, root: Path) -> FreshMachine:
        folder = root / "slipway"
        folder.mkdir()
        for entry in CHECKOUT.iterdir():
            if entry.name not in (".git", ".venv"):
                (folder / entry.name).symlink_to(entry)
        # The environment that this runs in is the one that `make setup` has made; nothing here makes it anew.
        (folder / ".venv").mkdir()
        for entry in (CHECKOUT / ".venv").iterdir():
            if entry.name != ".done":
                (folder / ".venv" / entry.name).symlink_to(entry)
        (folder / ".venv" / ".done").touch()
        return cls(folder, root / "home")

    def run(self, command: str, **environment: str) -> str:
        """What it prints, stdout and stderr as they come."""
        if command in self.printed:
            return self.printed[command]
        tools = [str(tool(name).parent) for name in ("helm", "kubectl") if f"{name} " in f"{command} helm "]
        path = os.pathsep.join([str(CHECKOUT / ".venv/bin"), *tools, os.environ["PATH"]])
        done = subprocess.run(
            command,
            shell=True,
            cwd=self.folder,
            env={
                **_ENVIRONMENT,
                **{"PATH": path, "SLIPWAY_HOME": str(self.home), "KUBECONFIG": os.devnull},
                **{"COLUMNS": "100", **environment},
            },
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        if command == _SHARED:
            self.printed[command] = done.stdout
        return done.stdout

    def write(self, name: str, text: str) -> None:
        """A file of the reader's."""
        file = self.folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        assert file.parent.resolve().is_relative_to(self.folder.resolve()), f"{name} would land in the checkout"
        file.write_text(text, encoding="utf-8")

    def follow(self, page: Page) -> None:
        """Do what the page says, from top to bottom, once; fails with what is not as shown."""
        if page.name in self.followed:
            return
        self.followed.add(page.name)
        for block in page.blocks:
            if block.file:
                self.write(block.file, block.text)
            if not runs_here(block):
                continue
            for example in block.examples:
                if example.command in NOT_RUN:
                    continue
                said = differs(example.shown, self.run(example.command))
                assert not said, f"{page.name}, line {block.line}: $ {example.command}\n{said}"
