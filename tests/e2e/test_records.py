"""When a run is over: its output and its record are in the storage, its team was notified, and the platform's service
account records it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.cluster.api import Object
from tests.e2e import logs
from tests.e2e.cli import Cli
from tests.e2e.members import Member, write_kubeconfig
from tests.e2e.needs import needs
from tests.e2e.teams import HOSTS, REMOVED, START, STEPS, TRAINED, Session, Team, user_storage

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(3600)]

PORT = 8080
WEBHOOK = f"""
import http.server

class Handler(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        print("NOTIFIED " + self.rfile.read(int(self.headers["Content-Length"])).decode(), flush=True)
        self.send_response(200)
        self.end_headers()

http.server.HTTPServer(("", {PORT}), Handler).serve_forever()
"""
_RECORD = "RECORD "


@needs(kueue="0.16", jobset="0.10", image=True, storage=True, nodes=1, cpu=2, memory_gib=10)
def test_what_is_left_of_a_run(session: Session, team: Team, member: Member, tmp_path: Path) -> None:
    # A host more than the run: the webhook, and later the pod that reads the storage.
    team.install({**team.hosts(HOSTS + 1), "record": _record_settings(session)})
    team.make_claim()
    _submit_alone(team, "hook", ["python", "-c", WEBHOOK])
    team.becomes("hook", "running", seconds=START)
    _make_secret(session, team, f"json http://hook-slice-0-0.hook:{PORT}/{session.ident}\nevents started ended\n")
    team.submit(team.trainer("kept", "job-set"))
    team.becomes("kept", "succeeded", seconds=TRAINED)

    received = member.wait(
        "both notifications", lambda: _two(_received(team)), START, seen=lambda: str(_received(team))
    )
    assert [(body["event"], body["run"]) for body in received] == [("started", "kept"), ("ended", "kept")]
    assert received[-1]["text"].endswith("has succeeded.")
    assert member.query("cancel", "hook", "-n", team.name)["state"] == "cancelled"

    recorded = _recorded(session, team, tmp_path)
    assert {name: record["state"] for name, record in recorded.items()} == {"kept": "succeeded", "hook": "cancelled"}
    assert recorded["kept"]["user"] == "", "the values name no user"

    for pod in session.api.items(f"/api/v1/namespaces/{team.name}/pods?labelSelector=slipway.dev/run=kept"):
        session.api.delete(f"/api/v1/namespaces/{team.name}/pods/{pod['metadata']['name']}", grace=1)
    member.wait("the pods to go", lambda: not _pods(session, team, "kept"), REMOVED)
    if not user_storage(session.settings):
        done = member.launcher("logs", "kept", "-n", team.name)
        assert done.code == 1, str(done)
        assert "only pods can mount" in done.err
        assert "zcat /storage/kept/logs/1/*.log.gz" in done.err
    else:
        done = member.launcher("logs", "kept", "--raw", "-n", team.name)
        assert logs.read(done.out).last_step == STEPS - 1, str(done)
    folder = "$SLIPWAY_FOLDER"
    script = f"zcat {folder}/logs/1/host-0.*.log.gz; printf '{_RECORD}'; cat {folder}/run.record.json; echo"
    _submit_alone(team, "reads", ["sh", "-c", script.replace(folder, f"{_mount(session)}/kept")])
    team.becomes("reads", "succeeded", seconds=START)
    text = member.launcher("logs", "reads", "--raw", "-n", team.name).out
    assert logs.read(text).last_step == STEPS - 1, text[-2000:]
    (line,) = [line for line in text.splitlines() if _RECORD in line]
    record = json.loads(line.partition(_RECORD)[2])
    assert (record["version"], record["state"], record["steps"]) == (1, "succeeded", STEPS)


def _record_settings(session: Session) -> dict[str, Any]:
    """Return values of record whose CronJob never starts: the test itself acts as its service account."""
    image = session.settings.image
    return {"enabled": True, "image": image, "folder": "gs://no-bucket", "schedule": "0 0 31 2 *"}


def _submit_alone(team: Team, name: str, command: list[str]) -> None:
    file = team.member.values(f"{team.name}-{name}-command", {"run": {"command": command}, "slice": {"hosts": 1}})
    team.submit([*team.trainer(name, "job-set"), "-f", file])


def _make_secret(session: Session, team: Team, addresses: str) -> None:
    metadata = {"name": "slipway-notify", "namespace": team.name}
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "stringData": {"addresses": addresses}}
    session.api.create(secret)


def _received(team: Team) -> list[dict[str, Any]]:
    """Return what the webhook has received from the trainer."""
    text = team.member.launcher("logs", "hook", "-n", team.name).out
    lines = (line.partition("NOTIFIED ")[2] for line in text.splitlines())
    return [json.loads(line) for line in lines if line]


def _two(bodies: list[dict[str, Any]]) -> list[dict[str, Any]] | None:
    return bodies if len(bodies) >= 2 else None


def _recorded(session: Session, team: Team, folder: Path) -> dict[str, Any]:
    """Return the records, by run, that `launcher record` writes with the rights of the CronJob's service account."""
    token = _token(session)
    kubeconfig = folder / "record.kubeconfig"
    write_kubeconfig(kubeconfig, session.api.cluster_entry(), "slipway-record", token, team.name)
    settings = replace(session.settings, kubeconfig=str(kubeconfig), context="")
    records = folder / "records"
    done = Cli(settings, folder, session.cli.helm, session.api).launcher("record", str(records), "-n", team.name)
    assert done.code == 0, str(done)
    return {record["name"]: record for record in _read(records)}


def _read(folder: Path) -> Iterator[dict[str, Any]]:
    for path in folder.rglob("*.record.json"):
        yield json.loads(path.read_text())


def _token(session: Session) -> str:
    path = f"/api/v1/namespaces/{session.ident}/serviceaccounts/slipway-record/token"
    body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 3600}}
    return str(session.api.request("POST", path, body)["status"]["token"])


def _pods(session: Session, team: Team, run: str) -> list[Object]:
    return session.api.items(f"/api/v1/namespaces/{team.name}/pods?labelSelector=slipway.dev/run={run}")


def _mount(session: Session) -> str:
    """Return where the storage is mounted: the charts' default, or that of SLIPWAY_E2E_VALUES."""
    values = yaml.safe_load(Path(session.settings.values).read_text()) if session.settings.values else {}
    return str(((values or {}).get("storage") or {}).get("mountPath") or "/data")
