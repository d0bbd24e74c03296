"""The record of a run on a cluster, from its object, its Workload and the Events of both. Pure."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from typing import Any

from launcher.backends.base import State
from launcher.backends.kubernetes import states
from launcher.backends.kubernetes.states import ObservedRun
from launcher.k8s import objects
from launcher.products.records import form
from launcher.products.records.form import CLUSTER, VERSION, Record, timestamp
from launcher.products.report import kube
from launcher.products.report.metrics import time_of

_USER = "slipway.dev/user"
"""The annotation with the user; values set it as commonAnnotations."""


def record_of(seen: ObservedRun, events: Iterable[Mapping[str, object]], now: float) -> Record:
    """Return the record of a run at the time `now`, in seconds since 1970."""
    run, config, workload = seen.run, seen.run.config, seen.workload
    state, reason = states.classify(seen)
    ended = states.ended(seen) if state.ended else None
    if state.ended and ended is None and workload is not None:
        ended = seen.workload_condition("Evicted").since or None
    end = time_of(ended) or now
    held = [part for part in kube.history(seen, events, end).held if part.end > part.start]
    slice_, accelerator = config.get("slice") or {}, config.get("accelerator") or {}
    slices = slice_.get("count") or 1
    steps = (config.get("train") or {}).get("steps") if not (config.get("run") or {}).get("command") else None
    chips = accelerator.get("chips")
    record: Record = {
        "version": VERSION,
        "uid": run.uid,
        "name": run.name,
        "namespace": run.namespace,
        "kind": str(run.run_kind),
        "team": run.team,
        "user": objects.annotation(run.raw, _USER),
        "queue": run.queue,
        "state": str(state),
        "reason": reason,
        "times": {
            "submitted": _time(run.created),
            "queued": _time(workload.created) if workload is not None else None,
            "admitted": timestamp(held[0].start) if held and run.queue else None,
            "started": _time(states.started(seen)),
            "first_step": None,
            "ended": _time(ended) if state.ended else None,
        },
        "attempts": [],
        "restarts": states.restarts(seen),
        "preemptions": states.preemptions(seen),
        "accelerator": str(accelerator.get("name") or slice_.get("accelerator") or ""),
        "topology": str(accelerator.get("topology") or ""),
        "provisioning": str(slice_.get("provisioning") or ""),
        "flavor": "" if workload is None else workload.flavor,
        "slices": slices,
        "chips": chips * slices if isinstance(chips, int) and isinstance(slices, int) else None,
        "held": [{"from": timestamp(part.start), "to": timestamp(part.end)} for part in held],
        "steps": None,
        "steps_wanted": steps if isinstance(steps, int) and steps > 0 else None,
        "tokens": None,
        "seconds": {},
        "goodput": None,
        "cost": None,
        "config": fingerprint(config),
        "image": image(config),
        "folder": run.folder,
        "notified": [],
        "sources": [CLUSTER],
        "written": timestamp(now),
    }
    return form.with_amounts(record)


def _time(text: str | None) -> str | None:
    """Return a time of the API server, which has whole seconds, in the form of the others."""
    at = time_of(text)
    return None if at is None else timestamp(at)


def deleted(record: Record) -> Record:
    """Return the last record of a run whose object was deleted before its end was recorded."""
    held = record.get("held") or []
    last = held[-1]["to"] if held else record["written"]
    reason = "Its object was deleted before its end was recorded."
    return {
        **record,
        "state": str(State.CANCELLED),
        "reason": reason,
        "times": {**record["times"], "ended": last},
    }


def fingerprint(config: Mapping[str, Any]) -> str:
    """Return the digest of a run config that the trainer calculates, too; "" without a config."""
    return hashlib.sha256(json.dumps(config, sort_keys=True).encode()).hexdigest()[:16] if config else ""


def image(config: Mapping[str, Any]) -> str:
    """Return the image of a run config, as trainer/reporting/record.py writes it."""
    parts = config.get("image") or {}
    repository = "/".join(str(part) for part in (parts.get("registry"), parts.get("repository")) if part)
    digest, tag = parts.get("digest"), parts.get("tag")
    return f"{repository}{f'@{digest}' if digest else f':{tag}' if tag else ''}" if repository else ""
