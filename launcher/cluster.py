"""The door to Kubernetes: the only module that speaks to an API server. Objects are plain JSON data.

The kubeconfig and the context are those that kubectl would use, and the kubeconfig is never written. Whatever the
API server refuses is raised as a launcher.cluster_errors.ClusterError with a sentence.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, cast
from urllib.parse import quote, urlencode

from launcher.cluster_errors import (
    AlreadyThere,
    ClusterError,
    Conflict,
    Forbidden,
    Invalid,
    LoginFailed,
    NoNamespace,
    NotServed,
    NotThere,
    Refused,
    Unauthorized,
    Unreachable,
    WebhookFailed,
    from_status,
)
from launcher.errors import LauncherError

if TYPE_CHECKING:
    import urllib3

__all__ = [
    "AlreadyThere",
    "Cluster",
    "ClusterError",
    "Conflict",
    "Forbidden",
    "Invalid",
    "Kind",
    "NoNamespace",
    "NotServed",
    "NotThere",
    "Refused",
    "Unauthorized",
    "Unreachable",
    "WebhookFailed",
    "connect",
    "kind_of",
]

Object = dict[str, Any]
"""An object of Kubernetes, as its JSON."""
Objects = list[Object]

# Objects of one answer at most; more come in pages, so that neither side holds all of a large list at once.
_PAGE = 500
_CONNECT_SECONDS = 5.0
_READ_SECONDS = 20.0
_BUSY_TRIES, _BUSY_SECONDS = 6, 5.0
_SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")


class Kind(NamedTuple):
    """A kind of object, and where the API server keeps it."""

    kind: str
    api_version: str
    plural: str
    namespaced: bool = True

    @property
    def group(self) -> str:
        return self.api_version.rpartition("/")[0]

    def path(self, namespace: str | None) -> str:
        root = "/apis" if "/" in self.api_version else "/api"
        place = f"/namespaces/{_part(namespace)}" if self.namespaced and namespace else ""
        return f"{root}/{self.api_version}{place}/{self.plural}"


RAY_JOB = Kind("RayJob", "ray.io/v1", "rayjobs")
RAY_CLUSTER = Kind("RayCluster", "ray.io/v1", "rayclusters")
JOB_SET = Kind("JobSet", "jobset.x-k8s.io/v1alpha2", "jobsets")
WORKLOAD = Kind("Workload", "kueue.x-k8s.io/v1beta2", "workloads")
LOCAL_QUEUE = Kind("LocalQueue", "kueue.x-k8s.io/v1beta2", "localqueues")
CLUSTER_QUEUE = Kind("ClusterQueue", "kueue.x-k8s.io/v1beta2", "clusterqueues", namespaced=False)
COHORT = Kind("Cohort", "kueue.x-k8s.io/v1beta2", "cohorts", namespaced=False)
RESOURCE_FLAVOR = Kind("ResourceFlavor", "kueue.x-k8s.io/v1beta2", "resourceflavors", namespaced=False)
TOPOLOGY = Kind("Topology", "kueue.x-k8s.io/v1beta2", "topologies", namespaced=False)
ADMISSION_CHECK = Kind("AdmissionCheck", "kueue.x-k8s.io/v1beta2", "admissionchecks", namespaced=False)
PRIORITY_CLASS = Kind("WorkloadPriorityClass", "kueue.x-k8s.io/v1beta2", "workloadpriorityclasses", namespaced=False)
POD = Kind("Pod", "v1", "pods")
NODE = Kind("Node", "v1", "nodes", namespaced=False)
EVENT = Kind("Event", "v1", "events")
SERVICE = Kind("Service", "v1", "services")
SECRET = Kind("Secret", "v1", "secrets")
NAMESPACE = Kind("Namespace", "v1", "namespaces", namespaced=False)
JOB = Kind("Job", "batch/v1", "jobs")
PVC = Kind("PersistentVolumeClaim", "v1", "persistentvolumeclaims")
RESOURCE_QUOTA = Kind("ResourceQuota", "v1", "resourcequotas")
SERVICE_ACCOUNT = Kind("ServiceAccount", "v1", "serviceaccounts")
CRD = Kind("CustomResourceDefinition", "apiextensions.k8s.io/v1", "customresourcedefinitions", namespaced=False)
DEPLOYMENT = Kind("Deployment", "apps/v1", "deployments")
MUTATING_WEBHOOK = Kind(
    "MutatingWebhookConfiguration", "admissionregistration.k8s.io/v1", "mutatingwebhookconfigurations", namespaced=False
)
VALIDATING_WEBHOOK = Kind(
    "ValidatingWebhookConfiguration",
    "admissionregistration.k8s.io/v1",
    "validatingwebhookconfigurations",
    namespaced=False,
)


@dataclass(frozen=True)
class Response:
    """An answer: `status`, `headers` by their lower-case names, and `data`, or with `stream` its parts as they come."""

    status: int
    headers: Mapping[str, str]
    raw: urllib3.BaseHTTPResponse

    @property
    def data(self) -> bytes:
        return self.raw.data or b""

    def json(self) -> Any:
        return json.loads(self.data)

    def parts(self) -> Iterator[bytes]:
        """The body as it arrives. Raises Unreachable where it is cut off, or silent for longer than the timeout."""
        import urllib3

        try:
            while part := self.raw.read1():
                yield part
        except (urllib3.exceptions.HTTPError, OSError) as error:
            raise Unreachable(f"The stream was cut off: {_cause(error)}.") from error

    def close(self) -> None:
        self.raw.close()

    def cut(self) -> None:
        """End a stream that another thread waits in; closing it would wait for what comes next."""
        with contextlib.suppress(ValueError, RuntimeError):  # it has ended by itself
            self.raw.shutdown()


def connect(context: str | None = None, namespace: str | None = None) -> Cluster:
    """The cluster of the context, as kubectl would choose it. Makes no request.

    Raises LauncherError where there is no kubeconfig, no such context, or a kubeconfig that cannot be read.
    """
    from launcher import _kubernetes

    if namespace is not None and not re.fullmatch(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?", namespace):
        raise LauncherError(f'"{namespace}" cannot be a namespace: names are like team-a (a-z, 0-9 and -, at most 63).')
    _kubernetes.prepare()
    from kubernetes.client.configuration import Configuration
    from kubernetes.config.config_exception import ConfigException
    from kubernetes.config.kube_config import KubeConfigLoader, KubeConfigMerger

    configuration = Configuration()
    configuration.retries = False
    configuration.connection_pool_maxsize = 8
    files = kubeconfig_files()
    if not files:
        return _in_cluster(configuration, context, namespace)
    where = os.pathsep.join(map(str, files))
    try:
        merger = KubeConfigMerger(where)
        merged = merger.config
        # Of several files the first one counts, for kubectl; the package takes the last one's current context.
        current = [config.get("current-context") for config in merger.config_files.values()]
        merged.value["current-context"] = next(filter(None, current), "")
        _check_context(merged.value, context, where)
        loader = KubeConfigLoader(config_dict=merged, active_context=context, config_base_path=None)
        with _quiet_plugin(where):
            loader.load_and_set(configuration)
        chosen = loader.current_context
    except ConfigException as error:
        raise LauncherError(f"The kubeconfig {where} cannot be used: {str(error).rstrip('.')}.") from error
    except OSError as error:
        raise LauncherError(f"The kubeconfig {where} cannot be read: {error.strerror}.") from error
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise LauncherError(
            f"{where} has not the form of a kubeconfig ({type(error).__name__}: {error}).",
            "kubectl config view says more.",
        ) from error
    except Exception as error:
        if type(error).__module__.startswith("yaml"):
            raise LauncherError(f"The kubeconfig {where} is no YAML: {' '.join(str(error).split())}.") from error
        raise
    inside = chosen["context"]
    if not str(configuration.host).startswith(("https://", "http://")):
        raise LauncherError(
            f'The kubeconfig {where} gives "{configuration.host}" as the server of the cluster {inside["cluster"]}; '
            "it has to be a URL that begins with https://."
        )
    return Cluster(
        configuration,
        context=chosen["name"],
        cluster=str(inside["cluster"]),
        user=str(inside.get("user") or ""),
        namespace=namespace or str(inside.get("namespace") or "default"),
        chosen=context is not None,
    )


def kubeconfig_files() -> list[Path]:
    """The kubeconfig files that there are, as kubectl looks for them: KUBECONFIG, else ~/.kube/config."""
    given = os.environ.get("KUBECONFIG")
    paths = given.split(os.pathsep) if given else [str(Path.home() / ".kube" / "config")]
    files = [Path(path).expanduser() for path in paths if path]
    return [file for file in files if file.exists()]


def configured() -> bool:
    """Whether there is a cluster to speak to at all: a kubeconfig, or the service account of a pod."""
    return bool(kubeconfig_files()) or "KUBERNETES_SERVICE_HOST" in os.environ


class Cluster:
    """An API server, and the namespace that is meant where none is said.

    `context`, `cluster`, `user` and `server` are names for sentences; `where` is all that a user wants to know
    before something is changed.
    """

    def __init__(
        self, configuration: Any, *, context: str, cluster: str, user: str, namespace: str, chosen: bool = False
    ) -> None:
        from kubernetes.client.rest import RESTClientObject

        self.context, self.cluster, self.user, self.namespace = context, cluster, user, namespace
        self._chosen = chosen  # the context is not the kubeconfig's current one, or need not be
        self.server: str = configuration.host
        self._configuration = configuration
        # The kubernetes package sets up TLS, proxies and client certificates; requests go to its pool of connections.
        self._pool: urllib3.PoolManager = RESTClientObject(configuration).pool_manager

    @property
    def name(self) -> str:
        """The cluster in a sentence."""
        return f"the cluster {self.cluster}" if self.cluster == self.context else f"the context {self.context}"

    @property
    def where(self) -> str:
        """Cluster, context and namespace, as they are named before anything is changed."""
        return f"cluster {self.cluster}, context {self.context}, namespace {self.namespace}"

    @property
    def option(self) -> str:
        """What another command needs behind a name to find it here: " --context lab -n research"."""
        return (f" --context {self.context}" if self._chosen else "") + f" -n {self.namespace}"

    # --- objects ---

    def get(self, kind: Kind, name: str, namespace: str | None = None) -> Object | None:
        """The object, or None where there is none of that name."""
        try:
            return self._json("GET", f"{self._path(kind, namespace)}/{_part(name)}")
        except (NotThere, NoNamespace):
            return None

    def list(
        self,
        kind: Kind,
        namespace: str | None = None,
        *,
        labels: str = "",
        fields: str = "",
        all_namespaces: bool = False,
    ) -> Objects:
        """The objects of a kind, with label and field selectors as kubectl takes them; each names its own kind."""
        path = kind.path(None) if all_namespaces else self._path(kind, namespace)
        query = {"limit": str(_PAGE), "labelSelector": labels, "fieldSelector": fields}
        items: Objects = []
        while True:
            page = self._json("GET", path, query={key: value for key, value in query.items() if value})
            # The items of a list do not say what they are.
            items += [{"apiVersion": kind.api_version, "kind": kind.kind, **item} for item in page.get("items") or []]
            token = (page.get("metadata") or {}).get("continue")
            if not token:
                return items
            query["continue"] = token

    def create(self, obj: Object, *, dry_run: bool = False) -> Object:
        """Create the object, in its own namespace or in this one. Raises AlreadyThere."""
        return self._json("POST", self._path_of(obj), query=_dry(dry_run), body=obj)

    def apply(self, obj: Object, *, dry_run: bool = False, force: bool = True) -> Object:
        """Server-side apply as the field manager `slipway`; what comes back is the object as it (would) stand."""
        return self._json(
            "PATCH",
            f"{self._path_of(obj)}/{_part(obj['metadata']['name'])}",
            query={"fieldManager": "slipway", "force": "true" if force else "false", **_dry(dry_run)},
            body=obj,
            content_type="application/apply-patch+yaml",
        )

    def patch(
        self, kind: Kind, name: str, patch: Object, namespace: str | None = None, *, dry_run: bool = False
    ) -> Object:
        """Merge `patch` into the object: maps merge, null removes, all else replaces. With metadata.resourceVersion
        in it, raises Conflict where the object has changed since."""
        path = f"{self._path(kind, namespace)}/{_part(name)}"
        return self._json("PATCH", path, query=_dry(dry_run), body=patch, content_type="application/merge-patch+json")

    def delete(
        self,
        kind: Kind,
        name: str,
        namespace: str | None = None,
        *,
        uid: str | None = None,
        propagation: str = "Background",
    ) -> bool:
        """Delete the object; False where it was not there. With `uid`, only that very object: else Conflict."""
        options: Object = {"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": propagation}
        if uid is not None:
            options["preconditions"] = {"uid": uid}
        try:
            self._json("DELETE", f"{self._path(kind, namespace)}/{_part(name)}", body=options)
        except (NotThere, NoNamespace):
            return False
        return True

    # --- the rest ---

    def logs(
        self,
        pod: str,
        namespace: str | None = None,
        *,
        container: str | None = None,
        follow: bool = False,
        tail: int | None = None,
        since: str | None = None,
        timestamps: bool = False,
        previous: bool = False,
    ) -> Iterator[str]:
        """The lines of a container's log. `since` is RFC 3339; with `timestamps` each line begins with its own.

        Raises Unreachable where a followed log is cut off, or silent for a minute: ask again from the last timestamp.
        A followed log can also be cut off without a word, in the middle of a line, which then is left out.
        """
        query = {
            "container": container or "",
            "follow": "true" if follow else "",
            "tailLines": "" if tail is None else str(tail),
            "sinceTime": since or "",
            "timestamps": "true" if timestamps else "",
            "previous": "true" if previous else "",
        }
        path = f"{POD.path(namespace or self.namespace)}/{_part(pod)}/log"
        response = self.request(
            "GET", path, query={key: value for key, value in query.items() if value}, stream=True, timeout=60.0
        )
        rest = b""
        try:
            for part in response.parts():
                *lines, rest = (rest + part).split(b"\n")
                yield from (line.decode("utf-8", "replace") for line in lines)
        finally:
            response.close()
        if rest and not follow:
            yield rest.decode("utf-8", "replace")

    def proxy_path(
        self, service: str, port: int | str, path: str = "", namespace: str | None = None, scheme: str = "http"
    ) -> str:
        """The path by which the API server hands a request on to a Service."""
        return f"{SERVICE.path(namespace or self.namespace)}/{scheme}:{_part(service)}:{port}/proxy/{path.lstrip('/')}"

    def bearer_token(self) -> str:
        """The token by which this user is known here; "" where a client certificate does that."""
        scheme, _, token = self._credentials().get("authorization", "").partition(" ")
        return token if scheme.lower() == "bearer" else ""

    def can(
        self,
        verb: str,
        resource: str,
        group: str = "",
        namespace: str | None = None,
        *,
        name: str = "",
        subresource: str = "",
    ) -> bool:
        """Whether RBAC lets this user do it; a `namespace` of "" asks for the whole cluster, None for this one."""
        attributes = {
            "verb": verb,
            "resource": resource,
            "group": group,
            "namespace": self.namespace if namespace is None else namespace,
            "name": name,
            "subresource": subresource,
        }
        review = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SelfSubjectAccessReview",
            "spec": {"resourceAttributes": {key: value for key, value in attributes.items() if value}},
        }
        answer = self._json("POST", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", body=review)
        return bool((answer.get("status") or {}).get("allowed"))

    def version(self) -> str:
        """Kubernetes' version, like "v1.36.2"."""
        return str(self._json("GET", "/version").get("gitVersion"))

    def served(self, group: str) -> dict[str, Sequence[str]]:
        """What the cluster serves of an API group: {version: [resources, by their plural names]}; {} without it."""
        try:
            versions = [str(entry["version"]) for entry in self._json("GET", f"/apis/{group}")["versions"]]
        except (NotServed, NotThere):
            return {}
        return {
            version: [str(item["name"]) for item in self._json("GET", f"/apis/{group}/{version}").get("resources", [])]
            for version in versions
        }

    def request(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        stream: bool = False,
        timeout: float | None = None,
        raw: bool = False,
    ) -> Response:
        """One request to the API server. `timeout` (s) is for each wait, of a stream for each part.

        Raises the ClusterError for a status of 400 and more, unless `raw`: then the caller looks at it.
        """
        import urllib3

        url = f"{self.server}{path}" + (f"?{urlencode(query)}" if query else "")
        sent = {
            "User-Agent": "slipway-launcher",
            "Accept": "application/json",
            **self._credentials(),
            **(headers or {}),
        }

        def send() -> urllib3.BaseHTTPResponse:
            return self._pool.request(
                method,
                url,
                body=body,
                headers=sent,
                preload_content=not stream,
                timeout=urllib3.Timeout(connect=_CONNECT_SECONDS, read=timeout or _READ_SECONDS),
                retries=False,
                redirect=False,
            )

        try:
            try:
                answer = send()
            except urllib3.exceptions.ProtocolError:
                # A connection that was idle may be closed by the other side at the moment of use.
                if method not in ("GET", "DELETE"):
                    raise
                answer = send()
            for _ in range(_BUSY_TRIES):
                if answer.status != 429:
                    break
                # Nothing was done: the server is overloaded, or a kind of objects is new to it. It says when to ask.
                wait = answer.headers.get("Retry-After", "")
                answer.close()
                time.sleep(min(float(wait) if wait.isdigit() else 1.0, _BUSY_SECONDS))
                answer = send()
        except (urllib3.exceptions.HTTPError, OSError) as error:
            raise self._unreachable(error) from error
        if answer.status >= 400 and not raw:
            with contextlib.closing(answer):
                data = answer.data or b""
            raise from_status(answer.status, data, where=self.name, method=method, path=path)
        names = {key.lower(): value for key, value in answer.headers.items()}
        return Response(answer.status, names, answer)

    # --- inside ---

    def _json(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: Object | None = None,
        content_type: str = "application/json",
    ) -> Object:
        data = None if body is None else json.dumps(body).encode()
        response = self.request(method, path, query=query, body=data, headers={"Content-Type": content_type})
        return cast(Object, response.json())

    def _path(self, kind: Kind, namespace: str | None) -> str:
        return kind.path(namespace or self.namespace)

    def _path_of(self, obj: Object) -> str:
        kind = kind_of(obj)
        return kind.path(obj["metadata"].get("namespace") or self.namespace)

    def _credentials(self) -> dict[str, str]:
        with _quiet_plugin(self.context):
            settings = self._configuration.auth_settings()
        return {entry["key"]: entry["value"] for entry in settings.values() if entry["value"]}

    def _unreachable(self, error: Exception) -> Unreachable:
        known = re.search(r"certificate verify failed: ([^(]+)", str(error))
        if known:
            return Unreachable(
                f"{self.name[:1].upper()}{self.name[1:]} ({self.server}) shows a certificate that the kubeconfig does "
                f"not vouch for: {known[1].strip()}.",
                "The cluster may have been made anew: get its credentials again. Else somebody is in between.",
            )
        return Unreachable(
            f"The API server of {self.name} ({self.server}) does not answer: {_cause(error)}.",
            "Check the network or VPN, and that this is the cluster you mean: kubectl config current-context.",
        )


