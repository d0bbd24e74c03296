"""Commands in pods, over a real websocket. This server replaces the API server and the kubelet behind it.

tests/cluster/test_rights.py has the refusal of a real API server.
"""

from __future__ import annotations

import asyncio
import io
import json
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from aiohttp import WSMsgType, web

from launcher.backends.base import RunStatus, State
from launcher.errors import LauncherError
from launcher.k8s.client import Cluster, connect
from launcher.k8s.errors import ClusterError, Forbidden, Unreachable
from launcher.k8s.pods import Pod
from launcher.products.common import pod_exec
from launcher.products.inspect import profile, shell, terminal

DENIED = {
    "kind": "Status",
    "status": "Failure",
    "reason": "Forbidden",
    "code": 403,
    "message": 'pods "demo-0" is forbidden: User "alice" cannot create resource "pods/exec" in API group "" in the '
    'namespace "research"',
}


def status_of(code: int) -> bytes:
    if code == 0:
        return b'\x03{"status": "Success"}'
    cause = {"reason": "ExitCode", "message": str(code)}
    return b"\x03" + json.dumps({"status": "Failure", "details": {"causes": [cause]}}).encode()


async def answer(request: web.Request) -> web.StreamResponse:
    """Act as the pod that the path names."""
    pod = request.match_info["pod"]
    if pod == "denied":
        return web.json_response(DENIED, status=403)
    socket = web.WebSocketResponse(protocols=["v4.channel.k8s.io"])
    await socket.prepare(request)
    if pod == "lost":
        await socket.send_bytes(b"\x01half")
    elif pod == "no-program":
        await socket.send_bytes(b'\x03{"status": "Failure", "message": "no such program"}')
    elif pod == "trainer":  # runs the command on this machine
        _, *arguments = request.query.getall("command")
        running = await asyncio.create_subprocess_exec(
            sys.executable, *arguments, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
        )
        printed = await running.communicate()
        for channel, content in enumerate(printed, start=1):
            await socket.send_bytes(bytes([channel]) + content)
        await socket.send_bytes(status_of(running.returncode or 0))
    elif request.query.get("tty"):
        async for message in socket:
            if message.type is not WSMsgType.BINARY:
                break
            if message.data == b"\x00exit 7":
                await socket.send_bytes(status_of(7))
                break
            await socket.send_bytes(b"\x01" + message.data)
    else:
        asked = {"command": request.query.getall("command"), "container": request.query["container"]}
        await socket.send_bytes(b"\x01" + json.dumps({**asked, "user": request.headers["impersonate-user"]}).encode())
        await socket.send_bytes(b"\x02a warning\n")
        await socket.send_bytes(status_of(0))
    await socket.close()
    return socket


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    loop = asyncio.new_event_loop()
    application = web.Application()
    application.router.add_get("/api/v1/namespaces/research/pods/{pod}/exec", answer)
    runner = web.AppRunner(application)
    loop.run_until_complete(runner.setup())
    site = web.TCPSite(runner, "127.0.0.1", 0)
    loop.run_until_complete(site.start())
    [(_, port)] = runner.addresses
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    kubeconfig = {
        "contexts": [{"name": "lab", "context": {"cluster": "lab", "user": "alice", "namespace": "research"}}],
        "clusters": [{"name": "lab", "cluster": {"server": f"http://127.0.0.1:{port}"}}],
        "users": [{"name": "alice", "user": {"as": "bob"}}],
        "current-context": "lab",
    }
    file = tmp_path_factory.mktemp("kube") / "config"
    file.write_text(json.dumps(kubeconfig))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("KUBECONFIG", str(file))
        yield connect()
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    loop.run_until_complete(runner.cleanup())
    loop.close()


