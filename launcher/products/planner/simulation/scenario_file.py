"""Read files of scenarios: one JSON object a line, as the recordings of real queues have it.

The form is described in docs/reference/simulation-trace.md. Keys that only a recording has (events, never) are the
truth that a simulation is compared with; a simulation does not read them.
"""

from __future__ import annotations

import gzip
import math
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any

from launcher.config.suggest import closest
from launcher.errors import LauncherError
from launcher.json_object import is_shallow, load_json
from launcher.k8s.kueue.queues import ClusterQueue, Cohort
from launcher.k8s.objects import quantity
from launcher.products.planner.scheduler.model import (
    Job,
    KueueSettings,
    PodSetRequest,
    PreemptionStrategy,
    Scenario,
    Version,
)
from launcher.products.planner.scheduler.rules import MINOR_VERSIONS, parse_version
from launcher.products.planner.simulation import specs

FAIR_SHARING: tuple[PreemptionStrategy, ...] = ("LessThanOrEqualToFinalShare", "LessThanInitialShare")
"""The preemption strategies of fair sharing that Kueue has by default, and those of a scenario with `fair`."""

VERSIONS = ", ".join(f"{major}.{minor}" for major, minor in MINOR_VERSIONS)
"""The versions of Kueue that are simulated, as text."""

CHIPS = "google.com/tpu"

_MAX_LINE = 20_000_000
_USUAL_STOP = 1.5
"""The seconds from an eviction to the release of quota, if a scenario has none: about the median of the recordings."""

_KEYS = ("id", "kueue", "fair", "objects", "priorities", "runs", "frees", "events", "never")
_RUN_KEYS = ("name", "queue", "priority", "chips", "created", "takes", "arrives", "lasts")


class InvalidScenario(LauncherError):
    """A scenario that cannot be simulated. The message has the file, the line and the key."""


@dataclass(frozen=True, slots=True)
class ScenarioLine:
    """A scenario of a file: its id, the scenario, and its line."""

    id: str
    scenario: Scenario
    raw: Mapping[str, Any]


def read_scenarios(path: Path) -> Iterator[ScenarioLine]:
    """Yield the scenarios of a file, which may be compressed with gzip. Raises InvalidScenario."""
    ids: dict[str, int] = {}
    for number, text in _lines(path):
        read = _Line(f"{path}:{number}").read(text)
        if read.id in ids:
            raise InvalidScenario(f'{path}:{number}: id: "{read.id}" is also the id of line {ids[read.id]}.')
        ids[read.id] = number
        yield read
    if not ids:
        raise InvalidScenario(f"{path}: the file has no scenario; it needs one JSON object a line.")


def _lines(path: Path) -> Iterator[tuple[int, bytes]]:
    try:
        with path.open("rb") as raw:
            compressed = raw.peek(2)[:2] == b"\x1f\x8b"
            with gzip.open(raw) if compressed else raw as file:
                number = 0
                while line := file.readline(_MAX_LINE + 1):
                    number += 1
                    if len(line) > _MAX_LINE:
                        raise InvalidScenario(f"{path}:{number}: the line has more than {_MAX_LINE / 1e6:.0f} MB.")
                    if line.strip():
                        yield number, line
    except (OSError, EOFError, zlib.error) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise InvalidScenario(f'The file "{path}" cannot be read: {reason}.') from error


