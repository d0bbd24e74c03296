"""A compiled training step, as the child (trainer.aot) describes it in a JSON file. Sizes are bytes per device."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import prod
from typing import Any

VERSION = 2
"""The version of the child's JSON. Other versions are not read."""


class DamagedProgram(ValueError):
    """The data is not a valid program. The text gives the reason."""


@dataclass(frozen=True)
class HostMemory:
    """The data that one device keeps in its host's memory (offloading). None is not known."""

    arguments: int | None = None
    outputs: int | None = None
    aliased: int | None = None
    temporaries: int | None = None

    @property
    def total(self) -> int:
        """The sum of the known sizes."""
        return sum(filter(None, (self.arguments, self.outputs, self.temporaries))) - (self.aliased or 0)


@dataclass(frozen=True)
class Memory:
    """The data that one device keeps in its HBM.

    None is not known, which applies to most fields if the step does not fit.

    `total` is arguments + outputs - aliased + temporaries, or the total that the compiler reports. `capacity` is the
    limit that the compiler reports.
    """

    total: int | None
    arguments: int | None = None
    outputs: int | None = None
    aliased: int | None = None
    temporaries: int | None = None
    code: int | None = None
    peak: int | None = None
    capacity: int | None = None
    host: HostMemory = field(default_factory=HostMemory)


@dataclass(frozen=True)
class Buffer:
    """A large buffer. `name` is the path of the parameter or operation, `kind` is argument or temporary."""

    name: str
    bytes: int
    shape: str = ""
    kind: str = ""
    count: int = 1
    """The number of such buffers. `bytes` is the size of one."""


@dataclass(frozen=True)
class Model:
    """The model, and the size of a step. None is not known."""

    parameters: int | None = None
    flops_per_step_per_device: float | None = None
    tokens_per_step_per_device: float | None = None
    global_batch: float | None = None


@dataclass(frozen=True)
class Program:
    """A compiled step.

    `fits` is the compiler's verdict. `finished` is whether the compiler also generated the chip's code. Otherwise it
    has estimated no cycles and found no kernel that is too large for VMEM. `work` is the schedule of the step, for
    step_time.py, or None if the step does not fit. `torus` has a slice's chips on each side (size) and which sides are
    rings (wraps). `mesh` has the devices along each axis over all slices, `dcn_mesh` the slices.
    """

    fits: bool
    memory: Memory
    versions: Mapping[str, str]
    seconds: float
    finished: bool = True
    model: Model = field(default_factory=Model)
    buffers: Sequence[Buffer] = ()
    mesh: Mapping[str, int] = field(default_factory=dict)
    dcn_mesh: Mapping[str, int] = field(default_factory=dict)
    torus: Mapping[str, Any] = field(default_factory=dict)
    work: Sequence[Mapping[str, Any]] | None = None
    raw: Mapping[str, Any] = field(default_factory=dict, repr=False, compare=False)

    def without_cycles(self) -> Program:
        """Return the program as if the compiler had stopped before it estimated the cycles."""
        if not self.fits or not self.finished or self.work is None:
            return self
        return replace(self, finished=False, work=[_without_cycles(step) for step in self.work])

    @cached_property
    def devices(self) -> int | None:
        """The number of JAX devices over all slices, two per chip on Ironwood. None if the mesh is not known."""
        return prod(self.mesh.values()) if self.mesh else None


def _without_cycles(step: Mapping[str, Any]) -> Mapping[str, Any]:
    match step["do"]:
        case "compute":
            return {**step, "cycles": None}
        case "loop":
            return {**step, "steps": [_without_cycles(each) for each in step["steps"]]}
        case "either":
            return {**step, "steps": [[_without_cycles(each) for each in steps] for steps in step["steps"]]}
    return step


def read(tree: Any) -> Program:
    """Read a program from the child's JSON. Raises DamagedProgram."""
    if not isinstance(tree, Mapping) or tree.get("version") != VERSION:
        raise DamagedProgram(f"it is not a program of version {VERSION}")
    try:
        memory, model = tree["memory"], tree["model"]
        return Program(
            fits=bool(tree["fits"]),
            memory=Memory(
                **{key: _size(memory.get(key)) for key in _MEMORY},
                host=HostMemory(**{key: _size((memory.get("host") or {}).get(key)) for key in _HOST}),
            ),
            versions={str(key): str(value) for key, value in tree["versions"].items()},
            seconds=float(tree["seconds"]),
            finished=bool(tree["finished"]),
            model=Model(
                parameters=_size(model.get("parameters")),
                flops_per_step_per_device=_number(model.get("flops_per_step_per_device")),
                tokens_per_step_per_device=_number(model.get("tokens_per_step_per_device")),
                global_batch=_number(model.get("global_batch")),
            ),
            buffers=[
                Buffer(
                    str(one["name"]),
                    int(one["bytes"]),
                    str(one.get("shape", "")),
                    str(one.get("kind", "")),
                    int(one.get("count", 1)),
                )
                for one in tree.get("buffers") or ()
            ],
            mesh={str(key): int(value) for key, value in (tree.get("mesh") or {}).items()},
            dcn_mesh={str(key): int(value) for key, value in (tree.get("dcn_mesh") or {}).items()},
            torus=tree.get("torus") or {},
            work=tree.get("work"),
            raw=tree,
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise DamagedProgram(f"{type(error).__name__}: {error}") from error


_MEMORY = ("total", "arguments", "outputs", "aliased", "temporaries", "code", "peak", "capacity")
_HOST = ("arguments", "outputs", "aliased", "temporaries")


def _size(value: Any) -> int | None:
    return None if value is None else int(value)


def _number(value: Any) -> float | None:
    return None if value is None else float(value)
