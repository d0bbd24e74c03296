"""Text for training: from files, folders, globs and data sets of Hugging Face's hub to a stream of documents.

Files are cut into units: a byte range of a text file (.txt, .md, .jsonl) or a run of rows of a
Parquet file. Units are listed from sizes alone, so a corpus of any size starts at once and streams.
Each unit is read only when needed. Shuffling, repeating and sharding over hosts operate on the list of
units, so the position in the data is a small number that fits in a checkpoint. The held-out text is every n-th unit.

Only this module knows the formats. It imports nothing heavy until documents are read.
"""

from __future__ import annotations

import codecs
import dataclasses
import functools
import hashlib
import itertools
import json
import os
import re
import sysconfig
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any, BinaryIO, cast

from trainer import hub
from trainer.errors import PASSING, ConfigError

if TYPE_CHECKING:
    import pyarrow as pa

TEXT_SUFFIXES = (".txt", ".md")
SUFFIXES = (*TEXT_SUFFIXES, ".jsonl", ".parquet")

# Units are small enough that a small corpus still splits over hosts and into a held-out part, and
# large enough that a corpus of terabytes is a list of a few million.
_MIN_UNIT = 1 << 10
_USUAL_UNIT = 64 << 10
_MAX_UNIT = 1 << 20
# A text file is cut after a newline if there is one within this many bytes, else between characters.
_NEWLINE_WINDOW = 64 << 10
# Up to this size, every byte of a corpus is decoded before the run starts (about a second). For a larger corpus,
# only the first and last unit of every file are decoded.
_CHECK_WHOLE = 1 << 30
# The first units of data sets of the hub that are decoded before the run starts: each is a request or more.
_CHECK_REMOTE = 4
# Threads that read ahead from the hub, and that read the footers of its Parquet files.
_READERS = 2
_CONNECTIONS = 16
# The decoded row groups of the hub that are kept. A small data set has many units in each of its row groups.
_KEPT_BYTES = 1 << 30
_LISTED = 5
_SURROGATE = re.compile("[\ud800-\udfff]")
# What is left between the lines of files that were joined or cut: NUL, a byte order mark, the end-of-file of DOS.
_PADDING = "\0\ufeff\x1a"
_COMPRESSED = {".gz", ".bz2", ".xz", ".zst", ".lz4", ".zip"}
_LINK = "linked folder"
_LFS = b"version https://git-lfs.github.com/spec/"


ROWS = ""
"""The field of a corpus whose documents are whole rows."""


@dataclass(frozen=True, slots=True)
class Unit:
    """A piece of one file: bytes [start, stop) of text, or rows [start, stop) of one Parquet row group."""

    path: str
    start: int
    stop: int
    row_group: int = -1  # -1: bytes


@dataclass(frozen=True)
class Corpus:
    """The training part and the held-out part of a run's data; `size` is the input's bytes on disk."""

    train: Sequence[Unit]
    held_out: Sequence[Unit]
    files: int
    size: int
    field: str
    fingerprint: str
    left_out: str = ""
    """A sentence about the files of the named folders that are not read, or ""."""
    pins: hub.Pins = dataclasses.field(default_factory=dict)
    """The data sets of the hub (trainer/hub.py)."""
    sources: Mapping[str, Corpus] = dataclasses.field(default_factory=dict)
    """The corpora of a mixture by name, in the order of their names. Their parts together are those of this corpus."""
    weight: float = 1.0
    """The weight of a source of a mixture."""

    def summary(self) -> dict[str, Any]:
        return {
            "files": self.files,
            "bytes": self.size,
            "train_units": len(self.train),
            "held_out_units": len(self.held_out),
            "fingerprint": self.fingerprint,
            **({"left_out": self.left_out} if self.left_out else {}),
        }


def is_given(data: Mapping[str, Any]) -> bool:
    """Return whether the values name text to train on (else MaxText's own dataset keys apply)."""
    return bool(data.get("files") or data.get("corpus") or data.get("mixture"))


