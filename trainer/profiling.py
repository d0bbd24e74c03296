"""Capture a profile of a training that runs, on request.

`launcher profile` writes REQUEST into the run's folder, or runs this module in a pod (`python -m trainer.profiling`),
which does the same. A thread of the first host's process looks for it, so that a slow file system delays no step. The
next steps are then recorded with JAX's profiler, into the folder's tensorboard/, and ANSWER is written.
launcher/products/inspect/profile.py has the other side.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
import threading
import time
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

from trainer.config import replace_file
from trainer.telemetry.log import warn

REQUEST, ANSWER = "profile-request.json", "profile.json"
"""A request has `id` and `steps`. The answer has the same `id`, the first of the `steps` that were recorded, the
`folder` of the profile, relative to that of the run, and `error`: a sentence, or ""."""
_SECONDS = 1.0


class Profiler:
    """Records the steps that a request asks for. Active only as a context manager, and in one process of a run."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._request: Mapping[str, Any] | None = None
        self._first: int | None = None  # the first recorded step, while recording
        self._step = 0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look, name="profile-request", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        if self._first is not None:
            self._stop(self._step + 1)

    def before_step(self, step: int, last_result: Any) -> None:
        """Start or stop recording, if `step` is the first, or the first after the last, of the wanted steps.

        `last_result` is an array of the step before, or None.
        """
        self._step = step
        if self._request is None:
            return
        if self._first is not None and step < self._first + int(self._request["steps"]):
            return
        if last_result is not None:
            last_result.block_until_ready()  # record whole steps
        if self._first is None:
            self._start(step)
        else:
            self._stop(step)

    def _start(self, step: int) -> None:
        import jax

        try:
            jax.profiler.start_trace(str(self._folder / "tensorboard"))
        except (RuntimeError, OSError, ValueError) as error:  # for example, train.profiler already records
            self._answer(step, 0, "", f"JAX's profiler cannot start: {error}")
        else:
            self._first = step

    def _stop(self, step: int) -> None:
        import jax

        first, self._first = self._first or 0, None
        try:
            jax.profiler.stop_trace()
        except (RuntimeError, OSError) as error:  # a full disk must not end the training
            return self._answer(first, 0, "", f"JAX's profiler cannot write the profile: {error}")
        profiles = self._folder / "tensorboard" / "plugins" / "profile"
        newest = max((path for path in profiles.iterdir() if path.is_dir()), key=lambda path: path.stat().st_mtime)
        return self._answer(first, step - first, str(newest.relative_to(self._folder)), "")

    def _answer(self, first: int, steps: int, folder: str, error: str) -> None:
        request, self._request = self._request or {}, None
        answer = {"id": request.get("id"), "first_step": first, "steps": steps, "folder": folder, "error": error}
        try:
            replace_file(self._folder / ANSWER, answer)
            (self._folder / REQUEST).unlink(missing_ok=True)
        except OSError as refused:
            warn(f"The profile's answer cannot be written: {refused.strerror}.")

    def _look(self) -> None:
        """Read a new request, until the training ends. A request stays until it is answered, also over a restart."""
        answered = None
        while not self._over.wait(_SECONDS):
            if self._request is not None:
                answered = self._request.get("id")
                continue
            try:
                request = json.loads((self._folder / REQUEST).read_text(encoding="utf-8"))
            except (OSError, ValueError):  # none, or not written completely
                continue
            if _is_valid(request) and request["id"] != answered:
                self._request = request


def main() -> int:
    """Request a profile, wait for the answer, and print it as JSON. Prints a sentence on stderr if that fails."""
    parser = argparse.ArgumentParser(prog="python -m trainer.profiling", description="Record steps of a training.")
    parser.add_argument("folder", type=Path, help="the folder of the run")
    parser.add_argument("steps", type=int, help="the number of steps")
    arguments = parser.parse_args()
    folder, number = arguments.folder, uuid.uuid4().hex
    try:
        replace_file(folder / REQUEST, {"id": number, "steps": arguments.steps})
    except OSError as error:
        print(f"The request for a profile cannot be written to {folder}: {error.strerror}.", file=sys.stderr)  # noqa: T201 - for the launcher
        return 1
    try:
        while True:
            with contextlib.suppress(OSError, ValueError):  # none yet, or not written completely
                answer = json.loads((folder / ANSWER).read_text(encoding="utf-8"))
                if answer["id"] == number:
                    print(json.dumps(answer))  # noqa: T201 - for the launcher
                    return 0
            time.sleep(_SECONDS / 2)
    finally:
        with contextlib.suppress(OSError):
            (folder / REQUEST).unlink()


def _is_valid(request: Any) -> bool:
    return isinstance(request, dict) and isinstance(request.get("steps"), int) and 0 < request["steps"] <= 1000


if __name__ == "__main__":
    sys.exit(main())
