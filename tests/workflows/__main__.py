"""`python -m tests.workflows [--full] [JOB…]`: run jobs of .github/workflows on this machine.

A dry run, of all jobs or those named, replaces the programs that take long or need the network (stand_in), in seconds.
With --full, the commands of the named jobs run, with the caches of this machine: as a user without privileges, in an
empty home, in a clone that has no neighbours. A step that installs packages of Debian does so on this machine.
The name of a job is the workflow, its id, and the row of its matrix: "ci lint", "ci tests (cluster)". Exit code 1: a
job failed.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from tests.workflows.expressions import WorkflowError
from tests.workflows.jobs import CHECKOUT, reason, run
from tests.workflows.reading import workflows


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.workflows", description="Run jobs of .github/workflows.")
    parser.add_argument("--full", action="store_true", help="run the commands themselves; may take an hour")
    parser.add_argument("--patience", type=float, default=1.0, metavar="FACTOR", help="for the time limits of jobs")
    parser.add_argument("job", nargs="*", help='such as "ci lint"; a dry run without names runs all')
    given = parser.parse_args(arguments)
    try:
        read = workflows(CHECKOUT)
        jobs = {job.name: job for workflow in read for job in workflow.jobs()}
        unknown = [name for name in given.job if name not in jobs]
        if unknown or (given.full and not given.job):
            parser.error(f"name a job, of: {'; '.join(jobs)}")
        for name in given.job if given.full else ():
            if why := reason(jobs[name]):
                parser.error(f"{name} cannot run in full here. {why}")
        failed = False
        for workflow in read:
            only = [name for name in given.job if jobs[name].workflow is workflow] if given.job else None
            if only == []:
                continue
            with tempfile.TemporaryDirectory(prefix="slipway-job-") as folder:
                for result, _ in run(
                    workflow, Path(folder), full=given.full, only=only, patience=given.patience, say=_say
                ):
                    _say(f"{result.job.name}: {result.conclusion} {result.seconds:.0f} s {result.failed}".rstrip())
                    failed |= bool(result.failed)
    except WorkflowError as error:
        print(f"Error: {error}", file=sys.stderr)
        return 1
    return 1 if failed else 0


def _say(line: str) -> None:
    print(f"--- {line}", flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
