"""Reads how much of a chip's memory a compiled program needs: the compiler's totals, and the largest buffers in them.

The totals are the compiler's own. The compiler provides no list of buffers, so this module finds the largest in the
scheduled HLO. Each array lives from the instruction that produces it to its last use. The list shows the arrays that
live at the peak, the moment with the most live bytes.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from trainer.aot.hlo import HBM, HOST, Array, Instruction, Module, arrays_of

LARGEST = 20


def code_bytes(executable: Any) -> int:
    """Return the size of the program's code in HBM, in bytes, from JAX's Compiled."""
    return int(executable.memory_analysis().generated_code_size_in_bytes)


def largest_buffers(text: str, module: Module) -> list[dict[str, Any]]:
    """Return the largest HBM buffers that live at the peak, at most LARGEST, largest first.

    `module` is the HLO `text`, parsed. Buffers with the same name, shape, kind and size are one entry: `bytes` is the
    size of each, `count` their number.
    """
    alive = alive_at_peak(text, module)
    counted = Counter((buffer.name, buffer.shape, buffer.kind, buffer.bytes) for buffer in alive)
    entries: list[dict[str, Any]] = [
        {"name": name, "bytes": size, "shape": shape, "kind": kind, "count": count}
        for (name, shape, kind, size), count in counted.items()
    ]
    return sorted(entries, key=lambda buffer: (-buffer["bytes"] * buffer["count"], buffer["name"]))[:LARGEST]


def alive_at_peak(text: str, module: Module) -> list[Buffer]:
    """Return every HBM buffer that lives at the peak, largest first."""
    head = re.search(r"input_output_alias=\{(.*?\)) \}", text.partition("\n")[0])
    aliases = {int(a): int(b) for a, b in re.findall(r"\{(\d+)\}: \((\d+), \{\}", head[1] if head else "")}
    return _Liveness(module, aliases).at_peak()


@dataclass(eq=False)
class Buffer:
    """One array in HBM. `bytes` includes its layout's padding."""

    name: str
    shape: str
    kind: str  # argument | temporary
    bytes: int


# The result of an instruction: one buffer (None: not in HBM), or the values of a tuple.
_Value = Buffer | None | tuple["_Value", ...]

# These return their operand or a part of it, without a copy.
_SAME = {"bitcast", "optimization-barrier", "add-dependency", "while"}
# The values of these have no buffer of their own.
_NO_BUFFER = {"constant", "after-all", "partition-id", "replica-id", "iota-free"}


