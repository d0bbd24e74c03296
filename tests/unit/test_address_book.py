"""How an API server is reached and as whom: the launcher, kubectl and Helm send the same for the same kubeconfig.

tests/unit/address_cases.py has what arrives at the servers of tests/unit/address_servers.py. The quick tests compare
the launcher with the table, and the slow ones the real kubectl and the real Helm, so that the table is what they do.
"""

from __future__ import annotations

import base64
import json
import os
import re
import stat
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization

from launcher.config.values.writer import dumps
from launcher.errors import LauncherError
from launcher.k8s import identity, kubeconfig
from launcher.k8s.client import connect
from launcher.k8s.errors import Unauthorized
from tests.tools.go_tools import tool
from tests.unit.address_cases import ALL, API, CASES, CLUSTER, DIRECT, FILES, LAB, OTHERS, PLUGIN_V1, USER, Case, plugin
from tests.unit.address_servers import Servers


class Book:
    """Writes the kubeconfig of a case, in the folder with the files that it names."""

    def __init__(self, servers: Servers, folder: Path) -> None:
        self.servers, self.folder = servers, folder
        certificate, key = servers.ca.issue("alice")
        certificate.rename(folder / "alice.crt")
        key.rename(folder / "alice.key")
        (folder / "server.crt").write_bytes(next(folder.glob("*-api.crt")).read_bytes())
        (folder / "locked.key").write_bytes(
            serialization.load_pem_private_key((folder / "alice.key").read_bytes(), None).private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.BestAvailableEncryption(b"password"),
            )
        )
        (folder / "token").write_text("from-file\n")
        (folder / "empty").write_text("\n")
        pem = {name: (folder / f"alice.{end}").read_text() for name, end in (("Certificate", "crt"), ("Key", "key"))}
        certificates = {f"client{name}Data": text for name, text in pem.items()}
        self.program("plugin", f"echo '{credential(token='fresh')}' | sed \"s|k8s.io/v1|k8s.io/${{VERSION:-v1}}|\"")
        self.program("where", f"echo '{credential(token='HERE')}' | sed \"s|HERE|$(pwd)|\"")
        self.program(
            "info", f"printf %s \"$KUBERNETES_EXEC_INFO\" >{folder}/info.json; echo '{credential(token='seen')}'"
        )
        self.program("certificate", f"printf %s '{credential(**certificates)}'")
        self.program("failing", "echo No login >&2; exit 3")
        self.program("text", "echo hello")

    def program(self, name: str, script: str) -> None:
        file = self.folder / name
        file.write_text(f"#!/bin/sh\n{script}\n")
        file.chmod(file.stat().st_mode | stat.S_IXUSR)

    def fill(self, text: str) -> str:
        """Replace the names in a text."""
        for file in ("alice.crt", "alice.key", "authority.crt"):
            text = text.replace(f"$B64{file}", base64.b64encode((self.folder / file).read_bytes()).decode())
        for name in sorted(self.servers.ports, key=len, reverse=True):
            text = text.replace(f"${name}", str(self.servers.ports[name]))
        names = {"DIR": str(self.folder), "CWD": str(Path.cwd()), "INFO": "seen", "JWT": jwt(1 << 34), "OLDJWT": jwt(1)}
        for name, value in names.items():
            text = text.replace(f"${name}", value)
        return text

    def config(self, case: Case) -> dict[str, str]:
        """Write the kubeconfig; return the environment."""
        authority = (
            {"certificate-authority": "authority.crt"} if case.trusted and case.server.startswith("https") else {}
        )
        tree = {
            "contexts": [{"name": "lab", "context": {"cluster": "c", "user": "me"}}],
            "clusters": [{"name": "c", "cluster": {"server": case.server, **authority, **case.cluster}}],
            "users": [{"name": "me", "user": case.user}],
            "current-context": "lab",
        }
        file = self.folder / "config"
        file.write_text(self.fill(dumps(tree)))
        return {"KUBECONFIG": str(file), **{name: self.fill(value) for name, value in case.env.items()}}


def credential(**status: str) -> str:
    return json.dumps({"apiVersion": PLUGIN_V1, "kind": "ExecCredential", "status": status}).replace("'", "")


def jwt(expires: int) -> str:
    claims = base64.urlsafe_b64encode(json.dumps({"exp": expires}).encode()).decode().rstrip("=")
    return f"a.{claims}.b"


@pytest.fixture(scope="module")
def book(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Book]:
    folder = tmp_path_factory.mktemp("book")
    with Servers(folder) as servers:
        yield Book(servers, folder)


