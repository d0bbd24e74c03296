"""What determines the compiled step of a run, and nothing else: the config that the child gets, and its key.

Two runs that differ in their names, teams, images, data or learning rates are the same program.
"""

from __future__ import annotations

import hashlib
import json
import platform
import re
import shlex
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from launcher.config.plan import LaunchPlan
from launcher.errors import LauncherError
from launcher.paths import trainer_dir

PACKAGES = ("maxtext", "jax", "jaxlib", "libtpu")
_COMPILERS_OWN = ("JAX_", "LIBTPU_", "M_", "MEGASCALE_", "PJRT_", "TPU_", "XLA_")
# The beginnings of the variables of worker.env that JAX, MaxText and libtpu read.

# Keys of MaxText's that change neither what a step computes nor how it is laid out: data, checkpoints, evaluations,
# logs, and numbers that stand in the program as constants.
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


@dataclass(frozen=True)
class Request:
    """`config` is a run config as the trainer reads it, with what determines the program alone; `key` names it, the
    versions and the child's own source."""

    config: Mapping[str, Any]
    versions: Mapping[str, str]
    key: str


def request(plan: LaunchPlan, versions: Mapping[str, str] | None = None) -> Request:
    """What to compile for the plan. Raises LauncherError where there is no compiler, or nothing to compile."""
    return of_config(plan.config, versions)


def of_config(config: Mapping[str, Any], versions: Mapping[str, str] | None = None) -> Request:
    """The same, of a run config."""
    if (config.get("run") or {}).get("command"):
        raise LauncherError("run.command replaces the trainer, and what another program does cannot be forecast.")
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
        # The child writes nothing there; the trainer wants a folder named.
        "storage": {"kind": "local", "mountPath": "/nowhere"},
        "data": {},
        "worker": {"env": _environment(config)},
        "train": {**dict(sorted(train.items())), "dataset_type": "synthetic", "enable_checkpointing": False},
        "accelerator": {key: row[key] for key in _OF_THE_ROW if key in row},
    }
    told = json.dumps([reduced, dict(sorted(versions.items())), _source()], sort_keys=True)
    return Request(reduced, versions, hashlib.sha256(told.encode()).hexdigest())


def _environment(config: Mapping[str, Any]) -> dict[str, str]:
    """What the run sets for the compiler, without flags that only make it write down what it does."""
    found = {}
    for name, value in sorted(((config.get("worker") or {}).get("env") or {}).items()):
        if not name.startswith(_COMPILERS_OWN) or value is None:
            continue
        flags = name in ("XLA_FLAGS", "LIBTPU_INIT_ARGS")
        text = " ".join(word for word in str(value).split() if not word.startswith("--xla_dump_")) if flags else value
        if text:
            found[name] = str(text)
    return found


def installed() -> dict[str, str]:
    """The versions of what the compile depends on. Raises LauncherError that says how to install what is not there.

    Their metadata alone is read: importing JAX takes seconds, and an answer from the cache must not.
    """
    from importlib.metadata import PackageNotFoundError, version

    found, missing = {}, []
    for name in PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            missing.append(name)
    if not missing:
        return found
    what = f"The Python package{'s' if len(missing) > 1 else ''} {', '.join(missing)}"
    what += f" {'are' if len(missing) > 1 else 'is'} not installed, and a forecast needs the TPU compiler"
    machine = f"{platform.system()} on {platform.machine()}"
    if sys.platform != "linux" or platform.machine() not in ("x86_64", "AMD64"):
        raise LauncherError(
            f"{what}, which there is for Linux on x86-64 alone; this is {machine.replace('Darwin', 'macOS')}.",
            "Run launcher forecast on a Linux machine, or in a Linux container: it needs no TPU.",
        )
    raise LauncherError(f"{what}.", f'Install it: {shlex.join(["pip", "install"])} "slipway[forecast]"')


@cache
def _source() -> str:
    """A digest of the child's own source: what another version of it wrote may say something else."""
    digest = hashlib.sha256()
    folder = trainer_dir()
    for path in (*sorted((folder / "aot").glob("*.py")), folder / "config.py"):
        digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()
