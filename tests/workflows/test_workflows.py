"""The workflows of this repository: a dry run of every job, and what their tests need of the machine.

A dry run starts each job in a clone with an empty home and runs its steps in order. Programs that need the network, a
cluster or an hour are replaced (stand_in). `python -m tests.workflows --full JOB` runs the commands themselves.
"""

from __future__ import annotations

import ast
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests import tiers
from tests.tools import tool
from tests.workflows.jobs import CHECKOUT, UNAVAILABLE, run
from tests.workflows.reading import Job, Workflow, workflows
from tests.workflows.runner import Result

WORKFLOWS = {workflow.name: workflow for workflow in workflows(CHECKOUT)}
JOBS = [job.name for workflow in WORKFLOWS.values() for job in workflow.jobs()]


class Ran:
    """The result of a dry run, and the calls of the stand-ins."""

    def __init__(self, result: Result, calls: list[str]) -> None:
        self.result, self.calls = result, [shlex.split(call) for call in calls]

    def called(self, *words: str) -> list[list[str]]:
        """Return the calls that start with these words."""
        return [call for call in self.calls if call[: len(words)] == list(words)]


def dry(workflow: Workflow, folder: Path, outputs: Mapping[str, Mapping[str, str]] | None = None) -> dict[str, Ran]:
    folder.mkdir(exist_ok=True)
    return {result.job.name: Ran(result, calls) for result, calls in run(workflow, folder, outputs=outputs, say=print)}


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Ran]:
    """Every job of every workflow."""
    folder = tmp_path_factory.mktemp("jobs")
    return {name: each for flow in WORKFLOWS.values() for name, each in dry(flow, folder / flow.name).items()}


@pytest.mark.parametrize("name", JOBS)
def test_a_job_passes(name: str, ran: dict[str, Ran]) -> None:
    assert (ran[name].result.conclusion, ran[name].result.failed) == ("success", "")
    assert ran[name].result.ran


def test_every_tier_is_a_part_of_one_job(ran: dict[str, Ran]) -> None:
    """The charts have two jobs, one for each Helm. The image and kind have their own commands."""
    jobs: dict[str, list[str]] = {tier.name: [] for tier in tiers.TIERS}
    for name, each in ran.items():
        for call in each.called("make", "test-all"):
            [selection] = [word.removeprefix("TIER=") for word in call if word.startswith("TIER=")]
            names = re.findall(r"\w+", selection)
            assert set(names) <= {*jobs, "or"}, selection
            for tier in {*names} - {"or"}:
                jobs[tier].append(name)
        for target, tier in {"test-image": "image", "e2e": "e2e"}.items():
            jobs[tier] += [name] * len(each.called("make", target))
    assert {tier: len(names) for tier, names in jobs.items()} == {tier: 1 + (tier == "charts") for tier in jobs}, jobs
    helms = [job.matrix["helm"] for job in WORKFLOWS["ci"].jobs() if job.matrix.get("tier") == "charts"]
    assert helms == ["helm", "helm3"]


def test_a_change_of_pages_runs_the_pages_alone(tmp_path: Path) -> None:
    """The other jobs start nothing. The job `lint` always runs."""
    ran = dry(WORKFLOWS["ci"], tmp_path, {"changes": {"code": "false"}})
    started = {name for name, each in ran.items() if each.result.ran}
    assert started == {"ci lint", "ci tests (pages and notebook)"}
    assert all(each.result.conclusion != "failure" for each in ran.values())
    assert {name for name, each in ran.items() if each.result.skipped} == {"ci image", "ci kind"}


def test_the_release_publishes_what_it_built(ran: dict[str, Ran]) -> None:
    charts = ran["release charts"]
    pushed = [call[2] for call in charts.called("helm", "push")]
    assert pushed == ["dist/slipway-queues-99.0.0.tgz", "dist/slipway-run-99.0.0.tgz"]
    digest = f"ghcr.io/example/charts/slipway-run@sha256:{'a' * 64}"
    assert charts.called("cosign", "sign")[-1] == ["cosign", "sign", "--yes", digest]
    assert charts.called("cosign", "attest")[-1][-1] == digest
    for accelerator in ("cpu", "tpu", "gpu"):
        job = ran[f"release image ({accelerator})"]
        [build], [push] = job.called("docker", "build"), job.called("docker", "push")
        assert f"--build-arg=ACCELERATOR={accelerator}" in build
        assert push[-1].startswith("ghcr.io/example/slipway:")
        assert job.called("cosign", "sign")[-1][-1] == f"ghcr.io/example/slipway@sha256:{'a' * 64}"
    [create] = ran["release page"].called("gh", "release", "create")
    assert create[3] == "v99.0.0"
    assert {"./SHA256SUMS", "./SHA256SUMS.sigstore.json", "./slipway-run-99.0.0.tgz"} <= set(create)
    assert not {"./cosign.pub", "./notes.md"} & set(create)


def test_kind_has_the_image_before_the_tests(ran: dict[str, Ran]) -> None:
    """The image that the first step names reaches the script of the next one through GITHUB_ENV."""
    programs = [" ".join(call[:3]) for call in ran["ci kind"].calls]
    [build] = ran["ci kind"].called("docker", "build")
    [image] = [word.removeprefix("--tag=") for word in build if word.startswith("--tag=")]
    assert image.startswith("localhost/slipway:")
    assert ran["ci kind"].called("docker", "save")[0][-1] == image
    order = ["docker build", "kind create cluster", "kind load image-archive", "make e2e"]
    assert (
        sorted(order, key=lambda start: next(i for i, each in enumerate(programs) if each.startswith(start))) == order
    )


