"""Check whether Kueue, JobSet, KubeRay and GKE's TPU webhook are installed, supported and available. Pure functions.

Names and images are those of the upstream manifests and charts of the supported versions (launcher/config/versions.py),
and of the TPU webhook 1.3 and 1.4.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from launcher.config import versions
from launcher.config.accelerators import TPU_LABEL
from launcher.config.accelerators import TPU_RESOURCE as TPU
from launcher.diagnose.doctor.finding import CONTROLLERS, Finding, Level, join_words
from launcher.diagnose.doctor.inventory import hidden
from launcher.k8s import client as k
from launcher.k8s import label_keys
from launcher.k8s.objects import Object, label

if TYPE_CHECKING:
    from launcher.diagnose.doctor.inventory import ClusterInventory, Fetched
    from launcher.k8s.deployments import Deployment


@dataclass(frozen=True)
class Component:
    """A controller that runs need.

    Its Deployment is found by the ends of its image names, `images`, or by its names, `deployments`. `service` is
    part of the name of its webhook's Service ("": it has no relevant webhook).
    """

    name: str
    group: str
    kinds: tuple[k.Kind, ...]
    supported: str  # its key in the charts' annotations; "" if they name no versions
    images: tuple[str, ...]
    deployments: tuple[str, ...]
    service: str
    hooks: tuple[str, ...]
    without: str  # what does not work without it
    install: str


KUEUE = Component(
    "Kueue",
    "kueue.x-k8s.io",
    (k.WORKLOAD, k.LOCAL_QUEUE, k.CLUSTER_QUEUE, k.COHORT, k.RESOURCE_FLAVOR, k.TOPOLOGY, k.PRIORITY_CLASS),
    "kueue",
    ("kueue",),
    ("kueue-controller-manager",),
    "kueue",
    ("mutating", "validating"),
    "no run can wait in a queue",
    "Install Kueue: https://kueue.sigs.k8s.io/docs/installation/",
)
JOB_SET = Component(
    "JobSet",
    "jobset.x-k8s.io",
    (k.JOB_SET,),
    "jobset",
    ("jobset",),
    ("jobset-controller-manager", "jobset-controller"),
    "jobset",
    ("mutating", "validating"),
    "runs of kind job-set cannot run",
    "Install JobSet: https://jobset.sigs.k8s.io/docs/installation/",
)
KUBERAY = Component(
    "KubeRay",
    "ray.io",
    (k.RAY_JOB, k.RAY_CLUSTER),
    "kuberay",
    ("kuberay/operator", "kuberay-operator"),
    ("kuberay-operator",),
    "",
    (),
    "runs of kind ray-job and long-lived Ray clusters cannot run",
    "Install KubeRay's operator, or on GKE the Ray add-on: gcloud container clusters update NAME "
    "--update-addons=RayOperator=ENABLED",
)
TPU_WEBHOOK = Component(
    "TPU webhook",
    "",
    (),
    "",
    ("tpu-webhook",),
    ("kuberay-tpu-webhook",),
    "tpu-webhook",
    ("mutating",),
    "the hosts of a TPU slice under Ray do not find each other",
    "It comes with GKE's Ray add-on; elsewhere install ai-on-gke/kuberay-tpu-webhook.",
)
_TPU_LABEL = "cloud.google.com/gke-tpu-accelerator"
# Features that an older TPU webhook lacks: (first version, lack, the accelerator that needs it or "" for all).
_TPU_WEBHOOK_FEATURES = (
    ((1, 3, 0), "it does not set MEGASCALE_*, so a run on several slices under Ray would not start", ""),
    ((1, 3, 1), "it does not know tpu7x", "tpu7x"),
)
COMPONENTS = (KUEUE, JOB_SET, KUBERAY, TPU_WEBHOOK)
GROUPS = tuple(component.group for component in COMPONENTS if component.group)


class Service(NamedTuple):
    """A webhook's Service. `required`: requests are rejected while it does not answer."""

    namespace: str
    name: str
    required: bool
    unsigned: bool  # a webhook has no caBundle to verify it with


# --- find them -----------------------------------------------------------------------------------------------------


def controllers(deployments: Iterable[Deployment]) -> dict[Component, list[Deployment]]:
    """Return the Deployments of each component, the available ones first."""
    by_component: dict[Component, list[Deployment]] = {}
    for deployment in deployments:
        for component in COMPONENTS:
            if _image_of(component, deployment) or deployment.name in component.deployments:
                by_component.setdefault(component, []).append(deployment)
    return {component: sorted(those, key=lambda one: not one.available) for component, those in by_component.items()}


