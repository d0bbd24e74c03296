"""Kueue's own configuration in a cluster: gke.kueueConfig is merged into it, and all other keys stay. Pure functions.

Kueue reads it from a ConfigMap when it starts. Its manifests have the ConfigMap, too, so a new version of Kueue would
reset it.
"""

from __future__ import annotations

import hashlib
import io
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from launcher.errors import LauncherError
from launcher.k8s.objects import Object

NAMESPACE, NAME, FILE = "kueue-system", "kueue-manager-config", "controller_manager_config.yaml"
ANNOTATION = "slipway.dev/kueue-config"
"""The annotation of Kueue's pods with the digest of the configuration that they have read."""


@dataclass(frozen=True)
class Live:
    """Kueue's configuration in the cluster.

    `edited`: whether something else than an apply of Kueue's manifests wrote the text. `read` is the digest of the
    text with which `up` last restarted Kueue, or "".
    """

    text: str = ""
    edited: bool = False
    read: str = ""


def live(config_map: Object | None, deployment: Object | None) -> Live:
    """Return the configuration in Kueue's ConfigMap, with its managed fields, and in the pods of its Deployment."""
    text = str(((config_map or {}).get("data") or {}).get(FILE) or "")
    managers = ((config_map or {}).get("metadata") or {}).get("managedFields") or []
    owners = {
        (each.get("manager"), each.get("operation"))
        for each in managers
        if f"f:{FILE}" in ((each.get("fieldsV1") or {}).get("f:data") or {})
    }
    template = ((deployment or {}).get("spec") or {}).get("template") or {}
    annotations = (template.get("metadata") or {}).get("annotations") or {}
    return Live(text, bool(owners - {("kubectl", "Apply")}), str(annotations.get(ANNOTATION) or ""))


def wanted(keys: Mapping[str, Any], live: Live, *, upgrade: bool) -> str:
    """Return the text that must be applied, or "" if none: with `keys`, and with edits that an upgrade would reset.

    Raises LauncherError if the current text is not a YAML map.
    """
    if not live.text or not (keys or (upgrade and live.edited)):
        return ""
    text = merged(live.text, keys) if keys else live.text
    return text if upgrade or text != live.text or digest(text) != live.read else ""


def merged(text: str, keys: Mapping[str, Any]) -> str:
    """Return the YAML with `keys`, merged as Helm merges values; comments and all other keys stay.

    Returns `text` itself if it has these values already.
    """
    from ruamel.yaml import YAML
    from ruamel.yaml.error import YAMLError

    yaml = YAML()
    yaml.width = 4096
    yaml.preserve_quotes = True
    try:
        tree = yaml.load(text)
    except YAMLError as error:
        raise LauncherError(f"{NAMESPACE}/{NAME} is not valid YAML: {error}") from error
    if not isinstance(tree, dict):
        raise LauncherError(f"{FILE} in {NAMESPACE}/{NAME} must be a map.")
    if not _merge(tree, keys):
        return text
    out = io.StringIO()
    yaml.dump(tree, out)
    return out.getvalue()


def _merge(tree: dict[str, Any], keys: Mapping[str, Any]) -> bool:
    """Merge `keys` into `tree`; return whether this changed it."""
    changed = False
    for key, value in keys.items():
        if isinstance(value, Mapping) and isinstance(tree.get(key), dict):
            changed |= _merge(tree[key], value)
        elif key not in tree or tree[key] != value:
            tree[key] = value
            changed = True
    return changed


def digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def config_map(text: str) -> Object:
    metadata = {"name": NAME, "namespace": NAMESPACE}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {FILE: text}}
