"""launcher image build, as a user types it.

Shell scripts replace docker, podman and gcloud, because their daemon or account is not available everywhere.
tests/image builds with a real Buildah.
"""

from __future__ import annotations

import signal
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.cli.conftest import Launcher, Result, eventually

DIGEST = "sha256:" + "0123456789abcdef" * 4
# No process listens at port 1, so the launcher cannot find out whether the image already exists.
REPOSITORY = "127.0.0.1:1/team/slipway"


@dataclass(frozen=True)
class Machine:
    """A machine whose PATH has only scripts that replace the tools, and a folder for temporary files."""

    launcher: Launcher
    folder: Path

    def tool(self, name: str, script: str) -> None:
        path = self.folder / "bin" / name
        path.write_text(f'#!/bin/sh\nPATH=/usr/bin:/bin\necho "{name} $*" >> {self.folder}/calls\n{script}\n')
        path.chmod(0o755)

    def build(self, *options: str, accelerator: str = "cpu", repository: str = REPOSITORY) -> Result:
        return self.launcher(
            *("image", "build", f"--accelerator={accelerator}", f"--repository={repository}", *options), env=self.env
        )

    @property
    def env(self) -> Mapping[str, str]:
        return {"PATH": str(self.folder / "bin"), "TMPDIR": str(self.folder / "tmp")}

    @property
    def calls(self) -> list[str]:
        path = self.folder / "calls"
        return path.read_text().splitlines() if path.exists() else []

    @property
    def temporary_files(self) -> list[Path]:
        return list((self.folder / "tmp").iterdir())


@pytest.fixture
def machine(launcher: Launcher, tmp_path: Path) -> Machine:
    for name in ("bin", "tmp"):
        (tmp_path / name).mkdir()
    return Machine(launcher, tmp_path)


WORKS = f"""
case "$1" in
  build) echo "#1 building"; for last; do :; done; test -f "$last/trainer/__main__.py" ;;
  push) echo "0.1.0: digest: {DIGEST} size: 1234" ;;
esac"""


def test_no_tool(machine: Machine) -> None:
    message = "Cannot connect to the Docker daemon at unix:///x. Is the docker daemon running?"
    machine.tool("docker", f"echo '{message}' >&2; exit 1")
    machine.tool("gcloud", "exit 0")
    done = machine.build()
    assert (done.code, done.out) == (1, "")
    assert done.err == (
        "Error: No tool that can build images works on this machine (docker: Cannot connect to the Docker daemon "
        "at unix:///x; "
        "podman: not installed; buildah: not installed; gcloud: no account is logged in (gcloud auth login)).\n"
        "Hint: Install Docker, Podman or Buildah and start it, or log in with gcloud, which builds in Google Cloud.\n"
    )


def test_build_push_and_write(machine: Machine) -> None:
    machine.tool("docker", WORKS)
    overlay = machine.launcher.folder / "image.yaml"
    overlay.write_text("# ours\nimage: {pullPolicy: Always}\n")
    done = machine.build("--push", "--write", "image.yaml", "--", "--no-cache")
    assert (done.code, done.out) == (0, f"{DIGEST}\n")
    lines = done.err.splitlines()
    assert lines[0].startswith(f"Cannot check whether 127.0.0.1:1 already has {REPOSITORY}:0.1.0-cpu-")
    assert lines[0].endswith(" (Connection refused).")
    assert lines[1].startswith(f"Building {REPOSITORY}:0.1.0-cpu-")
    assert lines[2:] == ["#1 building", f"0.1.0: digest: {DIGEST} size: 1234", "Wrote image to image.yaml."]
    assert [call.split()[:2] for call in machine.calls] == [["docker", "info"], ["docker", "build"], ["docker", "push"]]
    assert "--no-cache" in machine.calls[1]
    text = overlay.read_text()
    assert text.startswith("# ours\n")
    values = machine.launcher("values", "-f", "image.yaml", "-o", "json").json["image"]
    assert values.pop("tag").startswith("0.1.0-cpu-")
    assert values == {
        "pullPolicy": "Always",
        "repository": REPOSITORY,
        "digest": DIGEST,
        "rayVersion": "2.60.0",
    }
    assert machine.temporary_files == []


def test_json(machine: Machine) -> None:
    machine.tool("podman", f'[ "$1" != push ] || echo {DIGEST} > "${{2#--digestfile=}}"')
    printed = machine.build("--push", "-o", "json", accelerator="tpu").json
    tag = printed.pop("tag")
    assert tag.startswith("0.1.0-tpu-")
    assert printed == {
        "repository": REPOSITORY,
        "digest": DIGEST,
        "accelerator": "tpu",
        "rayVersion": "2.60.0",
        "built": True,
    }
    without = machine.build("-o", "json", accelerator="tpu").json
    assert (without["tag"], without["digest"]) == (tag, "")
    assert machine.build(accelerator="tpu").out == f"{REPOSITORY}:{tag}\n"


