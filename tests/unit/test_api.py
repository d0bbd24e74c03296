"""launcher.api is documented and typed: it has the verbs of the command line, and more that a notebook needs."""

from __future__ import annotations

import inspect
import json
from pathlib import Path

import pytest

from launcher import api, plugins
from launcher.backends.local.record import Record, write_record
from launcher.cli.verbs import verbs
from launcher.errors import LauncherError
from launcher.k8s.target import Target
from launcher.trainer_output import metrics_in_log

FUNCTIONS = {name: function for name, function in inspect.getmembers(api, inspect.isfunction) if name in dir(api)}
# The verbs whose function in Python has another name.
NAMES = {
    "list": "list_runs",
    "diff": "diff_run",
    "record": "record_runs",
    "image": "build_image",
    "cluster": "plan_cluster",
    "data": "preview_data",
    "import": "import_weights",
    "eval": "evaluate",
    "simulate": "simulate_cluster",
}
# Verbs that exist only on the command line.
NOT_IN_PYTHON = {"attach", "completion"}


@pytest.mark.parametrize("name", sorted(FUNCTIONS))
def test_every_function_is_documented_and_typed(name: str) -> None:
    function = FUNCTIONS[name]
    assert (inspect.getdoc(function) or "").endswith((".", '"')), "it has no docstring"
    signature = inspect.signature(function)
    assert signature.return_annotation is not inspect.Signature.empty
    for parameter in signature.parameters.values():
        assert parameter.annotation is not inspect.Parameter.empty, parameter.name


@pytest.mark.parametrize("verb", [verb for verb in verbs() if verb not in NOT_IN_PYTHON])
def test_every_verb_is_a_function(verb: str) -> None:
    assert NAMES.get(verb, verb) in FUNCTIONS


def test_every_name_exists() -> None:
    for name in dir(api):
        assert getattr(api, name).__module__ == (api.HOMES.get(name) or plugins.api_module(name))
    with pytest.raises(AttributeError, match="has no attribute 'submitt'"):
        _ = api.submitt


def test_one_file_and_a_mapping_are_values() -> None:
    listed = api.plan(["quickstart"], ["train.steps=20"])
    assert api.plan("quickstart", {"train.steps": 20}).config == listed.config
    values = api.values("quickstart", {"data.files": ["a, b.txt"], "worker.env": {"X": "1"}, "data.corpus": None})
    assert values.tree["data"]["files"] == ["a, b.txt"]
    assert values.tree["worker"] == {"env": {"X": "1"}}
    assert values.tree["data"]["corpus"] is None
    assert str(values.origin(("worker", "env"))) == "--set 2"
    with pytest.raises(LauncherError, match=r"train\.stepz"):
        api.plan("quickstart", {"train.stepz": 20})


def test_metrics_of_a_run_of_this_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLIPWAY_HOME", str(tmp_path))
    folder = tmp_path / "runs" / "demo"
    folder.mkdir(parents=True)
    (folder / "run.json").write_text(json.dumps({"run": {"name": "demo"}, "train": {"steps": 3}}))
    write_record(folder, Record("demo", "default", "id", 1, "succeeded", "2026-11-01T10:00:00Z"))
    assert api.metrics("demo", target=Target(local=True)) == []
    # After a restart, a step is repeated.
    entries = [{"step": 0, "eval_loss": 9.0}, *({"step": step, "loss": 8.0 - step} for step in (0, 1, 2, 1))]
    entries[-1] = {"step": 1, "loss": 6.5}
    with (folder / "metrics.jsonl").open("w") as file:
        file.writelines(json.dumps(entry) + "\n" for entry in entries)
        file.write('{"step": 3, "lo')  # a line that is being written
    found = api.metrics("demo", target=Target(local=True))
    assert found == [
        {"step": 0, "loss": 8.0},
        {"step": 0, "eval_loss": 9.0},
        {"step": 1, "loss": 6.5},
        {"step": 2, "loss": 6.0},
    ]
    with pytest.raises(LauncherError, match='The run "demos" was not found on this machine'):
        api.metrics("demos", target=Target(local=True))


def test_metrics_in_a_log() -> None:
    lines = [
        "Loading the model",
        '(RayTrainWorker pid=1, ip=10.0.0.1) SLIPWAY_METRICS {"step": 0, "loss": 8.0}',
        'SLIPWAY_EVENT {"event": "loop_started"}',
        'SLIPWAY_METRICS {"step": 1, "lo',
        'SLIPWAY_METRICS {"step": 1, "loss": 7.0}',
    ]
    assert list(metrics_in_log(lines)) == [{"step": 0, "loss": 8.0}, {"step": 1, "loss": 7.0}]
