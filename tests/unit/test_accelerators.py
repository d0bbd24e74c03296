"""Slices: the table in charts/common, and the errors for slices that do not exist."""

from __future__ import annotations

from typing import Any

import pytest

from launcher.config import accelerators
from launcher.config.accelerators import Slice, SliceError
from launcher.config.values.files import chart_defaults

TABLE: dict[str, Any] = chart_defaults("run").tree["common"]["accelerators"]
TPUS = [name for name, row in TABLE.items() if row["kind"] == "tpu"]


def resolve(accelerator: str, topology: str = "", machine: str = "", hosts: int = 0) -> Slice:
    part = {"accelerator": accelerator, "topology": topology, "machineType": machine, "hosts": hosts, "count": 1}
    return accelerators.resolve(part, TABLE)


@pytest.mark.parametrize(
    ("accelerator", "topology", "machine", "hosts", "chips_per_host", "chips"),
    [
        ("v6e", "4x4", "ct6e-standard-4t", 4, 4, 16),
        ("v6e", "1x1", "ct6e-standard-1t", 1, 1, 1),
        ("v6e", "16x16", "ct6e-standard-4t", 64, 4, 256),
        ("v5e", "2x4", "ct5lp-hightpu-4t", 2, 4, 8),
        ("v5p", "2x2x1", "ct5p-hightpu-4t", 1, 4, 4),
        ("v5p", "4x4x8", "ct5p-hightpu-4t", 32, 4, 128),
        ("v4", "8x4x4", "ct4p-hightpu-4t", 32, 4, 128),
        ("tpu7x", "4x4x4", "tpu7x-standard-4t", 16, 4, 64),
        ("tpu7x", "1x1x1", "tpu7x-standard-1t", 1, 1, 1),
        ("h100-80gb", "", "a3-highgpu-8g", 1, 8, 8),
        ("cpu", "", "", 1, 1, 1),
    ],
)
def test_hosts_and_chips_follow_from_the_topology(
    accelerator: str, topology: str, machine: str, hosts: int, chips_per_host: int, chips: int
) -> None:
    found = resolve(accelerator, topology)
    assert (found.machine_type, found.hosts, found.chips_per_host, found.chips) == (
        machine,
        hosts,
        chips_per_host,
        chips,
    )


def test_a_machine_type_may_be_chosen() -> None:
    assert resolve("v5e", "2x4", "ct5lp-hightpu-8t").hosts == 1
    assert resolve("l4", machine="g2-standard-48", hosts=3).chips == 12
    assert resolve("cpu", hosts=2).chips == 2


# The number of shapes that xpk 1.16.0 has for each generation (system_characteristics.py). It lacks two single-host
# shapes that GKE has for v5e: 1x1 and 2x2.
XPK = {"v4": 800, "v5p": 414, "tpu7x": 433, "v6e": 8, "v5e": 6 + 2}


@pytest.mark.parametrize("name", TPUS)
def test_the_shapes_are_those_of_xpk(name: str) -> None:
    shapes = list(accelerators.topologies(TABLE[name]))
    assert len(shapes) == len(set(shapes)) == XPK[name]
    for shape in shapes:
        found = resolve(name, shape)
        assert found.chips == accelerators.chips(shape)
        # xpk's rule: one chip is one host; all other shapes have four chips per host.
        assert found.chips_per_host == (1 if found.chips == 1 else 4)


