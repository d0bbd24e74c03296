"""tests/e2e/kind with programs that only record their arguments, because Docker and images are not available here.

The last tests use the real kind, kubectl and Helm, with a stand-in for Docker and without a network.
"""

from __future__ import annotations

import shlex
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from tests.tools import tool

SCRIPT = Path(__file__).parents[1] / "e2e" / "kind"
SHELL = ("bash", "env", "dirname", "mkdir", "chmod", "mktemp", "rm", "grep")


class Machine:
    """A machine whose PATH has a few programs that the shell script needs, and those that a test adds."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.bin = folder, folder / "bin"
        self.bin.mkdir()
        for name in SHELL:
            found = shutil.which(name)
            assert found
            (self.bin / name).symlink_to(found)

    def add_program(self, name: str, script: str = "") -> None:
        """Add a program that records its arguments and then runs `script`."""
        file = self.bin / name
        file.write_text(f'#!{shutil.which("bash")}\necho "{name} $*" >>"{self.folder}/calls"\n{script}\n')
        file.chmod(0o755)

    def kind(self, clusters: str = "") -> None:
        """Add a kind that lists these clusters and writes an empty kubeconfig."""
        writes = 'for a in "$@"; do [ "$b" = --kubeconfig ] && : >"$a"; b=$a; done; true'
        self.add_program("kind", f'if [ "$*" = "get clusters" ]; then echo {clusters}; exit; fi\n{writes}')

    def __call__(self, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [str(SCRIPT), *arguments],
            env={"PATH": str(self.bin), "HOME": str(self.folder), **environment},
            capture_output=True,
            text=True,
            check=False,
        )

    @property
    def calls(self) -> list[str]:
        file = self.folder / "calls"
        return file.read_text().splitlines() if file.exists() else []


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def test_missing_programs_are_reported(machine: Machine) -> None:
    done = machine("up")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("Error: These programs are missing: kind, kubectl, helm.\nHint: ")


def test_a_container_tool_that_is_missing_or_does_not_answer(machine: Machine) -> None:
    machine.kind()
    machine.add_program("kubectl")
    machine.add_program("helm")
    done = machine("up")
    assert done.returncode == 1
    assert done.stderr.startswith("Error: There is neither docker nor podman; kind needs one of them.\n")
    machine.add_program("docker", "exit 1")
    done = machine("up")
    assert done.returncode == 1
    assert done.stderr.startswith("Error: Neither docker nor podman answers; kind needs one of them.\n")
    assert not [call for call in machine.calls if call.startswith(("kind", "kubectl", "helm"))]


def test_up_creates_a_cluster_and_a_second_up_uses_it(machine: Machine) -> None:
    for name in ("docker", "kubectl", "helm"):
        machine.add_program(name)
    machine.kind()
    done = machine("up", SLIPWAY_KIND_KUBERNETES="1.35")
    assert done.returncode == 0, done.stderr
    config = machine.folder / ".cache/slipway/slipway-e2e.kubeconfig"
    assert done.stdout == f"export KUBECONFIG={config}\n"
    assert config.stat().st_mode & 0o777 == 0o600
    calls = "\n".join(machine.calls)
    assert "kind create cluster --name slipway-e2e --image kindest/node:v1.35." in calls
    for pinned in ("jobset/releases/download/v0.12.0", "kueue/releases/download/v0.19.2", "--version 1.7.0"):
        assert pinned in calls
    assert calls.index("jobset/releases") < calls.index("kueue/releases"), "Kueue takes up the kinds that are there"
    assert calls.index("jobset-config.yaml") < calls.index("rollout restart deployment/jobset-controller-manager")
    assert calls.index("kwok.yaml") < calls.index("kwok-stages.yaml")
    assert "SLIPWAY_E2E_IMAGE names no image" in done.stderr

    (machine.folder / "calls").unlink()
    machine.kind("slipway-e2e")
    again = machine("up", SLIPWAY_KIND_KWOK="0", SLIPWAY_E2E_IMAGE="trainer:1")
    assert again.returncode == 0, again.stderr
    calls = "\n".join(machine.calls)
    assert "kind create cluster" not in calls
    assert "kind export kubeconfig --name slipway-e2e" in calls
    assert "kwok" not in calls
    assert "docker save -o" in calls
    assert "kind load image-archive" in calls


def test_a_missing_image(machine: Machine) -> None:
    machine.add_program("docker", '[ "$1" = info ]')
    machine.kind("slipway-e2e")
    done = machine("load", SLIPWAY_E2E_IMAGE="trainer:1")
    assert done.returncode == 1
    assert "Error: There is no image trainer:1 on this machine." in done.stderr


def test_down(machine: Machine) -> None:
    machine.add_program("podman")
    machine.kind("slipway-e2e")
    assert machine("down").returncode == 0
    assert any(call.startswith("kind delete cluster --name slipway-e2e") for call in machine.calls)
    machine.kind("another")
    done = machine("down")
    assert (done.returncode, done.stderr) == (0, "There is no cluster slipway-e2e.\n")


@pytest.mark.parametrize(
    ("variable", "value"), [("SLIPWAY_KIND_KUBERNETES", "1.29"), ("SLIPWAY_KIND_NAME", "Not A Name")]
)
def test_invalid_settings(machine: Machine, variable: str, value: str) -> None:
    for name in ("docker", "kubectl", "helm"):
        machine.add_program(name)
    machine.kind()
    done = machine("up", **{variable: value})
    assert done.returncode == 1
    assert done.stderr.startswith(f'Error: {variable} is "{value}";')


def test_usage(machine: Machine) -> None:
    done = machine()
    assert (done.returncode, done.stderr) == (2, "usage: tests/e2e/kind up|load|down\n")


# --- the real programs ----------------------------------------------------------------------------------------------

# Docker, as kind 0.33 uses it for a cluster of one node: it answers each question as for a node that works, and starts
# nothing. Docker cannot run here, because it needs a kernel that allows containers, and images from a registry.
DOCKER = """
node=slipway-e2e-control-plane
case "$*" in
"info --format {{json .}}") echo '{"CgroupDriver": "systemd", "CgroupVersion": "2", "MemoryLimit": true}' ;;
"ps -a --filter label=io.x-k8s.kind.cluster --format"*) [ ! -e FOLDER/node ] || echo slipway-e2e ;;
"ps -a --filter label=io.x-k8s.kind.cluster=slipway-e2e"*) [ ! -e FOLDER/node ] || echo $node ;;
run*) : >FOLDER/node ;;
rm*) rm FOLDER/node ;;
logs*) echo "Reached target Multi-User System." ;;
*"cat /kind/version"*) echo v1.36.4 ;;
*"get nodes"*) echo "'True'" ;;
*"cat /etc/kubernetes/admin.conf"*) cat FOLDER/admin.conf ;;
inspect*kind.role*) echo control-plane ;;
inspect*HostPort*) printf '127.0.0.1\\t9\\n' ;;
inspect*IPAddress*) echo 172.18.0.2, ;;
"image inspect"*|inspect*) ;;
save*) tar --create --file "$3" --directory FOLDER manifest.json ;;
*"containerd config dump"*) printf 'version = 3\\nplugins."io.containerd.cri.v1.images".snapshotter = "overlayfs"' ;;
*"crictl inspecti"*) exit 1 ;;
*"ctr --namespace=k8s.io images import"*) cat >FOLDER/loaded.tar ;;
info*|network*|exec*) ;;
*) echo "docker: unknown: $*" >&2; exit 1 ;;
esac
"""

ADMIN = {
    "apiVersion": "v1",
    "kind": "Config",
    "clusters": [{"name": "slipway-e2e", "cluster": {"server": "https://slipway-e2e-control-plane:6443"}}],
    "users": [{"name": "admin", "user": {"token": "x"}}],
    "contexts": [{"name": "admin", "context": {"cluster": "slipway-e2e", "user": "admin"}}],
    "current-context": "admin",
}


@pytest.fixture
def with_kind(machine: Machine) -> Machine:
    """The machine with the real kind, and the stand-in for Docker."""
    for name in ("tar", "cat"):
        (machine.bin / name).symlink_to(str(shutil.which(name)))
    (machine.folder / "admin.conf").write_text(yaml.safe_dump(ADMIN))
    (machine.folder / "manifest.json").write_text('[{"Config": "c.json", "RepoTags": ["trainer:1"], "Layers": []}]')
    machine.add_program("docker", DOCKER.replace("FOLDER", str(machine.folder)))
    (machine.bin / "kind").symlink_to(tool("kind"))
    for name in ("kubectl", "helm"):
        machine.add_program(name)
    return machine


def test_the_real_kind_accepts_every_command(with_kind: Machine) -> None:
    machine = with_kind
    done = machine("up", SLIPWAY_E2E_IMAGE="trainer:1")
    assert done.returncode == 0, done.stderr
    assert "Waiting ≤ 5m0s for control-plane = Ready" in done.stderr
    [run] = [call for call in machine.calls if call.startswith("docker run")]
    assert "kindest/node:v1.36.4@sha256:" in run
    assert any("images import" in call for call in machine.calls)
    assert (machine.folder / "loaded.tar").stat().st_size > 0
    # The kubeconfig is that of the node, with the address on this machine.
    config = yaml.safe_load((machine.folder / ".cache/slipway/slipway-e2e.kubeconfig").read_text())
    assert config["clusters"][0]["cluster"]["server"] == "https://127.0.0.1:9"
    assert config["current-context"] == "kind-slipway-e2e"

    (machine.folder / "calls").unlink()
    again = machine("up")
    assert again.returncode == 0, again.stderr
    assert not [call for call in machine.calls if call.startswith("docker run")]
    down = machine("down")
    assert (down.returncode, (machine.folder / "node").exists()) == (0, False), down.stderr


def test_a_failed_creation_is_reported(with_kind: Machine) -> None:
    with_kind.add_program("docker", DOCKER.replace("FOLDER", str(with_kind.folder)).replace("run*) ", "run*) exit 1;"))
    done = with_kind("up")
    assert done.returncode == 1
    assert (done.stdout, done.stderr.splitlines()[-2]) == ("", "Error: kind could not make the cluster.")


def test_kubectl_and_helm_know_every_option(with_kind: Machine) -> None:
    """Without a network, every command must fail because of the address, and not because of its options."""
    assert with_kind("up").returncode == 0
    calls = [shlex.split(call) for call in with_kind.calls if call.startswith(("kubectl ", "helm "))]
    assert len(calls) == 11
    calls += [["helm3", *call[1:]] for call in calls if call[0] == "helm"]
    for name, *arguments in calls:
        done = subprocess.run(
            [str(tool(name)), *arguments],
            env={"PATH": str(with_kind.bin), "HOME": str(with_kind.folder), "HTTPS_PROXY": "http://127.0.0.1:9"},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 1, (name, arguments)
        assert "refused" in done.stderr, (name, arguments, done.stderr)
