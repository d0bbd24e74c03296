"""Rules for adapters (tuning.method lora and qlora, tuning.adapter) and for `from`: what they need of the model.

And for the keys that have no effect with a method.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path

from launcher.config.checks import this_machine
from launcher.config.checks.problems import ERROR, WARNING, CheckContext, Problem, Rule
from launcher.config.checks.schema import value_at
from launcher.config.checks.train_context import is_given, train_of
from launcher.config.checks.weights_rules import DESCRIPTION, FAMILIES
from launcher.config.kinds import RunKind
from launcher.config.maxtext import models
from launcher.config.suggest import join_or
from launcher.config.values.files import chart_defaults
from launcher.config.weights import Source
from launcher.json_object import json_object

ATTENTION = ("q_proj", "k_proj", "v_proj", "o_proj")
_BLOCKS = {block for blocks in FAMILIES.values() for block in blocks}
_WITH_EXPERTS = {"mixtral", "qwen3_moe"}


def _adapter(case: CheckContext) -> tuple[str, str]:
    """Return the key that selects adapters and its value; ("", "") if all weights are trained."""
    tuning = case.tree["tuning"]
    keys = (key for key in ("method", "adapter") if tuning[key] in models.ADAPTERS and tuning["method"] != "pretrain")
    return next(((f"tuning.{key}", tuning[key]) for key in keys), ("", ""))


def _model(case: CheckContext) -> Iterator[Problem]:
    train, tuning, (selects, adapter) = train_of(case), case.tree["tuning"], _adapter(case)
    if train is None or not adapter:
        return
    settings, rank, targets = models.settings(train), tuning["lora"]["rank"], tuning["lora"]["targets"]
    block = str(settings.get("decoder_block"))
    if block not in _BLOCKS:
        key = "model_name" if is_given(case, "model_name") else "decoder_block"
        without = "tuning.method: sft" if selects == "tuning.method" else "tuning.adapter: none"
        message = (
            f"{selects}: {adapter} is for the decoders {join_or(sorted(_BLOCKS))}, and the model has "
            f"{block}; use {without}, or another model."
        )
        yield from case.across("adapters", ("train", key), message, selects)
        return
    if block in _WITH_EXPERTS and (wrong := [name for name in targets if name not in ATTENTION]):
        message = (
            f"tuning.lora.targets: {wrong[0]} is in the experts of the model, which have no adapters; use "
            f"{join_or(ATTENTION)}."
        )
        yield from case.across("adapters", ("tuning", "lora", "targets"), message, "train.model_name")
    try:
        most, name = min(_ranks(models.dimensions(train), targets, experts=block in _WITH_EXPERTS))
    except ValueError:  # another rule reports the invalid scale, or a target of experts
        return
    if rank > most:
        message = f"tuning.lora.rank is {rank}, but {name} is a matrix of rank {most} at most; set a lower rank."
        yield from case.across("adapters", ("tuning", "lora", "rank"), message, "train.model_name")


def _ranks(sizes: dict[str, int], targets: Sequence[str], *, experts: bool) -> Iterator[tuple[int, str]]:
    """Yield the smaller size of each matrix with an adapter, and its name."""
    width, head = sizes["emb_dim"], sizes["head_dim"]
    queries, keys = sizes["num_query_heads"] * head, sizes["num_kv_heads"] * head
    outer = {"q_proj": queries, "k_proj": keys, "v_proj": keys, "o_proj": queries}
    if not experts:
        outer |= dict.fromkeys(("gate_proj", "up_proj", "down_proj"), sizes["mlp_dim"])
    for name, size in outer.items():
        if not targets or name in targets:
            yield min(width, size), name


def _steps(case: CheckContext) -> Iterator[Problem]:
    train, (selects, adapter) = train_of(case), _adapter(case)
    if train is None or not adapter:
        return
    if (parts := train.get("gradient_accumulation_steps")) not in (None, 1):
        message = (
            f"train.gradient_accumulation_steps is {json.dumps(parts)}, and MaxText accumulates the gradients of all "
            f"weights only, which {selects}: {adapter} freezes; remove it, and set train.per_device_batch_size."
        )
        yield from case.across("adapters", ("train", "gradient_accumulation_steps"), message, selects)
    if train.get("load_full_state_path"):
        message = f"train.load_full_state_path has an optimizer of all weights; for {selects}: {adapter}, set from."
        yield from case.across("adapters", ("train", "load_full_state_path"), message, selects)


def _source(case: CheckContext) -> Iterator[Problem]:
    """Report a run on this machine whose checkpoints have adapters only, or weights whose model computes something
    else."""
    given = case.tree["from"]
    if not given or case.kind is not RunKind.LOCAL or case.tree["run"]["command"]:
        return
    source = Source.parse(given)
    name, imported = source.name, Path(source.path).expanduser() / DESCRIPTION
    try:
        file = this_machine.runs_folder() / name / "run.json" if name else imported
        theirs = json_object(file.read_bytes()) or {}
    except OSError:
        return
    tuning = theirs.get("tuning")
    if isinstance(tuning, dict) and models.adapter(tuning):
        message = (
            f"from: the checkpoints of {name} have adapters only; write a whole model with launcher export {name} "
            f"--merge --to {name}-merged, import it with launcher import {name}-merged --to WEIGHTS, and set from to "
            "that folder."
        )
        yield case.problem("from", ("from",), message)
    elif (ours := train_of(case)) and isinstance(of_run := theirs.get("train"), dict):
        first, second = ({**_COMPUTE, **models.settings(train)} for train in (of_run, ours))
        if key := next((key for key in _COMPUTE if first[key] != second[key]), ""):
            message = (
                f"train.{key} is {json.dumps(second[key])}, and was {json.dumps(first[key])} in the "
                f"{'run' if name else 'model'} of from: {given}. The weights fit both, but were trained with the "
                "earlier value; set it, unless you want the change."
            )
            yield case.problem("from", ("train", key), message, WARNING)


_OF_ANSWERS, _OF_PAIRS = ("sft", "lora", "qlora"), ("dpo", "orpo")
_METHODS_OF = {
    **dict.fromkeys(
        ("template", "turns", "tooLong", "samples", "columns.prompt", "columns.tools"), _OF_ANSWERS + _OF_PAIRS
    ),
    **{f"columns.{name}": _OF_ANSWERS for name in ("messages", "completion", "instruction", "input", "output")},
    **dict.fromkeys(("columns.chosen", "columns.rejected", "beta"), _OF_PAIRS),
    "reference": ("dpo",),
}
"""The methods that read each key of tuning."""


def _unused(case: CheckContext) -> Iterator[Problem]:
    """Report keys of tuning and data that the user set to something other than the default, and nothing reads."""
    tree, default = case.tree, chart_defaults("run").tree
    data, method, held_out = tree["data"], tree["tuning"]["method"], tree["data"]["heldOut"]
    of_others = {key: methods for key, methods in _METHODS_OF.items() if method not in methods}
    why = {f"tuning.{key}": f"tuning.method is {method}, and it is for {join_or(of_others[key])}" for key in of_others}
    if not _adapter(case)[0]:
        no_adapter = "all weights are trained; adapters need tuning.method: lora, or tuning.adapter"
        why |= {f"tuning.lora.{key}": no_adapter for key in tree["tuning"]["lora"]}
    if method != "pretrain":
        whole = f"tuning.method: {method} reads rows; tuning.columns names their columns"
        why |= {f"{source}.field": whole for source in ("data", *(f"data.mixture.{name}" for name in data["mixture"]))}
        if not held_out["files"] and not held_out["fraction"]:
            why["tuning.samples"] = "the model answers after an evaluation, and nothing is held out"
    if held_out["files"]:
        why["data.heldOut.fraction"] = "data.heldOut.files is set, too"
    if not (data["files"] or data["corpus"] or data["mixture"]):
        without = "data.files is empty, and other keys of MaxText select the text of train.dataset_type"
        invalid = any("://" in file or not file.strip() for file in held_out["files"])  # another rule reports it
        keys = ("data.field", "data.heldOut.fraction", "data.heldOut.files")
        why |= dict.fromkeys(keys[:2] if invalid else keys, without)
    for key, reason in why.items() if not tree["run"]["command"] else ():
        path = tuple(key.split("."))
        if path in case.user.origins and value_at(tree, path) not in (None, value_at(default, path)):
            # With pretrain, the run would train something else than these keys describe.
            other = method == "pretrain" and path[0] == "tuning"
            advice = "Set tuning.method, or remove it." if other else "Remove it."
            message = f"{key} has no effect: {reason}. {advice}"
            yield case.problem("unused", path, message, ERROR if other else WARNING)


# Keys that change what a model computes, but none of its arrays, with the values of base.yml.
_COMPUTE = {
    "rope_max_timescale": 10_000,
    "rope_type": "default",
    "rope_linear_scaling_factor": 1.0,
    "local_rope_max_timescale": -1,
    "normalization_layer_epsilon": 1e-5,
    "mlp_activations": ["silu", "linear"],
    "normalize_embedding_logits": True,
    "sliding_window_size": 0,
    "num_experts_per_tok": 1,
    "attn_logits_soft_cap": 0.0,
    "final_logits_soft_cap": 0.0,
}

_READS = ("tuning", "train", "run.kind", "run.command", "slice", "common", "worker.env", "data")
_RULES: Sequence[tuple[tuple[str, ...], Rule]] = (
    (_READS, _model),
    (_READS, _steps),
    (("from", "run", *_READS[1:]), _source),
    (("tuning", "data", "run.command"), _unused),
)


def rules() -> Sequence[tuple[tuple[str, ...], Rule]]:
    """Return each rule with the keys that it reads: a hook of launcher/config/checks/rules.py."""
    return _RULES
