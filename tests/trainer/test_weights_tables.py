"""The tables of tensors, config.json and the files of an export, without a training: MaxText's converter, the library
safetensors and the published models' own config are the references."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from safetensors.numpy import load_file

from trainer.config import RunConfig
from trainer.errors import ConfigError
from trainer.maxtext_keys import maxtext_folder
from trainer.weights import exporting, folder, hf_config, model, tensors, tokenizer, train_keys
from trainer.weights.safetensors_files import ShardWriter, read_folder, shards
from trainer.weights.tensors import Array, Tensor

CHECKOUT = Path(__file__).parents[2]
PUBLISHED = (
    "llama3.1-8b", "mixtral-8x7b", "gemma2-2b", "gemma2-27b", "gemma3-4b", "gemma3-27b", "qwen3-0.6b", "qwen3-8b",
    "qwen3-30b-a3b",
)  # fmt: skip
"""One or more models of each family that MaxText's converter knows."""

# Fewer and smaller than the published ones, so that the hooks run fast.
SMALL = {
    "override_model_config": True, "base_emb_dim": 64, "base_num_decoder_layers": 8, "base_num_query_heads": 4,
    "base_num_kv_heads": 2, "head_dim": 32, "base_mlp_dim": 96, "vocab_size": 160,
}  # fmt: skip

GEMMA3 = {
    "decoder_block": "gemma3", "mlp_activations": ["gelu", "linear"], "logits_via_embedding": True,
    "normalization_layer_epsilon": 1e-6, "use_post_attn_norm": True, "use_post_ffw_norm": True,
    "sliding_window_size": 64, "local_rope_max_timescale": 10_000, "rope_max_timescale": 1_000_000,
}  # fmt: skip
QWEN3_MOE = {"decoder_block": "qwen3_moe", "use_qk_norm": True, "num_experts": 8, "base_moe_mlp_dim": 48}


def of(**train: Any) -> model.Model:
    if "num_experts" in train and "base_mlp_dim" in train:
        train["base_moe_mlp_dim"] = train["base_mlp_dim"]
    return model.read(run(**train))


def run(**train: Any) -> RunConfig:
    tree = {"run": {"name": "x"}, "storage": {"mountPath": "/x"}, "train": train, "data": {}}
    return RunConfig(Path("run.json"), tree)


