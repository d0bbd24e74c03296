"""Compile anew what the estimate of a search is measured by: `python -m tests.forecast_programs`, an hour or so.

tests/unit/data/forecast_programs.json holds configs and what the compiler said of each: memory, and the parts of a step
as launcher/forecast/step_time.py plays the schedule. It is to be made again when MaxText, libtpu or the reckoning of a
step's time change, for the constants of launcher/forecast/estimate.py were chosen by it. What was compiled before comes
from the cache of forecasts. An entry is rewritten as soon as it is compiled, so it can be ended and begun again.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from launcher.config.checks.rules import SHAPE_RULES
from launcher.config.plan import plan_launch
from launcher.config.values import files as values
from launcher.forecast.compiled import Compiler
from launcher.forecast.speed import speed_of
from tests.forecasts import DEFAULTS

FILE = Path(__file__).parent / "unit" / "data" / "forecast_programs.json"


def programs() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(FILE.read_text(encoding="utf-8"))
    return found


def write(entries: list[dict[str, Any]]) -> None:
    text = "[\n" + ",\n".join(f" {json.dumps(entry)}" for entry in entries) + "\n]\n"
    FILE.write_text(text, encoding="utf-8")


def compiled(entry: dict[str, Any]) -> dict[str, Any]:
    """The entry with what the compiler says today."""
    text = values.dumps({key: entry[key] for key in ("slice", "train")})
    plan = plan_launch(values.read_text(text.encode(), entry["name"]), DEFAULTS, rules=SHAPE_RULES)
    program, _ = Compiler().program(plan)
    speed = speed_of(program, plan.config)
    if not program.fits or speed is None:
        raise SystemExit(f"{entry['name']} does not fit any more.")
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
