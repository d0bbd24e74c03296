"""Checkpoints of runs as models: list, export and import them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from launcher.api._values import Files, Sets, load
from launcher.config.values.tree import Origin, Values, from_plain, merge, with_defaults
from launcher.errors import LauncherError
from launcher.k8s.target import DEFAULT_TARGET, Target
from launcher.products.common.named_runs import find_best
from launcher.products.common.storage import is_path

if TYPE_CHECKING:
    from launcher.config.plan import LaunchPlan
    from launcher.products.models.weights.checkpoints import Checkpoints
    from launcher.products.models.weights.export import Exported
    from launcher.products.models.weights.importing import Imported

_BY = Origin("launcher import", 1)
# The values other than `train` for an import on this machine. With a command, the rules on trainings do not apply.
_HERE: dict[str, Any] = {
    "run": {"name": "import", "kind": "local", "command": ["true"]},
    "slice": {"accelerator": "cpu", "hosts": 1},
    "storage": {"kind": "local"},
}


def checkpoints(name: str, *, target: Target = DEFAULT_TARGET) -> Checkpoints:
    """Return the checkpoints of a run, with their sizes, times and held-out losses.

    A name is that of a run, a run's folder (with a slash in it), or the URL of such a folder in a bucket. Raises
    LauncherError if the run does not exist, has no checkpoints, or its storage cannot be read.
    """
    from launcher.products.models.weights.checkpoints import read

    return read(name, target)


def export(
    name: str,
    to: str,
    *,
    step: str = "last",
    dtype: str = "float32",
    merge: bool = False,
    public: bool = False,
    target: Target = DEFAULT_TARGET,
    say: Callable[[str], None] = lambda _: None,
) -> Exported:
    """Export a checkpoint of a run of this machine as a model in Hugging Face's format.

    A name is that of a run, a sweep (its best run), or a run's folder (with a slash in it). `to` is a folder,
    gs://BUCKET/FOLDER or hf:ORG/NAME, whose repository is private unless `public`. `step` is a number, "last" or
    "best". The export of a run with adapters is the adapter, or with `merge` a whole model. `say` is called with a
    sentence for each part that is done. Raises LauncherError if the run is in a cluster (see plan_export), or the
    export fails; then nothing exists at the destination that a program would load.
    """
    from launcher.products.models.weights import export as exports

    exports.check_destination(to)
    if is_path(name):
        folder = Path(name).expanduser().absolute()
        if not folder.is_dir():
            raise LauncherError(f"There is no folder {folder}.")
        return exports.of_folder(folder, to, step=step, dtype=dtype, merge=merge, public=public, say=say)
    _, status = find_best(name, target, say)
    if status.in_cluster:
        raise LauncherError(
            f'The run "{status.name}" is in a cluster, where a run exports it.',
            "launcher export, or api.plan_export, plans it.",
        )
    folder = Path(status.folder)
    return exports.of_folder(folder, to, step=step, dtype=dtype, merge=merge, public=public, say=say, name=status.name)


def plan_export(
    name: str,
    to: str | None = None,
    *,
    step: str = "last",
    dtype: str = "float32",
    merge: bool = False,
    sets: Sets = (),
    target: Target = DEFAULT_TARGET,
    say: Callable[[str], None] = lambda _: None,
) -> LaunchPlan:
    """Return the plan of a run, NAME-export, that exports a checkpoint of a run in a cluster; submit it with `submit`.

    It runs on one CPU host, with the image, team, queue and storage of the run's own record, and `sets` override these
    values. `to` is a folder below storage.mountPath, or its URL in the bucket; the default is NAME/export/STEP, or for
    an adapter NAME/adapter/STEP. With `merge`, the export of a run with adapters is a whole model. `say` is called with
    a sentence if the checkpoints cannot be listed. Raises LauncherError if the run has no such checkpoint.
    """
    from launcher.products.models.weights import checkpoints as run_checkpoints
    from launcher.products.models.weights import job
    from launcher.products.models.weights.export import has_adapters

    backend, status = find_best(name, target, say)
    if not status.in_cluster:
        raise LauncherError(f'The run "{status.name}" is on this machine.', "api.export exports it here.")
    config = backend.config_of(status.name)
    if not config.get("storage") or not config.get("run"):
        raise LauncherError(f'The config of the run "{status.name}" cannot be read from its object in the cluster.')
    try:
        step = str(run_checkpoints.of_run(backend, status).select(step).step)
    except run_checkpoints.NotListed as error:
        if not (step.isdecimal() or step == run_checkpoints.LAST):
            raise
        say(f"{error.message} The export itself searches the checkpoint.")
    kind = "adapter" if has_adapters(config) and not merge else "export"
    inside = job.destination(config, to, f"{status.name}/{kind}/{step}")
    return job.plan_export(config, inside, step=step, dtype=dtype, merge=merge, extra=load([], sets))


def import_weights(
    source: str,
    to: str,
    files: Files = (),
    sets: Sets = (),
    *,
    say: Callable[[str], None] = lambda _: None,
) -> Imported:
    """Convert a model in Hugging Face's format to the folder `to` of this machine, as weights that runs start from.

    `source` is a folder or hf:ORG/NAME. The values are those of a run that starts from the weights; only `train` is
    used. Raises LauncherError if the model is not that of `train`, or the import fails; then there is no folder.
    """
    from launcher.backends.local.submitter import LocalSubmitter
    from launcher.config.plan import plan_launch
    from launcher.config.values.files import chart_defaults
    from launcher.products.models.weights import importing

    importing.check_source(source)
    user = load(files, sets)
    values = merge(_only(user, "train"), Values(from_plain(_HERE, _BY)))
    plan = plan_launch(values, chart_defaults("run"))
    return importing.here(source, to, LocalSubmitter().config(plan), say)


def plan_import(source: str, to: str, files: Files, sets: Sets = (), *, name: str | None = None) -> LaunchPlan:
    """Return the plan of a run that converts a model into the storage of these values; submit it with `submit`.

    `source` is hf:ORG/NAME, for which worker.secretEnv can supply HF_TOKEN, or a folder in the pods. `to` is a folder
    below storage.mountPath, or its URL in the bucket. The run is called NAME-import, for `name` or run.name.
    """
    from launcher.config.values.files import chart_defaults
    from launcher.products.models.weights import hub, importing, job

    importing.check_source(source)
    user = load(files, sets)
    effective = with_defaults(user, chart_defaults("run"))
    if not source.startswith((hub.PREFIX, "/")):
        raise LauncherError(
            f"{source} is not a path in the pods of the import, which begins with /.",
            "To import a folder of this machine here: --local.",
        )
    inside = job.destination(effective.tree, to, "")
    called = name or str((user.tree.get("run") or {}).get("name") or "weights")
    return job.plan_import(user, source, inside, name=called)


def _only(user: Values, section: str) -> Values:
    node = user.root.value.get(section)
    return Values(type(user.root)({} if node is None else {section: node}, user.root.origin))
