"""How a training process hears that it is to stop, without a training."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from tests.prerequisites import require
from trainer import stop_signal
from trainer.prestop import _catches

FIRST_PROCESS = """
import time
from trainer import stop_signal
stop_signal.exit_on_sigterm_until_training(3)
time.sleep(60)
"""


def test_a_containers_first_process_ends_while_it_starts() -> None:
    require(os.geteuid() == 0, "To create a process namespace, the test needs root.")
    argv = ["unshare", "--pid", "--fork", "--kill-child", sys.executable, "-c", FIRST_PROCESS]
    with subprocess.Popen(argv, cwd=Path(__file__).parents[2], stderr=subprocess.PIPE, text=True) as outer:
        try:
            inner: list[psutil.Process] = []
            deadline = time.monotonic() + 30
            while not (inner and _catches(inner[0].pid, signal.SIGTERM)):
                assert time.monotonic() < deadline
                time.sleep(0.05)
                inner = [each for each in psutil.Process(outer.pid).children() if each.name() != "unshare"]
            os.kill(inner[0].pid, signal.SIGTERM)
            said = outer.communicate(timeout=30)[1]
        finally:
            outer.kill()
    assert outer.returncode == 3
    assert said == "Error: The run received a stop signal before it finished a step since its start.\n"


def test_others_keep_the_signal_as_it_is() -> None:
    before = signal.getsignal(signal.SIGTERM)
    stop_signal.exit_on_sigterm_until_training(3)
    assert signal.getsignal(signal.SIGTERM) is before


def test_a_word_is_heard_though_asking_for_it_fails_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    heard: list[int] = []

    class Busy:
        def stop_requested(self) -> bool:
            asked.append(1)
            if len(asked) == 1:
                raise ConnectionError("the control plane does not answer")
            return True

        def stepping(self) -> None:
            pass

    monkeypatch.setattr(stop_signal, "_jax_listens", lambda: True)  # JAX takes SIGTERM in a training alone
    before = signal.signal(signal.SIGTERM, lambda number, _: heard.append(number))
    try:
        with stop_signal.watching(Busy(), lambda: False, stop_signal.stop_all_hosts):
            deadline = time.monotonic() + 10
            while not heard and time.monotonic() < deadline:
                time.sleep(0.05)
    finally:
        signal.signal(signal.SIGTERM, before)
    assert heard == [signal.SIGTERM]
