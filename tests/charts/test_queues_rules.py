"""Every rule of charts/queues: values that it rejects, in a sentence that names the key, and values that it accepts."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from tests.charts import schemas
from tests.charts.bad_queues import FLAVORS, QUOTAS, SHARING, Case
from tests.charts.helm import KUBE_VERSION
from tests.charts.queues_chart import BASE, CHART, merged, rejections, render, tree

OTHERS = [
    Case(
        "topologies: {racks: {levels: []}}",
        "topologies.racks.levels is empty; list node labels from the widest level down, such as "
        "cloud.google.com/gke-nodepool and kubernetes.io/hostname.",
        "topologies: {racks: {levels: [kubernetes.io/hostname]}}",
    ),
    Case(
        "topologies: {racks: {levels: [a, b, a]}}",
        "topologies.racks.levels contains a duplicate label; remove it.",
        "topologies: {racks: {levels: [a, b]}}",
    ),
    Case(
        "topologies: {racks: {levels: [kubernetes.io/hostname, a]}}",
        "topologies.racks.levels: kubernetes.io/hostname is the narrowest level; put it last.",
        "topologies: {racks: {levels: [a, kubernetes.io/hostname]}}",
    ),
    Case(
        f"topologies: {{racks: {{levels: {[f'l{number}' for number in range(17)]}}}}}",
        "topologies.racks.levels has 17 levels; Kueue accepts at most 16.",
        f"topologies: {{racks: {{levels: {[f'l{number}' for number in range(16)]}}}}}",
    ),
    Case(
        "topologies: {racks: {levels: [a b]}}",
        'topologies.racks.levels: "a b" is not a valid node label; write it like kubernetes.io/hostname.',
        "topologies: {racks: {levels: [a/b]}}",
    ),
    Case(
        "topologies: {Racks: {levels: [a]}}",
        'topologies.Racks: "Racks" is not a valid Kubernetes name; use lowercase letters, digits and hyphens, with '
        "no hyphen at either end.",
        "topologies: {racks: {levels: [a]}}",
    ),
    Case(
        "clusterQueues: {product: {admissionChecks: {budget: []}}}",
        'clusterQueues.product.admissionChecks: unknown admission check "budget" (available in '
        "admissionChecks: no entries).",
        "{clusterQueues: {product: {admissionChecks: {budget: []}}}, admissionChecks: {budget: {controllerName: a/b}}}",
    ),
    Case(
        "{clusterQueues: {product: {admissionChecks: {budget: [v5e]}}}, admissionChecks: {budget: "
        "{controllerName: a}}}",
        'clusterQueues.product.admissionChecks.budget: the quota has no flavor "v5e" (it has: cpu, v6e-4x4).',
        "{clusterQueues: {product: {admissionChecks: {budget: [cpu]}}}, admissionChecks: {budget: "
        "{controllerName: a}}}",
    ),
    Case(
        "admissionChecks: {budget: {}}",
        "admissionChecks.budget.controllerName is empty; set it to the controller that does the check.",
        "admissionChecks: {budget: {create: false}}",
    ),
    Case(
        "admissionChecks: {budget: {controllerName: a, parameters: {kind: Budget, name: b}}}",
        "admissionChecks.budget.parameters requires apiGroup, kind and name.",
        "admissionChecks: {budget: {controllerName: a, parameters: {apiGroup: example.com, kind: Budget, name: b}}}",
    ),
    Case(
        "admissionChecks: {flex-start: {controllerName: a}}",
        "admissionChecks.flex-start is also the name of the AdmissionCheck for flex-start; set flexStart.name to "
        "another name.",
        "{admissionChecks: {flex-start: {controllerName: a}}, flexStart: {name: dws}}",
    ),
    Case(
        "admissionChecks: {Budget: {controllerName: a}}",
        'admissionChecks.Budget: "Budget" is not a valid Kubernetes name; use lowercase letters, digits and hyphens, '
        "with no hyphen at either end.",
        "admissionChecks: {budget: {controllerName: a}}",
    ),
    Case(
        "flexStart: {name: Flex}",
        'flexStart.name: "Flex" is not a valid Kubernetes name; use lowercase letters, digits and hyphens, with no '
        "hyphen at either end.",
        "flexStart: {name: flex}",
    ),
    Case(
        "flexStart: {retrySeconds: 3600}",
        "flexStart.retrySeconds is 3600; it must be at most flexStart.retryMaxSeconds, which is 1800.",
        "flexStart: {retrySeconds: 1800}",
    ),
    Case(
        "teams: {product: {clusterQueue: null}}",
        "teams.product.clusterQueue is empty; set it to one of clusterQueues: product, research.",
        "teams: {product: {clusterQueue: research}}",
    ),
    Case(
        "teams: {product: {clusterQueue: prodcut}}",
        'teams.product.clusterQueue: unknown ClusterQueue "prodcut" (available in clusterQueues: product, research).',
        "{teams: {product: {clusterQueue: prodcut}}, clusterQueues: {prodcut: {create: false}}}",
    ),
    Case(
        "teams: {research: {namespace: product}}",
        "teams.research.namespace is product, which teams.product already uses; each team requires a namespace of "
        "its own.",
        "teams: {research: {namespace: product-research}}",
    ),
    Case(
        "teams: {research: {namespace: ml, queue: runs}, product: {namespace: ml, queue: runs}}",
        "teams.research.namespace is ml, which teams.product already uses; each team requires a namespace of its own.",
        "teams: {research: {namespace: ml, queue: runs}, product: {namespace: shop, queue: runs}}",
    ),
    Case(
        "teams: {product: {namespace: kube-system}}",
        "teams.product.namespace: Kubernetes reserves kube-system; choose another namespace.",
        "teams: {product: {namespace: default, networkPolicy: false}}",
    ),
    *(
        Case(
            f"teams: {{product: {{namespace: {name}}}}}",
            f"teams.product.namespace: {name} is a namespace of the cluster's controllers, in which members would have "
            "rights; choose another namespace.",
            f"teams: {{product: {{namespace: my-{name}}}}}",
        )
        for name in ("kueue-system", "jobset-system", "ray-system", "kuberay-system", "gke-managed-ray-operator")
    ),
    Case(
        "{teams: {product: {namespace: operators}}, network: {operatorNamespaces: [operators]}}",
        "teams.product.namespace: operators is a namespace of the cluster's controllers, in which members would have "
        "rights; choose another namespace.",
        "teams: {product: {namespace: operators}}",
    ),
    Case(
        "teams: {product: {namespace: default}}",
        "teams.product.networkPolicy would restrict all pods in the namespace default, including those of other "
        "users; set teams.product.networkPolicy: false, or give the team a namespace of its own.",
        "teams: {product: {namespace: defaults}}",
    ),
    Case(
        "teams: {default: {clusterQueue: product, serviceAccount: {name: trainer}}}",
        "teams.default.networkPolicy would restrict all pods in the namespace default, including those of other "
        "users; set teams.default.networkPolicy: false, or give the team a namespace of its own.",
        "teams: {default: {clusterQueue: product, serviceAccount: {name: trainer}, networkPolicy: false}}",
    ),
    Case(
        "teams: {product: {namespace: My_Team}}",
        'teams.product.namespace: "My_Team" is not a valid Kubernetes name; use lowercase letters, digits and '
        "hyphens, with no hyphen at either end.",
        "teams: {product: {namespace: my-team}}",
    ),
    Case(
        f"teams: {{product: {{queue: {'q' * 64}}}}}",
        f'teams.product.queue: "{"q" * 64}" has 64 characters; the name can have at most 63.',
        f"teams: {{product: {{queue: {'q' * 63}}}}}",
    ),
    Case(
        "teams: {Product: {clusterQueue: product, namespace: shop}}",
        'teams.Product: "Product" is not a valid Kubernetes name; use lowercase letters, digits and hyphens, with no '
        "hyphen at either end.",
        "teams: {shop: {clusterQueue: product}}",
    ),
    Case(
        "teams: {product: {serviceAccount: {name: default}}}",
        "teams.product.serviceAccount.name: the service account default already exists in every namespace; choose "
        "another name, or set teams.product.serviceAccount.create: false.",
        "teams: {product: {serviceAccount: {name: default, create: false}}}",
    ),
    Case(
        "teams: {product: {serviceAccount: {create: false, annotations: {a: b}}}}",
        "teams.product.serviceAccount.annotations requires teams.product.serviceAccount.create: true.",
        "teams: {product: {serviceAccount: {create: true, annotations: {a: b}}}}",
    ),
    Case(
        "teams: {product: {serviceAccount: {create: false, imagePullSecrets: [a]}}}",
        "teams.product.serviceAccount.imagePullSecrets requires teams.product.serviceAccount.create: true.",
        "teams: {product: {serviceAccount: {create: true, imagePullSecrets: [a]}}}",
    ),
    Case(
        "teams: {product: {serviceAccount: {imagePullSecrets: [A]}}}",
        'teams.product.serviceAccount.imagePullSecrets: "A" is not a valid Kubernetes name; use lowercase letters, '
        "digits and hyphens, with no hyphen at either end.",
        "teams: {product: {serviceAccount: {imagePullSecrets: [a]}}}",
    ),
    Case(
        "teams: {product: {createNamespace: false, labels: {cost: ml}}}",
        "teams.product.labels: this release does not create the namespace product; remove the key, and change the "
        "namespace yourself: kubectl label namespace product cost=ml",
        "teams: {product: {labels: {cost: ml}}}",
    ),
    Case(
        "teams: {product: {createNamespace: false, annotations: {cost: ml}}}",
        "teams.product.annotations: this release does not create the namespace product; remove the key, and change "
        "the namespace yourself: kubectl annotate namespace product cost=ml",
        "teams: {product: {annotations: {cost: ml}}}",
    ),
    *(
        Case(
            f"teams: {{product: {{labels: {{{label}: a}}}}}}",
            f"teams.product.labels.{label} is set by Slipway; remove it.",
            "teams: {product: {labels: {istio-injection: enabled}}}",
        )
        for label in ("slipway.dev/team", "pod-security.kubernetes.io/enforce", "kubernetes.io/metadata.name")
    ),
    Case(
        "{clusterQueues: {product: {namespaceSelector: {team: shop}}}, teams: {product: {labels: {team: b}}}}",
        "clusterQueues.product.namespaceSelector: the namespace product of teams.product does not have the label "
        "team=shop, so its runs would never start; add it to teams.product.labels.",
        "{clusterQueues: {product: {namespaceSelector: {team: shop, kubernetes.io/metadata.name: product}}},"
        " teams: {product: {labels: {team: shop}}}}",
    ),
    Case(
        "teams: {product: {limitRange: {Container: {max: {cpu: '1'}, default: {cpu: '2'}}}}}",
        "teams.product.limitRange.Container.max: cpu is 1, which is less than 2 in default.",
        "teams: {product: {limitRange: {Container: {max: {cpu: '2'}, default: {cpu: '2'}, min: {memory: 1Gi}}}}}",
    ),
    Case(
        "limitRange: {Pod: {default: {cpu: '1'}}}",
        "limitRange.Pod.default: only a Container has defaults; remove this key.",
        "limitRange: {Container: {default: {cpu: '1'}}}",
    ),
    Case(
        "limitRange: {container: {max: {cpu: '1'}}}",
        'limitRange: unknown type "container"; use Container, PersistentVolumeClaim or Pod.',
        "limitRange: {Container: {max: {cpu: '1'}}}",
    ),
    Case(
        "limitRange: {PersistentVolumeClaim: {min: {storage: much}}}",
        'limitRange.PersistentVolumeClaim.min: storage: "much" is not a valid amount; write it like 500 or 256Gi.',
        "limitRange: {PersistentVolumeClaim: {min: {storage: 1Gi}}}",
    ),
    Case(
        "{cohorts: null, clusterQueues: {research: {cohort: none}}}",
        'clusterQueues.research.cohort: unknown cohort "none" (available in cohorts: no entries).',
        "{cohorts: null, clusterQueues: {research: {cohort: ''}}}",
    ),
    Case(
        "teams: {product: {members: {a/b/c: ServiceAccount}}}",
        'teams.product.members: "a/b/c" is not a valid service account; write NAME, or NAMESPACE/NAME.',
        "teams: {product: {members: {a/b: ServiceAccount}}}",
    ),
    Case(
        "teams: {product: {members: {'system:authenticated': Group}}}",
        "teams.product.members: system:authenticated includes users outside the team; list the team's own users, "
        "groups and service accounts.",
        "teams: {product: {members: {'research@example.com': Group}}}",
    ),
    *(
        Case(
            f"teams: {{product: {{members: {{'{name}': {kind}}}}}}}",
            f"teams.product.members: {name} includes users outside the team; list the team's own users, groups and "
            "service accounts.",
            f"teams: {{product: {{members: {{'{instead}': {kind}}}}}}}",
        )
        for name, kind, instead in (
            ("system:unauthenticated", "Group", "product@example.com"),
            ("system:serviceaccounts", "Group", "system:serviceaccounts:product"),
            ("system:serviceaccounts:research", "Group", "system:serviceaccounts:product"),
            ("system:nodes", "Group", "nodes"),
            ("system:masters", "Group", "masters"),
            ("system:anonymous", "User", "system:serviceaccount:ci:deployer"),
        )
    ),
    *(
        Case(
            f"teams: {{product: {{members: {{'{name}': {kind}}}}}}}",
            f"teams.product.members: {name} is a service account of teams.research, and all members of that team can "
            "use it; list its members, or a service account of a namespace that belongs to no team.",
            f"teams: {{product: {{members: {{'{instead}': {kind}}}}}}}",
        )
        for name, kind, instead in (
            ("research/ci", "ServiceAccount", "ci/research"),
            ("system:serviceaccount:research:ci", "User", "system:serviceaccount:product:ci"),
        )
    ),
    Case(
        "{teams: {product: {members: {ml/ci: ServiceAccount}}, research: {namespace: ml}}}",
        "teams.product.members: ml/ci is a service account of teams.research, and all members of that team can use "
        "it; list its members, or a service account of a namespace that belongs to no team.",
        "{teams: {product: {members: {research/ci: ServiceAccount, product/ci: ServiceAccount}}, "
        "research: {namespace: ml}}}",
    ),
    Case(
        f"teams: {{product: {{clusters: [{'c' * 42}]}}}}",
        f'teams.product.clusters: "{"c" * 42}" has 42 characters; the name can have at most 41.',
        f"teams: {{product: {{clusters: [{'c' * 41}]}}}}",
    ),
    Case(
        "teams: {product: {k8sTokenAuth: true}}",
        "teams.product.k8sTokenAuth requires teams.product.clusters, the clusters that accept members' tokens.",
        "teams: {product: {k8sTokenAuth: true, clusters: [notebooks]}}",
    ),
    Case(
        "teams: {product: {resourceQuota: {pods: lots}}}",
        'teams.product.resourceQuota: pods: "lots" is not a valid amount; write it like 500 or 256Gi.',
        "teams: {product: {resourceQuota: {pods: '500'}}}",
    ),
    Case(
        "resourceQuota: {services: '-1'}",
        "resourceQuota: services is -1; it cannot be negative.",
        "resourceQuota: {services: '1'}",
    ),
    Case(
        "network: {modelsFromNamespaces: [Web]}",
        'network.modelsFromNamespaces: "Web" is not a valid Kubernetes name; use lowercase letters, digits and '
        "hyphens, with no hyphen at either end.",
        "network: {modelsFromNamespaces: [web]}",
    ),
    Case(
        "monitoring: {podMonitor: true, fromNamespaces: [Monitoring]}",
        'monitoring.fromNamespaces: "Monitoring" is not a valid Kubernetes name; use lowercase letters, digits and '
        "hyphens, with no hyphen at either end.",
        "monitoring: {podMonitor: true, fromNamespaces: [monitoring]}",
    ),
    Case(
        "monitoring: {podMonitoring: true, labels: {release: prometheus}}",
        "monitoring.labels applies only to PodMonitors and PrometheusRules; set monitoring.podMonitor: true or "
        "monitoring.alerts.kind: PrometheusRule, or remove the labels.",
        "monitoring: {podMonitor: true, labels: {release: prometheus}}",
    ),
    Case(
        "monitoring: {alerts: {kind: PrometheusRule, disabled: [NoSuchAlert]}}",
        'monitoring.alerts.disabled: there is no alert "NoSuchAlert"; the alerts are SlipwayCheckpointTooOld, '
        "SlipwayControllerDown, SlipwayGoodputLow, SlipwayNothingAdmitted, SlipwayPolicyMissing, "
        "SlipwayQueueNotActive, SlipwayRunNotStepping, SlipwayStepTimeAboveForecast, SlipwayStorageNearlyFull, "
        "SlipwayWaitTooLong.",
        "monitoring: {alerts: {kind: PrometheusRule, disabled: [SlipwayGoodputLow]}}",
    ),
    Case(
        'monitoring: {dashboards: {create: true, labels: {"a b": c}}}',
        'monitoring.dashboards.labels: "a b" is not a valid label key; use letters, digits, hyphens, dots and '
        "underscores, such as example.com/pool.",
        "monitoring: {dashboards: {create: true, labels: {grafana_dashboard: null, example.com/a: c}}}",
    ),
    Case(
        "monitoring: {ray: true}",
        "monitoring.ray has no effect, because nothing is scraped; set monitoring.podMonitoring or "
        "monitoring.podMonitor.",
        "monitoring: {ray: true, podMonitoring: true}",
    ),
    Case(
        'monitoring: {podMonitor: true, labels: {"a b": c}}',
        'monitoring.labels: "a b" is not a valid label key; use letters, digits, hyphens, dots and underscores, such '
        "as example.com/pool.",
        "monitoring: {podMonitor: true, labels: {example.com/a: c}}",
    ),
    Case(
        "commonLabels: {app.kubernetes.io/name: a}",
        "commonLabels.app.kubernetes.io/name is set by Slipway; remove it.",
        "commonLabels: {example.com/name: a}",
    ),
    Case(
        "commonAnnotations: {an owner: a}",
        'commonAnnotations: "an owner" is not a valid annotation key; use letters, digits, hyphens, dots and '
        "underscores, such as example.com/pool.",
        "commonAnnotations: {owner: any text, example.com/gone: null}",
    ),
    Case(
        "monitoring: {podMonitor: true, labels: {a: b c}}",
        'monitoring.labels.a: "b c" is not a valid label value; use at most 63 letters, digits, hyphens, dots and '
        "underscores.",
        "monitoring: {podMonitor: true, labels: {a: b}}",
    ),
    Case(
        "monitoring: {podMonitor: true, labels: {slipway.dev/team: b}}",
        "monitoring.labels.slipway.dev/team is set by Slipway; remove it.",
        "monitoring: {podMonitor: true, labels: {team: b}}",
    ),
    Case(
        "network: {operatorNamespaces: [Ray]}",
        'network.operatorNamespaces: "Ray" is not a valid Kubernetes name; use lowercase letters, digits and '
        "hyphens, with no hyphen at either end.",
        "network: {operatorNamespaces: [ray]}",
    ),
    Case(
        "network: {proxyCidrs: [10.0.0.1]}",
        'network.proxyCidrs: "10.0.0.1" is not a valid CIDR; write it like 10.0.0.0/8.',
        "network: {proxyCidrs: [10.0.0.1/32]}",
    ),
    Case(
        "network: {hostCidrs: [node-1]}",
        'network.hostCidrs: "node-1" is not a valid CIDR; write it like 10.0.0.0/8.',
        "network: {hostCidrs: [10.128.0.0/20]}",
    ),
    Case(
        "network: {dnsCidrs: [10.96.0.10]}",
        'network.dnsCidrs: "10.96.0.10" is not a valid CIDR; write it like 10.0.0.0/8.',
        "network: {dnsCidrs: [10.96.0.10/32]}",
    ),
    Case(
        "network: {httpsCidrs: [999.0.0.0/8]}",
        'network.httpsCidrs: "999.0.0.0/8" is not a valid CIDR; write it like 10.0.0.0/8.',
        "network: {httpsCidrs: ['2600:1901::/48']}",
    ),
    Case(
        "policies: {fields: {pods: [hostAliases]}}",
        'policies.fields: unknown shape "pods"; docs/reference/run-policy.md lists the shapes.',
        "policies: {fields: {pod: [hostAliases]}}",
    ),
    Case(
        "policies: {fields: {pod: [spec.hostAliases]}}",
        'policies.fields.pod: "spec.hostAliases" is not the name of a field.',
        "policies: {fields: {container: [args]}}",
    ),
    Case(
        "policies: {volumes: [csi, volumes.nfs]}",
        'policies.volumes: "volumes.nfs" is not the name of a type of volumes.',
        "policies: {volumes: [csi, downwardAPI, emptyDir, nfs]}",
    ),
    Case(
        "network: {egress: {tracking: {cidr: example.com}}}",
        'network.egress.tracking.cidr: "example.com" is not a valid CIDR; write it like 10.0.0.0/8.',
        "network: {egress: {tracking: {cidr: 10.0.0.0/8}}}",
    ),
]

CASES = [*FLAVORS, *QUOTAS, *SHARING, *OTHERS]

# Values that the schema rejects, with Helm's message, which names the key.
SCHEMA = [
    ("flavours: {}", "at '': additional properties 'flavours' not allowed"),
    ("flavors: {v6e-4x4: {toplogy: 4x4}}", "at '/flavors/v6e-4x4': additional properties 'toplogy' not allowed"),
    ("flavors: {v6e-4x4: {accelerator: null}}", "at '/flavors/v6e-4x4': missing property 'accelerator'"),
    ("flavors: {v6e-4x4: {provisioning: cheap}}", "at '/flavors/v6e-4x4/provisioning': value must be one of"),
    (
        "clusterQueues: {product: {quota: {v6e-4x4: {slices: -1}}}}",
        "at '/clusterQueues/product/quota/v6e-4x4/slices': minimum: got -1, want 0",
    ),
    (
        "clusterQueues: {product: {quota: {v6e-4x4: {slices: 0.5}}}}",
        "at '/clusterQueues/product/quota/v6e-4x4/slices': got number, want null or integer",
    ),
    (
        "clusterQueues: {product: {quota: {v6e-4x4: {borrowing: -1}}}}",
        "at '/clusterQueues/product/quota/v6e-4x4/borrowing': minimum: got -1, want 0",
    ),
    (
        "clusterQueues: {product: {quota: {v6e-4x4: {lending: all}}}}",
        "at '/clusterQueues/product/quota/v6e-4x4/lending': got string, want null or integer",
    ),
    (
        "clusterQueues: {product: {quota: {cpu: {cpu: [8]}}}}",
        "at '/clusterQueues/product/quota/cpu/cpu': got array, want",
    ),
    (
        "clusterQueues: {product: {queueingStrategy: FIFO}}",
        "at '/clusterQueues/product/queueingStrategy': value must be one of 'BestEffortFIFO', 'StrictFIFO'",
    ),
    (
        "clusterQueues: {product: {preemption: {withinClusterQueue: Any}}}",
        "at '/clusterQueues/product/preemption/withinClusterQueue': value must be one of",
    ),
    (
        "clusterQueues: {product: {stopPolicy: Stop}}",
        "at '/clusterQueues/product/stopPolicy': value must be one of 'None', 'Hold', 'HoldAndDrain'",
    ),
    (
        "clusterQueues: {research: {fairWeight: -1}}",
        "at '/clusterQueues/research/fairWeight': minimum: got -1, want 0",
    ),
    ("priorities: {high: {value: high}}", "at '/priorities/high/value': got string, want integer"),
    ("priorities: {urgent: {description: soon}}", "at '/priorities/urgent': missing property 'value'"),
    ("topologies: {racks: {}}", "at '/topologies/racks': missing property 'levels'"),
    ("teams: {product: {members: [alice]}}", "at '/teams/product/members': got array, want null or object"),
    ("teams: {product: {members: {alice: Person}}}", "at '/teams/product/members/alice': value must be one of"),
    ("teams: {product: {helm: 'yes'}}", "at '/teams/product/helm': got string, want null or boolean"),
    ("teams: [product]", "at '/teams': got array, want object"),
    ("resourceQuota: {pods: [5]}", "at '/resourceQuota/pods': got array, want"),
    ("teams: {product: {resourceQuota: {pods: [5]}}}", "at '/teams/product/resourceQuota/pods': got array, want"),
    ("network: {metadataServer: 'yes'}", "at '/network/metadataServer': got string, want boolean"),
    ("visibility: {runs: false}", "at '/visibility': additional properties 'runs' not allowed"),
    ("podSecurity: {enforce: strict}", "at '/podSecurity/enforce': value must be one of"),
    (
        "network: {egress: {tracking: {cidr: 10.0.0.8/32, ports: [70000]}}}",
        "at '/network/egress/tracking/ports/0': maximum: got 70,000, want 65,535",
    ),
    ("network: {egress: {tracking: {}}}", "at '/network/egress/tracking': missing property 'cidr'"),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.invalid[:60])
def test_a_rule_rejects_in_one_sentence_and_accepts_valid_values(helm4: Path, tmp_path: Path, case: Case) -> None:
    assert rejections(helm4, merged(BASE, tree(case.invalid)), tmp_path) == [case.message]
    for obj in render(helm4, merged(BASE, tree(case.valid)), tmp_path):
        assert schemas.validate(obj) == []


@pytest.mark.parametrize(("values", "message"), SCHEMA)
def test_the_schema_rejects(helm: Path, tmp_path: Path, values: str, message: str) -> None:
    messages = rejections(helm, merged(BASE, tree(values)), tmp_path)
    assert len(messages) == 1
    assert message in messages[0]


def test_all_mistakes_are_reported_at_once(helm: Path, tmp_path: Path) -> None:
    """Both Helms print one fault of each kind of entry, so a fault in one kind does not stop the rules of another."""
    cases = [FLAVORS[8], QUOTAS[1], SHARING[2], *(case for case in OTHERS if case.invalid.startswith("network"))]
    values = BASE
    for case in cases:
        values = merged(values, tree(case.invalid))
    messages = rejections(helm, values, tmp_path)
    expected = [case.message for case in cases if not case.invalid.startswith("network: {operator")]
    assert set(expected) <= set(messages)
    assert len(messages) == len(cases)


def test_an_existing_queue_is_not_checked(helm4: Path, tmp_path: Path) -> None:
    values = merged(BASE, tree("clusterQueues: {product: {create: false, quota: null, cohort: somewhere}}"))
    assert rejections(helm4, values, tmp_path) == []


def test_lint_renders_all_manifests_of_invalid_values(helm: Path, tmp_path: Path) -> None:
    """`helm lint` ignores `fail`, so every manifest must render even if values are invalid."""
    for case in CASES[::7]:
        (tmp_path / "values.json").write_text(json.dumps(merged(BASE, tree(case.invalid))))
        command = [str(helm), "lint", "--strict", f"--kube-version={KUBE_VERSION}", str(CHART)]
        command += ["-f", str(tmp_path / "values.json")]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert case.message in (done.stderr + done.stdout).replace('\\"', '"')
        assert done.returncode == 0, done.stdout + done.stderr


def test_a_flavor_can_have_no_slices_next_to_one_that_has(helm4: Path, tmp_path: Path) -> None:
    """Without lookups, a flavor stays in the quota this way until no run holds it."""
    old = tree(
        "{flavors: {old: {accelerator: v6e, topology: 8x8}}, clusterQueues: {product: {quota: {old: {slices: 0}}}}}"
    )
    assert rejections(helm4, merged(BASE, old), tmp_path) == []
    none = merged(old, tree("clusterQueues: {product: {quota: {v6e-4x4: {slices: 0}}}}"))
    assert len(rejections(helm4, merged(BASE, none), tmp_path)) == 2
