"""Independent scanners find nothing in what the charts render, except what is accepted here with a reason."""

from __future__ import annotations

from pathlib import Path

from tests.charts import scan, schemas
from tests.charts.presets import renders
from tests.charts.scan import Accepted, Finding

CPU_LIMIT = "a CPU limit throttles the host's input pipeline while the chips wait; the node is the pod's own"
CHIPS = "the pod asks for all chips of its host, so it has the machine's CPU and memory to itself"
TAG = "the image may be named by digest (image.digest); a tag other than latest is the user's choice"
PULL = "tags are versions, never latest; a pull at every restart would cost minutes for an image of gigabytes"
USER = "the image's user is 1000, as is Ray's; security.runAsUser sets another"
ROOT = "Ray, JAX and MaxText write caches, sockets and logs below / and the home folder; the user is not root"
PROBES = "a run has no traffic to be ready for, and a hung step is told by its log; restarts are the JobSet's"
ALIKE = "KubeRay sets the probes; readiness and liveness of Ray are the same question"
SCRATCH = "scratch space is the node's own, which the pod has to itself; checkpoints go to the storage"
NO_RUNS = "a team's namespace has no pods until the team has runs; every run's pods are matched by such a policy"
SECRET = "these values name a Secret in worker.secretEnv; Hugging Face's library takes its token from the environment"
AUTOSCALER = "these values turn autoscaling on, and Ray's autoscaler in the head's pod asks the API server for pods"
KEY = "the API key of a served model comes from a Secret into one variable; a file would be readable by the same user"
SCALES = "the values have more replicas at most than at least, and Ray's autoscaler in the head's pod asks for pods"
PIP = "this tutorial installs JAX into a stock image when it starts, which takes root; its pods keep nothing"

ACCEPTED = [
    Accepted("checkov", "CKV_K8S_11", "Pod/*", CPU_LIMIT),
    Accepted("checkov", "CKV_K8S_10", "Pod/*-ray-worker*", CHIPS),
    Accepted("checkov", "CKV_K8S_10", "Pod/*-jobset-*", CHIPS),
    Accepted("checkov", "CKV_K8S_12", "Pod/*-ray-worker*", CHIPS),
    Accepted("checkov", "CKV_K8S_12", "Pod/*-jobset-*", CHIPS),
    Accepted("checkov", "CKV_K8S_13", "Pod/*-ray-worker*", CHIPS),
    Accepted("checkov", "CKV_K8S_13", "Pod/*-jobset-*", CHIPS),
    Accepted("checkov", "CKV_K8S_43", "Pod/*", TAG),
    Accepted("checkov", "CKV_K8S_15", "Pod/*", PULL),
    Accepted("checkov", "CKV_K8S_40", "Pod/*", USER),
    Accepted("checkov", "CKV_K8S_22", "Pod/*", ROOT),
    Accepted("checkov", "CKV_K8S_8", "Pod/*-jobset-*", PROBES),
    Accepted("checkov", "CKV_K8S_9", "Pod/*-jobset-*", PROBES),
    Accepted("checkov", "CKV_K8S_23", "Pod/multislice-v5e-*", PIP),
    Accepted("checkov", "CKV_K8S_35", "Pod/*-values-*", SECRET),
    Accepted("checkov", "CKV_K8S_38", "Pod/groups-values-raycluster-ray-head", AUTOSCALER),
    Accepted("checkov", "CKV_K8S_35", "Pod/*-rayservice-ray-worker", KEY),
    Accepted("checkov", "CKV_K8S_38", "Pod/*-rayservice-ray-head*", SCALES),
    Accepted("kube-score", "container-resources", "Pod/*", f"{CPU_LIMIT}; {CHIPS}"),
    Accepted("kube-score", "pod-probes-identical", "Pod/*-ray-*", ALIKE),
    Accepted("kube-score", "container-image-pull-policy", "Pod/*", PULL),
    Accepted("kube-score", "container-ephemeral-storage-request-and-limit", "Pod/*", SCRATCH),
    Accepted("kube-score", "container-security-context-readonlyrootfilesystem", "Pod/*", ROOT),
    Accepted("kube-score", "container-security-context-user-group-id", "Pod/*", USER),
    Accepted("kube-score", "networkpolicy-targets-pod", "NetworkPolicy/*", NO_RUNS),
]


def test_nothing_is_found_except_what_is_accepted(helm4: Path, tmp_path: Path) -> None:
    scanned = scan.scannable((render.label, render.objects()) for render in renders(helm4))
    found = scan.scan(scanned, tmp_path)
    assert [finding for finding in found if not any(accepted.covers(finding) for accepted in ACCEPTED)] == []
    stale = [accepted for accepted in ACCEPTED if not any(accepted.covers(finding) for finding in found)]
    assert stale == [], "no scanner says this any more"


def test_every_acceptance_has_its_reason() -> None:
    assert all(len(accepted.reason) > 30 for accepted in ACCEPTED)


INSECURE = """
apiVersion: ray.io/v1
kind: RayCluster
metadata: {name: bad}
spec:
  headGroupSpec:
    template:
      spec:
        hostNetwork: true
        containers:
          - {name: head, image: "example.com/image:latest", securityContext: {privileged: true}}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: all}
rules: [{apiGroups: ["*"], resources: ["*"], verbs: ["*"]}]
"""


def test_the_scanners_check_the_pods_of_custom_resources(tmp_path: Path) -> None:
    found = scan.scan(scan.scannable([("bad", schemas.objects(INSECURE))]), tmp_path)
    reported = {(finding.scanner, finding.check, finding.object) for finding in found}
    assert reported >= {
        ("checkov", "CKV_K8S_16", "Pod/bad-raycluster-head"),  # privileged
        ("checkov", "CKV_K8S_19", "Pod/bad-raycluster-head"),  # host network
        ("checkov", "CKV_K8S_49", "ClusterRole/all"),  # wildcards
        ("checkov", "CKV2_K8S_6", "Pod/bad-raycluster-head"),  # no network policy
        ("kube-score", "container-image-tag", "Pod/bad-raycluster-head"),
        ("kube-score", "container-security-context-privileged", "Pod/bad-raycluster-head"),
        ("kube-score", "pod-networkpolicy", "Pod/bad-raycluster-head"),
    }


def test_an_acceptance_covers_its_own_check_and_objects_only() -> None:
    accepted = Accepted("checkov", "A", "Pod/jobset-*", "because")
    assert accepted.covers(Finding("checkov", "A", "Pod/jobset-main-1", "x"))
    assert not accepted.covers(Finding("checkov", "B", "Pod/jobset-main-1", "x"))
    assert not accepted.covers(Finding("kube-score", "A", "Pod/jobset-main-1", "x"))
    assert not accepted.covers(Finding("checkov", "A", "Pod/rayjob-main-1", "x"))


def test_pods_that_scanners_cannot_distinguish_are_scanned_once() -> None:
    (one, _), (other, _) = schemas.objects(INSECURE), schemas.objects(INSECURE)
    other["spec"]["headGroupSpec"]["template"]["spec"]["containers"][0]["args"] = ["x"]
    assert len(scan.scannable([("a", [one]), ("b", [other])])) == 1
    other["spec"]["headGroupSpec"]["template"]["spec"]["hostNetwork"] = False
    names = [obj["metadata"]["name"] for obj in scan.scannable([("a", [one]), ("b", [other]), ("b", [one])])]
    assert names == ["a-raycluster-head", "b-raycluster-head"]
