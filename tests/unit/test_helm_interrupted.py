"""Ctrl-C while Helm runs. tests/cluster/test_install.py interrupts a real Helm."""

from __future__ import annotations

import asyncio
import os
import signal

import pytest

from launcher.helm import client


def test_ctrl_c_does_not_leave_a_helm_that_waits_for_its_values() -> None:
    """The start of Helm and the write of its values are not cut off; the interruption follows after its end."""
    finished = []

    async def run_helm() -> None:
        os.kill(os.getpid(), signal.SIGINT)
        await asyncio.sleep(0.01)  # the signal arrives here, where pyhelm3 would stop to write
        finished.append(True)

    with pytest.raises(KeyboardInterrupt):
        client._wait_for(run_helm())
    assert finished