class _Liveness:
    """Walks the schedule once, and records the largest set of buffers that live at the same time."""

    def __init__(self, module: Module, aliases: Mapping[int, int]) -> None:
        self._module = module
        self._aliases = aliases  # results that overwrite an argument: result -> parameter
        self._peak = 0
        self._alive: frozenset[Buffer] = frozenset()

    def at_peak(self) -> list[Buffer]:
        entry = self._module.computations[self._module.entry]
        parameters = {int(instr.arguments): self._argument(instr) for instr in entry if instr.op == "parameter"}
        held = frozenset(leaf for value in parameters.values() for leaf in _leaves(value))
        root = next(instr for instr in entry if instr.is_root)
        slots = {
            operand: parameters[self._aliases[place]]
            for place, operand in enumerate(root.operands)
            if place in self._aliases
        }
        self._walk(self._module.entry, [parameters[index] for index in sorted(parameters)], held, slots)
        return sorted(self._alive, key=lambda instr: -instr.bytes)

    def _argument(self, instr: Instruction) -> _Value:
        return _value_of(instr.shape, path_in_state(instr.op_name) or instr.name, "argument")

    def _walk(
        self, name: str, parameters: Sequence[_Value], held: frozenset[Buffer], slots: Mapping[str, _Value]
    ) -> None:
        """Walk a computation, in which the buffers in `held` live to the end.

        `slots`: the values that its results overwrite, by the name of the root's operand.
        """
        schedule = self._module.computations[name]
        last_use = _last_uses(schedule)
        carried = _writers(schedule, slots)
        values: dict[str, _Value] = {}
        owners: dict[Buffer, int] = {}
        alive: dict[Buffer, None] = {}
        ends: dict[int, list[Buffer]] = {}
        for index, instr in enumerate(schedule):
            value = self._value(instr, values, parameters, carried, index, last_use)
            values[instr.name] = value
            for leaf in _leaves(value):
                if leaf not in held and leaf not in owners:
                    alive[leaf] = None
                # An instruction that returns an earlier buffer keeps it alive until its own last use.
                until = max(owners.get(leaf, index), last_use.get(instr.name, index))
                owners[leaf] = until
                ends.setdefault(until, []).append(leaf)
            self._inside(instr, values, held | frozenset(alive))
            self._note(held, alive)
            for leaf in ends.pop(index, ()):
                if owners[leaf] == index and leaf in alive:
                    del alive[leaf]

    def _note(self, held: frozenset[Buffer], alive: Mapping[Buffer, None]) -> None:
        size = sum(each.bytes for each in held) + sum(each.bytes for each in alive)
        if size > self._peak:
            self._peak, self._alive = size, held | frozenset(alive)

    def _inside(self, instr: Instruction, values: Mapping[str, _Value], held: frozenset[Buffer]) -> None:
        """Walk the computations that an instruction executes one instruction after another: loops, calls, branches."""
        given = [values.get(operand) for operand in instr.operands]
        if instr.op == "while":
            body = instr.attribute("body").lstrip("%")
            root = next(step for step in self._module.computations[body] if step.is_root)
            loop = given[0] if isinstance(given[0], tuple) else ()
            self._walk(body, given[:1], held, dict(zip(root.operands, loop, strict=False)))
        elif instr.op == "call":
            for called in instr.called:
                self._walk(called, given, held, {})
        elif instr.op == "conditional":
            for called, branch in zip(instr.called, given[1:], strict=False):
                self._walk(called, [branch], held, {})

    def _value(
        self,
        instr: Instruction,
        values: Mapping[str, _Value],
        parameters: Sequence[_Value],
        carried: Mapping[tuple[str, int], Buffer],
        index: int,
        last_use: Mapping[str, int],
    ) -> _Value:
        given = [values.get(operand) for operand in instr.operands]
        if instr.op == "parameter":
            return parameters[int(instr.arguments)]
        if instr.op in _NO_BUFFER:
            return None
        if instr.op in _SAME and given:
            return given[0]
        if instr.op == "tuple":
            return tuple(given)
        if instr.op == "get-tuple-element":
            place = int(instr.attribute("index"))
            return given[0][place] if isinstance(given[0], tuple) and place < len(given[0]) else None
        if instr.op.endswith("-done"):
            return _done(instr, given[0] if given else None)
        slot = carried.get((instr.name, 0))
        value = _value_of(instr.shape, short_name(instr), "temporary")
        if instr.op.endswith("-start") and isinstance(value, tuple):
            return _started(instr, value, given, slot)
        if isinstance(value, tuple):
            return tuple(carried.get((instr.name, place), part) for place, part in enumerate(value))
        over = self._in_place(instr, index, last_use)
        if slot is None and over is None:
            return value
        written = slot if slot is not None or over is None else given[over]
        _name_after(written, instr)
        return written

    def _in_place(self, instr: Instruction, index: int, last_use: Mapping[str, int]) -> int | None:
        """Return the index of the operand that an instruction overwrites with its result, or None."""
        stated = re.search(r"output_to_operand_aliasing=\{\{\}: \((\d+), \{\}\)", instr.attributes)
        if stated:
            return int(stated[1])
        updates = instr
        inner: Sequence[Instruction] = ()
        if instr.op == "fusion" and instr.called and instr.called[0] in self._module.computations:
            inner = self._module.computations[instr.called[0]]
            updates = next(step for step in inner if step.is_root)
            while updates.op == "bitcast":
                updates = next((step for step in inner if step.name == updates.operands[0]), instr)
        if updates.op != "dynamic-update-slice":
            return None
        written = 0
        if inner:
            source = next((step for step in inner if step.name == updates.operands[0]), None)
            while source is not None and source.op == "bitcast":
                origin = source.operands[0]
                source = next((step for step in inner if step.name == origin), None)
            if source is None or source.op != "parameter":
                return None
            written = int(source.arguments)
        if written >= len(instr.operands) or last_use.get(instr.operands[written], index) > index:
            return None
        return written


def _last_uses(schedule: Sequence[Instruction]) -> dict[str, int]:
    """Return the index of the last instruction that reads each one. The root's value outlives the computation."""
    uses: dict[str, int] = {}
    for index, instr in enumerate(schedule):
        for operand in instr.operands:
            uses[operand] = index
        if instr.is_root:
            uses[instr.name] = len(schedule)
    return uses


