"""Rules for meshes, batches, models, text and disk: each with values that break it and values that do not.

tests/unit/test_model_table.py checks that MaxText really rejects what is an error here.
"""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import pytest
import sentencepiece
import tokenizers

from launcher.config.checks import resource_rules
from launcher.config.checks.problems import Problem
from launcher.config.checks.tokenizer_rules import PACKAGED
from launcher.config.plan import check_launch
from launcher.config.values import files as values
from launcher.config.values.files import chart_defaults
from launcher.config.values.writer import dumps
from launcher.paths import presets_dir
from tests.large_machine import use_machine
from trainer import vocabulary
from trainer.errors import ConfigError
from trainer.maxtext_keys import maxtext_folder

DEFAULTS = chart_defaults("run")
GOOD: dict[str, Any] = {
    "run": {"name": "llama", "kind": "ray-job"},
    "team": {"name": "research"},
    "slice": {"accelerator": "v6e", "topology": "4x4"},
    "image": {"repository": "example.com/trainer", "tag": "1"},
    "storage": {"bucket": "bucket"},
    "train": {"model_name": "llama3.1-8b", "steps": 10, "dataset_type": "synthetic", "per_device_batch_size": 1},
}
LOCAL: dict[str, Any] = {
    "run": {"name": "tiny", "kind": "local"},
    "slice": {"accelerator": "cpu", "hosts": 2},
    "storage": {"kind": "local"},
    "data": {"corpus": "python"},
    "train": {"base_emb_dim": 64, "max_target_length": 128, "per_device_batch_size": 1, "steps": 10},
}

ON_TEXT: dict[str, Any] = {
    **GOOD,
    "data": {"files": ["/data/a.txt"]},
    "train": {"steps": 10, "per_device_batch_size": 1},
}


def problems(text: str, over: dict[str, Any] | None = None) -> list[Problem]:
    """Return the problems of a values file that is merged into GOOD, the tree of another file."""
    base = values.read_text(dumps(GOOD if over is None else over).encode(), "good.yaml")
    return check_launch(values.merge(base, values.read_text(text.encode(), "v.yaml")), DEFAULTS)