@dataclass(frozen=True)
class Converter:
    """MaxText's names and hooks of a model."""

    names: Mapping[str, Any]
    hooks: Mapping[str, Any]

    @staticmethod
    def of(source: model.Model) -> Converter:
        from maxtext.checkpoint_conversion.utils import param_mapping

        text = hf_config.build(source, "float32", tokenizer.Tokens())
        config = {**text, "text_config": text, "vision_config": {"num_hidden_layers": 0}}
        maxtext_config = _Namespace(source)
        return Converter(
            param_mapping.PARAM_MAPPING[source.name](config, maxtext_config, source.scanned),
            param_mapping.HOOK_FNS[source.name](config, maxtext_config, source.scanned, saving_to_hf=True),
        )

    def tensors(self, array: Array) -> list[str]:
        """Return the names of the tensors of an array, in the order of experts, then layers."""
        names = self.names["params-" + array.name.removeprefix("params.params.").replace(".", "-")]
        if isinstance(names, str):
            names = [names]
        flat = [name for each in names for name in ([each] if isinstance(each, str) else each)]
        return [name.replace("model.language_model.", "model.") for name in flat]

    def convert(self, array: Array, tensor: Tensor, part: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        hooks = self.hooks.get("params-" + array.name.removeprefix("params.params.").replace(".", "-"), [])
        for hook in hooks if isinstance(hooks, list) else [hooks]:
            part = np.asarray(hook(part, tensor.shape))
        return part.reshape(tensor.shape)


class _Namespace:
    def __init__(self, source: model.Model) -> None:
        self.num_experts = source.experts
        self.head_dim = source.sizes["head_dim"]


@pytest.mark.parametrize("scanned", [True, False])
@pytest.mark.parametrize("name", PUBLISHED)
def test_names_are_those_of_maxtexts_converter(name: str, scanned: bool) -> None:
    source = of(model_name=name, scan_layers=scanned)
    converter = Converter.of(source)
    found = {tensor.name for array in tensors.arrays(source) for tensor in array.tensors}
    for array in tensors.arrays(source):
        assert [tensor.name for tensor in array.tensors] == converter.tensors(array), array.name
    theirs = {
        "params.params." + key.removeprefix("params-").replace("-", ".")
        for key in converter.names
        if "vision" not in key and not key.endswith("-bias")
    }
    if source.tied:
        theirs.discard("params.params.decoder.logits_dense.kernel")
    assert theirs == {array.name for array in tensors.arrays(source)}
    assert len(found) == sum(len(array.tensors) for array in tensors.arrays(source))


@pytest.mark.parametrize("name", ["llama3.1-8b", "mixtral-8x7b", "gemma2-2b", "gemma3-4b", "qwen3-8b", "qwen3-30b-a3b"])
def test_values_are_those_of_maxtexts_hooks(name: str) -> None:
    experts = {"num_experts": 4, "num_experts_per_tok": 2} if name in ("mixtral-8x7b", "qwen3-30b-a3b") else {}
    # MaxText's hook for Mixtral is right only if the heads are as wide as the model.
    sizes = {**SMALL, "head_dim": 16} if name == "mixtral-8x7b" else SMALL
    source = of(model_name=name, scan_layers=False, **sizes, **experts)
    converter = Converter.of(source)
    random = np.random.default_rng(0)
    for array in tensors.arrays(source):
        for tensor in array.tensors:
            part = random.standard_normal(array.part, np.float32)
            expected = converter.convert(array, tensor, part.copy())
            np.testing.assert_allclose(
                tensors.to_hugging_face(part.copy(), array, source), expected, rtol=1e-6, err_msg=tensor.name
            )


@pytest.mark.parametrize("scanned", [True, False])
@pytest.mark.parametrize(
    "name", ["default", "llama2-7b", "llama3-8b", "llama3.1-8b", "mistral-7b", "mixtral-8x7b", "gemma2-2b", "gemma3-4b",
             "qwen3-8b", "qwen3-30b-a3b"],
)  # fmt: skip
@pytest.mark.parametrize("dtype", [np.float32, ml_dtypes.bfloat16])
def test_each_way_undoes_the_other(name: str, scanned: bool, dtype: Any) -> None:
    experts = {"num_experts": 4, "num_experts_per_tok": 2} if name in ("mixtral-8x7b", "qwen3-30b-a3b") else {}
    source = of(model_name=name, scan_layers=scanned, **{**SMALL, "head_dim": 16}, **experts)
    random = np.random.default_rng(0)
    for array in tensors.arrays(source):
        assert math.prod(array.shape) == len(array.tensors) * math.prod(array.part)
        for tensor in array.tensors[:2]:
            part = random.uniform(0.5, 2, array.part).astype(dtype)
            there = tensors.to_hugging_face(part.copy(), array, source)
            assert there.shape == tensor.shape
            back = tensors.to_maxtext(there.copy(), array, source)
            if dtype is np.float32 or array.kind != "norm":  # 1 + w needs more bits than bfloat16 has
                assert back.tobytes() == part.tobytes(), tensor.name


@pytest.mark.parametrize(
    ("train", "key"),
    [
        ({"quantization": "int8"}, "quantization"),
        ({"fused_qkv": True}, "fused_qkv"),
        ({"mlp_activations": ["gelu", "linear"]}, "mlp_activations"),
        ({"mlp_activations": ["relu"]}, "mlp_activations"),
        ({"attention_type": "mla"}, "attention_type"),
        ({"rope_type": "yarn"}, "rope_type"),
        ({"use_qk_norm": True}, "use_qk_norm"),
        ({"logits_via_embedding": True}, "normalize_embedding_logits"),
        ({"num_experts": 8}, "num_experts"),
        ({"trainable_position_size": 1024}, "trainable_position_size"),
        ({"ici_pipeline_parallelism": 2}, "ici_pipeline_parallelism"),
        ({"mtp_num_layers": 1}, "mtp_num_layers"),
        ({"model_name": "gemma2-2b", "normalization_layer_epsilon": 1e-5}, "normalization_layer_epsilon"),
        ({"model_name": "gemma2-2b", "local_rope_max_timescale": 10_000}, "local_rope_max_timescale"),
        ({"model_name": "gemma2-2b", "use_post_ffw_norm": False}, "use_post_ffw_norm"),
        ({"model_name": "gemma3-4b", "attn_logits_soft_cap": 50.0}, "attn_logits_soft_cap"),
        ({"model_name": "gemma3-4b", "use_multimodal": True}, "use_multimodal"),
        ({"model_name": "qwen3-0.6b", "use_qk_norm": False}, "use_qk_norm"),
    ],
)
def test_a_setting_that_the_format_cannot_express_is_refused_with_its_key(train: dict[str, Any], key: str) -> None:
    with pytest.raises(ConfigError, match=rf"^train\.{key} is .*; the Hugging Face format of the family \w+ cannot"):
        of(**train)


def test_a_folder_that_is_not_a_model(tmp_path: Path) -> None:
    for text in ("[]", "{}", '{"model_type": null}'):
        (tmp_path / "config.json").write_text(text)
        with pytest.raises(ConfigError, match=r"config\.json has no model_type, so it does not describe a model"):
            hf_config.read(tmp_path)
    (tmp_path / "config.json").rename(tmp_path / "adapter_config.json")
    with pytest.raises(ConfigError, match=r"is an adapter; write a whole model with launcher export RUN --merge, "):
        hf_config.read(tmp_path)


def test_a_model_of_another_family_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"^train\.model_name: models with the decoder deepseek have no export; use "):
        of(model_name="deepseek2-16b")
    with pytest.raises(ConfigError, match=r'^train\.model_name: MaxText has no model "llama9"\.'):
        of(model_name="llama9")


