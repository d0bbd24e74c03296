"""The presets in values/models: their comments are correct, and the launcher and MaxText accept them."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from launcher.config import accelerators
from launcher.config.plan import check_launch, plan_launch
from launcher.config.values import files as values
from launcher.config.values.files import Values, chart_defaults
from launcher.paths import presets_dir
from trainer.checks import check
from trainer.config import read
from trainer.maxtext_keys import maxtext_argv

DEFAULTS = chart_defaults("run")
TABLE: dict[str, Any] = DEFAULTS.tree["common"]["accelerators"]
MODELS = sorted(path.stem for path in (presets_dir() / "models").glob("*.yaml"))
SLICES = sorted(path.stem for path in (presets_dir() / "slices").glob("*.yaml"))

# The values that a run needs in addition to a model and a slice.
OTHER_VALUES = b"""
run: {name: test}
team: {name: research}
image: {repository: example.invalid/trainer, tag: v1}
storage: {bucket: research-runs}
train: {dataset_type: synthetic}
"""

# Each Ironwood chip is two devices for JAX, and for train.per_device_batch_size.
DEVICES_PER_CHIP = {"tpu7x": 2}


@cache
def model(name: str) -> Values:
    return values.load([f"models/{name}"])


@cache
def comment(name: str) -> str:
    """Return the comment at the start of a preset as one line."""
    lines = (presets_dir() / "models" / f"{name}.yaml").read_text(encoding="utf-8").splitlines()
    head = lines[: next(number for number, line in enumerate(lines) if not line.startswith("#"))]
    return " ".join(line.removeprefix("#").strip() for line in head)


@cache
def run_values(model_name: str, slice_name: str) -> Values:
    return values.merge(
        values.read_text(OTHER_VALUES, "rest.yaml"), values.load([f"models/{model_name}", f"slices/{slice_name}"])
    )


@cache
def one_slice(name: str) -> accelerators.Slice:
    return accelerators.resolve({"machineType": "", "hosts": 0} | values.load([f"slices/{name}"]).tree["slice"], TABLE)


def devices(slice_name: str) -> int:
    """Return the number of JAX's devices in a slice."""
    found = one_slice(slice_name)
    return found.chips * DEVICES_PER_CHIP.get(found.accelerator, 1)


# --- Sizes ------------------------------------------------------------------------------------------------------


@cache
def maxtext_folder() -> Path:
    import importlib.util

    spec = importlib.util.find_spec("maxtext")
    assert spec is not None
    assert spec.submodule_search_locations is not None
    return Path(spec.submodule_search_locations[0])


@cache
def architecture(name: str) -> Mapping[str, Any]:
    """Return MaxText's keys that define the model: those of MaxText's file, overridden by those of the preset."""
    train: dict[str, Any] = model(name).tree["train"]
    shape: dict[str, Any] = {
        "num_experts": 1,
        "shared_experts": 0,
        "first_num_dense_layers": 0,
        "head_dim": 128,
        "logits_via_embedding": False,
        "vocab_size": 32_000,
    }
    if "model_name" in train:
        file = maxtext_folder() / "configs" / "models" / f"{train['model_name']}.yml"
        shape |= values.read_file(str(file)).tree
    return shape | train


def parameters(name: str) -> int:
    """Return the number of a model's parameters without norms, and without biases of the attention."""
    keys = architecture(name)
    width, layers, experts = keys["base_emb_dim"], keys["base_num_decoder_layers"], keys["num_experts"]
    dense = layers if experts == 1 else keys["first_num_dense_layers"]
    mlps = dense * 3 * width * keys["base_mlp_dim"]
    if experts > 1:
        mlps += (layers - dense) * width * experts
        mlps += (layers - dense) * 3 * width * keys["base_moe_mlp_dim"] * (experts + keys["shared_experts"])
    if keys.get("mlp_bias"):
        mlps += layers * experts * (2 * keys["base_moe_mlp_dim"] + width)
    embeddings = keys["vocab_size"] * width * (1 if keys["logits_via_embedding"] else 2)
    return int(layers * attention_parameters(keys) + mlps + embeddings)


