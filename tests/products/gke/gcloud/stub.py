"""A server on loopback for the APIs that gcloud calls. Its state is in memory.

    with Stub(World(reservations={"res": Reservation("us-east5-b", "ct6e-standard-4t", 16)})) as stub:
        run(["container", "clusters", "list", "--project=demo"], environment(stub, folder))
        stub.gke.clusters, stub.log, stub.changes()

The real gcloud works with it: `harness.environment` has the variables.
"""

from __future__ import annotations

import email
import email.policy
import http.server
import json
import re
import threading
import urllib.parse
from collections.abc import Callable
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self

from tests.products.gke.gcloud.gke import Gke, Place
from tests.products.gke.gcloud.services import Buckets, Compute, Policies, Repositories
from tests.products.gke.gcloud.world import Object, Refusal, World, not_found

# The part of a query that decides what a request does. The rest selects what the answer shows.
KEPT = ("repositoryId", "project", "updateMask")
READS = ("GET", "HEAD")
READING_POSTS = (":getIamPolicy", ":testIamPermissions", "/batch/compute/v1")


@dataclass(frozen=True)
class Request:
    """A request as the stub got it. `path` has only the part of the query that decides what the request does."""

    method: str
    path: str
    body: Any = None

    @property
    def changes(self) -> bool:
        """Whether it changes something, if it is accepted."""
        return self.method not in READS and not self.path.endswith(READING_POSTS)

    def as_json(self) -> Object:
        return {"method": self.method, "path": self.path, "body": self.body}


@dataclass(frozen=True)
class Fault:
    """A failure at the `at`-th changing request, from 1; if `lasting`, at all later ones too.

    operation: GKE accepts the request, and the operation ends with the error. Otherwise the request is refused with
    `code` and changes nothing. Real gcloud repeats requests after the codes 429 and 5xx, for more than a minute.
    """

    at: int
    message: str = "Permission denied by the test."
    code: int = 403
    status: str = "PERMISSION_DENIED"
    operation: bool = False
    lasting: bool = False

    def hits(self, number: int) -> bool:
        return number == self.at or (self.lasting and number > self.at)


@dataclass
class Stub:
    """The server. Use it as a context manager.

    log: all requests in order. fault: a failure to inject. after: called with the number of each changing request,
    from 1, when it has been accepted and before its answer is sent; a test can kill the client there.
    """

    world: World = field(default_factory=World)
    fault: Fault | None = None
    after: Callable[[int, Request], None] | None = None
    log: list[Request] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.gke = Gke(self.world)
        self.policies = Policies(self.world)
        self.buckets = Buckets(self.world, self.policies)
        self.repositories = Repositories(self.world, self.policies)
        self.compute = Compute(self.world)
        self.services: set[str] = set()
        self._lock = threading.RLock()
        self._server = _Server(("127.0.0.1", 0), _Handler)
        self._server.stub = self
        self.url = f"http://127.0.0.1:{self._server.server_port}/"

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._server.shutdown()
        self._server.server_close()

    def changes(self) -> list[Request]:
        """The requests that changed something or were refused, in order."""
        return [request for request in self.log if request.changes]

    def answer(self, method: str, target: str, body: Any) -> tuple[int, Any]:
        """The code and the JSON of the answer to one request. `target` is the path with its query."""
        path, _, query = target.partition("?")
        path = "/" + path.lstrip("/")
        asked = {key: value for key, value in urllib.parse.parse_qsl(query) if key in KEPT}
        request = Request(method, path + (f"?{urllib.parse.urlencode(asked)}" if asked else ""), body)
        with self._lock:
            self.log.append(request)
            self.gke.settle()
            try:
                if request.changes:
                    self._inject(len(self.changes()))
                answer = self._route(method, urllib.parse.unquote(path), asked, body or {})
            except Refusal as refusal:
                return refusal.code, refusal.body()
            if request.changes and self.after is not None:
                self.after(len(self.changes()), request)
            return 200, json.loads(json.dumps(answer))

    def _inject(self, number: int) -> None:
        if self.fault is None or not self.fault.hits(number):
            return
        if not self.fault.operation:
            raise Refusal(self.fault.code, self.fault.status, self.fault.message)
        self.gke.break_next = self.fault.message

    def _route(self, method: str, path: str, query: dict[str, str], body: Object) -> Any:
        if path.startswith("/compute/") and not self.world.permissive and "compute.googleapis.com" not in self.services:
            message = f"Compute Engine API has not been used in project {self.world.project} before or it is disabled."
            raise Refusal(403, "PERMISSION_DENIED", message)
        for verb, pattern, handler in ROUTES:
            if verb == method and (match := pattern.fullmatch(path)):
                return handler(self, Found(match.groupdict(), query, body))
        # Not 501, the usual code: gcloud repeats requests after it.
        raise Refusal(400, "UNIMPLEMENTED", f"The stub of Google's APIs does not know {method} {path}.")


