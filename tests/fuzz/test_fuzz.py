"""A short run of `make fuzz` with fixed seeds, and every find of a long one."""

from __future__ import annotations

from pathlib import Path

import pytest

from launcher.errors import ExitCode
from tests.fuzz import cases, sandbox
from tests.fuzz.cases import Case
from tests.fuzz.mutation import MARKER, Edit, apply, expand, minimized, remove
from tests.fuzz.sandbox import Result


@pytest.mark.parametrize("find", cases.finds(), ids=lambda path: path.stem)
def test_a_find_stays_fixed(find: Path) -> None:
    assert Case.of(find.read_text()).faults() == []


@pytest.mark.parametrize(
    ("target", "count"), [("cluster", 60), ("folder", 25), ("overlay", 25), ("render", 3), ("helm", 3)]
)
def test_random_cases(target: str, count: int) -> None:
    found = {}
    for number in range(count):
        case = cases.drawn(target, f"1 {target} {number}")
        if faults := case.faults():
            found[case.as_json(faults[0])] = faults
    assert not found, "\n".join(found)


def test_each_kind_of_fault_is_found(tmp_path: Path) -> None:
    def found(
        code: int = ExitCode.DONE, out: str = "", err: str = "", seconds: float = 0.1, path: str = "x"
    ) -> list[str]:
        result = Result(code, out.encode(), err, seconds, (str(tmp_path / path),))
        return [
            fault.partition(":")[0].partition(" ")[0] for fault in sandbox.faults(["list", "json"], tmp_path, result)
        ]

    assert found(out="{}") == []
    assert found(code=ExitCode.BUG) == ["traceback"]
    assert found(out="{}", seconds=1.5) == ["slow"]
    assert found(out="{}", path="/elsewhere") == ["wrote"]
    assert found(out="x") == ["not"]
    assert found(out="{}", err="\x1b[2J") == ["control"]
    (tmp_path / "page.html").write_text(f"<p>{MARKER}</p>")
    assert found(out="{}") == ["HTML"]


def test_writes_of_the_command_are_seen(tmp_path: Path) -> None:
    with cases.TARGETS["folder"].at(tmp_path, {"run.json": {}, "metrics.jsonl": [{"step": 0, "loss": 1}]}):
        result = sandbox.call(["report", "./home/runs/demo"], tmp_path)
    assert result.code == ExitCode.DONE, result.err
    assert str(tmp_path / "demo.report.html") in result.written


def test_edits_and_their_minimization() -> None:
    documents = {"a": {"b": [1, 2]}, "c": {}}
    edits = [Edit(("a", "b", 0), {"$repeat": ["x", 3]}), remove(("a", "b", 1)), Edit(("gone", "x"), 1)]
    assert apply(documents, edits) == {"a": {"b": ["xxx"]}, "c": {}}
    assert documents == {"a": {"b": [1, 2]}, "c": {}}
    assert expand({"$each": ["{m}<{n} ", 2]}) == "0<1 1<2 "
    assert minimized(edits, lambda some: apply(documents, some)["a"]["b"][0] != 1) == [Edit(("a", "b", 0), None)]
