"""Rules for `train` and its model; the rules for its mesh, batch and attention are in separate modules."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from launcher.config.checks.attention_rules import blocks
from launcher.config.checks.batch_rules import batch_size
from launcher.config.checks.mesh_rules import MESH_RULES
from launcher.config.checks.problems import WARNING, CheckContext, Problem, Rule
from launcher.config.checks.tokenizer_rules import tokenizer
from launcher.config.checks.train_context import is_given, train_of
from launcher.config.maxtext import models


def _contested(case: CheckContext) -> Iterator[Problem]:
    """Apply the check of maxtext.configs.pyconfig.validate_no_keys_overridden_twice."""
    train = train_of(case)
    if train is None:
        return
    name = models.name_of(train)
    for key, own in models.contested(train).items():
        message = (
            f"train.{key} is {_as_yaml(train[key])}, and MaxText's {name} has {_as_yaml(own)}; remove it, or set "
            "train.override_model_config: true."
        )
        yield from case.across("model-key", ("train", key), message, "train.override_model_config")
    kind = case.tree["data"]["tokenizer"]["kind"]
    # The trainer always sets the tokenizer's kind.
    own = models.contested({**train, "tokenizer_type": kind}).get("tokenizer_type")
    if own is not None and "tokenizer_type" not in train:
        message = (
            f"data.tokenizer.kind is {kind}, and MaxText's {name} has {own}; set it and data.tokenizer.path "
            "accordingly, or set train.override_model_config: true."
        )
        yield from case.across("model-key", ("data", "tokenizer", "kind"), message, "train.override_model_config")


def _as_yaml(value: Any) -> str:
    text = "true" if value is True else "false" if value is False else str(value)
    return text if len(text) <= 40 else text[:39] + "…"


def _context(case: CheckContext) -> Iterator[Problem]:
    train = train_of(case)
    if train is None:
        return
    length, most = int(models.settings(train)["max_target_length"]), models.context(train)
    if most is not None and length > most and is_given(case, "max_target_length"):
        message = (
            f"train.max_target_length: {length:,} tokens are more than the {most:,} that {models.name_of(train)} "
            "supports; positions beyond them are untrained."
        )
        yield from case.across("context", ("train", "max_target_length"), message, "train.model_name", severity=WARNING)


def _schedule(case: CheckContext) -> Iterator[Problem]:
    train = train_of(case) or {}
    steps, schedule = train.get("steps"), train.get("learning_rate_schedule_steps")
    if isinstance(steps, int) and isinstance(schedule, int) and 0 <= schedule < steps:
        message = (
            f"train.learning_rate_schedule_steps is {schedule:,}, and train.steps is {steps:,}: the steps between them "
            "have a learning rate of 0, and change nothing; remove the key, or increase it."
        )
        path = ("train", "learning_rate_schedule_steps")
        yield from case.across("schedule", path, message, "train.steps", severity=WARNING)


_READS = ("train", "run.kind", "run.command", "slice", "common", "worker.env", "data")

MODEL_RULES: Sequence[tuple[tuple[str, ...], Rule]] = tuple(
    (_READS, rule) for rule in (*MESH_RULES, batch_size, blocks, _contested, _context, _schedule, tokenizer)
)
"""Each rule with the keys that it reads."""
