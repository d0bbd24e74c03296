"""Objects with fields of wrong types: a sentence that names the object, and the other objects are shown.

A real API server checks the types, except in annotations and in fields that a CRD does not describe; see
tests/cluster/test_bad_cluster.py. tests/fuzz has a fake one, because others do not check (tests/fuzz/fake_cluster.py).
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from launcher.k8s.objects import quantity
from launcher.k8s.shapes import SHAPES, checker, fault, moment, number
from tests.cluster import recordings
from tests.fuzz import sandbox
from tests.fuzz.cases import TARGETS
from tests.fuzz.mutation import Edit, apply, remove

MOMENT = "three-then-one-and-two@10 slices-1"
RUN = "JobSet research/slices-1"
NAMED = {"metadata": {"name": "x"}}
SENTENCE = "The JobSet research/slices-1 cannot be read: spec.suspend must be a boolean."


@pytest.fixture
def launch(tmp_path: Path) -> Callable[..., sandbox.Result]:
    """Run the command in front of a cluster with some edits."""

    def launch(*arguments: str, edits: list[Edit]) -> sandbox.Result:
        target = TARGETS["cluster"]
        with target.at(tmp_path, apply(target.documents(MOMENT), edits)):
            return sandbox.call([*arguments, "-n", "research"], tmp_path)

    return launch


def test_list_warns_about_each_and_lists_the_others(launch: Callable[..., sandbox.Result]) -> None:
    edits = [Edit((RUN, "spec", "suspend"), "x"), Edit(("Workload research/jobset-slices-2-0b4d0", "status"), [])]
    result = launch("list", edits=edits)
    assert result.code == 0
    names = [line.partition(" ")[0] for line in result.out.decode().splitlines()]
    assert "slices-2" in names
    assert "slices-3" in names
    assert "slices-1" not in names
    # The sandbox has a Ray cluster without a queue, too, of whose chips a product warns.
    assert [line for line in result.err.splitlines() if "that no quota counts" not in line] == [
        f"Warning: {SENTENCE} It is left out.",
        "Warning: The Workload research/jobset-slices-2-0b4d0 cannot be read: status must be an object. "
        "It is left out.",
    ]


@pytest.mark.parametrize("verb", ["status", "explain", "logs"])
def test_other_verbs_name_the_object_and_the_field(verb: str, launch: Callable[..., sandbox.Result]) -> None:
    result = launch(verb, "slices-1", edits=[Edit((RUN, "spec", "suspend"), "x")])
    assert result.code == 1
    assert SENTENCE in result.err
    assert "To show it: kubectl get jobsets slices-1 -n research -o yaml." in result.err


def test_explain_and_doctor_name_what_they_leave_out(launch: Callable[..., sandbox.Result]) -> None:
    edits = [Edit(("ClusterQueue /tpu", "spec", "resourceGroups"), {})]
    says = "ClusterQueue tpu cannot be read: spec.resourceGroups must be a list."
    explained = launch("explain", "slices-1", edits=edits)
    assert explained.code == 0
    assert (
        f"API server: returned an object that this explanation does not include. The {says}" in explained.out.decode()
    )
    assert f"objects                the {says} It is left out here." in launch("doctor", edits=edits).out.decode()


def test_a_flavor_and_a_queue_may_lack_a_spec(launch: Callable[..., sandbox.Result]) -> None:
    edits = [remove(("ResourceFlavor /cpu", "spec")), remove(("ResourceFlavor /v5e-2x4", "spec"))]
    assert "slices-1 waits for 8 chips" in launch("explain", "slices-1", edits=edits).out.decode()


def test_all_recorded_objects_have_their_shape() -> None:
    for name in recordings.names():
        for change in recordings.read(name):
            assert fault(change.obj, SHAPES[change.obj["kind"]]) == "", change.obj
            assert checker(change.obj["kind"])(change.obj)


def test_the_fast_check_agrees_with_the_one_that_says_what_is_wrong() -> None:
    """Each field of some recorded objects gets a value of each type."""
    kinds = {change.obj["kind"]: change.obj for name in recordings.names() for change in recordings.read(name)}
    for kind in ("JobSet", "RayJob", "Workload", "Pod"):
        obj = copy.deepcopy(kinds[kind])
        for parent, key in _fields(obj):
            before = parent[key]
            for value in (None, "x", -1, True, [], {}, [1], {"a": 1}):
                parent[key] = value
                assert checker(kind)(obj) is not bool(fault(obj, SHAPES[kind])), (kind, key, value)
            parent[key] = before


def _fields(value: Any) -> list[tuple[Any, Any]]:
    """Return each map and list in a JSON value with each of its keys or indices."""
    entries = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [found for key, each in entries for found in [(value, key), *_fields(each)]]


@pytest.mark.parametrize(
    ("value", "clause"),
    [
        ({"metadata": {"name": "x", "labels": {"a": 1}}}, "metadata.labels.a must be text"),
        ({"metadata": {"name": ""}}, "metadata.name must be a name"),
        ({"metadata": None}, "metadata is missing"),
        ([], "it must be an object"),
        ({**NAMED, "status": {"conditions": [{"type": "A"}]}}, "status.conditions[0].status is missing"),
        (
            {**NAMED, "status": {"allocatable": {"cpu": "x"}}},
            "status.allocatable.cpu must be a quantity, such as 4, 500m or 16Gi",
        ),
        ({"metadata": {"name": "x", "creationTimestamp": None}, "status": None, "more": 1}, ""),
    ],
)
def test_clauses(value: Any, clause: str) -> None:
    assert fault(value, SHAPES["Node"]) == clause


def test_leaves() -> None:
    valid = ["2026-01-31T12:00:00Z", "2026-01-31T12:00:00.123456Z", "2026-01-31T12:00:00+01:00", "1970-01-01T00:00:00Z"]
    assert [moment(value) for value in valid] == [""] * 4
    assert all(map(moment, ["2026-01-31", "2026-01-31T12:00:00", "0001-01-01T00:00:00+14:00", "x", "", 1, None]))
    assert all(map(number, [True, 1.5, 2**63, "1", None]))


@pytest.mark.parametrize(
    "text", ["1e999999999", "NaN", "Infinity", "1_000", pytest.param("9" * 5000, id="long"), "", "E", "1EE", "²"]
)
def test_a_number_without_an_end_is_not_a_quantity(text: str) -> None:
    with pytest.raises(ValueError, match="is not a valid quantity"):
        quantity(text)
