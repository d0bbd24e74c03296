"""Write a commented values file for this machine, or for a team's namespace in a cluster: `launcher init`."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from launcher.config.values.writer import dumps
from launcher.errors import LauncherError
from launcher.k8s import label_keys
from launcher.k8s.client import LOCAL_QUEUE, PRIORITY_CLASS, ClusterError, Forbidden
from launcher.k8s.kueue.queues import LocalQueue, PriorityClass
from launcher.k8s.objects import Object
from launcher.paths import presets_dir

if TYPE_CHECKING:
    from launcher.k8s.client import Cluster
    from launcher.k8s.target import Target

_ABOUT = """\
# Values for every run in {where}, written by launcher init. A file launcher.yaml applies to its folder and the folders
# below it: launcher reads it before every -f. docs/reference/environment.md describes the order, and
# docs/reference/run-values.md all keys.
"""

_IMAGE = """\
# The image of the pods: launcher image build --push --write image.yaml
# image:
#   repository: registry.example.com/slipway
#   tag: "1.0.0"
"""

_STORAGE = """\
# The storage of checkpoints and metrics: gcsfuse (a bucket), or pvc (a claim).
# storage:
#   kind: gcsfuse
#   bucket: my-bucket
"""

_REST = """\
# The model and the slice: use presets, such as -f models/llama3.1-8b -f slices/v6e-4x4 (launcher presets).
# data:
#   files: [/data/text]
"""


@dataclass(frozen=True)
class _Found:
    """The team's queue in a namespace, its other queues and priorities, and the run config of its newest run."""

    namespace: str
    team: str
    queue: str
    others: tuple[str, ...]
    priorities: tuple[str, ...]
    run: str
    config: Mapping[str, Any]


def text(target: Target, schema: str = "") -> str:
    """Return the values file. `schema` is the path or the URL of its schema, for editors.

    Without a cluster in the target, the file is for this machine. Raises LauncherError if the cluster has no queue
    that the user can see.
    """
    parts = [f"# yaml-language-server: $schema={schema}\n"] if schema else []
    if not target.includes_cluster:
        local = Path(__file__).with_name("init_local.yaml").read_text(encoding="utf-8")
        return "".join([*parts, local, _small_model()])
    cluster = target.cluster()
    defaults = _find(cluster)
    parts.append(_ABOUT.format(where=f"the namespace {defaults.namespace} of {cluster.name}"))
    return "\n".join(["".join(parts), *_sections(defaults)])


def _small_model() -> str:
    """Return the section `train` of the preset quickstart, with its comments. MaxText's default model is too large for
    most machines."""
    preset = (presets_dir() / "quickstart.yaml").read_text(encoding="utf-8")
    begin = preset.index("# MaxText's own keys.")
    return preset[begin : preset.index("# yaml-language-server", begin)]


def refuse_existing(path: Path) -> None:
    """Raise LauncherError if the file exists."""
    if os.path.lexists(path):
        raise LauncherError(
            f"{path} already exists; nothing was written.", "Choose another file with --out FILE; --out - prints it."
        )


def write(path: Path, content: str) -> None:
    """Create the file. Raises LauncherError if it exists."""
    refuse_existing(path)
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(content)
    except OSError as error:
        raise LauncherError(f"{path} cannot be written: {error.strerror}.") from error


def _find(cluster: Cluster) -> _Found:
    listed = cluster.list(LOCAL_QUEUE)
    if not listed:
        try:
            listed = cluster.list(LOCAL_QUEUE, all_namespaces=True)
        except Forbidden:
            listed = []
    if not listed:
        raise LauncherError(
            f"There is no queue in the namespace {cluster.namespace} of {cluster.name}.",
            "Choose a team's namespace with -n, or ask the platform team for one (launcher install queues). For this "
            "machine: launcher init --local",
        )
    first, *others = sorted(map(LocalQueue, listed), key=lambda queue: (queue.namespace, queue.name))
    run, config = _newest_run(cluster, first.namespace)
    return _Found(
        first.namespace,
        first.label(label_keys.TEAM) or first.namespace,
        first.name,
        tuple(f"{queue.namespace}/{queue.name}" for queue in others),
        _priorities(cluster),
        run,
        config,
    )


def _priorities(cluster: Cluster) -> tuple[str, ...]:
    try:
        classes = list(map(PriorityClass, cluster.list(PRIORITY_CLASS)))
    except ClusterError:  # members of a team may have no right to list them
        return ()
    return tuple(priority.name for priority in sorted(classes, key=lambda priority: priority.value))


def _newest_run(cluster: Cluster, namespace: str) -> tuple[str, Mapping[str, Any]]:
    """Return the name and the config of the newest run in the namespace; ("", {}) if there is none."""
    from launcher.backends.kubernetes.run_object import KINDS, RunObject

    objects: list[Object] = []
    for kind in KINDS.values():
        try:
            objects += cluster.list(kind, namespace, labels=label_keys.RUN)
        except ClusterError:  # the operator is not installed, or the user has no right to list its objects
            continue
    runs = sorted((RunObject.parse(obj) for obj in objects), key=lambda run: run.created, reverse=True)
    return next(((run.name, run.config) for run in runs if run.config), ("", {}))


def _sections(defaults: _Found) -> Iterator[str]:
    yield dumps({"run": {"kind": (defaults.config.get("run") or {}).get("kind") or "ray-job"}})
    yield dumps({"team": {"name": defaults.team, "namespace": defaults.namespace}})
    others = f"# Other queues that you can see: {', '.join(defaults.others)}\n" if defaults.others else ""
    first, more = defaults.priorities[:1], ", ".join(defaults.priorities[1:])
    priorities = "".join(f"  # priority: {name}{f'  # or: {more}' if more else ''}\n" for name in first)
    yield others + dumps({"queue": {"name": defaults.queue}}) + priorities
    yield _as_in_run(defaults, "image", ("repository", "tag", "digest")) or _IMAGE
    yield _as_in_run(defaults, "storage", ("kind", "bucket", "claim")) or _STORAGE
    yield _REST


def _as_in_run(defaults: _Found, section: str, keys: Sequence[str]) -> str:
    """Return a section with the values of the newest run, or "" if there is no run."""
    values = defaults.config.get(section) or {}
    set_ = {key: values[key] for key in keys if isinstance(values.get(key), str) and values[key]}
    return f"# As in the run {defaults.run}.\n{dumps({section: set_})}" if set_ else ""
