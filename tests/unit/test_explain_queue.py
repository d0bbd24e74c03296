"""`explain` of runs that wait for Kueue, in situations that were not recorded.

Each starts from a recording, and what differs is written as upstream writes it: texts and reasons are Kueue 0.19.2's,
read in its source (the file is named beside each).
"""

from __future__ import annotations

import copy
from datetime import timedelta
from typing import Any

import pytest

from launcher.diagnose.explain.finding import Explanation
from launcher.diagnose.explain.situation import Situation
from launcher.diagnose.explain.table import explain
from tests.unit import recorded
from tests.unit.recorded import Recorded, stamp

Object = dict[str, Any]
WAITING = "jobset-waiting-2-ba966"


def waiting() -> Recorded:
    """waiting-2 asks for 16 of 24 chips, of which first-2 holds 16; both have priority 0."""
    return recorded.at("quota-in-use-by-others", 8)


def explained(cluster: Recorded, name: str = "waiting-2", kind: str = "JobSet", *, later: float = 0) -> Explanation:
    return explain(Situation(cluster.find(kind, name), cluster, cluster.now + timedelta(seconds=later)))


def set_condition(obj: Object, kind: str, status: str, reason: str, message: str, at: str) -> None:
    conditions = obj["status"].setdefault("conditions", [])
    conditions[:] = [item for item in conditions if item["type"] != kind]
    conditions.append({"type": kind, "status": status, "reason": reason, "message": message, "lastTransitionTime": at})


def says(cluster: Recorded, message: str, reason: str = "Pending", workload: str = WAITING) -> Recorded:
    """Kueue has this to say of the Workload's quota."""
    now = stamp(cluster.now)
    set_condition(cluster.find("Workload", workload), "QuotaReserved", "False", reason, message, now)
    return cluster


def evict(cluster: Recorded, reason: str, message: str, ago: float = 60) -> Object:
    workload = cluster.find("Workload", WAITING)
    set_condition(workload, "Evicted", "True", reason, message, stamp(cluster.now - timedelta(seconds=ago)))
    return workload


# --- quota --------------------------------------------------------------------------------------------------------


def in_cohort(cluster: Recorded, **limits: str) -> Recorded:
    """tpu shares the cohort org with search, which has 24 chips of its own."""
    tpu = cluster.find("ClusterQueue", "tpu")
    tpu["spec"]["cohortName"] = "org"
    tpu["spec"]["resourceGroups"][0]["flavors"][0]["resources"][0].update(limits)
    search = copy.deepcopy(tpu)
    search["metadata"]["name"] = "search"
    search["spec"]["resourceGroups"][0]["flavors"][0]["resources"][0] = {"name": "google.com/tpu", "nominalQuota": "24"}
    search["status"]["flavorsReservation"] = []
    return cluster.add(search)


def test_borrowing_limit() -> None:
    told = explained(in_cohort(waiting(), borrowingLimit="0"))
    assert told.headline == (
        "waiting-2 waits for 16 chips of v5e-2x4: its queue tpu has reached its borrowing limit (0), although the "
        "cohort org has enough free."
    )
    assert any("clusterQueues.tpu.quota.v5e-2x4.borrowing" in text for text in told.suggestions)


def held_by_search(cluster: Recorded) -> Recorded:
    """A run of the namespace search holds all that is search's."""
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
    """Who holds it, since when."""
    told = explained(held_by_search(in_cohort(waiting())))
    assert told.headline == (
        "waiting-2 waits for 16 chips of v5e-2x4: the queue tpu and its cohort org have 8 of 48 free, and 2 runs hold "
        "40 (big-3 of search for the longest time, 2 h)."
    )
    lines = [(item.kind, item.name, item.says) for item in told.evidence]
    held = "holds 24 chips of v5e-2x4 in the queue search for 2 h (namespace search, priority 0)."
    assert ("Workload", "big-3", held) in lines
    assert ("ClusterQueue", "search", "shares the cohort: has 24, and its runs hold 24.") in lines


def test_cohort_full_of_runs_that_cannot_be_seen() -> None:
    cluster = held_by_search(in_cohort(waiting()))
    cluster.hidden = {("workloads", ""), ("localqueues", "")}
    assert explained(cluster).headline == (
        "waiting-2 waits for 16 chips of v5e-2x4: the queue tpu and its cohort org have 8 of 48 free, and runs of "
        "other teams hold 24 in the queue search, and runs of your team hold 16."
    )


