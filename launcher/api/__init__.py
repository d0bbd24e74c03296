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

import re
from importlib import import_module
from pathlib import Path
from typing import Any

from launcher import plugins

_LINE = re.compile(r"^from (launcher[.\w]+) import \w+ as (\w+)$", re.MULTILINE)
HOMES = {name: module for module, name in _LINE.findall(Path(__file__).with_suffix(".pyi").read_text(encoding="utf-8"))}
"""The module of each name, from __init__.pyi. Products add names of their own."""


def __getattr__(name: str) -> Any:
    home = HOMES.get(name) or (None if name.startswith("_") else plugins.api_module(name))
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(home), name)


def __dir__() -> list[str]:
    return sorted({*HOMES, *(name for product in plugins.products() for name in product.api)})
