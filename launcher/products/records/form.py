"""The form of a record: read one, merge two of the same run, and the totals. docs/reference/record.md has its keys.

The trainer writes TRAINER_FILE in a run's folder, and `launcher record` files that end with SUFFIX. Pure.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from launcher.backends.base import State
from launcher.config.checks.schema import violations
from launcher.errors import LauncherError
from launcher.json_object import is_shallow, json_object
from launcher.products.report.metrics import time_of

VERSION = 1
SUFFIX = ".record.json"
TRAINER_FILE = f"run{SUFFIX}"
"""The record that the trainer writes in the run's folder."""
TRAINER, CLUSTER = "trainer", "cluster"
"""The sources of a record."""
SKEW = 120.0
"""The clocks of a host and of the API server may differ by this many seconds."""

Record = dict[str, Any]

_CLUSTER_KNOWS = ("queue", "flavor", "provisioning", "team", "user", "namespace", "kind", "restarts", "preemptions")
"""The cluster knows these keys better than the trainer."""
_TRAINER_KNOWS = ("steps", "tokens", "seconds", "goodput", "config")


@functools.cache
def schema() -> dict[str, Any]:
    """Return the JSON Schema of a record."""
    tree: dict[str, Any] = json.loads(Path(__file__).with_name("record.schema.json").read_text(encoding="utf-8"))
    return tree


def parse(data: bytes, name: str) -> Record:
    """Return the record in a file. Raises LauncherError, with the file's `name`, if it cannot be used."""
    record = json_object(data)
    if record is None or not is_shallow(record):
        raise LauncherError(f"{name} is damaged: it is not a JSON object.")
    version = record.get("version")
    if isinstance(version, int) and version > VERSION:
        raise LauncherError(f"{name} has version {version}; this Slipway reads version {VERSION}. Upgrade Slipway.")
    wrong = next(violations(schema(), record), None)
    if wrong is not None:
        raise LauncherError(f"{name} is damaged: {'.'.join(wrong.path)} {wrong.says}")
    for key, at in _times(record):
        if at is not None and time_of(at) is None:
            raise LauncherError(f"{name} is damaged: {key} is not a time in RFC 3339.")
    return record


def _times(record: Mapping[str, Any]) -> list[tuple[str, Any]]:
    times = [("written", record["written"]), *((f"times.{key}", at) for key, at in record["times"].items())]
    times += [("held", part[key]) for part in record.get("held") or () for key in ("from", "to")]
    keys = ("started", "first_step", "seen", "ended", "slower_since")
    return [*times, *((f"attempts.{key}", part.get(key)) for part in record.get("attempts") or () for key in keys)]


def timestamp(seconds: float) -> str:
    """Return seconds since 1970 as RFC 3339 in UTC, with milliseconds."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def ended(record: Mapping[str, Any]) -> bool:
    """Return whether the run is over."""
    return State(record["state"]).ended


def same_run(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Return whether two records are of one run.

    They have the same uid. A trainer's record without a uid belongs to the object of that name and folder that existed
    when the trainer first started.
    """
    if one["uid"] and other["uid"]:
        return bool(one["uid"] == other["uid"])
    with_uid, without = (one, other) if one["uid"] else (other, one)
    if one["name"] != other["name"] or not _same_folder(one, other):
        return False
    return not with_uid["uid"] or bool(within(without, with_uid).get("attempts"))


