"""`launcher checkpoints`, `export` and `import` as a user types them, without a conversion."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.conftest import SHORT, Launcher
from tests.products.models.checkpoint_folders import write_run


@pytest.fixture
def base(launcher: Launcher) -> Path:
    return write_run(launcher.folder / "base")


def test_the_table_of_checkpoints(launcher: Launcher, base: Path) -> None:
    (base / "checkpoints" / "9.orbax-checkpoint-tmp" / "items").mkdir(parents=True)
    done = launcher("checkpoints", "./base", env={"TZ": "UTC"})
    assert done.code == 0
    assert done.err == "9 is incomplete: 9.orbax-checkpoint-tmp is being written, or its writer was killed.\n"
    assert done.out.splitlines() == [
        "STEP  AFTER     SIZE     SAVED                    HELD-OUT LOSS            NOTES",
        "0     1 step    12.9 MB  2026-11-24 21:08:02 UTC  10.9781 (after 0 steps)",
        "3     4 steps   15.7 MB  2026-11-24 21:08:03 UTC  10.6100 (after 3 steps)",
        "6     7 steps   15.7 MB  2026-11-24 21:08:05 UTC  10.4559                  best, last",
        "9     10 steps  0 B                               10.4559 (after 7 steps)  incomplete",
    ]
    rows = launcher("checkpoints", "./base", "-o", "json").json["checkpoints"]
    assert [row["step"] for row in rows if row["whole"]] == [0, 3, 6]
    assert rows[2] == {
        **{"step": 6, "bytes": 15713668, "saved": "2026-11-24T21:08:05Z", "whole": True, "problem": ""},
        **{"eval_loss": 10.45592781121823, "eval_step": 7, "best": True, "last": True},
    }


def test_runs_without_checkpoints(launcher: Launcher) -> None:
    done = launcher("checkpoints", "other", "--local")
    assert (done.code, done.out) == (1, "")
    assert done.err.splitlines()[0] == 'Error: The run "other" was not found on this machine.'
    file = launcher.write("demo.yaml", SHORT)
    assert launcher("submit", "-f", file).code == 0
    for verb in (("checkpoints", "demo"), ("export", "demo", "--to", "model")):
        done = launcher(*verb)
        assert (done.code, done.out) == (1, "")
        assert done.err.startswith(
            'Error: The run "demo" has no checkpoints: it runs a command (run.command) instead of'
        )


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (("./base",), 2, "--to is missing: give a folder, gs://BUCKET/FOLDER or hf:ORG/NAME."),
        (("./base", "--to", "m", "--step", "newest"), 2, '--step "newest" is not a step; give a number, last or best.'),
        (("./base", "--to", "m", "--public"), 2, "--public is for a repository on Hugging Face: --to hf:ORG/NAME."),
        (
            ("./base", "--to", "m", "--detach"),
            2,
            "--set, --detach and --dry-run are for a run in a cluster; this one is",
        ),
        (("./base", "--to", "m", "--step", "4"), 1, "base has no checkpoint 4 in "),
        (("./other", "--to", "m"), 1, "There is no folder "),
        (
            ("gs://runs/base", "--to", "m"),
            2,
            "gs://runs/base is a URL; give the name of the run, or a copy of its folder",
        ),
        (("./base", "--to", "hf:base"), 2, "hf:base is not the name of a model on Hugging Face; write hf:ORG/NAME."),
    ],
)
def test_exports_that_are_refused(
    launcher: Launcher, base: Path, arguments: tuple[str, ...], code: int, says: str
) -> None:
    done = launcher("export", *arguments)
    assert (done.code, done.out) == (code, "")
    assert done.err.splitlines()[0].startswith(f"Error: {says}")
    assert not (launcher.folder / "m").exists()


def test_a_half_written_checkpoint_is_not_exported(launcher: Launcher, base: Path) -> None:
    """The checkpoint has the files and sizes of a whole one, but no weights."""
    done = launcher("export", "./base", "--to", "m")
    assert (done.code, done.out) == (1, "")
    assert "Traceback" not in done.err and done.err.splitlines()[-1].startswith("Error: ")
    assert [path.name for path in launcher.folder.iterdir()] == ["base"]


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (("gs://models/llama", "--to", "w"), 2, "gs://models/llama is a URL; give a folder or hf:ORG/NAME."),
        (("hf:llama", "--to", "w"), 2, "hf:llama is not the name of a model on Hugging Face; write hf:ORG/NAME."),
        (("./llama", "--to", "gs://weights/w"), 1, "--to gs://weights/w is not a folder of this machine, to which"),
        (("./llama", "--to", "w"), 1, "/llama is not a folder; give a folder in Hugging Face format, or"),
        (
            ("./llama", "--to", "w", "--set", "train.model_nam=x"),
            1,
            "--set train.model_nam: MaxText has no key model_nam",
        ),
        (
            ("./llama", "--to", "w", "--set", "storage.bucket=runs"),
            1,
            "./llama is not a path in the pods of the import",
        ),
        (
            ("/llama", "--to", "w", "--set", "storage.bucket=runs"),
            1,
            "--to w is outside the storage of the run, and its",
        ),
        (
            ("./llama", "--to", "w", "--detach"),
            2,
            "--detach and --dry-run are for an import in a cluster; this one is on",
        ),
    ],
)
def test_imports_that_are_refused(launcher: Launcher, arguments: tuple[str, ...], code: int, says: str) -> None:
    done = launcher("import", *arguments)
    assert (done.code, done.out) == (code, "")
    assert f"{says}" in done.err and "Traceback" not in done.err
    assert list(launcher.folder.iterdir()) == []
