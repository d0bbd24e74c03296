"""The state of a served model from the status that KubeRay writes and from its Workload, against upstream's CRDs."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from launcher.k8s.kueue.workloads import Workload
from launcher.k8s.shapes import SHAPES, fault
from launcher.paths import charts_dir, presets_dir
from launcher.products.models.serving import models
from launcher.products.models.serving.models import ServedModel
from launcher.releases import readiness
from tests.charts import schemas
from tests.charts.helm import template
from tests.cluster import fake_kuberay

Object = dict[str, Any]
CREATED = "2026-11-21T06:00:00Z"


@pytest.fixture(scope="module")
def rendered(helm4: Path) -> Object:
    """The RayService of a preset, which asks for 1 to 4 replicas."""
    options = ("--set", "serve.replicas.max=4")
    text = template(helm4, charts_dir() / "serve", [presets_dir() / "serve" / "llama3.1-8b-v6e.yaml"], *options)
    (obj,) = schemas.objects(text)
    return obj


def service(rendered: Object, status: Object | None = None, **spec: Any) -> Object:
    """Return the RayService with a status, checked against the CRDs of every version of KubeRay."""
    made = copy.deepcopy(rendered)
    made["metadata"] |= {"uid": "u-1", "creationTimestamp": CREATED, "generation": 1}
    made["spec"] |= spec
    if status is not None:
        made["status"] = status
        assert schemas.validate({key: value for key, value in made.items() if key != "metadata"} | META) == []
    assert fault(made, SHAPES["RayService"]) == ""
    return made


META: Object = {"metadata": {"name": "x"}}


def workload(*conditions: tuple[str, str, str, str], active: bool = True) -> Workload:
    return Workload(
        {
            "metadata": {"name": "w", "uid": "w-1", "creationTimestamp": CREATED, "labels": {}},
            "spec": {"active": active, "queueName": "my-team", "podSets": []},
            "status": {"conditions": [fake_kuberay.condition(*each) for each in conditions]},
        }
    )


ADMITTED = workload(("QuotaReserved", "True", "QuotaReserved", ""), ("Admitted", "True", "Admitted", ""))
WAITS = workload(("QuotaReserved", "False", "Pending", "insufficient unused quota for google.com/tpu"))


@pytest.mark.parametrize(
    ("status", "state", "reason"),
    [
        (None, "starting", "KubeRay has not processed it yet."),
        (fake_kuberay.status(), "starting", "Its Ray cluster is about to be created."),
        (fake_kuberay.status(pending=fake_kuberay.part("a", provisioned=False)), "starting", "Its pods are starting."),
        (fake_kuberay.LOADING, "starting", "The model is being loaded."),
        (fake_kuberay.READY, "ready", ""),
        (fake_kuberay.DEPLOY_FAILED, "unhealthy", "ValueError: /data/exports/llama3.1-8b has no config.json."),
        (fake_kuberay.UNHEALTHY, "unhealthy", "The deployments ['Model'] are UNHEALTHY."),
        (fake_kuberay.STOPPED, "unhealthy", "No replica answers any more."),
        (fake_kuberay.UPDATING, "updating", "The new version is starting, and the old one answers."),
        (fake_kuberay.INCREMENTAL, "updating", "25 % of the requests go to the new version."),
        (
            fake_kuberay.UPDATE_FAILED,
            "updating",
            "The new version does not answer, and the old one continues: ValueError: /data/exports/llama3.1-8b has no "
            "config.json.",
        ),
        (fake_kuberay.REJECTED, "failed", "spec.serveConfigV2 is not valid"),
        (fake_kuberay.TIMED_OUT, "failed", "RayService failed to become ready within 1800s"),
    ],
)
def test_states_that_kuberay_reports(rendered: Object, status: Object | None, state: str, reason: str) -> None:
    assert ServedModel(service(rendered, status), ADMITTED).state_and_reason == (state, reason)


def test_a_rejection_of_previous_values_does_not_count(rendered: Object) -> None:
    corrected = {**fake_kuberay.REJECTED, "observedGeneration": 1, "pendingServiceStatus": fake_kuberay.part("b")}
    assert ServedModel(service(rendered, corrected), ADMITTED).state_and_reason[0] == "starting"


def test_a_field_that_the_crd_does_not_have_fails(rendered: Object) -> None:
    with pytest.raises(AssertionError, match="numServeEndpoint"):
        service(rendered, {**fake_kuberay.READY, "numServeEndpoint": 1})


@pytest.mark.parametrize(
    ("of", "state", "reason"),
    [
        (None, "queued", "Kueue has not created its Workload yet."),
        (WAITS, "queued", "insufficient unused quota for google.com/tpu"),
        (
            workload(("Evicted", "True", "Preempted", "Preempted to accommodate a workload (UID: 1) due to x")),
            "queued",
            "Preempted to accommodate a workload due to x",
        ),
        (ADMITTED, "starting", "KubeRay has not processed it yet."),
        (workload(active=False), "queued", "Its Workload is inactive (spec.active), so Kueue does not start it."),
        (
            workload(("Evicted", "True", "DeactivatedDueToRequeuingLimitExceeded", "exceeded"), active=False),
            "failed",
            "Kueue has deactivated it: exceeded",
        ),
    ],
)
def test_states_that_kueue_reports(rendered: Object, of: Workload | None, state: str, reason: str) -> None:
    waiting = service(rendered)
    waiting["spec"]["rayClusterConfig"]["suspend"] = True
    assert ServedModel(waiting, of).state_and_reason == (state, reason)


def test_a_suspended_model_does_not_answer_although_kuberay_still_reports_it_as_ready(rendered: Object) -> None:
    preempted = service(rendered, fake_kuberay.READY)
    preempted["spec"]["rayClusterConfig"]["suspend"] = True
    assert ServedModel(preempted, WAITS).state_and_reason[0] == "queued"


def test_a_model_that_is_being_deleted(rendered: Object) -> None:
    going = service(rendered, fake_kuberay.READY)
    going["metadata"]["deletionTimestamp"] = CREATED
    assert ServedModel(going, ADMITTED).state_and_reason[0] == "deleting"


@pytest.mark.parametrize(("endpoints", "state"), [(1, "ready"), (4, "ready")])
def test_autoscaling_between_the_limits_is_ready(rendered: Object, endpoints: int, state: str) -> None:
    status = fake_kuberay.status(active=fake_kuberay.part("a", application="RUNNING"), endpoints=endpoints)
    model = ServedModel(service(rendered, status), ADMITTED)
    assert (model.replica_limits, model.replicas, model.state_and_reason[0]) == ((1, 4), endpoints, state)


def test_fewer_replicas_than_the_minimum(rendered: Object) -> None:
    made = service(rendered, fake_kuberay.READY)
    made["spec"]["serveConfigV2"] = made["spec"]["serveConfigV2"].replace("min_replicas: 1", "min_replicas: 2")
    assert ServedModel(made, ADMITTED).state_and_reason == ("unhealthy", "1 of at least 2 replicas answer.")
    # An install waits for the others, too.
    cluster = mock.Mock(get=lambda kind, name, namespace: made)
    assert [text.partition(": ")[2] for text in readiness.not_ready(cluster, [made])] == [
        "1 of at least 2 replicas answer."
    ]
    made["status"]["numServeEndpoints"] = 2
    assert readiness.not_ready(cluster, [made]) == []


def test_the_head_is_not_a_replica(rendered: Object) -> None:
    status = fake_kuberay.status(active=fake_kuberay.part("a", application="RUNNING"), endpoints=1)
    idle = service(rendered, status, excludeHeadPodFromServeSvc=False)
    idle["spec"]["serveConfigV2"] = idle["spec"]["serveConfigV2"].replace("min_replicas: 1", "min_replicas: 0")
    model = ServedModel(idle, ADMITTED)
    assert (model.replicas, model.state_and_reason[0]) == (0, "ready")


@pytest.mark.parametrize("text", ["", "a: [", "applications: 3", "applications: [1]", "http_options: x", "- 1"])
def test_a_config_that_someone_else_wrote_is_unknown(rendered: Object, text: str) -> None:
    model = ServedModel(service(rendered, fake_kuberay.READY, serveConfigV2=text), ADMITTED)
    assert model.replica_limits == (None, None)
    assert model.url == "http://x-serve-svc.my-team:8000/v1"
    assert model.state_and_reason[0] == "ready"


def test_the_last_line_of_a_traceback() -> None:
    assert models.last_line(fake_kuberay.TRACEBACK) == "ValueError: /data/exports/llama3.1-8b has no config.json"
    assert models.last_line(" \n") == ""
