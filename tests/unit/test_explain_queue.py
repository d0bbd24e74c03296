"""`explain` of runs that wait for Kueue, in situations that were not recorded.

Each test changes a recording to what Kueue 0.19.2 would write: texts and reasons are from its source; a docstring names
the file.
"""

from __future__ import annotations

import copy
from datetime import timedelta
from typing import Any

import pytest

from launcher.backends.kubernetes.run_object import RunObject
from launcher.diagnose.explain.finding import Explanation
from launcher.diagnose.explain.rule_order import explain
from launcher.diagnose.explain.situation import Situation
from tests.unit import recorded
from tests.unit.recorded import Recorded, stamp

Object = dict[str, Any]
WAITING = "jobset-waiting-2-ba966"


def waiting() -> Recorded:
    """Return the cluster in which waiting-2 requests 16 of 24 chips, and first-2 holds 16; both have priority 0."""
    return recorded.at("quota-in-use-by-others", 8)


def explain_run(cluster: Recorded, name: str = "waiting-2", kind: str = "JobSet", *, later: float = 0) -> Explanation:
    return explain(
        Situation(RunObject.parse(cluster.find(kind, name)), cluster, cluster.now + timedelta(seconds=later))
    )


def set_condition(obj: Object, kind: str, status: str, reason: str, message: str, at: str) -> None:
    conditions = obj["status"].setdefault("conditions", [])
    conditions[:] = [item for item in conditions if item["type"] != kind]
    conditions.append({"type": kind, "status": status, "reason": reason, "message": message, "lastTransitionTime": at})


def set_quota_message(cluster: Recorded, message: str, reason: str = "Pending", workload: str = WAITING) -> Recorded:
    """Set Kueue's message on the quota of the Workload."""
    now = stamp(cluster.now)
    set_condition(cluster.find("Workload", workload), "QuotaReserved", "False", reason, message, now)
    return cluster


def evict(cluster: Recorded, reason: str, message: str, ago: float = 60) -> Object:
    workload = cluster.find("Workload", WAITING)
    set_condition(workload, "Evicted", "True", reason, message, stamp(cluster.now - timedelta(seconds=ago)))
    return workload


# --- quota --------------------------------------------------------------------------------------------------------


def in_cohort(cluster: Recorded, **limits: str) -> Recorded:
    """Put the queue tpu into the cohort org, together with the queue search, which has a quota of 24 chips."""
    tpu = cluster.find("ClusterQueue", "tpu")
    tpu["spec"]["cohortName"] = "org"
    tpu["spec"]["resourceGroups"][0]["flavors"][0]["resources"][0].update(limits)
    search = copy.deepcopy(tpu)
    search["metadata"]["name"] = "search"
    search["spec"]["resourceGroups"][0]["flavors"][0]["resources"][0] = {"name": "google.com/tpu", "nominalQuota": "24"}
    search["status"]["flavorsReservation"] = []
    return cluster.add(search)


def test_borrowing_limit() -> None:
    explanation = explain_run(in_cohort(waiting(), borrowingLimit="0"))
    assert explanation.headline == (
        "waiting-2 waits for 16 chips of v5e-2x4: its queue tpu has reached its borrowing limit (0), although the "
        "cohort org has enough free."
    )
    assert any("clusterQueues.tpu.quota.v5e-2x4.borrowing" in text for text in explanation.suggestions)


def held_by_search(cluster: Recorded) -> Recorded:
    """Add a run of the namespace search that holds the whole quota of the queue search."""
    cluster.find("ClusterQueue", "search")["status"]["flavorsReservation"] = [
        {"name": "v5e-2x4", "resources": [{"name": "google.com/tpu", "total": "24"}]}
    ]
    other = copy.deepcopy(cluster.find("Workload", "jobset-first-2-30688"))
    other["metadata"].update(name="jobset-big", namespace="search", uid="big")
    other["metadata"]["ownerReferences"][0]["name"] = "big-3"
    assignment = other["status"]["admission"]["podSetAssignments"][0]
    other["status"]["admission"]["clusterQueue"] = "search"
    assignment["resourceUsage"] = {"google.com/tpu": "24"}
    since = stamp(cluster.now - timedelta(hours=2))
    set_condition(other, "QuotaReserved", "True", "QuotaReserved", "Quota reserved in ClusterQueue search", since)
    return cluster.add(other)


