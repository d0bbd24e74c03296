"""The reading of a project, in front of the stub of Google's APIs: Google Cloud cannot be had in a test."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from launcher import api
from launcher.config.plan import CheckFailed
from launcher.config.values.writer import dumps
from launcher.products.gke import actual, commands, findings, steps, up
from launcher.products.gke.google import Google, GoogleError
from launcher.products.gke.plan import Plan
from tests.cli.conftest import Launcher
from tests.products.gke.gcloud import harness
from tests.products.gke.gcloud.stub import Stub
from tests.products.gke.gcloud.world import Refusal, Reservation, World
from tests.tools.go_tools import tool

MACHINE = "ct6e-standard-4t"


@pytest.fixture
def stub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Stub]:
    helm = str(tool("helm"))  # before HOME changes: built tools are below it
    with Stub(World(project="demo-project", reservations={"ours": Reservation("us-east5-b", MACHINE, 24)})) as found:
        for key, value in harness.environment(found, tmp_path).items():
            monkeypatch.setenv(key, value)
        monkeypatch.setenv("SLIPWAY_HELM", helm)
        yield found


def values(folder: Path, slices: int = 2, location: str = "us-east5-b", network: Any = None, **flavor: Any) -> Path:
    file = folder / "cluster.yaml"
    written = {
        "gke": {"project": "demo-project", "location": location, "network": network or {}},
        "flavors": {"tpu": {"accelerator": "v6e", "topology": "4x4", **flavor}},
        "clusterQueues": {"all": {"chipsAlone": True, "quota": {"tpu": {"slices": slices}}}},
        "teams": {"research": {"clusterQueue": "all"}},
    }
    file.write_text(dumps(written), encoding="utf-8")
    return file


def plan(folder: Path, **changed: Any) -> Plan:
    planned: Plan = api.plan_cluster([str(values(folder, **changed))])
    return planned


def reserved(folder: Path, name: str, slices: int = 2) -> Plan:
    return plan(folder, slices=slices, provisioning="reservation", reservation=name)


def enabled(stub: Stub) -> None:
    stub.services.update({"compute.googleapis.com", "container.googleapis.com"})


def test_what_is_not_checked_before_an_api_is_enabled_is_named(stub: Stub, tmp_path: Path) -> None:
    made = reserved(tmp_path, "nope")
    found = actual.read(made)
    assert found.notes == (
        f"? not checked, whether the zone has these: machine type {MACHINE}, reservation nope "
        "(the API compute.googleapis.com is not enabled)",
    )
    assert found.missing == ()
    assert [each.level for each in findings.examine(made) if "not checked" in each.says] == ["unknown"]
    enabled(stub)
    found = actual.read(made)
    assert found.notes == ()
    assert found.missing == (("tpu", "the reservation nope does not exist in the zone us-east5-b."),)


def test_a_reservation_that_cannot_be_read_is_not_taken_as_one_that_exists(
    stub: Stub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(zone: str, name: str) -> Any:
        raise Refusal(403, "PERMISSION_DENIED", "Required 'compute.reservations.get' permission.")

    enabled(stub)
    monkeypatch.setattr(stub.compute, "reservation", refuse)
    found = actual.read(reserved(tmp_path, "ours"))
    assert found.notes == (
        "? not checked, whether the zone has these: reservation ours "
        "(Google Cloud refused the request: Required 'compute.reservations.get' permission)",
    )


def test_without_the_right_to_list_apis_nothing_is_taken_as_missing(
    stub: Stub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = Google.get

    def get(self: Any, api: str, path: str, query: Any = None) -> Any:
        if api in refused:
            raise GoogleError(f"{api} is refused.", status=403)
        return real(self, api, path, query)

    enabled(stub)
    refused = ["SERVICEUSAGE"]
    monkeypatch.setattr(Google, "get", get)
    assert actual.read(plan(tmp_path)).notes == (
        "? which APIs are enabled is not known, and up enables all: SERVICEUSAGE is refused.",
    )
    refused.append("CONTAINER")
    with pytest.raises(GoogleError, match="CONTAINER is refused"):
        actual.read(plan(tmp_path))


def test_a_cluster_of_the_same_name_elsewhere_is_named(stub: Stub, tmp_path: Path) -> None:
    enabled(stub)
    stub.gke.clusters["us-east5-b", "slipway"] = {"name": "slipway", "location": "us-east5-b", "status": "RUNNING"}
    stub.gke.clusters["us-east5-b", "other"] = {"name": "other", "location": "us-east5-b", "status": "RUNNING"}
    (note,) = up.changes(plan(tmp_path, location="us-east5-c")).notes
    assert note.startswith("! a cluster slipway exists in us-east5-b, and up creates a second one in us-east5-c: ")
    assert not [each for each in actual.read(plan(tmp_path)).notes if "exists" in each]


@pytest.mark.parametrize(("slices", "enough"), [(6, True), (7, False)])
def test_the_quota_is_compared_with_the_machines_of_the_reservation(
    stub: Stub, tmp_path: Path, slices: int, enough: bool
) -> None:
    enabled(stub)
    notes = actual.read(reserved(tmp_path, "ours", slices)).notes
    assert [note.partition(":")[0] for note in notes] == (
        [] if enough else ["! the reservation ours has 24 machines, and the quota needs 28 for flavors.tpu"]
    )


def test_private_nodes_need_cloud_nat(stub: Stub, tmp_path: Path) -> None:
    private = plan(tmp_path, network={"privateNodes": True})
    before = ["machine type", "network default has Cloud NAT"]
    assert [part in note for part, note in zip(before, actual.read(private).notes, strict=True)] == [True, True]
    enabled(stub)
    (note,) = actual.read(private).notes
    assert "the network default has no Cloud NAT in us-east5: they cannot load the images of Kueue" in note
    mirror = ["gke.network.privateNodes=true", "gke.controllerImages=us-east5-docker.pkg.dev/p/k8s"]
    assert actual.read(api.plan_cluster([str(values(tmp_path))], mirror)).notes == ()
    stub.world.nats = frozenset({("other", "us-east5"), ("default", "europe-west4")})
    assert len(actual.read(private).notes) == 1
    stub.world.nats = frozenset({("default", "us-east5")})
    assert actual.read(private).notes == ()
    assert actual.read(plan(tmp_path)).notes == ()


def test_cloud_nat_is_created_once_and_deleted_if_it_is_ours(stub: Stub, tmp_path: Path) -> None:
    enabled(stub)
    private = plan(tmp_path, network={"privateNodes": True, "nat": True})

    def nat() -> list[str]:
        found = actual.read(private)
        assert found.notes == ()
        return [step.what for step in steps.steps(private, found) if "NAT" in step.what or "router" in step.what]

    def down() -> list[str]:
        removal = steps.removal(private, actual.read(private), bucket=False)
        return [step.what for step in removal.steps] + list(removal.kept)

    assert nat() == ["router slipway", "Cloud NAT slipway"]
    network = "https://www.googleapis.com/compute/v1/projects/demo-project/global/networks/default"
    router = {"name": "slipway", "network": network, "description": "Made by Slipway"}
    stub.compute.create_router("us-east5", router)
    assert nat() == ["Cloud NAT slipway"]  # the first command succeeded, the second did not
    assert down() == ["the router slipway was not made by Slipway for the cluster slipway."]
    stub.compute.change_router("us-east5", "slipway", {"nats": [{}], "description": f"{commands.DESCRIPTION}slipway."})
    assert nat() == []
    assert down() == ["router slipway"]
    stub.compute.delete_router("us-east5", "slipway")
    stub.world.nats = frozenset({("default", "us-east5")})  # of another owner: Google Cloud refuses a second one
    assert nat() == []


@pytest.mark.usefixtures("stub")
@pytest.mark.parametrize(
    ("network", "says"),
    [
        ({"nat": True}, "set gke.network.privateNodes to true"),
        ({"nat": True, "privateNodes": True, "name": "projects/host/global/networks/vpc"}, "in the network's project"),
    ],
)
def test_cloud_nat_that_has_no_effect_or_no_place_is_refused(tmp_path: Path, network: Any, says: str) -> None:
    with pytest.raises(CheckFailed) as failed:
        plan(tmp_path, network=network)
    (problem,) = failed.value.problems
    assert says in problem.message


@pytest.mark.usefixtures("stub")
def test_a_flavor_without_a_price_is_named_not_free(tmp_path: Path) -> None:
    more: dict[str, Any] = {"provisioning": "reservation", "reservation": "r"}
    file = str(values(tmp_path, accelerator="v4", topology="2x2x2", **more))
    launcher = Launcher(tmp_path, tmp_path)
    shown = launcher("cluster", "plan", "-f", file)
    assert "This does not include tpu: no price is known; set it in common.prices." in shown.out
    assert "If all slices run" not in shown.out
    data = json.loads(launcher("cluster", "plan", "-f", file, "-o", "json").out)
    assert (data["fullUsdPerHour"], data["unpriced"]) == (0, ["tpu"])
    assert [note.partition(",")[0] for note in data["notes"]] == ["? not checked"]