@dataclass(frozen=True)
class Found:
    """A request whose path matches a route. `parts` are the named groups of its pattern."""

    parts: dict[str, str]
    query: dict[str, str]
    body: Object

    def __getitem__(self, name: str) -> str:
        return self.parts[name]

    @property
    def at(self) -> Place:
        return Place(**{name: text for name, text in self.parts.items() if name in Place._fields and text})


Handler = Callable[[Stub, Found], Any]
ROUTES: list[tuple[str, re.Pattern[str], Handler]] = []


def _on(method: str, pattern: str, handler: Handler) -> None:
    """Add a route. {name} in the pattern is one part of the path, {name*} is the rest of it."""
    pattern = re.sub(r"\{(\w+)\*\}", r"(?P<\1>.+)", pattern)
    ROUTES.append((method, re.compile(re.sub(r"\{(\w+)\}", r"(?P<\1>[^/:]+)", pattern)), handler))


def _create_cluster(stub: Stub, found: Found) -> Object:
    operation = stub.gke.create_cluster(found.at, found.body)
    pool = found.body["cluster"].get("workloadIdentityConfig", {}).get("workloadPool")
    if pool or found.body["cluster"].get("autopilot"):
        stub.policies.pools.add(pool or f"{stub.world.project}.svc.id.goog")
    return operation


def _enable(stub: Stub, names: list[str]) -> Object:
    stub.services.update(names)
    return {"name": "operations/enabled", "done": True, "response": {}}


def _service(stub: Stub, name: str) -> Object:
    state = "ENABLED" if name in stub.services else "DISABLED"
    return {"name": f"projects/{stub.world.number}/services/{name}", "config": {"name": name}, "state": state}


def _project(stub: Stub, name: str) -> Object:
    if name != stub.world.project and not stub.world.permissive:
        raise not_found(f"projects/{name}")
    return {"projectId": name, "projectNumber": stub.world.number, "name": name, "lifecycleState": "ACTIVE"}


def _repository_policy(stub: Stub, name: str, policy: Object | None = None) -> Object:
    stub.repositories.get(name)
    return stub.policies.get(name) if policy is None else stub.policies.set(name, policy)


def _account_policy(stub: Stub, email: str, policy: Object | None = None) -> Object:
    stub.policies.get_account(email)
    return stub.policies.get(email) if policy is None else stub.policies.set(email, policy)


def _bucket_policy(stub: Stub, name: str, policy: Object | None = None) -> Object:
    stub.buckets.get(name)
    return stub.policies.get(f"b/{name}") if policy is None else stub.policies.set(f"b/{name}", policy)


PLACE = "/(?P<version>v1|v1beta1)/projects/{project}/(?:locations|zones)/{location}"
CLUSTER = PLACE + "/clusters/{cluster}"
POOL = CLUSTER + "/nodePools/{pool}"
_on("GET", PLACE + "/serverConfig", lambda stub, it: stub.gke.server_config(it.at))
_on("GET", PLACE + "/operations/(?P<name>operation-\\d+)", lambda stub, it: stub.gke.get_operation(it["name"]))
_on("GET", PLACE + "/clusters", lambda stub, it: stub.gke.list_clusters(it.at))
_on("POST", PLACE + "/clusters", _create_cluster)
_on("GET", CLUSTER, lambda stub, it: stub.gke.get_cluster(it.at))
_on("PUT", CLUSTER, lambda stub, it: stub.gke.update_cluster(it.at, it.body))
_on("DELETE", CLUSTER, lambda stub, it: stub.gke.delete_cluster(it.at))
_on("POST", CLUSTER + ":setResourceLabels", lambda stub, it: stub.gke.set_labels(it.at, it.body))
_on("POST", CLUSTER + ":setMaintenancePolicy", lambda stub, it: stub.gke.set_maintenance(it.at, it.body))
_on("GET", CLUSTER + "/nodePools", lambda stub, it: stub.gke.list_pools(it.at))
_on("POST", CLUSTER + "/nodePools", lambda stub, it: stub.gke.create_pool(it.at, it.body))
_on("GET", POOL, lambda stub, it: stub.gke.get_pool(it.at))
_on("PUT", POOL, lambda stub, it: stub.gke.update_pool(it.at, it.body))
_on("DELETE", POOL, lambda stub, it: stub.gke.delete_pool(it.at))
_on("POST", POOL + ":setSize", lambda stub, it: stub.gke.set_pool_size(it.at, it.body))
_on("POST", POOL + ":setAutoscaling", lambda stub, it: stub.gke.set_pool_autoscaling(it.at, it.body))
_on("POST", POOL + ":setManagement", lambda stub, it: stub.gke.set_pool_management(it.at, it.body))

