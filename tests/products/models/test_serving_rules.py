"""Whether a served model fits its slice: the launcher's arithmetic, and the sentences of launcher check serve."""

from __future__ import annotations

from typing import Any

import pytest

from launcher.config.checks.problems import CheckContext
from launcher.config.values.files import chart_defaults, merge, read_text
from launcher.config.values.tree import with_defaults
from launcher.paths import find_values_file
from launcher.products.models.serving import rules as serving_rules

GIB = 2**30
LLAMA = find_values_file("serve/llama3.1-8b-v6e").read_text()


def problems(keys: str) -> list[str]:
    user = merge(read_text(LLAMA.encode(), "model.yaml"), read_text(keys.encode(), "--set"))
    effective = with_defaults(user, chart_defaults("serve"))
    return [f"{problem.key}: {problem.message}" for problem in serving_rules.check(CheckContext(user, effective))]


def test_keys_and_values_of_a_token() -> None:
    """Llama 3.1 8B has 32 layers with 8 heads of 128 for keys and values: 128 KiB for each token in 16 bits."""
    train = {"model_name": "llama3.1-8b"}
    assert serving_rules.kv_bytes(train, 1) == 128 * 1024
    assert serving_rules.kv_bytes(train, 8) == 16 * 1024
    assert serving_rules.kv_bytes(train, 16) == 16 * 1024  # two chips have the same head
    assert serving_rules.kv_bytes(train, 1, 4) == 256 * 1024


def test_the_preset_fits() -> None:
    assert problems("{}") == []


@pytest.mark.parametrize(
    ("keys", "key", "says"),
    [
        (
            "{train: {model_name: llama3.1-405b}}",
            "slice.accelerator",
            "the weights of llama3.1-405b need 94.5 GiB on each of 8 chips; a v6e chip has 32.0 GiB, of which vLLM "
            "uses 28.8 GiB. Use a larger slice.",
        ),
        (
            "{slice: {topology: 1x1, machineType: ''}, serve: {contextLength: 131072}}",
            "serve.contextLength",
            "one request of 131072 tokens needs 16.0 GiB on each of 1 chips, in addition to 15.0 GiB of weights of "
            "llama3.1-8b; "
            "a v6e chip has 32.0 GiB, of which vLLM uses 28.8 GiB. Set it to at most 113397, or use a larger slice.",
        ),
        (
            "{serve: {contextLength: 200000}}",
            "serve.contextLength",
            "serve.contextLength is 200000; llama3.1-8b was trained for 131072 tokens.",
        ),
        (
            "{train: {model_name: gemma3-4b}, slice: {topology: 4x4, machineType: ''}, serve: {replicas: {max: 1}}}",
            "slice.topology",
            "gemma3-4b has 8 attention heads, which 16 chips cannot share equally; use a slice with 1, 2, 4 "
            "or 8 chips.",
        ),
    ],
)
def test_a_model_that_does_not_fit(keys: str, key: str, says: str) -> None:
    (problem,) = problems(keys)
    assert problem.startswith(f"{key}: ")
    assert says in problem


def test_the_limit_in_the_message_is_the_limit() -> None:
    one_chip = "{slice: {topology: 1x1, machineType: ''}, serve: {contextLength: %d}}"
    assert problems(one_chip % 113397) == []
    assert len(problems(one_chip % 113398)) == 1


def test_without_a_context_length_the_model_has_its_own() -> None:
    (problem,) = problems("{slice: {topology: 1x1, machineType: ''}, serve: {contextLength: 0}}")
    assert "one request of 131072 tokens" in problem


@pytest.mark.parametrize(
    "keys",
    [
        "engineArgs: {gpu_memory_utilization: 0.95}",
        "engineArgs: {kv_cache_dtype: fp8}",
    ],
)
def test_arguments_of_the_engine_that_change_the_memory(keys: str) -> None:
    one_chip = "{slice: {topology: 1x1, machineType: ''}, serve: {contextLength: 113398, %s}}"
    assert problems(one_chip % keys) == []


@pytest.mark.parametrize(
    ("model", "name"),
    [
        ("hf:meta-llama/Llama-3.1-8B-Instruct", "llama3.1-8b"),
        ("hf:meta-llama/Meta-Llama-3-8B", "llama3-8b"),
        ("hf:google/gemma-3-4b-it", "gemma3-4b"),
        ("hf:mistralai/Mixtral-8x7B-Instruct-v0.1", "mixtral-8x7b"),
        ("hf:Qwen/Qwen3-8B", "qwen3-8b"),
        ("hf:my/own-model", None),
        ("exports/llama3.1-8b", None),
    ],
)
def test_the_model_by_its_name_on_hugging_face(model: str, name: str | None) -> None:
    tree: dict[str, Any] = {"train": {}, "serve": {"model": model}}
    assert serving_rules.served_model(tree) == (name and {"model_name": name})


def test_other_engines_and_unknown_models_are_not_checked() -> None:
    assert problems("{serve: {engine: mlx}, slice: {accelerator: cpu, topology: '', machineType: ''}}") == []
    assert problems("{train: {model_name: default, base_emb_dim: 1000000}}") == []
    assert problems("{slice: {topology: 3x3}}") == []  # the chart reports it