def attention_parameters(keys: Mapping[str, Any]) -> int:
    """Return the number of parameters of a layer's attention."""
    width, heads, head = keys["base_emb_dim"], keys["base_num_query_heads"], keys["head_dim"]
    if keys.get("attention_type") != "mla":
        return int(2 * width * head * (heads + keys["base_num_kv_heads"]))
    # DeepSeek: keys and values are computed from a vector of kv_lora_rank numbers.
    rank, plain, rotary, value = (
        keys[key] for key in ("kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim")
    )
    return int(width * (heads * (plain + rotary) + rank + rotary) + heads * (rank * (plain + value) + value * width))


def state_bytes(name: str) -> int:
    """Return the bytes of the weights and AdamW's two moments, all in float32."""
    return 12 * parameters(name)


def layer_input_bytes(name: str) -> int:
    """Return the bytes that a device stores at least in a forward pass: each layer's input, unless it is offloaded."""
    keys = architecture(name)
    if keys.get("decoder_layer_input") == "offload":
        return 0
    tokens = keys["per_device_batch_size"] * keys["max_target_length"]
    return int(2 * tokens * keys["base_emb_dim"] * keys["base_num_decoder_layers"])


def vmem(name: str) -> int:
    """Return the MiB of VMEM that a preset's kernels may use; 0 is libtpu's default limit."""
    flags = model(name).tree.get("worker", {}).get("env", {}).get("LIBTPU_INIT_ARGS", "")
    limit = re.search(r"--xla_tpu_scoped_vmem_limit_kib=(\d+)", flags)
    return int(limit[1]) // 1024 if limit else 0


def fits(name: str, slice_name: str) -> bool:
    """Return whether a model may fit a slice: nine tenths of the memory hold state, gradients and layer inputs."""
    found = one_slice(slice_name)
    if found.kind == "cpu":
        return name == "tiny"
    if found.accelerator == "v4" and vmem(name) > 16:
        return False  # the TPU compiler: "Used 33.07M of 16.00M vmem", for the blocks of llama3.1-8b
    room = int(TABLE[found.accelerator]["hbmGiB"]) * 2**30 * found.chips
    return state_bytes(name) + 4 * parameters(name) + layer_input_bytes(name) * devices(slice_name) < 0.9 * room


def divides(name: str, slice_name: str) -> bool:
    """Return whether JAX can divide the weights evenly: it rejects an array whose sides the mesh does not divide."""
    keys = architecture(name)
    tensor = int(keys.get("ici_tensor_parallelism", 1))
    fsdp, remainder = divmod(devices(slice_name), tensor)
    if keys.get("ici_fsdp_parallelism") == 1:
        fsdp = 1
    return remainder == 0 and int(keys["base_emb_dim"]) % fsdp == 0 and int(keys["base_num_kv_heads"]) % tensor == 0


@pytest.mark.parametrize("name", MODELS)
def test_a_comment_says_what_the_model_is_and_how_large(name: str) -> None:
    count, state = parameters(name), state_bytes(name)
    match = re.search(r"([\d.]+) (b|m)illion parameters", comment(name))
    assert match is not None
    assert float(match[1]) == round(count / (1e9 if match[2] == "b" else 1e6), 1 if match[2] == "b" else 0)
    if match[2] == "b":
        assert f"{round(state / 1e9)} GB with their optimizer" in comment(name)


@pytest.mark.parametrize("name", [name for name in MODELS if name != "tiny"])
def test_a_comment_says_what_fits_by_forecast(name: str) -> None:
    """All weights, and adapters if the model can have them."""
    all_weights, _, adapters = comment(name).partition("By forecast,")[2].partition("`tuning.method: lora` fits ")
    assert re.search(r" v\w+ \d+x\d+", all_weights)
    match = re.match(r"(v\w+) ([\dx]+) \(([\d.]+) of ([\d.]+) GiB a chip\)", adapters)
    if match is None:
        assert "Adapters and `launcher export` are not available." in comment(name)
        return
    assert f"{match[1]}-{match[2]}" in SLICES
    assert float(match[3]) < float(match[4]) < TABLE[match[1]]["hbmGiB"] + 1  # v5p has 95.7 GiB; the table has 95


