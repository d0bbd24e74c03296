"""Conversion of a compiled program's text to a chip's work in a step, on a small program in the compiler's format."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from trainer.aot.flops import _taps
from trainer.aot.hlo import HOST, VMEM, HloError, arrays_of, groups_of, pairs_of, parse
from trainer.aot.work import schedule

# Shortened output of libtpu 0.0.46: layouts with tilings and memory spaces, comments between the elements of a tuple,
# a kernel's metadata with newlines, a loop whose count is in its condition.
PROGRAM = (Path(__file__).parent / "data" / "step.hlo").read_text()
PLACES = [(0, 0, 0, 0), (0, 0, 1, 0), (0, 1, 0, 0), (0, 1, 1, 0)]


def test_a_step_in_its_order() -> None:
    start, loop, wait = schedule(parse(PROGRAM), PLACES, (2, 2, 1), (False, False, False))
    assert start == {
        "do": "start",
        "id": "collective-permute-start.1",
        "of": {
            "do": "collective",
            "what": "permute",
            "name": "collective-permute-start.1",
            "bytes": 64 * 8 * 2,
            "group": {"hops": [0, 1, 0], "load": 1, "ways": [[1, -1], [1, 1]], "slices": 1},
        },
    }
    assert wait == {"do": "wait", "id": "collective-permute-start.1"}
    assert (loop["do"], loop["times"]) == ("loop", 32)
    offload, product, gather, attention, done, scatter = loop["steps"]
    assert offload["of"] == {"do": "transfer", "way": "to-host", "bytes": 1024}
    assert product == {
        "do": "compute",
        "what": "matmul",
        "name": "jit(train_step)/while/body/dot_general",
        "cycles": 1000,
        "flops": 2 * 64 * 8 * 32,
        "type": "bf16",
        "bytes": 2 * (64 * 8 + 8 * 32 + 64 * 32),
        "plain": False,
    }
    # Devices 0 and 2, along the first dimension of the torus.
    assert gather["group"] == {"size": 2, "slices": 1, "extent": [2, 1, 1], "stride": [1, 1, 1]}
    assert (gather["what"], gather["bytes"]) == ("all-gather", 1024)
    assert attention["name"] == "splash_mha_fwd_residuals"
    assert attention["operands"] == [["bf16", [1, 2, 64, 128]], ["bf16", [1, 1, 64, 128]]]
    assert attention["options"] == {"block_q": 32, "block_kv": 32, "use_fused_bwd_kernel": False}
    assert done == {"do": "wait", "id": "copy-start.1"}
    # An all-reduce of which each device keeps a part. The whole array is 64 x 32.
    assert (scatter["what"], scatter["bytes"]) == ("reduce-scatter", 64 * 32 * 2)
    assert scatter["group"] == {"size": 2, "slices": 1, "extent": [1, 2, 1], "stride": [1, 1, 1]}
    json.dumps([start, loop, wait])  # plain data


def test_shapes_and_memory_spaces() -> None:
    vmem, host, scalar = arrays_of("(bf16[4,8]{1,0:T(8,128)(2,1)S(1)}, f32[2]{0:S(5)}, /*index=2*/u32[]{:S(2)})")
    assert (vmem.space, vmem.bytes, str(vmem)) == (VMEM, 64, "bf16[4,8]")
    assert (host.space, host.bytes) == (HOST, 8)
    assert (scalar.dims, scalar.bytes) == ((), 4)
    assert arrays_of("s4[3]")[0].bytes == 2


@pytest.mark.parametrize(
    ("text", "groups"),
    [
        ("{{0,1},{2,3}}", ((0, 1), (2, 3))),
        ("[2,2]<=[4]", ((0, 1), (2, 3))),
        ("[2,2]<=[2,2]T(1,0)", ((0, 2), (1, 3))),
        ("mesh['x'=2,'y'=2] {'y'}", ((0, 1), (2, 3))),
        ("mesh['x'=2,'y'=2] {'x'}", ((0, 2), (1, 3))),
        ("mesh['x'=2,'y'=2] {'x','y'}", ((0, 1, 2, 3),)),
    ],
)
def test_replica_groups_in_all_formats(text: str, groups: tuple[tuple[int, ...], ...]) -> None:
    assert groups_of(text) == groups


def test_replica_groups_in_an_unknown_format_are_rejected() -> None:
    with pytest.raises(HloError, match="have an unknown format"):
        groups_of("hexagon")
    assert pairs_of("{{0,3},{1,0}}") == ((0, 3), (1, 0))


def test_a_ring_is_shorter_than_a_line() -> None:
    """The last chip of a dimension is one link from the first in a ring, and three links in a line."""
    places = [(0, index, 0, 0) for index in range(4)]
    text = PROGRAM.replace("{{0,1},{1,0},{2,3},{3,2}}", "{{0,1},{1,2},{2,3},{3,0}}")
    text = text.replace("{{0,1},{2,3}}", "{{0,1,2,3}}")
    line = schedule(parse(text), places, (4, 1, 1), (False, False, False))[0]["of"]["group"]
    ring = schedule(parse(text), places, (4, 1, 1), (True, False, False))[0]["of"]["group"]
    assert line == {"hops": [3, 0, 0], "load": 1, "ways": [[0, -1], [0, 1]], "slices": 1}
    assert ring == {"hops": [1, 0, 0], "load": 1, "ways": [[0, 1]], "slices": 1}


def test_slices_are_distinguished() -> None:
    places = [(0, 0, 0, 0), (0, 0, 1, 0), (1, 0, 0, 0), (1, 0, 1, 0)]
    text = PROGRAM.replace("{{0,1},{1,0},{2,3},{3,2}}", "{{0,2},{2,0}}")
    start, loop, _ = schedule(parse(text), places, (1, 2, 1), (False, False, False))
    assert start["of"]["group"]["slices"] == 2
    assert loop["steps"][2]["group"] == {"size": 2, "slices": 2, "extent": [1, 1, 1], "stride": [1, 1, 1]}


@pytest.mark.parametrize("cut", ["", "HloModule x\n", PROGRAM[:-3]])
def test_an_incomplete_module_is_rejected(cut: str) -> None:
    with pytest.raises(HloError, match="not a complete HLO module"):
        parse(cut)


def test_a_loop_without_a_constant_count_is_rejected() -> None:
    text = PROGRAM.replace("%limit = s32[]{:T(128)} constant(32)", "%limit = s32[]{:T(128)} negate(%at)")
    with pytest.raises(HloError, match="no constant trip count"):
        schedule(parse(text), PLACES, (2, 2, 1), (False, False, False))


# A collective that the compiler for v5e has put into the fusions that run at the same time.
FUSED = (Path(__file__).parent / "data" / "fused.hlo").read_text()


def test_a_collective_inside_of_a_multiplication_is_counted_once() -> None:
    start, product, wait = schedule(parse(FUSED), PLACES, (2, 2, 1), (False, False, False))
    assert (start["do"], start["of"]["what"], start["of"]["bytes"]) == ("start", "all-gather", 16 * 8 * 2)
    assert (product["what"], product["flops"], product["cycles"]) == ("matmul", 2 * 64 * 8 * 32, None)
    # The operands, of the weights only the slice, and the result, without the bytes that the collective moves.
    assert product["bytes"] == 2 * (64 * 8 + 8 * 32 + 64 * 32)
    assert wait == {"do": "wait", "id": start["id"]}


@pytest.mark.parametrize(
    ("window", "given", "made", "size", "met"),
    [
        ({}, 8, 8, 1, 8),
        # One of 32 heads in each of 32 results; the rest is padding.
        ({"size": "32", "pad": "31_31", "rhs_reversal": "1"}, 1, 32, 32, 32),
        # A batch of 8: elements at a distance of 8, and a kernel that moves by 7.
        ({"size": "8", "stride": "7", "lhs_dilate": "8"}, 8, 8, 8, 8),
        # A contracted dimension: each result covers all of it.
        ({"size": "8"}, 8, 1, 8, 8),
    ],
)
def test_how_often_a_kernel_covers_an_element(
    window: dict[str, str], given: int, made: int, size: int, met: int
) -> None:
    assert _taps(given, made, size, window, 0) == met


@pytest.mark.parametrize(
    ("op", "shape", "size"),
    [
        ("all-reduce-start", "(bf16[8,128]{1,0}, bf16[8,128]{1,0})", 2 * 2048),
        ("all-gather-start", "(bf16[8,128]{1,0}, bf16[32,128]{1,0})", 8192),
        ("all-gather-start", "((bf16[8,128]{1,0}, f32[8]{0}), (bf16[32,128]{1,0}, f32[32]{0}))", 8192 + 128),
        ("reduce-scatter-start", "(bf16[32,128]{1,0}, bf16[8,128]{1,0})", 8192),
        ("all-to-all", "bf16[8,128]{1,0}", 2048),
        ("reduce-scatter", "bf16[8,128]{1,0}", 8192),
    ],
)
def test_the_bytes_of_a_collective(op: str, shape: str, size: int) -> None:
    text = (
        "HloModule m, is_scheduled=true\n\nENTRY %e (x: bf16[8,128]) -> bf16[8,128] {\n"
        "  %x = bf16[8,128]{1,0} parameter(0)\n"
        f"  %c = {shape} {op}(%x), replica_groups={{{{0,1,2,3}}}}\n"
        "  ROOT %r = bf16[8,128]{1,0} bitcast(%x)\n}\n"
    )
    (step,) = schedule(parse(text), PLACES, (2, 2, 1), (False, False, False))
    assert (step["of"] if step["do"] == "start" else step)["bytes"] == size


def test_a_loop_that_the_compiler_unrolled_is_executed_less_often() -> None:
    unrolled = PROGRAM.replace("%one = s32[]{:T(128)} constant(1)", "%one = s32[]{:T(128)} constant(2)")
    assert unrolled != PROGRAM
    _, loop, _ = schedule(parse(unrolled), PLACES, (2, 2, 1), (False, False, False))
    assert loop["times"] == 16
