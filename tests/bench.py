"""make bench: measure the ratios of docs/explanation/benchmarks.md in one run on this machine.

Plain MaxText (its own command, the same config, the same text as Parquet) and the trainer alternate in one environment
with all of MaxText's packages. The ratio is that of their medians. The first start of each pair has an empty
compilation cache, the second one a warm cache. `python -m tests.bench cluster` measures only the launcher, compared
with xpk, helm and kubectl (or a part of this: tests/bench_cluster.py).
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from tests import bench_cluster, bench_logs, bench_report, bench_restart, bench_simulate, bench_tuning
from tests.tools.go_tools import cache_dir, tool
from tests.trainer.serving_run import random_models, serve
from trainer import config as trainer_config
from trainer import data, maxtext_keys

CHECKOUT = Path(__file__).parents[1]
XPK = "xpk==1.16.0"
TRAIN: dict[str, Any] = {
    **bench_tuning.MODEL,
    "learning_rate": 3e-3,
    "enable_checkpointing": False,
    "num_epoch": 1,
}
_STEP = re.compile(r'completed step: (\d+),|SLIPWAY_METRICS \{"step": (\d+), "loss"')


def main() -> None:
    only_cluster, parts = sys.argv[1:2] == ["cluster"], sys.argv[2:] or bench_cluster.PARTS
    if (sys.argv[1:] and not only_cluster) or not set(parts) <= set(bench_cluster.PARTS):
        raise SystemExit(f"usage: python -m tests.bench [cluster [{'|'.join(bench_cluster.PARTS)}]...]")
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # an installation is compiled to bytecode at its first start
    say("Installing the programs to compare with: xpk, and all of MaxText's packages (once; some minutes)...")

    def measured() -> Iterator[Row]:
        if "render" in parts:
            yield start_row()
            yield help_row(environment("xpk", [XPK]))
            yield template_row()
        yield from bench_cluster.rows(lambda: environment("xpk", [XPK]), alternate, timed, cpu_time, say, parts)
        if not only_cluster:
            yield from bench_simulate.rows()
            yield serving_row()
            yield from bench_tuning.rows()
            yield from bench_logs.rows()
            yield from bench_restart.rows()
            yield from training(environment("bench", ["-c", "docker/constraints.txt", ".[tpu]"]))

    print(f"{'':58}{'ours':>9}{'other':>9}{'ratio':>8}{'goal':>7}")  # the table is what this command is for
    for what, ours, other, goal in measured():
        ratio = statistics.median(ours) / statistics.median(other)
        print(
            f"{what:58}{statistics.median(ours):8.3f}s{statistics.median(other):8.3f}s{ratio:8.3f}"
            f"{goal:7.2f}{'' if ratio <= goal else '  over'}",
            flush=True,
        )
    if not only_cluster:
        bench_report.main()  # has its own goals, without a comparison


def training(everything: Path) -> list[Row]:
    rows: list[Row] = []
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(everything / "bin" / "python", Path(folder))
        rows += bench.steps()
        rows += bench.starts("", "one process, no Ray", hosts=1, rounds=4)
        rows += bench.starts("--ray", "two workers, Ray Train", hosts=2, rounds=3)
    return rows


Row = tuple[str, list[float], list[float], float]


def help_row(xpk: Path) -> Row:
    commands = ([str(CHECKOUT / ".venv/bin/launcher"), "--help"], [str(xpk / "bin/xpk"), "--help"])
    ours, other = alternate(lambda: timed(commands[0]), lambda: timed(commands[1]), rounds=7)
    return "launcher --help / xpk --help", ours[1:], other[1:], 0.10


def serving_row() -> Row:
    """Compare the seconds per token of one client with mlx-lm's own: 1.11 is 0.9 of its tokens per second."""
    with tempfile.TemporaryDirectory() as folder:
        speed = serve(Path(folder), random_models(Path(folder)), "--speed")["speed"]
    return "a token of a served model / mlx-lm's generate_step", speed["served"], speed["bare"], 1.11


def start_row() -> Row:
    """Measure what the packages of `make setup` do at each start of Python: a .pth file can import modules."""
    python = str(CHECKOUT / ".venv/bin/python")
    commands = ([python, "-c", "pass"], [python, "-S", "-c", "pass"])
    ours, other = alternate(lambda: cpu_time(commands[0]), lambda: cpu_time(commands[1]), rounds=15)
    return "start of Python / without any package (CPU time)", ours[1:], other[1:], 2.5


def template_row() -> Row:
    """Measure CPU time, because a busy machine increases the wall time up to tenfold."""
    helm = str(tool("helm"))
    with tempfile.TemporaryDirectory() as folder:
        empty = Path(folder)
        (empty / "templates").mkdir()
        (empty / "Chart.yaml").write_text("apiVersion: v2\nname: empty\nversion: 0.1.0\n")
        (empty / "templates/a.yaml").write_text("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: empty}\n")
        run = [helm, "template", "x", str(CHECKOUT / "charts/run"), "-f"]
        run.append(str(CHECKOUT / "charts/run/ci/ray-job-values.yaml"))
        bare = [helm, "template", "x", folder]
        ours, other = alternate(lambda: cpu_time(run), lambda: cpu_time(bare), rounds=15)
    return "helm template charts/run / an empty chart (CPU time)", ours[1:], other[1:], 2.0