def test_the_published_configs_agree_with_maxtexts_models() -> None:
    """MaxText has copies of the published configs. That of Gemma 3 is wrong: it has neither rope_theta nor the
    activation's right name."""
    program = (
        "import json\n"
        "from maxtext.checkpoint_conversion.utils.hf_model_configs import HF_MODEL_CONFIGS\n"
        "print(json.dumps({name: each.to_dict() for name, each in HF_MODEL_CONFIGS.items()}, default=str))"
    )
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=CHECKOUT)
    published = json.loads(found.stdout.splitlines()[-1])
    published["gemma3-4b"] = {
        "model_type": "gemma3",
        "text_config": {
            "hidden_size": 2560,
            "intermediate_size": 10240,
            "model_type": "gemma3_text",
            "num_hidden_layers": 34,
            "rope_scaling": {"factor": 8.0, "rope_type": "linear"},
            "sliding_window": 1024,
        },
    }
    for name in PUBLISHED:
        if name != "gemma3-27b":
            config = hf_config.normalized(published[name])
            assert hf_config.differences(config, of(model_name=name)) == []
            assert train_keys.derive(config, {"steps": 3}, name) == {"model_name": name}


@pytest.mark.parametrize(
    "train",
    [
        {"decoder_block": "llama2", "logits_via_embedding": True, "normalize_embedding_logits": False},
        {"decoder_block": "llama2", "rope_type": "llama3.1", "rope_max_timescale": 500_000},
        {"decoder_block": "mistral", "rope_linear_scaling_factor": 4.0},
        {"decoder_block": "mixtral", "num_experts": 4, "base_moe_mlp_dim": 96, "num_experts_per_tok": 2},
        {
            "decoder_block": "gemma2",
            "mlp_activations": ["gelu", "linear"],
            "logits_via_embedding": True,
            "normalization_layer_epsilon": 1e-6,
            "use_post_attn_norm": True,
            "use_post_ffw_norm": True,
            "sliding_window_size": 64,
            "attn_logits_soft_cap": 50.0,
            "final_logits_soft_cap": 30.0,
        },
        GEMMA3,
        {"decoder_block": "qwen3", "use_qk_norm": True, "rope_max_timescale": 1_000_000},
        QWEN3_MOE,
    ],
)
def test_the_keys_of_a_config_select_its_model(train: dict[str, Any]) -> None:
    sizes = {"base_emb_dim": 64, "base_num_decoder_layers": 6, "base_num_query_heads": 4, "base_num_kv_heads": 2}
    source = of(**{"head_dim": 16, "base_mlp_dim": 96, "vocab_size": 500, **sizes, **train})
    config = hf_config.build(source, "float32", tokenizer.Tokens())
    keys = train_keys.derive({key: config[key] for key in config if key != "hidden_act"}, {"steps": 3}, "DIR")
    assert hf_config.build(of(**keys), "float32", tokenizer.Tokens()) == config
    assert of(**keys).describe() == source.describe()