@pytest.mark.parametrize(
    ("accelerator", "topology", "key", "sentence"),
    [
        (
            *("v6e", "4x6", "topology"),
            '"4x6" is not a topology of v6e. No v6e slice has 24 chips; the nearest are 4x4 (16) and 4x8 (32).',
        ),
        (
            *("v6e", "24", "topology"),
            '"24" is not a topology of v6e. No v6e slice has 24 chips; the nearest are 4x4 (16) and 4x8 (32).',
        ),
        (
            *("v6e", "16x32", "topology"),
            '"16x32" is not a topology of v6e. No v6e slice has 512 chips; the nearest is 16x16 (256).',
        ),
        ("v6e", "8x2", "topology", '"8x2" is not a topology of v6e; for 16 chips, use 4x4.'),
        ("v6e", "4X4", "topology", '"4X4" is not a topology of v6e; write it as 4x4.'),
        ("v5p", "4x8x4", "topology", '"4x8x4" is not a topology of v5p; for 128 chips, use 4x4x8.'),
        ("v6e", "v6e-16", "topology", '"v6e-16" is not a topology of v6e; use 4x4.'),
        ("v6e", "4 x 4", "topology", '"4 x 4" is not a topology of v6e; write it as 4x4.'),
        ("v5p", "2X2\u00d71", "topology", '"2X2\u00d71" is not a topology of v5p; write it as 2x2x1.'),
        ("v5p", "v5p-32", "topology", '"v5p-32" is not a topology of v5p; use 2x2x4.'),  # 32 TensorCores, 16 chips
        ("v6e", "1", "topology", '"1" is not a topology of v6e; for 1 chip, use 1x1.'),
        ("v6e", "big", "topology", '"big" is not a topology of v6e; use a shape such as 4x8.'),
        ("v6e", "", "topology", "a v6e slice requires a topology: 1x1, 2x2, 2x4, 4x4, 4x8, 8x8, 8x16, 16x16."),
        (
            *("v6e-16", "", "accelerator"),
            'unknown accelerator "v6e-16"; use slice.accelerator: v6e and slice.topology: 4x4.',
        ),
        (
            *("v5litepod-16", "", "accelerator"),
            'unknown accelerator "v5litepod-16"; use slice.accelerator: v5e and slice.topology: 4x4.',
        ),
        (
            *("v6e-24", "", "accelerator"),
            'unknown accelerator "v6e-24"; use slice.accelerator: v6e. No v6e slice has 24 chips; the nearest are 4x4 '
            "(16) and 4x8 (32).",
        ),
        ("l4", "2x2", "topology", "only TPU slices have a topology; for l4, set slice.hosts instead."),
    ],
)
def test_an_invalid_slice_is_a_sentence(accelerator: str, topology: str, key: str, sentence: str) -> None:
    with pytest.raises(SliceError) as raised:
        resolve(accelerator, topology)
    assert (raised.value.key, raised.value.message) == (key, sentence)


@pytest.mark.parametrize(
    ("name", "guess"),
    [
        *[("h100", "h100-80gb"), ("trillium", "v6e"), ("b20", "b200"), ("V6E", "v6e")],
        *[("tpu-v6e-slice", "v6e"), ("tpu-v5-lite-podslice", "v5e")],
        *[("ct6e-standard-4t", "v6e"), ("a3-megagpu-8g", "h100-mega"), ("tpu7x-standard-4t", "tpu7x")],
    ],
)
def test_an_unknown_accelerator_gets_a_guess(name: str, guess: str) -> None:
    with pytest.raises(SliceError, match=f"Did you mean {guess}\\?$"):
        resolve(name)


def test_hosts_and_machine_types_that_do_not_fit() -> None:
    with pytest.raises(SliceError, match=r"topology of a v6e slice determines its hosts; remove slice\.hosts"):
        resolve("v6e", "4x4", hosts=4)
    with pytest.raises(SliceError, match='-8t" is not a machine type of a v6e slice of 4x4; use ct6e-standard-4t'):
        resolve("v6e", "4x4", "ct6e-standard-8t")
    with pytest.raises(SliceError, match='"n2" is not a machine type of h200; use a3-ultragpu-8g'):
        resolve("h200", machine="n2")


@pytest.mark.parametrize("name", list(TABLE))
def test_every_row_is_consistent(name: str) -> None:
    row = TABLE[name]
    named = [machine for machines in row.get("topologies", {}).values() for machine in machines]
    named += row.get("larger", {}).get("machineTypes", [])
    named += [row["defaultMachineType"]] if "defaultMachineType" in row else []
    assert set(named) <= set(row["machineTypes"])
    assert (row["peakTflops"] > 0) == (row["hbmGiB"] > 0) == (row["kind"] != "cpu")
    for shape, machines in row.get("topologies", {}).items():
        assert len(shape.split("x")) == row["dimensions"]
        assert all(accelerators.chips(shape) % row["machineTypes"][machine] == 0 for machine in machines)


def test_ray_knows_the_accelerators_by_these_names() -> None:
    from ray.util.accelerators import accelerators as names

    known = {value for key, value in vars(names).items() if key.isupper()}
    assert {row["rayAcceleratorType"] for row in TABLE.values()} - {""} <= known


@pytest.mark.parametrize("name", [name for name, row in TABLE.items() if name != "tpu7x" and row["kind"] != "cpu"])
def test_machines_have_a_known_size(name: str) -> None:
    row = TABLE[name]
    assert set(row["machineTypes"]) == set(row["hostCpus"]) == set(row["hostMemoryGiB"])
