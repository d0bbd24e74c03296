"""A model is tuned on conversations, with adapters, and on pairs in the claim, from the checkpoint of a run."""

from __future__ import annotations

import json

import pytest

from tests.e2e.needs import needs
from tests.e2e.teams import HOSTS, TRAINED, Team

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(3600)]

STEPS = 20
ROWS = [{"prompt": f"Is {number} even or odd?", "completion": ("even", "odd")[number % 2]} for number in range(400)]

PAIRS = [{"prompt": row["prompt"], "chosen": f"Gladly: {row['completion']}.", "rejected": "No."} for row in ROWS]


@needs(kueue="0.16", jobset="0.10", image=True, storage=True, nodes=1, cpu=1.5, memory_gib=7)
def test_a_model_is_tuned_on_conversations_and_pairs(team: Team) -> None:
    team.install(team.hosts(HOSTS))
    team.make_claim()
    short = ("--set", f"train.steps={STEPS}", "--set", f"train.checkpoint_period={STEPS // 2}")
    team.submit(team.trainer("base", "job-set"), *short)
    team.becomes("base", "succeeded", seconds=TRAINED)
    for name, rows in (("rows", ROWS), ("pairs", PAIRS)):
        lines = "".join(f"{json.dumps(row)}\n" for row in rows)
        team.write(f"write-{name}", f"/data/{name}", {f"{name}.jsonl": lines})
    values = team.member.values(
        f"{team.name}-tuning",
        {
            "from": f"base@{STEPS - 1}",
            "data": {"corpus": "", "files": ["/data/rows"], "heldOut": {"fraction": 0.1}},
            "tuning": {"method": "sft", "template": "plain"},
            "train": {"learning_rate": 1e-2},
        },
    )
    team.submit([*team.trainer("tuned", "job-set"), "-f", values], *short)
    team.becomes("tuned", "succeeded", seconds=TRAINED)
    status = team.status("tuned")
    assert status["step"] == STEPS
    assert status["loss"] < 8, "the loss of a model with random weights is above 10"

    pairs = {"data.files": "[/data/pairs]", "tuning.method": "dpo", "train.learning_rate": "1e-3"}
    sets = (word for key, value in pairs.items() for word in ("--set", f"{key}={value}"))
    team.submit([*team.trainer("preferred", "job-set"), "-f", values], *short, *sets)
    team.becomes("preferred", "succeeded", seconds=TRAINED)
    assert team.status("preferred")["loss"] < 0.69, "the loss of the first step is 0.693"

    adapters = ("--set", "tuning.method=lora", "--set", "tuning.lora.rank=4")
    team.submit([*team.trainer("adapted", "job-set"), "-f", values], *short, *adapters)
    team.becomes("adapted", "succeeded", seconds=TRAINED)
    assert team.status("adapted")["loss"] < 10, "the loss of a model with random weights is above 10"
    for options in ((), ("--merge",)):
        done = team.member.launcher("export", "adapted", *options, "-n", team.name, seconds=1000)
        assert done.code == 0, str(done)
        team.delete("adapted-export")
