"""Computes how many bytes an instruction or a fusion moves between HBM and the core."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from trainer.aot.hlo import COLLECTIVES, HBM, Array, Instruction

Among = Mapping[str, Instruction]
"""A computation's instructions by name."""

_SLICES = {"dynamic-slice", "slice", "gather"}
_SAME = {"bitcast", "get-tuple-element", "reshape"}


def traffic(each: Instruction, among: Among, computations: Mapping[str, Sequence[Instruction]]) -> int:
    """Return the bytes that an instruction moves between HBM and the core.

    If an array is only sliced, its slices count. If an array is updated in place, the update counts.
    """
    operands = [_operand(among, *found) for found in _OPERAND.findall(each.arguments)]
    if each.op == "fusion" and each.called and each.called[0] in computations:
        read, written = _touched(each.called[0], computations)
    else:
        read, written = _touched_alone(each, operands)
    moved = 0
    for number, found in enumerate(operands):
        whole = sum(array.bytes for array in found if array.space == HBM)
        moved += min(whole, read.get(number, whole))
    for number, array in enumerate(each.arrays):
        if array.space == HBM:
            moved += min(array.bytes, written.get(number, array.bytes))
    return moved


def _touched(name: str, computations: Mapping[str, Sequence[Instruction]]) -> tuple[dict[int, int], dict[int, int]]:
    """Return the bytes that a fusion reads from each of its parameters, and that it writes to each of its results.

    `name` is the fusion's computation. The keys are the indexes of the parameters and results.
    """
    body = computations[name]
    users: dict[str, list[Instruction]] = {}
    by_name = {each.name: each for each in body}
    for each in body:
        for name in set(each.operands):
            users.setdefault(name, []).append(each)

    def read(each: Instruction) -> int:
        total = 0
        for user in users.get(each.name, ()):
            if user.op in _SLICES and user.operands[0] == each.name:
                total += user.bytes
            elif user.op in _SAME or (user.op == "pad" and user.operands[0] == each.name):
                total += min(each.bytes, read(user))
            elif user.op == "fusion" and len(user.operands) == 1 and user.bytes == each.bytes:
                total += read(user)  # changes only the layout
            elif user.op == "fusion" and user.called and user.called[0] in computations:
                inner, _ = _touched(user.called[0], computations)
                total += inner.get(user.operands.index(each.name), each.bytes)
            elif not (_passes_on(user) or (user.op == "dynamic-update-slice" and user.operands[0] == each.name)):
                return each.bytes
        return min(total, each.bytes)

    def written(each: Instruction) -> int:
        while each.op in _SAME and each.operands and each.operands[0] in by_name:
            each = by_name[each.operands[0]]
        if each.op == "dynamic-update-slice" and each.operands[1] in by_name:
            return by_name[each.operands[1]].bytes
        return 0 if each.op == "parameter" or _passes_on(each) else each.bytes

    reads = {int(each.arguments): read(each) for each in body if each.op == "parameter"}
    root = next(each for each in body if each.is_root)
    results = [by_name[name] for name in root.operands if name in by_name] if root.op == "tuple" else [root]
    return reads, {number: written(each) for number, each in enumerate(results)}


def _passes_on(each: Instruction) -> bool:
    """Return whether the core moves nothing: for the results' tuple, and for a collective, which uses the links."""
    return each.op == "tuple" or each.op in COLLECTIVES


def _touched_alone(each: Instruction, operands: Sequence[Sequence[Array]]) -> tuple[dict[int, int], dict[int, int]]:
    """Return the same as `_touched` for an instruction outside of fusions; without an entry, the whole array counts."""
    if each.op in _SLICES:
        return {0: each.bytes}, {}
    if each.op == "dynamic-update-slice" and len(operands) > 1:
        return {0: 0}, {0: sum(array.bytes for array in operands[1])}
    return {}, {}


_OPERAND = re.compile(r"%([\w.\-]+)(?:#(\d+))?")
"""An operand. %name#2 is element 2 of a tuple, as in XLA's dumps."""


def _operand(among: Among, name: str, element: str) -> Sequence[Array]:
    found = among[name].arrays if name in among else ()
    return found[int(element) : int(element) + 1] if element else found
