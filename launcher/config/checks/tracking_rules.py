"""Rules for tracking a run; charts/common/templates/_rules_tracking.tpl has the same rules and messages."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence

from launcher.config.checks.problems import CheckContext, Problem, Rule
from launcher.config.kinds import RunKind

_TAKEN = {6379, 8080, 8265, 8431, 8471, 8476, 52365, *range(1, 1024), *range(10001, 20000)}
"""Ports in a pod used by the system, Ray (its workers use 10002 and up), JAX and libtpu."""
_OBJECT_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")
_PROJECT = re.compile(r"[^/\\#?%:]{1,128}")
_SECRET = ("tracking", "wandb", "secret")
_VARIABLE = "WANDB_API_KEY"


def _port(case: CheckContext) -> Iterator[Problem]:
    port = int(case.tree["tracking"]["metricsPort"])
    if case.kind is not RunKind.LOCAL and port in _TAKEN:
        message = (
            f"tracking.metricsPort: {port} is a port that the system, Ray, JAX or libtpu takes; "
            "use another, such as 9464."
        )
        yield case.problem("tracking", ("tracking", "metricsPort"), message)


def _wandb(case: CheckContext) -> Iterator[Problem]:
    wandb, worker = case.tree["tracking"]["wandb"], case.tree["worker"]
    project = wandb["project"]
    if project and not _PROJECT.fullmatch(project):
        message = (
            f"tracking.wandb.project: {json.dumps(project, ensure_ascii=False)} is no project's name; it has at most "
            "128 characters, none of them one of / \\ # ? % and :. The user or team goes into tracking.wandb.entity."
        )
        yield case.problem("tracking", ("tracking", "wandb", "project"), message)
    elif project and _needs_secret(case):
        message = (
            "tracking.wandb.project is set; tracking.wandb.secret.name must name the Secret with the API key "
            "(tracking.wandb.mode: offline needs none)."
        )
        others = ("run.kind", "run.command", "tracking.wandb.mode", "worker.secretEnv", "worker.envFrom")
        yield from case.across("tracking", (*_SECRET, "name"), message, *others)
    if _VARIABLE in worker["env"]:
        message = (
            "worker.env.WANDB_API_KEY would put the key into the run's record; keep it in a Secret, and name that in "
            "tracking.wandb.secret.name."
        )
        yield case.problem("tracking", ("worker", "env", _VARIABLE), message)
    if case.kind is not RunKind.LOCAL and wandb["secret"]["name"]:
        yield from _secret(case)


def _needs_secret(case: CheckContext) -> bool:
    """Return whether the run needs a Secret for its key.

    The hosts of a long-lived Ray cluster have their own key, and a local machine has the one from `wandb login`.
    """
    wandb, worker, run = case.tree["tracking"]["wandb"], case.tree["worker"], case.tree["run"]
    makes_pods = case.kind.has_object and not run["command"]
    has_key = wandb["secret"]["name"] or _VARIABLE in worker["secretEnv"] or worker["envFrom"]
    return makes_pods and wandb["mode"] == "online" and not has_key


def _secret(case: CheckContext) -> Iterator[Problem]:
    name, key = (case.tree["tracking"]["wandb"]["secret"][each] for each in ("name", "key"))
    if not _OBJECT_NAME.fullmatch(name):
        message = (
            f'tracking.wandb.secret.name: "{name}" is no name of an object; '
            "use small letters, digits, hyphens and dots."
        )
        yield case.problem("name", (*_SECRET, "name"), message)
    if _VARIABLE in case.tree["worker"]["secretEnv"]:
        message = "worker.secretEnv.WANDB_API_KEY and tracking.wandb.secret.name are both set; keep one of the two."
        yield case.problem("tracking", ("worker", "secretEnv", _VARIABLE), message)
    if not re.fullmatch(r"[-._A-Za-z0-9]{1,253}", key):
        message = (
            f'tracking.wandb.secret.key: "{key}" is no key of a Secret; '
            "use letters, digits, hyphens, dots and underscores."
        )
        yield case.problem("name", (*_SECRET, "key"), message)


TRACKING_RULES: Sequence[tuple[tuple[str, ...], Rule]] = (
    (("run.kind", "tracking.metricsPort"), _port),
    (("run.kind", "run.command", "tracking.wandb", "worker"), _wandb),
)
"""Each rule with the keys that it reads."""