@pytest.mark.parametrize("name", CASES)
def test_the_launcher(name: str, book: Book, monkeypatch: pytest.MonkeyPatch) -> None:
    case = CASES[name]
    for variable in [each for each in os.environ if each.lower().endswith("_proxy")]:
        monkeypatch.delenv(variable)
    for variable, value in book.config(case).items():
        monkeypatch.setenv(variable, value)
    sent, message = _asked(book)
    assert sent == [book.fill(line) for line in case.sent], message
    if found := re.match(r".*?/config:(\d+): (\S+ \S+)", message):
        lines = (book.folder / "config").read_text().splitlines()
        assert any(f"{word}:" in lines[int(found[1]) - 1] for word in found[2].split()), message
        message = message.replace(f"/config:{found[1]}:", "/config:LINE:")
    assert message.startswith(book.fill(case.refused))
    assert bool(message) == bool(case.refused), message
    assert not message or message.endswith("."), message


@pytest.mark.parametrize("name", CASES)
def test_kubectl(name: str, book: Book) -> None:
    """The table is what kubectl does. In a case that the launcher refuses, kubectl fails, too."""
    case = CASES[name]
    command = [str(tool("kubectl")), "get", "--raw", "/version", "--request-timeout=10s"]
    done = _run(command, book.config(case), book)
    sent = [book.fill(line) for line in (case.sent if case.kubectl is None else case.kubectl)]
    assert book.servers.take() == sent, done.stderr
    assert (done.returncode == 0) == (not case.refused or case.kubectl is not None), done.stderr


def write_files(names: str, book: Book) -> dict[str, str]:
    """Write the files; return the environment."""
    folder = book.folder
    (folder / "below").mkdir(exist_ok=True)
    below = {"clusters": [{"name": "c", "cluster": {"server": API, "certificate-authority": "../authority.crt"}}]}
    trees = {"all": ALL, "lab": LAB, "cluster": CLUSTER, "user": USER, "others": OTHERS, "below/cluster": below}
    trees |= {"null": dict.fromkeys(ALL), "twice": {**ALL, "users": USER["users"] * 2}, "texts": {"clusters": ["c"]}}
    (folder / "secret").write_text("secret\n")
    trees |= {"below/user": {"users": [{"name": "me", "user": {"tokenFile": "../secret"}}]}}
    trees |= {"alone": {"contexts": [{"name": "lab", "context": {"user": "me"}}], "current-context": "lab"}}
    trees |= {"nothing": {"clusters": [{"name": "c", "cluster": {}}]}, "pod": {**ALL, "kind": "Pod"}}
    trees |= {
        "v2": {**ALL, "apiVersion": "v2"},
        "bare": {key: ALL[key] for key in ALL if key not in ("apiVersion", "kind")},
    }
    texts = {name: book.fill(dumps(tree)) for name, tree in trees.items()}
    texts |= {
        "empty-file": "",
        "comments": "# nothing\n",
        "broken": "a: [b",
        "list": "- a\n",
        "tabs": book.fill(json.dumps(ALL, indent="\t")),
    }
    texts |= {"windows": "\ufeff" + texts["all"].replace("\n", "\r\n")}
    for name, text in texts.items():
        (folder / name).write_bytes(text.encode())
    (folder / "utf16").write_bytes(texts["all"].encode("utf-16"))
    return {"KUBECONFIG": os.pathsep.join(str(folder / name) for name in names.split())}


@pytest.mark.parametrize("name", FILES)
def test_files_of_the_launcher(name: str, book: Book, monkeypatch: pytest.MonkeyPatch) -> None:
    names, refused = FILES[name]
    for variable, value in write_files(names, book).items():
        monkeypatch.setenv(variable, value)
    sent, message = _asked(book)
    assert sent == ([] if refused else DIRECT), message
    assert re.sub(r":\d+: the", ":LINE: the", message).startswith(book.fill(refused))
    assert bool(message) == bool(refused), message


@pytest.mark.parametrize("name", FILES)
def test_files_of_kubectl(name: str, book: Book) -> None:
    names, refused = FILES[name]
    done = _run([str(tool("kubectl")), "get", "--raw", "/version"], write_files(names, book), book)
    assert book.servers.take() == ([] if refused else DIRECT), done.stderr
    assert (done.returncode == 0) == (not refused), done.stderr


