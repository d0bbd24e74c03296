"""What a chip does in one step, in the order that the compiler chose: from a scheduled HLO module to plain data.

A schedule is a list of steps; each is a map with `do`:

    {"do": "compute", "what": "matmul" | "elementwise" | "copy", "name": …, "cycles": n, "flops": n, "type": …,
     "bytes": n, "plain": bool}
        `cycles` is None where the compiler was stopped before it had reckoned them; `type`: of what is multiplied, ""
        where nothing is; `bytes`: what it reads from and writes to HBM; `plain`: one instruction, in no fusion.
    {"do": "kernel", "name": …, "operands": [[type, [dimensions]]…], "results": the same, "bytes": n, "options": {…},
     "fusion": bool}
        A hand-written (Pallas) kernel or, if `fusion`, an emitter of the compiler's, of which it knows no cycles.
        `bytes`: operands and results together; `options`: what the kernel says of itself (block sizes).
    {"do": "collective", "what": "all-gather" | "all-reduce" | "reduce-scatter" | "all-to-all" | "permute", "name": …,
     "bytes": n, "group": {…}}
        `bytes`: the whole array of a group, gathered or before it is scattered; of a permute, what one chip sends.
    {"do": "start", "id": …, "of": a collective, or {"do": "transfer", "way": …, "bytes": n}}
        `way`: "to-host", "from-host", or "hbm" (between HBM and the chip's own memory).
    {"do": "wait", "id": …}                   until what was started under that id is done
    {"do": "loop", "times": n, "steps": […]}
    {"do": "either", "steps": [[…], […]]}     one of them, the longest at worst

and a group says where in the machine it lies:

    {"size": chips, "slices": slices, "extent": [chips along each dimension of the torus], "stride": [distance between
     neighbours along each, in links]}; of a permute {"hops": [the most links a message goes, along each dimension],
     "load": the most messages that cross one link in one direction, "slices": 2 where one leaves its slice}.
"""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

from trainer.aot.hlo import HBM, HOST, Array, Instruction, Module, arrays_of, groups_of, pairs_of

Step = dict[str, Any]
Place = tuple[int, ...]
"""A chip: its slice, then its coordinates in that slice's torus."""

Among = Mapping[str, Instruction]
"""A computation's instructions by their names."""

_COLLECTIVES = {
    "all-gather": "all-gather",
    "all-reduce": "all-reduce",
    "reduce-scatter": "reduce-scatter",
    "all-to-all": "all-to-all",
    "ragged-all-to-all": "all-to-all",
    "collective-permute": "permute",
    "collective-broadcast": "all-gather",
}
# Instructions that only name what is there, or are scalars' arithmetic on the scalar unit beside the rest.
_FREE = {
    "parameter",
    "constant",
    "get-tuple-element",
    "tuple",
    "bitcast",
    "after-all",
    "partition-id",
    "replica-id",
    "opt-barrier",
    "add-dependency",
}
_FREE_TARGETS = {"AllocateBuffer", "ConcatBitcast", "AssumeGatherIndicesInBound", "Sharding", "BarrierMark"}


def schedule(module: Module, places: Sequence[Place], torus: Sequence[int], wraps: Sequence[bool]) -> list[Step]:
    """What one chip does in a step, from the optimised module.

    `places`: of each device in the order of the program's partitions; `torus`: a slice's chips along each dimension;
    `wraps`: whether the last of a dimension is linked to its first. Raises HloError.
    """
    return list(_Reader(module, places, torus, wraps).steps_of_entry())


