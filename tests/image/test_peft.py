"""Adapters in peft and transformers themselves, with Debian's PyTorch.

tests/trainer/test_lora.py compares with mlx-lm, which is quick.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import mlx_lm
import numpy as np
import pytest
from safetensors.numpy import load_file

from tests.image import torch_root
from tests.prerequisites import require
from tests.trainer import adapter_models
from tests.trainer.conftest import base  # noqa: F401
from tests.trainer.reference_models import inputs
from tests.trainer.runs import Run, TrainingHarness
from tests.trainer.test_lora import ALPHA, RANK, assert_step, exported, talks_of, tensors, two_steps
from tests.trainer.test_preferences import BETA, encoded
from tests.trainer.test_tuning import one_step

PROGRAM = Path(__file__).with_name("in_torch.py")
FAMILIES = ("llama3.1", "mistral", "mixtral", "gemma2", "gemma3", "qwen3", "qwen3-moe")


@pytest.fixture(scope="module")
def root() -> Path:
    missing = [name for name in torch_root.NEEDED if shutil.which(name) is None]
    lacks = f"{' and '.join(missing)}" if missing else "root"
    require(
        not missing and os.geteuid() == 0,
        f"The tests with peft need {lacks}; on Debian, apt-get install {' '.join(torch_root.NEEDED)}, and run them as "
        "root.",
    )
    return torch_root.torch_root()


@pytest.fixture
def folder(root: Path) -> Iterator[Path]:
    """A folder that PyTorch's programs see, too."""
    with tempfile.TemporaryDirectory(dir=root / "tmp") as made:
        yield Path(made)


def test_logits_and_files_are_those_of_peft(lab: TrainingHarness, root: Path, folder: Path) -> None:
    """Of every family: with the adapter, merged by peft, and merged by an export."""
    runs = lab.root / "peft"
    adapter_models.prepare(runs, FAMILIES, lab.tokenizer, RANK, ALPHA)
    for name in FAMILIES:
        exported(runs / f"{name}.json", folder / name / "base")
        exported(runs / f"{name}-lora.json", folder / name / "adapter")
        exported(runs / f"{name}-lora.json", folder / name / "merged", "--merge")
    np.save(folder / "tokens.npy", inputs())
    torch_root.run(root, PROGRAM, "logits", f"/tmp/{folder.name}")
    for name in FAMILIES:
        plain, adapted = (np.load(runs / f"{each}.npy") for each in (name, f"{name}-lora"))
        assert np.abs(adapted - plain).max() > 0.1
        found = np.load(folder / name / "found.npz")
        assert sorted(found) == ["adapter", "base", "merged", "merged by peft"]
        for kind in found:
            expected = plain if kind == "base" else adapted
            np.testing.assert_allclose(found[kind], expected, atol=1e-4, rtol=0, err_msg=f"{name}: {kind}")
        ours, theirs = tensors(folder / name / "adapter"), tensors(folder / name / "again")
        assert ours.keys() == theirs.keys()
        assert all(np.array_equal(ours[key], theirs[key]) for key in ours)
        config, again = (
            json.loads((folder / name / each / "adapter_config.json").read_text()) for each in ("adapter", "again")
        )
        config["target_modules"], again["target_modules"] = (sorted(each["target_modules"]) for each in (config, again))
        assert config == {key: again[key] for key in config}


def in_torch(
    root: Path, folder: Path, model: Path, talks: list[list[dict[str, Any]]], method: str
) -> tuple[list[float], dict[str, Any]]:
    """Return the losses of conversations, and the gradients of the trained tensors by their names."""
    tokenizer = mlx_lm.load(str(model))[1]._tokenizer
    examples = [(ids.tolist()[0], mask.tolist()[0]) for ids, mask in encoded(tokenizer, talks)]
    (folder / "examples.json").write_text(json.dumps(examples))
    (folder / "beta.json").write_text(json.dumps(BETA))
    torch_root.run(root, PROGRAM, "steps", f"/tmp/{folder.name}", method)
    return json.loads((folder / "losses.json").read_text()), dict(np.load(folder / "slopes.npz"))


def test_a_step_of_all_weights_is_that_of_transformers(
    lab: TrainingHarness,
    base: Run,  # noqa: F811
    root: Path,
    folder: Path,
) -> None:
    """On packed examples, which transformers computes one by one."""
    run, line, talks = one_step(lab, base, folder / "rows.jsonl")
    before = exported(base.folder / "run.json", folder / "base")
    after = exported(run.folder / "run.json", folder / "after")
    losses, slopes = in_torch(root, folder, before, talks, "sft")
    assert line["loss"] == pytest.approx(losses[0], abs=1e-5)
    old, new = (load_file(each / "model.safetensors") for each in (before, after))
    assert_step(old, new, slopes, line["learning_rate"], least=0)
    assert max(np.abs(new[name] - old[name]).max() for name in new) > 1e-2


@pytest.mark.parametrize("method", ["lora", "dpo"])
def test_steps_are_those_of_peft(
    lab: TrainingHarness,
    base: Run,  # noqa: F811
    root: Path,
    folder: Path,
    method: str,
) -> None:
    """Losses and changed adapters of two steps: of supervised fine-tuning, and of DPO, whose reference is the base."""
    path, lines = two_steps(lab, base, folder / "rows.jsonl", method)
    whole = exported(base.folder / "run.json", folder / "base")
    first = exported(path, folder / "adapter", "--step", "0")
    second = exported(path, folder / "second", "--step", "1")
    losses, slopes = in_torch(root, folder, whole, talks_of(method), method)
    assert [line["loss"] for line in lines] == pytest.approx(losses, abs=1e-5)
    assert_step(
        tensors(first), tensors(second), slopes, lines[1]["learning_rate"], least=1e-5 if method == "lora" else 0
    )
