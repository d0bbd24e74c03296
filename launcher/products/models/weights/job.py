"""Conversions on a cluster: a run on one CPU host whose values come from the record of another run, or the user's."""

from __future__ import annotations

import math
import posixpath
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from launcher.config.kinds import RunKind
from launcher.config.maxtext import models
from launcher.config.plan import LaunchPlan, plan_launch
from launcher.config.values.files import chart_defaults
from launcher.config.values.tree import Origin, Values, from_plain, merge
from launcher.errors import LauncherError
from launcher.products.common.storage import is_url
from launcher.products.models.weights import hub
from launcher.products.models.weights.convert import MODULE

_LONGEST_NAME = 40  # of a job-set run
_GIB = 1 << 30
_UNKNOWN_MODEL_GIB = 32
_MOST_CPUS, _GIB_PER_CPU = 4, 4
"""The CPUs that a conversion requests: one for each 4 GiB, as most machine types have. It can use idle ones, too."""
# The sections of a run's values that its conversions share.
_SHARED = ("team", "queue", "image", "storage", "pods", "commonLabels", "commonAnnotations")
_WORKER = ("secretEnv", "envFrom")
_COMPILERS = ("XLA_", "LIBTPU_", "JAX_")
"""The variables of the chips, which the run has for its training."""


def plan_export(
    config: Mapping[str, Any], to: str, *, step: str, dtype: str, extra: Values, merge: bool = False
) -> LaunchPlan:
    """Return the plan of the run that exports a checkpoint of the run with this config.

    `step` is a number, or "last": the conversion selects it. `extra` are values that override those of the run.
    """
    name, mount = config["run"]["name"], str(config["storage"]["mountPath"]).rstrip("/")
    arguments = ["export", "--config", f"{mount}/{name}/run.json", "--to", to, "--dtype", dtype]
    arguments += ["--step", step] if step.isdecimal() else []
    arguments += ["--merge"] if merge else []
    memory = memory_gib(config.get("train") or {})
    return plan(config, f"the run {name}", name, "export", [MODULE, *arguments], memory, extra)


def plan_import(user: Values, source: str, to: str, *, name: str) -> LaunchPlan:
    """Return the plan of the run that converts weights into storage, for the values of the run that will use them."""
    tree = user.tree
    arguments = ["import", "--config", "/etc/slipway/run.json", "--from", source, "--to", to]
    memory = memory_gib(tree.get("train") or {})
    words = [MODULE, *arguments]
    return plan(tree, "the values", name, "import", words, memory, Values.empty(), train=tree.get("train") or {})


def plan(
    tree: Mapping[str, Any],
    origin: str,
    name: str,
    verb: str,
    module: Sequence[str],
    memory: int,
    extra: Values,
    **more: Any,
) -> LaunchPlan:
    """Return the plan of a run called NAME-VERB, with the sections of `tree` that its pod needs and `memory` in GiB.

    `module` is a module of the trainer and its arguments. `origin` names the source of the tree in messages.
    """
    worker, security = tree.get("worker") or {}, tree.get("security") or {}
    values = {
        **{section: tree[section] for section in _SHARED if tree.get(section)},
        "run": {
            "name": job_name(name, verb),
            "kind": RunKind.JOB_SET.value,
            "command": ["python", "-m", *module],
            # A conversion that fails would fail again. A preemption does not count.
            "maxRestarts": 0,
        },
        "slice": {"accelerator": "cpu", "hosts": 1},
        "worker": {
            "cpu": str(min(_MOST_CPUS, max(1, memory // _GIB_PER_CPU))),
            "memory": f"{memory}Gi",
            **{key: worker[key] for key in _WORKER if worker.get(key)},
            "env": {name: each for name, each in (worker.get("env") or {}).items() if not name.startswith(_COMPILERS)},
        },
        **({"security": {"runAsUser": security["runAsUser"]}} if "runAsUser" in security else {}),
        **more,
    }
    user = merge(Values(from_plain(values, Origin(origin, 1))), extra)
    # The only warning is that a command ignores `train`, which the conversion reads.
    return replace(plan_launch(user, chart_defaults("run")), warnings=())


def job_name(name: str, verb: str) -> str:
    """Return the name of the run that converts: NAME-export, shortened if it would be too long."""
    return f"{name[: _LONGEST_NAME - len(verb) - 1].rstrip('-')}-{verb}"


def memory_gib(train: Mapping[str, Any]) -> int:
    """Return the memory of a conversion in GiB: what it keeps of the largest parameter, and 3 GiB.

    It keeps a parameter of all layers, if it has at most 8 GiB in float32, and otherwise a quarter of it
    (docs/reference/export.md). The other 3 GiB are for a chunk of the checkpoint and the program.
    """
    arrays = models.weights(train)
    if not arrays:
        return _UNKNOWN_MODEL_GIB
    largest = max(array.parameters for array in arrays) * 4 / _GIB
    return math.ceil(3 + min(largest, max(8, largest / 4)))


def destination(config: Mapping[str, Any], to: str | None, default: str) -> str:
    """Return the folder in the pods for a destination: a path below the mount, or a URL in the mounted bucket.

    `default` is relative to the mount. Raises LauncherError for any other place.
    """
    storage = config["storage"]
    mount = str(storage["mountPath"]).rstrip("/")
    if storage.get("kind") == "local":
        raise LauncherError(
            "storage.kind is local: the files of the pods are deleted with them.", "Use the kind gcsfuse or pvc."
        )
    if to is None:
        return f"{mount}/{default}"
    bucket = f"gs://{storage.get('bucket')}" if storage.get("kind") == "gcsfuse" else ""
    places = f"a folder below {mount}" + (f", or {bucket}/FOLDER" if bucket else "")
    if bucket and to.startswith(f"{bucket}/"):
        inside = posixpath.normpath(f"{mount}/{to.removeprefix(f'{bucket}/')}")
    else:
        inside = posixpath.normpath(to)
    if is_url(inside) or to.startswith(hub.PREFIX) or not inside.startswith(f"{mount}/"):
        copy = (
            f"gcloud storage cp -r {bucket}/{default} ." if bucket else "kubectl cp, from a pod that mounts the claim"
        )
        raise LauncherError(
            f"--to {to} is outside the storage of the run, and its pods write only there: give {places}.",
            f"To use the model elsewhere, leave out --to, and copy the folder when it is done: {copy}"
            if default
            else "",
        )
    return inside