ERRORS = [
    ("train: {ici_tensor_parallelism: 3}", "mesh", "train.ici_tensor_parallelism: the mesh requires a multiple of"
     " 3 devices, but a v6e slice of 4x4 has 16 chips; use a divisor of 16."),
    ("train: {ici_fsdp_parallelism: 4}", "mesh", "train.ici_fsdp_parallelism: the mesh requires 4 devices, but a v6e"
     " slice of 4x4 has 16 chips; make it 16, or set one axis to -1."),
    ("train: {ici_fsdp_parallelism: 1}", "mesh", "train.ici_fsdp_parallelism: the mesh requires 1 device, but a v6e"
     " slice of 4x4 has 16 chips; make it 16, or set one axis to -1."),
    ("train: {mesh_axes: [data]}", "mesh", "train.ici_data_parallelism: the mesh requires 1 device, but"),
    ("train: {ici_fsdp_parallelism: 8, ici_tensor_parallelism: 4}", "mesh", "the mesh requires 8 x 4 = 32 devices"),
    ("train: {ici_data_parallelism: -1}", "mesh", "train.ici_data_parallelism is -1, and so is"
     " train.ici_fsdp_parallelism, by MaxText's default; MaxText can compute only one of them: set"
     " train.ici_fsdp_parallelism: 1."),
    ("train: {ici_fsdp_parallelism: 0}", "mesh", "train.ici_fsdp_parallelism is 0; it must be at least 1, or -1"
     " for all remaining devices."),
    ("train: {dcn_data_parallelism: 2}", "mesh", "train.dcn_data_parallelism is 2, but the run has only one slice,"
     " and the key divides work among slices; remove it, or raise slice.count."),
    ("{slice: {count: 2}, train: {dcn_fsdp_parallelism: 4}}", "mesh", "train.dcn_fsdp_parallelism: the mesh"
     " between slices requires a multiple of 4, but slice.count is 2; change one of them."),
    ("{slice: {accelerator: tpu7x, topology: 1x1x1}, train: {ici_tensor_parallelism: 4}}", "mesh",
     "a tpu7x slice of 1x1x1 has 1 chip (2 devices); use a divisor of 2."),
    ("{slice: {topology: 1x1}, train: {ici_tensor_parallelism: 4}}", "mesh", "slice of 1x1 has 1 chip; remove it."),
    ("train: {ici_tensor_parallelism: 16}", "sharding", "train.ici_tensor_parallelism: llama3.1-8b's key and value"
     " heads, 8, cannot be divided among 16 devices (tensor 16); use a divisor of 8, such as 8."),
    ("{slice: {accelerator: v5p, topology: 8x8x16}, train: {model_name: gemma3-4b, ici_fsdp_parallelism: -1}}",
     "sharding", "train.ici_fsdp_parallelism: gemma3-4b's width (base_emb_dim), 2,560, cannot be divided among 1024"
     " devices (fsdp 1024); set train.ici_fsdp_parallelism: 512 and train.ici_data_parallelism: 2."),
    ("train: {model_name: mixtral-8x7b, ici_expert_parallelism: 16}", "sharding", "mixtral-8x7b's experts, 8, cannot be"
     " divided among 16 devices (expert 16)"),
    ("train: {ici_context_parallelism: 4, max_target_length: 2052}", "sharding", "train.max_target_length: a sequence"
     " of 2,052 tokens cannot be divided among 4 devices, in two pieces each (train.ici_context_parallelism); use a"
     " multiple of 8."),
    ("{slice: {accelerator: v5p, topology: 4x4x12}, train: {model_name: default, base_emb_dim: 3072,"
     " ici_context_parallelism: 3, max_target_length: 3072}}", "sharding",
     "the sequence is divided among 3 devices, but load balancing requires an even number; use an even number"),
    ("train: {ici_tensor_sequence_parallelism: 8, max_target_length: 2052}", "sharding", "a sequence of 2,052 tokens"
     " cannot be divided among 8 devices (train.ici_tensor_sequence_parallelism); use a multiple of 8."),
    ("train: {model_name: default, base_num_kv_heads: 6}", "heads", "train.base_num_kv_heads: 16 query heads cannot be"
     " divided evenly among 6 key and value heads."),
    ("train: {ici_pipeline_parallelism: 4, num_layers_per_pipeline_stage: 3}", "pipeline", "train.ici_pipeline_"
     "parallelism: 32 layers cannot be divided into 4 stages of 3; change the stages"),
    ("train: {ici_pipeline_parallelism: 4, num_pipeline_microbatches: 6}", "pipeline", "train.num_pipeline_microbatches"
     ": 6 microbatches are not a multiple of 4 stages."),
    ("train: {ici_pipeline_parallelism: 4, num_pipeline_microbatches: 12, per_device_batch_size: 1}", "pipeline",
     "16 sequences per forward pass (16 devices) cannot be divided into 12 microbatches"),
    ("train: {per_device_batch_size: 1.5}", "batch", "train.per_device_batch_size: 1.5 on 16 devices is 24 sequences,"
     " which cannot be divided among 16 devices; use a whole number, or a fraction below 1."),
    ("train: {per_device_batch_size: 0.03125}", "batch", "0.03125 on 16 devices is less than one sequence; raise it to"
     " at least 0.0625."),
    ("train: {per_device_batch_size: 0.5}", "batch", "0.5 on 16 devices is 8 sequences, and the mesh divides a batch"
     " among 16 devices, but the attention kernel requires equal parts; raise it, or move devices to"),
    ("train: {num_vocab_tiling: 3}", "batch", "train.num_vocab_tiling: a device's 2,048 tokens"
     " (train.per_device_batch_size x train.max_target_length) cannot be divided into 3 tiles; use a divisor"),
    ("train: {per_device_batch_size: 0.3, ici_fsdp_parallelism: 4, ici_tensor_parallelism: 4}", "batch",
     "a device's 614.4 tokens (train.per_device_batch_size x train.max_target_length) are not a whole number; raise"),
    ("train: {max_target_length: 1000}", "attention", "train.max_target_length: the TPU's attention kernel requires"
     " blocks of a multiple of 128 tokens and cannot divide a sequence of 1,000 tokens; use 1024, or set"
     " train.attention: dot_product."),
    ("train: {max_target_length: 100, attention: flash}", "attention", "divide a sequence of 100 tokens; use 128"),
    ("train: {ici_context_parallelism: 4, max_target_length: 2056}", "attention", "requires blocks of a multiple"
     " of 128 tokens and cannot divide a device's 514 tokens of a sequence of 2,056 tokens; use 2048"),
    ("train: {max_target_length: 640}", "attention", "train.max_target_length: the TPU's attention kernel cannot"
     " divide a sequence of 640 tokens into equal blocks of 512 (train.sa_block_q, train.sa_block_q_dkv,"
     " train.sa_block_q_dq, train.sa_block_kv, train.sa_block_kv_dkv, train.sa_block_kv_dq, train.sa_block_kv_compute"
     " and train.sa_block_kv_dkv_compute); set them to 128, or train.max_target_length to 512."),
    ("train: {sa_block_q: 768}", "attention", "train.sa_block_q: the TPU's attention kernel cannot divide a sequence of"
     " 2,048 tokens into equal blocks of 768; use 512."),
    ("train: {sa_block_kv: 0}", "attention", "into equal blocks of 0; use 512."),
    ("train: {sa_block_q_dq: 768}", "attention", "into equal blocks of 768; use 512."),
    ("train: {ici_context_parallelism: 8}", "attention", "train.ici_context_parallelism: the TPU's attention kernel"
     " cannot divide a device's 256 tokens of a sequence of 2,048 tokens into equal blocks of 512"
     " (train.sa_block_q, train.sa_block_q_dkv and train.sa_block_q_dq); set them to 256."),
    ("train: {sa_block_q_dkv: 64}", "attention", "train.sa_block_q_dkv: the TPU's attention kernel requires blocks of a"
     " multiple of 128, not of 64; use 128."),
    ("train: {sa_block_q: 4}", "attention", "requires blocks of a multiple of 8, not of 4; use 128."),
    ("train: {sa_block_kv: 256}", "attention", "train.sa_block_kv: the TPU's attention kernel cannot compute a block of"
     " 256 in parts of 512 (train.sa_block_kv_compute); set it to 256."),
    ("train: {sa_block_kv_dkv_compute: 1024}", "attention", "train.sa_block_kv_dkv_compute: the TPU's attention kernel"
     " cannot compute a block of 512 (train.sa_block_kv_dkv) in parts of 1,024; use 512."),
    ("train: {model_name: gemma3-4b, local_sa_block_q: 768}", "attention", "train.local_sa_block_q: the TPU's"
     " attention kernel cannot divide a sequence of 2,048 tokens into equal blocks of 768; use 512."),
    ("train: {head_dim: 64}", "model-key", "train.head_dim is 64, and MaxText's llama3.1-8b has 128; remove it, or set"
     " train.override_model_config: true."),
]  # fmt: skip