def test_cohort_full() -> None:
    """The evidence lists the runs that hold the quota, and for how long."""
    explanation = explain_run(held_by_search(in_cohort(waiting())))
    assert explanation.headline == (
        "waiting-2 waits for 16 chips of v5e-2x4: the queue tpu and its cohort org have 8 of 48 free, and 2 runs hold "
        "40 (big-3 of search for the longest time, 2 h)."
    )
    lines = [(item.kind, item.name, item.says) for item in explanation.evidence]
    held = "holds 24 chips of v5e-2x4 in the queue search for 2 h (namespace search, priority 0)."
    assert ("Workload", "big-3", held) in lines
    assert ("ClusterQueue", "search", "shares the cohort: has 24, and its runs hold 24.") in lines


def test_cohort_full_of_hidden_runs() -> None:
    cluster = held_by_search(in_cohort(waiting()))
    cluster.hidden = {("workloads", ""), ("localqueues", "")}
    assert explain_run(cluster).headline == (
        "waiting-2 waits for 16 chips of v5e-2x4: the queue tpu and its cohort org have 8 of 48 free, and runs of "
        "other teams hold 24 in the queue search, and runs of your team hold 16."
    )


def test_priority_too_low_to_preempt() -> None:
    cluster = waiting()
    cluster.find("ClusterQueue", "tpu")["spec"]["preemption"]["withinClusterQueue"] = "LowerPriority"
    explanation = explain_run(cluster)
    assert explanation.headline == (
        "waiting-2 waits for 16 chips of v5e-2x4: the queue tpu has 8 of 24 free, and first-2 has held 16 for 7 s; it "
        "cannot preempt that run, because its priority (0) is not higher than that run's (0)."
    )
    assert any("--set queue.priority=low" in text for text in explanation.suggestions)


def test_a_priority_that_no_class_is_above() -> None:
    cluster = waiting()
    cluster.find("ClusterQueue", "tpu")["spec"]["preemption"]["withinClusterQueue"] = "LowerPriority"
    cluster.find("Workload", "jobset-first-2-30688")["spec"]["priority"] = 20000
    explanation = explain_run(cluster)
    assert "because its priority (0) is not higher than that run's (20000)" in explanation.headline
    assert not any("queue.priority" in text for text in explanation.suggestions)


def test_a_strict_queue() -> None:
    """In a StrictFIFO queue, Kueue considers only the first Workload, and writes no status to the others."""
    cluster = recorded.at("three-then-one-and-two", 4.5)
    cluster.find("ClusterQueue", "tpu")["spec"]["queueingStrategy"] = "StrictFIFO"
    cluster.find("ClusterQueue", "tpu")["status"]["flavorsReservation"] = []
    workload = cluster.find("Workload", "jobset-slices-2-0b4d0")
    workload["status"]["conditions"] = []
    explanation = explain_run(cluster, "slices-2")
    assert explanation.headline == (
        "slices-2 is number 2 in the queue tpu, which admits runs strictly in order, and slices-1 is first and has not "
        "started yet."
    )


def test_a_workload_larger_than_one_queue_that_fits_another() -> None:
    cluster = recorded.at("larger-than-quota", 4)
    big, local = (copy.deepcopy(cluster.find(*key)) for key in (("ClusterQueue", "tpu"), ("LocalQueue", "multislice")))
    big["metadata"]["name"] = big["spec"]["cohort"] = "big"
    big["spec"]["resourceGroups"][0]["flavors"][0]["resources"][0]["nominalQuota"] = "64"
    local["metadata"]["name"], local["spec"]["clusterQueue"] = "large", "big"
    explanation = explain_run(cluster.add(big, local), "slices-4")
    assert "can never start in the queue tpu" in explanation.headline
    assert (
        "The queue large can have enough quota: launcher cancel slices-4 -n research, then submit it again with --set "
        "queue.name=large --continue." in explanation.suggestions
    )


