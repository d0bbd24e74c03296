"""Exports and imports as runs of a cluster, and runs that start from the weights of another run."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.bucket import bucket
from tests.cli.conftest import Result
from tests.cluster.api import Api, Object
from tests.cluster.launching import LauncherCli
from tests.cluster.test_submit import next_commands
from tests.products.models.checkpoint_folders import write_run

IMAGE = {"repository": "example.invalid/slipway", "tag": "1.0.0"}


@pytest.fixture
def base(cli: LauncherCli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[LauncherCli]:
    """The launcher with a run `base` in the cluster, whose bucket has the checkpoints 0, 3 and 6.

    A server on this machine replaces Cloud Storage, which needs an account.
    """
    assert cli("submit", "-f", cli.values("ray-job", "base"), "--detach").code == 0
    write_run(tmp_path / "cloud" / "example-runs" / "base")
    with bucket(tmp_path / "cloud") as url:
        monkeypatch.setenv("STORAGE_EMULATOR_HOST", url)
        yield cli


def job(cli: LauncherCli, admin: Api, name: str) -> tuple[Object, dict[str, Any], dict[str, Any]]:
    """Return the JobSet of that name, the spec of its pods, and their one container."""
    [obj] = [run for run in cli.runs(admin) if run["metadata"]["name"] == name]
    assert obj["kind"] == "JobSet"
    [replicated] = obj["spec"]["replicatedJobs"]
    assert (replicated["replicas"], replicated["template"]["spec"]["completions"]) == (1, 1)
    pod = replicated["template"]["spec"]["template"]["spec"]
    [container] = pod["containers"]
    return obj, pod, container


def on(cli: LauncherCli, *arguments: str) -> Result:
    return cli(*arguments, "-n", cli.namespace)


def refused(done: Result) -> str:
    assert (done.code, done.out) == (1, "")
    return done.err.splitlines()[0]


def test_the_checkpoints_of_a_run_are_in_its_bucket(base: LauncherCli) -> None:
    done = on(base, "checkpoints", "base", "-o", "json")
    assert (done.code, done.err) == (0, "")
    assert [each["step"] for each in done.json["checkpoints"]] == [0, 3, 6]
    assert done.json["folder"] == "gs://example-runs/base/checkpoints"


def test_an_export_is_a_run_on_one_cpu_host_with_the_values_of_its_run(base: LauncherCli, admin: Api) -> None:
    dry = on(base, "export", "base", "--step", "best", "--dry-run")
    assert dry.code == 0 and "the API server accepts it." in dry.err
    assert len(base.runs(admin)) == 1

    done = on(base, "export", "base", "--step", "best", "--dtype", "bfloat16", "--detach", "-o", "json")
    assert done.code == 0
    assert done.err == (
        f'Submitting to {base.target}.\nThe run "base-export" was submitted.\nIt writes /data/base/export/6.\n'
        f"{next_commands(base, 'base-export')}"
    )
    assert (done.json["kind"], done.json["queue"], done.json["team"]) == ("job-set", "multislice", "research")
    obj, pod, container = job(base, admin, "base-export")
    assert container["command"] == [
        *("python", "-m", "trainer.weights", "export", "--config", "/data/base/run.json"),
        *("--to", "/data/base/export/6", "--dtype", "bfloat16", "--step", "6"),
    ]
    assert container["image"] == f"{IMAGE['repository']}:{IMAGE['tag']}"
    assert container["resources"]["requests"] == {"cpu": "2", "memory": "11Gi"}
    assert obj["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "multislice"
    assert pod["serviceAccountName"] == "research"
    assert not any("tpu" in key for key in pod.get("nodeSelector") or {})
    [storage] = [volume for volume in pod["volumes"] if volume["name"] == "storage"]
    assert storage["csi"]["volumeAttributes"]["bucketName"] == "example-runs"
    assert obj["spec"]["failurePolicy"]["maxRestarts"] == 0

    again = on(base, "export", "base", "--step", "best", "--dtype", "bfloat16", "--detach")
    assert again.code == 0
    assert 'The run "base-export" is already queued, with the same config.' in again.err
    other = on(base, "export", "base", "--step", "3", "--detach")
    assert other.code == 1 and 'Error: The run "base-export" is queued with a different config:' in other.err


def test_the_destination_of_an_export_is_in_the_storage_of_the_run(base: LauncherCli, admin: Api) -> None:
    done = on(
        base, "export", "base", "--to", "gs://example-runs/models/base/", "--set", "worker.memory=12Gi", "--detach"
    )
    assert done.code == 0 and "It writes /data/models/base.\n" in done.err
    assert job(base, admin, "base-export")[2]["resources"]["requests"]["memory"] == "12Gi"
    for to in ("hf:example/base", "gs://others/base", "./base", "/data/../etc", "/data"):
        done = on(base, "export", "base", "--to", to)
        assert refused(done) == (
            f"Error: --to {to} is outside the storage of the run, and its pods write only there: give a folder below "
            "/data, or gs://example-runs/FOLDER."
        )
        assert done.err.splitlines()[1].endswith("gcloud storage cp -r gs://example-runs/base/export/6 .")


def test_a_step_that_the_run_does_not_have(base: LauncherCli, admin: Api) -> None:
    done = on(base, "export", "base", "--step", "5")
    assert refused(done) == "Error: base has no checkpoint 5 in gs://example-runs/base/checkpoints."
    assert done.err.splitlines()[1] == "Hint: Its checkpoints are: 0, 3, 6."
    assert len(base.runs(admin)) == 1


def test_an_export_without_access_to_the_bucket(base: LauncherCli, admin: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    """The pods have the access that this machine lacks."""
    with bucket(base.folder, 403) as url:
        monkeypatch.setenv("STORAGE_EMULATOR_HOST", url)
        assert refused(on(base, "export", "base", "--step", "best")).startswith(
            "Error: You may not read gs://example-runs"
        )
        done = on(base, "export", "base", "--detach")
    assert done.code == 0
    assert done.err.splitlines()[0].endswith("The export itself searches the checkpoint.")
    command = job(base, admin, "base-export")[2]["command"]
    assert command[command.index("--to") + 1] == "/data/base/export/last" and "--step" not in command


def test_an_import_is_a_run_in_the_storage_of_the_values(cli: LauncherCli, admin: Api) -> None:
    worker = {"secretEnv": {"HF_TOKEN": {"name": "hugging-face", "key": "token"}}}
    file = cli.values("ray-job", "tuned", worker=worker)
    done = cli("import", "hf:meta-llama/Meta-Llama-3-8B", "--to", "/data/weights/llama3", "-f", file, "--detach")
    assert done.code == 0 and "It writes /data/weights/llama3.\n" in done.err
    obj, _, container = job(cli, admin, "tuned-import")
    assert container["command"] == [
        *("python", "-m", "trainer.weights", "import", "--config", "/etc/slipway/run.json"),
        *("--from", "hf:meta-llama/Meta-Llama-3-8B", "--to", "/data/weights/llama3"),
    ]
    secrets = [entry["valueFrom"] for entry in container["env"] if entry["name"] == "HF_TOKEN"]
    assert secrets == [{"secretKeyRef": {"name": "hugging-face", "key": "token"}}]
    status = on(cli, "status", "tuned-import", "-o", "json").json
    assert (status["name"], status["state"]) == ("tuned-import", "queued")
    pod = obj["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]
    assert '"model_name":"llama3-8b"' in pod["metadata"]["annotations"]["slipway.dev/run-config"]
    outside = refused(cli("import", "hf:a/b", "--to", "weights", "-f", file))
    assert outside.startswith("Error: --to weights is outside the storage of the run, and its pods write only there:")


def test_the_model_of_the_run_that_a_run_starts_from(base: LauncherCli, admin: Api) -> None:
    def check(**over: Any) -> Result:
        file = base.values("job-set", "tuned", **over)
        return base("check", "-f", file, "--set", "from=base@6", "--live")

    assert check().code == 0
    other = check(train={"model_name": "llama3-70b"})
    assert other.code == 1
    assert 'train.model_name is "llama3-70b", and the weights of from: base@6 are those of llama3-8b; set' in other.out
    elsewhere = check(storage={"bucket": "other-runs"})
    assert elsewhere.code == 1
    assert (
        "from: the checkpoints of the run base are in gs://example-runs/base, and this run searches them in "
        "gs://other-runs/base." in elsewhere.out
    )
    tokenizer = check(data={"tokenizer": {"path": "/data/tokenizers/mine.model"}})
    assert tokenizer.code == 0
    assert "the weights of from: base@6 know only the ids of their tokenizer, " in tokenizer.out
    adapters = base.values("job-set", "adapters", tuning={"method": "lora"})
    assert base("submit", "-f", adapters, "--set", "from=base@6", "--detach").code == 0
    merged = base("check", "-f", base.values("job-set", "tuned"), "--set", "from=adapters@6", "--live")
    assert merged.code == 1
    assert "from: the checkpoints of adapters have adapters only, and a run starts from a whole model." in merged.out
    done = base("submit", "-f", base.values("job-set", "tuned"), "--set", "from=base@6", "--detach")
    assert done.code == 0
    pod = next(run for run in base.runs(admin) if run["metadata"]["name"] == "tuned")["spec"]["replicatedJobs"][0]
    text = pod["template"]["spec"]["template"]["metadata"]["annotations"]["slipway.dev/run-config"]
    assert '"load_parameters_path":"/data/base/checkpoints/6/items"' in text
