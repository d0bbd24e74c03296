"""The pure functions of sweeps: reading values, planning runs, and comparing and showing them."""

from __future__ import annotations

import itertools
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

from launcher import api
from launcher.backends import sweeps
from launcher.backends.base import Preview, RunStatus, State, Submission
from launcher.backends.log_excerpt import WHOLE, Excerpt
from launcher.backends.sweeps import Sweep
from launcher.config.checks.problems import Problem
from launcher.config.plan import CheckFailed, LaunchPlan
from launcher.config.values.assignment import read_sweep
from launcher.config.values.files import chart_defaults, load
from launcher.config.values.tree import SWEEP, Origin
from launcher.errors import LauncherError
from launcher.k8s.pods import Pod
from launcher.k8s.target import Target
from launcher.products.sweeps import display, submission, watching
from launcher.products.sweeps.plan import LIMIT, SweepPlan, plan_sweep
from tests.unit import test_alternatives as alternatives

SLICE = ("run.kind=ray-job", "team.name=research", "slice.accelerator=v6e", "slice.topology=4x4")
PLACE = ("storage.kind=gcsfuse", "storage.bucket=example-runs", "image.repository=example.invalid/a", 'image.tag="1"')
TRAIN = ("train.model_name=llama3-8b", "data.files={/data/text}", "queue.name=research")
CLUSTER = (*SLICE, *PLACE, *TRAIN)


def plan(*texts: str, sets: Sequence[str] = CLUSTER, name: str | None = "lr") -> SweepPlan:
    return plan_sweep(load([], sets), chart_defaults("run"), texts, name=name)


def read(text: str) -> Any:
    return list(read_sweep(text, Origin(SWEEP, 1)).values)


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("1e-4,3e-4", [1e-4, 3e-4]),
        ("1,2", [1, 2]),
        ("true,null,", None),
        ("true,null", [True, None]),
        ("a, b c ", ["a", "b c"]),
        ('"a,b",c', ["a,b", "c"]),
        ('"010","",8', ["010", "", 8]),
        ("'it''s, so',x", ["it's, so", "x"]),
        (r"a\,b,c", ["a,b", "c"]),
        ("it's,its", ["it's", "its"]),
        ("{a,b},{c}", [["a", "b"], ["c"]]),
        ("[1, 2],[]", [[1, 2], []]),
        ('["a,b", c],d', [["a,b", "c"], "d"]),
        ("8", [8]),
        ("1,,2", None),
        ("", None),
        ("1,1", None),
        ("1,1.0", None),
        ("1,true", [1, True]),
        ('"a', None),
        ("[1,2", None),
    ],
)
def test_values_are_read_as_those_of_set(text: str, values: list[Any] | None) -> None:
    if values is None:
        with pytest.raises(LauncherError, match=re.escape(f'--sweep "k={text}": ')):
            read(f"k={text}")
        return
    found = read(f"k={text}")
    assert found == values
    assert [type(value) for value in found] == [type(value) for value in values]


def test_a_run_for_each_combination_in_order() -> None:
    sweep_plan = plan("train.learning_rate=1e-4,3e-4", "train.steps=10,20", "worker.env.AB=x,z")
    assert (sweep_plan.name, sweep_plan.keys) == ("lr", ("train.learning_rate", "train.steps", "worker.env.AB"))
    assert [each.name for each in sweep_plan.plans] == [f"lr-{number}" for number in range(1, 9)]
    for number, (each, (rate, steps, text)) in enumerate(
        zip(sweep_plan.plans, itertools.product((1e-4, 3e-4), (10, 20), "xz"), strict=True), start=1
    ):
        assert each.config["run"]["name"] == f"lr-{number}"
        assert (each.config["train"]["learning_rate"], each.config["train"]["steps"]) == (rate, steps)
        assert each.config["worker"]["env"] == {"AB": text}
        assert each.member is not None
        assert (each.member.sweep, each.member.number) == ("lr", number)
        assert list(each.member.values.values()) == [rate, steps, text]
        assert each.user.tree["run"]["name"] == each.name  # the name that Helm receives


def test_the_name_is_the_values_own_without_name() -> None:
    sweep_plan = plan("train.steps=10,20", sets=(*CLUSTER, "run.name=mine"), name=None)
    assert [each.name for each in sweep_plan.plans] == ["mine-1", "mine-2"]
    with pytest.raises(CheckFailed, match="the run has no name"):
        plan("train.steps=10,20", name=None)


