"""The messages for errors of an API server; each error is a recorded answer of a real one."""

from __future__ import annotations

import json
from typing import Any

import pytest
import yaml

from launcher.k8s import errors

WHERE = "the cluster prod"
JOB_SETS = "/apis/jobset.x-k8s.io/v1alpha2/namespaces/research/jobsets"


def refused(code: int, message: str, reason: str = "", path: str = JOB_SETS, **details: Any) -> errors.ClusterError:
    status = {"kind": "Status", "status": "Failure", "message": message, "reason": reason, "code": code}
    body = json.dumps({**status, "details": details}).encode()
    return errors.from_status(code, body, where=WHERE, method="POST", path=path)


CASES: list[tuple[errors.ClusterError, type[errors.ClusterError], str]] = [
    (
        refused(401, "Unauthorized", "Unauthorized"),
        errors.Unauthorized,
        "The API server of the cluster prod rejects your credentials: the token or certificate is missing or expired.",
    ),
    (
        refused(409, 'jobsets.jobset.x-k8s.io "demo" already exists', "AlreadyExists", name="demo"),
        errors.AlreadyExists,
        'jobsets.jobset.x-k8s.io "demo" already exists. (the cluster prod)',
    ),
    (
        refused(409, "the UID in the precondition does not match the UID in record", "Conflict", name="demo"),
        errors.Conflict,
        "The API server of the cluster prod: the UID in the precondition does not match the UID in record.",
    ),
    (
        refused(404, 'namespaces "research" not found', "NotFound", name="research", kind="namespaces"),
        errors.NoNamespace,
        "There is no namespace research in the cluster prod.",
    ),
    (
        refused(404, 'jobsets.jobset.x-k8s.io "demo" not found', "NotFound", f"{JOB_SETS}/demo", name="demo"),
        errors.NotFound,
        'The API server of the cluster prod: jobsets.jobset.x-k8s.io "demo" not found.',
    ),
    (
        errors.from_status(404, b"404 page not found\n", where=WHERE, method="GET", path=JOB_SETS),
        errors.KindNotServed,
        "The API server of the cluster prod does not serve jobsets of jobset.x-k8s.io/v1alpha2: JobSet is not "
        "installed there, or its version is not supported.",
    ),
    (
        refused(
            403,
            'jobsets.jobset.x-k8s.io "demo" is forbidden: exceeded quota: runs, requested: '
            "count/jobsets.jobset.x-k8s.io=1, used: count/jobsets.jobset.x-k8s.io=3, limited: "
            "count/jobsets.jobset.x-k8s.io=3",
            "Forbidden",
        ),
        errors.QuotaExceeded,
        "The ResourceQuota runs in the cluster prod is used up: 3 of 3 jobsets.jobset.x-k8s.io are in use.",
    ),
    (
        refused(
            403,
            'jobsets.jobset.x-k8s.io "demo" is forbidden: status unknown for quota: research, resources: '
            "count/jobsets.jobset.x-k8s.io",
            "Forbidden",
        ),
        errors.AdmissionDenied,
        "The ResourceQuota research in the cluster prod is new: Kubernetes has not counted "
        "count/jobsets.jobset.x-k8s.io yet.",
    ),
    (
        refused(400, 'admission webhook "vrayjob.kb.io" denied the request: clusterSelector is not allowed'),
        errors.AdmissionDenied,
        "The API server of the cluster prod rejects the request: clusterSelector is not allowed. (from the admission "
        "webhook vrayjob.kb.io)",
    ),
    (
        refused(
            422,
            "rayjobs.ray.io \"demo\" is forbidden: ValidatingAdmissionPolicy 'owners' with binding 'owners' denied "
            "request: A run needs an owner.",
        ),
        errors.AdmissionDenied,
        "The API server of the cluster prod rejects the request: A run needs an owner. (from the policy owners)",
    ),
    (
        refused(
            500,
            'Internal error occurred: failed calling webhook "mjobset.kb.io": failed to call webhook: Post '
            '"https://jobset-webhook.jobset-system.svc:443/mutate?timeout=10s": no endpoints available for service '
            '"jobset-webhook"',
            "InternalError",
        ),
        errors.WebhookFailed,
        "The admission webhook mjobset.kb.io of the cluster prod does not answer, so nothing was changed: failed to "
        'call webhook: Post "https://jobset-webhook.jobset-system.svc:443/mutate?timeout=10s": no endpoints available '
        'for service "jobset-webhook".',
    ),
    (
        refused(
            403,
            'jobsets "demo" is forbidden: unable to create new content in namespace research because it is being '
            "terminated",
            "Forbidden",
        ),
        errors.AdmissionDenied,
        'The API server of the cluster prod rejects the request: jobsets "demo" is forbidden: unable to create new '
        "content in namespace research because it is being terminated.",
    ),
    (
        refused(422, 'JobSet "demo" is invalid: spec.replicatedJobs: Required value', "Invalid"),
        errors.Invalid,
        'The API server of the cluster prod rejects the object: JobSet "demo" is invalid: spec.replicatedJobs: '
        "Required value.",
    ),
    (
        refused(500, "etcdserver: request timed out", "InternalError"),
        errors.Unreachable,
        "The API server of the cluster prod cannot answer now (500): etcdserver: request timed out.",
    ),
    (
        errors.from_status(
            400, b"Client sent an HTTP request to an HTTPS server.\n", where=WHERE, method="GET", path="/version"
        ),
        errors.ClusterError,
        "The API server of the cluster prod answers 400 to GET /version: Client sent an HTTP request to an HTTPS "
        "server.",
    ),
]


