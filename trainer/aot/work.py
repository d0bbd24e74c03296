"""Converts a scheduled HLO module to plain data: what a chip does in one step, in the order that the compiler chose.

A schedule is a list of steps. Each step is a map with `do`:

    {"do": "compute", "what": "matmul" | "elementwise" | "copy", "name": …, "cycles": n, "flops": n, "type": …,
     "bytes": n, "plain": bool}
        `cycles`: None if the compiler was stopped before it estimated them; `type`: the element type of the
        multiplication, "" if it multiplies nothing; `bytes`: read from HBM and written to it; `plain`: one instruction
        outside of fusions.
    {"do": "kernel", "name": …, "operands": [[type, [dimensions]]…], "results": the same, "bytes": n, "options": {…},
     "fusion": bool}
        A handwritten (Pallas) kernel or, if `fusion`, one of the compiler's own emitters. The compiler has no cycles
        for them. `bytes`: operands and results together; `options`: the kernel's own metadata (block sizes).
    {"do": "collective", "what": "all-gather" | "all-reduce" | "reduce-scatter" | "all-to-all" | "permute", "name": …,
     "bytes": n, "group": {…}}
        `bytes`: the whole array of a group, after it is gathered or before it is scattered; for a permute what one
        chip sends, for an all-to-all what one chip holds.
    {"do": "start", "id": …, "of": a collective, or {"do": "transfer", "way": …, "bytes": n}}
        `way`: "to-host", "from-host", or "hbm" (between HBM and the chip's own memory).
    {"do": "wait", "id": …}                   waits for the operation that was started with this id
    {"do": "loop", "times": n, "steps": […]}
    {"do": "either", "steps": [[…], […]]}     executes one of the lists; the worst case is the longest

A group describes its position in the machine:

    {"size": chips, "slices": slices, "extent": [chips along each dimension of the torus], "stride": [distance between
     neighbors along each dimension, in links]}
    For a permute: {"hops": [maximum links of a message along each dimension], "load": maximum number of messages that
     cross one link in one direction, "ways": [[dimension, 1 (up) or -1 (down)]…], "slices": 2 if a message leaves its
     slice, else 1}
"""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

from trainer.aot.flops import flops, type_of
from trainer.aot.hlo import COLLECTIVES, HOST, Array, Instruction, Module, arrays_of, groups_of, pairs_of
from trainer.aot.traffic import Among, traffic

Step = dict[str, Any]
Place = tuple[int, ...]
"""The place of a device: its slice, then its coordinates in the slice's torus."""

