"""check finds the keys that MaxText refuses before a run starts, and accepts the others."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from launcher import api

PROGRAM = """
import json, pathlib, sys
from trainer import config, step_check
for line in sys.stdin.read().splitlines():
    path = pathlib.Path(sys.argv[1])
    path.write_text(line)
    print(json.dumps(["refusals", *step_check.refusals(config.read(path))]), flush=True)
"""
# The model is smaller than that of the preset in nothing: tracing costs the same for every size.
ACCEPTED: list[dict[str, Any]] = [
    {},
    {"num_experts": 4, "num_experts_per_tok": 2, "decoder_block": "mixtral", "base_moe_mlp_dim": 384},
    {"opt_type": "muon", "gradient_accumulation_steps": 2, "scan_layers": False, "dtype": "float32"},
    {"quantization": "int8", "remat_policy": "minimal"},
]
REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"num_experts": 4}, "train.num_experts: MaxText refuses it: moe_mlp_dim must be positive"),
    ({"base_num_kv_heads": 3}, "train.base_num_kv_heads: MaxText refuses it: Invalid num_kv_heads for GQA."),
    ({"head_dim": 33}, "train.head_dim: MaxText refuses it: Embedding dim for rotary position embedding must be a"),
    ({"attention": "cudnn_flash_te"}, "train.attention: MaxText refuses it: No module named 'transformer_engine'."),
]


def test_maxtext_refuses_combinations_of_keys_with_the_key(tmp_path: Path) -> None:
    config = json.loads(json.dumps(dict(api.plan(["quickstart"]).config)))
    config["storage"]["mountPath"] = str(tmp_path)
    lines = []
    for train in [*ACCEPTED, *(train for train, _ in REFUSED)]:
        lines.append(json.dumps({**config, "train": {**config["train"], **train}}))
    gpu = {**config, "accelerator": {**config["accelerator"], "kind": "gpu"}}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tmp_path / "run.json")],
        input="\n".join([*lines, json.dumps(gpu)]),
        capture_output=True,
        text=True,
        check=False,
    )
    printed = [json.loads(line)[1:] for line in done.stdout.splitlines() if line.startswith('["refusals"')]
    assert len(printed) == len(ACCEPTED) + len(REFUSED) + 1, done.stderr
    assert printed[: len(ACCEPTED)] == [[]] * len(ACCEPTED)
    for (train, wanted), found in zip(REFUSED, printed[len(ACCEPTED) :], strict=False):
        assert [sentence[: len(wanted)] for sentence in found] == [wanted], (train, found)
    assert printed[-1] == []


def test_check_names_the_file_and_the_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("M_STEPS", "7")  # MaxText reads it, and the run config sets train.steps
    file = tmp_path / "a.yaml"
    file.write_text("run: {name: x}\ntrain:\n  num_experts: 4\n")
    [problem] = api.check(["quickstart", str(file)])
    assert (problem.severity, problem.file, problem.line, problem.key) == ("error", str(file), 3, "train.num_experts")
