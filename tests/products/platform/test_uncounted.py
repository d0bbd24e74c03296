"""Chips that no quota counts, on what the real controllers wrote (../shared/recordings), and on changes of that."""

from __future__ import annotations

import dataclasses
from datetime import datetime, timedelta
from types import SimpleNamespace
from typing import Any, cast

import pytest

from launcher.backends.base import RunStatus
from launcher.backends.kubernetes.submitter import KubernetesSubmitter
from launcher.config.values.files import chart_defaults
from launcher.diagnose.doctor.finding import Finding, Level
from launcher.diagnose.doctor.inventory import Fetched, UsedChips
from launcher.k8s.client import POD
from launcher.k8s.errors import Forbidden
from launcher.k8s.kueue.workloads import Workload
from launcher.k8s.objects import ApiObject
from launcher.k8s.pods import Pod
from launcher.k8s.target import Target
from launcher.products.platform import explain as explaining
from launcher.products.platform import uncounted as module
from launcher.products.platform.doctor import usage
from launcher.products.platform.foreign import QueueBackend, named
from launcher.products.platform.uncounted import Uncounted, Why, uncounted
from tests.cluster import recordings
from tests.unit import recorded
from tests.unit.recorded import Object, Recorded, stamp
from tests.unit.test_doctor import healthy
from tests.unit.test_kubernetes_backend import Cluster

RUNNING = 12
"""Seconds after the start of rayjob-admitted when all its pods run: a head, and two hosts with 4 chips each."""
YEAR = 31_536_000


def objects(of: Recorded, kind: str) -> list[Object]:
    return [obj for obj in of.objects if obj["kind"] == kind]


def pods(of: Recorded) -> list[Pod]:
    return [*map(Pod, of.list(POD, fields=module.FIELDS, all_namespaces=True))]


def found(of: Recorded, now: datetime | None = None, *, clusters: bool = True) -> list[Uncounted]:
    ray_clusters = map(ApiObject, objects(of, "RayCluster") if clusters else [])
    return uncounted(pods(of), [*map(Workload, objects(of, "Workload"))], now or of.now, ray_clusters=ray_clusters)


def later(of: Recorded, seconds: float = module.SETTLES) -> datetime:
    return of.now + timedelta(seconds=seconds)


def finish(of: Recorded) -> Recorded:
    """Report the run as finished, as Kueue does while KubeRay keeps its Ray cluster (ttlSecondsAfterFinished)."""
    for workload in objects(of, "Workload"):
        workload["status"]["conditions"].append(
            {"type": "Finished", "status": "True", "reason": "Succeeded", "lastTransitionTime": stamp(of.now)}
        )
    return of


