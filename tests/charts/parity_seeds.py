"""Read the objects and commands of two of GKE's tutorials from their text.

../shared/seeds/000… has a RayCluster, a Ray Train script and the command that submits it; 003… has JobSets.
"""

from __future__ import annotations

import ast
import re
import shlex
import string
import textwrap
from collections.abc import Mapping
from typing import Any

import yaml

from tests.charts import schemas


def text(number: str) -> str:
    """Return the text of the seed whose file name starts with `number`."""
    found = sorted((schemas.shared() / "seeds").glob(f"{number}_*.txt"))
    assert len(found) == 1, f"there is no one seeds/{number}_*.txt"
    return found[0].read_text(encoding="utf-8")


# --- 000: MaxText with Ray ----------------------------------------------------------------------------------------


def ray_cluster(variables: Mapping[str, str]) -> dict[str, Any]:
    """Return the RayCluster, with the variables of envsubst replaced."""
    manifest = _block("apiVersion: ray.io/v1").partition("\n\n")[0]
    obj: dict[str, Any] = yaml.safe_load(string.Template(manifest).substitute(variables))
    return obj


def image_template() -> string.Template:
    """Return the name of the tutorial's image, with the variables REGION, PROJECT_ID and ARTIFACT_REGISTRY."""
    found = re.search(r"export DOCKER_IMAGE=(\S+)", text("000"))
    assert found
    return string.Template(found[1])


def script_call(name: str) -> dict[str, Any]:
    """Return the keyword arguments of the script's only call of `name`; all of them must be literals."""
    calls = [
        node
        for node in ast.walk(ast.parse(_block("import os")))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == name
    ]
    assert len(calls) == 1, f"the script calls {name} {len(calls)} times"
    return {str(keyword.arg): ast.literal_eval(keyword.value) for keyword in calls[0].keywords}


def maxtext_arguments() -> list[str]:
    """Return what `ray job submit` runs after python: the script, the base config and MaxText's key=value."""
    command = shlex.split(_block("ray job submit").partition("\n\n")[0].replace("\\\n", " "))
    assert command[:3] == ["ray", "job", "submit"]
    program = command[command.index("--") + 1 :]
    assert program[0] == "python"
    return program[1:]


def _block(first: str) -> str:
    """Return the indented lines from the line `first` up to a line that is indented less."""
    lines = text("000").splitlines()
    starts = [number for number, line in enumerate(lines) if line.strip().rstrip("\\").strip() == first]
    assert len(starts) == 1, f"{first!r} is on {len(starts)} lines"
    indent = len(lines[starts[0]]) - len(lines[starts[0]].lstrip())
    block = []
    for line in lines[starts[0] :]:
        if line.strip() and len(line) - len(line.lstrip()) < indent:
            break
        block.append(line)
    return textwrap.dedent("\n".join(block))


# --- 003: multislice with JobSet ----------------------------------------------------------------------------------


class Shape:
    """The type of a field in a manifest whose line breaks are lost: only the types show where a map ends."""

    SCALAR = "scalar"
    MAP = "map"  # its keys are names that users choose, such as labels; all of them contain a slash


_POD: dict[str, Any] = {
    "hostNetwork": Shape.SCALAR,
    "dnsPolicy": Shape.SCALAR,
    "nodeSelector": Shape.MAP,
    "priorityClassName": Shape.SCALAR,
    "containers": [
        {
            "name": Shape.SCALAR,
            "image": Shape.SCALAR,
            "ports": [{"containerPort": Shape.SCALAR}],
            "securityContext": {"privileged": Shape.SCALAR},
            "command": [Shape.SCALAR],
            "resources": {"limits": Shape.MAP},
        }
    ],
}
_JOB = {
    "parallelism": Shape.SCALAR,
    "completions": Shape.SCALAR,
    "backoffLimit": Shape.SCALAR,
    "template": {"spec": _POD},
}
_JOB_SET: dict[str, Any] = {
    "apiVersion": Shape.SCALAR,
    "kind": Shape.SCALAR,
    "metadata": {"name": Shape.SCALAR, "labels": Shape.MAP, "annotations": Shape.MAP},
    "spec": {
        "failurePolicy": {"maxRestarts": Shape.SCALAR},
        "replicatedJobs": [{"name": Shape.SCALAR, "replicas": Shape.SCALAR, "template": {"spec": _JOB}}],
    },
}


def job_sets(variant: str) -> dict[str, dict[str, Any]]:
    """Return the JobSets of a variant, Autopilot or Standard, by name. In the seed's text each file is one line."""
    lines = text("003").splitlines()
    found: dict[str, dict[str, Any]] = {}
    for number, line in enumerate(lines):
        match = re.search(r"(?:^|\s)(apiVersion: jobset\.x-k8s\.io.*)$", line)
        # The variant's name is on the line before, or at the end of the sentence before.
        before = lines[number - 1] + " " + line[: match.start(1)] if match else ""
        if match and before.rstrip().endswith(variant):
            for document in match[1].split(" --- "):
                obj = _Flat(document).read()
                assert obj["metadata"]["name"] not in found
                found[obj["metadata"]["name"]] = obj
    return found


class _Flat:
    """A parser of a manifest on one line; it reads word by word."""

    def __init__(self, document: str) -> None:
        document = re.sub(r"( # Number of TPU chips per worker)?( ```)?\s*$", "", document)
        self.words = document.split(" ")
        self.at = 0

    def read(self) -> dict[str, Any]:
        obj: dict[str, Any] = self.value(_JOB_SET)
        assert self.at == len(self.words), f"nothing is known of {' '.join(self.words[self.at : self.at + 3])} …"
        return obj

    def peek(self) -> str:
        return self.words[self.at] if self.at < len(self.words) else ""

    def take(self) -> str:
        self.at += 1
        return self.words[self.at - 1]

    def value(self, shape: Any) -> Any:
        if isinstance(shape, list):
            items = []
            while self.peek() == "-":
                self.take()
                items.append(self.value(shape[0]))
            return items
        if shape == Shape.SCALAR:
            return yaml.safe_load(self.take()) if self.peek() != "|" else self.block()
        mapping: dict[str, Any] = {}
        while self.peek().endswith(":"):
            key = self.peek()[:-1]
            if key in mapping or ("/" not in key if shape == Shape.MAP else key not in shape):
                break
            self.take()
            mapping[key] = self.value(Shape.SCALAR if shape == Shape.MAP else shape[key])
        return mapping

    def block(self) -> str:
        """Read a block of text; here it is the last item of a container's command."""
        self.take()
        words = []
        while self.peek() and self.peek() != "resources:":
            words.append(self.take())
        return " ".join(words)
