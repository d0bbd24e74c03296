"""TensorBoard of several runs: the real program, with the files of two runs."""

from __future__ import annotations

import json
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import Any

from tensorboardX import SummaryWriter

from tests.cli.conftest import eventually

# TensorBoard leaves threads and open files behind, so it has a process of its own.
SERVE = """
import sys
from launcher.backends.base import RunStatus, State
from launcher.products.report import tensorboard
runs = [RunStatus(path.rpartition("/")[2], "", "local", State.SUCCEEDED, folder=path) for path in sys.argv[1:]]
with tensorboard.serving(runs) as url:
    print(url, flush=True)
    sys.stdin.read()
"""


def test_two_runs_have_their_names_and_values(tmp_path: Path) -> None:
    losses = {"rates-1": 2.5, "rates-2": 1.5}
    for name, loss in losses.items():
        with SummaryWriter(f"{tmp_path}/{name}/tensorboard") as writer:
            writer.add_scalar("learning/loss", loss, 1)
    command = [sys.executable, "-c", SERVE, *(str(tmp_path / name) for name in losses)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        url = process.stdout.readline().strip()

        def read(path: str) -> Any:
            with urllib.request.urlopen(f"{url}data/{path}", timeout=30) as answer:
                return json.loads(answer.read())

        try:
            eventually(lambda: sorted(read("runs")) == [*losses], 60)
            for name, loss in losses.items():
                ((_, step, value),) = read(f"plugin/scalars/scalars?tag=learning/loss&run={name}")
                assert (step, value) == (1, loss)
        finally:
            process.kill()
