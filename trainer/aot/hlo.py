"""Parses a compiled program: XLA's text of an optimized, scheduled HLO module, as `compiled.as_text()` returns it.

This module does not depend on the purpose of the program. The format is XLA's own (openxla.org/xla/hlo_dumps). The
additions of the TPU backend (estimated cycles, memory spaces) were found in the output of libtpu 0.0.46.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

HBM, VMEM, SMEM, HOST = 0, 1, 2, 5
"""Memory spaces: the number n in a layout's S(n). A layout without it is in HBM."""

COLLECTIVES = {
    "all-gather": "all-gather",
    "all-reduce": "all-reduce",
    "reduce-scatter": "reduce-scatter",
    "all-to-all": "all-to-all",
    "ragged-all-to-all": "all-to-all",
    "collective-permute": "permute",
    "collective-broadcast": "all-gather",
}
"""The instructions by which devices exchange arrays, and the kind of collective of each."""

_BYTES = {
    **dict.fromkeys(("pred", "s8", "u8", "f8e4m3fn", "f8e5m2", "f8e4m3", "f8e4m3b11fnuz"), 1.0),
    **dict.fromkeys(("s4", "u4", "f4e2m1fn"), 0.5),
    **dict.fromkeys(("s16", "u16", "f16", "bf16"), 2.0),
    **dict.fromkeys(("s32", "u32", "f32"), 4.0),
    **dict.fromkeys(("s64", "u64", "f64", "c64"), 8.0),
    "c128": 16.0,
    "token": 0.0,
}
_ARRAY = re.compile(r"(?P<type>[a-z][a-z0-9]*)\[(?P<dims>[\d,<=]*)\](?:\{(?P<layout>(?:[^{}])*)\})?")
_SPACE = re.compile(r"S\((\d+)\)")
_CYCLES = re.compile(r'"estimated_cycles":"(\d+)"')
_OP_NAME = re.compile(r'op_name="([^"]*)"')
_REFERENCE = re.compile(r"%([\w.\-]+)")


class HloError(ValueError):
    """The text is not an HLO module, or has an unknown form. The message names the line or the text."""


@dataclass(frozen=True)
class Array:
    """One array of a shape: its element type, dimensions, and memory space."""

    type: str
    dims: tuple[int, ...]
    space: int

    @property
    def bytes(self) -> int:
        """The size in bytes, without the layout's padding."""
        return math.ceil(math.prod(self.dims) * _BYTES.get(self.type, 4.0))

    def __str__(self) -> str:
        return f"{self.type}[{','.join(map(str, self.dims))}]"


@dataclass(frozen=True)
class Instruction:
    """One instruction: `name = shape op(operands), attributes`."""

    name: str
    shape: str
    op: str
    operands: tuple[str, ...]
    arguments: str
    attributes: str
    is_root: bool

    @cached_property
    def arrays(self) -> tuple[Array, ...]:
        """The arrays of its result; a tuple has one for each element."""
        return arrays_of(self.shape)

    @property
    def bytes(self) -> int:
        return sum(array.bytes for array in self.arrays)

    @cached_property
    def cycles(self) -> int | None:
        """The compiler's estimate of its duration, in clock cycles of the TensorCore; None if there is none."""
        match = _CYCLES.search(self.attributes)
        return int(match[1]) if match else None

    @property
    def op_name(self) -> str:
        """JAX's name of its origin in the traced Python program; "" if the compiler added the instruction."""
        match = _OP_NAME.search(self.attributes)
        return match[1] if match else ""

    def attribute(self, key: str) -> str:
        """Return the text of an attribute: up to the closing brace, or one word; "" if the attribute is missing."""
        match = re.search(rf"(?:^|[ ,]){re.escape(key)}=", self.attributes)
        if not match:
            return ""
        return _value_at(self.attributes, match.end())

    @property
    def called(self) -> tuple[str, ...]:
        """The computations that a fusion, reduction, asynchronous operation or branch calls."""
        text = " ".join(
            self.attribute(key)
            for key in ("calls", "to_apply", "branch_computations", "true_computation", "false_computation")
        )
        return tuple(_REFERENCE.findall(text))