@dataclass(frozen=True, slots=True)
class _Line:
    """The parser of a line; `place` is its file and number."""

    place: str

    def fail(self, key: str, clause: str, hint: str = "") -> InvalidScenario:
        where = f"{self.place}: {key}" if key else self.place
        return InvalidScenario(f"{where}: {clause}{'' if clause.endswith('?') else '.'}", hint)

    def read(self, text: bytes) -> ScenarioLine:
        try:
            raw = load_json(text)
        except (ValueError, RecursionError) as error:
            raise self.fail("", f"the line is not valid JSON ({error})") from error
        if not isinstance(raw, dict) or not is_shallow(raw):
            raise self.fail("", "a line must be a JSON object with the objects and runs of a scenario")
        self.keys("", raw, _KEYS, required=("id", "objects", "priorities", "runs"))
        if not isinstance(raw["id"], str | int) or isinstance(raw["id"], bool):
            raise self.fail("id", "must be text")
        objects = self.map("objects", raw["objects"])
        self.keys("objects", objects, ("clusterQueues", "cohorts"), required=("clusterQueues",))
        queues = [
            ClusterQueue(self.object("objects.clusterQueues", number, each, "ClusterQueue"))
            for number, each in enumerate(self.list("objects.clusterQueues", objects["clusterQueues"]))
        ]
        cohorts = [
            Cohort(self.object("objects.cohorts", number, each, "Cohort"))
            for number, each in enumerate(self.list("objects.cohorts", objects.get("cohorts") or []))
        ]
        self.check_names(queues, cohorts)
        fair = raw.get("fair", False)
        if not isinstance(fair, bool):
            raise self.fail("fair", "must be true or false")
        scenario = Scenario(
            cluster_queues=queues,
            cohorts=cohorts,
            jobs=self.jobs(raw, queues),
            settings=KueueSettings(self.version(raw.get("kueue")), FAIR_SHARING if fair else None),
        )
        return ScenarioLine(str(raw["id"]), scenario, raw)

    # --- objects ---

    def object(self, key: str, number: int, value: Any, kind: str) -> Mapping[str, Any]:
        key = f"{key}[{number}]"
        obj = self.map(key, value)
        self.keys(key, obj, ("apiVersion", "kind", "metadata", "spec", "status"), required=("metadata",))
        name = self.map(f"{key}.metadata", obj["metadata"]).get("name")
        if not isinstance(name, str) or not name:
            raise self.fail(f"{key}.metadata.name", "must be a name")
        if obj.get("kind", kind) != kind:
            raise self.fail(f"{key}.kind", f'is "{obj["kind"]}", but must be {kind}')
        spec = obj.get("spec") or {}
        findings = specs.cluster_queue_findings(spec) if kind == "ClusterQueue" else specs.cohort_findings(spec)
        for finding in findings:
            raise self.fail(f"{key} ({name}).{finding.path}", finding.clause)
        # The use of quota follows from the runs, not from a status that was copied with the object.
        return {**{part: obj[part] for part in obj if part != "status"}, "kind": kind}

    def check_names(self, queues: Sequence[ClusterQueue], cohorts: Sequence[Cohort]) -> None:
        for key, names in (
            ("objects.clusterQueues", [queue.name for queue in queues]),
            ("objects.cohorts", [cohort.name for cohort in cohorts]),
        ):
            for name in specs.duplicates(names):
                raise self.fail(key, f'the name "{name}" occurs more than once')
        if cycle := specs.cohort_cycle(cohorts):
            raise self.fail(
                "objects.cohorts",
                f"the cohorts are a cycle: {' -> '.join(cycle)}",
                "Kueue admits no run in a cycle of cohorts; remove the parentName of one of them.",
            )

    def version(self, value: Any) -> Version:
        version = MINOR_VERSIONS[-1] if value is None else parse_version(str(value))
        if version is None:
            raise self.fail("kueue", f'Kueue "{value}" is not simulated; the versions are {VERSIONS}')
        return version

    # --- runs ---

    def jobs(self, raw: Mapping[str, Any], queues: Sequence[ClusterQueue]) -> list[Job]:
        known = [queue.name for queue in queues]
        priorities = self.map("priorities", raw["priorities"])
        for name, value in priorities.items():
            if not isinstance(value, int) or isinstance(value, bool):
                raise self.fail(f"priorities.{name}", "must be a whole number")
        frees = {name: self.frees(name, value) for name, value in self.map("frees", raw.get("frees") or {}).items()}
        usual = median([each for times in frees.values() for each in times] or [_USUAL_STOP])
        jobs: list[Job] = []
        names: set[str] = set()
        for number, value in enumerate(self.list("runs", raw["runs"])):
            key = f"runs[{number}]"
            run = self.map(key, value)
            self.keys(key, run, _RUN_KEYS, required=("name", "queue", "chips"))
            name = run["name"]
            if not isinstance(name, str) or not name:
                raise self.fail(f"{key}.name", "must be a name")
            key = f"{key} ({name})"
            if name in names:
                raise self.fail(f"{key}.name", "another run has this name")
            names.add(name)
            if run["queue"] not in known:
                near = closest(str(run["queue"]), known)
                raise self.fail(
                    f"{key}.queue",
                    f'there is no ClusterQueue "{run["queue"]}"' + (f'; did you mean "{near[0]}"?' if near else ""),
                )
            jobs.append(
                Job(
                    name=name,
                    queue=run["queue"],
                    pod_sets=(PodSetRequest({CHIPS: quantity(self.number(f"{key}.chips", run["chips"]))}),),
                    priority=self.priority(f"{key}.priority", run.get("priority"), priorities),
                    created=self.first(key, run, "created", "arrives"),
                    takes=self.first(key, run, "takes", "lasts"),
                    frees=frees.get(name) or (usual,),
                )
            )
        for name in frees:
            if name not in names:
                raise self.fail(f"frees.{name}", "there is no run of this name")
        return _with_earlier_attempts(jobs, raw["runs"], frees)

    def priority(self, key: str, value: Any, priorities: Mapping[str, Any]) -> int:
        if value is None:
            return 0
        if isinstance(value, int) and not isinstance(value, bool):
            return value
        if value not in priorities:
            near = closest(str(value), priorities)
            raise self.fail(
                key, f'the priority "{value}" is not in priorities' + (f'; did you mean "{near[0]}"?' if near else "")
            )
        return int(priorities[value])

    def first(self, key: str, run: Mapping[str, Any], *names: str) -> float:
        """Return the time in the first of these keys that the run has."""
        for name in names:
            if run.get(name) is not None:
                return self.number(f"{key}.{name}", run[name])
        raise self.fail(key, f"{' or '.join(names)} is missing")

    def frees(self, name: str, value: Any) -> tuple[float, ...]:
        return tuple(
            self.number(f"frees.{name}[{number}]", each)
            for number, each in enumerate(self.list(f"frees.{name}", value))
        )

    # --- values ---

    def number(self, key: str, value: Any) -> float:
        if not isinstance(value, int | float) or isinstance(value, bool) or not math.isfinite(value):
            raise self.fail(key, "must be a number")
        if value < 0:
            raise self.fail(key, f"is {value:g}, but must not be negative")
        return value

    def map(self, key: str, value: Any) -> Mapping[str, Any]:
        if not isinstance(value, dict):
            raise self.fail(key, "must be a map")
        return value

    def list(self, key: str, value: Any) -> Sequence[Any]:
        if not isinstance(value, list):
            raise self.fail(key, "must be a list")
        return value

    def keys(self, key: str, value: Mapping[str, Any], known: Sequence[str], *, required: Sequence[str]) -> None:
        for name in value:
            if name not in known:
                near = closest(name, known)
                here = f"{key}.{name}" if key else name
                raise self.fail(here, "is not a known key" + (f'; did you mean "{near[0]}"?' if near else ""))
        for name in required:
            if name not in value:
                raise self.fail(f"{key}.{name}" if key else name, "is missing")


def _with_earlier_attempts(
    jobs: Sequence[Job], runs: Sequence[Mapping[str, Any]], frees: Mapping[str, tuple[float, ...]]
) -> list[Job]:
    """Add the time of the attempts that a recording has evicted.

    `takes` is that of the last attempt. The attempts before it were evicted before their end, so they would have taken
    what was intended (`lasts`), and the longest delay of this scenario.
    """
    intended = [run.get("lasts") for run in runs]
    delays = [job.takes - lasts for job, lasts in zip(jobs, intended, strict=True) if lasts is not None]
    delay = max(0.0, *delays) if delays else 0.0
    return [
        replace(job, takes_before=(max(job.takes, (lasts or 0.0) + delay),) * len(frees.get(job.name, ())))
        for job, lasts in zip(jobs, intended, strict=True)
    ]