def test_every_common_model_has_a_preset() -> None:
    assert set(MODELS) >= {"llama3-8b", "llama3.1-8b", "llama3.1-70b", "mistral-7b", "mixtral-8x7b", "tiny"}
    for family in ("gemma3-", "qwen3-", "gpt-oss-", "deepseek2-", "llama3.3-", "llama4-"):
        assert any(name.startswith(family) for name in MODELS), family


@pytest.mark.parametrize("name", [name for name in MODELS if vmem(name)])
def test_flags_go_with_the_kernel_that_they_are_for(name: str) -> None:
    assert any(key.startswith("sa_block_") for key in model(name).tree["train"])
    text = (presets_dir() / "models" / f"{name}.yaml").read_text(encoding="utf-8")
    assert f"# {vmem(name)} MiB of VMEM, more than a v4 has (16)," in text


@pytest.mark.parametrize("name", MODELS)
def test_a_preset_holds_only_what_belongs_to_the_model(name: str) -> None:
    tree = model(name).tree
    assert set(tree) <= {"data", "worker", "train"}
    assert set(tree.get("data", {})) <= {"tokenizer"}
    assert set(tree.get("worker", {})) <= {"env"}
    assert tree["train"].get("model_name", "tiny") == name
    assert not set(tree["train"]) & {"dataset_type", "checkpoint_period", "learning_rate", "eval_interval", "profiler"}


# --- Tokenizers -------------------------------------------------------------------------------------------------


FROM_HUB = {"deepseek2-16b", "gpt-oss-20b", "gpt-oss-120b", "llama4-17b-16e"}
"""The models whose tokenizer is not in MaxText's package: a run loads it from Hugging Face."""


@pytest.mark.parametrize("name", MODELS)
def test_a_tokenizer_has_as_many_pieces_as_the_model(name: str) -> None:
    tokenizer = model(name).tree.get("data", {}).get("tokenizer")
    rows = architecture(name)["vocab_size"]
    if tokenizer is None:
        assert name == "tiny"  # it uses the chart's default, the tokenizer of Llama 2
        tokenizer = {"kind": "sentencepiece", "path": "tokenizer.llama2"}
    file = maxtext_folder() / "assets" / "tokenizers" / tokenizer["path"]
    if name in FROM_HUB:
        assert re.fullmatch(r"[\w.-]+/[\w.-]+", tokenizer["path"])
        assert tokenizer["kind"] == "huggingface"
    elif tokenizer["kind"] == "huggingface":
        from tokenizers import Tokenizer

        # Qwen's embedding has rows to spare.
        assert rows - 512 < Tokenizer.from_file(str(file / "tokenizer.json")).get_vocab_size() <= rows
    elif tokenizer["kind"] == "sentencepiece":
        import sentencepiece

        assert sentencepiece.SentencePieceProcessor(model_file=str(file)).vocab_size() == rows
    else:
        # Each line is a piece; MaxText adds the 256 special tokens of Llama 3.
        assert len(file.read_bytes().splitlines()) + 256 == rows


@pytest.mark.parametrize("name", sorted(set(MODELS) - FROM_HUB))
def test_the_trainer_finds_the_tokenizer(name: str, tmp_path: Path) -> None:
    user = values.set_value(run_values(name, "v6e-2x4"), ("data", "corpus"), "python", values.Origin("rest.yaml", 1))
    user = values.set_value(user, ("train", "dataset_type"), None, values.Origin("rest.yaml", 1))
    file = tmp_path / "run.json"
    file.write_text(json.dumps(plan_launch(user, DEFAULTS).config))
    assert check(read(file))["files"] > 100


# --- Pairs ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", MODELS)
def test_the_launcher_accepts_a_model_if_the_slice_divides_it(name: str) -> None:
    for slice_name in SLICES:
        rules = {problem.rule for problem in check_launch(run_values(name, slice_name), DEFAULTS)}
        assert rules in ([set()] if divides(name, slice_name) else [{"mesh"}, {"sharding"}]), slice_name


