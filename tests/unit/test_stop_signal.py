"""How a training process receives a stop request, without a training."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, cast

import psutil
import pytest

from tests.prerequisites import require
from trainer import loop, ray_driver, stop_signal
from trainer.config import RunConfig
from trainer.prestop import _catches

FIRST_PROCESS = """
import time
from trainer import stop_signal
stop_signal.exit_on_sigterm_until_training(3, supervised=False)
time.sleep(60)
"""


def test_a_containers_first_process_ends_while_it_starts() -> None:
    require(os.geteuid() == 0, "The test creates a process namespace. Run it as root.")
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
            stderr = outer.communicate(timeout=30)[1]
        finally:
            outer.kill()
    assert outer.returncode == 3
    assert stderr == "Error: The run received a stop signal before it finished a step since its start.\n"


def test_other_processes_keep_the_signal_handler() -> None:
    before = signal.getsignal(signal.SIGTERM)
    stop_signal.exit_on_sigterm_until_training(3, supervised=False)
    assert signal.getsignal(signal.SIGTERM) is before


def test_a_stop_request_is_received_after_one_failed_attempt(monkeypatch: pytest.MonkeyPatch) -> None:
    requests: list[int] = []
    received: list[int] = []

    class BusyControlPlane:
        def stop_requested(self) -> bool:
            requests.append(1)
            if len(requests) == 1:
                raise ConnectionError("the control plane does not answer")
            return True

        def stepping(self) -> None:
            pass

    monkeypatch.setattr(stop_signal, "_jax_listens", lambda: True)  # JAX handles SIGTERM only in a training
    before = signal.signal(signal.SIGTERM, lambda number, _: received.append(number))
    try:
        with stop_signal.watching(BusyControlPlane(), lambda: False, stop_signal.stop_all_hosts):
            deadline = time.monotonic() + 10
            while not received and time.monotonic() < deadline:
                time.sleep(0.05)
    finally:
        signal.signal(signal.SIGTERM, before)
    assert received == [signal.SIGTERM]


def test_a_second_signal_ends_the_process_unless_it_is_the_same_request(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stop_signal, "_SAME_SIGNAL_SECONDS", 0.1)
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1)}
    notice = stop_signal.StopSignal()
    try:
        notice.listen()
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGTERM):  # Ray's Jobs API signals every process
            signal.raise_signal(number)
        assert notice.given
        time.sleep(0.15)
        signal.raise_signal(signal.SIGUSR1)  # the request of the head's pod ends no process
        time.sleep(0.15)
        with pytest.raises(SystemExit) as end:
            signal.raise_signal(signal.SIGINT)
        assert end.value.code == 128 + signal.SIGINT
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class Channel:
    """The driver's view of its workers, without Ray: the real one needs a cluster, and this race a moment."""

    stepping = False
    asked = False

    def ask_to_stop(self) -> None:
        self.asked = True


def test_a_stop_right_after_the_first_step_still_writes_a_checkpoint() -> None:
    config = RunConfig(Path("run.json"), {"run": {"name": "demo", "graceSeconds": 30}})
    notice, channel = stop_signal.StopSignal(), Channel()
    notice.given_at = time.monotonic()
    ray_driver._save_and_stop(config, cast(Any, channel), notice)  # the worker has not reported its step yet
    assert not channel.asked
    channel.stepping = True
    ray_driver._save_and_stop(config, cast(Any, channel), notice)
    assert channel.asked


def test_a_stop_before_the_first_step_ends_the_run() -> None:
    config = RunConfig(Path("run.json"), {"run": {"name": "demo", "graceSeconds": 30}})
    notice = stop_signal.StopSignal()
    notice.given_at = time.monotonic() - 5
    with pytest.raises(loop.PreemptedError, match="before it finished a step"):
        ray_driver._save_and_stop(config, cast(Any, Channel()), notice)
