"""The image for serving on CPUs, built from its Dockerfile, without PyTorch and CUDA.

These have 6 GB, so the test takes them from the list of packages; all other packages have the versions and hashes of
the list. tests/trainer/test_serving.py runs the application with all packages of the list.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.image.conftest import ROOT, Builder, Image, lock
from tests.image.test_build import inside
from tests.tools.go_tools import cache_dir

pytestmark = pytest.mark.image

NAME = "localhost/slipway-serve:test"
_LEFT_OUT = re.compile(r"(torch|triton|cuda-|nvidia-)")


def packages(text: str) -> str:
    """Return the list of packages without PyTorch and CUDA. A package is a line with ==, and its hashes follow."""
    parts = re.split(r"^(?=\S+==)", text, flags=re.MULTILINE)
    return "".join(part for part in parts if not _LEFT_OUT.match(part))


@pytest.fixture(scope="module")
def context(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files of a build in the checkout, of which .dockerignore selects those that the build sees."""
    folder = tmp_path_factory.mktemp("context")
    for name in ("docker", "trainer"):
        shutil.copytree(ROOT / name, folder / name)
    shutil.copy2(ROOT / ".dockerignore", folder)
    listed = folder / "docker/serve/cpu.txt"
    listed.write_text(packages(listed.read_text()))
    return folder


@pytest.fixture(scope="module")
def serve_image(builder: Builder, context: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Image]:
    rootfs = tmp_path_factory.mktemp("image") / "rootfs"
    with lock(cache_dir().with_name("images") / ".lock"):  # no other process builds in this storage now
        builder.buildah(
            *("build", "--layers", "--file", str(context / "docker/serve/Dockerfile"), "--tag", NAME),
            *("--build-arg", f"BASE={builder.base}", *builder.arguments, str(context)),
        )
        builder.buildah.unpack(NAME, rootfs)
        config = builder.buildah.inspect(NAME)["OCIv1"]["config"]
    yield Image(rootfs, config)
    shutil.rmtree(rootfs)


def test_the_image_has_the_packages_of_the_list(serve_image: Image) -> None:
    script = "import importlib.metadata as m; print(*(f'{d.name}=={d.version}' for d in m.distributions()), sep='\\n')"
    done = inside(serve_image, "python", "-c", script)
    assert done.returncode == 0, done.stderr
    wanted = re.findall(r"^\S+==\S+", packages((ROOT / "docker/serve/cpu.txt").read_text()), re.MULTILINE)
    assert sorted(re.sub(r"[-_.]+", "-", line).lower() for line in done.stdout.split()) == sorted(
        re.sub(r"[-_.]+", "-", line).lower() for line in wanted
    )


def test_its_config(serve_image: Image) -> None:
    assert serve_image.config["User"] == "1000:1000"
    assert "Entrypoint" not in serve_image.config
    assert serve_image.config["Labels"]["org.opencontainers.image.title"] == "slipway-serve"
    variables = {entry.partition("=")[0] for entry in serve_image.config["Env"]}
    assert variables == {"PATH", "HOME", "USER", "PYTHONUNBUFFERED"}


@pytest.mark.parametrize("user", [1000, 54321])
def test_the_application_can_be_imported_by_any_user_on_a_read_only_root(serve_image: Image, user: int) -> None:
    """Without PyTorch, this is all but the engine, which Ray Serve imports when a replica starts."""
    script = "import trainer.serving.app, trainer.serving.turns, trainer.prestop, transformers, tokenizers; print('ok')"
    done = inside(serve_image, "python", "-c", script, user=user)
    assert (done.returncode, done.stdout) == (0, "ok\n"), done.stderr


def test_a_login_shell_finds_ray_as_kuberay_starts_it(serve_image: Image) -> None:
    for command in (["bash", "-c", "ray --version"], ["bash", "-lc", "ray --version"]):
        done = inside(serve_image, *command)
        assert done.returncode == 0, done.stderr
        assert "2.60.0" in done.stdout


def test_the_image_has_bytecode_and_no_caches_or_secrets(serve_image: Image) -> None:
    root = serve_image.rootfs
    site = root / "opt/slipway/lib/python3.12/site-packages"
    for module in (site / "trainer/serving/app.py", site / "ray/serve/api.py"):
        assert list((module.parent / "__pycache__").glob(f"{module.stem}.*.pyc")), module
    for folder in ("tmp", "root/.cache", "home/slipway/.cache", "run/secrets"):
        assert not (root / folder).is_dir() or not list((root / folder).iterdir()), folder
    done = subprocess.run(["du", "-s", "--block-size=1M", root], capture_output=True, text=True, check=True)
    assert int(done.stdout.split()[0]) < 1500
