"""The Kubernetes client: operations on objects of an API server. Objects are plain JSON data.

launcher.k8s.kubeconfig chooses the API server, and launcher.k8s.http sends the requests. A request that the API
server refuses raises a launcher.k8s.errors.ClusterError with a sentence.
"""

from __future__ import annotations

import copy
import dataclasses
import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import quote

from launcher.k8s import kubeconfig, list_pages
from launcher.k8s.errors import AlreadyExists as AlreadyExists
from launcher.k8s.errors import ClusterError as ClusterError
from launcher.k8s.errors import Conflict as Conflict
from launcher.k8s.errors import Forbidden as Forbidden
from launcher.k8s.errors import KindNotServed as KindNotServed
from launcher.k8s.errors import NoNamespace as NoNamespace
from launcher.k8s.errors import NotFound, UnreadableObject
from launcher.k8s.errors import Unreachable as Unreachable
from launcher.k8s.http import Connection
from launcher.k8s.http import Response as Response
from launcher.k8s.objects import Manifest, drop
from launcher.k8s.shapes import OTHER, SHAPES, checker, fault

if TYPE_CHECKING:
    from launcher.k8s.kubeconfig import Access


"""A Kubernetes object as JSON data."""
Objects = list[Manifest]

# Maximum number of objects in one answer. Larger lists are paged, so that neither side holds all of a list at once. The
# API server has the first page in its cache. It may decode each later page again, which takes 1 s for 500 runs.
_PAGE = 2000

# Seconds before each further attempt of a create that conflicts in a ResourceQuota.
_WAITS_FOR_QUOTA = (0.2, 0.5, 1.0, 2.0)


class Kind(NamedTuple):
    """A kind of object and its path on the API server."""

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
RAY_SERVICE = Kind("RayService", "ray.io/v1", "rayservices")
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


def connect(context: str | None = None, namespace: str | None = None) -> Cluster:
    """Return the cluster of the context, chosen as kubectl chooses it. Makes no request.

    Raises LauncherError if the kubeconfig or the context does not exist, or if the kubeconfig cannot be read.
    """

    return Cluster(kubeconfig.load(context, namespace))


def lacks_namespace(cluster: Cluster) -> bool:
    """Return whether the cluster's default namespace does not exist; False if the user may not read it."""
    try:
        return cluster.get(NAMESPACE, cluster.namespace) is None
    except ClusterError:
        return False


