"""Run the steps of a plan, one by one. After an interruption, the next run begins where this one stopped."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from launcher import formatting
from launcher.config import versions
from launcher.errors import LauncherError
from launcher.gke import actual as actuals
from launcher.gke import commands, steps
from launcher.gke.actual import Actual
from launcher.gke.commands import PROJECT_NUMBER, Command
from launcher.gke.google import GoogleError, find_gcloud, last_error
from launcher.gke.plan import Plan
from launcher.gke.steps import Inside, Removal, Step

_POLL_SECONDS, _READY_SECONDS = 10.0, 3600.0
_RETRIES, _RETRY_SECONDS = 5, 3.0
_RETRIED = ("concurrent policy changes", "currently creating, deleting or modifying", "incompatible operation")
_BUSY = ("PROVISIONING", "RECONCILING", "STOPPING")


@dataclass(frozen=True)
class Changes:
    """The effect of `up`: the steps in Google Cloud, those inside the cluster, and what it cannot change."""

    actual: Actual
    outside: Sequence[Step]
    inside: Sequence[Step]
    conflicts: Sequence[str]

    @property
    def steps(self) -> list[Step]:
        return [*self.outside, *self.inside]


def changes(plan: Plan) -> Changes:
    """Compare the plan with what exists. Raises GoogleError if the project cannot be read."""
    actual = actuals.read(plan)
    return Changes(
        actual,
        steps.steps(plan, actual),
        steps.inside(plan, Inside() if actual.cluster is None else inside_of(plan)),
        [*steps.conflicts(plan, actual), *(f"flavors.{flavor}: {sentence}" for flavor, sentence in actual.missing)],
    )


def inside_of(plan: Plan) -> Inside:
    """Return what the cluster has. If it cannot be read, as before its credentials are known, it has nothing."""
    from launcher.k8s.client import DEPLOYMENT, NAMESPACE, connect

    try:
        cluster = connect(commands.context(plan))
        found: dict[str, str] = {}
        for name in plan.values["controllers"]:
            namespace, deployment = commands.deployment_of(name)
            version = _version_of(cluster.get(DEPLOYMENT, deployment, namespace))
            found |= {name: version} if version else {}
        has_namespace = cluster.get(NAMESPACE, commands.NAMESPACE) is not None
        classes = not plan.autopilot or _has_classes(plan, cluster)
        queues = "" if found.keys() < plan.values["controllers"].keys() else _queues_change(plan)
    except LauncherError:
        return Inside()
    complete = found.keys() == plan.values["controllers"].keys() and has_namespace
    return Inside(True, found, has_namespace, classes, queues if complete else "a new release")


def _version_of(deployment: Any) -> str:
    """Return the version of a controller: the tag of its first image, without "v"; "" if there is no Deployment."""
    pod = (((deployment or {}).get("spec") or {}).get("template") or {}).get("spec") or {}
    images = [str(container.get("image")) for container in pod.get("containers") or ()]
    return versions.image_parts(images[0])[1].removeprefix("v") if images else ""


def _has_classes(plan: Plan, cluster: Any) -> bool:
    from launcher.k8s.client import Kind

    kind = Kind("ComputeClass", "cloud.google.com/v1", "computeclasses", namespaced=False)
    for wanted in commands.compute_classes(plan):
        found = cluster.get(kind, wanted["metadata"]["name"])
        if found is None or any(found["spec"].get(key) != value for key, value in wanted["spec"].items()):
            return False
    return True


def _queues_change(plan: Plan) -> str:
    """Return what an install of the queues would change, as text; "" if nothing."""
    from launcher.helm import diff
    from launcher.k8s.target import Target
    from launcher.releases import install

    with tempfile.NamedTemporaryFile("w", suffix=".yaml", encoding="utf-8") as file:
        json.dump(dict(plan.queues_user), file)
        file.flush()
        made = install.plan("queues", None, [file.name], [], Target(commands.context(plan), commands.NAMESPACE))
    return diff.summary(made.changes) if made.changed else ""


def run(plan: Plan, made: Changes, report: Callable[[str], None]) -> None:
    """Run the steps. Raises LauncherError at the first that fails; nothing is rolled back."""
    wait_until_ready(plan, made.actual, report)
    _run_all(plan, made.steps, made.actual.project_number, report)


def delete(plan: Plan, removal: Removal, report: Callable[[str], None]) -> None:
    """Run the steps of `down`. Raises LauncherError at the first that fails."""
    _run_all(plan, removal.steps, "", report)


def _run_all(plan: Plan, found: Sequence[Step], project_number: str, report: Callable[[str], None]) -> None:
    for number, step in enumerate(found, start=1):
        report(f"[{number}/{len(found)}] {verb(step)} {step.what}{f' ({step.detail})' if step.detail else ''} …")
        started = time.monotonic()
        run_step(step, project_number)
        report(f"[{number}/{len(found)}] Done in {formatting.duration(time.monotonic() - started)}.")


def verb(step: Step) -> str:
    return {steps.CREATE: "Creating", steps.CHANGE: "Changing", steps.DELETE: "Deleting"}[step.action]


def wait_until_ready(plan: Plan, actual: Actual, report: Callable[[str], None]) -> None:
    """Wait until the cluster accepts changes: GKE runs one operation at a time, also one of an earlier `up`."""
    cluster: Mapping[str, Any] | None = actual.cluster
    deadline = time.monotonic() + _READY_SECONDS
    while cluster is not None and (status := _status(cluster)) in (*_BUSY, "ERROR"):
        if status == "ERROR":
            raise LauncherError(
                f"The cluster {plan.name} has the status ERROR: {cluster.get('statusMessage') or 'no message'}",
                "Delete it (launcher cluster down), and run up again.",
            )
        if time.monotonic() > deadline:
            raise LauncherError(f"The cluster {plan.name} still has the status {status}.", "Run up again later.")
        report(f"Waiting for the cluster {plan.name}, which has the status {status} …")
        time.sleep(_POLL_SECONDS)
        cluster = actuals.read(plan).cluster


def _status(cluster: Mapping[str, Any]) -> str:
    """Return the status of the cluster or, if it is running, of a node pool that is not."""
    pools = [str(pool.get("status") or "") for pool in cluster.get("nodePools") or ()]
    return next(
        (each for each in [str(cluster.get("status") or ""), *pools] if each in _BUSY), cluster.get("status", "")
    )


def run_step(step: Step, project_number: str) -> None:
    """Run the command of a step. Raises LauncherError with the command's own error."""
    command = step.command
    arguments = [each.replace(PROJECT_NUMBER, project_number) for each in command.arguments]
    for again in range(_RETRIES, -1, -1):
        code, stderr = _call(command, arguments)
        # Another change of an IAM policy at the same time, or another operation on the cluster.
        if code == 0 or not again or not any(text in stderr for text in _RETRIED):
            break
        time.sleep(_RETRY_SECONDS)
    if code == 0:
        return
    text = last_error(stderr)
    if step.action == steps.CREATE and _exists_already(text):
        return  # an interrupted `up` has created it in the meantime
    if step.action == steps.DELETE and _is_gone(text):
        return
    hints = [line.removeprefix("Hint: ") for line in stderr.splitlines() if line.startswith("Hint: ")]
    raise GoogleError(
        f"{step.what}: {text}",
        "".join(f"{hint}\n" for hint in hints)
        + f"The command was: {shell_words(command)}\nThe steps before it are done. Correct it, and run this again.",
    )


