"""Export and import of models of each family, against implementations that know nothing of MaxText.

mlx-lm reads the exported folder and computes the logits. It has no sliding window in Gemma 2, and its Gemma 3 needs at
least six layers: tests/trainer/hf_forward.py computes the logits of the Gemmas.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
import pytest
from mlx_lm.utils import load_model
from safetensors.numpy import load_file, save_file

from tests import compiled_programs
from tests.hub import TOKEN, Hub, hub
from tests.prerequisites import require
from tests.trainer import hf_forward
from tests.trainer.reference_models import MODELS, STEP, inputs, write_config
from tests.trainer.runs import CHECKOUT, ONE_HOST, Run, TrainingHarness
from trainer.config import read
from trainer.weights import model, tensors
from trainer.weights.checkpoint import Checkpoint

# The scaling of these models' queries or embedding is a power of two, so both ways of a conversion are exact.
EXACT = sorted(name for name in MODELS if name not in ("llama2-unscanned", "llama3.1"))


@pytest.fixture(scope="module")
def references(tmp_path_factory: pytest.TempPathFactory, lab: TrainingHarness) -> Path:
    """Return a folder with the run config, checkpoint, logits and export of each model."""
    root = tmp_path_factory.mktemp("references")
    for name in MODELS:
        write_config(root, name, lab.tokenizer)
    with compiled_programs.kept(root):
        subprocess.run(
            [sys.executable, "-m", "tests.trainer.reference_models", root, *MODELS],
            cwd=CHECKOUT,
            check=True,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
    in_one_process([["export", "--config", root / f"{name}.json", "--to", root / "exported" / name] for name in MODELS])
    return root


@pytest.fixture(scope="module")
def imported(references: Path) -> dict[str, dict[str, Any]]:
    """Import the export of each model, as the checkpoint of step 0 in imported/NAME, and return the summaries."""
    to = {name: references / "imported" / name / "0" for name in MODELS}
    lines: list[list[str | Path]] = [
        ["import", "--config", references / f"{name}.json", "--from", references / "exported" / name, "--to", to[name]]
        for name in MODELS
    ]
    return dict(zip(MODELS, in_one_process(lines), strict=True))


def in_one_process(commands: Sequence[Sequence[str | Path]]) -> list[dict[str, Any]]:
    """Run several `python -m trainer.weights` one after the other in one process, and return their summaries.

    The start of a process takes half a second; `weights` starts one for each command.
    """
    program = (
        "import json, sys\n"
        "from trainer.weights import __main__\n"
        "for arguments in json.load(sys.stdin):\n"
        "    sys.argv[1:] = arguments\n"
        "    assert __main__.main() == 0, arguments\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        input=json.dumps([list(map(str, arguments)) for arguments in commands]),
        cwd=CHECKOUT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def weights(command: str, config: Path, *options: str | Path, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "trainer.weights", command, "--config", config, *options],
        cwd=CHECKOUT,
        capture_output=True,
        text=True,
        env={**os.environ, **environment},
        check=False,
    )


def sentence(result: subprocess.CompletedProcess[str], code: int = 2) -> str:
    """Return the error of a command that the user must fix, without its prefix."""
    assert result.returncode == code, result.stderr
    last = result.stderr.splitlines()[-1]
    assert last.startswith("Error: ")
    assert code != 2 or "Traceback" not in result.stderr
    return last.removeprefix("Error: ")


def summary(result: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    assert result.returncode == 0, result.stderr
    found: dict[str, Any] = json.loads(result.stdout.splitlines()[-1])
    return found


def parts(checkpoint: Checkpoint, array: tensors.Array) -> list[np.ndarray[Any, Any]]:
    """Return the parts of an array so small that each is one piece."""
    return [piece for part in checkpoint.parts(array) for piece in part]


def log_probabilities(logits: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    values = logits.astype(np.float64)
    values = values - values.max(-1, keepdims=True)
    shares: np.ndarray[Any, Any] = values - np.log(np.exp(values).sum(-1, keepdims=True))
    return shares


def mlx_logits(folder: Path, tokens: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    mx.set_default_device(mx.cpu)
    network, _ = load_model(folder)
    return np.array(network(mx.array(tokens)).astype(mx.float32))


@pytest.mark.parametrize("name", MODELS)
def test_logits_of_the_exported_model_are_those_of_the_original(references: Path, name: str) -> None:
    folder = references / "exported" / name
    computed = hf_forward.logits(folder, inputs()) if name.startswith("gemma") else mlx_logits(folder, inputs())
    expected, found = log_probabilities(np.load(references / f"{name}.npy")), log_probabilities(computed)
    divergence = (np.exp(expected) * (expected - found)).sum(-1)
    assert np.exp(expected).max() > 0.02  # the model prefers some tokens, so that an error would show
    assert divergence.max() < 1e-4
    original, exported = (
        -np.take_along_axis(each[:, :-1], inputs()[:, 1:, None], -1).mean() for each in (expected, found)
    )
    assert abs(original - exported) < 1e-3  # the loss of the same tokens


@pytest.mark.parametrize("name", ["gemma3", "gemma3-unscanned"])
def test_mlx_computes_the_same_logits_of_gemma_3(references: Path, name: str) -> None:
    expected = log_probabilities(np.load(references / f"{name}.npy"))
    found = log_probabilities(mlx_logits(references / "exported" / name, inputs()))
    assert (np.exp(expected) * (expected - found)).sum(-1).max() < 1e-4


@pytest.mark.parametrize("name", MODELS)
def test_sizes_are_those_that_maxtext_calculates(references: Path, name: str) -> None:
    found = model.read(read(references / f"{name}.json"))
    expected = json.loads((references / f"{name}.sizes.json").read_text())
    sizes = {**found.sizes, "blocks": found.blocks, "epsilon": found.epsilon, "tied": found.tied}
    assert {key: sizes[key] for key in expected} == expected


@pytest.mark.parametrize("name", MODELS)
def test_an_export_and_its_import_have_the_same_bits(
    references: Path, imported: dict[str, dict[str, Any]], name: str
) -> None:
    config = references / f"{name}.json"
    assert imported[name]["state"] == "imported"
    original = Checkpoint(references / name / "checkpoints", read(config), STEP)
    # For the reader, an import is a folder like that of a step.
    back = Checkpoint(references / "imported" / name, read(config), 0)
    arrays = [array for array in tensors.arrays(model.read(read(config))) if array.elements]
    back.check(arrays)
    for array in arrays:
        for one, other in zip(parts(original, array), parts(back, array), strict=True):
            if name in EXACT or array.kind != "query":
                assert one.tobytes() == other.tobytes(), array.name
            else:
                np.testing.assert_array_max_ulp(one, other, maxulp=1)


def test_bfloat16_halves_the_files_and_the_record_describes_them(references: Path, tmp_path: Path) -> None:
    config, to = references / "llama2.json", tmp_path / "half"
    facts = tmp_path / "facts.json"
    facts.write_text(json.dumps({"heldOutLoss": 1.25, "data": {"files": 3, "bytes": 42}}))
    result = summary(weights("export", config, "--to", to, "--dtype", "bfloat16", "--facts", facts))
    assert (result["state"], result["run"], result["step"]) == ("exported", "llama2", STEP)
    whole = references / "exported" / "llama2" / "model.safetensors"
    assert abs((to / "model.safetensors").stat().st_size * 2 - whole.stat().st_size) < 4096
    record = json.loads((to / "slipway.json").read_text())
    assert record["files"].keys() == {path.name for path in to.iterdir()} - {"slipway.json"}
    assert (record["schema"], record["family"], record["parameters"]) == (1, "llama", result["parameters"])
    card = (to / "README.md").read_text()
    assert "| held-out loss | 1.2500 |" in card
    assert "| data: bytes | 42 |" in card
    found = log_probabilities(mlx_logits(to, inputs()))
    expected = log_probabilities(np.load(references / "llama2.npy"))
    assert (np.exp(expected) * (expected - found)).sum(-1).max() < 1e-2


def test_transformers_loads_config_and_tokenizer(references: Path, lab: TrainingHarness) -> None:
    program = (
        "import sys, json, transformers as t\n"
        "for folder in sys.argv[2:]:\n"
        "    config = t.AutoConfig.from_pretrained(folder)\n"
        "    tokenizer = t.AutoTokenizer.from_pretrained(folder)\n"
        "    t.GenerationConfig.from_pretrained(folder)\n"
        "    ids = tokenizer.encode(open(sys.argv[1], encoding='utf-8').read())\n"
        "    print(json.dumps([type(config).__name__, config.rope_parameters, ids]))"
    )
    import sentencepiece

    text = Path(json.__file__)
    expected = sentencepiece.SentencePieceProcessor(model_file=str(lab.tokenizer)).encode(text.read_text())
    default = {"rope_type": "default"}
    llama3 = {**{"rope_type": "llama3"}, **{key: model.LLAMA31_SCALING[key] for key in model.LLAMA31_SCALING}}
    ropes: dict[str, tuple[str, dict[str, Any]]] = {
        "llama2": ("LlamaConfig", {**default, "rope_theta": 10_000.0}),
        "llama2-linear": ("LlamaConfig", {"rope_type": "linear", "factor": 4.0, "rope_theta": 10_000.0}),
        "llama3.1": ("LlamaConfig", {**llama3, "rope_theta": 500_000.0}),
        "mixtral": ("MixtralConfig", {**default, "rope_theta": 1_000_000.0}),
        "gemma3": (
            "Gemma3TextConfig",
            {
                "sliding_attention": {**default, "rope_theta": 10_000.0},
                "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1_000_000.0},
            },
        ),
    }
    run = subprocess.run(
        [sys.executable, "-c", program, text, *(references / "exported" / name for name in ropes)],
        capture_output=True,
        text=True,
        check=True,
    )
    printed = [json.loads(line) for line in run.stdout.splitlines() if line.startswith("[")]
    for (name, (kind, rope)), found in zip(ropes.items(), printed, strict=True):
        assert found[:2] == [kind, rope], name
        assert found[2] == [1, *expected], name


def test_a_trained_model_has_the_held_out_loss_of_the_trainer_and_starts_another_run(
    lab: TrainingHarness, undisturbed_host: Run, tmp_path: Path
) -> None:
    config = undisturbed_host.folder.with_suffix(".json")
    exported = tmp_path / "exported"
    result = summary(weights("export", config, "--to", exported))
    assert result["step"] == ONE_HOST["steps"] - 1
    evaluation = [line for line in undisturbed_host.metrics() if "eval_loss" in line][-1]
    assert f"| held-out loss | {evaluation['eval_loss']:.4f} |" in (exported / "README.md").read_text()

    subprocess.run(
        [sys.executable, "-m", "tests.trainer.held_out", config, tmp_path / "batches.npz"],
        cwd=CHECKOUT,
        check=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    batches = np.load(tmp_path / "batches.npz")
    logarithms = log_probabilities(mlx_logits(exported, batches["inputs"]))
    losses = -np.take_along_axis(logarithms, batches["targets"][..., None].astype(int), -1)[..., 0]
    counted = batches["targets_segmentation"] != 0
    assert counted.sum() > 200
    assert batches["inputs_segmentation"].max() == 1  # mlx-lm does not separate documents in one row
    loss = losses[counted].mean()
    # The trainer evaluates in bfloat16 (MaxText's default dtype), and mlx-lm in float32.
    assert abs(loss - evaluation["eval_loss"]) < 5e-3

    imported = summary(weights("import", config, "--from", exported, "--to", tmp_path / "weights"))

    def first_loss(name: str, **train: Any) -> tuple[int, float]:
        keys = {**ONE_HOST, "steps": 1, "load_parameters_path": str(imported["items"]), **train}
        run = lab.train(lab.config(name, hosts=1, **keys), "--no-ray")
        assert run.process.returncode == 0, run.output()[-4000:]
        before = next(line for line in run.metrics() if "eval_loss" in line)
        return before["step"], before["eval_loss"]

    assert first_loss("from-import") == (0, evaluation["eval_loss"])
    step, exact = first_loss("from-import-float32", dtype="float32")
    assert step == 0
    assert abs(loss - exact) < 1e-3


def test_an_export_that_exists_is_kept_and_another_one_is_refused(references: Path, tmp_path: Path) -> None:
    config, to = references / "llama2.json", tmp_path / "exported"
    shutil.copytree(references / "exported" / "llama2", to)
    assert summary(weights("export", config, "--to", to))["state"] == "present"
    assert sentence(weights("export", config, "--to", to, "--dtype", "bfloat16")) == (
        f"{to} already exists, with another dtype (float32); remove it, or choose another folder with --to."
    )
    with (to / "model.safetensors").open("ab") as file:
        file.truncate(1000)
    assert sentence(weights("export", config, "--to", to)) == (
        f"{to} already exists but is not whole: model.safetensors is missing or has another size; remove it."
    )
    (to / "slipway.json").unlink()
    assert sentence(weights("export", config, "--to", to)) == (
        f"{to} already exists and has no valid slipway.json; remove it, or choose another folder with --to."
    )


def test_unknown_steps_and_half_checkpoints_are_refused(references: Path, tmp_path: Path) -> None:
    config, to = references / "llama2.json", tmp_path / "exported"
    found = tmp_path / "checkpoints"
    assert sentence(weights("export", config, "--checkpoint", found, "--to", to)) == (
        f"llama2 has no whole checkpoint in {found}; train it first, or set --checkpoint."
    )
    shutil.copytree(references / "llama2" / "checkpoints", found)
    shutil.copytree(found / str(STEP), found / "7")
    assert sentence(weights("export", config, "--checkpoint", found, "--step", "5", "--to", to)) == (
        f"llama2 has no checkpoint of step 5 in {found}; choose one of the steps {STEP}, 7."
    )
    data = max((path for path in (found / "7" / "items").rglob("d/*")), key=lambda path: path.stat().st_size)
    data.unlink()
    assert sentence(weights("export", config, "--checkpoint", found, "--to", to)).startswith(
        f"{found / '7' / 'items'} is not whole: the parameter params.params."
    )
    (found / "7" / "items" / "manifest.ocdbt").unlink()
    assert sentence(weights("export", config, "--checkpoint", found, "--step", "7", "--to", to)) == (
        f"The checkpoint of step 7 in {found} is not whole; choose step {STEP}."
    )
    assert summary(weights("export", config, "--checkpoint", found, "--to", to))["step"] == STEP
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []


def test_a_checkpoint_of_another_model_or_tokenizer_is_refused(references: Path, tmp_path: Path) -> None:
    def refused(name: str, **train: Any) -> str:
        config = write_config(tmp_path, name, Path(references_tokenizer(references)), **train)
        found = references / name / "checkpoints"
        return sentence(weights("export", config, "--checkpoint", found, "--to", tmp_path / "exported"))

    items = references / "llama2" / "checkpoints" / str(STEP) / "items"
    assert refused("llama2", base_mlp_dim=128) == (
        f"{items}: the parameter params.params.decoder.layers.mlp.wi_0.kernel has the shape (64, 2, 96), but the run "
        "config's model has (64, 2, 128)."
    )
    assert refused("llama2", logits_via_embedding=True, normalize_embedding_logits=False) == (
        f"{items} has the parameter params.params.decoder.logits_dense.kernel, which the model of this run config does "
        "not have."
    )
    assert refused("llama2", scan_layers=False).startswith(
        f"{items} has no parameter params.params.decoder.layers_0.mlp.wi_0.kernel"
    )
    # A tokenizer with more pieces than the model has rows, and a tokenizer that is not there.
    config = write_config(tmp_path, "llama2")
    found = references / "llama2" / "checkpoints"
    text = sentence(weights("export", config, "--checkpoint", found, "--to", tmp_path / "exported"))
    assert text.endswith(
        "has 32,000 pieces, but the model has 512 rows; set the tokenizer that the run was trained with."
    )
    config = write_config(tmp_path, "llama2", tmp_path / "moved.model")
    assert sentence(weights("export", config, "--checkpoint", found, "--to", tmp_path / "exported")) == (
        f"data.tokenizer.path: {tmp_path}/moved.model is not a file here; copy the run's tokenizer there, and start "
        "again."
    )
    assert list(tmp_path.glob("*exported*")) == []
    assert list(tmp_path.glob(".*")) == []


def references_tokenizer(references: Path) -> str:
    tree = json.loads((references / "llama2.json").read_text())
    return str(tree["data"]["tokenizer"]["path"])


def test_import_refuses_a_model_of_another_family_size_or_half(references: Path, tmp_path: Path) -> None:
    config, to = references / "llama2.json", tmp_path / "weights"
    other = references / "exported" / "qwen3"
    assert sentence(weights("import", config, "--from", other, "--to", to)).startswith(
        f"{other} is not the run's model: the family is qwen3, but the run's model is of the family llama. Its own "
        "model is train: {decoder_block: qwen3, base_num_decoder_layers: "
    )
    other = references / "exported" / "llama3"
    assert sentence(weights("import", config, "--from", other, "--to", to)).startswith(
        f"{other} is not the run's model: rope_theta is 500000.0, but the run's model has 10000.0 "
        "(train.rope_max_timescale). Its own model is train: {"
    )
    assert sentence(weights("import", config, "--from", tmp_path / "nothing", "--to", to)) == (
        f"{tmp_path}/nothing is not a folder; give a folder in Hugging Face format, or hf:ORG/NAME for a model of the "
        "Hub."
    )
    half = tmp_path / "half"
    shutil.copytree(references / "exported" / "llama2", half)
    with (half / "model.safetensors").open("r+b") as file:
        file.truncate(400_000)
    assert sentence(weights("import", config, "--from", half, "--to", to)).startswith(
        f"{half}/model.safetensors is not whole: it ends in the tensor "
    )
    (half / "model.safetensors").unlink()
    assert sentence(weights("import", config, "--from", half, "--to", to)) == (
        f"{half} has no file model.safetensors; download or export the folder again."
    )
    assert not to.exists()


@pytest.mark.parametrize("prefix", ["language_model.model.", "model.language_model."])
def test_import_reads_the_text_model_of_a_model_with_vision(references: Path, tmp_path: Path, prefix: str) -> None:
    exported, vision = references / "exported" / "gemma3", tmp_path / "vision"
    vision.mkdir()
    text = load_file(exported / "model.safetensors")
    tensors_of_both = {prefix + name.removeprefix("model."): each for name, each in text.items()}
    tensors_of_both["vision_tower.vision_model.post_layernorm.weight"] = np.ones(3, np.float32)
    save_file(tensors_of_both, vision / "model.safetensors")
    config = json.loads((exported / "config.json").read_text())
    (vision / "config.json").write_text(json.dumps({"model_type": "gemma3", "text_config": config}))
    to = tmp_path / "checkpoints" / "0"
    summary(weights("import", references / "gemma3.json", "--from", vision, "--to", to))
    source = read(references / "gemma3.json")
    back = Checkpoint(tmp_path / "checkpoints", source, 0)
    original = Checkpoint(references / "gemma3" / "checkpoints", source, STEP)
    for array in tensors.arrays(model.read(source)):
        for one, other in zip(parts(original, array), parts(back, array), strict=True):
            assert one.tobytes() == other.tobytes(), array.name


def test_import_refuses_a_tensor_that_the_model_lacks(references: Path, tmp_path: Path) -> None:
    shutil.copytree(references / "exported" / "llama2", tmp_path / "biased")
    path = tmp_path / "biased" / "model.safetensors"
    bias = "model.layers.0.self_attn.q_proj.bias"
    save_file({**load_file(path), bias: np.ones(64, np.float32)}, path)
    config = references / "llama2.json"
    result = weights("import", config, "--from", tmp_path / "biased", "--to", tmp_path / "weights")
    assert sentence(result) == (
        f"{tmp_path}/biased has the tensor {bias}, which MaxText's model of the family llama lacks."
    )


def test_import_pads_a_smaller_vocabulary(references: Path, tmp_path: Path) -> None:
    config = write_config(tmp_path, "llama2", vocab_size=640)
    to = tmp_path / "checkpoints" / "0"
    result = summary(weights("import", config, "--from", references / "exported" / "llama2", "--to", to))
    assert result["vocabulary"] == 640
    back = Checkpoint(tmp_path / "checkpoints", read(config), 0)
    original = Checkpoint(references / "llama2" / "checkpoints", read(references / "llama2.json"), STEP)
    arrays = tensors.arrays(model.read(read(config)))
    smaller = tensors.arrays(model.read(read(references / "llama2.json")))
    for number in (0, 2):  # the embedding (vocabulary first) and the logits (vocabulary last)
        (padded,), (values,) = parts(back, arrays[number]), parts(original, smaller[number])
        rows = padded if number == 0 else padded.T
        assert np.array_equal(rows[:512], values if number == 0 else values.T)
        assert not rows[512:].any()


@pytest.fixture
def server(references: Path) -> Iterator[Hub]:
    """Serve the exported llama2 as a private model."""
    with hub() as state:
        files = (references / "exported" / "llama2").iterdir()
        state.files["example/llama"] = {path.name: path.read_bytes() for path in files}
        state.private["example/llama"] = True
        yield state


def test_a_private_model_of_the_hub_is_imported(references: Path, server: Hub, tmp_path: Path) -> None:
    config, to = references / "llama2.json", tmp_path / "weights"
    options = ("--from", "hf:example/llama", "--to", to)
    environment = {"HF_ENDPOINT": server.url, "HF_HUB_DISABLE_XET": "1", "HF_TOKEN": TOKEN}

    def imported(**changes: str) -> subprocess.CompletedProcess[str]:
        return weights("import", config, *options, **{**environment, **changes})

    assert sentence(imported(HF_TOKEN="")) == (
        "hf:example/llama does not exist or is private; check the name, or set HF_TOKEN to a token that may read it."
    )
    assert sentence(imported(HF_ENDPOINT="http://127.0.0.1:9"), 1) == (
        "hf:example/llama cannot be downloaded ([Errno 111] Connection refused); start again, which downloads only "
        "what is missing."
    )
    # It is killed in the middle of the download.
    server.pause.clear()
    process = subprocess.Popen(
        [sys.executable, "-m", "trainer.weights", "import", "--config", str(config), *options],
        cwd=CHECKOUT,
        env={**os.environ, **environment},
        stderr=subprocess.DEVNULL,
    )
    while "model.safetensors" not in server.downloaded:
        assert process.poll() is None
        time.sleep(0.01)
    process.kill()
    process.wait()
    server.pause.set()
    assert [path.name for path in tmp_path.iterdir()] == [".huggingface"]
    result = summary(imported())
    assert (result["state"], result["source"]["from"]) == ("imported", "hf:example/llama")
    record = json.loads((to / "slipway.json").read_text())
    assert record["train"] == json.loads(config.read_text())["train"], "what from compares with the values of a run"
    assert server.downloaded.count("model.safetensors") == 2
    assert not any(name.endswith(".md") for name in server.downloaded)
    folder = summary(weights("import", config, "--from", references / "exported" / "llama2", "--to", tmp_path / "same"))
    assert result["source"]["sha256"] == folder["source"]["sha256"]
    # Files that exist are not downloaded again.
    downloads = len(server.downloaded)
    assert (summary(imported())["state"], len(server.downloaded)) == ("present", downloads)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """Mount a disk of 1 MB."""
    path = tmp_path / "disk"
    path.mkdir()
    require(os.getuid() == 0 and shutil.which("mount"), "The test mounts a file system. Run it as root on Linux.")
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", path], check=True)
    yield path
    subprocess.run(["umount", "-l", path], check=False, capture_output=True)


def test_a_disk_that_is_too_small_or_fills_up_leaves_nothing(references: Path, disk: Path) -> None:
    config = references / "llama2.json"
    text = sentence(weights("export", config, "--to", disk / "exported"))
    assert text.startswith(f"Not enough disk space for {disk}/exported: ")
    assert list(disk.iterdir()) == []
    # Another process fills the disk after the check of the space, which this replacement skips.
    program = (
        "import sys, shutil\n"
        "from trainer.weights import __main__\n"
        "import collections\n"
        "usage = collections.namedtuple('usage', 'total used free')\n"
        "shutil.disk_usage = lambda path: usage(0, 0, 1 << 40)\n"
        "sys.argv = ['x', *sys.argv[1:]]\n"
        "sys.exit(__main__.main())\n"
    )
    for options in (["export"], ["import", "--from", str(references / "exported" / "llama2")]):
        # The weights of llama2 have 509 kB.
        (disk / "other").write_bytes(bytes(700 << 10))
        run = subprocess.run(
            [sys.executable, "-c", program, options[0], "--config", config, *options[1:], "--to", disk / "exported"],
            cwd=CHECKOUT,
            capture_output=True,
            text=True,
            check=False,
        )
        assert sentence(run).startswith(f"Not enough disk space for {disk}/exported: ")
        assert [path.name for path in disk.iterdir()] == ["other"]


@pytest.mark.parametrize("command", ["export", "import"])
def test_a_kill_leaves_nothing_that_looks_whole_and_the_next_export_removes_it(
    references: Path, tmp_path: Path, command: str
) -> None:
    config, to = references / "gemma3.json", tmp_path / "out"
    options = [] if command == "export" else ["--from", str(references / "exported" / "gemma3")]
    line = [sys.executable, "-m", "trainer.weights", command, "--config", str(config), *options, "--to", str(to)]
    killed = 0
    for delay in (0.0, 0.02, 0.05, 0.1):
        process = subprocess.Popen(line, cwd=CHECKOUT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        while process.poll() is None and not list(tmp_path.glob(".out.partial-*")):
            time.sleep(0.005)
        time.sleep(delay)
        process.send_signal(signal.SIGKILL)
        if process.wait() == -signal.SIGKILL:
            killed += 1
            assert not to.exists() or (to / "slipway.json").exists()
        if to.exists():
            break
    assert killed
    if not to.exists():
        # A process that is asked to stop removes the folder itself.
        process = subprocess.Popen(line, cwd=CHECKOUT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        while process.poll() is None and not list(tmp_path.glob(f".out.partial-*-{process.pid}")):
            time.sleep(0.005)
        process.terminate()
        if process.wait() == 128 + signal.SIGTERM:
            assert list(tmp_path.iterdir()) == []
    result = weights(command, config, *options, "--to", to)
    assert summary(result)["state"] in ("exported", "imported", "present")
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
    record = json.loads((to / "slipway.json").read_text())
    for name, size in record["files"].items():
        assert (to / name).stat().st_size == size