def test_the_output_and_the_exit_code_of_a_command(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    started = pod_exec.start(cluster, "demo-0", "trainer", ["echo", "a b&c"], terminal=False)
    out, err = io.BytesIO(), io.BytesIO()
    with monkeypatch.context() as patch, io.TextIOWrapper(out) as stdout, io.TextIOWrapper(err) as stderr:
        patch.setattr("sys.stdout", stdout)
        patch.setattr("sys.stderr", stderr)
        code = terminal.run(started, interactive=False)
        printed, warned = out.getvalue(), err.getvalue()
    assert code == 0
    asked = {"command": ["echo", "a b&c"], "container": "trainer", "user": "bob"}
    assert (json.loads(printed), warned) == (asked, b"a warning\n")


def test_a_shell_reads_and_has_a_size(cluster: Cluster) -> None:
    started = pod_exec.start(cluster, "demo-0", "trainer", ["sh"], terminal=True)
    started.resize(80, 24)
    assert list(started.messages()) == [(1, b'\x04{"Width": 80, "Height": 24}')]
    started.send(b"ls")
    assert list(started.messages()) == [(1, b"\x00ls")]
    started.send(b"exit 7")
    assert list(started.messages()) == []
    assert started.exit_code == 7
    started.close()


def test_a_command_that_does_not_start_and_a_lost_connection(cluster: Cluster) -> None:
    unknown = pod_exec.start(cluster, "no-program", "trainer", ["x"], terminal=False)
    with closing(unknown), pytest.raises(ClusterError, match=r"The command cannot be run in the pod: no such program."):
        list(unknown.messages())
    lost = pod_exec.start(cluster, "lost", "trainer", ["x"], terminal=False)
    assert list(lost.messages()) == [(1, b"half")]
    with closing(lost), pytest.raises(Unreachable, match=r"The connection to the pod in .* was closed"):
        list(lost.messages())


def test_a_profile_is_requested_in_a_pod(cluster: Cluster, tmp_path: Path) -> None:
    """The trainer's side of the request runs here; tests/trainer/test_profiling.py has the training that answers."""
    answer = {"id": "", "first_step": 7, "steps": 2, "folder": "tensorboard/plugins/profile/x", "error": ""}

    def train() -> None:
        while not (tmp_path / profile.REQUEST).exists():
            time.sleep(0.05)
        request = json.loads((tmp_path / profile.REQUEST).read_text())
        (tmp_path / profile.ANSWER).write_text(json.dumps({**answer, "id": request["id"], "steps": request["steps"]}))

    training = threading.Thread(target=train)
    training.start()
    started = pod_exec.start(cluster, "trainer", "trainer", profile.pod_command(str(tmp_path), 2), terminal=False)
    with closing(started):
        found = profile.answer_of(started)
    training.join()
    assert {**found, "id": ""} == answer
    assert not (tmp_path / profile.REQUEST).exists()

    command = profile.pod_command(str(tmp_path / "no-folder"), 2)
    refused = pod_exec.start(cluster, "trainer", "trainer", command, terminal=False)
    with closing(refused), pytest.raises(LauncherError, match=r"cannot be written to .*no-folder: No such file or dir"):
        profile.answer_of(refused)


def test_without_the_right(cluster: Cluster) -> None:
    with pytest.raises(Forbidden, match=r"You .alice. may not create pods/exec in the namespace research"):
        pod_exec.start(cluster, "denied", "trainer", ["sh"], terminal=False)
    pod = {
        "metadata": {"name": "denied"},
        "spec": {"containers": [{"name": "trainer"}]},
        "status": {"phase": "Running"},
    }
    backend: Any = SimpleNamespace(cluster=cluster, cli_args=" -n research", hosts=lambda _: [Pod(pod)])
    status = RunStatus("demo", "research", "job-set", State.RUNNING)
    with pytest.raises(LauncherError) as caught:
        shell.start(backend, status, 0, terminal=True)
    assert caught.value.hint.startswith("teams.NAME.shell: true of charts/queues grants it to the members of a team.")
    assert "resources: [pods/exec]" in caught.value.hint
    with pytest.raises(LauncherError, match="Worker 1 was not found: the run has 1, counted from 0"):
        shell.start(backend, status, 1, terminal=True)
    pod["status"] = {"phase": "Pending"}
    with pytest.raises(LauncherError, match="The pod denied of worker 0 is Pending"):
        shell.start(backend, status, 0, terminal=True)
    backend.hosts = lambda _: []
    with pytest.raises(LauncherError, match='The run "demo" is running and has no pods of hosts now'):
        shell.start(backend, status, 0, terminal=True)


def test_a_run_on_this_machine_has_no_pods() -> None:
    backend: Any = SimpleNamespace(cluster=None)
    with pytest.raises(LauncherError, match='The run "demo" is on this machine, so it has no pods'):
        shell.start(backend, RunStatus("demo", "default", "local", State.RUNNING), 0, terminal=True)
