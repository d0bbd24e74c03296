"""Traces a run's train step without its data, its chips or other processes, to find what MaxText refuses.

Many invalid combinations of keys pass MaxText's own validation, and only the construction of the model or the trace of
the step refuses them.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from trainer import deferred_imports
from trainer.aot.compile import traced
from trainer.config import RunConfig
from trainer.loop import environment
from trainer.maxtext_keys import maxtext_argv

_FORCED = "xla_force_host_platform_device_count"
_LENGTH = 500
_SEARCH_SECONDS = 30.0  # of CPU; a trial of a small model takes 1 s to 4 s


def refusals(config: RunConfig) -> list[str]:
    """Return a sentence for each objection of MaxText to the run's `train`, with its key if one is known.

    Use the process for nothing else: it gets as many CPU devices as the run has in all its processes.
    """
    own = environment(config)
    flags = own.get("XLA_FLAGS", "")
    forced = re.search(rf"--{_FORCED}=(\d+)", flags)
    devices = int(forced[1]) if forced else config.chips // config.hosts
    os.environ |= own | {"JAX_PLATFORMS": "cpu", "XLA_FLAGS": f"{flags} --{_FORCED}={devices * config.hosts}"}
    deferred_imports.defer_unused_imports()
    from absl import flags as absl_flags

    if not absl_flags.FLAGS.is_parsed():
        absl_flags.FLAGS(["trainer"])
    error = _refusal(config)
    return [] if error is None else list(_sentences(error, config))


def _refusal(config: RunConfig) -> BaseException | None:
    """Return the error with which MaxText refuses the config, the model or the step."""
    from maxtext.trainers.pre_train import train
    from maxtext.utils import maxtext_utils

    try:
        maxtext_config, _ = train.initialize(maxtext_argv(config))
        if not maxtext_config.enable_diloco:  # its step has another signature
            step, _ = traced(maxtext_config, maxtext_utils.get_mesh_from_config(maxtext_config), config.tuning)
            if config.accelerator["kind"] == "cpu":  # kernels for GPUs cannot be lowered here
                step.lower()
    except SystemExit as stop:  # MaxText exits if it rejects a config
        return stop.__context__ or stop
    except Exception as error:  # the run would end with any of them
        return error
    return None


def _sentences(error: BaseException, config: RunConfig) -> Iterator[str]:
    details = getattr(error, "errors", None)
    for problem in details() if callable(details) else [{"msg": str(error) or type(error).__name__}]:
        place = [str(part) for part in problem.get("loc", ())]
        text = " ".join(str(problem["msg"]).split()).removeprefix("Value error, ").removeprefix("Assertion failed, ")
        key = ".".join(place) or _named(text, config.train) or _removable(config)
        shown = text if len(text) <= _LENGTH else f"{text[:_LENGTH]}…"
        yield f"train{key and f'.{key}'}: MaxText refuses it: {shown.removesuffix('.')}."


def _named(text: str, train: Mapping[str, Any]) -> str:
    """Return the first of the run's own keys that occurs in the text, or "". MaxText derives num_kv_heads from
    base_num_kv_heads."""
    words = re.findall(r"\w+", text)
    return next((key for word in words for key in (word, f"base_{word}") if key in train), "")


def _removable(config: RunConfig) -> str:
    """Return a key of `train` without which MaxText accepts the run, or "" if none is found in time."""
    deadline = time.process_time() + _SEARCH_SECONDS
    for key in reversed(list(config.train)):
        train = {name: value for name, value in config.train.items() if name != key}
        if time.process_time() < deadline and _refusal(replace(config, tree={**config.tree, "train": train})) is None:
            return key
    return ""