@dataclass(frozen=True)
class Module:
    """A module's computations by name, each with its instructions in the order of execution."""

    computations: dict[str, tuple[Instruction, ...]]
    entry: str

    def trip_count(self, loop: Instruction) -> int:
        """Return how often a while loop's body is executed.

        If XLA does not state it, the count follows from the loop's condition, `counter < constant` (or <=). The counter
        starts at the constant in the loop's operand, and increases by the constant that the body adds: 1, or more if
        the compiler unrolled the loop. A start that is not a constant is taken as 0 and such an increment as 1, as in
        JAX's loops. Raises HloError for a condition of another form.
        """
        known = re.search(r'"known_trip_count":\{"n":"(\d+)"\}', loop.attributes)
        if known:
            return int(known[1])
        condition = self.computations[loop.attribute("condition").lstrip("%")]
        root = next(each for each in condition if each.is_root)
        by_name = {each.name: each for each in condition}
        constants = [
            int(each.arguments)
            for each in (by_name[name] for name in root.operands if name in by_name)
            if each.op == "constant" and re.fullmatch(r"-?\d+", each.arguments)
        ]
        if not constants:  # the comparison is in a fusion, or uses a copy
            constants = [
                int(each.arguments)
                for each in condition
                if each.op == "constant" and re.fullmatch(r"\d+", each.arguments) and not each.arrays[0].dims
            ]
        if len(constants) != 1:
            raise HloError(f"The while loop {loop.name} has no constant trip count: its condition is {root.op}.")
        bound = constants[0] + (1 if "direction=LE" in root.attributes else 0)
        element = _element(root, by_name)
        start, step = (0, 1) if element is None else (self._starts_at(loop, element), self._goes_by(loop, element))
        return max(0, math.ceil((bound - start) / step))

    def _goes_by(self, loop: Instruction, element: int) -> int:
        """Return the constant that a loop's body adds to that element of its tuple, or 1 if it is not a constant."""
        body = self.computations[loop.attribute("body").lstrip("%")]
        produced = self._value(body, element)
        while produced is not None:
            instr, among = produced
            if instr.op == "add":
                constants = [self._constant(among[name], among) for name in instr.operands if name in among]
                added = [value for value in constants if value]
                return added[0] if len(added) == 1 and added[0] > 0 else 1
            if instr.op not in ("copy", "bitcast", "convert") or instr.operands[0] not in among:
                return 1
            produced = (among[instr.operands[0]], among)
        return 1

    def _starts_at(self, loop: Instruction, element: int) -> int:
        for computation in self.computations.values():
            among = {each.name: each for each in computation}
            if loop.name in among and loop.operands and loop.operands[0] in among:
                begun = among[loop.operands[0]]
                if begun.op == "tuple" and len(begun.operands) > element and begun.operands[element] in among:
                    return self._constant(among[begun.operands[element]], among) or 0
        return 0

    def _value(
        self, computation: Sequence[Instruction], element: int
    ) -> tuple[Instruction, dict[str, Instruction]] | None:
        """Return the instruction that produces that element of a computation's result, and all instructions of its
        computation by name; None if they are not found."""
        among = {instr.name: instr for instr in computation}
        root = next(instr for instr in computation if instr.is_root)
        if root.op != "tuple" or len(root.operands) <= element or root.operands[element] not in among:
            return None
        instr = among[root.operands[element]]
        if instr.op == "fusion" and instr.called and instr.called[0] in self.computations:
            inside = self.computations[instr.called[0]]
            return next(inner for inner in inside if inner.is_root), {inner.name: inner for inner in inside}
        return instr, among

    @staticmethod
    def _constant(instr: Instruction, among: Mapping[str, Instruction]) -> int | None:
        while instr.op in ("copy", "bitcast", "convert") and instr.operands and instr.operands[0] in among:
            instr = among[instr.operands[0]]
        return int(instr.arguments) if instr.op == "constant" and re.fullmatch(r"-?\d+", instr.arguments) else None

    def walk(self, name: str) -> Iterator[Instruction]:
        """Yield all instructions of a computation and of the computations that it calls."""
        for instr in self.computations[name]:
            yield instr
            for called in instr.called:
                if called in self.computations:
                    yield from self.walk(called)


def _element(compare: Instruction, among: Mapping[str, Instruction]) -> int | None:
    """Return which element of the loop's tuple a condition compares, or None if it is not directly visible."""
    for name, written in re.findall(r"%([\w.\-]+)(?:#(\d+))?", compare.arguments):
        if written:
            return int(written)
        instr = among.get(name)
        while instr is not None and instr.op in ("copy", "bitcast", "convert"):
            instr = among.get(instr.operands[0])
        if instr is not None and instr.op == "get-tuple-element":
            return int(instr.attribute("index"))
    return None


def parse(text: str) -> Module:
    """Parse a module's text. Raises HloError."""
    computations: dict[str, tuple[Instruction, ...]] = {}
    entry = ""
    current: list[Instruction] | None = None
    name = ""
    for number, line in _whole_lines(text):
        if current is None:
            if line.endswith("{") and "->" in line and not line[0].isspace():
                head = line.removeprefix("ENTRY ")
                name = head.split()[0].split("(")[0].lstrip("%")
                current = []
                if line.startswith("ENTRY "):
                    entry = name
        elif line == "}" or line.startswith("}, execution_thread="):
            computations[name], current = tuple(current), None
        elif " = " in line:
            try:
                current.append(_instruction(line))
            except (ValueError, IndexError) as error:
                raise HloError(f"Line {number} of the HLO is not a valid instruction: {line.strip()[:80]}") from error
    if not entry or current is not None:
        raise HloError("The text is not a complete HLO module: it has no entry computation, or ends inside of one.")
    return Module(computations, entry)


def _whole_lines(text: str) -> Iterator[tuple[int, str]]:
    """Yield the lines with their numbers. Joins lines of a kernel's metadata, whose JSON contains newlines."""
    held, first = "", 0
    for number, line in enumerate(text.splitlines(), 1):
        if held:
            held += " " + line
            if _closed(held):
                yield first, held
                held = ""
        elif "kernel_metadata={" in line and not _closed(line):
            held, first = line, number
        else:
            yield number, line.rstrip() if line[:1].isspace() else line


