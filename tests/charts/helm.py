"""Real Helm for tests: a chart that dumps its values, and the trees that Helm reads from values files."""

from __future__ import annotations

import atexit
import base64
import functools
import json
import os
import subprocess
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from launcher.config import versions
from tests.tools import tool

# A Helm that was built without a version stamp assumes Kubernetes 1.20 if there is no cluster.
KUBE_VERSION = versions.kubernetes_without_cluster()


class HelmError(Exception):
    """Helm failed; the text is what it printed."""


def template(helm: Path, chart: Path | str, files: Sequence[Path | str] = (), *options: str) -> str:
    """Return the manifests that `helm template` prints. Raises HelmError.

    `chart` is a folder, a package or an oci:// URL.
    """
    command = ["template", "x", str(chart), "--kube-version", KUBE_VERSION]
    for file in files:
        command += ["-f", str(file)]
    rendered, printed = run(helm, [*command, *options])
    if not rendered:
        raise HelmError(printed.strip())
    return printed


def run(helm: Path, arguments: Sequence[str]) -> tuple[bool, str]:
    """Run `helm template`. Return whether it succeeded, and its stdout or else its stderr.

    Helm 4 does so in a process that stays, but not for OCI registries, whose settings are those of a process.
    """
    if helm == tool("helm") and not any(word.startswith("oci://") for word in arguments):
        return many_commands().run(arguments)
    done = subprocess.run([str(helm), *arguments], capture_output=True, text=True, check=False, env=environment())
    return done.returncode == 0, done.stderr if done.returncode else done.stdout


class ManyCommands:
    """A process that runs commands of Helm 4 (tests/tools/helm/many). It ends with this process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process = subprocess.Popen(
            [str(tool("helm-many"))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "GOGC": "400"},
            encoding="utf-8",
        )
        atexit.register(self._close)

    def _close(self) -> None:
        self._process.communicate()

    def run(self, arguments: Sequence[str], stdin: str = "") -> tuple[bool, str]:
        """Run `helm template`. Return whether it succeeded, and its stdout or else its stderr."""
        if "--namespace" not in arguments:  # Helm's default is that of the command before
            arguments = [*arguments, "--namespace", "default"]
        assert self._process.stdin
        assert self._process.stdout
        with self._lock:
            self._process.stdin.write(json.dumps([str(Path.cwd()), stdin, *arguments]) + "\n")
            self._process.stdin.flush()
            done = json.loads(self._process.stdout.readline())
        return done["ok"], done["stdout"] if done["ok"] else done["stderr"]


@functools.cache
def many_commands() -> ManyCommands:
    """Return the process, which the first call starts."""
    return ManyCommands()


def environment() -> dict[str, str]:
    """Return the environment for Helm. Without garbage collection, it takes two thirds of the time."""
    return {"GOGC": "off", **os.environ}


def dump_chart(folder: Path, values: str = "") -> Path:
    """Write a chart that renders only its effective values, as JSON in base64, which needs no quoting in YAML."""
    (folder / "templates").mkdir(parents=True, exist_ok=True)
    (folder / "Chart.yaml").write_text("apiVersion: v2\nname: dump\nversion: 0.1.0\n")
    (folder / "values.yaml").write_text(values)
    (folder / "templates" / "values.yaml").write_text("json: {{ toJson .Values | b64enc }}\n")
    return folder


def dumped(rendered: str) -> dict[str, Any]:
    """Return the values that a chart of `dump_chart` rendered."""
    line = next(line for line in rendered.splitlines() if line.startswith("json: "))
    tree: dict[str, Any] = json.loads(base64.b64decode(line.removeprefix("json: ")))
    return tree


def files_chart(folder: Path, texts: Sequence[str]) -> Path:
    """Write a chart that reads each of `texts` with `fromYaml`, Helm's reader of values files, in one call of Helm."""
    (folder / "templates").mkdir(parents=True, exist_ok=True)
    (folder / "Chart.yaml").write_text("apiVersion: v2\nname: files\nversion: 0.1.0\n")
    (folder / "values.yaml").write_text("")
    (folder / "texts").mkdir(exist_ok=True)
    for number, text in enumerate(texts):
        (folder / "texts" / f"{number:06d}").write_bytes(text.encode())
    (folder / "templates" / "texts.yaml").write_text(
        '{{ range $path, $_ := .Files.Glob "texts/*" }}\n'
        "text: {{ toJson (fromYaml ($.Files.Get $path)) | b64enc }}\n"
        "{{ end }}\n"
    )
    return folder


def read_texts(helm: Path, folder: Path, texts: Sequence[str]) -> list[Any]:
    """Return the tree that Helm reads from each of `texts`; None for a text that it rejects."""
    rendered = template(helm, files_chart(folder, texts))
    trees = [
        json.loads(base64.b64decode(line.removeprefix("text: ")))
        for line in rendered.splitlines()
        if line.startswith("text: ")
    ]
    assert len(trees) == len(texts)
    return [None if set(tree or ()) == {"Error"} else tree or {} for tree in trees]
