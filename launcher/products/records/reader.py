"""Read the records below a folder or a URL of a bucket: one record for each run."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from launcher.errors import LauncherError
from launcher.products.common.storage import is_url, list_bucket, read_bucket
from launcher.products.records import form
from launcher.products.records.form import Record

_LEVELS = 3
"""A record is at most this many folders below the given one: NAMESPACE/FILE, or RUN/run.record.json."""
_LARGEST = 4 << 20


@dataclass(frozen=True)
class Records:
    """The records, oldest first, and a sentence for each file that is left out."""

    records: list[Record]
    problems: list[str] = field(default_factory=list)


def read(folder: str | Path) -> Records:
    """Return the records below a folder of this machine, or of a bucket by its URL; two of one run are one.

    Records of runs that were never submitted again have one file in the folder of records and one in the run's folder.
    Raises LauncherError if the folder cannot be read.
    """
    files, problems = contents(folder)
    records: list[Record] = []
    for name, data in sorted(files.items()):
        try:
            records.append(form.parse(data, name))
        except LauncherError as error:
            problems.append(error.message)
    return Records(merged(records), problems)


def contents(folder: str | Path) -> tuple[Mapping[str, bytes], list[str]]:
    """Return the contents of the files of records, and a sentence for each that cannot be read."""
    problems: list[str] = []
    if is_url(str(folder)):
        url = str(folder).rstrip("/")
        sizes = {name: size for name, size in list_bucket(url).items() if _is_record(name)}
        problems = [_too_large(f"{url}/{name}") for name, size in sizes.items() if size > _LARGEST]
        names = [name for name, size in sizes.items() if size <= _LARGEST]
        files = read_bucket(url, names) if names else {}
        return {f"{url}/{name}": data for name, data in files.items()}, problems
    root, files = Path(folder).expanduser(), {}
    if not root.is_dir():
        raise LauncherError(f"There is no folder {root}.", "Give the folder that launcher record writes to.")
    paths = [path for depth in range(_LEVELS) for path in root.glob(f"{'*/' * depth}*{form.SUFFIX}")]
    for path in paths:
        try:
            if path.stat().st_size > _LARGEST:
                problems.append(_too_large(str(path)))
            else:
                files[str(path)] = path.read_bytes()
        except OSError as error:
            problems.append(f"{path} cannot be read: {error.strerror}.")
    return files, problems


def _is_record(name: str) -> bool:
    return name.endswith(form.SUFFIX) and name.count("/") < _LEVELS


def _too_large(name: str) -> str:
    return f"{name} is not a record: it is larger than {_LARGEST >> 20} MiB."


def merged(records: list[Record]) -> list[Record]:
    """Return one record for each run, oldest first."""
    by_uid: dict[str, Record] = {}
    without: list[Record] = []
    for record in records:
        if record["uid"]:
            known = by_uid.get(record["uid"])
            by_uid[record["uid"]] = form.merge(known, record) if known else record
        else:
            without.append(record)
    by_name: defaultdict[str, list[str]] = defaultdict(list)
    for uid, record in by_uid.items():
        by_name[record["name"]].append(uid)
    alone: list[Record] = []
    for record in without:
        owners = [uid for uid in by_name[record["name"]] if form.same_run(by_uid[uid], record)]
        for uid in owners:
            by_uid[uid] = form.merge(by_uid[uid], record)
        twin = next((number for number, other in enumerate(alone) if form.same_run(other, record)), None)
        if owners:
            continue
        if twin is None:
            alone.append(record)
        else:
            alone[twin] = form.merge(alone[twin], record)
    return sorted([*by_uid.values(), *alone], key=lambda record: (_begin(record), record["name"], record["uid"]))


def _begin(record: Record) -> str:
    times = record["times"]
    return str(times.get("submitted") or times.get("started") or record["written"])
