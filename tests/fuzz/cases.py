"""A case: a base, edits of it, and a command. A find is stored as one."""

from __future__ import annotations

import itertools
import json
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from unittest import mock

from tests.fuzz import mutation
from tests.fuzz.cluster import ClusterTarget
from tests.fuzz.files import FolderTarget, HelmTarget, OverlayTarget, RenderTarget
from tests.fuzz.mutation import Edit, Mutator
from tests.fuzz.target import Target

FINDS = Path(__file__).with_name("finds")
"""A find per file: a case, and in `was` the fault that it had."""
TARGETS: dict[str, Target] = {
    "cluster": ClusterTarget(),
    "folder": FolderTarget(),
    "overlay": OverlayTarget(),
    "render": RenderTarget(),
    "helm": HelmTarget(),
}


@dataclass(frozen=True)
class Case:
    """`target` is a key of TARGETS, `base` one of its bases, `arguments` the command."""

    target: str
    base: str
    arguments: tuple[str, ...]
    edits: tuple[Edit, ...]

    def as_json(self, was: str) -> str:
        edits = ",\n".join("  " + json.dumps(edit.as_json()) for edit in self.edits)
        head = {"was": was, "target": self.target, "base": self.base, "arguments": list(self.arguments)}
        lines = [f" {json.dumps(key)}: {json.dumps(value)}" for key, value in head.items()]
        return "{\n" + ",\n".join([*lines, f' "edits": [\n{edits}\n ]']) + "\n}\n"

    @classmethod
    def of(cls, text: str) -> Case:
        data = json.loads(text)
        return cls(data["target"], data["base"], tuple(data["arguments"]), tuple(map(Edit.of, data["edits"])))

    def faults(self) -> list[str]:
        """Perform the case; return what is wrong. What is slow counts only if it is slow again."""
        found = self._faults()
        return self._faults() if any(fault.startswith("slow") for fault in found) else found

    def _faults(self) -> list[str]:
        target = TARGETS[self.target]
        documents = mutation.apply(target.documents(self.base), list(self.edits))
        with tempfile.TemporaryDirectory(prefix="slipway-fuzz-") as name:
            folder = Path(name).resolve()
            (folder / "tmp").mkdir()
            with mock.patch.object(tempfile, "tempdir", str(folder / "tmp")), target.at(folder, documents):
                return target.faults(self.arguments, folder, documents)

    def minimized(self, fault: str) -> Case:
        """Return a case with fewer edits, and the same kind of fault at the same place."""

        def fails(edits: list[Edit]) -> bool:
            return any(kind_of(other) == kind_of(fault) for other in replace(self, edits=tuple(edits)).faults())

        return replace(self, edits=tuple(mutation.minimized(list(self.edits), fails)))


def kind_of(fault: str) -> str:
    """Return what two finds of one bug have in common."""
    return "slow" if fault.startswith("slow") else fault[:110]


def drawn(name: str, seed: object) -> Case:
    """Return the random case of a target that follows from the seed."""
    random, target = Random(f"{seed}"), TARGETS[name]
    base = random.choice(target.bases())
    edits = Mutator(random, target.texts).edits(target.relevant(base, random))
    return Case(name, base, target.arguments(base, random), tuple(edits))


def finds() -> list[Path]:
    return sorted(FINDS.glob("*.json"))


def keep(case: Case, fault: str) -> Path:
    """Write the find, minimized, to a new file in FINDS; return the file."""
    FINDS.mkdir(exist_ok=True)
    # A find is renamed later by what it shows.
    names = (FINDS / f"{case.target}-{number:03}.json" for number in itertools.count(1))
    path = next(path for path in names if not path.exists())
    path.write_text(case.minimized(fault).as_json(fault))
    return path