def test_a_slice_larger_than_any_quota_of_its_shape() -> None:
    cluster = recorded.at("larger-than-quota", 4)
    run = cluster.find("JobSet", "slices-4")
    run["spec"]["replicatedJobs"][0]["replicas"] = 1
    spec = cluster.find("Workload", "jobset-slices-4-29d90")["spec"]["podSets"][0]["template"]["spec"]
    spec["nodeSelector"]["cloud.google.com/gke-tpu-topology"] = "4x8"
    flavor = copy.deepcopy(cluster.find("ResourceFlavor", "v5e-2x4"))
    flavor["metadata"]["name"] = "v5e-4x8"
    flavor["spec"]["nodeLabels"]["cloud.google.com/gke-tpu-topology"] = "4x8"
    group = cluster.find("ClusterQueue", "tpu")["spec"]["resourceGroups"][0]
    group["flavors"].append({"name": "v5e-4x8", "resources": [{"name": "google.com/tpu", "nominalQuota": "0"}]})
    explanation = explain_run(cluster.add(flavor), "slices-4")
    assert explanation.headline == (
        "slices-4 can never start in the queue tpu: it requests 32 chips of v5e-4x8, and the queue can have at most 0 "
        "chips."
    )
    assert explanation.suggestions[0].startswith(
        "A smaller slice fits (the queue has up to 24 chips of 2x4): launcher cancel"
    )


def test_a_taint_of_the_flavor() -> None:
    """pkg/scheduler/flavorassigner: "untolerated taint %s in flavor %s"."""
    cluster = set_quota_message(
        waiting(),
        "couldn't assign flavors to pod set slice: untolerated taint {team search NoSchedule <nil>} in flavor v5e-2x4",
    )
    taint = {"key": "team", "value": "search", "effect": "NoSchedule"}
    cluster.find("ResourceFlavor", "v5e-2x4")["spec"]["nodeTaints"] = [taint]
    explanation = explain_run(cluster)
    assert explanation.headline == (
        "waiting-2 can never start in the queue tpu: its pods do not tolerate the taint team=search:NoSchedule of the "
        "flavor v5e-2x4."
    )
    assert (
        explanation.suggestions[0]
        == "Tolerate the taint: worker.tolerations.NAME: {key: team, operator: Exists, effect: NoSchedule}."
    )


def test_no_place_in_the_topology() -> None:
    """pkg/cache/scheduler/tas_flavor_snapshot.go."""
    cluster = set_quota_message(
        waiting(),
        'couldn\'t assign flavors to pod set slice: topology "slices" allows to fit only 1 out of 2 slice(s). Total '
        'nodes: 6; excluded: resource "google.com/tpu": 4',
    )
    cluster.find("ClusterQueue", "tpu")["status"]["flavorsReservation"] = []
    explanation = explain_run(cluster)
    assert explanation.headline.startswith(
        "waiting-2 waits for nodes: quota is available, but Kueue finds no free nodes that are as close together as "
        "its slices require "
        '(topology "slices" allows to fit only 1 out of 2 slice(s).'
    )


def test_quota_that_has_just_become_free() -> None:
    cluster = waiting()
    cluster.find("ClusterQueue", "tpu")["status"]["flavorsReservation"] = []
    assert explain_run(cluster).headline == (
        "waiting-2 fits its queue multislice now, and Kueue is about to consider it again."
    )


def test_an_unknown_message_is_quoted() -> None:
    cluster = set_quota_message(waiting(), "Workload is blocked by something new", reason="SomethingNew")
    cluster.find("ClusterQueue", "tpu")["status"]["flavorsReservation"] = []
    assert explain_run(cluster).headline == (
        "waiting-2 waits in the queue multislice, and Kueue reports: Workload is blocked by something new."
    )


# --- closed queues ------------------------------------------------------------------------------------------------


def test_a_local_queue_that_is_stopped() -> None:
    """pkg/controller/core/workload_controller.go: "LocalQueue %s is inactive"."""
    cluster = set_quota_message(waiting(), "LocalQueue multislice is inactive", "Inadmissible")
    cluster.find("LocalQueue", "multislice")["spec"]["stopPolicy"] = "HoldAndDrain"
    assert explain_run(cluster).headline == (
        "waiting-2 waits because the queue multislice is stopped: it admits no runs, and stops admitted runs."
    )


def test_a_missing_cluster_queue() -> None:
    cluster = set_quota_message(waiting(), "ClusterQueue tpu doesn't exist", "Inadmissible").drop("ClusterQueue")
    assert explain_run(cluster).headline == (
        'waiting-2 waits because its queue multislice belongs to the ClusterQueue "tpu", which does not exist.'
    )


