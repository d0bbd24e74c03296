"""Runs that receive a stop signal from any source write one more checkpoint, and resume there without a lost step.

Checkpoints are 100,000 steps apart here, so a checkpoint after the first step's was written for the signal.
"""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import pytest

from tests.trainer.ray_jobs import Job, drain, entries, events, run_hook, steps, wait
from tests.trainer.ray_nodes import RayNodes
from tests.trainer.runs import ONE_HOST, Run, TrainingHarness, free_port, lines, numbers, with_run
from trainer.metrics import now

LONG: dict[str, Any] = {"steps": 150, "checkpoint_period": 100_000, "eval_interval": None}


@pytest.fixture(scope="module")
def reference(lab: TrainingHarness) -> Run:
    """Train on two hosts without a disturbance."""
    config = lab.config("long", **LONG)
    place = {"SLIPWAY_COORDINATOR": f"127.0.0.1:{free_port()}"}
    first = lab.start(config, "--no-ray", SLIPWAY_HOST_INDEX="0", **place)
    second = lab.start(config, "--no-ray", SLIPWAY_HOST_INDEX="1", **place)
    assert (first.wait(), second.wait(60)) == (0, 0), first.output()[-4000:]
    return first


def only_checkpoint(folder: Path, *others: int) -> int:
    """Return the step of the only checkpoint except `others` and the first step's."""
    found = {int(path.name) for path in (folder / "checkpoints").iterdir()}
    (step,) = found - {0, *others}
    return step


def test_no_stop_signal_repeats_a_step_or_counts_as_a_failure(
    lab: TrainingHarness, reference: Run, rendered: dict[str, Any], cluster: RayNodes
) -> None:
    """A run without restarts resumes after Kueue takes the whole cluster, a node is drained, and the job is stopped."""
    config = with_run(lab.config("stopped", **LONG), maxRestarts=0)
    folder = lab.root / "stopped"
    # Kueue preempts a RayJob: the whole cluster ends at once, including the head.
    preempted = RayNodes.of(rendered)
    try:
        job = Job(preempted, rendered, config, "stopped-1")
        wait(job, lambda: steps(folder) >= 5)
        before = steps(folder)
        hooks = [run_hook(preempted, node, rendered, lab.root) for node in preempted.nodes]
        assert [hook.wait(60) for hook in hooks] == [0, 0, 0]
        assert job.status() == "RUNNING"  # otherwise KubeRay may treat it as failed
        taken = only_checkpoint(folder)
        assert taken >= before - 1
        assert steps(folder) == taken + 1
    finally:
        preempted.stop()

    # The run is admitted again, in another cluster. A node is drained: the workers stop at the same step, and resume
    # with another node in its place.
    began, seen = now(), len(lines(folder / "metrics.jsonl"))
    job = Job(cluster, rendered, config, "stopped-2")
    wait(job, lambda: steps(folder) > taken + 5)
    node = cluster.nodes[-1]
    drain(cluster, node, rendered, lab.root)  # ends when the checkpoint is written
    drained = only_checkpoint(folder, taken)
    cluster.kill(node)
    cluster.add()
    wait(job, lambda: steps(folder) > drained + 5)

    # `launcher cancel` stops the job, or KubeRay if the RayJob is deleted.
    job.stop()
    assert job.end(60) == "STOPPED"
    stopped = only_checkpoint(folder, taken, drained)
    assert steps(folder) == stopped + 1
    # The log of the head's pod has the same lines, up to the last. Repeated steps appear twice there.
    metrics = lines(folder / "metrics.jsonl")[seen:]
    assert [line for line in entries(job.pod_log(), "SLIPWAY_METRICS ") if line in metrics] == metrics
    assert "(RayTrainWorker pid=" in job.pod_log()
    # A node that joins prints all logs in the folder that nodes of one machine share, including those of earlier jobs.
    logged = [event for event in events(job.pod_log()) if event["time"] >= began]
    assert {event["event"] for event in logged} <= {"phase", "loop_started", "preempted", "error"}
    assert {event["steps"] for event in logged if event["event"] == "loop_started"} == {LONG["steps"]}

    job = Job(cluster, rendered, config, "stopped-3")
    assert job.end() == "SUCCEEDED", job.log()[-3000:]
    run = Run(folder, reference.process, reference.log)
    assert numbers(run.metrics()) == numbers(reference.metrics())
    assert [event["step"] for event in run.events()] == [0, taken + 1, drained + 1, stopped + 1]
    # Both ends of the whole run, and the drained node between them.
    assert [event["step"] for event in run.events("preempted")] == [taken + 1, drained + 1, stopped + 1]
    assert run.events("worker_failed") == []


def test_a_local_run_with_nothing_to_save_ends_at_once(lab: TrainingHarness) -> None:
    """tests/cli/test_training.py cancels a run that has steps to save."""
    run = lab.start(lab.config("stopped-local", hosts=1, **LONG))
    run.until(lambda: len(run.events()) == 1)
    run.process.send_signal(signal.SIGINT)
    assert run.wait(30) == 3
    assert "before it finished a step" in run.output() or "stopped after" in run.output()


def test_one_host_without_ray_writes_a_checkpoint_too(lab: TrainingHarness, undisturbed_host: Run) -> None:
    config = lab.config("one", hosts=1, **ONE_HOST, checkpoint_period=100_000)
    run = lab.start(config, "--no-ray")
    run.until(lambda: run.step() >= 5)
    run.process.terminate()
    assert run.wait(30) == 3, run.output()[-3000:]
    assert only_checkpoint(run.folder) == run.step()
    again = lab.train(config, "--no-ray")
    assert again.process.returncode == 0, again.output()[-3000:]
    assert numbers(again.metrics()) == numbers(undisturbed_host.metrics())


def test_a_run_without_checkpoints_ends_after_a_stop_signal(lab: TrainingHarness) -> None:
    run = lab.start(lab.config("no-checkpoints", hosts=1, enable_checkpointing=False, **LONG), "--no-ray")
    run.until(lambda: run.step() >= 3)
    run.process.terminate()
    assert run.wait(30) == 3, run.output()[-3000:]
