"""Go tools for tests, each built once from a go.mod and go.sum of its own, at a pinned version.

`tool("helm")` is the path of the binary; the first call builds it (about a minute and a half on two cores). The
cache is outside the checkout, and its key is the hash of all that goes into the build, so a changed pin builds
anew and two checkouts share what they have in common.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

HERE = Path(__file__).resolve().parent
GO = (1, 26)


@dataclass(frozen=True)
class GoTool:
    """A command in a Go module: what to build in tests/tools/<module or name>/, and the linker's flags."""

    package: str
    ldflags: str = "-s -w"
    module: str = field(default="", repr=False)  # not in the key of the cache: go.mod itself is
    tags: str = field(default="", repr=False)  # what is left out of a build; what a test asks of the tool is not


# Unstamped, Kubernetes calls itself v0.0.0-master+$Format:%H$, and charts' kubeVersion refuses it.
STAMP = "-s -w" + "".join(
    f" -X k8s.io/component-base/version.{name}={value}"
    for name, value in {"gitVersion": "v1.36.2", "gitMajor": "1", "gitMinor": "36"}.items()
)


TOOLS = {
    "helm": GoTool("helm.sh/helm/v4/cmd/helm"),
    # Unstamped, Helm 3 calls itself "v3.21", which is no version that pyhelm3 can read.
    "helm3": GoTool(
        "helm.sh/helm/v3/cmd/helm",
        "-s -w -X helm.sh/helm/v3/internal/version.version=v3.21.4",
    ),
    "helm-docs": GoTool("github.com/norwoodj/helm-docs/cmd/helm-docs", "-s -w -X main.version=1.14.2"),
    "kube-score": GoTool("github.com/zegl/kube-score/cmd/kube-score"),
    "pod-security": GoTool("slipway.example/tools/pod-security"),  # a main.go of our own
    # Four commands of one module; the first takes three minutes, and the others share most of what it compiled.
    "kube-apiserver": GoTool("k8s.io/kubernetes/cmd/kube-apiserver", STAMP, "kubernetes"),
    "kube-controller-manager": GoTool("k8s.io/kubernetes/cmd/kube-controller-manager", STAMP, "kubernetes"),
    "kube-scheduler": GoTool("k8s.io/kubernetes/cmd/kube-scheduler", STAMP, "kubernetes"),
    "kubectl": GoTool("k8s.io/kubernetes/cmd/kubectl", STAMP, "kubernetes"),
    "etcd": GoTool("go.etcd.io/etcd/server/v3"),
    "kwok": GoTool("sigs.k8s.io/kwok/cmd/kwok"),
    # Without the clients of all clouds that it can find its targets in: two minutes.
    "prometheus": GoTool("github.com/prometheus/prometheus/cmd/prometheus", tags="remove_all_sd"),
    "registry": GoTool("github.com/google/go-containerregistry/cmd/registry"),
}

# Only tests of slow tiers use these (tests/tiers.py).
SLOW_TIERS = ("kube-score", "pod-security", "prometheus", "registry")


def cache_dir() -> Path:
    """Where built tools live: $SLIPWAY_CACHE, else slipway in the user's cache folder."""
    given = os.environ.get("SLIPWAY_CACHE")
    base = Path(given) if given else Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "slipway"
    return base.expanduser().absolute() / "tools"


def tool(name: str) -> Path:
    """The binary of the tool `name`, built where the cache has none. Raises RuntimeError with a sentence."""
    spec = TOOLS[name]
    source = source_of(name)
    parts = [(source / "go.mod").read_bytes(), (source / "go.sum").read_bytes(), repr(spec).encode()]
    if (source / "main.go").exists():
        parts.append((source / "main.go").read_bytes())
    return cached(b"\0".join(parts), "helm" if name == "helm3" else name, lambda binary: _build(spec, source, binary))


def source_of(name: str) -> Path:
    """The folder of the Go module that holds the tool `name`."""
    return HERE / (TOOLS[name].module or name)


def cached(key: bytes, name: str, make: Callable[[Path], None]) -> Path:
    """The file `name` of the cache's folder for `key`; `make` writes it, once, where it is not there yet."""
    folder = cache_dir() / hashlib.sha256(key).hexdigest()[:16]
    file = folder / name
    if file.exists():
        return file
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # another process may be making the same file
        if not file.exists():
            make(file)
    return file


def _build(spec: GoTool, source: Path, binary: Path) -> None:
    go = find_go()
    print(f"Building {spec.package} once, into {binary.parent} …", file=sys.stderr, flush=True)
    # GOTOOLCHAIN=local: a build must not fetch another Go. GOWORK=off: a workspace above the checkout is not ours.
    environment = {
        **os.environ,
        "CGO_ENABLED": "0",
        "GOFLAGS": "-mod=readonly -buildvcs=false",
        "GOTOOLCHAIN": "local",
        "GOWORK": "off",
    }
    with tempfile.TemporaryDirectory(dir=binary.parent) as temporary:
        made = Path(temporary) / binary.name
        tags = ["-tags", spec.tags] if spec.tags else []
        command = [go, "build", "-trimpath", *tags, "-ldflags", spec.ldflags, "-o", str(made), spec.package]
        done = subprocess.run(command, cwd=source, env=environment, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise RuntimeError(f"Building {spec.package} failed:\n{done.stderr.strip()}")
        made.rename(binary)


def find_go() -> str:
    """The path of a Go that is new enough. Raises RuntimeError with a sentence."""
    wanted = ".".join(map(str, GO))
    go = shutil.which("go")
    if go is None:
        raise RuntimeError(
            f"The tests build their tools from source and need Go {wanted}; install it from https://go.dev/dl."
        )
    # Asked outside the module: inside, an older Go only complains about go.mod.
    said = subprocess.run([go, "env", "GOVERSION"], cwd="/", capture_output=True, text=True, check=True).stdout
    match = re.match(r"go(\d+)\.(\d+)", said)
    if match is None or (int(match[1]), int(match[2])) < GO:
        raise RuntimeError(f"The tests need Go {wanted} and found {said.strip()}; install it from https://go.dev/dl.")
    return go