def test_what_no_keys_can_express_is_refused_as_a_whole() -> None:
    config = hf_config.build(of(base_emb_dim=64, vocab_size=500), "float32", tokenizer.Tokens())
    with pytest.raises(ConfigError) as error:
        train_keys.derive({**config, "attention_bias": True, "hidden_act": "gelu"}, {}, "DIR")
    assert str(error.value) == (
        "DIR has settings that MaxText's llama cannot have: hidden_act is gelu, but the run's model has silu "
        "(train.mlp_activations); attention_bias is True, but the run's model has False (train.attention_bias)."
    )
    gemma = hf_config.build(of(**GEMMA3, **SMALL), "float32", tokenizer.Tokens())
    moe = hf_config.build(of(**QWEN3_MOE, **SMALL), "float32", tokenizer.Tokens())
    local = ["sliding_attention"] * 8
    for theirs, says in (
        (
            {**gemma, "layer_types": ["full_attention", *local]},
            "layer_types[0] is full_attention, but the run's model ",
        ),
        ({**gemma, "layer_types": None, "sliding_window_pattern": 2}, "sliding_window_pattern is 2, but the run's mod"),
        ({**gemma, "use_bidirectional_attention": True}, "use_bidirectional_attention is True, but the run's model ha"),
        ({key: moe[key] for key in moe if key != "norm_topk_prob"}, "norm_topk_prob is False, but the run's model has"),
        ({**moe, "mlp_only_layers": [0], "decoder_sparse_step": 2}, "decoder_sparse_step is 2, but the run's model ha"),
        ({**config, "partial_rotary_factor": 0.5}, "partial_rotary_factor is 0.5, but the run's model has 1.0"),
        (
            hf_config.normalized({**config, "rope_parameters": {"partial_rotary_factor": 0.5}}),
            "partial_rotary_factor is",
        ),
    ):
        with pytest.raises(ConfigError) as error:
            train_keys.derive(theirs, {}, "DIR")
        assert f"cannot have: {says}" in str(error.value)
    with pytest.raises(ConfigError, match="DIR is a model of the family gpt2, which cannot be imported; the families"):
        train_keys.derive({**config, "model_type": "gpt2"}, {}, "DIR")


