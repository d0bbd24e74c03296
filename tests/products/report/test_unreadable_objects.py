"""`launcher report` of a run whose objects have fields of wrong types, or name what it must not read."""

from __future__ import annotations

from collections.abc import Callable

from tests.fuzz import sandbox
from tests.fuzz.mutation import Edit
from tests.unit.test_unreadable_objects import RUN, SENTENCE
from tests.unit.test_unreadable_objects import launch as launch


def test_it_names_the_object_and_the_field(launch: Callable[..., sandbox.Result]) -> None:
    result = launch("report", "slices-1", edits=[Edit((RUN, "spec", "suspend"), "x")])
    assert (result.code, SENTENCE in result.err) == (1, True)


def test_a_report_opens_no_url_that_a_run_names(launch: Callable[..., sandbox.Result]) -> None:
    # tests/fuzz/finds has the other URLs; sandbox fails if one is opened.
    job = "JobSet research/slices-3"
    template = (job, "spec", "replicatedJobs", 0, "template", "spec", "template", "metadata", "annotations")
    config = '{"run": {"name": "x"}, "storage": {"kind": "nfs", "mountPath": "file:///etc"}}'
    result = launch("report", "slices-3", edits=[Edit((*template, "slipway.dev/run-config"), config)])
    assert (result.code, result.err) == (0, "")