class _Reader:
    def __init__(self, module: Module, places: Sequence[Place], torus: Sequence[int], wraps: Sequence[bool]) -> None:
        self._module = module
        self._places = places
        self._torus = tuple(torus)
        self._wraps = tuple(wraps)

    def steps_of_entry(self) -> Iterator[Step]:
        yield from self._steps(self._module.entry)

    def _steps(self, name: str) -> Iterator[Step]:
        among = {each.name: each for each in self._module.computations[name]}
        for each in among.values():
            yield from self._step(each, among)

    def _step(self, each: Instruction, among: Among) -> Iterator[Step]:
        op = each.op
        if op in _FREE:
            return
        if op == "while":
            body = each.attribute("body").lstrip("%")
            yield {"do": "loop", "times": self._module.trip_count(each), "steps": list(self._steps(body))}
        elif op == "call":
            for called in each.called:
                yield from self._steps(called)
        elif op == "conditional":
            yield {"do": "either", "steps": [list(self._steps(called)) for called in each.called]}
        elif op.endswith("-done") or op.endswith("-update"):
            if op.endswith("-done"):
                yield {"do": "wait", "id": _origin(each)}
        elif op.endswith("-start"):
            yield {"do": "start", "id": each.name, "of": self._started(each)}
        elif op in _COLLECTIVES:
            yield self._collective(each, _COLLECTIVES[op])
        elif op == "custom-call":
            yield from self._custom_call(each, among)
        elif op == "fusion":
            yield from self._fusion(each, among)
        elif each.cycles is not None or op in _MOVES:
            yield self._compute(each, _kind_of(op), among)
        # What is left has no window: scalars, and arrays so small that they cost some hundred cycles.

    def _fusion(self, each: Instruction, among: Among) -> Iterator[Step]:
        inside = [inner for called in each.called for inner in self._module.walk(called)]
        collectives = [inner for inner in inside if inner.op in _COLLECTIVES]
        if collectives and each.name.startswith(_FUSED_START):
            of = self._collective(collectives[0], _COLLECTIVES[collectives[0].op])
            yield {"do": "start", "id": each.name.removeprefix(_FUSED_START), "of": of}
            return
        if each.name.startswith(_FUSED_DONE):
            yield {"do": "wait", "id": each.name.removeprefix(_FUSED_DONE)}
            return
        if collectives and _goes_on(each):
            collectives = []
        products = [inner for inner in inside if inner.op in ("convolution", "dot")]
        started = [inner for inner in inside if inner.op.endswith("-start")]
        for inner in started:
            yield {"do": "start", "id": inner.name, "of": self._started(inner)}
        for inner in collectives:
            # An all-reduce of which each keeps a part is a reduce-scatter, whatever it is called.
            scatters = inner.op == "all-reduce" and any(other.op == "dynamic-slice" for other in inside)
            yield self._collective(inner, "reduce-scatter" if scatters else _COLLECTIVES[inner.op])
        plain = each.attribute("kind") != "kCustom" and not collectives and not started
        if each.cycles is not None or products or plain:
            yield self._compute(each, "matmul" if products else _kind_of(each.op), among, inside, products)
        elif not collectives and not started:
            # A fusion by an emitter of its own (gather, scatter, sort).
            yield self._kernel(each, [inner.arrays[0] for inner in inside if inner.op == "parameter" and inner.arrays])
        for inner in inside:
            if inner.op.endswith("-done"):
                yield {"do": "wait", "id": _origin(inner)}

    def _custom_call(self, each: Instruction, among: Among) -> Iterator[Step]:
        target = each.attribute("custom_call_target").strip('"')
        if target in _FREE_TARGETS:
            return
        if each.cycles is not None:
            yield self._compute(each, "elementwise", among)
        else:
            yield self._kernel(each, arrays_of(each.attribute("operand_layout_constraints")))

    def _compute(
        self,
        each: Instruction,
        what: str,
        among: Among,
        inside: Sequence[Instruction] = (),
        products: Sequence[Instruction] = (),
    ) -> Step:
        return {
            "do": "compute",
            "what": what,
            "name": _label(each),
            "cycles": each.cycles,
            "flops": sum(_flops(inner, inside) for inner in products),
            "type": _type_of(products, inside),
            "bytes": self._traffic(each, among),
            "plain": each.op != "fusion",
        }

    def _traffic(self, each: Instruction, among: Among) -> int:
        """Bytes between HBM and the core. Of what is only sliced the slices count, and of what is updated in place
        the update."""
        operands = [_operand(among, *found) for found in _OPERAND.findall(each.arguments)]
        if each.op == "fusion" and each.called and each.called[0] in self._module.computations:
            read, written = _touched(each.called[0], self._module.computations)
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

    def _kernel(self, each: Instruction, operands: Sequence[Array]) -> Step:
        found = re.search(r'"xprof_metadata":"(\{.*?\})"', each.attributes)
        options = json_of(found[1].replace('\\"', '"')) if found else {}
        return {
            "do": "kernel",
            "name": re.sub(r"[.\d]+$", "", each.name),
            "fusion": each.op == "fusion",
            "operands": [[array.type, list(array.dims)] for array in operands],
            "results": [[array.type, list(array.dims)] for array in each.arrays],
            "bytes": each.bytes + sum(array.bytes for array in operands),
            "options": options,
        }

    def _started(self, each: Instruction) -> Step:
        kind = each.op.removesuffix("-start")
        if kind in _COLLECTIVES:
            return self._collective(each, _COLLECTIVES[kind])
        if kind in _TRANSFERS:
            # The result is (target, source, …) of a copy, and (what is updated, the update, …) of an update.
            return _transfer(each.arrays, kind in ("copy", "dynamic-update-slice") and each.arrays[0].space == HOST)
        # A computation of its own beside the core's, on the sparse core for one.
        inside = [inner for called in each.called for inner in self._module.walk(called)]
        for inner in inside:
            if (name := inner.op.removesuffix("-start")) in _COLLECTIVES:
                return self._collective(inner, _COLLECTIVES[name])
        for inner in inside:
            if inner.op in _TRANSFERS:
                return _transfer(each.arrays, inner.arrays[0].space == HOST)
        return {
            "do": "transfer",
            "way": "hbm",
            "bytes": max((a.bytes for a in each.arrays), default=0),
            "name": each.name,
        }

    def _collective(self, each: Instruction, what: str) -> Step:
        arrays = [array for array in each.arrays if array.dims]
        sizes = [array.bytes for array in arrays]
        step: Step = {"do": "collective", "what": what, "name": _label(each)}
        if what == "permute":
            step["bytes"] = max(sizes)
            step["group"] = self._permute(pairs_of(each.attribute("source_target_pairs")))
            return step
        group = self._group(groups_of(each.attribute("replica_groups")))
        # A start's result holds its operands too.
        whole = max(sizes) if each.op.endswith("-start") else sum(sizes)
        if what == "reduce-scatter" and each.op == "reduce-scatter":
            whole *= group["size"]
        step["bytes"] = whole
        step["group"] = group
        return step

    def _group(self, groups: Sequence[Sequence[int]]) -> dict[str, Any]:
        members = [self._places[each] for each in (groups[0] if groups else range(len(self._places)))]
        extent, stride = [], []
        for axis in range(1, len(members[0])):
            coordinates = sorted({place[axis] for place in members})
            extent.append(len(coordinates))
            gaps = [b - a for a, b in pairwise(coordinates)]
            stride.append(max(gaps, default=1))
        return {
            "size": len(members),
            "slices": len({place[0] for place in members}),
            "extent": extent,
            "stride": stride,
        }

    def _permute(self, pairs: Sequence[tuple[int, int]]) -> dict[str, Any]:
        links: Counter[tuple[Any, ...]] = Counter()
        hops = [0] * len(self._torus)
        slices = 1
        for source, target in pairs:
            here, there = list(self._places[source]), self._places[target]
            if here[0] != there[0]:
                slices = 2
                continue
            for axis, size in enumerate(self._torus):
                distance = there[axis + 1] - here[axis + 1]
                if self._wraps[axis] and abs(distance) > size / 2:
                    distance -= int(math.copysign(size, distance))
                hops[axis] = max(hops[axis], abs(distance))
                step = 1 if distance > 0 else -1
                for _ in range(abs(distance)):
                    links[(*here, axis, step)] += 1
                    here[axis + 1] = (here[axis + 1] + step) % size
        return {"hops": hops, "load": max(links.values(), default=0), "slices": slices}