def _call(command: Command, arguments: Sequence[str]) -> tuple[int, str]:
    """Run the command. Return its exit code and its standard error."""
    # Files, not pipes: if the launcher is killed, gcloud completes. With a broken pipe, `gcloud storage` never ends.
    with tempfile.TemporaryFile("w+") as stdin, tempfile.TemporaryFile("w+") as stderr:
        stdin.write(command.stdin)
        stdin.seek(0)
        done = subprocess.run(
            [*_program(command), *arguments],
            stdin=stdin,
            stdout=subprocess.DEVNULL,
            stderr=stderr,
            text=True,
            check=False,
            env={**os.environ, "USE_GKE_GCLOUD_AUTH_PLUGIN": "True"},
        )
        stderr.seek(0)
        return done.returncode, stderr.read()


def _exists_already(text: str) -> bool:
    return "ALREADY_EXISTS" in text or "code=409" in text or "HTTPError 409" in text


def _is_gone(text: str) -> bool:
    return "NOT_FOUND" in text or "code=404" in text or "HTTPError 404" in text


def _program(command: Command) -> list[str]:
    if command.program == "gcloud":
        return [find_gcloud()]
    if command.program == "launcher":
        return [sys.executable, "-m", "launcher"]
    found = shutil.which(command.program)
    if found is None:
        raise LauncherError(
            f"There is no {command.program} on the PATH; Kueue and JobSet cannot be installed without it.",
            "Install it: gcloud components install kubectl. Then run up again.",
        )
    return [found]


# --- the shell script -------------------------------------------------------------------------------------------


def shell_words(command: Command) -> str:
    """Return the command as it is typed in a shell, without its standard input."""
    return " ".join([command.program, *map(_quoted, command.arguments)])


def _quoted(argument: str) -> str:
    if PROJECT_NUMBER in argument:  # the shell must replace the variable
        return f'"{argument}"'
    return shlex.quote(argument)


def script(plan: Plan) -> str:
    """Return a shell script that does what `up` does in an empty project, and that can be run again."""
    lines = [
        "#!/bin/sh",
        f"# Creates the GKE cluster {plan.name} in {plan.project}. Written by: launcher cluster plan -o sh",
        "# If it is interrupted, run it again: existing resources are skipped. It changes no existing resource.",
        "set -eu",
        f"PROJECT_NUMBER=$(gcloud projects describe {plan.project} --format='value(projectNumber)')",
    ]
    for step in [*steps.all_steps(plan), *steps.inside(plan, Inside())]:
        lines += ["", f"# {step.what}{f': {step.detail}' if step.detail else ''}"]
        words = shell_words(step.command)
        if step.command.stdin:
            words += f" <<'EOF'\n{step.command.stdin}\nEOF"
        if step.check is not None:
            lines += [f"{shell_words(step.check)} >/dev/null 2>&1 ||", f"  {words}"]
        else:
            lines.append(words)
    return "\n".join(lines) + "\n"