def test_a_plugin_of_another_cloud_has_an_install_hint(book: Book, monkeypatch: pytest.MonkeyPatch) -> None:
    """The kubeconfig of AKS, and one without a hint."""
    for hint, shown in (
        ("Install kubelogin:\n  brew install kubelogin", None),
        ("", "Install it, or correct its path"),
    ):
        user = plugin("kubelogin-of-nobody", installHint=hint)
        for variable, value in book.config(Case(user=user)).items():
            monkeypatch.setenv(variable, value)
        with pytest.raises(LauncherError) as refused:
            connect()
        assert refused.value.message.endswith("failed: kubelogin-of-nobody is not installed.")
        assert refused.value.hint.startswith(shown or hint)


def test_a_rejected_credential_is_replaced(book: Book, monkeypatch: pytest.MonkeyPatch) -> None:
    """The plugin runs once for many requests, and again after its credential was rejected or a certificate changed."""
    calls = book.folder / "calls"
    answer = credential(token="N")
    book.program("counting", f"echo >>{calls}; echo '{answer}' | sed \"s/N/$(wc -l <{calls} | tr -d ' ')/\"")
    for variable, value in book.config(Case(user=plugin("./counting"))).items():
        monkeypatch.setenv(variable, value)
    book.servers.take()
    cluster = connect()
    for _ in range(2):
        cluster.request("GET", "/version")
    with pytest.raises(Unauthorized):
        cluster.request("GET", "/rejects")
    cluster.in_namespace("other").request("GET", "/version")
    assert book.servers.take() == [f"HTTPS, authorization: Bearer {number}" for number in (1, 1, 1, 2)]


def test_an_id_token_that_kubectl_renewed_is_read_again(book: Book, monkeypatch: pytest.MonkeyPatch) -> None:
    def user(token: str) -> Case:
        return Case(user={"auth-provider": {"name": "oidc", "config": {"id-token": token}}})

    old, renewed = jwt(1 << 34), jwt(1 << 35)
    for variable, value in book.config(user(old)).items():
        monkeypatch.setenv(variable, value)
    cluster = connect()
    book.config(user(renewed))
    book.servers.take()
    cluster.request("GET", "/version")
    monkeypatch.setattr(identity, "_expired", lambda token: token == old)  # instead of a wait
    cluster.request("GET", "/version")
    assert book.servers.take() == [f"HTTPS, authorization: Bearer {token}" for token in (old, renewed)]


def test_a_pod(book: Book, monkeypatch: pytest.MonkeyPatch) -> None:
    """The kubelet renews the token of a service account in place."""
    account = book.folder / "account"
    account.mkdir()
    for name, text in (
        ("token", "of-pod\n"),
        ("namespace", "team"),
        ("ca.crt", (book.folder / "authority.crt").read_text()),
    ):
        (account / name).write_text(text)
    monkeypatch.setattr(kubeconfig, "_SERVICE_ACCOUNT", account)
    monkeypatch.setenv("KUBECONFIG", os.devnull)
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "127.0.0.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", str(book.servers.ports["HTTPS"]))
    book.servers.take()
    cluster = connect()
    assert (cluster.context, cluster.namespace) == ("in-cluster", "team")
    cluster.request("GET", "/version")
    (account / "token").write_text("renewed")
    cluster.request("GET", "/version")
    assert book.servers.take() == [f"HTTPS, authorization: Bearer {token}" for token in ("of-pod", "renewed")]
    monkeypatch.setenv("POD_NAMESPACE", "other")
    assert connect().namespace == "other"


# One case for each kind of setting: Helm has the same Go client as kubectl.
OF_HELM = ["as-user-extra", "a plugin", "socks5 with a password", "proxy with TLS", "HTTPS_PROXY without a scheme"]


@pytest.mark.parametrize("helm", ["helm", "helm3"])
@pytest.mark.parametrize("name", [*OF_HELM, "proxy-url socks5h", "groups without a user"])
def test_helm(name: str, helm: str, book: Book) -> None:
    case = CASES[name]
    _run([str(tool(helm)), "list", "--kube-context", "lab"], book.config(case), book)
    sent = [book.fill(line) for line in case.sent]
    assert book.servers.take()[: len(sent) or None] == sent


def _asked(book: Book) -> tuple[list[str], str]:
    """Send one request of the launcher; return the lines that arrive, and the message of its error."""
    book.servers.take()
    message = ""
    try:
        connect().request("GET", "/version")
    except LauncherError as error:
        message = error.message
    return book.servers.take(), message


def _run(command: list[str], environment: dict[str, str], book: Book) -> subprocess.CompletedProcess[str]:
    clean = {name: value for name, value in os.environ.items() if not name.lower().endswith("_proxy")}
    book.servers.take()
    return subprocess.run(
        command,
        env={**clean, **environment, "HOME": str(book.folder)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
