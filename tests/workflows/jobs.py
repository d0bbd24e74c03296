"""Runs the jobs of a workflow, each on its own machine: dry, with stand-ins for programs, or in full."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from tests.tools.go_tools import cache_dir
from tests.workflows.actions import Event, World
from tests.workflows.expressions import WorkflowError
from tests.workflows.machine import Machine, sudo
from tests.workflows.reading import Job, Workflow
from tests.workflows.runner import Result, Runner

CHECKOUT = Path(__file__).parents[2]
TAG = "v99.0.0"

# The programs that a dry run replaces (stand_in).
DRY = ("make", "sudo", "apt-get", "go", "docker", "kind", "kubectl", "helm", "cosign", "syft", "gh")

# Jobs that cannot run in full on a machine without these services, by workflow and id.
UNAVAILABLE: Mapping[str, str] = {
    "ci kind": "Kind creates its cluster in Docker and pulls images and manifests from public registries.",
    "release pypi": "It uploads to PyPI.",
    "release charts": "It pushes to the registry ghcr.io, and signs with the identity of a workflow.",
    "release image": "It builds with Docker, pushes to ghcr.io, and signs with the identity of a workflow.",
    "release page": "It signs with the identity of a workflow, and creates a release at GitHub.",
}

# In a full run, `make upstream` is left out: it downloads from GitHub, which may not be available, and without these
# files the tests use the tables in the repository. Its own test downloads from a server on loopback.
_MAKE_WITHOUT_UPSTREAM = """\
#!/bin/sh
[ "$1" = upstream ] && exec make -f "$GITHUB_WORKSPACE/Makefile" --dry-run upstream
PATH=${PATH#*:} exec make "$@"
"""


def event_of(workflow: Workflow) -> Event:
    """Return a push of the files of this checkout: to main, or as a tag if the workflow runs for tags only.

    The commit has the changed files, too, but not those that Git does not know.
    """
    stashed = _git("-c", "user.name=x", "-c", "user.email=x@example.com", "stash", "create")
    commit = stashed or _git("rev-parse", "HEAD")
    tags = "tags" in workflow.content["on"].get("push", {})
    return Event(CHECKOUT, commit, f"refs/tags/{TAG}" if tags else "refs/heads/main")


def _git(*arguments: str) -> str:
    return subprocess.run(["git", *arguments], cwd=CHECKOUT, capture_output=True, text=True, check=True).stdout.strip()


def run(
    workflow: Workflow,
    folder: Path,
    *,
    full: bool = False,
    only: Collection[str] | None = None,
    outputs: Mapping[str, Mapping[str, str]] | None = None,
    patience: float = 1.0,
    say: Callable[[str], object] = lambda line: None,
) -> Iterator[tuple[Result, list[str]]]:
    """Run the jobs of a workflow in their order. Yield each result, and the calls of the stand-ins of a dry run.

    only: the names of the jobs to run, besides those that they need. outputs: the outputs of jobs, by id; these jobs
    do not run. patience: the factor for the time limits of jobs. Raises WorkflowError if the workflow is invalid.
    """
    jobs = list(workflow.jobs())
    wanted = {job.id for job in jobs if only is None or job.name in only}
    for job in reversed(jobs):  # a job is after those that it needs
        if job.id in wanted:
            wanted |= set(job.needs)
    caches = _caches() if full else {"~/.cache/slipway/tools": folder / "tools", "~/.cache/uv": folder / "uv"}
    for path in caches.values():
        path.mkdir(parents=True, exist_ok=True)
    world = World(event_of(workflow), folder / "artifacts", caches, None if full else folder / "checkouts", patience)
    results: dict[str, list[Result]] = {}
    for number, job in enumerate(jobs):
        needed_alone = (
            only is None or job.name in only or not any(each.name in only for each in jobs if each.id == job.id)
        )
        if job.id not in wanted or not needed_alone:
            continue
        if outputs and job.id in outputs:
            results[job.id] = [Result(job, dict(outputs[job.id]))]
            continue
        missing = [need for need in job.needs if need not in results]
        if missing:
            raise WorkflowError(f"{job.name}: move it after {', '.join(missing)}, which it needs.")
        needs = {need: _combined(results[need]) for need in job.needs}
        machine = Machine(folder / f"job{number}", full=full)
        with _programs(machine, full=full) as calls:
            result = Runner(job, machine, world, needs, say).run()
            results.setdefault(job.id, []).append(result)
            yield result, calls.read_text().splitlines() if calls.exists() else []


def _combined(results: list[Result]) -> Result:
    """Return the result of a job with a matrix: it fails if any row fails."""
    return next((result for result in results if result.conclusion != "success"), results[0])


@contextmanager
def _programs(machine: Machine, *, full: bool) -> Iterator[Path]:
    """Write the programs of the tests to the first folder of the machine's PATH. Yield the file of their calls."""
    calls = machine.programs / "calls"
    if full:
        machine.variables["PYTHONUNBUFFERED"] = "1"  # the output of a job that is killed
        make = machine.programs / "make"
        make.write_text(_MAKE_WITHOUT_UPSTREAM)
        make.chmod(0o755)
        with sudo(machine):
            yield calls
        return
    for name in DRY:
        (machine.programs / name).symlink_to(Path(__file__).with_name("stand_in"))
    machine.variables |= {
        "STAND_IN_CALLS": str(calls),
        "STAND_IN_VENV": sys.prefix,
        "https_proxy": "http://127.0.0.1:9",  # nothing leaves this machine
    }
    yield calls


def _caches() -> dict[str, Path]:
    """Return the caches of this machine that replace those of GitHub, by their paths in the workflow."""
    uv = subprocess.run(
        [str(Path(sys.prefix) / "bin/uv"), "cache", "dir"], capture_output=True, text=True, check=True
    ).stdout.strip()
    go = subprocess.run(
        ["go", "env", "GOMODCACHE", "GOCACHE"], capture_output=True, text=True, check=True
    ).stdout.split()
    return {
        "~/.cache/slipway/tools": cache_dir(),
        "~/.cache/uv": Path(uv),
        "~/go/pkg/mod": Path(go[0]),
        "~/.cache/go-build": Path(go[1]),
    }


def reason(job: Job) -> str:
    """Return why the job cannot run in full here, or ""."""
    return UNAVAILABLE.get(f"{job.workflow.name} {job.id}", "")