def test_all_problems_are_reported_at_once_and_each_once() -> None:
    with pytest.raises(CheckFailed) as failed:
        plan("train.learning_rat=1e-4,3e-4", "train.per_device_batch_size=1,-2,-3", sets=(*CLUSTER, "slice.count=0"))
    assert failed.value.message.splitlines() == [
        "--set slice.count: slice.count is 0; it must be at least 1 and at most 100000.",
        "--sweep train.learning_rat: MaxText has no key learning_rat; did you mean train.learning_rate?",
        "--sweep train.per_device_batch_size: train.per_device_batch_size is -2; it must be more than 0.",
        "--sweep train.per_device_batch_size: train.per_device_batch_size is -3; it must be more than 0.",
    ]


def test_the_limit_of_names_applies_to_the_longest_name() -> None:
    with pytest.raises(CheckFailed) as failed:
        plan(f"train.learning_rate={','.join(f'{number}e-6' for number in range(1, 101))}", name="x" * 33)
    assert failed.value.message == (
        f'--name: run.name: "{"x" * 33}-100" has 37 characters; the name of a ray-job run can have at most 35.'
    )
    assert failed.value.hint == f"The runs of the sweep are named {'x' * 33}-1 to {'x' * 33}-100."


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        (
            ("run.name=a,b",),
            "--sweep 1: run.name cannot be swept: the runs are named after the sweep, with a number.",
        ),
        (("run.kind=local,ray-job",), "--sweep 1: run.kind cannot be swept: all runs of a sweep are of one kind."),
        (("team.name=a,b",), "--sweep 1: team.name cannot be swept: all runs of a sweep belong to one team."),
        (
            ("train.steps=1,2", "train.steps=3,4"),
            "--sweep 1 and --sweep 2 set the same key: train.steps and train.steps.",
        ),
        (
            (
                f"train.steps={','.join(map(str, range(1, 101)))}",
                f"train.eval_steps={','.join(map(str, range(1, 12)))}",
            ),
            f"The sweep has 100 x 11 = 1,100 combinations; the maximum is {LIMIT:,}.",
        ),
        (("train.steps",), '--sweep "train.steps": the key "steps" has no value.'),
    ],
)
def test_invalid_sweeps(texts: tuple[str, ...], message: str) -> None:
    with pytest.raises(LauncherError) as failed:
        plan(*texts)
    assert failed.value.message == message


def test_a_mapping_of_keys_to_values_is_a_sweep() -> None:
    values: dict[str, Any] = {
        "train.learning_rate": np.linspace(1e-4, 3e-4, 2),
        "worker.env": [{"AB": "x"}, {"AB": "y"}],
    }
    found = api.plan_sweep([], CLUSTER, values, name="lr")
    assert [each.member.values["train.learning_rate"] for each in found.plans if each.member] == [1e-4] * 2 + [3e-4] * 2
    assert {type(each.config["train"]["learning_rate"]) for each in found.plans} == {float}
    assert len(repr(found)) < 300 > len(repr(found.plans[0]))
    for wrong, message in (([], "train.steps has no values."), ([3, 3], "train.steps lists a value twice.")):
        with pytest.raises(LauncherError) as failed:
            api.plan_sweep([], CLUSTER, {"train.steps": wrong}, name="lr")
        assert failed.value.message == f"--sweep 1: {message}"
    with pytest.raises(CheckFailed):
        api.plan_sweep([], CLUSTER, {"train.steps": "10,20"}, name="lr")  # a text is one value


def test_a_hundred_combinations_are_planned_fast() -> None:
    began = time.process_time()
    plan(f"train.learning_rate={','.join(f'{number}e-6' for number in range(1, 101))}")
    # It takes 0.3 s; if each plan read the charts' files, it would take a minute.
    assert time.process_time() - began < 5


# --- comparing and showing runs -----------------------------------------------------------------------------------


def status(number: int, state: State, **more: Any) -> RunStatus:
    values = {"train.learning_rate": number * 1e-4, "train.steps": 10}
    return RunStatus(f"lr-{number}", "research", "ray-job", state, sweep="lr", sweep_values=values, **more)