def test_a_config_of_another_model_is_refused_with_both_values(tmp_path: Path) -> None:
    source = of(model_name="llama3.1-8b")
    config = hf_config.build(source, "float32", tokenizer.Tokens())
    train_keys.compare(config, source, {}, "DIR")
    for key, value, sentence in (
        (
            "num_hidden_layers",
            16,
            "num_hidden_layers is 16, but the run's model has 32 (train.base_num_decoder_layers)",
        ),
        ("rope_scaling", None, "rope_scaling is None, but the run's model has {'rope_type': 'llama3', "),
        ("tie_word_embeddings", True, "tie_word_embeddings is True, but the run's model has False"),
        ("attention_bias", True, "attention_bias is True, but the run's model has False"),
        ("hidden_act", "gelu", "hidden_act is gelu, but the run's model has silu"),
        (
            "vocab_size",
            200_000,
            "vocab_size is 200,000, but the run's model has room for 128,256 (train.vocab_size)",
        ),
    ):
        with pytest.raises(ConfigError) as error:
            train_keys.compare({**config, key: value}, source, {}, "DIR")
        assert sentence in str(error.value)
    with pytest.raises(ConfigError, match=r"has no config\.json, so it is not a folder in Hugging Face format"):
        hf_config.read(tmp_path)
    (tmp_path / "adapter_config.json").write_text("{}")
    with pytest.raises(ConfigError, match=r"it is an adapter; write a whole model with launcher export RUN --merge"):
        hf_config.read(tmp_path)
    (tmp_path / "config.json").write_text("[]")
    with pytest.raises(ConfigError, match="has no model_type"):
        hf_config.read(tmp_path)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"rope_theta": None}, "rope_theta is null, not a number above 0."),
        ({"num_hidden_layers": "2", "hidden_size": None}, 'num_hidden_layers is "2", not a whole number above 0; hid'),
        ({"vocab_size": "500"}, 'vocab_size is "500", not a whole number above 0.'),
        ({"head_dim": float("nan")}, "head_dim is NaN, not a whole number above 0."),
        (
            {"rms_norm_eps": [], "num_key_value_heads": True},
            "num_key_value_heads is true, not a whole number above 0; r",
        ),
        ({"rope_scaling": True}, "rope_scaling is true, not an object."),
        *(
            ({"rope_scaling": {"type": "linear", "factor": factor}}, f"rope_scaling.factor is {factor}, not a number")
            for factor in (0, -1)
        ),
        ({"rope_scaling": {"type": "linear", "factor": float("inf")}}, "rope_scaling.factor is Infinity, not a number"),
        ({"rope_parameters": {"rope_type": "default", "rope_theta": "1e6"}}, 'rope_theta is "1e6", not a number'),
        ({"sliding_window": {}}, "sliding_window is {}, not a whole number above 0."),
        ({"sliding_window": None, "num_key_value_heads": None, "rope_scaling": None, "head_dim": None}, ""),
        ({"rope_parameters": {}}, ""),
        ({"model_type": "gpt2", "hidden_size": None}, "gpt2, which cannot be imported"),
    ],
)
def test_values_of_another_type_are_named(tmp_path: Path, changes: dict[str, Any], says: str) -> None:
    config = hf_config.build(of(base_emb_dim=64, vocab_size=500), "float32", tokenizer.Tokens())
    (tmp_path / "config.json").write_text(json.dumps({**config, **changes}))
    if not says:
        assert train_keys.derive(hf_config.read(tmp_path), {}, "DIR")
        return
    with pytest.raises(ConfigError) as error:
        train_keys.derive(hf_config.read(tmp_path), {}, "DIR")
    assert says in str(error.value)


def test_what_a_config_leaves_out_is_transformers_default() -> None:
    program = (
        "import json, sys, transformers\n"
        "print(json.dumps({name: transformers.CONFIG_MAPPING[name]().to_dict() for name in sys.argv[1:]}))"
    )
    names = [family.name for family in model.FAMILIES]
    shown = subprocess.run([sys.executable, "-c", program, *names], capture_output=True, text=True, check=True)
    for name, theirs in json.loads(shown.stdout.splitlines()[-1]).items():
        sizes = {key: theirs[key] for key in theirs if key.startswith(("hidden_size", "num_", "head_dim"))}
        ours = {**hf_config._FIXED, **hf_config.values({"model_type": name, **sizes})}
        theirs = hf_config.normalized(theirs)
        same = [key for key in ours if key in theirs and key not in sizes and ours[key] is not None]
        assert {key: ours[key] for key in same} == {key: theirs[key] or ours[key] for key in same}, name
        assert {"rope_theta", "rms_norm_eps", "tie_word_embeddings"} <= set(same)
        for key in ("sliding_window", "attn_logit_softcapping", "final_logit_softcapping"):
            assert ours[key] == theirs.get(key), (name, key)


