"""README.md of an export: the model card, with the run's data, steps, losses and values."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from trainer.config import RunConfig
from trainer.weights.model import Model

_LOAD = {
    False: (
        "from transformers import AutoModelForCausalLM, AutoTokenizer",
        "",
        'model = AutoModelForCausalLM.from_pretrained("PATH_OR_NAME")',
        'tokenizer = AutoTokenizer.from_pretrained("PATH_OR_NAME")',
    ),
    True: (
        "from peft import PeftModel",
        "from transformers import AutoModelForCausalLM, AutoTokenizer",
        "",
        'model = PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained("MODEL"), "PATH_OR_NAME")',
        'tokenizer = AutoTokenizer.from_pretrained("PATH_OR_NAME")',
    ),
}


def text(
    config: RunConfig,
    model: Model,
    *,
    step: int,
    dtype: str,
    parameters: int,
    facts: Mapping[str, Any],
    adapter_of: str = "",
) -> str:
    """Return the card. `facts` come from the launcher; without any, the run's metrics.jsonl has the losses.

    `adapter_of` is the model that an adapter changes, "" for a whole model.
    """
    facts = {**_losses(config.folder, step), **facts}
    sections = ("slice", "data", *(("tuning",) if config.tuning.lora else ()), "train")
    values = {key: _public(config.tree[key]) for key in sections if config.tree.get(key)}
    return "\n".join(
        [
            "---",
            f"library_name: {'peft' if adapter_of else 'transformers'}",
            "pipeline_tag: text-generation",
            "tags: [slipway, maxtext]",
            "---",
            "",
            f"# {config.name}",
            "",
            f"A {model.family.name} {f'adapter (LoRA) of {adapter_of}' if adapter_of else 'model'} with {parameters:,} "
            f"parameters, trained by Slipway with MaxText. The weights are those after {step + 1} steps, as {dtype}.",
            "",
            "```python",
            *_LOAD[bool(adapter_of)],
            "```",
            "",
            "## Training",
            "",
            "| | |",
            "|---|---|",
            f"| run | {config.name} |",
            f"| steps | {step + 1} of {config.train.get('steps', 'unknown')} |",
            f"| sequence length | {model.keys['max_target_length']} |",
            *(f"| {name} | {_cell(value)} |" for name, value in _flat(facts)),
            "",
            "## Values",
            "",
            "```yaml",
            yaml.safe_dump(values, sort_keys=False, allow_unicode=True).rstrip(),
            "```",
            "",
        ]
    )


def _public(value: Any) -> Any:
    """Return the value with only the names of files and folders: a card is read elsewhere, so paths say nothing."""
    if isinstance(value, Mapping):
        return {key: _public(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_public(each) for each in value]
    return Path(value).name if isinstance(value, str) and value.startswith(("/", "~/")) else value


def _losses(folder: Path, step: int) -> dict[str, float]:
    """Return the last loss and held-out loss up to the step, from the run's metrics.

    A checkpoint of step N is the state after N + 1 steps, which is the step of the evaluation after it.
    """
    losses: dict[str, float] = {}
    path = folder / "metrics.jsonl"
    if not path.is_file():
        return losses
    for line in path.read_text(encoding="utf-8").splitlines():
        try:
            metrics = json.loads(line)
        except ValueError:
            continue  # the line that a killed run was writing
        if "loss" in metrics and metrics["step"] <= step:
            losses["loss"] = metrics["loss"]
        if "eval_loss" in metrics and metrics["step"] <= step + 1:
            losses["heldOutLoss"] = metrics["eval_loss"]
    return losses


def _flat(facts: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for name, value in facts.items():
        if isinstance(value, Mapping):
            yield from ((f"{_words(name)}: {_words(each)}", of_it) for each, of_it in value.items())
        else:
            yield _words(name), value


def _words(name: str) -> str:
    """Return a key as words: "held-out loss" for heldOutLoss."""
    words = "".join(f" {letter.lower()}" if letter.isupper() else letter for letter in name)
    return words.replace("held out", "held-out").replace("|", "\\|")


def _cell(value: object) -> str:
    shown = f"{value:.4f}" if isinstance(value, float) else str(value)
    return " ".join(shown.replace("|", "\\|").split())
