"""Data sets of Hugging Face's hub: from hf:ORG/NAME to files at one commit, whose ranges are read when needed."""

from __future__ import annotations

import contextlib
import json
import os
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO, cast

from trainer.errors import ConfigError, DownloadError

PREFIX = "hf:"
SUFFIXES = (".jsonl", ".parquet")
PINS_FILE = "data-sets.json"
"""The commit and the files of each data set that a run reads. Each start reads the same, even if a branch moves."""

Pins = dict[str, dict[str, Any]]
"""By item of data.files: the commit, and the bytes of each file by its path in the repository."""

# A revision contains no "/" unless the hub has made it: the requests of a repository, and its conversion to Parquet.
_FORM = re.compile(
    r"hf:(?P<name>(?!datasets/)[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*)"
    r"(?:@(?P<revision>refs/(?:convert|pr)/[^/@]+|[^/@]+))?(?:/(?P<part>[^@]+))?",
    re.ASCII,
)
_FILE = re.compile(r"hf:(?P<name>[^/]+/[^/]+)@(?P<commit>[^/]+)/(?P<path>.+)")
_USUAL_SPLITS = ("train", "validation", "test")
_LISTED = 5
_sizes: dict[str, int] = {}


def is_hub(path: str) -> bool:
    """Return whether a path is that of a file on the hub."""
    return path.startswith(PREFIX)


def kept(folder: Path) -> Pins:
    """Return the data sets that a run in this folder reads; {} before its first start."""
    try:
        return cast(Pins, json.loads((folder / PINS_FILE).read_text(encoding="utf-8")))
    except (FileNotFoundError, NotADirectoryError):  # trainer/__main__.py creates the folder, or names its key
        return {}
    except ValueError as error:  # another host is writing it
        raise DownloadError(f"{folder / PINS_FILE} is not complete; start again.") from error


def expand(entry: str, pins: Pins, key: str) -> list[str]:
    """Return the sorted paths (hf:ORG/NAME@COMMIT/FILE) of an item of `key`, and add it to `pins` if it is not there.

    Raises ConfigError with the key if there is no such data set, revision, split or file, and DownloadError if the hub
    does not answer.
    """
    found = _FORM.fullmatch(entry)
    if found is None:
        raise ConfigError(
            f"{key}: {entry} is not a data set of Hugging Face; write hf:ORG/NAME, hf:ORG/NAME@REVISION or "
            "hf:ORG/NAME@REVISION/SUBSET/SPLIT."
        )
    pin = pins.get(entry)
    if pin is None:
        pin = pins[entry] = _resolve(entry, found["name"], found["revision"], found["part"] or "", key)
    paths = {f"{PREFIX}{found['name']}@{pin['commit']}/{file}": int(size) for file, size in pin["files"].items()}
    _sizes.update(paths)
    return sorted(paths)


def size(path: str) -> int:
    """Return the bytes of a file that `expand` has returned."""
    return _sizes[path]


@contextlib.contextmanager
def opened(path: str, ahead: int = 1 << 20) -> Iterator[BinaryIO]:
    """Open a file that `expand` has returned. A read requests `ahead` bytes more than it returns, for the next read.

    Raises ConfigError if the token may not read the file, and DownloadError if the hub does not answer, here and while
    the file is open.
    """
    from huggingface_hub import HfFileSystem, constants

    found = _FILE.fullmatch(path)
    if found is None:
        raise ValueError(path)
    with _as_sentences(path, found["name"]):
        hub = HfFileSystem(endpoint=constants.ENDPOINT, token=_token())
        name = f"datasets/{found['name']}@{found['commit']}/{found['path']}"
        with hub.open(name, "rb", block_size=ahead, size=_sizes[path], cache_type="readahead") as file:
            yield cast(BinaryIO, file)


def _token() -> str | None:
    return os.environ.get("HF_TOKEN") or None


def _resolve(entry: str, name: str, revision: str | None, part: str, key: str) -> dict[str, Any]:
    from huggingface_hub import HfApi, RepoFile, constants

    with _as_sentences(f"{key}: {entry}", name, revision):
        hub = HfApi(endpoint=constants.ENDPOINT, token=_token())
        info = hub.dataset_info(name, revision=revision)
        tree = hub.list_repo_tree(name, recursive=True, revision=info.sha, repo_type="dataset")
        sizes = {each.path: each.size for each in tree if isinstance(each, RepoFile)}
    files = sorted(path for path, size in sizes.items() if path.lower().endswith(SUFFIXES) and size)
    if not files:
        endings = Counter(PurePosixPath(path).suffix for path in sizes if not PurePosixPath(path).name.startswith("."))
        have = ", ".join(f"{count:,} {kind or 'without an ending'}" for kind, count in endings.most_common(_LISTED))
        raise ConfigError(
            f"{key}: {entry} has no .jsonl or .parquet file (it has {have or 'no files'}); the hub converts many data "
            f"sets: try hf:{name}@refs/convert/parquet."
        )
    declared = _declared(info.card_data.get("configs") if info.card_data is not None else None)
    chosen = _chosen(files, declared, part)
    if not chosen:
        raise ConfigError(f"{key}: {entry}: {_no_part(files, declared, part)}")
    return {"commit": info.sha, "files": {path: sizes[path] for path in chosen}}