def test_runs_are_in_their_order_and_the_best_is_the_one_of_least_held_out_loss() -> None:
    runs = [status(number, State.RUNNING) for number in (10, 2, 1)]
    sweep = sweeps.of("lr", [*runs, replace(status(3, State.RUNNING), sweep="other")])
    assert sweep is not None
    assert [run.name for run in sweep.runs] == ["lr-1", "lr-2", "lr-10"]
    assert sweep.best is None
    assert sweeps.of("none", runs) is None

    losses = [status(1, State.RUNNING, loss=2.0), status(2, State.FAILED, loss=float("nan")), status(3, State.QUEUED)]
    assert Sweep("lr", tuple(losses)).best == losses[0]
    losses.append(status(4, State.SUCCEEDED, loss=3.0, eval_loss=4.0))
    sweep = Sweep("lr", tuple(losses))
    assert (sweep.measure, sweep.best) == ("eval_loss", losses[3])
    assert [run.name for run in sweep.ranked] == ["lr-4", "lr-1", "lr-2", "lr-3"]
    assert not sweep.ended


def test_a_sweep_is_short_in_a_notebook_and_has_a_table() -> None:
    sweep = Sweep("lr", (status(1, State.RUNNING, loss=2.0), status(2, State.QUEUED, reason="<b>")))
    assert repr(sweep) == "Sweep(name='lr', queued=1, running=1, best='lr-1')"
    assert repr(sweep.runs[1]) == "RunStatus(name='lr-2', kind='ray-job', state='queued', reason='<b>', …)"
    rows = re.findall("<tr>(.*?)</tr>", sweep._repr_html_())
    assert rows[1] == "<td>lr-1</td><td>0.0001</td><td>10</td><td>running</td><td></td><td>2.0</td><td></td>"
    assert len(rows) == 3


def test_the_line_and_the_table() -> None:
    sweep = Sweep(
        "lr",
        (
            status(1, State.RUNNING, step=3, steps=10, loss=5.125, eval_loss=5.5),
            status(2, State.SUCCEEDED, step=10, steps=10, loss=4.8, eval_loss=4.83),
            status(4, State.QUEUED),
        ),
    )
    assert display.line(sweep) == (
        "sweep lr: 1 queued, 1 running, 1 succeeded; best held-out loss 4.830"
        " (lr-2: train.learning_rate 0.0002, train.steps 10)"
    )
    assert display.table(sweep).splitlines() == [
        "RUN   learning_rate  steps  STATE      STEP   LOSS   HELD-OUT",
        "lr-2  0.0002         10     succeeded  10/10  4.800  4.830",
        "lr-1  0.0001         10     running    3/10   5.125  5.500",
        "lr-4  0.0004         10     queued",
    ]
    # If a sweep is too large for the terminal, unfinished runs are shown first.
    assert [run.name for run in display.shown(sweep, 2)] == ["lr-1", "lr-2"]


class FakeCluster:
    """A fake cluster whose runs the test changes. It replaces a real one to count the requests."""

    description, cli_args, poll_seconds, max_parallel = "cluster x", " -n x", 0.0, 4
    cluster, stuck_seconds = None, None

    def __init__(self, runs: list[RunStatus]) -> None:
        self.runs, self.requests = runs, list[str]()
        self.report_progress: Callable[[str], None] = lambda _: None

    def list(self, warn: Callable[[str], None], *, sweep: str = "", everything: bool = False) -> Sequence[RunStatus]:
        self.requests.append("list")
        return [replace(run, step=None, loss=None) for run in self.runs if sweep in ("", run.sweep)]

    def status(self, name: str) -> RunStatus | None:
        self.requests.append(name)
        return next((run for run in self.runs if run.name == name), None)

    def prepare(self, plans: Sequence[LaunchPlan]) -> None: ...

    def problems(self, plan: LaunchPlan) -> Sequence[Problem]:
        return ()

    def preview(self, plan: LaunchPlan, *, accept_changes: bool) -> Preview:
        raise LauncherError(f"{plan.name} is refused.", "Ask.")

    def submit(self, plan: LaunchPlan, *, accept_changes: bool) -> Submission:
        raise AssertionError("a run was made after one was refused")

    def summary(self, name: str) -> RunStatus | None:
        raise NotImplementedError

    def config_of(self, name: str) -> Mapping[str, Any]:
        raise NotImplementedError

    def hosts(self, name: str) -> Sequence[Pod]:
        raise NotImplementedError

    def metrics(self, name: str) -> Sequence[dict[str, Any]]:
        raise NotImplementedError

    def logs(self, name: str, *, follow: bool, worker: int | None, excerpt: Excerpt = WHOLE) -> Iterator[str]:
        raise NotImplementedError

    def cancel(self, name: str, *, reason: str = "") -> RunStatus:
        raise NotImplementedError

    def delete(self, name: str) -> None:
        raise NotImplementedError