def _writers(schedule: Sequence[Instruction], slots: Mapping[str, _Value]) -> dict[tuple[str, int], Buffer]:
    """Find the instructions that write to the slots.

    The keys are an instruction's name and the index in its result (0 if that is not a tuple). The instruction is the
    slot's operand itself, or the one whose result that operand views, takes an element of, or waits for.
    """
    by_name = {instr.name: instr for instr in schedule}
    buffers: dict[tuple[str, int], Buffer] = {}
    for operand, slot in slots.items():
        name, place = operand, 0
        while (instr := by_name.get(name)) is not None:
            if instr.op == "bitcast" or instr.op.endswith("-done"):
                name = instr.operands[0]
            elif instr.op == "get-tuple-element":
                name, place = instr.operands[0], int(instr.attribute("index"))
            else:
                break
        if isinstance(slot, Buffer) and instr is not None:
            buffers[name, place] = slot
    return buffers


def _started(instr: Instruction, value: tuple[_Value, ...], given: Sequence[_Value], slot: Buffer | None) -> _Value:
    """Return the value of an asynchronous start: a tuple of its operands, its results and its context."""
    if instr.op == "copy-start":  # (to, from, context)
        return (slot or value[0], given[0] if given else None, None)
    first: _Value = tuple(given) if isinstance(value[0], tuple) else (given[0] if given else None)
    second = value[1:2] if slot is None else (slot,)
    return (first, *second, *value[2:])


def _done(instr: Instruction, started: _Value) -> _Value:
    if not isinstance(started, tuple) or not started:
        return started
    if instr.op == "copy-done":
        return started[0]
    if instr.op == "all-reduce-done":
        return started
    return started[1] if len(started) > 1 else started[0]


def _leaves(value: _Value) -> Iterator[Buffer]:
    if isinstance(value, tuple):
        for part in value:
            yield from _leaves(part)
    elif value is not None:
        yield value


_EMPTY = re.compile(r"(^|/)(broadcast(_in_dim)?|copy|constant|fusion|select|AllocateBuffer)[\w.\-]*$")


def _name_after(value: _Value, writer: Instruction) -> None:
    """Rename a buffer that began as zeros or a copy after its writer, whose name describes the content better."""
    if isinstance(value, Buffer) and value.kind == "temporary" and writer.op_name and _EMPTY.search(value.name):
        value.name = short_name(writer)


_ELEMENT = re.compile(r"[a-z][a-z0-9]*\[[^\]]*\](?:\{[^{}]*\})?")


def _value_of(shape: str, name: str, kind: str) -> _Value:
    """Return new buffers for the arrays of a shape's text that are in HBM."""
    text = re.sub(r"/\*.*?\*/", "", shape)
    stack: list[list[_Value]] = [[]]
    place = 0
    while place < len(text):
        if text[place] == "(":
            stack.append([])
            place += 1
        elif text[place] == ")":
            whole = tuple(stack.pop())
            stack[-1].append(whole)
            place += 1
        elif match := _ELEMENT.match(text, place):
            stack[-1].append(_buffer(match[0], name, kind))
            place = match.end()
        else:
            place += 1
    return stack[0][0] if stack[0] else None


def _buffer(shape: str, name: str, kind: str) -> Buffer | None:
    (array,) = arrays_of(shape)
    if array.space != HBM or array.type == "token":
        return None
    return Buffer(name, str(array), kind, padded_bytes(shape, array))


def padded_bytes(shape: str, array: Array) -> int:
    """Return the size of an array in memory, in bytes. Each dimension is rounded up to whole tiles of its layout, for
    example T(8,128)."""
    layout = re.search(r"\{(?P<order>[\d,]*):[^}]*?T\((?P<tile>[\d,]+)\)", shape)
    if not layout or not array.dims:
        return array.bytes
    order = [int(axis) for axis in layout["order"].split(",")]
    tile = [int(side) for side in layout["tile"].split(",")]
    sides = [array.dims[axis] for axis in reversed(order)]  # the last one is contiguous in memory
    padded = [1] * max(0, len(tile) - len(sides)) + sides
    for place in range(1, len(tile) + 1):
        padded[-place] = math.ceil(padded[-place] / tile[-place]) * tile[-place]
    whole = math.prod(sides)
    return math.ceil(array.bytes * math.prod(padded) / whole) if whole else 0