@pytest.mark.parametrize(
    ("reason", "message", "headline"),
    [
        (
            "FlavorNotFound",
            "Can't admit new workloads: references missing ResourceFlavor(s): v5e-4x4.",
            "waiting-2 waits because its queue tpu names the flavor v5e-4x4, which does not exist.",
        ),
        (
            "AdmissionCheckNotFound",
            "Can't admit new workloads: references missing AdmissionCheck(s): budget.",
            "waiting-2 waits because its queue tpu requires the admission check budget, which no controller serves.",
        ),
        (
            "TopologyNotFound",
            'Can\'t admit new workloads: there is no Topology "slices" for TAS flavor "v5e-2x4".',
            "waiting-2 waits because a flavor of its queue tpu names a Topology that does not exist.",
        ),
        (
            "Terminating",
            "Can't admit new workloads; clusterQueue is terminating",
            "waiting-2 waits because its queue tpu admits no runs: Can't admit new workloads; clusterQueue is "
            "terminating.",
        ),
    ],
)
def test_an_inactive_cluster_queue(reason: str, message: str, headline: str) -> None:
    """pkg/cache/scheduler/clusterqueue.go."""
    cluster = set_quota_message(waiting(), "ClusterQueue tpu is inactive", "Inadmissible")
    set_condition(cluster.find("ClusterQueue", "tpu"), "Active", "False", reason, message, stamp(cluster.now))
    assert explain_run(cluster).headline == headline


def test_a_namespace_that_the_queue_is_not_for() -> None:
    """pkg/workload/resources.go."""
    cluster = set_quota_message(waiting(), "workload namespace doesn't match ClusterQueue selector", "Inadmissible")
    assert (
        explain_run(cluster).headline == "waiting-2 waits because the queue tpu does "
        "not accept runs of the namespace research."
    )


def test_requests_that_a_limit_range_forbids() -> None:
    """pkg/workload/resources.go."""
    cluster = set_quota_message(waiting(), "resources didn't satisfy LimitRange constraints: cpu", "Inadmissible")
    assert explain_run(cluster).headline.startswith(
        "waiting-2 can never start with these requests: resources didn't satisfy LimitRange"
    )


def test_another_queue_that_is_open() -> None:
    cluster = recorded.at("queue-held", 4)
    spare, local = (
        copy.deepcopy(cluster.find(*key)) for key in (("ClusterQueue", "tpu"), ("LocalQueue", "multislice"))
    )
    spare["metadata"]["name"] = "spare"
    set_condition(spare, "Active", "True", "Ready", "Can admit new workloads", stamp(cluster.now))
    local["metadata"]["name"], local["spec"]["clusterQueue"] = "spare", "spare"
    explanation = explain_run(cluster.add(spare, local), "held")
    assert explanation.suggestions[1].startswith("The queue spare is active and has quota for it: launcher cancel held")


# --- no Workload, no Kueue ----------------------------------------------------------------------------------------


def test_no_kueue() -> None:
    cluster = waiting().drop("Workload")
    cluster.missing = {"Workload", "LocalQueue", "ClusterQueue"}
    assert explain_run(cluster).headline == (
        "waiting-2 waits for the queue multislice, but Kueue is not installed in this cluster."
    )


def test_no_workload_yet() -> None:
    explanation = explain_run(waiting().drop("Workload"))
    assert explanation.headline == "waiting-2 was created just now; Kueue is about to put it into the queue multislice."


def test_no_workload_for_long() -> None:
    explanation = explain_run(waiting().drop("Workload"), later=300)
    assert (
        explanation.headline == "waiting-2 is not in a queue yet: Kueue has not created a Workload for it in 5 min 3 s."
    )
    assert any("integrations.frameworks" in text for text in explanation.suggestions)


def test_no_queue() -> None:
    cluster = waiting().drop("Workload")
    cluster.find("JobSet", "waiting-2")["metadata"]["labels"] = {}
    explanation = explain_run(cluster)
    assert explanation.headline == "waiting-2 is suspended and has no queue, so nothing starts it."
    assert "--set queue.name=multislice" in explanation.suggestions[0]


