"""Recompile the programs that test the estimate of a search, in about an hour.

`python -m tests.products.planner.forecast_programs` writes data/forecast_programs.json: configs and the compiler's
result for each, which are the memory, and the parts of a step as planner/forecast/step_time.py computes them from the
schedule. The constants of planner/forecast/estimate.py were chosen with this data, so run this again when MaxText,
libtpu or the calculation of a step's time changes. Programs that were compiled before come from the cache of forecasts.
Each entry is written as soon as it is compiled, so you can stop this command and start it again.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from launcher.config.checks.rules import SHAPE_RULES
from launcher.config.plan import plan_launch
from launcher.config.values import files as values
from launcher.config.values.writer import dumps
from launcher.products.planner.forecast.compiled import Compiler
from launcher.products.planner.forecast.speed import speed_of
from tests.products.planner.forecasts import DEFAULTS

FILE = Path(__file__).parent / "data" / "forecast_programs.json"


def programs() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(FILE.read_text(encoding="utf-8"))
    return found


def write(entries: list[dict[str, Any]]) -> None:
    text = "[\n" + ",\n".join(f" {json.dumps(entry)}" for entry in entries) + "\n]\n"
    FILE.write_text(text, encoding="utf-8")


def compiled(entry: dict[str, Any]) -> dict[str, Any]:
    """Return the entry with the compiler's current result."""
    text = dumps({key: entry[key] for key in ("slice", "train")})
    plan = plan_launch(values.read_text(text.encode(), entry["name"]), DEFAULTS, rules=SHAPE_RULES)
    program, _ = Compiler().program(plan)
    speed = speed_of(program, plan.config)
    if not program.fits or speed is None:
        raise SystemExit(f"{entry['name']} no longer fits.")
    memory = program.memory
    return {
        **entry,
        "devices": program.devices,
        "torus": dict(program.torus),
        "memory": {key: getattr(memory, key) for key in ("total", "arguments", "temporaries")},
        "tokens": program.model.tokens_per_step_per_device,
        "parts": {name: round(seconds, 5) for name, seconds in speed.parts.items()},
        "hidden": {name: round(seconds, 5) for name, seconds in speed.hidden.items()},
    }


def main() -> None:
    entries = programs()
    for at, entry in enumerate(entries):
        sys.stderr.write(f"{entry['name']}\n")
        entries[at] = compiled(entry)
        write(entries)


if __name__ == "__main__":
    main()
