"""The settings of adapters: MaxText's keys, the matrices that they name, and what a continued run must keep."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from trainer import checks, maxtext_keys, resume, starting_weights
from trainer import config as trainer_config
from trainer.config import RunConfig
from trainer.errors import ConfigError
from trainer.tuning import lora
from trainer.tuning.settings import Lora, Tuning
from trainer.weights import adapters, model


def run(tmp_path: Path, method: str = "lora", values: dict[str, Any] | None = None, **train: Any) -> RunConfig:
    tree = {
        "run": {"name": "tuned"},
        "slice": {},
        "accelerator": {"name": "cpu", "kind": "cpu", "hosts": 1, "chips": 1},
        "storage": {"mountPath": str(tmp_path)},
        "from": "base@3",
        "tuning": {"method": method, "lora": values or {}},
        "train": {"load_parameters_path": str(tmp_path / "base" / "checkpoints" / "3" / "items"), **train},
    }
    return RunConfig(tmp_path / "run.json", tree)


def keys(config: RunConfig) -> dict[str, Any]:
    words = (word.split("=", 1) for word in maxtext_keys.maxtext_argv(config)[2:])
    return {key: json.loads(value) for key, value in words}


def test_defaults_and_types(tmp_path: Path) -> None:
    found = keys(run(tmp_path))
    assert found["lora"]["enable_lora"]
    assert (found["lora"]["lora_rank"], found["lora"]["lora_alpha"]) == (16, 32)
    assert (found["learning_rate"], found["weight_dtype"]) == (2e-4, "bfloat16")
    assert keys(run(tmp_path, dtype="float32"))["weight_dtype"] == "float32"
    assert keys(run(tmp_path, weight_dtype="float32"))["weight_dtype"] == "float32"
    assert keys(run(tmp_path, method="qlora"))["lora"]["lora_weight_qtype"] == "nf4"
    plain = keys(run(tmp_path, method="sft"))
    assert plain["lora"] == {"enable_lora": False}
    assert "weight_dtype" not in plain
    assert Tuning.of({"tuning": {"method": "sft", "lora": {"rank": 4}}}).lora is None


@pytest.mark.parametrize(
    ("module", "target"),
    [
        ("decoder/layers/self_attention/query", "q_proj"),
        ("decoder/layers_3/self_attention_local/out", "o_proj"),
        ("decoder/layers/layers_0/mlp/wi_1", "up_proj"),
        ("decoder/layers/mlp_global/wo", "down_proj"),
        ("decoder/layers/MoeBlock_0/gate", ""),
        ("decoder/layers/self_attention/query_norm", ""),
        ("decoder/logits_dense", ""),
    ],
)
def test_targets_are_modules_of_maxtext(module: str, target: str) -> None:
    def matches(*targets: str) -> bool:
        path = lora.maxtext_keys(Lora(targets=targets))["lora"]["lora_module_path"]
        return re.fullmatch(path, module) is not None

    assert matches() == bool(target)
    assert [name for name in (*lora.ATTENTION, *lora.MLP) if matches(name)] == ([target] if target else [])


def test_a_model_with_experts_has_adapters_at_its_attention(tmp_path: Path) -> None:
    config = run(tmp_path, model_name="qwen3-30b-a3b")
    source, settings = model.read(config), config.tuning.lora
    assert settings is not None
    assert adapters.targets(source, settings) == tuple(lora.ATTENTION)
    assert len(adapters.adapters(source, settings)) == 4
    adapters.check(config)
    with pytest.raises(ConfigError, match=r"^tuning.lora.targets: up_proj is in the experts of qwen3_moe, which have"):
        adapters.check(run(tmp_path, values={"targets": ["up_proj"]}, model_name="qwen3-30b-a3b"))
    with pytest.raises(ConfigError, match=r"^tuning.lora.rank is 513, but k_proj is a matrix of rank 512 at most"):
        adapters.check(run(tmp_path, values={"rank": 513, "targets": ["k_proj"]}, model_name="qwen3-30b-a3b"))
    with pytest.raises(ConfigError, match=r"models with the decoder gpt_oss have no export"):
        adapters.check(run(tmp_path, model_name="gpt-oss-20b"))


def test_a_run_keeps_its_adapters_and_their_weights(tmp_path: Path) -> None:
    items = tmp_path / "base" / "checkpoints" / "3" / "items"
    items.mkdir(parents=True)
    (items / "manifest.ocdbt").write_text("one")
    config = run(tmp_path)
    (config.folder / "checkpoints" / "4").mkdir(parents=True)
    trainer_config.keep(config)
    starting_weights.keep_base(config)
    resume.check(config)
    starting_weights.keep_base(config)
    assert starting_weights.frozen_weights(config) == str(items)
    for changed in (run(tmp_path, values={"rank": 8}), run(tmp_path, method="sft"), run(tmp_path, method="qlora")):
        with pytest.raises(ConfigError, match=r"^tuned cannot continue from its last checkpoint: from, tuning"):
            resume.check(changed)
    (items / "manifest.ocdbt").write_text("two")
    with pytest.raises(ConfigError, match=r"have changed since tuned started from them, and each start reads them"):
        starting_weights.keep_base(config)


@pytest.mark.parametrize(
    ("was", "now"),
    [
        ("", "/new/tokenizer.llama2"),
        ("/data/tokenizers/llama/", "/data/llama"),
        ("", "tokenizer.mistral-v1"),
        ("/data/llama", "/data/llama-2"),
    ],
)
def test_a_run_keeps_its_tokenizer_whose_folder_can_move(tmp_path: Path, was: str, now: str) -> None:
    (tmp_path / "a.txt").write_text("text\n")
    tree = dict(run(tmp_path, method="pretrain").tree)
    text = {"files": [str(tmp_path / "a.txt")], "heldOut": {"fraction": 0}}
    trees = [{**tree, "data": {**text, "tokenizer": {"path": path}}} for path in (was, now)]
    configs = [RunConfig(tmp_path / "run.json", tree) for tree in trees]
    (configs[0].folder / "checkpoints" / "4").mkdir(parents=True)
    trainer_config.keep(configs[0])
    resume.check(configs[0])
    before, after = ((path.rstrip("/") or "tokenizer.llama2").split("/")[-1] for path in (was, now))
    if before == after:
        resume.check(configs[1])
        return
    with pytest.raises(ConfigError, match=f"the tokenizer {before}, and data.tokenizer is {after} now; change"):
        resume.check(configs[1])


@pytest.mark.parametrize("given", ["base", "base@3", "base@best", ""])
def test_a_run_of_adapters_is_not_a_model_to_start_from(tmp_path: Path, given: str) -> None:
    step = {"base": "last", "base@best": "best"}.get(given, "3")
    (tmp_path / "base" / "checkpoints" / "3" / "items").mkdir(parents=True)
    (tmp_path / "base" / "run.json").write_text('{"tuning": {"method": "qlora"}, "train": {"steps": 4}}')
    (tmp_path / "base" / "metrics.jsonl").write_text('{"step": 4, "eval_loss": 1}\n')
    items = str(tmp_path / "base" / "checkpoints" / step / "items")
    source = f"from: {given}" if given else f"train.load_parameters_path: {items}"
    for method in ("sft", "lora"):
        config = run(tmp_path, method, load_parameters_path=items, dataset_type="synthetic")
        config = RunConfig(config.path, {**config.tree, "from": given})
        with pytest.raises(ConfigError) as refused:
            checks.check(config)
        assert str(refused.value) == (
            f"{source}: the checkpoints of base have adapters only; write a whole model with launcher export base "
            "--merge --to FOLDER, import it with launcher import FOLDER --to WEIGHTS, and set from to WEIGHTS."
        )
