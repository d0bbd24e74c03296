"""Upstream's CRDs, from ../shared/crds."""

from __future__ import annotations

import concurrent.futures
import json
import time
from pathlib import Path
from typing import Any

import yaml

from tests.charts import schemas
from tests.cluster.api import Api, ApiError
from tests.tools.go_tools import cached

DEFAULTS = {"kueue": "0.19.2", "jobset": "0.12.0", "kuberay": "1.7.0"}
# Slipway does not use this kind, and the API server needs two seconds for it.
UNUSED = {"ray.io_raycronjobs.yaml"}
PATH = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


def install(api: Api, versions: dict[str, str] | None = None) -> None:
    """Install the CRDs of these versions (by default those in DEFAULTS), and wait until they are served."""
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


def _read(file: Path) -> list[dict[str, Any]]:
    """The CRDs in a file, without descriptions, and without the webhooks, which only their controllers serve.

    The result is cached, because parsing a megabyte of YAML takes half a second.
    """
    text = file.read_bytes()
    kept = cached(b"\0".join((text, Path(__file__).read_bytes())), "crds.json", lambda path: _write(path, text))
    found: list[dict[str, Any]] = json.loads(kept.read_text())
    return found


def _write(path: Path, text: bytes) -> None:
    found = [crd for crd in yaml.load_all(text, yaml.CSafeLoader) if crd]
    for crd in found:
        crd["spec"].pop("conversion", None)
        crd.pop("status", None)
    draft = path.with_suffix(".new")
    draft.write_text(json.dumps(_without_descriptions(found)))
    draft.rename(path)


def _without_descriptions(tree: Any) -> Any:
    """A schema without its descriptions. They are two thirds of a CRD, and the API server publishes them repeatedly."""
    if isinstance(tree, dict):
        return {
            key: _without_descriptions(value)
            for key, value in tree.items()
            if key != "description" or not isinstance(value, str)  # a field can have that name, too
        }
    return [_without_descriptions(each) for each in tree] if isinstance(tree, list) else tree


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