class Cluster(Connection):
    """An API server and a default namespace.

    `context`, `cluster`, `user` and `server` are names for messages. `where` identifies the target of a change.
    `unreadable` has a sentence for each object that `list` left out; its values are not used.
    """

    def __init__(self, access: Access) -> None:
        super().__init__(access)
        self.context, self.cluster, self.user = access.context, access.cluster, access.user
        self.namespace, self.server, self.name = access.namespace, access.server, access.name
        self.unreadable: dict[str, None] = {}

    @property
    def description(self) -> str:
        """Cluster, context and namespace, as printed before anything is changed."""
        return f"cluster {self.cluster}, context {self.context}, namespace {self.namespace}"

    @property
    def cli_args(self) -> str:
        """The options with which another command finds an object here, such as " --context lab -n research"."""
        return (f" --context {self.context}" if self.access.chosen else "") + f" -n {self.namespace}"

    def in_namespace(self, namespace: str) -> Cluster:
        """Return the same cluster with another default namespace. Both share connections and credentials."""
        other = copy.copy(self)
        other.access = dataclasses.replace(self.access, namespace=namespace)
        other.namespace = namespace
        return other

    # --- objects ---

    def get(self, kind: Kind, name: str, namespace: str | None = None) -> Manifest | None:
        """Return the object, or None if it does not exist. Raises UnreadableObject if a field has a wrong type."""
        obj = self.get_unchecked(kind, name, namespace)
        error = _unreadable(obj, kind, f"{kind.kind} {namespace or self.namespace}/{name}") if obj is not None else None
        if error is not None:
            raise error
        return obj

    def get_unchecked(self, kind: Kind, name: str, namespace: str | None = None) -> Manifest | None:
        """Return the same, with fields of any types, to compare or delete the object."""
        try:
            obj = self._json("GET", f"{self._path(kind, namespace)}/{_part(name)}")
        except (NotFound, NoNamespace):
            return None
        return {**obj, "apiVersion": kind.api_version, "kind": kind.kind}

    def list(
        self,
        kind: Kind,
        namespace: str | None = None,
        *,
        labels: str = "",
        fields: str = "",
        all_namespaces: bool = False,
        without: Sequence[str] = (),
    ) -> Objects:
        """Return the objects of a kind, each with its `apiVersion`, `kind` and `spec`. Selectors are as for kubectl.

        An object with a field of a wrong type is left out, and added to `unreadable`. The fields at the paths `without`
        (see objects.drop; separated by dots) are removed, as are the managed fields: of a thousand runs, the templates
        of their pods use 200 MB. With `without`, an object above such a field has only the keys in launcher.k8s.shapes.
        """
        path = kind.path(None) if all_namespaces else self._path(kind, namespace)
        query = {"limit": str(_PAGE), "labelSelector": labels, "fieldSelector": fields}
        items: Objects = []
        spec_required = "spec!" in SHAPES.get(kind.kind, OTHER)
        unused = ("metadata.managedFields", *without)
        paths = [path.split(".") for path in unused]
        while True:
            response = self.request("GET", path, query={key: value for key, value in query.items() if value})
            skipped = list_pages.parse(response.data, kind.kind, unused) if without else None
            page = response.json_object() if skipped is None else skipped
            listed, meta = page.get("items") or [], page.get("metadata") or {}
            for number, item in enumerate(listed if isinstance(listed, list) else [listed], start=len(items)):
                # The items of a list have no apiVersion and kind.
                obj = {**item, "apiVersion": kind.api_version, "kind": kind.kind} if isinstance(item, dict) else {}
                for field in paths if skipped is None else ():
                    drop(obj, field)
                if obj.get("spec") is None and not spec_required:  # the schemas of queues and flavors require none
                    obj["spec"] = {}
                if error := _unreadable(obj, kind, f"{kind.kind} {number} of the list"):
                    self.unreadable[error.message] = None
                else:
                    items.append(obj)
            token = meta.get("continue") if isinstance(meta, dict) else None
            if not token or not isinstance(token, str):
                return items
            query["continue"] = token

    def count(self, kind: Kind) -> int | None:
        """Return the number of objects of a kind in all namespaces; None if the API server does not report it."""
        page = self.request("GET", kind.path(None), query={"limit": "1"}).json_object()
        items, meta = page.get("items") or [], page.get("metadata") or {}
        if not meta.get("continue"):
            return len(items)
        rest = meta.get("remainingItemCount")
        return None if rest is None else len(items) + int(rest)

    def names(self, kind: Kind, namespace: str | None = None) -> set[str]:
        """Return the names of all objects of a kind. The API server sends them as a table, without the objects."""
        accept = {"Accept": "application/json;as=Table;g=meta.k8s.io;v=v1"}
        query = {"includeObject": "None", "limit": str(_PAGE)}
        names: set[str] = set()
        while True:
            page = self.request("GET", self._path(kind, namespace), query=query, headers=accept).json()
            rows, meta = (page.get("rows"), page.get("metadata")) if isinstance(page, dict) else (None, None)
            cells = [row.get("cells") for row in rows or () if isinstance(row, dict)] if isinstance(rows, list) else []
            names |= {str(row[0]) for row in cells if isinstance(row, Sequence) and row}  # the first column is the name
            token = meta.get("continue") if isinstance(meta, dict) else None
            if not token:
                return names
            query["continue"] = str(token)

    def create(self, obj: Manifest, *, dry_run: bool = False, strict: bool = False) -> Manifest:
        """Create the object in its own namespace, or else in the default namespace.

        Raises AlreadyExists if an object with that name exists, and with `strict` Invalid if a field is unknown, which
        the API server would leave out.
        """
        query = _dry(dry_run) | ({"fieldValidation": "Strict"} if strict else {})
        # The API server counts the object in the ResourceQuotas first. If other objects are created at the same time,
        # that can conflict, and nothing is created.
        for wait in _WAITS_FOR_QUOTA:
            try:
                return self._json("POST", self._path_of(obj), query=query, body=obj)
            except Conflict:
                time.sleep(wait)
        return self._json("POST", self._path_of(obj), query=query, body=obj)

    def apply(self, obj: Manifest, *, dry_run: bool = False, force: bool = True) -> Manifest:
        """Apply the object server-side as the field manager `slipway`; return the resulting object."""
        return self._json(
            "PATCH",
            f"{self._path_of(obj)}/{_part(obj['metadata']['name'])}",
            query={"fieldManager": "slipway", "force": "true" if force else "false", **_dry(dry_run)},
            body=obj,
            content_type="application/apply-patch+yaml",
        )

    def patch(
        self, kind: Kind, name: str, patch: Manifest, namespace: str | None = None, *, dry_run: bool = False
    ) -> Manifest:
        """Merge `patch` into the object: maps are merged, null removes a key, any other value replaces.

        If `patch` has metadata.resourceVersion, raises Conflict if the object has changed since that version.
        """
        path = f"{self._path(kind, namespace)}/{_part(name)}"
        return self._json("PATCH", path, query=_dry(dry_run), body=patch, content_type="application/merge-patch+json")

    def delete(
        self,
        kind: Kind,
        name: str,
        namespace: str | None = None,
        *,
        uid: str | None = None,
        version: str | None = None,
        propagation: str = "Background",
    ) -> bool:
        """Delete the object; return False if it does not exist.

        Raises Conflict if its uid is not `uid`, or its resourceVersion is not `version`.
        """
        options: Manifest = {"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": propagation}
        preconditions = {"uid": uid, "resourceVersion": version}
        if given := {key: value for key, value in preconditions.items() if value is not None}:
            options["preconditions"] = given
        try:
            self._json("DELETE", f"{self._path(kind, namespace)}/{_part(name)}", body=options)
        except (NotFound, NoNamespace):
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
        """Yield the lines of a container's log.

        `since` is an RFC 3339 time. With `timestamps`, each line starts with its timestamp.

        Raises Unreachable if a followed log is cut off or silent for a minute; resume from the last timestamp.
        A followed log can also end without an error in the middle of a line. That line is omitted.
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
        """Return whether RBAC allows an operation.

        A `namespace` of "" means the whole cluster, None the default namespace.
        """
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
        status = answer.get("status")
        return isinstance(status, dict) and status.get("allowed") is True

    def version(self) -> str:
        """Return the Kubernetes version, such as "v1.36.2"."""
        return str(self._json("GET", "/version").get("gitVersion"))

    def served(self, group: str) -> dict[str, Sequence[str]]:
        """Return the plural names of the resources that the cluster serves of an API group, by version.

        Returns {} if the group is not served.
        """
        try:
            versions = _names(self._json("GET", f"/apis/{group}").get("versions"), "version")
        except (KindNotServed, NotFound):
            return {}
        return {
            version: _names(self._json("GET", f"/apis/{group}/{version}").get("resources"), "name")
            for version in versions
        }

    def fields(self, kind: Kind, *parents: str) -> dict[str, Any]:
        """Return the fields below spec, and below `parents` in it, from the schema that the cluster publishes.

        Returns {} if the schema cannot be read.
        """
        try:
            document = self._json("GET", f"/openapi/v3/apis/{kind.api_version}")
        except ClusterError:
            return {}
        for schema in document.get("components", {}).get("schemas", {}).values():
            kinds = schema.get("x-kubernetes-group-version-kind") or ()
            if any(each.get("kind") == kind.kind for each in kinds):
                for name in ("spec", *parents):
                    schema = schema.get("properties", {}).get(name, {})
                return dict(schema.get("properties", {}))
        return {}

    # --- inside ---

    def _path(self, kind: Kind, namespace: str | None) -> str:
        return kind.path(namespace or self.namespace)

    def _path_of(self, obj: Manifest) -> str:
        kind = kind_of(obj)
        return kind.path(obj["metadata"].get("namespace") or self.namespace)


def _names(entries: Any, key: str) -> list[str]:
    """Return the text under `key` of each entry that has one."""
    those = entries if isinstance(entries, list) else []
    return [entry[key] for entry in those if isinstance(entry, dict) and isinstance(entry.get(key), str)]


def _part(name: str) -> str:
    """Return a name quoted as one path segment.

    Raises ValueError if it is empty, because that path would address all objects.
    """
    if not name:
        raise ValueError("an object's name is empty")
    return quote(name, safe="")


_KINDS = {kind.kind: kind for kind in list(globals().values()) if isinstance(kind, Kind)}


def kind_of(obj: Manifest) -> Kind:
    """Return the Kind of an object. For a kind without a constant here, apply Kubernetes' rule for plurals."""
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


def _unreadable(obj: Manifest, kind: Kind, place: str) -> UnreadableObject | None:
    """Return the error of an object with a field of a wrong type, or None. `place` describes it if it has no name."""
    if checker(kind.kind)(obj):
        return None
    problem = fault(obj, SHAPES.get(kind.kind, OTHER))
    meta = obj.get("metadata")
    name, space = (meta.get("name"), meta.get("namespace")) if isinstance(meta, dict) else (None, None)
    called, command = place, f"kubectl get {kind.plural} -A -o yaml"
    if isinstance(name, str) and name and isinstance(space, str | None):
        called = f"{kind.kind} {space}/{name}" if space else f"{kind.kind} {name}"
        command = f"kubectl get {kind.plural} {name}{f' -n {space}' if space else ''} -o yaml"
    return UnreadableObject(
        f"The {called} cannot be read: {problem}.",
        f"To show it: {command}. Correct it with the program that wrote it, or delete it.",
    )


# Cluster-scoped kinds that the charts render and that have no constant above.
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