def test_the_weights_of_a_model_that_fits_can_be_divided() -> None:
    uneven = {(name, one) for name in MODELS for one in SLICES if fits(name, one) and not divides(name, one)}
    # Some widths are not multiples of 512 or 128, and one model needs four devices; the presets' comments state it.
    large = {(name, one) for name in ("gemma3-12b", "gemma3-27b") for one in ("v5p-8x8x8", "tpu7x-4x8x8")}
    oss = {(name, one) for name in ("gpt-oss-20b", "gpt-oss-120b") for one in SLICES if devices(one) > 64}
    assert uneven - oss == large | {("llama3-8b", "tpu7x-1x1x1")}
    assert all(
        divides(name, one) for name, one in product(("gpt-oss-20b", "gpt-oss-120b"), SLICES) if devices(one) <= 64
    )
    assert "tensor parallelism of 4" in comment("llama3-8b")
    for name in ("gemma3-12b", "gemma3-27b"):
        assert f"not 512: the model's width of {architecture(name)['base_emb_dim']:,}" in comment(name)
    for name in ("gpt-oss-20b", "gpt-oss-120b"):
        assert "at most 64 devices: the model's width of 2,880" in comment(name)


PUBLISHED = {
    "llama3-8b": ("v6e-4x4",),
    "llama3.1-8b": ("v6e-2x4", "v6e-4x4"),
    "llama3.1-70b": ("v6e-8x8", "v6e-8x16", "v6e-16x16"),
    "mistral-7b": ("v6e-2x4",),
    "mixtral-8x7b": ("v6e-16x16",),
    "gemma3-12b": ("v6e-16x16",),
    "gemma3-27b": ("v6e-16x16",),
}
"""The slices for which a model's recipe was published."""


def test_a_model_fits_where_its_recipe_was_measured() -> None:
    for name, slices in PUBLISHED.items():
        for slice_name in slices:
            assert fits(name, slice_name), (name, slice_name)
            # The recipes are known by Cloud TPU's names, which count the chips of two-dimensional generations.
            label = f"{one_slice(slice_name).accelerator}-{one_slice(slice_name).chips}"
            assert label in (presets_dir() / "models" / f"{name}.yaml").read_text(), (name, label)
    # The estimate also rejects pairs that are known not to fit.
    assert not fits("llama3.1-70b", "v6e-4x8")
    assert not fits("llama3.1-8b", "v5e-2x2")


def maxtext_name(slice_name: str) -> str:
    """Return MaxText's name of a slice (compile_topology); a3 is one host with 8 GPUs."""
    found = one_slice(slice_name)
    if found.kind == "gpu":
        return "a3"
    return f"{found.accelerator}-{found.chips * TABLE[found.accelerator]['coresPerChip']}"


def pairs() -> Iterator[tuple[str, str]]:
    """Yield each model with its smallest and its largest TPU slice, with one GPU host, and with a CPU.

    Only the number of devices of a slice changes MaxText's arithmetic. For the CPU, the model is traced.
    """
    for name in MODELS:
        tpus = [one for one in SLICES if one_slice(one).kind == "tpu" and fits(name, one) and divides(name, one)]
        yield name, min(tpus, key=devices)
        yield name, max(tpus, key=devices)
        yield name, "h100-80gb-8"
        yield name, "cpu"


def argument_list(name: str, slice_name: str, folder: Path) -> list[str]:
    """Return the arguments that the trainer passes to MaxText, with the topology for which MaxText plans."""
    file = folder / "run.json"
    user = run_values(name, slice_name)
    if one_slice(slice_name).kind == "cpu":  # one device
        user = values.set_value(user, ("train", "ici_tensor_parallelism"), 1, values.Origin("rest.yaml", 1))
    file.write_text(json.dumps(plan_launch(user, DEFAULTS).config))
    arguments = dict(argument.split("=", 1) for argument in maxtext_argv(read(file))[2:])
    arguments["base_output_directory"] = str(folder)
    if one_slice(slice_name).kind != "cpu":
        arguments |= {"compile_topology": maxtext_name(slice_name), "compile_topology_num_slices": "1"}
    return [*maxtext_argv(read(file))[:2], *(f"{key}={value}" for key, value in arguments.items())]


