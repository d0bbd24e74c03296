"""Read a trace: the runs that arrive in the queues, as a list in YAML or as CSV.

The keys are described in docs/reference/simulation-trace.md.
"""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

from launcher import formatting
from launcher.config.suggest import closest, join_or
from launcher.errors import LauncherError
from launcher.k8s.objects import quantity
from launcher.safe_yaml import safe_loader

KEYS = (
    "name",
    "team",
    "queue",
    "accelerator",
    "topology",
    "provisioning",
    "slices",
    "flavors",
    "chips",
    "cpu",
    "memory",
    "priority",
    "arrives",
    "lasts",
    "checkpointEvery",
    "admissionDelay",
)
"""The keys of a run in a trace."""

_LIST_KEYS = ("flavors", "provisioning")
_MAX_BYTES = 100_000_000
_PROVISIONING = ("on-demand", "spot", "flex-start", "reservation")


class InvalidTrace(LauncherError):
    """A trace that cannot be simulated. The message has the file, the line and the key."""


@dataclass(frozen=True, slots=True)
class TraceRun:
    """A run of a trace. `arrives` is in seconds from the start of the trace; `lasts` is its time with quota.

    Either `slices` of an accelerator and a topology, or `chips`. `provisioning` has the kinds of machines that it
    accepts, and `flavors`, if it is not empty, the only flavors. `admission_delay` is the time from the reservation of
    its quota to its start. `place` is the file and line.
    """

    name: str
    team: str
    queue: str
    accelerator: str
    topology: str
    provisioning: tuple[str, ...]
    slices: int
    flavors: tuple[str, ...]
    chips: int | None
    amounts: Mapping[str, Any]
    priority: str | int
    arrives: float
    lasts: float
    checkpoint_every: float | None
    admission_delay: float
    place: str


@dataclass(frozen=True, slots=True)
class Trace:
    """The runs of a trace. `began` is the time of second 0, if the trace has times; else None."""

    runs: Sequence[TraceRun]
    began: datetime | None = None


@dataclass(frozen=True, slots=True)
class _Row:
    """A run as it is written: its keys, the place of each, and its own place."""

    values: Mapping[str, Any]
    places: Mapping[str, str]
    place: str

    def fail(self, key: str, clause: str) -> InvalidTrace:
        return InvalidTrace(f"{self.places.get(key, self.place)}: {key} {clause}.")


def read_trace(path: Path) -> Trace:
    """Return the trace in a file: CSV if its name ends in .csv, else YAML or JSON. Raises InvalidTrace."""
    try:
        with path.open("rb") as file:
            data = file.read(_MAX_BYTES + 1)
    except OSError as error:
        raise InvalidTrace(f'The trace "{path}" cannot be read: {error.strerror}.') from error
    if len(data) > _MAX_BYTES:
        raise InvalidTrace(f"{path}: the trace has more than {_MAX_BYTES / 1e6:.0f} MB.")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise InvalidTrace(f"{path}:{line}: the file is not UTF-8 text; save it as UTF-8.") from error
    rows = _csv_rows(text, str(path)) if path.suffix.lower() == ".csv" else _yaml_rows(text, str(path))
    return _trace(list(rows), str(path))


def read_run(text: str, option: str) -> TraceRun:
    """Return the run in the text of an option: a map in YAML, such as {team: research, slices: 1, lasts: 2h}.

    The map may be below the key `run`. `arrives` is 0 if it is missing.
    """
    rows = list(_yaml_rows(text, option, single=True))
    return _trace(rows, option, arrives=0.0).runs[0]


# --- rows -----------------------------------------------------------------------------------------------------------


