"""Run two independent scanners, checkov and kube-score, over what the charts render.

Neither supports RayCluster, RayJob or JobSet, so the scanners get the pod templates as plain Pods, next to the
NetworkPolicy that charts/queues renders for their team. checkov reports no severities without its platform, so every
failed check is a finding. The findings of kube-score are its critical ones.
"""

from __future__ import annotations

import copy
import fnmatch
import json
import os
import subprocess
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from tests.charts.schemas import PROJECTS, pod_templates
from tests.tools import tool
from tests.tools.python_tools import python_tool

CHECKOUT = Path(__file__).parents[2]
CRITICAL = 1


@dataclass(frozen=True, order=True)
class Finding:
    """A check of a scanner that an object, "Kind/name", fails."""

    scanner: str
    check: str
    object: str
    message: str


@dataclass(frozen=True)
class Accepted:
    """A finding that is accepted, and the reason. `objects` is a pattern for "Kind/name"."""

    scanner: str
    check: str
    objects: str
    reason: str

    def covers(self, finding: Finding) -> bool:
        return (self.scanner, self.check) == (finding.scanner, finding.check) and fnmatch.fnmatch(
            finding.object, self.objects
        )


def scan(objects: Iterable[dict[str, Any]], folder: Path) -> list[Finding]:
    """Return the findings of both scanners for these objects, which are written to `folder`."""
    file = folder / "objects.yaml"
    file.write_text(yaml.dump_all(objects, Dumper=yaml.CSafeDumper))
    return sorted({*_checkov(folder), *_kube_score(file)})


def scannable(sources: Iterable[tuple[str, list[dict[str, Any]]]]) -> list[dict[str, Any]]:
    """Return the objects of all sources in a form that the scanners support.

    Objects of Kubernetes' own kinds stay unchanged. A pod template becomes a Pod that is named after its source, kind
    and first container (Pod/kind-rayjob-ray-head). If there are several that the scanners cannot distinguish, only the
    first is returned.
    """
    everything = [(source, obj) for source, objects in sources for obj in objects]
    namespace = next((_namespace(obj) for _, obj in everything if obj["kind"] == "NetworkPolicy"), "default")
    found: dict[str, dict[str, Any]] = {}
    names: Counter[str] = Counter()
    for source, obj in everything:
        if obj["apiVersion"].partition("/")[0] not in PROJECTS:
            found.setdefault(json.dumps(obj, sort_keys=True), obj)
        for _, template in pod_templates(obj):
            kind, container = obj["kind"].lower(), template["spec"]["containers"][0]["name"]
            metadata = {**(template.get("metadata") or {}), "namespace": namespace}
            pod = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template["spec"]}
            key = json.dumps([kind, container, _shape(pod)], sort_keys=True)
            if key not in found:
                name = f"{source}-{kind}-{container}"
                names[name] += 1
                metadata["name"] = name if names[name] == 1 else f"{name}-{names[name]}"
                found[key] = pod
    return list(found.values())


def _namespace(obj: dict[str, Any]) -> str:
    return str(obj["metadata"].get("namespace", "default"))


def _shape(pod: dict[str, Any]) -> Any:
    """Return a pod without the fields that no scanner checks: amounts of resources, node labels, arguments, values."""
    shape = copy.deepcopy(pod)
    shape["metadata"].pop("annotations", None)
    shape["metadata"].pop("labels", None)
    shape["spec"]["nodeSelector"] = sorted(shape["spec"].get("nodeSelector", {}))
    for container in (*shape["spec"]["containers"], *shape["spec"].get("initContainers", [])):
        container.pop("args", None)
        container["env"] = sorted(env["name"] for env in container.get("env", []) if "value" in env)
        resources = container.get("resources", {})
        container["resources"] = {key: sorted(amounts) for key, amounts in resources.items()}
    return shape


def checkov(folder: Path, framework: str) -> list[dict[str, Any]]:
    """Return the checks of a framework of checkov (kubernetes, terraform_json) that the files in a folder fail.

    Raises RuntimeError if checkov cannot read a file, or checks nothing.
    """
    command = [str(python_tool("checkov")), "--directory", str(folder), "--framework", framework, "--output", "json"]
    options = ["--quiet", "--compact", "--skip-download", "--soft-fail"]
    # checkov must not read the user's settings or call its platform.
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("BC_", "PRISMA_", "CKV_"))}
    done = subprocess.run([*command, *options], capture_output=True, text=True, check=False, env=environment)
    if done.returncode != 0:
        raise RuntimeError(f"checkov failed:\n{done.stderr.strip()}")
    report = json.loads(done.stdout)
    if "results" not in report or report["summary"]["parsing_errors"]:
        raise RuntimeError("checkov cannot read what it is to scan.")
    failed: list[dict[str, Any]] = report["results"]["failed_checks"]
    return failed


def _checkov(folder: Path) -> Iterator[Finding]:
    for failed in checkov(folder, "kubernetes"):
        kind, *_, name = failed["resource"].split(".")
        yield Finding("checkov", failed["check_id"], f"{kind}/{name}", failed["check_name"])


def _kube_score(file: Path) -> Iterator[Finding]:
    command = [str(tool("kube-score")), "score", "--kubernetes-version=v1.35", "--output-format=json", str(file)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if not done.stdout.startswith("["):
        raise RuntimeError(f"kube-score failed:\n{done.stderr.strip()}")
    for obj in json.loads(done.stdout):
        name = f"{obj['type_meta']['kind']}/{obj['object_meta']['name']}"
        for check in obj["checks"]:
            if check["grade"] <= CRITICAL and not check["skipped"]:
                for comment in check["comments"] or []:
                    yield Finding("kube-score", check["check"]["id"], name, comment["summary"])
