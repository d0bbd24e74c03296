"""Whether a served model (charts/serve) fits its slice: the weights and the keys and values of one request, in HBM.

The numbers follow from MaxText's table of models, so this checks models that the table has: by train.model_name, or by
the name in serve.model: hf:ORG/NAME. It reports what cannot work on any version of vLLM. Activations and compiled
programs need memory, too, so a model that passes can still be too large.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from typing import Any

from launcher.config import accelerators
from launcher.config.checks.problems import CheckContext, Problem, table_of
from launcher.config.maxtext import models

_GIB = 2**30
# The default of vLLM's gpu_memory_utilization, which it also uses on TPUs.
_USABLE = 0.9
_BYTES = {"auto": 2, "bfloat16": 2, "float16": 2, "float32": 4}
"""Bytes per weight. Models are published in 16 bits, and `auto` serves them as they are."""
# Parts of names on Hugging Face that do not change a model's shape: meta-llama/Llama-3.1-8B-Instruct, gemma-3-4b-it.
_TUNED = re.compile(r"^meta-|-(instruct|chat|it|pt|base|hf)(?=-|$)|-v0\.[0-9]+$")


def check(case: CheckContext) -> Iterator[Problem]:
    """Yield the problems of a served model; nothing if its sizes are unknown or the slice is not valid."""
    serve = case.tree["serve"]
    train = served_model(case.tree)
    if train is None or serve["engine"] != "vllm":
        return
    try:
        slice_ = accelerators.resolve(case.tree["slice"], table_of(case.tree))
    except accelerators.SliceError:
        return  # the chart reports it
    name, sizes = models.name_of(train), models.dimensions(train)
    heads, chips = sizes["num_query_heads"], slice_.chips
    if heads % chips:
        yield case.problem(
            "serve-heads",
            ("slice", "topology" if slice_.topology else "machineType"),
            f"serve.model: {name} has {heads} attention heads, which {chips} chips cannot share equally; use a slice "
            f"with {_join(divisor for divisor in (1, 2, 4, 8, 16, 32, 64) if not heads % divisor)} chips.",
        )
    longest, wanted = models.context(train), serve["contextLength"]
    if longest and wanted > longest:
        message = f"serve.contextLength is {wanted}; {name} was trained for {longest} tokens."
        yield case.problem("serve-context", ("serve", "contextLength"), message)
        return
    yield from _memory(case, train, slice_, wanted or longest or 1)


def served_model(tree: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the keys of `train` that name the model, or None if MaxText's table does not have it."""
    train = dict(tree["train"])
    if "model_name" not in train and tree["serve"]["model"].startswith("hf:"):
        wanted = _bare(tree["serve"]["model"].rpartition("/")[2])
        named = [name for name in models.table()["models"] if _bare(name) == wanted]
        train = {"model_name": named[0]} if named else {}
    known = models.name_of(train) != "default" and models.row_of(train) and models.parameters(train)
    return train if known else None


def kv_bytes(train: Mapping[str, Any], chips: int, size: float = 2) -> int:
    """Return the bytes of the keys and values of one token on one chip. Each chip has at least one head of each layer.

    A layer with a sliding window keeps less for a long sequence; this is the amount for layers without one.
    """
    sizes = models.dimensions(train)
    per_chip = math.ceil(sizes["num_kv_heads"] / chips)
    return int(2 * sizes["num_decoder_layers"] * per_chip * sizes["head_dim"] * size)


def _memory(
    case: CheckContext, train: Mapping[str, Any], slice_: accelerators.Slice, context: int
) -> Iterator[Problem]:
    serve = case.tree["serve"]
    hbm = float(table_of(case.tree)[slice_.accelerator].get("hbmGiB") or 0) * _GIB
    usable = hbm * float(serve["engineArgs"].get("gpu_memory_utilization", _USABLE))
    quantized = {"quantization", "kv_cache_dtype"} & set(serve["engineArgs"])
    if not hbm or quantized:
        return
    size = _BYTES[serve["dtype"]]
    name, chips = models.name_of(train), slice_.chips
    weights = (models.parameters(train) or 0) * size / chips
    # With a sliding window, most layers keep a part of the sequence, so only the weights can be compared.
    windows = models.settings(train).get("sliding_window_size") or 0
    cache = 0 if windows else context * kv_bytes(train, chips, size)
    where = f"a {slice_.accelerator} chip has {_gib(hbm)}, of which vLLM uses {_gib(usable)}"
    if weights >= usable:
        yield case.problem(
            "serve-memory",
            ("slice", "accelerator"),
            f"serve.model: the weights of {name} need {_gib(weights)} on each of {chips} chips; {where}. Use a larger "
            "slice.",
        )
    elif weights + cache > usable:
        fits = int((usable - weights) / kv_bytes(train, chips, size))
        yield case.problem(
            "serve-memory",
            ("serve", "contextLength"),
            f"serve.contextLength: one request of {context} tokens needs {_gib(cache)} on each of {chips} chips, in "
            f"addition to {_gib(weights)} of weights of {name}; {where}. Set it to at most {fits}, or use a larger "
            "slice.",
        )


def _gib(amount: float) -> str:
    return f"{amount / _GIB:.1f} GiB"


def _bare(name: str) -> str:
    """Return a model's name without what differs between MaxText and Hugging Face: Llama-3.1-8B is llama3.1-8b."""
    plain = name.lower()
    while (shorter := _TUNED.sub("", plain)) != plain:
        plain = shorter
    return re.sub(r"[-_]", "", plain)


def _join(numbers: Iterator[int]) -> str:
    *others, last = map(str, numbers)
    return f"{', '.join(others)} or {last}" if others else last
