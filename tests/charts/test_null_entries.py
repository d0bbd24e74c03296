"""null removes an entry of a map, or sets an empty default: in Helm 3 and 4, in an umbrella chart, in the launcher."""

from __future__ import annotations

import copy
import json
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from launcher.config.values import files as values
from launcher.helm.client import Helm
from tests.charts.helm import template

CHARTS = Path(__file__).parents[2] / "charts"
Tree = dict[str, Any]

# Values with an entry in every map of charts/run, and so of charts/ray-cluster and charts/serve.
RUN = """
image: {repository: example.com/image, tag: "1"}
slice: {accelerator: v6e, topology: 2x2}
storage: {bucket: a-bucket, sidecarLimits: {cpu: "1"}}
head:
  env: {H: b}
  secretEnv: {T: {name: s, key: s}}
  nodeSelector: {a: b}
  tolerations: {t: {key: t}}
  envFrom: {settings: ConfigMap}
worker:
  env: {A: b}
  secretEnv: {S: {name: s, key: s}}
  envFrom: {settings: ConfigMap}
  nodeSelector: {a: b}
  avoidNodes: {n: "2099-12-05"}
  tolerations: {t: {key: t}}
pods:
  labels: {a: b}
  annotations: {a: b}
  extraVolumes: {v: {emptyDir: {}}}
  extraVolumeMounts: {/v: {name: v}}
  initContainers: {i: {image: i}}
  sidecars: {s: {image: s}}
  lifecycle: {postStart: {exec: {command: [a]}}}
  topologySpreadConstraints: {t: {maxSkew: 1, topologyKey: t, whenUnsatisfiable: ScheduleAnyway}}
  hostAliases: {h: {ip: 10.0.0.8, hostnames: [h]}}
commonLabels: {a: b}
commonAnnotations: {a: b}
cluster:
  labels: {a: b}
"""
TABLE = "common: {accelerators: {v6e: {topologies: {}, machineTypes: {}, hostMemoryGiB: {}, hostCpus: {}}}, prices: {}}"


def base(chart: str) -> Tree:
    """Return values in which every map of the chart has an entry."""
    text = (CHARTS / "queues" / "ci" / "everything-values.yaml").read_text() if chart == "queues" else RUN
    tree: Tree = yaml.safe_load(text)
    tree |= yaml.safe_load(TABLE)
    if chart == "queues":
        amounts = {"cpu": "8", "memory": "8Gi", "resources": {"ephemeral-storage": "1Ti"}}
        tree["cohorts"]["all"]["quota"]["cpu"] = amounts
        tree["priorities"]["normal"]["description"] = "Not the default, which null removes."
    else:
        tree["head"]["pods"], tree["worker"]["pods"] = copy.deepcopy(tree["pods"]), copy.deepcopy(tree["pods"])
    if chart == "run":
        tree |= {"run": {"kind": "ray-job", "name": "a-run"}}
        tree |= {"data": {"mixture": {"a": {"files": ["/a"], "weight": 1}}}}
    if chart == "ray-cluster":
        tree["cluster"]["groups"] = {"more": {"accelerator": "v6e", "topology": "4x4", "count": 1}}
    if chart == "serve":
        tree |= {"serve": {"model": "hf:a/b", "apiKey": {"required": False}}}
    return tree


def maps(chart: str) -> Sequence[tuple[str, ...]]:
    own = [path for path in values.entry_maps(chart) if path != ("cluster", "groups") or chart == "ray-cluster"]
    return [*own, *(("common", *path) for path in values.entry_maps("common"))]


def at(tree: Tree, path: tuple[str, ...]) -> Iterator[Tree]:
    """Yield the maps at the path in the tree; `*` is any key."""
    if not path:
        yield tree
        return
    for key in tree if path[0] == "*" else [path[0]] * (path[0] in tree):
        if isinstance(tree[key], dict):
            yield from at(tree[key], path[1:])


def with_nulls(chart: str) -> Tree:
    """Return the base with null under the key "gone" of every map of entries. Fails if the base lacks a map.

    In an entry whose keys are known, null is under those that can be null and that the entry lacks.
    """
    tree = base(chart)
    for path in sorted(maps(chart), key=len, reverse=True):
        found = list(at(tree, path))
        assert found, f"the base has no {path}"
        schema: Tree = json.loads((CHARTS / chart / "values.schema.json").read_text())
        for part in path:
            schema = schema.get("properties", {}).get(part) or schema.get("additionalProperties") or {}
        known = schema.get("properties", {}).items()
        for each in found:
            for key in [key for key, child in known if "null" in child.get("type", ())] or ["gone"]:
                each.setdefault(key, None)
    return tree


@pytest.mark.parametrize("chart", ["queues", "run", "ray-cluster", "serve"])
def test_null_removes_an_entry_of_every_map(
    helm: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, chart: str
) -> None:
    first, null = tmp_path / "first.yaml", tmp_path / "null.yaml"
    first.write_text(yaml.safe_dump(base(chart)))
    null.write_text(yaml.safe_dump(with_nulls(chart)))
    expected = template(helm, CHARTS / chart, [first])
    assert expected == template(helm, CHARTS / chart, [first, null])

    defaults = values.chart_defaults(chart)
    effective = [values.with_defaults(values.load(files), defaults).tree for files in ([first], [first, null])]
    assert effective[0] == effective[1]
    monkeypatch.setenv("SLIPWAY_HELM", str(helm))
    by_launcher = Helm().manifest(chart, "x", "default", values.load([first, null]).tree)
    assert by_launcher == expected


