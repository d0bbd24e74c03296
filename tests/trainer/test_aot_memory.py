"""The buffers in a program's memory, on small programs in XLA's own format."""

from __future__ import annotations

from trainer.aot import hlo, memory

_LOOP = r"""HloModule jit_train_step, is_scheduled=true, input_output_alias={ {0}: (0, {}, may-alias) }, x

%body (p: (s32[], f32[2,1024], bf16[8,1024])) -> (s32[], f32[2,1024], bf16[8,1024]) {
  %p = (s32[], f32[2,1024]{1,0:T(2,128)}, bf16[8,1024]{1,0:T(8,128)(2,1)}) parameter(0)
  %i = s32[] get-tuple-element(%p), index=0
  %w = f32[2,1024]{1,0:T(2,128)} get-tuple-element(%p), index=1
  %x = bf16[8,1024]{1,0:T(8,128)(2,1)} get-tuple-element(%p), index=2
  %inner = f32[64,1024]{1,0:T(8,128)} fusion(%w, %x), kind=kLoop, calls=%f, metadata={op_name="jit(train_step)/mlp"}
  %fast = f32[64,1024]{1,0:T(8,128)S(1)} fusion(%inner), kind=kLoop, calls=%f
  %y = bf16[8,1024]{1,0:T(8,128)(2,1)} fusion(%fast), kind=kLoop, calls=%f
  %one = s32[] constant(1)
  %j = s32[] add(%i, %one)
  ROOT %t = (s32[], f32[2,1024]{1,0:T(2,128)}, bf16[8,1024]{1,0:T(8,128)(2,1)}) tuple(%j, %w, %y)
}

%cond (p.1: (s32[], f32[2,1024], bf16[8,1024])) -> pred[] {
  %p.1 = (s32[], f32[2,1024]{1,0:T(2,128)}, bf16[8,1024]{1,0:T(8,128)(2,1)}) parameter(0)
  %i.1 = s32[] get-tuple-element(%p.1), index=0
  %n = s32[] constant(4)
  ROOT %lt = pred[] compare(%i.1, %n), direction=LT
}

ENTRY %main (a: f32[2,1024], b: f32[3,100]) -> (f32[2,1024], bf16[8,1024]) {
  %a = f32[2,1024]{1,0:T(2,128)} parameter(0), metadata={op_name="state[\'model\'][\'mlp\'][\'kernel\'].value"}
  %b = f32[3,100]{1,0:T(8,128)} parameter(1), metadata={op_name="data[\'inputs\']"}
  %big = f32[512,1024]{1,0:T(8,128)} fusion(%b), kind=kLoop, calls=%f, metadata={op_name="jit(train_step)/early"}
  %zero = s32[] constant(0)
  %start = bf16[8,1024]{1,0:T(8,128)(2,1)} fusion(%big), kind=kLoop, calls=%f, metadata={op_name="jit(train_step)/wte"}
  %in = (s32[], f32[2,1024]{1,0:T(2,128)}, bf16[8,1024]{1,0:T(8,128)(2,1)}) tuple(%zero, %a, %start)
  %while = (s32[], f32[2,1024]{1,0:T(2,128)}, bf16[8,1024]{1,0:T(8,128)(2,1)}) while(%in), condition=%cond, body=%body
  %w.1 = f32[2,1024]{1,0:T(2,128)} get-tuple-element(%while), index=1
  %x.1 = bf16[8,1024]{1,0:T(8,128)(2,1)} get-tuple-element(%while), index=2
  %host = f32[512,1024]{1,0:T(8,128)S(5)} fusion(%x.1), kind=kLoop, calls=%f
  %new = f32[2,1024]{1,0:T(2,128)S(1)} fusion(%w.1), kind=kLoop, calls=%f
  %copy-start = (f32[2,1024]{1,0:T(2,128)}, f32[2,1024]{1,0:T(2,128)S(1)}, u32[]{:S(2)}) copy-start(%new)
  %copy-done = f32[2,1024]{1,0:T(2,128)} copy-done(%copy-start)
  ROOT %out = (f32[2,1024]{1,0:T(2,128)}, bf16[8,1024]{1,0:T(8,128)(2,1)}) tuple(%copy-done, %x.1)
}
"""


def _alive(text: str) -> dict[str, int]:
    return {each.name: each.bytes for each in memory.alive_at_peak(text, hlo.parse(text))}


def test_the_peak_includes_the_padding_of_the_live_buffers() -> None:
    # `big` and the arrays that are read to produce it. f32[3,100] is padded to tiles of 8 x 128.
    assert _alive(_LOOP) == {
        "early": 4 * 512 * 1024,
        "wte": 2 * 8 * 1024,
        "model.mlp.kernel": 8192,
        "data.inputs": 4096,
    }


def test_a_loops_peak_is_inside_the_loop_and_its_results_overwrite_its_operands() -> None:
    small = _LOOP.replace("f32[512,1024]{1,0:T(8,128)} fusion(%b)", "f32[8,128]{1,0:T(8,128)} fusion(%b)")
    assert _alive(small) == {
        "mlp": 4 * 64 * 1024,
        "wte": 2 * 8 * 1024,
        "model.mlp.kernel": 8192,
        "data.inputs": 4096,
    }


def test_an_update_in_place_needs_no_second_buffer() -> None:
    text = """HloModule jit_train_step, is_scheduled=true

ENTRY %main (a: f32[8,128]) -> f32[64,128] {
  %a = f32[8,128]{1,0:T(8,128)} parameter(0), metadata={op_name="data"}
  %zero = s32[] constant(0)
  %all = f32[64,128]{1,0:T(8,128)} broadcast(%zero), dimensions={}, metadata={op_name="jit(train_step)/all"}
  ROOT %up = f32[64,128]{1,0:T(8,128)} dynamic-update-slice(%all, %a, %zero, %zero)
}
"""
    assert _alive(text) == {"all": 4 * 64 * 128, "a": 4 * 8 * 128}


def test_buffers_of_one_name_and_shape_are_one_entry_and_the_largest_come_first() -> None:
    found = memory.largest_buffers(_LOOP, hlo.parse(_LOOP))
    assert found[0] == {
        "name": "early",
        "bytes": 4 * 512 * 1024,
        "shape": "f32[512,1024]",
        "kind": "temporary",
        "count": 1,
    }
    assert [each["kind"] for each in found] == ["temporary", "temporary", "argument", "argument"]


def test_an_argument_is_named_by_its_place_in_the_train_state() -> None:
    assert (
        memory.path_in_state(r"state[\'optimizer\'][\'opt_state\'][0][\'mu\'][\'w\'].value")
        == "optimizer.opt_state.0.mu.w"
    )
    assert memory.path_in_state(r"data[\'inputs\']") == "data.inputs"
    assert memory.path_in_state("") == ""