def path_in_state(op_name: str) -> str:
    r"""Return the argument's path in the train state, from its name in the HLO: model.decoder for
    state[\'model\'][\'decoder\'].value; "" if the name has another form."""
    root, bracket, rest = op_name.replace("\\'", "'").partition("[")
    if not bracket or not re.fullmatch(r"\w+", root):
        return ""
    keys = re.findall(r"\['?([^\]']+)'?\]", bracket + rest)
    return ".".join(keys if root == "state" else [root, *keys])


def short_name(instr: Instruction) -> str:
    """Return JAX's name for the place in the model that produces the array, without the prefix of the train step."""
    return path_in_state(instr.op_name) or instr.op_name.removeprefix("jit(train_step)/") or instr.name


_NEEDED = (
    re.compile(r"memory required for HLO temporaries \((?P<used>[\d.]+[KMGT]?)\)"),
    re.compile(r"Used (?P<used>[\d.]+[KMGT]?) of [\d.]+[KMGT]? hbm"),
)
_UNITS = {"": 0, "K": 1, "M": 2, "G": 3, "T": 4}


def bytes_of(text: str) -> int:
    """Return the bytes of a size in the compiler's notation, for example 31.24G. K, M, G and T are powers of 1024."""
    unit = text[-1] if text[-1] in _UNITS else ""
    return math.floor(float(text.removesuffix(unit)) * (1 << 10 * _UNITS[unit]))


_ALLOCATION = re.compile(
    r"^ +\d+\. Size: (?P<size>[\d.]+[KMGT]?)\n"
    r"(?: +Operator: op_name=\"(?P<operator>[^\"]*)\"[^\n]*\n)?"
    r" +Shape: (?P<shape>\w+\[[\d,]*\])"
    r"(?P<rest>.*?)={10,}",
    re.M | re.S,
)


def allocations_in(text: str) -> list[dict[str, Any]]:
    """Return the largest buffers that an out-of-memory error lists, at most LARGEST; [] if it has no list."""
    buffers = []
    for match in _ALLOCATION.finditer(text):
        label = re.search(r"XLA label: (\S+)", match["rest"])
        operator = (match["operator"] or "").removeprefix("jit(train_step)/")
        buffers.append(
            {
                "name": path_in_state(operator) or operator or (label[1] if label else "unnamed"),
                "bytes": bytes_of(match["size"]),
                "shape": match["shape"],
                "kind": "argument" if re.search(r"Allocation type: .*parameter", match["rest"], re.I) else "temporary",
                "count": 1,
            }
        )
    return buffers[:LARGEST]


def from_refusal(text: str, capacity: int | None) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Return the `memory` and `buffers` of a program that does not fit, from the compiler's error.

    `capacity` is the available HBM in bytes. Values that the error does not contain are None.
    """
    used = next((match["used"] for pattern in _NEEDED if (match := pattern.search(text))), None)
    return {
        **dict.fromkeys(("arguments", "outputs", "aliased", "temporaries", "code", "peak", "host")),
        "total": bytes_of(used) if used else None,
        "capacity": capacity,
    }, allocations_in(text)


_ASSIGNED = re.compile(r"^allocation \d+: size (?P<size>\d+), (?P<says>.*)$", re.M)


def from_assignment(text: str, capacity: int | None) -> dict[str, Any]:
    """Return the `memory` of a program that fits, in bytes, from XLA's buffer assignment.

    XLA writes it before it generates code, so `code` and `peak` are None.
    """
    by_space: dict[int, Counter[str]] = {HBM: Counter(), HOST: Counter()}
    for match in _ASSIGNED.finditer(text):
        says, size = match["says"], int(match["size"])
        color = re.match(r"color (\d+)", says)
        space = by_space.get(int(color[1]) if color else HBM)
        if space is None or "thread-local" in says:
            continue
        given, live = "parameter" in says, "maybe-live-out" in says
        space["arguments"] += size if given else 0
        space["outputs"] += size if live else 0
        space["aliased"] += size if given and live else 0
        space["temporaries"] += size if "preallocated-temp" in says else 0
    kinds = ("arguments", "outputs", "aliased", "temporaries")
    totals: dict[str, Any] = {kind: by_space[HBM][kind] for kind in kinds}
    totals["code"] = None
    totals["total"] = totals["arguments"] + totals["outputs"] - totals["aliased"] + totals["temporaries"]
    totals["peak"] = None
    totals["host"] = {kind: by_space[HOST][kind] for kind in kinds}
    totals["capacity"] = capacity
    return totals
