"""Errors from the messages of the compiler and MaxText. Every message here is from a real compile with libtpu 0.0.46,
jaxlib 0.11.1 or MaxText 0.2.5."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from trainer.aot import errors
from trainer.aot.compile import capacity_in, compiler_error, is_out_of_hbm, refusal
from trainer.aot.memory import allocations_in, from_refusal
from trainer.config import RunConfig

_CRASH = """\
WARNING: All log messages before absl::InitializeLog() is called are written to STDERR
F1121 23:52:03.343523   17184 parse_flags_from_env.cc:234] Unknown flag in XLA_FLAGS: --xla_no_such_flag=true
"""


@pytest.mark.parametrize(
    ("text", "flag", "where", "message"),
    [
        (
            _CRASH,
            "--xla_no_such_flag",
            "worker.env.XLA_FLAGS",
            "rejects the unknown flag --xla_no_such_flag (worker.env.XLA_FLAGS)",
        ),
        (
            "F1121 23:52:24.3 17444 parse_flags_from_env.cc:234] Unknown flag in XLA_FLAGS: "
            "--xla_tpu_scoped_vmem_limit_kib=98304\n",
            "--xla_tpu_scoped_vmem_limit_kib",
            "worker.env.XLA_FLAGS",
            "flags of the TPU compiler belong in LIBTPU_INIT_ARGS",
        ),
        (
            "ERROR: Unknown command line flag 'xla_a'\nERROR: Unknown command line flag 'xla_b'\n",
            "--xla_a",
            "worker.env.LIBTPU_INIT_ARGS",
            "rejects the unknown flag --xla_a (worker.env.LIBTPU_INIT_ARGS)",
        ),
        (
            "ERROR: Illegal value 'abc' specified for flag 'xla_tpu_scoped_vmem_limit_kib'\n",
            "--xla_tpu_scoped_vmem_limit_kib",
            "worker.env.LIBTPU_INIT_ARGS",
            "rejects the value 'abc' of",
        ),
        (
            "ERROR: Missing the value for the flag 'xla_tpu_scoped_vmem_limit_kib'\n"
            "ERROR: Illegal value '' specified for flag 'xla_tpu_scoped_vmem_limit_kib'\n",
            "--xla_tpu_scoped_vmem_limit_kib",
            "worker.env.LIBTPU_INIT_ARGS",
            "--xla_tpu_scoped_vmem_limit_kib",
        ),
        (
            "INVALID_ARGUMENT: No such compile option: 'xla_tpu_no_such_flag'",
            "--xla_tpu_no_such_flag",
            "train.compile_xla_flags",
            "(train.compile_xla_flags)",
        ),
        (
            "INVALID_ARGUMENT: Failed to parse 'abc' into flag xla_tpu_scoped_vmem_limit_kib: ",
            "--xla_tpu_scoped_vmem_limit_kib",
            "train.compile_xla_flags",
            "rejects the value 'abc' of",
        ),
        (
            "FAILED_PRECONDITION: Continuation fusion for AllGather is enabled on platform x, but it is not supported. "
            "Please disable it with xla_tpu_enable_async_collective_fusion=false",
            "--xla_tpu_enable_async_collective_fusion",
            "worker.env.LIBTPU_INIT_ARGS",
            "set --xla_tpu_enable_async_collective_fusion=false.",
        ),
        (
            "Invalid flag format detected: '--xla_foo'. Expected format: '--key=value'",
            "--xla_foo",
            "train.compile_xla_flags",
            "cannot parse --xla_foo",
        ),
    ],
)
def test_a_rejected_flag_is_found_with_the_key_that_sets_it(text: str, flag: str, where: str, message: str) -> None:
    found = errors.refused_flag(text)
    assert found is not None
    assert (found.kind, found.details) == ("flag", {"flag": flag, "where": where})
    assert message in str(found)
    assert found.line() == {"error": "flag", "message": str(found), "flag": flag, "where": where}


def test_a_flag_that_is_only_mentioned_is_not_rejected() -> None:
    assert errors.refused_flag("I0000 flags: --xla_tpu_scoped_vmem_limit_kib=98304\nunknown error in a flag") is None


@pytest.mark.parametrize(
    ("code", "stderr", "kind", "message"),
    [
        (1, "ERROR: Unknown command line flag 'xla_a'\n", "flag", "--xla_a"),
        (-6, _CRASH, "flag", "--xla_no_such_flag"),
        (-9, "WARNING: something\n", "memory", "this machine's memory"),
        (-6, "terminate called after throwing an instance of 'std::bad_alloc'\n", "memory", "this machine's memory"),
        (-11, "*** SIGSEGV received\nlast words\n\n", "internal", "by SIGSEGV: last words"),
        (5, "", "internal", "with exit code 5: no output on stderr"),
    ],
)
def test_a_compiler_that_dies_without_an_error_gets_its_kind(code: int, stderr: str, kind: str, message: str) -> None:
    error = errors.death(code, stderr)
    assert error.kind == kind
    assert message in str(error)


def test_an_unknown_generation_is_an_error_of_the_topology() -> None:
    assert compiler_error("INVALID_ARGUMENT: Invalid TPU external name: TPU v9").kind == "topology"
    text = 'INVALID_ARGUMENT: Topology layout "v6e:3x4" is not divisible by the given (or default) '
    assert compiler_error(text + 'chips_per_host_bounds "2x2x1"').kind == "topology"


def test_an_error_without_a_kind_is_internal_and_keeps_the_compilers_text() -> None:
    error = compiler_error("INTERNAL: RET_CHECK failure (x.cc:1) instruction != nullptr")
    assert (error.kind, "RET_CHECK failure (x.cc:1)" in str(error)) == ("internal", True)


_TOO_MUCH = (
    "RESOURCE_EXHAUSTED: Ran out of memory on HBM, the total memory required for HLO temporaries (8.00T) exceeds "
    "available HBM ({available}). HLO module: jit__lambda."
)


@pytest.mark.parametrize(
    ("available", "bytes_"),
    [("31.24G", int(31.24 * 2**30)), ("15.75G", int(15.75 * 2**30)), ("94.74G", int(94.74 * 2**30))],
)
def test_the_capacity_is_the_available_hbm_in_the_error(available: str, bytes_: int) -> None:
    assert is_out_of_hbm(_TOO_MUCH.format(available=available))
    assert capacity_in(_TOO_MUCH.format(available=available)) == bytes_


_WHOLE_VMEM = """\
RESOURCE_EXHAUSTED: XLA:TPU compile permanent error. Ran out of memory in memory space vmem. Used 128.00M of 127.94M \
vmem. Exceeded vmem capacity by 64.0K.

