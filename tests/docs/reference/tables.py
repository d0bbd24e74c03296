"""The pages on the accelerators and on the MaxText keys."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from launcher.config import accelerators as slices
from launcher.config.maxtext.keys import OWNED, OWNED_WITH_DATA, STRICTER_BOUNDS, TEXT_IS_GIVEN, maxtext
from launcher.config.values.files import chart_defaults
from tests.docs.reference.parts import code, page, table

_INTRO = """\
This page lists the values of `slice.accelerator` and `slice.topology`. For TPUs, Slipway derives the number of chips
from the topology, and the number of hosts from the topology and the machine type. The first machine type is the
default; `slice.machineType` selects another. You can add a row or a machine type in a values file under
`common.accelerators`; [charts/common/values.yaml](../../charts/common/values.yaml) describes the form."""


def accelerators() -> str:
    table_: dict[str, Any] = chart_defaults("run").tree["common"]["accelerators"]
    kinds: dict[str, list[str]] = {"tpu": [], "gpu": [], "cpu": []}
    for name, row in table_.items():
        kinds[row["kind"]].append(name)
    parts = [" ".join(_INTRO.split("\n")), "## TPUs"]
    facts = ("accelerator", "GKE's label", "memory of a chip", "peak of a chip, dense bf16", "Ray's name")
    parts.append(table(facts, (_facts(name, table_[name]) for name in kinds["tpu"])))
    for name in kinds["tpu"]:
        parts += [f"### {name}", table(("topology", "chips", "hosts"), _topologies(name, table_[name]))]
        if "larger" in table_[name]:
            parts.append(_larger(table_[name]))
    parts += [
        "## GPUs",
        "The machine type determines the number of GPUs of a host; `slice.hosts` sets the number of hosts.",
    ]
    parts.append(table((*facts, "machine types, with GPUs"), (_gpu(name, table_[name]) for name in kinds["gpu"])))
    parts += ["## CPU", "`cpu` is any machine. Each host runs one process, which is one chip for JAX."]
    return page("Accelerators", "charts/common/values.yaml", *parts)


def _facts(name: str, row: dict[str, Any]) -> tuple[str, ...]:
    peak = f"{row['peakTflops']:,} TFLOP/s"
    return code(name), code(row["label"]), f"{row['hbmGiB']} GiB", peak, code(row["rayAcceleratorType"])


def _gpu(name: str, row: dict[str, Any]) -> tuple[str, ...]:
    types = sorted(row["machineTypes"].items(), key=lambda item: item[0] != row["defaultMachineType"])
    return (*_facts(name, row), ", ".join(f"{code(machine)} {count}" for machine, count in types))


def _topologies(name: str, row: dict[str, Any]) -> Iterator[tuple[str, str, str]]:
    for shape, machines in row["topologies"].items():
        wanted = {"accelerator": name, "topology": shape, "hosts": 0}
        hosts = [(each, slices.resolve({**wanted, "machineType": each}, {name: row})) for each in machines]
        yield code(shape), str(hosts[0][1].chips), ", ".join(f"{slice_.hosts} of {code(m)}" for m, slice_ in hosts)


def _larger(row: dict[str, Any]) -> str:
    larger = row["larger"]
    order = ", in ascending order" if larger["ordered"] else ""
    machines = ", ".join(map(code, larger["machineTypes"]))
    return (
        f"Larger shapes have sides that are multiples of 4{order}, each at most {larger['maxSide']}, with at most "
        f"{larger['maxCubes'] * 64:,} chips in all, on {machines}: `4x4x4` is 64 chips on 16 hosts."
    )


def maxtext_keys() -> str:
    known = maxtext()
    intro = (
        f"`train` contains MaxText's own keys: {len(known['keys'])} keys of MaxText {known['maxtext']}. "
        "`launcher check` checks the type, the bounds and the choices of each key, and suggests the correct name for "
        "an unknown key. Slipway sets the following keys itself. The table shows what to use instead:"
    )
    bounds = {"ge": "at least", "gt": "more than", "lt": "less than", "le": "at most"}
    stricter = (
        (code(f"train.{key}"), ", ".join(f"{bounds[name]} {value}" for name, value in limits.items()))
        for key, limits in STRICTER_BOUNDS.items()
    )
    return page(
        "MaxText's keys",
        "launcher/config/maxtext/keys.py",
        intro,
        table(("key", "instead"), ((code(f"train.{key}"), says) for key, says in OWNED.items())),
        "## Keys that `data` sets",
        f"If `data.files` or `data.corpus` is set, Slipway also sets {', '.join(map(code, OWNED_WITH_DATA))}. "
        f"The message is: {TEXT_IS_GIVEN}",
        "## Bounds that MaxText lacks",
        "With other values, MaxText trains nothing, diverges, or ends with an error of its libraries:",
        table(("key", "bound"), stricter),
        "## Models",
        "`train.model_name` is one of these, or `default` for a model with your own sizes: "
        + ", ".join(map(code, known["models"]))
        + ".",
    )