def test_kueue_does_not_consider_the_run() -> None:
    cluster = waiting()
    cluster.find("Workload", WAITING)["status"] = {}
    cluster.find("ClusterQueue", "tpu")["status"]["flavorsReservation"] = []
    assert explain_run(cluster).headline == "waiting-2 is in the queue multislice; Kueue is about to consider it."
    explanation = explain_run(cluster, later=300)
    assert explanation.headline == (
        "waiting-2 is in the queue multislice, but Kueue has not considered it in 5 min 3 s."
    )
    assert "kubectl -n kueue-system get pods" in explanation.suggestions[0]


def test_a_mistyped_queue_with_several_others() -> None:
    cluster = recorded.at("no-such-queue", 40)
    other = copy.deepcopy(cluster.find("LocalQueue", "multislice"))
    other["metadata"]["name"] = "nosuch2"
    explanation = explain_run(cluster.add(other), "lost")
    assert "--set queue.name=nosuch2" in explanation.suggestions[0]
    assert "(the queues of research are: multislice and nosuch2)" in explanation.suggestions[0]


def test_a_namespace_without_queues() -> None:
    explanation = explain_run(recorded.at("no-such-queue", 40).drop("LocalQueue"), "lost")
    assert explanation.suggestions[0].startswith(
        "Ask the platform team for a LocalQueue in research: teams.NAME.clusterQueue"
    )


# --- evicted, deactivated -----------------------------------------------------------------------------------------


def test_pods_that_were_not_ready_in_time() -> None:
    """pkg/controller/core/workload_controller.go: the condition, and status.requeueState with its next attempt."""
    cluster = waiting()
    message = f"Exceeded the PodsReady timeout research/{WAITING}"
    workload = evict(cluster, "PodsReadyTimeout", message)
    set_condition(workload, "Requeued", "False", "PodsReadyTimeout", message, stamp(cluster.now))
    workload["status"]["requeueState"] = {"count": 2, "requeueAt": stamp(cluster.now + timedelta(seconds=120))}
    explanation = explain_run(cluster)
    assert explanation.headline == (
        "waiting-2 was stopped for the second time 1 min ago because not all its pods were ready within Kueue's time "
        "limit (30 min unless the platform team set another), and returns to the queue in 2 min."
    )
    assert explanation.position is None
    assert any("waitForPodsReady.timeout" in text for text in explanation.suggestions)


def test_pods_that_were_not_ready_in_time_and_back_in_the_queue() -> None:
    cluster = waiting()
    evict(cluster, "PodsReadyTimeout", f"Exceeded the PodsReady timeout research/{WAITING}")["status"][
        "requeueState"
    ] = {"count": 1}
    explanation = explain_run(cluster)
    assert explanation.headline.endswith("and is in its queue again.")
    assert explanation.position == 1
    assert "8 more needed" in explanation.evidence[1].says


def test_deactivated_after_too_many_retries() -> None:
    """pkg/controller/core/workload_controller.go: deactivated, with the cause in the reason."""
    cluster = waiting()
    workload = evict(
        cluster,
        "DeactivatedDueToRequeuingLimitExceeded",
        "The workload is deactivated due to exceeding the maximum number of re-queuing retries",
    )
    workload["spec"]["active"] = False
    explanation = explain_run(cluster)
    assert (explanation.state, explanation.headline) == (
        "failed",
        "Kueue has deactivated waiting-2: not all its pods were ready in time, and Kueue has no retries left.",
    )


def test_deactivated_by_a_user() -> None:
    cluster = waiting()
    evict(cluster, "Deactivated", "The workload is deactivated")["spec"]["active"] = False
    explanation = explain_run(cluster)
    assert (explanation.state, explanation.headline) == (
        "cancelled",
        "waiting-2 was stopped by a user who set its Workload inactive, and stays stopped.",
    )


def test_cancelled() -> None:
    cluster = waiting()
    evict(cluster, "Deactivated", "The workload is deactivated")["spec"]["active"] = False
    at = stamp(cluster.now - timedelta(minutes=3))
    cluster.find("JobSet", "waiting-2")["metadata"].setdefault("annotations", {})["slipway.dev/cancelled"] = at
    explanation = explain_run(cluster)
    assert (explanation.state, explanation.headline) == ("cancelled", "waiting-2 was cancelled 3 min ago.")