def version_of(component: Component, deployment: Deployment) -> str:
    """Return the version from the image's tag, else from the Deployment's label; "" if neither has one.

    (The label of a kustomized JobSet is that of an older version.)
    """
    tags = [versions.image_parts(_image_of(component, deployment))[1], deployment.label(label_keys.VERSION)]
    return next((tag.removeprefix("v") for tag in tags if versions.parse(tag)), "")


def services(
    component: Component, configurations: Iterable[Object], controllers: Sequence[Deployment]
) -> list[Service]:
    """Return the Services of the component's webhooks."""
    by_name: dict[tuple[str, str], Service] = {}
    for configuration in configurations_of(component, configurations, controllers):
        for hook in configuration.get("webhooks") or []:
            config = hook.get("clientConfig") or {}
            if service := config.get("service"):
                key = (str(service["namespace"]), str(service["name"]))
                before = by_name.get(key, Service(*key, required=False, unsigned=False))
                by_name[key] = Service(
                    *key,
                    required=before.required or hook.get("failurePolicy") != "Ignore",
                    unsigned=before.unsigned or not config.get("caBundle"),
                )
    return list(by_name.values())


def configurations_of(
    component: Component, configurations: Iterable[Object], controllers: Sequence[Deployment]
) -> list[Object]:
    """Return a component's webhook configurations, by the Service's name and, if known, its namespace."""
    homes = {deployment.namespace for deployment in controllers}
    return [
        configuration
        for configuration in configurations
        if component.service
        and any(
            component.service in service["name"] and (not homes or service["namespace"] in homes)
            for hook in configuration.get("webhooks") or []
            if (service := (hook.get("clientConfig") or {}).get("service"))
        )
    ]


def _image_of(component: Component, deployment: Deployment) -> str:
    for container in deployment.containers:
        repository = "/" + versions.image_parts(container.image)[0]
        if any(repository.endswith("/" + end) for end in component.images):
            return container.image
    return ""


# --- check them ----------------------------------------------------------------------------------------------------


def examine(sight: ClusterInventory, tpus: bool | None) -> Iterator[Finding]:
    """Return findings on all four. `tpus`: whether the cluster has TPU nodes or flavors; None if that is unknown."""
    deployments = controllers(sight.deployments.seen or [])
    neither = not any(sight.serves(one.group) for one in (JOB_SET, KUBERAY))
    for component in COMPONENTS:
        if component is TPU_WEBHOOK:
            yield from _tpu_webhook(sight, deployments.get(component, []), tpus)
            continue
        served = sight.served[component.group]
        if served.why is not None:
            yield _unknown(component, served)
        elif not served.seen:
            # JobSet or KubeRay alone is enough to train. Training is not possible without Kueue or without both.
            level = Level.PROBLEM if component is KUEUE or neither else Level.WARNING
            yield _finding(component, level, f"not installed: {component.without}.", component.install)
        else:
            yield from _installed(sight, component, served.seen, deployments.get(component, []))


def _installed(
    sight: ClusterInventory, component: Component, served: Mapping[str, Sequence[str]], those: Sequence[Deployment]
) -> Iterator[Finding]:
    api = component.kinds[0].api_version
    bad = list(_served(component, served, api.rpartition("/")[2]))
    if sight.deployments.seen is not None:
        bad += _controller(sight, component, those)
    bad += _webhooks(sight, component, those)
    yield from bad
    unseen = hidden(_unseen(sight, component, those))
    if unseen:
        where = f"{_where(component, those[0])}, serves" if those else "serves"
        yield _finding(component, Level.UNKNOWN, f"{where} {api}; whether it works is unknown: {unseen}.")
    elif not bad:
        webhooks = " and its webhooks" if component.hooks else ""
        yield _finding(component, Level.OK, f"{_where(component, those[0])} serves {api}{webhooks}.")


def _unseen(sight: ClusterInventory, component: Component, those: Sequence[Deployment]) -> list[Fetched[Any]]:
    """Return what could not be read of a component."""
    looks: list[Fetched[Any]] = [sight.deployments, *(sight.webhooks[kind] for kind in component.hooks)]
    every = [one for kind in component.hooks for one in sight.webhooks[kind].seen or []]
    looks += [sight.endpoints[service.namespace] for service in services(component, every, those)]
    return [look for look in looks if look.why is not None]