@pytest.mark.parametrize(("error", "kind", "message"), CASES, ids=[kind.__name__ for _, kind, _ in CASES])
def test_a_sentence_for_each_refusal(error: errors.ClusterError, kind: type[errors.ClusterError], message: str) -> None:
    assert (type(error), error.message) == (kind, message)


@pytest.mark.parametrize(
    ("message", "kind"),
    [
        # JobSet 0.12 without the feature gate: validateFailurePolicy in pkg/webhooks/jobset_webhook.go.
        (
            'admission webhook "vjobset.kb.io" denied the request: JobSet.jobset.x-k8s.io "demo" is invalid: <nil>: '
            "Internal error: RestartJob and RestartJobAndIgnoreMaxRestarts failure policy actions are not allowed when "
            "RestartJob feature gate is disabled",
            errors.AdmissionDenied,
        ),
        # JobSet 0.11: the enum of its CRD.
        (
            'JobSet.jobset.x-k8s.io "demo" is invalid: [spec.failurePolicy.rules[1].action: Unsupported value: '
            '"RestartJobAndIgnoreMaxRestarts": supported values: "FailJobSet", "RestartJobSet", '
            '"RestartJobSetAndIgnoreMaxRestarts"]',
            errors.Invalid,
        ),
    ],
)
def test_a_jobset_without_restart_job_has_a_hint(message: str, kind: type[errors.ClusterError]) -> None:
    error = refused(422, message, "Invalid")
    assert type(error) is kind
    assert error.hint == (
        "Set run.restartAction: RestartJobSet, or use JobSet 0.12 or later, with its feature gate RestartJob."
    )


@pytest.mark.parametrize("namespace", ["research", ""])
def test_a_forbidden_request_has_the_role_that_allows_it(namespace: str) -> None:
    place = f' in the namespace "{namespace}"' if namespace else " at the cluster scope"
    error = refused(
        403,
        f'workloads.kueue.x-k8s.io is forbidden: User "alice" cannot list resource "workloads" in API group '
        f'"kueue.x-k8s.io"{place}',
        "Forbidden",
    )
    assert isinstance(error, errors.Forbidden)
    where = f"the namespace {namespace}" if namespace else "the whole cluster"
    assert error.message == f"You (alice) may not list workloads of kueue.x-k8s.io in {where} of the cluster prod."
    role = yaml.safe_load(error.hint.partition("bind it to you:\n")[2])
    if not namespace:
        assert role == {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRole",
            "metadata": {"name": "slipway-list-workloads"},
            "rules": [{"apiGroups": ["kueue.x-k8s.io"], "resources": ["workloads"], "verbs": ["list"]}],
        }
        return
    assert error.hint.startswith("Members of that team ")
    assert (role["kind"], role["metadata"]) == ("Role", {"name": "slipway-runs-read", "namespace": namespace})
    resources = {resource for rule in role["rules"] for resource in rule["resources"]}
    assert {"rayjobs", "jobsets", "workloads", "pods", "pods/log", "events", "localqueues"} <= resources
    assert {verb for rule in role["rules"] for verb in rule["verbs"]} == {"get", "list"}


def test_a_member_who_may_not_change_runs_gets_the_role_for_all_of_it() -> None:
    error = refused(
        403,
        'jobsets.jobset.x-k8s.io is forbidden: User "alice" cannot create resource "jobsets" in API group '
        '"jobset.x-k8s.io" in the namespace "research"',
        "Forbidden",
    )
    role = yaml.safe_load(error.hint.partition("bind it to you:\n")[2])
    assert role["metadata"]["name"] == "slipway-runs"
    assert {verb for rule in role["rules"] for verb in rule["verbs"]} == {"get", "list", "create", "patch", "delete"}
