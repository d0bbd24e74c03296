"""Errors of an API server, as sentences: one class for each case that a caller may handle differently."""

from __future__ import annotations

import re
from typing import Any

from launcher.errors import LauncherError
from launcher.json_object import json_object
from launcher.k8s.rbac import Permission, role_around, role_for


class ClusterError(LauncherError):
    """The cluster refused a request or did not answer.

    `status` is the HTTP status (0: no answer). `reason` is the reason that Kubernetes reports.
    """

    def __init__(self, message: str, hint: str = "", *, status: int = 0, reason: str = "") -> None:
        super().__init__(message, hint)
        self.status = status
        self.reason = reason


class Unreachable(ClusterError):
    """No answer, or an incomplete one. A retry may succeed."""


class DeadlineExceeded(Exception):
    """The deadline that the caller has set for its requests has passed.

    It is not a ClusterError, so that code which handles a missing answer does not continue after the deadline.
    """


class LoginFailed(Unreachable):
    """The kubeconfig's credential plugin got no token. If the network is down, a retry may succeed later."""


class Unauthorized(ClusterError):
    """The API server cannot authenticate the user: the token is missing or expired."""


class Forbidden(ClusterError):
    """RBAC denies `verb` on `resource` (with its subresource) of `group` in `namespace` ("": cluster-wide)."""

    def __init__(self, message: str, hint: str, *, verb: str, resource: str, group: str, namespace: str) -> None:
        super().__init__(message, hint, status=403, reason="Forbidden")
        self.verb, self.resource, self.group, self.namespace = verb, resource, group, namespace


class KindNotServed(ClusterError):
    """The cluster does not serve this kind of object: its CRD is missing."""


class NoNamespace(ClusterError):
    """The namespace does not exist."""


class NotFound(ClusterError):
    """The object does not exist."""


class UnreadableObject(ClusterError):
    """The object has a field of a wrong type (launcher.k8s.shapes), so it cannot be used."""


class AlreadyExists(ClusterError):
    """An object with that name already exists."""


class Conflict(ClusterError):
    """The object has changed since it was read: its uid or version differs."""


class Invalid(ClusterError):
    """The object violates the schema or a policy."""


class AdmissionDenied(ClusterError):
    """An admission webhook, a policy, Pod Security or a quota denies the request, with its own reason."""


class QuotaExceeded(AdmissionDenied):
    """The object would exceed the namespace's ResourceQuota."""


class WebhookFailed(ClusterError):
    """An admission webhook did not answer, so the API server rejected the request."""


CANNOT = re.compile(
    r'User "(?P<user>[^"]*)" cannot (?P<verb>\S+) resource "(?P<resource>[^"]*)" in API group "(?P<group>[^"]*)"'
    r'(?: in the namespace "(?P<namespace>[^"]*)")?'
)
_EXCEEDED = re.compile(
    r"exceeded quota: (?P<quota>[^,]+), requested: (?P<requested>.+), used: (?P<used>.+), limited: (?P<limited>.+)"
)
_UNCOUNTED = re.compile(r"status unknown for quota: (?P<quota>[^,]+), resources: (?P<resources>.+)")
_NO_RESTART_JOB = re.compile(r'RestartJob feature gate is disabled|Unsupported value: "RestartJob')
_UNKNOWN_FIELD = re.compile(r'unknown field "([^"]+)"')
OPERATORS = {
    "ray.io": "KubeRay",
    "jobset.x-k8s.io": "JobSet",
    "kueue.x-k8s.io": "Kueue",
    "visibility.kueue.x-k8s.io": "Kueue's visibility API",
}


def from_status(status: int, data: bytes, *, where: str, method: str, path: str) -> ClusterError:
    """Return the error for an answer of the API server with an HTTP status of 400 or more.

    `where` names the cluster in the message. `method` and `path` are those of the request.
    """
    body = json_object(data) or {}
    message = str(body.get("message") or data.decode("utf-8", "replace").strip()[:500] or f"HTTP {status}")
    reason = str(body.get("reason") or "")
    details = body.get("details")
    details = details if isinstance(details, dict) else {}
    known: dict[str, Any] = {"status": status, "reason": reason}
    server = f"The API server of {where}"
    if status == 401 or (status == 403 and 'User "system:anonymous"' in message):
        missing = "the kubeconfig has no credentials for it"
        why = "the token or certificate is missing or expired" if status == 401 else missing
        return Unauthorized(
            f"{server} rejects your credentials: {why}.",
            "Log in again (on GKE: gcloud auth login), and check that kubectl get pods works.",
            **known,
        )
    if status == 403 and (match := CANNOT.search(message)):
        return _forbidden(where, match)
    if "failed calling webhook" in message or "failed to call webhook" in message:
        name = re.search(r'webhook "([^"]+)"', message)
        return WebhookFailed(
            f"The admission webhook {name[1] if name else '(unnamed)'} of {where} does not answer, so nothing was "
            f"changed: {_webhook_cause(message)}",
            "Its controller is down or starting; launcher doctor shows which one. Try again when it is running.",
            **known,
        )
    if status == 404:
        return _not_found(where, path, message, details, known)
    if status == 409:
        if reason == "AlreadyExists":
            return AlreadyExists(f"{_sentence(message)} ({where})", **known)
        if "is being terminated" in message:
            return AdmissionDenied(f"{server}: {_sentence(message)}", **known)
        return Conflict(f"{server}: {_sentence(message)}", "Try again.", **known)
    if status == 403 and (match := _EXCEEDED.search(message)):
        return QuotaExceeded(
            f"The ResourceQuota {match['quota']} in {where} is used up: {_more_than(match)}.",
            "Delete what is no longer needed, or ask the platform team for more.",
            **known,
        )
    if status == 403 and (match := _UNCOUNTED.search(message)):
        return AdmissionDenied(
            f"The ResourceQuota {match['quota']} in {where} is new: Kubernetes has not counted {match['resources']} "
            "yet.",
            "Try again in a few seconds; if KubeRay, JobSet or Kueue is new, too, in a few minutes.",
            **known,
        )
    hint = ""
    if _NO_RESTART_JOB.search(message):
        hint = "Set run.restartAction: RestartJobSet, or use JobSet 0.12 or later, with its feature gate RestartJob."
    if status in (400, 403, 422) and "denied" in message:
        return AdmissionDenied(f"{server} rejects the request: {_denied(message)}", hint, **known)
    if status == 403:
        return AdmissionDenied(f"{server} rejects the request: {_sentence(message)}", **known)
    if fields := _UNKNOWN_FIELD.findall(message):
        return Invalid(
            f"{server} does not know {' and '.join(fields)}, and would leave it out.",
            "Correct the name, or upgrade the controller that defines the object.",
            **known,
        )
    if status in (400, 422) and body:  # without a body it is not an answer of Kubernetes
        return Invalid(f"{server} rejects the object: {_sentence(message)}", hint, **known)
    if status in (429, 500, 502, 503, 504):
        return Unreachable(f"{server} cannot answer now ({status}): {_sentence(message)}", **known)
    return ClusterError(f"{server} answers {status} to {method} {path}: {_sentence(message)}", **known)


