"""The values that a compile depends on, and those that it does not depend on."""

from __future__ import annotations

import shutil
from importlib import metadata
from pathlib import Path

import pytest

from launcher.errors import LauncherError
from launcher.paths import trainer_dir
from launcher.products.planner.forecast import request as requests
from launcher.products.planner.forecast.request import of_config, request
from tests.products.planner.forecasts import LLAMA, VERSIONS, plan


def key(text: str = LLAMA, *sets: str) -> str:
    return request(plan(text, *sets), VERSIONS).key


@pytest.mark.parametrize(
    "other",
    [
        "run.name=x",
        "run.kind=job-set",
        "team.name=research",
        "queue.name=q",
        "slice.provisioning=spot",
        "image.tag=v2",
        "storage.bucket=b",
        "data.corpus=python",
        "worker.env.HOME=/x",
        "worker.memory=200G",
        "worker.env.XLA_FLAGS=--xla_dump_to=/tmp/x --xla_dump_hlo_as_proto",
        "train.steps=7",
        "train.learning_rate=1e-3",
        "train.dataset_type=synthetic",
        "train.checkpoint_period=5",
        "train.log_period=7",
        "common.prices.v6e.perChipHour.spot=1",
        "common.accelerators.v6e.peakTflops=1000",
    ],
)
def test_values_outside_the_program_do_not_change_the_key(other: str) -> None:
    assert key(LLAMA, other) == key()


@pytest.mark.parametrize(
    "other",
    [
        "slice.topology=4x8",
        "slice.count=2",
        "slice.accelerator=v5e",
        "train.per_device_batch_size=2",
        "train.remat_policy=minimal",
        "train.weight_dtype=bfloat16",
        "train.opt_type=sgd",
        "train.packing=false",
        "train.log_step_diagnostics=true",
        "train.max_target_length=8192",
        "worker.env.LIBTPU_INIT_ARGS=--xla_tpu_scoped_vmem_limit_kib=98304",
        "worker.env.XLA_FLAGS=--xla_dump_to=/tmp/x --xla_something=1",
    ],
)
def test_what_changes_the_program_changes_the_key(other: str) -> None:
    assert key(LLAMA, other) != key()


def test_another_version_is_another_program() -> None:
    assert request(plan(), {**VERSIONS, "libtpu": "0.0.47"}).key != key()


@pytest.mark.parametrize("file", ["aot/compile.py", "aot/new.py", "config.py"])
def test_the_trainers_sources_change_the_key(file: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    copy = tmp_path / "trainer"
    shutil.copytree(trainer_dir(), copy)
    monkeypatch.setattr("launcher.products.planner.forecast.request.trainer_dir", lambda: copy)
    requests._source.cache_clear()
    try:
        before = key()
        with (copy / file).open("a") as source:
            source.write("# changed\n")
        requests._source.cache_clear()
        assert key() != before
    finally:
        requests._source.cache_clear()


def test_a_null_is_like_a_missing_key() -> None:
    assert key(LLAMA, "train.remat_policy=null") == key()


def test_the_child_gets_a_config_that_the_trainer_reads() -> None:
    config = request(plan(LLAMA, "data.corpus=python"), VERSIONS).config
    assert config["data"] == {}
    assert config["train"]["model_name"] == "llama3-8b"
    assert (config["accelerator"]["chips"], config["accelerator"]["hosts"]) == (16, 4)


def test_a_users_program_is_not_forecast() -> None:
    config = {**plan().config, "run": {"command": ["python", "mine.py"]}}
    with pytest.raises(LauncherError, match=r"run\.command replaces the trainer"):
        of_config(config, VERSIONS)


def _hide_packages(monkeypatch: pytest.MonkeyPatch, *names: str) -> None:
    version = metadata.version

    def version_or_error(name: str) -> str:
        if name in names:
            raise metadata.PackageNotFoundError(name)
        return version(name)

    monkeypatch.setattr(metadata, "version", version_or_error)


def test_the_extra_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    _hide_packages(monkeypatch, "libtpu", "maxtext")
    with pytest.raises(LauncherError) as raised:
        requests.installed()
    assert raised.value.message == (
        "The Python packages maxtext, libtpu are not installed, and a forecast needs the TPU compiler."
    )
    assert raised.value.hint == 'Install it: pip install "slipway-launcher[forecast]"'


def test_a_machine_that_the_compiler_is_not_for(monkeypatch: pytest.MonkeyPatch) -> None:
    _hide_packages(monkeypatch, "libtpu")
    monkeypatch.setattr("sys.platform", "darwin")
    monkeypatch.setattr("platform.system", lambda: "Darwin")
    monkeypatch.setattr("platform.machine", lambda: "arm64")
    with pytest.raises(LauncherError, match="only for Linux on x86-64; this is macOS on arm64") as raised:
        requests.installed()
    assert "it needs no TPU" in raised.value.hint