WARNINGS = [
    ("train: {ici_sequence_parallelism: 2}", "mesh", "train.ici_sequence_parallelism has no effect: MaxText's mesh has"
     " no such axis; train.ici_context_parallelism divides the sequence."),
    ("train: {per_device_batch_size: 0.5, attention: dot_product}", "batch", "some of them have nothing to compute."),
    ("train: {model_name: llama3-8b, max_target_length: 16384}", "context", "train.max_target_length: 16,384 tokens are"
     " more than the 8,192 that llama3-8b supports; positions beyond them are untrained."),
    ("train: {steps: 2000, learning_rate_schedule_steps: 1000}", "schedule", "train.learning_rate_schedule_steps is"
     " 1,000, and train.steps is 2,000: the steps between them have a learning rate of 0, and change nothing; remove"
     " the key, or increase it."),
]  # fmt: skip


REPORTED = [*((*each, "error") for each in ERRORS), *((*each, "warning") for each in WARNINGS)]


@pytest.mark.parametrize(("text", "rule", "sentence", "severity"), REPORTED, ids=[text[:60] for text, *_ in REPORTED])
def test_what_cannot_run_is_an_error_and_what_wastes_a_warning(
    text: str, rule: str, sentence: str, severity: str
) -> None:
    (found,) = problems(text + "\n")
    assert sentence in str(found)
    assert (found.rule, found.severity, found.file, found.line) == (rule, severity, "v.yaml", 1)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "train: {ici_tensor_parallelism: 8}",
        "train: {ici_fsdp_parallelism: 1, ici_data_parallelism: -1}",
        "{slice: {count: 2}, train: {dcn_data_parallelism: 1, dcn_fsdp_parallelism: -1}}",
        "{slice: {count: 3}, train: {dcn_data_parallelism: 3}}",
        "{slice: {accelerator: tpu7x, topology: 2x2x1}, train: {ici_fsdp_parallelism: 8}}",
        "train: {model_name: mixtral-8x7b, ici_expert_parallelism: 8}",
        "train: {model_name: mixtral-8x7b, data: null}",
        "train: {ici_context_parallelism: 4, max_target_length: 2056, attention: dot_product}",
        "train: {ici_context_parallelism: 4, max_target_length: 2052, context_parallel_load_balance: false,"
        " attention: dot_product}",
        "train: {ici_tensor_sequence_parallelism: 8, max_target_length: 2056, attention: dot_product}",
        "train: {max_target_length: 1000, attention: dot_product}",
        "train: {max_target_length: 100}",  # too short for the kernel, so it is not used
        "train: {max_target_length: 384}",  # shorter than a block
        "train: {max_target_length: 8192, sa_block_q: 2048, sa_block_kv: 1024, sa_block_kv_compute: 256}",
        "train: {sa_block_q: 64, sa_block_kv_dkv_compute: 64}",
        "train: {sa_block_q_dq: 768, sa_block_kv_dq: 64, sa_use_fused_bwd_kernel: true}",
        "train: {sa_block_q_dq: 768, use_tokamax_splash: true}",
        "train: {ici_context_parallelism: 8, sa_block_q: 256, sa_block_q_dkv: 256, sa_block_q_dq: 128}",
        "train: {local_sa_block_q: 768}",  # a model without local layers
        "train: {model_name: gemma3-4b, local_sa_block_q: 1024}",
        "{slice: {accelerator: h100-80gb, topology: ''}, train: {max_target_length: 1000, sa_block_q: 768}}",
        "train: {model_name: default, base_num_kv_heads: 8}",
        "train: {ici_pipeline_parallelism: 4, num_layers_per_pipeline_stage: 2, num_pipeline_microbatches: 8}",
        "train: {per_device_batch_size: 0.5, ici_tensor_parallelism: 2}",
        "train: {per_device_batch_size: 0.25, ici_context_parallelism: 4}",
        "train: {per_device_batch_size: 1.5, ici_fsdp_parallelism: 8, ici_tensor_parallelism: 2}",
        "train: {num_vocab_tiling: 4}",
        "train: {head_dim: 64, override_model_config: true}",
        "train: {head_dim: 128}",
        "train: {max_target_length: 131072}",
        "train: {model_name: qwen2.5-7b, max_target_length: 99328}\ndata: {tokenizer: {kind: huggingface, path: a}}",
        # The launcher does not know the number of JAX's devices on several machines without TPUs.
        "{slice: {accelerator: h100-80gb, topology: '', hosts: 2}, train: {ici_tensor_parallelism: 3}}",
        "{slice: {accelerator: h100-80gb, topology: ''}, train: {ici_tensor_parallelism: 8}}",
    ],
)
def test_values_that_run_have_no_problem(text: str) -> None:
    text = text.replace(", data: null", "")
    assert [str(problem) for problem in problems(text + "\n")] == []