def open_corpus(
    data: Mapping[str, Any],
    hosts: int = 1,
    *,
    whole_rows: bool = False,
    pins: hub.Pins | None = None,
    key: str = "data.files",
) -> Corpus:
    """List the units of the text that `data` (the values key) names: at least one per host in each part.

    With `whole_rows`, the documents are the rows of .jsonl and .parquet files, not the text of a field. `pins` are the
    commits and files of the hub's data sets, which are otherwise those of now. `key` names the files in errors.
    Reads names, sizes and Parquet footers, but no text unless it is short. Raises ConfigError with the file's name if
    a file or folder is missing, unreadable, of an unknown kind, or empty, and with the sizes if the text is too short
    for the hosts. An error for which a restart may help (trainer.errors.PASSING) is raised as it is, because nothing
    restarts a run after a ConfigError.
    """
    pins = dict(pins or {})
    if sources := data.get("mixture"):
        return _open_mixture(sources, data, hosts, whole_rows, pins)
    field = ROWS if whole_rows else str(data.get("field") or "text")
    held_out = data.get("heldOut") or {}
    corpus = data.get("corpus")
    left: Counter[str] = Counter()
    files = _standard_library(str(corpus)) if corpus else _expand(data["files"], left, pins, key=key)
    if held_out.get("files"):
        eval_files = _expand(held_out["files"], left, pins, key="data.heldOut.files")
        shared = sorted(set(files) & set(eval_files))
        if shared:
            raise ConfigError(
                f"{shared[0]} is in both {key} and data.heldOut.files; remove it from one of them: held-out text "
                "must not be trained on."
            )
        train = _one_per_host(files, hosts, field, key)
        evaluation = _one_per_host(eval_files, hosts, field, "data.heldOut.files")
    else:
        eval_files = []
        train, evaluation = _split(files, float(held_out.get("fraction", 0.0)), hosts, field, key)
    every = [*files, *eval_files]
    sizes = [_bytes_of(path) for path in every]
    digest = hashlib.sha256()
    for path, size in zip(every, sizes, strict=True):
        digest.update(os.fsencode(path) + f"\0{size}\n".encode())
    left_out = _left_out(left, len(every))
    return Corpus(train, evaluation, len(every), sum(sizes), field, digest.hexdigest()[:16], left_out, pins)


def _open_mixture(
    sources: Mapping[str, Any], data: Mapping[str, Any], hosts: int, whole_rows: bool, pins: hub.Pins
) -> Corpus:
    """List the units of each source of data.mixture. Each has a held-out part of its own, or none if there are held-out
    files."""
    given = (data.get("heldOut") or {}).get("files")
    held_out = {"fraction": 0} if given else data.get("heldOut")
    opened: dict[str, Corpus] = {}
    key_of: dict[str, str] = {}
    for name, source in sorted((name, source) for name, source in sources.items() if source is not None):
        key = f"data.mixture.{name}.files"
        own = {"files": source["files"], "field": source.get("field") or data.get("field"), "heldOut": held_out}
        corpus = open_corpus(own, hosts, whole_rows=whole_rows, pins=pins, key=key)
        opened[name] = dataclasses.replace(corpus, weight=float(source["weight"]))
        pins |= corpus.pins
        _refuse_shared(corpus, key, key_of)
    if given:
        own = {"files": given, "field": data.get("field")}
        evaluated = open_corpus(own, hosts, whole_rows=whole_rows, pins=pins, key="data.heldOut.files")
        pins |= evaluated.pins
        _refuse_shared(evaluated, "data.heldOut.files", key_of)
    parts = [*opened.values(), *([evaluated] if given else [])]
    fingerprint = hashlib.sha256("\0".join(part.fingerprint for part in parts).encode()).hexdigest()[:16]
    return Corpus(
        [unit for part in opened.values() for unit in part.train],
        evaluated.train if given else [unit for part in opened.values() for unit in part.held_out],
        sum(part.files for part in parts),
        sum(part.size for part in parts),
        ROWS if whole_rows else str(data.get("field") or "text"),
        fingerprint,
        " ".join(f"{name}: {part.left_out}" for name, part in opened.items() if part.left_out),
        pins,
        opened,
    )


def _refuse_shared(corpus: Corpus, key: str, key_of: dict[str, str]) -> None:
    """Raise ConfigError if a file of the corpus is also in another one, and add its files to `key_of`."""
    paths = {unit.path for unit in (*corpus.train, *corpus.held_out)}
    if shared := sorted(paths & key_of.keys()):
        raise ConfigError(
            f"{shared[0]} is in both {key_of[shared[0]]} and {key}; remove it from one of them: a part of it could be "
            "held out in one, and trained on in the other."
        )
    key_of.update(dict.fromkeys(paths, key))


