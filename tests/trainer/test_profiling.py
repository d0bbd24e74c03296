"""The request for a profile and its answer, between the launcher and a loop of real JAX steps.

tests/cli/test_training.py profiles a real training.
"""

from __future__ import annotations

import json
import threading
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import pytest

from launcher.backends.base import RunStatus, State
from launcher.errors import LauncherError
from launcher.products.inspect import profile
from trainer import profiling

RUN = RunStatus("demo", "default", "local", State.RUNNING, step=3, steps=40)


class Training:
    """A loop of small steps in a thread, until `stop` is called."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.steps = 0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._train)

    def _train(self) -> None:
        def train_step(x: jax.Array) -> jax.Array:
            return jnp.tanh(x @ x)

        compiled = jax.jit(train_step)
        x = jnp.ones((8, 8))
        with profiling.Profiler(self.folder) as profiler:
            while not self._over.wait(0.01):
                profiler.before_step(self.steps, x)
                x = compiled(x)
                self.steps += 1

    def __enter__(self) -> Training:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()


def backend(*states: State, command: bool = False) -> Any:
    """A backend of a run in these states, one after another; the last one stays. Only these methods are needed."""
    left = list(states)

    def status(_: str) -> RunStatus:
        return replace(RUN, state=left.pop(0) if len(left) > 1 else left[0])

    return SimpleNamespace(
        status=status, poll_seconds=0.0, config_of=lambda _: {"run": {"command": ["sh"] if command else []}}
    )


def test_the_names_of_the_files_agree() -> None:
    assert (profile.REQUEST, profile.ANSWER) == (profiling.REQUEST, profiling.ANSWER)


def test_steps_are_recorded_while_the_training_continues(tmp_path: Path) -> None:
    run = replace(RUN, folder=str(tmp_path))
    with Training(tmp_path) as training:
        for count in (2, 1):
            before = training.steps
            found = profile.capture(backend(State.RUNNING), run, count)
            assert found.steps == count
            assert found.first_step >= before
            [recorded] = Path(found.folder).glob("*.xplane.pb")
            assert b"train_step" in recorded.read_bytes()
            assert Path(found.folder).parent == tmp_path / "tensorboard" / "plugins" / "profile"
    assert not (tmp_path / profile.REQUEST).exists()


def test_a_training_that_ends_answers_with_the_steps_so_far(tmp_path: Path) -> None:
    (tmp_path / profiling.REQUEST).write_text(json.dumps({"id": "a", "steps": 1000}))
    with Training(tmp_path) as training:
        while training._over.wait(0.05) is False and training.steps < 150:
            pass
    answer = json.loads((tmp_path / profiling.ANSWER).read_text())
    assert answer["id"] == "a"
    assert 0 < answer["steps"] < 1000


def test_a_profiler_that_is_in_use(tmp_path: Path) -> None:
    jax.profiler.start_trace(str(tmp_path / "other"))
    try:
        with Training(tmp_path), pytest.raises(LauncherError, match="JAX's profiler cannot start"):
            profile.capture(backend(State.RUNNING), replace(RUN, folder=str(tmp_path)), 1)
    finally:
        jax.profiler.stop_trace()


@pytest.mark.parametrize("text", ["", "[]", '{"id": "a"}', '{"id": "a", "steps": 0}', '{"id": "a", "steps": "x"}'])
def test_an_invalid_request_is_ignored(text: str) -> None:
    assert not profiling._is_valid(json.loads(text or "null"))


def test_runs_that_cannot_be_profiled(tmp_path: Path) -> None:
    run = replace(RUN, folder=str(tmp_path))
    with pytest.raises(LauncherError, match=r"has been cancelled before a step was recorded\."):
        profile.capture(backend(State.RUNNING, State.CANCELLED), run, 1)
    assert list(tmp_path.iterdir()) == []
    for refused, sentence in (
        ((backend(State.RUNNING), replace(run, state=State.FAILED)), "has failed; only a run that trains"),
        ((backend(State.RUNNING, command=True), run), "runs a command of its own"),
    ):
        with pytest.raises(LauncherError, match=sentence):
            profile.capture(*refused, 1)
