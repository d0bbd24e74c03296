"""The rules for MaxText's dataset types, for paths that no pod can read, and for numbers that no run can have."""

from __future__ import annotations

from pathlib import Path

import pytest

from launcher import api

CLUSTER = """
run: {name: x, kind: ray-job}
slice: {accelerator: v6e, topology: 4x4}
storage: {bucket: some-bucket}
image: {repository: r/x, tag: t1}
team: {name: t}
train: {steps: 4}
"""


@pytest.mark.parametrize(
    ("more", "found"),
    [
        (["train.dataset_type=synthetic"], []),
        (
            [
                "train.dataset_type=hf",
                "train.hf_path=a/b",
                "data.tokenizer.kind=huggingface",
                "data.tokenizer.path=a/b",
            ],
            ["warning data.tokenizer.path: a/b cannot be loaded on this machine, so its ids are not compared with"],
        ),
        (["train.dataset_type=grain", "train.grain_train_files=/data/*"], []),
        (["train.dataset_type=c4_mlperf"], ["error train.dataset_type: Slipway does not support c4_mlperf; set data."]),
        (["train.dataset_type=olmo_grain"], ["error train.dataset_type: Slipway does not support olmo_grain;"]),
        (["train.dataset_type=grain"], ["error train.dataset_type: grain has no text; set train.grain_train_files"]),
        (["data.files=[/data/text]", "data.heldOut.files=[/data/more]"], []),
        (
            ["data.files=[/data/b]", "data.heldOut.files=[/data/b]"],
            ["error data.heldOut.files: /data/b is also in data.files; remove one: the same text must not be trained"],
        ),
        (
            [f"data.mixture.{name}.{key}" for name in ("web", "code") for key in ("weight=1", "files=[hf:a/b]")],
            ["error data.mixture.code.files: hf:a/b is also in data.mixture.web.files; remove one:"],
        ),
        (["data.files=[/datasets/a]"], ["warning data.files: /datasets/a is not below /data, where storage is"]),
        (["data.files=[/text/a]", "storage.text.bucket=some-text"], []),
        (
            ["data.files=[/data/a]", "data.tokenizer.path=/home/me/t.model", "from=/home/me/w"],
            [
                "warning data.tokenizer.path: /home/me/t.model cannot be loaded on this machine",
                "warning data.tokenizer.path: /home/me/t.model is not below /data",
                "warning from: /home/me/w is not below /data",
            ],
        ),
        (["data.files=[/data/a]", "train.num_kv_heads=4"], ["error train.num_kv_heads is calculated by MaxText; set"]),
        (["data.files=[/data/a]", f"train.steps={10**30}"], ["error train.steps is 1e+30; it must be at most 9223"]),
        (["data.files=[/data/a]", f"train.mtp_num_layers={2**63}"], ["error train.mtp_num_layers is"]),
    ],
)
def test_what_check_reports(tmp_path: Path, more: list[str], found: list[str]) -> None:
    file = tmp_path / "a.yaml"
    file.write_text(CLUSTER)
    problems = [f"{problem.severity} {problem.message}" for problem in api.check([str(file)], more)]
    assert [text[: len(wanted)] for text, wanted in zip(problems, found, strict=True)] == found


def test_no_hosts_are_one_host() -> None:
    sets = ["run.name=x", "slice.hosts=0", "train.stepz=1"]
    assert "slice.hosts: 0 means one host; set slice.hosts: 1." in [
        each.message for each in api.check("quickstart", sets)
    ]
