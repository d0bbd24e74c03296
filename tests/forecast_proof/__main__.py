"""Forecast each published run, and write what came of it into results.json and a page.

    python -m tests.forecast_proof [NAME…] [--minutes M]

A compile takes minutes; what is compiled is in the forecasts' cache, and each result is written as soon as it is
there, so it can be ended at any time and goes on where it was. A run is also made larger, its batch doubled again and
again, until it is said not to fit: somewhere it cannot.
"""

from __future__ import annotations

import fcntl
import json
import math
import statistics
import sys
import time
from pathlib import Path
from typing import Any

import click

from launcher.config.checks.rules import SHAPE_RULES
from launcher.config.plan import CheckFailed, LaunchPlan, plan_launch
from launcher.config.values import files as values
from launcher.config.values.files import chart_defaults
from launcher.errors import LauncherError
from launcher.forecast.child import Limits
from launcher.forecast.compiled import Compiler
from launcher.forecast.constants import FASTER_BY_TYPE, HBM_EFFICIENCY, HOP, KERNEL_EFFICIENCY, MATMUL_EFFICIENCY
from launcher.forecast.fit import judge
from launcher.forecast.forecast import speed_of
from launcher.forecast.program import Program
from launcher.forecast.request import request
from tests.forecast_proof.runs import Run, published

RESULTS = Path(__file__).parent / "results.json"
PAGE = Path(__file__).parents[2] / "docs" / "reference" / "forecast-proof.md"
_DOUBLINGS = 8


@click.command()
@click.argument("names", nargs=-1)
@click.option("--minutes", type=float, default=None, help="Begin no more compiles after this many minutes.")
def main(names: tuple[str, ...], minutes: float | None) -> None:
    """Forecast the published runs of these NAMES, all of them without."""
    runs = [run for run in published() if not names or run.name in names]
    if unknown := set(names) - {run.name for run in runs}:
        raise click.UsageError(f"runs.yaml has no {', '.join(sorted(unknown))}.")
    end = time.monotonic() + 60 * minutes if minutes else float("inf")
    compiler = Compiler(limits=Limits(seconds=3600))
    for step in (_forecast, _too_large):
        for run in runs:
            if time.monotonic() > end:
                return
            found = step(run, compiler)
            if found is not None:
                print(f"{run.name}: {_line(_write(run.name, found))}", file=sys.stderr, flush=True)