def _forbidden(where: str, match: re.Match[str]) -> Forbidden:
    verb, resource, group, namespace = match["verb"], match["resource"], match["group"], match["namespace"] or ""
    given = "charts/queues (teams.NAME.members)"
    if namespace:
        advice = f"Members of that team get all permissions from {given}. Or a platform engineer can apply this, and"
    else:
        advice = f"Members of a team get this permission from {given}. Or a platform engineer can apply this, and"
    return Forbidden(
        may_not(match, where),
        f"{advice} bind it to you:\n"
        + "\n".join("  " + line for line in _role(verb, resource, group, namespace).splitlines()),
        verb=verb,
        resource=resource,
        group=group,
        namespace=namespace,
    )


def may_not(match: re.Match[str], where: str) -> str:
    """Return the sentence about a right that the user does not have, from a match of CANNOT."""
    of = f" of {match['group']}" if match["group"] else ""
    place = f"the namespace {match['namespace']}" if match["namespace"] else "the whole cluster"
    return f"You ({match['user']}) may not {match['verb']} {match['resource']}{of} in {place} of {where}."


def _role(verb: str, resource: str, group: str, namespace: str) -> str:
    """Return the Role for a permission. If it is a permission on runs, include those that it is useless without."""
    right = Permission(verb, resource, group)
    return (role_around(right, namespace) if namespace else "") or role_for(right, namespace)


def _not_found(where: str, path: str, message: str, details: dict[str, Any], known: dict[str, Any]) -> ClusterError:
    if details.get("kind") == "namespaces" and "/namespaces/" in path:
        return NoNamespace(
            f"There is no namespace {details.get('name')} in {where}.",
            "Set team.namespace to the namespace of the team, or choose another with -n or --context.",
            **known,
        )
    if details.get("name"):
        return NotFound(f"The API server of {where}: {_sentence(message)}", **known)
    group = re.match(r"/apis/([^/]+)/([^/]+)(?:/namespaces/[^/]+)?(?:/([^/?]+))?", path)
    name = OPERATORS.get(group[1], group[1]) if group else path
    what = f"{group[3] or 'the API'} of {group[1]}/{group[2]}" if group else path
    return KindNotServed(
        f"The API server of {where} does not serve {what}: {name} is not installed there, or its version is not "
        "supported.",
        "launcher doctor shows what the cluster has.",
        **known,
    )


def _webhook_cause(message: str) -> str:
    cause = message.split(": ", 2)[-1] if message.count(": ") > 1 else message
    return _sentence(cause[:300])


def _more_than(match: re.Match[str]) -> str:
    """Return the usage from a match of `_EXCEEDED`, such as "2 of 2 jobsets.jobset.x-k8s.io are in use"."""
    used, limited = (
        {key: amount for key, _, amount in (part.partition("=") for part in match[of].split(","))}
        for of in ("used", "limited")
    )
    return ", ".join(
        f"{used.get(key, '?')} of {most} {key.removeprefix('count/')} are in use" for key, most in limited.items()
    )


def _denied(message: str) -> str:
    match = re.search(r'admission webhook "([^"]+)" denied the request: (.*)', message, re.DOTALL)
    if match:
        return f"{_sentence(match[2])} (from the admission webhook {match[1]})"
    match = re.search(r"ValidatingAdmissionPolicy '([^']+)'.* denied request: (.*)", message, re.DOTALL)
    if match:
        return f"{_sentence(match[2])} (from the policy {match[1]})"
    return _sentence(message)


def _sentence(text: str) -> str:
    text = " ".join(text.split())
    return text if text.endswith((".", "!", "?", ")")) else text + "."