def _served(component: Component, served: Mapping[str, Sequence[str]], version: str) -> Iterator[Finding]:
    if version not in served:
        yield _finding(
            component,
            Level.PROBLEM,
            f"serves {component.group} as {join_words(served)}; the charts use {version}.",
            f"Install a supported version of {component.name}: {versions.supported(component.supported)}.",
        )
        return
    missing = [kind.plural for kind in component.kinds if kind.plural not in served[version]]
    if missing:
        yield _finding(
            component,
            Level.PROBLEM,
            f"{component.group}/{version} lacks {join_words(missing)}: their CRDs are missing.",
            f"Install all CRDs of {component.name}'s version.",
        )


def _controller(sight: ClusterInventory, component: Component, those: Sequence[Deployment]) -> Iterator[Finding]:
    if not those:
        yield _finding(
            component,
            Level.PROBLEM,
            f"its API is served, but its controller has no Deployment: {component.without}.",
            component.install,
        )
        return
    first = those[0]
    if not first.available:
        why = first.condition("Progressing").message or first.condition("Available").message
        yield _finding(
            component,
            Level.PROBLEM,
            f"{_where(component, first)} has no ready pod{f' ({why.rstrip(chr(46))})' if why else ''}.",
            f"kubectl -n {first.namespace} "
            + (
                f"scale deployment {first.name} --replicas=1"
                if first.scaled_to_zero
                else f"describe pods (of the Deployment {first.name})"
            ),
        )
    yield from _version(component, first)
    if component is KUBERAY and (watched := _watched(first)) and sight.namespace not in watched:
        yield _finding(
            component,
            Level.WARNING,
            f"the operator in {first.namespace} watches only {join_words(watched)}: a run in {sight.namespace} would "
            "never start.",
            "Change watchNamespace in the values of its chart.",
        )


def _version(component: Component, deployment: Deployment) -> Iterator[Finding]:
    if not component.supported:
        return
    text = version_of(component, deployment)
    version, fits = versions.parse(text), versions.supported(component.supported)
    if version is None:
        image = _image_of(component, deployment) or "no image with a known name"
        yield _finding(component, Level.WARNING, f"its version is unknown ({image}); supported versions are {fits}.")
    elif version < fits.oldest:
        yield _finding(
            component,
            Level.PROBLEM,
            f"version {text} is too old; supported versions are {fits}.",
            "Upgrade " + component.name,
        )
    elif version > fits.newest:
        yield _finding(component, Level.WARNING, f"version {text} is newer than the supported versions: {fits}.")


def _webhooks(sight: ClusterInventory, component: Component, those: Sequence[Deployment]) -> Iterator[Finding]:
    for kind in component.hooks:
        seen = sight.webhooks[kind]
        if those and seen.seen is not None and not configurations_of(component, seen.seen, those):
            yield _finding(
                component,
                Level.PROBLEM,
                f"its {kind} webhook configuration is missing"
                + (
                    ": runs would start without waiting for quota." if (component, kind) == (KUEUE, "mutating") else "."
                ),
                f"Install {component.name} again; its manifests contain it.",
            )
    every = [one for kind in component.hooks for one in sight.webhooks[kind].seen or []]
    for service in services(component, every, those):
        yield from _answers(sight, component, service)


def _answers(sight: ClusterInventory, component: Component, service: Service) -> Iterator[Finding]:
    endpoints = sight.endpoints[service.namespace].seen
    if endpoints is None:
        return
    ready = [
        one
        for entry in endpoints
        if label(entry, "kubernetes.io/service-name") == service.name
        for one in entry.get("endpoints") or []
        if (one.get("conditions") or {}).get("ready") is not False
    ]
    if not ready:
        what = "the API server rejects what it checks" if service.required else "the API server skips it"
        yield _finding(
            component,
            Level.PROBLEM if service.required else Level.WARNING,
            f"its webhook's Service {service.namespace}/{service.name} has no ready endpoint: {what}.",
            f"kubectl -n {service.namespace} get pods shows why.",
        )
    elif service.unsigned:
        yield _finding(
            component,
            Level.WARNING,
            f"its webhook at {service.namespace}/{service.name} has no caBundle, so the API server might not trust it.",
            f"{component.name} (or cert-manager) writes it when it runs.",
        )