def _csv_rows(text: str, file: str) -> Iterator[_Row]:
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    try:
        header = [cell.strip() for cell in next(reader, [])]
        _check_keys(header, f"{file}:1")
        for cells in reader:
            place = f"{file}:{reader.line_num}"
            if not any(cell.strip() for cell in cells):
                continue
            if len(cells) != len(header):
                raise InvalidTrace(f"{place}: the row has {len(cells)} cells, but the header has {len(header)}.")
            values: dict[str, Any] = {
                key: cell.strip() for key, cell in zip(header, cells, strict=True) if cell.strip()
            }
            for key in _LIST_KEYS:
                if key in values:
                    values[key] = values[key].replace(";", " ").replace(",", " ").split()
            yield _Row(values, {}, place)
    except csv.Error as error:
        raise InvalidTrace(f"{file}:{reader.line_num}: this is not valid CSV: {error}.") from error


def _yaml_rows(text: str, file: str, *, single: bool = False) -> Iterator[_Row]:
    import yaml

    def place(node: Any) -> str:
        return file if single else f"{file}:{node.start_mark.line + 1}"

    try:
        made = safe_loader()(text)
        root = made.get_single_node()
        if root is None:
            raise InvalidTrace(f"{file}: the trace has no run.")
        if single:
            root = _without_run(root, yaml)
        elif not isinstance(root, yaml.SequenceNode):
            raise InvalidTrace(f"{place(root)}: a trace must be a list of runs.")
        for node in [root] if single else root.value:
            if not isinstance(node, yaml.MappingNode):
                raise InvalidTrace(f"{place(node)}: a run must be a map of keys to values.")
            values: dict[str, Any] = {}
            places: dict[str, str] = {}
            for key_node, value_node in node.value:
                key = str(key_node.value)
                if key in values:
                    raise InvalidTrace(f"{place(key_node)}: duplicate key {key}.")
                values[key] = made.construct_object(value_node, deep=True)
                places[key] = place(key_node)
                _check_keys([key], places[key])
            yield _Row(values, places, place(node))
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f"{file}:{mark.line + 1}" if mark and not single else file
        problem = str(getattr(error, "problem", None) or error).splitlines()[0]
        raise InvalidTrace(f"{where}: this is not valid YAML: {problem}.") from error


def _without_run(node: Any, yaml: Any) -> Any:
    """Return the map below the key `run`, if that is the only key."""
    if isinstance(node, yaml.MappingNode) and [key.value for key, _ in node.value] == ["run"]:
        return node.value[0][1]
    return node


def _check_keys(keys: Sequence[str], place: str) -> None:
    for key in keys:
        if key not in KEYS:
            near = closest(key, KEYS)
            hint = f"; did you mean {near[0]}?" if near else f"; the keys are {', '.join(KEYS)}."
            raise InvalidTrace(f'{place}: unknown key "{key}"{hint}')


# --- values ---------------------------------------------------------------------------------------------------------


def _trace(rows: Sequence[_Row], file: str, arrives: float | None = None) -> Trace:
    if not rows:
        raise InvalidTrace(f"{file}: the trace has no run.")
    times = [_arrival(row, arrives) for row in rows]
    dates = [time for time in times if isinstance(time, datetime)]
    if dates and len(dates) < len(times):
        first = next(row for row, time in zip(rows, times, strict=True) if not isinstance(time, datetime))
        raise first.fail("arrives", "is a number of seconds, but other runs have a date and time; use one of the two")
    began = min(dates, default=None)
    names: set[str] = set()
    runs = []
    for number, (row, time) in enumerate(zip(rows, times, strict=True), start=1):
        at = (time - (began or time)).total_seconds() if isinstance(time, datetime) else float(time)
        run = _run(row, number, at)
        if run.name in names:
            raise row.fail("name", f'is "{run.name}", and another run has this name')
        names.add(run.name)
        runs.append(run)
    return Trace(runs, began)