def test_a_sweep_that_is_watched_costs_a_list_a_round_and_few_logs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watching, "pause", lambda *_: 0.0)
    cluster = FakeCluster([status(number, State.RUNNING, step=1, loss=3.0) for number in range(1, 31)])
    first = Sweep("lr", tuple(replace(run, step=None, loss=None) for run in cluster.runs))
    rounds = 0
    for now in watching.watch(first, cluster):
        assert isinstance(now, Sweep)
        rounds += 1
        if rounds == 5:
            assert cluster.requests.count("list") == 4
            assert len(cluster.requests) - 4 <= 16  # four logs per round at most
            assert sum(run.step == 1 for run in now.runs) == 16  # values that were read once are kept
            cluster.runs = [replace(run, state=State.SUCCEEDED, step=2, loss=2.0) for run in cluster.runs]
    assert rounds == 6
    assert isinstance(now, Sweep)
    assert now.succeeded
    assert {run.loss for run in now.runs} == {2.0}


def test_a_rejection_of_many_runs_is_reported_once() -> None:
    swept = plan("train.steps=10,20,30,40,50,60,70")
    with pytest.raises(LauncherError) as failed:
        submission.submit(swept, cast(Any, FakeCluster([])), accept_changes=False)
    assert failed.value.message == "lr-1 is refused. (also lr-2, lr-3, lr-4, lr-5, lr-6 and lr-7)"
    assert failed.value.hint == "Ask."


def test_a_warning_about_many_runs_is_printed_once() -> None:
    lines = [(f"lr-{at}", f"Warning: lr-{at} waits.") for at in range(1, 10)]
    shared = [(f"lr-{at}", "Warning: the claim is missing.") for at in range(1, 10)]
    assert sweeps.merged([*lines, *shared]) == [
        "Warning: lr-1 waits. (also lr-2, lr-3, lr-4, lr-5, lr-6 and 3 others)",
        "Warning: the claim is missing.",
    ]


def test_a_sweep_cannot_have_runs_of_alternatives() -> None:
    shared = plan_sweep(
        alternatives.user("[{}, {provisioning: spot}]"), alternatives.DEFAULTS, ["train.steps=5,6"], name="s"
    )
    assert len(shared.plans) == 2
    with pytest.raises(LauncherError, match="A sweep cannot have alternatives"):
        plan_sweep(alternatives.user("[{}, {topology: 8x8}]"), alternatives.DEFAULTS, ["train.steps=5,6"], name="s")


def test_a_sweep_in_python(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLIPWAY_HOME", str(tmp_path))
    here = Target(local=True)
    sets = ["run.kind=local", "storage.kind=local", "slice.accelerator=cpu", "run.command={sh,-c,sleep 600}"]
    plan = api.plan_sweep([], sets, ["worker.env.NAME=a,b"], name="demo")
    submitted = api.submit_sweep(plan, target=here)
    try:
        assert submitted.message == 'The sweep "demo" was submitted: 2 runs on this machine.'
        assert [each.created for each in submitted.submissions] == [True, True]
        again = api.submit_sweep(plan, target=here)
        assert [each.created for each in again.submissions] == [False, False]
        with pytest.raises(LauncherError, match=r'The sweep "demo" has not ended: demo-1.*demo-2'):
            api.delete_sweep("demo", target=here)
    finally:
        cancelled = api.cancel_sweep("demo", target=here)
    assert cancelled.counts == {"cancelled": 2}
    assert api.cancel_sweep("demo", target=here).counts == {"cancelled": 2}
    api.delete_sweep("demo", target=here)
    assert [path.name for path in (tmp_path / "runs").iterdir()] == [".turn"]
    with pytest.raises(LauncherError, match='The sweep "demo" was not found'):
        api.find_sweep("demo", here)
