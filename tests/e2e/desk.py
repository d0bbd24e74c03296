"""The launcher as a user has it, in a process of its own, and waits that say what they waited for."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import urllib3

from tests.cluster.api import Api, ApiError
from tests.e2e.settings import Settings

ROOT = Path(__file__).resolve().parents[2]
POLL_SECONDS = 1.0
COMMAND_SECONDS = 300.0
_SILENCE = ("does not answer", "cannot answer now")


class WaitedInVain(AssertionError):
    """Something did not happen in time; the text says what, what was seen last, and why by `launcher explain`."""


class Silent(AssertionError):
    """The API server did not answer the launcher; the text is what the launcher said. In a wait, it asks again."""


@dataclass(frozen=True)
class Done:
    """A command that has ended: what was typed, its exit code, stdout and stderr."""

    command: str
    code: int
    out: str
    err: str

    def __str__(self) -> str:
        return f"{self.command}\nexit code {self.code}\n{self.out}{self.err}"


@dataclass
class Desk:
    """Somebody who types commands, with the kubeconfig and the context of `settings`."""

    settings: Settings
    folder: Path
    helm: Path
    api: Api = field(repr=False)

    @property
    def env(self) -> dict[str, str]:
        given = {
            "KUBECONFIG": self.settings.kubeconfig,
            "SLIPWAY_HOME": str(self.folder / "home"),
            "SLIPWAY_HELM": str(self.helm),
            "COLUMNS": "200",
            "PYTHONPATH": str(ROOT),
        }
        rest = {key: value for key, value in os.environ.items() if key not in ("KUBECONFIG", "CI")}
        return {**rest, **{key: value for key, value in given.items() if value}}

    def launcher(self, *arguments: str, seconds: float = COMMAND_SECONDS) -> Done:
        """`launcher …`; its context is the suite's."""
        context = ["--context", self.settings.context] if self.settings.context and arguments[0] != "values" else []
        command = [sys.executable, "-m", "launcher", *arguments, *context]
        return self._run(command, f"launcher {' '.join(arguments)}", seconds)

    def ask(self, *arguments: str, seconds: float = COMMAND_SECONDS) -> Any:
        """What `launcher … -o json` prints; the command has to succeed."""
        done = self.launcher(*arguments, "-o", "json", seconds=seconds)
        if done.code == 1 and any(words in done.err for words in _SILENCE):
            raise Silent(str(done))
        assert done.code == 0, str(done)
        return json.loads(done.out)

    def plain_helm(self, *arguments: str, seconds: float = COMMAND_SECONDS) -> Done:
        """`helm …`, for what a user does without the launcher."""
        context = ["--kube-context", self.settings.context] if self.settings.context else []
        return self._run([str(self.helm), *arguments, *context], f"helm {' '.join(arguments)}", seconds)

    @contextlib.contextmanager
    def following(self, *arguments: str) -> Iterator[Path]:
        """A `launcher logs -f …` whose lines are in the file that is given; it is told to stop at the end."""
        file = Path(tempfile.mkstemp(dir=self.folder, suffix=".log")[1])
        context = ["--context", self.settings.context] if self.settings.context else []
        with file.open("w") as out:
            process = self._start([sys.executable, "-m", "launcher", *arguments, *context], out)
        try:
            yield file
        finally:
            _end(process)

    def values(self, name: str, tree: dict[str, Any]) -> str:
        """A values file with this content."""
        file = self.folder / f"{name}.yaml"
        file.write_text(json.dumps(tree, indent=1))  # JSON is YAML
        return str(file)

    def wait(
        self,
        what: str,
        look: Callable[[], Any],
        seconds: float,
        *,
        run: str = "",
        namespace: str = "",
        seen: Callable[[], str] | None = None,
        never: Callable[[], str] | None = None,
    ) -> Any:
        """What `look` returns once it is true, within `seconds` times the suite's patience.

        An API server that does not answer for a moment is asked again. `never` says why it cannot happen any more, or
        "". Raises WaitedInVain: for a run with what `launcher explain` says of it.
        """
        limit = seconds * self.settings.patience
        begun = time.monotonic()
        trouble = ""
        while time.monotonic() - begun < limit:
            try:
                if found := look():
                    return found
                if never is not None and (why := never()):
                    raise WaitedInVain(self._in_vain(what, time.monotonic() - begun, why, run, namespace, seen))
                trouble = ""
            except (urllib3.exceptions.HTTPError, ApiError, Silent) as error:
                if isinstance(error, ApiError) and error.status < 500:
                    raise
                trouble = str(error)
            time.sleep(POLL_SECONDS)
        raise WaitedInVain(self._in_vain(what, limit, trouble, run, namespace, seen))

    def _in_vain(
        self, what: str, seconds: float, why: str, run: str, namespace: str, seen: Callable[[], str] | None
    ) -> str:
        parts = [f"Waited {seconds:.0f} s for {what}, in vain." + (f" {why}" if why else "")]
        if seen is not None:
            parts.append(f"Last seen: {seen()}")
        if run:
            done = self.launcher("explain", run, "-n", namespace)
            parts.append(f"launcher explain {run} -n {namespace} says:\n{(done.out or done.err).strip()}")
        return "\n".join(parts)

    def _run(self, command: Sequence[str], typed: str, seconds: float) -> Done:
        with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
            process = self._start(command, out, err)
            try:
                code = process.wait(seconds * self.settings.patience)
            except subprocess.TimeoutExpired:
                _end(process)
                out.seek(0)
                err.seek(0)
                said = (out.read() + err.read())[-2000:]
                raise WaitedInVain(f"{typed} did not end within {seconds:.0f} s; it said:\n{said}") from None
            except BaseException:
                # Interrupted: what it has started, such as helm, must make nothing more.
                _end(process)
                raise
            out.seek(0)
            err.seek(0)
            return Done(typed, code, out.read(), err.read())

    def _start(self, command: Sequence[str], out: Any, err: Any = subprocess.DEVNULL) -> subprocess.Popen[str]:
        return subprocess.Popen(
            command,
            env=self.env,
            cwd=self.folder,
            text=True,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=err,
            start_new_session=True,  # Ctrl-C is for the suite, which then ends this and all that it has started
        )


def _end(process: subprocess.Popen[str]) -> None:
    """End the process and all of its group."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(10 if number == signal.SIGTERM else 5)
    assert process.returncode is not None


def find_helm() -> Path:
    """$SLIPWAY_HELM, the helm of the PATH, else the tests' own, which is built with Go. Raises RuntimeError."""
    if given := os.environ.get("SLIPWAY_HELM") or shutil.which("helm"):
        return Path(given)
    from tests.tools import tool

    return tool("helm")