def _write(name: str, found: dict[str, Any]) -> dict[str, Any]:
    """Put what was found into the results and on the page; what is there of the run now. Others may do so, too."""
    with (RESULTS.parent / ".results.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        results: dict[str, Any] = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
        before = results.get(name, {})
        if "measured" in found:  # all of it, but for what was found of larger batches of a program of the same size
            same = all(before.get(key) == found.get(key) for key in ("libtpu", "hbm_bytes"))
            results[name] = found | {key: before[key] for key in {"too_large_at"} & set(before) if same}
        else:
            results[name] = before | found
        RESULTS.write_text(json.dumps(results, indent=1, sort_keys=True) + "\n")
        PAGE.write_text(page(results))
        return dict(results[name])


def _forecast(run: Run, compiler: Compiler) -> dict[str, Any]:
    found: dict[str, Any] = {"measured": run.seconds, "dropped_flags": list(run.refused)}
    try:
        plan = _plan(run)
        program, _ = compiler.program(plan)
        found |= {"key": request(plan).key[:16], "libtpu": program.versions["libtpu"]}
        judged = judge(program, plan)
        found |= {"fits": judged.fits, "hbm_bytes": program.memory.total, "compile_seconds": program.seconds}
        if judged.fits and (speed := speed_of(program, plan.config)) is not None:
            parts = {name: round(seconds, 4) for name, seconds in speed.parts.items()}
            found |= {"forecast": round(speed.step_seconds, 4), "parts": parts, "notes": list(speed.notes)}
            found["error"] = round(speed.step_seconds / run.seconds - 1, 4)
    except (LauncherError, CheckFailed) as error:
        found["refused"] = error.message
    return found


def _too_large(run: Run, compiler: Compiler) -> dict[str, Any] | None:
    """A batch, doubled from the published one again and again, that is said not to fit: those that are far from filling
    the chip are left out."""
    before = json.loads(RESULTS.read_text())[run.name]
    if before.get("too_large_at") or not before.get("fits"):
        return None
    batch = float(run.train["per_device_batch_size"])
    try:
        program, _ = compiler.program(_plan(run))
        for _ in range(_DOUBLINGS):
            batch *= 2 ** _doublings_left(program, _plan(run))
            plan = _plan(run, f"train.per_device_batch_size={batch:g}")
            program, _ = compiler.program(plan)
            if not judge(program, plan).fits:
                return {"too_large_at": batch}
    except (LauncherError, CheckFailed) as error:
        return {"too_large_refused": error.message}
    return None


def _doublings_left(program: Program, plan: LaunchPlan) -> int:
    """Of a batch that fits, until it could fill the chip if all but the parameters grew with it; at least one."""
    judged, kept = judge(program, plan), program.memory.arguments or 0
    if judged.hbm is None or judged.hbm <= kept:
        return 1
    return max(1, math.ceil(math.log2((judged.hbm_capacity - kept) / (judged.hbm - kept))))


def _plan(run: Run, *sets: str) -> LaunchPlan:
    user = values.merge(values.read_text(json.dumps(run.overlay()).encode(), run.name), values.load([], sets))
    return plan_launch(user, chart_defaults("run"), rules=SHAPE_RULES)


def _line(result: dict[str, Any]) -> str:
    if "refused" in result:
        return str(result["refused"])
    if not result["fits"]:
        return "said not to fit, but it ran"
    return f"measured {result['measured']:.3g} s, forecast {result['forecast']:.3g} s, {result['error']:+.1%}"


def page(results: dict[str, Any]) -> str:
    """The table of all results, as a page."""
    errors = [abs(each["error"]) for each in results.values() if "error" in each]
    lines = [
        "# Forecasts beside measured steps",
        "",
        "Written by `make forecast-proof`. Steps that were measured on TPUs and published with all their settings"
        " (tests/forecast_proof/runs.yaml names where), and what `launcher forecast` says of the same settings today."
        " They were measured with MaxText, JAX and libtpu of their day; what today's compiler does otherwise is part of"
        " the error (of default-64b-v5p-64chips most: its memory is so full that nothing overlaps any more; with a"
        " batch of 2 instead of 3 that is over).",
        "",
        f"Forecasts: {len(errors)}. Error: median {statistics.median(errors):.1%}, worst {max(errors):.1%}."
        if errors
        else "No forecast yet.",
        "",
        "| Run | Measured | Forecast | Error | Does not fit at batch | libtpu |",
        "|---|---|---|---|---|---|",
    ]
    for name, each in sorted(results.items()):
        if "error" in each:
            lines.append(
                f"| {name} | {each['measured']:.3f} s | {each['forecast']:.3f} s | {each['error']:+.1%} |"
                f" {each.get('too_large_at') or 'not tried'} | {each['libtpu']} |"
            )
        else:
            lines.append(f"| {name} | {each['measured']:.3f} s | {_line(each)} | | | |")
    return "\n".join([*lines, "", *_constants()]) + "\n"


def _constants() -> list[str]:
    by_side = ", ".join(f"{value} ({side} x {side})" for side, value in MATMUL_EFFICIENCY.items())
    faster = "; ".join(
        f"{chip}: " + ", ".join(f"{value:g} ({kind})" for kind, value in types.items())
        for chip, types in FASTER_BY_TYPE.items()
    )
    return [
        "## The constants",
        "",
        "All that was fitted, in [launcher/forecast/constants.py](../../launcher/forecast/constants.py). What chips can"
        " do by their makers' word is in the accelerator table,"
        " [charts/common/values.yaml](../../charts/common/values.yaml), with its sources.",
        "",
        "| What | Value | From |",
        "|---|---|---|",
        "| Share of the matrix unit (or of HBM, where that is the limit) that a multiplication keeps busy |"
        f" {by_side} | the rows above of v5e and v5p (128 x 128), and of v6e and tpu7x (256 x 256), most of whose time"
        " it is |",
        f"| The same, of attention and grouped multiplications | {KERNEL_EFFICIENCY} | the rows above of 128k tokens,"
        " where attention is three quarters, and of mixtures of experts |",
        f"| Share of HBM's speed that elementwise operations, copies and reductions reach | {HBM_EFFICIENCY} |"
        " the rows above, of which they are 3 to 22 % |",
        f"| How much faster 8-bit numbers are multiplied than bf16 | {faster} | the chips' data sheets |",
        f"| Seconds for one link of a collective's way | {HOP:g} | jax-ml.github.io/scaling-book |",
    ]


if __name__ == "__main__":
    main()
