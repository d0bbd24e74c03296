"""launcher fleet with a real API server. Kueue cannot be had where the tests run, so they write what it would write."""

from __future__ import annotations

import csv
import datetime
import io
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.cluster.api import Api, Object
from tests.cluster.control_plane import ControlPlane, remove_namespace
from tests.cluster.launching import LauncherCli, until

SUFFIX = secrets.token_hex(3)
RED, BLUE = f"fleet-red-{SUFFIX}", f"fleet-blue-{SUFFIX}"
FLAVOR = f"fleet-{SUFFIX}"
KUEUE = "/apis/kueue.x-k8s.io/v1beta2"
HOUR = 3600


class World(NamedTuple):
    admin: LauncherCli
    member: LauncherCli
    folder: Path


def ago(seconds: float) -> str:
    time = datetime.datetime.now(datetime.UTC) - datetime.timedelta(seconds=seconds)
    return time.strftime("%Y-%m-%dT%H:%M:%SZ")


def condition(kind: str, since: float, reason: str = "") -> Object:
    moment = {"lastTransitionTime": ago(since), "message": ""}
    return {"type": kind, "status": "True", "reason": reason or kind, **moment}


def add_workload(
    api: Api, namespace: str, name: str, chips: int, *, held: float | None, ended: float = 0.0, past: int = 0
) -> None:
    """Create a Workload that waits, or one that was admitted `held` seconds ago and finished `ended` seconds ago."""
    container = {"name": "main", "image": "example.invalid/x:1", "resources": {"requests": {"google.com/tpu": chips}}}
    pods = {"name": "main", "count": 1, "template": {"spec": {"containers": [container], "restartPolicy": "Never"}}}
    kind = {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Workload"}
    api.create(
        {
            **kind,
            "metadata": {"name": name, "namespace": namespace},
            "spec": {"queueName": "training", "podSets": [pods]},
        }
    )
    if held is None:
        return
    assignment = {
        "name": "main",
        "count": 1,
        "flavors": {"google.com/tpu": FLAVOR},
        "resourceUsage": {"google.com/tpu": str(chips)},
    }
    conditions = [condition("QuotaReserved", held), condition("Admitted", held)]
    if ended:
        conditions.append(condition("Finished", ended, "Succeeded"))
    status: Object = {
        "admission": {"clusterQueue": namespace, "podSetAssignments": [assignment]},
        "conditions": conditions,
    }
    if past:
        status["accumulatedPastExecutionTimeSeconds"] = past
        status["schedulingStats"] = {"evictions": [{"reason": "Preempted", "underlyingCause": "", "count": 1}]}
    api.merge(f"{KUEUE}/namespaces/{namespace}/workloads/{name}/status", {"status": status})


@pytest.fixture(scope="module")
def world(control_plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    admin = control_plane.api
    kind = {"apiVersion": "kueue.x-k8s.io/v1beta2"}
    labels = {
        "cloud.google.com/gke-tpu-accelerator": "tpu-v5-lite-podslice",
        "cloud.google.com/gke-tpu-topology": "2x4",
    }
    made: list[str] = []

    def create(obj: Object, path: str) -> None:
        admin.create({**kind, **obj})
        made.append(path)

    create(
        {"kind": "ResourceFlavor", "metadata": {"name": FLAVOR}, "spec": {"nodeLabels": labels}},
        f"{KUEUE}/resourceflavors/{FLAVOR}",
    )
    for name in (RED, BLUE):
        control_plane.add_namespace(name)
        quota = {"name": FLAVOR, "resources": [{"name": "google.com/tpu", "nominalQuota": "16"}]}
        groups = [{"coveredResources": ["google.com/tpu"], "flavors": [quota]}]
        spec = {"namespaceSelector": {}, "resourceGroups": groups}
        create({"kind": "ClusterQueue", "metadata": {"name": name}, "spec": spec}, f"{KUEUE}/clusterqueues/{name}")
        meta = {"name": "training", "namespace": name, "labels": {"slipway.dev/team": name.split("-")[1]}}
        create(
            {"kind": "LocalQueue", "metadata": meta, "spec": {"clusterQueue": name}},
            f"{KUEUE}/namespaces/{name}/localqueues/training",
        )
    add_workload(admin, RED, "runs", 16, held=HOUR)
    add_workload(admin, RED, "waits", 8, held=None)
    add_workload(admin, BLUE, "ended", 8, held=3 * HOUR, ended=HOUR)
    add_workload(admin, BLUE, "preempted", 8, held=HOUR, past=1800)
    kubeconfig = control_plane.kubeconfig_for(f"fleet-alice-{SUFFIX}", namespace=RED)
    rbac = {"apiVersion": "rbac.authorization.k8s.io/v1"}
    rules = [{"apiGroups": ["kueue.x-k8s.io"], "resources": ["workloads", "localqueues"], "verbs": ["list"]}]
    admin.create({**rbac, "kind": "Role", "metadata": {"name": "reads", "namespace": RED}, "rules": rules})
    subject = {"kind": "User", "name": f"fleet-alice-{SUFFIX}", "apiGroup": "rbac.authorization.k8s.io"}
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "reads"}
    binding = {"kind": "RoleBinding", "metadata": {"name": "reads", "namespace": RED}}
    admin.create({**rbac, **binding, "subjects": [subject], "roleRef": role})
    alice = Api(kubeconfig)
    until(lambda: alice.open("GET", f"{KUEUE}/namespaces/{RED}/workloads").status == 200)
    alice.close()
    folder = tmp_path_factory.mktemp("fleet")
    yield World(
        LauncherCli(control_plane.admin, RED, folder / "admin"), LauncherCli(kubeconfig, RED, folder / "alice"), folder
    )
    for path in reversed(made):
        admin.delete(path)
    for name in (RED, BLUE):
        remove_namespace(admin, name)


def test_teams_flavors_and_runs(world: World) -> None:
    done = world.admin("fleet", "--since", "1d", "-o", "json")
    assert (done.code, done.err) == (0, "")
    teams = {group["name"]: group for group in done.json["teams"]}
    assert teams["red"]["chip_hours"] == pytest.approx(16, abs=0.2)
    assert teams["blue"]["chip_hours"] == pytest.approx(16 + 8 + 4, abs=0.3)
    assert (teams["red"]["waiting"], teams["blue"]["preemptions"]) == (1, 1)
    assert teams["blue"]["preempted_hours"] == pytest.approx(4, abs=0.1)
    flavor = next(row for row in done.json["flavors"] if row["name"] == FLAVOR)
    assert (flavor["chips"], flavor["price"]["per_chip_hour"]) == (32, 1.2)
    assert flavor["cost"] == pytest.approx(flavor["chip_hours"] * 1.2)
    marks = " ".join(done.json["marks"])
    assert "had earlier attempts of which only the total time is known" in marks
    text = world.admin("fleet", "--since", "1d", "--team", "blue").out
    assert "preempted  blue  -     running" in text
    assert "~" in text
    assert "runs  " not in text.split("RUN ")[1]


def test_the_csv_adds_up_over_days_and_prices_of_the_values(world: World) -> None:
    values = world.folder / "fleet.yaml"
    values.write_text(
        f"fleet:\n  timezone: Pacific/Kiritimati\n  currency: EUR\n  preempted: free\n"
        f"  flavors: {{{FLAVOR}: {{perChipHour: 0.8, pricingCategory: Committed}}}}\n"
    )
    until = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    options = ("--since", "2d", "--until", until, "-f", str(values))
    fleet, table = world.admin("fleet", *options, "-o", "json"), world.admin("fleet", *options, "-o", "csv")
    assert table.code == 0
    rows = list(csv.DictReader(io.StringIO(table.out)))
    # Other tests share the cluster; their flavors have no price.
    assert sum(float(row["BilledCost"] or 0) for row in rows) == pytest.approx(fleet.json["total"]["cost"], rel=0.01)
    assert sum(float(row["ConsumedQuantity"]) for row in rows) == pytest.approx(
        fleet.json["total"]["chip_hours"], rel=0.01
    )
    assert {row["BillingCurrency"] for row in rows} == {"EUR"}
    mine = [row for row in rows if row["PricingCategory"] == "Committed"]
    assert {row["ResourceName"] for row in mine} == {"runs", "ended", "preempted"}


def test_a_member_sees_the_own_namespace_and_a_mark(world: World) -> None:
    done = world.member("fleet", "--since", "1d")
    assert done.code == 0
    assert f"You may list only runs of {RED}: those of others are missing, and count as idle." in done.out
    assert "blue" not in done.out
    assert "You may not list ClusterQueues" in done.out


def test_a_page_for_a_browser(world: World) -> None:
    file = world.folder / "fleet.html"
    done = world.admin("fleet", "--since", "1d", "--html", str(file))
    assert done.code == 0, done.err
    page = file.read_text()
    assert "<h2>Teams</h2>" in page
    assert "No data from" in page  # the cluster of the tests is younger than a day
    file.write_text("a page of mine")
    assert world.admin("fleet", "--html", str(file)).code == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--since", "yesterday"), '--since: "yesterday" is not a time'),
        (("--set", "fleet.timezone=Berlin"), 'fleet.timezone is "Berlin", which is not a time zone'),
        (("--set", "fleet.flavor.x.perChipHour=1"), "unknown key fleet.flavor; did you mean fleet.flavors?"),
        (("--set", "fleet.currency=euro"), "fleet.currency"),
    ],
)
def test_wrong_input_is_a_sentence(world: World, arguments: tuple[str, ...], message: str) -> None:
    done = world.admin("fleet", *arguments)
    assert done.code in (1, 2)
    assert message in done.err
