"""Go tools for tests. Each is built once, at a pinned version, from its own go.mod and go.sum.

`tool("helm")` returns the path of the binary. The first call builds it, in about 90 seconds on two cores. The cache is
outside the checkout. Its key is the hash of all inputs of the build, so a changed pin builds the tool again, and two
checkouts share the tools with equal pins.
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
    """A command in a Go module: the package to build in tests/tools/<module or name>/, and the linker's flags.

    module and tags are left out of the repr, which is a part of the cache's key: go.mod itself is in the key, and the
    tags only leave out parts of a tool that no test uses.
    """

    package: str
    ldflags: str = "-s -w"
    module: str = field(default="", repr=False)
    cgo: bool = field(default=False, repr=False)  # whether the build needs a C compiler
    tags: str = field(default="", repr=False)


# Without these flags, the version of Kubernetes is v0.0.0-master+$Format:%H$, which the charts' kubeVersion rejects.
STAMP = "-s -w" + "".join(
    f" -X k8s.io/component-base/version.{name}={value}"
    for name, value in {"gitVersion": "v1.36.2", "gitMajor": "1", "gitMinor": "36"}.items()
)


TOOLS = {
    "helm": GoTool("helm.sh/helm/v4/cmd/helm"),
    # Without this flag, the version of Helm 3 is "v3.21", which pyhelm3 cannot parse.
    "helm3": GoTool(
        "helm.sh/helm/v3/cmd/helm",
        "-s -w -X helm.sh/helm/v3/internal/version.version=v3.21.4",
    ),
    "helm-many": GoTool("slipway.example/tools/helm/many", module="helm"),  # our own main.go
    "helm-docs": GoTool("github.com/norwoodj/helm-docs/cmd/helm-docs", "-s -w -X main.version=1.14.2"),
    "kube-score": GoTool("github.com/zegl/kube-score/cmd/kube-score"),
    "pod-security": GoTool("slipway.example/tools/pod-security"),  # our own main.go
    # Four commands of one module. The first takes three minutes; the others reuse most of the compiled packages.
    "kube-apiserver": GoTool("k8s.io/kubernetes/cmd/kube-apiserver", STAMP, "kubernetes"),
    "kube-controller-manager": GoTool("k8s.io/kubernetes/cmd/kube-controller-manager", STAMP, "kubernetes"),
    "kube-scheduler": GoTool("k8s.io/kubernetes/cmd/kube-scheduler", STAMP, "kubernetes"),
    "kubectl": GoTool("k8s.io/kubernetes/cmd/kubectl", STAMP, "kubernetes"),
    "etcd": GoTool("go.etcd.io/etcd/server/v3"),
    "kwok": GoTool("sigs.k8s.io/kwok/cmd/kwok"),
    # The tag leaves out service discovery in clouds. The build then takes two minutes.
    "prometheus": GoTool("github.com/prometheus/prometheus/cmd/prometheus", tags="remove_all_sd"),
    "promtool": GoTool("github.com/prometheus/prometheus/cmd/promtool", module="prometheus", tags="remove_all_sd"),
    "grafana-dashboards": GoTool("slipway.example/tools/grafana-dashboards"),  # our own main.go
    "vale": GoTool("github.com/vale-cli/vale/v3/cmd/vale", cgo=True),  # its parsers of code are written in C
    "actionlint": GoTool("github.com/rhysd/actionlint/cmd/actionlint"),
    "kind": GoTool("sigs.k8s.io/kind"),
    "registry": GoTool("github.com/google/go-containerregistry/cmd/registry"),
    # The clients of every cloud make these two large: each build takes several minutes.
    "cosign": GoTool("github.com/sigstore/cosign/v3/cmd/cosign"),
    "syft": GoTool("github.com/anchore/syft/cmd/syft"),
}

# Tools that only tests of slow tiers use (tests/tiers.py).
SLOW_TIERS = ("grafana-dashboards", "kind", "kube-score", "pod-security", "prometheus", "promtool", "vale")

# Tools that only `make release` uses.
RELEASE = ("cosign", "syft")


def cache_dir() -> Path:
    """The folder of the built tools: in $SLIPWAY_CACHE, or else in slipway in the user's cache folder."""
    given = os.environ.get("SLIPWAY_CACHE")
    base = Path(given) if given else Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "slipway"
    return base.expanduser().absolute() / "tools"


def tool(name: str) -> Path:
    """The path of the binary of the tool `name`, built if the cache does not have it.

    Raises RuntimeError with a message for the user.
    """
    spec = TOOLS[name]
    source = source_of(name)
    parts = [(source / "go.mod").read_bytes(), (source / "go.sum").read_bytes(), repr(spec).encode()]
    own = HERE / spec.package.removeprefix("slipway.example/tools/") / "main.go"
    if own.exists():
        parts.append(own.read_bytes())
    return cached(b"\0".join(parts), "helm" if name == "helm3" else name, lambda binary: _build(spec, source, binary))


def source_of(name: str) -> Path:
    """The folder of the Go module that holds the tool `name`."""
    return HERE / (TOOLS[name].module or name)


def cached(key: bytes, name: str, make: Callable[[Path], None]) -> Path:
    """The file `name` in the cache's folder for `key`. If it does not exist, `make` writes it, once."""
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
    # GOTOOLCHAIN=local: a build must not download another Go. GOWORK=off: ignore a workspace above the checkout.
    environment = {
        **os.environ,
        "CGO_ENABLED": "1" if spec.cgo else "0",
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
    """The path of a Go that is new enough. Raises RuntimeError with a message for the user."""
    wanted = ".".join(map(str, GO))
    go = shutil.which("go")
    if go is None:
        raise RuntimeError(
            f"The tests build their tools from source and need Go {wanted}; install it from https://go.dev/dl."
        )
    # Run outside the module: inside it, an older Go prints only an error about go.mod.
    version = subprocess.run([go, "env", "GOVERSION"], cwd="/", capture_output=True, text=True, check=True).stdout
    match = re.match(r"go(\d+)\.(\d+)", version)
    if match is None or (int(match[1]), int(match[2])) < GO:
        raise RuntimeError(
            f"The tests need Go {wanted} and found {version.strip()}; install it from https://go.dev/dl."
        )
    return go
