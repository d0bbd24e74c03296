"""Rules that check for enough text, disk space and memory. They apply to local runs only: a cluster is remote."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from launcher.config.checks import this_machine
from launcher.config.checks.problems import WARNING, CheckContext, Problem, Rule
from launcher.config.checks.train_context import devices_of, mesh_of, path_of, train_of
from launcher.config.kinds import RunKind
from launcher.config.maxtext import models
from launcher.config.maxtext.keys import AUTO
from launcher.config.maxtext.mesh import batch

_TEXT = (".txt", ".md", ".jsonl")
# The maximum number of files to inspect, so that checking stays fast. With more files, the rule reports nothing.
_MOST_FILES = 20_000
# trainer/data cuts text into pieces of at least this many bytes; each piece is a document. A line of .jsonl is a
# document too, and has at least as many bytes as {"t":""} and its newline.
_PIECE, _LINE = 1 << 10, 9
# Tokens that a document has in addition to its text's: one at its beginning, one at its end, and the space that
# sentencepiece puts first.
_EXTRA = 3
# The smallest size of compressed random float32 weights, as a fraction (0.85 for normal ones with zlib, bytes sorted).
_COMPRESSED = 0.8
# Bytes that each worker's process needs in addition to its share of the model: Python, JAX, MaxText and Ray.
_WORKER = 1_000_000_000
_CORE_FLOPS = 5e10  # per second
_SLOW_STEP = 60  # seconds
_SMALLER = 'train a smaller model, such as that of the preset quickstart ("-f quickstart -f FILE"), or use a cluster'


# --- Text ---------------------------------------------------------------------------------------------------------


def _text(case: CheckContext) -> Iterator[Problem]:
    """Report text that is certainly too short for the run, if train.num_epoch limits how often the text is read.

    Without train.num_epoch, the text repeats indefinitely. A token represents at least one byte, so a file's bytes
    bound its tokens. Each document may begin a new sequence. Parquet files are compressed, so they are not checked.
    """
    train, data = train_of(case), case.tree["data"]
    if train is None or (epochs := train.get("num_epoch")) is None:
        return
    if case.kind is not RunKind.LOCAL or (devices := devices_of(case)) is None:
        return
    if not data["files"] or (files := _sizes(data["files"])) is None:
        return
    keys = models.settings(train)
    length, steps = int(keys["max_target_length"]), int(keys["steps"])
    pieces = sum(size // (_LINE if name.endswith(".jsonl") else _PIECE) + 1 for name, size in files)
    size = sum(size for _, size in files)
    most = int(epochs) * ((size + _EXTRA * pieces) // length + pieces)
    wanted = steps * batch(train, devices.total).load
    if wanted > most:
        passes = f"train.num_epoch: {epochs} pass{'es' if epochs != 1 else ''}"
        provide = "provide" if epochs != 1 else "provides"
        message = (
            f"{passes} over data.files ({size:,} bytes) {provide} at most {most:,} sequences of {length:,} tokens, but "
            f"{steps:,} steps require {wanted:,}; add text, lower train.steps, or remove train.num_epoch to repeat the "
            "text."
        )
        others = ("data.files", "train.steps", "train.max_target_length", "train.per_device_batch_size")
        yield from case.across("text", ("train", "num_epoch"), message, *others)


def _sizes(entries: Sequence[str]) -> list[tuple[str, int]] | None:
    """Return names and bytes of the text files; None if one is missing or of another kind, or if there are too many."""
    by_path: dict[str, int] = {}
    try:
        for entry in entries:
            path = Path(entry).expanduser()
            for file in [path] if path.is_file() else _below(path):
                if file.suffix == ".parquet" or len(by_path) > _MOST_FILES:
                    return None
                if file.suffix in _TEXT:
                    by_path[str(file.absolute())] = file.stat().st_size
                elif file == path:
                    return None
    except OSError:
        return None
    return list(by_path.items()) or None


def _below(path: Path) -> Iterator[Path]:
    """Yield the files of a folder. Patterns are not expanded: one may match a tree that is too large to walk."""
    if not path.is_dir():
        raise FileNotFoundError(path)
    for folder, _, names in os.walk(path):
        yield from (Path(folder, name) for name in names)


# --- Disk ---------------------------------------------------------------------------------------------------------


def kept_checkpoints(train: dict[str, Any]) -> int:
    """Return how many checkpoints a run keeps: the first, the last and the periodic ones, up to the maximum to keep."""
    keys = models.settings(train)
    steps, period = int(keys["steps"]), keys["checkpoint_period"]
    period = max(1, steps // 2 if period == AUTO else int(period))  # auto: at most half of the steps
    # After step n - 1 there is one for each multiple of the period, including 0, and one for the last step.
    saved = (steps - 1) // period + 1 + (1 if (steps - 1) % period else 0)
    most = keys["max_num_checkpoints_to_keep"]
    return saved if most is None else min(saved, int(most))


def _disk(case: CheckContext) -> Iterator[Problem]:
    train = train_of(case)
    if train is None or case.kind is not RunKind.LOCAL or not models.settings(train)["enable_checkpointing"]:
        return
    folder = this_machine.runs_folder()
    if (room_on_disk := this_machine.disk(folder)) is None:
        return
    total, free = room_on_disk
    if not total:
        # Not the fault of a key of the values.
        message = (
            f"runs cannot be stored in {folder}: its file system stores no files; set SLIPWAY_HOME to another one."
        )
        yield case.problem("checkpoints", (), message)
        return
    new, least = models.checkpoint_bytes(train, case.tree["tuning"]), models.weight_bytes(train)
    if new is None or least is None:
        return
    count = kept_checkpoints(dict(train))
    path = ("train", "model_name") if ("train", "model_name") in case.user.origins else ("storage", "kind")
    room = f"{_as_size(free)} are free in {folder}"
    if _COMPRESSED * least > free:
        message = (
            f"there is no space for a checkpoint of {_as_size(new)} ({models.parameters(train):,} parameters): {room}; "
            "free some space, set SLIPWAY_HOME to a folder on another disk, or set train.enable_checkpointing: false."
        )
        yield from case.across("checkpoints", path, message, "train.model_name", "train.enable_checkpointing")
    elif new * count > free:
        message = (
            f"there may be no space for {count} checkpoint{'s' if count != 1 else ''} of {_as_size(new)}: "
            f"{room}; free some space, set train.max_num_checkpoints_to_keep, or raise train.checkpoint_period."
        )
        others = ("train.model_name", "train.checkpoint_period", "train.max_num_checkpoints_to_keep")
        yield from case.across("checkpoints", path, message, *others, severity=WARNING)


# --- Memory -------------------------------------------------------------------------------------------------------


def _memory(case: CheckContext) -> Iterator[Problem]:
    """Report a model that this machine's memory certainly cannot hold, and warn of one that it probably cannot.

    The parameters and the state of the optimizer are kept from step to step; a step adds the gradients. Activations are
    not counted; `_logits` counts the largest of them. Each worker has a part of them all, except along the mesh's axis
    `data`, where each has a copy.
    """
    train = train_of(case)
    if (
        train is None
        or case.kind is not RunKind.LOCAL
        or (devices := devices_of(case)) is None
        or devices.kind != "cpu"
    ):
        return
    state, have = models.checkpoint_bytes(train, case.tree["tuning"]), this_machine.memory()
    weights = models.weight_bytes(train)
    if state is None or weights is None or have is None or (run_mesh := mesh_of(train, devices)) is None:
        return
    copies = run_mesh.over(["data"])
    path = path_of(case, ["model_name", *models.DIMENSIONS.values()])
    what = f"the {models.parameters(train):,} parameters of the model and their optimizer state"
    in_copies = f" in {copies} copies (train.ici_data_parallelism)" if copies > 1 else ""
    machine = f"this machine has {_as_size(have)} of memory"
    others = ("train.model_name", "slice.hosts")
    if copies * state > have:
        message = f"train.{path[1]}: {what} take {_as_size(copies * state)}{in_copies}, but {machine}; {_SMALLER}."
        yield from case.across("memory", path, message, *others)
    elif copies * (state + weights) + devices.total * _WORKER > have:
        message = (
            f"train.{path[1]}: {what} take {_as_size(copies * state)}{in_copies}, the gradients "
            f"{_as_size(copies * weights)}, and {devices.total} worker{'s' if devices.total != 1 else ''} about 1 GB "
            f"each, but {machine}; {_SMALLER}."
        )
        yield from case.across("memory", path, message, *others, severity=WARNING)


def _logits(case: CheckContext) -> Iterator[Problem]:
    """Report a batch of which the logits of one worker alone do not fit into this machine's memory.

    The loss needs a number for each token of a forward pass and each piece of the vocabulary, in float32 or, without
    train.cast_logits_to_fp32, in 2 bytes. train.num_vocab_tiling computes them in parts.
    """
    train = train_of(case)
    if train is None or case.kind is not RunKind.LOCAL or (devices := devices_of(case)) is None:
        return
    have = this_machine.memory()
    if devices.kind != "cpu" or have is None:
        return
    keys = models.settings(train)
    tokens = batch(train, devices.total).micro // devices.total * int(keys["max_target_length"])
    number = 2 if train.get("cast_logits_to_fp32") is False else 4
    size = tokens * int(keys["vocab_size"]) * number // max(1, int(keys["num_vocab_tiling"]))
    if size <= have:
        return
    path = path_of(case, ["per_device_batch_size", "max_target_length", "vocab_size", "model_name"])
    message = (
        f"train.{path[1]}: the logits of {tokens:,} tokens and a vocabulary of {int(keys['vocab_size']):,} take "
        f"{_as_size(size)}, but this machine has {_as_size(have)} of memory; lower train.per_device_batch_size or "
        "train.max_target_length."
    )
    yield from case.across("memory", path, message, "train.per_device_batch_size", "train.max_target_length")


# --- Speed --------------------------------------------------------------------------------------------------------


def _speed(case: CheckContext) -> Iterator[Problem]:
    """Warn of a run on the CPU whose steps certainly take minutes.

    A step needs at least six operations per parameter and token. Each core is assumed to do 50 GFLOP/s, which is more
    than training reaches. Mixtures of experts are skipped: a token uses only a part of their parameters.
    """
    train = train_of(case)
    if train is None or case.kind is not RunKind.LOCAL or (devices := devices_of(case)) is None:
        return
    size = models.parameters(train)
    if devices.kind != "cpu" or size is None or models.dimensions(train).get("num_experts", 1) > 1:
        return
    keys = models.settings(train)
    tokens = batch(train, devices.total).load * int(keys["max_target_length"])
    cores = this_machine.cores()
    seconds = 6 * size * tokens / (cores * _CORE_FLOPS)
    if seconds <= _SLOW_STEP:
        return
    path = path_of(case, ["model_name", *models.DIMENSIONS.values()])
    message = (
        f"train.{path[1]}: a step of {tokens:,} tokens with {size:,} parameters takes {seconds / 60:,.0f} min or more "
        f"on {cores} CPU core{'s' if cores != 1 else ''}; {_SMALLER}."
    )
    others = ("train.model_name", "train.per_device_batch_size", "train.max_target_length", "slice.hosts")
    yield from case.across("speed", path, message, *others, severity=WARNING)


def _as_size(size: float) -> str:
    for unit, scale in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6)):
        if size >= scale:
            return f"{size / scale:.1f} {unit}"
    return f"{size / 1e3:.0f} kB"


_READS = ("train", "tuning", "run.kind", "run.command", "slice", "common", "worker.env", "data")

RESOURCE_RULES: Sequence[tuple[tuple[str, ...], Rule]] = tuple(
    (_READS, rule) for rule in (_text, _disk, _memory, _logits, _speed)
)
"""Each rule with the keys that it reads."""