def test_being_deleted() -> None:
    cluster = waiting()
    cluster.find("JobSet", "waiting-2")["metadata"].update(
        deletionTimestamp=stamp(cluster.now - timedelta(seconds=90)), finalizers=["foregroundDeletion"]
    )
    assert explain_run(cluster).headline == (
        "waiting-2 is being deleted (for 1 min 30 s), and waits for the finalizer foregroundDeletion (removed by "
        "Kubernetes when the pods are gone)."
    )


def test_stopped_by_kueue_for_another_reason() -> None:
    """A node has failed (apis/kueue/v1beta2, NodeFailures)."""
    cluster = waiting()
    evict(cluster, "NodeFailures", "Workload was evicted as there was no replacement for a failed node: nodepool1-0")
    assert explain_run(cluster).headline == (
        "waiting-2 was evicted by Kueue 1 min ago: Workload was evicted as there was no replacement for a failed node: "
        "nodepool1-0."
    )


# --- admission checks ---------------------------------------------------------------------------------------------


def checked(state: str, message: str, controller: str) -> Recorded:
    cluster = recorded.at("admission-check-pending", 4)
    check = cluster.find("Workload", "jobset-checked-580d2")["status"]["admissionChecks"][0]
    check.update(state=state, message=message)
    return cluster.add(
        {"kind": "AdmissionCheck", "metadata": {"name": "budget"}, "spec": {"controllerName": controller}}
    )


def test_flex_start_waits_for_machines() -> None:
    """pkg/controller/admissionchecks/provisioning: the check has the message of the ProvisioningRequest."""
    explanation = explain_run(
        checked("Pending", "Waiting for resources. Currently there are not enough resources available", PROVISIONING),
        "checked",
    )
    assert explanation.headline == (
        "checked has its quota and has waited 3 s for the cloud to provide its machines: Waiting for resources. "
        "Currently there are not enough resources available."
    )


def test_a_check_of_another_controller() -> None:
    explanation = explain_run(checked("Pending", "", "example.com/budget"), "checked")
    assert explanation.headline == (
        "checked has its quota and has waited 3 s for the admission check budget (example.com/budget)."
    )


def test_a_rejected_check() -> None:
    """pkg/controller/core/workload_controller.go: rejected checks make the Workload inactive."""
    cluster = checked("Rejected", "no budget left", "example.com/budget")
    workload = cluster.find("Workload", "jobset-checked-580d2")
    workload["spec"]["active"] = False
    now = stamp(cluster.now)
    message = "The workload is deactivated due to Admission check(s): budget, were rejected"
    set_condition(workload, "Evicted", "True", "DeactivatedDueToAdmissionCheck", message, now)
    set_condition(workload, "QuotaReserved", "False", "Pending", message, now)
    explanation = explain_run(cluster, "checked")
    assert (explanation.state, explanation.headline) == (
        "failed",
        "Kueue has deactivated checked: budget: no budget left.",
    )


PROVISIONING = "kueue.x-k8s.io/provisioning-request"


def test_admitted_and_not_resumed() -> None:
    cluster = recorded.at("admission-check-pending", 4)
    workload = cluster.find("Workload", "jobset-checked-580d2")
    workload["status"]["admissionChecks"][0]["state"] = "Ready"
    set_condition(workload, "Admitted", "True", "Admitted", "The workload is admitted", stamp(cluster.now))
    explanation = explain_run(cluster, "checked", later=120)
    assert explanation.headline == (
        "checked is admitted, but Kueue has not resumed it: it is still suspended after 2 min."
    )


# --- without a Workload -------------------------------------------------------------------------------------------


def without_workload(**spec: Any) -> Recorded:
    """Return waiting-2 without a Workload."""
    cluster = waiting().drop("Workload")
    cluster.find("JobSet", "waiting-2")["spec"].update(spec)
    return cluster


def test_a_run_that_kueue_does_not_manage() -> None:
    cluster = without_workload(suspend=False)
    cluster.find("JobSet", "waiting-2").pop("status", None)
    explanation = explain_run(cluster)
    assert explanation.state == "queued"
    assert explanation.headline == (
        "waiting-2 requests the queue multislice, but Kueue has neither suspended it nor created a Workload for it: "
        "Kueue does not manage JobSets in this cluster, or its webhook did not receive this one."
    )
    cluster.missing.add("Workload")
    assert explain_run(cluster).headline == (
        "waiting-2 waits for the queue multislice, but Kueue is not installed in this cluster."
    )


