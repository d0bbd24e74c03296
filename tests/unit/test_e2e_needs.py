"""The needs of the tests of `make e2e`, and its settings; no cluster is needed here."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from launcher.errors import LauncherError
from tests.e2e import facts as looks
from tests.e2e import leftovers, settings
from tests.e2e.__main__ import main
from tests.e2e.needs import Controller, Facts, FixedBy, Needs, skip_reason, unmet_needs

KINDS = frozenset(
    f"{kind}.{group}"
    for kind, group in [
        ("clusterqueues", "kueue.x-k8s.io/v1beta2"),
        ("localqueues", "kueue.x-k8s.io/v1beta2"),
        ("workloads", "kueue.x-k8s.io/v1beta2"),
        ("jobsets", "jobset.x-k8s.io/v1alpha2"),
        ("rayjobs", "ray.io/v1"),
        ("rayclusters", "ray.io/v1"),
    ]
)
GOOD = Facts(
    controllers={
        "kueue": Controller("kueue-controller-manager", "0.19.2", True, "kueue-system"),
        "jobset": Controller("jobset-controller-manager", "0.12.0", True, "jobset-system"),
        "kuberay": Controller("kuberay-operator", "1.7.0", True, "kuberay-operator"),
    },
    crds=KINDS,
    nodes=1,
    cpu=8,
    memory_gib=16,
    simulated="",
    storage="",
    image="example.com/trainer:1",
    earlier="",
)
EVERYTHING = Needs(
    kueue="0.16",
    jobset="0.10",
    kuberay="1.5",
    nodes=1,
    cpu=2,
    memory_gib=8,
    simulated=True,
    pods=True,
    image=True,
    storage=True,
    earlier=True,
    ray=True,
    rights=("list everything",),
)


def message_of(facts: Facts, what: Needs = EVERYTHING) -> str:
    unmet = unmet_needs(what, facts)
    return skip_reason(unmet) if unmet else ""


def test_a_cluster_with_everything_meets_all_needs() -> None:
    assert unmet_needs(EVERYTHING, GOOD) == []


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"controllers": {}, "crds": frozenset()}, "needs Kueue 0.16 or later, which is not installed"),
        ({"controllers": {}}, "its kinds are served, and no controller of its kind runs"),
        ({"crds": KINDS - {"jobsets.jobset.x-k8s.io/v1alpha2"}}, "does not serve jobsets.jobset.x-k8s.io/v1alpha2"),
        ({"nodes": 0}, "1 node for ordinary pods, ready and without taints; it has 0"),
        ({"cpu": 1.5}, "2 cores on such nodes; they have 1.5"),
        ({"memory_gib": 3.25}, "8 GiB of memory on such nodes; they have 3.2"),
        ({"simulated": "there is no KWOK"}, "simulated nodes (there is no KWOK)"),
        ({"image": ""}, "an image with the trainer; name it in SLIPWAY_E2E_IMAGE"),
        ({"storage": "there is none"}, "storage that all hosts of a run may write to (there is none)"),
        ({"earlier": "no history"}, "the charts of an earlier release (no history)"),
        ({"ray": "no Ray"}, "a Ray cluster that accepts jobs (no Ray)"),
        ({"refused": frozenset({"make queues"})}, "the right to make queues (create clusterqueues.kueue.x-k8s.io)"),
        ({"refused": frozenset({"make nodes"})}, "the right to make nodes (create nodes)"),
    ],
)
def test_unmet_needs_are_named(change: dict[str, Any], message: str) -> None:
    assert message in message_of(replace(GOOD, **change))


@pytest.mark.parametrize(
    ("controller", "message"),
    [
        (Controller("kueue", "0.15.9", True), "needs Kueue 0.16 or later; it is 0.15.9"),
        (Controller("kueue", "0.19.2", False, "system"), "its Deployment system/kueue has no ready pod"),
        (Controller("kueue", "0.9.0", True), "it is 0.9.0"),  # versions are compared as numbers, not as text
        (Controller("kueue", "0.16.0", True), ""),
        (Controller("kueue", "", True), ""),  # if the image has no version, the need is met
        (Controller("kueue", "1.0.0", True), ""),
    ],
)
def test_controllers_by_version(controller: Controller, message: str) -> None:
    found = message_of(replace(GOOD, controllers={**GOOD.controllers, "kueue": controller}))
    assert message in found
    assert bool(found) == bool(message)


def test_small_pods_go_to_real_nodes_or_to_simulated_ones() -> None:
    small = Needs(pods=True)
    assert unmet_needs(small, replace(GOOD, nodes=0)) == []
    assert unmet_needs(small, replace(GOOD, simulated="no KWOK")) == []
    assert "or simulated ones (no KWOK); it has none" in message_of(replace(GOOD, nodes=0, simulated="no KWOK"), small)
    # The right to create nodes is needed only if the test creates nodes.
    no_nodes = replace(GOOD, refused=frozenset({"make nodes"}))
    assert unmet_needs(small, replace(no_nodes, simulated="no KWOK")) == []
    assert "make nodes" in message_of(no_nodes, small)


def test_who_can_fix_it() -> None:
    unmet = unmet_needs(EVERYTHING, replace(GOOD, image="", nodes=0))
    assert [need.fixed_by for need in unmet] == [FixedBy.CLUSTER, FixedBy.SETTING]


def test_stages_of_kwok_that_end_jobs_at_once() -> None:
    def stage(keys: list[str], ends: bool) -> dict[str, Any]:
        phase = "Succeeded" if ends else "Running"
        return {
            "spec": {
                "resourceRef": {"apiGroup": "v1", "kind": "Pod"},
                "selector": {"matchExpressions": [{"key": key, "operator": "Exists"} for key in keys]},
                "next": {"statusTemplate": f"phase: {phase}"},
            }
        }

    owner = ".metadata.ownerReferences.[].kind"
    assert looks.ends_jobs_at_once(stage([owner], True))
    assert not looks.ends_jobs_at_once(stage([owner], False))
    assert not looks.ends_jobs_at_once(stage(['.metadata.annotations["simulated/run-for"]'], True))


@pytest.mark.parametrize(
    ("image", "parts"),
    [
        ("busybox:1.37", ("busybox", "1.37", "")),
        ("example.com:5000/team/trainer:0.1", ("example.com:5000/team/trainer", "0.1", "")),
        ("example.com/trainer@sha256:ab", ("example.com/trainer", "", "sha256:ab")),
        ("example.com/trainer:1@sha256:ab", ("example.com/trainer", "", "sha256:ab")),
    ],
)
def test_images(image: str, parts: tuple[str, str, str]) -> None:
    assert tuple(settings.split_image(image).values()) == parts


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("PREFIX", "Test_1"),
        ("PREFIX", "much-too-long"),
        ("KWOK", "perhaps"),
        ("IMAGE", "trainer"),
        ("IMAGE", "trainer:latest"),
        ("PATIENCE", "soon"),
        ("PATIENCE", "-1"),
        ("PATIENCE", "nan"),
        ("PARTIAL", "yes"),
    ],
)
def test_invalid_settings(variable: str, value: str) -> None:
    with pytest.raises(LauncherError, match=f"^SLIPWAY_E2E_{variable} is "):
        settings.read({f"SLIPWAY_E2E_{variable}": value})


def test_settings() -> None:
    assert settings.read({}) == settings.Settings()
    found = settings.read({"SLIPWAY_E2E_CONTEXT": "lab", "SLIPWAY_E2E_PATIENCE": "2", "CI": "true"})
    assert (found.context, found.patience, found.strict, found.partial) == ("lab", 2.0, True, False)


def test_names_of_a_run_of_the_suite() -> None:
    assert settings.is_id("e2e-1a2b3c")
    assert not settings.is_id("e2e")
    assert not settings.is_id("kube-system")
    assert leftovers.belongs("e2e-1a2b3c", "e2e-1a2b3c")
    assert leftovers.belongs("e2e-1a2b3c", "e2e-1a2b3c-2-cpu")
    assert not leftovers.belongs("e2e-1a2b3c-1", "e2e-1a2b3c-12")


def test_the_owner_of_leftovers() -> None:
    import os
    import socket

    host = socket.gethostname()
    assert leftovers.may_run(f"{host}:{os.getpid()}")
    assert leftovers.may_run("elsewhere:1")
    assert not leftovers.may_run(f"{host}:4194304")  # above the largest pid of Linux
    assert not leftovers.may_run("")


def test_no_cluster_at_all(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("KUBECONFIG", "/nowhere/config")
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    for arguments in ([], ["clean"]):
        assert main(arguments) == 1
        assert capsys.readouterr().err.splitlines() == [
            "Error: KUBECONFIG names /nowhere/config, which does not exist, so there is no cluster to test.",
            "Hint: tests/e2e/kind up makes one with kind; docs/how-to/test-a-cluster.md says more.",
        ]
