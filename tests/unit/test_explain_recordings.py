"""`explain` at the important moments of every recording of real controllers.

The tests compare complete sentences; the durations in them are those of the recording.
"""

from __future__ import annotations

from dataclasses import asdict
from datetime import timedelta

import pytest

from launcher.backends.kubernetes.run_object import RunObject
from launcher.diagnose.explain.finding import Explanation
from launcher.diagnose.explain.rule_order import explain
from launcher.diagnose.explain.situation import Situation
from launcher.k8s.errors import Forbidden
from tests.cluster import recordings
from tests.unit import recorded
from tests.unit.recorded import Recorded


def explain_run(cluster: Recorded, kind: str, name: str, *, later: float = 0) -> Explanation:
    """Explain a run, `later` seconds after the moment of the cluster."""
    return explain(
        Situation(RunObject.parse(cluster.find(kind, name)), cluster, cluster.now + timedelta(seconds=later))
    )


MOMENTS = [
    # recording, seconds, kind, run, state, position, headline
    (
        *("three-then-one-and-two", 3, "JobSet", "slices-3", "starting", None),
        "slices-3 is starting: 3 of its 6 pods are ready.",
    ),
    (
        *("three-then-one-and-two", 4.5, "JobSet", "slices-1", "queued", 1),
        "slices-1 waits for 8 chips of v5e-2x4: the queue tpu has none of 24 free, and slices-3 has held 24 for 4 s.",
    ),
    (
        *("three-then-one-and-two", 4.5, "JobSet", "slices-2", "queued", 2),
        "slices-2 waits for 16 chips of v5e-2x4: the queue tpu has none of 24 free, and slices-3 has held 24 for 4 s.",
    ),
    ("three-then-one-and-two", 10, "JobSet", "slices-3", "running", None, "slices-3 is running (for 7 s)."),
    (
        *("preempted-by-priority", 9.76, "JobSet", "low-3", "preempted", None),
        "low-3 is being stopped to make room for high-1, whose priority is higher (10000, its own is 100).",
    ),
    (
        *("preempted-by-priority", 9.82, "JobSet", "high-1", "queued", 1),
        "high-1 is about to start: Kueue is preempting 1 other run (low-3) for it, and waits until the pods of that "
        "run have ended.",
    ),
    (
        *("preempted-by-priority", 11, "JobSet", "low-3", "preempted", 1),
        "low-3 was preempted 2 s ago by high-1, whose priority is higher (10000, its own is 100), and waits for 24 "
        "chips of v5e-2x4, of which 16 are free.",
    ),
    ("preempted-by-priority", 26, "JobSet", "low-3", "running", None, "low-3 is running (for 1 s)."),
    (
        *("borrowing-then-reclaimed", 9.85, "JobSet", "owner-2", "queued", 1),
        "owner-2 is about to start: Kueue is preempting 1 other run (borrows-3 of research) for it, and waits until "
        "the pods of that run have ended.",
    ),
    (
        *("borrowing-then-reclaimed", 15, "JobSet", "borrows-3", "preempted", 1),
        "borrows-3 was preempted 5 s ago by owner-2 of search, the owner of quota that it had borrowed, and waits for "
        "24 chips of v5e-2x4, of which 8 are free.",
    ),
    (
        *("quota-in-use-by-others", 8, "JobSet", "waiting-2", "queued", 1),
        "waiting-2 waits for 16 chips of v5e-2x4: the queue tpu has 8 of 24 free, and first-2 has held 16 for 7 s.",
    ),
    (
        *("larger-than-quota", 4, "JobSet", "slices-4", "queued", 1),
        "slices-4 can never start in the queue tpu: it requests 32 chips of v5e-2x4, and the queue can have at most 24 "
        "chips.",
    ),
    (
        *("no-such-queue", 40, "JobSet", "lost", "queued", None),
        'lost waits in a queue that does not exist: the namespace research has no LocalQueue "nosuch".',
    ),
    (
        *("queue-held", 4, "JobSet", "held", "queued", 1),
        "held waits because the platform team stopped the queue tpu 3 s ago: it admits no runs, and admitted runs "
        "continue.",
    ),
    (
        *("admission-check-inactive", 4, "JobSet", "checked", "queued", 1),
        "checked waits because its queue tpu requires the admission check provision, which no controller serves.",
    ),
    (
        *("admission-check-pending", 4, "JobSet", "checked", "queued", None),
        "checked has its quota and has waited 3 s for the admission check budget.",
    ),
    (
        *("selector-matches-no-flavor", 4, "JobSet", "wrong-topology", "queued", 1),
        "wrong-topology can never start: its pods require nodes with cloud.google.com/gke-tpu-topology=4x4, and the "
        "only flavor of the queue tpu for chips, v5e-2x4, is for 2x4.",
    ),
    (
        *("admitted-but-no-nodes", 40, "JobSet", "no-nodes", "starting", None),
        "no-nodes has its quota, but its pods cannot be scheduled: no node of the cluster has "
        "cloud.google.com/gke-tpu-topology=4x4.",
    ),
    (
        *("head-not-covered-by-quota", 4, "RayJob", "head-uncovered", "queued", 1),
        "head-uncovered can never start in the queue tpu: its head requests 2 CPUs and 8 GiB of memory, and the queue "
        "has no quota for cpu or memory.",
    ),
    (
        *("rayjob-admitted", 2, "RayJob", "rayjob", "starting", None),
        "rayjob is starting: 0 of its 3 pods are ready.",
    ),
    (
        *("rayjob-admitted", 40, "RayJob", "rayjob", "starting", None),
        "rayjob has all its pods, but KubeRay cannot reach its Ray head to start the job: error trying to reach "
        "service: dial tcp 10.244.0.5:8265: connect: no route to host.",
    ),
    ("rayjob-succeeds", 60, "RayJob", "good", "succeeded", None, "good succeeded 33 s ago."),
    (
        *("rayjob-fails", 60, "RayJob", "bad", "failed", None),
        "bad failed: Job entrypoint command failed with exit code 3.",
    ),
    ("rayjob-head-killed", 22, "RayJob", "headless", "running", None, "headless is running (for 4 s)."),
    (
        *("rayjob-head-killed", 29, "RayJob", "headless", "restarting", None),
        "headless lost its Ray head 1 s ago; KubeRay creates a new one and restarts the job.",
    ),
    (
        *("run-fails-after-restarts", 9.5, "JobSet", "fails", "restarting", None),
        "fails is restarting after a failure (restart 1): the job fails-slice-0 has failed.",
    ),
    (
        *("run-fails-after-restarts", 20, "JobSet", "fails", "failed", None),
        "fails failed after 1 restart: it failed again, and run.maxRestarts allows no more restarts.",
    ),
    ("cancelled-while-running", 5, "JobSet", "cancelled", "running", None, "cancelled is running (for 1 s)."),
]


