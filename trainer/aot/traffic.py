"""Computes how many bytes an instruction or a fusion moves between HBM and the core."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from trainer.aot.hlo import COLLECTIVES, HBM, Array, Instruction

Among = Mapping[str, Instruction]
"""A computation's instructions by name."""

_SLICES = {"dynamic-slice", "slice", "gather"}
_SAME = {"bitcast", "get-tuple-element", "reshape"}


def traffic(instr: Instruction, among: Among, computations: Mapping[str, Sequence[Instruction]]) -> int:
    """Return the bytes that an instruction moves between HBM and the core.

    If an array is only sliced, its slices count. If an array is updated in place, the update counts.
    """
    operands = [_operand(among, *arrays) for arrays in _OPERAND.findall(instr.arguments)]
    if instr.op == "fusion" and instr.called and instr.called[0] in computations:
        read, written = _touched(instr.called[0], computations)
    else:
        read, written = _touched_alone(instr, operands)
    moved = 0
    for number, arrays in enumerate(operands):
        whole = sum(array.bytes for array in arrays if array.space == HBM)
        moved += min(whole, read.get(number, whole))
    for number, array in enumerate(instr.arrays):
        if array.space == HBM:
            moved += min(array.bytes, written.get(number, array.bytes))
    return moved


def _touched(name: str, computations: Mapping[str, Sequence[Instruction]]) -> tuple[dict[int, int], dict[int, int]]:
    """Return the bytes that a fusion reads from each of its parameters, and that it writes to each of its results.

    `name` is the fusion's computation. The keys are the indexes of the parameters and results.
    """
    body = computations[name]
    users: dict[str, list[Instruction]] = {}
    by_name = {instr.name: instr for instr in body}
    for instr in body:
        for name in set(instr.operands):
            users.setdefault(name, []).append(instr)

    def read(instr: Instruction) -> int:
        total = 0
        for user in users.get(instr.name, ()):
            if user.op in _SLICES and user.operands[0] == instr.name:
                total += user.bytes
            elif user.op in _SAME or (user.op == "pad" and user.operands[0] == instr.name):
                total += min(instr.bytes, read(user))
            elif user.op == "fusion" and len(user.operands) == 1 and user.bytes == instr.bytes:
                total += read(user)  # changes only the layout
            elif user.op == "fusion" and user.called and user.called[0] in computations:
                inner, _ = _touched(user.called[0], computations)
                total += inner.get(user.operands.index(instr.name), instr.bytes)
            elif not (_passes_on(user) or (user.op == "dynamic-update-slice" and user.operands[0] == instr.name)):
                return instr.bytes
        return min(total, instr.bytes)

    def written(instr: Instruction) -> int:
        while instr.op in _SAME and instr.operands and instr.operands[0] in by_name:
            instr = by_name[instr.operands[0]]
        if instr.op == "dynamic-update-slice" and instr.operands[1] in by_name:
            return by_name[instr.operands[1]].bytes
        return 0 if instr.op == "parameter" or _passes_on(instr) else instr.bytes

    reads = {int(instr.arguments): read(instr) for instr in body if instr.op == "parameter"}
    root = next(instr for instr in body if instr.is_root)
    results = [by_name[name] for name in root.operands if name in by_name] if root.op == "tuple" else [root]
    return reads, {number: written(instr) for number, instr in enumerate(results)}


def _passes_on(instr: Instruction) -> bool:
    """Return whether the core moves nothing: for the results' tuple, and for a collective, which uses the links."""
    return instr.op == "tuple" or instr.op in COLLECTIVES


def _touched_alone(instr: Instruction, operands: Sequence[Sequence[Array]]) -> tuple[dict[int, int], dict[int, int]]:
    """Return the same as `_touched` for an instruction outside of fusions; without an entry, the whole array counts."""
    if instr.op in _SLICES:
        return {0: instr.bytes}, {}
    if instr.op == "dynamic-update-slice" and len(operands) > 1:
        return {0: 0}, {0: sum(array.bytes for array in operands[1])}
    return {}, {}


_OPERAND = re.compile(r"%([\w.\-]+)(?:#(\d+))?")
"""An operand. %name#2 is element 2 of a tuple, as in XLA's dumps."""


def _operand(among: Among, name: str, element: str) -> Sequence[Array]:
    arrays = among[name].arrays if name in among else ()
    return arrays[int(element) : int(element) + 1] if element else arrays
