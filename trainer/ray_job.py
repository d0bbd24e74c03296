"""The Ray job that this process is the driver of."""

from __future__ import annotations

import json
import os
import sys
import time

_SECONDS_TO_BE_STOPPED = 60


def stop() -> None:
    """Stop the job, and with it this process, so that it counts as stopped and not as failed.

    KubeRay starts a failed RayJob again, with a new cluster, as often as its backoffLimit says; a stopped one is
    complete. Returns where there is no such job, or where it could not be stopped.
    """
    try:
        settings = json.loads(os.environ.get("RAY_JOB_CONFIG_JSON_ENV_VAR", "{}"))
        name = settings["metadata"]["job_submission_id"]
    except (ValueError, KeyError, TypeError):
        print("This is no Ray job; there is nothing to stop.", file=sys.stderr)  # noqa: T201 - the job's log
        return
    from ray.job_submission import JobSubmissionClient

    sys.stdout.flush()
    sys.stderr.flush()
    try:
        JobSubmissionClient().stop_job(name)
    except Exception as error:  # of requests, of Ray; whatever it is, the exit code is what is left to say
        print(f"The Ray job {name} could not be stopped: {error}", file=sys.stderr)  # noqa: T201 - the job's log
        return
    time.sleep(_SECONDS_TO_BE_STOPPED)
