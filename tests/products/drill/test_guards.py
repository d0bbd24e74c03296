"""`launcher drill` fails if one guard of the product is broken: in a copy of the code, one guard at a time.

The guards were chosen before the drill was first run against them. Each row breaks one, and names the fault that must
reveal it and the problem that the certificate must have.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.compiled_programs import kept
from tests.products.drill.broken_code import CHECKOUT, copy_of_the_code, edit

# The numbers of the run without a fault come from a drill of the code as it is: only the function takes them.
SCRIPT = """
import json, pathlib, sys
from launcher import api
fault, patience, numbers, *sets = sys.argv[1:]
file = pathlib.Path(numbers)
known = {int(step): tuple(row) for step, row in json.loads(file.read_text()).items()} if file.exists() else None
certificate = api.drill([fault], sets=sets, numbers=known, patience=float(patience))
file.write_text(json.dumps(certificate.numbers))
print(json.dumps(certificate.as_json()))
sys.exit(not certificate.passed)
"""
ALONE = "slice.hosts=1"
"""One host, and so no Ray, which starts in half the time."""


@dataclass(frozen=True)
class Guard:
    """A guard. `broken` are a file, its text, and the text that breaks the guard; the problem is a pattern."""

    name: str
    broken: Sequence[tuple[str, str, str]]
    fault: str
    problem: str
    patience: int = 1200
    ray: bool = False


_RESTART = (
    "launcher/backends/local/supervisor.py",
    "if final or restarts >= self.max_restarts:",
    "if final or restarts >= 0:",
)
GUARDS = (
    Guard(
        "a stop that is announced writes a checkpoint",
        [("trainer/training/saving.py", "            self._wait(manager)\n", "            return False\n")],
        "stopped",
        r"\d+ steps were lost; at most 0 may be\.",
    ),
    Guard(
        "a restart continues at its place in the data",
        [
            (
                "trainer/training/hooks.py",
                "is None:\n                return hooks._load(loader)\n",
                "is None:\n                loader.data_iterator.reset()\n                return hooks._load(loader)\n",
            )
        ],
        "driver-killed",
        r"The numbers of \d+ steps differ",
    ),
    Guard(
        "checkpoints are written while the run trains",
        [("trainer/training/saving.py", "saved = self._save(manager, step, *args, **kwargs)", "saved = False")],
        "supervisor-killed",
        r"1\d steps were lost; at most 10 may be\.",
    ),
    Guard("a trainer that was killed is started again", [_RESTART], "driver-killed", "The run ended as failed: "),
    Guard(
        "a process that was killed is forked again",
        [
            (
                "trainer/prepared.py",
                "if (code >= 0 and not lost) or parent.stopped or failures >= restarts or short:",
                "if True:",
            )
        ],
        "worker-killed",
        r"The parent of the process that trains started again, although only a process of it was killed\.",
    ),
    Guard(
        "a kill is notified",
        [("trainer/reporting/reporter.py", 'if before and not before[-1].get("ended"):', "if False:")],
        "driver-killed",
        "The webhook received no notification of the event failed",
    ),
    Guard(
        "a restart keeps the metrics of the steps before it",
        [("trainer/metrics.py", 'else line["step"] < start_step)', 'else line["step"] < start_step - 1)')],
        "driver-killed",
        r"1 steps have no line in metrics\.jsonl",
    ),
    Guard(
        "a restart shuffles by the seed of the run",
        [
            (
                "trainer/data/stream.py",
                "dataset.shuffle(seed=seed)",
                'dataset.shuffle(seed=seed + 3 - int(__import__("os").environ["SLIPWAY_RESTARTS_LEFT"]))',
            )
        ],
        "driver-killed",
        r"The numbers of \d+ steps differ",
    ),
    Guard(
        "a full storage ends the run",
        [
            (
                "trainer/storage_errors.py",
                "    for cause in _chain(error):\n        if isinstance(cause, StorageError):",
                "    return None\n    for cause in _chain(error):\n        if isinstance(cause, StorageError):",
            )
        ],
        "storage-full",
        "The fault did not end the run",
    ),
    Guard(
        "the training does not wait for notifications, nor fail with them",
        [
            (
                "trainer/reporting/notifier.py",
                "            self._queue.put_nowait((number, message))",
                "            send(self._addresses[0], message)",
            ),
            (
                "trainer/reporting/process.py",
                '            warn(f"The notification {event} failed: {type(error).__name__}.")',
                "            raise",
            ),
        ],
        "webhook-down",
        "The run ended before its fault|The training started again, although only a notification failed",
    ),
    Guard(
        "workers of Ray that were killed are started again",
        [_RESTART, ("trainer/ray_driver.py", "FailureConfig(max_failures=restarts,", "FailureConfig(max_failures=0,")],
        "worker-killed",
        "The run ended as failed: ",
        ray=True,
    ),
)


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the programs that JAX has compiled, and the numbers of a run without a fault."""
    folder = tmp_path_factory.mktemp("guards")
    with kept(folder):
        done = drill(CHECKOUT, folder, "webhook-down")
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


def break_guard(guard: Guard, code: Path) -> None:
    for name, sound, broken in guard.broken:
        edit(code / name, sound, broken)


def drill(code: Path, shared: Path, fault: str, *, patience: int = 1200) -> subprocess.CompletedProcess[str]:
    sets = [ALONE, f"train.jax_cache_dir={shared / '.jax_cache'}"]
    return run(code, ["-c", SCRIPT, fault, str(patience), str(shared / "numbers.json"), *sets])


def run(code: Path, arguments: Sequence[str]) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "TMPDIR": str(code.parent)} if code != CHECKOUT else dict(os.environ)
    return subprocess.run(
        [sys.executable, *arguments], cwd=code, env=environment, capture_output=True, text=True, check=False
    )


def test_each_guard_is_in_the_code() -> None:
    assert len(GUARDS) == 11
    for guard in GUARDS:
        for name, sound, _ in guard.broken:
            assert (CHECKOUT / name).read_text().count(sound) == 1, f"{guard.name}: {name} has changed"


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("guard", GUARDS, ids=lambda guard: guard.name.replace(" ", "-"))
def test_a_drill_fails_without_the_guard(guard: Guard, shared: Path, tmp_path: Path) -> None:
    code = copy_of_the_code(tmp_path)
    break_guard(guard, code)
    if guard.ray:  # as a user runs it, with its own run without a fault
        done = run(code, ["-m", "launcher", "drill", "--fault", guard.fault, "-o", "json"])
    else:
        done = drill(code, shared, guard.fault, patience=guard.patience)
    assert done.returncode == 1, done.stdout + done.stderr
    (row,) = json.loads(done.stdout)["faults"]
    assert any(re.match(guard.problem, problem) for problem in row["problems"]), row