def test_real_text_takes_whole_sequences_for_each_device() -> None:
    text = (
        "data: {corpus: python}\ntrain: {dataset_type: null, ici_tensor_parallelism: 2, per_device_batch_size: 1.5}\n"
    )
    (found,) = problems(text)
    assert "1.5 on 16 devices is 24 sequences, which cannot be divided among 16 devices" in str(found)
    assert problems(text.replace("1.5", "1.5, gradient_accumulation_steps: 2")) == []
    (found,) = problems(text.replace("1.5", "1, eval_per_device_batch_size: 1.5"))
    assert "train.eval_per_device_batch_size: 1.5 on 16 devices" in str(found)


def test_a_models_tokenizer_is_of_its_kind() -> None:
    (found,) = problems("train: {model_name: qwen3-8b}\ndata: {tokenizer: {kind: tiktoken, path: x.tiktoken}}\n")
    assert str(found) == (
        "v.yaml:2: data.tokenizer.kind is tiktoken, and MaxText's qwen3-8b has huggingface; set it and"
        " data.tokenizer.path accordingly, or set train.override_model_config: true."
    )


def test_the_pieces_of_a_packaged_tokenizer_have_rows() -> None:
    llama3 = "data: {tokenizer: {kind: tiktoken, path: tokenizer_llama3.tiktoken}}\n"
    assert problems(f"{llama3}train: {{vocab_size: 128256}}", LOCAL) == []
    (wrong,) = problems(llama3, LOCAL)
    assert "the tokenizer tokenizer_llama3.tiktoken has 128,256 pieces, but the model has room for 32,000" in str(wrong)
    (wrong,) = problems(llama3.replace("kind: tiktoken, ", ""), LOCAL)
    assert wrong.message == "data.tokenizer.kind: tokenizer_llama3.tiktoken is a tiktoken file, not sentencepiece."
    (wrong,) = problems("train: {vocab_size: 512}", LOCAL)  # the default is the tokenizer of Llama 2
    assert "the tokenizer tokenizer.llama2 has 32,000 pieces, but the model has room for 512" in str(wrong)