def check_corpus(corpus: Corpus, read: Callable[[Unit], Iterable[str]] | None = None) -> None:
    """Decode the text: all of it up to 1 GiB, otherwise the first and last unit of every file; little of the hub's.

    `read` returns the texts of a unit; by default its documents. Raises ConfigError with the file and the place of the
    first input that is not text or lacks a field, and if there is no text at all.
    """
    for source in corpus.sources.values():
        check_corpus(source, read)
    if corpus.sources:  # what is left are held-out files
        corpus = dataclasses.replace(corpus, train=[], held_out=corpus.held_out if is_separate(corpus) else [])
    read = read or (lambda unit: documents(unit, corpus.field))
    for part, units in (("training", corpus.train), ("held-out", corpus.held_out)):
        own = [unit for unit in units if not hub.is_hub(unit.path)]
        chosen = own if corpus.size <= _CHECK_WHOLE else _ends_of_files(own)
        chosen += _ends_of_files(unit for unit in units if hub.is_hub(unit.path))[:_CHECK_REMOTE]
        characters = sum(len(text.strip()) for unit in chosen for text in read(unit))
        if units and not characters:
            raise ConfigError(f"{units[0].path}: the {part} part of the data contains no text; add files with text.")


def is_separate(corpus: Corpus) -> bool:
    """Return whether the held-out part of a mixture has files of its own."""
    return not any(source.held_out for source in corpus.sources.values())


def _ends_of_files(units: Iterable[Unit]) -> list[Unit]:
    ends: dict[str, tuple[Unit, Unit]] = {}
    for unit in units:
        ends[unit.path] = (ends[unit.path][0] if unit.path in ends else unit, unit)
    return [unit for pair in ends.values() for unit in dict.fromkeys(pair)]


def documents(unit: Unit, field: str) -> Iterator[str]:
    """Yield the documents of one unit, in order; with ROWS, each row as JSON.

    Raises ConfigError with file and place for text that is not UTF-8, a line that is not a JSON object,
    a missing column or field, and a file that changed during the run. Raises OSError if a restart may help.
    """
    if field == ROWS:
        for row, _ in rows(unit):
            yield json.dumps(row, default=str)
    elif unit.row_group >= 0:
        yield from _parquet_rows(unit, field)
    elif _ending(unit.path) == ".jsonl":
        for line, at in _lines(unit):
            if (document := _field_of(line, at, unit.path, field)) is not None:
                yield document
    else:
        raw, start = _read(unit)
        if _seems_utf16(raw):
            raise ConfigError(f"{unit.path} seems to be UTF-16; convert the file to UTF-8.")
        text = _without_nul(_decode(raw, start, unit.path))
        if text.strip():
            yield text


@dataclass(frozen=True, slots=True)
class Place:
    """The place of a row: the offset of a line, or a row of a Parquet row group. Its text is "FILE: line 3"."""

    path: str
    at: int
    row_group: int = -1

    def __str__(self) -> str:
        if self.row_group >= 0:
            return f"{self.path}: row {self.at} of row group {self.row_group}"
        return f"{self.path}: line {_line_number(self.path, self.at)}"


def rows(unit: Unit) -> Iterator[tuple[dict[str, Any], Place]]:
    """Yield the rows of one unit of a .jsonl or .parquet file, with all their fields, in order.

    Raises ConfigError and OSError as `documents` does, and ConfigError for a file of text.
    """
    if unit.row_group >= 0:
        for number, row in enumerate(_parquet_objects(unit), unit.start):
            yield row, Place(unit.path, number, unit.row_group)
    elif _ending(unit.path) == ".jsonl":
        for line, at in _lines(unit):
            yield _json_object(line, at, unit.path, '{"messages": [...]}'), Place(unit.path, at)
    else:
        raise ConfigError(f"{unit.path} is text without fields; write a .jsonl or .parquet file.")


def _read(unit: Unit) -> tuple[bytes, int]:
    """Return the bytes of a unit of a text file, and their offset."""
    return _of_hub.get(unit, lambda: _read_file(unit)) if hub.is_hub(unit.path) else _read_file(unit)


def _read_file(unit: Unit) -> tuple[bytes, int]:
    try:
        with _open(unit.path, unit.stop - unit.start + _NEWLINE_WINDOW) as file:
            raw, start = _read_range(file, unit, lines_only=_ending(unit.path) == ".jsonl")
    except OSError as error:
        _raise_passing(error)
        raise ConfigError(f"Cannot read {unit.path}: {error.strerror}.") from error
    bom = len(codecs.BOM_UTF8) if start == 0 and raw.startswith(codecs.BOM_UTF8) else 0
    return raw[bom:], start + bom


