"""Slices: the presets in values/slices; and the charts and the launcher read every shape alike."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from launcher.config import accelerators
from launcher.config.accelerators import SliceError
from launcher.config.plan import run_config
from launcher.config.values import files as values
from launcher.config.values.files import chart_defaults
from launcher.paths import charts_dir, presets_dir
from tests.charts.helm import template

TABLE: dict[str, Any] = chart_defaults("run").tree["common"]["accelerators"]
PRESETS = sorted((presets_dir() / "slices").glob("*.yaml"))

# --- The presets ------------------------------------------------------------------------------------------------

# The part before the dash of Cloud TPU's product name, if it differs from Slipway's name of the generation.
PRODUCTS = {"v5e": "v5litepod"}
# Two generations have a second well-known name.
ALIASES = {"v6e": "v6e (Trillium)", "tpu7x": "tpu7x (Ironwood)"}


def preset(path: Path) -> tuple[str, dict[str, Any]]:
    """Return the comment above a preset's keys, as one line, and its tree."""
    text = path.read_text(encoding="utf-8")
    comment = " ".join(line.removeprefix("#").strip() for line in text.splitlines() if line.startswith("#"))
    return comment, values.read_file(str(path)).tree


def one_slice(tree: Mapping[str, Any]) -> accelerators.Slice:
    """Return the slice that a preset requests, with the chart's defaults."""
    return accelerators.resolve({"topology": "", "machineType": "", "hosts": 0} | tree["slice"], TABLE)


def many(count: int, noun: str) -> str:
    return f"{count} {noun}" + ("s" if count != 1 else "")


@pytest.mark.parametrize("path", PRESETS, ids=lambda path: path.stem)
def test_a_preset_is_what_its_name_and_its_comment_say(path: Path) -> None:
    comment, tree = preset(path)
    found = one_slice(tree)
    row = TABLE[found.accelerator]
    if found.kind == "tpu":
        # No other key is needed: the machine type is the table's default, and the hosts follow from the topology.
        assert set(tree["slice"]) == {"accelerator", "topology"}
        assert path.stem == f"{found.accelerator}-{found.topology}"
        product = f"{PRODUCTS.get(found.accelerator, found.accelerator)}-{found.chips * row['coresPerChip']}"
        each = f"{row['hbmGiB']} GiB" + (" each" if found.chips > 1 else "")
        assert comment.startswith(
            f"One {ALIASES.get(found.accelerator, found.accelerator)} slice: {many(found.chips, 'chip')} with {each}"
            f" on {many(found.hosts, 'host')}; Cloud TPU calls it {product}."
        )
    else:
        # The empty topology replaces that of a TPU slice in an earlier values file, which would be rejected.
        assert set(tree["slice"]) == {"accelerator", "topology", "machineType"}
        assert tree["slice"]["topology"] == ""
    if found.kind == "gpu":
        assert path.stem == f"{found.accelerator}-{found.chips_per_host}"
        gpus = many(found.chips_per_host, f"{found.accelerator} GPU")
        assert comment.startswith(f"One host with {gpus} of {row['hbmGiB']} GiB;")
    if found.kind == "cpu":
        assert path.stem == "cpu"
    assert set(tree) == ({"slice"} if found.kind != "cpu" else {"slice", "worker"})


@pytest.mark.parametrize("path", PRESETS, ids=lambda path: path.stem)
def test_options_in_a_comment_change_the_slice(path: Path) -> None:
    comment, tree = preset(path)
    for key, value in re.findall(r"--set slice\.(\w+)=([\w-]+)", comment):
        changed = {"slice": tree["slice"] | {key: 3 if value == "N" else value}}
        assert one_slice(changed) != one_slice(tree)


def test_every_common_accelerator_has_presets() -> None:
    have = {path.stem for path in PRESETS}
    # Two-dimensional generations have few shapes, so all have a preset; the others have those from one host to 256
    # chips.
    wanted = {f"{name}-{shape}" for name in ("v5e", "v6e") for shape in accelerators.topologies(TABLE[name])}
    for name in ("v4", "v5p", "tpu7x"):
        wanted |= {f"{name}-{shape}" for shape in ("2x2x1", "2x2x2", "2x2x4", "2x4x4", "4x4x4", "4x4x8", "4x8x8")}
    wanted |= {"h100-80gb-8", "h200-8", "b200-8", "a100-80gb-8", "l4-1", "cpu"}
    assert wanted - have == set()


# --- The charts and the launcher agree ----------------------------------------------------------------------------

Case = dict[str, Any]


def case(accelerator: str, topology: str = "", machine: str = "", hosts: int = 0) -> Case:
    return {"accelerator": accelerator, "topology": topology, "machineType": machine, "hosts": hosts}


def every_shape() -> list[Case]:
    """Return all shapes of the table, on the default machine type and on each one that has the shape."""
    cases = []
    for name, row in TABLE.items():
        for shape in accelerators.topologies(row) if row["kind"] == "tpu" else ():
            cases.append(case(name, shape))
            cases += [case(name, shape, machine) for machine in accelerators.machine_types(row, shape)]
        if row["kind"] != "tpu":
            machines = ["", *row["machineTypes"]]
            cases += [case(name, machine=machine, hosts=hosts) for machine in machines for hosts in (0, 1, 3)]
    return cases