@pytest.mark.parametrize("name", recordings.names())
def test_every_chip_of_a_recorded_run_is_in_its_quota(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """At each moment; without the time that the controllers have, only what is being deleted remains."""
    monkeypatch.setattr(module, "SETTLES", 0)
    moments = sorted({change.t for change in recordings.read(name)})
    whys = {each.why for moment in moments for each in found(recorded.at(name, moment))}
    assert whys <= ({Why.ENDED, Why.NO_WORKLOAD} if name == "cancelled-while-running" else set())


def test_pods_of_a_run_that_ended() -> None:
    of = finish(recorded.at("rayjob-admitted", RUNNING))
    assert found(of) == []  # KubeRay has a minute to delete them
    (one,) = found(of, later(of, 3600))
    assert (one.why, one.chips, one.counted, len(one.pods)) == (Why.ENDED, 8, 0, 2)
    assert one.sentence(later(of, 3600)).startswith(
        "The RayJob research/rayjob uses 8 chips that no quota counts (2 pods on "
    )
    assert one.sentence(later(of, 3600)).endswith("): it ended 1 h ago, and its pods were not deleted.")
    assert one.advice == "To release them: launcher delete rayjob -n research"
    for pod in objects(of, "Pod"):
        del pod["metadata"]["labels"]["slipway.dev/run"]
    (one,) = found(of, later(of))
    assert one.advice == "To release them: kubectl delete rayjob rayjob -n research"


def test_more_pods_than_kueue_counted() -> None:
    """KubeRay starts minReplicas, and Kueue counts replicas, which were 0."""
    of = recorded.at("rayjob-admitted", RUNNING)
    for workload in objects(of, "Workload"):
        workload["status"]["admission"]["podSetAssignments"][1]["resourceUsage"]["google.com/tpu"] = "0"
    (one,) = found(of, later(of))
    assert (one.why, one.chips, one.clause(of.now)) == (Why.EXCESS, 8, "it uses 8, and its quota is for 0")


def test_pods_that_take_long_to_end() -> None:
    of = recorded.at("rayjob-admitted", RUNNING)
    for workload in objects(of, "Workload"):
        workload["status"] = {}
    for pod in objects(of, "Pod"):
        pod["metadata"]["deletionTimestamp"] = stamp(of.now + timedelta(seconds=YEAR))
        pod["metadata"]["deletionGracePeriodSeconds"] = YEAR
    assert found(of, later(of, module.ENDS - 5)) == []
    (one,) = found(of, later(of, 7200))
    assert (one.why, one.chips) == (Why.TERMINATING, 8)
    assert one.clause(later(of, 7200)) == "its pods have been terminating for 2 h"
    assert one.advice.startswith("To end the pods sooner: kubectl delete pod rayjob-")
    assert one.advice.endswith(" -n research --grace-period=30")


def test_pods_without_a_workload_or_without_quota() -> None:
    of = recorded.at("rayjob-admitted", RUNNING)
    for workload in objects(of, "Workload"):
        workload["status"] = {}
    (one,) = found(of, later(of))
    assert (one.why, str(one.owner)) == (Why.NO_QUOTA, "RayJob research/rayjob")
    of.drop("Workload")
    (one,) = found(of, later(of))
    assert (one.why, str(one.owner)) == (Why.NO_WORKLOAD, "RayJob research/rayjob")
    (one,) = found(of, later(of), clusters=False)  # RBAC hides the RayClusters
    assert str(one.owner).startswith("RayCluster research/rayjob-")
    for pod in objects(of, "Pod"):
        pod["metadata"]["ownerReferences"] = []
    assert [(each.owner.kind, each.chips) for each in found(of, later(of))] == [("Pod", 4), ("Pod", 4)]


def test_an_annotation_that_names_the_workload_of_another_run_hides_nothing() -> None:
    """slices-1 runs on 8 chips, and slices-2 on 16."""
    of = recorded.at("three-then-one-and-two", 30)
    assert found(of, later(of)) == []
    (other,) = (one for one in map(Workload, objects(of, "Workload")) if one.owner == "slices-2")
    for pod in objects(of, "Pod"):
        pod["metadata"]["annotations"]["kueue.x-k8s.io/workload"] = other.name
    (excess,) = found(of, later(of))
    assert (excess.owner.name, excess.why, excess.chips, excess.counted) == ("slices-2", Why.EXCESS, 8, 16)


# --- doctor ---


def examine(of: Recorded, now: datetime, **changes: Any) -> list[Finding]:
    used = UsedChips(
        Fetched(pods(of)), Fetched([*map(Workload, objects(of, "Workload"))]), Fetched([]), everywhere=True
    )
    table = chart_defaults("run").tree["common"]["accelerators"]
    return [*usage.examine(healthy(used=dataclasses.replace(used, **changes)), table, now)]


def test_the_doctor_compares_used_and_counted_chips_of_each_team() -> None:
    of = recorded.at("rayjob-admitted", RUNNING)
    (one,) = examine(of, later(of))
    assert (one.level, one.subject) == (Level.OK, "chips in use")
    assert one.says == "pods use 8 chips, and all are in a quota."
    (one,) = examine(finish(of), later(of, 3600))
    assert (one.level, one.subject) == (Level.WARNING, "chips in use")
    assert one.says.startswith(
        "research uses 8 chips, and Kueue counts 0; 8 are in no quota, so runs are admitted and then wait for nodes. "
        "The RayJob research/rayjob uses 8 chips that no quota counts (2 pods on nodepool"
    )
    assert one.hint == "To release them: launcher delete rayjob -n research"


def test_the_doctor_says_what_it_could_not_read() -> None:
    of = recorded.at("rayjob-admitted", RUNNING)
    unknown, ok = examine(of, later(of), everywhere=False)
    assert unknown.level is Level.UNKNOWN
    assert unknown.says == (
        "you may not list pods and workloads in the whole cluster; the chips of other namespaces are left out."
    )
    assert ok.says == "pods use 8 chips in research, and all are in a quota."
    error = Forbidden("No.", "", verb="list", resource="pods", group="", namespace="research")
    (only,) = examine(of, later(of), pods=Fetched(why=error), everywhere=False)
    assert only.says.startswith("you may not list pods in the namespace research; ")


# --- list and explain ---


def lab(recording: str, seconds: float) -> Cluster:
    """Return a recorded cluster whose objects Slipway did not create."""
    here = Cluster(recorded.at(recording, seconds))
    for obj in here.objects:
        obj["metadata"].get("labels", {}).pop("slipway.dev/run", None)
    return here


def listed(here: Cluster) -> tuple[list[RunStatus], list[str]]:
    warned: list[str] = []
    backend = KubernetesSubmitter(cast(Any, here), poll_seconds=0.0, preflight=lambda *_: ())
    assert backend.list(warned.append) == []  # the verbs that change runs do not see the objects of others
    return [*QueueBackend(cast(Any, here)).list(warned.append)], warned


def test_objects_that_slipway_did_not_create_are_listed() -> None:
    runs, _ = listed(lab("three-then-one-and-two", 22))
    assert {(run.name, run.kind, str(run.state), run.queue, run.foreign) for run in runs} == {
        ("slices-3", "JobSet", "running", "multislice", True),
        ("slices-1", "JobSet", "queued", "multislice", True),
        ("slices-2", "JobSet", "queued", "multislice", True),
    }
    waiting = next(run for run in runs if run.name == "slices-1")
    assert "insufficient unused quota" in waiting.reason
    assert (waiting.in_cluster, waiting.has_object, waiting.as_json()["foreign"]) == (True, False, True)
    runs, _ = listed(lab("rayjob-succeeds", 60))
    assert runs == []  # it has ended, and holds nothing


def test_a_list_without_the_right_to_read_pods() -> None:
    here = lab("three-then-one-and-two", 22)
    here.hidden.add(("pods", here.namespace))
    runs, warned = listed(here)
    assert len(runs) == 3
    assert warned[-1:] == ["No. Chips that no quota counts are not shown."]


def at(here: Cluster) -> Target:
    """Return a target that leads to a recorded cluster, which no kubeconfig names."""
    return cast(Target, SimpleNamespace(cluster_requested=True, cluster=lambda: here))


def test_explain_of_an_object_that_slipway_did_not_create() -> None:
    here = lab("three-then-one-and-two", 22)
    explanation = explaining.explain(at(here), "slices-2")
    assert explanation is not None
    assert explanation.headline.startswith("slices-2 waits for 16 chips of v5e-2x4")
    assert "Slipway did not create it" in explanation.evidence[0].says
    assert any("insufficient unused quota" in each.says for each in explanation.evidence)
    assert not any("--set" in each for each in explanation.suggestions)
    running = explaining.explain(at(here), "slices-3")
    assert running is not None
    assert running.headline == "slices-3 is running."
    assert explaining.explain(at(here), "other") is None
    sentence, hint = named("slices-2", at(here)) or ("", "")
    assert sentence == '"slices-2" is a JobSet in a queue of the namespace research that Slipway did not create.'
    assert hint.endswith("to delete it: kubectl delete jobset slices-2 -n research")
    assert named("other", at(here)) is None
    here.objects = [obj for obj in here.objects if obj["kind"] != "JobSet"]
    assert named("slices-2", at(here)) is None  # it was deleted, and its Workload was not yet
