"""DPO and ORPO: the published formulas in numpy, answers that a model learns to prefer, and a kill.

The log probabilities of the formulas are those of mlx-lm, from the exported weights.
"""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import mlx.core as mx
import mlx.nn as nn
import mlx_lm
import numpy as np
import psutil
import pytest
from mlx.utils import tree_flatten
from mlx_lm.utils import load_model

from tests.tiny_model import TINY_MODEL
from tests.trainer.runs import Run, TrainingHarness, free_port, numbers
from tests.trainer.test_tuning import WITH_GENERATION, exported
from trainer.tuning.precomputed import Table
from trainer.tuning.template import PLAIN

STEPS = 60
KILLED = 45
"""The steps of the runs that are killed after 30: as many as they need to resume, on the schedule of STEPS."""
BETA = 0.3


def pairs(count: int) -> list[dict[str, Any]]:
    """Return rows in each form: the better answer is polite, and the worse answer is not."""
    rows: list[dict[str, Any]] = []
    for number in random.Random(1).sample(range(100, 1000), count):
        question = {"role": "user", "content": f"Is it even or odd: {' '.join(str(number))}"}
        better, worse = (f"Gladly: {number}.", f"No: {number}.")
        lists = [[{"role": "assistant", "content": answer}] for answer in (better, worse)]
        forms = (
            {"prompt": question["content"], "chosen": better, "rejected": worse},
            {"prompt": [question], "chosen": lists[0], "rejected": lists[1]},
            {"chosen": [question, *lists[0]], "rejected": [question, *lists[1]]},
        )
        rows.append(forms[len(rows) % 3])
    return rows


def config(
    lab: TrainingHarness,
    name: str,
    base: Run,
    rows: list[dict[str, Any]],
    method: str,
    held_out: float,
    hosts: int = 1,
    **train: Any,
) -> Path:
    path = lab.root / f"{name}.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    data = {
        "files": [str(path)],
        "heldOut": {"fraction": held_out},
        "tokenizer": {"kind": "sentencepiece", "path": str(lab.tokenizer)},
    }
    keys = {
        "steps": STEPS,
        "learning_rate_schedule_steps": STEPS,
        "learning_rate": 1e-3,
        "per_device_batch_size": 4,
        "checkpoint_period": 20,
        "eval_interval": None,
        "dtype": "float32",
        "max_target_length": 128,
        "load_parameters_path": str(base.folder / "checkpoints" / "3" / "items"),
        **train,
    }
    written = lab.config(name, hosts=hosts, data=data, **keys)
    tree = json.loads(written.read_text())
    tree |= {"tuning": {"method": method, "template": PLAIN, "beta": BETA}, "from": "base@3"}
    written.write_text(json.dumps(tree))
    return written


@pytest.fixture(scope="module")
def preferred(lab: TrainingHarness, base: Run) -> Run:
    run = lab.train(config(lab, "preferred", base, pairs(300), "dpo", 0.1), "--no-ray")
    assert run.process.returncode == 0, run.output()[-3000:]
    return run


def test_a_model_learns_to_prefer(preferred: Run) -> None:
    lines = [line for line in preferred.metrics() if "loss" in line]
    assert lines[0]["loss"] == pytest.approx(np.log(2), abs=1e-5)  # the model is the reference
    assert lines[0]["reward_chosen"] == pytest.approx(0, abs=1e-5)
    assert np.mean([line["loss"] for line in lines[-10:]]) < 0.5
    assert all(line["examples"] >= 4 and line["counted_tokens"] >= 8 * line["examples"] for line in lines)
    for line in lines:
        assert line["reward_margin"] == pytest.approx(line["reward_chosen"] - line["reward_rejected"], abs=1e-5)
        assert line["reward_accuracy"] in (0, 0.25, 0.5, 0.75, 1)
    first, *_, last = [line for line in preferred.metrics() if "eval_loss" in line]
    assert first["eval_loss"] == pytest.approx(np.log(2), abs=1e-4)
    assert last["eval_reward_chosen"] > last["eval_reward_rejected"]
    assert last["eval_loss"] < 0.6
    assert 0.8 < last["eval_reward_accuracy"] <= 1