def _part(name: str) -> str:
    """A name as one part of a path, whatever is in it. Raises ValueError for an empty one, which asks for all."""
    if not name:
        raise ValueError("an object's name is empty")
    return quote(name, safe="")


_KINDS = {kind.kind: kind for kind in list(globals().values()) if isinstance(kind, Kind)}


def kind_of(obj: Object) -> Kind:
    """Where an object belongs; for a kind that this module does not name, by Kubernetes' own rule for plurals."""
    name, version = str(obj["kind"]), str(obj["apiVersion"])
    known = _KINDS.get(name)
    if known is not None and known.api_version == version:
        return known
    lower = name.lower()
    if lower.endswith("y"):
        plural = f"{lower[:-1]}ies"
    else:
        plural = f"{lower}es" if lower.endswith(("s", "x", "ch", "sh")) else f"{lower}s"
    return Kind(name, version, plural, namespaced=name not in _CLUSTER_WIDE)


# Of the kinds that the charts render and that have no constant above.
_CLUSTER_WIDE = {
    "ClusterRole",
    "ClusterRoleBinding",
    "PriorityClass",
    "ProvisioningRequestConfig",
    "ValidatingAdmissionPolicy",
    "ValidatingAdmissionPolicyBinding",
}


def _dry(dry_run: bool) -> dict[str, str]:
    return {"dryRun": "All"} if dry_run else {}


