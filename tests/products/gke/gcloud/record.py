"""Record the requests of gcloud, for machines without it: `python -m tests.products.gke.gcloud.record`.

It writes recorded.json. Each command runs alone, in front of a new stub that refuses nothing but unknown fields.
"""

from __future__ import annotations

import json
import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from tests.products.gke.gcloud import commands, harness
from tests.products.gke.gcloud.gke import Place
from tests.products.gke.gcloud.stub import Stub

_STUB = re.compile(r"http://127\.0\.0\.1:[0-9]+/")
FILE = Path(__file__).with_name("recorded.json")


def recorded() -> list[dict[str, Any]]:
    """Run each command with the real gcloud, two at a time. Returns its arguments and its changing requests."""
    found = commands.arguments()
    with ThreadPoolExecutor(2) as pool:
        first, second = pool.map(_each, (found[::2], found[1::2]))
    return sorted([*first, *second], key=lambda entry: found.index(entry["arguments"]))


def _each(found: list[list[str]]) -> list[dict[str, Any]]:
    with harness.loaded() as gcloud:
        return [_one(arguments, gcloud) for arguments in found]


def _one(arguments: list[str], gcloud: harness.Runner) -> dict[str, Any]:
    given = dict(each.removeprefix("--").split("=", 1) for each in arguments if each.startswith("--") and "=" in each)

    def prepare(stub: Stub) -> None:
        """Make what gcloud looks up first: the pool whose size changes, the role that is removed."""
        if "node-pool" in given:
            stub.gke.get_pool(Place("v1", given["project"], given["location"], arguments[3], given["node-pool"]))

        verb = next(place for place, word in enumerate(arguments) if word.startswith("--")) - 2
        if arguments[verb] == "remove-iam-policy-binding":  # gcloud refuses to remove what is not there
            what = arguments[verb + 1]
            of = "project" if arguments[0] == "projects" else what.replace("gs://", "b/")
            stub.policies.set(of, {"bindings": [{"role": given["role"], "members": [given["member"]]}]})

    project = given.get("project", "demo")
    requests, refusal = harness.record([*arguments, "--quiet"], prepare=prepare, project=project, run=gcloud)
    if refusal:
        raise SystemExit(f"gcloud {' '.join(arguments)}: {refusal}")
    sent = [{"method": each.method, "path": each.path, "body": _without_port(each.body)} for each in requests]
    return {"arguments": arguments, "requests": sent}


def _without_port(body: Any) -> Any:
    """Return the body with links to Compute itself instead of the stub, whose port differs each time."""
    return json.loads(_STUB.sub("https://compute.googleapis.com/compute/v1/", json.dumps(body)))


def text(entries: list[dict[str, Any]]) -> str:
    """Format the recordings, a command per line, so that a changed command is a changed line."""
    lines = ",\n".join(json.dumps(entry, sort_keys=True) for entry in entries)
    return f"[\n{lines}\n]\n"


if __name__ == "__main__":
    FILE.write_text(text(recorded()), encoding="utf-8")
