"""A corpus: the units of the training part and of the held-out part of a run's data."""

from __future__ import annotations

import dataclasses
import hashlib
import os
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from trainer import hub
from trainer.data import listing, parquet
from trainer.data.reading import documents
from trainer.data.units import MAX_UNIT, MIN_UNIT, ROWS, Unit, bytes_of, suffix
from trainer.errors import ConfigError

_USUAL_UNIT = 64 << 10
# Up to this size, every byte of a corpus is decoded before the run starts (about a second). For a larger corpus,
# only the first and last unit of every file are decoded.
_CHECK_WHOLE = 1 << 30
# The first units of data sets of the hub that are decoded before the run starts: each is a request or more.
_CHECK_REMOTE = 4
_CONNECTIONS = 16


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
    files = listing.standard_library(str(corpus)) if corpus else listing.expand(data["files"], left, pins, key=key)
    if held_out.get("files"):
        eval_files = listing.expand(held_out["files"], left, pins, key="data.heldOut.files")
        shared = sorted(set(map(listing.real, files)) & set(map(listing.real, eval_files)))
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
    sizes = [bytes_of(path) for path in every]
    digest = hashlib.sha256()
    for path, size in zip(every, sizes, strict=True):
        digest.update(os.fsencode(path) + f"\0{size}\n".encode())
    left_out = listing.left_out_of(left, len(every))
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
    paths = set(map(listing.real, {unit.path for unit in (*corpus.train, *corpus.held_out)}))
    if shared := sorted(paths & key_of.keys()):
        raise ConfigError(
            f"{shared[0]} is in both {key_of[shared[0]]} and {key}; remove it from one of them: a part of it could be "
            "held out in one, and trained on in the other."
        )
    key_of.update(dict.fromkeys(paths, key))


def check_corpus(corpus: Corpus, read: Callable[[Unit], Iterable[str]] | None = None) -> None:
    """Decode the text: all of it up to 1 GiB, otherwise the first and last unit of every file; little of the hub's.

    `read` returns the texts of a unit; by default its documents. Raises ConfigError with the file and the place of the
    first input that is not text or has no text in its field, and if there is no text at all.
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


def _cut(files: Sequence[str], least: int = 0) -> list[Unit]:
    """Cut files into units of the usual size, or into smaller ones so that there are at least `least`, if possible."""
    texts = [path for path in files if suffix(path) != ".parquet"]
    tables = [path for path in files if suffix(path) == ".parquet"]
    sizes = {path: bytes_of(path) for path in texts}
    total = sum(sizes.values())
    floor = min(_USUAL_UNIT, max(MIN_UNIT, total // 64))
    length = min(MAX_UNIT, max(floor, total // 65536))
    if least:
        length = max(MIN_UNIT, min(length, total // least))
    units: list[Unit] = []
    with ThreadPoolExecutor(_CONNECTIONS) as pool:
        groups = dict(zip(tables, pool.map(parquet.row_groups, tables), strict=True))
    for path in files:
        if suffix(path) == ".parquet":
            units.extend(parquet.units(path, groups[path], len(files), max(64, least)))
        else:
            # Each unit of the hub is a request.
            own = max(length, min(MAX_UNIT, total // 64)) if hub.is_hub(path) and not least else length
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
            f"{key}: the text in {_size(files)} has {_pieces(len(units))} of at least {MIN_UNIT:,} bytes, but each of "
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
            f"{_pieces(len(units))} of at least {MIN_UNIT:,} bytes, and {needs}; add text{fewer}, or set "
            "data.heldOut.fraction: 0."
        )
    stride = min(wanted, len(units) // hosts)
    return [u for at, u in enumerate(units) if at % stride != stride - 1], units[stride - 1 :: stride]


def _each_host_has_text(units: Sequence[Unit], hosts: int, field: str) -> bool:
    """Return whether each host gets a unit with text. Reads only .jsonl files, whose long lines leave units empty, and
    small .parquet files, whose rows may be null."""
    tables = {unit.path for unit in units if suffix(unit.path) == ".parquet" and not hub.is_hub(unit.path)}
    read = tables if sum(map(bytes_of, tables)) <= _CHECK_WHOLE else set()

    def has_text(unit: Unit) -> bool:
        skipped = suffix(unit.path) != ".jsonl" and unit.path not in read
        return skipped or any(text.strip() for text in documents(unit, field))

    return all(any(map(has_text, units[host::hosts])) for host in range(hosts))


def _pieces(count: int) -> str:
    return f"{count} piece{'s' if count != 1 else ''}"


def _size(files: Sequence[str]) -> str:
    """Return the files and their size in words: "notes.txt (1,234 bytes)"."""
    total = sum(map(bytes_of, files))
    return f"{files[0] if len(files) == 1 else f'{len(files):,} files'} ({total:,} bytes)"