def test_priority_too_low_to_preempt() -> None:
    cluster = waiting()
    cluster.find("ClusterQueue", "tpu")["spec"]["preemption"]["withinClusterQueue"] = "LowerPriority"
    told = explained(cluster)
    assert told.headline == (
        "waiting-2 waits for 16 chips of v5e-2x4: the queue tpu has 8 of 24 free, and first-2 has held 16 for 7 s; it "
        "cannot preempt that run, because its priority (0) is not higher than that run's (0)."
    )
    assert any("--set queue.priority=low" in text for text in told.suggestions)


def test_a_priority_that_no_class_is_above() -> None:
    cluster = waiting()
    cluster.find("ClusterQueue", "tpu")["spec"]["preemption"]["withinClusterQueue"] = "LowerPriority"
    cluster.find("Workload", "jobset-first-2-30688")["spec"]["priority"] = 20000
    told = explained(cluster)
    assert "because its priority (0) is not higher than that run's (20000)" in told.headline
    assert not any("queue.priority" in text for text in told.suggestions)


def test_a_strict_queue() -> None:
    """In a StrictFIFO queue Kueue looks at the head alone, and writes nothing to those behind it."""
    cluster = recorded.at("three-then-one-and-two", 4.5)
    cluster.find("ClusterQueue", "tpu")["spec"]["queueingStrategy"] = "StrictFIFO"
    cluster.find("ClusterQueue", "tpu")["status"]["flavorsReservation"] = []
    workload = cluster.find("Workload", "jobset-slices-2-0b4d0")
    workload["status"]["conditions"] = []
    told = explained(cluster, "slices-2")
    assert told.headline == (
        "slices-2 is number 2 in the queue tpu, which admits runs strictly in order, and slices-1 is first and has not "
        "started yet."
    )


