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
from dataclasses import dataclass, field
from typing import Any

from launcher import formatting
from launcher.config import versions
from launcher.config.accelerators import CHIPS
from launcher.config.suggest import join_or
from launcher.errors import LauncherError
from launcher.k8s import label_keys, objects
from launcher.k8s.pods import Pod
from launcher.products.gke import actual as actuals
from launcher.products.gke import commands, kueue_config, steps
from launcher.products.gke.actual import Actual
from launcher.products.gke.commands import PROJECT_NUMBER, Command
from launcher.products.gke.google import GoogleError, find_gcloud, last_error
from launcher.products.gke.plan import Plan
from launcher.products.gke.steps import Inside, PoolUse, Removal, Step

_POLL_SECONDS, _READY_SECONDS = 10.0, 3600.0
_RETRIES, _RETRY_SECONDS = 5, 3.0
_RETRIED = ("concurrent policy changes", "currently creating, deleting or modifying", "incompatible operation")
_POOL = "cloud.google.com/gke-nodepool"
_BUSY = ("PROVISIONING", "RECONCILING", "STOPPING")


@dataclass(frozen=True)
class Changes:
    """The effect of `up`: the steps in Google Cloud, those inside the cluster, and what it cannot change.

    `removed` are the last steps, which delete node pools. `held` has the runs in the pools that are kept for them, and
    `unseen` is a sentence if these runs could not be read. `users` has a line for each run that uses queues or flavors
    that the values no longer have.
    """

    actual: Actual
    outside: Sequence[Step]
    inside: Sequence[Step]
    conflicts: Sequence[str]
    removed: Sequence[Step] = ()
    held: PoolUse = field(default_factory=dict)
    unseen: str = ""
    users: Sequence[str] = ()
    later: str = ""
    """A sentence if gke.kueueConfig is set and Kueue is not installed yet, so that `inside` cannot change it."""

    @property
    def steps(self) -> list[Step]:
        return [*self.outside, *self.inside, *self.removed]

    @property
    def notes(self) -> list[str]:
        """A line for each node pool that is kept, and for what is not known or is used: its mark, and a sentence."""
        return [*_kept(self.held), *filter(None, [self.unseen, self.later]), *self.users, *self.actual.notes]


def _kept(held: PoolUse) -> list[str]:
    """Return a line for each node pool that is kept for the runs in it."""
    kept = []
    for name, runs in held.items():
        shown = join_or([*runs[:5], *([f"{len(runs) - 5} more"] * (len(runs) > 5))], "and")
        use, end = ("uses", "it has") if len(runs) == 1 else ("use", "they have")
        kept.append(f"= node pool {name} is kept: {shown} {use} it; run up again when {end} ended")
    return kept


def changes(plan: Plan) -> Changes:
    """Compare the plan with what exists. Raises GoogleError if the project cannot be read."""
    actual = actuals.read(plan)
    use: PoolUse = {}
    unseen = ""
    if steps.removed_pools(plan, actual, {})[0]:
        try:
            use = pool_use(plan)
        except LauncherError as error:
            unseen = (
                f"? the runs in the node pools cannot be read, and up reads them before it deletes one: {error.message}"
            )
    removed, held = steps.removed_pools(plan, actual, use)
    within = Inside() if actual.cluster is None else inside_of(plan)
    return Changes(
        actual,
        steps.steps(plan, actual, use),
        steps.inside(plan, within),
        [
            *steps.conflicts(plan, actual, use),
            *(f"flavors.{flavor}: {sentence}" for flavor, sentence in actual.missing),
        ],
        removed,
        held,
        unseen,
        within.users,
        _later(plan, within),
    )


def _later(plan: Plan, within: Inside) -> str:
    keys = ", ".join(plan.values["kueueConfig"])
    return (
        f"~ Kueue's configuration is changed when Kueue is installed: {keys}" if keys and not within.kueue.text else ""
    )


def pool_use(plan: Plan) -> dict[str, list[str]]:
    """Return the runs in each node pool: those with a pod there that has not ended. Raises LauncherError.

    A pod that requests chips and is not of a run counts, too, by its own name.
    """
    from launcher.k8s.client import NODE, POD, connect

    cluster = connect(commands.context(plan))
    pools = {objects.name(node): objects.label(node, _POOL) for node in cluster.list(NODE)}
    by_pool: dict[str, set[str]] = {}
    for pod in map(Pod, cluster.list(POD, all_namespaces=True)):
        pool = pools.get(pod.node, "")
        if pool and pod.phase not in ("Succeeded", "Failed") and (name := _user(pod)):
            by_pool.setdefault(pool, set()).add(f"{pod.namespace}/{name}")
    return {pool: sorted(names) for pool, names in sorted(by_pool.items())}


def _user(pod: Pod) -> str:
    """Return the run, the Ray cluster or the JobSet of a pod, or its name if it only requests chips, or ""."""
    owner = next(filter(None, map(pod.label, (label_keys.RUN, label_keys.RAY_CLUSTER, label_keys.JOB_SET_NAME))), "")
    containers = pod.spec.get("containers") or ()
    requests = [(each.get("resources") or {}).get(part) or {} for each in containers for part in ("requests", "limits")]
    return owner or (pod.name if any(not set(CHIPS).isdisjoint(each) for each in requests) else "")