def _same_folder(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    folders = [str(record.get("folder") or "") for record in (one, other)]
    spaces = [str(record.get("namespace") or "") for record in (one, other)]
    return folders[0] == folders[1] and (spaces[0] == spaces[1] or not all(spaces))


def within(trainer: Mapping[str, Any], run: Mapping[str, Any]) -> Record:
    """Return a trainer's record with only the attempts that started while the object of `run` existed.

    A run that is submitted again under its name has a second object, and the same folder.
    """
    begin, end = time_of(run["times"].get("submitted")), time_of(run["times"].get("ended"))
    attempts = trainer.get("attempts") or []
    own = [
        attempt
        for attempt in attempts
        if (begin is None or _seconds(attempt["started"]) >= begin - SKEW)
        and (end is None or _seconds(attempt["started"]) <= end + SKEW)
    ]
    if len(own) == len(attempts):
        return dict(trainer)
    times = {
        **trainer["times"],
        "started": own[0]["started"] if own else None,
        "first_step": next((attempt["first_step"] for attempt in own if attempt.get("first_step")), None),
    }
    last = own[-1] if own else {}
    record = {**trainer, "attempts": own, "times": times}
    if not own or own[-1] is not attempts[-1]:  # its end belongs to another object
        record |= {"state": last.get("end") if last.get("end") in ("succeeded", "failed") else "running", "reason": ""}
        record["times"]["ended"] = last.get("ended")
    tokens, steps = trainer.get("tokens"), trainer.get("steps")
    done = last.get("steps")
    record["tokens"] = int(tokens * done / steps) if tokens and steps and done is not None else None
    return record | {"steps": done} | totals(own, _seconds(record["times"].get("ended") or record["written"]))


def _seconds(text: Any) -> float:
    return time_of(text) or 0.0


def totals(attempts: Sequence[Mapping[str, Any]], end: float) -> Record:
    """Return `seconds` and `goodput` of the attempts up to `end`, as trainer/reporting/record.py calculates them."""
    if not attempts:
        return {"seconds": {}, "goodput": None}
    seconds = dict.fromkeys(("training", "starting", "compiling", "checkpoints", "evaluation", "data"), 0.0)
    seconds |= {"failures": 0.0, "preemptions": 0.0}
    for number, attempt in enumerate(attempts):
        for cause, amount in (attempt.get("seconds") or {}).items():
            if cause in seconds:
                seconds[cause] += amount
        if number + 1 == len(attempts):
            continue
        later, lost = attempts[number + 1], 0.0
        done, begun, resumed = attempt.get("steps"), attempt.get("from_step"), later.get("from_step")
        if done is not None and begun is not None and resumed is not None and done > begun:
            lost = (attempt.get("seconds") or {}).get("training", 0.0) * max(0, done - max(resumed, begun))
            lost /= done - begun
        gap = _seconds(later["started"]) - _seconds(attempt.get("ended") or attempt.get("seen") or attempt["started"])
        cause = "preemptions" if attempt.get("end") in ("preempted", "stopped") else "failures"
        seconds["training"] -= lost
        seconds[cause] += lost + max(0.0, gap)
    known = sum(seconds.values())
    total = max(known, end - _seconds(attempts[0]["started"]))
    seconds = {"total": total, **seconds, "other": total - known}
    ratio = round(min(1.0, max(0.0, seconds["training"] / total)), 6) if total else 0.0
    return {"seconds": {cause: round(max(0.0, amount), 3) for cause, amount in seconds.items()}, "goodput": ratio}


def merge(one: Record, other: Record) -> Record:
    """Return one record of two of the same run. The order of the two does not matter.

    A key has the value of the record that was written later, unless it is empty there. The cluster decides about the
    queue and the state, the trainer about steps, tokens and seconds. Lists of times and attempts are joined. An ended
    state stays.
    """
    if one["uid"] and not other["uid"]:
        other = within(other, one)
    elif other["uid"] and not one["uid"]:
        one = within(one, other)
    early, late = sorted((one, other), key=lambda record: (_seconds(record["written"]), json.dumps(record)))
    merged = {**early, **{key: value for key, value in late.items() if value not in (None, "", [], {})}}
    for source, keys in ((CLUSTER, _CLUSTER_KNOWS), (TRAINER, _TRAINER_KNOWS)):
        for record in (early, late):
            if source in (record.get("sources") or ()):
                merged |= {key: record[key] for key in keys if record.get(key) not in (None, "", {})}
    merged["uid"] = one["uid"] or other["uid"]
    merged["times"] = _merged_times(early["times"], late["times"])
    merged["attempts"] = _joined(early.get("attempts"), late.get("attempts"), "started")
    merged["held"] = _joined(early.get("held"), late.get("held"), "from")
    for key in ("notified", "sources"):
        merged[key] = sorted({*(early.get(key) or ()), *(late.get(key) or ())})
    decides = _decides(early, late)
    merged["state"] = decides["state"]
    reasons = [record.get("reason") for record in (decides, late, early) if record["state"] == decides["state"]]
    merged["reason"] = next(filter(None, reasons), "")
    merged["times"]["ended"] = decides["times"].get("ended") if ended(decides) else None
    return with_amounts(merged)


def _decides(early: Record, late: Record) -> Record:
    """Return the record that has the state of the run."""
    over = [record for record in (late, early) if ended(record)]
    of_cluster = [record for record in over if CLUSTER in (record.get("sources") or ())]
    return next(iter([*of_cluster, *over]), late)


def _merged_times(early: Mapping[str, Any], late: Mapping[str, Any]) -> dict[str, Any]:
    """Return the first time of each state that is known."""
    merged: dict[str, Any] = {}
    for key in ("submitted", "queued", "admitted", "started", "first_step", "ended"):
        known = [at for at in (early.get(key), late.get(key)) if at]
        merged[key] = min(known, key=_seconds, default=None)
    return merged


def _joined(early: Any, late: Any, key: str) -> list[Any]:
    """Return the entries of both lists in the order of time; those that begin at the same time are one, the later."""
    entries: list[Any] = []
    for entry in sorted([*(early or ()), *(late or ())], key=lambda entry: _seconds(entry[key])):
        if entries and abs(_seconds(entries[-1][key]) - _seconds(entry[key])) < 2:  # a condition has whole seconds
            entries[-1] = entry if _last(entry) >= _last(entries[-1]) else entries[-1]
        else:
            entries.append(entry)
    return entries


def _last(entry: Mapping[str, Any]) -> float:
    return max(_seconds(entry.get(key)) for key in ("to", "ended", "seen"))


def with_amounts(record: Record) -> Record:
    """Return the record with `chip_seconds`, and with `cost` for a price that it already has."""
    chips, held = record.get("chips"), record.get("held") or ()
    seconds = sum(max(0.0, _seconds(part["to"]) - _seconds(part["from"])) for part in held)
    if not held:
        attempts = record.get("attempts") or ()
        for attempt in attempts:
            last = attempt.get("ended") or attempt.get("seen") or attempt["started"]
            seconds += max(0.0, _seconds(last) - _seconds(attempt["started"]))
        if not attempts:
            return {**record, "chip_seconds": 0.0 if ended(record) else record.get("chip_seconds")}
    amount = None if chips is None else round(chips * seconds, 3)
    record = {**record, "chip_seconds": amount}
    if record.get("cost") and amount is not None:
        record["cost"] = {**record["cost"], "usd": round(amount / 3600 * record["cost"]["usd_per_chip_hour"], 4)}
    return record


def with_price(record: Record, prices: Mapping[str, Any]) -> Record:
    """Return the record with the cost of its chips by the table `common.prices`; without a price it stays as it is."""
    row = prices.get(record.get("accelerator") or "") or {}
    provisioning = record.get("provisioning") or "on-demand"
    price = (row.get("perChipHour") or {}).get(provisioning)
    if not isinstance(price, int | float) or record.get("chip_seconds") is None:
        return record
    about = {key: str(row.get(key) or "") for key in ("region", "date")}
    usd = round(record["chip_seconds"] / 3600 * price, 4)
    return {**record, "cost": {"usd": usd, "usd_per_chip_hour": price, "provisioning": provisioning, **about}}