class Bench:
    """Alternates runs of a tiny model with plain MaxText and with the trainer."""

    def __init__(self, python: Path, folder: Path) -> None:
        self.python = python
        self.folder = folder
        self.text = folder / "text"
        self._write_parquet()

    def steps(self) -> list[Row]:
        """Measure the seconds from one finished step to the next, far from the start and the end of a run."""
        steps = 60
        say("Measuring steps...")

        def per_step(ours: bool) -> float:
            times = self._run(ours=ours, option="", hosts=1, steps=steps, cache="steps")
            return (times[steps - 2] - times[10]) / (steps - 12)

        ours, bare = alternate(lambda: per_step(ours=True), lambda: per_step(ours=False), rounds=5)
        return [("training step / bare MaxText's", ours[1:], bare[1:], 1.01)]

    def starts(self, option: str, how: str, *, hosts: int, rounds: int) -> list[Row]:
        """Measure the seconds from the start of the process to the end of the first step."""
        say(f"Measuring starts: {how}...")

        def start(ours: bool, warm: bool) -> float:
            cache = f"{how}-{ours}"
            if not warm:
                shutil.rmtree(self.folder / cache, ignore_errors=True)
            return self._run(ours=ours, option=option, hosts=hosts, steps=2, cache=cache)[0]

        cold: tuple[list[float], list[float]] = ([], [])
        warm: tuple[list[float], list[float]] = ([], [])
        for _ in range(rounds):
            for index, ours in enumerate((True, False)):
                cold[index].append(start(ours, warm=False))
                warm[index].append(start(ours, warm=True))
        # The first round also writes bytecode and fills the machine's file cache.
        ours_cold, bare_cold, ours_warm, bare_warm = (times[1:] for times in (*cold, *warm))
        return [
            (f"start to first step, {how}", ours_cold, bare_cold, 0.75),
            (f"restart, warm cache / bare start, {how}", ours_warm, bare_cold, 0.50),
            (f"restart / bare restart, both warm, {how}", ours_warm, bare_warm, 0.75),
        ]

    def _run(self, *, ours: bool, option: str, hosts: int, steps: int, cache: str) -> dict[int, float]:
        """Run to the end. Returns for each step the seconds from the start of the process to the step's line in the
        output."""
        runs = self.folder / "runs"
        shutil.rmtree(runs, ignore_errors=True)
        runs.mkdir()
        config = self._config(runs, hosts=hosts, steps=steps, cache=cache)
        if ours:
            argv = ["-m", "trainer", "--config", str(config.path), *([] if option else ["--no-ray"])]
        else:
            keys = maxtext_keys.maxtext_argv(config)[1:]
            keys = [key for key in keys if not key.startswith(("grain_train_files=", "grain_eval_files="))]
            keys.append(f"grain_train_files={self.text}-*.parquet")
            module = "tests.bench_bare_ray" if option else "maxtext.trainers.pre_train.train"
            argv = ["-m", module, *keys]
        env = {**os.environ, "JAX_PLATFORMS": "cpu", "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0", "PYTHONUNBUFFERED": "1"}
        started = time.perf_counter()
        times: dict[int, float] = {}
        with subprocess.Popen(
            [str(self.python), *argv],
            cwd=CHECKOUT,
            env=env,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
        ) as process:
            assert process.stdout is not None
            tail: list[str] = []
            for line in process.stdout:
                tail = [*tail[-30:], line]
                if match := _STEP.search(line):
                    # The trainer prints each step twice, MaxText's line and its own. The first one counts.
                    times.setdefault(int(match[1] or match[2]), time.perf_counter() - started)
        if process.returncode or len(times) < steps:
            raise SystemExit("".join(tail) + f"\na run ended with {process.returncode} after {len(times)} steps")
        return times

    def _config(self, runs: Path, *, hosts: int, steps: int, cache: str) -> trainer_config.RunConfig:
        tree = {
            "run": {"name": "bench", "maxRestarts": 0},
            "slice": {"count": 1},
            "accelerator": {"name": "cpu", "kind": "cpu", "hosts": hosts, "chips": hosts, "chipsPerHost": 1},
            "storage": {"mountPath": str(runs)},
            "data": {"corpus": "python", "heldOut": {"fraction": 0}},
            "train": {**TRAIN, "steps": steps, "jax_cache_dir": str(self.folder / cache)},
        }
        path = runs / "bench.json"
        path.write_text(json.dumps(tree))
        return trainer_config.read(path)

    def _write_parquet(self) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        corpus = data.open_corpus({"corpus": "python", "heldOut": {"fraction": 0}})
        texts = [text for unit in corpus.train for text in data.documents(unit, "text")]
        for part in (0, 1):
            pq.write_table(pa.table({"text": texts[part::2]}), f"{self.text}-{part}.parquet")


def environment(name: str, requirements: Sequence[str]) -> Path:
    """Return a Python environment outside the checkout with these requirements. Creates it once."""
    uv = CHECKOUT / ".venv/bin/uv"
    constraints = (CHECKOUT / "docker/constraints.txt").read_bytes()
    digest = hashlib.sha256(repr(list(requirements)).encode() + constraints).hexdigest()[:12]
    folder = cache_dir() / f"{name}-{digest}"
    if not (folder / ".done").exists():
        shutil.rmtree(folder, ignore_errors=True)
        subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
        python = str(folder / "bin/python")
        subprocess.run([uv, "pip", "install", "-q", "--python", python, *requirements], check=True, cwd=CHECKOUT)
        (folder / ".done").touch()
    return folder


def alternate(
    first: Callable[[], float], second: Callable[[], float], *, rounds: int
) -> tuple[list[float], list[float]]:
    """Call the two in turns, so that a change of the machine's speed affects both. The first round is a warm-up."""
    pairs = [(first(), second()) for _ in range(rounds)]
    return [pair[0] for pair in pairs], [pair[1] for pair in pairs]


def timed(command: Sequence[str]) -> float:
    started = time.perf_counter()
    subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True)
    return time.perf_counter() - started


def cpu_time(command: Sequence[str]) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