@pytest.mark.parametrize("text", ["x", "[]", "{}", '{"weight_map": 3}', '{"weight_map": {"a": 3, "b": "c"}}'])
def test_an_index_that_is_not_one(tmp_path: Path, text: str) -> None:
    (tmp_path / "model.safetensors.index.json").write_text(text)
    with pytest.raises(ConfigError, match=r"index\.json is not a valid index of safetensors files\.$"):
        read_folder(tmp_path)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_the_library_reads_the_files_and_each_has_its_share(tmp_path: Path, dtype: str) -> None:
    random = np.random.default_rng(0)
    values = {f"t{number}": random.standard_normal((7 + number, 5), np.float32) for number in range(9)}
    values["norm"] = random.standard_normal(11, np.float32)
    groups = shards([Tensor(name, each.shape) for name, each in values.items()], dtype, largest=700)
    assert len(groups) > 1
    for shard in groups:
        with ShardWriter(tmp_path, shard, dtype) as writer:
            for tensor in shard.tensors:
                each = values[tensor.name]
                writer.write(np.asfortranarray(each))
        assert (tmp_path / shard.name).stat().st_size == writer.size
        for name, each in load_file(tmp_path / shard.name).items():
            expected = values[name].astype(ml_dtypes.bfloat16 if dtype == "bfloat16" else np.float32)
            assert each.tobytes() == expected.tobytes()
    index = {"weight_map": {tensor.name: shard.name for shard in groups for tensor in shard.tensors}}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    stored = read_folder(tmp_path)
    assert stored.keys() == values.keys()
    assert np.allclose(stored["t8"].read().astype(np.float32), values["t8"], rtol=1e-2)


@pytest.mark.parametrize(
    "changes",
    [
        {"data_offsets": [float("nan"), 8]},
        {"data_offsets": [0.0, 8.0]},
        {"data_offsets": [-8, 0]},
        {"data_offsets": [0, 4]},
        {"shape": [float("inf")]},
        {"shape": [-1, -2]},
        {"shape": ["2"]},
    ],
    ids=str,
)
def test_a_header_whose_numbers_do_not_fit_is_refused(tmp_path: Path, changes: dict[str, Any]) -> None:
    header = json.dumps({"t": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8], **changes}}).encode()
    (tmp_path / "model.safetensors").write_bytes(len(header).to_bytes(8, "little") + header + bytes(8))
    with pytest.raises(ConfigError, match="is not a safetensors file; download or export it again"):
        read_folder(tmp_path)


def test_a_folder_appears_whole_or_not_at_all(tmp_path: Path) -> None:
    to = tmp_path / "sub" / "out"
    with pytest.raises(RuntimeError), folder.complete(to, 1) as draft:
        (draft / "half").touch()
        raise RuntimeError
    assert list((tmp_path / "sub").iterdir()) == []
    space = r"^Not enough disk space for .*/out: [\d,.]+ MB needed, [\d,.]+ MB free on "
    with pytest.raises(ConfigError, match=space), folder.complete(to, 1 << 60):
        raise AssertionError("unreachable")
    with folder.complete(to, 1) as draft:
        (draft / "file").write_text("x")
        folder.write_record(draft, {"run": "a"})
        assert not to.exists()
    assert folder.existing(to, {"run": "a"}) is not None
    with pytest.raises(ConfigError, match=r"already exists, with another run \(a\)"):
        folder.existing(to, {"run": "b"})
    (to / "file").write_text("xy")
    with pytest.raises(ConfigError, match="is not whole: file is missing or has another size"):
        folder.existing(to, {"run": "a"})


