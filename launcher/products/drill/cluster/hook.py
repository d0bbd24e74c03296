"""A run of the drill whose one pod receives the notifications, and removes the folders of the drill when it ends.

A pod can reach it, and its owner reads what arrived from its log. So a drill needs no Service and no open port.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import suppress

from launcher import api
from launcher.errors import LauncherError
from launcher.json_object import json_object
from launcher.k8s.target import Target

PORT = 8080
_MARK = "NOTIFIED "
_PROGRAM = f"""
import glob, http.server, shutil, signal, sys, threading

class Handler(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        print("{_MARK}" + self.rfile.read(int(self.headers["Content-Length"])).decode(), flush=True)
        self.send_response(204)
        self.end_headers()

def stop(*_):
    for folder in glob.glob(sys.argv[1]):
        shutil.rmtree(folder, ignore_errors=True)
    print("REMOVED " + sys.argv[1], flush=True)
    raise SystemExit

signal.signal(signal.SIGTERM, stop)
http.server.HTTPServer(("", {PORT}), Handler).serve_forever()
"""


SETS = ("run.kind=job-set", "run.maxRestarts=0", "slice.hosts=1", "slice.count=1")


def command(folders: str) -> Sequence[str]:
    """Return the command of the run. `folders` is a pattern of the folders to remove when it ends."""
    return ["python", "-c", _PROGRAM, folders]


class Hook:
    """The hook in the run `name`, which has been submitted."""

    def __init__(self, name: str, target: Target) -> None:
        self.name, self._target = name, target
        self.address = f"json http://{name}-slice-0-0.{name}:{PORT}/"

    def wait(self, seconds: float) -> None:
        """Wait until it runs. Raises LauncherError if it does not, with the reason."""
        deadline = time.monotonic() + seconds
        while (now := api.status(self.name, target=self._target)).state != "running":
            if now.state.ended or now.stuck or time.monotonic() > deadline:
                raise LauncherError(
                    f'The run "{self.name}", which receives the notifications of the drill, is {now.state}: '
                    f"{now.reason or 'it has no reason'}",
                )
            time.sleep(1.0)

    def events(self, run: str) -> Sequence[str]:
        """Return the events of a run that it has received, in order; [] if its log cannot be read now."""
        received: list[str] = []
        with suppress(LauncherError):
            for line in api.logs(self.name, target=self._target):
                message = json_object(line.partition(_MARK)[2]) if _MARK in line else None
                if message is not None and message.get("run") == run:
                    received.append(str(message.get("event")))
        return received