def test_maxtext_accepts_every_model_with_a_slice(tmp_path: Path) -> None:
    requests = [argument_list(name, slice_name, tmp_path) for name, slice_name in pairs()]
    done = subprocess.run(
        [sys.executable, "-m", "tests.unit.test_presets_models"],
        input=json.dumps(requests),
        env=os.environ | {"JAX_PLATFORMS": "cpu"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    answers = [json.loads(line[len(_ANSWER) :]) for line in done.stdout.splitlines() if line.startswith(_ANSWER)]
    assert len(answers) == len(requests) == 4 * len(MODELS)
    for (name, slice_name), answer in zip(pairs(), answers, strict=True):
        assert "error" not in answer, (name, slice_name, answer["error"])
        assert answer["model"] == model(name).tree["train"].get("model_name", "default")
        assert answer["devices"] == devices(slice_name), (name, slice_name)
        assert answer["batch"] == model(name).tree["train"]["per_device_batch_size"] * devices(slice_name)
        # Every device has work: each part of the divided batch is a whole number of sequences.
        assert answer["batch"] % answer["data_axes"] == 0, (name, slice_name, answer)
        if slice_name == "cpu":
            # Norms and biases are less than a thousandth of the parameters.
            assert answer["parameters"] == pytest.approx(parameters(name), rel=1e-3)


_ANSWER = "answer: "


def _answer(argv: list[str]) -> dict[str, Any]:
    """Return the sizes that MaxText computes from an argument list, with the mesh by MaxText's rule."""
    from maxtext.configs import pyconfig
    from maxtext.utils import max_utils

    config = pyconfig.initialize(argv)
    mesh = max_utils.fill_unspecified_mesh_axes(list(config.ici_parallelism), config.num_target_devices, "ICI")
    for slices in (1, 2, 3):
        max_utils.fill_unspecified_mesh_axes(list(config.dcn_parallelism), slices, "DCN")
    by_axis = dict(zip(config.mesh_axes, mesh, strict=True))
    return {
        "model": config.model_name,
        "devices": config.num_target_devices,
        "batch": config.global_batch_size_to_train_on,
        "data_axes": by_axis["data"] * by_axis["fsdp"],
        "parameters": _trace(config) if not config.compile_topology else None,
    }


def _trace(config: Any) -> int:
    """Return the number of the model's parameters. The model is built and its forward pass traced, with shapes only."""
    import jax
    from flax import linen, nnx
    from maxtext.utils import maxtext_utils, model_creation_utils

    mesh = jax.sharding.Mesh(maxtext_utils.create_device_mesh(config), config.mesh_axes)
    create, abstract = model_creation_utils.create_nnx_abstract_model(config, mesh)

    def forward(tokens: Any) -> Any:
        return create()(
            decoder_input_tokens=tokens,
            decoder_positions=tokens,
            decoder_segment_ids=tokens,
            enable_dropout=False,
        )

    shape = (config.micro_batch_size_to_train_on, config.max_target_length)
    with jax.set_mesh(mesh), linen.partitioning.axis_rules(config.logical_axis_rules):
        jax.eval_shape(forward, jax.ShapeDtypeStruct(shape, "int32"))
    return sum(leaf.size for leaf in jax.tree.leaves(nnx.state(abstract, nnx.Param)))


def _main() -> None:
    """Print an answer for each argument list on standard input, in one process: MaxText's import takes seconds."""
    from trainer import deferred_imports

    deferred_imports.defer_unused_imports()
    for argv in json.load(sys.stdin):
        try:
            answer = _answer(argv)
        except (Exception, SystemExit) as error:  # any error of MaxText is an answer
            answer = {"error": f"{type(error).__name__}: {error}"}
        sys.stdout.write(f"{_ANSWER}{json.dumps(answer)}\n")


if __name__ == "__main__":
    _main()