def train_dataset(
    corpus: Corpus,
    *,
    held_out: bool,
    host_index: int,
    host_count: int,
    shuffle: bool,
    seed: int,
    epochs: int | None,
    read: Callable[[Unit, float], list[dict[str, Any]]] | None = None,
) -> Any:
    """Return a grain IterDataset for one host of what `read` returns for each unit; by default {"text": document}.

    `read` gets the unit, and the epochs that the units before it make. The units are shuffled and repeated, without end
    if `epochs` is None; a host has every host_count-th. The stream of a host depends only on the arguments. Its
    iterator's state is the position in the list of units and in the current unit.
    """
    import grain.python as grain

    units = corpus.held_out if held_out else corpus.train
    read = read or reader(corpus)
    dataset = grain.MapDataset.source(units)
    if shuffle:
        dataset = dataset.shuffle(seed=seed)
    dataset = dataset.repeat(epochs)[host_index::host_count]
    dataset = dataset.map_with_index(lambda index, unit: (unit, index * host_count / len(units)))
    # No read-ahead threads: reading text is far faster than tokenizing and training on it. The hub is slower.
    threads = _READERS if any(hub.is_hub(unit.path) for unit in units) else 0
    if threads:
        dataset = dataset.map(lambda element: (_fetched(element[0], corpus.field), element[1]))
    stream = dataset.to_iter_dataset(grain.ReadOptions(num_threads=threads, prefetch_buffer_size=threads))
    return grain.experimental.FlatMapIterDataset(stream, _transform(read))


def reader(corpus: Corpus) -> Callable[[Unit, float], list[dict[str, Any]]]:
    """Return the function that reads the documents of a unit as {"text": document}."""
    return lambda unit, _: [{"text": text} for text in documents(unit, corpus.field)]


def _fetched(unit: Unit, field: str) -> Unit:
    """Return the unit. If it is on the hub, its bytes are kept for the next who reads it."""
    if not hub.is_hub(unit.path):
        return unit
    if unit.row_group >= 0:
        _parquet_group(unit.path, unit.row_group, field)
    else:
        _read(unit)
    return unit


class _Kept:
    """Keeps what was read last: up to `most` bytes, and at least two entries."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._entries: dict[Any, tuple[Any, int]] = {}
        self._lock = Lock()

    def get(self, key: Any, load: Callable[[], Any]) -> Any:
        with self._lock:
            if found := self._entries.pop(key, None):
                self._entries[key] = found
                return found[0]
        value = load()
        with self._lock:
            self._entries[key] = (value, value.nbytes if hasattr(value, "nbytes") else len(value[0]))
            while len(self._entries) > 2 and sum(size for _, size in self._entries.values()) > self._most:
                del self._entries[next(iter(self._entries))]
        return value


_of_hub, _of_disk = _Kept(_KEPT_BYTES), _Kept(0)


def _transform(read: Callable[[Unit, float], list[dict[str, Any]]]) -> Any:
    """Return the grain transform from a unit to its elements. Defined lazily to keep this module's import light."""
    import grain.python as grain

    class Elements(grain.experimental.FlatMapTransform):  # type: ignore[misc]
        max_fan_out = 1 << 20

        def flat_map(self, element: tuple[Unit, float]) -> list[dict[str, Any]]:
            return read(*element)

    return Elements()


def _standard_library(name: str) -> list[str]:
    """List the Python standard library's own sources, with their docstrings: text that every machine has."""
    if name != "python":
        raise ConfigError(f'data.corpus: unknown corpus "{name}"; the only corpus on every machine is "python".')
    root = Path(sysconfig.get_path("stdlib"))
    found = sorted(
        str(path)
        for path in root.rglob("*.py")
        # Installed packages in its folder are not part of the library. Its tests contain intentionally invalid files.
        if not {"site-packages", "dist-packages", "test", "tests", "idle_test", "lib2to3"} & set(path.parts)
    )
    return [path for path in found if _usable(Path(path))]


def _usable(path: Path) -> bool:
    """Return whether a standard library file exists, is not empty, and is UTF-8 (Python allows other encodings)."""
    try:
        return bool(path.read_bytes().decode("utf-8").strip())
    except (OSError, UnicodeDecodeError):
        return False


def _ending(path: str) -> str:
    return Path(path).suffix.lower()


def _open(path: str, ahead: int = _MAX_UNIT) -> AbstractContextManager[BinaryIO]:
    """Open a file. One of the hub is read by requests that return `ahead` bytes more than a read."""
    return hub.opened(path, ahead) if hub.is_hub(path) else Path(path).open("rb")


def _parquet_source(path: str) -> AbstractContextManager[Any]:
    return hub.opened(path) if hub.is_hub(path) else nullcontext(path)


def _bytes_of(path: str) -> int:
    return hub.size(path) if hub.is_hub(path) else Path(path).stat().st_size


