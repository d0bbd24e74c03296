"""Runs a job step by step, as GitHub's runner does."""

from __future__ import annotations

import os
import re
import secrets
import subprocess
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.workflows.actions import ACTIONS, Effects, World
from tests.workflows.expressions import Value, WorkflowError, as_bool, as_text, evaluate, substitute
from tests.workflows.machine import Machine
from tests.workflows.reading import Job, action, action_name

# How GitHub starts the shells (reference of workflows, `jobs.<job_id>.steps[*].shell`).
_SHELLS = {
    "": ["bash", "-e"],
    "bash": ["bash", "--noprofile", "--norc", "-e", "-o", "pipefail"],
    "sh": ["sh", "-e"],
}
_STATUS = re.compile(r"\b(success|failure|always|cancelled)\s*\(")


@dataclass
class Result:
    """The end of a job. `failed` is the step that failed, with the reason; `ran` are the scripts that ran."""

    job: Job
    outputs: dict[str, str] = field(default_factory=dict)
    failed: str = ""
    skipped: bool = False
    ran: list[str] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def conclusion(self) -> str:
        return "failure" if self.failed else "skipped" if self.skipped else "success"


@dataclass
class _Scope:
    """The steps of a job, or of a composite action: their outputs, inputs and environment."""

    environment: dict[str, str]
    steps: dict[str, Value] = field(default_factory=dict)
    inputs: Mapping[str, Value] = field(default_factory=dict)


