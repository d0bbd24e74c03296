"""The real image, built by the launcher: its contents, and the layers that a change builds again."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tarfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import pytest

from tests import local_registry
from tests.image.base import base_archive
from tests.image.buildah import Buildah
from tests.image.conftest import ROOT, Builder, Image, build, lock, name_of
from tests.products.image.test_image import registry as fake_registry
from tests.tools.go_tools import cache_dir

pytestmark = pytest.mark.image

SITE = Path("opt/slipway/lib/python3.12/site-packages")


def pins(name: str) -> dict[str, str]:
    text = (ROOT / "docker" / f"{name}.txt").read_text()
    return dict(re.findall(r"^(\S+)==(\S+)", text, re.MULTILINE))


def inside(image: Image, *command: str, user: int = 1000) -> subprocess.CompletedProcess[str]:
    """Run a command in the image with its environment, as a user without capabilities.

    The user does not need to be in /etc/passwd. The root is read-only, and the command can write only to /tmp.
    """
    script = """
        set -e
        mount --bind "$1" "$1" && mount -o remount,bind,ro "$1"
        mount -t tmpfs none "$1/tmp" && mount -t proc none "$1/proc" && mount --rbind /dev "$1/dev"
        exec chroot --userspec="$2:$2" --groups= "$1" /usr/bin/env -i -C "$3" "${@:4}"
    """
    config = image.config
    return subprocess.run(
        ["unshare", "--mount", "--pid", "--net", "--fork", "bash", "-c", script, "-", str(image.rootfs), str(user),
         config["WorkingDir"], *config["Env"], *command],
        capture_output=True, text=True, check=False,
    )  # fmt: skip


def test_size(image: Image) -> None:
    done = subprocess.run(["du", "-s", "--block-size=1M", image.rootfs], capture_output=True, text=True, check=True)
    megabytes = int(done.stdout.split()[0])
    assert 1000 < megabytes < 2500


def test_config(image: Image) -> None:
    held = pins("cpu")
    config = image.config
    assert config["User"] == "1000:1000"
    assert "Entrypoint" not in config
    labels = {name: text for name, text in config["Labels"].items() if name.startswith("dev.slipway.")}
    version = config["Labels"]["org.opencontainers.image.version"]
    assert labels == {
        "dev.slipway.accelerator": "cpu",
        "dev.slipway.trainer": version,
        "dev.slipway.ray": held["ray"],
        "dev.slipway.maxtext": held["maxtext"],
        "dev.slipway.jax": held["jax"],
    }
    # The image does not contain variables that only the build on this machine needed.
    assert {entry.partition("=")[0] for entry in config["Env"]} == {"PATH", "HOME", "USER", "PYTHONUNBUFFERED"}


def test_packages_are_the_pins(image: Image) -> None:
    script = "import importlib.metadata as m, json; print(json.dumps({d.name: d.version for d in m.distributions()}))"
    done = inside(image, "python", "-c", script)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout).items()
    assert {re.sub(r"[-_.]+", "-", name).lower(): version for name, version in found} == pins("cpu")


def test_the_image_has_no_compilers_caches_or_secrets(image: Image) -> None:
    root = image.rootfs
    folders = ("usr/bin", "usr/local/bin", "opt/slipway/bin")
    programs = {path.name for folder in folders for path in (root / folder).iterdir()}
    assert not programs & {"gcc", "cc", "g++", "c++", "clang", "make", "cmake", "git", "uv", "go", "rustc"}
    for folder in ("tmp", "root/.cache", "home/slipway/.cache", "run/secrets", "var/cache/apt/archives"):
        assert not (root / folder).is_dir() or not list((root / folder).iterdir()), folder
    for file in ("etc/pip.conf", "etc/uv", "root/.config"):
        assert not (root / file).exists()
    # The certificates of this machine were mounted only during the build.
    with tarfile.open(base_archive()) as base:
        member = base.extractfile("./etc/ssl/certs/ca-certificates.crt")
        assert member is not None
        assert (root / "etc/ssl/certs/ca-certificates.crt").read_bytes() == member.read()


def test_the_image_has_the_programs_that_charts_and_kuberay_run(image: Image) -> None:
    for command in (["bash", "-c", "ray --version"], ["bash", "-lc", "ray --version"], ["python", "--version"]):
        done = inside(image, *command)
        assert done.returncode == 0, done.stderr
    assert pins("cpu")["ray"] in inside(image, "bash", "-lc", "ray --version").stdout


@pytest.mark.parametrize("user", [1000, 54321])
def test_the_trainer_runs_as_any_user_on_a_read_only_root(image: Image, user: int, tmp_path: Path) -> None:
    plan = subprocess.run(
        [sys.executable, "-m", "launcher", "submit", "-f", "quickstart", "--dry-run", "-o", "json"],
        cwd=ROOT, capture_output=True, text=True, check=True, env={**os.environ, "SLIPWAY_HOME": str(tmp_path)},
    )  # fmt: skip
    config = json.loads(plan.stdout)
    script = f"cat > /tmp/run.json <<'END'\n{json.dumps(config)}\nEND\npython -m trainer --config /tmp/run.json --check"
    done = inside(image, "bash", "-c", script, user=user)
    assert done.returncode == 0, done.stderr
    assert "fingerprint" in json.loads(done.stdout.splitlines()[-1])
    assert inside(image, "touch", "/home/slipway/x", user=user).returncode != 0  # the root was read-only


def test_any_user_can_import_the_application_of_a_served_model(image: Image) -> None:
    done = inside(
        image, "python", "-c", "import trainer.serving.app, trainer.serving.mlx_engine; print('ok')", user=54321
    )
    assert (done.returncode, done.stdout) == (0, "ok\n"), done.stderr


def test_the_image_has_bytecode(image: Image) -> None:
    """All modules that a start imports have bytecode. Otherwise each start of each pod would compile them again."""
    script = """
