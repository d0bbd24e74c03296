"""A base image for the tests: Debian from debootstrap, with this machine's Python 3.12.

It replaces the Dockerfile's own base, which is in a registry. The Dockerfile does not depend on the difference.
"""

from __future__ import annotations

import hashlib
import platform
import re
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from tests.tools.go_tools import cached

# In addition to a minimal Debian: libraries of Python's own extension modules, and certificates.
_PACKAGES = (
    *("ca-certificates", "libbz2-1.0", "libffi8", "liblzma5", "libncursesw6"),
    *("libreadline8", "libsqlite3-0", "libssl3", "zlib1g"),
)
# Containers do not need these. site-packages is created empty, because this machine's can contain any package.
_LEFT_OUT = ("site-packages", "test", "__pycache__", "idlelib", "turtledemo", "config-*")


@dataclass(frozen=True)
class Debian:
    """A release of Debian, and the mirror of its packages."""

    codename: str
    mirror: str


def this_debian() -> Debian:
    """The release of this machine and the mirror in its apt sources. Raises RuntimeError if they have none."""
    codename = platform.freedesktop_os_release().get("VERSION_CODENAME", "")
    folder = Path("/etc/apt")
    texts = [path.read_text() for path in (folder / "sources.list", *sorted(folder.glob("sources.list.d/*.list")))
             if path.is_file()]  # fmt: skip
    for line in "\n".join(texts).splitlines():
        match = re.match(r"deb\s+(?:\[.*?\]\s+)?(\S+)\s+(\S+)\s", line)
        if match and match[2] == codename:
            return Debian(codename, match[1])
    for path in sorted(folder.glob("sources.list.d/*.sources")):
        for stanza in re.split(r"\n\s*\n", path.read_text()):
            fields = dict(re.findall(r"^(URIs|Suites):[ \t]*(.+)$", stanza, re.MULTILINE))
            if codename in fields.get("Suites", "").split():
                return Debian(codename, fields["URIs"].split()[0])
    raise RuntimeError(f'The apt sources of this machine name no mirror of its own release, "{codename}".')


def base_archive() -> Path:
    """The path of a tar archive of the base's root file system, built once (about 40 s) and cached."""
    key = [Path(__file__).read_bytes(), sys.version.encode(), sys.base_prefix.encode()]
    return cached(b"\0".join(key), "base.tar", _make)


def base_key() -> str:
    return hashlib.sha256(str(base_archive()).encode()).hexdigest()[:12]


def _make(archive: Path) -> None:
    debian = this_debian()
    print(f"Making a base image of Debian {debian.codename} once …", file=sys.stderr, flush=True)
    with tempfile.TemporaryDirectory(dir=archive.parent) as temporary:
        root = Path(temporary) / "root"
        _run("debootstrap", "--variant=minbase", f"--include={','.join(_PACKAGES)}", debian.codename, str(root),
             debian.mirror)  # fmt: skip
        _put_python(root)
        for folder in ("var/cache/apt", "var/lib/apt/lists", "usr/share/doc", "usr/share/locale", "usr/share/man"):
            shutil.rmtree(root / folder, ignore_errors=True)
        draft = Path(temporary) / "base.tar"
        _run("tar", "-C", str(root), "--exclude=./dev/*", "-cf", str(draft), ".")
        draft.rename(archive)


def _put_python(root: Path) -> None:
    """Copy this machine's Python to the same path, with a link python3 in /usr/local/bin.

    Debian 12 has only Python 3.11. Python also runs from another path, but sysconfig has the original path. Builds of
    packages from source use it, and one dependency of MaxText is only available as source.
    """
    prefix = Path(sys.base_prefix)
    inside = root / prefix.relative_to("/")
    (inside / "bin").mkdir(parents=True)
    for folder in inside.parents:
        if folder.is_relative_to(root):
            folder.chmod(0o755)  # users of the image are not root, and the path can contain /root
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    shutil.copy2(prefix / "bin" / version, inside / "bin" / version)
    ignore = shutil.ignore_patterns(*_LEFT_OUT)
    shutil.copytree(prefix / "lib" / version, inside / "lib" / version, ignore=ignore, symlinks=True)
    (inside / "lib" / version / "site-packages").mkdir()
    for library in (prefix / "lib").glob("libpython*"):
        shutil.copy2(library, inside / "lib", follow_symlinks=False)
    for name in (version, "python3", "python"):
        (root / "usr/local/bin" / name).symlink_to(prefix / "bin" / version)
    _run("chroot", str(root), "python3", "-m", "ensurepip")


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)} failed:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
