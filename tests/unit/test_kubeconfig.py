"""The kubeconfig: its files, and what is refused. tests/unit/test_address_book.py has what arrives at a server."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from launcher.config.values.writer import dumps
from launcher.errors import LauncherError
from launcher.k8s import kubeconfig

HEAVY = ("kubernetes", "google.auth", "requests", "pydantic")


@pytest.fixture
def written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A function that writes a kubeconfig with the given user, which the tests then use."""

    def write(user: dict[str, Any], server: str = "https://127.0.0.1:1") -> None:
        tree = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "lab",
            "contexts": [{"name": "lab", "context": {"cluster": "c", "user": "u", "namespace": "research"}}],
            "clusters": [{"name": "c", "cluster": {"server": server}}],
            "users": [{"name": "u", "user": user}],
        }
        file = tmp_path / "kubeconfig"
        file.write_text(dumps(tree))
        monkeypatch.setenv("KUBECONFIG", str(file))

    return write


def test_a_token(written: Any) -> None:
    written({"token": "secret"})
    access = kubeconfig.load()
    assert (access.context, access.cluster, access.user, access.namespace) == ("lab", "c", "u", "research")
    assert (access.server, access.name) == ("https://127.0.0.1:1", "the context lab")
    assert access.identity.current()[0] == [("Authorization", "Bearer secret")]


def test_a_credential_plugin(written: Any, tmp_path: Path) -> None:
    plugin = tmp_path / "plugin"
    answer = '{"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": {"token": "fresh"}}'
    plugin.write_text(f"#!/bin/sh\necho '{answer}'\n")
    plugin.chmod(0o755)
    version = "client.authentication.k8s.io/v1"
    written({"exec": {"apiVersion": version, "command": str(plugin), "interactiveMode": "Never"}})
    assert kubeconfig.load().identity.current()[0] == [("Authorization", "Bearer fresh")]


def test_an_auth_provider_of_old(written: Any) -> None:
    # This token has no expiration time.
    written({"auth-provider": {"name": "oidc", "config": {"id-token": "a.e30.b"}}})
    assert kubeconfig.load().identity.current()[0] == [("Authorization", "Bearer a.e30.b")]


@pytest.mark.parametrize(
    "user",
    [
        {"token": "secret"},
        {"tokenFile": "/nowhere/token"},
        {"username": "u", "password": "p"},
        {"exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": "/nowhere/plugin"}},
    ],
    ids=lambda user: next(iter(user)),
)
def test_credentials_are_not_sent_unencrypted(written: Any, tmp_path: Path, user: dict[str, Any]) -> None:
    written(user, "http://127.0.0.1.example.com:8080")
    with pytest.raises(LauncherError) as raised:
        kubeconfig.load()
    key = next(iter(user))
    line = (tmp_path / "kubeconfig").read_text().split("server:")[0].count("\n") + 1
    assert raised.value.message == (
        f"{tmp_path / 'kubeconfig'}:{line}: The server of the cluster c is http://127.0.0.1.example.com:8080, so the "
        f"credentials of the user u (users.{key}) would be sent unencrypted."
    )


@pytest.mark.parametrize("server", ["http://127.0.0.1:8001", "http://localhost:8001/k8s", "http://[::1]:8001"])
def test_this_machine_needs_no_encryption(written: Any, server: str) -> None:
    written({"token": "secret"}, server)
    assert kubeconfig.load().server == server


@pytest.mark.parametrize(
    "server", ["https://127.0.0.1:99999", "https://127.0.0.1:6443 ", "https://[::1", "https://a:65536"]
)
def test_a_server_that_is_no_url(written: Any, server: str) -> None:
    written({"token": "t"}, server)
    with pytest.raises(
        LauncherError, match=r"as the server of the cluster .*; it must be a URL that begins with https"
    ):
        kubeconfig.load()


def test_a_proxy_without_credentials_needs_no_encryption(written: Any) -> None:
    written({}, "http://bastion.example.com:8001")
    assert kubeconfig.load().identity.current()[0] == []


def test_a_missing_certificate(written: Any) -> None:
    written({"client-certificate": "/nowhere/c.pem", "client-key": "/nowhere/k.pem"})
    with pytest.raises(
        LauncherError,
        match=r"/kubeconfig:\d+: client-certificate of the user u is /nowhere/c\.pem, which cannot be read: No such",
    ):
        kubeconfig.load()


def test_rarely_needed_packages_are_not_imported(written: Any) -> None:
    written({"token": "secret"})
    # The backend is imported by each verb that reads runs; only `submit` renders and compares plans.
    of_submit = ("asyncio", "launcher.config.plan", "launcher.helm.client")
    code = "import sys; from launcher.k8s.client import connect; import launcher.backends.kubernetes.backend; connect()"
    assert _python(f"{code}; print(*set({HEAVY + of_submit}) & set(sys.modules))") == ""


@pytest.mark.parametrize(
    ("variable", "files", "reason", "message"),
    [
        (None, [], "", "There is no ~/.kube/config"),
        ("", [], "", "There is no ~/.kube/config"),
        ("/dev/null", [], "", "KUBECONFIG names no file"),
        (
            "HOME/a",
            [],
            "KUBECONFIG names HOME/a, which does not exist",
            "KUBECONFIG names HOME/a, which does not exist",
        ),
        ("/dev/null:HOME/b", ["b"], "", ""),
    ],
)
def test_no_kubeconfig(
    variable: str | None, files: list[str], reason: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    monkeypatch.delenv("KUBECONFIG")
    if variable is not None:
        monkeypatch.setenv("KUBECONFIG", variable.replace("HOME", str(tmp_path)))
    for name in files:
        (tmp_path / name).write_text("")
    assert kubeconfig.files() == [tmp_path / name for name in files]
    assert kubeconfig.nowhere() == reason.replace("HOME", str(tmp_path))
    if not files:
        with pytest.raises(kubeconfig.NoCluster) as refused:
            kubeconfig.load()
        assert (
            refused.value.message == f"{message.replace('HOME', str(tmp_path))}, so there is no cluster to connect to."
        )
        assert refused.value.hint.startswith("Set KUBECONFIG to the path of your cluster's kubeconfig")
        assert "run.kind" not in refused.value.hint


def _python(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()
