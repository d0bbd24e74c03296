"""Check Kueue's own configuration: which kinds it queues, and how long it waits for pods. Pure functions.

The format is config.kueue.x-k8s.io v1beta1 and v1beta2, with the defaults of apis/config/*/defaults.go.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from launcher.config import versions
from launcher.config.values.reader import read_text
from launcher.diagnose.doctor import components
from launcher.diagnose.doctor.finding import CONTROLLERS, Finding, Level, join_words
from launcher.diagnose.doctor.inventory import VISIBILITY
from launcher.errors import LauncherError
from launcher.k8s.objects import Object

if TYPE_CHECKING:
    from launcher.diagnose.doctor.inventory import ClusterInventory
    from launcher.k8s.deployments import Deployment

_FILE = "controller_manager_config.yaml"
_SUBJECT = "Kueue's configuration"
_WAITS_SINCE = (0, 19)
_DEFAULT_WAIT = "30m"
_LONG = 3600.0  # seconds; enough to provision a large slice and to pull its image
_FEATURE = "DisableWaitForPodsReady"
# For each kind that the charts create: Kueue's name, the component of its API group, what does not wait without it.
_FRAMEWORKS = (
    ("ray.io/rayjob", components.KUBERAY, "runs of kind ray-job"),
    ("ray.io/raycluster", components.KUBERAY, "long-lived Ray clusters"),
    ("jobset.x-k8s.io/jobset", components.JOB_SET, "runs of kind job-set"),
)


def examine(sight: ClusterInventory) -> Iterator[Finding]:
    """Return findings on Kueue's configuration and its visibility API; none if Kueue is not installed."""
    if not sight.serves(components.KUEUE.group):
        return
    yield _visibility(sight)
    those = components.controllers(sight.deployments.seen or []).get(components.KUEUE)
    if not those:
        return
    seen = sight.kueue_config
    if seen.why is not None:
        yield _finding(Level.UNKNOWN, f"{seen.says}.")
        return
    text = (seen.seen or {}).get("data", {}).get(_FILE)
    if text is None:
        where = f"{those[0].namespace}/{components.config_map_name(those[0])}"
        yield _finding(Level.WARNING, f"the ConfigMap {where} has no {_FILE}, so it is unknown.")
        return

    try:
        config = read_text(str(text).encode(), _FILE).tree
    except LauncherError as error:
        yield _finding(Level.PROBLEM, f"Kueue's ConfigMap cannot be read: {error.message}")
        return
    bad = [*_frameworks(sight, config), *_waits(config, those[0]), *_fair(sight, config)]
    yield from bad
    if not bad:
        yield _finding(Level.OK, f"manages all kinds of runs that the charts create. {_never_starts(config, those[0])}")


def managed_without_queue(sight: ClusterInventory) -> Object | None:
    """Return the selector of the namespaces in which Kueue manages runs without a queue; None if it ignores such runs.

    Kueue ignores them, too, if its configuration cannot be read.
    """
    text = ((sight.kueue_config.seen or {}).get("data") or {}).get(_FILE)
    if text is None:
        return None
    try:
        config = read_text(str(text).encode(), _FILE).tree
    except LauncherError:
        return None
    return (config.get("managedJobsNamespaceSelector") or {}) if config.get("manageJobsWithoutQueueName") else None


def _frameworks(sight: ClusterInventory, config: Object) -> Iterator[Finding]:
    enabled = (config.get("integrations") or {}).get("frameworks") or ["batch/job"]
    missing = [(key, what) for key, of, what in _FRAMEWORKS if sight.serves(of.group) and key not in enabled]
    if missing:
        keys = [key for key, _ in missing]
        yield _finding(
            Level.PROBLEM,
            f"integrations.frameworks lacks {join_words(keys)}: {join_words(what for _, what in missing)} start "
            "without waiting for quota.",
            f"Add {join_words(keys)} to integrations.frameworks, and restart Kueue.",
        )


def waits(config: Object, version: versions.Version | None, arguments: Sequence[str] = ()) -> str:
    """Return how long a run's pods may take to become ready, in Kueue's format ("30m"); "" if there is no limit.

    Since 0.19 there is a limit unless a feature gate disables it. `enable: false` of v1beta1 does not disable it,
    because that is the default.
    """
    gates = dict(config.get("featureGates") or {})
    for argument in arguments:
        for gate, value in re.findall(r"(\w+)=(true|false)", argument if "feature-gates" in argument else ""):
            gates[gate] = value == "true"
    if gates.get(_FEATURE):
        return ""
    always = version is not None and version >= _WAITS_SINCE
    if _is_on(config, "waitForPodsReady"):
        reported = config["waitForPodsReady"]
        return str(reported.get("timeout") or (_DEFAULT_WAIT if always and not _is_old(config) else "5m"))
    return _DEFAULT_WAIT if always else ""