@pytest.mark.parametrize(
    ("recording", "seconds", "kind", "name", "state", "position", "headline"),
    MOMENTS,
    ids=[f"{recording}-{name}-{seconds}" for recording, seconds, _, name, *_ in MOMENTS],
)
def test_a_recorded_moment(
    recording: str, seconds: float, kind: str, name: str, state: str, position: int | None, headline: str
) -> None:
    explanation = explain_run(recorded.at(recording, seconds), kind, name)
    assert (explanation.state, explanation.position, explanation.headline) == (state, position, headline)


def test_every_recording_has_a_moment() -> None:
    assert set(recordings.names()) == {moment[0] for moment in MOMENTS}


def test_a_run_that_lost_its_head_reports_it_after_its_restart() -> None:
    explanation = explain_run(recorded.at("rayjob-head-killed", 60), "RayJob", "headless")
    assert explanation.headline.startswith("headless is running (for ")
    assert explanation.evidence[-1].says == "was restarted after a failure."


def test_the_complete_answer_for_a_waiting_run() -> None:
    explanation = explain_run(recorded.at("quota-in-use-by-others", 8), "JobSet", "waiting-2")
    assert explanation.as_text() == (
        "waiting-2 waits for 16 chips of v5e-2x4: the queue tpu has 8 of 24 free, and first-2 has held 16 for 7 s.\n"
        "\n"
        "  Workload jobset-waiting-2-ba966: couldn't assign flavors to pod set slice: insufficient unused quota for "
        "google.com/tpu in flavor v5e-2x4, 8 more needed.\n"
        "  ClusterQueue tpu: has 24 of v5e-2x4, and its runs hold 16; 8 are available now, 8 more are needed.\n"
        "  Workload first-2: holds 16 chips of v5e-2x4 in the queue tpu for 7 s (namespace research, priority 0).\n"
        "  ClusterQueue tpu: waiting-2 is number 1 of 1 in the queue (computed by Kueue's order: priority, then age).\n"
        "\n"
        "Suggestions:\n"
        "  - 1 slice would fit now: launcher cancel waiting-2 -n research, then submit it again with --set "
        "slice.count=1 --continue."
    )


