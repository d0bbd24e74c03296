"""Computes with transformers and peft what exports contain, with PyTorch and Debian's Python (torch_root.py).

`logits FOLDER`: for each folder in it, the logits of tokens.npy with the model in `base`, with the adapter in
`adapter`, after peft merged the two, and with the model in `merged`; and the adapter as peft writes it, in `again`.

`steps FOLDER METHOD`: the losses of examples.json with `base` alone and with `adapter`, and its gradients; for the
method sft, which has no adapter, those of `base`.
"""

from __future__ import annotations

import json
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import torch
from peft import PeftModel
from torch.nn import functional
from transformers import AutoModelForCausalLM


def model(folder: Path) -> Any:
    made, found = AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.float32, attn_implementation="eager", output_loading_info=True
    )
    wrong = {kind: names for kind, names in found.items() if names}
    assert not wrong, f"{folder}: {wrong}"
    return made


def with_adapter(base: Any, folder: Path, *, trainable: bool = False) -> Any:
    """Return a model with peft's adapters. peft warns of unknown keys in the configuration, and of missing tensors."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return PeftModel.from_pretrained(base, folder, is_trainable=trainable)


def logits(folder: Path) -> None:
    tokens = torch.from_numpy(np.load(folder / "tokens.npy").astype(np.int64))

    def of(network: Any) -> Any:
        with torch.no_grad():
            return network.eval()(tokens).logits.numpy()

    for each in sorted(path for path in folder.iterdir() if path.is_dir()):
        found = {"base": of(model(each / "base")), "merged": of(model(each / "merged"))}
        adapted = with_adapter(model(each / "base"), each / "adapter")
        found["adapter"] = of(adapted)
        adapted.save_pretrained(each / "again")
        found["merged by peft"] = of(adapted.merge_and_unload())
        np.savez(each / "found.npz", **found)


def steps(folder: Path, method: str) -> None:
    examples = json.loads((folder / "examples.json").read_text())
    beta = json.loads((folder / "beta.json").read_text())

    def of(network: Any) -> tuple[Any, Any]:
        """Return the log probability of the tokens of each example that count, and their number."""
        sums = []
        for ids, mask in examples:
            each = functional.log_softmax(network(torch.tensor([ids])).logits[0, :-1], -1)
            sums.append((each.gather(1, torch.tensor(ids)[1:, None])[:, 0] * torch.tensor(mask)).sum())
        return torch.stack(sums), sum(sum(mask) for _, mask in examples)

    base = model(folder / "base")
    reference = of(base)[0].detach()

    def loss(network: Any) -> Any:
        sums, tokens = of(network)
        if method != "dpo":
            return -sums.sum() / tokens
        rewards = (beta * (sums - reference)).reshape(-1, 2)
        return -functional.logsigmoid(rewards[:, 0] - rewards[:, 1]).mean()

    losses = [float(loss(base))]
    trained = base if method == "sft" else with_adapter(base, folder / "adapter", trainable=True)
    value = loss(trained.eval())
    value.backward()
    slopes = {
        name.replace(".default", ""): each.grad.numpy()
        for name, each in trained.named_parameters()
        if each.requires_grad
    }
    np.savez(folder / "slopes.npz", **slopes)
    (folder / "losses.json").write_text(json.dumps([*losses, float(value)]))


if __name__ == "__main__":
    _, program, path, *method = sys.argv
    if program == "steps":
        steps(Path(path), *method)
    else:
        logits(Path(path))