def _tpu_webhook(sight: ClusterInventory, those: Sequence[Deployment], tpus: bool | None) -> Iterator[Finding]:
    if not sight.serves(KUBERAY.group) or tpus is False:
        why = "the cluster has no TPUs" if sight.serves(KUBERAY.group) else "only TPU hosts under KubeRay need it"
        yield _finding(TPU_WEBHOOK, Level.OK, f"not needed: {why}.")
        return
    unseen = hidden(_unseen(sight, TPU_WEBHOOK, those))
    configured = configurations_of(TPU_WEBHOOK, sight.webhooks["mutating"].seen or [], those)
    if not those and not configured and not unseen:
        level = Level.PROBLEM if tpus else Level.WARNING
        yield _finding(TPU_WEBHOOK, level, f"not installed: {TPU_WEBHOOK.without}.", TPU_WEBHOOK.install)
        return
    bad = [*_controller(sight, TPU_WEBHOOK, those)] if those else []
    bad += _webhooks(sight, TPU_WEBHOOK, those)
    bad += _tpu_webhook_version(sight, those[0]) if those else []
    yield from bad
    if unseen:
        yield _finding(TPU_WEBHOOK, Level.UNKNOWN, f"whether it is installed and works is unknown: {unseen}.")
    elif not bad:
        says = f"{_where(TPU_WEBHOOK, those[0])} answers." if those else "runs outside the cluster."
        yield _finding(TPU_WEBHOOK, Level.OK, says)


def _tpu_webhook_version(sight: ClusterInventory, deployment: Deployment) -> Iterator[Finding]:
    text = version_of(TPU_WEBHOOK, deployment)
    match = re.match(r"(\d+)\.(\d+)\.(\d+)", text)
    if match is None:
        return  # GKE maintains its add-on, whose tag need not be a version
    there = {node.label(_TPU_LABEL) for node in sight.nodes.seen or ()}
    there |= {flavor.node_labels.get(_TPU_LABEL, "") for flavor in sight.flavors.seen or ()}
    for since, lacks, accelerator in _TPU_WEBHOOK_FEATURES:
        if tuple(map(int, match.groups())) < since and (not accelerator or accelerator in there):
            yield _finding(
                TPU_WEBHOOK,
                Level.WARNING,
                f"version {text} is too old: {lacks}.",
                f"Upgrade it to {'.'.join(map(str, since))} or later.",
            )


def _where(component: Component, deployment: Deployment) -> str:
    version = version_of(component, deployment)
    return f"{version + ' ' if version else ''}in {deployment.namespace} (Deployment {deployment.name})"


def _watched(deployment: Deployment) -> list[str]:
    """Return the namespaces that KubeRay's operator watches; an empty list means all of them."""
    for container in deployment.containers:
        words = (*container.command, *container.args)
        for index, word in enumerate(words):
            flag, equals, value = word.lstrip("-").partition("=")
            if flag == "watch-namespace":
                value = value if equals else words[index + 1] if index + 1 < len(words) else ""
                return [entry for entry in value.split(",") if entry]
    return []


def _unknown(component: Component, look: Fetched[Any]) -> Finding:
    return _finding(component, Level.UNKNOWN, f"{look.says}.")


def _finding(component: Component, level: Level, says: str, hint: str = "") -> Finding:
    return Finding(CONTROLLERS, level, component.name, says, hint)


def config_map_name(deployment: Deployment) -> str:
    """Return the name of the ConfigMap with Kueue's configuration, which its Deployment mounts."""
    return next(iter(deployment.config_maps), "kueue-manager-config")


def has_tpus(sight: ClusterInventory) -> bool | None:
    """Return whether the cluster has, or may get, TPUs; None if the nodes cannot be read and no flavor is for TPUs."""
    owners = [*(sight.cluster_queues.seen or []), *(sight.cohorts.seen or [])]
    quotas = {key[0] for owner in owners for key, own in owner.quotas.items() if key[1] == TPU and own.nominal}
    flavors = sight.flavors.seen or []
    if any(TPU_LABEL in flavor.node_labels or flavor.name in quotas for flavor in flavors) or any(
        node.allocatable(TPU) or node.label(TPU_LABEL) for node in sight.nodes.seen or []
    ):
        return True
    return None if sight.nodes.seen is None else False