def test_what_is_pushed_is_not_built_again(machine: Machine) -> None:
    from tests.products.image.test_image import registry

    machine.tool("docker", WORKS)
    with registry(lambda _: (200, {"Docker-Content-Digest": DIGEST}, b"")) as host:
        done = machine.build("--push", "--write", "new.yaml", repository=f"{host}/slipway")
    assert (done.code, done.out) == (0, f"{DIGEST}\n")
    assert "is already pushed; there is nothing to build." in done.err
    assert machine.calls == []
    assert f'digest: "{DIGEST}"' in (machine.launcher.folder / "new.yaml").read_text()


def test_a_refused_push(machine: Machine) -> None:
    machine.tool("docker", '[ "$1" != push ] || { echo "denied: requested access to the resource is denied"; exit 1; }')
    done = machine.build("--push", "--write", "new.yaml")
    assert (done.code, done.out) == (1, "")
    assert done.err.endswith(
        f"Error: 127.0.0.1:1 refuses the push to {REPOSITORY}: denied: requested access to the resource is denied.\n"
        "Hint: Log in (docker login 127.0.0.1:1), and check that you may write to this repository.\n"
    )
    assert list(machine.launcher.folder.iterdir()) == []
    assert machine.temporary_files == []


def test_a_file_that_cannot_be_written_is_found_before_the_build(machine: Machine) -> None:
    machine.tool("docker", WORKS)
    invalid = machine.launcher.folder / "bad.yaml"
    invalid.write_text("image: [\n")
    done = machine.build("--push", "--write", "bad.yaml")
    assert (done.code, done.out) == (1, "")
    assert done.err.startswith("Error: bad.yaml:")
    assert machine.calls == []
    assert invalid.read_text() == "image: [\n"


def test_no_place_for_the_build(machine: Machine) -> None:
    machine.tool("docker", WORKS)
    (machine.folder / "tmp").rmdir()
    done = machine.build()
    assert (done.code, done.out) == (1, "")
    assert done.err.splitlines()[-2:] == [
        f"Error: The build cannot write its files to {machine.folder / 'tmp'}: No such file or directory.",
        "Hint: Set TMPDIR to another folder.",
    ]
    assert not any(call.startswith("docker build") for call in machine.calls)


def test_dry_run(machine: Machine) -> None:
    machine.tool("docker", WORKS)
    done = machine.build("--push", "--dry-run", "--write", "new.yaml")
    assert done.code == 0
    build, push = done.out.splitlines()
    assert build.startswith(
        "docker build --platform=linux/amd64 --file=CONTEXT/docker/Dockerfile --tag=127.0.0.1:1/team/slipway:0.1.0-cpu-"
    )
    assert build.endswith("CONTEXT")
    assert push == f"docker push {build.split('--tag=')[1].split()[0]}"
    assert done.err.startswith("CONTEXT is a folder")
    assert machine.calls == ["docker info"]
    assert list(machine.launcher.folder.iterdir()) == []
    assert machine.build("--dry-run", "-o", "json").json["commands"] == [build]


def test_gcloud_keeps_nothing_here(machine: Machine) -> None:
    machine.tool("gcloud", f'case "$1" in auth) echo me;; config) echo project;; builds) echo {DIGEST};; esac')
    done = machine.build()
    assert (done.code, done.err.splitlines()[-1]) == (1, "Hint: Add --push.")
    assert machine.build("--push").out == f"{DIGEST}\n"
    done = machine.build("--tool=gcloud")
    assert (done.code, done.err) == (2, "Error: gcloud keeps images only in a registry; add --push.\n")


def test_ctrl_c_leaves_nothing(machine: Machine) -> None:
    machine.tool("docker", '[ "$1" != build ] || exec sleep 60')
    options = ("image", "build", "--accelerator=cpu", f"--repository={REPOSITORY}", "--write=new.yaml")
    process = machine.launcher.start(*options, env=machine.env, start_new_session=True)
    eventually(lambda: len(machine.calls) == 2 and machine.temporary_files)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=20)
    assert process.returncode == 130
    assert machine.temporary_files == []
    assert list(machine.launcher.folder.iterdir()) == []


def test_wrong_usage(machine: Machine) -> None:
    done = machine.build(repository="x.example.com/slipway:latest")
    assert done.code == 2
    assert done.err.startswith('Error: "x.example.com/slipway:latest" is not a valid repository name: it has a tag')
    assert machine.build(accelerator="npu").code == 2
