#!/usr/bin/env python3
"""A stand-in for gcloud if it is not installed: it sends the requests that the real one was recorded to send.

It knows only the commands in recorded.json. Changes of an IAM policy read the policy first, as gcloud does.
"""

from __future__ import annotations

import json
import os
import sys
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

RECORDED = Path(__file__).with_name("recorded.json")
VERBS = 3


def main(arguments: list[str]) -> int:
    given = [each for each in arguments if each != "--quiet"]
    entries = json.loads(RECORDED.read_text(encoding="utf-8"))
    found = next((entry for entry in entries if entry["arguments"] == given), None)
    if found is None:
        sys.stderr.write(
            f"ERROR: no recording of: gcloud {' '.join(given)}\nRun python -m tests.products.gke.gcloud.record.\n"
        )
        return 2
    try:
        for request in found["requests"]:
            body = request["body"]
            if "iam-policy-binding" in " ".join(given[:VERBS]):
                body = _policy(request["path"], body, given)
            _send(request["method"], request["path"], body)
    except urllib.error.HTTPError as error:
        answer = json.loads(error.read())["error"]
        verb = ".".join(given[:VERBS])
        sys.stderr.write(f"ERROR: (gcloud.{verb}) ResponseError: code={error.code}, message={answer['message']}\n")
        sys.stderr.write(f"{answer['status']}\n" if answer["status"] in ("ALREADY_EXISTS", "NOT_FOUND") else "")
        return 1
    return 0


def _policy(path: str, recorded: Any, given: list[str]) -> Any:
    """Return the body that changes the present policy as the arguments demand."""
    member, role = (
        next(each for each in given if each.startswith(f"--{key}=")).partition("=")[2] for key in ("member", "role")
    )
    reads = [("GET", path)] if "setIamPolicy" not in path else [("POST", path.replace(":set", ":get"))]
    if "/repositories/" in path:
        reads = [("GET", path.replace(":set", ":get"))]
    policy = _send(*reads[0], {} if reads[0][0] == "POST" else None)
    others = [each for each in policy.get("bindings", []) if each["role"] != role]
    members = {each for binding in policy.get("bindings", []) if binding["role"] == role for each in binding["members"]}
    adds = any(each.startswith("add-iam") for each in given)
    members = members | {member} if adds else members - {member}
    policy["bindings"] = [*others, *([{"role": role, "members": sorted(members)}] if members else [])]
    return {**recorded, "policy": policy} if "policy" in recorded else policy


def _send(method: str, path: str, body: Any) -> Any:
    base = os.environ["CLOUDSDK_API_ENDPOINT_OVERRIDES_CONTAINER"].rstrip("/")
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(base + path, data, {"Content-Type": "application/json"}, method=method)
    with urllib.request.urlopen(request, timeout=60) as answer:
        return json.loads(answer.read() or b"{}")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
