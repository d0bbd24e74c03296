"""Rules for where the text of a run is, and for MaxText's own dataset types."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import PurePosixPath

from launcher.config.checks.problems import WARNING, CheckContext, Problem
from launcher.config.checks.schema import value_at
from launcher.config.checks.train_context import train_of
from launcher.config.kinds import RunKind
from launcher.config.suggest import join_or

_TEXT_OF = {"hf": ("hf_path",), "grain": ("grain_train_files", "grain_train_mixture_config_path", "hf_path")}
"""The keys of a dataset type, one of which names the text. The trainer also checks the text of the evaluations."""
_PATHS = ("data.tokenizer.path", "from", "train.load_parameters_path", "train.grain_train_files")


def _dataset(case: CheckContext) -> Iterator[Problem]:
    train, data = train_of(case) or {}, case.tree["data"]
    kind = "" if data["files"] or data["corpus"] or data["mixture"] else train.get("dataset_type")
    if kind in ("c4_mlperf", "olmo_grain"):  # for the files of one benchmark, and of one model
        message = f"train.dataset_type: Slipway does not support {kind}; set data.files, or train.dataset_type: hf."
        yield case.problem("dataset", ("train", "dataset_type"), message)
    elif (text := _TEXT_OF.get(str(kind))) and not any(train.get(key) for key in (*text, "dataset_path")):
        message = f"train.dataset_type: {kind} has no text; set train.{text[0]}, or use data.files."
        yield from case.across("dataset", ("train", "dataset_type"), message)


def _unmounted(case: CheckContext) -> Iterator[Problem]:
    """Warn about absolute paths of a run in a cluster that are in no volume."""
    storage = case.tree["storage"]
    mounts = [storage["mountPath"], *([storage["text"]["mountPath"]] if storage["text"].get("bucket") else [])]
    for key in () if case.kind is RunKind.LOCAL else (*_text_keys(case), *_PATHS):
        value = value_at(case.tree, key.split("."))
        for path in map(str, value if isinstance(value, list) else [value]):
            if path.startswith("/") and not any(PurePosixPath(path).is_relative_to(mount) for mount in mounts):
                where = f"{join_or(mounts)}, where storage is mounted"
                message = f"{key}: {path} is not below {where}; unless the image contains it, no pod can read it."
                yield case.problem("unmounted", key.split("."), message, WARNING)


def _shared(case: CheckContext) -> Iterator[Problem]:
    """Report an item of two keys, which the trainer refuses in a pod. For a local run, check calls the trainer."""
    named: dict[str, str] = {}
    for key in () if case.kind is RunKind.LOCAL else _text_keys(case):
        for item in value_at(case.tree, key.split(".")) or ():
            if (other := named.setdefault(item, key)) != key:
                why = "the same text must not be trained on and held out"
                yield case.problem("data", key.split("."), f"{key}: {item} is also in {other}; remove one: {why}.")


def _text_keys(case: CheckContext) -> list[str]:
    sources = case.tree["data"]["mixture"]
    return ["data.files", "data.heldOut.files", *(f"data.mixture.{name}.files" for name in sources)]


DATA_RULES = (
    (("train", "data", "run"), _dataset),
    (("train", "data", "from", "storage", "run"), _unmounted),
    (("data", "run"), _shared),
)
"""Each rule with the keys that it reads."""
