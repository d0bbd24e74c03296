"""The verbs of the command line as Python functions.

    from launcher import api

    plan = api.plan(["quickstart"], ["train.steps=20"], name="first")
    api.submit(plan)
    print(api.wait("first").loss)

    sweep = api.plan_sweep(["quickstart"], [], ["train.learning_rate=1e-3,1e-2"], name="rates")
    api.submit_sweep(sweep)
    print(api.wait_sweep("rates").best.name)

`files` are values files or names of presets, as a list or one as a string; `sets` are assignments, as `--set` accepts
them, or a mapping: {"train.steps": 20}. `plan` checks them and returns a LaunchPlan. The status of a run is a
launcher.backends.base.RunStatus, and its state a launcher.backends.base.State. `target` is a
launcher.k8s.target.Target(context, namespace, local): where to look. The default is this machine, and then the current
context of the kubeconfig.

Every function raises launcher.errors.LauncherError if the caller can correct the cause: `message` is the sentence that
the command prints, `hint` is what to do next, and `exit_code` is the exit code of the command. The errors of a cluster
are in launcher.k8s.errors. The module of a function is imported when the function is used first. `forecast`, `report`
and others come from products (launcher/plugins.py).

docs/examples/sweep.ipynb is a notebook that submits a sweep, waits for it, and plots the results.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from launcher import plugins

if TYPE_CHECKING:
    from launcher.api._backend import backend_for
    from launcher.api.alternatives import Alternatives, choose_alternative
    from launcher.api.insight import doctor, explain
    from launcher.api.measurements import metrics
    from launcher.api.plans import check, plan, refuse_misfits, render, values
    from launcher.api.releases import (
        check_release,
        diff_run,
        install,
        plan_release,
        plan_removal,
        render_release,
        uninstall,
    )
    from launcher.api.run_lists import list_runs
    from launcher.api.run_logs import logs
    from launcher.api.runs import WaitTimeout, cancel, delete, status, wait
    from launcher.api.serving import IsServedModel, only_runs, run_or_model
    from launcher.api.submission import preview, submit
    from launcher.api.values_files import default_files, init, presets
    from launcher.backends.lookup import IsSweep, NoSuchRun, backends, find, find_best, resolve
    from launcher.backends.selection import RunFilter, select

__all__ = [
    "Alternatives",
    "IsServedModel",
    "IsSweep",
    "NoSuchRun",
    "RunFilter",
    "WaitTimeout",
    "backend_for",
    "backends",
    "cancel",
    "check",
    "check_release",
    "choose_alternative",
    "default_files",
    "delete",
    "diff_run",
    "doctor",
    "explain",
    "find",
    "find_best",
    "init",
    "install",
    "list_runs",
    "logs",
    "metrics",
    "only_runs",
    "plan",
    "plan_release",
    "plan_removal",
    "presets",
    "preview",
    "refuse_misfits",
    "render",
    "render_release",
    "resolve",
    "run_or_model",
    "select",
    "status",
    "submit",
    "uninstall",
    "values",
    "wait",
]

_MODULES = {
    "launcher.api._backend": "backend_for",
    "launcher.api.alternatives": "Alternatives choose_alternative",
    "launcher.api.insight": "doctor explain",
    "launcher.api.measurements": "metrics",
    "launcher.api.plans": "check plan refuse_misfits render values",
    "launcher.api.releases": "check_release diff_run install plan_release plan_removal render_release uninstall",
    "launcher.api.run_lists": "list_runs",
    "launcher.api.run_logs": "logs",
    "launcher.api.runs": "WaitTimeout cancel delete status wait",
    "launcher.api.submission": "preview submit",
    "launcher.api.serving": "IsServedModel only_runs run_or_model",
    "launcher.api.values_files": "default_files init presets",
    "launcher.backends.lookup": "IsSweep NoSuchRun backends find find_best resolve",
    "launcher.backends.selection": "RunFilter select",
}
HOMES = {name: module for module, names in _MODULES.items() for name in names.split()}
"""The module of each name. Products add names of their own."""


def __getattr__(name: str) -> Any:
    home = HOMES.get(name) or (None if name.startswith("_") else plugins.api_module(name))
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(home), name)


def __dir__() -> list[str]:
    return sorted({*HOMES, *(name for product in plugins.products() for name in product.api)})