def _is_old(config: Object) -> bool:
    return str(config.get("apiVersion", "")).endswith("/v1beta1")


def _is_on(config: Object, section: str) -> bool:
    """Return whether a section is enabled: in v1beta2 if it exists, in v1beta1 if its key `enable` is true."""
    reported = config.get(section)
    return reported is not None and (not _is_old(config) or bool(reported.get("enable")))


def _seconds(duration: str) -> float:
    """Return the seconds of a duration in Go's format: "1h30m" is 5400."""
    units = {"h": 3600, "m": 60, "s": 1}
    return sum(float(number) * units[unit] for number, unit in re.findall(r"([\d.]+)(h|m|s)", duration))


def _limit(config: Object, deployment: Deployment) -> str:
    version = versions.parse(components.version_of(components.KUEUE, deployment))
    return waits(config, version, [word for container in deployment.containers for word in container.args])


def _never_starts(config: Object, deployment: Deployment) -> str:
    """Describe what happens to a run whose pods never start, for example because an image or a Secret is missing."""
    limit = _limit(config, deployment)
    if not limit:
        return (
            "It does not stop a run that can never start (waitForPodsReady is off): a JobSet keeps its chips until it "
            "is cancelled, which a submit that follows the run does, and a RayJob until run.startDeadlineSeconds."
        )
    often = ((config.get("waitForPodsReady") or {}).get("requeuingStrategy") or {}).get("backoffLimitCount")
    again = "is queued again indefinitely" if often is None else f"is queued again {often} times and then deactivated"
    return f"A run that can never start loses its chips after {limit}, and {again} (waitForPodsReady)."


def _waits(config: Object, deployment: Deployment) -> Iterator[Finding]:
    limit = _limit(config, deployment)
    if limit and _seconds(limit) < _LONG:
        default = "" if _is_on(config, "waitForPodsReady") else ", its default since 0.19"
        yield _finding(
            Level.WARNING,
            f"a run whose pods are not all ready {limit} after its admission is evicted (waitForPodsReady{default}): "
            "runs whose slices take longer to provision, or whose images take longer to pull, never start.",
            f"Set waitForPodsReady.timeout to more than the slowest node pool takes; the feature gate {_FEATURE} "
            "disables the limit.",
        )


def _fair(sight: ClusterInventory, config: Object) -> Iterator[Finding]:
    weighted = [
        owner.name for owner in [*(sight.cluster_queues.seen or []), *(sight.cohorts.seen or [])] if owner.weighted
    ]
    if weighted and not _is_on(config, "fairSharing"):
        yield _finding(
            Level.WARNING,
            f"fair sharing is off, so the weights of {join_words(weighted)} have no effect.",
            "Add fairSharing to Kueue's configuration, or remove fairWeight.",
        )
    by_usage = [queue.name for queue in sight.cluster_queues.seen or [] if queue.ordered_by_usage]
    block = config.get("admissionFairSharing")
    # Without a half-life, Kueue counts every usage as 0 (kueue#11134).
    if by_usage and not (block and _seconds(str(block.get("usageHalfLifeTime") or ""))):
        off = "is off" if block is None else "has no usageHalfLifeTime, so every usage is 0"
        yield _finding(
            Level.WARNING,
            f"admission fair sharing {off}: {join_words(by_usage)} {'does' if len(by_usage) == 1 else 'do'} not "
            "prefer LocalQueues with less usage.",
            "Add it to Kueue's configuration, or remove admissionFairSharing from clusterQueues.",
        )


def _visibility(sight: ClusterInventory) -> Finding:
    seen = sight.served[VISIBILITY]
    says = "launcher computes positions in the queue itself, and the order under admission fair sharing is unknown."
    if seen.why is not None:
        return Finding(CONTROLLERS, Level.WARNING, "Kueue's visibility", f"does not answer ({seen.says}): {says}")
    if not seen.seen:
        return Finding(
            CONTROLLERS,
            Level.WARNING,
            "Kueue's visibility",
            f"{VISIBILITY} is not served: {says}",
            "Kueue's docs: "
            "https://kueue.sigs.k8s.io/docs/tasks/manage/monitor_pending_workloads/pending_workloads_on_demand/",
        )
    return Finding(CONTROLLERS, Level.OK, "Kueue's visibility", f"serves {join_words(seen.seen)}.")


def _finding(level: Level, says: str, hint: str = "") -> Finding:
    return Finding(CONTROLLERS, level, _SUBJECT, says, hint)
