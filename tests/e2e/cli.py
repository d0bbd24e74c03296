"""The launcher as a separate process, as a user runs it, and waits whose errors name the expected condition."""

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
_UNAVAILABLE = ("does not answer", "cannot answer now")


class WaitTimeout(AssertionError):
    """A condition was not met in time.

    The text names the condition, the last observed state, and for a run the output of `launcher explain`.
    """


class ApiServerUnavailable(AssertionError):
    """The API server did not answer the launcher. The text is the launcher's output. `Cli.wait` tries again."""


@dataclass(frozen=True)
class CommandResult:
    """A finished command: the command line, the exit code, stdout and stderr."""

    command: str
    code: int
    out: str
    err: str

    def __str__(self) -> str:
        return f"{self.command}\nexit code {self.code}\n{self.out}{self.err}"


@dataclass
class Cli:
    """Runs commands with the kubeconfig and the context of `settings`."""

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

    def launcher(self, *arguments: str, seconds: float = COMMAND_SECONDS) -> CommandResult:
        """Run `launcher …` with the suite's context."""
        context = ["--context", self.settings.context] if self.settings.context and arguments[0] != "values" else []
        command = [sys.executable, "-m", "launcher", *arguments, *context]
        return self._run(command, f"launcher {' '.join(arguments)}", seconds)

    def query(self, *arguments: str, seconds: float = COMMAND_SECONDS) -> Any:
        """The parsed output of `launcher … -o json`. Raises AssertionError if the command fails."""
        done = self.launcher(*arguments, "-o", "json", seconds=seconds)
        if done.code == 1 and any(words in done.err for words in _UNAVAILABLE):
            raise ApiServerUnavailable(str(done))
        assert done.code == 0, str(done)
        return json.loads(done.out)

    def run_helm(self, *arguments: str, seconds: float = COMMAND_SECONDS) -> CommandResult:
        """Run `helm …`, for the steps that a user does without the launcher."""
        context = ["--kube-context", self.settings.context] if self.settings.context else []
        return self._run([str(self.helm), *arguments, *context], f"helm {' '.join(arguments)}", seconds)

    @contextlib.contextmanager
    def follow(self, *arguments: str) -> Iterator[Path]:
        """Run a command such as `launcher logs -f …` while this is open. Yields the file that gets its output."""
        file = Path(tempfile.mkstemp(dir=self.folder, suffix=".log")[1])
        context = ["--context", self.settings.context] if self.settings.context else []
        with file.open("w") as out:
            process = self._start([sys.executable, "-m", "launcher", *arguments, *context], out)
        try:
            yield file
        finally:
            _end(process)

    def values(self, name: str, tree: dict[str, Any]) -> str:
        """Write a values file with this content, and return its path."""
        file = self.folder / f"{name}.yaml"
        file.write_text(json.dumps(tree, indent=1))  # JSON is YAML
        return str(file)

    def wait(
        self,
        what: str,
        condition: Callable[[], Any],
        seconds: float,
        *,
        run: str = "",
        namespace: str = "",
        seen: Callable[[], str] | None = None,
        impossible: Callable[[], str] | None = None,
    ) -> Any:
        """The first true value of `condition`, within `seconds` times the suite's patience.

        If the API server does not answer, the wait tries again. seen: returns the last observed state, for the error.
        impossible: returns why the condition can no longer become true, or "". Raises WaitTimeout; for a run, with the
        output of `launcher explain`.
        """
        limit = seconds * self.settings.patience
        begun = time.monotonic()
        trouble = ""
        while time.monotonic() - begun < limit:
            try:
                if found := condition():
                    return found
                if impossible is not None and (why := impossible()):
                    raise WaitTimeout(self._timeout_message(what, time.monotonic() - begun, why, run, namespace, seen))
                trouble = ""
            except (urllib3.exceptions.HTTPError, ApiError, ApiServerUnavailable) as error:
                if isinstance(error, ApiError) and error.status < 500:
                    raise
                trouble = str(error)
            time.sleep(POLL_SECONDS)
        raise WaitTimeout(self._timeout_message(what, limit, trouble, run, namespace, seen))

    def _timeout_message(
        self, what: str, seconds: float, why: str, run: str, namespace: str, seen: Callable[[], str] | None
    ) -> str:
        parts = [f"Timed out after {seconds:.0f} s. Waited for {what}." + (f" {why}" if why else "")]
        if seen is not None:
            parts.append(f"Last seen: {seen()}")
        if run:
            done = self.launcher("explain", run, "-n", namespace)
            parts.append(f"launcher explain {run} -n {namespace} prints:\n{(done.out or done.err).strip()}")
        return "\n".join(parts)

    def _run(self, command: Sequence[str], typed: str, seconds: float) -> CommandResult:
        with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
            process = self._start(command, out, err)
            try:
                code = process.wait(seconds * self.settings.patience)
            except subprocess.TimeoutExpired:
                _end(process)
                out.seek(0)
                err.seek(0)
                printed = (out.read() + err.read())[-2000:]
                raise WaitTimeout(f"{typed} did not end within {seconds:.0f} s; it printed:\n{printed}") from None
            except BaseException:
                # After an interrupt, the command and its children, such as helm, must not create more objects.
                _end(process)
                raise
            out.seek(0)
            err.seek(0)
            return CommandResult(typed, code, out.read(), err.read())

    def _start(self, command: Sequence[str], out: Any, err: Any = subprocess.DEVNULL) -> subprocess.Popen[str]:
        return subprocess.Popen(
            command,
            env=self.env,
            cwd=self.folder,
            text=True,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=err,
            start_new_session=True,  # only the suite receives Ctrl-C, and then ends this process group
        )


def _end(process: subprocess.Popen[str]) -> None:
    """End the process and its process group."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(10 if number == signal.SIGTERM else 5)
    assert process.returncode is not None


def find_helm() -> Path:
    """$SLIPWAY_HELM, or helm on the PATH, or the helm that the tests build with Go. Raises RuntimeError."""
    if given := os.environ.get("SLIPWAY_HELM") or shutil.which("helm"):
        return Path(given)
    from tests.tools import tool

    return tool("helm")
