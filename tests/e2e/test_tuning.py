"""A model is tuned on conversations in the claim, from the checkpoint of another run."""

from __future__ import annotations

import json

import pytest

from tests.e2e.needs import needs
from tests.e2e.teams import HOSTS, TRAINED, Team

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(3600)]

STEPS = 20
ROWS = [{"prompt": f"Is {number} even or odd?", "completion": ("even", "odd")[number % 2]} for number in range(400)]


@needs(kueue="0.16", jobset="0.10", image=True, storage=True, nodes=1, cpu=1.5, memory_gib=7)
def test_a_model_is_tuned_on_conversations(team: Team) -> None:
    team.install(team.hosts(HOSTS))
    team.make_claim()
    short = ("--set", f"train.steps={STEPS}", "--set", f"train.checkpoint_period={STEPS // 2}")
    team.submit(team.trainer("base", "job-set"), *short)
    team.becomes("base", "succeeded", seconds=TRAINED)
    team.write("write-rows", "/data/rows", {"rows.jsonl": "".join(f"{json.dumps(row)}\n" for row in ROWS)})
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