# Instructions without a cost: they only name a value, or the scalar unit computes them at the same time as the rest.
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
    """Return the work of one chip in a step, from the optimized module.

    `places`: the place of each device, in the order of the program's partitions; `torus`: a slice's chips along each
    dimension; `wraps`: for each dimension, whether its last chip is linked to its first. Raises HloError.
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
        among = {instr.name: instr for instr in self._module.computations[name]}
        for instr in among.values():
            yield from self._step(instr, among)

    def _step(self, instr: Instruction, among: Among) -> Iterator[Step]:
        op = instr.op
        if op in _FREE:
            return
        if op == "while":
            body = instr.attribute("body").lstrip("%")
            yield {"do": "loop", "times": self._module.trip_count(instr), "steps": list(self._steps(body))}
        elif op == "call":
            for called in instr.called:
                yield from self._steps(called)
        elif op == "conditional":
            yield {"do": "either", "steps": [list(self._steps(called)) for called in instr.called]}
        elif op.endswith("-done") or op.endswith("-update"):
            if op.endswith("-done"):
                yield {"do": "wait", "id": _origin(instr)}
        elif op.endswith("-start"):
            yield {"do": "start", "id": instr.name, "of": self._started(instr)}
        elif op in COLLECTIVES:
            yield self._collective(instr, COLLECTIVES[op])
        elif op == "custom-call":
            yield from self._custom_call(instr, among)
        elif op == "fusion":
            yield from self._fusion(instr, among)
        elif instr.cycles is not None or op in _MOVES:
            yield self._compute(instr, _kind_of(op), among)
        # The rest has no window: scalars, and arrays that are so small that they cost some hundred cycles.

    def _fusion(self, instr: Instruction, among: Among) -> Iterator[Step]:
        inside = [inner for called in instr.called for inner in self._module.walk(called)]
        collectives = [inner for inner in inside if inner.op in COLLECTIVES]
        if collectives and instr.name.startswith(_FUSED_START):
            of = self._collective(collectives[0], COLLECTIVES[collectives[0].op])
            yield {"do": "start", "id": instr.name.removeprefix(_FUSED_START), "of": of}
            return
        if instr.name.startswith(_FUSED_DONE):
            yield {"do": "wait", "id": instr.name.removeprefix(_FUSED_DONE)}
            return
        if collectives and _goes_on(instr):
            collectives = []
        products = [inner for inner in inside if inner.op in ("convolution", "dot")]
        started = [inner for inner in inside if inner.op.endswith("-start")]
        for inner in started:
            yield {"do": "start", "id": inner.name, "of": self._started(inner)}
        for inner in collectives:
            # An all-reduce whose result each device slices is a reduce-scatter.
            scatters = inner.op == "all-reduce" and any(other.op == "dynamic-slice" for other in inside)
            yield self._collective(inner, "reduce-scatter" if scatters else COLLECTIVES[inner.op])
        plain = instr.attribute("kind") != "kCustom" and not collectives and not started
        if instr.cycles is not None or products or plain:
            yield self._compute(instr, "matmul" if products else _kind_of(instr.op), among, inside, products)
        elif not collectives and not started:
            # A fusion with its own emitter (gather, scatter, sort).
            yield self._kernel(instr, [inner.arrays[0] for inner in inside if inner.op == "parameter" and inner.arrays])
        for inner in inside:
            if inner.op.endswith("-done"):
                yield {"do": "wait", "id": _origin(inner)}

    def _custom_call(self, instr: Instruction, among: Among) -> Iterator[Step]:
        target = instr.attribute("custom_call_target").strip('"')
        if target in _FREE_TARGETS:
            return
        if instr.cycles is not None:
            yield self._compute(instr, "elementwise", among)
        else:
            yield self._kernel(instr, arrays_of(instr.attribute("operand_layout_constraints")))

    def _compute(
        self,
        instr: Instruction,
        what: str,
        among: Among,
        inside: Sequence[Instruction] = (),
        products: Sequence[Instruction] = (),
    ) -> Step:
        return {
            "do": "compute",
            "what": what,
            "name": _label(instr),
            "cycles": instr.cycles,
            "flops": sum(flops(inner, inside) for inner in products),
            "type": type_of(products, inside),
            "bytes": traffic(instr, among, self._module.computations),
            "plain": instr.op != "fusion",
        }

    def _kernel(self, instr: Instruction, operands: Sequence[Array]) -> Step:
        match = re.search(r'"xprof_metadata":"(\{.*?\})"', instr.attributes)
        options = json_of(match[1].replace('\\"', '"')) if match else {}
        return {
            "do": "kernel",
            "name": re.sub(r"[.\d]+$", "", instr.name),
            "fusion": instr.op == "fusion",
            "operands": [[array.type, list(array.dims)] for array in operands],
            "results": [[array.type, list(array.dims)] for array in instr.arrays],
            "bytes": instr.bytes + sum(array.bytes for array in operands),
            "options": options,
        }

    def _started(self, instr: Instruction) -> Step:
        kind = instr.op.removesuffix("-start")
        if kind in COLLECTIVES:
            return self._collective(instr, COLLECTIVES[kind])
        if kind in _TRANSFERS:
            # The result of a copy is (target, source, …), that of an update (updated array, update, …).
            return _transfer(instr.arrays, kind in ("copy", "dynamic-update-slice") and instr.arrays[0].space == HOST)
        # A computation that runs next to the core's, for example on the sparse core.
        inside = [inner for called in instr.called for inner in self._module.walk(called)]
        for inner in inside:
            if (name := inner.op.removesuffix("-start")) in COLLECTIVES:
                return self._collective(inner, COLLECTIVES[name])
        for inner in inside:
            if inner.op in _TRANSFERS:
                return _transfer(instr.arrays, inner.arrays[0].space == HOST)
        return {
            "do": "transfer",
            "way": "hbm",
            "bytes": max((a.bytes for a in instr.arrays), default=0),
            "name": instr.name,
        }

    def _collective(self, instr: Instruction, what: str) -> Step:
        arrays = [array for array in instr.arrays if array.dims]
        sizes = [array.bytes for array in arrays]
        step: Step = {"do": "collective", "what": what, "name": _label(instr)}
        if what == "permute":
            step["bytes"] = max(sizes)
            step["group"] = self._permute(pairs_of(instr.attribute("source_target_pairs")))
            return step
        group = self._group(groups_of(instr.attribute("replica_groups")))
        whole = sum(sizes)
        if instr.op.endswith("-start") and instr.op != "all-reduce-start":
            # The shape has the operands, then the results. The larger one of each pair is the whole array.
            half = len(sizes) // 2
            whole = sum(map(max, sizes[:half], sizes[half:])) if len(sizes) % 2 == 0 else max(sizes)
        if what == "reduce-scatter" and instr.op == "reduce-scatter":
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
        return {
            "hops": hops,
            "load": max(links.values(), default=0),
            "ways": [list(way) for way in sorted({link[-2:] for link in links})],
            "slices": slices,
        }


def json_of(text: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


_TRANSFERS = {"copy", "slice", "dynamic-slice", "dynamic-update-slice"}
_MOVES = {"copy", "dynamic-slice", "dynamic-update-slice", "slice", "concatenate", "transpose", "reduce", "pad"}


# Names of the fusions that start and end a collective whose steps the compiler has put into other fusions.
_FUSED_START, _FUSED_DONE = "async-collective-start", "async-collective-done"


def _goes_on(instr: Instruction) -> bool:
    """Return whether a fusion contains a step of a collective that another fusion started, possibly before a loop. Such
    a fusion passes on the collective's semaphores."""
    return sum(array.type == "u32" and not array.dims for array in instr.arrays) >= 2


def _origin(done: Instruction) -> str:
    """Return the name of the start that a done waits for. An update between them passes on its operand."""
    return done.operands[0]


def _transfer(arrays: Sequence[Array], to_host: bool) -> Step:
    """`arrays`: the moved array, its source and its target. The source and the target may be larger."""
    moved = [array for array in arrays if array.dims]
    way = "to-host" if to_host else "from-host" if any(array.space == HOST for array in moved) else "hbm"
    return {"do": "transfer", "way": way, "bytes": min((array.bytes for array in moved), default=0)}


def _kind_of(op: str) -> str:
    return (
        "copy"
        if op in ("copy", "slice", "dynamic-slice", "reshape", "transpose", "broadcast", "iota")
        else "elementwise"
    )


def _label(instr: Instruction) -> str:
    return instr.op_name or instr.name
