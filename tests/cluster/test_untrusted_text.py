"""Members of a team and pods write text into the cluster; no verb lets it control the terminal of another user."""

from __future__ import annotations

import json
import re

from tests.cli.test_untrusted_text import CONTROL, HOSTILE, clean
from tests.cluster.control_plane import ControlPlane
from tests.cluster.launching import JOB_SETS, LauncherCli


def test_text_of_objects_and_events(cli: LauncherCli, control_plane: ControlPlane) -> None:
    api = control_plane.api
    assert cli("submit", "-f", cli.values("job-set"), "--detach").code == 0
    run = api.get(f"{JOB_SETS.format(cli.namespace)}/demo")
    now = "2026-01-01T00:00:00Z"
    failed = {"type": "Failed", "status": "True", "reason": "Failed", "message": HOSTILE, "lastTransitionTime": now}
    api.merge(f"{JOB_SETS.format(cli.namespace)}/demo/status", {"status": {"conditions": [failed]}})
    about = {key: run[key] for key in ("apiVersion", "kind")} | {
        key: run["metadata"][key] for key in ("name", "namespace", "uid")
    }
    for kind, name in (("Warning", "a"), ("Normal", "b")):
        event = {
            **{"apiVersion": "v1", "kind": "Event", "type": kind, "reason": "Failed", "message": HOSTILE},
            **{"metadata": {"name": name, "namespace": cli.namespace}, "involvedObject": about},
            **{"firstTimestamp": now, "lastTimestamp": now, "source": {"component": "jobset"}},
        }
        api.create(event)
    here = ("-n", cli.namespace)
    shown = ""
    page = str(cli.folder / "page.html")
    for arguments in (
        *(("list",), ("status", "demo"), ("explain", "demo"), ("logs", "demo"), ("doctor",)),
        ("report", "demo", "--out", page),
        *(("diff", "-f", cli.values("job-set", train={"model_name": HOSTILE})), ("cancel", "demo"), ("delete", "demo")),
    ):
        target = () if arguments[0] == "diff" else here
        shown += clean(cli(*arguments, *target))
        if arguments[0] == "status":
            result = cli(*arguments, *here, "-o", "json")
            assert not CONTROL.search(result.out)
            assert HOSTILE.partition("\r")[0] in json.loads(result.out)["reason"], "a program reads the exact text"
    assert len(re.findall("\ufffd", shown)) > 10