import sys
from trainer import deferred_imports
deferred_imports.main()
lacking = [m.__name__ for m in sys.modules.values() if (getattr(m, "__file__", "") or "").endswith(".py")
           and "site-packages" in m.__file__ and getattr(m, "__cached__", None)
           and not __import__("os").path.exists(m.__cached__)]
print(*lacking)
"""
    done = inside(image, "python", "-c", script)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == ""


# --- layers that a change builds again, and tags ------------------------------------------------------------------


@dataclass(frozen=True)
class Installed:
    """Slipway as installed from a wheel: without a checkout, with the data in the package."""

    site: Path
    builder: Builder

    def build(self, *options: str, base: str | None = None) -> subprocess.CompletedProcess[str]:
        with self.start(*options, base=base) as process:
            out, err = process.communicate()
        return subprocess.CompletedProcess(process.args, process.returncode, out, err)

    def start(self, *options: str, base: str | None = None) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "launcher", "image", "build", "--accelerator=cpu", "--tool=buildah"]
        command += ["--output=json", f"--base={base or self.builder.base}"]
        if not any(option.startswith("--repository") for option in options):
            command.append("--repository=localhost/other")
        return subprocess.Popen(
            [*command, *options, "--", *self.builder.arguments],
            cwd=self.site.parent,
            env=self.env,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def insecure(self, host: str) -> None:
        """Allow HTTP for this registry, which is on this machine."""
        config = self.site.parent / "registries.conf"
        config.write_text(f'[[registry]]\nlocation = "{host}"\ninsecure = true\n')

    @property
    def env(self) -> dict[str, str]:
        home = self.site.parent
        env = {**self.builder.buildah.env, "PYTHONPATH": str(self.site), "TMPDIR": str(home / "tmp")}
        env |= {"DOCKER_CONFIG": str(home), "REGISTRY_AUTH_FILE": str(home / "auth.json"), "no_proxy": "127.0.0.1"}
        if (home / "registries.conf").exists():
            env["CONTAINERS_REGISTRIES_CONF"] = str(home / "registries.conf")
        return env

    @property
    def left(self) -> list[Path]:
        return list((self.site.parent / "tmp").iterdir())

    def dockerfile(self, text: str) -> None:
        """Replace the Dockerfile: tests of the build tool and the registry use a small image."""
        (self.site / "launcher/_data/docker/Dockerfile").write_text(text)


@pytest.fixture
def installed(builder: Builder, tmp_path: Path) -> Iterator[Installed]:
    site = tmp_path / "site"
    no_cache = shutil.ignore_patterns("__pycache__")
    for package in ("launcher", "trainer"):
        shutil.copytree(ROOT / package, site / package, ignore=no_cache)
    shutil.copytree(ROOT / "docker", site / "launcher/_data/docker")
    (tmp_path / "tmp").mkdir()
    (tmp_path / "auth.json").write_text("{}")  # no login
    with lock(cache_dir().with_name("images") / ".lock"):  # no other process builds in this storage now
        yield Installed(site, builder)
        names = builder.buildah("images", "--format={{.Name}}:{{.Tag}}").splitlines()
        for name in names:
            if not name.startswith(("localhost/slipway", "<none>")):
                builder.buildah("rmi", name)


def test_a_change_of_the_trainer_is_cheap(image: Image, installed: Installed, builder: Builder) -> None:
    first = json.loads(build(builder).stdout)
    # An installed wheel builds the same image as the checkout: the tag is the same, and the layers are cached.
    done = installed.build()
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["tag"] == first["tag"]
    before, same = (layers(builder, name) for name in (f"localhost/slipway:{first['tag']}", name_of(done)))
    assert same == before

    (installed.site / "trainer" / "more.py").write_text("more = True\n")
    started = time.monotonic()
    done = installed.build()
    seconds = time.monotonic() - started
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["tag"] != first["tag"]
    # The packages, which need minutes and most of the space, come from the cache.
    assert re.search(r"uv pip install .*\n--> Using cache", done.stderr), done.stderr
    after = layers(builder, name_of(done))
    changed = [number for number, (a, b) in enumerate(zip(before, after, strict=True)) if a != b]
    assert changed
    assert changed[0] >= 4, changed  # below: the base, the user, the list of packages, the packages
    print(f"{len(changed)} of {len(after)} layers built again, in {seconds:.1f} s")


def layers(builder: Builder, name: str) -> list[str]:
    """The digests of the layers, base first."""
    found: list[str] = builder.buildah.inspect(name)["OCIv1"]["rootfs"]["diff_ids"]
    return found


# --- pushing ----------------------------------------------------------------------------------------------------

SMALL = "ARG BASE\nFROM scratch\nARG RAY_VERSION\nLABEL dev.slipway.ray=$RAY_VERSION\nCOPY trainer /trainer\n"


@pytest.fixture
def registry(tmp_path: Path) -> Iterator[str]:
    with local_registry.registry(tmp_path) as host:
        yield host


def test_an_image_is_pushed_once_and_pulled_by_its_digest(installed: Installed, registry: str) -> None:
    installed.dockerfile(SMALL)
    installed.insecure(registry)
    overlay = installed.site.parent / "image.yaml"
    overlay.write_text("# Ours.\nimage:\n  pullPolicy: Always # on purpose\n")
    done = installed.build("--push", f"--repository={registry}/team/slipway", f"--write={overlay}")
    assert done.returncode == 0, done.stderr
    pushed = json.loads(done.stdout)
    assert pushed["built"] is True
    text = overlay.read_text()
    assert text.startswith("# Ours.\nimage:\n  pullPolicy: Always # on purpose\n")
    for key, value in {"repository": f"{registry}/team/slipway", "digest": pushed["digest"]}.items():
        assert f'  {key}: "{value}"\n' in text

    buildah = installed.builder.buildah
    by_digest = f"{pushed['repository']}@{pushed['digest']}"
    buildah("rmi", "--force", buildah.inspect(name_of(done))["FromImageID"])  # the pull must download it
    pulled = buildah.inspect(buildah("pull", "--quiet", "--tls-verify=false", by_digest))
    assert pulled["OCIv1"]["config"]["Labels"]["dev.slipway.ray"] == pushed["rayVersion"]
    buildah("rmi", "--force", pulled["FromImageID"])

    again = installed.build("--push", f"--repository={registry}/team/slipway")
    assert json.loads(again.stdout) == {**pushed, "built": False}
    assert "is already pushed; there is nothing to build." in again.stderr
    assert installed.left == []


@pytest.mark.parametrize("status", [401, 403])
def test_a_push_that_is_refused(installed: Installed, status: int) -> None:
    def answer(request: BaseHTTPRequestHandler) -> tuple[int, dict[str, str], bytes]:
        if status == 403 and request.path == "/v2/":
            return 200, {}, b"{}"
        body = json.dumps({"errors": [{"code": "DENIED", "message": "no"}]}).encode()
        return status, {"WWW-Authenticate": 'Basic realm="r"', "Content-Type": "application/json"}, body

    installed.dockerfile(SMALL)
    overlay = installed.site.parent / "image.yaml"
    with fake_registry(answer) as host:
        installed.insecure(host)
        done = installed.build("--push", f"--repository={host}/team/slipway", f"--write={overlay}")
    error, hint = done.stderr.splitlines()[-2:]
    assert error.startswith(f"Error: {host} refuses the push to {host}/team/slipway: "), done.stderr
    assert f"buildah login {host}" in hint
    assert (done.returncode, done.stdout) == (1, "")
    assert not overlay.exists()
    assert installed.left == []


# --- builds that fail ---------------------------------------------------------------------------------------------


def test_a_base_that_does_not_exist(installed: Installed) -> None:
    done = installed.build(base="localhost/nosuch:1")
    assert (done.returncode, done.stdout) == (1, "")
    assert "Error: The base image localhost/nosuch:1 cannot be pulled: " in done.stderr
    assert installed.builder.buildah("containers", "--quiet") == ""
    assert installed.left == []


def test_packages_that_do_not_exist(installed: Installed) -> None:
    packages = installed.site / "launcher/_data/docker/cpu.txt"
    packages.write_text(packages.read_text() + f"slipway-has-no-such-package==1.0 --hash=sha256:{64 * '0'}\n")
    done = installed.build()
    assert (done.returncode, done.stdout) == (1, "")
    assert "Error: The image's packages cannot be installed: " in done.stderr
    assert installed.builder.buildah("containers", "--quiet") == ""


def test_a_full_disk(installed: Installed, tmp_path: Path) -> None:
    """A real full disk: the tool's storage has two megabytes."""
    disk = tmp_path / "disk"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "none", disk], check=True)
    try:
        small = Buildah(disk)
        small.prepare()
        installed.dockerfile(SMALL)
        (installed.site / "trainer" / "large").write_bytes(os.urandom(4 << 20))
        done = replace(installed, builder=replace(installed.builder, buildah=small)).build()
        assert (done.returncode, done.stdout) == (1, "")
        assert "Error: The disk is full: the cpu image takes about " in done.stderr, done.stderr
        assert installed.left == []
    finally:
        # Overlay storage mounts itself there, too, so --recursive is necessary.
        subprocess.run(["umount", "--recursive", disk], check=True)


def test_ctrl_c_leaves_no_container(installed: Installed) -> None:
    installed.dockerfile("ARG BASE\nFROM ${BASE}\nRUN echo begun && sleep 300\n")
    buildah = installed.builder.buildah
    with installed.start() as process:
        assert process.stderr is not None
        for line in process.stderr:
            if line == "begun\n":
                break
        assert buildah("containers", "--quiet") != ""
        os.killpg(process.pid, signal.SIGINT)  # as a terminal does
        process.stderr.read()
    assert process.returncode == 130
    assert buildah("containers", "--quiet") == ""
    assert installed.left == []