def test_what_scripts_read() -> None:
    explanation = asdict(explain_run(recorded.at("no-such-queue", 40), "JobSet", "lost"))
    assert explanation == {
        "name": "lost",
        "state": "queued",
        "headline": 'lost waits in a queue that does not exist: the namespace research has no LocalQueue "nosuch".',
        "position": None,
        "evidence": ({"kind": "Workload", "name": "jobset-lost-7d635", "says": "LocalQueue nosuch doesn't exist."},),
        "suggestions": (
            "launcher cancel lost -n research, then submit it again with --set queue.name=multislice --continue (the "
            "queues of research are: multislice).",
        ),
    }


@pytest.mark.parametrize(
    ("recording", "kind", "name", "suggestion"),
    [
        ("larger-than-quota", "JobSet", "slices-4", "At most 3 slices (24 chips) can fit: launcher cancel"),
        ("selector-matches-no-flavor", "JobSet", "wrong-topology", "--set slice.topology=2x4 --continue"),
        ("head-not-covered-by-quota", "RayJob", "head-uncovered", "clusterQueues.tpu.quota.cpu"),
        ("head-not-covered-by-quota", "RayJob", "head-uncovered", "--set run.kind=job-set"),
        ("queue-held", "JobSet", "held", "clusterQueues.tpu.stopPolicy"),
        ("admission-check-inactive", "JobSet", "checked", "clusterQueues.tpu.admissionChecks"),
        ("admitted-but-no-nodes", "JobSet", "no-nodes", "slice.topology 2x4"),
        ("rayjob-admitted", "RayJob", "rayjob", "network.operatorNamespaces"),
        ("rayjob-fails", "RayJob", "bad", "launcher logs bad"),
    ],
)
def test_suggestions(recording: str, kind: str, name: str, suggestion: str) -> None:
    explanation = explain_run(recorded.at(recording, 40), kind, name)
    assert any(suggestion in text for text in explanation.suggestions), explanation.suggestions


def test_the_end_of_the_log_is_evidence_without_its_colours() -> None:
    explanation = explain_run(recorded.at("rayjob-fails", 60), "RayJob", "bad")
    log = [item.says for item in explanation.evidence if item.kind == "log"]
    assert log[-1] == "about to fail"
    assert not any("\x1b" in line for line in log)


def test_a_member_without_the_workloads_of_other_teams() -> None:
    """The Role of charts/queues allows reading Workloads and LocalQueues of the member's namespace only."""
    cluster = recorded.at("borrowing-then-reclaimed", 15)
    cluster.hidden = {("workloads", ""), ("localqueues", "")}
    explanation = explain_run(cluster, "JobSet", "borrows-3")
    assert explanation.headline == (
        "borrows-3 was preempted 5 s ago by the owner of quota that it had borrowed, and waits for 24 chips of "
        "v5e-2x4, of which 8 are free."
    )
    sentences = [item.says for item in explanation.evidence]
    assert "16 chips of v5e-2x4 are held by runs of other teams, which you may not read." in sentences
    assert explanation.position == 1  # the queue's status counts one pending Workload, which is this run's
    assert "you may not read the runs of other teams, so this explanation does not include them." in sentences


def test_a_member_who_is_not_alone_in_the_queue() -> None:
    cluster = recorded.at("three-then-one-and-two", 4.5)
    cluster.hidden = {("workloads", ""), ("localqueues", "")}
    cluster.find("ClusterQueue", "tpu")["status"]["pendingWorkloads"] = 9
    explanation = explain_run(cluster, "JobSet", "slices-2")
    assert explanation.position is None
    assert (
        "slices-2 has at least 1 run ahead (slices-1); 9 runs wait in total (you may not read the runs of other teams)."
        in [item.says for item in explanation.evidence]
    )