class Runner:
    """Runs one job on a machine. `needs` are the results of the jobs that it needs. `say` gets a line per step."""

    def __init__(
        self, job: Job, machine: Machine, world: World, needs: Mapping[str, Result], say: Callable[[str], object]
    ) -> None:
        self.job, self.machine, self.world, self.needs, self.say = job, machine, world, needs, say
        self.path = list(machine.path)
        self.exported: dict[str, str] = {}  # GITHUB_ENV
        self.result = Result(job)
        event = world.event
        self.github: dict[str, Value] = {
            "event_name": "push",
            # The first push of a branch, so that the commit counts as a change of code. Keys of other events are null.
            "event": {"before": "0" * 40, "pull_request": None},
            "ref": event.ref,
            "ref_name": event.ref_name,
            "repository_owner": machine.variables["GITHUB_REPOSITORY_OWNER"],
            "sha": event.commit,
            "token": "a-token-of-nothing",
        }

    def run(self) -> Result:
        """Run the job and return its result. Raises WorkflowError if the workflow is invalid."""
        content = self.job.content
        started = time.monotonic()
        scope = _Scope({})
        if not self._condition(content.get("if"), scope, self.needs_succeeded()):
            self.result.skipped = True
            return self.result
        for level in (self.job.workflow.content, content):
            scope.environment |= self._texts(level.get("env", {}), scope)
        self.deadline = started + 60 * float(content.get("timeout-minutes", 360)) * self.world.patience
        self._steps(self.job.steps, scope, self._defaults(scope))
        if not self.result.failed:
            self.result.outputs = self._texts(content.get("outputs", {}), scope)
        self.result.seconds = time.monotonic() - started
        return self.result

    def needs_succeeded(self) -> bool:
        return all(result.conclusion == "success" for result in self.needs.values())

    def _defaults(self, scope: _Scope) -> Mapping[str, str]:
        levels = (self.job.workflow.content, self.job.content)
        return {key: value for level in levels for key, value in level.get("defaults", {}).get("run", {}).items()}

    def _steps(self, steps: list[Mapping[str, Any]], scope: _Scope, defaults: Mapping[str, str]) -> None:
        for number, step in enumerate(steps, start=1):
            if not self._condition(step.get("if"), scope, not self.result.failed):
                if "id" in step:
                    scope.steps[step["id"]] = {"outputs": None, "outcome": "skipped"}
                continue
            environment = scope.environment | self._texts(step.get("env", {}), scope)
            within = _Scope(environment, scope.steps, scope.inputs)
            if "uses" in step:
                what = f"uses {action_name(step['uses'])}"
                self.say(f"{self.job.name}: {what}")
                outputs, why = self._use(step, within)
            else:
                script = as_text(self._value(step["run"], within))
                what = script.strip()
                self.say(f"{self.job.name}: {what}")
                outputs, why = self._script(script, {**defaults, **step}, within)
                self.result.ran.append(what)
            if "id" in step:
                scope.steps[step["id"]] = {"outputs": outputs, "outcome": "failure" if why else "success"}
            if why and not self.result.failed:
                self.result.failed = f"step {number} ({what}): {why}"

    def _use(self, step: Mapping[str, Any], scope: _Scope) -> tuple[dict[str, str], str]:
        """Run an action. Returns its outputs, and the reason if it failed."""
        uses, given = step["uses"], self._texts(step.get("with", {}), scope)
        if uses.startswith("./"):
            self._composite(self.machine.workspace / uses, given, scope)
            return {}, ""
        name = action_name(uses)
        if name not in ACTIONS:
            raise WorkflowError(f"{self.job.name}: {name} is not in the table of tests/workflows/actions.py.")
        ACTIONS[name].check(name, given)
        try:
            effects: Effects = ACTIONS[name].run(given, self.machine, self.world)
        except WorkflowError as error:
            return {}, str(error)
        self.path = [*effects.path, *self.path]
        # The stand-ins of this machine stay in front.
        self.path.sort(key=lambda folder: folder != str(self.machine.programs))
        self.exported |= effects.environment
        return effects.outputs, ""

    def _composite(self, folder: Path, given: Mapping[str, str], scope: _Scope) -> None:
        content = action(folder)
        known = content.get("inputs", {})
        wrong = sorted(set(given) - set(known))
        wrong += [name for name, about in known.items() if about.get("required") and not given.get(name)]
        if wrong:
            raise WorkflowError(f"{self.job.name}: {folder.name}: unknown or missing inputs: {', '.join(wrong)}.")
        inputs = {name: given.get(name, about.get("default", "")) for name, about in known.items()}
        self._steps(content["runs"]["steps"], _Scope(scope.environment, {}, inputs), {})

    def _script(self, script: str, step: Mapping[str, Any], scope: _Scope) -> tuple[dict[str, str], str]:
        """Run a script. Returns its outputs, and the reason if it failed."""
        shell = step.get("shell", "")
        if shell not in _SHELLS:
            raise WorkflowError(f"{self.job.name}: the shell {shell} is not known here.")
        name = secrets.token_hex(4)
        temp = self.machine.temp
        file = temp / f"{name}.sh"
        file.write_text(script, encoding="utf-8")
        files = {key: temp / f"{name}.{key}" for key in ("ENV", "OUTPUT", "PATH", "STEP_SUMMARY")}
        for each in files.values():
            each.touch()
        environment = {
            **self.machine.network,
            **self.machine.variables,
            "GITHUB_EVENT_NAME": "push",
            "GITHUB_JOB": self.job.id,
            "GITHUB_REF": self.github["ref"],
            "GITHUB_REF_NAME": self.github["ref_name"],
            "GITHUB_SHA": self.github["sha"],
            "GITHUB_WORKFLOW": str(self.job.workflow.content["name"]),
            **scope.environment,
            **self.exported,
            "PATH": os.pathsep.join(self.path),
            **{f"GITHUB_{key}": str(each) for key, each in files.items()},
        }
        folder = self.machine.workspace / step.get("working-directory", ".")
        try:
            code = self.machine.run(
                [*_SHELLS[shell], str(file)], environment, folder, max(1.0, self.deadline - time.monotonic())
            )
        except subprocess.TimeoutExpired:
            return {}, f"the job took longer than {self.job.content['timeout-minutes']} minutes"
        self.exported |= _assignments(files["ENV"])
        self.path = [*files["PATH"].read_text().split("\n")[-2::-1], *self.path]
        self.path.sort(key=lambda each: each != str(self.machine.programs))
        return _assignments(files["OUTPUT"]), f"exit code {code}" if code else ""

    def _condition(self, condition: object, scope: _Scope, succeeded: bool) -> bool:
        text = as_text(condition if condition is not None else "success()")
        text = re.sub(r"^\s*\$\{\{(.*)\}\}\s*$", r"\1", text, flags=re.DOTALL)
        functions = {
            "success": lambda: succeeded,
            "failure": lambda: not succeeded,
            "always": lambda: True,
            "cancelled": lambda: False,
        }
        value = as_bool(evaluate(text, self._contexts(scope), self._functions() | functions))
        return value if _STATUS.search(text) else succeeded and value

    def _texts(self, content: Mapping[str, Any], scope: _Scope) -> dict[str, str]:
        return {key: as_text(self._value(value, scope)) for key, value in content.items()}

    def _value(self, value: Value, scope: _Scope) -> Value:
        if not isinstance(value, str):
            return value
        return substitute(value, self._contexts(scope), self._functions())

    def _contexts(self, scope: _Scope) -> Mapping[str, Value]:
        return {
            "github": self.github,
            "env": {**scope.environment, **self.exported},
            "matrix": self.job.matrix,
            "needs": {
                name: {"outputs": result.outputs, "result": result.conclusion} for name, result in self.needs.items()
            },
            "steps": scope.steps,
            "inputs": scope.inputs,
            "runner": {"os": "Linux", "temp": str(self.machine.temp)},
        }

    def _functions(self) -> dict[str, Callable[..., Value]]:
        return {"hashfiles": self._hash_files}

    def _hash_files(self, *patterns: str) -> str:
        for pattern in patterns:
            # GitHub's hash of no file is "": the key of a cache would never change.
            if not any(
                path.is_file() for path in self.machine.workspace.glob(f"{pattern}/*" if "**" in pattern else pattern)
            ):
                raise WorkflowError(f"{self.job.name}: hashFiles: {pattern} matches no file.")
        return "0" * 64


def _assignments(file: Path) -> dict[str, str]:
    """Return the assignments in a file of GITHUB_ENV or GITHUB_OUTPUT: NAME=VALUE, or NAME<<END with lines."""
    found: dict[str, str] = {}
    lines = iter(file.read_text(encoding="utf-8").splitlines())
    for line in lines:
        name, sign, value = re.match(r"([^=<]*)(=|<<|$)(.*)", line).groups()  # type: ignore[union-attr]
        if not sign:
            raise WorkflowError(f'"{line}" is not an assignment.')
        if sign == "<<":
            block: list[str] = []
            for each in lines:
                if each == value:
                    break
                block.append(each)
            else:
                raise WorkflowError(f'"{line}": the line "{value}" is missing.')
            value = "\n".join(block)
        found[name] = value
    return found
