"""Programs as the child of a forecast writes them, and replacements for the child.

A real compile takes at least half a minute, and a test cannot make it hang, run out of memory, or write damaged output.
tests/products/planner/cli/test_forecast.py has a real one.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from launcher.config.checks.rules import SHAPE_RULES
from launcher.config.plan import LaunchPlan, plan_launch
from launcher.config.values import files as values
from launcher.config.values.files import chart_defaults

GIB = 1 << 30
VERSIONS = {"maxtext": "0.2.5", "jax": "0.11.1", "jaxlib": "0.11.1", "libtpu": "0.0.46"}
DEFAULTS = chart_defaults("run")

V6E = 918e12 * 0.8
"""FLOP/s of multiplications on a v6e."""

TWO_SECONDS: list[dict[str, Any]] = [
    {
        "do": "compute",
        "what": "matmul",
        "name": "x",
        "cycles": None,
        "flops": 2 * V6E,
        "type": "bf16",
        "bytes": 0,
        "plain": False,
    }
]
LLAMA = "slice: {topology: 4x4}\ntrain: {model_name: llama3-8b, per_device_batch_size: 4, ici_tensor_parallelism: 4}\n"


def plan(text: str = LLAMA, *sets: str) -> LaunchPlan:
    user = values.merge(values.read_text(text.encode(), "v.yaml"), values.load([], sets))
    return plan_launch(user, DEFAULTS, rules=SHAPE_RULES)


def program(
    *, total: float = 16, capacity: float = 31.25, fits: bool = True, host: float = 0, **more: Any
) -> dict[str, Any]:
    """Return the JSON of a program for 16 devices. The sizes are in GiB."""
    arguments = 6 * GIB if fits else None
    return {
        "version": 2,
        "versions": VERSIONS,
        "seconds": 100.0,
        "finished": False,
        "fits": fits,
        "memory": {
            "arguments": arguments,
            "outputs": 6 * GIB if fits else None,
            "aliased": 6 * GIB if fits else None,
            "temporaries": int(total * GIB) - 6 * GIB if fits else None,
            "code": None,
            "total": int(total * GIB),
            "peak": None,
            "capacity": int(capacity * GIB),
            "host": {"arguments": 0, "outputs": 0, "aliased": 0, "temporaries": int(host * GIB)},
        },
        "buffers": [{"name": "decoder.mlp", "bytes": 2 * GIB, "shape": "bf16[4,4096,14336]", "kind": "temporary"}],
        "model": {
            "parameters": 8_030_261_248,
            "flops_per_step_per_device": 2e14,
            "tokens_per_step_per_device": 4096,
            "global_batch": 16,
        },
        "mesh": {"data": 1, "fsdp": 4, "tensor": 4},
        "dcn_mesh": {"data": 1, "fsdp": 1, "tensor": 1},
        "torus": {"size": [4, 4, 1], "wraps": [False, False, False]},
        "work": TWO_SECONDS if fits else None,
        **more,
    }


def fake_compiler(body: str) -> Callable[[Path, Path], Sequence[str]]:
    """Return the command of a child that runs `body` instead of the compile.

    `body` has the variables `config` and `out` (paths), and `say(**line)`, which prints a line of JSON on stdout.
    """
    start = "import json, os, pathlib, sys, time; config, out = map(pathlib.Path, sys.argv[1:3])\n"
    start += "def say(**line): print(json.dumps(line), flush=True)\n"
    return lambda config, out: [sys.executable, "-c", start + body, str(config), str(out)]