_Declared = Mapping[str, Mapping[str, Sequence[str]]]
"""The subsets that the card of a data set declares: for each split, the patterns of its files."""


def _declared(configs: Any) -> _Declared:
    """Read the card's `configs`. The default subset is the first of the result, as "" too."""
    subsets: dict[str, dict[str, list[str]]] = {}
    default = None
    for config in configs if isinstance(configs, list) else []:
        if not isinstance(config, dict):
            continue
        folder = PurePosixPath(str(config.get("data_dir") or "."))
        given = config.get("data_files") or "**"
        splits: dict[str, list[str]] = {}
        for each in given if isinstance(given, list) else [given]:
            split, paths = (each.get("split", "train"), each.get("path")) if isinstance(each, dict) else ("train", each)
            for path in paths if isinstance(paths, list) else [paths]:
                splits.setdefault(str(split), []).append(str(folder / str(path)))
        name = str(config.get("config_name") or "default")
        subsets[name] = splits
        if config.get("default") or name == "default":
            default = name
    if len(subsets) == 1:
        default = next(iter(subsets))
    return subsets if default is None else {"": subsets[default], **subsets}


def _chosen(files: Sequence[str], declared: _Declared, part: str) -> list[str]:
    """Return the files of a part: SUBSET/SPLIT, SUBSET or SPLIT as the card declares them, or else a folder, a file or
    a pattern, or a split that the names of the files have. Without a part, the training split of the default subset."""
    subset, _, split = part.rpartition("/")
    if split in declared.get(subset, {}):
        return _matching(files, declared[subset][split])
    splits = declared.get(part, {})
    if usual := "train" if "train" in splits else next(iter(splits), "") if len(splits) == 1 else "":
        return _matching(files, splits[usual])
    if part:
        below = [path for path in files if path == part or path.startswith(f"{part}/")]
        if not below and any(character in part for character in "*?["):
            below = _matching(files, [part])
        return below or _named(files, subset, split)
    if declared:
        return []
    if any(_named(files, "", each) for each in _USUAL_SPLITS):
        return _named(files, "", "train")
    return list(files)


def _matching(files: Sequence[str], patterns: Sequence[str]) -> list[str]:
    from fsspec.utils import glob_translate  # type: ignore[import-untyped]

    wanted = [re.compile(glob_translate(pattern)) for pattern in patterns]
    return [path for path in files if any(pattern.match(path) for pattern in wanted)]


def _named(files: Sequence[str], folder: str, split: str) -> list[str]:
    """Return the files below a folder whose name, or the name of a folder, is the split, with a number or not."""
    below = [path for path in files if not folder or path.startswith(f"{folder}/")]
    word = re.escape(split)
    for form in (rf"(?:^|/){word}(?:/|[-.]\d+|\.[a-z]+$)", rf"(?<![A-Za-z]){word}(?![A-Za-z])"):
        if found := [path for path in below if re.search(form, path)]:
            return found
    return []


def _no_part(files: Sequence[str], declared: _Declared, part: str) -> str:
    if declared:
        have = [f"{subset}/{split}" for subset, splits in declared.items() if subset for split in splits]
        what = f"there is no subset or split {part}" if part else "it has several subsets or splits"
    else:
        have = list(files)
        what = f"no file is in {part}, or of this split" if part else "no file is of the split train"
    more = f" and {len(have) - _LISTED:,} more" if len(have) > _LISTED else ""
    return f"{what}; add one of these after a slash: {', '.join(have[:_LISTED])}{more}."


@contextlib.contextmanager
def _as_sentences(what: str, name: str, revision: str | None = None) -> Iterator[None]:
    """Convert the errors of huggingface_hub. `what` begins the sentence."""
    import httpx
    from huggingface_hub import constants, errors

    try:
        yield
    except (errors.HfHubHTTPError, httpx.HTTPError, OSError) as error:
        cause = error.__cause__ if isinstance(error, FileNotFoundError) and error.__cause__ else error
        code = getattr(getattr(cause, "response", None), "status_code", None)
        if isinstance(cause, errors.GatedRepoError):
            raise ConfigError(
                f"{what} is gated; accept its terms ({constants.ENDPOINT}/datasets/{name}), and set HF_TOKEN to a "
                "token of that account (in a cluster, with worker.secretEnv and head.secretEnv)."
            ) from error
        if isinstance(cause, errors.RevisionNotFoundError):
            raise ConfigError(f"{what}: the data set has no revision {revision or 'of this commit'}.") from error
        if isinstance(cause, errors.RepositoryNotFoundError) or code in (401, 403):
            raise ConfigError(
                f"{what} does not exist or is private; check the name, or set HF_TOKEN to a token that may read it (in "
                "a cluster, with worker.secretEnv and head.secretEnv)."
            ) from error
        if code == 404:
            raise ConfigError(f"{what} no longer exists.") from error
        reason = (str(cause).strip().splitlines() or [type(cause).__name__])[0].rstrip(".")
        raise DownloadError(
            f"{what} cannot be read: {constants.ENDPOINT} does not answer ({reason}); start again."
        ) from error
