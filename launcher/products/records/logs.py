"""`launcher logs` without pods: the output of a run from its folder, and how to read it if this machine cannot."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from urllib.parse import quote

from launcher.api.run_logs import is_folder
from launcher.backends.base import Backend, RunStatus, State
from launcher.backends.kubernetes import logs as kubernetes_logs
from launcher.backends.kubernetes import reader, states
from launcher.backends.log_excerpt import Excerpt
from launcher.backends.lookup import find
from launcher.errors import LauncherError, UsageError
from launcher.k8s.target import DEFAULT_TARGET, Target
from launcher.products.common.storage import BUCKET_FOLDER
from launcher.products.records.stored_logs import FOLDER, StoredLogs

_CLOCKS_DIFFER = timedelta(minutes=1)
_GKE_CONTEXT = re.compile(r"gke_(?P<project>[a-z0-9:.-]+)_(?P<location>[a-z0-9-]+)_(?P<cluster>[a-z0-9-]+)")
_IMAGE = "busybox"


def stored_log(
    name: str,
    run: tuple[Backend, RunStatus] | None,
    *,
    attempt: int | None,
    worker: int | None,
    excerpt: Excerpt,
) -> Iterator[str] | Sequence[str] | None:
    """Return the lines from the folder of a run; None if its pods, or its log on this machine, have them.

    `run` is None if `name` is a folder or a URL. Raises LauncherError if the output can be read nowhere.
    """
    if run is None:
        if _local_logs(folder := Path(name).expanduser()):
            return _local(folder, attempt, worker, excerpt)
        stored = StoredLogs(name)
        return stored.excerpt(_known(stored, name, attempt), worker, excerpt)
    backend, status = run
    if not status.in_cluster:
        own = attempt in (None, status.attempt)
        return None if own else _local(Path(status.folder), attempt, worker, excerpt)
    if attempt in (None, status.attempt) and not _is_over(backend, status, worker):
        return None
    try:
        stored = _stored(status)
        number = _known(stored, f'The run "{status.name}"', attempt or status.attempt)
    except LauncherError as error:
        _with_link(error, status)
        if attempt in (None, status.attempt) and _kept_by_kuberay(backend, status):
            return _with_notice(backend, status, worker, excerpt, error)
        raise
    since = ""
    if attempt is None and status.submitted:
        since = f"{datetime.fromisoformat(status.submitted) - _CLOCKS_DIFFER:%Y%m%dT%H%M%S}"
    return stored.excerpt(number, worker, excerpt, since=since)


def download_logs(
    name: str, into: Path, say: Callable[[str], None] = lambda _: None, *, target: Target = DEFAULT_TARGET
) -> list[Path]:
    """Write the output of all attempts of a run from its folder, and return the files. `name` may be that folder.

    `say` is called with a sentence after each. Raises LauncherError if the output is not available.
    """
    status = None if is_folder(name) else find(name, target)[1]
    if status is None or not status.in_cluster:
        folder = Path(name if status is None else status.folder).expanduser()
        if status is not None or _local_logs(folder):
            return _copy_local(folder, into, say)
    try:
        stored = StoredLogs(name) if status is None else _stored(status)
        _known(stored, name if status is None else f'The run "{status.name}"', None)
    except LauncherError as error:
        raise _with_link(error, status) from None
    return stored.download(into, say)


def _stored(status: RunStatus) -> StoredLogs:
    folder = _folder(status)
    try:
        return StoredLogs(folder)
    except LauncherError as error:
        copied = f"gcloud storage cp -r {folder}/{FOLDER} ./{status.name}/ && launcher logs ./{status.name}"
        error.hint = f"{error.hint}\nA user who may read the bucket can copy it: {copied}".strip()
        raise


def _with_link(error: LauncherError, status: RunStatus | None) -> LauncherError:
    """Return the error, which names Cloud Logging, too, if the cluster is GKE's."""
    link = cloud_logging(status) if status is not None else ""
    error.hint = "\n".join(filter(None, (error.hint, link)))
    return error


def cloud_logging(status: RunStatus) -> str:
    """Return a sentence with the address of the run's output in Cloud Logging; "" if the cluster is not GKE's."""
    match = _GKE_CONTEXT.fullmatch(status.context)
    if match is None or not status.has_object:
        return ""
    # Cloud Logging replaces the dots of a label's key.
    query = [
        'resource.type="k8s_container"',
        f'resource.labels.project_id="{match["project"]}"',
        f'resource.labels.location="{match["location"]}"',
        f'resource.labels.cluster_name="{match["cluster"]}"',
        f'resource.labels.namespace_name="{status.namespace}"',
        f'labels."k8s-pod/slipway_dev/run"="{status.name}"',
    ]
    # Without a time, the page shows the last hour only.
    if status.submitted:
        query.append(f'timestamp>="{status.submitted}"')
    text = quote("\n".join(query), safe="")
    url = f"https://console.cloud.google.com/logs/query;query={text}?project={match['project']}"
    return f"Cloud Logging keeps the output of pods, by default for 30 days: {url}"