def test_only_abandoned_temporary_folders_are_removed(tmp_path: Path) -> None:
    import socket

    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    zombie = subprocess.Popen([sys.executable, "-c", ""])
    os.waitid(os.P_PID, zombie.pid, os.WEXITED | os.WNOWAIT)  # it has ended, and no process has waited for it
    mine = f".out.partial-{socket.gethostname()}-"
    living, dead, undead, old, new = (
        tmp_path / name
        for name in (
            *(f"{mine}{pid}" for pid in (os.getppid(), ended.pid, zombie.pid)),
            ".out.partial-pod-1-1",
            ".out.partial-pod-2-1",
        )
    )
    for path in (living, dead, undead, old, new):
        path.mkdir()
        (path / "file").touch()
    for path in (old / "file", old):
        os.utime(path, (time.time() - 4000,) * 2)
    with folder.complete(tmp_path / "out", 1):
        pass
    zombie.wait()
    found = {"out", living.name, new.name} | ({undead.name} if sys.platform != "linux" else set())
    assert {path.name for path in tmp_path.iterdir()} == found


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        ("sentencepiece", "tokenizer.llama2"),
        ("sentencepiece", "tokenizer.mistral-v1"),
        ("sentencepiece", "tokenizer.mistral-v3"),
        ("sentencepiece", "tokenizer.gemma"),
        ("sentencepiece", "tokenizer.gemma3"),
        ("tiktoken", "tokenizer_llama3.tiktoken"),
        ("huggingface", "qwen3-tokenizer"),
    ],
)
def test_the_exported_tokenizer_returns_the_ids_of_the_training(kind: str, name: str, tmp_path: Path) -> None:
    path = maxtext_folder() / "assets" / "tokenizers" / name
    config = RunConfig(Path("run.json"), {"train": {}, "data": {"tokenizer": {"kind": kind, "path": str(path)}}})
    tokens = exporting.write_tokenizer(config, of(vocab_size=300_000), tmp_path)
    program = (
        "import sys, json\n"
        "from trainer import deferred_imports\n"
        "from transformers import AutoTokenizer\n"
        "from maxtext.input_pipeline.tokenizer import build_tokenizer\n"
        "ours = AutoTokenizer.from_pretrained(sys.argv[1])\n"
        "theirs = build_tokenizer(sys.argv[2], sys.argv[3], True, False, None)\n"
        "for name in sys.argv[4:]:\n"
        "    text = open(name, encoding='utf-8').read()\n"
        "    assert ours.encode(text) == theirs.encode(text), name\n"
        "    ids = ours.encode(text, add_special_tokens=False)\n"
        "    assert ours.decode(ids).strip() == theirs.decode(ids).strip()\n"
        "print(json.dumps([ours.bos_token_id, ours.eos_token_id, len(ours)]))\n"
    )
    texts = [json.__file__, os.__file__, str(CHECKOUT / "docs" / "glossary.md"), str(CHECKOUT / "README.md"), __file__]
    run = subprocess.run(
        [sys.executable, "-c", program, tmp_path, path, kind, *texts],
        capture_output=True, text=True, cwd=CHECKOUT, env={**os.environ, "JAX_PLATFORMS": "cpu"}, check=False,
    )  # fmt: skip
    assert run.returncode == 0, run.stderr
    assert json.loads(run.stdout.splitlines()[-1]) == [tokens.bos, tokens.eos, tokens.size]


def test_the_command_imports_no_jax() -> None:
    program = (
        "import sys, trainer.weights.__main__\n"
        "print(sorted({'jax', 'maxtext', 'transformers', 'tokenizers', 'tensorstore', 'torch'} & set(sys.modules)))"
    )
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=CHECKOUT)
    assert found.stdout.strip() == "[]"


def test_full_disks_are_recognized_in_the_errors_of_libraries(tmp_path: Path) -> None:
    for error in (
        OSError(28, "No space left on device"),
        RuntimeError("No space left on device (os error 28)"),
        ValueError("RESOURCE_EXHAUSTED: Failed to write: No space left on device [os_error_code='28']"),
    ):
        with pytest.raises(ConfigError, match=r"^Not enough disk space for "), folder.complete(tmp_path / "x", 1):
            raise error
    with pytest.raises(ValueError, match="shapes"), folder.complete(tmp_path / "x", 1):
        raise ValueError("shapes do not match")
    assert list(tmp_path.iterdir()) == []
