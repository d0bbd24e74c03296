"""Adapters (LoRA and QLoRA): the steps of another implementation, exports for peft and whole models, and a kill.

The other implementation is mlx-lm's LoRALinear with its own gradients. tests/image/test_peft.py has peft itself, which
needs PyTorch: Slipway does not depend on it.
"""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mlx.core as mx
import mlx.nn as nn
import mlx_lm
import numpy as np
import psutil
import pytest
from mlx.utils import tree_flatten, tree_unflatten
from mlx_lm.tuner.lora import LoRALinear
from mlx_lm.utils import load_model

from launcher.backends.base import State
from launcher.backends.local.record import Record, now, write_record
from tests.tiny_model import TINY_MODEL
from tests.trainer import adapter_models, hf_forward
from tests.trainer.reference_models import inputs
from tests.trainer.runs import CHECKOUT, WEIGHED, Run, TrainingHarness, numbers
from tests.trainer.test_preferences import BETA, dpo, encoded, log_probabilities, pairs
from tests.trainer.test_preferences import conversations as both
from tests.trainer.test_tuning import KEYS, question, write
from trainer.tuning.template import PLAIN
from trainer.weights.safetensors_files import _read_header

METHODS = ("lora", "qlora")
RANK, ALPHA = 4, 6
ROWS = [question(number) for number in (128, 7, 12, 31)]
PAIRS = pairs(3)
TARGETS = ["q_proj", "down_proj"]
SAMPLES = ["Is it even or odd: 3 5 8", "Who is there?"]
RUNS: dict[str, dict[str, Any]] = {
    "lora": {"method": "dpo", "adapter": "lora", "beta": BETA, "samples": SAMPLES},
    "qlora": {
        "method": "qlora",
        "lora": {"targets": TARGETS},
        "template": "{% for m in messages if m.role != 'system' %}{{ m.role + ': ' + m.content }}</s>{% endfor %}"
        "{{ 'assistant: ' if add_generation_prompt }}",
    },
}
"""Adapters that are trained on pairs, and quantized ones of some matrices that are trained on conversations.

The template of the latter leaves out system messages.
"""


