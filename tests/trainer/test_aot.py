"""Compiles a run for a TPU slice that this machine does not have: real compiles, and configs that are rejected."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.trainer.runs import CHECKOUT
from trainer.aot.__main__ import _HERE, environment
from trainer.aot.compile import maxtext_argv, require_model
from trainer.aot.errors import AotError
from trainer.aot.topology import describe
from trainer.config import RunConfig, read
from trainer.maxtext_keys import maxtext_argv as argv_of_the_run

_TRAIN: dict[str, Any] = {
    "model_name": "llama3-8b",
    "override_model_config": True,
    "base_num_decoder_layers": 2,
    "base_emb_dim": 256,
    "base_mlp_dim": 512,
    "base_num_query_heads": 2,
    "base_num_kv_heads": 2,
    "head_dim": 128,
    "vocab_size": 256,
    "max_target_length": 512,
    "per_device_batch_size": 1,
    "ici_fsdp_parallelism": 2,
    "ici_tensor_parallelism": 2,
    "dataset_type": "synthetic",
    "steps": 10,
}


def _tree(env: dict[str, Any] | None = None, **train: Any) -> dict[str, Any]:
    keys = {key: value for key, value in {**_TRAIN, **train}.items() if value is not None}
    return {
        "run": {"name": "forecast", "kind": "job-set", "maxRestarts": 0, "command": []},
        "slice": {"accelerator": "v6e", "topology": "2x2", "count": 1},
        "accelerator": {
            "name": "v6e",
            "kind": "tpu",
            "label": "tpu-v6e-slice",
            "topology": "2x2",
            "chips": 4,
            "chipsPerHost": 4,
            "hosts": 1,
        },
        "storage": {"kind": "gcsfuse", "bucket": "b", "mountPath": "/data/not/here"},
        "data": {},
        "worker": {"env": env or {}},
        "train": keys,
    }


@dataclass(frozen=True)
class Done:
    code: int
    lines: list[dict[str, Any]]
    stderr: str
    program: dict[str, Any] | None

    @property
    def error(self) -> dict[str, Any]:
        return self.lines[-1]


def _compile(folder: Path, tree: dict[str, Any], *options: str, **env: str) -> Done:
    config, out = folder / "run.json", folder / "out.json"
    config.write_text(json.dumps(tree))
    done = subprocess.run(
        [sys.executable, "-m", "trainer.aot", str(config), str(out), *options],
        cwd=CHECKOUT,
        env={**os.environ, **env},
        capture_output=True,
        text=True,
    )
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    return Done(done.returncode, lines, done.stderr, json.loads(out.read_text()) if out.exists() else None)


def products(steps: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yield the matrix multiplications of a program."""
    for step in steps:
        yield from products(step["steps"]) if step["do"] == "loop" else [step] if step.get("flops") else []


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> tuple[Done, Path]:
    """Compile two layers on v6e 2x2: fsdp 2 x tensor 2, the attention kernel, and flags of the run and of the shell."""
    folder = tmp_path_factory.mktemp("aot")
    dumps = f"--xla_dump_to={folder / 'dump'} --xla_dump_hlo_as_proto"
    flags = {"XLA_FLAGS": dumps, "LIBTPU_INIT_ARGS": f"--xla_tpu_scoped_vmem_limit_kib=65536 {dumps}", "HOME": "/no"}
    shell = {"LIBTPU_INIT_ARGS": "--xla_tpu_no_such_flag=1", "JAX_PLATFORMS": "tpu", "M_STEPS": "x"}
    done = _compile(folder, _tree(flags), **shell)
    assert done.code == 0, done.stderr[-4000:]
    return done, folder


def test_stdout_has_a_line_for_each_phase_and_nothing_else(compiled: tuple[Done, Path]) -> None:
    assert compiled[0].lines == [{"phase": name} for name in ("importing", "shaping", "compiling", "reading")]


