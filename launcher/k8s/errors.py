"""What an API server refuses, as sentences: one class for each thing that a caller may want to tell apart."""

from __future__ import annotations

import re
from typing import Any

from launcher.errors import LauncherError
from launcher.json_object import json_object
from launcher.k8s.rbac import Permission, role_around


class ClusterError(LauncherError):
    """The cluster said no, or nothing. `status` is the HTTP status (0: no answer), `reason` Kubernetes' own word."""

    def __init__(self, message: str, hint: str = "", *, status: int = 0, reason: str = "") -> None:
        super().__init__(message, hint)
        self.status = status
        self.reason = reason


class Unreachable(ClusterError):
    """No answer, or a broken one; asking again may help."""


class LoginFailed(Unreachable):
    """The kubeconfig's credential plugin got no token: where the network is away, it comes back."""


class Unauthorized(ClusterError):
    """The API server does not know who asks: no token, or one that has expired."""


class Forbidden(ClusterError):
    """RBAC says no. `verb`, `resource` (with its subresource), `group` and `namespace` ("": of the cluster)."""

    def __init__(self, message: str, hint: str, *, verb: str, resource: str, group: str, namespace: str) -> None:
        super().__init__(message, hint, status=403, reason="Forbidden")
        self.verb, self.resource, self.group, self.namespace = verb, resource, group, namespace


class KindNotServed(ClusterError):
    """The cluster has no such kind of object: its CRD is missing."""


class NoNamespace(ClusterError):
    """The namespace does not exist."""


class NotFound(ClusterError):
    """The object does not exist."""


class AlreadyExists(ClusterError):
    """An object of that name exists."""


class Conflict(ClusterError):
    """The object is not as it was when it was looked at (another uid or version)."""


class Invalid(ClusterError):
    """The object breaks the schema, or a policy."""


class AdmissionDenied(ClusterError):
    """An admission webhook, a policy, Pod Security or a quota says no, with a reason of its own."""


class QuotaExceeded(AdmissionDenied):
    """The namespace's ResourceQuota has no room for it."""


class WebhookFailed(ClusterError):
    """An admission webhook did not answer, so the API server let nothing through."""


_CANNOT = re.compile(
    r'User "(?P<user>[^"]*)" cannot (?P<verb>\S+) resource "(?P<resource>[^"]*)" in API group "(?P<group>[^"]*)"'
    r'(?: in the namespace "(?P<namespace>[^"]*)")?'
)
_EXCEEDED = re.compile(
    r"exceeded quota: (?P<quota>[^,]+), requested: (?P<requested>.+), used: (?P<used>.+), limited: (?P<limited>.+)"
)
_OPERATORS = {
    "ray.io": "KubeRay",
    "jobset.x-k8s.io": "JobSet",
    "kueue.x-k8s.io": "Kueue",
    "visibility.kueue.x-k8s.io": "Kueue's visibility API",
}


def from_status(status: int, data: bytes, *, where: str, method: str, path: str) -> ClusterError:
    """The error for an answer of the API server with an HTTP status of 400 and more.

    `where` names the cluster for the sentence, `method` and `path` are those of the request.
    """
    body = _body(data)
    message = str(body.get("message") or data.decode("utf-8", "replace").strip()[:500] or f"HTTP {status}")
    reason = str(body.get("reason") or "")
    details = body.get("details") or {}
    known: dict[str, Any] = {"status": status, "reason": reason}
    server = f"The API server of {where}"
    if status == 401:
        return Unauthorized(
            f"{server} does not know who you are: the token or certificate is missing or expired.",
            "Log in again (on GKE: gcloud auth login), and see that kubectl get pods works.",
            **known,
        )
    if status == 403 and 'User "system:anonymous"' in message:
        return Unauthorized(
            f"{server} does not know who you are: the kubeconfig has no credentials for it.",
            "Log in again (on GKE: gcloud auth login), and see that kubectl get pods works.",
            **known,
        )
    if status == 403 and (match := _CANNOT.search(message)):
        return _forbidden(where, match)
    if "failed calling webhook" in message or "failed to call webhook" in message:
        name = re.search(r'webhook "([^"]+)"', message)
        return WebhookFailed(
            f"The admission webhook {name[1] if name else '(unnamed)'} of {where} does not answer, so nothing was "
            f"changed: {_webhook_cause(message)}",
            "The controller behind it is down or starting; launcher doctor shows which. Try again then.",
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
            f"The namespace's quota {match['quota']} in {where} leaves no room: {_more_than(match)}.",
            "Delete what is no longer needed, or ask the platform team for more.",
            **known,
        )
    if status in (400, 403, 422) and "denied" in message:
        return AdmissionDenied(f"{server} refuses it: {_denied(message)}", **known)
    if status == 403:
        return AdmissionDenied(f"{server} refuses it: {_sentence(message)}", **known)
    if status in (400, 422) and body:  # else it is none of Kubernetes' answers
        return Invalid(f"{server} does not accept the object: {_sentence(message)}", **known)
    if status in (429, 500, 502, 503, 504):
        return Unreachable(f"{server} cannot answer now ({status}): {_sentence(message)}", **known)
    return ClusterError(f"{server} answers {status} to {method} {path}: {_sentence(message)}", **known)