def config(lab: TrainingHarness, name: str, base: Run, file: Path, lora: dict[str, Any], **train: Any) -> Path:
    data = {
        "files": [str(file)],
        "heldOut": {"fraction": 0.1 if lora.get("samples") else 0},
        "tokenizer": {"kind": "sentencepiece", "path": str(lab.tokenizer)},
    }
    weights = str(base.folder / "checkpoints" / "3" / "items")
    of_pairs = {"max_target_length": 128, "per_device_batch_size": 4} if lora["method"] == "dpo" else {}
    own = {"steps": 40, "learning_rate_schedule_steps": 40, "checkpoint_period": 10, "load_parameters_path": weights}
    keys = {**KEYS, **of_pairs, **own, **train}
    path = lab.config(name, hosts=1, data=data, **keys)
    values = {"rank": RANK, "alpha": ALPHA}
    tuning = {"method": "lora", "template": PLAIN, **lora}
    tree = json.loads(path.read_text()) | {"tuning": {**tuning, "lora": {**values, **tuning.get("lora", {})}}}
    path.write_text(json.dumps(tree | {"from": "base@3"}))
    return path


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Return the data of RUNS."""
    folder = tmp_path_factory.mktemp("data")
    path = folder / "pairs.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in pairs(300)))
    questions = write(folder / "questions.jsonl", list(range(100, 400)))
    with questions.open("a") as file:
        file.write(json.dumps({"messages": [{"role": "system", "content": "Be brief."}, *ROWS[0]["messages"]]}) + "\n")
    return {"lora": path, "qlora": questions}


@pytest.fixture(scope="module")
def run_to_the_end(lab: TrainingHarness, base: Run, files: dict[str, Path]) -> Callable[[str], Run]:
    """Return a function that returns the undisturbed run of a method, which it trains once."""

    @functools.cache
    def trained(method: str) -> Run:
        run = lab.train(config(lab, f"{method}-whole", base, files[method], RUNS[method]), "--no-ray")
        assert run.process.returncode == 0, run.output()[-3000:]
        return run

    return trained


def exported(config: Path, to: Path, *options: str) -> Path:
    words = ("-m", "trainer.weights", "export", "--config", str(config), "--to", str(to), *options)
    done = subprocess.run([sys.executable, *words], cwd=CHECKOUT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return to


def tensors(folder: Path) -> dict[str, np.ndarray[Any, Any]]:
    return {name: each.read() for name, each in _read_header(folder / "adapter_model.safetensors").items()}


def with_adapter(model: Any, folder: Path) -> dict[str, np.ndarray[Any, Any]]:
    """Replace the matrices of mlx's model by mlx-lm's LoRALinear, with the tensors of a folder for peft."""
    settings = json.loads((folder / "adapter_config.json").read_text())
    found = tensors(folder)
    changed = []
    for name, module in model.named_modules():
        if name.rpartition(".")[2] not in settings["target_modules"]:
            continue
        layer = LoRALinear.from_base(module, r=settings["r"], scale=settings["lora_alpha"] / settings["r"])
        layer.lora_a, layer.lora_b = (
            mx.array(found[f"base_model.model.{name}.{part}.weight"].T) for part in ("lora_A", "lora_B")
        )
        changed.append((name, layer))
    assert len(found) == 2 * len(changed)
    model.update_modules(tree_unflatten(changed))
    model.freeze()
    for _, layer in changed:
        layer.unfreeze(keys=["lora_a", "lora_b"], recurse=False)
    return found


def two_steps(lab: TrainingHarness, base: Run, rows: Path, method: str) -> tuple[Path, list[dict[str, Any]]]:
    """Train two steps on one batch with SGD. Write the batch to `rows`; return the run config, and the steps' metrics.

    The second step continues from the checkpoint of the first one.
    """
    examples: list[dict[str, Any]] = ROWS if method == "lora" else PAIRS
    rows.write_text("".join(json.dumps(row) + "\n" for row in examples))
    first_step: dict[str, Any] = {
        "learning_rate_schedule_steps": 2,
        "checkpoint_period": 1,
        "per_device_batch_size": len(examples),
        "packing": False,
        "enable_data_shuffling": False,
        "opt_type": "sgd",
        "learning_rate": 0.5,
        "warmup_steps_fraction": 0,
        "gradient_clipping_threshold": 0,
        "max_target_length": 128,
    }
    lora = {"method": "lora"} if method == "lora" else {"method": "dpo", "adapter": "lora", "beta": BETA}
    path = config(lab, f"{method}-steps", base, rows, lora, **first_step, steps=2)
    run = lab.train(path, "--no-ray")
    assert run.process.returncode == 0, run.output()[-3000:]
    lines = [line for line in run.metrics() if "loss" in line]
    assert [line["examples"] for line in lines] == [len(examples), len(examples)]
    return path, lines


def talks_of(method: str) -> list[list[dict[str, Any]]]:
    """Return the conversations in the batch of `two_steps`: of pairs, both."""
    return [row["messages"] for row in ROWS] if method == "lora" else [talk for row in PAIRS for talk in both(row)]


def assert_step(
    old: dict[str, Any], new: dict[str, Any], slopes: dict[str, Any], rate: float, *, least: float, atol: float = 1e-4
) -> None:
    """Check that each tensor changed by its gradient. `least`: the change of each is larger."""
    assert slopes.keys() == old.keys() == new.keys()
    for key, slope in slopes.items():
        # MaxText's query weights are those of Hugging Face divided by the root of head_dim, so their step is larger.
        scale = TINY_MODEL["head_dim"] if key.endswith(("q_proj.lora_B.weight", "q_proj.weight")) else 1
        change = np.abs(new[key] - old[key]).max()
        assert change > least
        # Half of the change: no change is not enough either. The tokenizer, and so the numbers, differ each time.
        most = min(atol, change / 2) if least else atol
        np.testing.assert_allclose(new[key], old[key] - scale * rate * slope, atol=most, err_msg=key)


@pytest.mark.parametrize("method", ["lora", "dpo"])
def test_steps_are_those_of_another_implementation(
    lab: TrainingHarness, base: Run, tmp_path: Path, method: str
) -> None:
    """The reference of DPO is the frozen base."""
    before = {each: each.read_bytes() for each in base.folder.rglob("*") if each.is_file()}
    path, lines = two_steps(lab, base, tmp_path / "rows.jsonl", method)
    assert before == {each: each.read_bytes() for each in base.folder.rglob("*") if each.is_file()}

    mx.set_default_device(mx.cpu)
    whole = exported(base.folder / "run.json", tmp_path / "base")
    first, second = (exported(path, tmp_path / str(step), "--step", str(step)) for step in (0, 1))
    tokenizer = mlx_lm.load(str(whole))[1]._tokenizer
    given = encoded(tokenizer, talks_of(method))
    model, _ = load_model(whole)
    reference = mx.array(np.array(log_probabilities(model, given)[0]))

    def loss(network: Any) -> Any:
        sums, lengths = log_probabilities(network, given)
        return -sums.sum() / lengths.sum() if method == "lora" else dpo(sums, reference)

    assert lines[0]["loss"] == pytest.approx(float(loss(model)), abs=1e-5)  # B starts as zeros
    old = with_adapter(model, first)
    value, gradients = nn.value_and_grad(model, loss)(model)
    assert lines[1]["loss"] == pytest.approx(float(value), abs=1e-5)
    assert lines[1]["loss"] < lines[0]["loss"] - 1e-3
    slopes = {
        f"base_model.model.{name.replace('lora_a', 'lora_A').replace('lora_b', 'lora_B')}.weight": np.array(slope).T
        for name, slope in tree_flatten(gradients)
    }
    assert len(slopes) == 2 * 7 * TINY_MODEL["base_num_decoder_layers"]
    least = 1e-5 if method == "lora" else 0
    assert_step(old, tensors(second), slopes, lines[1]["learning_rate"], least=least)
    settings = json.loads((first / "adapter_config.json").read_text())
    assert settings["base_model_name_or_path"] == "base@3"
    assert (settings["peft_type"], settings["r"], settings["lora_alpha"]) == ("LORA", RANK, ALPHA)
    # The first step changes B only. A is as peft creates it: uniform within the inverse root of its inputs, and it
    # differs from layer to layer.
    for name, width in (("self_attn.q_proj", 32), ("mlp.down_proj", 64)):
        layers = [old[f"base_model.model.model.layers.{layer}.{name}.lora_A.weight"] for layer in range(2)]
        assert not np.allclose(layers[0], layers[1])
        for layer in layers:
            assert 0.8 * width**-0.5 < np.abs(layer).max() <= width**-0.5


@pytest.mark.parametrize("method", METHODS)
def test_a_kill_changes_no_number(
    lab: TrainingHarness,
    base: Run,
    files: dict[str, Path],
    run_to_the_end: Callable[[str], Run],
    tmp_path: Path,
    method: str,
) -> None:
    whole = run_to_the_end(method)
    path = config(lab, f"{method}-killed", base, files[method], RUNS[method])
    run = lab.start(path, "--no-ray", module=WEIGHED)
    run.until(lambda: run.step() >= 12)
    max(run.descendants("trainer"), key=psutil.Process.create_time).kill()  # its parent stays, and forks the next one
    run.until(lambda: len(run.events()) == 2 and run.step() >= 20)
    assert run.copies() <= 1.01
    run.process.kill()
    run.wait()
    run = lab.train(path, "--no-ray", module=WEIGHED)
    assert run.process.returncode == 0, run.output()[-3000:]
    assert run.copies() <= 1.01
    assert run.events()[-1]["step"] in (1, 11, 21, 31)  # a checkpoint is written in the background
    assert numbers(run.metrics()) == numbers(whole.metrics())
    losses = [line["loss"] for line in whole.metrics() if "loss" in line]
    if method == "lora":
        assert losses[0] == pytest.approx(np.log(2), abs=1e-5)  # the model is the reference
        assert whole.metrics()[-1]["eval_reward_accuracy"] > 0.7
        last = [[(each["prompt"], each["message"]) for each in one.events("sample")[-2:]] for one in (run, whole)]
        assert last[0] == last[1]
    assert losses[-1] < losses[0] - (0.1 if method == "lora" else 1)

    # Only the adapters and their optimizer are in a checkpoint.
    saved = json.loads((run.folder / "checkpoints" / "39" / "items" / "_METADATA").read_text())["tree_metadata"]
    weights = [name for name in saved if name.startswith("('params'")]
    assert len(weights) == (14 if method == "lora" else 2 * len(TARGETS))
    assert all(name.endswith(("_lora_a')", "_lora_b')")) for name in weights)
    assert any("'mu'" in name for name in saved)

    if method == "qlora":
        lost = (
            'In 1 of 301 examples, the chat template does not write the text of a message of the role "system", first'
        )
        assert f"{lost} in {files[method]}: line 301; set tuning.template" in run.output()
        settings = json.loads((exported(path, tmp_path / "adapter") / "adapter_config.json").read_text())
        assert settings["target_modules"] == TARGETS
        assert {name.split(".")[-3] for name in tensors(tmp_path / "adapter")} == {*TARGETS}

    (base.folder / "checkpoints" / "3" / "items" / "_METADATA").touch()  # the same content
    if method == "lora":
        kept = json.loads((run.folder / "base.json").read_text())
        (run.folder / "base.json").write_text(json.dumps(kept | {"digest": "another"}))
        again = json.loads(path.read_text())
        again["train"]["steps"] = 50
        path.write_text(json.dumps(again))
        run = lab.train(path, "--no-ray")
        assert run.process.returncode == 2
        assert "have changed since lora-killed started from them" in run.output().splitlines()[-1]


def test_the_text_is_that_of_the_weights_with_the_adapter(
    base: Run, run_to_the_end: Callable[[str], Run], tmp_path: Path
) -> None:
    """That of generate, for which the launcher merges them, and of tuning.samples. Here, they are not merged."""
    mx.set_default_device(mx.cpu)
    trained = run_to_the_end("lora")
    folder = trained.folder
    words = ("generate", str(folder), "def main(", "--temperature", "0", "--max-tokens", "12", "-o", "json")
    done = subprocess.run(
        [sys.executable, "-m", "launcher", *words], cwd=CHECKOUT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr.startswith(f"Exporting the checkpoint 39 of lora-whole to {folder / 'export' / '39'}, which is")
    text = json.loads(done.stdout)["text"]

    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "runs").symlink_to(folder.parent)
    write_record(folder, Record(folder.name, "", "id", 1, State.SUCCEEDED, now()))
    by_name = ("export", folder.name, "--merge", "--to", str(tmp_path / "by-name"))
    subprocess.run(
        [sys.executable, "-m", "launcher", *by_name],
        cwd=CHECKOUT,
        env=os.environ | {"SLIPWAY_HOME": str(tmp_path / "home")},
        check=True,
    )
    merged = "model.safetensors"
    assert (tmp_path / "by-name" / merged).read_bytes() == (folder / "export" / "39" / merged).read_bytes()

    whole = exported(base.folder / "run.json", tmp_path / "base")
    model, _ = load_model(whole)
    tokenizer = mlx_lm.load(str(whole))[1]._tokenizer
    prompt = tokenizer.encode("def main(")

    def following(count: int, begin: list[int]) -> list[int]:
        tokens = list(begin)
        for _ in range(count):
            tokens.append(int(np.array(model(mx.array([tokens]))[0, -1].astype(mx.float32)).argmax()))
        return tokens

    plain = following(12, prompt)
    with_adapter(model, exported(folder / "run.json", tmp_path / "adapter"))
    tokens = following(12, prompt)
    assert tokens != plain
    assert text == tokenizer.decode(tokens)[len(tokenizer.decode(prompt)) :]

    events = trained.events("sample")[-2:]
    assert [(event["step"], event["prompt"]) for event in events] == [(40, prompt) for prompt in SAMPLES]
    for event in events:
        asked = f"Question: {event['prompt']}\nAnswer:"
        ids = tokenizer.encode(asked, add_special_tokens=False)
        answer = following(64, ids)[len(ids) :]
        end = answer.index(tokenizer.eos_token_id) if tokenizer.eos_token_id in answer else len(answer)
        assert event["message"] == tokenizer.decode(answer[:end], skip_special_tokens=True).strip()


FAMILIES = ("llama3.1", "gemma3-short", "mixtral")
"""With rotary embeddings of neighbors, with layers that are not stacked, and with experts."""


QUANTIZED, BLOCK = "llama3.1", 32
NF4 = np.array(
    [
        *(-1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453, -0.28444138169288635),
        *(-0.18477343022823334, -0.09105003625154495, 0.0, 0.07958029955625534, 0.16093020141124725),
        *(0.24611230194568634, 0.33791524171829224, 0.44070982933044434, 0.5626170039176941, 0.7229568362236023, 1.0),
    ],
    np.float32,
)
"""The numbers of 4 bits in appendix E of the paper (arXiv:2305.14314)."""


@pytest.fixture(scope="module")
def references(lab: TrainingHarness) -> Path:
    """Return a folder with a base checkpoint, an adapter checkpoint, and MaxText's logits of each family."""
    root = lab.root / "adapters"
    adapter_models.prepare(root, FAMILIES, lab.tokenizer, RANK, ALPHA, quantized=QUANTIZED)
    return root


