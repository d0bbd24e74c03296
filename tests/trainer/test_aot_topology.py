"""The description of slices for the TPU compiler: for each of MaxText's products, and for all shapes of the table."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from launcher.paths import charts_dir, presets_dir
from trainer.aot.__main__ import _HERE
from trainer.aot.errors import AotError
from trainer.aot.topology import describe

_TABLE: dict[str, Any] = yaml.safe_load((charts_dir() / "common" / "values.yaml").read_text(encoding="utf-8"))[
    "accelerators"
]
_LABELS = {"v4": "v4", "v5e": "v5e", "v5": "v5p", "v6e": "v6e", "tpu7x": "tpu7x"}


def _row(name: str, topology: str, chips_per_host: int) -> dict[str, Any]:
    return {**_TABLE[name], "name": name, "topology": topology, "chipsPerHost": chips_per_host}


def _maxtext_map() -> dict[str, Any]:
    """Return MaxText's own map. Imports only its module, because the package takes seconds."""
    package = importlib.util.find_spec("maxtext")
    assert package is not None and package.submodule_search_locations
    path = Path(package.submodule_search_locations[0]) / "utils" / "accelerator_to_spec_map.py"
    spec = importlib.util.spec_from_file_location("accelerator_to_spec_map", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    found: dict[str, Any] = module.UserFacingNameToSystemCharacteristics
    return found


def test_the_rule_gives_the_values_of_maxtexts_map_for_each_product() -> None:
    products = {name: each for name, each in _maxtext_map().items() if each.platform == "tpu"}
    assert len(products) > 200
    for name, each in products.items():
        generation, _, shape = each.topology_name.partition(":")
        x, y, z = each.chips_per_host_bounds
        ours = describe(_row(_LABELS[generation], shape, x * y * z))
        assert ours.name == each.topology_name, name
        assert ours.chip_config == each.chip_config_name, name
        assert ours.host_bounds == each.chips_per_host_bounds, name
        assert ours.wrap == each.wrap, name
        assert ours.devices == each.devices_per_slice, name


def _every_shape() -> list[dict[str, Any]]:
    """Return each topology of the table on each of its machine types, and those of the presets."""
    rows = []
    for name, row in _TABLE.items():
        for topology, machines in (row.get("topologies") or {}).items():
            rows += [_row(name, topology, row["machineTypes"][machine]) for machine in machines]
    for path in sorted((presets_dir() / "slices").glob("*.yaml")):
        name, _, topology = path.stem.rpartition("-")
        if _TABLE.get(name, {}).get("kind") == "tpu":
            rows.append(_row(name, topology, 1 if topology in ("1x1", "1x1x1") else 4))
    return rows


def test_the_compiler_supports_every_slice_of_the_table() -> None:
    wanted = [describe(row) for row in _every_shape()]
    program = """
import json, sys
from jax.experimental.topologies import get_topology_desc
for name, config, bounds, wrap, devices, per_host in json.load(sys.stdin):
    found = get_topology_desc(platform="tpu", topology_name=name, chip_config_name=config, num_slices=1,
                              chips_per_host_bounds=tuple(bounds), wrap=tuple(wrap)).devices
    assert len(found) == devices, (name, len(found))
    assert sum(each.process_index == 0 for each in found) == per_host, name
    sides = [max(each.coords[axis] for each in found) + 1 for axis in range(3)]
    assert "x".join(map(str, sides)).startswith(name.partition(":")[2]), (name, sides)
print("all", len(found))
"""
    data = [[t.name, t.chip_config, t.host_bounds, t.wrap, t.devices, t.devices_per_host] for t in wanted]
    assert len(data) > 40
    done = subprocess.run(
        [sys.executable, "-c", program],
        input=json.dumps(data),
        env={**os.environ, **_HERE},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.startswith("all")


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"name": "l4", "kind": "gpu"}, "l4 is not a TPU"),
        ({"name": "v9", "kind": "tpu", "label": "tpu-v9", "topology": "2x2"}, "does not support the accelerator v9"),
        (_row("v6e", "2x2x2", 4), "has 2 sides"),
        (_row("v5p", "4x4", 4), "has 3 sides"),
        (_row("v6e", "4xfour", 4), "cannot describe v6e 4xfour"),
        (_row("v6e", "4x4", 2), "a host has 1, 4 or 8 chips"),
    ],
)
def test_a_slice_that_the_compiler_cannot_describe_is_rejected(row: dict[str, Any], message: str) -> None:
    with pytest.raises(AotError, match=message) as refused:
        describe(row)
    assert refused.value.kind == "topology"
