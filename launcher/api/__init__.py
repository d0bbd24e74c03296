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
are in launcher.k8s.errors. Each function imports its dependencies when it is called, so importing this module is fast.

docs/examples/sweep.ipynb is a notebook that submits a sweep, waits for it, and plots the results.
"""

from launcher.api._backend import backend_for
from launcher.api.alternatives import Alternatives, choose_alternative
from launcher.api.forecasts import forecast, refuse_misfits
from launcher.api.gke import (
    adopt_cluster,
    cluster_changes,
    cluster_removal,
    cluster_script,
    cluster_terraform,
    create_cluster,
    delete_cluster,
    plan_cluster,
)
from launcher.api.images import build_image, image_commands, plan_image
from launcher.api.inference import chat, evaluate, evaluations, generate, serve
from launcher.api.insight import clusters, dashboard, doctor, explain, metrics, profile, report, tensorboard
from launcher.api.plans import check, plan, render, values
from launcher.api.releases import (
    check_release,
    diff_run,
    install,
    plan_release,
    plan_removal,
    render_release,
    uninstall,
)
from launcher.api.runs import WaitTimeout, cancel, delete, logs, preview, shell, status, submit, wait
from launcher.api.serving import IsServedModel, explain_model, model_logs, models, only_runs, plan_serving, run_or_model
from launcher.api.simulations import (
    advise_queues,
    expected_start,
    expected_start_of,
    expected_starts,
    record_trace,
    simulate_cluster,
    simulate_scenarios,
    simulate_trace,
    simulation_page,
)
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
from launcher.api.values_files import default_files, init, presets
from launcher.api.weights import checkpoints, export, import_weights, plan_export, plan_import
from launcher.backends.lookup import NoSuchRun, backends, find, list_runs, resolve
from launcher.backends.selection import RunFilter, select

__all__ = [
    "Alternatives",
    "IsServedModel",
    "NoSuchRun",
    "RunFilter",
    "WaitTimeout",
    "adopt_cluster",
    "advise_queues",
    "backend_for",
    "backends",
    "build_image",
    "cancel",
    "cancel_sweep",
    "chat",
    "check",
    "check_release",
    "checkpoints",
    "choose_alternative",
    "cluster_changes",
    "cluster_removal",
    "cluster_script",
    "cluster_terraform",
    "clusters",
    "create_cluster",
    "dashboard",
    "default_files",
    "delete",
    "delete_cluster",
    "delete_sweep",
    "diff_run",
    "doctor",
    "evaluate",
    "evaluations",
    "expected_start",
    "expected_start_of",
    "expected_starts",
    "explain",
    "explain_model",
    "export",
    "find",
    "find_sweep",
    "forecast",
    "generate",
    "image_commands",
    "import_weights",
    "init",
    "install",
    "list_runs",
    "logs",
    "metrics",
    "model_logs",
    "models",
    "only_runs",
    "plan",
    "plan_cluster",
    "plan_export",
    "plan_image",
    "plan_import",
    "plan_release",
    "plan_removal",
    "plan_serving",
    "plan_sweep",
    "presets",
    "preview",
    "preview_sweep",
    "profile",
    "record_trace",
    "refuse_misfits",
    "render",
    "render_release",
    "report",
    "resolve",
    "run_or_model",
    "select",
    "serve",
    "shell",
    "simulate_cluster",
    "simulate_scenarios",
    "simulate_trace",
    "simulation_page",
    "status",
    "submit",
    "submit_sweep",
    "sweep",
    "tensorboard",
    "uninstall",
    "values",
    "wait",
    "wait_sweep",
]


def __dir__() -> list[str]:
    return __all__
