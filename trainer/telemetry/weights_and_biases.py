"""Weights & Biases: the lines of metrics.jsonl as one run there, across restarts.

MaxText's own integration (`enable_wandb`) ends the training if W&B does not answer, starts a new run at every restart,
and sends the numbers of unfinished evaluations at steps that W&B rejects. This module replaces it.

A restart resumes under the run's id, which is stored in the run's folder, at the last step in W&B: lines that
it has are not sent again, lines missing because of a kill are sent first. Offline the last written step is unknown,
so each start writes its own folder with all lines that count, and removes the previous one.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import queue
import shutil
import signal
import tempfile
import threading
import uuid
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from trainer.config import RunConfig
from trainer.telemetry.log import warn

_SECONDS_TO_FINISH = 60
_SECONDS_TO_FORGET = 3
_NOT_SENT = ("step", "time")


class Upload:
    """Sends lines of metrics.jsonl in its own thread, so that the network delays nothing."""

    def __init__(self, config: RunConfig, lines: Iterable[Mapping[str, Any]]) -> None:
        """`lines`: the content of metrics.jsonl at this start."""
        self._config = config
        self._finished = False
        self._lines: queue.SimpleQueue[Mapping[str, Any] | None] = queue.SimpleQueue()
        for line in lines:
            self._lines.put(line)
        self._thread = threading.Thread(target=self._run, name="wandb", daemon=True)
        self._thread.start()

    def line(self, line: Mapping[str, Any]) -> None:
        if self._thread.is_alive():
            self._lines.put(line)

    def close(self, *, patient: bool) -> None:
        """`patient`: wait until all is sent, for at most a minute; else only for a moment."""
        self._lines.put(None)
        self._thread.join(_SECONDS_TO_FINISH + 5 if patient else 2)
        if patient and self._thread.is_alive():
            warn("Weights & Biases did not accept all lines within a minute; the rest is in metrics.jsonl.")
        if not self._finished:
            _end_service()

    def _run(self) -> None:
        try:
            self._send()
        except Exception as error:  # no W&B error is worth a training run
            first = next(iter(str(error).strip().splitlines()), "")
            warn(f"Weights & Biases: {first or type(error).__name__} Training continues without it.")

    def _send(self) -> None:
        wandb: Any = importlib.import_module("wandb")
        values = self._config.wandb or {}
        offline = values.get("mode") == "offline"
        number = run_id(self._config)
        folder = self._config.folder if offline else Path(tempfile.mkdtemp(prefix="slipway-wandb-"))
        former = list((folder / "wandb").glob(f"offline-run-*-{number}")) if offline else []
        run = wandb.init(
            project=values["project"],
            entity=values.get("entity") or None,
            id=number,
            name=self._config.name,
            group=self._config.team or None,
            resume="allow",
            mode="offline" if offline else "online",
            dir=str(folder),
            # Only the description of the training leaves the cluster; environment variables of the pods do not.
            config={key: self._config.tree.get(key) for key in ("run", "slice", "accelerator", "data", "train")},
            settings=wandb.Settings(
                console="off",
                disable_git=True,
                disable_job_creation=True,
                finish_timeout=_SECONDS_TO_FINISH,
                finish_timeout_raises=False,
                save_code=False,
                silent=True,
            ),
        )
        for former_folder in former:
            shutil.rmtree(former_folder, ignore_errors=True)
        while (line := self._lines.get()) is not None:
            # For a step that W&B already has, it would log at every line that it drops the line.
            if row(line) >= run.starting_step:
                sent = {key: value for key, value in line.items() if key not in _NOT_SENT and value is not None}
                run.log(sent, step=row(line))
        run.finish()
        self._finished = True


def _end_service() -> None:
    """End W&B's own process, which keeps retrying a server that does not answer. This process would wait for it at
    exit, longer than the grace period of a pod."""
    ended = False
    for children in Path("/proc/self/task").glob("*/children"):
        with contextlib.suppress(OSError):
            for number in children.read_text().split():
                if Path("/proc", number, "comm").read_text().strip() == "wandb-core":
                    os.kill(int(number), signal.SIGKILL)
                    ended = True
    if ended:
        forgetting = threading.Thread(target=_forget_service, name="wandb-end", daemon=True)
        forgetting.start()
        forgetting.join(_SECONDS_TO_FORGET)


def _forget_service() -> None:
    """Prevent a W&B traceback at the process's exit, after the sentence that the run ends with."""
    wandb: Any = importlib.import_module("wandb")
    with contextlib.suppress(Exception):  # the server does not answer
        wandb.teardown()


def row(line: Mapping[str, Any]) -> int:
    """Return the step in W&B for a line of metrics.jsonl. An evaluation's is that of the update before it, because
    a step with only an evaluation would be taken for a finished one."""
    return max(int(line["step"]) - 1, 0) if "eval_loss" in line else int(line["step"])


def run_id(config: RunConfig) -> str:
    """Return W&B's id of this run. It is stored in its folder, so that a run of the same name elsewhere, or later, has
    another."""

    path = config.folder / "wandb.json"
    if not path.exists():
        draft = path.with_suffix(f".{os.getpid()}.tmp")
        draft.write_text(json.dumps({"id": f"{config.name}-{uuid.uuid4().hex[:8]}"}), encoding="utf-8")
        draft.replace(path)
    return str(json.loads(path.read_text(encoding="utf-8"))["id"])