def test_dpo_has_its_reference(compiled: tuple[Done, Path], tmp_path: Path) -> None:
    """The weights of the reference are arguments, and their forward pass is a third of the work of the step."""
    done = _compile(tmp_path, {**_tree(), "tuning": {"method": "dpo", "beta": 0.1}})
    assert done.code == 0, done.stderr[-4000:]
    plain, pairs = compiled[0].program, done.program
    assert plain is not None and pairs is not None
    more = pairs["memory"]["arguments"] - plain["memory"]["arguments"]
    assert more == pytest.approx(4 * plain["model"]["parameters"] / 4, rel=0.2)  # float32, on 4 devices
    work, plain_work = (sum(step["flops"] for step in products(each["work"])) for each in (pairs, plain))
    assert 1.1 < work / plain_work < 1.5


def test_the_reference_of_adapters_is_no_second_copy(compiled: tuple[Done, Path], tmp_path: Path) -> None:
    """The frozen weights are arguments once, in bfloat16; each device has all adapters and their two moments."""
    tuning = {"method": "dpo", "adapter": "lora", "beta": 0.1, "lora": {"rank": 2}}
    done = _compile(tmp_path, {**_tree(), "tuning": tuning})
    assert done.code == 0, done.stderr[-4000:]
    plain, pairs = compiled[0].program, done.program
    assert plain is not None and pairs is not None
    weights = 2 * plain["model"]["parameters"] / 4
    assert weights < pairs["memory"]["arguments"] < 1.9 * weights < plain["memory"]["arguments"]


def test_only_the_program_remains(compiled: tuple[Done, Path]) -> None:
    assert sorted(path.name for path in compiled[1].iterdir()) == ["out.json", "run.json"]


def test_the_memory_adds_up_and_the_compiler_reports_the_capacity(compiled: tuple[Done, Path]) -> None:
    assert compiled[0].program is not None
    memory = compiled[0].program["memory"]
    # 1.44 million parameters and two moments of each, in float32, over four chips.
    assert memory["arguments"] == pytest.approx(1443072 * 3 * 4 / 4, rel=0.02)
    assert memory["aliased"] == pytest.approx(memory["outputs"], rel=0.01)
    parts = memory["arguments"] + memory["outputs"] - memory["aliased"] + memory["temporaries"]
    assert memory["code"] is None  # the compiler was stopped before it generated code
    assert memory["total"] == parts < memory["capacity"] == int(31.24 * 2**30)
    assert compiled[0].program["fits"] is True
    assert memory["host"] == {"arguments": 0, "outputs": 0, "aliased": 0, "temporaries": 0}


def test_a_finished_compile_gives_the_same_program_with_cycles(compiled: tuple[Done, Path], tmp_path: Path) -> None:
    early = compiled[0].program
    flags = {"LIBTPU_INIT_ARGS": "--xla_tpu_scoped_vmem_limit_kib=65536"}
    finished = _compile(tmp_path, _tree(flags), "--finish").program
    assert early is not None and finished is not None
    assert (early["finished"], finished["finished"]) == (False, True)
    assert {**finished["memory"], "code": None} == early["memory"]
    assert finished["memory"]["code"] > 0
    assert finished["buffers"] == early["buffers"]

    without, with_cycles = list(products(early["work"])), list(products(finished["work"]))
    assert sum(step["flops"] for step in without) == sum(step["flops"] for step in with_cycles) > 0
    assert all(step["cycles"] is None for step in without)
    assert all(step["cycles"] > 0 for step in with_cycles)


def test_the_largest_buffers_have_names(compiled: tuple[Done, Path]) -> None:
    assert compiled[0].program is not None
    buffers = compiled[0].program["buffers"]
    weight = next(each for each in buffers if each["name"] == "model.decoder.layers.mlp.wi_0.kernel")
    assert (weight["bytes"], weight["shape"], weight["kind"]) == (4 * 128 * 2 * 256, "f32[128,2,256]", "argument")
    assert any("splash_mha_fwd" in each["name"] and each["kind"] == "temporary" for each in buffers)
    assert len(buffers) <= 20


def test_the_models_sizes_are_those_of_maxtext(compiled: tuple[Done, Path]) -> None:
    assert compiled[0].program is not None
    model = compiled[0].program["model"]
    layer = 256 * 128 * 2 * 2 + 256 * 128 * 2 * 2 + 3 * 256 * 512 + 2 * 256
    assert model["parameters"] == 2 * layer + 2 * 256 * 256 + 256
    assert (model["tokens_per_step_per_device"], model["global_batch"]) == (512, 4)
    assert model["flops_per_step_per_device"] == pytest.approx(6 * 512 * (2 * layer + 256 * 256), rel=0.2)
    assert 0 < model["attention_flops"] < model["flops_per_step_per_device"]