def _run(row: _Row, number: int, arrives: float) -> TraceRun:
    values = row.values
    if ("team" in values) == ("queue" in values):
        raise row.fail("team", "and queue: a run has exactly one of them")
    chips = None if values.get("chips") is None else _whole(row, "chips")
    topology = _text(row, "topology")
    if chips is not None and (topology or "slices" in values):
        raise row.fail("chips", "cannot be used with topology or slices")
    amounts = {key: _amount(row, key) for key in ("cpu", "memory") if values.get(key) is not None}
    if chips is None and not topology and not amounts and "slices" not in values:
        raise row.fail("slices", "or chips is missing: a run requests slices of an accelerator, or chips")
    if "lasts" not in values:
        raise row.fail("lasts", "is missing")
    provisioning = _words(row, "provisioning") or ("on-demand",)
    for word in provisioning:
        if word not in _PROVISIONING:
            raise row.fail("provisioning", f'is "{word}"; the values are {join_or(_PROVISIONING)}')
    every = None if values.get("checkpointEvery") is None else _seconds(row, "checkpointEvery")
    if every == 0:
        raise row.fail("checkpointEvery", "must be more than 0")
    return TraceRun(
        name=_text(row, "name") or f"run-{number}",
        team=_text(row, "team"),
        queue=_text(row, "queue"),
        accelerator=_text(row, "accelerator"),
        topology=topology,
        provisioning=provisioning,
        slices=_whole(row, "slices") if values.get("slices") is not None else 1,
        flavors=_words(row, "flavors"),
        chips=chips,
        amounts=amounts,
        priority=_priority(row),
        arrives=arrives,
        lasts=_seconds(row, "lasts"),
        checkpoint_every=every,
        admission_delay=0.0 if values.get("admissionDelay") is None else _seconds(row, "admissionDelay"),
        place=row.place,
    )


def _arrival(row: _Row, default: float | None) -> float | datetime:
    value = row.values.get("arrives")
    if value is None:
        if default is None:
            raise row.fail("arrives", "is missing")
        return default
    if isinstance(value, date) and not isinstance(value, datetime):
        value = datetime(value.year, value.month, value.day)
    if isinstance(value, str) and len(value) >= 10 and value[4:5] == "-":
        try:
            value = datetime.fromisoformat(value)
        except ValueError:
            raise row.fail("arrives", f'is "{value}", which is not a valid date and time') from None
    if isinstance(value, datetime):
        return value if value.tzinfo else value.replace(tzinfo=UTC)
    return _seconds(row, "arrives")


def _seconds(row: _Row, key: str) -> float:
    value = row.values[key]
    if isinstance(value, str):
        if value.startswith("-"):
            raise row.fail(key, f"is {value}, but must not be negative")
        found = formatting.seconds(value)
        if found is None:
            raise row.fail(key, f'is "{value}", which is not a duration; use 90, 90s, 5m, 1.5h, 1h30m or 7d')
        return found
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise row.fail(key, "must be a number of seconds or a duration")
    if value < 0:
        raise row.fail(key, f"is {value:g}, but must not be negative")
    return float(value)


def _whole(row: _Row, key: str) -> int:
    value = row.values[key]
    text = str(value)
    if isinstance(value, bool) or not text.isdecimal() or not 1 <= int(text) <= 10_000_000:
        raise row.fail(key, f"is {value}, but must be a whole number above 0")
    return int(text)


def _text(row: _Row, key: str) -> str:
    value = row.values.get(key)
    if value is None:
        return ""
    if isinstance(value, bool | list | dict):
        raise row.fail(key, "must be text")
    return str(value)


def _words(row: _Row, key: str) -> tuple[str, ...]:
    value = row.values.get(key)
    if value is None:
        return ()
    words = value if isinstance(value, list) else [value]
    if not all(isinstance(word, str) and word for word in words):
        raise row.fail(key, "must be a name or a list of names")
    return tuple(words)


def _amount(row: _Row, key: str) -> Any:
    try:
        amount = quantity(row.values[key])
    except ValueError:
        raise row.fail(key, f'is "{row.values[key]}", which is not a quantity') from None
    if amount < 0:
        raise row.fail(key, f"is {row.values[key]}, but must not be negative")
    return amount


def _priority(row: _Row) -> str | int:
    value = row.values.get("priority")
    if value is None:
        return 0
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise row.fail("priority", "must be the name of a priority or a whole number")
    text = str(value)
    return int(text) if text.removeprefix("-").isdecimal() else text
