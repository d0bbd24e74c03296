"""The launch plan: the content of the run config, and the differences between two of them."""

from __future__ import annotations

import json

import pytest

from launcher.config.plan import CheckFailed, config_difference, plan_launch
from launcher.config.values import files as values
from launcher.config.values.files import chart_defaults

DEFAULTS = chart_defaults("run")


def user(text: str) -> values.Values:
    return values.read_text(text.encode(), "v.yaml")


def test_the_run_config_is_the_values_and_the_accelerators_row() -> None:
    plan = plan_launch(
        user(
            "run: {kind: job-set}\nteam: {name: research}\n"
            "slice: {topology: 2x4, count: 2, machineType: ct6e-standard-8t}\n"
            "image: {repository: i, tag: v1}\nstorage: {bucket: bucket}\n"
            "train: {steps: 1e3, learning_rate: 3e-4, dataset_type: synthetic}\n"
        ),
        DEFAULTS,
        name="llama",
    )
    assert (plan.name, plan.kind, plan.namespace, plan.warnings) == ("llama", "job-set", "research", ())
    assert set(plan.config) == {*DEFAULTS.tree, "accelerator"} - {"common", "global", "serve"}
    assert plan.config["accelerator"] == {
        "name": "v6e",
        "kind": "tpu",
        "label": "tpu-v6e-slice",
        "rayAcceleratorType": "TPU-V6E",
        "hbmGiB": 32,
        "peakTflops": 918,
        "speeds": DEFAULTS.tree["common"]["accelerators"]["v6e"]["speeds"],
        "machineType": "ct6e-standard-8t",
        "topology": "2x4",
        "chipsPerHost": 8,
        "chips": 8,
        "hosts": 1,
    }
    assert plan.config["train"] == {"steps": 1000, "learning_rate": 0.0003, "dataset_type": "synthetic"}
    assert plan.config["run"]["maxRestarts"] == 4
    assert json.loads(json.dumps(plan.config)) == plan.config


def test_two_local_workers() -> None:
    plan = plan_launch(values.load(["quickstart"]), DEFAULTS)
    assert (plan.name, plan.kind, plan.namespace) == ("quickstart", "local", "default")
    assert (plan.config["accelerator"]["hosts"], plan.config["accelerator"]["chips"]) == (2, 2)


def test_warnings_do_not_stop_a_plan() -> None:
    text = (
        "run: {name: x, command: [true-ish]}\nslice: {topology: 4x4}\nimage: {repository: i, tag: v1}\n"
        "storage: {bucket: bucket}\ntrain: {steps: 1}\n"
    )
    assert plan_launch(user(text), DEFAULTS).warnings == (
        "v.yaml:1: run.command replaces the trainer; data, train and tuning are ignored.",
    )


def test_all_problems_are_in_the_error() -> None:
    with pytest.raises(CheckFailed) as raised:
        plan_launch(user("run:\n  nmae: x\ntrain:\n  stps: 1\n"), DEFAULTS)
    assert raised.value.message.splitlines() == [
        "v.yaml:2: unknown key run.nmae; did you mean run.name?",
        "v.yaml:4: train.stps: MaxText has no key stps; did you mean train.steps?",
    ]
    assert len(raised.value.problems) == 2


def test_what_differs_between_two_configs() -> None:
    old = {
        "run": {"name": "x"},
        "train": {"steps": 30, "packing": True},
        "accelerator": {"hosts": 1},
        "slice": {"hosts": 1},
    }
    new = {
        "run": {"name": "x"},
        "train": {"steps": 60, "packing": 1, "a.b": "z"},
        "accelerator": {"hosts": 2},
        "data": {},
    }
    assert config_difference(old, new) == [
        "train.steps: 30 -> 60 (every step's learning rate changes with it, "
        "unless train.learning_rate_schedule_steps is set)",
        "train.packing: true -> 1",
        "slice.hosts: 1 -> (not set)",
        'train."a.b": (not set) -> "z"',
    ]
    assert config_difference(old, old) == []


def test_more_steps_on_a_schedule_of_its_own_change_nothing_else() -> None:
    schedule = {"learning_rate_schedule_steps": 100}
    old, new = ({"train": {"steps": steps, **schedule}} for steps in (30, 60))
    assert config_difference(old, new) == ["train.steps: 30 -> 60"]


def test_how_long_a_finished_run_is_kept_is_no_difference_of_its_config() -> None:
    """A run that an older version submitted, without the key, can be submitted again."""
    new = {"run": {"name": "a", "keepFinishedDays": 30}}
    assert config_difference({"run": {"name": "a"}}, new) == config_difference(new, {"run": {"name": "a"}}) == []