def test_the_mesh_is_the_runs(compiled: tuple[Done, Path]) -> None:
    assert compiled[0].program is not None
    sizes = {axis: size for axis, size in compiled[0].program["mesh"].items() if size > 1}
    assert sizes == {"fsdp": 2, "tensor": 2}
    assert set(compiled[0].program["dcn_mesh"].values()) == {1}


def test_the_work_of_the_step_is_in_the_program(compiled: tuple[Done, Path]) -> None:
    assert compiled[0].program is not None

    def flat(steps: list[dict[str, Any]]) -> list[dict[str, Any]]:
        return [one for step in steps for one in (flat(step["steps"]) if step["do"] == "loop" else [step])]

    work = compiled[0].program["work"]
    assert [step["times"] for step in work if step["do"] == "loop"] == [2, 2]  # the layers, forward and backward
    assert any(step["do"] == "kernel" and "splash_mha" in step["name"] for step in flat(work))


def test_a_program_that_does_not_fit_is_not_an_error_and_lists_its_largest_buffers(tmp_path: Path) -> None:
    done = _compile(tmp_path, _tree(base_mlp_dim=16384, per_device_batch_size=64, max_target_length=8192))
    assert done.code == 0 and done.program is not None, done.stderr[-3000:]
    assert (done.program["fits"], done.program["work"]) == (False, None)
    memory = done.program["memory"]
    assert memory["total"] > memory["capacity"] == int(31.24 * 2**30)
    # 64 sequences from each of two devices, 8192 tokens, half of the MLP's width, in bfloat16.
    assert any(each["bytes"] == 128 * 8192 * 8192 * 2 for each in done.program["buffers"])


@pytest.mark.parametrize(
    ("tree", "kind", "message", "details"),
    [
        (_tree(model_name="llama3-9b"), "model", "similar names are", {}),
        (_tree(steps="many"), "key", "train.steps", {"key": "steps"}),
        (
            _tree({"LIBTPU_INIT_ARGS": "--xla_tpu_no_such_flag=true"}),
            "flag",
            "rejects the unknown flag",
            {"flag": "--xla_tpu_no_such_flag"},
        ),
        (
            {**_tree(), "accelerator": {"name": "l4", "kind": "gpu", "hosts": 1, "chips": 1}},
            "topology",
            "is not a TPU",
            {},
        ),
    ],
    ids=["model", "key", "flag", "topology"],
)
def test_an_error_has_its_kind(
    tmp_path: Path, tree: dict[str, Any], kind: str, message: str, details: dict[str, Any]
) -> None:
    done = _compile(tmp_path, tree)
    assert (done.code, done.error["error"], done.program) == (1, kind, None), done.stderr[-2000:]
    assert message in done.error["message"]
    assert details.items() <= done.error.items()


def _config(tmp_path: Path, tree: dict[str, Any]) -> RunConfig:
    path = tmp_path / "run.json"
    path.write_text(json.dumps(tree))
    return read(path)


def test_a_missing_package_is_an_extra(tmp_path: Path) -> None:
    program = (
        "import sys; sys.modules['libtpu'] = None\nfrom trainer.aot.compile import require_packages\nrequire_packages()"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=CHECKOUT, capture_output=True, text=True)
    assert 'pip install "slipway-launcher[forecast]"' in done.stderr


def test_a_model_without_an_architecture_is_rejected(tmp_path: Path) -> None:
    require_model(_config(tmp_path, _tree()))
    with pytest.raises(AotError, match="MaxText has no model llama3-9b"):
        require_model(_config(tmp_path, _tree(model_name="llama3-9b")))