def inside_of(plan: Plan) -> Inside:
    """Return what the cluster has. If it cannot be read, as before its credentials are known, it has nothing."""
    from launcher.k8s.client import DEPLOYMENT, NAMESPACE, Kind, connect

    try:
        cluster = connect(commands.context(plan))
        images: dict[str, str] = {}
        for name in plan.values["controllers"]:
            namespace, deployment = commands.deployment_of(name)
            image = _image_of(cluster.get(DEPLOYMENT, deployment, namespace))
            images |= {name: image} if image else {}
        config = kueue_config.live(
            cluster.get_unchecked(Kind("ConfigMap", "v1", "configmaps"), kueue_config.NAME, kueue_config.NAMESPACE),
            cluster.get(DEPLOYMENT, *reversed(commands.deployment_of("kueue"))),
        )
        has_namespace = cluster.get(NAMESPACE, commands.NAMESPACE) is not None
        classes = not plan.autopilot or _has_classes(plan, cluster)
        now = {name: versions.image_parts(image)[1].removeprefix("v") for name, image in images.items()}
        queues, users = ("", []) if now.keys() < plan.values["controllers"].keys() else _queues_change(plan)
    except LauncherError:
        return Inside()
    complete = now.keys() == plan.values["controllers"].keys() and has_namespace
    return Inside(True, now, images, has_namespace, classes, queues if complete else "a new release", users, config)


def _image_of(deployment: Any) -> str:
    """Return the image of a controller, whose tag is its version; "" if there is no Deployment."""
    pod = (((deployment or {}).get("spec") or {}).get("template") or {}).get("spec") or {}
    return next((str(container.get("image")) for container in pod.get("containers") or ()), "")


def _has_classes(plan: Plan, cluster: Any) -> bool:
    from launcher.k8s.client import Kind

    kind = Kind("ComputeClass", "cloud.google.com/v1", "computeclasses", namespaced=False)
    for wanted in commands.compute_classes(plan):
        live_class = cluster.get(kind, wanted["metadata"]["name"])
        if live_class is None or any(live_class["spec"].get(key) != value for key, value in wanted["spec"].items()):
            return False
    return True


def _queues_change(plan: Plan) -> tuple[str, list[str]]:
    """Return what an install of the queues would change, as text, "" if nothing; and its notes on runs."""
    from launcher.helm import diff
    from launcher.k8s.target import Target
    from launcher.releases import install

    with tempfile.NamedTemporaryFile("w", suffix=".yaml", encoding="utf-8") as file:
        json.dump(dict(plan.queues_user), file)
        file.flush()
        made = install.plan_release("queues", [file.name], target=Target(commands.context(plan), commands.NAMESPACE))
    return diff.summary(made.changes) if made.changed else "", made.notes


def run(plan: Plan, made: Changes, report: Callable[[str], None]) -> None:
    """Run the steps. Raises LauncherError at the first that fails; nothing is rolled back."""
    wait_until_ready(plan, made.actual, report)
    _run_all(plan, [*made.outside, *made.inside], made.actual.project_number, report)
    if made.later:
        # The manifests of Kueue, which `up` has just applied, have the configuration that the values change.
        now = inside_of(plan)
        if not now.kueue.text:
            raise LauncherError("Kueue's configuration cannot be read, so gke.kueueConfig is not set.", "Run up again.")
        _run_all(plan, steps.inside(plan, now), made.actual.project_number, report)
    if made.removed or made.held:
        _delete_pools(plan, made.actual, report)


def _delete_pools(plan: Plan, actual: Actual, report: Callable[[str], None]) -> None:
    """Delete the pools that no flavor needs and that have no run. Reads the runs again before each deletion."""
    while True:
        try:
            removals, held = steps.removed_pools(plan, actual, pool_use(plan))
        except LauncherError as error:
            raise LauncherError(
                f"No node pool was deleted, because the runs in them cannot be read: {error.message}",
                f"{error.hint}\nThe steps before it are done. Run up again.".strip(),
            ) from error
        if not removals:
            break
        _run_all(plan, removals[:1], actual.project_number, report)
        actual = actuals.without_pool(actual, removals[0].what.removeprefix("node pool "))
    for note in _kept(held):
        report(note)


def delete(plan: Plan, removal: Removal, report: Callable[[str], None]) -> None:
    """Run the steps of `down`. Raises LauncherError at the first that fails."""
    _run_all(plan, removal.steps, "", report)


def _run_all(plan: Plan, all_steps: Sequence[Step], project_number: str, report: Callable[[str], None]) -> None:
    for number, step in enumerate(all_steps, start=1):
        report(f"[{number}/{len(all_steps)}] {verb(step)} {step.what}{f' ({step.detail})' if step.detail else ''} …")
        started = time.monotonic()
        run_step(step, project_number)
        report(f"[{number}/{len(all_steps)}] Done in {formatting.duration(time.monotonic() - started)}.")


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
    path = shutil.which(command.program)
    if path is None:
        raise LauncherError(
            f"There is no {command.program} on the PATH; Kueue and JobSet cannot be installed without it.",
            "Install it: gcloud components install kubectl. Then run up again.",
        )
    return [path]


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
    if plan.values["kueueConfig"]:
        lines += ["", "# Not in this script, because it changes what the cluster has: gke.kueueConfig. To set it, run:"]
        lines += ["# launcher cluster up -f VALUES"]
    return "\n".join(lines) + "\n"