def test_a_workload_larger_than_one_queue_that_fits_another() -> None:
    cluster = recorded.at("larger-than-quota", 4)
    big, local = (copy.deepcopy(cluster.find(*key)) for key in (("ClusterQueue", "tpu"), ("LocalQueue", "multislice")))
    big["metadata"]["name"] = big["spec"]["cohort"] = "big"
    big["spec"]["resourceGroups"][0]["flavors"][0]["resources"][0]["nominalQuota"] = "64"
    local["metadata"]["name"], local["spec"]["clusterQueue"] = "large", "big"
    told = explained(cluster.add(big, local), "slices-4")
    assert "can never start in the queue tpu" in told.headline
    assert (
        "The queue large can have enough quota: launcher cancel slices-4 -n research, then submit it again with --set "
        "queue.name=large --continue." in told.suggestions
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
    told = explained(cluster.add(flavor), "slices-4")
    assert told.headline == (
        "slices-4 can never start in the queue tpu: it requests 32 chips of v5e-4x8, and the queue can have at most 0 "
        "chips."
    )
    assert told.suggestions[0].startswith("A smaller slice fits (the queue has up to 24 chips of 2x4): launcher cancel")


def test_a_taint_of_the_flavor() -> None:
    """pkg/scheduler/flavorassigner: "untolerated taint %s in flavor %s"."""
    cluster = says(
        waiting(),
        "couldn't assign flavors to pod set slice: untolerated taint {team search NoSchedule <nil>} in flavor v5e-2x4",
    )
    taint = {"key": "team", "value": "search", "effect": "NoSchedule"}
    cluster.find("ResourceFlavor", "v5e-2x4")["spec"]["nodeTaints"] = [taint]
    told = explained(cluster)
    assert told.headline == (
        "waiting-2 can never start in the queue tpu: its pods do not tolerate the taint team=search:NoSchedule of the "
        "flavor v5e-2x4."
    )
    assert (
        told.suggestions[0]
        == "Tolerate the taint: worker.tolerations.NAME: {key: team, operator: Exists, effect: NoSchedule}."
    )


def test_no_place_in_the_topology() -> None:
    """pkg/cache/scheduler/tas_flavor_snapshot.go."""
    cluster = says(
        waiting(),
        'couldn\'t assign flavors to pod set slice: topology "slices" allows to fit only 1 out of 2 slice(s). Total '
        'nodes: 6; excluded: resource "google.com/tpu": 4',
    )
    cluster.find("ClusterQueue", "tpu")["status"]["flavorsReservation"] = []
    told = explained(cluster)
    assert told.headline.startswith(
        "waiting-2 waits for nodes: quota is available, but Kueue finds no free nodes that are as close together as "
        "its slices require "
        '(topology "slices" allows to fit only 1 out of 2 slice(s).'
    )


def test_quota_that_has_just_become_free() -> None:
    cluster = waiting()
    cluster.find("ClusterQueue", "tpu")["status"]["flavorsReservation"] = []
    assert explained(cluster).headline == (
        "waiting-2 fits its queue multislice now, and Kueue is about to consider it again."
    )


def test_what_no_rule_knows_is_quoted() -> None:
    cluster = says(waiting(), "Workload is blocked by something new", reason="SomethingNew")
    cluster.find("ClusterQueue", "tpu")["status"]["flavorsReservation"] = []
    assert explained(cluster).headline == (
        "waiting-2 waits in the queue multislice, and Kueue reports: Workload is blocked by something new."
    )


# --- closed queues ------------------------------------------------------------------------------------------------


def test_a_local_queue_that_is_stopped() -> None:
    """pkg/controller/core/workload_controller.go: "LocalQueue %s is inactive"."""
    cluster = says(waiting(), "LocalQueue multislice is inactive", "Inadmissible")
    cluster.find("LocalQueue", "multislice")["spec"]["stopPolicy"] = "HoldAndDrain"
    assert explained(cluster).headline == (
        "waiting-2 waits because the queue multislice is stopped: it admits no runs, and stops admitted runs."
    )


def test_a_cluster_queue_that_is_not_there() -> None:
    cluster = says(waiting(), "ClusterQueue tpu doesn't exist", "Inadmissible").drop("ClusterQueue")
    assert explained(cluster).headline == (
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
    cluster = says(waiting(), "ClusterQueue tpu is inactive", "Inadmissible")
    set_condition(cluster.find("ClusterQueue", "tpu"), "Active", "False", reason, message, stamp(cluster.now))
    assert explained(cluster).headline == headline


def test_a_namespace_that_the_queue_is_not_for() -> None:
    """pkg/workload/resources.go."""
    cluster = says(waiting(), "workload namespace doesn't match ClusterQueue selector", "Inadmissible")
    assert (
        explained(cluster).headline == "waiting-2 waits because the queue tpu does "
        "not accept runs of the namespace research."
    )


def test_requests_that_a_limit_range_forbids() -> None:
    """pkg/workload/resources.go."""
    cluster = says(waiting(), "resources didn't satisfy LimitRange constraints: cpu", "Inadmissible")
    assert explained(cluster).headline.startswith(
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
    told = explained(cluster.add(spare, local), "held")
    assert told.suggestions[1].startswith("The queue spare is active and has quota for it: launcher cancel held")


# --- no Workload, no Kueue ----------------------------------------------------------------------------------------


def test_no_kueue() -> None:
    cluster = waiting().drop("Workload")
    cluster.missing = {"Workload", "LocalQueue", "ClusterQueue"}
    assert explained(cluster).headline == (
        "waiting-2 waits for the queue multislice, but Kueue is not installed in this cluster."
    )


def test_no_workload_yet() -> None:
    told = explained(waiting().drop("Workload"))
    assert told.headline == "waiting-2 was created just now; Kueue is about to put it into the queue multislice."


def test_no_workload_for_long() -> None:
    told = explained(waiting().drop("Workload"), later=300)
    assert told.headline == "waiting-2 is not in a queue yet: Kueue has not created a Workload for it in 5 min 3 s."
    assert any("integrations.frameworks" in text for text in told.suggestions)


def test_no_queue() -> None:
    cluster = waiting().drop("Workload")
    cluster.find("JobSet", "waiting-2")["metadata"]["labels"] = {}
    told = explained(cluster)
    assert told.headline == "waiting-2 is suspended and has no queue, so nothing starts it."
    assert "--set queue.name=multislice" in told.suggestions[0]


def test_kueue_does_not_look() -> None:
    cluster = waiting()
    cluster.find("Workload", WAITING)["status"] = {}
    cluster.find("ClusterQueue", "tpu")["status"]["flavorsReservation"] = []
    assert explained(cluster).headline == "waiting-2 is in the queue multislice; Kueue is about to consider it."
    told = explained(cluster, later=300)
    assert told.headline == ("waiting-2 is in the queue multislice, but Kueue has not considered it in 5 min 3 s.")
    assert "kubectl -n kueue-system get pods" in told.suggestions[0]


def test_a_misspelt_queue_of_several() -> None:
    cluster = recorded.at("no-such-queue", 40)
    other = copy.deepcopy(cluster.find("LocalQueue", "multislice"))
    other["metadata"]["name"] = "nosuch2"
    told = explained(cluster.add(other), "lost")
    assert "--set queue.name=nosuch2" in told.suggestions[0]
    assert "(the queues of research are: multislice and nosuch2)" in told.suggestions[0]


def test_a_namespace_without_queues() -> None:
    told = explained(recorded.at("no-such-queue", 40).drop("LocalQueue"), "lost")
    assert told.suggestions[0].startswith("Ask the platform team for a LocalQueue in research: teams.NAME.clusterQueue")


# --- evicted, given up --------------------------------------------------------------------------------------------


def test_pods_that_were_not_ready_in_time() -> None:
    """pkg/controller/core/workload_controller.go: the condition, and status.requeueState with its next attempt."""
    cluster = waiting()
    message = f"Exceeded the PodsReady timeout research/{WAITING}"
    workload = evict(cluster, "PodsReadyTimeout", message)
    set_condition(workload, "Requeued", "False", "PodsReadyTimeout", message, stamp(cluster.now))
    workload["status"]["requeueState"] = {"count": 2, "requeueAt": stamp(cluster.now + timedelta(seconds=120))}
    told = explained(cluster)
    assert told.headline == (
        "waiting-2 was stopped for the second time 1 min ago because not all its pods were ready within Kueue's time "
        "limit (30 min unless the platform team set another), and returns to the queue in 2 min."
    )
    assert told.position is None
    assert any("waitForPodsReady.timeout" in text for text in told.suggestions)


def test_pods_that_were_not_ready_in_time_and_back_in_the_queue() -> None:
    cluster = waiting()
    evict(cluster, "PodsReadyTimeout", f"Exceeded the PodsReady timeout research/{WAITING}")["status"][
        "requeueState"
    ] = {"count": 1}
    told = explained(cluster)
    assert told.headline.endswith("and is in its queue again.")
    assert told.position == 1
    assert "8 more needed" in told.evidence[1].says


def test_given_up_after_too_many_tries() -> None:
    """pkg/controller/core/workload_controller.go: deactivated, with the cause in the reason."""
    cluster = waiting()
    workload = evict(
        cluster,
        "DeactivatedDueToRequeuingLimitExceeded",
        "The workload is deactivated due to exceeding the maximum number of re-queuing retries",
    )
    workload["spec"]["active"] = False
    told = explained(cluster)
    assert (told.state, told.headline) == (
        "failed",
        "Kueue has deactivated waiting-2: not all its pods were ready in time, and Kueue has no retries left.",
    )


def test_made_inactive_by_somebody() -> None:
    cluster = waiting()
    evict(cluster, "Deactivated", "The workload is deactivated")["spec"]["active"] = False
    told = explained(cluster)
    assert (told.state, told.headline) == (
        "cancelled",
        "waiting-2 was stopped by a user who set its Workload inactive, and stays stopped.",
    )


def test_cancelled() -> None:
    cluster = waiting()
    evict(cluster, "Deactivated", "The workload is deactivated")["spec"]["active"] = False
    at = stamp(cluster.now - timedelta(minutes=3))
    cluster.find("JobSet", "waiting-2")["metadata"].setdefault("annotations", {})["slipway.dev/cancelled"] = at
    told = explained(cluster)
    assert (told.state, told.headline) == ("cancelled", "waiting-2 was cancelled 3 min ago.")


def test_being_deleted() -> None:
    cluster = waiting()
    cluster.find("JobSet", "waiting-2")["metadata"].update(
        deletionTimestamp=stamp(cluster.now - timedelta(seconds=90)), finalizers=["foregroundDeletion"]
    )
    assert explained(cluster).headline == (
        "waiting-2 is being deleted (for 1 min 30 s), and waits for the finalizers foregroundDeletion (removed by "
        "Kubernetes when the pods are gone)."
    )


def test_stopped_by_kueue_for_another_reason() -> None:
    """A node that failed: apis/kueue/v1beta2, NodeFailures."""
    cluster = waiting()
    evict(cluster, "NodeFailures", "Workload was evicted as there was no replacement for a failed node: nodepool1-0")
    assert explained(cluster).headline == (
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
    """pkg/controller/admissionchecks/provisioning: the ProvisioningRequest's own message is passed on."""
    told = explained(
        checked("Pending", "Waiting for resources. Currently there are not enough resources available", PROVISIONING),
        "checked",
    )
    assert told.headline == (
        "checked has its quota and has waited 3 s for the cloud to provide its machines: Waiting for resources. "
        "Currently there are not enough resources available."
    )


def test_a_check_of_another_controller() -> None:
    told = explained(checked("Pending", "", "example.com/budget"), "checked")
    assert told.headline == (
        "checked has its quota and has waited 3 s for the admission check budget (example.com/budget)."
    )


def test_a_check_that_said_no() -> None:
    """pkg/controller/core/workload_controller.go: rejected checks make the Workload inactive."""
    cluster = checked("Rejected", "no budget left", "example.com/budget")
    workload = cluster.find("Workload", "jobset-checked-580d2")
    workload["spec"]["active"] = False
    now = stamp(cluster.now)
    message = "The workload is deactivated due to Admission check(s): budget, were rejected"
    set_condition(workload, "Evicted", "True", "DeactivatedDueToAdmissionCheck", message, now)
    set_condition(workload, "QuotaReserved", "False", "Pending", message, now)
    told = explained(cluster, "checked")
    assert (told.state, told.headline) == ("failed", "Kueue has deactivated checked: budget: no budget left.")


PROVISIONING = "kueue.x-k8s.io/provisioning-request"


def test_admitted_and_not_let_go() -> None:
    cluster = recorded.at("admission-check-pending", 4)
    workload = cluster.find("Workload", "jobset-checked-580d2")
    workload["status"]["admissionChecks"][0]["state"] = "Ready"
    set_condition(workload, "Admitted", "True", "Admitted", "The workload is admitted", stamp(cluster.now))
    told = explained(cluster, "checked", later=120)
    assert told.headline == ("checked is admitted, but Kueue has not resumed it: it is still suspended after 2 min.")


# --- without a Workload -------------------------------------------------------------------------------------------


def unseen_by_kueue(**spec: Any) -> Recorded:
    """waiting-2, of which Kueue has made no Workload."""
    cluster = waiting().drop("Workload")
    cluster.find("JobSet", "waiting-2")["spec"].update(spec)
    return cluster


def test_a_run_that_kueue_does_not_manage() -> None:
    cluster = unseen_by_kueue(suspend=False)
    cluster.find("JobSet", "waiting-2").pop("status", None)
    told = explained(cluster)
    assert told.state == "queued"
    assert told.headline == (
        "waiting-2 requests the queue multislice, but Kueue has neither suspended it nor created a Workload for it: "
        "Kueue does not manage JobSets in this cluster, or its webhook did not receive this one."
    )
    cluster.missing.add("Workload")
    assert explained(cluster).headline == (
        "waiting-2 waits for the queue multislice, but Kueue is not installed in this cluster."
    )


def test_a_cancelled_run_that_kueue_has_not_seen() -> None:
    cluster = unseen_by_kueue(suspend=True)
    run = cluster.find("JobSet", "waiting-2")
    run["metadata"].setdefault("annotations", {})["slipway.dev/cancelled"] = stamp(cluster.now - timedelta(seconds=60))
    told = explained(cluster)
    assert told.state == "queued"
    assert told.headline == (
        "waiting-2 was cancelled 1 min ago and holds nothing, but it can still start: Kueue has not created its "
        "Workload yet, which the cancellation has to deactivate."
    )
    assert told.suggestions[0] == "launcher delete waiting-2 -n research removes the run."
    cluster.missing.add("Workload")  # then nobody will start it
    assert explained(cluster).state == "cancelled"


def test_a_cancelled_run_that_kueue_was_not_told_of() -> None:
    cluster = waiting()
    run = cluster.find("JobSet", "waiting-2")
    run["metadata"].setdefault("annotations", {})["slipway.dev/cancelled"] = stamp(cluster.now - timedelta(seconds=60))
    told = explained(cluster)
    assert (told.state, told.suggestions) == (
        "queued",
        ("launcher cancel waiting-2 -n research deactivates the Workload.",),
    )


def test_a_run_that_has_ended_is_told_without_what_is_hidden() -> None:
    cluster = waiting()
    run = cluster.find("JobSet", "waiting-2")
    run["metadata"].setdefault("annotations", {})["slipway.dev/cancelled"] = stamp(cluster.now - timedelta(seconds=60))
    cluster.find("Workload", WAITING)["spec"]["active"] = False
    cluster.hidden |= {("workloads", ""), ("pods", "research")}
    situation = Situation(run, cluster, cluster.now)
    assert situation.others_hidden
    told = explain(situation)
    assert (told.state, told.evidence) == ("cancelled", ())