def test_a_tokenizer_on_this_machine_is_compared_for_a_run_in_a_cluster(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A folder, a file, and a name on Hugging Face that is in the library's cache."""
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    cached = tmp_path / "hub" / "models--org--name"
    folder = cached / "snapshots" / "c0ffee"
    folder.mkdir(parents=True)
    (cached / "refs").mkdir()
    (cached / "refs" / "main").write_text("c0ffee")
    words = {f"w{number}": number for number in range(500)}
    fast = tokenizers.Tokenizer(tokenizers.models.WordLevel(words, unk_token="w0"))
    fast.add_special_tokens(["<added>"])
    fast.save(str(folder / "tokenizer.json"))
    unigram = tmp_path / "unigram"
    unigram.mkdir()
    pieces = [(f"w{number}", -1.0) for number in range(501)]
    tokenizers.Tokenizer(tokenizers.models.Unigram(pieces, unk_id=0)).save(str(unigram / "tokenizer.json"))
    ranks = tmp_path / "ranks.tiktoken"
    ranks.write_bytes(b"".join(base64.b64encode(bytes([n])) + b" %d\n" % n for n in range(245)))
    llama2 = maxtext_folder() / "assets" / "tokenizers" / "tokenizer.llama2"
    for kind, path, rows in (
        ("huggingface", "org/name", 501),
        ("huggingface", folder, 501),
        ("huggingface", unigram, 501),
        ("tiktoken", ranks, 501),
        ("sentencepiece", llama2, 32_000),
    ):
        text = f"data: {{tokenizer: {{kind: {kind}, path: {path}}}}}\n"
        for room in (rows, rows - 1):
            found = problems(f"{text}train: {{vocab_size: {room}}}", ON_TEXT)
            messages = [each.message for each in found if each.rule == "tokenizer"]
            message = f"train.vocab_size: the tokenizer {path} has {rows:,} pieces, but the model has room for {room:,}"
            assert len(messages) == (room < rows) and all(each.startswith(message) for each in messages)


@pytest.mark.parametrize(("kind", "path"), [("huggingface", "org/name"), ("sentencepiece", "/data/tokenizer.model")])
def test_a_tokenizer_that_is_elsewhere_is_said_to_be_unchecked(
    kind: str, path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    text = f"data: {{tokenizer: {{kind: {kind}, path: {path}}}}}\n"
    (found,) = (each for each in problems(text, ON_TEXT) if each.rule == "tokenizer")
    assert (found.severity, found.message) == (
        "warning",
        f"data.tokenizer.path: {path} cannot be loaded on this machine, so its ids are not compared with "
        "train.vocab_size; the trainer does that before the first step.",
    )
    text += "train: {model_name: default}\n"
    assert [each for each in problems(text) if each.rule == "tokenizer"] == []  # synthetic data
    assert problems(text, LOCAL) == []  # the trainer checks it, in `launcher check`, too


def test_a_dataset_of_hugging_face_requires_its_tokenizer() -> None:
    (wrong,) = problems("train: {dataset_type: hf, hf_path: json}\ndata: {tokenizer: {kind: tiktoken}}")
    assert wrong.message == "data.tokenizer.kind is tiktoken; for train.dataset_type: hf, MaxText requires huggingface."


def test_the_table_of_packaged_tokenizers_is_that_of_maxtext() -> None:
    folder = maxtext_folder() / "assets" / "tokenizers"
    assert {path.name for path in folder.iterdir()} == set(PACKAGED)
    for name, (kind, pieces) in PACKAGED.items():
        vocabulary.check(kind, str(folder / name), pieces, {})
        with pytest.raises(ConfigError):
            vocabulary.check(kind, str(folder / name), pieces - 1, {})


def test_a_tokenizer_without_what_maxtext_requires_is_refused(tmp_path: Path) -> None:
    """An id of -1 for the end of a text would be trained as one of the model."""
    text, model = tmp_path / "text", tmp_path / "no-end.model"
    text.write_text("some words of a text\n" * 9)
    sentencepiece.SentencePieceTrainer.train(
        input=str(text), model_prefix=str(model.with_suffix("")), vocab_size=30, eos_id=-1, hard_vocab_limit=False
    )
    with pytest.raises(ConfigError, match=r"has no piece for the end of a text.*; set train\.add_eos: false"):
        vocabulary.check("sentencepiece", str(model), 100, {})
    vocabulary.check("sentencepiece", str(model), 100, {"add_eos": False})
    ranks = tmp_path / "tokenizer.model"  # the name of Llama 3's own
    ranks.write_bytes(base64.b64encode(b"a") + b" 0\n")
    with pytest.raises(ConfigError, match=r'tokenizer\.model does not contain "tiktoken".*; rename the file'):
        vocabulary.check("tiktoken", str(ranks), 1000, {})
    found = problems(f"data: {{tokenizer: {{kind: tiktoken, path: {ranks}}}}}", ON_TEXT)
    assert any('does not contain "tiktoken", as MaxText requires' in each.message for each in found)


@pytest.mark.parametrize(
    ("given", "fits"),
    [("720Gi", True), ("0.7Ti", True), ("773G", True), ("null", True), ("721Gi", False), ("1.5T", False)],
)
def test_hosts_have_the_memory_of_their_machine(given: str, fits: bool) -> None:
    assert host_problems("memory", given) == ([] if fits else [TOO_LARGE.format("memory", given, "720Gi")])


@pytest.mark.parametrize(
    ("given", "fits"),
    [("180", True), ("179500m", True), ("0.1k", True), ("180.5", False), ("200000m", False), ("1k", False)],
)
def test_hosts_have_the_cpu_of_their_machine(given: str, fits: bool) -> None:
    assert host_problems("cpu", given) == ([] if fits else [TOO_LARGE.format("cpu", given, "180 vCPUs")])


TOO_LARGE = "v.yaml:1: worker.{}: {} is more than the {} of a ct6e-standard-4t, and pods get less; lower it."


def host_problems(key: str, given: str) -> list[str]:
    return [str(each) for each in problems(f"worker: {{{key}: {given}}}") if each.key == f"worker.{key}"]


def test_one_mistake_is_reported_once() -> None:
    (found,) = problems("train: {ici_tensor_parallelism: four}\n")
    assert found.rule == "type"
    (found,) = problems("slice: {topology: 4x5}\ntrain: {ici_tensor_parallelism: 16}\n")
    assert found.rule == "slice"
    (found,) = problems("slice: {toplogy: 4x8}\ntrain: {ici_fsdp_parallelism: 32}\n")
    assert found.rule == "unknown-key"
    (found,) = problems("train: {ici_tensor_parallelism: 3}\nrun: {command: [sleep, '60']}\n")
    assert found.rule == "command"


# --- Text and disk ------------------------------------------------------------------------------------------------


def text_values(folder: Path, steps: int, more: str = "") -> str:
    return (
        f"data: {{corpus: '', files: ['{folder}']}}\n"
        f"train: {{num_epoch: 1, steps: {steps}, model_name: default{more}}}\n"
    )


def test_text_that_cannot_last_for_the_steps(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("x" * 100_000)
    (tmp_path / "b.jsonl").write_text('{"text": "x"}\n' * 10)
    # 98 pieces and 16 lines at most: (100,140 + 3 x 114) // 128 + 114 sequences of 128 tokens; each step takes two.
    assert [str(problem) for problem in problems(text_values(tmp_path, 449), LOCAL)] == []
    (found,) = problems(text_values(tmp_path, 450), LOCAL)
    assert str(found) == (
        "v.yaml:2: train.num_epoch: 1 pass over data.files (100,140 bytes) provides at most 899 sequences of 128"
        " tokens, but 450 steps require 900; add text, lower train.steps, or remove train.num_epoch to repeat the text."
    )
    assert found.severity == "error"
    assert problems(text_values(tmp_path, 450).replace("num_epoch: 1", "num_epoch: 2"), LOCAL) == []


def test_repeated_or_unknown_text_is_not_reported(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("x" * 1000)
    assert problems(text_values(tmp_path, 10_000).replace("num_epoch: 1, ", ""), LOCAL) == []
    assert problems(text_values(tmp_path / "nowhere", 10_000), LOCAL) == []
    (tmp_path / "b.parquet").write_bytes(b"PAR1")
    assert problems(text_values(tmp_path, 10_000), LOCAL) == []


def test_checkpoints_that_do_not_fit_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    use_machine(monkeypatch, free=100_000_000_000)
    small = {**LOCAL, "train": {**LOCAL["train"], "model_name": "llama3.1-8b", "base_emb_dim": None}}
    (found,) = problems("", small)
    assert found.severity == "warning"
    assert found.message == (
        "there may be no space for 2 checkpoints of 96.4 GB: 100.0 GB are free in ~/.slipway/runs; free some space, set"
        " train.max_num_checkpoints_to_keep, or raise train.checkpoint_period."
    )
    assert problems("train: {max_num_checkpoints_to_keep: 1}\n", small) == []
    assert problems("train: {enable_checkpointing: false}\n", small) == []
    use_machine(monkeypatch, free=20_000_000_000)
    (found,) = problems("", small)
    assert found.severity == "error"
    assert (
        "no space for a checkpoint of 96.4 GB (8,030,261,248 parameters): 20.0 GB are free in ~/.slipway/runs"
        in str(found)
    )
    use_machine(monkeypatch, free=None)
    assert problems("", small) == []


def test_a_folder_of_runs_that_stores_no_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLIPWAY_HOME", "/proc/nope")
    assert [str(problem) for problem in problems("", LOCAL)] == [
        "runs cannot be stored in /proc/nope/runs: its file system stores no files; set SLIPWAY_HOME to another one."
    ]


def test_a_model_that_the_memory_of_this_machine_cannot_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    large = {**LOCAL, "train": {"model_name": "default", "per_device_batch_size": 1}}
    use_machine(monkeypatch, memory=8_000_000_000)
    (found,) = problems("train: {steps: 9}\nslice: {hosts: 2}\n", large)
    assert found.message == (
        "train.model_name: the 1,104,218,112 parameters of the model and their optimizer state take"
        " 13.3 GB, but this machine has 8.0 GB of memory; train a smaller model, such as that of the preset quickstart"
        ' ("-f quickstart -f FILE"), or use a cluster.'
    )
    assert (found.rule, found.severity) == ("memory", "error")
    # Without any key of MaxText, the run trains MaxText's default model.
    assert [found.rule for found in problems("", {**LOCAL, "train": {}}) if found.severity == "error"] == ["memory"]
    use_machine(monkeypatch, memory=16_000_000_000)
    (found,) = problems("slice: {hosts: 2}\n", large)
    assert found.severity == "warning"
    assert "13.3 GB, the gradients 4.4 GB, and 2 workers about 1 GB each, but this machine has 16.0 GB" in found.message
    (found,) = problems("slice: {hosts: 2}\ntrain: {ici_data_parallelism: 2, ici_fsdp_parallelism: 1}\n", large)
    assert (found.severity, "26.5 GB in 2 copies" in found.message) == ("error", True)
    use_machine(monkeypatch, memory=32_000_000_000)
    assert problems("slice: {hosts: 2}\n", large) == []
    use_machine(monkeypatch, memory=None)
    assert problems("slice: {hosts: 2}\n", large) == []


def test_a_batch_whose_logits_the_memory_of_this_machine_cannot_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    use_machine(monkeypatch, memory=24_000_000_000)

    def found(train: str) -> list[Problem]:
        one = {**LOCAL, "slice": {"accelerator": "cpu"}, "train": {**LOCAL["train"], "vocab_size": 2000}}
        return [each for each in problems(f"train: {{{train}}}\n", one) if each.rule == "memory"]

    (error,) = found("per_device_batch_size: 100000")
    assert error.severity == "error"
    assert error.message == (
        "train.per_device_batch_size: the logits of 12,800,000 tokens and a vocabulary of 2,000 take 102.4 GB, but "
        "this machine has 24.0 GB of memory; lower train.per_device_batch_size or train.max_target_length."
    )
    assert found("per_device_batch_size: 20000") == []
    assert found("per_device_batch_size: 100000, num_vocab_tiling: 8") == []
    assert len(found("per_device_batch_size: 30000")) == 1
    assert found("per_device_batch_size: 30000, cast_logits_to_fp32: false") == []


def test_steps_that_take_minutes_on_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    large = {**LOCAL, "train": {"model_name": "default", "per_device_batch_size": 4}}
    use_machine(monkeypatch, cores=2)
    (found,) = problems("slice: {hosts: 2}\n", large)
    # 6 x 1,104,218,112 parameters x 2 x 4 x 2048 tokens / 1e11 = 1,086 s
    assert (found.rule, found.severity) == ("speed", "warning")
    assert found.message == (
        "train.model_name: a step of 16,384 tokens with 1,104,218,112 parameters takes 18 min or more on 2 CPU cores;"
        ' train a smaller model, such as that of the preset quickstart ("-f quickstart -f FILE"), or use a cluster.'
    )
    assert problems("train: {per_device_batch_size: 1, max_target_length: 128}\n", large) == []
    use_machine(monkeypatch, cores=64)
    assert problems("slice: {hosts: 2}\n", large) == []


def test_placeholders_are_reported() -> None:
    tutorial = (presets_dir() / "tutorials/llama3-8b-v6e-16.yaml").read_text()
    assert [(found.rule, found.severity, found.key) for found in problems(tutorial, {})] == [
        ("placeholder", "warning", "image.repository"),
        ("placeholder", "warning", "storage.bucket"),
    ]
    assert problems("storage: {bucket: my-bucket}\n", LOCAL) == []


@pytest.mark.parametrize(
    ("train", "count"),
    [
        ({"steps": 10}, 2),  # after the first step and the last
        ({"steps": 60, "checkpoint_period": 20}, 4),
        ({"steps": 61, "checkpoint_period": 20}, 4),
        ({"steps": 61, "checkpoint_period": "auto"}, 3),
        ({"steps": 1}, 1),
        ({"steps": 1000, "checkpoint_period": 10, "max_num_checkpoints_to_keep": 3}, 3),
    ],
)
def test_checkpoints_are_counted(train: dict[str, Any], count: int) -> None:
    assert resource_rules.kept_checkpoints(train) == count