def _expand(entries: Sequence[str], left: Counter[str], pins: hub.Pins, *, key: str) -> list[str]:
    """Expand files, folders (all files below, of the known kinds), globs and data sets to sorted unique absolute paths.

    Count in `left` the other files of folders, by kind. Data sets of the hub are resolved once, into `pins`.
    """
    found: dict[str, None] = {}
    for entry in entries:
        if hub.is_hub(entry):
            found |= dict.fromkeys(hub.expand(entry, pins, key))
            continue
        path = Path(entry).expanduser()
        if any(character in entry for character in "*?[") and not path.exists():
            anchor = Path(path.anchor or ".")
            files = sorted(str(match) for match in anchor.glob(str(path.relative_to(anchor))) if match.is_file())
            if not files:
                raise ConfigError(f'{key}: no file matches "{entry}"; check the pattern and the working directory.')
        elif _is_dir(path, key):
            files = _files_below(path, left, key)
        else:
            files = [str(path)]
        for name in files:
            _require_known_file(name, key)
            found[str(Path(name).absolute())] = None
    return sorted(found)


def _is_dir(path: Path, key: str) -> bool:
    try:
        if not path.exists():
            raise ConfigError(
                f"{key}: {path} does not exist; check the path (a relative path starts at the folder where you submit)."
            )
        return path.is_dir()
    except OSError as error:
        _raise_passing(error)
        raise ConfigError(f"{key}: cannot read {path}: {error.strerror}.") from error


def _files_below(folder: Path, left: Counter[str], key: str) -> list[str]:
    def refuse(error: OSError) -> None:
        _raise_passing(error)
        raise ConfigError(f"{key}: cannot read the folder {error.filename}: {error.strerror}.") from error

    found = []
    others: Counter[str] = Counter()
    for parent, folders, names in folder.walk(on_error=refuse):
        folders[:] = [name for name in folders if not name.startswith(".")]
        for name in names:
            if name.startswith("."):
                others["hidden"] += 1
            elif (ending := _ending(name)) not in SUFFIXES:
                others[_LINK if (parent / name).is_dir() else ending] += 1
            elif _is_empty(parent / name):
                others["empty"] += 1
            else:
                found.append(str(parent / name))
    left += others
    if not found:
        raise ConfigError(
            f"{key}: the folder {folder} has no {', '.join(SUFFIXES[:-1])} or {SUFFIXES[-1]} file with text. "
            f"{_left_out(others, 0)}".rstrip()
        )
    return sorted(found)


def _is_empty(path: Path) -> bool:
    """Return whether a file has no bytes; False if that is not known: an error names the file later."""
    try:
        if path.stat().st_size:
            return False
        return not _first_bytes(path, 1)  # files of the kernel have content and no size
    except OSError as error:
        _raise_passing(error)
        return False


def _first_bytes(path: Path, count: int) -> bytes | None:
    """Return up to `count` bytes; None or b"" if there is none now, as in a pipe, which would wait for its writer."""
    with open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK)) as file:
        return file.read(count)


def _left_out(left: Counter[str], read: int) -> str:
    """Return a sentence such as "2 files are read; 10 .gz files are left out."; "" if none is left out."""
    if not left:
        return ""
    kinds = [
        _counted(count, kind) for kind, count in sorted(left.items(), key=lambda item: (-item[1], item[0]))[:_LISTED]
    ]
    if more := sum(left.values()) - sum(count for _, count in left.most_common(_LISTED)):
        kinds.append(f"{more:,} others")
    those = f"{', '.join(kinds)} {'is' if left.total() == 1 else 'are'} left out."
    return f"{read:,} {_file(read)} {'is' if read == 1 else 'are'} read; {those}" if read else those


def _counted(count: int, kind: str) -> str:
    if kind == _LINK:
        return f"{count:,} {kind}{'s' if count > 1 else ''}"
    return f"{count:,} {kind} {_file(count)}" if kind else f"{count:,} {_file(count)} without an ending"


def _file(count: int) -> str:
    return "file" if count == 1 else "files"


def _require_known_file(name: str, key: str) -> None:
    if (ending := _ending(name)) not in SUFFIXES:
        how = " It is compressed; decompress it." if ending in _COMPRESSED else ""
        raise ConfigError(f"{key}: {name} is not a {', '.join(SUFFIXES[:-1])} or {SUFFIXES[-1]} file.{how}")
    try:
        start = _first_bytes(Path(name), len(_LFS))
    except OSError as error:
        _raise_passing(error)
        raise ConfigError(f"{key}: cannot read {name}: {error.strerror}.") from error
    if not start:
        raise ConfigError(f"{key}: {name} is empty; remove it from {key} or fill it.")
    if start == _LFS:
        raise ConfigError(
            f"{key}: {name} is a pointer of Git LFS, not the file itself; run git lfs pull in its repository."
        )


