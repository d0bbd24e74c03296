"""Which output of a run is kept in its folder, and how much: storage.logs of the run config (trainer/log_keeper.py)."""

from __future__ import annotations

import json
import os
import re
from dataclasses import replace
from typing import Any

from trainer import log_keeper
from trainer.config import RunConfig

DRIVER, HOST = "driver", "host-{}"
"""The sources: a driver's output, with that of all its workers; and the output of a host, by its index."""
ATTEMPT_VARIABLE = "SLIPWAY_ATTEMPT"
"""The variable with the number of the attempt; the launcher annotates the pods of the second and later ones."""
_ATTEMPT_KEY = "slipway.dev/attempt"
_QUANTITY = re.compile(r"(\d+)(Ki|Mi|Gi)?")
_UNITS = {None: 0, "Ki": 10, "Mi": 20, "Gi": 30}


def attempt() -> int:
    """Return the number of this attempt: from the pod, or from the metadata of the Ray job; 1 if neither has it."""
    text = os.environ.get(ATTEMPT_VARIABLE)
    if not text:
        try:
            text = json.loads(os.environ.get("RAY_JOB_CONFIG_JSON_ENV_VAR") or "{}")["metadata"][_ATTEMPT_KEY]
        except (ValueError, KeyError, TypeError):
            return 1
    return int(text) if str(text).isdigit() else 1


def settings(config: RunConfig, source: str, number: int | None = None, **files: Any) -> log_keeper.Settings | None:
    """Return where the output of a source is kept; None if it is not kept. `number` is that of the attempt."""
    logs = config.tree["storage"].get("logs") or {}
    match = _QUANTITY.fullmatch(str(logs.get("size") or "0"))
    size = int(match[1]) << _UNITS[match[2]] if match else 0
    if not size or config.is_local:
        return None
    folder = config.folder / log_keeper.FOLDER / str(number or attempt())
    return log_keeper.Settings(str(folder), source, size, float(logs.get("seconds") or 5), **files)


def keep_worker(config: RunConfig, rank: int, number: int) -> None:
    """Keep the output of this worker of Ray, which Ray writes to files of its session. `number` is the attempt's."""
    pid = os.getpid()
    kept = settings(config, HOST.format(rank), number, pid=pid)
    if kept is None:
        return
    try:
        from ray._private import worker

        session = str(worker._global_node.get_session_dir_path())
        files = (f"logs/worker-*-{pid}.out", f"logs/worker-*-{pid}.err")
        log_keeper.start(replace(kept, session=session, files=files))
    except Exception as error:  # the training does not need its log
        print(f"The output of worker {rank} is not kept in {kept.folder}: {error}.", flush=True)  # noqa: T201 - its log