def test_the_arguments_are_the_runs_except_those_that_need_chips_or_write(tmp_path: Path) -> None:
    """This lists all keys that differ. Text that is not on this machine is not read."""
    tree = _tree(dataset_type=None)
    tree["data"] = {"corpus": "python", "heldOut": {"fraction": 0.02}}
    config = _config(tmp_path, tree)
    run = dict(word.partition("=")[::2] for word in argv_of_the_run(config)[2:])
    tree["data"] = {"files": ["/not/here/*.txt"], "heldOut": {"files": ["/not/here/either.txt"]}}
    ours = maxtext_argv(_config(tmp_path, tree), describe(config.accelerator))
    assert ours[:2] == argv_of_the_run(config)[:2]
    found = dict(word.partition("=")[::2] for word in ours[2:])
    assert {key for key in run.keys() | found.keys() if run.get(key) != found.get(key)} == {
        "compile_topology",
        "compile_topology_num_slices",
        "dump_hlo",
        "dump_hlo_xla_flags",
        "dump_jaxpr",
        "enable_goodput_recording",
        "enable_mllog",
        "jax_cache_dir",
        "managed_mldiagnostics",
        "quantization_local_shard_count",
        "tokenizer_path",
        "tokenizer_type",
        "use_vertex_tensorboard",
    }
    assert (found["compile_topology"], found["compile_topology_num_slices"]) == ('"v6e:2x2"', "1")
    assert (found["num_slices"], found["hardware"], found["jax_cache_dir"]) == ("-1", '"tpu"', '""')


def test_the_environment_is_that_of_the_pods(tmp_path: Path) -> None:
    env = {
        "LIBTPU_INIT_ARGS": "--xla_a=1 --xla_dump_to=/tmp/x",
        "JAX_ENABLE_X64": "1",
        "JAX_PLATFORMS": "tpu",
        "TPU_LIBRARY_PATH": "/in/the/image",
        "PATH": "/in/the/image",
    }
    own = {"PATH": "/bin", "LIBTPU_INIT_ARGS": "--xla_b=1", "XLA_FLAGS": "--xla_c=1", "M_STEPS": "1", "HOME": "/h"}
    assert environment(_config(tmp_path, _tree(env)), own, Path("/tmp/here")) == {
        "PATH": "/bin",
        "HOME": "/h",
        "LIBTPU_INIT_ARGS": "--xla_a=1",
        "JAX_ENABLE_X64": "1",
        "XLA_FLAGS": "--xla_dump_to=/tmp/here --xla_dump_compact_gte=false",
        **_HERE,
    }


_BOTH_CONFIGS = """
import json, sys
from pathlib import Path
from trainer import deferred_imports
deferred_imports.defer_unused_imports()
import jax
from jax.experimental.topologies import get_topology_desc
from maxtext.trainers.pre_train import train
from trainer.aot import compile
from trainer.aot.topology import describe
from trainer.maxtext_keys import maxtext_argv
from trainer.config import read

config = read(Path(sys.argv[1]))
topology = describe(config.accelerator)
compile._announce(topology)
ours, _ = train.initialize(compile.maxtext_argv(config, topology))
chips = get_topology_desc(platform="tpu", topology_name=topology.name, chip_config_name=topology.chip_config,
                          chips_per_host_bounds=topology.host_bounds, num_slices=config.slices,
                          wrap=topology.wrap).devices
# The run asks JAX for its chips. This machine has none, so JAX returns the described ones.
jax.devices = lambda *_: chips
jax.local_device_count = lambda *_: topology.devices_per_host
real, _ = train.initialize(maxtext_argv(config))
left, right = ours.get_keys(), real.get_keys()
print(json.dumps(sorted(key for key in left.keys() | right.keys() if str(left.get(key)) != str(right.get(key)))))
"""


@pytest.mark.parametrize("slices", [1, 2])
def test_maxtexts_config_is_that_of_the_run(tmp_path: Path, slices: int) -> None:
    tree = _tree(quantization="int8", dcn_data_parallelism=-1)
    tree["slice"]["count"] = slices
    tree["storage"]["mountPath"] = str(tmp_path)
    config = _config(tmp_path, tree)
    done = subprocess.run(
        [sys.executable, "-c", _BOTH_CONFIGS, str(config.path)],
        cwd=CHECKOUT,
        env=environment(config, os.environ, tmp_path / "dumps"),
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert json.loads(done.stdout.splitlines()[-1]) == [
        "compile_topology",
        "compile_topology_num_slices",
        "jax_cache_dir",
        "tokenizer_path",
    ]
