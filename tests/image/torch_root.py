"""A Debian 13 with PyTorch for CPUs, and the transformers and peft of PyPI: a folder for chroot.

PyPI's PyTorch for x86-64 requires CUDA, 3 GB, and Slipway does not need it. Debian packages one without CUDA, for its
own Python.
"""

from __future__ import annotations

import platform
import shutil
import subprocess
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path

from tests.image.base import this_debian
from tests.tools.go_tools import cached

NEEDED = ("debootstrap",)
_RELEASE, _PYTHON = "trixie", "3.13"
_PACKAGES = ("python3-torch", "python3-httpx", "python3-packaging", "python3-psutil",
             "python3-tqdm", "python3-typer", "python3-yaml")  # fmt: skip
_OF_PYPI = (
    *("peft==0.21.2", "accelerate==1.15.0"),
    # The versions that Slipway uses.
    *(f"{name}=={version(name)}" for name in ("transformers", "tokenizers", "safetensors", "huggingface-hub", "regex")),
)
_FOLDER = "opt/peft"


def torch_root() -> Path:
    """The folder of the root file system, built once (three to five minutes, 1.3 GB) and cached."""
    key = [Path(__file__).read_bytes(), *map(str.encode, _OF_PYPI)]
    return cached(b"\0".join(key), "torch", _make)


def run(root: Path, program: Path, *words: str) -> str:
    """Run a program with Debian's Python and return its output. Paths in `words` are those inside of the root."""
    inside = root / "opt" / program.name
    shutil.copyfile(program, inside)
    command = ["chroot", str(root), "env", "-i", f"PYTHONPATH=/{_FOLDER}", "HOME=/root", "HF_HUB_OFFLINE=1",
               "/usr/bin/python3", f"/opt/{program.name}", *words]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{program.name} failed:\n{done.stderr[-3000:]}")
    return done.stdout


def _make(root: Path) -> None:
    print(f"Making a Debian {_RELEASE} with PyTorch once …", file=sys.stderr, flush=True)
    # Another system than Debian has mirrors of its own packages only; debootstrap then uses its default.
    mirror = [this_debian().mirror] if platform.freedesktop_os_release().get("ID") == "debian" else []
    with tempfile.TemporaryDirectory(dir=root.parent) as temporary:
        draft = Path(temporary) / "root"
        _run("debootstrap", "--variant=minbase", _RELEASE, str(draft), *mirror)
        # Not with debootstrap's --include, which does not choose among the alternatives of a dependency.
        install = "apt-get install --yes --no-install-recommends"
        _run("chroot", str(draft), "env", "DEBIAN_FRONTEND=noninteractive", *install.split(), *_PACKAGES)
        tag = f"manylinux_2_28_{platform.machine()}"
        _run(sys.executable, "-m", "pip", "install", "--no-deps", f"--target={draft / _FOLDER}", "--only-binary=:all:",
             f"--python-version={_PYTHON}", f"--platform={tag}", "--platform=manylinux2014_" + platform.machine(),
             *_OF_PYPI)  # fmt: skip
        for folder in ("var/cache/apt", "var/lib/apt/lists", "usr/share/doc", "usr/share/locale", "usr/share/man"):
            shutil.rmtree(draft / folder, ignore_errors=True)
        draft.rename(root)


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)} failed:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