def test_jobs_that_cannot_run_in_full_have_a_reason() -> None:
    names = {f"{job.workflow.name} {job.id}" for workflow in WORKFLOWS.values() for job in workflow.jobs()}
    assert set(UNAVAILABLE) <= names
    assert all(why.endswith(".") for why in UNAVAILABLE.values())


# --- what the tests need of the machine ----------------------------------------------------------------------------

# The prerequisites of tests beyond Python, Go, make and git, by the reason given to `require`. The value is a pattern
# that a command of its job, or an input of an action, must match; "" is what every machine of GitHub has.
PREREQUISITES = {
    r"as root|another user|needs root": r"^sudo --preserve-env env PATH=\S+ make test-",
    r"starts \{name\}\. Install it": r"apt-get install .*\bzsh fish$",  # the shells of tests/cli/test_completion.py
    r"\{lacks\}; on Debian, apt-get": r"^buildah debootstrap debian-archive-keyring runc iproute2$",
    r"Set TMPDIR to a disk": "",  # 14 GB
    r"\bon Linux\b": "",
    r"Connect it to a network|Connect to a package index": "",
    r"pip install wandb": "",  # the extra `train` has it
}


def requirements() -> list[tuple[str, str]]:
    """Return each call of `require` in the tests: its file and the source of its reason."""
    found = []
    for file in sorted((CHECKOUT / "tests").rglob("*.py")):
        name = str(file.relative_to(CHECKOUT))
        if name in ("tests/unit/test_tiers.py", "tests/prerequisites.py"):  # they test `require`
            continue
        source = file.read_text(encoding="utf-8")
        if "require(" not in source:  # parsing all files takes seconds
            continue
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "require":
                found.append((name, ast.unparse(node.args[1])))
    return found


def provided(file: str, ran: Mapping[str, Ran]) -> list[str]:
    """Return the commands, and the inputs of actions, of the jobs that run the file's tests."""
    tier = tiers.tier_of(file).name
    jobs = [job for job in WORKFLOWS["ci"].jobs() if tier in re.split(" or ", job.matrix.get("tier") or job.id)]
    assert jobs, f"no job runs {file}"
    return [line for job in jobs for line in [*ran[job.name].result.ran, *_inputs(job)]]


def _inputs(job: Job) -> list[str]:
    return [str(value) for step in job.steps for value in step.get("with", {}).values()]


def test_the_machine_has_what_the_tests_require(ran: dict[str, Ran]) -> None:
    """GitHub's user is not root, and has no shells but bash. In CI, a missing prerequisite fails a test."""
    assert len(requirements()) > 10
    faults = []
    for file, reason in requirements():
        known = [pattern for text, pattern in PREREQUISITES.items() if re.search(text, reason)]
        if not known:
            faults.append(f"{file} requires something ({reason}); state in PREREQUISITES how the workflow provides it.")
        for pattern in known:
            if not any(re.search(pattern, each, re.MULTILINE) for each in provided(file, ran)):
                faults.append(f"{file} requires something ({reason}), and its job has no command like {pattern}.")
    assert faults == []


# --- checks of the text ---------------------------------------------------------------------------------------------


SHELLCHECK = str(Path(sys.prefix) / "bin/shellcheck")


# Also report a command whose failure a `$(…)` hides.
OPTIONS = "--enable=check-extra-masked-returns"


def actionlint(folder: Path) -> str:
    """Return the faults of the workflows in a folder."""
    command = [str(tool("actionlint")), "-no-color", f"-shellcheck={SHELLCHECK}"]
    environment = {**os.environ, "SHELLCHECK_OPTS": OPTIONS}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (1 if done.stdout else 0, "")
    return done.stdout


def test_actionlint(tmp_path: Path) -> None:
    """The workflows' own syntax, expressions and names; and with shellcheck, their scripts."""
    assert actionlint(CHECKOUT) == ""
    # Both checks run: they find a wrong name, an unquoted variable, and a failure that is hidden.
    (tmp_path / ".github/workflows").mkdir(parents=True)
    (tmp_path / ".git").mkdir()
    (tmp_path / ".github/workflows/x.yaml").write_text(
        "on: push\njobs:\n  x:\n    runs-on: ubuntu-24.04\n    steps:\n      - run: rm $HOME/x ${{ github.evnt }}\n"
        '      - run: eval "$(./variables)"\n'
    )
    faults = actionlint(tmp_path)
    assert [name for name in ("evnt", "SC2086", "SC2312") if name not in faults] == []


def scripts() -> list[str]:
    listed = subprocess.run(["git", "ls-files"], cwd=CHECKOUT, capture_output=True, text=True, check=True).stdout
    found = []
    for name in listed.splitlines():
        file = CHECKOUT / name
        if file.is_file() and os.access(file, os.X_OK) and re.match(rb"#!.*\b(ba)?sh\b", file.read_bytes()[:64]):
            found.append(name)
    return found


def test_shellcheck() -> None:
    """All shell scripts, also for commands whose failure is hidden in a `$(…)`."""
    assert {".ci/run", ".github/changed-code", "docker/pin", "tests/e2e/kind", "tests/workflows/stand_in"} <= set(
        scripts()
    )
    done = subprocess.run(
        [SHELLCHECK, OPTIONS, *scripts()],
        cwd=CHECKOUT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, "")
