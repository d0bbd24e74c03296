"""Forecast each published run, and write the results to results.json and to a page.

    python -m tests.products.planner.forecast_proof [NAME…] [--minutes M]

A compile takes minutes. Compiled programs are kept in the cache of forecasts, and each result is written as soon as it
is available, so you can stop the command at any time; the next start resumes. The command also doubles the batch of
each run until the forecast is that it does not fit.
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
from launcher.products.planner.forecast.child import Limits
from launcher.products.planner.forecast.compiled import Compiler
from launcher.products.planner.forecast.constants import (
    FASTER_BY_TYPE,
    HBM_EFFICIENCY,
    HOP,
    KERNEL_EFFICIENCY,
    MATMUL_EFFICIENCY,
)
from launcher.products.planner.forecast.forecast import speed_of
from launcher.products.planner.forecast.memory_fit import judge
from launcher.products.planner.forecast.program import Program
from launcher.products.planner.forecast.request import request
from tests.products.planner.forecast_proof.runs import Run, published

RESULTS = Path(__file__).parent / "results.json"
PAGE = Path(__file__).parents[4] / "docs" / "reference" / "forecast-proof.md"
_DOUBLINGS = 8


@click.command()
@click.argument("names", nargs=-1)
@click.option("--minutes", type=float, default=None, help="Start no more compiles after this many minutes.")
def main(names: tuple[str, ...], minutes: float | None) -> None:
    """Forecast the published runs with these NAMES, or all of them."""
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
    """Add what was found to the results and the page. Returns the run's updated entry. Safe from several processes."""
    with (RESULTS.parent / ".results.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        results: dict[str, Any] = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
        before = results.get(name, {})
        if "measured" in found:  # replaces the entry, except the result for larger batches of a program of this size
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
    """Double the published batch until the forecast is that it does not fit. Skips batches that are far from filling
    the chip. Returns None if the result is known or no such batch was found."""
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
    """Return how often a batch that fits must be doubled until it could fill the chip, at least once. This assumes that
    all memory except the parameters grows with the batch."""
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
        return "forecast not to fit, but it ran"
    return f"measured {result['measured']:.3g} s, forecast {result['forecast']:.3g} s, {result['error']:+.1%}"


def page(results: dict[str, Any]) -> str:
    """Return the page with the table of all results."""
    errors = [abs(each["error"]) for each in results.values() if "error" in each]
    lines = [
        "# Forecasts compared with measured steps",
        "",
        "`make forecast-proof` writes this page. It compares steps that were measured on TPUs and published with all"
        " their settings (tests/products/planner/forecast_proof/runs.yaml has the sources) with the current result of"
        " `launcher forecast` for the same settings. The steps were measured with earlier versions of MaxText, JAX and"
        " libtpu, so the error includes the differences of today's compiler. These are largest for"
        " default-64b-v5p-64chips: its memory is so full that today's compiler overlaps nothing; with a batch of 2"
        " instead of 3 it does.",
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
        "All fitted values are in [constants.py](../../launcher/products/planner/forecast/constants.py). The"
        " manufacturers' data of the chips is in the accelerator table,"
        " [charts/common/values.yaml](../../charts/common/values.yaml), with its sources.",
        "",
        "| Constant | Value | Source |",
        "|---|---|---|",
        "| Share of the matrix unit (or of HBM, if that is the limit) that a multiplication keeps busy |"
        f" {by_side} | the rows above of v5e and v5p (128 x 128), and of v6e and tpu7x (256 x 256), which spend most of"
        " their time on it |",
        f"| The same for attention and grouped multiplications | {KERNEL_EFFICIENCY} | the rows above with 128k tokens,"
        " in which attention takes three quarters of the time, and with mixtures of experts |",
        f"| Share of HBM's speed that elementwise operations, copies and reductions reach | {HBM_EFFICIENCY} |"
        " the rows above, in which they take 3 to 22 % of the time |",
        f"| Speedup of the multiplication of 8-bit numbers over bf16 | {faster} | the chips' data sheets |",
        f"| Seconds for one link on the path of a collective | {HOP:g} | jax-ml.github.io/scaling-book |",
    ]


if __name__ == "__main__":
    main()