Program vmem requirement 128.00M:
    scoped          128.00M

  Largest program allocations in vmem:

  1. Size: 64.00M
     Operator: op_name="jit(big)/my_kernel/pallas_call"
     Shape: u8[67108864]{0}
     Unpadded size: 64.00M
     Tag: input window allocation for operator input 0. The window shape is f32[4096,4096].
     XLA label: my_kernel.1 = custom-call(x.1), custom_call_target="tpu_custom_call"
     Allocation type: scoped
     ==========================

  2. Size: 64.00M
     Operator: op_name="jit(big)/my_kernel/pallas_call"
     Shape: u8[67108864]{0}
     Unpadded size: 64.00M
     XLA label: my_kernel.1 = custom-call(x.1), custom_call_target="tpu_custom_call"
     Allocation type: scoped
     ==========================
"""
_SCOPED = """\
RESOURCE_EXHAUSTED: E1001: CompileTimeScopedVmemOom:
Ran out of memory in memory space vmem while allocating on stack for %my_kernel.1 = f32[1024,4096]{1,0:T(8,128)} \
custom-call(%x.1), custom_call_target="tpu_custom_call", operand_layout_constraints={f32[1024,4096]{1,0}}, \
metadata={op_name="jit(big)/my_kernel/pallas_call" stack_frame_id=3}. Scoped allocation with size 32.00M and limit \
16.00M exceeded scoped vmem limit by 16.00M. It should not be possible to run out of scoped vmem -
See https://openxla.org/xla/errors/error_1001 for more details.
"""
_SMEM = (
    "RESOURCE_EXHAUSTED: Allocation (size=4194304) would exceed memory (size=1048576) :: #allocation2 [shape = "
    "'f32[1024,1024]{1,0:T(8,128)}', space=smem, size = 0x400000, scoped, tag = 'scratch operand'] :: my_smem.1"
)


@pytest.mark.parametrize(
    ("text", "details", "message"),
    [
        (
            _WHOLE_VMEM,
            {"kernel": "jit(big)/my_kernel/pallas_call", "used": 128 << 20, "limit": int(127.94 * 2**20), "flag": None},
            "128 MiB of the chip's VMEM, but may use only 127.9 MiB; make the kernel's blocks smaller.",
        ),
        (
            _SCOPED,
            {"kernel": "my_kernel.1", "used": 32 << 20, "limit": 16 << 20, "flag": "--xla_tpu_scoped_vmem_limit_kib"},
            "or raise --xla_tpu_scoped_vmem_limit_kib (worker.env.LIBTPU_INIT_ARGS) to 32768 or more.",
        ),
        (
            _SCOPED.replace("my_kernel", "splash_mha_dkv"),
            {
                "kernel": "splash_mha_dkv.1",
                "used": 32 << 20,
                "limit": 16 << 20,
                "flag": "--xla_tpu_scoped_vmem_limit_kib",
            },
            "lower the train.sa_block_* sizes, or raise",
        ),
        (
            _SMEM,
            {"kernel": "my_smem.1", "used": 4 << 20, "limit": 1 << 20, "flag": None},
            "4 MiB of the chip's SMEM, but may use only 1 MiB",
        ),
    ],
)
def test_the_error_names_a_kernel_that_is_too_large_and_what_to_change(
    text: str, details: dict[str, Any], message: str
) -> None:
    assert not is_out_of_hbm(text)
    error = compiler_error(text)
    assert (error.kind, error.details) == ("vmem", details)
    assert message in str(error)


def test_the_error_of_a_program_that_does_not_fit_has_its_size() -> None:
    memory, buffers = from_refusal(_TOO_MUCH.format(available="31.24G"), 5)
    assert (memory["total"], memory["capacity"], buffers) == (8 << 40, 5, [])
    assert memory["temporaries"] is None


def test_the_allocations_in_an_error_are_read() -> None:
    assert [(each["name"], each["bytes"]) for each in allocations_in(_WHOLE_VMEM)] == [
        ("jit(big)/my_kernel/pallas_call", 64 << 20),
        ("jit(big)/my_kernel/pallas_call", 64 << 20),
    ]


def _config(**train: Any) -> RunConfig:
    return RunConfig(Path("run.json"), {"train": train})


def test_a_rejection_names_the_key_of_train() -> None:
    text = (
        "Keys ['base_emb_dim'] are overridden by both model config and CLI/kwargs with different values."
        "This is not allowed, unless setting `override_model_config=True`."
    )
    error = refusal(ValueError(text), _config(steps=3, base_emb_dim=4))
    assert (error.kind, error.details) == ("key", {"key": "base_emb_dim"})
    assert "MaxText rejects the config" in str(error)


def test_an_unknown_key_comes_with_similar_keys() -> None:
    error = refusal(ValueError("'max_target_lenght' not in 'steps', 'max_target_length', 'run_name'."), _config())
    assert error.details == {"key": "max_target_lenght"}
    assert "similar keys are max_target_length" in str(error)


def test_the_launcher_can_read_an_error_as_json() -> None:
    line = errors.AotError("model", "MaxText has no model x.", nearest=["y"]).line()
    assert json.loads(json.dumps(line)) == {"error": "model", "message": "MaxText has no model x.", "nearest": ["y"]}
