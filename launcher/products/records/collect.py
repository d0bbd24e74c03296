"""Write the records of a cluster's runs to a folder or a bucket: what `launcher record` does."""

from __future__ import annotations

import json
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote

from launcher.backends.kubernetes import reader as run_reader
from launcher.backends.kubernetes.states import ObservedRun
from launcher.errors import LauncherError
from launcher.k8s.client import EVENT, Cluster
from launcher.products.common.storage import BUCKET_FOLDER, is_url, read_bucket, write_file
from launcher.products.records import cluster, form, notify, reader
from launcher.products.records.form import CLUSTER, TRAINER_FILE, Record

_OBJECTS = "involvedObject.kind=Workload"


@dataclass
class Collected:
    """The result of one pass: the names of the runs whose records were written, and a sentence for each problem.

    `unchanged` counts the records that were already complete.
    """

    folder: str
    written: list[str] = field(default_factory=list)
    notified: list[str] = field(default_factory=list)
    unchanged: int = 0
    problems: list[str] = field(default_factory=list)

    def as_json(self) -> dict[str, Any]:
        return vars(self)


def collect(
    clusters: Sequence[Cluster],
    folder: str,
    *,
    all_namespaces: bool,
    prices: Mapping[str, Any],
    storage: Path | None = None,
    secret: str = "",
    now: Callable[[], float] = time.time,
) -> Collected:
    """Write a record of each run in the namespaces of `clusters` to `folder`, merged with what is known of it.

    `prices` is the table `common.prices`. `storage` is where the storage of the runs is mounted here; a gs:// folder of
    a run is read by itself. With `secret`, the name of Secrets with addresses, it notifies of the end of runs whose
    trainer did not. Raises LauncherError if the records cannot be read or written.
    """
    done = Collected(folder)
    known, done.problems = _known(folder)
    damaged = list(done.problems)
    for each in clusters:
        try:
            listing = run_reader.all_seen(each, all_namespaces=all_namespaces)
        except LauncherError as error:
            done.problems.append(f"The runs of the namespace {each.namespace} are not recorded: {error.message}")
            continue
        events = _events(each, all_namespaces, done.problems)
        due: defaultdict[str, list[Mapping[str, Any]]] = defaultdict(list)
        for seen in listing.runs:
            uids = {seen.run.uid, seen.workload.uid if seen.workload is not None else ""}
            of_run = [event for uid in uids for event in events.get(uid, ())]
            record = _record(seen, of_run, known.pop(seen.run.uid, None), done, prices, storage, now())
            if record is None:
                continue
            if secret and notify.is_due(record, storage, now()):
                # The mark is written first: a notification is lost rather than sent twice.
                record = {**record, "notified": [*record["notified"], notify.ENDED]}
                due[record["namespace"]].append(notify.message(record))
            _write(record, done, now())
        for namespace, messages in due.items():
            text, problem = notify.addresses(each, namespace, secret)
            done.problems += [*([problem] if problem else []), *notify.send(text, messages)]
            done.notified += [f"{namespace}/{message['run']}" for message in messages]
        spaces = None if all_namespaces else {each.namespace}
        gone = [record for record in known.values() if spaces is None or record.get("namespace") in spaces]
        for record in gone:
            known.pop(record["uid"])
            if not form.ended(record) and CLUSTER in record.get("sources", ()):
                _write(cluster.deleted(record), done, now())
            else:
                done.unchanged += 1
    done.problems = list(dict.fromkeys([*damaged, *done.problems]))
    return done


def _known(folder: str) -> tuple[dict[str, Record], list[str]]:
    """Return the records of earlier passes, by uid, and a sentence for each that cannot be used."""
    if not is_url(folder):
        Path(folder).expanduser().mkdir(parents=True, exist_ok=True)
    earlier = reader.read(folder)
    return {record["uid"]: record for record in earlier.records if record["uid"]}, earlier.problems


def _events(each: Cluster, everywhere: bool, problems: list[str]) -> Mapping[str, list[Mapping[str, Any]]]:
    """Return the Events of Workloads, by the uid of the Workload; {} if they may not be read, which is a problem."""
    by_uid: defaultdict[str, list[Mapping[str, Any]]] = defaultdict(list)
    try:
        for event in each.list(EVENT, fields=_OBJECTS, all_namespaces=everywhere):
            by_uid[(event.get("involvedObject") or {}).get("uid") or ""].append(event)
    except LauncherError as error:
        problems.append(f"Earlier admissions are not recorded, because Events cannot be read: {error.message}")
    return by_uid


def _record(
    seen: ObservedRun,
    events: Iterable[Mapping[str, Any]],
    earlier: Record | None,
    done: Collected,
    prices: Mapping[str, Any],
    storage: Path | None,
    now: float,
) -> Record | None:
    """Return the record of a run, None if an earlier pass has completed it."""
    if earlier is not None and form.ended(earlier) and earlier["times"].get("ended"):
        done.unchanged += 1  # complete: the pass after the end has read the trainer's record, too
        return None
    record = cluster.record_of(seen, events, now)
    if earlier is not None:
        record = form.merge(earlier, record)
    if record["times"].get("admitted") or not record["queue"]:
        trainer, problem = trainer_record(record, storage)
        if problem:
            done.problems.append(problem)
        if trainer is not None and form.same_run(record, trainer):
            record = form.merge(record, trainer)
    return {**form.with_price(record, prices), "written": form.timestamp(now)}


def trainer_record(record: Record, storage: Path | None) -> tuple[Record | None, str]:
    """Return the trainer's record of a run, None if it is not known; and why it cannot be read, "" if it can."""
    folder = str(record.get("folder") or "")
    try:
        if BUCKET_FOLDER.fullmatch(folder):
            data = read_bucket(folder, [TRAINER_FILE]).get(TRAINER_FILE)
        elif storage is not None and record["name"] == Path(record["name"]).name:
            path = storage / record["name"] / TRAINER_FILE
            data = path.read_bytes() if path.is_file() else None
        else:
            return None, ""
        return (None if data is None else form.parse(data, f"{folder}/{TRAINER_FILE}")), ""
    except LauncherError as error:
        return None, f"{record['namespace']}/{record['name']}: its trainer's record is left out. {error.message}"
    except OSError as error:
        return None, f"{record['namespace']}/{record['name']}: {TRAINER_FILE} cannot be read: {error.strerror}."


def _write(record: Record, done: Collected, now: float) -> None:
    record = {**record, "written": form.timestamp(now)}
    name = f"{quote(record['namespace'], safe='') or 'none'}/{_file(record)}"
    write(done.folder, name, record)
    done.written.append(f"{record['namespace']}/{record['name']}")


def _file(record: Record) -> str:
    return f"{quote(record['name'], safe='')}.{quote(record['uid'], safe='')}{form.SUFFIX}"


def write(folder: str, name: str, record: Record) -> None:
    """Write a record atomically below a folder or the URL of a bucket. Raises LauncherError."""
    text = (json.dumps(record, indent=1) + "\n").encode()
    if is_url(folder):
        write_file(folder, name, text)
        return
    path = Path(folder).expanduser() / name
    draft = path.with_name(f".{path.name}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        draft.write_bytes(text)
        draft.replace(path)
    except OSError as error:
        raise LauncherError(f"{path} cannot be written: {error.strerror}.") from error
