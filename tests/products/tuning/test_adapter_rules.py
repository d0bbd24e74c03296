"""launcher check refuses adapters that cannot work, with the line and the key."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from launcher import api
from launcher.config.plan import CheckFailed, check_launch
from launcher.config.values.files import chart_defaults, load
from launcher.products.planner.forecast import request
from launcher.products.tuning.adapter_rules import _COMPUTE
from trainer.maxtext_keys import maxtext_folder

VALUES = """\
run: {name: adapters, kind: local}
slice: {accelerator: cpu}
storage: {kind: local}
from: base@9
tuning:
  method: lora
  template: plain
  lora: {rank: 8}
data: {corpus: "", files: [rows.jsonl], heldOut: {fraction: 0}}
train:
  steps: 3
"""
SMALL = ("train.base_emb_dim=64", "train.base_num_decoder_layers=1")


@pytest.fixture
def values(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SLIPWAY_HOME", str(tmp_path / "home"))
    (tmp_path / "home" / "runs" / "base" / "checkpoints" / "9" / "items").mkdir(parents=True)
    path = tmp_path / "mine.yaml"
    path.write_text(VALUES)
    rows = '{"prompt": "Is it even or odd: 4", "completion": "even"}\n'
    (tmp_path / "rows.jsonl").write_text(rows)
    return path


def messages(values: Path, *sets: str) -> list[str]:
    found = api.check([str(values)], [*SMALL, *sets])
    return [f"{each.line}: {each.message}" for each in found if each.severity == "error"]


@pytest.mark.parametrize(
    "sets",
    [["method=lora"], ["method=qlora", "lora.targets=[q_proj]"], ["method=dpo", "adapter=lora"]],
    ids=lambda sets: sets[0],
)
def test_adapters_are_accepted(values: Path, sets: list[str]) -> None:
    if "method=dpo" in sets:
        pairs = '{"prompt": "4", "chosen": "even", "rejected": "odd"}\n'
        (values.parent / "rows.jsonl").write_text(pairs)
    assert messages(values, *(f"tuning.{key}" for key in sets)) == []


@pytest.mark.parametrize(
    ("sets", "message"),
    [
        (["from="], "6: tuning.method: lora changes a model that exists; set from to a run, or to imported weights."),
        (["tuning.lora.rank=0"], "tuning.lora.rank is 0; it must be at least 1 and at most 1024."),
        (["tuning.lora.rank=65"], "tuning.lora.rank is 65, but down_proj is a matrix of rank 64 at most"),
        (
            ["tuning.lora.targets=[query]"],
            'tuning.lora.targets has an item that is "query"; it must be one of q_proj, k_proj',
        ),
        (["train.gradient_accumulation_steps=2"], "MaxText accumulates the gradients of all weights only"),
        (
            ["tuning.method=dpo", "tuning.adapter=qlora", "train.gradient_accumulation_steps=2"],
            "which tuning.adapter: qlora freezes; remove it",
        ),
        (
            ["tuning.method=orpo", "tuning.adapter=lora", "train.decoder_block=gpt_oss"],
            "the model has gpt_oss; use tuning.adapter: none, or another model.",
        ),
        (["train.load_full_state_path=/x/items", "from="], "has an optimizer of all weights; for tuning.method: lora"),
        (["train.decoder_block=gpt_oss"], "tuning.method: lora is for the decoders gemma2, gemma3"),
        (
            ["train.decoder_block=mixtral", "train.num_experts=4", "tuning.lora.targets=[up_proj]"],
            "tuning.lora.targets: up_proj is in the experts of the model, which have no adapters; use q_proj",
        ),
        (
            ["train.lora_rank=4"],
            "MaxText has no key lora_rank; for fine-tuning on conversations, set tuning.method: lora",
        ),
    ],
)
def test_what_cannot_work_is_refused(values: Path, sets: list[str], message: str) -> None:
    assert any(message in each for each in messages(values, *sets)), messages(values, *sets)


def test_a_plan_of_adapters_is_checked_too(values: Path) -> None:
    with pytest.raises(CheckFailed, match="accumulates the gradients of all weights only"):
        api.plan([str(values)], [*SMALL, "train.gradient_accumulation_steps=2"])


def test_a_run_of_adapters_is_not_a_model_to_start_from(values: Path) -> None:
    record = values.parent / "home" / "runs" / "base" / "run.json"
    record.write_text(json.dumps({"run": {"name": "base"}, "tuning": {"method": "dpo", "adapter": "lora"}}))
    (message,) = messages(values)
    assert message.startswith("4: from: the checkpoints of base have adapters only; write a whole model with")


def test_a_model_that_computes_something_else_than_that_of_its_weights_is_a_warning(values: Path) -> None:
    record = values.parent / "home" / "runs" / "base" / "run.json"
    imported = values.parent / "weights" / "slipway.json"
    imported.parent.mkdir()

    def warnings(*sets: str, **theirs: object) -> list[str]:
        train = {"base_emb_dim": 64, "base_num_decoder_layers": 1, **theirs}
        for path in (record, imported):
            path.write_text(json.dumps({"run": {"name": "base"}, "train": train}))
        found = check_launch(load([str(values)], [*SMALL, *sets]), chart_defaults("run"))  # without MaxText's trace
        return [each.message for each in found if each.key.startswith("train.")]

    assert warnings(rope_max_timescale=10_000, mlp_activations=["silu", "linear"]) == []
    assert warnings("train.rope_max_timescale=500000", rope_max_timescale=500_000.0) == []
    assert warnings(rope_max_timescale=500_000) == [
        "train.rope_max_timescale is 10000, and was 500000 in the run of from: base@9. The weights fit both, but were "
        "trained with the earlier value; set it, unless you want the change."
    ]
    assert warnings("from=./weights", rope_max_timescale=500_000)[0].startswith(
        "train.rope_max_timescale is 10000, and was 500000 in the model of from: ./weights. The weights fit both, but"
    )
    (message,) = warnings("train.normalization_layer_epsilon=0.1")
    assert message.startswith("train.normalization_layer_epsilon is 0.1, and was 1e-05 in the run of from: base@9.")
    base = yaml.safe_load((maxtext_folder() / "configs" / "base.yml").read_text(encoding="utf-8"))
    assert {key: base[key] for key in _COMPUTE} == _COMPUTE


def test_a_forecast_of_adapters_is_not_that_of_all_weights(values: Path) -> None:
    def key(*sets: str) -> str:
        plan = api.plan(
            [str(values)],
            [
                *SMALL,
                "run.kind=job-set",
                "slice.accelerator=v6e",
                "slice.topology=2x2",
                *sets,
                "data.files=[/data/a.jsonl]",
            ],
        )
        return request.request(plan, {}).key

    sets = ("storage.kind=pvc", "storage.claim=data", "image.repository=x", "image.tag=x")
    keys = {key(*sets, *more) for more in ((), ("tuning.method=qlora",), ("tuning.lora.rank=4",))}
    assert len(keys) == 3
    assert key(*sets, "tuning.method=sft") == key(*sets, "tuning.method=sft", "tuning.lora.rank=4")
    assert key(*sets, "tuning.method=sft") not in keys
    pairs = {key(*sets, "tuning.method=dpo", *more) for more in ((), ("tuning.adapter=lora",), ("tuning.samples=[a]",))}
    assert len(pairs) == 2


@pytest.mark.parametrize(
    ("sets", "expected"),
    [
        ([], {}),
        (["tuning.beta=0.1", "tuning.turns=all", "tuning.columns={}"], {}),  # the defaults
        (["tuning.turns=last", "tuning.columns.tools=t", "data.heldOut.fraction=0.1", "tuning.samples=[a]"], {}),
        (["tuning.method=dpo", "tuning.adapter=lora", "tuning.reference=precomputed", "tuning.beta=1"], {}),
        (
            ["tuning.beta=0.3", "tuning.reference=precomputed", "tuning.columns.chosen=c", "data.field=body"],
            {
                "tuning.beta": "tuning.method is lora, and it is for dpo or orpo",
                "tuning.reference": "tuning.method is lora, and it is for dpo",
                "tuning.columns.chosen": "tuning.method is lora, and it is for dpo or orpo",
                "data.field": "tuning.method: lora reads rows; tuning.columns names their columns",
            },
        ),
        (
            ["tuning.method=orpo", "tuning.reference=precomputed", "tuning.columns.messages=m"],
            {
                "tuning.reference": "tuning.method is orpo, and it is for dpo",
                "tuning.columns.messages": "tuning.method is orpo, and it is for sft, lora or qlora",
                "tuning.lora.rank": "all weights are trained; adapters need tuning.method: lora, or tuning.adapter",
            },
        ),
        (["tuning.samples=[a]"], {"tuning.samples": "the model answers after an evaluation, and nothing is held out"}),
        (
            ["tuning.method=pretrain", "from=", "tuning.tooLong=drop", "tuning.columns.prompt=q", "tuning.samples=[a]"],
            {
                f"tuning.{key}": "tuning.method is pretrain, and it is for sft, lora, qlora, dpo or orpo"
                for key in ("template", "tooLong", "columns.prompt", "samples")
            }
            | {"tuning.lora.rank": "all weights are trained; adapters need tuning.method: lora, or tuning.adapter"},
        ),
        (
            ["data.files=[]", "data.mixture.a.files=[a.jsonl]", "data.mixture.a.weight=1", "data.mixture.a.field=b"],
            {"data.mixture.a.field": "tuning.method: lora reads rows; tuning.columns names their columns"},
        ),
        (
            ["data.heldOut.files=[b.jsonl]", "data.heldOut.fraction=0.1"],
            {"data.heldOut.fraction": "data.heldOut.files is set, too"},
        ),
        (
            ["data.files=[]", "train.dataset_type=synthetic", "data.heldOut.files=[b.jsonl]", "data.field=a"],
            dict.fromkeys(
                ("data.heldOut.fraction", "data.heldOut.files", "data.field"),
                "data.files is empty, and other keys of MaxText select the text of train.dataset_type",
            ),
        ),
        (["run.command=[sleep]", "tuning.beta=0.3"], {}),  # another rule: the trainer does not run
    ],
)
def test_keys_without_effect_are_reported(values: Path, sets: list[str], expected: dict[str, str]) -> None:
    found = check_launch(load([str(values)], [*SMALL, *sets]), chart_defaults("run"))
    # With pretrain, the run would train something else than tuning describes.
    severity, advice = (
        ("error", "Set tuning.method, or remove it.") if "tuning.method=pretrain" in sets else ("warning", "Remove it.")
    )
    assert {each.key: (each.severity, each.message) for each in found if each.rule == "unused"} == {
        key: (severity, f"{key} has no effect: {why}. {advice}") for key, why in expected.items()
    }