def test_a_kill_changes_no_number(lab: TrainingHarness, preferred: Run, base: Run) -> None:
    path = config(lab, "preferred-killed", base, pairs(300), "dpo", 0.1, steps=KILLED)
    run = lab.start(path, "--no-ray")
    run.until(lambda: run.step() >= 24)
    max(run.descendants("trainer"), key=psutil.Process.create_time).kill()  # its parent stays, and forks the next one
    run.until(lambda: len(run.events()) == 2 and run.step() >= 30)
    run.process.kill()
    run.wait()
    run = lab.train(path, "--no-ray")
    assert run.process.returncode == 0, run.output()[-3000:]
    assert run.events()[-1]["step"] > 0  # it resumed, from its first checkpoint if a later one was not complete
    assert numbers(run.metrics())[:-1] == numbers(preferred.metrics())[: KILLED + 1]  # and the first evaluation


def precomputed(config: Path) -> Path:
    """Set the reference in a run config."""
    tree = json.loads(config.read_text())
    tree["tuning"]["reference"] = "precomputed"
    config.write_text(json.dumps(tree))
    return config


def test_a_precomputed_reference_gives_the_same_numbers(lab: TrainingHarness, preferred: Run, base: Run) -> None:
    """A kill between two steps changes no number; tests/unit/test_precomputed.py has kills before the first."""
    path = precomputed(config(lab, "precomputed", base, pairs(300), "dpo", 0.1, steps=KILLED))
    run = lab.start(path, "--no-ray")
    run.until(lambda: run.step() >= 30)
    run.process.kill()
    run.wait()
    (table,) = run.folder.glob("reference-*.bin")
    assert table.stat().st_size == 300 * 16
    run = lab.train(path, "--no-ray")
    assert run.process.returncode == 0, run.output()[-3000:]
    assert run.events()[-1]["step"] > 0  # it resumed, from its first checkpoint if a later one was not complete
    assert run.output().count("reference: log probabilities of 300 pairs in") == 1
    for have, want in zip(numbers(run.metrics())[:-1], numbers(preferred.metrics())[: KILLED + 1], strict=True):
        assert have == pytest.approx(want, rel=2e-5, abs=1e-6)

    # Two hosts compute a part of the pairs each, and both have the numbers of all.
    one: dict[str, Any] = {"steps": 2, "per_device_batch_size": 2}
    path = precomputed(config(lab, "precomputed-hosts", base, pairs(300), "dpo", 0.1, hosts=2, **one))
    coordinator = f"127.0.0.1:{free_port()}"
    both = [
        lab.start(path, "--no-ray", SLIPWAY_COORDINATOR=coordinator, SLIPWAY_HOST_INDEX=str(index)) for index in (0, 1)
    ]
    assert [run.wait() for run in both] == [0, 0], both[0].output()[-3000:]
    (shared,) = both[0].folder.glob("reference-*.bin")
    assert shared.name == table.name
    of_one, of_two = (Table(each).values for each in (table, shared))
    assert of_two.keys() == of_one.keys()
    np.testing.assert_allclose([of_two[key] for key in of_one], list(of_one.values()), atol=1e-4)
    losses = [line["loss"] for line in both[0].metrics() if "loss" in line]
    assert losses[0] == pytest.approx(np.log(2), abs=1e-5)
    assert len(losses) == 2


def conversations(row: dict[str, Any]) -> list[list[dict[str, Any]]]:
    """Return the messages of both answers of a row."""
    prompt = row.get("prompt", [])
    prompt = [{"role": "user", "content": prompt}] if isinstance(prompt, str) else prompt
    ends = [row["chosen"], row["rejected"]]
    return [[*prompt, *([{"role": "assistant", "content": end}] if isinstance(end, str) else end)] for end in ends]