PENDING = "/apis/visibility.kueue.x-k8s.io/v1beta2"


def pending(*places: tuple[str, str, int]) -> dict[str, object]:
    """Return an answer of the visibility API (Kueue 0.19, apis/visibility/v1beta2); positions count from 0."""
    return {
        "items": [
            {
                "metadata": {
                    "name": f"jobset-{name}",
                    "namespace": namespace,
                    "ownerReferences": [{"name": name[:-6]}],
                },
                "priority": 0,
                "localQueueName": "multislice",
                "positionInClusterQueue": place,
            }
            for name, namespace, place in places
        ]
    }


def test_the_visibility_api_is_used() -> None:
    cluster = recorded.at("three-then-one-and-two", 4.5)
    cluster.visible[f"{PENDING}/clusterqueues/tpu/pendingworkloads"] = pending(
        ("other-00000", "search", 0), ("slices-2-0b4d0", "research", 1), ("slices-1-af79e", "research", 2)
    )
    explanation = explain_run(cluster, "JobSet", "slices-1")
    assert explanation.position == 3
    assert "slices-1 is number 3 in the queue, behind other of search and slices-2 (from Kueue's visibility API)." in [
        item.says for item in explanation.evidence
    ]


def test_the_visibility_api_of_a_local_queue() -> None:
    """If RBAC hides the ClusterQueue, the positions of one's runs are exact, but not whose runs are between them."""
    cluster = recorded.at("three-then-one-and-two", 4.5)
    refusal = Forbidden("No.", "", verb="get", resource="clusterqueues/pendingworkloads", group="", namespace="")
    cluster.visible[f"{PENDING}/clusterqueues/tpu/pendingworkloads"] = refusal
    cluster.visible[f"{PENDING}/namespaces/research/localqueues/multislice/pendingworkloads"] = pending(
        ("slices-1-af79e", "research", 4), ("slices-2-0b4d0", "research", 7)
    )
    explanation = explain_run(cluster, "JobSet", "slices-2")
    assert explanation.position == 8
    assert "behind slices-1 and runs of other teams that you may not read" in explanation.evidence[-1].says


def test_few_requests() -> None:
    """Each kind is listed once at most. Pods, nodes and events are not listed for a run that waits for quota."""
    cluster = recorded.at("quota-in-use-by-others", 8)
    explain_run(cluster, "JobSet", "waiting-2")
    assert len(cluster.requests) == len(set(cluster.requests)) <= 9
    assert not any(requests.startswith(("pods", "nodes", "events")) for requests in cluster.requests)


def test_maintenance_of_the_nodes_of_a_run_is_reported() -> None:
    """The labels and the taint are those that GKE documents for nodes with TPUs and GPUs."""
    cluster = recorded.at("three-then-one-and-two", 10)
    run = RunObject.parse(cluster.find("JobSet", "slices-3"))
    quiet = explain(Situation(run, cluster, cluster.now))
    assert quiet.suggestions == ()
    pods = [obj for obj in cluster.objects if obj["kind"] == "Pod" and obj["spec"].get("nodeName")]
    used = sorted({pod["spec"]["nodeName"] for pod in pods if "slices-3" in pod["metadata"]["name"]})
    at = {"cloud.google.com/scheduled-maintenance-time": "1795000000"}
    taint = [{"key": "cloud.google.com/impending-node-termination", "effect": "NoSchedule"}]
    node = {"apiVersion": "v1", "kind": "Node"}
    cluster.add(
        {**node, "metadata": {"name": used[0], "labels": at}, "spec": {}},
        {**node, "metadata": {"name": used[1], "labels": at}, "spec": {"taints": taint}},
        {**node, "metadata": {"name": "other", "labels": at}, "spec": {}},
    )
    found = explain(Situation(run, cluster, cluster.now))
    assert found.headline == quiet.headline
    nodes = {item.name: item.says for item in found.evidence if item.kind == "Node"}
    assert nodes == {
        used[0]: "has maintenance scheduled for 2026-11-18 11:06 UTC.",
        used[1]: "is about to stop for maintenance.",
    }
    assert found.suggestions == (
        "GKE stops the pods of a node for its maintenance. The run then restarts from its last checkpoint.",
    )