def test_a_cancelled_run_without_a_workload() -> None:
    cluster = without_workload(suspend=True)
    run = cluster.find("JobSet", "waiting-2")
    run["metadata"].setdefault("annotations", {})["slipway.dev/cancelled"] = stamp(cluster.now - timedelta(seconds=60))
    explanation = explain_run(cluster)
    assert explanation.state == "queued"
    assert explanation.headline == (
        "waiting-2 was cancelled 1 min ago and holds nothing, but it can still start: Kueue has not created its "
        "Workload yet, which the cancellation has to deactivate."
    )
    assert explanation.suggestions[0] == "launcher delete waiting-2 -n research removes the run."
    cluster.missing.add("Workload")  # without Kueue, nothing will start it
    assert explain_run(cluster).state == "cancelled"


def test_a_cancelled_run_with_an_active_workload() -> None:
    cluster = waiting()
    run = cluster.find("JobSet", "waiting-2")
    run["metadata"].setdefault("annotations", {})["slipway.dev/cancelled"] = stamp(cluster.now - timedelta(seconds=60))
    explanation = explain_run(cluster)
    assert (explanation.state, explanation.suggestions) == (
        "queued",
        ("launcher cancel waiting-2 -n research deactivates the Workload.",),
    )


def test_a_run_that_has_ended_is_explained_without_hidden_objects() -> None:
    cluster = waiting()
    run = cluster.find("JobSet", "waiting-2")
    run["metadata"].setdefault("annotations", {})["slipway.dev/cancelled"] = stamp(cluster.now - timedelta(seconds=60))
    cluster.find("Workload", WAITING)["spec"]["active"] = False
    cluster.hidden |= {("workloads", ""), ("pods", "research")}
    situation = Situation(RunObject.parse(run), cluster, cluster.now)
    assert situation.others_hidden
    explanation = explain(situation)
    assert (explanation.state, explanation.evidence) == ("cancelled", ())


# --- reasons of KEP-10852 -----------------------------------------------------------------------------------------


def hide_queues(cluster: Recorded) -> None:
    """Hide the objects of the platform team, as RBAC does for a member of a team."""
    kinds = ("clusterqueues", "cohorts", "resourceflavors", "workloads", "localqueues", "topologies")
    cluster.hidden |= {(plural, "") for plural in kinds}


@pytest.mark.parametrize(
    ("reason", "starts"),
    [
        ("WaitingForQuota", "waiting-2 waits for quota that other runs use."),
        ("ExceedsMaxQuota", "waiting-2 can never start: it requests more than"),
        ("NoMatchingFlavor", "waiting-2 can never start: its queue has no flavor"),
        ("TopologyPlacementFailed", "waiting-2 waits for nodes that are close enough"),
        ("WaitingForPreemptedWorkloads", "waiting-2 is about to start"),
        ("WaitingForPodsReady", "waiting-2 waits until the pods of the runs"),
        ("Misconfigured", "waiting-2 cannot start because its queue is not configured correctly."),
        ("Suspended", "waiting-2 waits because its queue is stopped."),
        ("AdmissionGated", "waiting-2 waits for another controller"),
    ],
)
def test_a_reason_of_kueue_is_explained_if_rbac_hides_the_queues(reason: str, starts: str) -> None:
    """pkg/scheduler and pkg/controller/core/workload_controller.go, from Kueue 0.19 without a feature gate."""
    cluster = set_quota_message(waiting(), "a text that is not known", reason)
    hide_queues(cluster)
    found = explain_run(cluster)
    assert found.headline.startswith(starts)
    assert found.evidence[0].says == "a text that is not known."
    assert found.suggestions


def test_a_run_that_kueue_has_not_evaluated() -> None:
    cluster = set_quota_message(waiting(), "The workload is pending evaluation", "PendingEvaluation")
    hide_queues(cluster)
    assert explain_run(cluster).headline == ("waiting-2 is in the queue multislice; Kueue is about to consider it.")
    late = explain_run(cluster, later=3600)
    assert "Kueue has not considered it in" in late.headline
    assert late.evidence[0].says == "The workload is pending evaluation."
