"""The doctor's rules, on objects like those of the upstream manifests (tests/cluster/doctor_objects.py)."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, replace
from typing import Any

import pytest
import yaml

from launcher.config import versions
from launcher.diagnose.doctor import components, finding, permissions, queues
from launcher.diagnose.doctor.finding import Finding, Level
from launcher.diagnose.doctor.inventory import VISIBILITY, ClusterInventory, Fetched, hidden
from launcher.k8s.deployments import Deployment
from launcher.k8s.errors import Forbidden
from launcher.k8s.kueue.queues import ClusterQueue, LocalQueue, PriorityClass, ResourceFlavor
from launcher.k8s.nodes import Node
from launcher.k8s.rbac import Permission, Permissions
from launcher.paths import charts_dir
from tests.cluster import doctor_objects as upstream
from tests.cluster.nodes import nodes

CPU = {"cpu": "81", "memory": "152Gi"}
Object = dict[str, Any]


def forbidden(resource: str, group: str = "", namespace: str = "") -> Fetched[Any]:
    return Fetched(why=Forbidden("no", "", verb="list", resource=resource, group=group, namespace=namespace))


def parsed[T](kind: Callable[[Object], T], *objects: Object) -> Fetched[list[T]]:
    return Fetched(list(map(kind, objects)))


def ready(deployment: Object) -> Object:
    return {**deployment, "status": {"availableReplicas": 1}}


def slices_of(services: list[Object]) -> list[Object]:
    """Return an EndpointSlice (discovery.k8s.io/v1) with one ready pod for each Service."""
    return [
        {
            "metadata": {"name": f"{service['metadata']['name']}-x", "labels": {"kubernetes.io/service-name": name}},
            "endpoints": [{"addresses": ["10.0.0.1"], "conditions": {"ready": True}}],
        }
        for service in services
        for name in [service["metadata"]["name"]]
    ]


def slice_nodes(pool: str, accelerator: str, topology: str, hosts: int, chips: int, **labels: str) -> list[Object]:
    return nodes(pool, accelerator, topology, hosts, chips, labels, 0, "2026-01-01T00:00:00Z")


def healthy(**changes: Any) -> ClusterInventory:
    """Return a cluster without problems: Kueue, JobSet, KubeRay, one flavor of TPUs with its nodes, and a queue."""
    served = {
        component.group: Fetched(
            {component.kinds[0].api_version.rpartition("/")[2]: [k.plural for k in component.kinds]}
        )
        for component in components.COMPONENTS
        if component.group
    }
    hooks = upstream.webhooks()
    everything = frozenset(permissions.every_permission())
    inventory = ClusterInventory(
        namespace="research",
        served={**served, VISIBILITY: Fetched({"v1beta2": ["clusterqueues/pendingworkloads"]})},
        deployments=parsed(Deployment, *(ready(build()) for build in upstream.CONTROLLERS)),
        webhooks={
            kind: Fetched([hook for hook in hooks if hook["kind"].lower().startswith(kind)])
            for kind in ("mutating", "validating")
        },
        nodes=parsed(Node, *slice_nodes("a", "tpu-v6e-slice", "4x4", 4, 4), *slice_nodes("c", "cpu", "", 2, 0)),
        flavors=parsed(ResourceFlavor, upstream.tpu_flavor("v6e-4x4", "tpu-v6e-slice", "4x4"), upstream.flavor("cpu")),
        cluster_queues=parsed(
            ClusterQueue,
            upstream.cluster_queue("research", {"v6e-4x4": {"google.com/tpu": "16"}, "cpu": CPU}, active="True"),
        ),
        cohorts=Fetched([]),
        topologies=Fetched([]),
        local_queues=parsed(LocalQueue, upstream.local_queue("research", "research", "research")),
        priorities=parsed(
            PriorityClass, upstream.named("WorkloadPriorityClass", "kueue.x-k8s.io/v1beta2", "normal", value=500)
        ),
        own_namespace=Fetched(upstream.named("Namespace", "v1", "research")),
        rights=Fetched(Permissions(everything, {}, queues=True)),
        kueue_config=Fetched(upstream.config_map()),
        endpoints={
            namespace: Fetched(
                slices_of([one for one in upstream.services() if one["metadata"]["namespace"] == namespace])
            )
            for namespace, _ in upstream.HOOKS.values()
        },
    )
    return replace(inventory, **changes)


def examine(inventory: ClusterInventory) -> list[Finding]:
    return [
        *components.examine(inventory, components.has_tpus(inventory)),
        *queues.examine(inventory),
        *permissions.examine(inventory),
    ]


def not_ok(inventory: ClusterInventory) -> list[tuple[str, str, str]]:
    """Return (level, subject, sentence) of all findings that are not ok."""
    return [(str(one.level), one.subject, one.says) for one in examine(inventory) if one.level is not Level.OK]


def only_finding(inventory: ClusterInventory) -> Finding:
    """Return the only finding that is not ok; fail if there is not exactly one."""
    found = [one for one in examine(inventory) if one.level is not Level.OK]
    assert len(found) == 1, found
    return found[0]


def test_a_cluster_without_problems() -> None:
    assert not_ok(healthy()) == []
    sentences = {one.subject: one.says for one in examine(healthy())}
    assert sentences["Kueue"] == (
        "0.19.2 in kueue-system (Deployment kueue-controller-manager) serves kueue.x-k8s.io/v1beta2 and its webhooks."
    )
    assert sentences["KubeRay"].startswith("1.7.0 in gke-managed-ray-operator (Deployment kuberay-operator)")
    assert sentences["JobSet"].startswith("0.12.0 in jobset-system")
    assert sentences["TPU webhook"].startswith("1.3.5-gke.0 in ray-system")
    assert sentences["LocalQueue research"] == "its ClusterQueue is research."


# --- versions ------------------------------------------------------------------------------------------------------


def test_the_charts_state_the_supported_versions() -> None:
    assert str(versions.supported("kubernetes")) == "1.33 to 1.36"
    for component in components.COMPONENTS:
        if component.supported:
            assert versions.supported(component.supported).oldest < versions.supported(component.supported).newest


def test_all_charts_declare_the_same_versions_and_ct_uses_the_newest() -> None:
    charts = [yaml.safe_load(path.read_text()) for path in charts_dir().glob("*/Chart.yaml")]
    declared: dict[str, set[str]] = {}
    for chart in charts:
        for key, text in chart.get("annotations", {}).items():
            declared.setdefault(key, set()).add(text)
    assert {key for key in declared if key.startswith("slipway.dev/")} >= {
        "slipway.dev/kueue",
        "slipway.dev/kubernetes",
    }
    assert {key: texts for key, texts in declared.items() if key.startswith("slipway.dev/") and len(texts) > 1} == {}
    ct = (charts_dir().parent / "ct.yaml").read_text()
    assert f"--kube-version {versions.kubernetes_without_cluster()}" in ct


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("v1.36.2", (1, 36)),
        ("v1.34.1-gke.1829001", (1, 34)),
        ("0.19", (0, 19)),
        ("v0.12.0-rc.1", (0, 12)),
        ("1.7.0+dirty", (1, 7)),
        ("main", None),
        ("latest", None),
        ("", None),
        ("v20260101-v0.19.0-5-gabc", None),
    ],
)
def test_versions(text: str, version: tuple[int, int] | None) -> None:
    assert versions.parse(text) == version


def test_images() -> None:
    digest = "@sha256:" + 64 * "a"
    assert versions.image_parts("localhost:5000/kueue/kueue:v0.19.2" + digest) == (
        "localhost:5000/kueue/kueue",
        "v0.19.2",
    )
    assert versions.image_parts("localhost:5000/kueue") == ("localhost:5000/kueue", "")


def with_deployments(*deployments: Object) -> ClusterInventory:
    """Return the healthy cluster with these Deployments instead of those with the same names."""
    names = {one["metadata"]["name"] for one in deployments}
    others = [ready(build()) for build in upstream.CONTROLLERS if build()["metadata"]["name"] not in names]
    return healthy(deployments=parsed(Deployment, *others, *deployments))


def test_an_old_version_is_a_problem_and_a_new_one_a_warning() -> None:
    old = only_finding(with_deployments(ready(upstream.job_set("v0.9.0"))))
    assert (old.level, old.says) == (Level.PROBLEM, "version 0.9.0 is too old; supported versions are 0.10 to 0.12.")
    new = only_finding(with_deployments(ready(upstream.kuberay("v1.8.0"))))
    assert (new.level, new.says) == (
        Level.WARNING,
        "version 1.8.0 is newer than the supported versions: 1.5 to 1.7.",
    )
    newer = only_finding(with_deployments(ready(upstream.kueue("v0.20.0"))))  # as on the page upgrade-controllers.md
    assert newer.says == "version 0.20.0 is newer than the supported versions: 0.16 to 0.19."
    unknown = only_finding(with_deployments(ready(upstream.kuberay("nightly"))))
    assert (
        unknown.says == "its version is unknown (quay.io/kuberay/operator:nightly); supported versions are 1.5 to 1.7."
    )


def test_a_label_has_the_version_if_the_tag_does_not() -> None:
    image = "mirror.example.com/jobset@sha256:" + 64 * "a"
    deployment = Deployment(upstream.deployment("js", "jobset-system", image, version="v0.12.0"))
    assert components.version_of(components.JOB_SET, deployment) == "0.12.0"


# --- controllers ---------------------------------------------------------------------------------------------------


def test_nothing_is_installed() -> None:
    served: dict[str, Fetched[Any]] = {group: Fetched({}) for group in (*components.GROUPS, VISIBILITY)}
    nothing: dict[str, Fetched[Any]] = {"mutating": Fetched([]), "validating": Fetched([])}
    found = list(components.examine(healthy(served=served, deployments=Fetched([]), webhooks=nothing), tpus=False))
    assert [(one.level, one.subject) for one in found] == [
        (Level.PROBLEM, "Kueue"),
        (Level.PROBLEM, "JobSet"),
        (Level.PROBLEM, "KubeRay"),
        (Level.OK, "TPU webhook"),
    ]


def test_one_of_jobset_and_kuberay_is_enough() -> None:
    served = {**healthy().served, "jobset.x-k8s.io": Fetched[Any]({})}
    found = only_finding(healthy(served=served))
    assert (found.level, found.says) == (Level.WARNING, "not installed: runs of kind job-set cannot run.")


def test_crds_without_a_controller() -> None:
    without = [ready(build()) for build in upstream.CONTROLLERS if build != upstream.kuberay]
    found = only_finding(healthy(deployments=parsed(Deployment, *without)))
    assert found.level is Level.PROBLEM
    assert found.says.startswith("its API is served, but its controller has no Deployment")


def test_a_controller_without_a_ready_pod() -> None:
    deployment = {
        **upstream.kuberay(),
        "status": {
            "conditions": [
                {"type": "Available", "status": "False", "message": "Deployment does not have minimum availability."}
            ]
        },
    }
    found = only_finding(with_deployments(deployment))
    assert found.level is Level.PROBLEM
    assert "no ready pod (Deployment does not have minimum availability)" in found.says
    deployment["spec"]["replicas"] = 0
    assert "scale deployment kuberay-operator --replicas=1" in only_finding(with_deployments(deployment)).hint


def test_an_api_of_another_version() -> None:
    old = {**healthy().served, "kueue.x-k8s.io": Fetched[Any]({"v1beta1": ["workloads"]})}
    assert only_finding(healthy(served=old)).says == "serves kueue.x-k8s.io as v1beta1; the charts use v1beta2."
    served = healthy().served["kueue.x-k8s.io"].seen
    assert served is not None
    part = {"v1beta2": [plural for plural in served["v1beta2"] if plural != "topologies"]}
    found = only_finding(healthy(served={**healthy().served, "kueue.x-k8s.io": Fetched[Any](part)}))
    assert found.says == "kueue.x-k8s.io/v1beta2 lacks topologies: their CRDs are missing."


def test_webhooks_that_are_missing_or_do_not_answer() -> None:
    none = {**healthy().webhooks, "validating": Fetched[Any]([])}
    assert not_ok(healthy(webhooks=none)) == [
        ("problem", "Kueue", "its validating webhook configuration is missing."),
        ("problem", "JobSet", "its validating webhook configuration is missing."),
    ]
    empty = only_finding(healthy(endpoints={**healthy().endpoints, "jobset-system": Fetched[Any]([])}))
    assert empty.level is Level.PROBLEM
    assert empty.says == (
        "its webhook's Service jobset-system/jobset-webhook-service has no ready endpoint: the API server rejects what "
        "it checks."
    )
    hooks = upstream.webhooks()
    for hook in hooks:
        hook["webhooks"][0]["failurePolicy"] = "Ignore"
        hook["webhooks"][0]["clientConfig"].pop("caBundle")
    kinds = {
        kind: Fetched([h for h in hooks if h["kind"].lower().startswith(kind)]) for kind in ("mutating", "validating")
    }
    found = not_ok(healthy(webhooks=kinds))
    assert [(level, subject) for level, subject, _ in found] == [
        ("warning", "Kueue"),
        ("warning", "JobSet"),
        ("warning", "TPU webhook"),
    ]
    assert all("has no caBundle" in sentence for _, _, sentence in found)


def test_the_tpu_webhook_is_needed_if_there_are_tpus() -> None:
    without = [ready(build()) for build in upstream.CONTROLLERS if build != upstream.tpu_webhook]
    hooks = {
        **healthy().webhooks,
        "mutating": Fetched([h for h in upstream.webhooks() if "tpu" not in h["metadata"]["name"]]),
    }
    deployments = parsed(Deployment, *without)
    assert only_finding(healthy(deployments=deployments, webhooks=hooks)).level is Level.PROBLEM
    cpu, flavors = parsed(Node, *slice_nodes("c", "cpu", "", 2, 0)), parsed(ResourceFlavor, upstream.flavor("cpu"))
    bare = healthy(deployments=deployments, webhooks=hooks, nodes=cpu, flavors=flavors)
    assert components.has_tpus(bare) is False
    assert ("ok", "not needed: the cluster has no TPUs.") in [
        (str(one.level), one.says) for one in components.examine(bare, tpus=False)
    ]


@pytest.mark.parametrize(
    ("version", "accelerator", "lacks"),
    [
        ("1.2.9", "tpu-v6e-slice", ["MEGASCALE_*"]),
        ("1.3.0", "tpu-v6e-slice", []),
        ("1.3.0", "tpu7x", ["tpu7x"]),
        ("1.3.1", "tpu7x", []),
        ("1.2.0", "tpu7x", ["MEGASCALE_*", "tpu7x"]),
        ("latest", "tpu7x", []),
    ],
)
def test_a_tpu_webhook_that_is_too_old(version: str, accelerator: str, lacks: list[str]) -> None:
    deployment = ready(upstream.tpu_webhook())
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    container["image"] = f"us-docker.pkg.dev/ai-on-gke/kuberay-tpu-webhook/tpu-webhook:v{version}"
    cluster = replace(
        with_deployments(deployment), nodes=parsed(Node, *slice_nodes("pool", accelerator, "2x2x1", 1, 4))
    )
    found = components.examine(cluster, tpus=True)
    says = [one.says for one in found if one.subject == "TPU webhook" and one.level is Level.WARNING]
    assert len(says) == len(lacks)
    assert all(word in text and f"version {version} is too old" in text for word, text in zip(lacks, says, strict=True))


def test_an_operator_that_watches_other_namespaces() -> None:
    deployment = ready(upstream.kuberay())
    deployment["spec"]["template"]["spec"]["containers"][0]["args"] = ["--watch-namespace", "product,interns"]
    assert "watches only product and interns" in only_finding(with_deployments(deployment)).says
    deployment["spec"]["template"]["spec"]["containers"][0]["args"] = ["--watch-namespace=research"]
    assert not_ok(with_deployments(deployment)) == []


def test_what_a_member_may_not_read_is_unknown_and_not_a_problem() -> None:
    hooks = {
        kind: forbidden(f"{kind}webhookconfigurations", "admissionregistration.k8s.io")
        for kind in ("mutating", "validating")
    }
    inventory = healthy(
        deployments=forbidden("deployments", "apps"), webhooks=hooks, kueue_config=Fetched(), endpoints={}
    )
    found = [one for one in examine(inventory) if one.level is not Level.OK]
    assert [(one.level, one.subject) for one in found] == [
        (Level.UNKNOWN, name) for name in ("Kueue", "JobSet", "KubeRay", "TPU webhook")
    ]
    assert found[2].says == (
        "serves ray.io/v1; whether it works is unknown: you may not list deployments of apps in the whole cluster."
    )
    assert "mutatingwebhookconfigurations of admissionregistration.k8s.io" in found[0].says
    assert not finding.has_problems(found)


def test_what_is_hidden_is_reported_once() -> None:
    fetched = [forbidden("nodes"), forbidden("deployments", "apps"), forbidden("nodes"), forbidden("pods", "", "team")]
    assert hidden(fetched) == (
        "you may not list nodes and deployments of apps in the whole cluster; "
        "you may not list pods in the namespace team"
    )


# --- queues --------------------------------------------------------------------------------------------------------


def with_queue(quota: dict[str, dict[str, str]], active: str = "True", **spec: Any) -> ClusterInventory:
    """Return the healthy cluster with only this queue and its flavors."""
    flavors = [one for one in healthy().flavors.seen or [] if one.name in quota]
    queue = upstream.cluster_queue("research", quota, active=active, **spec)
    return healthy(cluster_queues=parsed(ClusterQueue, queue), flavors=Fetched(flavors))


TPU = {"v6e-4x4": {"google.com/tpu": "16"}}


def test_local_queues() -> None:
    assert only_finding(healthy(local_queues=Fetched([]))).says.startswith("the namespace research has none")
    lost = only_finding(healthy(local_queues=parsed(LocalQueue, upstream.local_queue("a", "research", "gone"))))
    assert (lost.level, lost.subject) == (Level.PROBLEM, "LocalQueue a")
    assert lost.says == "its ClusterQueue gone does not exist, so its runs wait indefinitely."
    quota = {**TPU, "cpu": CPU}
    selected = only_finding(with_queue(quota, namespaceSelector={"matchLabels": {"team": "product"}}))
    assert selected.says.endswith(
        "accepts no runs of this namespace: its namespaceSelector requires the label team=product."
    )
    held = only_finding(
        healthy(local_queues=parsed(LocalQueue, upstream.local_queue("a", "research", "research", active="False")))
    )
    assert held.level is Level.PROBLEM


# --- rights ----------------------------------------------------------------------------------------------------------


def test_rules_give_rights() -> None:
    rules = [
        {"verbs": ["get", "list"], "apiGroups": ["ray.io"], "resources": ["*"]},
        {"verbs": ["*"], "apiGroups": ["", "batch"], "resources": ["pods", "*/log"]},
        {
            "verbs": ["get"],
            "apiGroups": [""],
            "resources": ["services/proxy"],
            "resourceNames": ["http:ours-head-svc:8265"],
        },
    ]
    wanted = [
        Permission("list", "rayjobs", "ray.io"),
        Permission("create", "rayjobs", "ray.io"),
        Permission("list", "pods", ""),
        Permission("get", "pods/log", ""),
        Permission("list", "events", ""),
        Permission("get", "services/proxy", ""),
    ]
    allowed, by_name = permissions.from_rules(rules, wanted)
    assert allowed == {wanted[0], wanted[2], wanted[3]}
    assert by_name == {wanted[5]: ("http:ours-head-svc:8265",)}


def test_a_member_who_may_not_cancel() -> None:
    lacking = {Permission("patch", "workloads", "kueue.x-k8s.io"), Permission("list", "events", "")}
    member = Permissions(frozenset(set(permissions.every_permission()) - lacking), {}, queues=False)
    found = {one.subject: one for one in examine(healthy(rights=Fetched(member))) if one.level is not Level.OK}
    assert found["cancel"].level is Level.PROBLEM
    assert found["cancel"].says == (
        "runs cannot be cancelled: in the namespace research you may not patch workloads of kueue.x-k8s.io."
    )
    assert found["explain"].level is Level.WARNING
    assert found["Role to apply"].hint == "\n".join(
        [
            "apiVersion: rbac.authorization.k8s.io/v1",
            "kind: Role",
            "metadata:",
            "  name: slipway-runs",
            "  namespace: research",
            "rules:",
            '  - apiGroups: [""]',
            "    resources: [events]",
            "    verbs: [list]",
            '  - apiGroups: ["kueue.x-k8s.io"]',
            "    resources: [workloads]",
            "    verbs: [patch]",
        ]
    )


def test_rights_to_kinds_that_are_not_served_are_not_needed() -> None:
    member = Permissions(
        frozenset(right for right in permissions.every_permission() if right.group != "jobset.x-k8s.io"),
        {},
        queues=False,
    )
    served = {**healthy().served, "jobset.x-k8s.io": Fetched[Any]({})}
    assert [
        one.subject
        for one in permissions.examine(healthy(served=served, rights=Fetched(member)))
        if one.level is not Level.OK
    ] == []


class AccessReviewsOnly:
    """Replaces a cluster with GKE's authorizer, which lists no rules and only answers single access reviews.

    The API server of the tests has only RBAC, which lists all rules.
    """

    namespace = "research"

    def __init__(self, allowed: set[Permission]) -> None:
        self.allowed = allowed

    def request(self, *_: Any, **__: Any) -> Any:
        status = {"resourceRules": [], "incomplete": True}
        return type("Answer", (), {"json": staticmethod(lambda: {"status": status})})

    def can(self, verb: str, resource: str, group: str, namespace: str | None, *, subresource: str) -> bool:
        assert namespace == ("" if resource == "clusterqueues" else None)
        return Permission(verb, f"{resource}/{subresource}" if subresource else resource, group) in self.allowed


def test_rights_without_rules_are_checked_one_by_one() -> None:
    allowed = {Permission("create", "rayjobs", "ray.io"), Permission("get", "pods/log", "")}
    cluster: Any = AccessReviewsOnly(allowed)
    assert permissions.read(cluster) == Permissions(frozenset(allowed), {}, queues=False)


# --- the output ------------------------------------------------------------------------------------------------------


def test_text_has_the_level_as_a_word_and_the_hint_below() -> None:
    found = [
        Finding(finding.CLUSTER, Level.OK, "API server", "answers."),
        Finding(finding.MACHINE, Level.WARNING, "Helm", "is missing.", "Install it.\nSoon."),
    ]
    assert finding.as_text(found).splitlines() == [
        "this machine",
        "  warning  Helm        is missing.",
        "             Install it.",
        "             Soon.",
        "",
        "the cluster",
        "  ok       API server  answers.",
    ]
    assert json.loads(json.dumps(asdict(found[1]))) == {
        "part": "this machine",
        "level": "warning",
        "subject": "Helm",
        "says": "is missing.",
        "hint": "Install it.\nSoon.",
    }
    assert finding.summary(found) == "1 warning."
    assert finding.summary(found[:1]) == "No problems found."
