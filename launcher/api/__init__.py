"""The verbs as Python functions; the command line is their first user.

    from launcher import api

    plan = api.plan(["quickstart"], ["train.steps=20"], name="first")
    api.submit(plan)
    print(api.wait("first").loss)

    sweep = api.plan_sweep(["quickstart"], [], ["train.learning_rate=1e-3,1e-2"], name="rates")
    api.submit_sweep(sweep)
    print(api.wait_sweep("rates").best.name)

`files` are values files or presets by their names, `sets` texts as `--set` takes them. What runs is a LaunchPlan, made
by `plan` and checked there; all that is known of a run is a launcher.runs.RunStatus, whose state is one of
launcher.runs.State. `place` says where to look, and whom to ask: launcher.place.Place(context, namespace, local), by
default this machine and then the current context of the kubeconfig.

Every function raises launcher.errors.LauncherError for what the caller can mend: its `message` is the sentence that
the command line prints, its `hint` says what to do where the message does not, and `exit_code` is the command's. Its
subclasses are named where they are raised; those of a cluster that refuses, or does not answer, are in
launcher.cluster_errors. Importing this module is light: what a function needs is imported when it is called.

docs/examples/sweep.ipynb is a notebook that submits a sweep, waits, and plots.
"""

from launcher.api.finding import NoSuchRun, backend_for, backends, find, list_runs, resolve
from launcher.api.forecasts import forecast, refuse_misfits
from launcher.api.images import build_image, image_commands, plan_image
from launcher.api.insight import clusters, dashboard, doctor, explain, metrics, report
from launcher.api.plans import check, plan, render, values
from launcher.api.releases import diff_run, install, plan_release, plan_removal, uninstall
from launcher.api.runs import WaitTimeout, cancel, delete, gone_or, logs, preview, status, submit, wait
from launcher.api.sweeps import (
    cancel_sweep,
    delete_sweep,
    find_sweep,
    plan_sweep,
    preview_sweep,
    submit_sweep,
    sweep,
    wait_sweep,
)

__all__ = [
    "NoSuchRun",
    "WaitTimeout",
    "backend_for",
    "backends",
    "build_image",
    "cancel",
    "cancel_sweep",
    "check",
    "clusters",
    "dashboard",
    "delete",
    "delete_sweep",
    "diff_run",
    "doctor",
    "explain",
    "find",
    "find_sweep",
    "forecast",
    "gone_or",
    "image_commands",
    "install",
    "list_runs",
    "logs",
    "metrics",
    "plan",
    "plan_image",
    "plan_release",
    "plan_removal",
    "plan_sweep",
    "preview",
    "preview_sweep",
    "refuse_misfits",
    "render",
    "report",
    "resolve",
    "status",
    "submit",
    "submit_sweep",
    "sweep",
    "uninstall",
    "values",
    "wait",
    "wait_sweep",
]