INVALID = [
    *(
        case("v6e", shape)
        for shape in ("", "3x3", "4x", "x4", "0x4", "4x0", "4X4", "16", "4", "v6e-16", "8x4", "4x4x4")
    ),
    *(case("v6e", shape) for shape in (" 4x4", "4x4 ", "4x4\n", "4x4,2x4", "04x4", "4*4", "-4x-4", "4.0x4", "big")),
    *(case("v5e", shape) for shape in ("32x32", "4x2", "2x2x1")),
    *(
        case("v5p", shape)
        for shape in ("12x4x4", "4x8x4", "4x4", "2x2x3", "6x6x6", "4x4x4x4", "1x1x1", "2x2x8", "2x4x2")
    ),
    *(case("v5p", shape) for shape in ("4x4x260", "16x16x48", "4x12x188")),  # a side above 256, more than 140 cubes
    *(case("v5p", shape) for shape in ("4x4x4x", "4x4x00004", "4x4x99999999999999999999", "v5p-32")),
    *(case("v4", shape) for shape in ("2x2x3", "16x16x20", "4x20x52", "4x4x6", "4x4x512", "1x1x1", "2x1x1", "8x8")),
    *(case("v4", shape) for shape in ("04x4x4", "4x4x04", "4x4x4\n", "4 x 4 x 4")),
    *(case("tpu7x", shape) for shape in ("8x4x4", "2x2", "4x4x2308", "1x1x2")),
    *(case(name, "4x4") for name in ("", "v7", "V6E", "v6e-16", "v5litepod", "tpu-v6e-slice", "null")),
    *(case(name, "2x2") for name in ("l4", "cpu", "h100-80gb")),
    case("v6e", "4x4", hosts=4),
    case("v4", "2x2x1", hosts=1),
    case("v6e", "4x4", "ct6e-standard-8t"),
    case("v6e", "1x1", "ct6e-standard-4t"),
    case("v5p", "4x4x4", "ct4p-hightpu-4t"),
    case("tpu7x", "4x4x4", "tpu7x-standard-1t"),
    case("h200", machine="n2-standard-8"),
    case("l4", machine="a3-highgpu-8g", hosts=2),
]


def read_by_the_charts(helm: Path, folder: Path, cases: Sequence[Case]) -> list[dict[str, Any]]:
    """Return what `common.slice` renders for each case, with one call of Helm."""
    (folder / "templates").mkdir()
    shutil.copytree(charts_dir() / "common", folder / "charts" / "common")
    (folder / "Chart.yaml").write_text(
        "apiVersion: v2\nname: slices\nversion: 0.1.0\n"
        'dependencies: [{name: slipway-common, alias: common, version: ">=0.1.0"}]\n'
    )
    (folder / "values.yaml").write_text("")
    (folder / "templates" / "slices.yaml").write_text(
        "{{- $table := .Values.common.accelerators }}\n"
        "{{- range .Values.cases }}\n"
        '{{- include "common.slice" (dict "slice" . "accelerators" $table "key" "slice" "into" .) }}\n'
        "slice: {{ .resolved | toJson }}\n"
        "{{- end }}\n"
    )
    file = folder / "cases.json"
    file.write_text(json.dumps({"cases": cases}))
    lines = template(helm, folder, [file]).splitlines()
    found = [json.loads(line.removeprefix("slice: ")) for line in lines if line.startswith("slice: ")]
    assert len(found) == len(cases)
    return found


def read_by_the_launcher(slice_: Case) -> dict[str, Any]:
    config: dict[str, Any] = run_config({"slice": slice_, "storage": {"mountPath": "/data"}, "train": {}}, TABLE)[
        "accelerator"
    ]
    return config


def test_charts_and_launcher_read_every_shape_alike(helm: Path, tmp_path: Path) -> None:
    cases = every_shape()
    # xpk 1.16.0 has 1,661, and lacks GKE's 1x1 and 2x2 of v5e (tests/unit/test_accelerators.py).
    assert len({(c["accelerator"], c["topology"]) for c in cases if c["topology"]}) == 1_663
    for slice_, charts in zip(cases, read_by_the_charts(helm, tmp_path, cases), strict=True):
        assert charts == read_by_the_launcher(slice_), slice_


def test_charts_and_launcher_reject_invalid_slices(helm: Path, tmp_path: Path) -> None:
    for slice_, charts in zip(INVALID, read_by_the_charts(helm, tmp_path, INVALID), strict=True):
        with pytest.raises(SliceError) as raised:
            accelerators.resolve(slice_, TABLE)
        # The messages differ, the key to fix does not. The charts put the key into the message, because plain Helm
        # does not print it.
        assert (charts["chips"], charts["hosts"]) == (0, 0), (slice_, charts)
        assert re.match(rf"slice\.{raised.value.key}: \S.*\.$", charts["error"], re.S), (slice_, charts, raised.value)
