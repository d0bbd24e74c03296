"""The token that a Ray head requires of its clients.

A head runs the code of a team, so it must never receive a token that is valid elsewhere. The user's own Kubernetes
token is sent to no head, even if its RayCluster object requests one.
"""

from __future__ import annotations

import base64
import json
import time
from dataclasses import dataclass
from urllib.parse import quote

from launcher.errors import LauncherError
from launcher.k8s import label_keys, objects
from launcher.k8s.client import SECRET, SERVICE_ACCOUNT, Cluster, Forbidden
from launcher.k8s.errors import ClusterError
from launcher.k8s.objects import Object
from launcher.k8s.rbac import Permission, indented_role

_DATA_KEY = "auth_token"  # KubeRay's key in the Secret
_NAME_LIMIT = 50
# The shortest lifetime that a TokenRequest accepts, and the age at which a token is replaced. Both in seconds.
_LIFETIME, _RENEW = 600, 480


class TokenNotSent(LauncherError):
    """The Ray cluster requires a token that the launcher does not send to it."""


@dataclass(frozen=True)
class Token:
    """A Ray token, and its origin for messages. The text is never shown, not even in a traceback.

    `renew_at` is the time.monotonic() at which it is to be replaced; None: never.
    """

    text: str
    origin: str
    renew_at: float | None = None

    def __repr__(self) -> str:
        return f"Token({self.origin})"


def token_of(cluster: Cluster, ray_cluster: Object, *, named: bool) -> Token | None:
    """Return the token of a RayCluster, or None if Ray requires none (spec.authOptions).

    The token is in a Secret that KubeRay creates, named like the RayCluster, or in the one that authOptions names. It
    is read with the user's own rights. With enableK8sTokenAuth, it is a token of the service account that charts/queues
    creates for the cluster, valid for ten minutes; the account has no right but Ray's own verb on this RayCluster.

    `named`: whether the user named the cluster, or a run, in the command. Otherwise, only KubeRay's own Secret is used.

    Raises TokenNotSent if the launcher sends no token to this cluster, and LauncherError if it is not available.
    """
    options = ray_cluster["spec"].get("authOptions")
    if options is None or options.get("mode", "token") == "disabled":
        return None
    if options.get("enableK8sTokenAuth"):
        return _service_account_token(cluster, ray_cluster, named=named)
    name = objects.name(ray_cluster)
    secret_name = options.get("secretName") or _secret_name(name)
    if secret_name != _secret_name(name) and not named:
        raise TokenNotSent(
            f"The Ray cluster {name} was not asked: its authOptions name the Secret {secret_name}, which this command "
            "does not send to it.",
            f"To show its runs: launcher status {name}{cluster.cli_args}",
        )
    return _secret_token(cluster, name, objects.namespace(ray_cluster), secret_name)


def client_account(ray_cluster: str) -> str:
    """Return the name of the service account of a Ray cluster's clients; charts/queues creates it."""
    return f"{ray_cluster}-ray-client"


def _service_account_token(cluster: Cluster, ray_cluster: Object, *, named: bool) -> Token:
    name, namespace = objects.name(ray_cluster), objects.namespace(ray_cluster)
    accepts = f"The Ray cluster {name} accepts only Kubernetes tokens (enableK8sTokenAuth)"
    if not named:
        raise TokenNotSent(
            f"{accepts}, and this command sends none, because it does not name the cluster.",
            f"To show its runs: launcher status {name}{cluster.cli_args}",
        )
    account_name = client_account(name)
    account = cluster.get(SERVICE_ACCOUNT, account_name, namespace)
    if account is None or objects.label(account, label_keys.RAY_CLIENT) != name:
        raise TokenNotSent(
            f"{accepts}, but the launcher sends none to it: the platform team has not listed it, so it may belong to "
            "any member of the team.",
            f"A platform engineer can list it in the values of charts/queues: teams.NAME.clusters: [{name}] and "
            f"k8sTokenAuth: true create the service account {account_name}, whose tokens are sent instead of yours.",
        )
    begun = time.monotonic()
    try:
        text = _requested_token(cluster, account_name, namespace, seconds=_LIFETIME)
    except Forbidden as error:
        role = indented_role(Permission("create", "serviceaccounts/token", ""), namespace, account_name)
        raise Forbidden(
            f"{error.message.rstrip('.')}, and the Ray cluster {name} accepts only tokens of the service account "
            f"{account_name}.",
            f"A platform engineer can allow you to request them:\n{role}",
            verb="create",
            resource="serviceaccounts/token",
            group="",
            namespace=namespace,
        ) from error
    return Token(text, f"a token of the service account {account_name}", begun + _RENEW)


def _secret_token(cluster: Cluster, name: str, namespace: str, secret_name: str) -> Token:
    try:
        secret = cluster.get(SECRET, secret_name, namespace)
    except Forbidden as error:
        raise _may_not_read(error, name, secret_name, namespace) from error
    if secret is None:
        raise LauncherError(
            f"The Secret {secret_name} (namespace {namespace}), which has the token of the Ray cluster {name}, does "
            "not exist.",
            "KubeRay creates it together with the cluster; launcher doctor shows whether KubeRay is running.",
        )
    try:
        text = base64.b64decode((secret.get("data") or {})[_DATA_KEY], validate=True).decode("ascii").strip()
    except (KeyError, ValueError):  # missing, not base64, or not ASCII
        text = ""
    if not text:
        raise LauncherError(
            f"The Secret {secret_name} (namespace {namespace}) has no Ray token under the key {_DATA_KEY}."
        )
    return Token(text, f"the Secret {secret_name}")


def _may_not_read(error: Forbidden, name: str, secret: str, namespace: str) -> Forbidden:
    role = indented_role(Permission("get", "secrets", ""), namespace, secret)
    return Forbidden(
        f"{error.message.rstrip('.')}, and the Secret {secret} holds the token of the Ray cluster {name}.",
        f"A platform engineer can allow you to read this Secret:\n{role}",
        verb="get",
        resource="secrets",
        group="",
        namespace=namespace,
    )


def _secret_name(name: str) -> str:
    """Return KubeRay's name for a RayCluster's Secret: the last 50 characters of the cluster's name, a letter first.

    KubeRay computes it in CheckName (its utils).
    """
    name = name[-_NAME_LIMIT:]
    return f"r{name[1:]}" if not name[0].isalpha() else name


def _requested_token(cluster: Cluster, name: str, namespace: str, *, seconds: int) -> str:
    """Request a token of a service account (TokenRequest) that is valid for `seconds`, at least 600."""
    kind = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest"}
    body = json.dumps({**kind, "spec": {"expirationSeconds": seconds}}).encode()
    path = f"{SERVICE_ACCOUNT.path(namespace)}/{quote(name, safe='')}/token"
    answer = cluster.request("POST", path, body=body, headers={"Content-Type": "application/json"})
    status = answer.json_object().get("status")
    if not isinstance(status, dict) or not isinstance(status.get("token"), str):
        raise ClusterError(f"The API server of {cluster.name} returned no token of the service account {name}.")
    return str(status["token"])