def encoded(tokenizer: Any, talks: list[list[dict[str, Any]]]) -> list[tuple[Any, Any]]:
    """Return the tokens of each conversation, and 1 for each token that counts, as transformers computes them."""
    made = [
        tokenizer.apply_chat_template(
            each, chat_template=WITH_GENERATION, tokenize=True, return_dict=True, return_assistant_tokens_mask=True
        )
        for each in talks
    ]
    return [(mx.array([each["input_ids"]]), mx.array([each["assistant_masks"][1:]])) for each in made]


def log_probabilities(network: Any, talks: list[tuple[Any, Any]]) -> tuple[Any, Any]:
    """Return the log probability of the tokens of each conversation that count, and their number."""
    sums, lengths = [], []
    for ids, mask in talks:
        losses = nn.losses.cross_entropy(network(ids[:, :-1]).astype(mx.float32), ids[:, 1:])
        sums.append(-(losses * mask).sum())
        lengths.append(mask.sum())
    return mx.stack(sums), mx.stack(lengths)


def dpo(sums: Any, reference: Any) -> Any:
    """Return the loss of pairs of log probabilities: equation 7 of arXiv 2305.18290."""
    rewards = (BETA * (sums - reference)).reshape(-1, 2)
    return -nn.log_sigmoid(rewards[:, 0] - rewards[:, 1]).mean()


def orpo(sums: Any, lengths: Any) -> Any:
    """Return the loss of pairs of log probabilities: equations 4 to 7 of arXiv 2403.07691."""
    means = (sums / lengths).reshape(-1, 2)
    odds = means - mx.log(1 - mx.exp(means))
    return (-means[:, 0] - BETA * nn.log_sigmoid(odds[:, 0] - odds[:, 1])).mean()


@pytest.mark.parametrize(("method", "parts"), [("dpo", 2), ("orpo", 1)])
def test_a_step_is_that_of_the_formula(lab: TrainingHarness, base: Run, method: str, parts: int) -> None:
    """One step of SGD. Several pairs share a sequence; the gradients of DPO are accumulated in two parts."""
    rows = pairs(6)
    one: dict[str, Any] = {"steps": 1, "per_device_batch_size": 2, "max_target_length": 512, "opt_type": "sgd"}
    one |= {
        "enable_data_shuffling": False,
        "learning_rate": 0.5,
        "warmup_steps_fraction": 0,
        "gradient_clipping_threshold": 0,
    }
    one |= {"gradient_accumulation_steps": parts, "num_epoch": 1}
    run = lab.train(config(lab, f"{method}-step", base, rows, method, 0, **one), "--no-ray")
    assert run.process.returncode == 0, run.output()[-3000:]
    (line,) = [line for line in run.metrics() if "loss" in line]
    assert line["examples"] == len(rows)

    mx.set_default_device(mx.cpu)
    folder = exported(lab, base)
    model, _ = load_model(folder)
    tokenizer = mlx_lm.load(str(folder))[1]._tokenizer
    talks = encoded(tokenizer, [each for row in rows for each in conversations(row)])
    before = mx.array(np.array(log_probabilities(model, talks)[0]))

    def loss(network: Any) -> Any:
        sums, lengths = log_probabilities(network, talks)
        return dpo(sums, before) if method == "dpo" else orpo(sums, lengths)

    value, gradients = nn.value_and_grad(model, loss)(model)
    assert line["loss"] == pytest.approx(float(value), abs=1e-5)
    after, _ = load_model(exported(lab, run))
    new = dict(tree_flatten(after.parameters()))
    old, slopes = dict(tree_flatten(model.parameters())), dict(tree_flatten(gradients))
    for name in new:
        # MaxText's query weights are those of Hugging Face divided by the root of head_dim, so their step is larger.
        scale = TINY_MODEL["head_dim"] if name.endswith("q_proj.weight") else 1
        expected = np.array(old[name] - scale * line["learning_rate"] * slopes[name])
        np.testing.assert_allclose(np.array(new[name]), expected, atol=1e-4, err_msg=name)
    assert max(float(mx.abs(new[name] - old[name]).max()) for name in new) > 1e-3
