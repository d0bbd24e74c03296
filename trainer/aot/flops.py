"""Counts the FLOPs of a convolution or a dot, and finds their element type."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence

from trainer.aot.hlo import Instruction


def flops(instr: Instruction, inside: Sequence[Instruction]) -> int:
    """Return the FLOPs of a convolution or a dot: 2 x its number of results x the number of products that each sums.

    `inside` are the instructions of its computation. Returns 0 if the operands or the labels are not found there.
    """
    shapes = {other.name: other.arrays[0].dims for other in inside if other.arrays}
    operands = [shapes[name] for name in instr.operands if name in shapes]
    if len(operands) != 2:
        return 0
    left, right = operands
    results = math.prod(instr.arrays[0].dims)
    if instr.op == "dot":
        summed = [int(axis) for axis in re.findall(r"\d+", instr.attribute("lhs_contracting_dims"))]
        return 2 * results * math.prod(left[axis] for axis in summed)
    labels = re.fullmatch(r"(\w+)_(\w+)->(\w+)", instr.attribute("dim_labels"))
    if labels is None:
        return 0
    window = dict(re.findall(r"(\w+)=(\S+)", instr.attribute("window").strip("{}")))
    taps = 1.0
    for axis in (label for label in labels[2] if label.isdigit()):
        at = int(axis)
        given = left[labels[1].index(axis)]
        made = instr.arrays[0].dims[labels[3].index(axis)]
        taps *= _taps(given, made, right[labels[2].index(axis)], window, at) / made
    return round(2 * results * right[labels[2].index("i")] * taps)


def _taps(given: int, made: int, size: int, window: Mapping[str, str], axis: int) -> int:
    """Count along an axis how often a kernel of `size` elements covers one of the `given` elements, over all `made`
    results.

    The compiler writes a batch as an axis whose kernel covers only one element: the others are padding, or are between
    dilated elements.
    """

    def of(name: str, default: str) -> str:
        return window[name].split("x")[axis] if name in window else default

    stride, before = int(of("stride", "1")), int(of("pad", "0_0").split("_")[0])
    apart, between = int(of("lhs_dilate", "1")), int(of("rhs_dilate", "1"))
    if stride == apart == between == 1 and size == 1 and before == 0:
        return made
    met = 0
    for tap in range(size):
        # result x stride + tap x between - before is a multiple of `apart` below given x apart
        shift = tap * between - before
        first = max(0, math.ceil(-shift / stride))
        last = min(made - 1, ((given - 1) * apart - shift) // stride)
        step = apart // math.gcd(apart, stride)
        first_tap = next(
            (r for r in range(first, min(last, first + step - 1) + 1) if (r * stride + shift) % apart == 0), None
        )
        if first_tap is not None:
            met += (last - first_tap) // step + 1
    return met


def type_of(products: Sequence[Instruction], inside: Sequence[Instruction]) -> str:
    """Return the type of the matrix unit's input: that of the narrower operand of the first product; "" without one."""
    if not products:
        return ""
    arrays = {each.name: each.arrays[0] for each in inside if each.arrays}
    sides = [arrays[name] for name in products[0].operands if name in arrays]
    narrow = min(sides, key=lambda side: side.bytes / max(1, math.prod(side.dims)), default=None)
    return narrow.type if narrow else ""
