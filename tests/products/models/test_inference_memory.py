"""The memory that a model needs on this machine: arithmetic, and a refusal before anything starts."""

from __future__ import annotations

from pathlib import Path

import pytest

from launcher.errors import LauncherError
from launcher.products.common import machine
from launcher.products.models.inference import memory

LLAMA = {"num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8, "hidden_size": 4096}
GIB = 1 << 30


def test_a_folder_needs_its_weights_and_the_cache(tmp_path: Path) -> None:
    for name in ("model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"):
        (tmp_path / name).write_bytes(b"\0" * 1000)
    (tmp_path / "tokenizer.json").write_bytes(b"\0" * 5000)
    need = memory.of_model(tmp_path, LLAMA, 100)
    # Keys and values of 32 layers, each with 8 heads of 128 numbers of 4 bytes.
    assert (need.weights, need.cache) == (2000, 2 * 32 * 8 * 128 * 4 * 100)
    assert need.total == need.weights + need.cache + memory.RUNTIME
    # The context limits the text. Without a length, it is the longest text that is scored.
    short = {**LLAMA, "max_position_embeddings": 64}
    assert memory.of_model(tmp_path, short, 100).cache == 2 * 32 * 8 * 128 * 4 * 64
    assert memory.of_model(tmp_path, LLAMA, None).cache == 2 * 32 * 8 * 128 * 4 * 4096
    # The config of Gemma 3 has the model in text_config, and its own size of a head.
    assert memory.of_model(tmp_path, {"text_config": {**LLAMA, "head_dim": 256}}, 1).cache == 2 * 32 * 8 * 256 * 4


def test_a_run_needs_its_parameters_in_float32() -> None:
    need = memory.of_run({"model_name": "llama3.1-8b"}, 1000)
    assert need is not None
    assert need.weights == 8_030_261_248 * 4
    assert need.cache == 2 * 32 * 8 * 128 * 4 * 1000
    assert need.explained == "29.9 GiB for 8.03 billion parameters of 4 bytes, 0.2 GiB for 1,000 tokens"
    assert memory.of_run({"model_name": "llama3.1-8b", "lora": {"enable_lora": True}}, 1000) is None


def test_a_model_that_does_not_fit_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(machine, "memory_to_spare", lambda: 8 * GIB)
    with pytest.raises(LauncherError) as error:
        memory.check_run("llama", {"model_name": "llama3.1-8b"}, 1000)
    assert error.value.message == (
        "llama needs 30.5 GiB of memory (29.9 GiB for 8.03 billion parameters of 4 bytes, 0.2 GiB for 1,000 tokens, "
        "and 0.4 GiB for the program), but this machine has 8.0 GiB available."
    )
    assert error.value.hint == "Use a machine with more memory, or stop other programs on this one."
    memory.check_model("tiny", tmp_path, LLAMA, 1000)
    with pytest.raises(LauncherError, match=r"but this machine has 8\.0 GiB available"):
        memory.check_model("long", tmp_path, LLAMA, 1_000_000)
    monkeypatch.setattr(machine, "memory_to_spare", lambda: 16 * GIB)
    with pytest.raises(LauncherError) as error:
        memory.check_run("llama", {"model_name": "llama3.1-8b"}, 1000)
    assert error.value.hint == (
        "As bfloat16 it needs 15.6 GiB: launcher export llama --dtype bfloat16 --to ./model, and then use ./model."
    )
    monkeypatch.setattr(machine, "memory_to_spare", lambda: 31 * GIB)
    memory.check_run("llama", {"model_name": "llama3.1-8b"}, 1000)
    monkeypatch.setattr(machine, "memory_to_spare", lambda: None)  # the system does not report it
    memory.check_run("llama", {"model_name": "llama3.1-405b"}, 1000)