def _closed(line: str) -> bool:
    return line.count("{") <= line.count("}")


def _instruction(line: str) -> Instruction:
    left, _, right = line.partition(" = ")
    words = left.split()
    if right.startswith("("):
        end = _closing(right, 0)
        shape, rest = right[: end + 1], right[end + 2 :]
    else:
        shape, _, rest = right.partition(" ")
    start = rest.index("(")
    end = _closing(rest, start)
    arguments = rest[start + 1 : end]
    return Instruction(
        name=words[-1].lstrip("%"),
        shape=shape,
        op=rest[:start],
        operands=tuple(_REFERENCE.findall(arguments)),
        arguments=arguments,
        attributes=rest[end + 1 :],
        is_root=words[0] == "ROOT",
    )


_PAIRS = {"(": ")", "{": "}", "[": "]"}


def _closing(text: str, start: int) -> int:
    """Return the index of the bracket that closes the one at `start`. Raises ValueError if there is none."""
    opening, closing = text[start], _PAIRS[text[start]]
    depth = 0
    for place in range(start, len(text)):
        if text[place] == opening:
            depth += 1
        elif text[place] == closing:
            depth -= 1
            if not depth:
                return place
    raise ValueError("unclosed bracket")


def _value_at(text: str, start: int) -> str:
    if start < len(text) and text[start] in "{[":
        end = _closing(text, start) + 1
        # For example replica_groups=[4,4]<=[16]T(1,0)
        rest = re.match(r"(<=\[[\d,]*\](T\([\d,]*\))?)?", text[end:])
        return text[start : end + (rest.end() if rest else 0)]
    if text.startswith("mesh[", start):
        return text[start : text.index("}", start) + 1]
    return re.split(r"[, ]", text[start:], maxsplit=1)[0]


def arrays_of(shape: str) -> tuple[Array, ...]:
    """Return the arrays of a shape's text; those of a tuple in their order."""
    arrays = []
    for match in _ARRAY.finditer(re.sub(r"/\*.*?\*/", "", shape)):
        space = _SPACE.search(match["layout"] or "")
        dims = tuple(int(size.lstrip("<=")) for size in match["dims"].split(",") if size)
        arrays.append(Array(match["type"], dims, int(space[1]) if space else HBM))
    return tuple(arrays)


def groups_of(text: str) -> tuple[tuple[int, ...], ...]:
    """Return the groups of devices of a collective, from its replica_groups in any of XLA's three formats.

    The formats are lists ({{0,1},{2,3}}), a transposed iota ([2,2]<=[2,2]T(1,0)), and axes of a mesh
    (mesh['x'=2,'y'=2] {'y'}). Raises HloError for another format, or an empty text.
    """
    if text.startswith("{"):
        return tuple(tuple(map(int, each.split(","))) for each in re.findall(r"\{([\d,]+)\}", text))
    iota = re.fullmatch(r"\[(\d+),(\d+)\]<=\[([\d,]+)\](?:T\(([\d,]+)\))?", text)
    if iota:
        count, size = int(iota[1]), int(iota[2])
        dims = [int(each) for each in iota[3].split(",")]
        order = [int(each) for each in iota[4].split(",")] if iota[4] else list(range(len(dims)))
        flat = _transposed(dims, order)
        return tuple(tuple(flat[index * size : (index + 1) * size]) for index in range(count))
    mesh = re.fullmatch(r"mesh\[(.*)\] \{(.*)\}", text)
    if mesh:
        sizes = {name: int(size) for name, size in re.findall(r"'([^']+)'=(\d+)", mesh[1])}
        chosen = re.findall(r"'([^']+)'", mesh[2])
        if "device_ids" in text or "(" in mesh[2] or not set(chosen) <= set(sizes):
            raise HloError(f"The replica groups {text} have an unknown format.")
        axes = list(sizes)
        order = [axes.index(name) for name in axes if name not in chosen] + [axes.index(name) for name in chosen]
        flat = _transposed(list(sizes.values()), order)
        size = math.prod(sizes[name] for name in chosen)
        return tuple(tuple(flat[start : start + size]) for start in range(0, len(flat), size))
    raise HloError(f"The replica groups {text or '(none)'} have an unknown format.")


def _transposed(dims: Sequence[int], order: Sequence[int]) -> list[int]:
    """Arrange 0, 1, 2, … as `dims`, transpose by `order`, and return the numbers row by row."""
    strides = [math.prod(dims[axis + 1 :]) for axis in range(len(dims))]
    flat = [0]
    for axis in order:
        flat = [start + step * strides[axis] for start in flat for step in range(dims[axis])]
    return flat


def pairs_of(text: str) -> tuple[tuple[int, int], ...]:
    """Return the pairs (from, to) of a collective-permute's source_target_pairs."""
    return tuple((int(a), int(b)) for a, b in re.findall(r"\{(\d+),(\d+)\}", text))
