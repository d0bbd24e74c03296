"""Real Helm for tests: a chart that dumps its values, and what Helm makes of values files."""

from __future__ import annotations

import base64
import json
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

KUBE_VERSION = "1.35.0"  # offline, an unstamped Helm believes in 1.20


class HelmError(Exception):
    """Helm ended with an error; the text is what it printed."""


def template(helm: Path, chart: Path, files: Sequence[Path | str] = (), *options: str) -> str:
    """The manifests that `helm template` prints. Raises HelmError."""
    command = [str(helm), "template", "x", str(chart), "--kube-version", KUBE_VERSION]
    for file in files:
        command += ["-f", str(file)]
    done = subprocess.run([*command, *options], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise HelmError(done.stderr.strip())
    return done.stdout


def dump_chart(folder: Path, values: str = "") -> Path:
    """A chart that renders nothing but its own effective values, as JSON (in base64: quoting has rules of its own)."""
    (folder / "templates").mkdir(parents=True, exist_ok=True)
    (folder / "Chart.yaml").write_text("apiVersion: v2\nname: dump\nversion: 0.1.0\n")
    (folder / "values.yaml").write_text(values)
    (folder / "templates" / "values.yaml").write_text("json: {{ toJson .Values | b64enc }}\n")
    return folder


def dumped(rendered: str) -> dict[str, Any]:
    """The values that a `dump_chart` rendered."""
    line = next(line for line in rendered.splitlines() if line.startswith("json: "))
    tree: dict[str, Any] = json.loads(base64.b64decode(line.removeprefix("json: ")))
    return tree


def files_chart(folder: Path, texts: Sequence[str]) -> Path:
    """A chart that reads each of `texts` with `fromYaml`, the reader of values files, in one call of Helm."""
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
    """What Helm reads from each of `texts`; None for a text that it refuses."""
    rendered = template(helm, files_chart(folder, texts))
    trees = [
        json.loads(base64.b64decode(line.removeprefix("text: ")))
        for line in rendered.splitlines()
        if line.startswith("text: ")
    ]
    assert len(trees) == len(texts)
    return [None if set(tree or ()) == {"Error"} else tree or {} for tree in trees]
