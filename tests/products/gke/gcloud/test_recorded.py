"""The recordings of gcloud: they are what the real one sends, and what the messages of Google's APIs allow."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.products.gke.gcloud import commands, harness, record
from tests.products.gke.gcloud.standin import main
from tests.products.gke.gcloud.stub import Stub
from tests.products.gke.gcloud.world import World

# CI has no gcloud; the recordings replace it there.
NEEDS_GCLOUD = pytest.mark.skipif(not harness.has_gcloud(), reason=harness.NO_GCLOUD)  # noqa: TID251
RECORDED: list[dict[str, Any]] = json.loads(record.FILE.read_text(encoding="utf-8"))
BODIES = {" ".join(entry["arguments"]): [request["body"] for request in entry["requests"]] for entry in RECORDED}


def body(*words: str) -> Any:
    """Return the body of the only request of the command whose arguments contain these words."""
    (found,) = [bodies for arguments, bodies in BODIES.items() if all(word in arguments for word in words)]
    assert len(found) == 1
    return found[0]


def test_every_command_of_the_plans_is_recorded() -> None:
    assert [entry["arguments"] for entry in RECORDED] == commands.arguments(), (
        "run python -m tests.products.gke.gcloud.record"
    )


@NEEDS_GCLOUD
def test_the_real_gcloud_sends_what_is_recorded() -> None:
    assert record.text(record.recorded()) == record.FILE.read_text(encoding="utf-8")


def test_google_knows_every_field() -> None:
    """The stub parses each body with the messages of google-cloud-container, which refuse unknown fields."""
    with Stub(World(project="demo-project", permissive=True)) as stub:
        for entry in RECORDED:
            for request in entry["requests"]:
                code, answer = stub.answer(request["method"], request["path"], request["body"])
                assert code != 400, (entry, answer)
        typo = {"nodePool": {"name": "x", "placementPolicy": {"tpuTopolgy": "4x4"}}}
        code, answer = stub.answer("POST", "/v1/projects/demo-project/locations/us-east5-b/clusters/c/nodePools", typo)
    assert code == 400
    assert "tpuTopolgy" in str(answer)


def test_the_cluster_has_rays_operator_and_the_driver_for_buckets() -> None:
    """The tutorial repeats --addons, so its request has only the second."""
    addons = body("clusters create slipway", "n1-standard-16")["cluster"]["addonsConfig"]
    assert addons["rayOperatorConfig"] == addons["gcsFuseCsiDriverConfig"] == {"enabled": True}
    assert addons["horizontalPodAutoscaling"] == addons["httpLoadBalancing"] == {"disabled": False}


@NEEDS_GCLOUD
def test_the_mistakes_of_the_tutorial() -> None:
    place = ["--project=demo", "--location=us-east5-b"]
    twice = ["--addons=RayOperator", "--addons", "GcsFuseCsiDriver", "--workload-pool=demo.svc.id.goog"]
    (request,), refusal = harness.record(["container", "clusters", "create", "x", *place, *twice])
    assert (refusal, "rayOperatorConfig" in request.body["cluster"]["addonsConfig"]) == ("", False)
    auto = ["container", "clusters", "create-auto", "x", "--enable-ray-operator", "--machine-type=n1-standard-16"]
    requests, refusal = harness.record([*auto, "--project=demo", "--location=us-east5"])
    assert requests == []
    assert "unrecognized arguments" in refusal


def test_a_slice_of_several_hosts_has_no_or_all_nodes() -> None:
    pool = body("node-pools create gke-tpu-2", "us-east5-b", "--num-nodes=0")["nodePool"]
    assert pool["placementPolicy"]["tpuTopology"] == "4x4"
    assert pool["autoscaling"] == {"enabled": True, "locationPolicy": "ANY", "maxNodeCount": 4, "minNodeCount": 0}


def test_an_unknown_command_of_the_stand_in(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["container", "clusters", "destroy"]) == 2
    assert "Run python -m tests.products.gke.gcloud.record." in capsys.readouterr().err
