"""The table of accelerators, and the MaxText keys that Slipway sets."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from launcher.config import accelerators as slices
from launcher.config.maxtext.keys import OWNED, OWNED_WITH_DATA, POSITIVE, TEXT_IS_GIVEN, maxtext
from launcher.config.values.files import chart_defaults
from tests.docs.reference.parts import code, page, table

_INTRO = """\
What `slice.accelerator` and `slice.topology` can be. The chips, and with the machine type the hosts, follow from the
topology: nobody types a host count for TPUs. The first machine type is the default, and `slice.machineType` takes
another. A row of your own, or another machine type, goes into a values file under `common.accelerators`; its form is
told in [charts/common/values.yaml](../../charts/common/values.yaml)."""


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
    parts += ["## GPUs", "A host has as many GPUs as its machine type; `slice.hosts` says how many hosts there are."]
    parts.append(table((*facts, "machine types, with GPUs"), (_gpu(name, table_[name]) for name in kinds["gpu"])))
    parts += ["## CPU", "`cpu` is any machine: each host is one process, which JAX sees as one chip."]
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
        f"Under `train` stand MaxText's own keys: {len(known['keys'])} of MaxText {known['maxtext']}. "
        "`launcher check` knows each with its type, its bounds and its choices, and says what was meant by one that is "
        "not there. These are Slipway's to set, and what to use instead:"
    )
    bounds = {"ge": "at least", "gt": "more than"}
    stricter = (
        (code(f"train.{key}"), ", ".join(f"{bounds[name]} {value}" for name, value in limits.items()))
        for key, limits in POSITIVE.items()
    )
    return page(
        "MaxText's keys",
        "launcher/config/maxtext/keys.py",
        intro,
        table(("key", "instead"), ((code(f"train.{key}"), says) for key, says in OWNED.items())),
        "## Where the text comes from `data`",
        f"Besides, where `data.files` or `data.corpus` is set, these are: {', '.join(map(code, OWNED_WITH_DATA))}. "
        f"The sentence: {TEXT_IS_GIVEN}",
        "## Bounds that MaxText lacks",
        "Numbers that MaxText divides by, or makes arrays of the size of:",
        table(("key", "must be"), stricter),
        "## Models",
        "`train.model_name` is one of these, or `default` for a shape of your own: "
        + ", ".join(map(code, known["models"]))
        + ".",
    )