def _in_cluster(configuration: Any, context: str | None, namespace: str | None) -> Cluster:
    if context is not None or "KUBERNETES_SERVICE_HOST" not in os.environ:
        given = os.environ.get("KUBECONFIG")
        missing = f"KUBECONFIG names {given}, which is not there" if given else "There is no ~/.kube/config"
        raise LauncherError(
            f"{missing}, so there is no cluster to speak to.",
            "On GKE: gcloud container clusters get-credentials NAME. For this machine: --set run.kind=local.",
        )
    from kubernetes.config.config_exception import ConfigException
    from kubernetes.config.incluster_config import load_incluster_config

    try:
        load_incluster_config(configuration)
        inside = (_SERVICE_ACCOUNT / "namespace").read_text(encoding="utf-8").strip()
    except (ConfigException, OSError) as error:
        raise LauncherError(f"This pod's service account cannot be used: {error}.") from error
    return Cluster(
        configuration, context="in-cluster", cluster="in-cluster", user="", namespace=namespace or inside or "default"
    )


def _check_context(kubeconfig: Mapping[str, Any], context: str | None, where: str) -> None:
    """Raise LauncherError where the kubeconfig has no such context, or none that is current."""
    names = [str(entry["name"]) for entry in kubeconfig.get("contexts") or []]
    if context is None and not kubeconfig.get("current-context"):
        raise LauncherError(
            f"{where} names no current context.",
            "Choose one with --context, or set it: kubectl config use-context NAME.",
        )
    context = context or str(kubeconfig["current-context"])
    if context in names:
        return
    from difflib import get_close_matches

    near = get_close_matches(context, names, n=1)
    guess = f'did you mean "{near[0]}"?' if near else f"it has {', '.join(names) or 'none'}."
    raise LauncherError(f'{where} has no context "{context}"; {guess}', "kubectl config get-contexts lists them.")


