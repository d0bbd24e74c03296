"""`launcher serve NAME -f FILE`: a release of charts/serve with the model of a run, a folder or Hugging Face."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from launcher.paths import presets_dir
from tests.bucket import bucket
from tests.cli.conftest import Result
from tests.cluster.api import Api
from tests.cluster.fake_kuberay import RAY
from tests.cluster.launching import LauncherCli
from tests.products.models.checkpoint_folders import write_run
from tests.products.report import report_runs

BUCKET = "gs://example-runs"


class Server:
    """The launcher with a run `base` in the cluster, whose bucket has the checkpoints 0, 3 and 6; 6 is exported."""

    def __init__(self, cli: LauncherCli, admin: Api, cloud: Path) -> None:
        self.cli, self.admin, self.cloud = cli, admin, cloud
        tree = yaml.safe_load((presets_dir() / "serve" / "llama3.1-8b-v6e.yaml").read_text())
        tree["team"] = {"name": "research", "namespace": cli.namespace}
        tree["queue"] = {"name": "multislice"}
        tree["storage"] = {"kind": "gcsfuse", "bucket": "example-runs"}
        tree["serve"] |= {"replicas": {"min": 1, "max": 1}, "contextLength": 8192}
        del tree["serve"]["model"], tree["serve"]["name"], tree["train"]
        self.file = cli.folder / "model.yaml"
        self.file.write_text(yaml.safe_dump(tree))

    def add_model(self, folder: str) -> None:
        (self.cloud / "example-runs" / folder).mkdir(parents=True)
        (self.cloud / "example-runs" / folder / "config.json").write_text("{}")

    def __call__(self, name: str, *arguments: str) -> Result:
        return self.cli("serve", name, "-f", str(self.file), "--timeout", "0", *arguments)

    def served(self) -> dict[str, dict[str, Any]]:
        """Return the arguments of the application of each RayService, by its name."""
        services = self.admin.items(f"{RAY}/{self.cli.namespace}/rayservices")
        return {
            each["metadata"]["name"]: yaml.safe_load(each["spec"]["serveConfigV2"])["applications"][0]["args"]
            for each in services
        }

    def refused(self, name: str, *arguments: str) -> list[str]:
        done = self(name, *arguments)
        assert (done.code, done.out, self.served()) == (1, "", {})
        return done.err.splitlines()


@pytest.fixture
def server(cli: LauncherCli, admin: Api, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    """A server on this machine replaces Cloud Storage, which needs an account."""
    assert cli("submit", "-f", cli.values("job-set", "base"), "--detach").code == 0
    write_run(tmp_path / "cloud" / "example-runs" / "base")
    made = Server(cli, admin, tmp_path / "cloud")
    made.add_model("base/export/6")
    with bucket(made.cloud) as url:
        monkeypatch.setenv("STORAGE_EMULATOR_HOST", url)
        yield made


def test_the_export_of_a_run_is_served(server: Server) -> None:
    dry = server("base", "--dry-run")
    assert (dry.code, server.served()) == (0, {})
    assert "Nothing was changed." in dry.err
    done = server("base", "-o", "json")
    assert done.code == 0, done.err
    assert (done.json["release"], done.json["chart"], done.json["namespace"]) == ("base", "serve", server.cli.namespace)
    assert done.err.splitlines()[-1] == "The release base is installed."
    [(name, arguments)] = server.served().items()
    assert (name, arguments["model"], arguments["name"]) == ("base", "/data/base/export/6", "base")
    assert server.cli("status", "base", "-n", server.cli.namespace).code == 1  # a run and a served model
    # Another checkpoint, under other names.
    server.add_model("base/export/3")
    done = server("base", "--step", "3", "--release", "canary", "--name", "base-3")
    assert done.code == 0, done.err
    arguments = server.served()["canary"]
    assert (arguments["model"], arguments["name"]) == ("/data/base/export/3", "base-3")


def test_the_sizes_of_the_runs_model_are_checked(server: Server) -> None:
    """The run trains llama3-8b, which was trained for 8,192 tokens."""
    errors = server.refused("base", "--set", "serve.contextLength=100000")
    assert any("serve.contextLength is 100000; llama3-8b was trained for 8192 tokens." in line for line in errors)


def test_a_checkpoint_that_is_not_exported_is_refused(server: Server) -> None:
    here = f"-n {server.cli.namespace}"
    assert server.refused("base", "--step", "3") == [
        f"Error: {BUCKET}/base/export/3 contains no model: it has no config.json.",
        f"Hint: To export the checkpoint 3 of base: launcher export base --step 3 {here}",
    ]
    assert server.refused("base", "--step", "5")[0] == f"Error: base has no checkpoint 5 in {BUCKET}/base/checkpoints."
    assert server.cli("export", "base", "--step", "3", "--detach", *here.split()).code == 0
    assert server.refused("base", "--step", "3") == [
        'Error: The run "base-export", which exports the model, is queued.',
        f"Hint: Wait until it ends: launcher wait base-export {here}",
    ]
    assert server.refused("other")[0].startswith('Error: The run "other" was not found')


def test_what_is_not_known_is_a_warning(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """The pods have the access that this machine lacks."""
    with bucket(server.cli.folder, 403) as url:
        monkeypatch.setenv("STORAGE_EMULATOR_HOST", url)
        assert server.refused("base")  # the steps cannot be listed
        done = server("base", "--step", "6")
    assert done.code == 0, done.err
    assert done.err.startswith(f"Warning: Whether {BUCKET}/base/export/6 contains a model is not known: ")
    assert f"launcher export base --step 6 -n {server.cli.namespace}" in done.err.splitlines()[0]
    assert server.served()["base"]["model"] == "/data/base/export/6"


def test_a_run_in_other_storage_is_refused(server: Server) -> None:
    assert server.refused("base", "--set", "storage.bucket=others") == [
        f'Error: The run "base" is in {BUCKET}, and the values mount gs://others.',
        "Hint: Set storage in the values to that of the run.",
    ]


def test_a_run_of_this_machine_is_refused(server: Server) -> None:
    record = report_runs.record("here", report_runs.BEGIN, report_runs.BEGIN + 60)
    config = {"run": {"name": "here", "kind": "local"}, "train": {}}
    report_runs.write(server.cli.folder / "home" / "runs" / "here", config=config, record=record)
    assert server.refused("here") == [
        'Error: The run "here" is on this machine, and a cluster cannot read its folder.',
        "Hint: Export it into the storage of the values, and serve this folder: launcher export here --to "
        f"{BUCKET}/exports/here",
    ]


@pytest.mark.parametrize(
    ("name", "release", "model"),
    [
        ("hf:meta-llama/Llama-3.1-8B", "llama-3-1-8b", "meta-llama/Llama-3.1-8B"),
        (f"{BUCKET}/exports/llama/", "llama", "/data/exports/llama"),
        ("exports/llama", "llama", "/data/exports/llama"),
        ("/data/exports/llama", "llama", "/data/exports/llama"),
    ],
)
def test_a_folder_or_a_model_of_hugging_face_is_served(server: Server, name: str, release: str, model: str) -> None:
    server.add_model("exports/llama")
    done = server(name)
    assert (done.code, "Warning" in done.err) == (0, False), done.err
    assert {each: arguments["model"] for each, arguments in server.served().items()} == {release: model}


@pytest.mark.parametrize(
    ("name", "error"),
    [
        ("exports/other", f"Error: {BUCKET}/exports/other contains no model: it has no config.json."),
        ("gs://others/llama", f"Error: gs://others/llama is not in the storage of the values, {BUCKET}."),
        ("./llama", "Error: ./llama is a folder of this machine, and a cluster cannot read it."),
        ("hf:llama", "Error: hf:llama is not the name of a model on Hugging Face; write hf:ORG/NAME."),
    ],
)
def test_a_model_that_pods_cannot_load_is_refused(server: Server, name: str, error: str) -> None:
    done = server(name)
    assert (done.err.splitlines()[0], server.served()) == (error, {})
    assert done.code in (1, 2)


def test_options_for_the_other_place_are_usage_errors(server: Server) -> None:
    assert server.cli("serve", "base", "-f", str(server.file), "--port", "8001").err.splitlines()[-1] == (
        "Error: --port is for a model on this machine."
    )
    done = server.cli("serve", "base", "--release", "x")
    assert (done.code, done.err.splitlines()[-1]) == (
        2,
        "Error: --release is for a model in a cluster, which -f FILE selects.",
    )
    assert server.cli("serve", "base", "--step", "6", "-n", server.cli.namespace).err.splitlines() == [
        "Error: base is a run on a cluster, whose model this machine cannot serve.",
        "Hint: To serve it on its cluster: launcher export base, and then launcher serve base -f FILE "
        "(docs/how-to/serve-a-model.md).",
    ]
