"""Whether a run can go to a long-lived Ray cluster: the cluster is ready, and has the slices and storage of the run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from launcher.config.accelerators import GPU_LABEL, label_key, resource
from launcher.errors import LauncherError
from launcher.k8s import objects
from launcher.k8s.objects import Object
from launcher.products.common.ray_hosts import KINDS, Group, counted, groups_in
from launcher.products.ray_cluster.clusters import state_of


def check_ready(ray_cluster: Object, where: str = "") -> None:
    """Raise LauncherError if the cluster's head cannot accept a job. `where` is Cluster.cli_args."""
    state, reason = state_of(ray_cluster)
    if state != "ready":
        name = objects.name(ray_cluster)
        why = f": {reason}" if reason else ""
        raise LauncherError(
            f"The Ray cluster {name} is {state}, so it does not accept runs yet{why}.",
            f"To show its pods: launcher status {name}{where}",
        )


def check_fit(ray_cluster: Object, config: Mapping[str, Any]) -> None:
    """Raise LauncherError if a run with that config can never run there: slices, storage, variables of Secrets."""
    _check_slices(ray_cluster, config)
    if not (config.get("run") or {}).get("command"):
        _check_storage(ray_cluster, config)
    _check_environment(ray_cluster, config)


def _check_slices(ray_cluster: Object, config: Mapping[str, Any]) -> None:
    row, count = config["accelerator"], int((config.get("slice") or {}).get("count") or 1)
    kinds = {**KINDS, resource(row): "gpu"} if row["kind"] == "gpu" else KINDS
    groups = groups_in(ray_cluster, kinds, label_key(row) if row["kind"] == "gpu" else GPU_LABEL)
    hosts = int(row["hosts"])
    if row["kind"] == "tpu":
        having = [each for each in groups if _is_slice(each, row)]
        there, wanted = sum(each.slices for each in having), count
        asked = f"{counted(count, 'slice')} of {row['label']} {row['topology']}"
        asked += f" ({counted(hosts, 'host')} with {row['chipsPerHost']} chips)"
    else:
        having = [each for each in groups if _is_host(each, row)]
        there, wanted = sum(each.slices * each.hosts for each in having), hosts * count
        asked = counted(wanted, "host")
        asked += f" with {row['chipsPerHost']} GPUs of {row['label']}" if row["kind"] == "gpu" else ""
    if there >= wanted:
        return
    name = objects.name(ray_cluster)
    has = "; ".join(f"{each.as_text()}, group {each.name}" for each in groups) or "no workers"
    if having and row["kind"] == "tpu":
        fix = f"Set slice.count to {there}, or give the cluster more slices (slice.count in its own values)."
    elif having:
        fix = (
            f"Set slice.hosts to {there // count or 1}, or give the cluster more hosts (slice.hosts in its own values)."
        )
    else:
        fix = "Set slice.accelerator and slice.topology to its own, or run.cluster to another one (launcher list)."
    raise LauncherError(f"The run requires {asked}, but the Ray cluster {name} has {has}.", fix)


def _is_slice(group: Group, row: Mapping[str, Any]) -> bool:
    return (
        group.kind == "tpu"
        and group.label in ("", row["label"])
        and group.topology in ("", row["topology"])
        and group.hosts == int(row["hosts"])
        and group.chips == int(row["chipsPerHost"])
    )


def _is_host(group: Group, row: Mapping[str, Any]) -> bool:
    if row["kind"] == "cpu":
        return group.kind == "cpu"
    return group.kind == "gpu" and group.label in ("", row["label"]) and group.chips >= int(row["chipsPerHost"])


def _check_storage(ray_cluster: Object, config: Mapping[str, Any]) -> None:
    path = str(config["storage"]["mountPath"]).rstrip("/")
    for what, spec in _pod_specs(ray_cluster):
        mounts = [
            str(mount["mountPath"]).rstrip("/")
            for each in spec["containers"]
            for mount in each.get("volumeMounts") or []
        ]
        if not any(f"{path}/".startswith(f"{mount}/") for mount in mounts):
            raise LauncherError(
                f"storage.mountPath is {path}, but {what} of the Ray cluster {objects.name(ray_cluster)} mounts "
                f"nothing there, so the files of the run would be lost with the pod.",
                f"Its mounts: {', '.join(mounts) or 'none'}. Set storage to the values of the installed Ray cluster.",
            )


def _check_environment(ray_cluster: Object, config: Mapping[str, Any]) -> None:
    """Raise LauncherError if the existing pods lack the run's variables from Secrets."""
    worker = config.get("worker") or {}
    for what, spec in _pod_specs(ray_cluster)[1:]:
        variables = {str(entry["name"]) for each in spec["containers"] for entry in each.get("env") or []}
        sources = {
            str(source["name"])
            for each in spec["containers"]
            for entry in each.get("envFrom") or []
            for source in entry.values()
            if isinstance(source, dict) and "name" in source
        }
        missing = [f"worker.secretEnv.{name}" for name in worker.get("secretEnv") or {} if name not in variables]
        missing += [f"worker.envFrom.{name}" for name in worker.get("envFrom") or {} if name not in sources]
        if missing:
            raise LauncherError(
                f"{missing[0]}: {what} of the Ray cluster {objects.name(ray_cluster)} was created without it, and a "
                "run cannot add a Secret to existing pods.",
                "Set it in the cluster's own values (launcher install ray-cluster), or remove it from the run's.",
            )


def _pod_specs(ray_cluster: Object) -> list[tuple[str, Object]]:
    """Return the pod specs of the head and of each worker group, the head's first."""
    spec = ray_cluster["spec"]
    groups = spec.get("workerGroupSpecs") or []
    return [
        ("the head", spec["headGroupSpec"]["template"]["spec"]),
        *((f"the group {each.get('groupName')}", each["template"]["spec"]) for each in groups),
    ]
