"""Reads the workflows and the local actions. A key that this package does not know is an error."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from tests.workflows.expressions import WorkflowError

# The keys that the runner executes, and those that have no effect on the commands of a job.
_WORKFLOW = {"name", "on", "permissions", "concurrency", "env", "defaults", "jobs"}
_JOB = {"name", "needs", "if", "runs-on", "timeout-minutes", "strategy", "permissions", "environment", "outputs"} | {
    *("env", "defaults", "steps")
}
_STEP = {"name", "id", "if", "uses", "with", "env", "run", "shell", "working-directory"}
_ACTION = {"name", "description", "inputs", "outputs", "runs"}


@dataclass(frozen=True)
class Job:
    """A job of a workflow; with a matrix, one of its rows. `matrix` has every key that any row has."""

    workflow: Workflow
    id: str
    content: Mapping[str, Any]
    matrix: Mapping[str, Any]

    @property
    def name(self) -> str:
        """The name to run the job by: that of its row, if it has one, or the values of the row."""
        row = self.matrix.get("name") or ", ".join(str(value) for value in self.matrix.values())
        return f"{self.workflow.name} {self.id}" + (f" ({row})" if row else "")

    @property
    def needs(self) -> list[str]:
        needs = self.content.get("needs", [])
        return [needs] if isinstance(needs, str) else list(needs)

    @property
    def steps(self) -> list[Mapping[str, Any]]:
        return list(self.content["steps"])


@dataclass(frozen=True)
class Workflow:
    """A file of .github/workflows. `name` is the name of the file without its ending."""

    name: str
    content: Mapping[str, Any]

    def jobs(self) -> Iterator[Job]:
        """Yield the jobs in the order of the file; a job with a matrix once for each of its rows."""
        for ident, content in self.content["jobs"].items():
            for row in _rows(content.get("strategy", {}).get("matrix", {}), f"{self.name}: {ident}"):
                yield Job(self, ident, content, row)


def workflows(root: Path) -> list[Workflow]:
    """Return the workflows of a checkout. Raises WorkflowError if one is invalid or has an unknown key."""
    files = sorted((root / ".github/workflows").iterdir())
    if not files:
        raise WorkflowError(f"{root}/.github/workflows has no files.")
    return [Workflow(file.stem, _workflow(file)) for file in files]


def action(folder: Path) -> Mapping[str, Any]:
    """Return a local action. Raises WorkflowError if it is not a composite action or has an unknown key."""
    file = folder / "action.yaml"
    if not file.is_file():
        raise WorkflowError(f"{file} does not exist.")
    content = _load(file)
    _known(content, _ACTION, str(file))
    _known(content["runs"], {"using", "steps"}, f"{file}: runs")
    if content["runs"]["using"] != "composite":
        raise WorkflowError(f"{file}: only composite actions are known here.")
    _check_steps(content["runs"]["steps"], str(file))
    for step in content["runs"]["steps"]:
        if "run" in step and "shell" not in step:
            raise WorkflowError(f"{file}: {step['run'].strip()}: a step of an action must name its shell.")
    return content


def _workflow(file: Path) -> Mapping[str, Any]:
    content = _load(file)
    _known(content, _WORKFLOW, file.name)
    for ident, job in content["jobs"].items():
        where = f"{file.name}: {ident}"
        _known(job, _JOB, where)
        _known(job.get("strategy", {}), {"fail-fast", "matrix"}, f"{where}: strategy")
        for level in (content, job):
            _known(level.get("defaults", {}), {"run"}, f"{where}: defaults")
            _known(level.get("defaults", {}).get("run", {}), {"shell", "working-directory"}, f"{where}: defaults")
        if job["runs-on"] != "ubuntu-24.04":
            raise WorkflowError(f"{where}: runs-on is {job['runs-on']}; only ubuntu-24.04 is known here.")
        needs = job.get("needs", [])
        for needed in [needs] if isinstance(needs, str) else needs:
            if needed not in content["jobs"]:
                raise WorkflowError(f"{where}: needs {needed}, which is not a job.")
        _check_steps(job["steps"], where)
    return content


def _check_steps(steps: list[Mapping[str, Any]], where: str) -> None:
    for number, step in enumerate(steps, start=1):
        _known(step, _STEP, f"{where}: step {number}")
        if ("run" in step) == ("uses" in step):
            raise WorkflowError(f"{where}: step {number} must have either run or uses.")


def _rows(matrix: Mapping[str, Any], where: str) -> Iterator[Mapping[str, Any]]:
    if "exclude" in matrix:
        raise WorkflowError(f"{where}: exclude is not known here.")
    axes = {key: values for key, values in matrix.items() if key != "include"}
    if axes and "include" in matrix:
        raise WorkflowError(f"{where}: a matrix with both include and values is not known here.")
    rows = matrix.get("include") or [
        dict(zip(axes, values, strict=True)) for values in itertools.product(*axes.values())
    ]
    keys = list(dict.fromkeys(key for row in rows for key in row))
    for row in rows:
        yield {key: row.get(key) for key in keys}


def _load(file: Path) -> Mapping[str, Any]:
    try:
        # YAML 1.2, as GitHub reads it: in YAML 1.1, the key `on` is true.
        content = YAML(typ="safe", pure=True).load(file.read_text(encoding="utf-8"))
    except YAMLError as error:
        raise WorkflowError(f"{file}: {error}") from error
    if not isinstance(content, dict):
        raise WorkflowError(f"{file} is not a mapping.")
    return content


def _known(content: Mapping[str, Any], keys: set[str], where: str) -> None:
    unknown = sorted(set(content) - keys)
    if unknown:
        raise WorkflowError(f"{where}: {', '.join(unknown)}: not known here; teach tests/workflows what it does.")


def action_name(uses: str) -> str:
    """Return the name of an action without its version: "actions/checkout"."""
    return re.sub(r"@.*", "", uses)