PROJECT = "/v1/projects/{project}"
_on("GET", PROJECT, lambda stub, it: _project(stub, it["project"]))
_on("POST", PROJECT + ":getIamPolicy", lambda stub, it: stub.policies.get("project"))
_on("POST", PROJECT + ":setIamPolicy", lambda stub, it: stub.policies.set("project", it.body["policy"]))
_on("GET", PROJECT + "/services", lambda stub, it: {"services": [_service(stub, n) for n in sorted(stub.services)]})
_on("GET", PROJECT + "/services/{name}", lambda stub, it: _service(stub, it["name"]))
_on("GET", "/v1/operations/enabled", lambda stub, it: {"name": "operations/enabled", "done": True, "response": {}})
_on("POST", PROJECT + "/services:batchEnable", lambda stub, it: _enable(stub, it.body["serviceIds"]))
_on("POST", PROJECT + "/services/{name}:enable", lambda stub, it: _enable(stub, [it["name"]]))

ACCOUNT = PROJECT + "/serviceAccounts/{email}"
_on("GET", PROJECT + "/serviceAccounts", lambda stub, it: stub.policies.list_accounts())
_on("POST", PROJECT + "/serviceAccounts", lambda stub, it: stub.policies.create_account(it.body))
_on("GET", ACCOUNT, lambda stub, it: stub.policies.get_account(it["email"]))
_on("DELETE", ACCOUNT, lambda stub, it: stub.policies.delete_account(it["email"]))
_on("POST", ACCOUNT + ":getIamPolicy", lambda stub, it: _account_policy(stub, it["email"]))
_on("POST", ACCOUNT + ":setIamPolicy", lambda stub, it: _account_policy(stub, it["email"], it.body["policy"]))

PARENT = "(?P<parent>projects/[^/]+/locations/[^/]+)"
NAME = "(?P<name>projects/[^/]+/locations/[^/]+/repositories/[^/:]+)"
_on("GET", f"/v1/{PARENT}/repositories", lambda stub, it: stub.repositories.list(it["parent"]))
_on(
    "POST",
    f"/v1/{PARENT}/repositories",
    lambda stub, it: stub.repositories.create(f"{it['parent']}/repositories/{it.query['repositoryId']}", it.body),
)
_on("GET", f"/v1/{NAME}", lambda stub, it: stub.repositories.get(it["name"]))
_on("PATCH", f"/v1/{NAME}", lambda stub, it: stub.repositories.update(it["name"], it.body))
_on("DELETE", f"/v1/{NAME}", lambda stub, it: stub.repositories.delete(it["name"]))
_on("GET", f"/v1/{NAME}:getIamPolicy", lambda stub, it: _repository_policy(stub, it["name"]))
_on("POST", f"/v1/{NAME}:setIamPolicy", lambda stub, it: _repository_policy(stub, it["name"], it.body["policy"]))
_on("GET", f"/v1/{PARENT}/operations/{{name}}", lambda stub, it: {"name": it["name"], "done": True, "response": {}})

BUCKET = "/storage/v1/b/{bucket}"
_on("POST", "/storage/v1/b", lambda stub, it: stub.buckets.create(it.body))
_on("GET", "/storage/v1/b", lambda stub, it: stub.buckets.list())
_on("GET", BUCKET, lambda stub, it: stub.buckets.get(it["bucket"]))
_on("PATCH", BUCKET, lambda stub, it: stub.buckets.update(it["bucket"], it.body))
_on("DELETE", BUCKET, lambda stub, it: stub.buckets.delete(it["bucket"]))
_on("GET", BUCKET + "/iam", lambda stub, it: _bucket_policy(stub, it["bucket"]))
_on("PUT", BUCKET + "/iam", lambda stub, it: _bucket_policy(stub, it["bucket"], it.body))
_on("GET", BUCKET + "/o", lambda stub, it: stub.buckets.list_objects(it["bucket"]))
_on("DELETE", BUCKET + "/o/{item*}", lambda stub, it: stub.buckets.delete_object(it["bucket"], it["item"]))
_on("GET", BUCKET + "/(?:managedFolders|folders)", lambda stub, it: {"items": []})
_on("GET", BUCKET + "/storageLayout", lambda stub, it: {**stub.buckets.get(it["bucket"]), "bucket": it["bucket"]})

