"""The part of a config that determines the compiled step of a run: the config for the child, and its key.

Runs that differ only in names, teams, images, data or learning rates have the same program.
"""

from __future__ import annotations

import hashlib
import json
import platform
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from launcher import distribution
from launcher.config.maxtext import models
from launcher.config.plan import LaunchPlan
from launcher.errors import LauncherError
from launcher.paths import trainer_dir

PACKAGES = ("maxtext", "jax", "jaxlib", "libtpu")
_COMPILERS_OWN = ("JAX_", "LIBTPU_", "M_", "MEGASCALE_", "PJRT_", "TPU_", "XLA_")
# The prefixes of the variables of worker.env that JAX, MaxText and libtpu read.

# MaxText keys that change neither what a step computes nor its layout: data, checkpoints, evaluations, logs, and
# numbers that are constants in the program.
_NO_MATTER = re.compile(
    r"steps|learning_rate.*|cosine_learning_rate_final_fraction|warmup_steps_fraction|wsd_.*|lr_schedule_type"
    r"|dataset_.*|grain_.*|hf_.*|tfds_.*|train_split|eval_split|.*_data_columns?|tokenize_.*|use_truncation"
    r"|data_shuffle_seed|enable_data_shuffling|init_weights_seed|eval_(interval|steps|start_step)"
    r"|enable_checkpointing|async_checkpointing|checkpoint_(period|storage_.*|is_.*)|max_num_checkpoints_to_keep"
    r"|load_(full_state|parameters)_.*|save_.*_on_completion|log_(period|config)|enable_tensorboard|enable_goodput_.*|goodput_.*"
    r"|monitor_.*|profiler.*|skip_first_n_steps_for_profiler|upload_all_profiler_results|managed_mldiagnostics.*"
    r"|jax_cache_dir|compile_topology.*|compiled_trainstep_file|stack_trace_.*|enable_structured_logging|dump_.*"
)
_OF_THE_ROW = ("name", "kind", "label", "hbmGiB", "topology", "machineType", "chipsPerHost", "chips", "hosts")


_NOT_OF_THE_STEP = ("columns", "template", "turns", "tooLong", "samples")
"""The keys of `tuning` that change the examples or the evaluations, not the step."""


@dataclass(frozen=True)
class Request:
    """A compile request. `config` is a run config for the trainer with only what determines the program. `key`
    identifies the config, the versions and the child's own source."""

    config: Mapping[str, Any]
    versions: Mapping[str, str]
    key: str


def request(plan: LaunchPlan, versions: Mapping[str, str] | None = None) -> Request:
    """Return what to compile for the plan. Raises LauncherError if there is no compiler or nothing to compile."""
    return of_config(plan.config, versions)


def of_config(config: Mapping[str, Any], versions: Mapping[str, str] | None = None) -> Request:
    """Return the same for a run config."""
    if (config.get("run") or {}).get("command"):
        raise LauncherError("run.command replaces the trainer, and another program cannot be forecast.")
    versions = installed() if versions is None else versions
    train = {
        key: value
        for key, value in (config.get("train") or {}).items()
        if value is not None and not _NO_MATTER.fullmatch(key)
    }
    row = config["accelerator"]
    reduced: dict[str, Any] = {
        "run": {"name": "forecast", "kind": "job-set"},
        "slice": {"count": int(config["slice"].get("count") or 1)},
        # The child writes nothing there, but the trainer requires a folder.
        "storage": {"kind": "local", "mountPath": "/nowhere"},
        "data": {},
        "worker": {"env": _environment(config)},
        "train": {**dict(sorted(train.items())), "dataset_type": "synthetic", "enable_checkpointing": False},
        "accelerator": {key: row[key] for key in _OF_THE_ROW if key in row},
        **_tuning(config),
    }
    reported = json.dumps([reduced, dict(sorted(versions.items())), _source()], sort_keys=True)
    return Request(reduced, versions, hashlib.sha256(reported.encode()).hexdigest())


def _tuning(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of a fine-tuning whose step is another one than that of plain text."""
    tuning = config.get("tuning") or {}
    if tuning.get("method", "pretrain") in ("pretrain", "sft") and not models.adapter(tuning):
        return {}
    return {"tuning": {key: value for key, value in tuning.items() if key not in _NOT_OF_THE_STEP}}


def _environment(config: Mapping[str, Any]) -> dict[str, str]:
    """Return what the run sets for the compiler, without flags that only dump what the compiler does."""
    variables = {}
    for name, value in sorted(((config.get("worker") or {}).get("env") or {}).items()):
        if not name.startswith(_COMPILERS_OWN) or value is None:
            continue
        flags = name in ("XLA_FLAGS", "LIBTPU_INIT_ARGS")
        text = " ".join(word for word in str(value).split() if not word.startswith("--xla_dump_")) if flags else value
        if text:
            variables[name] = str(text)
    return variables


def installed() -> dict[str, str]:
    """Return the versions of what the compile depends on.

    Raises LauncherError with install instructions if one of them is missing.

    Only package metadata is read: importing JAX takes seconds, and an answer from the cache must be faster.
    """
    from importlib.metadata import PackageNotFoundError, version

    versions, missing = {}, []
    for name in PACKAGES:
        try:
            versions[name] = version(name)
        except PackageNotFoundError:
            missing.append(name)
    if not missing:
        return versions
    what = f"The Python package{'s' if len(missing) > 1 else ''} {', '.join(missing)}"
    what += f" {'are' if len(missing) > 1 else 'is'} not installed, and a forecast needs the TPU compiler"
    machine = f"{platform.system()} on {platform.machine()}"
    if sys.platform != "linux" or platform.machine() not in ("x86_64", "AMD64"):
        raise LauncherError(
            f"{what}, which is available only for Linux on x86-64; this is {machine.replace('Darwin', 'macOS')}.",
            "Run launcher forecast on a Linux machine, or in a Linux container: it needs no TPU.",
        )
    raise LauncherError(f"{what}.", f"Install it: {distribution.install('forecast')}")


@cache
def _source() -> str:
    """Return a digest of the child's own source, because another version of it may give a different result."""
    digest = hashlib.sha256()
    folder = trainer_dir()
    others = (
        "config.py",
        "maxtext_keys.py",
        "starting_weights.py",
        "tuning/lora.py",
        "tuning/preferences.py",
        "tuning/settings.py",
    )
    for path in (*sorted((folder / "aot").glob("*.py")), *(folder / name for name in others)):
        digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()
