"""The model of a run is evaluated, exported, served, updated to another checkpoint, scaled and removed."""

from __future__ import annotations

import base64
import json
import ssl
from typing import Any

import httpx
import openai
import pytest

from tests.e2e.members import Member
from tests.e2e.needs import needs
from tests.e2e.teams import ADMIT, HOSTS, KUEUE, REMOVED, START, TRAINED, Session, Team

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(3600)]

MODEL, RUN = "tiny", "base"
STEPS, FIRST, SECOND = 60, 20, 40
"""The steps of the run, and the checkpoints that are served, one after the other."""


# Kueue manages RayServices since 0.17, and KubeRay resumes a suspended one since 1.7 (and in 1.5.2 and 1.6.1).
@needs(kueue="0.17", jobset="0.10", kuberay="1.7", image=True, storage=True, nodes=1, cpu=2, memory_gib=10)
def test_the_life_of_a_served_model(session: Session, team: Team, member: Member) -> None:
    team.install(team.hosts(HOSTS + 1, helm=True))
    team.make_claim()
    short = ("--set", f"train.steps={STEPS}", "--set", f"train.checkpoint_period={FIRST}")
    team.submit(team.trainer(RUN, "job-set"), *short)
    team.becomes(RUN, "succeeded", seconds=TRAINED)
    _evaluate(team)
    for step in (FIRST, SECOND):
        to = f"/data/exports/{step}"
        done = member.launcher("export", RUN, "--step", str(step), "--to", to, "-n", team.name, seconds=1000)
        assert done.code == 0, str(done)
        assert team.status(f"{RUN}-export")["state"] == "succeeded"
        team.delete(f"{RUN}-export")

    team.submit(team.filler("other", HOSTS + 1, 3600, priority="high"))
    team.becomes("other", "running", seconds=START)
    _serve(team, FIRST, replicas=1)
    team.becomes(MODEL, "queued", seconds=ADMIT)
    assert "other" in json.dumps(member.query("explain", MODEL, "-n", team.name))
    assert _pods(session, team) == [], "a queued model has no pods"
    member.query("cancel", "other", "-n", team.name)
    _ready(team, FIRST, replicas=1)
    with _client(session, team) as client:
        assert [model.id for model in client.models.list()] == [MODEL]
        assert _answer(client)

        before = _active_cluster(session, team)
        _serve(team, SECOND, replicas=1)
        # The state "updating" can end before a command reports it. The old replica answers until the new one does.
        member.wait(
            "another Ray cluster to serve the model",
            lambda: _answer(client) and _active_cluster(session, team) != before,
            START,
            run=MODEL,
            namespace=team.name,
        )
        _ready(team, SECOND, replicas=1)
        assert _answer(client)

        _serve(team, SECOND, replicas=2)
        _ready(team, SECOND, replicas=2)
        assert _answer(client)
        (workload,) = (
            one
            for one in session.api.items(f"{KUEUE}/namespaces/{team.name}/workloads")
            if one["metadata"]["ownerReferences"][0]["kind"] == "RayService"
        )
        assert sorted(pods["count"] for pods in workload["spec"]["podSets"]) == [1, 2], "the quota counts both replicas"

    removed = member.query("uninstall", MODEL, "-n", team.name, "--yes")
    assert removed["left"] == []
    member.wait("the model's pods to go", lambda: _pods(session, team) == [], REMOVED)
    assert member.query("list", "--models", "-n", team.name) == []


TASK = """\
task: words
dataset_path: json
dataset_kwargs: {data_files: {test: words.jsonl}}
test_split: test
output_type: multiple_choice
doc_to_text: "{{question}}"
doc_to_choice: "{{choices}}"
doc_to_target: answer
metric_list: [{metric: acc, aggregation: mean, higher_is_better: true}]
metadata: {version: 1.0}
"""
WORDS = {"question": "import", "choices": ["os", "xyzzy"], "answer": 0}


