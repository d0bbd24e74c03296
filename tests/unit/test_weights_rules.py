"""`from` in the values: the weights exist on this machine, and are those of the run's model."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from launcher.config.checks.weights_rules import FAMILIES, SIZES, described_differences, differences
from launcher.config.maxtext.models import settings
from launcher.config.plan import check_launch, plan_launch
from launcher.config.values import files as values
from launcher.config.values.files import chart_defaults
from trainer.config import RunConfig
from trainer.weights.model import FAMILIES as FAMILIES_OF_THE_TRAINER
from trainer.weights.model import read

DEFAULTS = chart_defaults("run")
BASE = {"base_emb_dim": 64, "base_num_decoder_layers": 2, "steps": 9}


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SLIPWAY_HOME", str(tmp_path))
    run = tmp_path / "runs" / "base"
    run.mkdir(parents=True)
    (run / "run.json").write_text(json.dumps({"train": BASE}))
    return tmp_path


def problems(source: str, *train: str, tokenizer: str = "") -> list[str]:
    lines = ["run: {name: tuned, kind: local}", "slice: {accelerator: cpu}", "storage: {kind: local}"]
    lines += [
        f"data: {{corpus: python, tokenizer: {{path: {tokenizer!r}}}}}",
        f"from: {source}",
        "train:",
        "  steps: 3",
        *(f"  {line}" for line in train),
    ]
    found = check_launch(values.read_text("\n".join(lines).encode(), "v.yaml"), DEFAULTS)
    return [str(each) for each in found if each.rule == "from"]


def test_the_model_of_a_run(home: Path) -> None:
    assert problems("base", "base_emb_dim: 64", "base_num_decoder_layers: 2") == []
    assert problems("base", "base_emb_dim: 64", "base_num_decoder_layers: 4") == [
        "v.yaml:9: train.base_num_decoder_layers is 4, and the weights of from: base have 2; set "
        "train.base_num_decoder_layers: 2, or start from other weights."
    ]
    # A key that only the other run has is not in this file: the line is that of `from`.
    assert problems("base", "base_num_decoder_layers: 2") == [
        "v.yaml:5: train.base_emb_dim is 2048, and the weights of from: base have 64; set train.base_emb_dim: "
        "64, or start from other weights."
    ]


def test_another_tokenizer_than_that_of_the_weights(home: Path) -> None:
    tokenizer = {"path": "/data/tokenizers/mine.model"}
    (home / "runs" / "base" / "run.json").write_text(json.dumps({"train": BASE, "data": {"tokenizer": tokenizer}}))
    model = ("base_emb_dim: 64", "base_num_decoder_layers: 2")
    assert problems("base", *model) == [
        "v.yaml:4: data.tokenizer.path: the weights of from: base know only the ids of their tokenizer, "
        "mine.model, and this run uses tokenizer.llama2; set that one, unless both are the same."
    ]
    assert problems("base", *model, tokenizer="/moved/mine.model") == []


def test_a_run_that_does_not_exist(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert problems("other") == [f"v.yaml:5: from: there is no run other on this machine ({home}/runs/other)."]
    (home / "runs" / "lr-1").mkdir()
    assert problems("lr")[0].endswith("The run of a sweep is written with its number, such as lr-1.")
    monkeypatch.chdir(home)
    assert problems("runs")[0].endswith("If you mean the folder, write ./runs.")


# As trainer/weights writes it for an import of Llama 3.1 8B.
LLAMA = {
    "family": "llama",
    "vocabulary": 128256,
    "layers": 32,
    "hiddenSize": 4096,
    "intermediateSize": 14336,
    "heads": 32,
    "keyValueHeads": 8,
    "headDim": 128,
    "experts": 0,
}


def test_imported_weights(home: Path) -> None:
    folder = home / "llama"
    folder.mkdir()
    assert problems(str(folder)) == []  # the trainer reports that it has no weights
    (folder / "slipway.json").write_text(json.dumps({"model": {**LLAMA, "layers": 4}, "scanned": True}))
    assert problems(f"{folder}/items", "model_name: llama3.1-8b") == [
        f"v.yaml:5: train.base_num_decoder_layers is 32, and the weights of from: {folder}/items have 4; set "
        "train.base_num_decoder_layers: 4, or start from other weights."
    ]
    assert problems(str(folder), "model_name: gemma2-2b") == [
        f'v.yaml:8: train.model_name is "gemma2-2b", and the weights of from: {folder} are those of llama; set '
        "train.model_name to that of the weights, or start from other weights."
    ]
    (folder / "slipway.json").write_text("[")
    assert problems(str(folder)) == []  # an unknown model: MaxText compares the weights


def test_described_models() -> None:
    assert described_differences({"model": LLAMA, "scanned": True}, {"model_name": "llama3.1-8b"}) == {}
    scanned = described_differences({"model": LLAMA, "scanned": False}, {"model_name": "llama3.1-8b"})
    assert scanned == {"scan_layers": (False, True)}
    assert (
        described_differences({"model": {**LLAMA, "family": "of a later version"}}, {"model_name": "llama3.1-8b"}) == {}
    )
    assert described_differences({"model": {**LLAMA, "experts": 8}}, {"model_name": "llama3.1-8b"}) == {
        "num_experts": (8, 1)
    }


@pytest.mark.parametrize(
    "name",
    ["default", "llama3.1-8b", "mistral-7b", "mixtral-8x7b", "gemma2-2b", "gemma3-4b", "qwen3-0.6b", "qwen3-30b-a3b"],
)
def test_the_trainers_description_of_a_model_is_that_of_its_run(name: str) -> None:
    config = plan_launch(values.load(["quickstart"]), DEFAULTS).config
    train = {"model_name": name} if name != "default" else config["train"]
    described = read(RunConfig(Path("run.json"), {**config, "train": train})).describe()
    assert set(SIZES) <= set(described)
    assert described_differences({"model": described, "scanned": settings(train)["scan_layers"]}, train) == {}


def test_the_families_are_those_of_the_trainer() -> None:
    assert {family.name: family.blocks for family in FAMILIES_OF_THE_TRAINER} == FAMILIES


def test_differences_are_of_effective_values() -> None:
    assert differences({"model_name": "llama3.1-8b"}, {"model_name": "llama3.1-8b", "base_emb_dim": 4096}) == {}
    assert differences({}, {"vocab_size": 32000, "steps": 3, "ici_fsdp_parallelism": 4}) == {}
    assert differences({}, {"scan_layers": False}) == {"scan_layers": (True, False)}
    assert differences({"model_name": "of-a-later-maxtext"}, {"base_emb_dim": 1}) == {}
