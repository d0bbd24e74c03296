"""Installs upstream's CRDs (tests/upstream)."""

from __future__ import annotations

import concurrent.futures
import time
from typing import Any

from tests import upstream
from tests.cluster.api import Api, ApiError

DEFAULTS = {"kueue": "0.19.2", "jobset": "0.12.0", "kuberay": "1.7.0"}
# Slipway does not use this kind, and the API server needs two seconds for it.
UNUSED = {"raycronjobs.ray.io"}
PATH = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


def install(api: Api, versions: dict[str, str] | None = None) -> None:
    """Install the CRDs of these versions (by default those in DEFAULTS), and wait until they are served."""
    assert set(versions or {}) <= set(DEFAULTS), f"no such project: {versions}"
    wanted = [
        crd
        for project, version in {**DEFAULTS, **(versions or {})}.items()
        for crd in upstream.crds(project, version)
        if crd["metadata"]["name"] not in UNUSED
    ]
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda crd: _put(api, crd), wanted))
    deadline = time.monotonic() + 120
    for path in map(_collection, wanted):
        # The API server accepts the CRD first, and serves the kind with a delay. Until then, the path is not found.
        while api.find(path) is None:
            assert time.monotonic() < deadline, f"{path} is not served"
            time.sleep(0.05)


def wait_readable(api: Api) -> None:
    """Wait until the objects of all custom kinds can be read. Until then, the API server returns 429."""
    for crd in api.items(PATH):
        api.get(_collection(crd))


def _collection(crd: dict[str, Any]) -> str:
    """The path of the kind's objects, limited to one, so that the answer is small."""
    spec = crd["spec"]
    version = next(version["name"] for version in spec["versions"] if version["storage"])
    return f"/apis/{spec['group']}/{version}/{spec['names']['plural']}?limit=1"


def _put(api: Api, crd: dict[str, Any]) -> None:
    path = f"{PATH}/{crd['metadata']['name']}"
    try:
        api.create(crd)
    except ApiError as error:
        if error.status != 409:
            raise
        old = api.get(path)
        api.request(
            "PUT", path, {**crd, "metadata": {**crd["metadata"], "resourceVersion": old["metadata"]["resourceVersion"]}}
        )
