"""Upstream's CRDs, from ../shared/crds."""

from __future__ import annotations

import concurrent.futures
import functools
import time
from pathlib import Path
from typing import Any

import yaml

from tests.charts import schemas
from tests.cluster.api import Api, ApiError

DEFAULTS = {"kueue": "0.19.2", "jobset": "0.12.0", "kuberay": "1.7.0"}
# Slipway has no use for these, and each costs the API server two seconds.
UNUSED = {"ray.io_rayservices.yaml", "ray.io_raycronjobs.yaml"}
PATH = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


def install(api: Api, versions: dict[str, str] | None = None) -> None:
    """The CRDs of these versions (DEFAULTS where not given), served when this returns."""
    assert set(versions or {}) <= set(DEFAULTS), f"no such project: {versions}"
    folders = [
        schemas.shared() / "crds" / f"{project}-v{version}"
        for project, version in {**DEFAULTS, **(versions or {})}.items()
    ]
    files = [file for folder in folders for file in sorted(folder.glob("*.yaml")) if file.name not in UNUSED]
    wanted = [crd for file in files for crd in _read(file)]
    assert wanted, f"no CRDs in {folders}"
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda crd: _put(api, crd), wanted))
    names = {crd["metadata"]["name"] for crd in wanted}
    deadline = time.monotonic() + 120
    while missing := names - _served(api):
        assert time.monotonic() < deadline, f"these CRDs are not served: {sorted(missing)}"
        time.sleep(0.1)
    wait_readable(api)


def wait_readable(api: Api) -> None:
    """Returns once the objects of every custom kind can be read; until then the answer is "come back later" (429)."""
    for crd in api.items(PATH):
        spec = crd["spec"]
        version = next(version["name"] for version in spec["versions"] if version["storage"])
        api.get(f"/apis/{spec['group']}/{version}/{spec['names']['plural']}?limit=1")


@functools.cache
def _read(file: Path) -> list[dict[str, Any]]:
    """The CRDs in a file, without the conversion webhooks that their controllers would serve."""
    found = [crd for crd in yaml.load_all(file.read_bytes(), yaml.CSafeLoader) if crd]
    for crd in found:
        crd["spec"].pop("conversion", None)
        crd.pop("status", None)
    return found


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


def _served(api: Api) -> set[str]:
    return {
        crd["metadata"]["name"]
        for crd in api.items(PATH)
        if any(
            c["type"] == "Established" and c["status"] == "True" for c in crd.get("status", {}).get("conditions") or ()
        )
    }
