"""What a chip does in one step, in the order that the compiler chose: from a scheduled HLO module to plain data.

A schedule is a list of steps; each is a map with `do`:

    {"do": "compute", "what": "matmul" | "elementwise" | "copy", "name": …, "cycles": n, "flops": n, "bytes": n,
     "plain": bool}
        `bytes`: what it reads from and writes to HBM, at most (of an operand it may read a part only); `plain`: one
        instruction as it stands, in no fusion.
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

Arrays = Mapping[str, Sequence[Array]]
"""What each instruction of a computation yields."""

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
        arrays = {each.name: each.arrays for each in self._module.computations[name]}
        for each in self._module.computations[name]:
            yield from self._step(each, arrays)

    def _step(self, each: Instruction, arrays: Arrays) -> Iterator[Step]:
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
            yield from self._custom_call(each, arrays)
        elif op == "fusion":
            yield from self._fusion(each, arrays)
        elif each.cycles is not None:
            yield _compute(each, _kind_of(op), 0, arrays)
        # What is left has no window: scalars, and arrays so small that they cost some hundred cycles.

    def _fusion(self, each: Instruction, arrays: Arrays) -> Iterator[Step]:
        inside = [inner for called in each.called for inner in self._module.walk(called)]
        collectives = [inner for inner in inside if inner.op in _COLLECTIVES]
        flops = sum(_flops(inner, inside) for inner in inside if inner.op in ("convolution", "dot"))
        started = [inner for inner in inside if inner.op.endswith("-start")]
        for inner in started:
            yield {"do": "start", "id": inner.name, "of": self._started(inner)}
        for inner in collectives:
            # An all-reduce of which each keeps a part is a reduce-scatter, whatever it is called.
            scatters = inner.op == "all-reduce" and any(other.op == "dynamic-slice" for other in inside)
            yield self._collective(inner, "reduce-scatter" if scatters else _COLLECTIVES[inner.op])
        if each.cycles is not None:
            what = "matmul" if flops else _kind_of(each.op)
            yield _compute(each, what, flops, arrays)
        elif not collectives and not started:
            # A fusion by an emitter of its own (gather, scatter, sort).
            yield self._kernel(each, [inner.arrays[0] for inner in inside if inner.op == "parameter" and inner.arrays])
        for inner in inside:
            if inner.op.endswith("-done"):
                yield {"do": "wait", "id": _origin(inner)}

    def _custom_call(self, each: Instruction, arrays: Arrays) -> Iterator[Step]:
        target = each.attribute("custom_call_target").strip('"')
        if target in _FREE_TARGETS:
            return
        if each.cycles is not None:
            yield _compute(each, "elementwise", 0, arrays)
        else:
            yield self._kernel(each, arrays_of(each.attribute("operand_layout_constraints")))

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
        if kind in ("copy", "slice", "dynamic-slice", "dynamic-update-slice"):
            return _transfer(each)
        # A computation of its own beside the core's, on the sparse core for one.
        inside = [inner for called in each.called for inner in self._module.walk(called)]
        for inner in inside:
            if (name := inner.op.removesuffix("-start")) in _COLLECTIVES:
                return self._collective(inner, _COLLECTIVES[name])
        for inner in inside:
            if inner.op in ("copy", "dynamic-slice", "dynamic-update-slice", "slice"):
                return _transfer(inner)
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


def _compute(each: Instruction, what: str, flops: int, arrays: Arrays) -> Step:
    touched = [*each.arrays, *(array for name in each.operands for array in arrays.get(name, ()))]
    return {
        "do": "compute",
        "what": what,
        "name": _label(each),
        "cycles": each.cycles,
        "flops": flops,
        "bytes": sum(array.bytes for array in touched if array.space == HBM),
        "plain": each.op != "fusion",
    }


def _origin(done: Instruction) -> str:
    """The start that a done waits for; an update between them passes its operand on."""
    return done.operands[0]


def _transfer(each: Instruction) -> Step:
    arrays = [array for array in each.arrays if array.dims]
    spaces = [array.space for array in arrays]
    if HOST not in spaces:
        way = "hbm"
    elif each.op.removesuffix("-start") in ("copy", "dynamic-update-slice"):
        # A start's result is (target, source, …); of another the result is the target.
        way = "to-host" if spaces[0] == HOST else "from-host"
    else:
        way = "from-host"
    return {"do": "transfer", "way": way, "bytes": min((array.bytes for array in arrays), default=0)}


def _kind_of(op: str) -> str:
    return (
        "copy"
        if op in ("copy", "slice", "dynamic-slice", "reshape", "transpose", "broadcast", "iota")
        else "elementwise"
    )


def _label(each: Instruction) -> str:
    return each.op_name or each.name


def _flops(each: Instruction, inside: Sequence[Instruction]) -> int:
    """2 x the multiplications of a convolution or a dot: results times what each sums over."""
    shapes = {other.name: other.arrays[0] for other in inside if other.arrays}
    operands = [shapes[name] for name in each.operands if name in shapes]
    if len(operands) != 2:
        return 0
    left, right = (math.prod(array.dims) for array in operands)
    result = math.prod(each.arrays[0].dims)
    # Each of left, right and result misses some of the dimensions m, n, k (b in all three): l*r*o = (m n k)^2 b^3.
    batch = 1
    return round(2 * math.sqrt(left * right * result / batch))