def _raise_passing(error: Exception) -> None:
    """Raise the error again if a restart may help."""
    if isinstance(error, OSError) and error.errno in PASSING:
        raise error


def _cut(files: Sequence[str], least: int = 0) -> list[Unit]:
    """Cut files into units of the usual size, or into smaller ones so that there are at least `least`, if possible."""
    text = [path for path in files if _ending(path) != ".parquet"]
    parquet = [path for path in files if _ending(path) == ".parquet"]
    sizes = {path: _bytes_of(path) for path in text}
    total = sum(sizes.values())
    floor = min(_USUAL_UNIT, max(_MIN_UNIT, total // 64))
    length = min(_MAX_UNIT, max(floor, total // 65536))
    if least:
        length = max(_MIN_UNIT, min(length, total // least))
    units: list[Unit] = []
    with ThreadPoolExecutor(_CONNECTIONS) as pool:
        groups = dict(zip(parquet, pool.map(_row_groups, parquet), strict=True))
    for path in files:
        if _ending(path) == ".parquet":
            units.extend(_parquet_units(path, groups[path], len(files), max(64, least)))
        else:
            # Each unit of the hub is a request.
            own = max(length, min(_MAX_UNIT, total // 64)) if hub.is_hub(path) and not least else length
            units.extend(Unit(path, at, min(at + own, sizes[path])) for at in range(0, sizes[path], own))
    return units


def _cut_finely(files: Sequence[str], least: int, field: str) -> list[Unit]:
    """Cut files into at least `least` units if possible, and leave out those without text.

    A unit inside a long line has no text of its own: a host that has no other unit would search for text forever.
    """
    return [unit for unit in _cut(files, least) if any(text.strip() for text in documents(unit, field))]


def _one_per_host(files: Sequence[str], hosts: int, field: str, key: str) -> list[Unit]:
    units = _cut(files)
    if len(units) >= hosts:
        return units
    units = _cut_finely(files, hosts, field)
    if len(units) < hosts:
        raise ConfigError(
            f"{key}: the text in {_size(files)} has {_pieces(len(units))} of at least {_MIN_UNIT:,} bytes, but each of "
            f"the {hosts} hosts needs one; add text, or lower slice.hosts."
        )
    return units


def _split(files: Sequence[str], fraction: float, hosts: int, field: str, key: str) -> tuple[list[Unit], list[Unit]]:
    """Hold out every n-th unit, at least one per host, so that the held-out part is spread over the whole corpus.

    A corpus that has too few units for that is cut into smaller ones. If the lines of JSON are so long that a host
    would get no line, only the units in which a line starts count. The units of any other corpus must stay the same in
    all versions: a run that resumes has its position in the list of units.
    """
    if fraction <= 0:
        return _one_per_host(files, hosts, field, key), []
    units = _cut(files)
    stride = max(2, min(round(1 / fraction), len(units)))
    held_out, train = units[stride - 1 :: stride], [u for at, u in enumerate(units) if at % stride != stride - 1]
    if all(_each_host_has_text(part, hosts, field) for part in (held_out, train)):
        return train, held_out
    wanted = max(2, round(1 / fraction))
    units = _cut_finely(files, hosts * wanted, field)
    if not units:
        raise ConfigError(f"{key}: {_size(files)} contains no text; add files with text, or set data.field.")
    if len(units) < 2 * hosts:
        needs = (
            f"{hosts} hosts need {2 * hosts}, one to train on and one held out for each" if hosts > 1 else "needs two"
        )
        fewer = ", lower slice.hosts" if hosts > 1 else ""
        raise ConfigError(
            f"{key}: the text in {_size(files)} is too short to hold out a part of it for evaluation: it has "
            f"{_pieces(len(units))} of at least {_MIN_UNIT:,} bytes, and {needs}; add text{fewer}, or set "
            "data.heldOut.fraction: 0."
        )
    stride = min(wanted, len(units) // hosts)
    return [u for at, u in enumerate(units) if at % stride != stride - 1], units[stride - 1 :: stride]


def _each_host_has_text(units: Sequence[Unit], hosts: int, field: str) -> bool:
    """Return whether each host gets a unit with text. Reads only .jsonl files, whose long lines leave units empty."""

    def has_text(unit: Unit) -> bool:
        return _ending(unit.path) != ".jsonl" or any(text.strip() for text in documents(unit, field))

    return all(any(map(has_text, units[host::hosts])) for host in range(hosts))


def _pieces(count: int) -> str:
    return f"{count} piece{'s' if count != 1 else ''}"


def _size(files: Sequence[str]) -> str:
    """Return the files and their size in words: "notes.txt (1,234 bytes)"."""
    total = sum(map(_bytes_of, files))
    return f"{files[0] if len(files) == 1 else f'{len(files):,} files'} ({total:,} bytes)"


def _read_range(file: BinaryIO, unit: Unit, *, lines_only: bool) -> tuple[bytes, int]:
    """Return the bytes of the unit with both ends moved to a boundary, and their start offset.

    Both neighbors of a cut compute the same boundary from the file alone, so nothing is read twice or
    left out. A boundary is the first place at or after the cut that follows a newline. In text without
    a newline nearby, it is the next character.
    """
    start = _boundary(file, unit.start, lines_only=lines_only)
    stop = _boundary(file, unit.stop, lines_only=lines_only)
    file.seek(start)
    return file.read(max(0, stop - start)), start


def _boundary(file: BinaryIO, cut: int, *, lines_only: bool) -> int:
    if cut == 0:
        return 0
    file.seek(cut - 1)
    before = cut - 1
    while chunk := file.read(_NEWLINE_WINDOW):
        newline = chunk.find(b"\n")
        if newline >= 0:
            return before + newline + 1
        if not lines_only:
            # UTF-8 continuation bytes are 0b10xxxxxx; a character has at most three of them.
            tail = chunk[1:5]
            return cut + next((i for i, byte in enumerate(tail) if byte & 0xC0 != 0x80), len(tail))
        before += len(chunk)
    return before if lines_only else cut


def _decode(raw: bytes, start: int, path: str) -> str:
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ConfigError(
            f"{path} is not UTF-8 text: byte {raw[error.start]:#04x} at offset {start + error.start}; convert the file."
        ) from error


def _lines(unit: Unit) -> Iterator[tuple[str, int]]:
    """Yield the lines that are not empty, with their offsets."""
    raw, at = _read(unit)
    for line in raw.splitlines(keepends=True):
        text = _decode(line, at, unit.path).strip(_PADDING).strip()
        if text:
            yield text, at
        at += len(line)


def _json_object(line: str, at: int, path: str, example: str) -> dict[str, Any]:
    try:
        row = json.loads(line)
    except json.JSONDecodeError as error:
        if "\0" in line:  # UTF-16 of ASCII is valid UTF-8
            raise ConfigError(
                f"{path}: line {_line_number(path, at)} contains NUL bytes; convert the file to UTF-8."
            ) from error
        raise ConfigError(f"{path}: line {_line_number(path, at)} is not valid JSON ({error.msg}).") from error
    except (ValueError, RecursionError) as error:
        deep = isinstance(error, RecursionError)
        what = "lists or objects that are nested too deeply" if deep else "a number of thousands of digits"
        raise ConfigError(f"{path}: line {_line_number(path, at)} contains {what}; remove the line.") from error
    if not isinstance(row, dict):
        raise ConfigError(f"{path}: line {_line_number(path, at)} is not a JSON object; write each line as {example}.")
    return row


def _what_to_set(columns: Collection[str]) -> str:
    """Return the keys that rows with these columns need: conversations and pairs have no text of their own."""
    if {"chosen", "rejected"} <= {*columns}:
        return "set data.field, or for pairs tuning.method: dpo"
    forms = ({"messages"}, {"prompt", "completion"}, {"instruction", "output"})
    if any(form <= {*columns} for form in forms):
        return "set data.field, or for conversations tuning.method: sft"
    return "set data.field"


def _field_of(line: str, at: int, path: str, field: str) -> str | None:
    """Return the text of a line; None if it is null, as a row of Parquet without text."""
    row = _json_object(line, at, path, f'{{"{field}": "..."}}')
    if field not in row:
        have = ", ".join(sorted(row)[:20])
        raise ConfigError(
            f'{path}: line {_line_number(path, at)} has no field "{field}" (it has {have}); {_what_to_set(row)}.'
        )
    text = row[field]
    if text is None:
        return None
    if not isinstance(text, str):
        raise ConfigError(
            f'{path}: line {_line_number(path, at)}: the field "{field}" is {_JSON_TYPES[type(text)]}, not text; '
            f"{_what_to_set(row)}."
        )
    # JSON can have half of a surrogate pair, as from a text that was cut in the middle of an emoji. No tokenizer
    # accepts it.
    return _SURROGATE.sub("\ufffd", _without_nul(text))


def _seems_utf16(raw: bytes) -> bool:
    """Return whether the first NULs are all even bytes or all odd ones: the high bytes of ASCII characters."""
    places = [found.start() % 2 for found in itertools.islice(re.finditer(rb"\0", raw), 64)]
    return len(places) >= 16 and len(set(places)) == 1


def _without_nul(text: str) -> str:
    """Return the text without NUL characters: a file that lost its content in a crash can be full of them."""
    return text.replace("\0", "")


_JSON_TYPES = {list: "a list", dict: "an object", int: "a number", float: "a number", bool: "true or false"}


def _line_number(path: str, at: int) -> int:
    with _open(path) as file:
        lines, left = 1, at
        while chunk := file.read(min(left, _MAX_UNIT)):
            lines, left = lines + chunk.count(b"\n"), left - len(chunk)
    return lines


def _parquet_units(path: str, groups: Sequence[int], files: int, least: int) -> list[Unit]:
    if not sum(groups):
        raise ConfigError(f"{path} has no rows; remove the file, or fill it.")
    # A row group is decoded as a whole. It is cut into runs of rows only if a small corpus would
    # otherwise have too few units to split.
    pieces = max(1, least // max(1, files * len(groups)))
    units: list[Unit] = []
    for index, rows in enumerate(groups):
        length = max(1, -(-rows // pieces))
        units.extend(Unit(path, at, min(at + length, rows), index) for at in range(0, rows, length))
    return units


def _row_groups(path: str) -> list[int]:
    """Return the number of rows of each row group."""
    return _row_groups_of_hub(path) if hub.is_hub(path) else _read_footer(path)


@functools.cache
def _row_groups_of_hub(path: str) -> list[int]:
    return _read_footer(path)


def _read_footer(path: str) -> list[int]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with _parquet_source(path) as source:
            metadata = pq.read_metadata(source)
    except (OSError, pa.ArrowException) as error:
        _raise_passing(error)
        raise ConfigError(f"{path} is not a Parquet file: {str(error).splitlines()[0]}") from error
    return [metadata.row_group(index).num_rows for index in range(metadata.num_row_groups)]


def _parquet_rows(unit: Unit, field: str) -> Iterator[str]:
    column = _parquet_group(unit.path, unit.row_group, field).column(0)
    for row in range(unit.start, unit.stop):
        try:
            text = column[row].as_py()
            text = text.decode() if isinstance(text, bytes) else text
        except UnicodeDecodeError as error:
            raise ConfigError(
                f"{unit.path}: row {row} of row group {unit.row_group} is not UTF-8 text; convert the file."
            ) from error
        if text is not None:
            yield _without_nul(text)


def _parquet_objects(unit: Unit) -> list[dict[str, Any]]:
    """Return the rows of a unit, with all columns."""
    table = _parquet_group(unit.path, unit.row_group, ROWS)
    try:
        return cast(list[dict[str, Any]], table.slice(unit.start, unit.stop - unit.start).to_pylist())
    except UnicodeDecodeError as error:
        raise ConfigError(f"Cannot read {unit.path}: {str(error).splitlines()[0]}") from error


def _parquet_group(path: str, row_group: int, field: str) -> pa.Table:
    """Return a row group: the column of a field, or all columns (ROWS)."""
    kept = _of_hub if hub.is_hub(path) else _of_disk
    return kept.get((path, row_group, field), lambda: _read_parquet(path, row_group, field))


def _read_parquet(path: str, row_group: int, field: str) -> pa.Table:
    import pyarrow as pa
    import pyarrow.parquet as pq
    from pyarrow import types

    try:
        with _parquet_source(path) as source, pq.ParquetFile(source) as file:
            if field == ROWS:
                return file.read_row_group(row_group)
            if (found := file.schema_arrow.names.count(field)) != 1:
                have = "two columns" if found else "no column"
                names = ", ".join(file.schema_arrow.names)
                todo = _what_to_set(file.schema_arrow.names)
                raise ConfigError(f'{path} has {have} "{field}" (it has {names}); {todo}.')
            kind = file.schema_arrow.field(field).type
            text = kind.value_type if pa.types.is_dictionary(kind) else kind
            strings = (types.is_string, types.is_large_string, types.is_string_view)
            # Impala and old versions of Spark write text without its type.
            binary = (types.is_binary, types.is_large_binary, types.is_binary_view)
            if not any(is_text(text) for is_text in (*strings, *binary)):
                todo = _what_to_set(file.schema_arrow.names)
                raise ConfigError(f'{path}: the column "{field}" has the type {kind}, not text; {todo}.')
            return file.read_row_group(row_group, columns=[field])
    except (OSError, pa.ArrowException) as error:
        _raise_passing(error)
        raise ConfigError(f"Cannot read {path}: {str(error).splitlines()[0]}") from error