def json_of(text: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


_TRANSFERS = {"copy", "slice", "dynamic-slice", "dynamic-update-slice"}
_SLICES = {"dynamic-slice", "slice", "gather"}
_MOVES = {"copy", "dynamic-slice", "dynamic-update-slice", "slice", "concatenate", "transpose", "reduce", "pad"}
_SAME = {"bitcast", "get-tuple-element", "reshape"}


def _touched(name: str, computations: Mapping[str, Sequence[Instruction]]) -> tuple[dict[int, int], dict[int, int]]:
    """Bytes that the fusion of that computation reads of each of its parameters, and writes of each of its results."""
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
            elif user.op in _SAME:
                total += read(user)
            elif user.op == "fusion" and len(user.operands) == 1 and user.bytes == each.bytes:
                total += read(user)  # lays it out otherwise
            elif user.op == "fusion" and user.called and user.called[0] in computations:
                inner, _ = _touched(user.called[0], computations)
                total += inner.get(user.operands.index(each.name), each.bytes)
            elif user.op != "dynamic-update-slice" or user.operands[0] != each.name:
                return each.bytes
        return min(total, each.bytes)

    def written(each: Instruction) -> int:
        while each.op in _SAME and each.operands and each.operands[0] in by_name:
            each = by_name[each.operands[0]]
        if each.op == "dynamic-update-slice" and each.operands[1] in by_name:
            return by_name[each.operands[1]].bytes
        return each.bytes

    reads = {int(each.arguments): read(each) for each in body if each.op == "parameter"}
    root = next(each for each in body if each.is_root)
    results = [by_name[name] for name in root.operands if name in by_name] if root.op == "tuple" else [root]
    return reads, {number: written(each) for number, each in enumerate(results)}


# A collective whose steps the compiler has put into the fusions beside which it goes on.
_FUSED_START, _FUSED_DONE = "async-collective-start", "async-collective-done"


def _goes_on(each: Instruction) -> bool:
    """Whether a fusion has a step of a collective that another one has started, before a loop perhaps: it passes the
    collective's semaphores on."""
    return sum(array.type == "u32" and not array.dims for array in each.arrays) >= 2


_OPERAND = re.compile(r"%([\w.\-]+)(?:#(\d+))?")
"""An operand; %name#2 is the element 2 of a tuple, as XLA's dumps write it."""


def _operand(among: Among, name: str, element: str) -> Sequence[Array]:
    found = among[name].arrays if name in among else ()
    return found[int(element) : int(element) + 1] if element else found


def _touched_alone(each: Instruction, operands: Sequence[Sequence[Array]]) -> tuple[dict[int, int], dict[int, int]]:
    """The same, of an instruction in no fusion."""
    if each.op in _SLICES:
        return {0: each.bytes}, {}
    if each.op == "dynamic-update-slice" and len(operands) > 1:
        return {0: 0}, {0: sum(array.bytes for array in operands[1])}
    return {}, {}


def _type_of(products: Sequence[Instruction], inside: Sequence[Instruction]) -> str:
    """What the matrix unit is given: the type of the narrower side of the first product."""
    if not products:
        return ""
    arrays = {each.name: each.arrays[0] for each in inside if each.arrays}
    sides = [arrays[name] for name in products[0].operands if name in arrays]
    narrow = min(sides, key=lambda side: side.bytes / max(1, math.prod(side.dims)), default=None)
    return narrow.type if narrow else ""


def _origin(done: Instruction) -> str:
    """The start that a done waits for; an update between them passes its operand on."""
    return done.operands[0]


def _transfer(arrays: Sequence[Array], to_host: bool) -> Step:
    """`arrays`: what is moved, and what it is moved from and to, which may be larger."""
    moved = [array for array in arrays if array.dims]
    way = "to-host" if to_host else "from-host" if any(array.space == HOST for array in moved) else "hbm"
    return {"do": "transfer", "way": way, "bytes": min((array.bytes for array in moved), default=0)}


def _kind_of(op: str) -> str:
    return (
        "copy"
        if op in ("copy", "slice", "dynamic-slice", "reshape", "transpose", "broadcast", "iota")
        else "elementwise"
    )


def _label(each: Instruction) -> str:
    return each.op_name or each.name


def _flops(each: Instruction, inside: Sequence[Instruction]) -> int:
    """2 x the multiplications of a convolution or a dot: its results times what each of them sums over."""
    shapes = {other.name: other.arrays[0].dims for other in inside if other.arrays}
    operands = [shapes[name] for name in each.operands if name in shapes]
    if len(operands) != 2:
        return 0
    left, right = operands
    results = math.prod(each.arrays[0].dims)
    if each.op == "dot":
        summed = [int(axis) for axis in re.findall(r"\d+", each.attribute("lhs_contracting_dims"))]
        return 2 * results * math.prod(left[axis] for axis in summed)
    labels = re.fullmatch(r"(\w+)_(\w+)->(\w+)", each.attribute("dim_labels"))
    if labels is None:
        return 0
    window = dict(re.findall(r"(\w+)=(\S+)", each.attribute("window").strip("{}")))
    taps = 1.0
    for axis in (label for label in labels[2] if label.isdigit()):
        at = int(axis)
        given = left[labels[1].index(axis)]
        made = each.arrays[0].dims[labels[3].index(axis)]
        taps *= _taps(given, made, right[labels[2].index(axis)], window, at) / made
    return round(2 * results * right[labels[2].index("i")] * taps)


def _taps(given: int, made: int, size: int, window: Mapping[str, str], axis: int) -> int:
    """How often a kernel of `size` meets one of the `given` elements along an axis, over the `made` results.

    The compiler writes a batch as an axis whose kernel meets one element only: the others are padding, or fall
    between elements that are dilated.
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
        found = next(
            (r for r in range(first, min(last, first + step - 1) + 1) if (r * stride + shift) % apart == 0), None
        )
        if found is not None:
            met += (last - found) // step + 1
    return met
