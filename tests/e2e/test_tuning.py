"""A model is tuned on conversations, with adapters, and on pairs in the claim, from the checkpoint of a run.

As a JobSet, and with adapters also as a RayJob.
"""

from __future__ import annotations

import json

import pytest

from tests.e2e.needs import needs
from tests.e2e.teams import HOSTS, TRAINED, Team
from tests.e2e.test_training import wait_for_last_step

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(3600)]

STEPS = 20
ROWS = [{"prompt": f"Is {number} even or odd?", "completion": ("even", "odd")[number % 2]} for number in range(400)]

PAIRS = [{"prompt": row["prompt"], "chosen": f"Gladly: {row['completion']}.", "rejected": "No."} for row in ROWS]


SHORT = ("--set", f"train.steps={STEPS}", "--set", f"train.checkpoint_period={STEPS // 2}")
ADAPTERS = ("--set", "tuning.method=lora", "--set", "tuning.lora.rank=4")


def _start(team: Team, kind: str, **data: list[dict[str, str]]) -> str:
    """Train the run `base`, and write the rows. Return the values that tune it on the first of them."""
    team.make_claim()
    team.submit(team.trainer("base", kind), *SHORT)
    team.becomes("base", "succeeded", seconds=TRAINED)
    for name, rows in data.items():
        lines = "".join(f"{json.dumps(row)}\n" for row in rows)
        team.write(f"write-{name}", f"/data/{name}", {f"{name}.jsonl": lines}, kind)
    return team.member.values(
        f"{team.name}-tuning",
        {
            "from": f"base@{STEPS - 1}",
            "data": {"corpus": "", "files": [f"/data/{next(iter(data))}"], "heldOut": {"fraction": 0.1}},
            "tuning": {"method": "sft", "template": "plain"},
            "train": {"learning_rate": 1e-2},
        },
    )


def _tune_adapters(team: Team, kind: str, values: str) -> None:
    """The losses are those of the log: a RayJob that has ended has no pods to ask."""
    team.submit([*team.trainer("adapted", kind), "-f", values], *SHORT, *ADAPTERS)
    with team.member.follow("logs", "adapted", "-f", "--raw", "-n", team.name) as file:
        team.becomes("adapted", "succeeded", seconds=TRAINED)
        wait_for_last_step(team, "adapted", lambda: team.log(file), STEPS)
        log = team.log(file)
    status = team.status("adapted")
    assert (status["kind"], status["restarts"]) == (kind, 0)
    assert log.losses[STEPS - 1][0] < 10, "the loss of a model with random weights is above 10"


@needs(kueue="0.16", jobset="0.10", image=True, storage=True, nodes=1, cpu=1.5, memory_gib=7)
def test_a_model_is_tuned_on_conversations_and_pairs(team: Team) -> None:
    team.install(team.hosts(HOSTS))
    values = _start(team, "job-set", rows=ROWS, pairs=PAIRS)
    team.submit([*team.trainer("tuned", "job-set"), "-f", values], *SHORT)
    team.becomes("tuned", "succeeded", seconds=TRAINED)
    status = team.status("tuned")
    assert status["step"] == STEPS
    assert status["loss"] < 8, "the loss of a model with random weights is above 10"

    pairs = {"data.files": "[/data/pairs]", "tuning.method": "dpo", "train.learning_rate": "1e-3"}
    sets = (word for key, value in pairs.items() for word in ("--set", f"{key}={value}"))
    team.submit([*team.trainer("preferred", "job-set"), "-f", values], *SHORT, *sets)
    team.becomes("preferred", "succeeded", seconds=TRAINED)
    assert team.status("preferred")["loss"] < 0.69, "the loss of the first step is 0.693"

    _tune_adapters(team, "job-set", values)
    for options in ((), ("--merge",)):
        done = team.member.launcher("export", "adapted", *options, "-n", team.name, seconds=1000)
        assert done.code == 0, str(done)
        team.delete("adapted-export")


@needs(kueue="0.16", kuberay="1.5", image=True, storage=True, nodes=1, cpu=2, memory_gib=10)
def test_adapters_are_tuned_in_a_ray_cluster(team: Team) -> None:
    team.install(team.hosts(HOSTS, 1))
    _tune_adapters(team, "ray-job", _start(team, "ray-job", rows=ROWS))