COMPUTE = "/compute/v1/projects/{project}"
_on("GET", COMPUTE + "/aggregated/reservations", lambda stub, it: stub.compute.reservations())
_on("GET", COMPUTE + "/aggregated/machineTypes", lambda stub, it: stub.compute.all_machine_types())
_on(
    "GET",
    COMPUTE + "/zones/{zone}/reservations/{name}",
    lambda stub, it: stub.compute.reservation(it["zone"], it["name"]),
)
_on("GET", COMPUTE + "/zones/{zone}/machineTypes", lambda stub, it: stub.compute.machine_types(it["zone"]))
_on(
    "GET",
    COMPUTE + "/zones/{zone}/machineTypes/{name}",
    lambda stub, it: stub.compute.machine_type(it["zone"], it["name"]),
)
_on("GET", COMPUTE + "/regions/{region}/routers", lambda stub, it: stub.compute.routers(it["region"]))
_on("POST", COMPUTE + "/regions/{region}/routers", lambda stub, it: stub.compute.create_router(it["region"], it.body))
ROUTER = COMPUTE + "/regions/{region}/routers/{name}"
_on("GET", ROUTER, lambda stub, it: stub.compute.made_router(it["region"], it["name"]))
_on("PATCH", ROUTER, lambda stub, it: stub.compute.change_router(it["region"], it["name"], it.body))
_on("DELETE", ROUTER, lambda stub, it: stub.compute.delete_router(it["region"], it["name"]))
OPERATION = COMPUTE + "/regions/{region}/operations/{name}"
_on("GET", OPERATION, lambda stub, it: stub.compute.operation(it["region"], it["name"]))
_on("POST", OPERATION + "/wait", lambda stub, it: stub.compute.operation(it["region"], it["name"]))
_on("GET", COMPUTE + "/regions/{region}", lambda stub, it: stub.compute.region(it["region"]))
_on("GET", COMPUTE + "/global/networks/{name}", lambda stub, it: stub.compute.network("network", it["name"]))
_on(
    "GET",
    COMPUTE + "/regions/{region}/subnetworks/{name}",
    lambda stub, it: stub.compute.network("subnetwork", it["name"]),
)


class _Server(http.server.ThreadingHTTPServer):
    daemon_threads = True
    stub: Stub


class _Handler(http.server.BaseHTTPRequestHandler):
    server: _Server
    protocol_version = "HTTP/1.1"

    def _answer(self) -> None:
        raw = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        kind = self.headers.get("Content-Type", "")
        if kind.startswith("multipart/mixed"):
            code, kind, text = 200, "multipart/mixed; boundary=part", _batch(self.server.stub, kind, raw)
        else:
            code, answer = self.server.stub.answer(self.command, self.path, json.loads(raw) if raw.strip() else None)
            kind, text = "application/json", json.dumps(answer)
        data = text.encode()
        self.send_response(code)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = _answer  # noqa: N815

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        """Write nothing."""


def _batch(stub: Stub, kind: str, raw: bytes) -> str:
    """The answer to several requests in one, which gcloud sends to Compute."""
    whole = email.message_from_bytes(f"Content-Type: {kind}\r\n\r\n".encode() + raw, policy=email.policy.HTTP)
    answers = []
    for part in whole.iter_parts():
        first, _, rest = str(part.get_payload()).partition("\n")
        method, target, _ = first.split()
        sent = rest.replace("\r\n", "\n").partition("\n\n")[2].strip()
        code, answer = stub.answer(method, target, json.loads(sent) if sent else None)
        number = part["Content-ID"].removeprefix("<")
        head = f"--part\r\nContent-Type: application/http\r\nContent-ID: <response-{number}\r\n\r\n"
        answers.append(f"{head}HTTP/1.1 {code} X\r\nContent-Type: application/json\r\n\r\n{json.dumps(answer)}\r\n")
    return "".join(answers) + "--part--\r\n"