def _is_over(backend: Backend, status: RunStatus, worker: int | None) -> bool:
    """Return whether the pods with the output are gone, and none will come without a new start."""
    waits = status.state in (State.QUEUED, State.ADMITTED, State.PREEMPTED)
    if not (status.state.ended or waits) or backend.cluster is None or not status.has_object:
        return False
    run = reader.find(backend.cluster, status.name)
    if run is None:
        return True
    seen = reader.observe(backend.cluster, run)
    if kubernetes_logs.printing_pod(seen, None if seen.ray else worker) is not None:
        return False
    return status.state.ended or bool(status.started or status.preemptions)


def _kept_by_kuberay(backend: Backend, status: RunStatus) -> bool:
    if backend.cluster is None or not status.has_object or not status.state.ended:
        return False
    run = reader.find(backend.cluster, status.name)
    return run is not None and bool(states.log_tail(reader.observe(backend.cluster, run)))


def _with_notice(
    backend: Backend, status: RunStatus, worker: int | None, excerpt: Excerpt, error: LauncherError
) -> Iterator[str]:
    yield f"(This is the end of the output, which KubeRay keeps in the RayJob. {error.message} {error.hint})"
    yield from backend.logs(status.name, follow=False, worker=worker, excerpt=excerpt)


def _known(stored: StoredLogs, name: str, attempt: int | None) -> int:
    """Return the attempt, by default the last one. Raises LauncherError if the folder does not have it."""
    if not stored.parts:
        raise LauncherError(
            f"{name} has no output in its folder, and no pods.",
            "storage.logs.size keeps the output of later runs; a run of an older Slipway kept none.",
        )
    if attempt is None:
        return stored.attempts[-1]
    if attempt not in stored.attempts:
        there = ", ".join(map(str, stored.attempts))
        raise LauncherError(f"Attempt {attempt} was not found in {stored.folder}/{FOLDER}; it has: {there}.")
    return attempt


def _folder(status: RunStatus) -> str:
    """Return the folder. Raises LauncherError, with the commands that read it, if this machine cannot."""
    if BUCKET_FOLDER.fullmatch(status.folder):
        return status.folder
    claim = re.fullmatch(r"pvc://(?P<claim>[a-z0-9.-]+)/(?P<name>[a-z0-9.-]+)", status.folder)
    if claim is None:
        raise LauncherError(f'The output of the run "{status.name}" was deleted with its pods.')
    raise LauncherError(
        f"The pods of {status.name} are gone, and its output is in the claim {claim['claim']}, which only pods can "
        "mount.",
        f"To print it: {_pod_command(status, claim['claim'], claim['name'])}",
    )


def _pod_command(status: RunStatus, claim: str, name: str) -> str:
    """Return the command that prints the output with a pod, which Pod Security's level `restricted` accepts."""
    safe = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
    container = {
        "name": "logs",
        "image": _IMAGE,
        "command": ["sh", "-c", f"zcat /storage/{name}/{FOLDER}/{status.attempt}/*.log.gz"],
        "volumeMounts": [{"name": "storage", "mountPath": "/storage", "readOnly": True}],
        "securityContext": safe,
    }
    spec = {
        "containers": [container],
        "volumes": [{"name": "storage", "persistentVolumeClaim": {"claimName": claim}}],
        "securityContext": {"runAsNonRoot": True, "runAsUser": 1000, "seccompProfile": {"type": "RuntimeDefault"}},
    }
    context = f" --context {shlex.quote(status.context)}" if status.context else ""
    return (
        f"kubectl run logs-{name} -n {status.namespace}{context} --image {_IMAGE} --rm --attach --restart Never "
        f"--overrides {shlex.quote(json.dumps({'spec': spec}))}"
    )


def _local_logs(folder: Path) -> dict[int, Path]:
    """Return the logs of a run on this machine by their attempts."""
    earlier = {path.name.split(".")[1]: path for path in folder.glob("log.*.txt")}
    found = {int(number): path for number, path in earlier.items() if number.isdecimal()}
    if (last := folder / "log.txt").is_file():
        found[max(found, default=0) + 1] = last
    return found


def _local(folder: Path, attempt: int | None, worker: int | None, excerpt: Excerpt) -> Sequence[str]:
    """Return the lines of an attempt of a run on this machine, by default of the last one."""
    if worker is not None:
        raise UsageError("A local run has one log for all its workers; leave out --worker.")
    found = _local_logs(folder)
    path = found.get(attempt or max(found, default=0))
    if path is None:
        there = ", ".join(map(str, sorted(found))) or "none"
        raise LauncherError(f"Attempt {attempt} was not found in {folder}; it has: {there}.")
    try:
        with path.open(encoding="utf-8", errors="replace") as file:
            return excerpt.of(line.removesuffix("\n") for line in file)
    except OSError as error:
        raise LauncherError(f"The output of attempt {attempt} cannot be read: {path}: {error.strerror}.") from error


def _copy_local(folder: Path, into: Path, say: Callable[[str], None]) -> list[Path]:
    """Copy the log of each attempt of a run on this machine."""
    written = []
    for number, path in sorted(_local_logs(folder).items()):
        copy = into / str(number) / "run.log"
        try:
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.write_bytes(path.read_bytes())
        except OSError as error:
            raise LauncherError(f"{copy} cannot be written: {error.strerror}.") from error
        written.append(copy)
        say(f"Wrote {copy}.")
    return written