def _evaluate(team: Team) -> None:
    """Evaluate the run on a task without data of the Hugging Face Hub. A run writes the task into the claim."""
    team.write("tasks", "/data/tasks", {"words.yaml": TASK, "words.jsonl": f"{json.dumps(WORDS)}\n"})
    asked = ("--tasks", "words", "--tasks-folder", "/data/tasks", "--step", str(FIRST))
    found = team.member.query("eval", RUN, *asked, "-n", team.name, seconds=1000)
    ((result,),) = (one["results"] for one in found)
    assert (result["task"], result["step"]) == ("words", FIRST)
    assert 0 <= result["metrics"]["acc"] <= 1
    assert set(team.listed()) == {RUN, "tasks"}, "the job of the evaluation is deleted"


def _serve(team: Team, step: int, *, replicas: int) -> None:
    options = team.model(MODEL, replicas)
    member = team.member
    command = ["serve", f"exports/{step}", *options, "--release", MODEL, "--name", MODEL, "--timeout", "0", "--yes"]
    done = member.launcher(*command, "-n", team.name)
    assert done.code == 0, str(done)


def _ready(team: Team, step: int, *, replicas: int) -> None:
    """Wait until the model of the checkpoint answers with this number of replicas."""
    last: dict[str, Any] = {}

    def reached() -> bool:
        last.update(team.status(MODEL))
        found = (last["state"], last["model"], last["replicas"])
        return found == ("ready", f"/data/exports/{step}", replicas)

    team.member.wait(
        f"{MODEL} to answer with {replicas} replicas of the checkpoint {step}",
        reached,
        START,
        run=MODEL,
        namespace=team.name,
        seen=lambda: str({key: last.get(key) for key in ("state", "reason", "model", "replicas")}),
    )


def _active_cluster(session: Session, team: Team) -> str:
    """The name of the Ray cluster that receives the requests."""
    service = session.api.get(f"/apis/ray.io/v1/namespaces/{team.name}/rayservices/{MODEL}")
    return str(service["status"]["activeServiceStatus"]["rayClusterName"])


def _pods(session: Session, team: Team) -> list[str]:
    path = f"/api/v1/namespaces/{team.name}/pods?labelSelector=slipway.dev/model={MODEL}"
    return [pod["metadata"]["name"] for pod in session.api.items(path)]


def _client(session: Session, team: Team) -> openai.OpenAI:
    """OpenAI's client with the right to send requests to the model by the API server's proxy, and no other right.

    A port-forward would need a kubelet, and the fakes have none.
    """
    api, service = session.api, f"{MODEL}-serve-svc"
    here = {"name": "asks", "namespace": team.name}
    rbac = {"apiVersion": "rbac.authorization.k8s.io/v1", "metadata": here}
    names = [f"{service}:8000", service]
    rule = {"apiGroups": [""], "resources": ["services/proxy"], "resourceNames": names, "verbs": ["get", "create"]}
    api.create({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": here})
    api.create({**rbac, "kind": "Role", "rules": [rule]})
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "asks"}
    api.create({**rbac, "kind": "RoleBinding", "subjects": [{"kind": "ServiceAccount", **here}], "roleRef": role})
    account = f"/api/v1/namespaces/{team.name}/serviceaccounts/asks/token"
    asked = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 3600}}
    token = api.request("POST", account, asked)["status"]["token"]
    cluster = api.cluster_entry()
    verify: Any = not cluster.get("insecure-skip-tls-verify")
    if authority := cluster.get("certificate-authority-data"):
        verify = ssl.create_default_context(cadata=base64.b64decode(authority).decode())
    return openai.OpenAI(
        base_url=f"{cluster['server']}/api/v1/namespaces/{team.name}/services/{service}:8000/proxy/v1",
        api_key=token,
        max_retries=2,
        timeout=120,
        http_client=httpx.Client(verify=verify, proxy=cluster.get("proxy-url"), trust_env=False),
    )


def _answer(client: openai.OpenAI) -> str:
    """The text that the model generates."""
    done = client.completions.create(model=MODEL, prompt="def main(", max_tokens=8, temperature=0)
    assert done.usage is not None
    assert done.usage.completion_tokens > 0
    return str(done.choices[0].text)
