"""Python tools with their own environments, because they need other versions than the trainer.

`python_tool("checkov")` returns the path of the command. The first call installs the versions of checkov.txt outside
the checkout. `make pins` updates the versions.
"""

from __future__ import annotations

import fcntl
import hashlib
import shutil
import subprocess
import sys
from pathlib import Path

from tests.tools.go_tools import cache_dir

HERE = Path(__file__).resolve().parent


def python_tool(name: str) -> Path:
    """Return the path of a tool's command. The first call installs the tool, in about 15 seconds.

    Raises RuntimeError with the installer's output if the tool cannot be installed.
    """
    return python_environment(HERE / f"{name}.txt", name=name) / "bin" / name


def python_environment(requirements: Path, *more: str, name: str) -> Path:
    """Return the folder of an environment with the requirements of a file, and `more`. The first call installs them.

    Raises RuntimeError with the installer's output if they cannot be installed.
    """
    content = requirements.read_bytes() + "".join(more).encode()
    folder = cache_dir() / f"{name}-{hashlib.sha256(content).hexdigest()[:12]}"
    folder.parent.mkdir(parents=True, exist_ok=True)
    with folder.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # another process may be installing it
        if not (folder / ".done").exists():
            print(f"Installing {name} once, into {folder} …", file=sys.stderr, flush=True)
            shutil.rmtree(folder, ignore_errors=True)
            subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
            uv = Path(sys.prefix) / "bin" / "uv"
            install = [
                str(uv),
                "pip",
                "install",
                "--quiet",
                "--compile-bytecode",
                "--python",
                str(folder / "bin/python"),
            ]
            for wanted in (["-r", str(requirements)], list(more)):  # a file with hashes admits no other package
                if wanted:
                    done = subprocess.run([*install, *wanted], capture_output=True, text=True, check=False)
                    if done.returncode != 0:
                        raise RuntimeError(f"Installing {name} failed:\n{done.stderr.strip()}")
            (folder / ".done").touch()
    return folder
