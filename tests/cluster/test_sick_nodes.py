"""`launcher explain` names nodes on which hosts are slow or fail, and prints a value that avoids them."""

from __future__ import annotations

import json
import shlex
from datetime import date, timedelta

from launcher import api
from tests.cluster.control_plane import ControlPlane
from tests.cluster.launching import LauncherCli
from tests.cluster.replay import follow_as

COMPLETION = "batch.kubernetes.io/job-completion-index"
MESSAGE = (
    "Host 1 (demo-slice-0-1 on the node {}) is slow: the same calculation takes 73% longer than on the other hosts."
)


def test_sick_nodes_are_named_and_the_printed_value_avoids_them(cli: LauncherCli, control_plane: ControlPlane) -> None:
    file = cli.values("job-set")
    assert cli("submit", "-f", file, "--detach", "--force").code == 0
    (run,) = cli.runs(control_plane.api)
    follow_as(control_plane, "run-fails-after-restarts", run).step_past("Workload", PodsReady="True")
    space = f"/api/v1/namespaces/{cli.namespace}/pods"
    pods = control_plane.api.items(f"{space}?labelSelector=slipway.dev/run%3Ddemo")
    first, second = sorted(pods, key=lambda pod: pod["metadata"]["labels"][COMPLETION])
    node = second["spec"]["nodeName"]

    def explained() -> tuple[dict[str, str], list[str]]:
        done = cli("explain", "demo", "-n", cli.namespace, "-o", "json")
        assert (done.code, done.err) == (0, "")
        evidence = {item["name"]: item["says"] for item in done.json["evidence"] if item["kind"] == "Node"}
        return evidence, done.json["suggestions"]

    # The log of a run can contain any text: only nodes of its pods are named.
    events = [
        {"event": "slow_host", "time": "", "message": MESSAGE.format(name), "host": 1, "node": name, "step": 5}
        for name in ("other", node)
    ]
    control_plane.write_log(
        cli.namespace, first["metadata"]["name"], "trainer", [f"SLIPWAY_EVENT {json.dumps(event)}" for event in events]
    )
    evidence, suggestions = explained()
    assert evidence == {node: MESSAGE.format(node)}
    instruction, ask = suggestions[-2:]
    assert instruction.startswith("Cancel the run, and submit it again with --set 'worker.avoidNodes.")
    assert ask == f"Ask the platform team to examine the node {node}."
    # A TPU slice needs all nodes of its node pool. The option works as printed.
    option = shlex.split(instruction)[shlex.split(instruction).index("--set") + 1].rstrip(".")
    nodes = {pod["spec"]["nodeName"] for pod in (first, second)}
    avoided = api.plan([file], [option]).config["worker"]["avoidNodes"]
    assert set(avoided) == nodes
    assert len(nodes) == 2
    assert {date.fromisoformat(end) for end in avoided.values()} <= {
        date.today() + timedelta(days=days) for days in (6, 7, 8)
    }

    failed = {"terminated": {"exitCode": 139, "startedAt": None, "finishedAt": None}}
    for pod, restarts in ((first, 2), (second, 1)):
        containers = [
            {**item, "restartCount": restarts, "lastState": failed} for item in pod["status"]["containerStatuses"]
        ]
        path = f"{space}/{pod['metadata']['name']}/status"
        control_plane.api.merge(path, {"status": {"containerStatuses": containers}})
    evidence, _ = explained()
    assert set(evidence) == nodes
    assert evidence[first["spec"]["nodeName"]] == f"2 failures of this run: {first['metadata']['name']} (trainer)."