@pytest.mark.parametrize("name", FAMILIES)
def test_logits_of_the_exports_are_those_of_the_run(references: Path, tmp_path: Path, name: str) -> None:
    mx.set_default_device(mx.cpu)
    expected = np.load(references / f"{name}-lora.npy")
    assert np.abs(expected - np.load(references / f"{name}.npy")).max() > 0.1

    def logits(folder: Path, adapter: Path | None = None) -> np.ndarray[Any, Any]:
        if name.startswith("gemma"):
            return np.asarray(hf_forward.logits(folder, inputs()))
        model, _ = load_model(folder)
        if adapter is not None:
            with_adapter(model, adapter)
        found: np.ndarray[Any, Any] = np.array(model(mx.array(inputs())).astype(mx.float32))
        return found

    merged = exported(references / f"{name}-lora.json", tmp_path / "merged", "--merge")
    np.testing.assert_allclose(logits(merged), expected, atol=1e-4, rtol=0)
    adapter = exported(references / f"{name}-lora.json", tmp_path / "adapter")
    if not name.startswith("gemma"):
        whole = exported(references / f"{name}.json", tmp_path / "base")
        np.testing.assert_allclose(logits(whole, adapter), expected, atol=1e-4, rtol=0)


def test_quantized_weights_are_those_of_the_paper(references: Path, tmp_path: Path) -> None:
    """The scale of a block is its largest absolute value; BLOCK inputs are a block, because head_dim is 32."""
    mx.set_default_device(mx.cpu)
    model, _ = load_model(exported(references / f"{QUANTIZED}.json", tmp_path / "base"))
    adapter = exported(references / f"{QUANTIZED}-qlora.json", tmp_path / "adapter")
    targets = json.loads((adapter / "adapter_config.json").read_text())["target_modules"]
    for name, module in model.named_modules():
        if name.rpartition(".")[2] in targets:
            weight = np.array(module.weight.astype(mx.float32))
            blocks = weight.reshape(len(weight), -1, BLOCK)
            most = np.abs(blocks).max(axis=-1, keepdims=True)
            nearest = NF4[np.abs((blocks / most)[..., None] - NF4).argmin(axis=-1)] * most
            module.weight = mx.array(nearest.reshape(weight.shape))
    with_adapter(model, adapter)
    found = np.array(model(mx.array(inputs())).astype(mx.float32))
    np.testing.assert_allclose(found, np.load(references / f"{QUANTIZED}-qlora.npy"), atol=1e-4, rtol=0)
