"""slice.any: which alternatives share a run, and the values of each run. No cluster; see tests/cluster for submits."""

from __future__ import annotations

import pytest

from launcher.config.alternatives import AFTER_SECONDS, members, split
from launcher.config.plan import CheckFailed, check_launch, plan_launch
from launcher.config.provisioning import provisioning
from launcher.config.values.files import chart_defaults, read_text
from launcher.config.values.tree import Values, with_defaults

DEFAULTS = chart_defaults("run")
RUN = """\
run: {name: llama, kind: job-set}
team: {name: research}
image: {repository: i, tag: v1}
storage: {bucket: research-runs}
slice: {accelerator: v6e, topology: 4x4}
train: {model_name: llama3-8b, dataset_type: synthetic, per_device_batch_size: 2, steps: 10}
"""


def user(alternatives: str, run: str = RUN) -> Values:
    return read_text(run.replace("topology: 4x4}", f"topology: 4x4, any: {alternatives}}}").encode(), "v.yaml")


def messages(alternatives: str, run: str = RUN) -> list[str]:
    return [str(problem) for problem in check_launch(user(alternatives, run), DEFAULTS) if problem.severity == "error"]


def test_without_alternatives_there_is_one_plan() -> None:
    plan = plan_launch(user("[]"), DEFAULTS)
    assert (plan.alternative, plan.others, plan.config["slice"]["any"]) == (None, (), [])


def test_alternatives_that_differ_in_provisioning_share_a_run() -> None:
    plan = plan_launch(user("[{}, {provisioning: spot}, {provisioning: flex-start}]"), DEFAULTS)
    assert plan.others == ()
    assert plan.config["slice"]["any"] == [{}, {"provisioning": "spot"}, {"provisioning": "flex-start"}]
    assert [(says, values.tree["slice"]["provisioning"]) for says, values in members(plan.values)] == [
        ("v6e 4x4, on-demand", "on-demand"),
        ("v6e 4x4, spot", "spot"),
        ("v6e 4x4, flex-start", "flex-start"),
    ]


def test_other_alternatives_need_runs_of_their_own() -> None:
    alternatives = (
        "[{}, {provisioning: spot}, {topology: 8x8, after: 10m, train: {per_device_batch_size: 1}},"
        " {accelerator: v5p, topology: 2x2x2, provisioning: spot}]"
    )
    plan = plan_launch(user(alternatives), DEFAULTS)
    plans = [plan, *plan.others]
    assert [str(each.alternative) for each in plans] == [
        "alternative 1 of 3 (v6e 4x4, on-demand or spot)",
        "alternative 2 of 3 (v6e 8x8, on-demand)",
        "alternative 3 of 3 (v5p 2x2x2, spot)",
    ]
    assert [each.alternative.after for each in plans if each.alternative] == [AFTER_SECONDS, 600, AFTER_SECONDS]
    assert {each.name for each in plans} == {"llama"}
    # Each run has the keys of its alternative in slice, and its train over that of the run; nothing of the others.
    assert [each.config["accelerator"]["chips"] for each in plans] == [16, 64, 8]
    assert [each.config["train"]["per_device_batch_size"] for each in plans] == [2, 1, 2]
    assert [each.config["train"]["model_name"] for each in plans] == ["llama3-8b"] * 3
    assert [each.config["slice"]["any"] for each in plans] == [[{}, {"provisioning": "spot"}], [], []]
    assert [each.config["slice"]["provisioning"] for each in plans] == ["on-demand", "on-demand", "spot"]


def test_a_waiting_time_separates_alternatives() -> None:
    """Kueue does not wait before it tries the next flavor."""
    plan = plan_launch(user("[{}, {provisioning: spot, after: 1h}]"), DEFAULTS)
    assert [each.alternative.after for each in (plan, *plan.others) if each.alternative] == [AFTER_SECONDS, 3600]


@pytest.mark.parametrize("after", ["soon", "5x", "''", "true", "30 m"])
def test_an_invalid_waiting_time(after: str) -> None:
    [message] = messages(f"[{{}}, {{topology: 8x8, after: {after}}}]")
    assert message.startswith("v.yaml:5: slice.any")
    if after != "true":  # the schema refuses a boolean
        assert "alternative 2: after: " in message
        assert "is not a valid duration; use 90s, 30m or 1.5h." in message


def test_problems_name_the_alternative() -> None:
    assert messages("[{}, {topology: 3x3}]") == [
        message.replace("slice.topology: ", "slice.topology: slice.any, alternative 2: ")
        for message in messages("[{topology: 3x3}]")
    ]
    # A problem of all alternatives is reported once, without a number.
    [message] = messages("[{}, {topology: 8x8}]", RUN.replace("steps: 10", "steps: -1"))
    assert "alternative" not in message


def test_a_mistyped_key_of_an_alternative() -> None:
    [message] = messages("[{provisoning: spot}]")
    assert message.startswith("v.yaml:5: ")
    assert "provisioning" in message


@pytest.mark.parametrize("kind", ["local", "ray-cluster"])
def test_kinds_without_an_object_have_no_alternatives(kind: str) -> None:
    run = RUN.replace("kind: job-set", f"kind: {kind}, cluster: c" if kind == "ray-cluster" else f"kind: {kind}")
    found = messages("[{}, {provisioning: spot}]", run)
    assert any("slice.any is for run.kind ray-job and job-set" in message for message in found), found


@pytest.mark.parametrize(
    ("slice_", "flavor", "says"),
    [
        ({"provisioning": "on-demand"}, "v6e", ""),
        ({"provisioning": "spot"}, "v6e-spot", "spot"),
        ({"provisioning": "reservation", "reservation": "lab"}, "", "reservation lab"),
        ({"provisioning": "spot", "any": [{}, {"provisioning": "flex-start"}]}, "", "spot or flex-start"),
        ({"provisioning": "spot", "any": [{}, {"provisioning": "flex-start"}]}, "v6e-queued", "flavor v6e-queued"),
        ({}, "", ""),
    ],
)
def test_how_the_machines_are_provisioned(slice_: dict[str, object], flavor: str, says: str) -> None:
    assert provisioning(slice_, flavor) == says


def test_damaged_values_have_no_alternatives() -> None:
    for text in ("slice: 5", "slice: {any: 5}", "slice: {any: [5]}", "run: 5", "slice: {any: [{}]}\nrun: {kind: 5}"):
        values = read_text(text.encode(), "v.yaml")
        split(values, DEFAULTS)
        with pytest.raises(CheckFailed):
            plan_launch(values, DEFAULTS)
    assert split(with_defaults(user("[]"), DEFAULTS), DEFAULTS) == []
