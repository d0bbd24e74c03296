"""Long-lived Ray clusters and their jobs with fields of wrong types."""

from __future__ import annotations

from collections.abc import Callable

from tests.fuzz import sandbox
from tests.fuzz.mutation import Edit, remove
from tests.unit.test_unreadable_objects import launch as launch


def test_a_ray_head_that_answers_something_else(launch: Callable[..., sandbox.Result]) -> None:
    result = launch("list", edits=[Edit(("jobs", 0, "start_time"), "x")])
    assert result.code == 0
    assert "slices-1" in result.out.decode()
    assert result.err.startswith(
        "Warning: The Ray cluster notebooks (namespace research) returned an invalid answer: a job cannot be read: "
        "start_time must be a time in milliseconds."
    )


def test_a_ray_cluster(launch: Callable[..., sandbox.Result]) -> None:
    edits = [remove(("RayCluster research/notebooks", "spec", "headGroupSpec"))]
    says = "The RayCluster research/notebooks cannot be read: spec.headGroupSpec is missing."
    listed = launch("list", "--clusters", edits=edits)
    assert (listed.code, listed.out.decode()) == (0, "")
    assert f"Warning: {says} It is left out.\n" in listed.err
    shown = launch("status", "notebooks", edits=edits)
    assert (shown.code, shown.err.splitlines()[0]) == (1, f"Error: {says}")