def emptied(tree: Tree, *, to: Any = None, known: Tree | None = None) -> Tree:
    """Return the keys that are empty in the tree and in `known`, with null, or if `to` is EMPTY with their value."""
    found: Tree = {}
    for key, value in tree.items():
        given = (known or {}).get(key)
        if value in ("", [], {}) and not given:
            found[key] = value if to is EMPTY else to
        elif isinstance(value, dict) and (below := emptied(value, to=to, known=given)):
            found[key] = below
    return found


EMPTY = object()


@pytest.mark.parametrize("chart", ["queues", "run", "ray-cluster", "serve"])
def test_null_is_the_default_of_a_key_that_is_empty_by_default(helm: Path, tmp_path: Path, chart: str) -> None:
    file, key = {"queues": ("defaults.yaml", "values")}.get(chart, ("keys.yaml", "empty"))
    defaults: Tree = yaml.safe_load((CHARTS / chart / "values.yaml").read_text())
    defaults.pop("train", None)
    assert yaml.safe_load((CHARTS / chart / file).read_text())[key] == emptied(defaults, to=EMPTY)

    every = values.read_text(json.dumps(emptied(defaults)).encode(), "nulls")
    assert values.with_defaults(every, values.chart_defaults(chart)).tree == values.chart_defaults(chart).tree

    first, null = tmp_path / "first.yaml", tmp_path / "null.yaml"
    first.write_text(yaml.safe_dump(base(chart)))
    null.write_text(yaml.safe_dump(emptied(defaults, known=base(chart))))
    assert template(helm, CHARTS / chart, [first]) == template(helm, CHARTS / chart, [first, null])


def test_an_overlay_with_null_empties_a_map(helm: Path, tmp_path: Path) -> None:
    first, null = tmp_path / "first.yaml", tmp_path / "null.yaml"
    first.write_text(yaml.safe_dump(base("run")))
    null.write_text("worker: {env: null, tolerations: }\nimage: {digest: ~}\n")
    assert "name: A\n" in template(helm, CHARTS / "run", [first])
    assert "name: A\n" not in template(helm, CHARTS / "run", [first, null])
    tree = values.with_defaults(values.load([first, null]), values.chart_defaults("run")).tree
    assert (tree["worker"]["env"], tree["worker"]["tolerations"], tree["image"]["digest"]) == ({}, {}, "")


def test_an_overlay_removes_a_team_with_its_queue_and_flavor(helm: Path, tmp_path: Path) -> None:
    base_file, over, expected = (tmp_path / name for name in ("base.yaml", "over.yaml", "expected.yaml"))
    kept = {
        "flavors": {"v6e-4x4": {"accelerator": "v6e", "topology": "4x4"}, "cpu": {"accelerator": "cpu"}},
        "clusterQueues": {"a": {"quota": {"v6e-4x4": {"slices": 1}, "cpu": {"cpu": "8", "memory": "8Gi"}}}},
        "teams": {"a": {"clusterQueue": "a", "resourceQuota": {"pods": None}}},
    }
    more = json.loads(json.dumps(kept))
    more["flavors"]["old"] = {"accelerator": "v5p", "topology": "2x2x1"}
    more["clusterQueues"]["b"] = {"quota": {"old": {"slices": 1}, "cpu": {"cpu": "8", "memory": "8Gi"}}}
    more["clusterQueues"]["a"]["quota"]["old"] = {"slices": 1}
    more["clusterQueues"]["a"]["quota"]["cpu"] |= {"cpuLending": "4", "resources": {"ephemeral-storage": "1Ti"}}
    more["teams"]["b"] = {"clusterQueue": "b", "members": {"x@example.com": "User"}}
    more["teams"]["a"]["members"] = {"y@example.com": "User"}
    base_file.write_text(json.dumps(more))
    expected.write_text(json.dumps(kept))
    nulls: Tree = {
        "flavors": {"old": None},
        "clusterQueues": {
            "b": None,
            "a": {"quota": {"old": None, "cpu": {"cpuLending": None, "resources": {"ephemeral-storage": None}}}},
        },
        "teams": {"b": None, "a": {"members": {"y@example.com": None}}},
    }
    over.write_text(json.dumps(nulls))
    wanted = template(helm, CHARTS / "queues", [expected])
    assert template(helm, CHARTS / "queues", [base_file, over]) == wanted
    assert 'pods: "10000"' not in wanted  # the team's null removed the limit

    # In an umbrella chart, the base is the parent's values.yaml.
    parent = tmp_path / "parent"
    shutil.copytree(CHARTS / "queues", parent / "charts" / "slipway-queues")
    dependency = "dependencies: [{name: slipway-queues, alias: queues, version: '*'}]"
    (parent / "Chart.yaml").write_text(f"apiVersion: v2\nname: parent\nversion: 0.1.0\n{dependency}\n")
    (parent / "values.yaml").write_text(json.dumps({"queues": more}))
    over.write_text(json.dumps({"queues": nulls}))

    def objects(text: str) -> list[tuple[str, str]]:
        return sorted((obj["kind"], obj["metadata"]["name"]) for obj in yaml.safe_load_all(text) if obj)

    assert objects(template(helm, parent, [over])) == objects(wanted)