def role_for(verb: str, resource: str, group: str, namespace: str) -> str:
    """A Role (a ClusterRole without a namespace) that allows this one thing, as YAML ready for kubectl."""
    kind = "Role" if namespace else "ClusterRole"
    lines = [
        "apiVersion: rbac.authorization.k8s.io/v1",
        f"kind: {kind}",
        "metadata:",
        f"  name: slipway-{verb}-{resource.replace('/', '-')}",
        *([f"  namespace: {namespace}"] if namespace else []),
        "rules:",
        f'  - apiGroups: ["{group}"]',
        f"    resources: [{resource}]",
        f"    verbs: [{verb}]",
    ]
    return "\n".join(lines)


def _forbidden(where: str, match: re.Match[str]) -> Forbidden:
    verb, resource, group, namespace = match["verb"], match["resource"], match["group"], match["namespace"] or ""
    of = f" of {group}" if group else ""
    place = f"the namespace {namespace}" if namespace else "the whole cluster"
    given = "charts/queues (teams.NAME.members)"
    if namespace:
        advice = f"If you belong to that team, {given} gives you all you need; or a platform engineer applies this, and"
    else:
        advice = f"A team's members get it from {given}; or a platform engineer applies this, and"
    return Forbidden(
        f"You ({match['user']}) may not {verb} {resource}{of} in {place} of {where}.",
        f"{advice} binds it to you:\n"
        + "\n".join("  " + line for line in _role(verb, resource, group, namespace).splitlines()),
        verb=verb,
        resource=resource,
        group=group,
        namespace=namespace,
    )


def _role(verb: str, resource: str, group: str, namespace: str) -> str:
    """The Role for it: with one right to runs come the others that are of no use without each other."""
    whole = role_around(Permission(verb, resource, group), namespace) if namespace else ""
    return whole or role_for(verb, resource, group, namespace)


def _not_found(where: str, path: str, message: str, details: dict[str, Any], known: dict[str, Any]) -> ClusterError:
    if details.get("kind") == "namespaces" and "/namespaces/" in path:
        return NoNamespace(
            f"There is no namespace {details.get('name')} in {where}.",
            "team.namespace names the team's own; -n or --context choose another.",
            **known,
        )
    if details.get("name"):
        return NotFound(f"The API server of {where}: {_sentence(message)}", **known)
    group = re.match(r"/apis/([^/]+)/([^/]+)(?:/namespaces/[^/]+)?(?:/([^/?]+))?", path)
    name = _OPERATORS.get(group[1], group[1]) if group else path
    what = f"{group[3] or 'the API'} of {group[1]}/{group[2]}" if group else path
    return KindNotServed(
        f"The API server of {where} does not serve {what}: {name} is not installed there, or in a version that does "
        "not fit.",
        "launcher doctor shows what the cluster has.",
        **known,
    )


def _webhook_cause(message: str) -> str:
    cause = message.split(": ", 2)[-1] if message.count(": ") > 1 else message
    return _sentence(cause[:300])


def _more_than(match: re.Match[str]) -> str:
    """(one that _EXCEEDED found) -> "2 of 2 jobsets.jobset.x-k8s.io are in use"."""
    used, limited = (dict(part.split("=", 1) for part in match[key].split(",")) for key in ("used", "limited"))
    return ", ".join(
        f"{used.get(key, '?')} of {most} {key.removeprefix('count/')} are in use" for key, most in limited.items()
    )


def _denied(message: str) -> str:
    match = re.search(r'admission webhook "([^"]+)" denied the request: (.*)', message, re.DOTALL)
    if match:
        return f"{_sentence(match[2])} (said by the admission webhook {match[1]})"
    match = re.search(r"ValidatingAdmissionPolicy '([^']+)'.* denied request: (.*)", message, re.DOTALL)
    if match:
        return f"{_sentence(match[2])} (said by the policy {match[1]})"
    return _sentence(message)


def _sentence(text: str) -> str:
    text = " ".join(text.split())
    return text if text.endswith((".", "!", "?", ")")) else text + "."


def _body(data: bytes) -> dict[str, Any]:
    return json_object(data) or {}