@contextlib.contextmanager
def _quiet_plugin(where: str) -> Iterator[None]:
    """What a credential plugin (gke-gcloud-auth-plugin) says on failing, as an error; the package only logs it."""
    import logging

    said: list[str] = []

    class Collect(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            said.append(record.getMessage())

    root, handler = logging.getLogger(), Collect(logging.ERROR)
    root.addHandler(handler)
    try:
        yield
    finally:
        root.removeHandler(handler)
    if said:
        raise LoginFailed(
            f"The credential plugin of {where} failed: {_plugin_cause(said[-1])}.",
            "On GKE: gcloud components install gke-gcloud-auth-plugin, then gcloud auth login.",
        )


def _plugin_cause(text: str) -> str:
    missing = re.search(r"No such file or directory: '([^']+)'", text)
    return f"{missing[1]} is not installed" if missing else " ".join(text.split()).rstrip(".")


def _cause(error: BaseException) -> str:
    """The plain words of what urllib3 wraps."""
    inner: BaseException | None = getattr(error, "reason", None) if not isinstance(error, OSError) else error
    if isinstance(inner, BaseException) and inner is not error:
        return _cause(inner)
    kind = type(error).__name__
    if kind in ("ConnectTimeoutError", "ReadTimeoutError", "TimeoutError"):
        return "no answer in time"
    if kind == "NameResolutionError":
        return "its name cannot be resolved"
    if kind == "SSLError":
        return f"its certificate is not accepted ({' '.join(str(error).split())})"
    text = " ".join(str(error).split())
    for known in ("Connection refused", "No route to host", "Network is unreachable", "Connection reset by peer"):
        if known in text:
            return known[0].lower() + known[1:]
    return text.rpartition(": ")[2] or kind
